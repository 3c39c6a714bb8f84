/* Lowering: what each pass makes of a graph, and when it refuses.  Fusions are
 * tested in test_codegen_fuse.c, numbers in test_codegen_run.c. */
#include <stdio.h>

#include "codegen/pass.h"
#include "tests/unit/lowering.h"

/* ---- a whole model ---- */

static void gpt2_is_lowered(void **unused)
{
    (void)unused;
    Build b = build_new(tiny.batch);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 2);
    assert_int_equal(p->nproc, PROCS - 2);          /* one rank has nothing to agree on and no sums to complete */
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
    assert_true(ids->axis[0].per_micro && !ids->axis[1].per_micro);
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
    assert_int_equal(p->buffer[on(p, p->output[0].tensor).i].last, (int)p->ninstr - 1);
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
    check_refusal(refused_precision((Precision){DT_f8e4m3, DT_f8e4m3, DT_f32, DT_f32, DT_f32}, true),
                  "'precision.compute' is f8e4m3, and programs compute in f64, f32, bf16 or f16 so far");
    check_refusal(refused_precision((Precision){DT_bf16, DT_bf16, DT_f8e5m2, DT_f32, DT_f32}, true),
                  "'precision.grads' is f8e5m2, and programs keep f64, f32, bf16 or f16 so far");
    check_refusal(refused_precision((Precision){DT_bf16, DT_f32, DT_f32, DT_bf16, DT_f32}, true),
                  "'precision.master' is bf16 and 'precision.weights' is f32: the master copy must be the same or have more bits");
    check_refusal(refused_precision((Precision){DT_bf16, DT_bf16, DT_f32, DT_f32, DT_bf16}, true),
                  "'precision.reduce' is bf16, and under 'compute = bf16' sums are in f32 so far");
}

static void types_are_refused_by_name(void **unused)
{
    (void)unused;
    Mini m = mini();
    output(&m.b, input(&m.b, "wide", DT_i64, SHAPE(m.b.g->batch)));
    assert_string_equal(refusal(&m.b, 1), "input 'wide' is i64, and inputs are i32, u8, bool, f32 or f64 so far");
    build_free(&m.b);
    m = mini();
    ValueId w = weight(&m.b, "w", SHAPE(m.d));
    value_of(m.b.g, w)->dtype = DT_f8e4m3;
    output(&m.b, w);
    assert_string_equal(refusal(&m.b, 1), "weight 'w' is f8e4m3, and programs hold f64, f32, bf16 or f16 so far");
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
    assert_int_equal(codegen(b.a, b.ds, b.g, b.plan, b.cl, 0, &dump, &p), OK);
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
