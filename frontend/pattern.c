/* Calls of ops against their signatures: axis names bind to dims, owned weights are
 * declared, and the op enters the graph with its factors labelled by the signature. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"

/* ---- axis names ---- */

static int find_axis(const Call *c, const char *axis)
{
    int i = 0;
    while (i < c->bound.n && strcmp(c->bound.name[i], axis) != 0)
        i++;
    return i;
}

DimId call_dim(const Call *c, const char *axis)
{
    int i = find_axis(c, axis);
    return i < c->bound.n ? c->bound.dim[i] : NO_DIM;
}

void call_set_dim(Call *c, const char *axis, DimId d)
{
    assert(c->bound.n < (int)(sizeof c->bound.name / sizeof *c->bound.name));
    c->bound.name[c->bound.n] = axis;
    c->bound.dim[c->bound.n++] = d;
}

Arg *call_arg(Call *c, const char *formal)
{
    int i = 0;
    while (strcmp(c->sig->formal[i].name, formal) != 0)
        i++;
    assert(i < c->sig->nformal);
    return &c->arg[i];
}

static const char *pattern_text(Elab *e, const SigFormal *f)
{
    Text t = text_new(e->arena);
    for (int i = 0; i < f->naxis; i++)
        text_add(&t, "%s%s", i ? ", " : "", f->axis[i].name);
    return arena_printf(e->arena, "%s[%s]", f->name, t.s);
}

static void note_patterns(Call *c, Diag *d)
{
    Text t = text_new(c->e->arena);
    for (int i = 0; i < c->sig->nformal; i++)
        if (c->sig->formal[i].naxis && (c->sig->formal[i].kind == SIG_TENSOR || c->arg[i].given) && c->sig->formal[i].kind != SIG_OWNED)
            text_add(&t, "%s%s", t.n ? ", " : "", pattern_text(c->e, &c->sig->formal[i]));
    diag_note(c->e->ds, d, NOWHERE, "%s takes %s", op_info[c->kind].name, t.s);
}

static bool bind_axis(Call *c, const SigFormal *f, const Arg *arg, const char *axis, DimId d)
{
    DimId old = call_dim(c, axis);
    if (old.i == NO_DIM.i) {
        call_set_dim(c, axis, d);
        return true;
    }
    if (same_dim(old, d))
        return true;
    const Dim *was = dim_of(c->e->g, old), *is = dim_of(c->e->g, d);
    Diag *bad = fail(c->e, arg->at->at, "%s: '%s' has axis '%s' (%" PRId64 ") where '%s' (%" PRId64 ") is expected", op_info[c->kind].name, f->name,
                     is->name, is->extent, was->name, was->extent);
    note_patterns(c, bad);
    note_overrides(c->e, bad, c->e->dim_from[old.i] | c->e->dim_from[d.i]);
    return false;
}

static bool bind_dots(Call *c, const SigFormal *f, const Arg *arg, const DimId *axis, int n)
{
    Binding *b = &c->bound;
    if (!b->has_dots) {
        b->has_dots = true;
        b->ndots = n;
        memcpy(b->dots, axis, sizeof *axis * (size_t)n);
        return true;
    }
    if (n == b->ndots && memcmp(b->dots, axis, sizeof *axis * (size_t)n) == 0)
        return true;
    Diag *d = fail(c->e, arg->at->at, "%s: '%s' has the leading axes %s where %s are expected", op_info[c->kind].name, f->name,
                   axes_text(c->e, axis, n), axes_text(c->e, b->dots, b->ndots));
    note_patterns(c, d);
    return false;
}

static bool bind_tensor(Call *c, const SigFormal *f, const Arg *arg)
{
    Value val = *value_of(c->e->g, arg->term.value);
    bool dots = f->naxis && f->axis[0].dots;
    int named = f->naxis - dots, lead = val.rank - named;
    if (lead < 0 || (!dots && lead > 0)) {
        note_patterns(c, fail(c->e, arg->at->at, "%s wants %s, but this is %s", op_info[c->kind].name, pattern_text(c->e, f),
                              value_text(c->e, arg->term.value)));
        return false;
    }
    if (dots && !bind_dots(c, f, arg, val.axis, lead))
        return false;
    for (int i = 0; i < named; i++)
        if (!bind_axis(c, f, arg, f->axis[i + dots].name, val.axis[lead + i]))
            return false;
    return true;
}

static bool is_tensor(const Arg *a)
{
    return a->term.kind == TERM_TENSOR || a->term.kind == TERM_ROUTE;
}

bool call_bind(Call *c)
{
    for (int i = 0; i < c->sig->nformal; i++) {
        const SigFormal *f = &c->sig->formal[i];
        if (f->kind == SIG_DIM)
            call_set_dim(c, f->name, c->arg[i].term.dim);
        bool tensor = f->kind == SIG_TENSOR || (f->kind == SIG_SCALAR && f->tensor && is_tensor(&c->arg[i]));
        if (tensor && !bind_tensor(c, f, &c->arg[i]))
            return false;
    }
    return true;
}

/* ---- the op ---- */

static bool to_attr(Term t, Attr *out)
{
    switch (t.kind) {
    case TERM_INT:   *out = ATTR_I(t.i); return true;
    case TERM_REAL:  *out = ATTR_F(t.f); return true;
    case TERM_BOOL:  *out = ATTR_B(t.i); return true;
    case TERM_DTYPE: *out = ATTR_T(t.i); return true;
    case TERM_NONE:  *out = (Attr){ATTR_NONE, 0, 0}; return true;
    case TERM_AUTO:  *out = (Attr){ATTR_AUTO, 0, 0}; return true;
    default:         return false;                   /* axes, initialisers and tensors are no attributes */
    }
}

OpSpec call_spec(Call *c)
{
    OpSpec spec = op_start(c->e, c->s, c->kind, c->base, c->node->at);
    int n = 0;
    for (int i = 0; i < c->sig->nformal; i++)
        if (c->sig->formal[i].kind == SIG_SCALAR)
            to_attr(c->arg[i].term, &spec.attr[n++]);
    return spec;
}

bool call_owns(Call *c, const SigFormal *owned)
{
    if (!owned->optional)
        return true;
    for (int i = 0; i < c->sig->nformal; i++)
        if (strcmp(c->sig->formal[i].name, "bias") == 0)
            return c->arg[i].term.i != 0;
    return true;
}

/* An owned weight: the first starts as the op's row says, a bias at zero. */
ValueId call_weight(Call *c, const SigFormal *f, const DimId *axis, int rank)
{
    bool bias = f->optional;
    const char *path = arena_printf(c->e->arena, "%s.%s", scope_path(c->e, c->s, c->base), f->name);
    Init init = bias ? (Init){.kind = INIT_zeros} : c->init;
    return weight_new(c->e, path, axis, rank, c->e->g->precision.weights, init, false, !bias && rank >= 2, c->node->at);
}

/* Labels of factors: '..' by its place, a named axis after those. */
static int axes_of_pattern(const Call *c, const SigFormal *f, DimId *axis, uint8_t *label)
{
    int n = 0;
    for (int i = 0; i < f->naxis; i++) {
        if (f->axis[i].dots) {
            for (int k = 0; k < c->bound.ndots; k++, n++) {
                axis[n] = c->bound.dots[k];
                label[n] = (uint8_t)k;
            }
            continue;
        }
        int k = find_axis(c, f->axis[i].name);
        assert(k < c->bound.n);
        axis[n] = c->bound.dim[k];
        label[n++] = (uint8_t)(MAX_RANK + k);
    }
    return n;
}

static int pattern_rank(const Call *c, const SigFormal *f)
{
    bool dots = f->naxis && f->axis[0].dots;
    return f->naxis - dots + (dots ? c->bound.ndots : 0);
}

static bool take_args(Call *c, OpSpec *spec)
{
    for (int i = 0; i < op_narg(c->kind); i++) {
        const SigFormal *f = op_arg(c->kind, i);
        const Arg *arg = &c->arg[f - c->sig->formal];
        DimId axis[MAX_RANK];
        ValueId v = NO_VALUE;
        if (f->kind == SIG_EXTRA)
            continue;
        if (f->kind == SIG_OWNED && call_owns(c, f)) {
            int rank = axes_of_pattern(c, f, axis, spec->label[spec->narg]);
            v = call_weight(c, f, axis, rank);
            if (!has_value(v))
                return false;
        } else if (f->kind != SIG_OWNED && is_tensor(arg)) {
            axes_of_pattern(c, f, axis, spec->label[spec->narg]);
            v = arg->term.value;
        }
        op_take(spec, v);
    }
    return true;
}

static DType result_dtype(Call *c, const OpSpec *spec, int result)
{
    const Precision *p = &c->e->g->precision;
    DType first = spec->narg && has_value(spec->arg[0]) ? value_of(c->e->g, spec->arg[0])->dtype : DTYPES;
    if (result >= c->sig->nresult && c->kind != OP_router)
        return c->kind == OP_dispatch ? DT_i32 : p->reduce;
    switch (c->kind) {
    case OP_iota:          return DT_i32;
    case OP_zeros:
    case OP_cross_entropy:
    case OP_load_balance:  return p->reduce;
    case OP_cast:          return (DType)call_arg(c, "to")->term.i;
    case OP_embed:         return value_of(c->e->g, spec->arg[1])->dtype;
    default:               return first == DTYPES || dtype_is_float(first) ? float_dtype(c->e, spec->arg, spec->narg) : first;
    }
}

static bool give_results(Call *c, OpSpec *spec)
{
    for (int r = 0; r < c->sig->nresult + c->sig->nsaved; r++) {
        const SigFormal *f = &c->sig->result[r];
        DimId axis[MAX_RANK];
        int rank = pattern_rank(c, f);
        if (rank > MAX_RANK) {
            fail(c->e, c->node->at, "the result of %s would have %d axes, more than %d", op_info[c->kind].name, rank, MAX_RANK);
            return false;
        }
        uint8_t *label = spec->out[spec->nout].label, copy[MAX_RANK];
        axes_of_pattern(c, f, axis, copy);
        for (int i = 0; i < rank; i++)
            for (int k = 0; k < i; k++)
                if (same_dim(axis[i], axis[k])) {
                    fail(c->e, c->node->at, "the result of %s would have axis '%s' twice", op_info[c->kind].name, dim_of(c->e->g, axis[i])->name);
                    return false;
                }
        op_give(spec, axis, rank, result_dtype(c, spec, r));
        memcpy(label, copy, (size_t)rank);
        if (r >= c->sig->nresult)
            spec->out[r].suffix = f->name;
    }
    return true;
}

Term call_emit(Call *c)
{
    OpSpec spec = call_spec(c);
    spec.by_dim = false;
    if (!take_args(c, &spec) || !give_results(c, &spec))
        return POISON;
    ValueId v = emit(c->e, &spec);
    if (c->kind == OP_embed && has_value(v))         /* the table may be kept in another dtype */
        v = emit_cast(c->e, v, c->e->g->precision.compute, c->node->at);
    Term t = term_tensor(v);
    if (c->kind == OP_router && t.kind == TERM_TENSOR)
        t.kind = TERM_ROUTE;
    return t;
}
