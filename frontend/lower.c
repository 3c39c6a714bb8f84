/* What the signature alone does not say about an op: extents that depend on others,
 * and the ops whose axes stand for several. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "frontend/elab.h"

/* ---- extents and letters ---- */

static int64_t extent(const Call *c, const char *axis)
{
    return dim_of(c->e->g, call_dim(c, axis))->extent;
}

static const char *axis_name(const Call *c, const char *axis)
{
    return dim_of(c->e->g, call_dim(c, axis))->name;
}

static bool wrong(Call *c, Diag *d, DimId a, DimId b)
{
    note_overrides(c->e, d, (a.i == NO_DIM.i ? 0 : c->e->dim_from[a.i]) | (b.i == NO_DIM.i ? 0 : c->e->dim_from[b.i]));
    return false;
}

static bool set_fresh(Call *c, const char *axis, const char *name, int64_t n, uint64_t from)
{
    DimId d = elab_dim(c->e, name, n, c->node->at, from);
    if (d.i == NO_DIM.i)
        return false;
    call_set_dim(c, axis, d);
    return true;
}

static int64_t product(Call *c, const Axes *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->n; i++)
        if (__builtin_mul_overflow(n, dim_of(c->e->g, a->dim[i])->extent, &n))
            return INT64_MAX;                        /* the weight is refused for its size */
    return n;
}

bool before_rope(Call *c)
{
    const Arg *over = call_arg(c, "over");
    const Value *x = value_of(c->e->g, call_arg(c, "x")->term.value);
    if (over->term.kind != TERM_DIM || x->rank < 3 || same_dim(x->axis[x->rank - 3], over->term.dim))
        return true;
    fail(c->e, over->at->at, "rope turns by the axis before the last two, which is '%s' in %s, not '%s'",
         dim_of(c->e->g, x->axis[x->rank - 3])->name, value_text(c->e, call_arg(c, "x")->term.value), dim_of(c->e->g, over->term.dim)->name);
    return false;
}

bool after_rope(Call *c)
{
    if (extent(c, "e") % 2 == 0)
        return true;
    return wrong(c, fail(c->e, c->node->at, "rope turns pairs, so '%s' (%" PRId64 ") must be even", axis_name(c, "e"), extent(c, "e")),
                 call_dim(c, "e"), NO_DIM);
}

bool after_attention(Call *c)
{
    if (extent(c, "h") % extent(c, "g"))
        return wrong(c, fail(c->e, c->node->at, "attention: %s (%" PRId64 ") is not a multiple of %s (%" PRId64 "), the heads of k and v",
                             axis_name(c, "h"), extent(c, "h"), axis_name(c, "g"), extent(c, "g")), call_dim(c, "h"), call_dim(c, "g"));
    bool pairs = call_arg(c, "causal")->term.i || call_arg(c, "window")->term.kind == TERM_INT || call_arg(c, "doc")->term.kind == TERM_TENSOR;
    if (pairs && extent(c, "s") != extent(c, "t"))
        return wrong(c, fail(c->e, c->node->at, "attention with causal, window or doc needs as many keys as queries, but '%s' is %" PRId64
                             " and '%s' is %" PRId64, axis_name(c, "t"), extent(c, "t"), axis_name(c, "s"), extent(c, "s")),
                     call_dim(c, "s"), call_dim(c, "t"));
    return true;
}

bool before_relative_bias(Call *c)
{
    Term buckets = call_arg(c, "buckets")->term;
    return set_fresh(c, "b", "bucket", buckets.i, buckets.from);
}

bool after_router(Call *c)
{
    const Arg *top = call_arg(c, "top");
    if (top->term.i <= extent(c, "expert"))
        return true;
    fail(c->e, top->at->at, "a token cannot visit %" PRId64 " experts: '%s' is %" PRId64, top->term.i, axis_name(c, "expert"), extent(c, "expert"));
    return false;
}

/* slot = min(s, ceil(capacity * s * top / experts)); s without a capacity (DESIGN 3, experts). */
bool after_dispatch(Call *c)
{
    const Graph *g = c->e->g;
    const Op *router = op_of(g, value_of(g, call_arg(c, "route")->term.value)->maker);
    Term capacity = call_arg(c, "capacity")->term;
    int64_t s = extent(c, "s"), slot = s;
    if (capacity.kind == TERM_REAL) {
        double need = ceil(capacity.f * (double)s * op_attr(router, "top")->f / (double)extent(c, "expert"));
        slot = need < (double)s ? (int64_t)need : s;
    }
    return set_fresh(c, "slot", "slot", slot, capacity.from | c->e->dim_from[call_dim(c, "s").i]);
}

bool before_conv2d(Call *c)
{
    Term kernel = call_arg(c, "kernel")->term, pad = call_arg(c, "pad")->term, init = call_arg(c, "init")->term;
    if (init.kind == TERM_INIT)
        c->init = *init.init;
    if (pad.i < 0 || pad.i > EXTENT_LIMIT) {
        fail(c->e, call_arg(c, "pad")->at->at, "'pad' of conv2d must be at least 0, but this is %" PRId64, pad.i);
        return false;
    }
    return set_fresh(c, "kh", "kh", kernel.i, kernel.from) && set_fresh(c, "kw", "kw", kernel.i, kernel.from);
}

/* out = (in + 2 * pad - kernel) / stride + 1, rounded down. */
bool after_conv2d(Call *c)
{
    static const char *const side[2][2] = {{"h", "row"}, {"w", "col"}};
    int64_t kernel = call_arg(c, "kernel")->term.i, stride = call_arg(c, "stride")->term.i, pad = call_arg(c, "pad")->term.i;
    for (int i = 0; i < 2; i++) {
        int64_t room = extent(c, side[i][0]) + 2 * pad - kernel, want = room < 0 ? 0 : room / stride + 1;
        if (want == extent(c, side[i][1]))
            continue;
        Diag *d = fail(c->e, c->node->at, "conv2d makes %" PRId64 " of '%s' (%" PRId64 "), but '%s' is %" PRId64, want, axis_name(c, side[i][0]),
                       extent(c, side[i][0]), axis_name(c, side[i][1]), extent(c, side[i][1]));
        if (want > 0)
            diag_help(c->e->ds, d, "declare an axis for what it makes, such as 'dim %s2 = %" PRId64 "', and name it in the list", axis_name(c, side[i][0]), want);
        return wrong(c, d, call_dim(c, side[i][0]), call_dim(c, side[i][1]));
    }
    const Axes in = {{call_dim(c, "c"), call_dim(c, "kh"), call_dim(c, "kw")}, 3}, out = {{call_dim(c, "out"), in.dim[1], in.dim[2]}, 3};
    c->init.fan_in = product(c, &in);
    c->init.fan_out = product(c, &out);
    return true;
}

/* The classes are the axis the labels lack; it goes last, the others in the labels' order. */
bool before_cross_entropy(Call *c)
{
    Arg *logits = call_arg(c, "logits"), *labels = call_arg(c, "labels");
    Axes x = axes_of(c->e, logits->term.value), y = axes_of(c->e, labels->term.value);
    Axes classes = axes_without(&x, &y), order = axes_ordered(&x, &y);
    if (classes.n != 1 || order.n != y.n) {
        fail(c->e, c->node->at, "cross_entropy: the logits %s must have the axes of the labels %s and one more", value_text(c->e, logits->term.value),
             value_text(c->e, labels->term.value));
        return false;
    }
    order.dim[order.n++] = classes.dim[0];
    ValueId v = emit_order(c->e, c->s, logits->term.value, &order, c->node->at);
    logits->term = term_tensor(v);
    return has_value(v);
}

/* ---- axes given by name ---- */

/* The axes of x that argument `formal` lists; without them, the last one. */
static bool listed(Call *c, const char *formal, ValueId x, Axes *out)
{
    const Arg *arg = call_arg(c, formal);
    Axes have = axes_of(c->e, x);
    out->n = 0;
    if (arg->term.kind == TERM_AUTO && have.n == 0) {
        fail(c->e, c->node->at, "%s needs a tensor with an axis, but this is a single number", op_info[c->kind].name);
        return false;
    }
    if (arg->term.kind == TERM_AUTO)
        out->dim[out->n++] = have.dim[have.n - 1];
    if (arg->term.kind != TERM_LIST)                 /* auto or none */
        return true;
    for (uint32_t i = 0; i < arg->term.nitem; i++) {
        DimId d = arg->term.item[i].dim;
        const char *name = dim_of(c->e->g, d)->name;
        if (!axes_have(&have, d)) {
            fail(c->e, arg->at->at, "%s has no axis '%s'", value_text(c->e, x), name);
            return false;
        }
        if (axes_have(out, d)) {
            fail(c->e, arg->at->at, "axis '%s' is listed twice", name);
            return false;
        }
        out->dim[out->n++] = d;
    }
    return true;
}

/* Append one dim to the axes of a result. */
static bool append(Call *c, Axes *a, DimId d)
{
    if (axes_have(a, d)) {
        fail(c->e, c->node->at, "the result of %s would have axis '%s' twice", op_info[c->kind].name, dim_of(c->e->g, d)->name);
        return false;
    }
    if (a->n == MAX_RANK) {
        fail(c->e, c->node->at, "the result of %s would have more than %d axes", op_info[c->kind].name, MAX_RANK);
        return false;
    }
    a->dim[a->n++] = d;
    return true;
}

/* ---- linear ---- */

/* Labels: what is summed by its place among `over`, what is made by its place in the
 * list after those, others by dim after these: a square map keeps them apart. */
typedef struct Linear { Call *c; Axes over, per, made; } Linear;

static uint8_t label_in(const Linear *l, DimId d)
{
    for (int i = 0; i < l->over.n; i++)
        if (same_dim(l->over.dim[i], d))
            return (uint8_t)i;
    const Value *x = value_of(l->c->e->g, call_arg(l->c, "x")->term.value);
    int i = 0;
    while (!same_dim(x->axis[i], d))
        i++;
    return (uint8_t)(2 * MAX_RANK + i);
}

static uint8_t label_made(int i)
{
    return (uint8_t)(MAX_RANK + i);
}

static bool linear_weight(Linear *l, const SigFormal *f, const Axes *summed, OpSpec *spec)
{
    Axes all = {.n = 0};
    uint8_t *label = spec->label[spec->narg];
    if (l->per.n + summed->n + l->made.n > MAX_RANK) {
        fail(l->c->e, l->c->node->at, "the matrix of linear would have more than %d axes", MAX_RANK);
        return false;
    }
    for (int i = 0; i < l->per.n; i++, all.n++) {
        all.dim[all.n] = l->per.dim[i];
        label[all.n] = label_in(l, l->per.dim[i]);
    }
    for (int i = 0; i < summed->n; i++, all.n++) {
        all.dim[all.n] = summed->dim[i];
        label[all.n] = label_in(l, summed->dim[i]);
    }
    for (int i = 0; i < l->made.n; i++, all.n++) {
        all.dim[all.n] = l->made.dim[i];
        label[all.n] = label_made(i);
    }
    ValueId v = call_weight(l->c, f, all.dim, all.n);
    op_take(spec, v);
    return has_value(v);
}

static bool linear_axes(Linear *l, ValueId x, Axes *result)
{
    Call *c = l->c;
    const Arg *out = call_arg(c, "out");
    if (!listed(c, "over", x, &l->over) || !listed(c, "per", x, &l->per))
        return false;
    for (int i = 0; i < l->per.n; i++)
        if (axes_have(&l->over, l->per.dim[i])) {
            fail(c->e, c->node->at, "linear cannot both sum over '%s' and keep a matrix per '%s'", dim_of(c->e->g, l->per.dim[i])->name,
                 dim_of(c->e->g, l->per.dim[i])->name);
            return false;
        }
    Axes have = axes_of(c->e, x);
    *result = axes_without(&have, &l->over);
    l->made.n = 0;
    for (uint32_t i = 0; i < out->term.nitem; i++) {
        if (!append(c, result, out->term.item[i].dim))
            return false;
        l->made.dim[l->made.n++] = out->term.item[i].dim;
    }
    return true;
}

Term lower_linear(Call *c)
{
    Linear l = {.c = c};
    ValueId x = call_arg(c, "x")->term.value;
    Axes result, have = axes_of(c->e, x);
    if (!linear_axes(&l, x, &result))
        return POISON;
    const Arg *init = call_arg(c, "init");
    if (init->term.kind == TERM_INIT)
        c->init = *init->term.init;
    c->init.fan_in = product(c, &l.over);
    c->init.fan_out = product(c, &l.made);
    OpSpec spec = call_spec(c);
    spec.by_dim = false;
    for (int i = 0; i < have.n; i++)
        spec.label[0][i] = label_in(&l, have.dim[i]);
    op_take(&spec, x);
    const Axes none = {.n = 0};
    for (int i = 1; i < op_narg(OP_linear); i++) {
        const SigFormal *f = op_arg(OP_linear, i);
        if (!call_owns(c, f))
            op_take(&spec, NO_VALUE);
        else if (!linear_weight(&l, f, f->optional ? &none : &l.over, &spec))
            return POISON;
    }
    op_give(&spec, result.dim, result.n, float_dtype(c->e, spec.arg, spec.narg));
    int lead = result.n - l.made.n;
    for (int i = 0; i < result.n; i++)
        spec.out[0].label[i] = i < lead ? label_in(&l, result.dim[i]) : label_made(i - lead);
    return term_tensor(emit(c->e, &spec));
}

/* ---- products and sums ---- */

Term lower_matmul(Call *c)
{
    ValueId a = call_arg(c, "a")->term.value, b = call_arg(c, "b")->term.value;
    Axes left = axes_of(c->e, a), right = axes_of(c->e, b), over;
    if (!listed(c, "over", a, &over))
        return POISON;
    for (int i = 0; i < over.n; i++)
        if (!axes_have(&right, over.dim[i])) {
            fail(c->e, c->node->at, "matmul sums over '%s', which %s does not have", dim_of(c->e->g, over.dim[i])->name, value_text(c->e, b));
            return POISON;
        }
    Axes keep = axes_without(&left, &over), more = axes_without(&right, &over);
    for (int i = 0; i < more.n; i++)
        if (!axes_have(&keep, more.dim[i]) && !append(c, &keep, more.dim[i]))
            return POISON;
    return term_tensor(emit_product(c->e, c->s, a, b, &keep, c->base, c->node->at));
}

Term lower_reduce(Call *c)
{
    ValueId x = call_arg(c, "x")->term.value;
    Axes over;
    if (!listed(c, "over", x, &over))
        return POISON;
    return term_tensor(emit_sum(c->e, c->s, x, &over, c->kind == OP_mean, c->base, c->node->at));
}

Term lower_cast(Call *c)
{
    ValueId x = call_arg(c, "x")->term.value;
    const Value *val = value_of(c->e->g, x);
    DType to = (DType)call_arg(c, "to")->term.i;
    if (val->dtype == to)
        return term_tensor(x);
    OpSpec spec = call_spec(c);
    op_take(&spec, x);
    op_give(&spec, val->axis, val->rank, to);
    return term_tensor(emit(c->e, &spec));
}

/* Without anything to drop, dropout(x) is x: no pass over the values, nothing to save. */
Term lower_dropout(Call *c)
{
    if (call_arg(c, "p")->term.f <= 0)
        return call_arg(c, "x")->term;
    return call_bind(c) ? call_emit(c) : POISON;
}

/* ---- shapes ---- */

static DType same_dtype(Call *c, ValueId x)
{
    DType d = value_of(c->e->g, x)->dtype;
    return dtype_is_float(d) ? float_dtype(c->e, &x, 1) : d;
}

/* rename(x, seq = key): the pairs name an axis of x and the dim that takes its place. */
Term lower_rename(Call *c)
{
    Elab *e = c->e;
    ValueId x = call_arg(c, "x")->term.value;
    Axes was = axes_of(c->e, x), now = was;
    for (uint32_t k = 0; k < c->rest.n; k++) {
        const Actual *a = &c->rest.v[k];
        DimId from = scope_dim(e, c->s, a->key);
        if (from.i == NO_DIM.i)
            return POISON;
        if (!axes_have(&was, from)) {
            fail(e, a->key->at, "%s has no axis '%s'", value_text(e, x), a->key->text);
            return POISON;
        }
        if (a->term.kind != TERM_DIM) {
            fail(e, a->at->at, "rename takes a dim, but this is %s", term_describe(e, a->term));
            return POISON;
        }
        const Dim *p = dim_of(e->g, from), *q = dim_of(e->g, a->term.dim);
        if (p->extent != q->extent) {
            wrong(c, fail(e, a->at->at, "rename needs an axis as long: '%s' is %" PRId64 ", but '%s' is %" PRId64, p->name, p->extent, q->name, q->extent),
                  from, a->term.dim);
            return POISON;
        }
        for (int i = 0; i < was.n; i++)
            if (same_dim(was.dim[i], from))
                now.dim[i] = a->term.dim;
    }
    Axes once = {.n = 0};
    OpSpec spec = call_spec(c);
    spec.by_dim = false;
    for (int i = 0; i < now.n; i++) {
        if (!append(c, &once, now.dim[i]))
            return POISON;
        spec.label[0][i] = (uint8_t)i;
    }
    if (c->rest.n == 0) {
        fail(e, c->node->at, "rename needs an axis and its new name, for example rename(x, seq = key)");
        return POISON;
    }
    op_take(&spec, x);
    op_give(&spec, now.dim, now.n, same_dtype(c, x));
    memcpy(spec.out[0].label, spec.label[0], sizeof spec.label[0]);
    return term_tensor(emit(e, &spec));
}

/* The axes to join must lie side by side in this order: they are put there first. */
static ValueId side_by_side(Call *c, ValueId x, const Axes *join)
{
    Axes have = axes_of(c->e, x), order = {.n = 0};
    for (int i = 0; i < have.n; i++) {
        if (!axes_have(join, have.dim[i]))
            order.dim[order.n++] = have.dim[i];
        for (int k = 0; k < join->n && same_dim(have.dim[i], join->dim[0]); k++)
            order.dim[order.n++] = join->dim[k];
    }
    return emit_order(c->e, c->s, x, &order, c->node->at);
}

Term lower_merge(Call *c)
{
    ValueId x = call_arg(c, "x")->term.value;
    DimId to = call_arg(c, "to")->term.dim;
    Axes join, result = {.n = 0};
    if (!listed(c, "axes", x, &join))
        return POISON;
    int64_t n = product(c, &join), want = dim_of(c->e->g, to)->extent;
    if (n != want) {
        wrong(c, fail(c->e, c->node->at, "merge joins %s into %" PRId64 " elements, but '%s' is %" PRId64, axes_text(c->e, join.dim, join.n), n,
                      dim_of(c->e->g, to)->name, want), join.n ? join.dim[0] : NO_DIM, to);
        return POISON;
    }
    x = side_by_side(c, x, &join);
    if (!has_value(x))
        return POISON;
    Axes have = axes_of(c->e, x);
    for (int i = 0; i < have.n; i++) {
        bool first = join.n && same_dim(have.dim[i], join.dim[0]);
        if ((first || !axes_have(&join, have.dim[i])) && !append(c, &result, first ? to : have.dim[i]))
            return POISON;
    }
    OpSpec spec = call_spec(c);
    op_take(&spec, x);
    op_give(&spec, result.dim, result.n, same_dtype(c, x));
    return term_tensor(emit(c->e, &spec));
}

/* An operand in the order of the result; one without the axis counts as one long. */
static ValueId concat_operand(Call *c, ValueId x, const Axes *like)
{
    Axes have = axes_of(c->e, x), order = axes_ordered(&have, like);
    return emit_order(c->e, c->s, x, &order, c->node->at);
}

Term lower_concat(Call *c)
{
    Elab *e = c->e;
    ValueId a = call_arg(c, "a")->term.value, b = call_arg(c, "b")->term.value;
    DimId over = call_arg(c, "over")->term.dim, to = call_arg(c, "to")->term.dim;
    Axes x = axes_of(e, a), y = axes_of(e, b);
    bool y_covers = axes_without(&x, &y).n == 0, x_covers = axes_without(&y, &x).n == 0;
    const Axes *like = y_covers ? &y : &x;
    if (!(y_covers || x_covers) || !axes_have(like, over)) {
        fail(e, c->node->at, "concat cannot join %s and %s over '%s': one must have it, and all axes of the other", value_text(e, a),
             value_text(e, b), dim_of(e->g, over)->name);
        return POISON;
    }
    int64_t one = dim_of(e->g, over)->extent, want = dim_of(e->g, to)->extent;
    int64_t n = (axes_have(&x, over) ? one : 1) + (axes_have(&y, over) ? one : 1);
    if (n != want) {
        wrong(c, fail(e, c->node->at, "concat makes %" PRId64 " of '%s', but '%s' is %" PRId64, n, dim_of(e->g, over)->name, dim_of(e->g, to)->name, want),
              over, to);
        return POISON;
    }
    Axes result = {.n = 0};
    for (int i = 0; i < like->n; i++)
        if (!append(c, &result, same_dim(like->dim[i], over) ? to : like->dim[i]))
            return POISON;
    a = concat_operand(c, a, like);
    b = has_value(a) ? concat_operand(c, b, like) : a;
    if (!has_value(b))
        return POISON;
    OpSpec spec = call_spec(c);
    op_take(&spec, a);
    op_take(&spec, b);
    op_give(&spec, result.dim, result.n, float_dtype(e, spec.arg, 2));
    return term_tensor(emit(e, &spec));
}
