/* Intra-op: the steps of the dynamic program, read off a graph.  See intra.h. */
#include "planner/intra.h"

#include <stdlib.h>
#include <string.h>

#include "planner/intra_step.h"
#include "planner/splits.h"

/* ---- what is read off the graph ---- */

static void read_backward(Solver *s)
{
    const Graph *g = s->g;
    s->backward = NEWN(s->arena, OpId *, g->nop + 1);
    s->nbackward = NEWN(s->arena, uint32_t, g->nop + 1);
    s->sums = NEWN(s->arena, OpId *, g->nvalue + 1);
    s->nsums = NEWN(s->arena, uint32_t, g->nvalue + 1);
    for (uint32_t o = 0; o < g->nop; o++) {
        const Op *op = &g->op[o];
        if (op->phase != PHASE_BACKWARD)
            continue;
        if (has_value(op->sum_of))
            PUSH(s->arena, s->sums[op->sum_of.i], s->nsums[op->sum_of.i], ((OpId){o}));
        else if (has_op(op->forward))
            PUSH(s->arena, s->backward[op->forward.i], s->nbackward[op->forward.i], ((OpId){o}));
    }
}

static void count_uses(const Graph *g, uint32_t *n)
{
    for (uint32_t o = 0; o < g->nop; o++)
        for (int a = 0; g->op[o].phase == PHASE_FORWARD && a < g->op[o].narg; a++)
            if (has_value(g->op[o].arg[a]))
                n[g->op[o].arg[a].i + 1]++;
}

static void read_uses(Solver *s)
{
    const Graph *g = s->g;
    uint32_t *fill = NEWN(s->arena, uint32_t, g->nvalue + 1);
    s->use0 = NEWN(s->arena, uint32_t, g->nvalue + 2);
    count_uses(g, s->use0);
    for (uint32_t v = 0; v < g->nvalue; v++)
        s->use0[v + 1] += s->use0[v];
    s->uses = arena_alloc(s->arena, sizeof *s->uses * (s->use0[g->nvalue] + 1));
    for (uint32_t o = 0; o < g->nop; o++)
        for (int a = 0; g->op[o].phase == PHASE_FORWARD && a < g->op[o].narg; a++) {
            ValueId v = g->op[o].arg[a];
            if (!has_value(v))
                continue;
            uint32_t u = s->use0[v.i] + fill[v.i]++;
            s->uses[u][0] = o;
            s->uses[u][1] = (uint32_t)a;
        }
}

/* ---- slots and steps ---- */

static bool is_tracked(const Solver *s, ValueId v)
{
    OpId maker = has_value(v) ? value_of(s->g, v)->maker : NO_OP;
    return has_op(maker) && op_of(s->g, maker)->phase == PHASE_FORWARD;
}

static uint32_t uses_of(const Solver *s, ValueId v)
{
    return s->use0[v.i + 1] - s->use0[v.i];
}

enum { NO_SLOT = UINT32_MAX };

static uint32_t find_slot(const Solver *s, ValueId v, SlotKind kind, uint32_t part)
{
    for (uint32_t i = s->nslot; i-- > 0;)
        if (s->slot[i].kind == kind && s->slot[i].value.i == v.i && (kind == SLOT_VALUE || s->slot[i].part == part))
            return i;
    return NO_SLOT;
}

static uint32_t add_slot(Solver *s, ValueId v, SlotKind kind, uint32_t part)
{
    PUSH(s->arena, s->slot, s->nslot, ((Slot){.value = v, .kind = kind, .part = part, .first = s->nstep - 1, .last = s->nstep - 1}));
    return s->nslot - 1;
}

static void cannot(Solver *s, const char *why)
{
    if (!s->out->why_not)
        s->out->why_not = why;
}

static void step_reads(Solver *s, uint32_t slot)
{
    Step *step = &s->step[s->nstep - 1];
    for (uint32_t i = 0; i < step->nin; i++)
        if (step->in[i] == slot)
            return;
    if (step->nin == MOST_IN) {
        cannot(s, "an op reads more values than are followed");
        return;
    }
    step->in[step->nin++] = slot;
    s->slot[slot].last = s->nstep - 1;
}

static Step *add_step(Solver *s, StepKind kind, uint32_t part)
{
    PUSH(s->arena, s->step, s->nstep, ((Step){.kind = kind, .part = part, .op = NO_OP}));
    return &s->step[s->nstep - 1];
}

/* An input that rounds of a repeat read, such as a mask: each op has it as it wants it, as what that
 * costs, slices of a small tensor, is the same to all ways. */
static bool is_at_hand(const Solver *s, uint32_t part, ValueId v)
{
    return has_value(v) && s->chain->part[part].rounds > 1 && value_of(s->g, v)->role == ROLE_INPUT;
}

/* A weight or input that several ops read is given before the first of them. */
static void give_shared(Solver *s, uint32_t part, const Op *op)
{
    for (int a = 0; a < op->narg; a++) {
        ValueId v = op->arg[a];
        if (!has_value(v) || is_at_hand(s, part, v) || has_op(value_of(s->g, v)->maker) || uses_of(s, v) < 2 || find_slot(s, v, SLOT_GIVEN, 0) != NO_SLOT)
            continue;
        add_step(s, STEP_GIVE, part);
        uint32_t slot = add_slot(s, v, SLOT_GIVEN, 0);
        Step *step = &s->step[s->nstep - 1];
        step->out[step->nout++] = slot;
    }
}

static void add_op(Solver *s, uint32_t part, OpId o, uint32_t index)
{
    const Segment *p = &s->chain->part[part];
    const Op *op = op_of(s->g, o);
    give_shared(s, part, op);
    add_step(s, STEP_OP, part)->op = o;
    s->step[s->nstep - 1].index = index;
    for (int a = 0; a < op->narg; a++) {
        bool none = !has_value(op->arg[a]) || is_at_hand(s, part, op->arg[a]);
        uint32_t given = none ? NO_SLOT : find_slot(s, op->arg[a], SLOT_GIVEN, 0);
        if (given != NO_SLOT && p->rounds > 1)
            cannot(s, "rounds of a repeat read the same weight or input");
        if (given != NO_SLOT)
            step_reads(s, given);
        if (!is_tracked(s, op->arg[a]))
            continue;
        uint32_t at = find_slot(s, op->arg[a], SLOT_VALUE, part);
        if (at == NO_SLOT) {
            cannot(s, "a value skips over a repeat");
            return;
        }
        step_reads(s, at);
        uint32_t k = chain_entry(p, op->arg[a]);
        if (k < p->ncarried)
            step_reads(s, find_slot(s, p->out[k], SLOT_BEFORE, part));
    }
    for (int k = 0; k < op->nout; k++) {
        bool handed_on = has_value(op->out[k]) && chain_handed_on(p, op->out[k]) < p->ncarried;
        if (!has_value(op->out[k]) || (uses_of(s, op->out[k]) == 0 && !handed_on))
            continue;
        Step *step = &s->step[s->nstep - 1];
        uint32_t slot = add_slot(s, op->out[k], SLOT_VALUE, part);
        step->out[step->nout++] = slot;
    }
}

/* What the last round hands on, as those after it name it: the value at the place of what the first does. */
static ValueId handed_on(const Solver *s, ValueId first)
{
    const Graph *g = s->g;
    OpId maker = value_of(g, first)->maker, last = NO_OP;
    for (uint32_t o = maker.i; o < g->nop; o++)
        if (g->op[o].phase == PHASE_FORWARD && s->chain->like[o].i == maker.i)
            last = (OpId){o};
    return op_of(g, last)->out[0];
}

/* Slots of each carried value: what the round before handed on, and the promise that it is that. */
static void enter(Solver *s, uint32_t part)
{
    const Segment *p = &s->chain->part[part];
    add_step(s, STEP_ENTER, part);
    for (uint32_t k = 0; k < p->ncarried; k++) {
        uint32_t in = find_slot(s, p->in[k], SLOT_VALUE, part);
        if (in == NO_SLOT) {
            cannot(s, "a repeat does not begin with what stands before it");
            return;
        }
        step_reads(s, in);
        uint32_t before = add_slot(s, p->out[k], SLOT_BEFORE, part), promise = add_slot(s, p->out[k], SLOT_PROMISE, part);
        Step *step = &s->step[s->nstep - 1];
        step->out[step->nout++] = before;
        step->out[step->nout++] = promise;
    }
}

/* Reads what was made, and the promise, of each. */
static void leave(Solver *s, uint32_t part)
{
    const Segment *p = &s->chain->part[part];
    add_step(s, STEP_LEAVE, part);
    for (uint32_t k = 0; k < p->ncarried; k++) {
        step_reads(s, find_slot(s, p->out[k], SLOT_VALUE, part));
        step_reads(s, find_slot(s, p->out[k], SLOT_PROMISE, part));
    }
    for (uint32_t k = 0; k < p->ncarried; k++) {
        ValueId on = handed_on(s, p->out[k]);
        if (uses_of(s, on) == 0)
            cannot(s, "nothing reads what a repeat makes");
        uint32_t slot = add_slot(s, on, SLOT_VALUE, part);
        Step *step = &s->step[s->nstep - 1];
        step->out[step->nout++] = slot;
    }
}

/* Slots that later steps read. */
static void find_live(Solver *s)
{
    for (uint32_t i = 0; i < s->nstep; i++)
        for (uint32_t k = 0; k < s->nslot; k++)
            if (s->slot[k].first <= i && s->slot[k].last > i)
                PUSH(s->arena, s->step[i].live, s->step[i].nlive, k);
}

static uint32_t place_in(const uint32_t *list, uint32_t n, uint32_t slot)
{
    uint32_t i = 0;
    while (i < n && list[i] != slot)
        i++;
    return i;
}

/* From which record each comes, so that it is found once. */
static void find_sources(Solver *s)
{
    static const Step nothing;
    for (uint32_t i = 0; i < s->nstep; i++) {
        Step *step = &s->step[i];
        const Step *before = i > 0 ? step - 1 : &nothing;
        step->source = NEWN(s->arena, uint32_t, step->nlive + 1);
        for (uint32_t k = 0; k < step->nin; k++)
            step->read[k] = place_in(before->live, before->nlive, step->in[k]);
        for (uint32_t k = 0; k < step->nlive; k++) {
            uint32_t in = place_in(step->in, step->nin, step->live[k]), made = place_in(step->out, step->nout, step->live[k]);
            step->source[k] = in < step->nin ? in : made < step->nout ? MOST_IN + made
                            : MOST_IN + MOST_OUT + place_in(before->live, before->nlive, step->live[k]);
        }
    }
}

static void check_slots(Solver *s)
{
    for (uint32_t k = 0; k < s->nslot; k++) {
        const Slot *slot = &s->slot[k];
        if (uses_of(s, slot->value) > MOST_USES)
            cannot(s, "a value has more readers than are followed");
        if (slot->kind == SLOT_BEFORE && uses_of(s, slot->value) == 0)
            cannot(s, "nothing reads what a round makes");
    }
}

static void read_steps(Solver *s)
{
    uint32_t index = 0;
    for (uint32_t i = 0; i < s->chain->npart && !s->out->why_not; i++) {
        const Segment *p = &s->chain->part[i];
        if (p->rounds > 1)
            enter(s, i);
        for (uint32_t k = 0; k < p->nop && !s->out->why_not; k++)
            add_op(s, i, p->op[k], index++);
        if (p->rounds > 1 && !s->out->why_not)
            leave(s, i);
    }
    find_live(s);
    find_sources(s);
    check_slots(s);
}

static void read_choices(Arena *a, Solver *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->chain->npart; i++)
        n += s->chain->part[i].nop;
    s->out->cut = NEWN(a, CutChoice *, n + 1);
    s->out->ncut = NEWN(a, uint32_t, n + 1);
    n = 0;
    for (uint32_t i = 0; i < s->chain->npart; i++)
        for (uint32_t k = 0; k < s->chain->part[i].nop; k++, n++)
            s->out->ncut[n] = s->l->grid.n ? splits_choices(a, s->l, pricer_plan(s->pricer), s->chain->part[i].op[k], &s->out->cut[n]) : 0;
}

/* Prices that moves fill in, and what states must guess between. */
static void open_tables(Solver *s)
{
    s->priced = NEWN(s->arena, int64_t *, s->nstep + 1);
    s->guesses = NEWN(s->arena, uint32_t *, s->nstep + 1);
    s->guess = NEWN(s->arena, Rec *, s->nstep + 1);
    s->known = NEWN(s->arena, struct Known **, s->nstep + 1);
    for (uint32_t i = 0; i < s->nstep; i++) {
        const Step *step = &s->step[i];
        uint32_t n = step->kind == STEP_OP ? s->out->ncut[step->index] + 1 : 1;
        s->priced[i] = NEWN(s->arena, int64_t, 2 * n);
        s->guesses[i] = NEWN(s->arena, uint32_t, n);
        for (uint32_t k = 0; k < n; k++) {
            s->priced[i][2 * k] = -1;
            s->guesses[i][k] = step->kind == STEP_OP ? step_guesses(s, step, k) : 1;
        }
        s->known[i] = NEWN(s->arena, struct Known *, KNOWN_LISTS);
        if (step->kind == STEP_ENTER)
            s->guesses[i][0] = step_promises(s, step->part, &s->guess[i]);
        if (step->kind == STEP_GIVE)
            s->guesses[i][0] = step_gifts(s, s->slot[step->out[0]].value, &s->guess[i]);
        if (step->nlive > MOST_LIVE)
            cannot(s, "more values are live at a time than are followed");
    }
}

/* What the layout cuts before any choice. */
static void read_fixed(Solver *s)
{
    for (int d = 0; d < MAX_GRID; d++)
        s->fixed_dim[d] = NO_DIM;
    s->fixed = arena_alloc(s->arena, sizeof *s->fixed * (s->g->nop + 1));
    for (uint32_t o = 0; o < s->g->nop; o++)
        if (s->g->op[o].phase == PHASE_FORWARD) {
            memcpy(s->fixed[o], s->l->cut[o], sizeof *s->fixed);
            s->fixed_axes |= step_fixed(s, (OpId){o});
            for (uint32_t d = 0; d < s->l->grid.n; d++)
                if (s->fixed[o][d] && same_dim(s->fixed_dim[d], NO_DIM))
                    s->fixed_dim[d] = s->g->op[o].factor[__builtin_ctz(s->fixed[o][d])].dim;
        }
}

static Solver open_solver(Arena *a, Pricer *pr, const Chain *c, Goal goal, const Layout *given, Intra *out)
{
    Solver s = {.arena = arena_new("intra"), .pricer = pr, .l = pricer_layout(pr), .g = c->g, .chain = c, .goal = goal, .given = given, .out = out};
    *out = (Intra){.chain = c};
    if (c->npart > MOST_PARTS)
        out->why_not = "it has more parts than are followed";
    read_fixed(&s);
    read_choices(a, &s);
    read_backward(&s);
    read_uses(&s);
    s.again = chain_again(s.arena, c);
    if (!out->why_not)
        read_steps(&s);
    if (!out->why_not)
        open_tables(&s);
    return s;
}

void intra_solve(Arena *a, Pricer *pr, const Chain *c, Goal goal, const Layout *given, Intra *out)
{
    Solver s = open_solver(a, pr, c, goal, given, out);
    if (!out->why_not) {
        ways_solve(a, &s);
        out->cut_short |= s.lost;
    }
    arena_free(s.arena);
}
