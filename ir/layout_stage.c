/* Stages: which ops are executed where, and what crosses between. */
#include <string.h>

#include "ir/layout_cut.h"

/* ---- cuts ---- */

typedef struct Cuts { Diags *ds; const Graph *g; const Plan *plan; bool *before; uint32_t n; } Cuts;   /* before: per op */

static void cut_before(Cuts *c, uint32_t op, uint32_t *made)
{
    c->n += !c->before[op];
    c->before[op] = true;
    ++*made;
}

/* The ops before which a rule cuts: the first that it names, the one after the last, or
 * the first of every n-th round. */
static uint32_t read_rule(Cuts *c, const Rule *r)
{
    const Graph *g = c->g;
    uint32_t made = 0;
    bool inside = false;
    int64_t round = 0;
    for (uint32_t o = 0; o < g->nop; o++) {
        if (g->op[o].phase != PHASE_FORWARD)
            continue;
        bool match = path_matches(&r->path, g->op[o].path);
        int64_t here = match ? path_round(&r->path, g->op[o].path) : -1;
        if (r->kind == RULE_STAGE_BEFORE && match && !inside)
            cut_before(c, o, &made);
        else if (r->kind == RULE_STAGE_AFTER && !match && inside && made == 0)
            cut_before(c, o, &made);
        else if (r->kind == RULE_STAGE_EVERY && here > round && here % r->number == 0)
            cut_before(c, o, &made);
        round = here >= 0 ? here : round;
        inside |= match;
    }
    return made;
}

static Status read_cuts(Cuts *c)
{
    int errors = c->ds->errors;
    const Rule *last = NULL;
    for (uint32_t i = 0; i < c->plan->nrule; i++) {
        const Rule *r = &c->plan->rule[i];
        if (!rule_cuts(r))
            continue;
        last = r;
        if (read_rule(c, r) == 0)
            diag_error(c->ds, r->at, "this rule cuts nowhere: %s", r->kind == RULE_STAGE_AFTER ? "nothing follows what it names" : "no forward op is there");
    }
    int64_t pp = c->plan->mesh[AXIS_pp];
    if (c->ds->errors == errors && (int64_t)c->n + 1 != pp) {
        Diag *d = diag_error(c->ds, last ? last->at : NOWHERE, "%u cut%s make%s %u stage%s, but 'pp = %lld'", c->n, c->n == 1 ? "" : "s", c->n == 1 ? "s" : "",
                             c->n + 1, c->n ? "s" : "", (long long)pp);
        diag_help(c->ds, d, "write one 'stage before PATH' for each stage but the first, or 'pp = %u'", c->n + 1);
    }
    return c->ds->errors == errors ? OK : ERR_REJECT;
}

/* ---- forward ops ---- */

/* Whether a value depends on no input of the model. */
static bool is_free(const Layout *l, const bool *free_op, ValueId v)
{
    OpId maker = value_of(l->g, v)->maker;
    return has_op(maker) ? free_op[maker.i] : value_of(l->g, v)->role == ROLE_WEIGHT;
}

static bool is_free_op(const Layout *l, const bool *free_op, const Op *op)
{
    for (int a = 0; a < op->narg; a++)
        if (has_value(op->arg[a]) && !is_free(l, free_op, op->arg[a]))
            return false;
    return true;
}

/* Ops that are executed where they are used get their stages from their readers. */
static void spread_to_readers(Layout *l, const bool *free_op)
{
    const Graph *g = l->g;
    for (uint32_t o = g->nop; o-- > 0;) {
        const Op *op = &g->op[o];
        for (int a = 0; op->phase <= PHASE_FORWARD && a < op->narg; a++) {
            OpId maker = has_value(op->arg[a]) ? value_of(g, op->arg[a])->maker : NO_OP;
            if (has_op(maker) && (free_op[maker.i] || op_of(g, maker)->phase == PHASE_BEGIN))
                l->stages[maker.i] |= l->stages[o];
        }
    }
}

static void place_forward_ops(Arena *a, Layout *l, const bool *before)
{
    const Graph *g = l->g;
    bool *free_op = NEWN(a, bool, g->nop + 1);
    uint32_t stage = 0;
    for (uint32_t o = 0; o < g->nop; o++) {
        stage += before[o];
        if (g->op[o].phase != PHASE_FORWARD)
            continue;
        free_op[o] = is_free_op(l, free_op, &g->op[o]);
        l->stages[o] = free_op[o] ? 0 : (StageSet)1 << stage;
    }
    spread_to_readers(l, free_op);
    for (uint32_t o = 0; o < g->nop; o++)            /* what nobody reads is executed once */
        if (g->op[o].phase <= PHASE_FORWARD && !l->stages[o])
            l->stages[o] = 1;
}

/* ---- backward ops ---- */

static StageSet stages_of(const Layout *l, ValueId v)
{
    OpId maker = value_of(l->g, v)->maker;
    return has_op(maker) ? l->stages[maker.i] : ~(StageSet)0;
}

static bool is_single(StageSet s)
{
    return (s & (s - 1)) == 0;
}

/* Where two gradients of a value are added: where both are; for what several stages
 * hold, on each what it has; else where the value is made. */
static StageSet stages_of_sum(const Layout *l, const Op *op)
{
    StageSet x = stages_of(l, op->arg[0]), y = stages_of(l, op->arg[1]), home = stages_of(l, op->sum_of);
    bool spread = value_of(l->g, op->sum_of)->role == ROLE_WEIGHT || !is_single(home);
    return spread ? x | y : x == y ? x : home;
}

/* Backward of an op that several stages execute: where its gradient came to. */
static StageSet stages_of_backward(const Layout *l, const Op *op)
{
    StageSet s = l->stages[op->forward.i];
    for (int a = 0; a < op->narg && !is_single(s); a++) {
        OpId maker = has_value(op->arg[a]) ? value_of(l->g, op->arg[a])->maker : NO_OP;
        if (has_op(maker) && op_of(l->g, maker)->phase == PHASE_BACKWARD)
            s &= l->stages[maker.i];
    }
    return s;
}

static void place_backward_ops(Layout *l)
{
    for (uint32_t o = 0; o < l->g->nop; o++) {
        const Op *op = &l->g->op[o];
        if (op->phase == PHASE_BACKWARD)
            l->stages[o] = has_value(op->sum_of) ? stages_of_sum(l, op) : stages_of_backward(l, op);
    }
}

/* One stage executes all of them. */
static void place_on_one(Layout *l)
{
    for (uint32_t o = 0; o < l->g->nop; o++)
        l->stages[o] = l->g->op[o].phase <= PHASE_BACKWARD;
}

/* ---- what crosses ---- */

bool layout_has(const Layout *l, ValueId v, uint32_t stage)
{
    return stages_of(l, v) >> stage & 1;
}

static bool is_spread_sum(const Layout *l, const Op *op, int arg, uint32_t stage)
{
    return has_value(op->sum_of) && !layout_has(l, op->arg[arg], stage) && stages_of(l, op->arg[!arg]) >> stage & 1 &&
           (value_of(l->g, op->sum_of)->role == ROLE_WEIGHT || !is_single(stages_of(l, op->sum_of)));
}

static void read_uses(Layout *l)
{
    const Graph *g = l->g;
    for (uint32_t o = 0; o < g->nop; o++)
        for (uint32_t s = 0; s < l->nstages; s++)
            for (int a = 0; l->stages[o] >> s & 1 && a < g->op[o].narg; a++)
                if (has_value(g->op[o].arg[a]) && !is_spread_sum(l, &g->op[o], a, s))
                    l->used[g->op[o].arg[a].i] |= (StageSet)1 << s;
    for (uint32_t i = 0; i < g->noutput; i++)
        l->used[g->output[i].value.i] |= stages_of(l, g->output[i].value) & (StageSet)(((StageSet)2 << (l->nstages - 1)) - 1);
}

/* From where a stage that lacks a value gets it: the nearest that makes it, of those before the stage going forward
 * and of those behind it going backward. */
static uint32_t source_of(const Layout *l, ValueId v, uint32_t stage)
{
    StageSet at = stages_of(l, v), before = at & (((StageSet)1 << stage) - 1), behind = at & ~before;
    OpId maker = value_of(l->g, v)->maker;
    bool backward = has_op(maker) && op_of(l->g, maker)->phase == PHASE_BACKWARD;
    if (before && (!backward || !behind))
        return 63 - (uint32_t)__builtin_clzll(before);
    return (uint32_t)__builtin_ctzll(behind);
}

/* Stages that a value passes on its way to those that lack it, and these. */
static StageSet stages_reached(const Layout *l, ValueId v)
{
    StageSet reached = 0;
    for (uint32_t s = 0; s < l->nstages; s++) {
        if (!(l->used[v.i] >> s & 1) || layout_has(l, v, s))
            continue;
        for (uint32_t at = s, from = source_of(l, v, s); at != from; at = at > from ? at - 1 : at + 1)
            reached |= (StageSet)1 << at;
    }
    return reached;
}

static void read_crossings(Arena *a, Layout *l)
{
    for (uint32_t v = 0; v < l->g->nvalue; v++) {
        StageSet reached = stages_reached(l, (ValueId){v});
        for (uint32_t s = 0; s < l->nstages; s++)
            if (reached >> s & 1)
                PUSH(a, l->crossing, l->ncrossing, ((Crossing){{v}, source_of(l, (ValueId){v}, s) < s ? s - 1 : s + 1, s}));
    }
}

Status layout_stages(Arena *a, Diags *ds, const Graph *g, const Plan *plan, Layout *l)
{
    Cuts cuts = {.ds = ds, .g = g, .plan = plan, .before = NEWN(a, bool, g->nop + 1)};
    TRY(read_cuts(&cuts));
    l->nstages = (uint32_t)plan->mesh[AXIS_pp];
    l->stages = NEWN(a, StageSet, g->nop + 1);
    l->used = NEWN(a, StageSet, g->nvalue + 1);
    if (l->nstages == 1) {
        place_on_one(l);
        read_uses(l);
        return OK;
    }
    place_forward_ops(a, l, cuts.before);
    place_backward_ops(l);
    read_uses(l);
    read_crossings(a, l);
    return OK;
}
