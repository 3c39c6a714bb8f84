/* graph_complete(): arguments of ops that the language does not know.
 *
 * Counts: a loss is the sum over rows divided by the number of labels in the *whole*
 * batch, so every micro-batch needs the count before its first row; hence ops of
 * PHASE_BEGIN.  Labels that are cut out of an input (a slice, a selection) are
 * made again in that phase. */
#include <assert.h>
#include <string.h>

#include "ir/graph.h"

typedef struct Counter {
    Graph   *g;
    uint32_t nforward;                /* ops before any was added */
    ValueId *again;                   /* by value: its copy in PHASE_BEGIN, or NO_VALUE */
    ValueId *labels, *count;          /* counts made so far */
    Attr    *ignore;
    uint32_t ncount, nlabels, nignore;
} Counter;

static ValueId in_begin(Counter *c, ValueId v);

static OpSpec copy_spec(Counter *c, const Op *op)
{
    Graph *g = c->g;
    OpSpec s = op_spec(op->kind, PHASE_BEGIN, arena_printf(g->arena, "begin:%s", op->path), op->at);
    s.key = op->key;
    s.by_dim = false;
    s.narg = op->narg;
    s.nout = op->nout;
    memcpy(s.attr, op->attr, sizeof s.attr);
    for (int i = 0; i < op->narg; i++) {
        s.arg[i] = has_value(op->arg[i]) ? in_begin(c, op->arg[i]) : NO_VALUE;
        memcpy(s.label[i], op->arg_factor[i], sizeof s.label[i]);
    }
    for (int o = 0; o < op->nout; o++) {
        const Value *v = value_of(g, op->out[o]);
        OutSpec *out = &s.out[o];
        *out = (OutSpec){.suffix = o ? arena_printf(g->arena, "%d", o) : NULL, .dtype = v->dtype, .rank = v->rank};
        memcpy(out->axis, v->axis, sizeof out->axis);
        memcpy(out->label, op->out_factor[o], sizeof out->label);
    }
    return s;
}

/* `v` as PHASE_BEGIN sees it: inputs as they are, made values made once more. */
static ValueId in_begin(Counter *c, ValueId v)
{
    OpId maker = value_of(c->g, v)->maker;
    if (!has_op(maker))
        return v;
    if (has_value(c->again[v.i]))
        return c->again[v.i];
    const Op op = *op_of(c->g, maker);
    OpSpec s = copy_spec(c, &op);
    OpId copy = graph_add_op(c->g, &s);
    for (int o = 0; o < op.nout; o++)
        c->again[op.out[o].i] = op_of(c->g, copy)->out[o];
    return c->again[v.i];
}

static ValueId count_of(Counter *c, ValueId labels, Attr ignore, Span at)
{
    for (uint32_t i = 0; i < c->ncount; i++)
        if (c->labels[i].i == labels.i && c->ignore[i].kind == ignore.kind && c->ignore[i].i == ignore.i)
            return c->count[i];
    Graph *g = c->g;
    uint32_t nth = 0;
    for (uint32_t i = 0; i < c->ncount; i++)
        nth += c->labels[i].i == labels.i;
    const char *of = value_of(g, labels)->path;
    ValueId source = in_begin(c, labels);
    const char *path = nth ? arena_printf(g->arena, "count:%s[%u]", of, nth) : arena_printf(g->arena, "count:%s", of);
    OpSpec s = op_spec(OP_count_labels, PHASE_BEGIN, path, at);
    s.narg = 1;
    s.arg[0] = source;
    s.attr[op_attr_index(OP_count_labels, "ignore")] = ignore;
    s.nout = 1;
    s.out[0].dtype = DT_f64;
    ValueId count = op_of(g, graph_add_op(g, &s))->out[0];
    PUSH(g->arena, c->labels, c->nlabels, labels);
    PUSH(g->arena, c->ignore, c->nignore, ignore);
    PUSH(g->arena, c->count, c->ncount, count);
    return count;
}

/* Move the ops after the first `n` to the front, where makers belong. */
static void rotate_to_front(Graph *g, uint32_t n)
{
    uint32_t added = g->nop - n;
    if (added == 0)
        return;
    Op *tail = NEWN(g->arena, Op, added);
    memcpy(tail, g->op + n, added * sizeof *tail);
    memmove(g->op + added, g->op, n * sizeof *g->op);
    memcpy(g->op, tail, added * sizeof *tail);
    for (uint32_t i = 0; i < g->nvalue; i++)
        if (has_op(g->value[i].maker))
            g->value[i].maker.i += g->value[i].maker.i < n ? added : 0 - n;
    for (uint32_t i = 0; i < g->nop; i++)
        if (has_op(g->op[i].forward))
            g->op[i].forward.i += g->op[i].forward.i < n ? added : 0 - n;
}

/* The extra argument of a kind is its last one. */
static bool lacks_extra(const Op *op, OpKind kind)
{
    return op->kind == kind && (op->narg < op_narg(kind) || !has_value(op->arg[op->narg - 1]));
}

static void set_extra(Op *op, ValueId v)
{
    op->narg = (uint8_t)op_narg(op->kind);
    op->arg[op->narg - 1] = v;
}

static void count_labels(Graph *g)
{
    Counter c = {.g = g, .nforward = g->nop};
    c.again = NEWN(g->arena, ValueId, g->nvalue ? g->nvalue : 1);
    for (uint32_t i = 0; i < g->nvalue; i++)
        c.again[i] = NO_VALUE;
    for (uint32_t i = 0; i < c.nforward; i++)
        if (lacks_extra(&g->op[i], OP_cross_entropy)) {
            ValueId count = count_of(&c, g->op[i].arg[1], *op_attr(&g->op[i], "ignore"), g->op[i].at);
            set_extra(&g->op[i], count);
        }
    rotate_to_front(g, c.nforward);
}

/* ---- sparse layers ---- */

/* The dispatch that made the slots of `y`: the slot axis is its own. */
static ValueId token_of(const Graph *g, ValueId y)
{
    const Value *v = value_of(g, y);
    DimId slot = v->axis[v->rank - 2];
    for (uint32_t i = 0; i < g->nop; i++)
        if (g->op[i].kind == OP_dispatch && value_has_dim(g, g->op[i].out[0], slot))
            return g->op[i].out[1];
    return NO_VALUE;
}

static ValueId prob_of(const Graph *g, ValueId route)
{
    OpId maker = value_of(g, route)->maker;
    return has_op(maker) && op_of(g, maker)->kind == OP_router ? op_of(g, maker)->out[1] : NO_VALUE;
}

/* An op changes its arguments here, so the factors of the new one are looked up by
 * dim: it has no axis that the op does not have already. */
static void link_extra(Graph *g, Op *op, ValueId v)
{
    assert(has_value(v));
    int i = op_narg(op->kind) - 1;
    set_extra(op, v);
    const Value *val = value_of(g, v);
    for (int x = 0; x < val->rank; x++)
        for (uint8_t f = 0; f < op->nfactor; f++)
            if (same_dim(op->factor[f].dim, val->axis[x]))
                op->arg_factor[i][x] = f;
}

void graph_complete(Graph *g)
{
    count_labels(g);
    for (uint32_t i = 0; i < g->nop; i++) {
        Op *op = &g->op[i];
        if (lacks_extra(op, OP_combine))
            link_extra(g, op, token_of(g, op->arg[0]));
        if (lacks_extra(op, OP_load_balance))
            link_extra(g, op, prob_of(g, op->arg[0]));
    }
}
