/* What differentiation appends: which ops, on which values, under which names.
 * That the numbers are right is checked elsewhere, by finite differences. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "ir/grad.h"

/* ---- a graph being built by hand ---- */

typedef struct B { Arena *a; Graph *g; DimId batch, seq, hidden, vocab; } B;

static B begin(void)
{
    B b = {.a = arena_new("graph")};
    b.g = graph_new(b.a);
    b.batch = graph_add_dim(b.g, "batch", 4, NOWHERE);
    b.seq = graph_add_dim(b.g, "seq", 3, NOWHERE);
    b.hidden = graph_add_dim(b.g, "hidden", 8, NOWHERE);
    b.vocab = graph_add_dim(b.g, "vocab", 11, NOWHERE);
    return b;
}

static ValueId input(B *b, const char *path, DType t, uint8_t rank, const DimId *axis)
{
    return graph_add_value(b->g, path, ROLE_INPUT, t, rank, axis, NOWHERE);
}

static ValueId weight(B *b, const char *path, uint8_t rank, const DimId *axis)
{
    Weight w = {.value = graph_add_value(b->g, path, ROLE_WEIGHT, DT_f32, rank, axis, NOWHERE), .gradient = NO_VALUE};
    PUSH(b->a, b->g->weight, b->g->nweight, w);
    return w.value;
}

typedef struct Shape { uint8_t rank; DimId axis[MAX_RANK]; } Shape;

static OpSpec spec(OpKind kind, const char *path, uint8_t narg, const ValueId *arg, Shape out)
{
    OpSpec s = op_spec(kind, PHASE_FORWARD, path, NOWHERE);
    s.narg = narg;
    for (int i = 0; i < narg; i++)
        s.arg[i] = arg[i];
    s.nout = 1;
    s.out[0] = (OutSpec){.dtype = DT_f32, .rank = out.rank};
    memcpy(s.out[0].axis, out.axis, sizeof out.axis);
    return s;
}

static ValueId emit(B *b, OpSpec s)
{
    return op_of(b->g, graph_add_op(b->g, &s))->out[0];
}

static ValueId op1(B *b, OpKind kind, const char *path, ValueId x, Shape out)
{
    return emit(b, spec(kind, path, 1, &x, out));
}

static ValueId op2(B *b, OpKind kind, const char *path, ValueId x, ValueId y, Shape out)
{
    return emit(b, spec(kind, path, 2, (ValueId[]){x, y}, out));
}

static ValueId cross_entropy(B *b, const char *path, ValueId logits, ValueId labels)
{
    OpSpec s = spec(OP_cross_entropy, path, 2, (ValueId[]){logits, labels}, (Shape){0});
    const Value *l = value_of(b->g, labels);
    s.nout = 2;
    s.out[1] = (OutSpec){.suffix = "lse", .dtype = DT_f32, .rank = l->rank};
    memcpy(s.out[1].axis, l->axis, sizeof l->axis);
    return emit(b, s);
}

/* ---- what to look for ---- */

static const Op *find_op(const Graph *g, const char *path)
{
    const Op *found = NULL;
    for (uint32_t i = 0; i < g->nop; i++)
        if (strcmp(g->op[i].path, path) == 0) {
            assert_null(found);
            found = &g->op[i];
        }
    return found;
}

static int count_ops(const Graph *g, Phase phase)
{
    int n = 0;
    for (uint32_t i = 0; i < g->nop; i++)
        n += g->op[i].phase == phase;
    return n;
}

static const Value *gradient_of(const Graph *g, ValueId w)
{
    ValueId d = weight_of(g, w)->gradient;
    return has_value(d) ? value_of(g, d) : NULL;
}

static void check_weight_gradient(const Graph *g, ValueId w, const char *path)
{
    const Value *d = gradient_of(g, w), *v = value_of(g, w);
    assert_non_null(d);
    assert_string_equal(d->path, path);
    assert_int_equal(d->role, ROLE_WEIGHT_GRADIENT);
    assert_int_equal(d->dtype, g->precision.grads);
    assert_int_equal(d->rank, v->rank);
    for (int i = 0; i < v->rank; i++)
        assert_true(same_dim(d->axis[i], v->axis[i]));
    assert_int_equal(graph_check(g, stderr), 0);
}

/* ---- tests ---- */

/* A rule is absent exactly where no gradient flows or none is ever asked for. */
static void every_forward_op_has_a_rule(void **state)
{
    (void)state;
    for (int k = 0; k < OP_KINDS; k++) {
        const OpInfo *op = &op_info[k];
        bool backward = strstr(op->name, "_grad") != NULL;
        bool none = (op->flags & OPF_NOGRAD) || op->use == OP_SYNTAX || backward;
        if (none != (grad_rule((OpKind)k) == NULL))
            fail_msg("%s: %s", op->name, none ? "has a rule" : "has no rule");
    }
}

/* GPT-2's head: the table embeds and, once more, makes the logits. */
static void a_tied_weight_adds_its_gradients(void **state)
{
    (void)state;
    B b = begin();
    ValueId ids = input(&b, "ids", DT_i32, 2, (DimId[]){b.batch, b.seq});
    ValueId labels = input(&b, "labels", DT_i32, 2, (DimId[]){b.batch, b.seq});
    ValueId wte = weight(&b, "wte", 2, (DimId[]){b.vocab, b.hidden});
    ValueId x = op2(&b, OP_embed, "x", ids, wte, (Shape){3, {b.batch, b.seq, b.hidden}});
    ValueId logits = op2(&b, OP_contract, "logits", x, wte, (Shape){3, {b.batch, b.seq, b.vocab}});
    b.g->loss = cross_entropy(&b, "loss", logits, labels);
    graph_differentiate(b.g);
    check_weight_gradient(b.g, wte, "grad:wte");
    const Op *add = op_of(b.g, gradient_of(b.g, wte)->maker);
    assert_int_equal(add->kind, OP_add);
    assert_string_equal(add->path, "grad:wte.add[0]");
    assert_int_equal(op_of(b.g, value_of(b.g, add->arg[0])->maker)->kind, OP_contract);
    assert_int_equal(op_of(b.g, value_of(b.g, add->arg[1])->maker)->kind, OP_embed_grad);
    const Op *ce = find_op(b.g, "grad:loss");
    assert_int_equal(ce->kind, OP_cross_entropy_grad);
    assert_string_equal(value_of(b.g, ce->out[0])->path, "grad:logits");
    assert_string_equal(op_of(b.g, ce->forward)->path, "loss");
    arena_free(b.a);
}

/* The count comes first, is made once per (labels, ignore), and every cross
 * entropy and its gradient get it. */
static void label_counts_come_first_and_once(void **state)
{
    (void)state;
    B b = begin();
    ValueId labels = input(&b, "labels", DT_i32, 1, (DimId[]){b.batch});
    ValueId x = input(&b, "x", DT_f32, 2, (DimId[]){b.batch, b.hidden});
    ValueId w = weight(&b, "w", 2, (DimId[]){b.hidden, b.vocab});
    ValueId l = op2(&b, OP_contract, "l", x, w, (Shape){2, {b.batch, b.vocab}});
    ValueId one = cross_entropy(&b, "one", l, labels), two = cross_entropy(&b, "two", l, labels);
    b.g->loss = op2(&b, OP_add, "loss", one, two, (Shape){0});
    graph_differentiate(b.g);
    graph_complete(b.g);
    assert_int_equal(count_ops(b.g, PHASE_BEGIN), 1);
    assert_int_equal(b.g->op[0].kind, OP_count_labels);
    ValueId count = b.g->op[0].out[0];
    assert_int_equal(value_of(b.g, count)->dtype, DT_f64);
    assert_int_equal(value_of(b.g, count)->role, ROLE_STEP);
    assert_int_equal(find_op(b.g, "one")->arg[2].i, count.i);
    assert_int_equal(find_op(b.g, "two")->arg[2].i, count.i);
    assert_int_equal(find_op(b.g, "grad:two")->arg[4].i, count.i);
    assert_string_equal(op_of(b.g, find_op(b.g, "grad:two")->forward)->path, "two");
    check_weight_gradient(b.g, w, "grad:w");
    arena_free(b.a);
}

/* Labels cut out of an input are cut out again in PHASE_BEGIN. */
static void counts_of_sliced_labels(void **state)
{
    (void)state;
    B b = begin();
    ValueId all = input(&b, "all", DT_i32, 2, (DimId[]){b.batch, b.seq});
    OpSpec s = spec(OP_select, "labels", 1, &all, (Shape){1, {b.batch}});
    s.out[0].dtype = DT_i32;
    ValueId labels = emit(&b, s);
    ValueId x = input(&b, "x", DT_f32, 2, (DimId[]){b.batch, b.hidden});
    ValueId w = weight(&b, "w", 2, (DimId[]){b.hidden, b.vocab});
    ValueId l = op2(&b, OP_contract, "l", x, w, (Shape){2, {b.batch, b.vocab}});
    b.g->loss = cross_entropy(&b, "loss", l, labels);
    graph_complete(b.g);
    assert_int_equal(count_ops(b.g, PHASE_BEGIN), 2);
    assert_string_equal(b.g->op[0].path, "begin:labels");
    assert_string_equal(b.g->op[1].path, "count:labels");
    assert_int_equal(b.g->op[1].arg[0].i, b.g->op[0].out[0].i);
    assert_int_equal(graph_check(b.g, stderr), 0);
    arena_free(b.a);
}

/* x[batch, seq, hidden] + bias[hidden]: the bias is summed over what it lacks. */
static void a_broadcast_operand_is_reduced(void **state)
{
    (void)state;
    B b = begin();
    Shape full = {3, {b.batch, b.seq, b.hidden}};
    ValueId w = weight(&b, "w", 3, full.axis), bias = weight(&b, "bias", 1, (DimId[]){b.hidden});
    ValueId y = op2(&b, OP_add, "y", w, bias, full);
    b.g->loss = op1(&b, OP_reduce, "loss", y, (Shape){0});
    graph_differentiate(b.g);
    check_weight_gradient(b.g, bias, "grad:bias");
    check_weight_gradient(b.g, w, "grad:w");
    const Op *r = op_of(b.g, gradient_of(b.g, bias)->maker);
    assert_int_equal(r->kind, OP_reduce);
    assert_string_equal(r->path, "grad:y.y");
    assert_int_equal(find_op(b.g, "grad:loss")->kind, OP_expand);
    /* w has the shape of dy, and still a gradient value of its own */
    assert_int_not_equal(weight_of(b.g, w)->gradient.i, find_op(b.g, "grad:loss")->out[0].i);
    arena_free(b.a);
}

/* The two axes of w[hidden, hidden] keep their factors in the gradients. */
static void square_weights_keep_their_labels(void **state)
{
    (void)state;
    B b = begin();
    ValueId labels = input(&b, "labels", DT_i32, 1, (DimId[]){b.batch});
    ValueId v = weight(&b, "v", 2, (DimId[]){b.batch, b.hidden});
    ValueId w = weight(&b, "fc.w", 2, (DimId[]){b.hidden, b.hidden}), bias = weight(&b, "fc.b", 1, (DimId[]){b.hidden});
    OpSpec s = spec(OP_linear, "fc", 3, (ValueId[]){v, w, bias}, (Shape){2, {b.batch, b.hidden}});
    s.by_dim = false;
    s.label[0][1] = 1;
    s.label[1][0] = 1, s.label[1][1] = 2;
    s.label[2][0] = 2;
    s.out[0].label[1] = 2;
    ValueId y = emit(&b, s);
    b.g->loss = cross_entropy(&b, "loss", y, labels);
    graph_differentiate(b.g);
    const Op *dx = find_op(b.g, "grad:fc.x"), *dw = find_op(b.g, "grad:fc.w"), *db = find_op(b.g, "grad:fc.b");
    assert_int_equal(dx->kind, OP_contract);
    assert_int_equal(dw->kind, OP_contract);
    assert_int_equal(db->kind, OP_reduce);
    /* dx[batch, k] = dy[batch, n] w[k, n] */
    assert_int_equal(dx->arg_factor[0][1], dx->arg_factor[1][1]);
    assert_int_equal(dx->out_factor[0][1], dx->arg_factor[1][0]);
    assert_int_not_equal(dx->out_factor[0][1], dx->arg_factor[0][1]);
    /* dw[k, n] = x[batch, k] dy[batch, n] */
    assert_int_equal(dw->out_factor[0][0], dw->arg_factor[0][1]);
    assert_int_equal(dw->out_factor[0][1], dw->arg_factor[1][1]);
    check_weight_gradient(b.g, w, "grad:fc.w");
    check_weight_gradient(b.g, bias, "grad:fc.b");
    arena_free(b.a);
}

static void frozen_and_unused_weights_get_none(void **state)
{
    (void)state;
    B b = begin();
    ValueId labels = input(&b, "labels", DT_i32, 1, (DimId[]){b.batch});
    ValueId x = input(&b, "x", DT_f32, 2, (DimId[]){b.batch, b.hidden});
    Shape square = {2, {b.hidden, b.vocab}}, rows = {2, {b.batch, b.vocab}};
    ValueId frozen = weight(&b, "frozen", 2, square.axis), unused = weight(&b, "unused", 2, square.axis);
    ValueId trained = weight(&b, "trained", 1, (DimId[]){b.vocab});
    weight_of(b.g, frozen)->frozen = true;
    ValueId y = op2(&b, OP_contract, "y", x, frozen, rows);
    ValueId z = op2(&b, OP_add, "z", y, trained, rows);
    op2(&b, OP_contract, "dead", x, unused, rows);
    b.g->loss = cross_entropy(&b, "loss", z, labels);
    graph_differentiate(b.g);
    assert_null(gradient_of(b.g, frozen));
    assert_null(gradient_of(b.g, unused));
    check_weight_gradient(b.g, trained, "grad:trained");
    assert_int_equal(count_ops(b.g, PHASE_BACKWARD), 3);   /* seed, cross_entropy_grad, reduce */
    arena_free(b.a);
}

/* Dropout draws the same mask again: same kind, same key. */
static void dropout_uses_the_key_of_its_forward_op(void **state)
{
    (void)state;
    B b = begin();
    Shape rows = {2, {b.batch, b.vocab}};
    ValueId labels = input(&b, "labels", DT_i32, 1, (DimId[]){b.batch});
    ValueId w = weight(&b, "w", 2, rows.axis);
    OpSpec s = spec(OP_dropout, "drop", 1, &w, rows);
    s.attr[op_attr_index(OP_dropout, "p")] = ATTR_F(0.25);
    b.g->loss = cross_entropy(&b, "loss", emit(&b, s), labels);
    graph_differentiate(b.g);
    const Op *d = find_op(b.g, "grad:drop");
    assert_int_equal(d->kind, OP_dropout);
    assert_string_equal(d->key, "drop");
    assert_true(op_attr(d, "p")->f == 0.25);
    arena_free(b.a);
}

/* An operand without the joined axis is one position, repeated over batch. */
static void concat_gives_each_side_its_part(void **state)
{
    (void)state;
    B b = begin();
    DimId token = b.seq, longer = graph_add_dim(b.g, "longer", 4, NOWHERE);
    ValueId cls = weight(&b, "cls", 1, (DimId[]){b.hidden});
    ValueId t = weight(&b, "t", 3, (DimId[]){b.batch, token, b.hidden});
    ValueId x = op2(&b, OP_concat, "x", cls, t, (Shape){3, {b.batch, longer, b.hidden}});
    b.g->loss = op1(&b, OP_reduce, "loss", x, (Shape){0});
    graph_differentiate(b.g);
    const Op *a = find_op(b.g, "grad:x.a.part"), *p = find_op(b.g, "grad:x.b.part");
    assert_int_equal(a->kind, OP_select);
    assert_int_equal(op_attr(a, "at")->i, 0);
    assert_int_equal(p->kind, OP_slice);
    assert_int_equal(op_attr(p, "first")->i, 1);
    assert_int_equal(find_op(b.g, "grad:x.a")->kind, OP_reduce);
    check_weight_gradient(b.g, cls, "grad:cls");
    check_weight_gradient(b.g, t, "grad:t");
    arena_free(b.a);
}

/* w's axis j is summed alone: the gradient is the same along it. */
static void an_axis_summed_alone_is_expanded(void **state)
{
    (void)state;
    B b = begin();
    ValueId x = weight(&b, "x", 1, (DimId[]){b.batch}), w = weight(&b, "w", 2, (DimId[]){b.batch, b.hidden});
    b.g->loss = op2(&b, OP_contract, "loss", x, w, (Shape){0});
    graph_differentiate(b.g);
    assert_int_equal(find_op(b.g, "grad:loss.b")->kind, OP_expand);
    check_weight_gradient(b.g, x, "grad:x");
    check_weight_gradient(b.g, w, "grad:w");
    arena_free(b.a);
}

/* One pass makes dx, dw and db; a bias that is not there has none. */
static void norms_make_their_gradients_together(void **state)
{
    (void)state;
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        B b = begin();
        Shape rows = {2, {b.batch, b.vocab}};
        ValueId labels = input(&b, "labels", DT_i32, 1, (DimId[]){b.batch});
        ValueId x = weight(&b, "x", 2, rows.axis);
        ValueId w = weight(&b, "ln.w", 1, (DimId[]){b.vocab}), bias = weight(&b, "ln.b", 1, (DimId[]){b.vocab});
        OpSpec s = spec(OP_layernorm, "ln", (uint8_t)(2 + with_bias), (ValueId[]){x, w, bias}, rows);
        s.nout = 3;
        s.out[1] = (OutSpec){.suffix = "mean", .dtype = DT_f32, .rank = 1, .axis = {b.batch}};
        s.out[2] = (OutSpec){.suffix = "rstd", .dtype = DT_f32, .rank = 1, .axis = {b.batch}};
        b.g->loss = cross_entropy(&b, "loss", emit(&b, s), labels);
        graph_differentiate(b.g);
        const Op *d = find_op(b.g, "grad:ln");
        assert_int_equal(d->nout, 2 + with_bias);
        check_weight_gradient(b.g, w, "grad:ln.w");
        assert_true(with_bias == (gradient_of(b.g, bias) != NULL));
        arena_free(b.a);
    }
}

/* A sparse layer with its auxiliary loss: gates and probabilities both reach the
 * router's logits. */
static void a_sparse_layer(void **state)
{
    (void)state;
    B b = begin();
    DimId expert = graph_add_dim(b.g, "expert", 4, NOWHERE), slot = graph_add_dim(b.g, "slot", 3, NOWHERE);
    Shape tokens = {3, {b.batch, b.seq, b.hidden}}, route = {3, {b.batch, b.seq, expert}},
        slots = {4, {b.batch, expert, slot, b.hidden}};
    ValueId x = weight(&b, "x", 3, tokens.axis), w = weight(&b, "router.w", 2, (DimId[]){b.hidden, expert});
    OpSpec s = spec(OP_router, "router", 2, (ValueId[]){x, w}, route);
    s.nout = 2;
    s.out[1] = (OutSpec){.suffix = "prob", .dtype = DT_f32, .rank = 3, .axis = {b.batch, b.seq, expert}};
    ValueId r = emit(&b, s);
    s = spec(OP_dispatch, "t", 2, (ValueId[]){x, r}, slots);
    s.nout = 2;
    s.out[1] = (OutSpec){.suffix = "token", .dtype = DT_i32, .rank = 3, .axis = {b.batch, expert, slot}};
    ValueId t = emit(&b, s);
    ValueId y = op2(&b, OP_combine, "y", t, r, tokens);
    ValueId aux = op1(&b, OP_load_balance, "aux", r, (Shape){1, {b.batch}});
    ValueId sum = op1(&b, OP_reduce, "sum", y, (Shape){0}), mean = op1(&b, OP_reduce, "mean", aux, (Shape){0});
    b.g->loss = op2(&b, OP_add, "loss", sum, mean, (Shape){0});
    graph_differentiate(b.g);
    assert_string_equal(value_of(b.g, find_op(b.g, "y")->arg[2])->path, "t:token");
    assert_string_equal(value_of(b.g, find_op(b.g, "aux")->arg[1])->path, "router:prob");
    const Op *rg = find_op(b.g, "grad:router.logits");
    assert_string_equal(value_of(b.g, rg->arg[0])->path, "grad:router");
    assert_string_equal(value_of(b.g, rg->arg[1])->path, "grad:router:prob");
    assert_int_equal(op_of(b.g, value_of(b.g, rg->arg[0])->maker)->kind, OP_combine_grad);
    assert_int_equal(op_of(b.g, value_of(b.g, rg->arg[1])->maker)->kind, OP_load_balance_grad);
    check_weight_gradient(b.g, w, "grad:router.w");
    check_weight_gradient(b.g, x, "grad:x");
    arena_free(b.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_forward_op_has_a_rule),
        cmocka_unit_test(a_tied_weight_adds_its_gradients),
        cmocka_unit_test(label_counts_come_first_and_once),
        cmocka_unit_test(counts_of_sliced_labels),
        cmocka_unit_test(a_broadcast_operand_is_reduced),
        cmocka_unit_test(square_weights_keep_their_labels),
        cmocka_unit_test(frozen_and_unused_weights_get_none),
        cmocka_unit_test(dropout_uses_the_key_of_its_forward_op),
        cmocka_unit_test(concat_gives_each_side_its_part),
        cmocka_unit_test(an_axis_summed_alone_is_expanded),
        cmocka_unit_test(norms_make_their_gradients_together),
        cmocka_unit_test(a_sparse_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
