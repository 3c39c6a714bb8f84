/* Simulate: programs and a machine made into lanes, and what came out of following them. */
#include "codegen/simulate.h"

#include <assert.h>
#include <string.h>

#include "codegen/events.h"

enum { NOTHING = UINT32_MAX };

/* A call repeated more often than this has a recipe of few nodes. */
enum { SHORT_FROM = 3 };

typedef struct Sim {
    Arena         *arena;
    const Cluster *cl;
    const Plan    *plan;
    const Profile *profile;
    Program *const *rank;
    CostModel     *cost;
    Events         events;
    uint32_t       stages, ranks;     /* ranks: of a stage */
    bool           beyond;            /* what can be counted */
} Sim;

static const Device *device_of(const Sim *s, uint32_t rank)
{
    return &s->cl->device[s->cl->kind[s->plan->devices[rank]]];
}

/* ---- costs of a stage ---- */

static uint32_t count_calls(const Program *p, uint32_t proc)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < p->ncall; c++)
        n += p->call[c].proc == proc;
    return n;
}

/* Take the longer of two ranks' instructions: those of other kinds of devices. */
static void add_costs(Sim *s, const Program *p, Cost *cost)
{
    GroupCost *groups = cost_groups(s->cost, p);
    for (uint32_t k = 0; k < p->nproc; k++) {
        bool called = count_calls(p, k) > 0;
        for (uint32_t i = p->proc[k].first; i < p->proc[k].end && called; i++) {
            Cost c = cost_of(s->cost, p, groups, &p->instr[i]);
            if (c.ns > cost[i].ns)
                cost[i] = c;
        }
    }
}

/* Whether the host issues an instruction in each call of its procedure. */
static bool is_issued(const Sim *s, const Instr *in)
{
    return in->when == WHEN_ALWAYS && !(op_info[in->op].flags & OPF_VIEW) && (in->op != OP_transpose || s->profile->packs);
}

/* Seconds the host takes to issue an instruction. */
static double issue_seconds(const Sim *s, const Program *p, const Instr *in)
{
    bool meets = s->stages > 1 && in->stream == STREAM_collective;
    return s->profile->issue + (meets ? s->profile->issue_rank * (double)p->group[in->group].n : 0);
}

/* What a host issues without waiting: seconds of it, of the device meanwhile, and how many instructions. */
typedef struct Ahead { double host; int64_t busy; uint32_t issued; } Ahead;

static void count_ahead(const Sim *s, const Program *p, const Proc *proc, const Cost *cost, Ahead *a)
{
    for (uint32_t i = proc->first; i < proc->end; i++)
        if (is_issued(s, &p->instr[i])) {
            a->host += issue_seconds(s, p, &p->instr[i]);
            a->busy += cost[i].ns;
            a->issued++;
        }
}

/* Each instruction takes its part of what the device waits for the host. */
static void add_lack(const Sim *s, const Program *p, const Proc *proc, const Ahead *a, Cost *cost)
{
    int64_t lack = (int64_t)(a->host * 1e9) - a->busy, more = a->issued ? lack / a->issued : 0;
    for (uint32_t i = proc->first; i < proc->end && more > 0; i++)
        if (is_issued(s, &p->instr[i])) {
            cost[i].ns += more;
            cost[i].launch += (double)more * 1e-9;
            cost[i].bound = cost[i].launch > cost[i].link + cost[i].compute + cost[i].memory ? BOUND_LAUNCH : cost[i].bound;
        }
}

static bool is_micro(const Proc *p)
{
    return p->kind == PROC_forward || p->kind == PROC_backward;
}

/* The host goes ahead of the device, which waits for it where the instructions of a procedure together take less than
 * issuing them; from forward it goes on to backward, where it need not wait for another stage. */
static void add_host(const Sim *s, const Program *p, Cost *cost)
{
    Ahead *ahead = NEWN(s->arena, Ahead, p->nproc + 1);
    for (uint32_t k = 0; k < p->nproc; k++)
        for (uint32_t j = 0; j < p->nproc; j++)
            if (j == k || (s->stages == 1 && is_micro(&p->proc[k]) && is_micro(&p->proc[j])))
                count_ahead(s, p, &p->proc[j], cost, &ahead[k]);
    for (uint32_t k = 0; k < p->nproc && (s->profile->issue > 0 || s->profile->issue_rank > 0); k++)
        add_lack(s, p, &p->proc[k], &ahead[k], cost);
}

/* Whether all sums over the calls of a step can be counted. */
static bool can_count(const Program *p, const Cost *cost)
{
    double sum = 0;
    for (uint32_t k = 0; k < p->nproc; k++) {
        double calls = (double)count_calls(p, k);
        for (uint32_t i = p->proc[k].first; i < p->proc[k].end; i++) {
            sum += calls * (double)cost[i].ns;
            if (cost[i].ns >= COST_MOST)
                return false;
        }
    }
    return sum < (double)SIMULATE_MOST / 4;          /* add_lack() and the sharing of processors make them longer */
}

static Cost *stage_costs(Sim *s, uint32_t stage)
{
    const Program *first = s->rank[stage * s->ranks];
    Cost *cost = NEWN(s->arena, Cost, first->ninstr + 1);
    for (uint32_t i = 0; i < s->ranks; i++) {
        const Program *p = s->rank[stage * s->ranks + i];
        if (p && (i == 0 || (device_of(s, p->rank) != device_of(s, first->rank) && p->ninstr == first->ninstr)))
            add_costs(s, p, cost);
    }
    if (!can_count(first, cost)) {
        s->beyond = true;
        memset(cost, 0, first->ninstr * sizeof *cost);
    }
    add_host(s, first, cost);
    return cost;
}

/* ---- sharing ---- */

/* The innermost level with processors or memory to share that a device is below; nlevel: none. */
static uint32_t sharing_level(const Sim *s, uint32_t device)
{
    const Cluster *cl = s->cl;
    uint32_t l = 0, unit = device;
    for (; l < cl->nlevel; l++) {
        uint32_t of = links_unit(&s->cost->links, l, device);
        if (of != unit && (cl->level[l].cores > 0 || cl->level[l].bandwidth > 0))
            break;
        unit = of;
    }
    return l;
}

/* What ranks of all stages ask for of the domain that a stage's first device is in. */
static void add_domain(Sim *s, uint32_t stage, uint32_t level)
{
    Events *e = &s->events;
    uint32_t unit = links_unit(&s->cost->links, level, s->plan->devices[stage * s->ranks]);
    Domain d = {.cores = s->cl->level[level].cores, .bandwidth = s->cl->level[level].bandwidth};
    d.threads = NEWN(s->arena, double, s->stages);
    d.bytes = NEWN(s->arena, double, s->stages);
    d.comm_threads = NEWN(s->arena, double, s->stages);
    d.comm_bytes = NEWN(s->arena, double, s->stages);
    for (uint32_t r = 0; r < s->plan->ndevices; r++) {
        if (links_unit(&s->cost->links, level, s->plan->devices[r]) != unit)
            continue;
        const Device *of = device_of(s, r);
        double threads = of->threads > 0 ? of->threads : 1;
        d.threads[r / s->ranks] += threads;
        d.bytes[r / s->ranks] += of->bandwidth;
        d.comm_threads[r / s->ranks] += of->comm_threads;
        d.comm_bytes[r / s->ranks] += of->comm_threads * of->bandwidth / threads;
    }
    e->lane[stage].domain = e->ndomain;
    PUSH(s->arena, e->domain, e->ndomain, d);
}

/* ---- lanes ---- */

static bool has_own_queue(const Recipe *r, Stream q)
{
    return r->nin_queue[q] > 0;
}

static bool is_last(const Program *p, const Call *c)
{
    return c->micro + (int64_t)1 == p->microbatches;
}

/* Recipes of the calls: one for all of a procedure but the last micro-batch's. */
static void make_recipes(const Sim *s, Making *m, Lane *l)
{
    const Program *p = l->p;
    Recipe **known = NEWN(s->arena, Recipe *, 2 * p->nproc);
    l->recipe = NEWN(s->arena, Recipe *, p->ncall + 1);
    for (uint32_t c = 0; c < p->ncall; c++) {
        uint32_t proc = p->call[c].proc;
        Recipe **r = &known[2 * proc + is_last(p, &p->call[c])];
        if (!*r) {
            *r = recipe_full(m, &p->call[c]);
            if (l->domain == NOTHING && !is_last(p, &p->call[c]) && count_calls(p, proc) > SHORT_FROM && !has_own_queue(*r, STREAM_gradient))
                *r = recipe_short(m, *r);
        }
        l->recipe[c] = *r;
    }
}

/* For each call the latest ones before it, by procedure. */
static void find_latest(const Sim *s, Lane *l)
{
    const Program *p = l->p;
    uint32_t slots = 1;
    for (uint32_t c = 0; c < p->ncall; c++)
        slots = p->call[c].slot >= slots ? p->call[c].slot + 1 : slots;
    uint32_t *any = NEWN(s->arena, uint32_t, p->nproc), *of_slot = NEWN(s->arena, uint32_t, (size_t)slots * p->nproc);
    memset(any, 0xFF, p->nproc * sizeof *any);
    memset(of_slot, 0xFF, (size_t)slots * p->nproc * sizeof *of_slot);
    l->latest = NEWN(s->arena, uint32_t, (size_t)p->ncall * p->nproc + 1);
    l->latest_slot = NEWN(s->arena, uint32_t, (size_t)p->ncall * p->nproc + 1);
    for (uint32_t c = 0; c < p->ncall; c++) {
        uint32_t *slot = &of_slot[p->call[c].slot * p->nproc];
        memcpy(&l->latest[c * p->nproc], any, p->nproc * sizeof *any);
        memcpy(&l->latest_slot[c * p->nproc], slot, p->nproc * sizeof *slot);
        any[p->call[c].proc] = slot[p->call[c].proc] = c;
    }
}

static void make_lane(Sim *s, uint32_t stage)
{
    Lane *l = &s->events.lane[stage];
    const Program *p = s->rank[stage * s->ranks];
    const Device *d = device_of(s, p->rank);
    uint32_t level = sharing_level(s, s->plan->devices[p->rank]);
    *l = (Lane){.p = p, .cost = stage_costs(s, stage), .domain = NOTHING, .courier = d->comm_threads > 0};
    if (level < s->cl->nlevel)
        add_domain(s, stage, level);
    Making m = making_new(s->arena, p, l->cost, s->plan, s->profile, d, &s->events, stage);
    l->proc_of = m.proc_of;
    make_recipes(s, &m, l);
    find_latest(s, l);
    l->base = NEWN(s->arena, uint32_t, p->ncall + 1);
    for (uint32_t c = 0; c < p->ncall; c++)
        l->base[c + 1] = l->base[c] + l->recipe[c]->nnode;
    l->done = NEWN(s->arena, int64_t, l->base[p->ncall] + 1);
    memset(l->done, 0xFF, l->base[p->ncall] * sizeof *l->done);
    l->time = NEWN(s->arena, CallTime, p->ncall + 1);
}

/* ---- results ---- */

/* When each instruction of a procedure starts, where its call runs alone. */
static void time_instructions(Making *m, const Lane *l, const Call *call, int64_t *at)
{
    Recipe *r = recipe_full(m, call);
    int64_t *start = NEWN(m->arena, int64_t, r->nnode + 1), *end = NEWN(m->arena, int64_t, r->nnode + 1);
    Lane alone;
    recipe_alone(m, r, start, end, &alone);
    for (uint32_t k = 0; k < r->nnode; k++) {
        int64_t t = start[k];
        for (uint32_t i = r->node[k].first; i < r->node[k].end; i++) {
            at[i] = t;
            t += l->cost[i].ns;
        }
    }
}

int64_t *simulate_instructions(Arena *a, const Cluster *cl, const Plan *plan, const Profile *profile, const Program *p, const StageTimes *st)
{
    int64_t *at = NEWN(a, int64_t, p->ninstr + 1);
    memset(at, 0xFF, p->ninstr * sizeof *at);
    Events events = {.arena = a};
    const Device *d = &cl->device[cl->kind[plan->devices[p->rank]]];
    Lane l = {.p = p, .cost = st->cost};
    Making m = making_new(a, p, st->cost, plan, profile, d, &events, 0);
    for (uint32_t c = 0; c < p->ncall; c++)
        if (c == 0 || at[p->proc[p->call[c].proc].first] < 0 || is_last(p, &p->call[c]))
            time_instructions(&m, &l, &p->call[c], at);
    return at;
}

static void stage_times(const Lane *l, int64_t extra, StageTimes *out)
{
    *out = (StageTimes){.slowed = l->spent.ns[SPENT_SLOWED], .bubble = l->bubble, .extra = extra, .call = l->time, .cost = l->cost};
    memcpy(out->by_class, l->spent.ns, sizeof out->by_class);
    memcpy(out->exposed, &l->spent.ns[SPENT_EXPOSED], sizeof out->exposed);
    memcpy(out->hidden, l->spent.hidden, sizeof out->hidden);
    for (uint32_t c = 0; c < l->p->ncall; c++) {
        if (l->time[c].start < 0)                    /* an empty procedure */
            l->time[c].start = l->time[c].end = c > 0 ? l->time[c - 1].end : 0;
        if (l->p->proc[l->p->call[c].proc].kind == PROC_update)
            out->update += l->time[c].end - l->time[c].start - l->time[c].idle;
    }
}

/* FLOPs of forward instructions that backward runs again, on all ranks of a step. */
static double again(const Sim *s)
{
    double flops = 0;
    for (uint32_t stage = 0; stage < s->stages; stage++) {
        const Program *p = s->rank[stage * s->ranks];
        for (uint32_t k = 0; k < p->nproc; k++)
            for (uint32_t i = p->proc[k].first; i < p->proc[k].end && p->proc[k].kind == PROC_backward; i++)
                if (op_info[p->instr[i].op].flags & OPF_MATMUL && strncmp(p->instr[i].path, "grad:", 5) != 0)
                    flops += p->instr[i].flops * (double)p->microbatches * s->ranks;
    }
    return flops;
}

static void utilisation(const Sim *s, Simulation *out)
{
    const Program *p = s->rank[0];
    double peak = 0;
    for (uint32_t r = 0; r < s->plan->ndevices; r++)
        peak += device_of(s, r)->peak[p->precision.compute];
    double can = peak * (double)out->ns * 1e-9;
    if (!(can > 0))
        return;
    out->mfu = p->model_flops / can;
    out->mfu_causal = p->model_flops_causal / can;
    out->hfu = (p->model_flops + again(s)) / can;
}

/* A model without a loss has no step: its forward pass is called for each micro-batch. */
static Program *with_calls(Arena *a, const Program *p)
{
    Program *q = NEW(a, Program);
    *q = *p;
    q->call = NULL;
    for (uint32_t m = 0; m < (uint32_t)p->microbatches; m++)
        for (uint32_t k = 0; k < p->nproc; k++)
            if (p->proc[k].kind == PROC_evaluate)
                PUSH(a, q->call, q->ncall, ((Call){.proc = k, .micro = m}));
    return q;
}

static Program *const *called(Arena *a, const Plan *plan, Program *const *rank)
{
    Program **all = NEWN(a, Program *, plan->ndevices);
    for (uint32_t i = 0; i < plan->ndevices; i++)
        all[i] = rank[i] && rank[i]->ncall == 0 ? with_calls(a, rank[i]) : rank[i];
    return all;
}

Simulation simulate(Arena *a, const Cluster *cl, const Plan *plan, const Profile *profile, Program *const *rank)
{
    Sim s = {.arena = a, .cl = cl, .plan = plan, .profile = profile, .rank = called(a, plan, rank), .stages = (uint32_t)plan->mesh[AXIS_pp]};
    Simulation out = {.nstage = s.stages, .stage = NEWN(a, StageTimes, s.stages)};
    int64_t extra = (int64_t)((profile->step + profile_stall(profile, plan->ndevices)) * 1e9 + 0.5);
    s.ranks = plan->ndevices / s.stages;
    s.cost = cost_model(a, cl, plan, profile);
    s.events = (Events){.arena = a, .lane = NEWN(a, Lane, s.stages), .nlane = s.stages, .slow_compute = profile->slow_compute,
                        .slow_link = profile->slow_link};
    for (uint32_t i = 0; i < s.stages; i++)
        make_lane(&s, i);
    out.ns = events_run(&s.events) + extra;
    for (uint32_t i = 0; i < s.stages; i++)
        stage_times(&s.events.lane[i], extra, &out.stage[i]);
    if (s.beyond)
        out.ns = SIMULATE_MOST;
    else
        utilisation(&s, &out);
    return out;
}
