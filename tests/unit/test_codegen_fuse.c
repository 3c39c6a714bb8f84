/* The patterns of the fuse pass: each one firing, and each of its conditions
 * blocking it.  That fused numbers are right is checked in test_codegen_run.c. */
#include "tests/unit/lowering.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
