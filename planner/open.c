/* Open: see open.h. */
#include "planner/open.h"

#include "planner/splits.h"

/* One way is taken, so none is looked for that is much slower.  A little is left because a step may
 * give back what another one paid. */
static const double SLACK = 1.02;
/* Lean: all weights whole on a rank would cost so many of the fastest steps. */
static const double PRECIOUS = 4;

/* ---- what a weight element costs in a step, beside what is computed with it ---- */

/* Bytes of memory that its update goes over: the gradient for the norm and for the step, the
 * master copy and two moments, read and written. */
static double update_bytes(const Graph *g)
{
    return 2 * (double)dtype_bytes(g->precision.grads) + 6 * (double)dtype_bytes(g->precision.master);
}

/* By a ring over the links of the innermost level: each byte passes twice. */
static double sum_ns(const PlanRequest *q)
{
    return 2e9 * (double)dtype_bytes(q->graph->precision.grads) / q->cluster->level[0].link;
}

static Goal goal_of(const PlanRequest *q, const Decisions *d, int64_t micro)
{
    const Device *device = &q->cluster->device[q->cluster->kind[d->devices[0]]];
    double update = 1e9 * update_bytes(q->graph) / device->bandwidth;
    return (Goal){.micro = micro, .param_ns = update + (d->mesh[AXIS_dp] > 1 ? sum_ns(q) : 0), .shared_ns = sum_ns(q), .slack = SLACK};
}

/* ---- the ranks of a stage that share its ops ---- */

/* All stages as one, and of the batch one data-parallel rank's part: its micro-batches are all
 * pieces that the batch is in. */
static Plan local_plan(Arena *a, const Decisions *d, int64_t micro)
{
    Plan p = {.arena = a, .mesh = {1, 1, 1, 1, d->mesh[AXIS_tp]}, .microbatches = micro * d->mesh[AXIS_dp] * d->mesh[AXIS_ep], .schedule = d->schedule,
              .bucket = d->bucket, .rule = d->rule, .nrule = d->nrule};
    for (int64_t i = 0; i < d->mesh[AXIS_tp]; i++)
        PUSH(a, p.devices, p.ndevices, d->devices[i]);
    return p;
}

static Status cannot(Diags *ds, const Decisions *d, const char *why)
{
    const Rule *r = d->mesh_rule[AXIS_tp];
    Diag *e = diag_error(ds, r ? r->at : NOWHERE, "the splits by 'tp' are open and cannot be chosen for this model: %s", why);
    diag_help(ds, e, "add rules, for instance 'split heads, ffn by tp'");
    return ERR_REJECT;
}

Status open_splits(Arena *a, Diags *ds, const PlanRequest *q, const Decisions *d, int64_t micro, bool lean, Rule **rule, uint32_t *n)
{
    Plan plan = local_plan(a, d, micro);
    Chain chain = chain_read(a, q->graph);
    Pricer *pricer;
    Intra in;
    TRY(pricer_open(a, ds, q->graph, &plan, q->cluster, q->profile, true, &pricer));
    Goal goal = goal_of(q, d, micro);
    intra_solve(a, pricer, &chain, goal, NULL, &in);
    if (lean && in.nway > 0) {
        goal.param_ns = PRECIOUS * in.way[0].step / (double)graph_parameters(q->graph);
        intra_solve(a, pricer, &chain, goal, NULL, &in);
    }
    pricer_close(pricer);
    if (in.why_not || in.nway == 0)
        return cannot(ds, d, in.why_not ? in.why_not : "no way to split its ops was found");
    *n = splits_of(a, &in, &in.way[0], rule);
    return *n > 0 ? OK : cannot(ds, d, "every split makes it slower; leave 'tp' at 1");
}
