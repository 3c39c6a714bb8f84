/* Values: see intra_values.h.
 *
 * Placements of arguments are put into the pricer's layout, so that ir's own functions say
 * what an op needs and makes; nothing of how ops split is known here. */
#include "planner/intra_values.h"

#include <string.h>

/* ---- codes ---- */

uint8_t code_of(Solver *s, Placement p)
{
    for (uint32_t i = 0; i < s->ncode; i++)
        if (placement_equal(&s->l->grid, s->code[i], p))
            return (uint8_t)i;
    if (s->ncode == MOST_CODES) {
        s->lost = true;
        return 0;
    }
    s->code[s->ncode] = p;
    return (uint8_t)s->ncode++;
}

static bool is_partial(const Solver *s, uint8_t code)
{
    return placement_on(&s->l->grid, s->code[code], PLACE_PARTIAL) != 0;
}

uint8_t needs_of(Solver *s, Needs n)
{
    for (uint32_t i = 0; i < s->nneeds; i++)
        if (memcmp(&s->needs[i], &n, sizeof n) == 0)
            return (uint8_t)i;
    if (s->nneeds == MOST_NEEDS) {
        s->lost = true;
        return 0;
    }
    s->needs[s->nneeds] = n;
    return (uint8_t)s->nneeds++;
}

void add_need(Solver *s, Needs *n, uint8_t code)
{
    if (memchr(n->code, code, n->n))
        return;
    if (n->n == sizeof n->code)
        s->lost = true;
    else
        n->code[n->n++] = code;
}

Rec no_record(void)
{
    Rec r = {.expect = CODE_NONE};
    memset(r.given, CODE_NONE, sizeof r.given);
    return r;
}

/* ---- whose cost ---- */

static bool is_entry(const Moving *mv, const Slot *slot)
{
    const Segment *p = &mv->s->chain->part[mv->step->part];
    return slot->kind == SLOT_VALUE && chain_entry(p, slot->value) < p->ncarried;
}

/* The first round reads what the part before made; what that costs more than in later
 * rounds is that part's. */
void spend(Moving *mv, const Slot *slot, int64_t forward, int64_t backward, int64_t link)
{
    Move *m = mv->m;
    int64_t before = slot && is_entry(mv, slot) ? 1 : slot && slot->kind == SLOT_BEFORE ? -1 : 0;
    m->before.forward += before * forward;
    m->before.backward += before * backward;
    m->before.link += before * link;
    if (before != 1) {
        m->cost.forward += forward;
        m->cost.backward += backward;
        m->cost.link += link;
    }
}

/* ---- slots of the step ---- */

const Slot *slot_in(const Moving *mv, uint32_t i)
{
    return &mv->s->slot[mv->step->in[i]];
}

/* The value that ops of this part name when they read the slot. */
static ValueId read_as(const Moving *mv, const Slot *slot)
{
    const Segment *p = &mv->s->chain->part[slot->part];
    return slot->kind == SLOT_BEFORE ? p->in[chain_handed_on(p, slot->value)] : slot->value;
}

static void place_value(Solver *s, ValueId v, uint8_t code)
{
    s->l->value[v.i] = s->code[code];
}

/* Arguments lie as in the first round, or as in those after it. */
void place_arguments(Moving *mv, bool later)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < mv->step->nin; i++) {
            const Slot *slot = slot_in(mv, i);
            if (slot->kind != SLOT_PROMISE && (slot->kind == SLOT_BEFORE) == (pass == 1) && (pass == 0 || later))
                place_value(mv->s, read_as(mv, slot), mv->m->in[i].made);
        }
}

/* ---- conversions of forward values ---- */

/* A value already complete in another placement; CODE_NONE: there is none. */
static uint8_t complete_one(const Solver *s, uint32_t codes)
{
    for (uint8_t c = 0; c < s->ncode; c++)
        if (codes >> c & 1 && !is_partial(s, c))
            return c;
    return CODE_NONE;
}

/* A round that is recomputed converts what its ops read once more, and has it then for its
 * backward ops; a sum that came from the round before was completed once and for all. */
static void convert_again(Moving *mv, uint32_t i, uint8_t to, int64_t ns, int64_t link, bool backward)
{
    const Slot *slot = slot_in(mv, i);
    Rec *r = &mv->m->in[i];
    bool entry = is_entry(mv, slot), later = slot->kind == SLOT_BEFORE, had = r->seen_again >> to & 1;
    if (((entry || later) && is_partial(mv->s, r->made)) || (backward ? !had : had || !mv->s->again[mv->step->op.i]))
        return;
    r->seen_again |= 1u << to;
    int64_t sign = backward ? -1 : r->seen_back >> to & 1 ? 0 : 1;       /* backward ops converted it in any case */
    mv->m->cost.again += entry ? 0 : sign * ns;
    mv->m->cost.link_again += entry ? 0 : sign * link;
    mv->m->before.again += entry ? sign * ns : later ? -sign * ns : 0;
}

/* Once in a procedure for each placement; what the forward pass completed is not completed again. */
static void convert_slot(Moving *mv, uint32_t i, uint8_t to, bool backward)
{
    Solver *s = mv->s;
    Rec *r = &mv->m->in[i];
    bool partial = is_partial(s, r->made);
    uint32_t *seen = backward ? &r->seen_back : &r->seen, have = *seen | (backward && partial ? r->seen : 0);
    if (to == r->made)
        return;
    uint8_t complete = partial && !is_partial(s, to) ? complete_one(s, r->seen | r->seen_back) : CODE_NONE;
    int64_t link, ns = price_conversion(s->pricer, read_as(mv, slot_in(mv, i)), s->code[complete == CODE_NONE ? r->made : complete], s->code[to], &link);
    if (!(have >> to & 1))
        spend(mv, slot_in(mv, i), backward ? 0 : ns, backward ? ns : 0, link);
    if (!backward || !(have >> to & 1))
        convert_again(mv, i, to, ns, link, backward);
    *seen |= 1u << to;
}

/* A given value lies as all its readers want, or whole. */
static void want_given(Rec *r, uint8_t need)
{
    r->kept |= r->expect != CODE_NONE && r->expect != need;
    r->expect = r->expect == CODE_NONE ? need : r->expect;
}

/* Of an entry the slot of the round that is followed; others once. */
static bool is_followed(const Moving *mv, const Slot *slot)
{
    return is_entry(mv, slot) ? !mv->later : slot->kind == SLOT_BEFORE ? mv->later : !mv->extra;
}

/* The slots that an argument reads, each with its own need. */
void read_forward(Moving *mv, OpId o, int a, bool backward)
{
    Solver *s = mv->s;
    ValueId v = op_of(s->g, o)->arg[a];
    for (uint32_t i = 0; i < mv->step->nin; i++) {
        const Slot *slot = slot_in(mv, i);
        Rec *r = &mv->m->in[i];
        if (slot->kind == SLOT_PROMISE || read_as(mv, slot).i != v.i || (backward && !is_followed(mv, slot)))
            continue;
        place_value(s, v, r->made);
        uint8_t need = code_of(s, layout_need(s->l, o, a));
        convert_slot(mv, i, need, backward);
        if (slot->kind == SLOT_GIVEN)
            want_given(r, need);
        else if (backward && !r->kept && !is_entry(mv, slot)) {
            mv->m->cost.saved += price_bytes(s->pricer, v, s->code[is_partial(s, r->made) ? need : r->made]);
            r->kept = 1;
        }
    }
}

/* ---- weights ---- */

static bool is_weight(const Solver *s, ValueId v)
{
    return has_value(v) && value_of(s->g, v)->role == ROLE_WEIGHT;
}

bool is_slot(const Moving *mv, ValueId v)
{
    for (uint32_t i = 0; i < mv->step->nin; i++)
        if (slot_in(mv, i)->value.i == v.i)
            return true;
    return false;
}

/* Given values that nobody else reads lie as their reader wants. */
void place_given(Moving *mv, OpId o)
{
    const Op *op = op_of(mv->s->g, o);
    for (int a = 0; a < op->narg; a++)
        if (has_value(op->arg[a]) && !has_op(value_of(mv->s->g, op->arg[a])->maker) && !is_slot(mv, op->arg[a]))
            mv->s->l->value[op->arg[a].i] = layout_need(mv->s->l, o, a);
}

/* Summands along axes that are chosen here. */
static bool is_shared(const Solver *s, Placement p)
{
    return placement_on(&s->l->grid, p, PLACE_PARTIAL) & ~s->fixed_axes;
}

/* Elements of a weight on a rank, counted where it is first read. */
void count_weights(Moving *mv)
{
    Solver *s = mv->s;
    for (int a = 0; a < mv->op->narg; a++) {
        ValueId w = mv->op->arg[a];
        if (!is_weight(s, w))
            continue;
        int64_t n = price_bytes(s->pricer, w, s->l->value[w.i]) / (int64_t)dtype_bytes(value_of(s->g, w)->dtype);
        bool first = s->uses[s->use0[w.i]][0] == mv->step->op.i && s->uses[s->use0[w.i]][1] == (uint32_t)a;
        mv->m->cost.params += first ? n : 0;
        ValueId d = is_slot(mv, w) ? NO_VALUE : mv->op->give[a];
        if (has_value(d) && is_shared(s, s->l->value[d.i]))
            mv->m->cost.shared += n;
    }
}

/* ---- gradients ---- */

bool is_gradient_of(const Solver *s, const Op *op, ValueId v)
{
    for (int k = 0; k < op->nout; k++)
        if (has_value(op->out[k]) && value_of(s->g, op->out[k])->gradient.i == v.i)
            return true;
    return false;
}

/* Where each reader's gift lies; what readers of this step give is in the layout. */
static void place_gifts(Moving *mv, uint32_t i)
{
    Solver *s = mv->s;
    ValueId v = read_as(mv, slot_in(mv, i));
    for (uint32_t u = s->use0[v.i]; u < s->use0[v.i + 1]; u++) {
        ValueId d = s->g->op[s->uses[u][0]].give[s->uses[u][1]];
        uint8_t code = mv->m->in[i].given[u - s->use0[v.i]];
        if (has_value(d) && code != CODE_NONE)
            place_value(s, d, code);
    }
}

/* Whether a gradient that this op passes on is brought where it is needed anyhow; where rounds
 * after the first need it so too, it will be. */
static bool is_brought(Moving *mv, const Slot *slot, ValueId d, uint8_t code, Needs *of_result)
{
    if (!is_gradient_of(mv->s, mv->op, d))
        return false;
    if (!memchr(of_result->code, code, of_result->n) && !is_entry(mv, slot))
        add_need(mv->s, of_result, code);
    return memchr(of_result->code, code, of_result->n) != NULL;
}

/* Gifts that are split along one axis by different axes of the grid may be too fine together. */
static bool divides(const Solver *s, ValueId v, const Placement *p)
{
    for (int x = 0; x < value_of(s->g, v)->rank; x++) {
        DimId dim = value_of(s->g, v)->axis[x];
        if ((dim_of(s->g, dim)->extent + s->l->pad[dim.i]) % step_ways(&s->l->grid, p, x))
            return false;
    }
    return true;
}

static bool sum_gifts(Moving *mv, const Slot *slot, ValueId v, Needs *of_result)
{
    Solver *s = mv->s;
    for (uint32_t i = 0; i < s->nsums[v.i]; i++) {
        OpId o = s->sums[v.i][i];
        const Op *op = op_of(s->g, o);
        layout_cut_backward(s->l, o);
        for (int a = 0; a < 2; a++) {
            Placement have = s->l->value[op->arg[a].i], need = layout_need(s->l, o, a);
            if (!divides(s, v, &need))
                return false;
            if (placement_equal(&s->l->grid, have, need) || is_brought(mv, slot, op->arg[a], code_of(s, need), of_result))
                continue;
            int64_t link, ns = price_conversion(s->pricer, op->arg[a], have, need, &link);
            spend(mv, slot, 0, ns, link);
        }
        s->l->value[op->out[0].i] = layout_made(s->l, o, 0);
        spend(mv, slot, 0, price_op(s->pricer, o, NULL), 0);
    }
    return true;
}

static bool lies_as_wanted(Solver *s, const Rec *r)
{
    return r->made == (r->kept ? code_of(s, placement_whole()) : r->expect);
}

/* The gradient of a weight ends as the weight lies, but for summands where that is whole. */
static bool finish_given(Moving *mv, const Rec *r, ValueId v, uint8_t lies)
{
    Solver *s = mv->s;
    Placement to = s->code[r->made];
    for (uint32_t d = 0; d < s->l->grid.n; d++)
        if (s->code[lies].on[d] == PLACE_PARTIAL && to.on[d] == PLACE_WHOLE)
            to.on[d] = PLACE_PARTIAL;
    int64_t link, ns = price_conversion(s->pricer, value_of(s->g, v)->gradient, s->code[lies], to, &link);
    spend(mv, NULL, 0, ns, link);
    if (is_shared(s, to))
        mv->m->cost.shared += price_bytes(s->pricer, v, s->code[r->made]) / (int64_t)dtype_bytes(value_of(s->g, v)->dtype);
    return true;
}

/* Whether a gradient lies as the maker's backward ops were told; along axes that cut the maker in any case
 * they need it split, wherever it lies, unless it is passed on. */
static bool is_expected(const Solver *s, const Slot *slot, uint8_t expect, uint8_t lies)
{
    const Op *maker = op_of(s->g, value_of(s->g, slot->value)->maker);
    GridSet fixed = step_fixed(s, value_of(s->g, slot->value)->maker);
    if (expect == CODE_NONE)
        return true;
    if (expect == CODE_COMPLETE)
        return !(placement_on(&s->l->grid, s->code[lies], PLACE_PARTIAL) & ~fixed);
    if (step_passes_on(s, maker))
        return expect == lies;
    Placement x = s->code[expect], y = s->code[lies];
    for (uint32_t d = 0; d < s->l->grid.n; d++)
        if (x.on[d] != y.on[d] && !(fixed >> d & 1))
            return false;
    return true;
}

/* From where a gradient lies in the layout to where it is needed. */
void bring(Moving *mv, const Slot *slot, ValueId d, uint8_t to)
{
    int64_t link, ns = price_conversion(mv->s->pricer, d, mv->s->l->value[d.i], mv->s->code[to], &link);
    spend(mv, slot, 0, ns, link);
}

/* The gradient is complete: it must lie where it was expected, and goes where the maker's
 * backward ops need it. */
bool finish(Moving *mv, uint32_t i, Needs *of_result)
{
    Solver *s = mv->s;
    const Slot *slot = slot_in(mv, i);
    const Rec *r = &mv->m->in[i];
    ValueId v = read_as(mv, slot), d = value_of(s->g, v)->gradient;
    if (slot->kind == SLOT_GIVEN && !lies_as_wanted(s, r))
        return false;
    if (!has_value(d))
        return true;
    place_gifts(mv, i);
    if (!sum_gifts(mv, slot, v, of_result))
        return false;
    uint8_t lies = code_of(s, s->l->value[d.i]);
    if (slot->kind == SLOT_GIVEN)
        return finish_given(mv, r, v, lies);
    if (!is_expected(s, slot, r->expect, lies))
        return false;
    const Needs *n = &s->needs[r->needs];
    bool passed_on = is_gradient_of(s, mv->op, d);       /* then it is converted as the gradient of the result is */
    for (uint8_t k = 0; k < n->n; k++)
        if (passed_on)
            add_need(s, of_result, n->code[k]);
        else
            bring(mv, slot, d, n->code[k]);
    return true;
}

/* What this op gives to the gradient of a slot; false: the first round would give otherwise. */
static bool take_gift(Moving *mv, uint32_t i, uint32_t use, ValueId d)
{
    Solver *s = mv->s;
    uint8_t *given = &mv->m->in[i].given[use], code = code_of(s, s->l->value[d.i]);
    if (is_followed(mv, slot_in(mv, i)))
        *given = code;
    return *given == code || is_entry(mv, slot_in(mv, i)) || slot_in(mv, i)->kind == SLOT_BEFORE;
}

bool take_gifts(Moving *mv)
{
    Solver *s = mv->s;
    bool same = true;
    for (uint32_t i = 0; i < mv->step->nin; i++) {
        const Slot *slot = slot_in(mv, i);
        ValueId v = slot->kind == SLOT_PROMISE ? NO_VALUE : read_as(mv, slot);
        for (uint32_t u = has_value(v) ? s->use0[v.i] : 1; has_value(v) && u < s->use0[v.i + 1]; u++) {
            ValueId d = s->uses[u][0] == mv->step->op.i ? mv->op->give[s->uses[u][1]] : NO_VALUE;
            if (has_value(d))
                same &= take_gift(mv, i, u - s->use0[v.i], d);
        }
    }
    return same;
}
