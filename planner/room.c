/* Room: see room.h. */
#include "planner/room.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- a round ---- */

/* Values that lie in memory of their own where a backward op reads them.  Others may be their
 * argument under another name, or be made again by what fusion makes of the ops around them. */
static bool has_memory(const Op *op)
{
    return !(op_info[op->kind].flags & OPF_VIEW) && op->kind != OP_cast && op->kind != OP_dropout && op->kind != OP_silu;
}

static bool *read_by_backward(Arena *a, const Graph *g)
{
    bool *read = NEWN(a, bool, g->nvalue + 1);
    for (uint32_t o = 0; o < g->nop; o++)
        for (int k = 0; g->op[o].phase == PHASE_BACKWARD && !has_value(g->op[o].sum_of) && k < g->op[o].narg; k++)
            if (has_value(g->op[o].arg[k]))
                read[g->op[o].arg[k].i] = true;
    return read;
}

static bool has_samples(const Graph *g, ValueId v)
{
    const Value *value = value_of(g, v);
    for (int x = 0; x < value->rank; x++)
        if (same_dim(value->axis[x], g->batch))
            return true;
    return false;
}

static double bytes_of(const Graph *g, ValueId v)
{
    return (double)value_elements(g, v) * (double)dtype_bytes(value_of(g, v)->dtype);
}

/* What a round hands on counts where it enters the next one. */
static void read_kept(const UnitTable *t, const Segment *p, RoundNeeds *r)
{
    const Graph *g = t->q->graph;
    Arena *scratch = arena_new("room");
    const bool *read = read_by_backward(scratch, g);
    bool again = false;                                  /* the entry is read where the round is recomputed */
    for (uint32_t i = 0; i < p->nop; i++) {
        const Op *op = op_of(g, p->op[i]);
        for (int k = 0; k < op->narg; k++)
            again |= t->again[p->op[i].i] && has_value(op->arg[k]) && chain_entry(p, op->arg[k]) < p->ncarried;
        for (int k = 0; k < op->nout && has_memory(op); k++)
            if (has_value(op->out[k]) && chain_handed_on(p, op->out[k]) == p->ncarried && read[op->out[k].i] && has_samples(g, op->out[k]))
                r->kept += bytes_of(g, op->out[k]);
    }
    for (uint32_t k = 0; k < p->ncarried; k++)
        if (read[p->in[k].i] && again && has_samples(g, p->in[k]))
            r->entry += bytes_of(g, p->in[k]);
    r->kept += r->entry;
    arena_free(scratch);
}

RoundNeeds room_read(const UnitTable *t)
{
    RoundNeeds r = {.weights = DBL_MAX};
    uint32_t part = 0;
    for (uint32_t i = 0; i < t->pieces.n; i++) {
        const Piece *p = &t->pieces.piece[i];
        if (!p->round)
            continue;
        if (r.rounds > 0 && p->part != part)
            return (RoundNeeds){0};
        r.piece = r.rounds == 0 ? i : r.piece;
        part = p->part;
        r.rounds++;
        r.weights = t->weights[i] < r.weights ? t->weights[i] : r.weights;
    }
    const Segment *p = r.rounds > 0 ? &t->chain.part[part] : NULL;
    if (!p || p->rounds < 2 || p->rounds != r.rounds || !has_value(t->q->graph->loss) || t->d->server_rule)
        return (RoundNeeds){0};
    read_kept(t, p, &r);
    return r;
}

/* ---- a step ---- */

static double in_flight(const RoomAsked *k, uint32_t stage)
{
    double after = k->stages - stage;
    return k->stages == 1 ? 1 : k->gpipe || k->micro < after ? k->micro : after;
}

/* Rounds that a stage has in w ns of a micro-batch, at most, and how many fewer in one ns less, at least: with n
 * rounds of which r are recomputed, n round + r again <= w and n (states + F kept) - r F (kept - entry) <= room.
 * Any sum of the two, the second times `price` ns a byte, bounds n for all r. */
static double most_rounds(const RoomAsked *k, uint32_t stage, double w, double *slope)
{
    double flight = in_flight(k, stage), freed = k->may_recompute ? flight * (k->kept - k->entry) : 0;
    double all = k->states + flight * k->kept, n = w / k->round, fits = k->room / (all - freed);
    *slope = 1 / k->round;
    if (freed > 0) {
        double price = k->again / freed, bound = (w + price * k->room) / (k->round + price * all);
        if (bound < n) {
            n = bound;
            *slope = 1 / (k->round + price * all);
        }
    }
    if (fits < n) {
        n = fits;
        *slope = 0;
    }
    return n;
}

/* Whether a step of so many ns may have room for all rounds: each stage by itself, rounds being whole; and all
 * together, who have less time than each might. */
static bool has_room(const RoomAsked *k, double ns)
{
    double w = ns / k->micro, lack = k->stages * w - (ns * k->share - k->others), whole = 0, sum = 0, least = DBL_MAX;
    for (uint32_t s = 0; s < k->stages; s++) {
        double slope, n = most_rounds(k, s, w, &slope);
        whole += floor(n + 1e-6);
        sum += n;
        least = slope < least ? slope : least;
    }
    return whole >= k->rounds && sum - (lack > 0 ? lack * least : 0) >= k->rounds - 1e-6;
}

enum { HALVINGS = 12 };

double room_bound(const RoomAsked *k, double least)
{
    double low = least, high = 64 * least;
    if (k->rounds == 0 || k->round <= 0 || has_room(k, low))
        return least;
    if (!has_room(k, high))
        return DBL_MAX;
    for (int i = 0; i < HALVINGS; i++) {
        double middle = sqrt(low * high);
        *(has_room(k, middle) ? &high : &low) = middle;
    }
    return low;
}
