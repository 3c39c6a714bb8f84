/* One choice at one step: see intra_step.h. */
#include "planner/intra_values.h"

#include <string.h>

/* ---- backward of the op ---- */

static bool is_result(const Op *op, ValueId v)
{
    for (int k = 0; k < op->nout; k++)
        if (op->out[k].i == v.i)
            return true;
    return false;
}

/* What the op made itself, kept for its own backward ops. */
static void read_result(Moving *mv, OpId b, int a, uint32_t *kept)
{
    Solver *s = mv->s;
    ValueId v = op_of(s->g, b)->arg[a];
    Placement need = layout_need(s->l, b, a), made = s->l->value[v.i];
    int64_t link, ns = price_conversion(s->pricer, v, made, need, &link);
    if (mv->extra)
        return;
    spend(mv, NULL, 0, ns, link);
    for (int k = 0; k < mv->op->nout; k++) {
        if (mv->op->out[k].i != v.i || *kept >> k & 1)
            continue;
        *kept |= 1u << k;
        mv->m->cost.saved += price_bytes(s->pricer, v, made);
    }
}

static void read_between(Moving *mv, OpId b, int a)
{
    Solver *s = mv->s;
    ValueId v = op_of(s->g, b)->arg[a];
    int64_t link, ns = price_conversion(s->pricer, v, s->l->value[v.i], layout_need(s->l, b, a), &link);
    if (!mv->extra)
        spend(mv, NULL, 0, ns, link);
}

static void backward_op(Moving *mv, OpId b, Needs *needs, uint32_t *kept)
{
    Solver *s = mv->s;
    const Op *op = op_of(s->g, b);
    layout_cut_backward(s->l, b);
    for (int a = 0; a < op->narg; a++) {
        ValueId v = op->arg[a];
        if (!has_value(v))
            continue;
        OpId maker = value_of(s->g, v)->maker;
        if (is_gradient_of(s, mv->op, v))
            add_need(s, needs, code_of(s, layout_need(s->l, b, a)));
        else if (is_result(mv->op, v))
            read_result(mv, b, a, kept);
        else if ((has_op(maker) && op_of(s->g, maker)->phase == PHASE_FORWARD) || (!has_op(maker) && is_slot(mv, v)))
            read_forward(mv, b, a, true);
        else if (has_op(maker) && op_of(s->g, maker)->phase == PHASE_BACKWARD)
            read_between(mv, b, a);
    }
    for (int k = 0; k < op->nout; k++)
        if (has_value(op->out[k]))
            s->l->value[op->out[k].i] = layout_made(s->l, b, k);
}

/* Extents follow from the cut alone, so prices do not depend on where arguments lie. */
static const int64_t *price_of(Solver *s, const Step *step, uint32_t choice)
{
    int64_t *ns = &s->priced[step - s->step][2 * choice];
    if (ns[0] >= 0)
        return ns;
    ns[0] = price_op(s->pricer, step->op, NULL);
    ns[1] = 0;
    for (uint32_t i = 0; i < s->nbackward[step->op.i]; i++)
        ns[1] += price_op(s->pricer, s->backward[step->op.i][i], NULL);
    return ns;
}

/* ---- guesses ---- */

bool step_passes_on(const Solver *s, const Op *op)
{
    ValueId d = has_value(op->out[0]) ? value_of(s->g, op->out[0])->gradient : NO_VALUE;
    for (int a = 0; a < op->narg && has_value(d); a++)
        if (op->give[a].i == d.i)
            return true;
    return false;
}

static bool has_gradient(const Solver *s, const Op *op)
{
    return op->nout > 0 && has_value(op->out[0]) && has_value(value_of(s->g, op->out[0])->gradient);
}

static void cut_op(Solver *s, const Step *step, uint32_t choice)
{
    uint16_t *cut = s->l->cut[step->op.i];
    memcpy(cut, s->fixed[step->op.i], sizeof *s->l->cut);
    for (uint32_t d = 0; choice > 0 && d < s->l->grid.n; d++)
        cut[d] |= s->out->cut[step->index][choice - 1].cut[d];
}

static bool cuts_all(const Solver *s, OpId o)
{
    for (uint32_t d = 0; d < s->l->grid.n; d++)
        if (!s->l->cut[o.i][d])
            return false;
    return true;
}

GridSet step_fixed(const Solver *s, OpId o)
{
    GridSet set = 0;
    for (uint32_t d = 0; d < s->l->grid.n; d++)
        set |= (GridSet)((s->fixed[o.i][d] != 0) << d);
    return set;
}

static Placement on_axes(GridSet set, int8_t kind)
{
    Placement p = placement_whole();
    for (int d = 0; d < MAX_GRID; d++)
        if (set >> d & 1)
            p.on[d] = kind;
    return p;
}

/* Summands along all axes, but for those that cut the op in any case: there it does not matter. */
static Placement all_partial(const Solver *s, OpId o)
{
    return on_axes((GridSet)~step_fixed(s, o), PLACE_PARTIAL);
}

int64_t step_ways(const Grid *g, const Placement *p, int x)
{
    int64_t ways = 1;
    for (uint32_t d = 0; d < g->n; d++)
        ways *= p->on[d] == x ? g->axis[d].size : 1;
    return ways;
}

/* The n-th placement along a set of axes, beside what there is in *p: whole, summands, split. */
static bool nth_along(const Solver *s, ValueId v, GridSet set, uint32_t n, Placement *p)
{
    const Grid *g = &s->l->grid;
    for (uint32_t d = 0; n == 1 && d < g->n; d++)
        p->on[d] = set >> d & 1 ? PLACE_PARTIAL : p->on[d];
    if (n < 2)
        return n == 0 || set;
    for (int x = 0; x < value_of(s->g, v)->rank; x++) {
        DimId dim = value_of(s->g, v)->axis[x];
        int64_t extent = dim_of(s->g, dim)->extent + s->l->pad[dim.i];
        Placement q = *p;
        if (same_dim(dim, s->g->batch))
            continue;
        for (uint32_t d = 0; d < g->n; d++) {            /* along the leading axes too, as kv heads are */
            if (!(set >> d & 1))
                continue;
            q.on[d] = (int8_t)x;
            if (extent % step_ways(g, &q, x) == 0 && n-- == 2) {
                *p = q;
                return true;
            }
        }
    }
    return false;
}

/* Where an op cuts axes that are not chosen here, the gradient of its result is split as the result is. */
static Placement along_fixed(const Solver *s, ValueId v)
{
    Placement p = placement_whole();
    OpId maker = value_of(s->g, v)->maker;
    for (uint32_t d = 0; d < s->l->grid.n; d++)
        for (int x = 0; x < value_of(s->g, v)->rank; x++)
            if (same_dim(value_of(s->g, v)->axis[x], s->fixed_dim[d]) && (!has_op(maker) || s->fixed[maker.i][d]))
                p.on[d] = (int8_t)x;
    return p;
}

/* The n-th placement along axes that are not chosen here: of what they cut, as it is cut; else whole, and, of what is
 * made, summands; of what is given, split too. */
static bool nth_fixed(const Solver *s, ValueId v, uint32_t n, Placement *p)
{
    OpId maker = value_of(s->g, v)->maker;
    Placement cut = along_fixed(s, v);
    bool splits = !placement_equal(&s->l->grid, cut, placement_whole());
    if (has_op(maker) && splits) {
        *p = cut;
        return n == 0;
    }
    *p = n == 0 ? placement_whole() : has_op(maker) ? on_axes(s->fixed_axes, PLACE_PARTIAL) : cut;
    return n == 0 || (n == 1 && s->fixed_axes && (has_op(maker) || splits));
}

/* The n-th placement a gradient of the value may have. */
static bool nth_placement(const Solver *s, ValueId v, uint32_t n, Placement *p)
{
    GridSet chosen = (GridSet)(((1u << s->l->grid.n) - 1) & ~s->fixed_axes);
    Placement fixed;
    for (uint32_t b = 0; nth_fixed(s, v, b, &fixed); b++) {
        *p = fixed;
        for (uint32_t f = 0; nth_along(s, v, chosen, f, p); f++, *p = fixed)
            if (n-- == 0)
                return true;
    }
    return false;
}

uint32_t step_guesses(Solver *s, const Step *step, uint32_t choice)
{
    const Op *op = op_of(s->g, step->op);
    if (!has_gradient(s, op))
        return 1;
    cut_op(s, step, choice);
    if (!step_passes_on(s, op))
        return cuts_all(s, step->op) ? 1 : 2;
    uint32_t n = 0;
    Placement p;
    while (nth_placement(s, op->out[0], n, &p))
        n++;
    return n;
}

/* Put the guess into the layout; returns what the record expects. */
static uint8_t guess_gradient(Solver *s, const Op *op, OpId o, uint32_t guess)
{
    ValueId d = value_of(s->g, op->out[0])->gradient;
    Placement p = placement_whole();
    if (step_passes_on(s, op))
        (void)nth_placement(s, op->out[0], guess, &p);
    else if (guess == 1)
        p = all_partial(s, o);
    s->l->value[d.i] = p;
    if (step_passes_on(s, op) || guess == 1)
        return code_of(s, p);
    return cuts_all(s, o) ? CODE_NONE : CODE_COMPLETE;
}

/* ---- steps ---- */

/* Results lie the same in all rounds. */
static bool make_results(Moving *mv)
{
    Solver *s = mv->s;
    OpId o = mv->step->op;
    Placement first[MAX_OUTS];
    for (int later = 0; later <= mv->first_rounds; later++) {
        place_arguments(mv, later);
        for (int k = 0; k < mv->op->nout; k++) {
            Placement p = layout_made(s->l, o, k);
            if (later && !placement_equal(&s->l->grid, p, first[k]))
                return false;
            first[k] = p;
        }
    }
    for (int k = 0; k < mv->op->nout; k++)
        if (has_value(mv->op->out[k]))
            s->l->value[mv->op->out[k].i] = first[k];
    return true;
}

static bool reads_entry(const Moving *mv)
{
    for (uint32_t i = 0; i < mv->step->nin; i++)
        if (slot_in(mv, i)->kind == SLOT_BEFORE)
            return true;
    return false;
}

static bool differentiate_round(Moving *mv, uint32_t guess, bool later, bool extra, uint8_t *expect, Needs *needs)
{
    Solver *s = mv->s;
    uint32_t kept = 0;
    mv->later = later;
    mv->extra = extra;
    place_arguments(mv, later);
    *expect = guess_gradient(s, mv->op, mv->step->op, guess);
    for (uint32_t i = 0; i < s->nbackward[mv->step->op.i]; i++)
        backward_op(mv, s->backward[mv->step->op.i][i], needs, &kept);
    return take_gifts(mv);
}

/* Where the first round needs the gradient as later ones do not, that is the part's before. */
static bool needs_of_first(Moving *mv, uint8_t expect, const Needs *later, const Needs *first)
{
    Solver *s = mv->s;
    ValueId d = value_of(s->g, mv->op->out[0])->gradient;
    bool known = expect != CODE_NONE && expect != CODE_COMPLETE;
    for (int sign = -1; sign <= 1; sign += 2) {
        const Needs *have = sign < 0 ? later : first, *other = sign < 0 ? first : later;
        for (uint8_t k = 0; k < have->n; k++) {
            if (memchr(other->code, have->code[k], other->n))
                continue;
            if (!known)
                return false;
            int64_t link, ns = price_conversion(s->pricer, d, s->code[expect], s->code[have->code[k]], &link);
            mv->m->before.backward += sign * ns;
            mv->m->before.link += sign * link;
        }
    }
    return true;
}

/* Backward of a round after the first, and, where the op reads what rounds hand on, of the first. */
static bool differentiate(Moving *mv, uint32_t guess, uint8_t *expect, Needs *needs)
{
    Needs first = {0};
    bool entry = mv->first_rounds && reads_entry(mv);
    if (!differentiate_round(mv, guess, entry, false, expect, needs))
        return false;
    return !entry || (differentiate_round(mv, guess, false, true, expect, &first) && needs_of_first(mv, *expect, needs, &first));
}

/* Of an op that passes its gradient on it is known where that will lie, so it is brought now
 * to where it is needed, also by those it is passed on to; nothing is left to need. */
static Needs bring_gradient(Moving *mv, Needs needs)
{
    Solver *s = mv->s;
    ValueId d = value_of(s->g, mv->op->out[0])->gradient;
    for (uint8_t k = 0; k < needs.n; k++)
        bring(mv, NULL, d, needs.code[k]);
    return (Needs){0};
}

static void begin_slots(Moving *mv, uint8_t expect, Needs needs)
{
    Solver *s = mv->s;
    for (uint32_t i = 0; i < mv->step->nout; i++) {
        Rec *r = &mv->m->out[i];
        const Slot *slot = &s->slot[mv->step->out[i]];
        *r = no_record();
        r->made = code_of(s, s->l->value[slot->value.i]);
        if (slot->value.i == mv->op->out[0].i) {
            r->expect = expect;
            r->needs = needs_of(s, needs);
        }
    }
}

/* The loss and other values that nobody reads: their gradient comes from nowhere. */
static bool move_op(Moving *mv, uint32_t choice, uint32_t guess)
{
    Solver *s = mv->s;
    const Step *step = mv->step;
    Needs needs = {0};
    uint8_t expect = CODE_NONE;
    cut_op(s, step, choice);
    place_arguments(mv, false);
    for (int a = 0; a < mv->op->narg; a++)
        if (has_value(mv->op->arg[a]))
            read_forward(mv, step->op, a, false);
    if (!make_results(mv))
        return false;
    place_given(mv, step->op);
    if (has_gradient(s, mv->op) && !differentiate(mv, guess, &expect, &needs))
        return false;
    count_weights(mv);
    mv->m->cost.forward += price_of(s, step, choice)[0];
    mv->m->cost.backward += price_of(s, step, choice)[1];
    mv->m->cost.again += s->again[step->op.i] ? price_of(s, step, choice)[0] : 0;
    if (step->nout == 0 && expect != CODE_NONE && expect != CODE_COMPLETE && expect != code_of(s, placement_whole()))
        return false;
    for (uint32_t i = step->nin; i-- > 0;)               /* what later rounds need before what the first one does */
        if (s->slot[step->in[i]].last == (uint32_t)(step - s->step) && slot_in(mv, i)->kind != SLOT_PROMISE && !finish(mv, i, &needs))
            return false;
    if (has_gradient(s, mv->op) && step_passes_on(s, mv->op))
        needs = bring_gradient(mv, needs);
    begin_slots(mv, expect, needs);
    return true;
}

uint32_t step_gifts(Solver *s, ValueId v, Rec **out)
{
    uint32_t n = 0;
    Placement p;
    *out = NULL;
    for (uint32_t k = 0; nth_placement(s, v, k, &p); k++) {
        Rec r = no_record();
        r.made = code_of(s, p);
        if (!placement_on(&s->l->grid, p, PLACE_PARTIAL))    /* never summands */
            PUSH(s->arena, *out, n, r);
    }
    return n;
}

/* A number, such as a sum of losses, is handed on complete, which costs next to nothing; then there is nothing to guess. */
static bool may_be_promised(Solver *s, ValueId v, const Rec *r)
{
    uint8_t whole = code_of(s, placement_whole());
    return value_of(s->g, v)->rank > 0 || (r->made == whole && (r->expect == whole || r->expect >= s->ncode));
}

/* The records that a round may hand on of one value. */
static uint32_t promises_of(Solver *s, ValueId v, Rec **out)
{
    OpId maker = value_of(s->g, v)->maker;
    const Op *op = op_of(s->g, maker);
    Step *step = s->step;
    uint32_t n = 0;
    while (step->kind != STEP_OP || step->op.i != maker.i)
        step++;
    *out = NULL;
    for (uint32_t c = 0; c <= s->out->ncut[step->index]; c++)
        for (uint32_t guess = 0; guess < step_guesses(s, step, c); guess++)
            for (int partial = 0; partial < 2; partial++) {
                Move m = {0};
                Moving mv = {.s = s, .step = step, .op = op, .m = &m};
                Needs needs = {0};
                Rec r = no_record();
                cut_op(s, step, c);
                for (int a = 0; a < op->narg; a++)
                    if (has_value(op->arg[a]))
                        s->l->value[op->arg[a].i] = partial ? all_partial(s, maker) : placement_whole();
                place_given(&mv, maker);
                r.made = code_of(s, layout_made(s->l, maker, 0));
                s->l->value[op->out[0].i] = s->code[r.made];
                if (has_gradient(s, op)) {
                    uint32_t kept = 0;
                    r.expect = guess_gradient(s, op, maker, guess);
                    for (uint32_t i = 0; i < s->nbackward[maker.i]; i++)
                        backward_op(&mv, s->backward[maker.i][i], &needs, &kept);
                }
                r.needs = needs_of(s, has_gradient(s, op) && step_passes_on(s, op) ? (Needs){0} : needs);
                bool known = !may_be_promised(s, v, &r);
                for (uint32_t i = 0; i < n; i++)
                    known |= memcmp(&(*out)[i], &r, sizeof r) == 0;
                if (!known)
                    PUSH(s->arena, *out, n, r);
            }
    return n;
}

uint32_t step_promises(Solver *s, uint32_t part, Rec **out)
{
    const Segment *p = &s->chain->part[part];
    Rec *of[MOST_CARRIED];
    uint32_t n[MOST_CARRIED], all = 1, rec = 0;
    for (uint32_t k = 0; k < p->ncarried; k++) {
        n[k] = promises_of(s, p->out[k], &of[k]);
        all *= n[k];
    }
    *out = NULL;
    for (uint32_t i = 0; i < all; i++)
        for (uint32_t k = 0, rest = i; k < p->ncarried; rest /= n[k++])
            PUSH(s->arena, *out, rec, of[k][rest % n[k]]);
    return all;
}

static bool same_promise(const Rec *a, const Rec *b)
{
    return a->made == b->made && a->needs == b->needs && a->expect == b->expect;
}

void step_move(Solver *s, const Step *step, uint32_t choice, uint32_t guess, const Rec *in, Move *m)
{
    Moving mv = {.s = s, .step = step, .m = m, .op = step->kind == STEP_OP ? op_of(s->g, step->op) : NULL,
                 .first_rounds = s->chain->part[step->part].rounds > 1};
    memset(m, 0, sizeof *m);
    memcpy(m->in, in, sizeof *in * step->nin);
    if (step->kind == STEP_OP) {
        m->legal = move_op(&mv, choice, guess);
    } else if (step->kind == STEP_LEAVE) {               /* in, of each: what was made, and the promise */
        m->legal = true;
        for (uint32_t k = 0; k < step->nout; k++) {
            m->legal &= same_promise(&in[2 * k], &in[2 * k + 1]);
            m->out[k] = in[2 * k];
        }
    }
}
