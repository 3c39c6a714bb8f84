/* States: see states.h. */
#include "planner/states.h"

#include "planner/goal.h"

/* By the search, or by a rule. */
static bool is_sharded(const UnitTable *t, const Config *c)
{
    return c->shard || rules_have(t->d, RULE_SHARD);
}

/* Ranks that share out a weight's optimizer states, at most: a rule may do it by cp too. */
double states_copies(const UnitTable *t, const Config *c)
{
    const int64_t *size = c->mesh->size;
    return c->shard ? (double)size[AXIS_dp] : is_sharded(t, c) ? (double)(size[AXIS_dp] * size[AXIS_cp]) : 1;
}

double states_bytes(const UnitTable *t, const Config *c)
{
    return goal_state_bytes(t->q->graph, states_copies(t, c));
}

/* The most of its memory's bandwidth that a device reaches in its update. */
static double most_of_memory(const Device *d, OpKind op)
{
    const Curve *c = device_curve(d, op);
    double most = c->npoint ? 0 : 1;
    for (uint32_t i = 0; i < c->npoint; i++)
        most = c->point[i].fraction > most ? c->point[i].fraction : most;
    return most;
}

/* ns to read and write master copies and moments, and to read gradients. */
double states_update_ns(const UnitTable *t, const Device *d, double params, double ways)
{
    const Graph *g = t->q->graph;
    OpKind op = g->optimizer.kind == OPTIMIZER_SGD ? OP_sgd : OP_adamw;
    if (!has_value(g->loss) || g->optimizer.kind == OPTIMIZER_NONE || t->d->server_rule)
        return 0;
    double bytes = params / ways * ((2 + 2 * optimizer_moments(&g->optimizer)) * dtype_bytes(g->precision.master) + dtype_bytes(g->precision.grads));
    return 1e9 * bytes / (d->bandwidth * most_of_memory(d, op));
}

/* ns to sum gradients over the copies of the weights. */
double states_sum_ns(const UnitTable *t, const Config *c, double params)
{
    const Precision *p = &t->q->graph->precision;
    int bytes = dtype_bytes(p->reduce) < dtype_bytes(p->grads) ? dtype_bytes(p->reduce) : dtype_bytes(p->grads);
    if (c->mesh->copies.ranks < 2 || t->d->server_rule || t->no_sums || params <= 0)
        return 0;
    return 1e9 * links_seconds(&c->mesh->copies, is_sharded(t, c) ? OP_reduce_scatter : OP_all_reduce, params * bytes);
}

double states_gather_ns(const UnitTable *t, const Config *c, double params)
{
    if (!is_sharded(t, c))
        return 0;
    return 1e9 * links_seconds(&c->mesh->copies, OP_all_gather, params * dtype_bytes(t->q->graph->precision.weights));
}
