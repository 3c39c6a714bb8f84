/* Ops made by operators: broadcasting by name, numbers beside tensors, selections,
 * and the one gate through which every op enters the Graph. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "frontend/elab.h"

/* ---- axes ---- */

Axes axes_of(const Elab *e, ValueId v)
{
    const Value *val = value_of(e->g, v);
    Axes a = {.n = val->rank};
    memcpy(a.dim, val->axis, sizeof *a.dim * val->rank);
    return a;
}

bool axes_have(const Axes *a, DimId d)
{
    for (int i = 0; i < a->n; i++)
        if (same_dim(a->dim[i], d))
            return true;
    return false;
}

Axes axes_without(const Axes *a, const Axes *b)
{
    Axes r = {.n = 0};
    for (int i = 0; i < a->n; i++)
        if (!axes_have(b, a->dim[i]))
            r.dim[r.n++] = a->dim[i];
    return r;
}

Axes axes_ordered(const Axes *a, const Axes *like)
{
    Axes r = {.n = 0};
    for (int i = 0; i < like->n; i++)
        if (axes_have(a, like->dim[i]))
            r.dim[r.n++] = like->dim[i];
    return r;
}

/* ---- the gate ---- */

OpSpec op_start(Elab *e, const Scope *s, OpKind kind, const char *base, Span at)
{
    return op_spec(kind, PHASE_FORWARD, scope_path(e, s, base), at);
}

void op_take(OpSpec *spec, ValueId v)
{
    spec->arg[spec->narg++] = v;
}

void op_give(OpSpec *spec, const DimId *axis, int rank, DType dtype)
{
    OutSpec *out = &spec->out[spec->nout++];
    *out = (OutSpec){.dtype = dtype, .rank = (uint8_t)rank};
    for (int i = 0; i < rank; i++)
        out->axis[i] = axis[i];
}

void op_set(OpSpec *spec, const char *attr, Attr value)
{
    int i = op_attr_index(spec->kind, attr);
    assert(i >= 0);
    spec->attr[i] = value;
}

static DType wider(DType a, DType b)
{
    if (a == b || dtype_bytes(a) > dtype_bytes(b))
        return a;
    return dtype_bytes(b) > dtype_bytes(a) ? b : DT_f32;     /* f16 and bf16 */
}

/* The widest of the activations'; weights and inputs follow, alone they are brought
 * to the compute dtype. */
DType float_dtype(Elab *e, const ValueId *v, int n)
{
    DType t = DTYPES;
    for (int i = 0; i < n; i++) {
        if (!has_value(v[i]))
            continue;
        const Value *val = value_of(e->g, v[i]);
        if (val->role == ROLE_ACTIVATION && dtype_is_float(val->dtype))
            t = t == DTYPES ? val->dtype : wider(t, val->dtype);
    }
    return t == DTYPES ? e->g->precision.compute : t;
}

static bool room_for_op(Elab *e, Span at)
{
    if (e->stopped)
        return false;
    if (e->g->nop >= OPS_LIMIT) {
        fail_stop(e, at, "the model has more than %d ops", OPS_LIMIT);
        return false;
    }
    return true;
}

static ValueId append(Elab *e, const OpSpec *spec)
{
    if (!room_for_op(e, spec->at))
        return NO_VALUE;
    for (int o = 0; o < spec->nout; o++)
        if (elements_of(e, spec->out[o].axis, spec->out[o].rank, spec->at) < 0)
            return NO_VALUE;
    OpId op = graph_add_op(e->g, spec);
    return op_of(e->g, op)->out[0];
}

/* Each value is cast once to another dtype, however often it is used. */
ValueId emit_cast(Elab *e, ValueId v, DType dtype, Span at)
{
    if (value_of(e->g, v)->dtype == dtype)
        return v;
    while (e->ncast_of < e->g->nvalue)
        PUSH(e->arena, e->cast_of, e->ncast_of, NO_VALUE);
    ValueId old = e->cast_of[v.i];
    if (has_value(old) && value_of(e->g, old)->dtype == dtype)
        return old;
    const Value *val = value_of(e->g, v);
    OpSpec spec = op_spec(OP_cast, PHASE_FORWARD, arena_printf(e->arena, "%s.cast", val->path), at);
    op_take(&spec, v);
    op_set(&spec, "to", ATTR_T(dtype));
    op_give(&spec, val->axis, val->rank, dtype);
    e->cast_of[v.i] = append(e, &spec);
    return e->cast_of[v.i];
}

ValueId emit(Elab *e, OpSpec *spec)
{
    DType dtype = float_dtype(e, spec->arg, spec->narg);
    bool mixes = spec->kind != OP_cast && spec->kind != OP_embed;    /* embed keeps its table as stored */
    for (int i = 0; i < spec->narg && mixes; i++) {
        if (!has_value(spec->arg[i]))
            continue;
        DType have = value_of(e->g, spec->arg[i])->dtype;
        if (have != dtype && dtype_is_float(have))
            spec->arg[i] = emit_cast(e, spec->arg[i], dtype, spec->at);
        if (!has_value(spec->arg[i]))
            return NO_VALUE;
    }
    return append(e, spec);
}

/* ---- orders, sums, numbers ---- */

ValueId emit_order(Elab *e, const Scope *s, ValueId x, const Axes *order, Span at)
{
    Axes have = axes_of(e, x);
    if (memcmp(have.dim, order->dim, sizeof *have.dim * (size_t)have.n) == 0)
        return x;
    DType dtype = value_of(e->g, x)->dtype;
    OpSpec spec = op_start(e, s, OP_transpose, "transpose", at);
    op_take(&spec, x);
    op_give(&spec, order->dim, have.n, dtype_is_float(dtype) ? float_dtype(e, &x, 1) : dtype);
    return emit(e, &spec);
}

ValueId emit_sum(Elab *e, const Scope *s, ValueId x, const Axes *over, bool mean, const char *base, Span at)
{
    Axes have = axes_of(e, x), keep = axes_without(&have, over);
    OpSpec spec = op_start(e, s, OP_reduce, base, at);
    op_take(&spec, x);
    op_set(&spec, "mean", ATTR_B(mean));
    /* A sum over samples goes on over micro-batches and ranks: in the dtype of sums, as that of cross_entropy does. */
    DType dtype = float_dtype(e, &x, 1);
    op_give(&spec, keep.dim, keep.n, axes_have(over, e->g->batch) ? wider(dtype, e->g->precision.reduce) : dtype);
    return emit(e, &spec);
}

ValueId emit_number(Elab *e, const Scope *s, OpKind kind, ValueId x, double by, const char *base, Span at)
{
    if (!has_value(x))
        return x;
    const Value *val = value_of(e->g, x);
    OpSpec spec = op_start(e, s, kind, base ? base : op_info[kind].name, at);
    op_take(&spec, x);
    op_set(&spec, "by", ATTR_F(by));
    op_give(&spec, val->axis, val->rank, float_dtype(e, &x, 1));
    return emit(e, &spec);
}

/* ---- operators ---- */

void help_cast(Elab *e, Diag *d)
{
    diag_help(e->ds, d, "'cast(x, to = %s)' makes floating-point numbers of whole numbers and booleans; 'embed(x, table)' looks them up",
              dtype_name(e->g->precision.compute));
}

static bool is_float_tensor(Elab *e, const Node *n, const Node *side, Term t)
{
    DType d = value_of(e->g, t.value)->dtype;
    if (dtype_is_float(d))
        return true;
    help_cast(e, fail(e, side->at, "'%s' needs floating-point tensors, but this is %s %s", n->kind == N_NEG ? "-" : sources_text(e->ds->sources, n->op),
                      dtype_name(d), value_text(e, t.value)));
    return false;
}

static Term with_number(Elab *e, Scope *s, const Node *n, Term l, Term r)
{
    bool left = l.kind == TERM_TENSOR;               /* the tensor is on the left */
    ValueId x = left ? l.value : r.value;
    double by = left ? r.f : l.f;
    switch (n->ival) {
    case B_ADD: return term_tensor(emit_number(e, s, OP_shift, x, by, NULL, n->at));
    case B_MUL: return term_tensor(emit_number(e, s, OP_scale, x, by, NULL, n->at));
    case B_SUB:
        if (left)
            return term_tensor(emit_number(e, s, OP_shift, x, -by, NULL, n->at));
        return term_tensor(emit_number(e, s, OP_shift, emit_number(e, s, OP_scale, x, -1, NULL, n->at), by, NULL, n->at));
    default:
        if (!left)
            return term_tensor(emit_number(e, s, OP_reciprocal, x, by, NULL, n->at));
        if (!(by > 0 || by < 0)) {
            fail(e, n->at, "a tensor is divided by zero: %s", sources_text(e->ds->sources, n->kid[1]->at));
            return POISON;
        }
        return term_tensor(emit_number(e, s, OP_scale, x, 1 / by, NULL, n->at));
    }
}

/* "'a', 'b'": those of x that y lacks. */
static const char *only_in(Elab *e, const Axes *x, const Axes *y)
{
    const char *s = "";
    Axes own = axes_without(x, y);
    for (int i = 0; i < own.n; i++)
        s = arena_printf(e->arena, "%s%s'%s'", s, i ? ", " : "", dim_of(e->g, own.dim[i])->name);
    return s;
}

static Term cannot_combine(Elab *e, const Node *n, ValueId l, ValueId r)
{
    Axes x = axes_of(e, l), y = axes_of(e, r);
    const char *left = only_in(e, &x, &y);
    Diag *d = fail(e, n->op, "cannot combine %s and %s: %s %s only on the left, %s only on the right", value_text(e, l),
                   value_text(e, r), strchr(left, ',') ? "axes" : "axis", left, only_in(e, &y, &x));
    diag_range(d, n->kid[0]->at);
    diag_range(d, n->kid[1]->at);
    note_overrides(e, d, value_from(e, l) | value_from(e, r));
    if (n->ival == B_MUL) {
        const char *axes = value_text(e, l);
        diag_help(e->ds, d, "write an assignment that names the axes to keep, such as 'y%s = ...', to contract the others", axes);
    }
    return POISON;
}

static bool covers(const Axes *big, const Axes *small)
{
    return axes_without(small, big).n == 0;
}

/* x with its axes in the order in which `like` has them. */
static ValueId follow(Elab *e, Scope *s, ValueId x, const Axes *like, Span at)
{
    Axes have = axes_of(e, x), order = axes_ordered(&have, like);
    return emit_order(e, s, x, &order, at);
}

static Term elementwise(Elab *e, Scope *s, const Node *n, OpKind kind, ValueId l, ValueId r)
{
    Axes x = axes_of(e, l), y = axes_of(e, r);
    bool left = covers(&x, &y);
    if (!left && !covers(&y, &x))
        return cannot_combine(e, n, l, r);
    const Axes *big = left ? &x : &y;
    l = follow(e, s, l, big, n->at);
    r = has_value(l) ? follow(e, s, r, big, n->at) : l;
    if (!has_value(r))
        return POISON;
    ValueId both[] = {l, r};
    OpSpec spec = op_start(e, s, kind, op_info[kind].name, n->at);
    op_take(&spec, l);
    op_take(&spec, r);
    op_give(&spec, big->dim, big->n, float_dtype(e, both, 2));
    return term_tensor(emit(e, &spec));
}

Term tensor_binary(Elab *e, Scope *s, const Node *n, Term l, Term r)
{
    static const OpKind kind[] = {[B_ADD] = OP_add, [B_SUB] = OP_sub, [B_MUL] = OP_mul, [B_DIV] = OP_div};
    l = term_scalar(e, l);
    r = term_scalar(e, r);
    for (int side = 0; side < 2; side++) {
        Term t = side ? r : l;
        if (t.kind == TERM_TENSOR ? !is_float_tensor(e, n, n->kid[side], t) : false)
            return POISON;
        if (t.kind != TERM_TENSOR && t.kind != TERM_INT && t.kind != TERM_REAL) {
            fail(e, n->kid[side]->at, "'%s' needs numbers or tensors, but this is %s", sources_text(e->ds->sources, n->op), term_describe(e, t));
            return POISON;
        }
    }
    if (n->ival == B_MOD) {
        fail(e, n->op, "'%%' works on whole numbers, not on tensors");
        return POISON;
    }
    if (l.kind == TERM_TENSOR && r.kind == TERM_TENSOR)
        return elementwise(e, s, n, kind[n->ival], l.value, r.value);
    return with_number(e, s, n, l, r);
}

Term tensor_negate(Elab *e, Scope *s, const Node *n, Term t)
{
    if (!is_float_tensor(e, n, n->kid[0], t))
        return POISON;
    return term_tensor(emit_number(e, s, OP_scale, t.value, -1, NULL, n->at));
}

/* ---- selections ---- */

static int axis_of(Elab *e, ValueId x, DimId d)
{
    const Value *val = value_of(e->g, x);
    for (int i = 0; i < val->rank; i++)
        if (same_dim(val->axis[i], d))
            return i;
    return -1;
}

static ValueId emit_part(Elab *e, Scope *s, ValueId x, int axis, DimId part, int64_t first, Span at)
{
    Value val = *value_of(e->g, x);
    bool slices = part.i != NO_DIM.i;
    OpKind kind = slices ? OP_slice : OP_select;
    OpSpec spec = op_start(e, s, kind, op_info[kind].name, at);
    op_take(&spec, x);
    op_set(&spec, slices ? "first" : "at", ATTR_I(first));
    if (slices)
        val.axis[axis] = part;
    else
        memmove(&val.axis[axis], &val.axis[axis + 1], sizeof *val.axis * (size_t)(--val.rank - axis));
    op_give(&spec, val.axis, val.rank, dtype_is_float(val.dtype) ? float_dtype(e, &x, 1) : val.dtype);
    return emit(e, &spec);
}

/* One selector of x: the part it selects. */
static ValueId select_one(Elab *e, Scope *s, const Node *sel, ValueId x, Span at)
{
    if (sel->kind == N_DOTS)
        return x;
    const Node *name = sel->kind == N_NAME ? sel : sel->kid[0];
    DimId d = scope_dim(e, s, name);
    if (d.i == NO_DIM.i)
        return NO_VALUE;
    int axis = axis_of(e, x, d);
    if (axis < 0) {
        fail(e, name->at, "%s has no axis '%s'", value_text(e, x), name->text);
        return NO_VALUE;
    }
    if (sel->kind == N_NAME)
        return x;
    int64_t extent = dim_of(e->g, d)->extent;
    const char *what = arena_printf(e->arena, "a place on '%s' (%" PRId64 ")", name->text, extent);
    Term first, last;
    if (!eval_whole(e, s, sel->kid[1], what, 0, extent - 1, &first))
        return NO_VALUE;
    if (sel->kind == N_AT)
        return emit_part(e, s, x, axis, NO_DIM, first.i, at);
    if (!eval_whole(e, s, sel->kid[2], what, first.i, extent - 1, &last))
        return NO_VALUE;
    DimId part = elab_dim(e, name->text, last.i - first.i + 1, sel->at, e->dim_from[d.i] | first.from | last.from);
    return part.i == NO_DIM.i ? NO_VALUE : emit_part(e, s, x, axis, part, first.i, at);
}

Term tensor_select(Elab *e, Scope *s, const Node *n, Term t)
{
    ValueId x = t.value;
    for (uint32_t i = 1; i < n->nkid && has_value(x); i++)
        x = select_one(e, s, n->kid[i], x, n->at);
    return term_tensor(x);
}
