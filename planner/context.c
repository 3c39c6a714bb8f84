/* Context: see context.h. */
#include "planner/context.h"

#include <string.h>

#include "ir/layout.h"
#include "planner/pins.h"

static const Dim *named(const Graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->ndim; i++)
        if (strcmp(g->dim[i].name, name) == 0)
            return &g->dim[i];
    return NULL;
}

/* An encoder and a decoder have two sequences, of which one would be worked on by all ranks. */
static bool is_of_all_inputs(const Graph *g, const char *axis)
{
    for (uint32_t v = 0; v < g->nvalue; v++)
        if (g->value[v].role == ROLE_INPUT && g->value[v].rank > 1 && g->value[v].dtype == DT_i32 && strcmp(dim_of(g, g->value[v].axis[1])->name, axis) != 0)
            return false;
    return true;
}

static int64_t smallest_divisor(int64_t n)
{
    int64_t d = 2;
    while (d < n && n % d)
        d++;
    return d;
}

static bool has_axis(const Graph *g, const Op *op, const char *axis)
{
    for (uint32_t f = 0; f < op->nfactor; f++)
        if (strcmp(dim_of(g, op->factor[f].dim)->name, axis) == 0)
            return true;
    return false;
}

static bool splits_all(Arena *a, const Layout *l, const char *axis)
{
    for (uint32_t o = 0; o < l->g->nop; o++) {
        CutChoice *choice;
        bool can = l->g->op[o].phase != PHASE_FORWARD || !has_axis(l->g, &l->g->op[o], axis);
        uint32_t n = can ? 0 : layout_choices(a, l, (OpId){o}, AXIS_cp, &choice);
        for (uint32_t i = 0; i < n; i++)
            can |= strcmp(choice[i].name, axis) == 0;
        if (!can)
            return false;
    }
    return true;
}

const char *context_axis(const PlanRequest *q, Sources *sources)
{
    const Graph *g = q->graph;
    const char *axis = pins_positions(g);
    const Dim *d = axis ? named(g, axis) : NULL;
    int64_t cp = d && d->extent > 1 ? smallest_divisor(d->extent) : INT64_MAX;
    if (cp > q->cluster->ndevices || !is_of_all_inputs(g, axis))
        return NULL;
    Arena *a = arena_new("context");
    Layout l;
    Plan p = {.arena = a, .mesh = {1, 1, cp, 1, 1}, .microbatches = 1};
    for (int64_t i = 0; i < p.mesh[AXIS_cp]; i++)
        PUSH(a, p.devices, p.ndevices, (uint32_t)i);
    bool can = layout_open(a, diags_new(sources), g, &p, &l) == OK && splits_all(a, &l, axis);
    arena_free(a);
    return can ? axis : NULL;
}
