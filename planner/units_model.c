/* Units: what stages ask of the model.  See units.h. */
#include <string.h>

#include "planner/units.h"

enum { NOTHING = UINT32_MAX };

static bool is_positional(const UnitTable *t, ValueId v)
{
    const Value *w = value_of(t->q->graph, v);
    for (int x = 0; t->d->context && x < w->rank; x++)
        if (strcmp(dim_of(t->q->graph, w->axis[x])->name, t->d->context) == 0)
            return true;
    return false;
}

/* Each weight counts for the first piece that reads it. */
static void read_weights(UnitTable *t)
{
    const Graph *g = t->q->graph;
    bool *counted = NEWN(t->arena, bool, g->nvalue + 1);
    for (uint32_t w = 0; w < g->nweight; w++)            /* those that are not trained count nowhere */
        counted[g->weight[w].value.i] = g->weight[w].frozen || !has_value(g->weight[w].gradient);
    t->weights = NEWN(t->arena, double, t->pieces.n + 1);
    for (uint32_t i = 0; i < t->pieces.n; i++)
        for (uint32_t o = t->pieces.piece[i].first.i; o < t->pieces.piece[i].first.i + t->pieces.piece[i].nop; o++)
            for (int k = 0; g->op[o].phase == PHASE_FORWARD && k < g->op[o].narg; k++) {
                ValueId v = g->op[o].arg[k];
                if (!has_value(v) || value_of(g, v)->role != ROLE_WEIGHT || counted[v.i])
                    continue;
                counted[v.i] = true;
                t->weights[i] += (double)value_elements(g, v);
                t->positional += is_positional(t, v) ? (double)value_elements(g, v) : 0;
            }
}

static void list_backward(UnitTable *t)
{
    const Graph *g = t->q->graph;
    t->backward = NEWN(t->arena, OpId *, t->nop + 1);
    t->nbackward = NEWN(t->arena, uint32_t, t->nop + 1);
    for (uint32_t o = 0; o < g->nop; o++) {
        const Op *op = &g->op[o];
        if (op->phase != PHASE_BACKWARD || has_value(op->sum_of) || !has_op(op->forward))
            continue;
        uint32_t i = t->index[op->forward.i];
        if (i != NOTHING && t->op[i].i == op->forward.i)
            PUSH(t->arena, t->backward[i], t->nbackward[i], ((OpId){o}));
    }
}

/* Whether two stages may meet a gradient that no rank has a summand of: where the batch is needed as a whole. */
static bool is_summed(Arena *a, const Graph *g)
{
    const char *why;
    return !has_op(graph_batch_obstacle(a, g, &why));
}

/* Stages begin where rules cut: the pieces whose first op is not on the stage of the piece before. */
static void read_given_cuts(UnitTable *t, const Mesh *m)
{
    Plan p = {.arena = t->arena, .microbatches = 1, .rule = m->d->rule, .nrule = m->d->nrule, .ndevices = t->d->ndevices, .devices = m->device};
    Layout l;
    memcpy(p.mesh, m->size, sizeof p.mesh);
    if (!rules_cut(m->d) || layout_read(t->arena, t->said, t->q->graph, &p, &l) != OK)
        return;
    t->given_begin = NEWN(t->arena, uint32_t, l.nstages + 1);
    uint32_t stage = 0;
    for (uint32_t i = 0; i < t->pieces.n; i++) {
        const Piece *piece = &t->pieces.piece[i];
        StageSet at = l.stages[piece->first.i + piece->nop - 1];
        while (stage + 1 < l.nstages && at >> (stage + 1))
            t->given_begin[++stage] = i;
    }
}

static bool may_recompute(const PlanRequest *q)
{
    bool given = false;
    for (uint32_t i = 0; i < q->rules->nrule; i++)
        given |= !q->rules->rule[i].soft && (q->rules->rule[i].kind == RULE_RECOMPUTE || q->rules->rule[i].kind == RULE_SAVE);
    return has_value(q->graph->loss) && !given;
}

void units_read_model(UnitTable *t)
{
    list_backward(t);
    read_weights(t);
    t->no_sums = !is_summed(t->arena, t->q->graph);
    t->may_recompute = may_recompute(t->q);
}

void units_take_cuts(UnitTable *t, const Mesh *mesh, uint32_t nmesh)
{
    for (uint32_t i = 0; i < nmesh && !t->given_begin; i++)
        read_given_cuts(t, &mesh[i]);
}
