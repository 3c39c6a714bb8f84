/* Differentiation: one rule per op, named grad_OP.
 *
 * The table at the end is made from ops.def: an op without a rule, or without a
 * line saying that it has none, does not compile.  dy is the gradient of result 0.
 * A backward op's axes carry the labels of the forward op's factors, so a square
 * weight's two axes stay apart, and a forward op's split is its backward ops'. */
#include <assert.h>
#include <string.h>

#include "ir/grad.h"
#include "ir/grad_none.h"

/* ---- shared shapes of rules ---- */

static void add_dy(const Grad *c, OpSpec *s)
{
    grad_add_arg(c, s, grad_out(c, 0), c->op.out_factor[0]);
}

static void add_arg(const Grad *c, OpSpec *s, int arg)
{
    bool there = arg < c->op.narg;
    grad_add_arg(c, s, there ? c->op.arg[arg] : NO_VALUE, c->op.arg_factor[arg]);
}

static void add_out(const Grad *c, OpSpec *s, int out)
{
    grad_add_arg(c, s, c->op.out[out], c->op.out_factor[out]);
}

/* d(arg) = kind(dy) along the same factors: linear ops of one tensor. */
static void back_along(Grad *c, OpKind kind)
{
    OpSpec s = grad_op(c, kind, NULL);
    add_dy(c, &s);
    grad_emit_for(c, &s, 0);
}

/* d(x) = kind(dy, saved), saved being argument 0 or result 0. */
static void back_with(Grad *c, OpKind kind, bool result)
{
    OpSpec s = grad_op(c, kind, NULL);
    add_dy(c, &s);
    if (result)
        add_out(c, &s, 0);
    else
        add_arg(c, &s, 0);
    grad_emit_for(c, &s, 0);
}

/* The same with the forward op's attribute. */
static void back_along_with(Grad *c, OpKind kind, const char *attr)
{
    OpSpec s = grad_op(c, kind, NULL);
    grad_copy_attr(c, &s, attr);
    add_dy(c, &s);
    grad_emit_for(c, &s, 0);
}

static OpSpec with_attr(OpSpec s, const char *name, Attr a)
{
    s.attr[op_attr_index(s.kind, name)] = a;
    return s;
}

/* A further step of a rule: an op of one result shaped like a value we have. */
static ValueId step(Grad *c, OpKind kind, const char *which, ValueId a, ValueId b, const uint8_t *b_factor)
{
    OpSpec s = grad_op(c, kind, which);
    const Value *v = value_of(c->g, a);
    grad_add_arg(c, &s, a, c->op.out_factor[0]);
    grad_add_arg(c, &s, b, b_factor);
    s.out[0] = (OutSpec){.dtype = v->dtype, .rank = v->rank};
    memcpy(s.out[0].axis, v->axis, sizeof v->axis);
    memcpy(s.out[0].label, c->op.out_factor[0], v->rank);
    s.nout = 1;
    return grad_emit(c, &s);
}

static ValueId scaled(Grad *c, const char *which, ValueId a, double by)
{
    OpSpec s = with_attr(grad_op(c, OP_scale, which), "by", ATTR_F(by));
    const Value *v = value_of(c->g, a);
    grad_add_arg(c, &s, a, c->op.out_factor[0]);
    s.out[0] = (OutSpec){.dtype = v->dtype, .rank = v->rank};
    memcpy(s.out[0].axis, v->axis, sizeof v->axis);
    memcpy(s.out[0].label, c->op.out_factor[0], v->rank);
    s.nout = 1;
    return grad_emit(c, &s);
}

/* Name of an intermediate step: "x.mul". */
static const char *step_name(const Grad *c, int arg, const char *what)
{
    return arena_printf(c->g->arena, "%s.%s", op_arg(c->op.kind, arg)->name, what);
}

/* ---- contractions ---- */

static bool in_list(const uint8_t *list, int n, uint8_t f)
{
    return memchr(list, f, (size_t)n) != NULL;
}

/* d(arg) = sum over what `arg` lacks of a * b.  An axis of `arg` that neither
 * factor has was summed over alone: the gradient is the same along it, and an
 * `expand` puts it back. */
static void back_contract(Grad *c, int arg, ValueId a, const uint8_t *a_factor, ValueId b, const uint8_t *b_factor)
{
    if (!grad_needs(c, arg))
        return;
    const char *name = op_arg(c->op.kind, arg)->name;
    const Value *target = value_of(c->g, c->op.arg[arg]);
    const uint8_t *want = c->op.arg_factor[arg];
    int rank_a = value_of(c->g, a)->rank, rank_b = value_of(c->g, b)->rank;
    OutSpec part = {.dtype = value_of(c->g, a)->dtype};
    for (int i = 0; i < target->rank; i++)
        if (in_list(a_factor, rank_a, want[i]) || in_list(b_factor, rank_b, want[i])) {
            part.axis[part.rank] = target->axis[i];
            part.label[part.rank++] = want[i];
        }
    bool whole = part.rank == target->rank;
    OpSpec s = grad_op(c, OP_contract, whole ? name : step_name(c, arg, "part"));
    grad_add_arg(c, &s, a, a_factor);
    grad_add_arg(c, &s, b, b_factor);
    if (whole) {
        grad_emit_for(c, &s, arg);
        return;
    }
    s.out[s.nout++] = part;
    ValueId d = grad_emit(c, &s);
    OpSpec e = grad_op(c, OP_expand, name);
    grad_add_arg(c, &e, d, part.label);
    grad_emit_for(c, &e, arg);
}

static void grad_contract(Grad *c)
{
    const Op *op = &c->op;
    ValueId dy = grad_out(c, 0);
    back_contract(c, 0, dy, op->out_factor[0], op->arg[1], op->arg_factor[1]);
    back_contract(c, 1, op->arg[0], op->arg_factor[0], dy, op->out_factor[0]);
}

/* dx = dy w^T, dw = x^T dy, db = sum of dy. */
static void grad_linear(Grad *c)
{
    grad_contract(c);
    if (grad_needs(c, 2))
        grad_give_summed(c, 2, grad_out(c, 0), c->op.out_factor[0]);
}

static void grad_conv2d(Grad *c)
{
    static const OpKind kind[] = {OP_conv2d_grad_x, OP_conv2d_grad_w};
    for (int arg = 0; arg < 2; arg++) {
        if (!grad_needs(c, arg))
            continue;
        OpSpec s = grad_op(c, kind[arg], op_arg(OP_conv2d, arg)->name);
        add_dy(c, &s);
        add_arg(c, &s, 1 - arg);
        grad_copy_attr(c, &s, "stride");
        grad_copy_attr(c, &s, "pad");
        grad_emit_for(c, &s, arg);
    }
    if (grad_needs(c, 2))
        grad_give_summed(c, 2, grad_out(c, 0), c->op.out_factor[0]);
}

/* ---- arithmetic; the smaller operand's gradient is summed over what it lacks ---- */

static void grad_add(Grad *c)
{
    for (int arg = 0; arg < 2; arg++)
        if (grad_needs(c, arg))
            grad_give_summed(c, arg, grad_out(c, 0), c->op.out_factor[0]);
}

static void grad_sub(Grad *c)
{
    if (grad_needs(c, 0))
        grad_give_summed(c, 0, grad_out(c, 0), c->op.out_factor[0]);
    if (grad_needs(c, 1))
        grad_give_summed(c, 1, scaled(c, step_name(c, 1, "minus"), grad_out(c, 0), -1.0), c->op.out_factor[0]);
}

static void grad_mul(Grad *c)
{
    for (int arg = 0; arg < 2; arg++) {
        if (!grad_needs(c, arg))
            continue;
        ValueId d = step(c, OP_mul, step_name(c, arg, "mul"), grad_out(c, 0), c->op.arg[1 - arg],
                         c->op.arg_factor[1 - arg]);
        grad_give_summed(c, arg, d, c->op.out_factor[0]);
    }
}

/* z = .. / y, y being argument `arg`: d(y) = -dy z / y. */
static void back_to_divisor(Grad *c, int arg)
{
    const Op *op = &c->op;
    ValueId d = step(c, OP_mul, step_name(c, arg, "mul"), grad_out(c, 0), op->out[0], op->out_factor[0]);
    d = step(c, OP_div, step_name(c, arg, "div"), d, op->arg[arg], op->arg_factor[arg]);
    grad_give_summed(c, arg, scaled(c, step_name(c, arg, "minus"), d, -1.0), op->out_factor[0]);
}

/* z = x / y: dx = dy / y. */
static void grad_div(Grad *c)
{
    const Op *op = &c->op;
    if (grad_needs(c, 0)) {
        ValueId d = step(c, OP_div, step_name(c, 0, "div"), grad_out(c, 0), op->arg[1], op->arg_factor[1]);
        grad_give_summed(c, 0, d, op->out_factor[0]);
    }
    if (grad_needs(c, 1))
        back_to_divisor(c, 1);
}

static void grad_scale(Grad *c)
{
    back_along_with(c, OP_scale, "by");
}

static void grad_shift(Grad *c)
{
    grad_give_summed(c, 0, grad_out(c, 0), c->op.out_factor[0]);
}

static void grad_reciprocal(Grad *c)
{
    back_to_divisor(c, 0);
}

/* With `mean` both divide by the number of elements that are summed or made. */
static void grad_reduce(Grad *c)
{
    back_along_with(c, c->op.kind == OP_reduce ? OP_expand : OP_reduce, "mean");
}

static void grad_expand(Grad *c)
{
    grad_reduce(c);
}

/* ---- shapes ---- */

static void grad_transpose(Grad *c)
{
    back_along(c, OP_transpose);
}

static void grad_rename(Grad *c)
{
    back_along(c, OP_rename);
}

static void grad_merge(Grad *c)
{
    back_along(c, OP_unmerge);
}

static void grad_unmerge(Grad *c)
{
    back_along(c, OP_merge);
}

/* The place of a selection is its own `at`, as a slice of one. */
static void grad_select(Grad *c)
{
    OpSpec s = with_attr(grad_op(c, OP_place, NULL), "first", *op_attr(&c->op, "at"));
    add_dy(c, &s);
    grad_emit_for(c, &s, 0);
}

static void grad_slice(Grad *c)
{
    OpSpec s = with_attr(grad_op(c, OP_place, NULL), "first", *op_attr(&c->op, "first"));
    add_dy(c, &s);
    grad_emit_for(c, &s, 0);
}

/* What was placed is one position (then it lacks the axis) or a stretch. */
static void grad_place(Grad *c)
{
    bool one = value_of(c->g, c->op.arg[0])->rank < value_of(c->g, c->op.out[0])->rank;
    OpSpec s = grad_op(c, one ? OP_select : OP_slice, NULL);
    s = with_attr(s, one ? "at" : "first", *op_attr(&c->op, "first"));
    add_dy(c, &s);
    grad_emit_for(c, &s, 0);
}

/* The axis of a tensor that no result has, or -1. */
static int joined_axis(const Grad *c, int arg)
{
    const Op *op = &c->op;
    for (int i = 0; i < value_of(c->g, op->arg[arg])->rank; i++)
        if (!in_list(op->out_factor[0], MAX_RANK, op->arg_factor[arg][i]))
            return i;
    return -1;
}

/* The part of dy that came from `arg`: a slice, or one position where the operand
 * lacks the joined axis; then summed over what the operand was repeated along. */
static void back_concat(Grad *c, int arg, int64_t first)
{
    const Op *op = &c->op;
    const Value *out = value_of(c->g, op->out[0]);
    int from = joined_axis(c, arg);
    OpSpec s = from < 0 ? with_attr(grad_op(c, OP_select, step_name(c, arg, "part")), "at", ATTR_I(first))
                        : with_attr(grad_op(c, OP_slice, step_name(c, arg, "part")), "first", ATTR_I(first));
    add_dy(c, &s);
    OutSpec *part = &s.out[s.nout++];
    part->dtype = out->dtype;
    for (int i = 0; i < out->rank; i++) {
        uint8_t f = op->out_factor[0][i];
        bool joined = op->factor[f].role == 'm';
        if (joined && from < 0)
            continue;
        part->axis[part->rank] = joined ? value_of(c->g, op->arg[arg])->axis[from] : out->axis[i];
        part->label[part->rank++] = joined ? op->arg_factor[arg][from] : f;
    }
    uint8_t label[MAX_RANK];
    memcpy(label, part->label, sizeof label);
    grad_give_summed(c, arg, grad_emit(c, &s), label);
}

static void grad_concat(Grad *c)
{
    int axis = joined_axis(c, 0);
    int64_t length = axis < 0 ? 1 : dim_of(c->g, value_of(c->g, c->op.arg[0])->axis[axis])->extent;
    if (grad_needs(c, 0))
        back_concat(c, 0, 0);
    if (grad_needs(c, 1))
        back_concat(c, 1, length);
}

static void grad_cast(Grad *c)
{
    ValueId x = c->op.arg[0];
    const Value *v = value_of(c->g, x);
    DType to = v->role == ROLE_WEIGHT ? c->g->precision.grads : v->dtype;
    OpSpec s = with_attr(grad_op(c, OP_cast, NULL), "to", ATTR_T(to));
    add_dy(c, &s);
    grad_emit_for(c, &s, 0);
}

/* ---- pointwise and normalizing ops ---- */

/* The same mask again: same key, same p. */
static void grad_dropout(Grad *c)
{
    back_along_with(c, OP_dropout, "p");
}

static void grad_gelu(Grad *c)
{
    OpSpec s = grad_op(c, OP_gelu_grad, NULL);
    grad_copy_attr(c, &s, "exact");
    add_dy(c, &s);
    add_arg(c, &s, 0);
    grad_emit_for(c, &s, 0);
}

static void grad_relu(Grad *c)
{
    back_with(c, OP_relu_grad, true);
}

static void grad_silu(Grad *c)
{
    back_with(c, OP_silu_grad, false);
}

static void grad_tanh(Grad *c)
{
    back_with(c, OP_tanh_grad, true);
}

static void grad_softmax(Grad *c)
{
    back_with(c, OP_softmax_grad, true);
}

/* Results for every argument in `arg`, emitted once, given to those that need one. */
static void emit_for_each(Grad *c, OpSpec *s, const int *arg, int n)
{
    for (int i = 0; i < n; i++)
        grad_add_result_like(c, s, arg[i]);
    OpId id = graph_add_op(c->g, s);
    for (int i = 0; i < n; i++)
        if (grad_needs(c, arg[i]))
            grad_give(c, arg[i], op_of(c->g, id)->out[i]);
}

/* dx, dw and, where there is a bias, db in one pass over dy. */
static void grad_layernorm(Grad *c)
{
    OpSpec s = grad_op(c, OP_layernorm_grad, NULL);
    add_dy(c, &s);
    add_arg(c, &s, 0);
    add_arg(c, &s, 1);
    add_out(c, &s, 1);
    add_out(c, &s, 2);
    bool bias = c->op.narg > 2 && has_value(c->op.arg[2]);
    emit_for_each(c, &s, (const int[]){0, 1, 2}, bias ? 3 : 2);
}

static void grad_rmsnorm(Grad *c)
{
    OpSpec s = grad_op(c, OP_rmsnorm_grad, NULL);
    add_dy(c, &s);
    add_arg(c, &s, 0);
    add_arg(c, &s, 1);
    add_out(c, &s, 1);
    emit_for_each(c, &s, (const int[]){0, 1}, 2);
}

/* ---- attention ---- */

/* A rotation: its gradient is the rotation back. */
static void grad_rope(Grad *c)
{
    OpSpec s = grad_op(c, OP_rope_grad, NULL);
    grad_copy_attr(c, &s, "over");
    grad_copy_attr(c, &s, "base");
    add_dy(c, &s);
    add_arg(c, &s, 1);
    grad_emit_for(c, &s, 0);
}

/* Probabilities are made again from q, k and the saved log-sum-exp; dropout's mask
 * from the forward op's key. */
static void grad_attention(Grad *c)
{
    static const char *const attr[] = {"causal", "window", "scale", "dropout"};
    OpSpec s = grad_op(c, OP_attention_grad, NULL);
    for (size_t i = 0; i < sizeof attr / sizeof *attr; i++)
        grad_copy_attr(c, &s, attr[i]);
    add_dy(c, &s);
    for (int arg = 0; arg < 3; arg++)
        add_arg(c, &s, arg);
    add_out(c, &s, 0);
    add_out(c, &s, 1);
    for (int arg = 3; arg < 6; arg++)
        add_arg(c, &s, arg);
    int bias = op_arg_index(OP_attention, "bias");
    emit_for_each(c, &s, (const int[]){0, 1, 2, bias}, grad_needs(c, bias) ? 4 : 3);
}

static void grad_relative_bias(Grad *c)
{
    OpSpec s = grad_op(c, OP_relative_bias_grad, NULL);
    grad_copy_attr(c, &s, "buckets");
    grad_copy_attr(c, &s, "reach");
    grad_copy_attr(c, &s, "two_way");
    add_dy(c, &s);
    grad_emit_for(c, &s, 0);
}

/* ---- experts (what the values hold: see ops.def) ---- */

static void add_gradient(const Grad *c, OpSpec *s, int out)
{
    grad_add_arg(c, s, grad_out(c, out), c->op.out_factor[out]);
}

/* First the gradient of the logits, from those of the gates and of the
 * probabilities, whichever the loss uses; then that of a linear map. */
static void grad_router(Grad *c)
{
    const Op *op = &c->op;
    OpSpec s = grad_op(c, OP_router_grad, "logits");
    add_gradient(c, &s, 0);
    add_gradient(c, &s, 1);
    add_out(c, &s, 0);
    add_out(c, &s, 1);
    const Value *route = value_of(c->g, op->out[0]);
    s.out[0] = (OutSpec){.dtype = route->dtype, .rank = route->rank};
    memcpy(s.out[0].axis, route->axis, sizeof route->axis);
    memcpy(s.out[0].label, op->out_factor[0], route->rank);
    s.nout = 1;
    ValueId logits = grad_emit(c, &s);
    back_contract(c, 0, logits, op->out_factor[0], op->arg[1], op->arg_factor[1]);
    back_contract(c, 1, op->arg[0], op->arg_factor[0], logits, op->out_factor[0]);
}

/* Which tokens go where is not differentiable: the route gets no gradient here. */
static void grad_dispatch(Grad *c)
{
    if (!grad_needs(c, 0))
        return;
    OpSpec s = grad_op(c, OP_dispatch_grad, NULL);
    add_dy(c, &s);
    add_out(c, &s, 1);
    grad_emit_for(c, &s, 0);
}

static void grad_combine(Grad *c)
{
    OpSpec s = grad_op(c, OP_combine_grad, NULL);
    add_dy(c, &s);
    for (int arg = 0; arg < 3; arg++)
        add_arg(c, &s, arg);
    emit_for_each(c, &s, (const int[]){0, 1}, 2);
}

/* The share of tokens an expert gets is a constant; the mean probability is not. */
static void grad_load_balance(Grad *c)
{
    if (!grad_needs(c, 1))
        return;
    OpSpec s = grad_op(c, OP_load_balance_grad, NULL);
    add_dy(c, &s);
    add_arg(c, &s, 0);
    add_arg(c, &s, 1);
    grad_emit_for(c, &s, 1);
}

/* ---- ends ---- */

static void grad_embed(Grad *c)
{
    OpSpec s = grad_op(c, OP_embed_grad, NULL);
    add_arg(c, &s, 0);
    add_dy(c, &s);
    grad_emit_for(c, &s, 1);
}

static void grad_cross_entropy(Grad *c)
{
    int count = op_arg_index(OP_cross_entropy, "count");
    assert(count < c->op.narg && has_value(c->op.arg[count]));
    OpSpec s = grad_op(c, OP_cross_entropy_grad, NULL);
    grad_copy_attr(c, &s, "ignore");
    grad_copy_attr(c, &s, "smooth");
    add_dy(c, &s);
    add_arg(c, &s, 0);
    add_arg(c, &s, 1);
    add_out(c, &s, 1);
    add_arg(c, &s, count);
    grad_emit_for(c, &s, 0);
}

/* ---- the table ---- */

static const GradRule rules[OP_KINDS] = {
#define OP(name, use, signature, saves, flops, workspace, linear, flags) [OP_##name] = grad_##name,
#include "ir/ops.def"
#undef OP
};

GradRule grad_rule(OpKind kind)
{
    return rules[kind];
}
