/* Fewer: see fewer.h.  Most plans need no search to know: when so few devices would take longer at the best
 * efficiency that they have, or when no configuration on them has a bound below the plan's time. */
#include "planner/fewer.h"

#include <stdlib.h>
#include <string.h>

/* So much less is looked at than for the plan itself. */
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

/* Everything but the devices is open. */
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

/* The best plan on these devices, if one is found that takes less than `below`. */
static bool is_faster(const Weigher *w, const Plan *p, const uint32_t *device, uint32_t n, int64_t below, Fewer *out)
{
    Arena *scratch = arena_new("scratch");
    Weigher here = {scratch, w->sources, w->request};
    PlanRequest q = *w->request;
    SearchLimits limits = search_limits;
    Plan *plan;
    Programs programs;
    Search found;
    limits.below = (double)below;
    limits.effort /= SHARE;
    limits.exhaustive /= SHARE;
    q.rules = asked_about(&here, p, on_devices(scratch, device, n), &q.use);
    bool gave_way = q.rules->nrule < w->request->rules->nrule + 2 && !rules_resolved(w->request->rules);
    bool faster = planner_search(scratch, diags_new(w->sources), &q, limits, &plan, &programs, &found) == OK && found.judged > 0 && found.sim.ns < below;
    if (faster)
        *out = (Fewer){.n = n, .ns = found.sim.ns, .gave_way = gave_way, .layout = pins_text(w->arena, pins_of(scratch, q.graph, plan))};
    arena_free(scratch);
    return faster;
}

bool fewer_devices(const Weigher *w, const Plan *p, const Simulation *sim, Fewer *out)
{
    const PlanRequest *q = w->request;
    uint32_t *device = NEWN(w->arena, uint32_t, p->ndevices);
    int64_t below = sim->ns - sim->ns / TIE;
    double work = sim->mfu_causal * peaks(q, p->devices, p->ndevices), best = best_efficiency(q->cluster);
    *out = (Fewer){0};
    memcpy(device, p->devices, p->ndevices * sizeof *device);
    qsort(device, p->ndevices, sizeof *device, ascending);
    for (uint32_t n = p->ndevices / 2; n > 0 && work < best * peaks(q, device, n); n /= 2)
        if (is_faster(w, p, device, n, below, out))
            below = out->ns;
    out->devices = device;
    return out->n > 0;
}
