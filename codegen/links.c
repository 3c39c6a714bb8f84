/* Links: collectives and messages over the nested levels of a cluster.
 *
 * NCCL builds rings that go through all ranks of a node before they leave it, as many
 * of them as a node has adapters that its ranks may use, and pipelines them.  So what bounds a ring
 * is the slowest level it crosses, where each rank of a unit (a node, a pod) brings the link of
 * its own device: one rank a node has one adapter, eight have eight.  A piece makes n - 1 of the ring's n hops; those that
 * leave a unit cost that level's latency.  NCCL's own model (src/graph/tuning.cc of NVIDIA/nccl) counts one such hop less than a ring
 * has; but the piece that comes last misses a cheap hop, where there is one. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cost.h"

/* How data moves under a collective's steps, and what a machine with CUDA has
 * to choose from; it takes the fastest.  `hop` and `far` are in hops of the latency of the innermost level and of the others, which bundled
 * clusters give for LL128.  Sources: the tables of src/graph/tuning.cc of NVIDIA/nccl for Hopper:
 * base latencies 6.6, 14 and 8.4 us; hops of a ring over NVLink 0.6, 1.9 and 3.4 us, of a tree over a network 5, 8.5 and 14 us; LL has
 * half of the bandwidth at best, and LL128 120 of 128 bytes. */
typedef struct Protocol { double base, hop, far, bandwidth; } Protocol;          /* seconds; hops; hops; part of the ring's */
static const Protocol protocols[] = {
    {6.6e-6, 0.32, 1, 0.5},        /* LL */
    {14e-6, 1, 1, 0.92},              /* LL128 */
    {8.4e-6, 1.8, 1, 1},           /* Simple */
};
static const Protocol plain = {0, 1, 1, 1};          /* without NCCL: the level's own figures */

/* A tree of nodes halves what each link carries of an all_reduce and loses 8 % of it (same source). */
static const double TREE_BANDWIDTH = 0.92;
/* Seconds to start the exchange with one more peer in an all to all: AutoParallel measured 98 us with
 * 128 GPUs and 290 with 256. */
static const double PEER = 1e-6;

/* ---- where devices lie ---- */

typedef struct Walk { Links *links; uint32_t device; } Walk;

/* Give the devices of a level's unit their unit on this level and the ones below. */
static void number_units(Walk *w, uint32_t level)
{
    Links *ln = w->links;
    const Cluster *cl = ln->cl;
    uint32_t unit = ln->nunit++, first = w->device;
    for (uint32_t i = 0; i < cl->level[level].ngroup; i++) {
        const Group *g = &cl->level[level].group[i];
        for (int64_t k = 0; k < g->count; k++)
            if (g->level >= 0) {
                uint32_t from = w->device;
                number_units(w, (uint32_t)g->level);
                for (uint32_t between = (uint32_t)g->level + 1; between < level; between++)
                    memcpy(&ln->unit[between * cl->ndevices + from], &ln->unit[(uint32_t)g->level * cl->ndevices + from], (w->device - from) * sizeof *ln->unit);
            } else {
                for (uint32_t between = 0; between < level; between++)
                    ln->unit[between * cl->ndevices + w->device] = w->device;
                w->device++;
            }
    }
    for (uint32_t d = first; d < w->device; d++)
        ln->unit[level * cl->ndevices + d] = unit;
}

Links links_read(Arena *a, const Cluster *cl, const Plan *plan)
{
    Links ln = {.arena = a, .cl = cl, .plan = plan, .nunit = cl->ndevices};
    ln.unit = NEWN(a, uint32_t, (size_t)cl->nlevel * cl->ndevices + 1);
    number_units(&(Walk){&ln, 0}, cl->nlevel - 1);
    return ln;
}

/* ---- patterns ---- */

/* Units of a level that the devices, ascending, are in; *least: devices of the unit with
 * the fewest. */
static uint32_t count_units(const Links *ln, uint32_t level, const uint32_t *device, uint32_t n, uint32_t *least)
{
    uint32_t units = 0;
    *least = n;
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && links_unit(ln, level, device[end]) == links_unit(ln, level, device[i]); end++)
            ;
        *least = end - i < *least ? end - i : *least;
        units++;
    }
    return units;
}

/* The halvings until one is left, rounded up. */
static double halvings(uint32_t n)
{
    double h = 0;
    for (uint32_t x = 1; x < n; x *= 2)
        h++;
    return h;
}

/* Links that a byte of an exchange of all with all passes on its way to any of n members, where only
 * neighbours have one; rings and messages go to neighbours. */
static double detour(Topology t, uint32_t n)
{
    double links = t == TOPO_RING ? n / 4.0 : t == TOPO_MESH ? sqrt(n) / 2 : 1;
    return links > 1 ? links : 1;
}

/* Hops of a level and what they cost, added to a pattern. */
static void add_hops(Pattern *p, uint32_t level, double hops, double tree, double latency)
{
    *(level == 0 ? &p->latency : &p->far_latency) += hops * latency;
    *(level == 0 ? &p->tree_latency : &p->far_tree_latency) += tree * latency;
}

/* A ring meets the borders of a unit's devices first, then those of the units; its last hop, on the outermost
 * level, closes it, and the one that is missed is of the first level. */
static Pattern pattern_of(const Links *ln, const uint32_t *device, uint32_t n)
{
    const Cluster *cl = ln->cl;
    uint32_t below = n, least = 1, near = n, first = 0, last = 0;
    Pattern p = {.ranks = n, .cuda = cl->device[cl->kind[device[0]]].backend == BACKEND_CUDA};
    for (uint32_t l = 0; l < cl->nlevel && below > 1; l++) {
        const Level *level = &cl->level[l];
        uint32_t brings = least, units = count_units(ln, l, device, n, &least), each = (below + units - 1) / units;
        double link = level->link * level->efficiency, carries = (double)brings * link;
        if (units == below)
            continue;
        add_hops(&p, l, below - units, l == 0 ? each - 1 : halvings(each), level->latency);
        if (p.bandwidth == 0) {
            first = l;
            near = units > 1 ? least : n;
            p.near_bandwidth = link / detour(level->topology, each);
        }
        last = l;
        p.bandwidth = p.bandwidth == 0 || carries < p.bandwidth ? carries : p.bandwidth;
        p.far_bandwidth = link / detour(level->topology, each);
        p.hop = level->latency > p.hop ? level->latency : p.hop;
        p.crosses |= l > 0;
        below = units;
    }
    if (first != last) {
        add_hops(&p, last, 1, 0, cl->level[last].latency);
        add_hops(&p, first, -1, 0, cl->level[first].latency);
    }
    p.near = (double)(near - 1) / (double)n;
    p.far = (double)(n - near) / (double)n;
    return p;
}

static bool same_pattern(const Pattern *a, const Pattern *b)
{
    return a->ranks == b->ranks && a->latency == b->latency && a->far_latency == b->far_latency && a->bandwidth == b->bandwidth && a->near == b->near &&
           a->near_bandwidth == b->near_bandwidth && a->far_bandwidth == b->far_bandwidth && a->cuda == b->cuda;
}

static void add_pattern(Links *ln, Pattern **list, uint32_t *n, Pattern p)
{
    for (uint32_t i = 0; i < *n; i++)
        if (same_pattern(&(*list)[i], &p))
            return;
    PUSH(ln->arena, *list, *n, p);
}

static int ascending(const void *x, const void *y)
{
    const uint32_t *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

static void sort_devices(uint32_t *device, uint32_t n)
{
    uint32_t i = 1;
    while (i < n && device[i - 1] < device[i])
        i++;
    if (i < n)
        qsort(device, n, sizeof *device, ascending);
}

/* Place 0 is in the group that is given; the first place that is in none yet is to its
 * group what place 0 is to that one, as places count up in mixed radix. */
static void find_patterns(Links *ln, const RankGroup *g, Seen *seen)
{
    uint32_t stage = ln->plan->ndevices / (uint32_t)ln->plan->mesh[AXIS_pp], own = g->rank[0] / stage * stage;
    bool *taken = NEWN(ln->arena, bool, stage);
    uint32_t *device = NEWN(ln->arena, uint32_t, g->n);
    for (uint32_t shift = 0; shift < stage; shift++) {
        if (taken[shift])
            continue;
        for (uint32_t i = 0; i < g->n; i++) {
            device[i] = ln->plan->devices[g->rank[i] + shift];
            if (g->rank[i] - own < stage)
                taken[g->rank[i] + shift - own] = true;
        }
        sort_devices(device, g->n);
        add_pattern(ln, &seen->pattern, &seen->npattern, pattern_of(ln, device, g->n));
    }
}

/* Groups of several stages are the same in all their programs. */
Pattern *links_patterns(Links *ln, const RankGroup *g, uint32_t *n)
{
    uint32_t i = 0;
    while (i < ln->nseen && (ln->seen[i].group->n != g->n || memcmp(ln->seen[i].group->rank, g->rank, g->n * sizeof *g->rank) != 0))
        i++;
    if (i == ln->nseen) {
        RankGroup *own = NEW(ln->arena, RankGroup);      /* programs may go before this does */
        *own = (RankGroup){NEWN(ln->arena, uint32_t, g->n), g->n};
        memcpy(own->rank, g->rank, g->n * sizeof *g->rank);
        Seen new = {.group = own};
        find_patterns(ln, own, &new);
        PUSH(ln->arena, ln->seen, ln->nseen, new);
    }
    *n = ln->seen[i].npattern;
    return ln->seen[i].pattern;
}

/* ---- times ---- */

static double rounds(OpKind op)
{
    return op == OP_all_reduce ? 2 : 1;
}

/* A ring passes on n - 1 parts of n; a sum to one rank or a copy from one goes through whole. */
static double ring_bytes(const Pattern *p, OpKind op, double bytes)
{
    bool whole = op == OP_reduce_to || op == OP_broadcast;
    return whole ? bytes : rounds(op) * bytes * (double)(p->ranks - 1) / (double)p->ranks;
}

static double ring_seconds(const Pattern *p, const Protocol *by, OpKind op, double bytes)
{
    return by->base + rounds(op) * (p->latency * by->hop + p->far_latency * by->far) + ring_bytes(p, op, bytes) / (p->bandwidth * by->bandwidth);
}

static double tree_seconds(const Pattern *p, const Protocol *by, double bytes)
{
    return by->base + 2 * (p->tree_latency * by->hop + p->far_tree_latency * by->far) + 2 * bytes / (p->bandwidth * TREE_BANDWIDTH * by->bandwidth);
}

static double hop_seconds(const Pattern *p, const Protocol *by)
{
    return p->hop * (p->crosses ? by->far : by->hop);
}

static double exchange_seconds(const Pattern *p, const Protocol *by, double bytes)
{
    double near = p->near * bytes / p->near_bandwidth, far = p->far > 0 ? p->far * bytes / p->far_bandwidth : 0;
    double peers = (double)(p->ranks - 1), wait = p->cuda ? hop_seconds(p, by) + peers * PEER : peers * p->hop;
    return by->base + wait + (near > far ? near : far) / by->bandwidth;
}

static double message_seconds(const Pattern *p, const Protocol *by, double bytes)
{
    return by->base + hop_seconds(p, by) + bytes / (p->far_bandwidth * by->bandwidth);
}

static double by_protocol(const Pattern *p, const Protocol *by, OpKind op, double bytes)
{
    if (op == OP_send || op == OP_recv)
        return message_seconds(p, by, bytes);
    if (op == OP_all_to_all)
        return exchange_seconds(p, by, bytes);
    double ring = ring_seconds(p, by, op, bytes);
    if (op != OP_all_reduce || !p->cuda)
        return ring;
    double tree = tree_seconds(p, by, bytes);
    return tree < ring ? tree : ring;
}

double links_seconds(const Pattern *p, OpKind op, double bytes)
{
    if (p->ranks < 2)
        return 0;
    assert(p->bandwidth > 0 && "no level joins these devices by a link");
    if (!p->cuda)
        return by_protocol(p, &plain, op, bytes);
    double least = by_protocol(p, &protocols[0], op, bytes);
    for (size_t i = 1; i < sizeof protocols / sizeof *protocols; i++) {
        double s = by_protocol(p, &protocols[i], op, bytes);
        least = s < least ? s : least;
    }
    return least;
}
