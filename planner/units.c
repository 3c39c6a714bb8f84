/* Units: see units.h. */
#include "planner/units.h"

#include <string.h>

#include "planner/goal.h"
#include "planner/splits.h"
#include "planner/units_alike.h"

enum { NOTHING = UINT32_MAX };

/* All ways to split are tried one by one where they are no more; else the best are looked for
 * among so many states at a step. */
enum { EVERY_WAY = 1024, WIDTH = 16 };

UnitTable units_open(Arena *a, Diags *ds, const PlanRequest *q, const Decisions *d)
{
    UnitTable t = {.arena = a, .q = q, .d = d, .chain = chain_read(a, q->graph), .said = diags_new(ds->sources), .sources = ds->sources};
    t.pieces = pieces_read(a, &t.chain);
    t.again = chain_again(a, &t.chain);
    t.index = NEWN(a, uint32_t, q->graph->nop + 1);
    memset(t.index, 0xFF, q->graph->nop * sizeof *t.index);
    for (uint32_t i = 0; i < t.chain.npart; i++)
        for (uint32_t k = 0; k < t.chain.part[i].nop; k++) {
            t.index[t.chain.part[i].op[k].i] = t.nop;
            PUSH(a, t.op, t.nop, t.chain.part[i].op[k]);
        }
    for (uint32_t o = 0; o < q->graph->nop; o++)
        t.index[o] = t.index[t.chain.like[o].i];
    t.prices = price_graph(a, q->graph);
    t.links = links_read(a, q->cluster, NULL);
    units_read_model(&t);
    return t;
}

/* ---- prices of ops ---- */

/* What is asked while one unit is worked on. */
typedef struct Asking {
    UnitTable *t;
    Unit      *u;
    bool       tp_open;               /* how tp splits is for us to say */
    Arena     *arena;
    Plan       plan;
    Pricer    *pricer;
    Layout    *l;
    CutChoice **cut; uint32_t *ncut;  /* per op of the chain */
    uint16_t (*fixed)[MAX_GRID];      /* per op of the chain: its cuts along other axes than tp */
    bool       overlaps;              /* communication may run beside computing */
} Asking;

/* Rules about stages and their copies, of which a unit has none. */
static bool is_of_stages(const Rule *r)
{
    return rule_cuts(r) || r->kind == RULE_SHARD;
}

/* All stages as one. */
static Plan local_plan(Arena *a, const UnitKey *k, const Mesh *m, uint32_t stage)
{
    const Decisions *d = m->d;
    Plan p = {.arena = a, .mesh = {1, 1, k->cp, 1, k->tp}, .microbatches = k->micro, .schedule = d->schedule, .bucket = d->bucket};
    for (uint32_t i = 0; i < d->nrule; i++)
        if (!is_of_stages(&d->rule[i]))
            PUSH(a, p.rule, p.nrule, d->rule[i]);
    uint32_t ranks = d->ndevices / (uint32_t)m->size[AXIS_pp];
    memcpy(p.outer, d->outer, sizeof p.outer);
    p.outer[AXIS_dp] = p.outer[AXIS_pp] = 0;
    for (int64_t i = 0; i < k->tp * k->cp; i++)
        PUSH(a, p.devices, p.ndevices, m->device[stage * ranks + i]);
    return p;
}

static bool begin_asking(Asking *as, UnitTable *t, Unit *u, const Mesh *m, uint32_t stage)
{
    const Cluster *cl = t->q->cluster;
    *as = (Asking){.t = t, .u = u, .arena = arena_new("unit"), .tp_open = m->d->tp_open};
    as->plan = local_plan(as->arena, &u->key, m, stage);
    as->overlaps = device_overlaps(&cl->device[u->key.kind]);
    if (pricer_open(as->arena, t->said, t->prices, &as->plan, cl, t->q->profile, true, &as->pricer) != OK) {
        arena_free(as->arena);
        return false;
    }
    as->l = pricer_layout(as->pricer);
    as->fixed = arena_alloc(as->arena, sizeof *as->fixed * (t->nop + 1));
    (void)splits_given(as->arena, diags_new(t->sources), &as->plan, as->l);      /* what is wrong is told when a candidate is judged */
    for (uint32_t i = 0; i < t->nop; i++)
        memcpy(as->fixed[i], as->l->cut[t->op[i].i], sizeof *as->fixed);
    return true;
}

static void end_asking(Asking *as)
{
    pricer_close(as->pricer);
    arena_free(as->arena);
}

static void cut_op(Asking *as, uint32_t i, uint32_t choice)
{
    uint16_t *cut = as->l->cut[as->t->op[i].i];
    memcpy(cut, as->fixed[i], sizeof *as->l->cut);
    for (uint32_t d = 0; choice > 0 && d < as->l->grid.n; d++)
        cut[d] |= as->cut[i][choice - 1].cut[d];
}

static double price(const Asking *as, OpId o, bool least)
{
    int64_t link, ns = price_op(as->pricer, o, &link);
    return (double)(least && as->overlaps ? ns - link : ns);
}

/* Where results lie when arguments are taken as they come. */
static void place_results(Asking *as, OpId o)
{
    const Op *op = op_of(as->t->q->graph, o);
    for (int k = 0; k < op->nout; k++)
        if (has_value(op->out[k]))
            as->l->value[op->out[k].i] = as->l->grid.n ? layout_made(as->l, o, k) : placement_whole();
}

/* An op by itself: its arguments lie as it needs them; `gradients`: those alone that backward ops made. */
static void lie_alone(Asking *as, OpId o, bool gradients)
{
    const Graph *g = as->t->q->graph;
    const Op *op = op_of(g, o);
    for (int a = 0; as->l->grid.n && a < op->narg; a++) {
        OpId maker = has_value(op->arg[a]) ? value_of(g, op->arg[a])->maker : NO_OP;
        if (has_value(op->arg[a]) && (!gradients || (has_op(maker) && op_of(g, maker)->phase == PHASE_BACKWARD)))
            as->l->value[op->arg[a].i] = layout_need(as->l, o, a);
    }
    place_results(as, o);
}

/* Of an op that is cut, and of its backward ops; least: without what may run beside computing. */
static Least price_both(Asking *as, uint32_t i, bool least)
{
    Least ns = {.forward = price(as, as->t->op[i], least)};
    for (uint32_t b = 0; b < as->t->nbackward[i]; b++) {
        layout_cut_backward(as->l, as->t->backward[i][b]);
        lie_alone(as, as->t->backward[i][b], true);
        ns.backward += price(as, as->t->backward[i][b], least);
    }
    return ns;
}

/* Under one of its cuts, wherever its arguments come from. */
static Least price_alone(Asking *as, uint32_t i)
{
    lie_alone(as, as->t->op[i], false);
    return price_both(as, i, true);
}

/* ---- from ops to pieces ---- */

/* Sums of what ops have over the ops of each piece. */
static Least *least_of_pieces(const UnitTable *t, const Least *op, Least *sum)
{
    Least *out = NEWN(t->arena, Least, t->pieces.n + 1);
    *sum = (Least){0};
    for (uint32_t i = 0; i < t->pieces.n; i++) {
        const Piece *p = &t->pieces.piece[i];
        for (uint32_t o = p->first.i; o < p->first.i + p->nop; o++)
            if (t->q->graph->op[o].phase == PHASE_FORWARD && t->index[o] != NOTHING) {
                out[i].forward += op[t->index[o]].forward;
                out[i].backward += op[t->index[o]].backward;
            }
        sum->forward += out[i].forward;
        sum->backward += out[i].backward;
    }
    return out;
}

static void add(PieceCost *to, const PieceCost *c)
{
    to->forward += c->forward;
    to->backward += c->backward;
    to->again += c->again;
    to->saved += c->saved;
    to->entry += c->entry;
    to->params += c->params;
    to->shared += c->shared;
}

static void costs_of_pieces(const UnitTable *t, const PieceCost *op, Option *o)
{
    o->piece = NEWN(t->arena, PieceCost, t->pieces.n + 1);
    for (uint32_t i = 0; i < t->pieces.n; i++) {
        const Piece *p = &t->pieces.piece[i];
        for (uint32_t k = p->first.i; k < p->first.i + p->nop; k++)
            if (t->q->graph->op[k].phase == PHASE_FORWARD && t->index[k] != NOTHING)
                add(&o->piece[i], &op[t->index[k]]);
        add(&o->all, &o->piece[i]);
    }
}

/* ---- ops one by one, without conversions ---- */

static double bytes_of(const Asking *as, ValueId v)
{
    return (double)price_bytes(as->pricer, v, as->l->value[v.i]);
}

/* Values that backward ops read. */
static bool *read_by_backward(Arena *a, const Graph *g)
{
    bool *read = NEWN(a, bool, g->nvalue + 1);
    for (uint32_t o = 0; o < g->nop; o++)
        for (int k = 0; g->op[o].phase == PHASE_BACKWARD && k < g->op[o].narg; k++)
            if (has_value(g->op[o].arg[k]))
                read[g->op[o].arg[k].i] = true;
    return read;
}

static PieceCost cost_of_op(Asking *as, uint32_t i, const bool *read)
{
    const Graph *g = as->t->q->graph;
    OpId o = as->t->op[i];
    const Op *op = op_of(g, o);
    Least ns = price_both(as, i, false);
    PieceCost c = {.forward = ns.forward, .backward = ns.backward, .again = as->t->again[o.i] ? ns.forward : 0};
    for (int k = 0; k < op->nout; k++)
        if (has_value(op->out[k]) && read[op->out[k].i])
            c.saved += bytes_of(as, op->out[k]);
    for (int k = 0; k < op->narg; k++) {
        if (!has_value(op->arg[k]))
            continue;
        const Value *v = value_of(g, op->arg[k]);
        if (v->role == ROLE_WEIGHT)
            c.params += bytes_of(as, op->arg[k]) / (double)dtype_bytes(v->dtype);
        else if (has_op(v->maker) && op_of(g, v->maker)->phase == PHASE_FORWARD && !chain_same_round(&as->t->chain, v->maker, o))
            c.entry = bytes_of(as, op->arg[k]);
    }
    return c;
}

/* The cuts of all ops of the graph, as of the ops that they are like. */
static void cut_all(Asking *as, const Layout *given, const uint8_t *choice)
{
    const UnitTable *t = as->t;
    for (uint32_t i = 0; i < t->nop; i++)
        if (choice)
            cut_op(as, i, choice[i]);
    for (uint32_t o = 0; o < t->q->graph->nop; o++) {
        if (t->q->graph->op[o].phase != PHASE_FORWARD || t->index[o] == NOTHING)
            continue;
        memcpy(as->l->cut[o], given ? given->cut[o] : as->l->cut[t->op[t->index[o]].i], sizeof *as->l->cut);
        place_results(as, (OpId){o});
    }
}

static void add_option(Asking *as, const Layout *given, const uint8_t *choice)
{
    UnitTable *t = as->t;
    bool *read = read_by_backward(as->arena, t->q->graph);
    PieceCost *op = NEWN(as->arena, PieceCost, t->nop + 1);
    Least *least = NEWN(as->arena, Least, t->nop + 1), sum;
    Option o = {0};
    cut_all(as, given, choice);
    for (uint32_t i = 0; i < t->nop; i++) {
        op[i] = cost_of_op(as, i, read);
        least[i] = as->overlaps ? price_both(as, i, true) : (Least){op[i].forward, op[i].backward};
    }
    if (choice) {
        o.choice = NEWN(t->arena, uint8_t, t->nop + 1);
        memcpy(o.choice, choice, t->nop);
    }
    costs_of_pieces(t, op, &o);
    o.least = least_of_pieces(t, least, &sum);
    PUSH(t->arena, as->u->option, as->u->noption, o);
}

/* ---- ways of the dynamic program ---- */

static PieceCost from_part(const PartCost *c)
{
    return (PieceCost){(double)c->forward, (double)c->backward, (double)c->again, (double)c->saved, (double)c->entry, (double)c->params, (double)c->shared};
}

/* What a part before a repeat does more, to bring to its first round what that reads. */
static void add_before(const UnitTable *t, const Way *w, Option *o)
{
    uint32_t first = 0;
    for (uint32_t p = 0; p < t->chain.npart; p++) {
        const Segment *part = &t->chain.part[p];
        double forward = (double)w->part[p].forward, backward = (double)w->part[p].backward;
        uint32_t last = NOTHING;
        for (uint32_t k = first; k < first + part->nop; k++) {
            forward -= (double)w->op[k].forward;
            backward -= (double)w->op[k].backward;
        }
        first += part->nop;
        for (uint32_t i = 0; i < t->pieces.n; i++)
            if (t->pieces.piece[i].part == p)
                last = i;
        if (last == NOTHING)
            continue;
        PieceCost more = {.forward = forward, .backward = backward};
        add(&o->piece[last], &more);
        add(&o->all, &more);
    }
}

static Option option_of(Asking *as, const Way *w)
{
    UnitTable *t = as->t;
    PieceCost *op = NEWN(as->arena, PieceCost, t->nop + 1);
    Least *least = NEWN(as->arena, Least, t->nop + 1), sum;
    Option o = {.choice = NEWN(t->arena, uint8_t, t->nop + 1)};
    memcpy(o.choice, w->choice, t->nop);
    for (uint32_t i = 0; i < t->nop; i++) {
        op[i] = from_part(&w->op[i]);
        if (as->u->priced) {
            least[i] = as->u->priced[i][w->choice[i]];
            continue;
        }
        cut_op(as, i, w->choice[i]);
        least[i] = price_alone(as, i);
    }
    costs_of_pieces(t, op, &o);
    add_before(t, w, &o);
    for (uint32_t i = 0; i < t->pieces.n; i++) {
        double entry = (double)w->part[t->pieces.piece[i].part].entry;
        o.all.entry += entry - o.piece[i].entry;
        o.piece[i].entry = entry;
    }
    o.least = least_of_pieces(t, least, &sum);
    return o;
}

/* Whether two options that follow each other are worth a look each. */
static bool differs(const Option *x, const Option *y)
{
    return y->all.params < 0.98 * x->all.params || y->all.saved < 0.98 * x->all.saved;
}

static bool splits_any(const UnitTable *t, const Way *w)
{
    for (uint32_t i = 0; i < t->nop; i++)
        if (w->choice[i])
            return true;
    return false;
}

/* Several good ways, from the fastest to the leanest. */
static void add_ways(Asking *as, const Layout *given)
{
    Goal goal = as->u->goal;
    Intra in;
    goal.width = WIDTH;
    goal.closed = given != NULL;
    goal.byte_ns = given ? 0 : goal.byte_ns;
    goal.recomputes = !given && as->t->may_recompute;
    intra_solve(as->t->arena, as->pricer, &as->t->chain, goal, given, &in);
    as->cut = in.cut;
    as->ncut = in.ncut;
    as->t->why_not = in.why_not;
    for (uint32_t i = 0; i < in.nway; i++) {
        if (!given && !splits_any(as->t, &in.way[i]))
            continue;
        Option o = option_of(as, &in.way[i]);
        if (in.way[i].seed || as->u->noption == 0 || differs(&as->u->option[as->u->noption - 1], &o))
            PUSH(as->t->arena, as->u->option, as->u->noption, o);
    }
    if (given)
        for (uint32_t i = 0; i < as->u->noption; i++)
            as->u->option[i].choice = NULL;
}

/* ---- all options ---- */

static void read_choices(Asking *as)
{
    const UnitTable *t = as->t;
    Intra *in = &as->u->choices;
    if (!in->cut) {
        *in = (Intra){.chain = &t->chain, .cut = NEWN(t->arena, CutChoice *, t->nop + 1), .ncut = NEWN(t->arena, uint32_t, t->nop + 1)};
        for (uint32_t i = 0; as->tp_open && i < t->nop; i++)
            in->ncut[i] = splits_choices(t->arena, as->l, &as->plan, t->op[i], &in->cut[i]);
    }
    as->cut = in->cut;
    as->ncut = in->ncut;
}

/* How many ways there are, at most EVERY_WAY + 1. */
static uint32_t count_ways(const Asking *as)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < as->t->nop && n <= EVERY_WAY; i++)
        n *= as->ncut[i] + 1;
    return n <= EVERY_WAY ? n : EVERY_WAY + 1;
}

static void add_every_way(Asking *as, uint32_t ways)
{
    uint8_t *choice = NEWN(as->arena, uint8_t, as->t->nop + 1);
    for (uint32_t w = 1; w < ways; w++) {                /* 0: nothing is split, which leaves tp nothing to do */
        uint32_t rest = w;
        for (uint32_t i = 0; i < as->t->nop; i++) {
            choice[i] = (uint8_t)(rest % (as->ncut[i] + 1));
            rest /= as->ncut[i] + 1;
        }
        add_option(as, NULL, choice);
    }
    as->u->every = true;
}

/* Splits that rules give: one option. */
static void add_given(Asking *as)
{
    Layout given;
    Diags *said = diags_new(as->t->sources);
    if (as->l->grid.n == 0) {
        add_option(as, NULL, NULL);
    } else if (layout_read(as->arena, said, as->t->q->graph, &as->plan, &given) == OK) {
        add_ways(as, &given);
        if (as->u->noption == 0)
            add_option(as, &given, NULL);
        as->u->noption = 1;
    }
    as->u->every = true;
}

void units_ask(const UnitTable *t, Unit *u, const Config *c)
{
    if (u->goal.micro > 0)
        return;
    const Goal *alike = units_goal(t, u);
    u->goal = alike ? *alike : goal_of(t->q, c, u->sum.forward + u->sum.backward);
}

void units_solve(UnitTable *t, Unit *u, const Config *c, uint32_t stage)
{
    Asking as;
    if (u->solved)
        return;
    u->solved = true;
    units_ask(t, u, c);
    if (!u->legal || units_take_options(t, u) || !begin_asking(&as, t, u, c->mesh, stage))
        return;
    read_choices(&as);
    uint32_t ways = count_ways(&as);
    if (!as.tp_open)
        add_given(&as);
    else if (ways <= EVERY_WAY)
        add_every_way(&as, ways);
    else
        add_ways(&as, NULL);
    end_asking(&as);
}

/* ---- least times ---- */

/* Sums over pieces, and of them what runs again when a round is recomputed. */
static void keep_least(UnitTable *t, Unit *u, const Least *op)
{
    u->least = least_of_pieces(t, op, &u->sum);
    u->again = NEWN(t->arena, double, t->pieces.n + 1);
    for (uint32_t i = 0; i < t->pieces.n; i++) {
        const Piece *p = &t->pieces.piece[i];
        for (uint32_t o = p->first.i; o < p->first.i + p->nop; o++)
            u->again[i] += t->again[o] ? op[t->index[o]].forward : 0;
    }
}

/* The least over all cuts of each op. */
static void find_least(Asking *as)
{
    UnitTable *t = as->t;
    Least *op = NEWN(as->arena, Least, t->nop + 1);
    read_choices(as);
    as->u->priced = NEWN(t->arena, Least *, t->nop + 1);
    for (uint32_t i = 0; i < t->nop; i++) {
        as->u->priced[i] = NEWN(t->arena, Least, as->ncut[i] + 1);
        for (uint32_t k = 0; k <= as->ncut[i]; k++) {
            cut_op(as, i, k);
            Least ns = as->u->priced[i][k] = price_alone(as, i);
            op[i].forward = k == 0 || ns.forward < op[i].forward ? ns.forward : op[i].forward;
            op[i].backward = k == 0 || ns.backward < op[i].backward ? ns.backward : op[i].backward;
        }
    }
    keep_least(t, as->u, op);
}

/* With splits that rules give, those are the only ones. */
static void find_given_least(Asking *as)
{
    UnitTable *t = as->t;
    Layout given;
    Least *op = NEWN(as->arena, Least, t->nop + 1);
    read_choices(as);
    if (layout_read(as->arena, t->said, t->q->graph, &as->plan, &given) != OK) {
        as->u->legal = false;
        return;
    }
    for (uint32_t i = 0; i < t->nop; i++) {
        memcpy(as->l->cut[t->op[i].i], given.cut[t->op[i].i], sizeof *as->l->cut);
        op[i] = price_alone(as, i);
    }
    keep_least(t, as->u, op);
}

static UnitKey key_of(const UnitTable *t, const Config *c, uint32_t stage)
{
    const Mesh *m = c->mesh;
    uint32_t ranks = t->d->ndevices / (uint32_t)m->size[AXIS_pp];
    return (UnitKey){.tp = m->size[AXIS_tp], .cp = m->size[AXIS_cp], .micro = c->micro * m->size[AXIS_dp], .tp_stride = m->tp_stride,
                     .cp_stride = m->cp_stride, .kind = t->q->cluster->kind[m->device[stage * ranks]]};
}

static bool same_key(const UnitKey *x, const UnitKey *y)
{
    return x->tp == y->tp && x->cp == y->cp && x->micro == y->micro && x->tp_stride == y->tp_stride && x->cp_stride == y->cp_stride && x->kind == y->kind;
}

Unit *units_find(UnitTable *t, const Config *c, uint32_t stage)
{
    UnitKey key = key_of(t, c, stage);
    Asking as;
    for (uint32_t i = 0; i < t->nunit; i++)
        if (same_key(&t->unit[i]->key, &key))
            return t->unit[i];
    Unit *u = NEW(t->arena, Unit);
    u->key = key;
    u->lies = units_lies(t, &key, c->mesh, stage);
    PUSH(t->arena, t->unit, t->nunit, u);
    if (units_take_least(t, u))
        return u;
    u->legal = begin_asking(&as, t, u, c->mesh, stage);
    if (!u->legal)
        return u;
    if (!as.tp_open && as.l->grid.n > 0)
        find_given_least(&as);
    else
        find_least(&as);
    end_asking(&as);
    return u;
}

const Unit *units_like(const UnitTable *t, const Unit *u)
{
    const Unit *like = NULL;
    double least = 0;
    for (uint32_t i = 0; i < t->nunit; i++) {
        const Unit *x = t->unit[i];
        UnitKey k = x->key;
        k.micro = u->key.micro;
        if (!same_key(&k, &u->key) || x->noption == 0)
            continue;
        double times = (double)x->key.micro / (double)u->key.micro;
        times = times < 1 ? 1 / times : times;
        if (!like || times < least) {
            like = x;
            least = times;
        }
    }
    return like;
}

uint32_t units_rules(Arena *a, const Unit *u, const Option *o, Rule **out)
{
    *out = NULL;
    if (!o->choice)
        return 0;
    Way w = {.choice = o->choice};
    return splits_of(a, &u->choices, &w, out);
}
