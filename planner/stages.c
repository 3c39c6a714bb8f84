/* Stages: see stages.h. */
#include "planner/stages.h"

#include <float.h>
#include <string.h>

#include "planner/goal.h"
#include "planner/states.h"

/* ---- what a stage has ---- */

static const Option *option_at(const Staging *g, uint32_t stage)
{
    const Unit *u = g->unit[stage];
    return &u->option[g->option < u->noption ? g->option : u->noption - 1];
}

/* Sums over the pieces of one stage. */
typedef struct Stage {
    PieceCost cost;                   /* of a micro-batch, nothing recomputed */
    Least     least;
    double    weights;                /* trainable elements that no other stage counts */
    uint32_t  rounds;
    double    round_again, round_saved;              /* of one round, on average: ns more, and bytes less, where it is recomputed */
    double    least_again;            /* ns: of the round that takes least more */
    double    largest;                /* bytes kept by the piece that keeps most: what is worked on is of that size */
} Stage;

static void extend(const Staging *g, Stage *s, const Option *o, uint32_t piece)
{
    const PieceCost *c = &o->piece[piece];
    s->cost.forward += c->forward;
    s->cost.backward += c->backward;
    s->cost.saved += c->saved;
    s->cost.params += c->params;
    s->cost.shared += c->shared;
    s->least.forward += o->least[piece].forward;
    s->least.backward += o->least[piece].backward;
    s->weights += g->t->weights[piece];
    s->largest = c->saved > s->largest ? c->saved : s->largest;
    if (!g->t->pieces.piece[piece].round)
        return;
    double saved = c->saved - c->entry, n = ++s->rounds;
    s->least_again = n == 1 || c->again < s->least_again ? c->again : s->least_again;
    s->round_again += (c->again - s->round_again) / n;
    s->round_saved += ((saved > 0 ? saved : 0) - s->round_saved) / n;
}

/* ---- estimates ---- */

static const Device *device_of(const Staging *g, uint32_t stage)
{
    return &g->t->q->cluster->device[g->unit[stage]->key.kind];
}

/* What a stage has, whatever lies on it. */
typedef struct Room { double in_flight, bytes; } Room;       /* micro-batches; bytes of memory */

static Room room_of(const Staging *g, uint32_t stage)
{
    const Device *d = device_of(g, stage);
    return (Room){goal_flight(g->config, stage), (double)(d->memory - d->reserve)};
}

static double bytes_needed(const Staging *g, const Stage *s, const Room *room, double again)
{
    double kept = s->cost.saved - again * s->round_saved;
    return g->state_bytes * s->cost.params + room->in_flight * kept + s->largest + g->more_bytes;
}

/* The fewest rounds that are recomputed for the stage to fit; all, and false, where it does not. */
static bool fewest_again(const Staging *g, const Stage *s, const Room *room, uint32_t *again)
{
    double over = bytes_needed(g, s, room, 0) - room->bytes, each = room->in_flight * s->round_saved;
    *again = 0;
    if (over <= 0)
        return true;
    bool may = g->t->may_recompute && each > 0;
    double n = may ? over / each : 0;
    *again = may ? n >= s->rounds ? s->rounds : (uint32_t)n + 1 : 0;
    return may && *again * each >= over;
}

/* Ranks [first, first + n) of the mesh in the unit of a level that has most of them. */
static uint32_t most_in_unit(const Staging *g, uint32_t level, uint32_t first, uint32_t n)
{
    const uint32_t *device = g->config->mesh->device;
    uint32_t most = 1;
    for (uint32_t i = first; i < first + n; i++) {
        uint32_t here = 0;
        for (uint32_t k = first; k < first + n; k++)
            here += links_unit(&g->t->links, level, device[k]) == links_unit(&g->t->links, level, device[i]);
        most = here > most ? here : most;
    }
    return most;
}

/* Processors that ranks share: threads per processor where all compute, and where those of one stage do; 1 or more. */
static void read_crowding(Staging *g)
{
    const Cluster *cl = g->t->q->cluster;
    uint32_t ranks = g->t->d->ndevices, level = 0;
    g->crowd = g->stage_crowd = 1;
    while (level < cl->nlevel && cl->level[level].cores <= 0)
        level++;
    if (level == cl->nlevel)
        return;
    double threads = device_of(g, 0)->threads > 0 ? device_of(g, 0)->threads : 1, each = threads / cl->level[level].cores;
    double all = each * most_in_unit(g, level, 0, ranks), stage = each * most_in_unit(g, level, 0, ranks / g->stages);
    g->crowd = all > 1 ? all : 1;
    g->stage_crowd = stage > 1 ? stage : 1;
}

/* Of the last backward, the part during which gradients are summed already. */
static const double HIDDEN = 0.9;

/* ns at the end of a step: gradients, as far as backward does not hide them, and the update. */
static double tail_ns(const Staging *g, const Stage *s)
{
    double sums = g->sum_ns * s->cost.params, hidden = g->overlaps ? HIDDEN * s->cost.backward : 0;
    return (sums > hidden ? sums - hidden : 0) + g->end_ns * s->cost.params;
}

typedef struct Sums { double forward, backward, least_forward, least_backward; } Sums;      /* over the stages before */

static double spent(const Stage *s, uint32_t again)
{
    return s->cost.forward + s->cost.backward + again * s->round_again;
}

/* The stage as the one that all wait for: those before it fill the pipeline first. */
static double stage_ns(const Staging *g, const Stage *s, uint32_t stage, uint32_t again, double before)
{
    return before + 2 * stage * g->hop_ns + (double)g->config->micro * g->stage_crowd * spent(s, again) + tail_ns(g, s);
}

/* No program ends before the stage has had all micro-batches, the first of which comes through
 * the stages before it, and the last goes back through them. */
static double stage_bound(const Staging *g, const Stage *s, uint32_t stage, uint32_t again, const Sums *before)
{
    double m = (double)g->config->micro, tp = (double)(g->config->mesh->size[AXIS_tp] * g->config->mesh->size[AXIS_cp]);
    double backward = s->least.backward + (tp == 1 ? again * s->least_again : 0);        /* on one rank nothing of it hides */
    double sums = states_sum_ns(g->t, g->config, s->weights / tp), update = states_update_ns(g->t, device_of(g, stage), s->weights / tp, states_copies(g->t, g->config));
    double all = m * (s->least.forward + backward);
    double last = g->overlaps ? (sums > backward ? sums : backward) : backward + sums;
    double own = before->least_forward + all - backward + last + update, through = before->least_forward + all + before->least_backward;
    return own > through ? own : through;
}

void staging_measure(const Staging *g, Candidate *c)
{
    Sums before = {0};
    double work = 0, ranks = (double)g->t->d->ndevices / g->stages;
    c->bound = c->ns = 0;
    c->bytes = -DBL_MAX;
    for (uint32_t s = 0; s < g->stages; s++) {
        Stage st = {0};
        Room room = room_of(g, s);
        for (uint32_t i = c->begin[s]; i < c->begin[s + 1]; i++)
            extend(g, &st, option_at(g, s), i);
        double ns = stage_ns(g, &st, s, c->again[s], before.forward + before.backward), bound = stage_bound(g, &st, s, c->again[s], &before);
        double over = bytes_needed(g, &st, &room, c->again[s]) - room.bytes;
        c->ns = ns > c->ns ? ns : c->ns;
        c->bound = bound > c->bound ? bound : c->bound;
        c->bytes = over > c->bytes ? over : c->bytes;
        work += ranks * (double)g->config->micro * spent(&st, c->again[s]);
        before.forward += g->stage_crowd * st.cost.forward;
        before.backward += g->stage_crowd * (st.cost.backward + c->again[s] * st.round_again);
        before.least_forward += st.least.forward;
        before.least_backward += st.least.backward;
    }
    work *= g->crowd / (double)g->t->d->ndevices;
    c->ns = g->rate * (c->ns > work ? c->ns : work);
    if (g->t->given_begin)                               /* a rule may cut within a piece */
        c->bound = staging_bound(g->t, g->config);
}

/* ---- bounds of configurations ---- */

/* The least over stages of different kinds of devices. */
static bool least_of_stages(UnitTable *t, const Config *c, Least *out, const Device **fastest)
{
    uint32_t kinds = 0, stages = (uint32_t)c->mesh->size[AXIS_pp];
    *out = (Least){DBL_MAX, DBL_MAX};
    for (uint32_t s = 0; s < stages && (s == 0 || t->q->cluster->ndevice > 1); s++, kinds++) {
        const Unit *u = units_find(t, c, s);
        const Device *d = &t->q->cluster->device[u->key.kind];
        if (!u->legal)
            return false;
        out->forward = u->sum.forward < out->forward ? u->sum.forward : out->forward;
        out->backward = u->sum.backward < out->backward ? u->sum.backward : out->backward;
        *fastest = kinds == 0 || d->bandwidth > (*fastest)->bandwidth ? d : *fastest;
    }
    return true;
}

/* With w_s the time of a micro-batch on stage s, T >= w_1 + .. + w_(s-1) + m w_s for all s; the least T
 * has all of these equal, which makes sum w = T (1 - (1 - 1/m)^pp). */
static double filled(const Config *c, double all)
{
    double left = 1;
    for (int64_t s = 0; s < c->mesh->size[AXIS_pp]; s++)
        left *= 1 - 1 / (double)c->micro;
    return all / (1 - left);
}

/* Ranks that share the processors of the whole machine: what all of them have to do passes through these,
 * `work` ns on each rank of all stages together.  Ends of runs are rounded, by up to half a nanosecond each. */
static double crowded_ns(const UnitTable *t, const Config *c, const Device *d, double work)
{
    const Cluster *cl = t->q->cluster;
    double cores = cl->level[cl->nlevel - 1].cores, threads = d->threads > 0 ? d->threads : 1;
    double ranks = (double)t->d->ndevices, rounded = 0.5 * (double)c->micro * t->q->graph->nop;
    if (cores <= 0 || cl->level[cl->nlevel - 1].ngroup > 1 || cl->ndevice > 1 || threads * ranks <= cores || work <= rounded)
        return 0;
    return threads * ranks / (double)c->mesh->size[AXIS_pp] * (work - rounded) / cores;
}

/* The pipeline is filled; and all stages together have their work, sums and updates to do. */
double staging_bound(UnitTable *t, const Config *c)
{
    Least w;
    const Device *d = NULL;
    if (!least_of_stages(t, c, &w, &d))
        return DBL_MAX;
    double m = (double)c->micro, pp = (double)c->mesh->size[AXIS_pp], weights = 0, all = w.forward + w.backward;
    bool beside = device_overlaps(d);
    for (uint32_t i = 0; i < t->pieces.n; i++)
        weights += t->weights[i];
    weights /= (double)(c->mesh->size[AXIS_tp] * c->mesh->size[AXIS_cp]);
    double update = states_update_ns(t, d, weights, states_copies(t, c)), sums = states_sum_ns(t, c, weights);
    double fill = filled(c, all), together = (m * all + update + (beside ? 0 : sums)) / pp, hidden = ((m - 1) * all + w.forward + sums + update) / pp;
    double bound = fill > together ? fill : together, crowded = crowded_ns(t, c, d, m * all + update);
    bound = bound > hidden ? bound : hidden;
    return bound > crowded ? bound : crowded;
}

double staging_room(UnitTable *t, const Config *c, const RoundNeeds *r, double bound)
{
    const Unit *u = units_find(t, c, 0);
    const Graph *g = t->q->graph;
    const Device *d = &t->q->cluster->device[u->key.kind];
    if (r->rounds == 0 || t->q->cluster->ndevice > 1 || t->given_begin || g->optimizer.kind == OPTIMIZER_NONE)
        return bound;
    const Least *round = &u->least[r->piece];
    double ranks = (double)(u->key.tp * u->key.cp), parts = ranks * (double)u->key.micro, left = filled(c, 1);
    RoomAsked k = {.rounds = r->rounds, .stages = (uint32_t)c->mesh->size[AXIS_pp], .micro = (double)c->micro, .share = 1 / left,
                   .round = round->forward + round->backward, .again = u->again[r->piece], .states = r->weights / ranks * states_bytes(t, c),
                   .kept = r->kept / parts, .entry = r->entry / parts, .room = (double)(d->memory - d->reserve), .gpipe = c->gpipe,
                   .may_recompute = t->may_recompute};
    k.others = u->sum.forward + u->sum.backward - r->rounds * k.round;
    return room_bound(&k, bound);
}

/* The ranks that hold the model together have its states and what enters its rounds; one of them no less than their
 * average.  Where the search says what cp splits, that is no other axis of a weight. */
double staging_lack(const UnitTable *t, const Config *c, const RoundNeeds *r)
{
    const int64_t *size = c->mesh->size;
    const Cluster *cl = t->q->cluster;
    double tp = (double)size[AXIS_tp], ranks = tp * (double)size[AXIS_cp], weights = 0;
    if (cl->ndevice > 1 || t->d->server_rule || t->q->graph->optimizer.kind == OPTIMIZER_NONE)
        return -DBL_MAX;
    for (uint32_t i = 0; i < t->pieces.n; i++)
        weights += t->weights[i];
    double states = states_bytes(t, c) * ((weights - t->positional) / (t->d->context ? tp : ranks) + t->positional / ranks);
    double kept = r->rounds * (t->may_recompute ? r->entry : r->kept) / (ranks * (double)(c->micro * size[AXIS_dp]));
    return (states + kept) / (double)size[AXIS_pp] - (double)(cl->device[0].memory - cl->device[0].reserve);
}

/* ---- cuts ---- */

/* What of a stage's size follows from its weights, of a stage of the usual size. */
static void read_rates(Staging *g)
{
    const Option *o = option_at(g, 0);
    double params = o->all.params / g->stages, bytes = o->piece[g->t->pieces.n > 1].entry;
    g->state_bytes = states_bytes(g->t, g->config);
    g->overlaps = device_overlaps(device_of(g, 0));
    if (params > 0) {
        g->sum_ns = states_sum_ns(g->t, g->config, params) / params;
        g->end_ns = (states_update_ns(g->t, device_of(g, 0), params, states_copies(g->t, g->config)) + states_gather_ns(g->t, g->config, params)) / params;
    }
    if (g->stages > 1)
        g->hop_ns = 1e9 * links_seconds(&g->config->mesh->neighbours, OP_send, bytes);
}

Staging staging_open(Arena *a, UnitTable *t, const Config *c, uint32_t option)
{
    Staging g = {.t = t, .config = c, .option = option, .stages = (uint32_t)c->mesh->size[AXIS_pp], .rate = 1};
    g.unit = NEWN(a, Unit *, g.stages + 1);
    for (uint32_t s = 0; s < g.stages; s++)
        g.unit[s] = s > 0 && t->q->cluster->ndevice == 1 ? g.unit[0] : units_find(t, c, s);
    for (uint32_t s = 1; s < g.stages && g.unit[0]->solved; s++)     /* of other kinds of devices */
        units_solve(t, g.unit[s], c, s);
    if (g.unit[0]->noption > 0)
        read_rates(&g);
    read_crowding(&g);
    return g;
}

/* Of what units like it are estimated to take, a unit takes so much at least. */
static const double ALIKE = 0.9;

/* An option of a unit that has `scale` times the micro-batch and takes `slower` times as long: were all stages
 * equal, so many ns of a micro-batch, with what must be recomputed for it to fit; DBL_MAX: then it does not. */
static double guess_option(const UnitTable *t, const Config *c, const Device *d, const Option *o, double scale, double slower)
{
    double pp = (double)c->mesh->size[AXIS_pp], flight = goal_mean_flight(c), saved = 0, again = 0;
    double over = states_bytes(t, c) * o->all.params + flight * scale * o->all.saved - pp * (double)(d->memory - d->reserve);
    for (uint32_t i = 0; i < t->pieces.n && over > 0 && t->may_recompute; i++)
        if (t->pieces.piece[i].round) {
            saved += flight * scale * (o->piece[i].saved - o->piece[i].entry);
            again += o->piece[i].again;
        }
    double part = over > 0 ? over / (saved + 1) : 0;
    return ALIKE * part > 1 ? DBL_MAX : slower * (o->all.forward + o->all.backward + part * again);
}

double staging_guess(UnitTable *t, const Config *c)
{
    const Unit *u = units_find(t, c, 0), *x = units_like(t, u);
    double all = u->sum.forward + u->sum.backward, least = DBL_MAX;
    if (!x)
        return filled(c, all);
    double scale = (double)x->key.micro / (double)u->key.micro, slower = all / (x->sum.forward + x->sum.backward);
    for (uint32_t i = 0; i < x->noption; i++) {
        double ns = guess_option(t, c, &t->q->cluster->device[u->key.kind], &x->option[i], scale, slower);
        least = ns < least ? ns : least;
    }
    least = least < DBL_MAX ? ALIKE * least : least;
    return least < DBL_MAX ? filled(c, least > all ? least : all) : least;
}

double staging_least(const Staging *g)
{
    const Option *o = option_at(g, 0);
    double all = o->all.forward + o->all.backward, end = g->end_ns * o->all.params / g->stages;
    return g->rate * (filled(g->config, all) + (g->stages == 1 ? end : 0));
}

/* Fill stages from the front as far as `limit` and their memory allow, or, where nothing fits, `limit`
 * alone; whether all pieces found a place.  *limited: with a larger limit they might lie otherwise. */
static bool pack(const Staging *g, double limit, bool fits, Candidate *out, bool *limited)
{
    uint32_t n = g->t->pieces.n, at = 0;
    double before = 0;
    *limited = false;
    for (uint32_t s = 0; s < g->stages; s++) {
        const Option *o = option_at(g, s);
        Room room = room_of(g, s);
        Stage st = {0};
        double ns = 0, own = 0;                          /* with what found a place so far */
        uint32_t first = at, most = n - (g->stages - 1 - s);
        out->begin[s] = first;
        for (uint32_t i = first; i < most; i++) {
            uint32_t again;
            extend(g, &st, o, i);
            bool full = !fewest_again(g, &st, &room, &again) && fits;
            double more = stage_ns(g, &st, s, again, before);
            if (i > first && (full || more > limit)) {
                *limited |= !full;
                break;
            }
            ns = more;
            own = g->stage_crowd * spent(&st, again);
            out->again[s] = again;
            at = i + 1;
        }
        if (ns > limit) {
            *limited = true;
            return false;
        }
        before += own;
    }
    out->begin[g->stages] = n;
    return at == n;
}

/* Of each stage, where cuts are known, as few rounds are recomputed as fit. */
static void fill_again(const Staging *g, Candidate *out)
{
    for (uint32_t s = 0; s < g->stages; s++) {
        Stage st = {0};
        Room room = room_of(g, s);
        for (uint32_t i = out->begin[s]; i < out->begin[s + 1]; i++)
            extend(g, &st, option_at(g, s), i);
        (void)fewest_again(g, &st, &room, &out->again[s]);
    }
}

/* Cuts that rules give: the pieces where stages begin; what is recomputed follows. */
static void as_given(const Staging *g, Candidate *out)
{
    memcpy(out->begin, g->t->given_begin, g->stages * sizeof *out->begin);
    out->begin[g->stages] = g->t->pieces.n;
    fill_again(g, out);
}

/* Limits between which the best one lies, as near as that. */
static const double NEAR = 1.002;

/* The least limit that all pieces find a place below, about. */
static bool pack_best(const Staging *g, bool fits, Candidate *out)
{
    double low = staging_least(g) / g->rate, high = low * 1.05, most = 1e6 * low;
    bool limited;
    while (!pack(g, high, fits, out, &limited)) {
        if (high > most || !limited)
            return false;
        low = high;
        high *= high < 4 * low ? 1.25 : 4;
    }
    while (high > low * NEAR) {
        double middle = (low + high) / 2;
        if (pack(g, middle, fits, out, &limited))
            high = middle;
        else
            low = middle;
    }
    return pack(g, high, fits, out, &limited);
}

static bool has_options(const Staging *g)
{
    for (uint32_t s = 0; s < g->stages; s++)
        if (g->unit[s]->noption == 0)
            return false;
    return true;
}

static Candidate uncut(Arena *a, const Staging *g)
{
    return (Candidate){.config = g->config, .option = g->option, .begin = NEWN(a, uint32_t, g->stages + 1), .again = NEWN(a, uint32_t, g->stages + 1)};
}

/* Bytes of a step between memories that are told apart. */
enum { CLOSE = 64 };

bool staging_leanest(Arena *a, const Staging *g, Candidate *out)
{
    Staging lean = *g;
    double low = -1e15, high = 1e15;                     /* bytes more of each stage: with so many all fits, does not */
    bool limited;
    *out = uncut(a, g);
    if (!has_options(g) || (!g->t->given_begin && g->stages > g->t->pieces.n))
        return false;
    while (!g->t->given_begin && high - low > CLOSE) {
        lean.more_bytes = (low + high) / 2;
        if (pack(&lean, DBL_MAX, true, out, &limited))
            low = lean.more_bytes;
        else
            high = lean.more_bytes;
    }
    lean.more_bytes = g->t->given_begin ? high : low;
    if (g->t->given_begin)
        as_given(&lean, out);
    else if (!pack(&lean, DBL_MAX, true, out, &limited))
        return false;
    staging_measure(g, out);
    return true;
}

bool staging_best(Arena *a, const Staging *g, Candidate *out)
{
    *out = uncut(a, g);
    if (!has_options(g))
        return false;
    if (!g->t->given_begin && (g->stages > g->t->pieces.n || (!pack_best(g, true, out) && !pack_best(g, false, out))))
        return false;
    if (g->t->given_begin)
        as_given(g, out);
    staging_measure(g, out);
    return true;
}

bool staging_recut(Arena *a, const Staging *g, const Candidate *from, uint32_t stage, int by, Candidate *out)
{
    uint32_t at = from->begin[stage] + (uint32_t)by;
    if (g->t->given_begin || at <= from->begin[stage - 1] || at >= from->begin[stage + 1])
        return false;
    *out = uncut(a, g);
    memcpy(out->begin, from->begin, (g->stages + 1) * sizeof *out->begin);
    out->begin[stage] = at;
    fill_again(g, out);
    staging_measure(g, out);
    return true;
}

/* ---- every candidate ---- */

typedef struct Every {
    const Staging *g;
    Candidate      c;
    uint64_t       n, most;
    EachCandidate  each;
    void          *ctx;
    double         bound;             /* of all */
    bool           stop;
} Every;

static uint32_t rounds_of(const Every *e, uint32_t stage)
{
    uint32_t n = 0;
    for (uint32_t i = e->c.begin[stage]; i < e->c.begin[stage + 1]; i++)
        n += e->g->t->pieces.piece[i].round;
    return n;
}

static void every_again(Every *e, uint32_t stage)
{
    if (stage == e->g->stages) {
        if (e->n++ >= e->most) {
            e->stop = true;
        } else if (e->each) {
            staging_measure(e->g, &e->c);
            e->c.bound = e->c.bound > e->bound ? e->c.bound : e->bound;
            e->stop = !e->each(e->ctx, &e->c);
        }
        return;
    }
    uint32_t most = e->g->t->may_recompute ? rounds_of(e, stage) : 0;
    for (uint32_t r = 0; r <= most && !e->stop; r++) {
        e->c.again[stage] = r;
        every_again(e, stage + 1);
    }
}

static void every_cut(Every *e, uint32_t stage, uint32_t first)
{
    uint32_t n = e->g->t->pieces.n;
    if (stage == e->g->stages) {
        e->c.begin[stage] = n;
        every_again(e, 0);
        return;
    }
    for (uint32_t i = first; i + (e->g->stages - stage) <= n && !e->stop; i++) {
        e->c.begin[stage] = i;
        every_cut(e, stage + 1, i + 1);
    }
}

uint64_t staging_each(const Staging *g, uint64_t most, EachCandidate each, void *ctx)
{
    if (!has_options(g))
        return 0;
    uint32_t begin[MAX_STAGES + 1] = {0}, again[MAX_STAGES + 1] = {0};
    Every e = {.g = g, .c = {.config = g->config, .option = g->option, .begin = begin, .again = again}, .most = most, .each = each, .ctx = ctx,
               .bound = staging_bound(g->t, g->config)};
    if (g->t->given_begin) {
        memcpy(begin, g->t->given_begin, g->stages * sizeof *begin);
        every_cut(&e, g->stages, 0);
    } else {
        every_cut(&e, 1, 1);
    }
    return e.n;
}
