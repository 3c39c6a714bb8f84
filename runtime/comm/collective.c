/* Collectives.  Members meet; each knows then where the others' buffers lie and that
 * they are ready, takes its part out of them and, in all_reduce and reduce, writes it
 * where it belongs; they meet again, and may change their buffers.
 *
 * A small message travels with the first meeting itself, and there is no second one. */
#include "runtime/comm/world.h"

#include <assert.h>
#include <string.h>

/* One call: what all members must agree on, and this one's buffers. */
typedef struct Collective {
    WaitKind    kind;
    DType       dtype;
    ReduceOp    op;
    int         root;
    int64_t     count;
    const void *send;                 /* NULL: this member has none */
    void       *recv;
    int64_t     send_bytes, recv_bytes;
    int64_t     bytes;                /* of the largest send of all members */
    bool        swaps;                /* all_to_all in place */
} Collective;

/* The buffers of all members. */
typedef struct Sides {
    const void *from[WORLD_RANKS];
    void       *to[WORLD_RANKS];
} Sides;

static WorldEnd *end_of(const CpuGroup *g)
{
    return (WorldEnd *)g->base.end;
}

static const Half *half_of(const CpuGroup *g, int member)
{
    return &g->arrival[member]->half[g->meetings % 2];
}

static bool is_small(const Collective *c)
{
    return c->bytes <= COMM_SMALL;
}

static uint32_t signature(const Collective *c)
{
    return (uint32_t)c->kind | (uint32_t)c->dtype << 8 | (uint32_t)c->op << 16 | (uint32_t)c->swaps << 24;
}

/* Arrive, and wait for all. */
static Status meet(CpuGroup *g, WaitKind kind)
{
    flag_raise(&g->arrival[g->base.me]->half[g->meetings % 2].flag, g->meetings);
    for (int i = 0; i < g->base.n; i++) {
        Awaited a = {.flag = &g->arrival[i]->half[g->meetings % 2].flag, .value = g->meetings, .rank = g->base.rank[i], .kind = kind, .group = g->base.id};
        TRY(flag_await(end_of(g), &a));
    }
    return OK;
}

static Status begin(CpuGroup *g, const Collective *c, Sides *s)
{
    const WorldEnd *e = end_of(g);
    Half *mine = &g->arrival[g->base.me]->half[++g->meetings % 2];
    mine->signature = signature(c);
    mine->root = (uint32_t)c->root;
    mine->count = c->count;
    mine->send = mine->recv = -1;
    if (c->send && is_small(c))
        memcpy(mine->data, c->send, (size_t)c->send_bytes);
    else if (c->send)
        mine->send = endpoint_offset(e, c->send, c->send_bytes);
    if (c->recv && !is_small(c))
        mine->recv = endpoint_offset(e, c->recv, c->recv_bytes);
    TRY(meet(g, c->kind));
    for (int i = 0; i < g->base.n; i++) {
        const Half *h = half_of(g, i);
        assert(h->signature == mine->signature && h->root == mine->root && h->count == mine->count && "members of a group call alike");
        s->from[i] = is_small(c) ? (const void *)h->data : endpoint_at(e, g->base.rank[i], h->send);
        s->to[i] = endpoint_at(e, g->base.rank[i], h->recv);
    }
    if (is_small(c))                  /* it is warm; the half just written was measured to be as slow as a peer's */
        s->from[g->base.me] = c->send;
    return OK;
}

static Status finish(CpuGroup *g, const Collective *c)
{
    if (is_small(c))
        return OK;
    g->meetings++;
    return meet(g, c->kind);
}

/* ---- reductions ---- */

/* Whether a sum replaces what it reads.  One output tells: members call alike. */
static bool in_place(const CpuGroup *g, const Sides *s, const void *out)
{
    bool is = false;
    for (int i = 0; i < g->base.n && !is; i++)
        is = s->from[i] == out;
    return is;
}

/* Elements [first, end) of all sends into `nout` buffers. */
static void sum_up(const CpuGroup *g, const Collective *c, const Sides *s, void *const *out, int nout, int64_t first, int64_t end)
{
    const WorldEnd *e = end_of(g);
    int64_t touched = (end - first) * dtype_bytes(c->dtype) * (g->base.n + nout) * e->world->header->near;
    const Combine sum = {.dtype = c->dtype, .op = c->op, .nin = g->base.n, .nout = nout, .in = s->from, .out = out, .first = first, .end = end,
                         .stream = combine_streams(&e->caches, touched) && !in_place(g, s, out[0])};
    endpoint_combine(e, &sum);
}

/* This member's slice of a large reduction: whole cache lines of every buffer. */
static void slice(const CpuGroup *g, const Collective *c, int64_t *first, int64_t *end)
{
    team_part(c->count, LINE / dtype_bytes(c->dtype), g->base.me, g->base.n, first, end);
}

Status cpu_all_reduce(CommGroup *group, const void *send, void *recv, int64_t count, DType dtype, ReduceOp op)
{
    CpuGroup *g = (CpuGroup *)group;
    int64_t bytes = count * dtype_bytes(dtype), first, end;
    const Collective c = {.kind = WAIT_all_reduce, .dtype = dtype, .op = op, .count = count, .send = send, .recv = recv,
                          .send_bytes = bytes, .recv_bytes = bytes, .bytes = bytes};
    Sides s;
    TRY(begin(g, &c, &s));
    slice(g, &c, &first, &end);
    if (is_small(&c))
        sum_up(g, &c, &s, &recv, 1, 0, count);
    else
        sum_up(g, &c, &s, s.to, group->n, first, end);
    return finish(g, &c);
}

Status cpu_reduce(CommGroup *group, const void *send, void *recv, int64_t count, DType dtype, ReduceOp op, int root)
{
    CpuGroup *g = (CpuGroup *)group;
    int64_t bytes = count * dtype_bytes(dtype), first, end;
    const Collective c = {.kind = WAIT_reduce, .dtype = dtype, .op = op, .root = root, .count = count, .send = send,
                          .recv = group->me == root ? recv : NULL, .send_bytes = bytes, .recv_bytes = bytes, .bytes = bytes};
    Sides s;
    TRY(begin(g, &c, &s));
    slice(g, &c, &first, &end);
    if (!is_small(&c))
        sum_up(g, &c, &s, &s.to[root], 1, first, end);
    else if (group->me == root)
        sum_up(g, &c, &s, &recv, 1, 0, count);
    return finish(g, &c);
}

Status cpu_reduce_scatter(CommGroup *group, const void *send, void *recv, int64_t count, DType dtype, ReduceOp op)
{
    CpuGroup *g = (CpuGroup *)group;
    int64_t size = dtype_bytes(dtype), first, end;
    const Collective c = {.kind = WAIT_reduce_scatter, .dtype = dtype, .op = op, .count = count, .send = send,
                          .send_bytes = count * size, .bytes = count * size};
    Sides s;
    TRY(begin(g, &c, &s));
    comm_part(count, group->me, group->n, &first, &end);
    for (int i = 0; i < group->n; i++)
        s.from[i] = (const char *)s.from[i] + first * size;
    sum_up(g, &c, &s, &recv, 1, 0, end - first);
    return finish(g, &c);
}

/* ---- copies ---- */

/* One of the copies of a call, all of which are of `total` bytes. */
static void copy(const CpuGroup *g, void *to, const void *from, int64_t bytes, int64_t total)
{
    if (to != from)
        endpoint_copy(end_of(g), to, from, bytes, total);
}

Status cpu_broadcast(CommGroup *group, const void *send, void *recv, int64_t count, DType dtype, int root)
{
    CpuGroup *g = (CpuGroup *)group;
    int64_t bytes = count * dtype_bytes(dtype);
    const Collective c = {.kind = WAIT_broadcast, .dtype = dtype, .root = root, .count = count,
                          .send = group->me == root ? send : NULL, .send_bytes = bytes, .bytes = bytes};
    Sides s;
    TRY(begin(g, &c, &s));
    copy(g, recv, group->me == root ? send : s.from[root], bytes, bytes);
    return finish(g, &c);
}

/* Members begin with different peers, so that not all read the same buffer at once. */
static int turn(const CpuGroup *g, int i)
{
    return (g->base.me + i) % g->base.n;
}

Status cpu_all_gather(CommGroup *group, const void *send, void *recv, int64_t count, DType dtype)
{
    CpuGroup *g = (CpuGroup *)group;
    int64_t size = dtype_bytes(dtype), first, end, largest;
    comm_part(count, 0, group->n, &first, &largest);
    comm_part(count, group->me, group->n, &first, &end);
    const Collective c = {.kind = WAIT_all_gather, .dtype = dtype, .count = count, .send = send,
                          .send_bytes = (end - first) * size, .bytes = largest * size};
    Sides s;
    TRY(begin(g, &c, &s));
    for (int i = 0; i < group->n; i++) {
        int from = turn(g, i);
        comm_part(count, from, group->n, &first, &end);
        copy(g, (char *)recv + first * size, from == group->me ? send : s.from[from], (end - first) * size,
             (count - largest) * size);
    }
    return finish(g, &c);
}

/* Exchange two blocks of two members' buffers. */
static void swap(char *a, char *b, int64_t bytes)
{
    char held[4096];
    for (int64_t i = 0; i < bytes; i += (int64_t)sizeof held) {
        size_t n = bytes - i < (int64_t)sizeof held ? (size_t)(bytes - i) : sizeof held;
        memcpy(held, a + i, n);
        memcpy(a + i, b + i, n);
        memcpy(b + i, held, n);
    }
}

/* Of each pair of members one swaps; every member has about as many pairs. */
static void swap_blocks(const CpuGroup *g, const Sides *s, char *mine, int64_t block)
{
    int me = g->base.me;
    for (int i = 0; i < g->base.n; i++)
        if (i != me && ((i + me) % 2 ? me < i : me > i))
            swap(mine + i * block, (char *)s->to[i] + me * block, block);
}

Status cpu_all_to_all(CommGroup *group, const void *send, void *recv, int64_t count, DType dtype)
{
    CpuGroup *g = (CpuGroup *)group;
    assert(count % group->n == 0 && "blocks of an all-to-all are equal");
    int64_t bytes = count * dtype_bytes(dtype), block = bytes / group->n;
    const Collective c = {.kind = WAIT_all_to_all, .dtype = dtype, .count = count, .send = send, .send_bytes = bytes, .bytes = bytes,
                          .swaps = send == recv, .recv = send == recv ? recv : NULL, .recv_bytes = bytes};
    Sides s;
    TRY(begin(g, &c, &s));
    if (c.swaps && !is_small(&c)) {
        swap_blocks(g, &s, recv, block);
        return finish(g, &c);
    }
    for (int i = 0; i < group->n; i++)
        copy(g, (char *)recv + turn(g, i) * block, (const char *)s.from[turn(g, i)] + group->me * block, block, bytes);
    return finish(g, &c);
}

Status cpu_barrier(CommGroup *group)
{
    CpuGroup *g = (CpuGroup *)group;
    g->meetings++;
    return meet(g, WAIT_barrier);
}
