/* Differentiation: the walk.
 *
 * Forward ops are visited from last to first.  An op's rule (grad_rules.c) turns
 * the gradients of its results into gradients of its arguments, and only of those
 * that have a trained weight behind them; an op whose results the loss does not
 * use is passed over, so a dead branch costs nothing.
 *
 * A value used several times gets its gradients in the order of the walk, last
 * use first; from the second on each is added by an `add` op.  That order is part
 * of the result: sums are the same bits every time.
 *
 * Names.  A backward op is "grad:PATH" after the forward op, or "grad:PATH.x" after
 * the argument whose gradient it makes where there are several.  The value that is
 * the whole gradient of v is "grad:" and v's path.  Where one value is the gradient
 * of several (both sides of a sum) it has the name of the one the walk met first. */
#include "ir/grad.h"

#include <assert.h>
#include <string.h>

bool grad_needs(const Grad *c, int arg)
{
    return arg < c->op.narg && has_value(c->op.arg[arg]) && c->needed[c->op.arg[arg].i];
}

ValueId grad_out(const Grad *c, int out)
{
    return out < c->op.nout ? c->sum[c->op.out[out].i] : NO_VALUE;
}

/* A weight's gradient is kept in precision.grads, any other in its value's dtype. */
static DType gradient_dtype(const Grad *c, ValueId v)
{
    const Value *val = value_of(c->g, v);
    return val->role == ROLE_WEIGHT ? c->g->precision.grads : val->dtype;
}

/* What an op makes for an argument: one that can accumulate does so in the type of the
 * accumulator; of others the result is cast (grad_give). */
static DType result_dtype(const Grad *c, OpKind kind, ValueId like)
{
    bool sums = op_info[kind].flags & OPF_ACCUM || kind == OP_cast;
    return sums ? gradient_dtype(c, like) : value_of(c->g, like)->dtype;
}

OpSpec grad_op(const Grad *c, OpKind kind, const char *which)
{
    Arena *a = c->g->arena;
    const char *path = arena_printf(a, "grad:%s%s%s", c->op.path, which ? "." : "", which ? which : "");
    OpSpec s = op_spec(kind, PHASE_BACKWARD, path, c->op.at);
    s.key = c->op.key;
    s.forward = c->id;
    s.by_dim = false;
    return s;
}

void grad_add_arg(const Grad *c, OpSpec *s, ValueId v, const uint8_t *factor)
{
    int i = s->narg++;
    s->arg[i] = v;
    if (has_value(v))
        memcpy(s->label[i], factor, value_of(c->g, v)->rank);
}

void grad_copy_attr(const Grad *c, OpSpec *s, const char *name)
{
    s->attr[op_attr_index(s->kind, name)] = *op_attr(&c->op, name);
}

/* Whether a path's last step is `name`. */
static bool path_ends_with(const char *path, const char *name)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot + 1, name) == 0;
}

void grad_add_result_like(const Grad *c, OpSpec *s, int arg)
{
    ValueId like = c->op.arg[arg];
    const Value *v = value_of(c->g, like);
    OutSpec *out = &s->out[s->nout++];
    *out = (OutSpec){.dtype = result_dtype(c, s->kind, like), .rank = v->rank};
    out->suffix = path_ends_with(s->path, op_arg(c->op.kind, arg)->name) ? NULL : op_arg(c->op.kind, arg)->name;
    memcpy(out->axis, v->axis, sizeof out->axis);
    memcpy(out->label, c->op.arg_factor[arg], v->rank);
}

ValueId grad_emit(Grad *c, OpSpec *s)
{
    OpId id = graph_add_op(c->g, s);
    return op_of(c->g, id)->out[0];
}

void grad_emit_for(Grad *c, OpSpec *s, int arg)
{
    grad_add_result_like(c, s, arg);
    grad_give(c, arg, grad_emit(c, s));
}

/* ---- adding up ---- */

static ValueId add_gradients(Grad *c, ValueId of, ValueId a, ValueId b)
{
    Graph *g = c->g;
    const Value *v = value_of(g, of);
    const char *path = arena_printf(g->arena, "grad:%s.add[%u]", v->path, c->uses[of.i] - 1);
    OpSpec s = op_spec(OP_add, PHASE_BACKWARD, path, c->op.at);
    s.forward = c->id;
    s.key = c->op.key;
    s.narg = 2;
    s.arg[0] = a;
    s.arg[1] = b;
    s.nout = 1;
    s.out[0] = (OutSpec){.dtype = gradient_dtype(c, of), .rank = v->rank};
    memcpy(s.out[0].axis, v->axis, sizeof v->axis);
    ValueId sum = grad_emit(c, &s);
    op_of(g, value_of(g, sum)->maker)->sum_of = of;
    return sum;
}

/* The gradient in the type it is kept in. */
static ValueId cast_gradient(Grad *c, int arg, ValueId d)
{
    DType to = gradient_dtype(c, c->op.arg[arg]);
    if (value_of(c->g, d)->dtype == to)
        return d;
    OpSpec s = grad_op(c, OP_cast, arena_printf(c->g->arena, "%s.cast", op_arg(c->op.kind, arg)->name));
    s.attr[op_attr_index(OP_cast, "to")] = ATTR_T(to);
    grad_add_arg(c, &s, d, c->op.arg_factor[arg]);
    grad_add_result_like(c, &s, arg);
    return grad_emit(c, &s);
}

void grad_give(Grad *c, int arg, ValueId d)
{
    ValueId of = c->op.arg[arg];
    assert(grad_needs(c, arg) && value_elements(c->g, of) == value_elements(c->g, d));
    d = cast_gradient(c, arg, d);
    ValueId before = c->sum[of.i];
    op_of(c->g, c->id)->give[arg] = d;
    c->sum[of.i] = has_value(before) ? add_gradients(c, of, before, d) : d;
    c->uses[of.i]++;
}

static bool same_factors(const uint8_t *a, int na, const uint8_t *b, int nb)
{
    return na == nb && memcmp(a, b, (size_t)na) == 0;
}

static bool holds_all(const uint8_t *set, int nset, const uint8_t *of, int nof)
{
    for (int i = 0; i < nof; i++)
        if (!memchr(set, of[i], (size_t)nset))
            return false;
    return true;
}

void grad_give_summed(Grad *c, int arg, ValueId d, const uint8_t *factor)
{
    const uint8_t *want = c->op.arg_factor[arg];
    int have_n = value_of(c->g, d)->rank, want_n = value_of(c->g, c->op.arg[arg])->rank;
    bool weight = value_of(c->g, c->op.arg[arg])->role == ROLE_WEIGHT;
    assert(holds_all(factor, have_n, want, want_n));
    if (same_factors(factor, have_n, want, want_n) && !weight) {
        grad_give(c, arg, d);
        return;
    }
    OpKind kind = have_n != want_n ? OP_reduce : same_factors(factor, have_n, want, want_n) ? OP_cast : OP_transpose;
    OpSpec s = grad_op(c, kind, op_arg(c->op.kind, arg)->name);
    if (kind == OP_cast)
        s.attr[op_attr_index(OP_cast, "to")] = ATTR_T(c->g->precision.grads);
    grad_add_arg(c, &s, d, factor);
    grad_emit_for(c, &s, arg);
}

/* ---- the walk ---- */

/* Whether a gradient may flow into the argument: dispatch only follows the choices
 * of its route. */
static bool passes_gradient(const Op *op, int arg)
{
    return op->kind != OP_dispatch || arg != op_arg_index(OP_dispatch, "route");
}

/* Values with a trained weight behind them. */
static bool *find_needed(const Graph *g)
{
    bool *needed = NEWN(g->arena, bool, g->nvalue);
    for (uint32_t i = 0; i < g->nweight; i++)
        needed[g->weight[i].value.i] = !g->weight[i].frozen;
    for (uint32_t i = 0; i < g->nop; i++) {
        const Op *op = &g->op[i];
        bool any = false;
        for (int a = 0; a < op->narg; a++)
            any |= has_value(op->arg[a]) && needed[op->arg[a].i] && passes_gradient(op, a);
        for (int o = 0; o < op->nout; o++)
            needed[op->out[o].i] = any && !(op_info[op->kind].flags & OPF_NOGRAD) &&
                dtype_is_float(value_of(g, op->out[o])->dtype);
    }
    return needed;
}

bool graph_trains(const Graph *g)
{
    return has_value(g->loss) && find_needed(g)[g->loss.i];
}

static bool is_named(const Grad *c, ValueId v)
{
    return v.i < c->nnamed && c->named[v.i];
}

static void set_named(Grad *c, ValueId v)
{
    if (v.i >= c->nnamed) {
        uint32_t room = 2 * (v.i + 1);
        c->named = arena_grow(c->g->arena, c->named, c->nnamed * sizeof *c->named, room * sizeof *c->named);
        c->nnamed = room;
    }
    c->named[v.i] = true;
}

/* The gradient of `of` is complete: give it its name, unless it is also the
 * gradient of a value that had its turn before. */
static void name_gradient(Grad *c, ValueId of)
{
    ValueId d = c->sum[of.i];
    if (!has_value(d) || is_named(c, d))
        return;
    value_of(c->g, d)->path = arena_printf(c->g->arena, "grad:%s", value_of(c->g, of)->path);
    set_named(c, d);
}

/* d(loss)/d(loss) = 1. */
static void start_from_loss(Grad *c)
{
    Graph *g = c->g;
    const Value *loss = value_of(g, g->loss);
    assert(loss->rank == 0);
    OpSpec s = op_spec(OP_constant, PHASE_BACKWARD, arena_printf(g->arena, "grad:%s.seed", loss->path), loss->at);
    s.forward = loss->maker;
    s.attr[op_attr_index(OP_constant, "value")] = ATTR_F(1.0);
    s.nout = 1;
    s.out[0].dtype = loss->dtype;
    c->sum[g->loss.i] = grad_emit(c, &s);
}

static void differentiate_op(Grad *c, OpId id)
{
    c->id = id;
    c->op = *op_of(c->g, id);
    bool used = false, wanted = false;
    for (int o = 0; o < c->op.nout; o++) {
        name_gradient(c, c->op.out[o]);
        used |= has_value(c->sum[c->op.out[o].i]);
    }
    for (int a = 0; a < c->op.narg; a++)
        wanted |= grad_needs(c, a);
    if (!used || !wanted)
        return;
    GradRule rule = grad_rule(c->op.kind);
    assert(rule);
    rule(c);
}

static void set_weight_gradients(Grad *c)
{
    Graph *g = c->g;
    for (uint32_t i = 0; i < g->nweight; i++) {
        Weight *w = &g->weight[i];
        w->gradient = c->sum[w->value.i];
        if (!has_value(w->gradient))
            continue;
        assert(!is_named(c, w->gradient));
        name_gradient(c, w->value);
        value_of(g, w->gradient)->role = ROLE_WEIGHT_GRADIENT;
    }
}

void graph_differentiate(Graph *g)
{
    assert(has_value(g->loss));
    graph_complete(g);
    Grad c = {.g = g, .nforward = g->nvalue, .id = NO_OP};
    uint32_t nop = g->nop;
    c.needed = find_needed(g);
    c.sum = NEWN(g->arena, ValueId, c.nforward);
    c.uses = NEWN(g->arena, uint32_t, c.nforward);
    for (uint32_t i = 0; i < c.nforward; i++)
        c.sum[i] = NO_VALUE;
    if (c.needed[g->loss.i])
        start_from_loss(&c);
    for (uint32_t i = nop; i-- > 0;)
        differentiate_op(&c, (OpId){i});
    for (uint32_t i = 0; i < c.nforward; i++)
        g->value[i].gradient = c.sum[i];
    set_weight_gradients(&c);
}
