/* graph_check(): the invariants of a Graph that passes rely on. */
#include "ir/check.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void broken(Checker *c, const char *fmt, ...)
{
    va_list ap;
    fprintf(c->err, "%s: ", c->what);
    va_start(ap, fmt);
    vfprintf(c->err, fmt, ap);
    va_end(ap);
    fputc('\n', c->err);
    c->broken++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *duplicate_name(const char *const *name, uint32_t n)
{
    Arena *scratch = arena_new("scratch");
    const char **sorted = NEWN(scratch, const char *, n ? n : 1);
    if (n)
        memcpy(sorted, name, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_name);
    const char *found = NULL;
    for (uint32_t i = 1; i < n && !found; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            found = sorted[i];
    arena_free(scratch);
    return found;
}

/* ---- one op ---- */

typedef struct OpChecker { Checker c; const Graph *g; const Op *op; OpId id; } OpChecker;

static bool valid(const Graph *g, ValueId v)
{
    return v.i < g->nvalue;
}

static int64_t extent(const Graph *g, DimId d)
{
    return dim_of(g, d)->extent;
}

/* Axes carry factors of their extent, and nothing follows the last axis. */
static void check_labels(OpChecker *k, const char *what, int n, ValueId v, const uint8_t *factor)
{
    const Value *val = value_of(k->g, v);
    for (int x = 0; x < MAX_RANK; x++) {
        if (x >= val->rank) {
            if (factor[x] != NO_FACTOR)
                broken(&k->c, "%s: %s %d has a factor past its last axis", k->op->path, what, n);
            continue;
        }
        if (factor[x] >= k->op->nfactor)
            broken(&k->c, "%s: axis %d of %s %d has no factor", k->op->path, x, what, n);
        else if (extent(k->g, k->op->factor[factor[x]].dim) != extent(k->g, val->axis[x]))
            broken(&k->c, "%s: axis '%s' (%lld) of %s %d carries factor %d (%lld)", k->op->path,
                   dim_of(k->g, val->axis[x])->name, (long long)extent(k->g, val->axis[x]), what, n, factor[x],
                   (long long)extent(k->g, k->op->factor[factor[x]].dim));
    }
}

/* The named axes of the pattern must be there; a linear map's letters and those of
 * the ops on shapes may stand for several axes or none. */
static void check_rank(OpChecker *k, const char *what, const SigFormal *f, ValueId v)
{
    static const OpKind loose[] = {OP_linear, OP_merge, OP_concat, OP_select, OP_slice, OP_place};
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++)
        if (k->op->kind == loose[i])
            return;
    int named = 0, rank = value_of(k->g, v)->rank;
    bool dots = false;
    for (int i = 0; i < f->naxis; i++) {
        dots |= f->axis[i].dots;
        named += !f->axis[i].dots;
    }
    if (rank < named || (!dots && rank != named))
        broken(&k->c, "%s: %s '%s' has %d axes, expected %s%d", k->op->path, what, f->name ? f->name : "0", rank,
               dots ? "at least " : "", named);
}

static void check_args(OpChecker *k)
{
    const Op *op = k->op;
    int n = op_narg(op->kind);
    if (op->narg > n) {
        broken(&k->c, "%s: %s takes %d arguments, found %d", op->path, op_info[op->kind].name, n, op->narg);
        return;
    }
    for (int i = 0; i < n; i++) {
        const SigFormal *f = op_arg(op->kind, i);
        bool there = i < op->narg && has_value(op->arg[i]);
        if (!there) {
            if (!f->optional && f->kind != SIG_SCALAR)
                broken(&k->c, "%s: argument '%s' is absent", op->path, f->name);
            continue;
        }
        if (!valid(k->g, op->arg[i])) {
            broken(&k->c, "%s: argument '%s' is no value", op->path, f->name);
            continue;
        }
        OpId maker = value_of(k->g, op->arg[i])->maker;
        if (has_op(maker) && maker.i >= k->id.i)
            broken(&k->c, "%s: argument '%s' is made later, by op %u", op->path, f->name, maker.i);
        check_labels(k, "argument", i, op->arg[i], op->arg_factor[i]);
        check_rank(k, "argument", f, op->arg[i]);
    }
}

static void check_results(OpChecker *k)
{
    const Op *op = k->op;
    const OpSig *sig = op_sig(op->kind);
    if (op->nout < 1 || op->nout > sig->nresult + sig->nsaved) {
        broken(&k->c, "%s: %s has %d results, found %d", op->path, op_info[op->kind].name, sig->nresult + sig->nsaved,
               op->nout);
        return;
    }
    for (int o = 0; o < op->nout; o++) {
        if (!valid(k->g, op->out[o])) {
            broken(&k->c, "%s: result %d is no value", op->path, o);
            continue;
        }
        if (value_of(k->g, op->out[o])->maker.i != k->id.i)
            broken(&k->c, "%s: result %d says that op %u made it", op->path, o, value_of(k->g, op->out[o])->maker.i);
        check_labels(k, "result", o, op->out[o], op->out_factor[o]);
        check_rank(k, "result", &sig->result[o], op->out[o]);
    }
}

/* The axis of `v` whose factor the other side lacks, as an extent; 1 if none. */
static int64_t own_extent(const OpChecker *k, ValueId v, const uint8_t *mine, const uint8_t *other)
{
    const Value *val = value_of(k->g, v);
    for (int x = 0; x < val->rank; x++)
        if (!memchr(other, mine[x], MAX_RANK))
            return extent(k->g, val->axis[x]);
    return 1;
}

/* A part [first, first + n) of an axis must lie in it. */
static void check_part(OpChecker *k, const char *attr, int64_t part, int64_t whole)
{
    const Attr *a = op_attr(k->op, attr);
    if (a->kind != ATTR_INT || a->i < 0 || a->i > whole - part)
        broken(&k->c, "%s: %s = %lld and %lld elements do not lie in an axis of %lld", k->op->path, attr,
               (long long)a->i, (long long)part, (long long)whole);
}

/* What the ops that only move elements promise about extents. */
static void check_moves(OpChecker *k)
{
    const Op *op = k->op;
    if (op->narg < 1 || !has_value(op->arg[0]))
        return;
    const uint8_t *in = op->arg_factor[0], *out = op->out_factor[0];
    int64_t from = own_extent(k, op->arg[0], in, out), to = own_extent(k, op->out[0], out, in);
    if ((op_info[op->kind].flags & OPF_VIEW) && value_elements(k->g, op->arg[0]) != value_elements(k->g, op->out[0]))
        broken(&k->c, "%s: a view must keep the number of elements", op->path);
    if (op->kind == OP_select)
        check_part(k, "at", 1, from);
    if (op->kind == OP_slice)
        check_part(k, "first", to, from);
    if (op->kind == OP_place)
        check_part(k, "first", from, to);
    if (op->kind == OP_concat) {
        int64_t b = own_extent(k, op->arg[1], op->arg_factor[1], out);
        for (int x = 0; x < value_of(k->g, op->out[0])->rank; x++)
            if (op->factor[out[x]].role == 'm' && from + b != extent(k->g, value_of(k->g, op->out[0])->axis[x]))
                broken(&k->c, "%s: %lld and %lld elements do not fill an axis of %lld", op->path,
                       (long long)from, (long long)b, (long long)extent(k->g, value_of(k->g, op->out[0])->axis[x]));
    }
}

int graph_check_op(const Graph *g, OpId id, FILE *err)
{
    OpChecker k = {.c = {err, "graph", 0}, .g = g, .op = op_of(g, id), .id = id};
    const Op *op = k.op;
    if (op->kind >= OP_KINDS || op_info[op->kind].use == OP_SYNTAX) {
        broken(&k.c, "%s: '%s' is no op of a graph", op->path, op->kind < OP_KINDS ? op_info[op->kind].name : "?");
        return k.c.broken;
    }
    if (op->nfactor > MAX_FACTORS) {
        broken(&k.c, "%s: %d factors", op->path, op->nfactor);
        return k.c.broken;
    }
    for (int f = 0; f < op->nfactor; f++)
        if (op->factor[f].dim.i >= g->ndim) {
            broken(&k.c, "%s: factor %d has no dim", op->path, f);
            return k.c.broken;
        }
    check_args(&k);
    check_results(&k);
    if (has_op(op->forward) && (op->forward.i >= id.i || op_of(g, op->forward)->phase != PHASE_FORWARD))
        broken(&k.c, "%s: op %u is no forward op before it", op->path, op->forward.i);
    if (!k.c.broken)
        check_moves(&k);
    return k.c.broken;
}

/* ---- the whole ---- */

static void check_values(Checker *c, const Graph *g)
{
    for (uint32_t i = 0; i < g->ndim; i++)
        if (g->dim[i].extent <= 0)
            broken(c, "dim %u '%s' has extent %lld", i, g->dim[i].name, (long long)g->dim[i].extent);
    for (uint32_t i = 0; i < g->nvalue; i++) {
        const Value *v = &g->value[i];
        bool given = v->role == ROLE_INPUT || v->role == ROLE_WEIGHT;
        for (int x = 0; x < v->rank; x++)
            if (v->axis[x].i >= g->ndim)
                broken(c, "axis %d of value '%s' is no dim", x, v->path);
        if (given == has_op(v->maker))
            broken(c, "value '%s' is %s", v->path, given ? "given and made" : "neither given nor made");
        if (has_op(v->maker) && v->maker.i >= g->nop)
            broken(c, "value '%s' is made by op %u of %u", v->path, v->maker.i, g->nop);
    }
}

static bool same_shape(const Graph *g, ValueId a, ValueId b)
{
    const Value *x = value_of(g, a), *y = value_of(g, b);
    if (x->rank != y->rank)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (!same_dim(x->axis[i], y->axis[i]))
            return false;
    return true;
}

static void check_weights(Checker *c, const Graph *g)
{
    for (uint32_t i = 0; i < g->nweight; i++) {
        const Weight *w = &g->weight[i];
        if (!valid(g, w->value) || value_of(g, w->value)->role != ROLE_WEIGHT) {
            broken(c, "weight %u is no weight value", i);
            continue;
        }
        const char *path = value_of(g, w->value)->path;
        if (!has_value(w->gradient))
            continue;
        if (!valid(g, w->gradient) || value_of(g, w->gradient)->role != ROLE_WEIGHT_GRADIENT)
            broken(c, "the gradient of weight '%s' is no weight gradient", path);
        else if (w->frozen || !same_shape(g, w->value, w->gradient))
            broken(c, "weight '%s' is %s", path,
                   w->frozen ? "frozen and has a gradient" : "of another shape than its gradient");
    }
}

static void check_roots(Checker *c, const Graph *g)
{
    if (has_value(g->loss) && (!valid(g, g->loss) || value_of(g, g->loss)->rank != 0))
        broken(c, "the loss is no single number");
    if (g->batch.i != NO_DIM.i && g->batch.i >= g->ndim)
        broken(c, "the batch is no dim");
    for (uint32_t i = 0; i < g->noutput; i++)
        if (!valid(g, g->output[i].value))
            broken(c, "output %u is no value", i);
}

/* Phases follow each other, and a path names one op. */
static void check_order(Checker *c, const Graph *g)
{
    Arena *scratch = arena_new("scratch");
    const char **path = NEWN(scratch, const char *, g->nop ? g->nop : 1);
    for (uint32_t i = 0; i < g->nop; i++) {
        path[i] = g->op[i].path;
        if (i && g->op[i].phase < g->op[i - 1].phase)
            broken(c, "%s: an op of an earlier phase after one of a later", g->op[i].path);
    }
    const char *twice = duplicate_name(path, g->nop);
    if (twice)
        broken(c, "%s: two ops have this path", twice);
    arena_free(scratch);
}

int graph_check(const Graph *g, FILE *err)
{
    Checker c = {err, "graph", 0};
    check_values(&c, g);
    if (c.broken)
        return c.broken;
    for (uint32_t i = 0; i < g->nop; i++)
        c.broken += graph_check_op(g, (OpId){i}, err);
    check_weights(&c, g);
    check_roots(&c, g);
    check_order(&c, g);
    return c.broken;
}
