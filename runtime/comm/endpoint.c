/* A rank's end of a world, its groups, and the table of those that share memory. */
#include "runtime/comm/far.h"

#include <assert.h>

WorldEnd endpoint_new(const Comm *comm, World *w, int rank, Team *team, Isa isa)
{
    const Header *h = w->header;
    assert(rank >= 0 && rank < h->nrank);
    return (WorldEnd){.base = {.comm = comm, .rank = rank, .nrank = h->nrank}, .world = w, .team = team, .isa = isa,
                      .timeout = 10, .beside = -1, .spins = spins_for(h->near, h->cores), .caches = caches_read()};
}

WorldEnd endpoint_beside_of(const WorldEnd *first)
{
    WorldEnd e = *first;
    e.which = 1;
    e.waited = 0;
    return e;
}

static Endpoint *cpu_open(Arena *a, World *w, int rank, Team *team, Isa isa)
{
    int n = w->header->nrank;
    CpuEndpoint *e = NEW(a, CpuEndpoint);
    assert(w->shared);
    *e = (CpuEndpoint){.end = endpoint_new(&comm_cpu, w, rank, team, isa), .sent = NEWN(a, uint32_t, n), .received = NEWN(a, uint32_t, n),
                       .lent = NEWN(a, uint32_t, n)};
    return &e->end.base;
}

Endpoint *endpoint_open(Arena *a, World *w, int rank, Team *team, Isa isa)
{
    return w->pulse ? far_open(a, w, rank, team, isa) : cpu_open(a, w, rank, team, isa);
}

static Endpoint *cpu_second(Arena *a, const Endpoint *first)
{
    CpuEndpoint *e = NEW(a, CpuEndpoint);
    *e = *(const CpuEndpoint *)first;
    e->end = endpoint_beside_of(&((const CpuEndpoint *)first)->end);
    return &e->end.base;
}

/* The memory is the arena's and the world's. */
static void cpu_close(Endpoint *end)
{
    end->comm = NULL;
}

void endpoint_progress(Endpoint *end, int64_t instr)
{
    Progress *p = world_progress(((WorldEnd *)end)->world, end->rank);
    atomic_store_explicit(&p->instr, instr, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->begun, 1, memory_order_relaxed);
}

void endpoint_beside(Endpoint *end, int64_t instr)
{
    WorldEnd *e = (WorldEnd *)end;
    e->beside = instr;
    if (instr >= 0)
        atomic_fetch_add_explicit(&world_progress(e->world, end->rank)->begun, 1, memory_order_relaxed);
}

void endpoint_crowd(Endpoint *end, int threads)
{
    WorldEnd *e = (WorldEnd *)end;
    e->spins = spins_for(threads, e->world->header->cores);
}

void endpoint_timeout(Endpoint *end, double seconds)
{
    ((WorldEnd *)end)->timeout = seconds;
}

double endpoint_waited(const Endpoint *end)
{
    return ((const WorldEnd *)end)->waited;
}

int64_t endpoint_offset(const WorldEnd *e, const void *buffer, int64_t bytes)
{
    const Header *h = e->world->header;
    int64_t at = (const char *)buffer - (const char *)world_part(e->world, e->base.rank);
    assert(at >= 0 && bytes <= h->part_bytes[e->base.rank] - at && "what peers read and write lies in the rank's shared part");
    return at;
}

CommGroup group_new(Endpoint *end, Arena *a, uint32_t id, const int *rank, int n)
{
    int *member = NEWN(a, int, n), me = -1;
    for (int i = 0; i < n; i++) {
        assert(rank[i] >= 0 && rank[i] < end->nrank && (i == 0 || rank[i - 1] < rank[i]));
        member[i] = rank[i];
        me = rank[i] == end->rank ? i : me;
    }
    assert(me >= 0 && "a rank makes the groups it is in");
    return (CommGroup){.end = end, .id = id, .n = n, .me = me, .rank = member};
}

static CommGroup *cpu_group(Endpoint *end, Arena *a, uint32_t id, const int *rank, int n)
{
    CpuGroup *g = NEW(a, CpuGroup);
    g->base = group_new(end, a, id, rank, n);
    g->arrival = NEWN(a, Arrival *, n);
    for (int i = 0; i < n; i++)
        g->arrival[i] = world_arrival(((WorldEnd *)end)->world, id, rank[i]);
    assert(!flag_reached(&g->arrival[g->base.me]->half[1].flag, 1) && "a rank makes a group once");
    return &g->base;
}

void comm_part(int64_t count, int i, int n, int64_t *first, int64_t *end)
{
    int64_t size = (count + n - 1) / n, a = i * size, b = a + size;
    *first = a < count ? a : count;
    *end = b < count ? b : count;
}

const Comm comm_cpu = {
    .name = "cpu",
    .second = cpu_second,
    .group = cpu_group,
    .barrier = cpu_barrier,
    .all_reduce = cpu_all_reduce,
    .reduce = cpu_reduce,
    .broadcast = cpu_broadcast,
    .reduce_scatter = cpu_reduce_scatter,
    .all_gather = cpu_all_gather,
    .all_to_all = cpu_all_to_all,
    .send = cpu_send,
    .recv = cpu_recv,
    .flush = cpu_flush,
    .close = cpu_close,
};
