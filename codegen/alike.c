/* Stages that are alike: which have, but for names, the same program.
 *
 * Two stages are compared in step: their ops in order, and what the passes look at
 * besides.  A value of one stands for a value of the other from where the two first
 * meet, and then everywhere.  What is equal is compared itself, never by a name or a
 * hash.  A stage with a copy of a weight that others have is like no other, as it has a
 * number among them; and what crosses must come from, or go to, equally far away. */
#include "codegen/pass.h"

#include <string.h>

/* Of a rank of each stage, which say the same of all ranks. */
typedef struct Pairing {
    const Lowering *a, *b;
    const Graph    *g;
    const Layout   *l;
    uint32_t *to, *from;              /* per value of a's stage, of b's: its partner + 1; 0: none yet */
    uint32_t *op_to;                  /* per op of a's stage, the same */
} Pairing;

/* ---- values ---- */

static bool same_axis(const Layout *l, DimId x, DimId y)
{
    return dim_of(l->g, x)->extent == dim_of(l->g, y)->extent && l->pad[x.i] == l->pad[y.i];
}

static bool same_shape(const Layout *l, const Value *x, const Value *y)
{
    if (x->rank != y->rank || x->dtype != y->dtype || x->role != y->role)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (!same_axis(l, x->axis[i], y->axis[i]))
            return false;
    return true;
}

static bool is_used(const Lowering *lw, ValueId v)
{
    return lw->layout.used[v.i] >> lw->stage & 1;
}

static bool is_made(const Lowering *lw, ValueId v)
{
    return layout_has(&lw->layout, v, lw->stage);
}

static bool equal_values(const Pairing *k, ValueId x, ValueId y)
{
    const Layout *l = k->l;
    const MicroValue *mx = &k->a->micro.value[x.i], *my = &k->a->micro.value[y.i];
    return same_shape(l, value_of(k->g, x), value_of(k->g, y)) && placement_equal(&l->grid, l->value[x.i], l->value[y.i]) && l->agree[x.i] == l->agree[y.i] &&
           mx->kind == my->kind && mx->axis == my->axis && is_made(k->a, x) == is_made(k->b, y) && is_used(k->a, x) == is_used(k->b, y);
}

/* Whether x stands for y, from now on if neither has a partner yet. */
static bool pair(Pairing *k, ValueId x, ValueId y)
{
    if (!has_value(x) || !has_value(y))
        return has_value(x) == has_value(y);
    if (k->to[x.i] || k->from[y.i])
        return k->to[x.i] == y.i + 1 && k->from[y.i] == x.i + 1;
    k->to[x.i] = y.i + 1;
    k->from[y.i] = x.i + 1;
    return equal_values(k, x, y);
}

static bool pair_all(Pairing *k, int n, const ValueId *x, const ValueId *y)
{
    for (int i = 0; i < n; i++)
        if (!pair(k, x[i], y[i]))
            return false;
    return true;
}

/* ---- ops ---- */

static bool same_factors(const Layout *l, const Op *x, const Op *y)
{
    for (int f = 0; f < x->nfactor; f++)
        if (x->factor[f].role != y->factor[f].role || !same_axis(l, x->factor[f].dim, y->factor[f].dim))
            return false;
    return memcmp(x->arg_factor, y->arg_factor, sizeof x->arg_factor) == 0 && memcmp(x->out_factor, y->out_factor, sizeof x->out_factor) == 0;
}

static bool is_single(StageSet s)
{
    return (s & (s - 1)) == 0;
}

/* Cut alike, along the grid and by micro-batches. */
static bool same_cuts(const Pairing *k, uint32_t x, uint32_t y)
{
    const Layout *l = k->l;
    const Micro *m = &k->a->micro;
    return memcmp(l->cut[x], l->cut[y], sizeof *l->cut[x] * l->grid.n) == 0 && is_single(l->stages[x]) == is_single(l->stages[y]) &&
           m->cut[x] == m->cut[y] && m->once[x] == m->once[y];
}

/* Blocks are runs of ops: those of the two stages begin at the same places. */
static bool same_recomputation(const Pairing *k, uint32_t i)
{
    const Recompute *rc = &k->a->recompute;
    uint32_t x = k->a->op[i], y = k->b->op[i];
    bool begins_x = i == 0 || rc->block[x] != rc->block[k->a->op[i - 1]], begins_y = i == 0 || rc->block[y] != rc->block[k->b->op[i - 1]];
    return rc->again[x] == rc->again[y] && !rc->block[x] == !rc->block[y] && begins_x == begins_y;
}

static bool same_forward(const Pairing *k, const Op *x, const Op *y)
{
    return has_op(x->forward) ? has_op(y->forward) && k->op_to[x->forward.i] == y->forward.i + 1 : !has_op(y->forward);
}

static bool same_op(Pairing *k, uint32_t i)
{
    uint32_t ix = k->a->op[i], iy = k->b->op[i];
    const Op *x = &k->g->op[ix], *y = &k->g->op[iy];
    k->op_to[ix] = iy + 1;
    if (x->kind != y->kind || x->phase != y->phase || x->narg != y->narg || x->nout != y->nout || x->nfactor != y->nfactor)
        return false;
    if (x->phase == PHASE_BEGIN && x != y)           /* made once a step, in the order of the model */
        return false;
    return same_forward(k, x, y) && has_value(x->sum_of) == has_value(y->sum_of) && op_same_attrs(x, y) && same_factors(k->l, x, y) &&
           same_cuts(k, ix, iy) && same_recomputation(k, i) && pair_all(k, x->narg, x->arg, y->arg) && pair_all(k, x->nout, x->out, y->out);
}

static bool same_ops(Pairing *k)
{
    for (uint32_t i = 0; i < k->a->nop; i++)
        if (!same_op(k, i))
            return false;
    return true;
}

/* ---- what lies on a stage, and what crosses ---- */

/* The next weight from `i` on that is on a stage. */
static uint32_t next_weight(const Lowering *lw, uint32_t i)
{
    while (i < lw->g->nweight && !weight_is_here(lw, lw->g->weight[i].value))
        i++;
    return i;
}

static bool same_weight(Pairing *k, uint32_t i, uint32_t j)
{
    const Layout *l = k->l;
    const Weight *x = &k->g->weight[i], *y = &k->g->weight[j];
    return is_single(l->used[x->value.i]) && is_single(l->used[y->value.i]) && x->frozen == y->frozen && x->decays == y->decays &&
           l->reduce[i] == l->reduce[j] && l->shard[i] == l->shard[j] && pair(k, x->value, y->value) && pair(k, x->gradient, y->gradient);
}

static bool same_weights(Pairing *k)
{
    uint32_t n = k->g->nweight, i = next_weight(k->a, 0), j = next_weight(k->b, 0);
    for (; i < n && j < n; i = next_weight(k->a, i + 1), j = next_weight(k->b, j + 1))
        if (!same_weight(k, i, j))
            return false;
    return i == n && j == n;
}

static bool same_end(Pairing *k, ValueId v)
{
    bool made = is_made(k->a, v);
    return made == is_made(k->b, v) && (!made || pair(k, v, v));
}

/* What both stages have of the model's inputs, outputs and losses is the same, and what one lacks
 * the other lacks. */
static bool same_ends(Pairing *k)
{
    const Graph *g = k->g;
    for (uint32_t i = 0; i < g->nvalue; i++) {
        ValueId v = {i};
        if (g->value[i].role == ROLE_INPUT && (is_used(k->a, v) != is_used(k->b, v) || !pair(k, v, v)))
            return false;
    }
    for (uint32_t i = 0; i < g->noutput; i++)
        if (!same_end(k, g->output[i].value))
            return false;
    for (uint32_t i = 0; i < k->a->losses.n; i++)
        if (!same_end(k, k->a->losses.of[i].value))
            return false;
    return !has_value(g->loss) || is_made(k->a, g->loss) == is_made(k->b, g->loss);
}

static uint32_t next_crossing(const Lowering *lw, uint32_t i)
{
    const Layout *l = &lw->layout;
    while (i < l->ncrossing && l->crossing[i].from != lw->stage && l->crossing[i].to != lw->stage)
        i++;
    return i;
}

static bool same_crossing(Pairing *k, const Crossing *x, const Crossing *y)
{
    uint32_t away = k->b->stage - k->a->stage;
    OpId mx = value_of(k->g, x->value)->maker, my = value_of(k->g, y->value)->maker;
    return y->from - x->from == away && y->to - x->to == away && op_of(k->g, mx)->phase == op_of(k->g, my)->phase && pair(k, x->value, y->value);
}

static bool same_crossings(Pairing *k)
{
    const Layout *l = k->l;
    uint32_t n = l->ncrossing, i = next_crossing(k->a, 0), j = next_crossing(k->b, 0);
    for (; i < n && j < n; i = next_crossing(k->a, i + 1), j = next_crossing(k->b, j + 1))
        if (!same_crossing(k, &l->crossing[i], &l->crossing[j]))
            return false;
    return i == n && j == n;
}

/* ---- ranks ---- */

static bool same_stages(const Lowering *a, const Lowering *b)
{
    const Graph *g = a->g;
    if (a->nop != b->nop)
        return false;
    Arena *scratch = arena_new("scratch");
    Pairing k = {.a = a, .b = b, .g = g, .l = &a->layout, .to = NEWN(scratch, uint32_t, g->nvalue + 1), .from = NEWN(scratch, uint32_t, g->nvalue + 1),
                 .op_to = NEWN(scratch, uint32_t, g->nop + 1)};
    bool same = same_ends(&k) && same_crossings(&k) && same_weights(&k) && same_ops(&k);
    arena_free(scratch);
    return same;
}

bool codegen_alike(const Codegen *cg, uint32_t rank, uint32_t other)
{
    Lowering a = lowering_of(cg, rank), b = lowering_of(cg, other);
    return a.place == b.place && a.device == b.device && same_stages(&a, &b);
}

/* Groups of one's own stage and its neighbours move along with the stage; those of all
 * ranks, and those that this rank is not in, are what they are. */
static void move_groups(Program *p, const Program *other)
{
    uint32_t away = p->rank - other->rank;
    p->group = NEWN(p->arena, RankGroup, p->ngroup + 1);
    for (uint32_t i = 0; i < p->ngroup; i++) {
        const RankGroup *g = &other->group[i];
        p->group[i] = *g;
        bool moves = false;
        for (uint32_t r = 0; r < g->n && g->n < p->nranks; r++)
            moves |= g->rank[r] == other->rank;
        if (!moves)
            continue;
        p->group[i].rank = NEWN(p->arena, uint32_t, g->n);
        for (uint32_t r = 0; r < g->n; r++)
            p->group[i].rank[r] = g->rank[r] + away;
    }
}

/* With other slots: an own map, and the waits that follow from it and the calls.  With as
 * many slots the calls are in the same order, and all that is the other's. */
static void map_anew(Lowering *lw, const Program *other)
{
    Program *p = lw->p;
    p->buffer = NEWN(p->arena, Buffer, p->nbuffer + 1);
    memcpy(p->buffer, other->buffer, sizeof *p->buffer * p->nbuffer);
    memory_map(lw);
    p->wait = NULL;
    p->nwait = 0;
    streams(p, lw->scratch);
}

Program *codegen_like(const Codegen *cg, Arena *a, const Program *other, uint32_t rank)
{
    Lowering lw = lowering_of(cg, rank), from = lowering_of(cg, other->rank);
    Program *p = lw.p = NEW(a, Program);
    *p = *other;
    p->arena = a;
    p->rank = rank;
    move_groups(p, other);
    p->call = NULL;
    p->ncall = 0;
    schedule(&lw);
    if (schedule_slots(&lw) == schedule_slots(&from))
        return p;
    lw.scratch = arena_new("scratch");
    map_anew(&lw, other);
    arena_free(lw.scratch);
    return p;
}
