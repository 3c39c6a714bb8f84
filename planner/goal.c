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

double goal_state_bytes(const Graph *g, double copies)
{
    const Precision *p = &g->precision;
    double weights = dtype_bytes(p->weights), master = p->master == p->weights ? 0 : dtype_bytes(p->master);
    if (!has_value(g->loss))
        return weights;
    return weights + dtype_bytes(p->grads) + (master + optimizer_moments(&g->optimizer) * dtype_bytes(p->master)) / copies;
}

double goal_flight(const Config *c, uint32_t stage)
{
    double m = (double)c->micro, stages = (double)c->mesh->size[AXIS_pp], after = stages - stage;
    return c->mesh->size[AXIS_pp] == 1 ? 1 : c->gpipe ? m : m < after ? m : after;
}

double goal_mean_flight(const Config *c)
{
    double sum = 0;
    for (uint32_t s = 0; s < c->mesh->size[AXIS_pp]; s++)
        sum += goal_flight(c, s);
    return sum / (double)c->mesh->size[AXIS_pp];
}

/* A byte is worth the step's time in parts of all stages' memory. */
Goal goal_of(const PlanRequest *q, const Config *c, double least_ns)
{
    const Mesh *m = c->mesh;
    const Device *device = &q->cluster->device[q->cluster->kind[m->device[0]]];
    double update = 1e9 * update_bytes(q->graph) / device->bandwidth, room = (double)m->size[AXIS_pp] * (double)(device->memory - device->reserve);
    return (Goal){.micro = c->micro, .param_ns = update + (m->size[AXIS_dp] > 1 ? sum_ns(q) : 0), .shared_ns = sum_ns(q),
                  .param_bytes = goal_state_bytes(q->graph, c->shard ? (double)m->size[AXIS_dp] : 1), .flight = goal_mean_flight(c),
                  .byte_ns = (double)c->micro * least_ns / room};
}
