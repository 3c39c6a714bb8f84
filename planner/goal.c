/* Goal: what a weight element costs in a step, beside what is computed with it.  See goal.h. */
#include "planner/goal.h"

/* Bytes of memory that its update goes over: the gradient for the norm and for the step, the
 * master copy and the moments, read and written. */
static double update_bytes(const Graph *g)
{
    return 2 * (double)dtype_bytes(g->precision.grads) + (2 + 2 * optimizer_moments(&g->optimizer)) * (double)dtype_bytes(g->precision.master);
}

/* By a ring over the links of the innermost level: each byte passes twice. */
static double sum_ns(const PlanRequest *q)
{
    return 2e9 * (double)dtype_bytes(q->graph->precision.grads) / q->cluster->level[0].link;
}

Goal goal_of(const PlanRequest *q, const Mesh *m, int64_t micro)
{
    const Device *device = &q->cluster->device[q->cluster->kind[m->device[0]]];
    double update = 1e9 * update_bytes(q->graph) / device->bandwidth;
    return (Goal){.micro = micro, .param_ns = update + (m->size[AXIS_dp] > 1 ? sum_ns(q) : 0), .shared_ns = sum_ns(q)};
}
