/* Lowering: what each pass makes of a graph, when it refuses, and when a pattern
 * must not fire.  That the numbers are right is checked in test_codegen_run.c. */
#include <stdio.h>

#include "codegen/pass.h"
#include "tests/unit/lowering.h"

/* ---- small graphs ---- */

typedef struct Mini { Build b; DimId d, n; ValueId x; } Mini;

/* An inference model with one input x[batch, d]. */
static Mini mini(void)
{
    Mini m = {.b = build_new(4)};
    m.d = dim(&m.b, "d", 16);
    m.n = dim(&m.b, "n", 12);
    m.x = input(&m.b, "x", DT_f32, SHAPE(m.b.g->batch, m.d));
    return m;
}

static ValueId own(Mini *m, OpKind kind, const char *path)
{
    return map1(&m->b, kind, path, m->x);
}

static void output(Build *b, ValueId v)
{
    PUSH(b->a, b->g->output, b->g->noutput, v);
}

/* Lower the inference model whose outputs are given, and forget the build. */
static Program *inferred(Mini *m, int n, const ValueId *out)
{
    for (int i = 0; i < n; i++)
        output(&m->b, out[i]);
    Program *p = lowered(&m->b, 1);
    assert_null(proc(p, PROC_forward));
    return p;
}
#define INFERRED(m, ...) inferred((m), (int)(sizeof((ValueId[]){__VA_ARGS__}) / sizeof(ValueId)), (ValueId[]){__VA_ARGS__})

static int evaluated(const Program *p, OpKind op)
{
    return count_op(p, PROC_evaluate, op);
}

/* ---- a whole model ---- */

static void gpt2_is_lowered(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 2);
    assert_int_equal(p->nproc, PROCS);
    assert_int_equal(p->batch, 4);
    assert_int_equal(p->microbatches, 2);
    assert_int_equal(p->tokens, 32);
    assert_int_equal(p->nstate, b.g->nweight);
    assert_true(p->model_flops > 0 && p->model_flops == graph_model_flops(b.g, false));
    assert_int_equal(count_op(p, PROC_begin, OP_count_labels), 1);
    assert_int_equal(count_op(p, PROC_forward, OP_add_layernorm), 4);
    assert_int_equal(count_op(p, PROC_forward, OP_linear_gelu), 2);
    assert_int_equal(count_op(p, PROC_forward, OP_cross_entropy_both), 1);
    assert_int_equal(count_op(p, PROC_backward, OP_cross_entropy_grad), 0);
    assert_int_equal(count_op(p, PROC_backward, OP_add), 0);
    assert_int_equal(count_op(p, PROC_backward, OP_constant), 0);
    const Tensor *ids = &p->tensor[p->input[0].tensor.i];
    assert_int_equal(ids->axis[0].local, 2);
    assert_int_equal(ids->axis[0].global, 4);
    assert_true(ids->axis[0].micro && !ids->axis[1].micro);
    assert_int_equal(p->buffer[ids->buffer.i].slots, 2);
    assert_true(p->buffer[ids->buffer.i].by_micro);
    build_free(&b);
}

static void evaluation_drops_and_saves_nothing(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 1);
    assert_int_equal(count_op(p, PROC_forward, OP_dropout), 5);
    assert_int_equal(evaluated(p, OP_dropout), 0);
    assert_int_equal(evaluated(p, OP_attention), 2);
    const Proc *e = proc(p, PROC_evaluate);
    for (uint32_t i = e->first; i < e->end; i++) {
        const Instr *in = &p->instr[i];
        for (int k = 1; k < in->nout; k++)
            assert_false(has_tensor(in->out[k]));
        if (in->op == OP_attention)
            assert_true(instr_attr(in, "dropout")->f == 0);
    }
    const Instr *ce = the(p, PROC_evaluate, OP_cross_entropy);
    assert_true(ce->out[0].i == p->loss.i && ce->acc == ACC_AFTER_FIRST);
    build_free(&b);
}

static void dropout_of_nothing_is_no_instruction(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    Sizes z = tiny;
    z.drop = 0;
    gpt2(&b, z);
    Program *p = lowered(&b, 1);
    assert_int_equal(count_op(p, PROC_forward, OP_dropout) + count_op(p, PROC_backward, OP_dropout), 0);
    build_free(&b);
}

static void inference_has_no_training_memory(void **unused)
{
    (void)unused;
    Mini m = mini();
    ValueId y = linear(&m.b, "y", m.x, SHAPE(m.d), SHAPE(m.n), true);
    Program *p = INFERRED(&m, y);
    assert_int_equal(p->nproc, 1);
    assert_int_equal(p->ncall, 0);
    assert_false(has_tensor(p->loss));
    for (uint32_t i = 0; i < p->nbuffer; i++)
        assert_true(p->buffer[i].cls != CLASS_gradients && p->buffer[i].cls != CLASS_moments);
    assert_int_equal(p->noutput, 1);
    assert_int_equal(p->buffer[on(p, p->output[0]).i].last, (int)p->ninstr - 1);
    build_free(&m.b);
}

static void same_plan_same_bytes(void **unused)
{
    (void)unused;
    uint64_t hash[2];
    for (int i = 0; i < 2; i++) {
        Build b = build_new(tiny.batch);
        llama(&b, tiny);
        hash[i] = program_hash(lowered(&b, 2));
        build_free(&b);
    }
    assert_true(hash[0] == hash[1]);
}

/* ---- cross_entropy_both ---- */

static void cross_entropy_takes_its_seed(void **unused)
{
    (void)unused;
    Mini m = mini();
    ValueId y = input(&m.b, "y", DT_i32, SHAPE(m.b.g->batch));
    ValueId ce = cross_entropy(&m.b, "ce", linear(&m.b, "z", m.x, SHAPE(m.d), SHAPE(m.n), true), y);
    OpSpec half = spec(&m.b, OP_scale, "half", 1, &ce, SCALAR);
    half.attr[op_attr_index(OP_scale, "by")] = ATTR_F(0.5);
    minimize(&m.b, emit(&m.b, &half));
    Program *p = lowered(&m.b, 1);
    const Instr *both = the(p, PROC_forward, OP_cross_entropy_both);
    assert_true(instr_attr(both, "seed")->f == 0.5);
    assert_int_equal(on(p, both->arg[0]).i, on(p, both->out[1]).i);
    build_free(&m.b);
}

static void cross_entropy_stays_where_logits_are_read_again(void **unused)
{
    (void)unused;
    Mini m = mini();
    ValueId y = input(&m.b, "y", DT_i32, SHAPE(m.b.g->batch));
    ValueId z = linear(&m.b, "z", m.x, SHAPE(m.d), SHAPE(m.n), true);
    ValueId norm = op1(&m.b, OP_reduce, "norm", map2(&m.b, OP_mul, "zz", z, z), SCALAR);
    minimize(&m.b, map2(&m.b, OP_add, "sum", cross_entropy(&m.b, "ce", z, y), norm));
    Program *p = lowered(&m.b, 1);
    assert_int_equal(count_op(p, PROC_forward, OP_cross_entropy), 1);
    assert_int_equal(count_op(p, PROC_backward, OP_cross_entropy_grad), 1);
    build_free(&m.b);
}

static void cross_entropy_stays_under_a_gradient_made_later(void **unused)
{
    (void)unused;
    Mini m = mini();
    ValueId y = input(&m.b, "y", DT_i32, SHAPE(m.b.g->batch));
    ValueId ce = cross_entropy(&m.b, "ce", linear(&m.b, "z", m.x, SHAPE(m.d), SHAPE(m.n), true), y);
    minimize(&m.b, map2(&m.b, OP_mul, "weighted", ce, weight(&m.b, "scale", SCALAR)));
    assert_int_equal(count_op(lowered(&m.b, 1), PROC_forward, OP_cross_entropy), 1);
    build_free(&m.b);
}

/* ---- additions into memory ---- */

static void an_addition_becomes_accumulation(void **unused)
{
    (void)unused;
    Mini m = mini();
    ValueId f = linear(&m.b, "f", own(&m, OP_tanh, "t"), SHAPE(m.d), SHAPE(m.d), true);
    Program *p = INFERRED(&m, map1(&m.b, OP_relu, "r", map2(&m.b, OP_add, "a", own(&m, OP_silu, "s"), f)));
    assert_int_equal(evaluated(p, OP_add), 1);       /* silu is made after f: nothing to add into */
    build_free(&m.b);
    m = mini();
    ValueId s = own(&m, OP_silu, "s");
    f = linear(&m.b, "f", own(&m, OP_tanh, "t"), SHAPE(m.d), SHAPE(m.d), true);
    p = INFERRED(&m, map1(&m.b, OP_relu, "r", map2(&m.b, OP_add, "a", f, s)));
    assert_int_equal(evaluated(p, OP_add), 0);
    const Instr *lin = the(p, PROC_evaluate, OP_linear);
    assert_true(lin->acc == ACC_YES && lin->acc_out == 1);
    assert_int_equal(on(p, lin->out[0]).i, on(p, the(p, PROC_evaluate, OP_silu)->out[0]).i);
    build_free(&m.b);
}

/* Variants of r = relu(s + f(t)): what is added, and what else is read. */
static int additions_left(OpKind term, bool sum_read, bool term_read, bool broadcast, bool sum_is_input)
{
    Mini m = mini();
    ValueId s = sum_is_input ? m.x : own(&m, OP_silu, "s"), t = own(&m, OP_tanh, "t"), f;
    if (term == OP_linear)
        f = linear(&m.b, "f", t, SHAPE(m.d), SHAPE(m.d), true);
    else if (broadcast)
        f = op1(&m.b, OP_reduce, "f", t, SHAPE(m.d));
    else
        f = map1(&m.b, term, "f", t);
    ValueId r = map1(&m.b, OP_relu, "r", map2(&m.b, OP_add, "a", s, f));
    if (sum_read)
        r = map2(&m.b, OP_mul, "rs", r, s);
    if (term_read)
        r = map2(&m.b, OP_mul, "rf", r, f);
    Program *p = INFERRED(&m, r);
    int left = evaluated(p, OP_add);
    build_free(&m.b);
    return left;
}

static void an_addition_stays(void **unused)
{
    (void)unused;
    assert_int_equal(additions_left(OP_linear, false, false, false, false), 0);
    assert_int_equal(additions_left(OP_linear, true, false, false, false), 1);
    assert_int_equal(additions_left(OP_linear, false, true, false, false), 1);
    assert_int_equal(additions_left(OP_linear, false, false, false, true), 1);
    assert_int_equal(additions_left(OP_tanh, false, false, false, false), 1);    /* cannot add */
    assert_int_equal(additions_left(OP_reduce, false, false, true, false), 1);
}

/* ---- add + norm ---- */

static Program *add_then_norm(Mini *m, bool rms, bool broadcast, bool read_first)
{
    ValueId s = own(m, OP_silu, "s"), t = broadcast ? weight(&m->b, "bias", SHAPE(m->d)) : own(m, OP_tanh, "t");
    ValueId a = op2(&m->b, OP_add, "a", s, t, shape_of(&m->b, s));
    ValueId early = read_first ? map1(&m->b, OP_silu, "early", a) : a;
    ValueId n = rms ? rmsnorm(&m->b, "n", a) : layernorm(&m->b, "n", a);
    return INFERRED(m, n, early);
}

static void an_addition_joins_its_norm(void **unused)
{
    (void)unused;
    for (int rms = 0; rms < 2; rms++) {
        OpKind fused = rms ? OP_add_rmsnorm : OP_add_layernorm;
        Mini m = mini();
        Program *p = add_then_norm(&m, rms, false, false);
        const Instr *in = the(p, PROC_evaluate, fused);
        assert_int_equal(evaluated(p, OP_add), 0);
        assert_true(has_tensor(in->out[1]));         /* the sum is an output */
        assert_false(has_tensor(in->out[2]));
        build_free(&m.b);
        m = mini();
        assert_int_equal(evaluated(add_then_norm(&m, rms, true, false), fused), 0);
        build_free(&m.b);
        m = mini();
        assert_int_equal(evaluated(add_then_norm(&m, rms, false, true), fused), 0);
        build_free(&m.b);
    }
}

/* ---- silu_mul ---- */

/* sum of silu(g) * u over everything, trained; `reads` adds a reader of silu(g). */
static Program *gated(Mini *m, bool reads, bool broadcast)
{
    Build *b = &m->b;
    ValueId g = linear(b, "g", m->x, SHAPE(m->d), SHAPE(m->n), false);
    ValueId u = broadcast ? weight(b, "u", SHAPE(m->n)) : linear(b, "u", m->x, SHAPE(m->d), SHAPE(m->n), false);
    ValueId s = map1(b, OP_silu, "s", g);
    ValueId p = op2(b, OP_mul, "p", s, u, shape_of(b, s));
    if (reads)
        p = map2(b, OP_mul, "ps", p, s);
    minimize(b, op1(b, OP_reduce, "loss", p, SCALAR));
    return lowered(b, 1);
}

static void a_gate_is_one_instruction_each_way(void **unused)
{
    (void)unused;
    Mini m = mini();
    Program *p = gated(&m, false, false);
    (void)the(p, PROC_forward, OP_silu_mul);
    (void)the(p, PROC_backward, OP_silu_mul_grad);
    assert_int_equal(count_op(p, PROC_forward, OP_silu) + count_op(p, PROC_forward, OP_mul), 0);
    assert_int_equal(count_op(p, PROC_backward, OP_silu_grad) + count_op(p, PROC_backward, OP_mul), 0);
    build_free(&m.b);
    for (int k = 0; k < 2; k++) {
        m = mini();
        p = gated(&m, k == 0, k == 1);
        assert_int_equal(count_op(p, PROC_forward, OP_silu_mul), 0);
        assert_int_equal(count_op(p, PROC_backward, OP_silu_mul_grad), 0);
        build_free(&m.b);
    }
}

/* ---- linear_gelu ---- */

static void a_product_joins_its_gelu(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 1);
    const Proc *f = proc(p, PROC_forward);
    for (uint32_t i = f->first; i < f->end; i++)     /* gelu_grad needs the product */
        assert_true(p->instr[i].op != OP_linear_gelu || has_tensor(p->instr[i].out[1]));
    build_free(&b);
    Mini m = mini();
    DimId h = dim(&m.b, "h", 3), e = dim(&m.b, "e", 4);
    p = INFERRED(&m, map1(&m.b, OP_gelu, "y", linear(&m.b, "z", m.x, SHAPE(m.d), SHAPE(h, e), true)));
    assert_int_equal(evaluated(p, OP_linear_gelu), 0);
    build_free(&m.b);
    m = mini();
    ValueId z = linear(&m.b, "z", m.x, SHAPE(m.d), SHAPE(m.n), true), first = map1(&m.b, OP_tanh, "first", z);
    p = INFERRED(&m, first, map1(&m.b, OP_gelu, "y", z));
    assert_int_equal(evaluated(p, OP_linear_gelu), 0);
    build_free(&m.b);
}

/* ---- in place, and dead ---- */

static bool relu_in_place(bool read_later, bool of_input)
{
    Mini m = mini();
    ValueId s = of_input ? m.x : own(&m, OP_silu, "s"), r = map1(&m.b, OP_relu, "r", s);
    Program *p = INFERRED(&m, read_later ? map2(&m.b, OP_add, "a", r, s) : r);
    const Instr *in = the(p, PROC_evaluate, OP_relu);
    bool same = on(p, in->arg[0]).i == on(p, in->out[0]).i;
    build_free(&m.b);
    return same;
}

static void results_take_the_place_of_dying_arguments(void **unused)
{
    (void)unused;
    assert_true(relu_in_place(false, false));
    assert_false(relu_in_place(true, false));
    assert_false(relu_in_place(false, true));
    Mini m = mini();                                 /* of a sum, whichever side dies */
    ValueId s = own(&m, OP_silu, "s");
    Program *p = INFERRED(&m, map2(&m.b, OP_add, "a", m.x, s));
    const Instr *add = the(p, PROC_evaluate, OP_add);
    assert_int_equal(on(p, add->out[0]).i, on(p, the(p, PROC_evaluate, OP_silu)->out[0]).i);
    build_free(&m.b);
    m = mini();                                      /* not where it is read twice */
    s = own(&m, OP_silu, "s");
    p = INFERRED(&m, map2(&m.b, OP_mul, "square", s, s));
    assert_true(on(p, the(p, PROC_evaluate, OP_mul)->out[0]).i != on(p, the(p, PROC_evaluate, OP_silu)->out[0]).i);
    build_free(&m.b);
}

static void dead_instructions_go(void **unused)
{
    (void)unused;
    Mini m = mini();
    (void)map1(&m.b, OP_gelu, "unused", own(&m, OP_tanh, "also"));
    Program *p = INFERRED(&m, own(&m, OP_silu, "s"));
    assert_int_equal(p->ninstr, 1);
    build_free(&m.b);
}

/* ---- gradients ---- */

static void tied_gradients_add_up_in_one_place(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 2);
    BufferId g = on(p, state(p, "wte")->gradient);
    int64_t at = p->tensor[state(p, "wte")->gradient.i].at;
    int first = 0, more = 0;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        if (in->acc == ACC_NO || on(p, in->out[0]).i != g.i || p->tensor[in->out[0].i].at != at)
            continue;
        first += in->acc == ACC_AFTER_FIRST && in->op == OP_contract;
        more += in->acc == ACC_YES && in->op == OP_embed_grad;
    }
    assert_int_equal(first, 1);
    assert_int_equal(more, 1);
    build_free(&b);
}

/* A writer that cannot add, and one gradient of two weights, go through copies. */
static void other_gradients_are_copied_in(void **unused)
{
    (void)unused;
    Mini m = mini();
    ValueId p1 = weight(&m.b, "p", SHAPE(m.d)), q = weight(&m.b, "q", SHAPE(m.d));
    ValueId s = map2(&m.b, OP_add, "pq", p1, q);
    minimize(&m.b, op1(&m.b, OP_reduce, "loss", op2(&m.b, OP_mul, "xs", m.x, s, shape_of(&m.b, m.x)), SCALAR));
    Program *p = lowered(&m.b, 1);
    assert_int_equal(count_op(p, PROC_backward, OP_expand), 3);      /* of the loss's gradient, and two copies */
    assert_true(p->tensor[state(p, "p")->gradient.i].at != p->tensor[state(p, "q")->gradient.i].at);
    build_free(&m.b);
}

static void verify_sees_a_gradient_out_of_turn(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 2);
    FILE *err = fopen("/dev/null", "w");
    assert_int_equal(verify(p, err), 0);
    const Proc *back = proc(p, PROC_backward);
    uint32_t i = back->first;
    while (p->instr[i].acc != ACC_AFTER_FIRST)
        i++;
    p->instr[i].acc = ACC_YES;
    assert_true(verify(p, err) > 0);
    p->instr[i].acc = ACC_AFTER_FIRST;
    p->ncall--;
    p->call[p->ncall - 1] = p->call[p->ncall - 2];   /* one micro-batch's backward is lost */
    assert_true(verify(p, err) > 0);
    fclose(err);
    build_free(&b);
}

/* ---- micro-batches ---- */

static void a_batch_that_does_not_divide(void **unused)
{
    (void)unused;
    Build b = build_new(12);
    Sizes z = tiny;
    z.batch = 12;
    gpt2(&b, z);
    assert_string_equal(refusal(&b, 5), "'batch = 12' cannot be cut into 5 micro-batches of equal size");
    assert_string_equal(b.ds->first->note->text, "the nearest numbers that divide it: 4 and 6");
    build_free(&b);
}

static const char *obstacle_of(Mini *m, ValueId loss)
{
    minimize(&m->b, loss);
    (void)lowered(&m->b, 1);                         /* one micro-batch is always right */
    const char *text = refusal(&m->b, 2);
    static const char head[] = "the batch cannot be cut into 2 micro-batches: op ";
    assert_memory_equal(text, head, sizeof head - 1);
    return text + sizeof head - 1;
}

static ValueId features(Mini *m)
{
    return linear(&m->b, "z", m->x, SHAPE(m->d), SHAPE(m->n), false);
}

static void the_obstacle_is_named(void **unused)
{
    (void)unused;
    Mini m = mini();                                 /* centered over the batch */
    ValueId z = features(&m);
    ValueId mean = op1(&m.b, OP_reduce, "mean", z, SHAPE(m.n));
    ValueId c = op2(&m.b, OP_sub, "centered", z, mean, shape_of(&m.b, z));
    assert_string_equal(obstacle_of(&m, op1(&m.b, OP_reduce, "loss", c, SCALAR)),
                        "'centered' (sub) meets a sum over the batch that is not complete yet");
    build_free(&m.b);

    m = mini();                                      /* a function of the mean loss that is not linear */
    assert_string_equal(obstacle_of(&m, map1(&m.b, OP_tanh, "squash", op1(&m.b, OP_reduce, "sum", features(&m), SCALAR))),
                        "'squash' (tanh) is not linear in a sum over the batch");
    build_free(&m.b);

    m = mini();                                      /* a weight per sample */
    ValueId w = weight(&m.b, "w", SHAPE(m.b.g->batch, m.n));
    assert_string_equal(obstacle_of(&m, op1(&m.b, OP_reduce, "loss", map2(&m.b, OP_mul, "zw", features(&m), w), SCALAR)),
                        "'zw' (mul) reads the whole batch axis of a value that is not given per sample");
    build_free(&m.b);

    m = mini();                                      /* one sample of the batch */
    OpSpec s = spec(&m.b, OP_select, "first", 1, (ValueId[]){features(&m)}, SHAPE(m.n));
    assert_string_equal(obstacle_of(&m, op1(&m.b, OP_reduce, "loss", emit(&m.b, &s), SCALAR)), "'first' (select) needs the whole batch at once");
    build_free(&m.b);

    m = mini();                                      /* a learned weight of the loss */
    ValueId sum = op1(&m.b, OP_reduce, "sum", features(&m), SCALAR);
    assert_string_equal(obstacle_of(&m, map2(&m.b, OP_mul, "weighted", sum, weight(&m.b, "scale", SCALAR))),
                        "'grad:weighted.y.mul' (mul) reads in backward a sum over the batch of the forward pass");
    build_free(&m.b);
}

static void all_pairs_are_an_obstacle(void **unused)
{
    (void)unused;
    Mini m = mini();
    ValueId z = features(&m);
    DimId column = dim(&m.b, "column", 4);
    OpSpec other = spec(&m.b, OP_rename, "other", 1, &z, SHAPE(column, m.n));
    other.by_dim = false;
    other.label[0][0] = other.out[0].label[0] = 0;
    other.label[0][1] = other.out[0].label[1] = 1;
    ValueId pairs = op2(&m.b, OP_contract, "pairs", z, emit(&m.b, &other), SHAPE(m.b.g->batch, column));
    assert_string_equal(obstacle_of(&m, op1(&m.b, OP_reduce, "loss", pairs, SCALAR)), "'pairs' (contract) pairs each sample with all samples of the batch");
    build_free(&m.b);
}

static void a_step_is_scheduled(void **unused)
{
    (void)unused;
    Build b = build_new(6);
    Sizes z = tiny;
    z.batch = 6;
    llama(&b, z);
    Program *p = lowered(&b, 3);
    static const ProcKind want[] = {PROC_begin, PROC_begin, PROC_begin, PROC_forward, PROC_backward,
                                    PROC_forward, PROC_backward, PROC_forward, PROC_backward, PROC_update};
    static const uint32_t micro[] = {0, 1, 2, 0, 0, 1, 1, 2, 2, 0};
    assert_int_equal(p->ncall, sizeof want / sizeof *want);
    for (uint32_t i = 0; i < p->ncall; i++) {
        assert_int_equal(p->proc[p->call[i].proc].kind, want[i]);
        assert_int_equal(p->call[i].micro, micro[i]);
        assert_int_equal(p->call[i].slot, 0);
    }
    build_free(&b);
}

/* ---- what is refused ---- */

static const char *refused_precision(Precision pr, bool peak)
{
    Build b = build_new(tiny.batch);
    b.g->precision = pr;
    llama(&b, tiny);
    b.cl->device->peak[pr.compute] = peak ? 1e12 : 0;
    const char *text = strdup(refusal(&b, 1));
    build_free(&b);
    return text;
}

static void check_refusal(const char *got, const char *want)
{
    assert_string_equal(got, want);
    free((void *)(uintptr_t)got);
}

static void precisions_are_refused_by_key(void **unused)
{
    (void)unused;
    check_refusal(refused_precision((Precision){DT_bf16, DT_bf16, DT_f32, DT_f32, DT_f32}, false),
                  "device 'cpu' cannot compute in bf16: it has no peak for it");
    check_refusal(refused_precision((Precision){DT_bf16, DT_bf16, DT_f32, DT_f32, DT_f32}, true),
                  "'precision.compute' is bf16, and programs compute in f32 or f64 so far");
    check_refusal(refused_precision((Precision){DT_f32, DT_f32, DT_f32, DT_f64, DT_f32}, true),
                  "'precision.master' is f64 and 'precision.compute' is f32: they must be equal so far");
}

static void types_are_refused_by_name(void **unused)
{
    (void)unused;
    Mini m = mini();
    output(&m.b, input(&m.b, "wide", DT_i64, SHAPE(m.b.g->batch)));
    assert_string_equal(refusal(&m.b, 1), "input 'wide' is i64, and inputs are i32, bool, f32 or f64 so far");
    build_free(&m.b);
    m = mini();
    ValueId w = weight(&m.b, "w", SHAPE(m.d));
    value_of(m.b.g, w)->dtype = DT_f64;
    output(&m.b, w);
    assert_string_equal(refusal(&m.b, 1), "weight 'w' is f64 and 'precision.compute' is f32: they must be equal so far");
    build_free(&m.b);
    m = mini();
    output(&m.b, m.x);
    m.b.plan->mesh[AXIS_tp] = 2;
    assert_string_equal(refusal(&m.b, 1), "'mesh tp = 2' needs more than one device, and programs run on one so far");
    build_free(&m.b);
}

static void float_inputs_are_cast_where_they_are_used(void **unused)
{
    (void)unused;
    Mini m = mini();
    m.b.g->precision = (Precision){DT_f64, DT_f64, DT_f64, DT_f64, DT_f64};
    minimize(&m.b, op1(&m.b, OP_reduce, "loss", features(&m), SCALAR));
    Program *p = lowered(&m.b, 2);
    assert_int_equal(p->tensor[p->input[0].tensor.i].dtype, DT_f32);
    const ProcKind in[] = {PROC_forward, PROC_evaluate};
    for (int k = 0; k < 2; k++) {
        const Instr *cast = the(p, in[k], OP_cast);
        assert_int_equal(cast->arg[0].i, p->input[0].tensor.i);
        assert_int_equal(p->tensor[cast->out[0].i].dtype, DT_f64);
    }
    build_free(&m.b);
}

/* ---- buckets ---- */

static void states_lie_flat(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    b.g->weight[1].frozen = true;                    /* wpe */
    b.g->weight[1].gradient = NO_VALUE;
    b.plan->bucket = 5000;
    Program *p = lowered(&b, 1);
    for (uint32_t i = 0; i < p->nstate; i++) {
        const State *s = &p->state[i];
        const Tensor *w = &p->tensor[s->weight.i];
        if (s->frozen) {
            assert_string_equal(p->buffer[w->buffer.i].name, "frozen.weights");
            assert_false(has_tensor(s->gradient) || has_tensor(s->moment[0]));
            continue;
        }
        const TensorId like[] = {s->gradient, s->moment[0], s->moment[1]};
        for (int k = 0; k < 3; k++) {
            assert_int_equal(p->tensor[like[k].i].at, w->at);
            assert_int_equal(p->buffer[on(p, like[k]).i].bytes, p->buffer[w->buffer.i].bytes);
        }
        assert_int_equal(w->at % (PAD_ELEMENTS * 4), 0);
        assert_true(p->buffer[w->buffer.i].bytes <= 5000 || tensor_bytes(w) > 5000 - PAD_ELEMENTS * 4);
    }
    assert_int_equal(count_op(p, PROC_update, OP_adamw), count_op(p, PROC_update, OP_sum_squares));
    build_free(&b);
}

/* Last gradients first, one kind of decay each, and full at the limit. */
static void buckets_fill_in_order_of_readiness(void **unused)
{
    (void)unused;
    Build b = build_new(4);
    DimId d = dim(&b, "d", 64);
    ValueId x = input(&b, "x", DT_f32, SHAPE(b.g->batch, d));
    for (int i = 0; i < 4; i++)
        x = linear(&b, arena_printf(b.a, "l%d", i), x, SHAPE(d), SHAPE(d), true);
    minimize(&b, op1(&b, OP_reduce, "loss", x, SCALAR));
    b.plan->bucket = 2 * 64 * 64 * 4;
    Program *p = lowered(&b, 1);
    static const char *const weights[] = {"l3.w", "l2.w", "l1.w", "l0.w"};
    static const char *const bucket_of[] = {"bucket[0].weights", "bucket[0].weights", "bucket[2].weights", "bucket[2].weights"};
    for (int i = 0; i < 4; i++) {
        const State *s = state(p, weights[i]);
        assert_string_equal(p->buffer[on(p, s->weight).i].name, bucket_of[i]);
        assert_int_equal(p->tensor[s->weight.i].at, i % 2 * 64 * 64 * 4);
    }
    assert_string_equal(p->buffer[on(p, state(p, "l0.b")->weight).i].name, "bucket[1].weights");
    const Proc *u = proc(p, PROC_update);
    for (uint32_t i = u->first; i < u->end; i++)
        if (p->instr[i].op == OP_adamw)
            assert_int_equal(instr_attr(&p->instr[i], "decays")->i, strcmp(p->buffer[on(p, p->instr[i].arg[0]).i].name, "bucket[1].weights") != 0);
    build_free(&b);
}

static void sgd_keeps_a_moment_only_with_momentum(void **unused)
{
    (void)unused;
    for (int k = 0; k < 2; k++) {
        Build b = build_new(tiny.batch);
        b.g->optimizer = (Optimizer){.kind = OPTIMIZER_SGD, .lr = 0.1, .momentum = k ? 0.9 : 0};
        llama(&b, tiny);
        Program *p = lowered(&b, 1);
        assert_int_equal(has_tensor(p->state[0].moment[0]), k);
        assert_false(has_tensor(p->state[0].moment[1]));
        assert_true(count_op(p, PROC_update, OP_sgd) > 0);
        build_free(&b);
    }
}

/* ---- memory ---- */

static void check_map(void (*model)(Build *, Sizes), Sizes z, int64_t m)
{
    Build b = build_new(z.batch);
    model(&b, z);
    Program *p = lowered(&b, m);
    int64_t peak = program_live_peak(p), map = p->map_bytes[PART_PRIVATE];
    assert_true(map >= peak);
    if (map > peak + peak / 20)
        fail_msg("the map has %lld bytes, %lld are live at once", (long long)map, (long long)peak);
    build_free(&b);
}

static void the_map_is_near_the_live_peak(void **unused)
{
    (void)unused;
    static const Sizes sizes[] = {
        {4, 8, 29, 16, 2, 64, 2, 0.1},   {4, 64, 50257, 768, 12, 3072, 12, 0}, {8, 1024, 50257, 768, 12, 3072, 12, 0.1},
        {4, 128, 256, 128, 4, 384, 6, 0}, {2, 4096, 32000, 4096, 32, 11008, 4, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int64_t m = 1; m <= 2; m++) {
            check_map(gpt2, sizes[i], m);
            check_map(llama, sizes[i], m);
        }
}

static void what_lives_always_lies_apart(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 2);
    int shared = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++) {
        const Buffer *x = &p->buffer[i];
        bool always = x->cls != CLASS_saved && x->cls != CLASS_working && x->cls != CLASS_workspace;
        assert_int_equal(x->first < 0, always);
        bool evaluates = x->first >= (int32_t)proc(p, PROC_evaluate)->first;
        for (uint32_t j = 0; j < p->nbuffer && evaluates; j++)
            shared += p->buffer[j].cls == CLASS_saved && x->offset < p->buffer[j].offset + p->buffer[j].bytes && p->buffer[j].offset < x->offset + x->bytes;
    }
    assert_true(shared > 0);                         /* evaluation lies where training does */
    build_free(&b);
}

/* Move a buffer onto one that lives with it. */
static void an_overlap_is_caught(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 1);
    FILE *err = fopen("/dev/null", "w");
    Buffer *saved[2] = {NULL, NULL};
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (p->buffer[i].cls == CLASS_saved)
            saved[saved[0] != NULL] = &p->buffer[i];
    assert_int_equal(program_check(p, err), 0);
    saved[1]->offset = saved[0]->offset;
    saved[1]->first = saved[0]->first;
    assert_true(program_check(p, err) > 0);
    fclose(err);
    build_free(&b);
}

static void excess_is_what_is_missing(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 1);
    b.cl->device->memory = p->map_bytes[PART_PRIVATE] + b.cl->device->reserve;
    assert_int_equal(program_excess(lowered(&b, 1)), 0);
    b.cl->device->memory--;
    assert_int_equal(program_excess(lowered(&b, 1)), 1);
    build_free(&b);
}

/* ---- dumps ---- */

static void count_pass(void *ctx, const char *pass, const Program *p)
{
    int *n = ctx;
    assert_string_equal(pass, codegen_passes[*n]);
    assert_true(p->ninstr > 0);
    (*n)++;
}

static void every_pass_is_shown(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    int n = 0;
    PassDump dump = {count_pass, &n};
    Program *p;
    assert_int_equal(codegen(b.a, b.ds, b.g, b.plan, b.cl, &dump, &p), OK);
    assert_int_equal(n, codegen_npasses);
    build_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_lowered),
        cmocka_unit_test(evaluation_drops_and_saves_nothing),
        cmocka_unit_test(dropout_of_nothing_is_no_instruction),
        cmocka_unit_test(inference_has_no_training_memory),
        cmocka_unit_test(same_plan_same_bytes),
        cmocka_unit_test(cross_entropy_takes_its_seed),
        cmocka_unit_test(cross_entropy_stays_where_logits_are_read_again),
        cmocka_unit_test(cross_entropy_stays_under_a_gradient_made_later),
        cmocka_unit_test(an_addition_becomes_accumulation),
        cmocka_unit_test(an_addition_stays),
        cmocka_unit_test(an_addition_joins_its_norm),
        cmocka_unit_test(a_gate_is_one_instruction_each_way),
        cmocka_unit_test(a_product_joins_its_gelu),
        cmocka_unit_test(results_take_the_place_of_dying_arguments),
        cmocka_unit_test(dead_instructions_go),
        cmocka_unit_test(tied_gradients_add_up_in_one_place),
        cmocka_unit_test(other_gradients_are_copied_in),
        cmocka_unit_test(verify_sees_a_gradient_out_of_turn),
        cmocka_unit_test(a_batch_that_does_not_divide),
        cmocka_unit_test(the_obstacle_is_named),
        cmocka_unit_test(all_pairs_are_an_obstacle),
        cmocka_unit_test(a_step_is_scheduled),
        cmocka_unit_test(precisions_are_refused_by_key),
        cmocka_unit_test(types_are_refused_by_name),
        cmocka_unit_test(float_inputs_are_cast_where_they_are_used),
        cmocka_unit_test(states_lie_flat),
        cmocka_unit_test(buckets_fill_in_order_of_readiness),
        cmocka_unit_test(sgd_keeps_a_moment_only_with_momentum),
        cmocka_unit_test(the_map_is_near_the_live_peak),
        cmocka_unit_test(what_lives_always_lies_apart),
        cmocka_unit_test(an_overlap_is_caught),
        cmocka_unit_test(excess_is_what_is_missing),
        cmocka_unit_test(every_pass_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
