/* Space: see space.h. */
#include "planner/space.h"

#include <stdlib.h>
#include <string.h>

#include "ir/layout.h"
#include "planner/batch.h"

/* More micro-batches are tried only where rules give them: programs grow with their number. */
enum { MICRO_TRIED = 4096 };

typedef struct Walk {
    Arena             *arena;
    const PlanRequest *q;
    Diags             *ds;
    const Decisions   *base;
    const Decisions   *d;             /* base, on the mesh that is looked at */
    Space             *space;
    uint32_t           most_stages;
    bool               told;          /* a mesh was refused, and why is in ds */
} Walk;

/* ---- orders ---- */

/* Device numbers when the axes nest in the order `nest`, outermost first. */
static uint32_t *devices_of(const Walk *w, const int64_t size[MESH_AXES], const MeshAxis nest[MESH_AXES])
{
    uint32_t *device = NEWN(w->arena, uint32_t, w->d->ndevices + 1), stride[MESH_AXES], next = 1;
    for (int i = MESH_AXES - 1; i >= 0; i--) {
        stride[nest[i]] = next;
        next *= (uint32_t)size[nest[i]];
    }
    for (uint32_t r = 0; r < w->d->ndevices; r++) {
        uint32_t at = 0, rest = r;
        for (int x = MESH_AXES - 1; x >= 0; x--) {
            at += rest % (uint32_t)size[x] * stride[x];
            rest /= (uint32_t)size[x];
        }
        device[r] = w->d->devices[at];
    }
    return device;
}

static uint32_t stride_in_ranks(const int64_t size[MESH_AXES], MeshAxis axis)
{
    uint32_t stride = 1;
    for (int x = MESH_AXES - 1; x > (int)axis; x--)
        stride *= (uint32_t)size[x];
    return stride;
}

static Pattern slowest(Links *links, const RankGroup *g)
{
    uint32_t n;
    Pattern *p = links_patterns(links, g, &n), worst = p[0];
    for (uint32_t i = 1; i < n; i++)
        if (p[i].bandwidth < worst.bandwidth || (p[i].bandwidth == worst.bandwidth && p[i].latency > worst.latency))
            worst = p[i];
    return worst;
}

/* The ranks that differ from rank 0 along dp and cp. */
static RankGroup copies_of(Arena *a, const int64_t size[MESH_AXES])
{
    RankGroup g = {NEWN(a, uint32_t, (size_t)(size[AXIS_dp] * size[AXIS_cp]) + 1), 0};
    uint32_t dp = stride_in_ranks(size, AXIS_dp), cp = stride_in_ranks(size, AXIS_cp);
    for (uint32_t i = 0; i < size[AXIS_dp]; i++)
        for (uint32_t k = 0; k < size[AXIS_cp]; k++)
            g.rank[g.n++] = i * dp + k * cp;
    return g;
}

static Mesh mesh_on(const Walk *w, const int64_t size[MESH_AXES], const MeshAxis nest[MESH_AXES])
{
    Mesh m = {.device = devices_of(w, size, nest), .d = w->d};
    Plan plan = {.arena = w->arena, .devices = m.device, .ndevices = w->d->ndevices};
    memcpy(m.size, size, sizeof m.size);
    memcpy(plan.mesh, size, sizeof plan.mesh);
    Links links = links_read(w->arena, w->q->cluster, &plan);
    RankGroup copies = copies_of(w->arena, size), pair = {(uint32_t[]){0, w->d->ndevices / (uint32_t)size[AXIS_pp]}, 2};
    if (copies.n > 1)
        m.copies = slowest(&links, &copies);
    if (size[AXIS_pp] > 1)
        m.neighbours = slowest(&links, &pair);
    m.tp_stride = size[AXIS_tp] > 1 ? m.device[1] - m.device[0] : 0;
    m.cp_stride = size[AXIS_cp] > 1 ? m.device[stride_in_ranks(size, AXIS_cp)] - m.device[0] : 0;
    return m;
}

static bool same_pattern(const Pattern *x, const Pattern *y)
{
    return x->ranks == y->ranks && x->latency == y->latency && x->far_latency == y->far_latency && x->bandwidth == y->bandwidth && x->near == y->near && x->hop == y->hop &&
           x->far_bandwidth == y->far_bandwidth;
}

/* Devices of one kind in a regular machine: where the groups of all axes lie alike, so do plans. */
static bool lies_alike(const Walk *w, const Mesh *x, const Mesh *y)
{
    return w->q->cluster->ndevice == 1 && same_pattern(&x->copies, &y->copies) && same_pattern(&x->neighbours, &y->neighbours) &&
           x->tp_stride == y->tp_stride && x->cp_stride == y->cp_stride;
}

static void add_mesh(Walk *w, const int64_t size[MESH_AXES], const MeshAxis nest[MESH_AXES], uint32_t first)
{
    Mesh m = mesh_on(w, size, nest);
    for (uint32_t i = first; i < w->space->nmesh; i++)
        if (lies_alike(w, &w->space->mesh[i], &m))
            return;
    PUSH(w->arena, w->space->mesh, w->space->nmesh, m);
}

/* All orders of the axes larger than 1; the others do not matter.  The first is the usual one. */
static void add_orders(Walk *w, const int64_t size[MESH_AXES], MeshAxis nest[MESH_AXES], int n, uint32_t first)
{
    if (n == MESH_AXES) {
        add_mesh(w, size, nest, first);
        return;
    }
    for (int x = 0; x < MESH_AXES; x++) {
        bool used = false, smaller = true;
        for (int i = 0; i < n; i++)
            used |= nest[i] == (MeshAxis)x;
        for (int y = 0; y < x && size[x] == 1; y++) {    /* axes of size 1 only after the axes before them */
            bool there = false;
            for (int i = 0; i < n; i++)
                there |= nest[i] == (MeshAxis)y;
            smaller &= there;
        }
        if (used || !smaller)
            continue;
        nest[n] = (MeshAxis)x;
        add_orders(w, size, nest, n + 1, first);
    }
}

/* ---- sizes ---- */

static bool is_searched_order(const Walk *w)
{
    return !w->base->devices_rule && (w->q->cluster->nlevel > 1 || w->q->cluster->ndevice > 1);
}

/* Whether rules that cut stages make as many as the mesh has. */
static bool suits_cuts(const Walk *w, Diags *said, const int64_t size[MESH_AXES], const Decisions *d)
{
    Layout l;
    Plan p = {.arena = w->arena, .microbatches = 1, .rule = d->rule, .nrule = d->nrule, .devices = d->devices, .ndevices = d->ndevices};
    memcpy(p.mesh, size, sizeof p.mesh);
    return !rules_cut(d) || layout_read(w->arena, said, w->q->graph, &p, &l) == OK;
}

static void add_sizes(Walk *w, const int64_t size[MESH_AXES])
{
    static const MeshAxis usual[MESH_AXES] = {AXIS_pp, AXIS_dp, AXIS_cp, AXIS_ep, AXIS_tp};
    MeshAxis nest[MESH_AXES];
    uint32_t first = w->space->nmesh;
    Decisions *d = NEW(w->arena, Decisions);
    Diags *said = w->told ? diags_new(w->ds->sources) : w->ds;
    w->told = true;
    if (rules_on_mesh(w->arena, said, w->q, w->base, size, d) != OK || batch_check(said, w->q, d) != OK || !suits_cuts(w, said, size, d))
        return;
    w->d = d;
    add_mesh(w, size, usual, first);
    if (is_searched_order(w))
        add_orders(w, size, nest, 0, first);
}

static int64_t context_extent(const Walk *w)
{
    const Graph *g = w->q->graph;
    uint32_t i = 0;
    while (strcmp(g->dim[i].name, w->base->context) != 0)
        i++;
    return g->dim[i].extent;
}

static bool is_allowed(const Walk *w, MeshAxis x, int64_t n)
{
    const Rule *r = w->d->mesh_rule[x];
    if (r && !choice_allows(&r->choice, n))
        return false;
    switch (x) {
    case AXIS_pp: return r || (n <= w->most_stages && n <= MAX_STAGES);
    case AXIS_dp: return r || n == 1 || (!same_dim(w->q->graph->batch, NO_DIM) && graph_samples(w->q->graph) % n == 0);
    case AXIS_cp: return r || n == 1 || (w->base->context && context_extent(w) % n == 0);
    case AXIS_ep: return r || n == 1;
    default:      return true;
    }
}

static void walk_sizes(Walk *w, int axis, int64_t left, int64_t size[MESH_AXES])
{
    if (axis == MESH_AXES) {
        if (left == 1)
            add_sizes(w, size);
        return;
    }
    for (int64_t n = 1; n <= left; n++)
        if (left % n == 0 && is_allowed(w, (MeshAxis)axis, n)) {
            size[axis] = n;
            walk_sizes(w, axis + 1, left / n, size);
        }
}

/* ---- the rest ---- */

/* Samples that could be shared out by dp instead of their positions by cp: ranks would do the same work
 * on as many tokens, and gather no keys and values. */
static bool is_dominated(const Walk *w, const Mesh *m, int64_t micro)
{
    int64_t samples = batch_samples(w->q->graph, m->d) / micro;
    for (int64_t f = 2; w->base->context && f <= m->size[AXIS_cp]; f++)
        if (m->size[AXIS_cp] % f == 0 && samples % f == 0 && is_allowed(w, AXIS_dp, m->size[AXIS_dp] * f) && is_allowed(w, AXIS_cp, m->size[AXIS_cp] / f))
            return true;
    return false;
}

static void add_configs(Walk *w, const Mesh *m, int64_t micro)
{
    const Decisions *d = m->d;
    bool pipeline = m->size[AXIS_pp] > 1 && micro > 1, pinned = d->schedule_given, gpipe = strcmp(d->schedule, "gpipe") == 0;
    bool can_shard = m->size[AXIS_dp] > 1 && !d->server_rule && has_value(w->q->graph->loss) && optimizer_moments(&w->q->graph->optimizer) > 0 && !rules_have(d, RULE_SHARD);
    for (int g = 0; g < 2; g++)
        for (int z = 0; z < 2; z++)
            if ((pinned ? g == gpipe : g == 0 || pipeline) && (z == 0 || can_shard))
                PUSH(w->arena, w->space->config, w->space->nconfig, ((Config){m, micro, g == 1, z == 1}));
}

static int ascending(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* Numbers of micro-batches to try, ascending: those that are given, or small ones. */
static uint32_t micro_numbers(const Walk *w, const Choice *c, int64_t samples, int64_t **out)
{
    uint32_t n = 0;
    *out = NULL;
    for (uint32_t i = 0; !c->any && i < c->nvalue; i++)
        PUSH(w->arena, *out, n, c->value[i]);
    for (int64_t k = 1; c->any && k <= samples && k <= MICRO_TRIED; k++)
        PUSH(w->arena, *out, n, k);
    if (n > 1)
        qsort(*out, n, sizeof **out, ascending);
    return n;
}

static void add_micro(Walk *w, const Mesh *m)
{
    int64_t samples = batch_samples(w->q->graph, m->d), *number, last = 0;
    uint32_t n = micro_numbers(w, &m->d->microbatches, samples, &number);
    w->space->micro_left_out |= m->d->microbatches.any && samples > MICRO_TRIED;
    for (uint32_t i = 0; i < n; i++) {
        if (number[i] > last && number[i] <= samples && samples % number[i] == 0 && !is_dominated(w, m, number[i]))
            add_configs(w, m, number[i]);
        last = number[i];
    }
}

/* No mesh was worth a look: dp does not divide the batch, or there are more stages than pieces. */
static Status none_suits(Diags *ds, const PlanRequest *q, const Decisions *d)
{
    if (!same_dim(q->graph->batch, NO_DIM))
        TRY(batch_check(ds, q, d));
    Diag *e = diag_error(ds, NOWHERE, "no sizes of the mesh axes that the rules allow suit model '%s' on %u devices", q->graph->name, d->ndevices);
    diag_help(ds, e, "leave more of the mesh open, or name fewer devices, for instance 'devices = [0]'");
    return ERR_REJECT;
}

Status space_read(Arena *a, Diags *ds, const PlanRequest *q, const Decisions *d, uint32_t most_stages, Space *out)
{
    Diags *said = diags_new(ds->sources);
    Walk w = {.arena = a, .q = q, .ds = said, .base = d, .d = d, .space = out, .most_stages = most_stages};
    int64_t size[MESH_AXES];
    *out = (Space){0};
    walk_sizes(&w, 0, d->ndevices, size);
    for (uint32_t i = 0; i < out->nmesh; i++)
        add_micro(&w, &out->mesh[i]);
    if (out->nconfig > 0)
        return OK;
    if (out->nmesh > 0)
        return batch_none_divides(ds, q, out->mesh[0].d);
    if (said->errors == 0)
        return none_suits(ds, q, d);
    *ds = *said;
    return ERR_REJECT;
}
