/* Faster: see faster.h.  Most plans need no search to know: when so few devices would take longer at the best
 * efficiency that they have, or when no configuration has a bound below the plan's time. */
#include "planner/faster.h"

#include <stdlib.h>
#include <string.h>

/* So much less is judged than for the plan itself, and nothing to the end. */
enum { SHARE = 10 };

/* Of the devices' peaks. */
static double peaks(const PlanRequest *q, const uint32_t *device, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += q->cluster->device[q->cluster->kind[device[i]]].peak[q->graph->precision.compute];
    return sum;
}

static double most_of(const Curve *c)
{
    double most = c->npoint ? 0 : 1;
    for (uint32_t i = 0; i < c->npoint; i++)
        most = c->point[i].fraction > most ? c->point[i].fraction : most;
    return most;
}

/* The most of its peak that any kind of device reaches; curves of memory go beyond a peak. */
static double best_efficiency(const Cluster *cl)
{
    double best = 0;
    for (uint32_t k = 0; k < cl->ndevice; k++) {
        const Device *d = &cl->device[k];
        double most = most_of(&d->efficiency);
        for (uint32_t i = 0; i < d->nof_op; i++)
            most = most_of(&d->of_op[i].curve) > most ? most_of(&d->of_op[i].curve) : most;
        best = most > best ? most : best;
    }
    return best < 1 ? best : 1;
}

static int ascending(const void *x, const void *y)
{
    const uint32_t *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

/* The devices are given, and their mesh is open. */
static Rules *on_devices(Arena *a, const uint32_t *device, uint32_t n)
{
    Rules *r = NEW(a, Rules);
    Rule mesh = {.kind = RULE_MESH, .axis = AXIS_dp, .choice.any = true}, devices = {.kind = RULE_SETTING, .name = "devices"};
    for (uint32_t i = 0; i < n; i++)
        PUSH(a, devices.choice.value, devices.choice.nvalue, device[i]);
    PUSH(a, r->rule, r->nrule, mesh);
    PUSH(a, r->rule, r->nrule, devices);
    return r;
}

/* The best plan by rules, if one is found that takes less than `below`. */
static bool is_found(const Weigher *w, const Plan *p, const Rules *rules, int64_t below, Faster *out)
{
    Arena *scratch = arena_new("scratch");
    PlanRequest q = *w->request;
    SearchLimits limits = search_limits;
    Plan *plan;
    Programs programs;
    Search found;
    limits.below = (double)below;
    limits.effort /= SHARE;
    limits.exhaustive = 0;
    q.rules = rules;
    q.use = USE_PLAN;
    bool faster = planner_search(scratch, diags_new(w->sources), &q, limits, &plan, &programs, &found) == OK && found.judged > 0 && found.sim.ns < below;
    if (faster) {
        const Rules *pins = pins_of(scratch, q.graph, plan);
        *out = (Faster){.ns = found.sim.ns, .layout = pins_text(w->arena, pins), .change = difference_of(w->arena, pins_of(scratch, q.graph, p), pins)};
    }
    arena_free(scratch);
    return faster;
}

/* What a step has to take less than. */
static int64_t clearly_below(const Simulation *sim)
{
    return sim->ns - sim->ns / TIE;
}

bool faster_on_fewer(const Weigher *w, const Plan *p, const Simulation *sim, Faster *out)
{
    const PlanRequest *q = w->request;
    uint32_t *device = NEWN(w->arena, uint32_t, p->ndevices);
    int64_t below = clearly_below(sim);
    double work = sim->mfu_causal * peaks(q, p->devices, p->ndevices), best = best_efficiency(q->cluster);
    *out = (Faster){0};
    memcpy(device, p->devices, p->ndevices * sizeof *device);
    qsort(device, p->ndevices, sizeof *device, ascending);
    for (uint32_t n = p->ndevices / 2; n > 0 && work < best * peaks(q, device, n); n /= 2) {
        PlanUse use;
        const Rules *fewer = on_devices(w->arena, device, n), *rules = asked_about(w, p, fewer, &use);
        if (!is_found(w, p, rules, below, out))
            continue;
        below = out->ns;
        out->devices = device;
        out->n = n;
        out->gave_way = rules->nrule < q->rules->nrule + fewer->nrule && !rules_resolved(q->rules);
    }
    return out->n > 0;
}

bool faster_with_more(const Weigher *w, const Plan *p, const Simulation *sim, Faster *out)
{
    const Rules *rules = w->request->rules;
    return !rules_resolved(rules) && is_found(w, p, rules, clearly_below(sim), out);
}
