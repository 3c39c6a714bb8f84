/* Batch: see batch.h. */
#include "planner/batch.h"

#include <string.h>

/* Ways a mesh axis splits the batch: dp and ep do by themselves, others where rules say so. */
static int64_t batch_ways(const Decisions *d, MeshAxis x)
{
    bool outer = x == AXIS_dp || x == AXIS_ep, inner = outer;
    for (uint32_t i = 0; i < d->nrule; i++) {
        const Rule *r = &d->rule[i];
        for (uint32_t k = 0; r->kind == RULE_SPLIT && k < r->nnames; k++)
            for (int y = 0; strcmp(r->names[k], "batch") == 0 && y < r->by.n; y++) {
                outer |= r->by.axis[y] == x && r->by.part[y] != PART_INNER;
                inner |= r->by.axis[y] == x && r->by.part[y] != PART_OUTER;
            }
    }
    int64_t first = d->outer[x] ? d->outer[x] : d->mesh[x];
    return (outer ? first : 1) * (inner ? d->mesh[x] / first : 1);
}

int64_t batch_parts(const Decisions *d)
{
    int64_t n = 1;
    for (int x = 0; x < MESH_AXES; x++)
        n *= batch_ways(d, (MeshAxis)x);
    return n;
}

int64_t batch_samples(const Graph *g, const Decisions *d)
{
    int64_t batch = graph_samples(g), parts = batch_parts(d);
    return batch % parts ? 1 : batch / parts;
}

/* ---- what does not divide ---- */

enum { NEAREST_WITHIN = 1 << 16 };    /* numbers are looked for so far from the one given */

/* The divisors of n next to m, as a help: "the nearest number that divides it is 8". */
static void help_nearest(Diags *ds, Diag *e, const char *one, const char *many, int64_t n, int64_t m)
{
    int64_t below = m < n ? m : n, above = m;
    while (n % below)
        below--;
    while (above < n && n % above)
        above = above < m + NEAREST_WITHIN ? above + 1 : n;
    if (above > n || above == below)
        diag_help(ds, e, "the nearest %s is %lld", one, (long long)below);
    else
        diag_help(ds, e, "the nearest %s are %lld and %lld", many, (long long)below, (long long)above);
}

static void note_batch(Diags *ds, Diag *e, const Graph *g)
{
    if (!same_dim(g->batch, NO_DIM) && span_known(dim_of(g, g->batch)->at))
        diag_note(ds, e, dim_of(g, g->batch)->at, "'batch' is declared here");
}

/* None of the numbers the rules allow divides the batch: name the nearest that do. */
Status batch_none_divides(Diags *ds, const PlanRequest *r, const Decisions *d)
{
    int64_t m = d->microbatches.value[0], parts = batch_parts(d);
    const char *some = d->microbatches.nvalue == 1 ? "" : "any of ", *more = d->microbatches.nvalue == 1 ? "" : ", ...";
    Diag *e = diag_error(ds, d->microbatches_at, "cannot cut 'batch' (%lld) into %s%lld%s equal micro-batches%s", (long long)graph_samples(r->graph),
                         some, (long long)m, more, parts > 1 ? arena_printf(ds->arena, " in each of its %lld parts", (long long)parts) : "");
    if (d->mesh_rule[AXIS_dp] && d->mesh[AXIS_dp] > 1 && span_known(d->mesh_rule[AXIS_dp]->at))
        diag_note(ds, e, d->mesh_rule[AXIS_dp]->at, "dp is %lld here", (long long)d->mesh[AXIS_dp]);
    note_batch(ds, e, r->graph);
    if (parts > 1)
        help_nearest(ds, e, "number of micro-batches", "numbers of micro-batches", batch_samples(r->graph, d), m);
    else
        help_nearest(ds, e, "number that divides it", "numbers that divide it", batch_samples(r->graph, d), m);
    return ERR_REJECT;
}

/* The batch is cut by dp first, whatever the micro-batches. */
Status batch_check(Diags *ds, const PlanRequest *r, const Decisions *d)
{
    int64_t batch = graph_samples(r->graph), dp = d->mesh[AXIS_dp];
    if (batch % dp == 0)
        return OK;
    const Rule *rule = d->mesh_rule[AXIS_dp];
    Diag *e = diag_error(ds, rule ? rule->at : NOWHERE, "cannot split 'batch' (%lld) evenly by dp (%lld)", (long long)batch, (long long)dp);
    note_batch(ds, e, r->graph);
    help_nearest(ds, e, "number that divides it", "numbers that divide it", batch, dp);
    return ERR_REJECT;
}
