/* Collectives of ranks that share no memory.
 *
 * Members send each other what each of them needs, all at once, and add it in member
 * order: the bits are those of collective.c.  What is to be added comes through the
 * stage, so a large reduction goes in rounds. */
#include "runtime/comm/far.h"

#include <assert.h>
#include <string.h>

/* ---- messages of one exchange ---- */

static FarEnd *end_of(const CommGroup *g)
{
    return (FarEnd *)g->end;
}

/* Of no bytes there is no message: both sides know the size. */
static Status give(CommGroup *g, int to, const void *from, int64_t bytes)
{
    FarEnd *e = end_of(g);
    return bytes == 0 ? OK : far_post_send(e, g->rank[to], GROUP_TAG + (int)g->id, from, bytes, &e->message[e->nmessage++]);
}

static Status take(CommGroup *g, int from, void *to, int64_t bytes)
{
    FarEnd *e = end_of(g);
    return bytes == 0 ? OK : far_post_recv(e, g->rank[from], GROUP_TAG + (int)g->id, to, bytes, &e->message[e->nmessage++]);
}

static Status settle(CommGroup *g, WaitKind kind)
{
    FarEnd *e = end_of(g);
    int n = e->nmessage;
    e->nmessage = 0;
    for (int i = 0; i < n; i++)
        TRY(far_await(e, &e->message[i], kind, g->id));
    return OK;
}

/* Members begin with different peers. */
static int turn(const CommGroup *g, int i)
{
    return (g->me + i) % g->n;
}

/* ---- reductions ---- */

/* What each member adds up: a slice of all, a part as comm_part() makes them, or all of it, everyone or the root alone. */
typedef enum Share { SHARE_SLICE, SHARE_PART, SHARE_ALL, SHARE_ROOT } Share;

typedef struct Reduction {
    CommGroup  *g;
    WaitKind    kind;
    Share       share;
    DType       dtype;
    ReduceOp    op;
    int         root;
    int64_t     count, size, round;   /* elements in all; bytes of one; elements of a share that a round adds */
    const char *send;
} Reduction;

typedef struct Range { int64_t first, end; } Range;

static Range share_of(const Reduction *r, int member)
{
    Range s = {0, r->count};
    if (r->share == SHARE_PART)
        comm_part(r->count, member, r->g->n, &s.first, &s.end);
    else if (r->share == SHARE_SLICE)
        team_part(r->count, LINE / r->size, member, r->g->n, &s.first, &s.end);
    else if (r->share == SHARE_ROOT && member != r->root)
        s.end = 0;
    return s;
}

/* What of it a round is about. */
static Range range_of(const Reduction *r, int member, int64_t round)
{
    Range s = share_of(r, member);
    int64_t first = s.first + round * r->round, end = first + r->round;
    return (Range){first < s.end ? first : s.end, end < s.end ? end : s.end};
}

static int64_t bytes_of(const Reduction *r, Range range)
{
    return (range.end - range.first) * r->size;
}

static int64_t rounds_of(const Reduction *r)
{
    int64_t most = 0;
    for (int i = 0; i < r->g->n; i++) {
        Range s = share_of(r, i);
        most = s.end - s.first > most ? s.end - s.first : most;
    }
    return (most + r->round - 1) / r->round;
}

static void combine_here(const Reduction *r, Range mine, void *out)
{
    const FarEnd *e = end_of(r->g);
    const void *in[WORLD_RANKS];
    for (int i = 0; i < r->g->n; i++)
        in[i] = i == r->g->me ? r->send + mine.first * r->size : e->stage + i * r->round * r->size;
    const Combine sum = {.dtype = r->dtype, .op = r->op, .nin = r->g->n, .nout = 1, .in = in, .out = &out, .end = mine.end - mine.first};
    endpoint_combine(&e->end, &sum);
}

/* This member's share of a round, of all members, into `out`. */
static Status add_up(const Reduction *r, int64_t round, void *out)
{
    CommGroup *g = r->g;
    Range mine = range_of(r, g->me, round);
    for (int i = 1; i < g->n; i++)
        TRY(take(g, turn(g, i), end_of(g)->stage + turn(g, i) * r->round * r->size, bytes_of(r, mine)));
    for (int i = 1; i < g->n; i++) {
        Range theirs = range_of(r, turn(g, i), round);
        TRY(give(g, turn(g, i), r->send + theirs.first * r->size, bytes_of(r, theirs)));
    }
    TRY(settle(g, r->kind));
    if (mine.first < mine.end)
        combine_here(r, mine, out);
    return OK;
}

/* Of a round's sums each member has its own: give them to all. */
static Status spread(const Reduction *r, int64_t round, char *recv)
{
    CommGroup *g = r->g;
    Range mine = range_of(r, g->me, round);
    for (int i = 1; i < g->n; i++) {
        Range theirs = range_of(r, turn(g, i), round);
        TRY(take(g, turn(g, i), recv + theirs.first * r->size, bytes_of(r, theirs)));
    }
    for (int i = 1; i < g->n; i++)
        TRY(give(g, turn(g, i), recv + mine.first * r->size, bytes_of(r, mine)));
    return settle(g, r->kind);
}

static Status reduce_all(Reduction *r, char *recv)
{
    r->size = dtype_bytes(r->dtype);
    r->round = STAGE_BYTES / r->g->n / LINE * LINE / r->size;
    int64_t rounds = rounds_of(r), base = r->share == SHARE_PART ? share_of(r, r->g->me).first : 0;
    for (int64_t k = 0; k < rounds; k++) {
        TRY(add_up(r, k, recv + (range_of(r, r->g->me, k).first - base) * r->size));
        if (r->share == SHARE_SLICE)
            TRY(spread(r, k, recv));
    }
    return OK;
}

Status far_all_reduce(CommGroup *g, const void *send, void *recv, int64_t count, DType dtype, ReduceOp op)
{
    Share share = count * dtype_bytes(dtype) <= COMM_SMALL ? SHARE_ALL : SHARE_SLICE;
    Reduction r = {.g = g, .kind = WAIT_all_reduce, .share = share, .dtype = dtype, .op = op, .count = count, .send = send};
    return reduce_all(&r, recv);
}

Status far_reduce(CommGroup *g, const void *send, void *recv, int64_t count, DType dtype, ReduceOp op, int root)
{
    Reduction r = {.g = g, .kind = WAIT_reduce, .share = SHARE_ROOT, .dtype = dtype, .op = op, .count = count, .send = send, .root = root};
    return reduce_all(&r, recv);
}

Status far_reduce_scatter(CommGroup *g, const void *send, void *recv, int64_t count, DType dtype, ReduceOp op)
{
    Reduction r = {.g = g, .kind = WAIT_reduce_scatter, .share = SHARE_PART, .dtype = dtype, .op = op, .count = count, .send = send};
    return reduce_all(&r, recv);
}

/* ---- copies ---- */

static void copy(const CommGroup *g, void *to, const void *from, int64_t bytes)
{
    if (to != from && bytes > 0)
        endpoint_copy(&end_of(g)->end, to, from, bytes, bytes);
}

Status far_broadcast(CommGroup *g, const void *send, void *recv, int64_t count, DType dtype, int root)
{
    int64_t bytes = count * dtype_bytes(dtype);
    if (g->me != root)
        TRY(take(g, root, recv, bytes));
    for (int i = 1; i < g->n && g->me == root; i++)
        TRY(give(g, turn(g, i), send, bytes));
    if (g->me == root)
        copy(g, recv, send, bytes);
    return settle(g, WAIT_broadcast);
}

Status far_all_gather(CommGroup *g, const void *send, void *recv, int64_t count, DType dtype)
{
    int64_t size = dtype_bytes(dtype), first, end;
    for (int i = 1; i < g->n; i++) {
        comm_part(count, turn(g, i), g->n, &first, &end);
        TRY(take(g, turn(g, i), (char *)recv + first * size, (end - first) * size));
    }
    comm_part(count, g->me, g->n, &first, &end);
    for (int i = 1; i < g->n; i++)
        TRY(give(g, turn(g, i), send, (end - first) * size));
    copy(g, (char *)recv + first * size, send, (end - first) * size);
    return settle(g, WAIT_all_gather);
}

/* Bytes first..end of each block, from `send` to where `into` is for the block. */
static Status exchange_blocks(CommGroup *g, const char *send, char *into, int64_t stride, int64_t block, Range part)
{
    int64_t n = part.end - part.first;
    for (int i = 1; i < g->n; i++)
        TRY(take(g, turn(g, i), into + turn(g, i) * stride, n));
    for (int i = 1; i < g->n; i++)
        TRY(give(g, turn(g, i), send + turn(g, i) * block + part.first, n));
    return settle(g, WAIT_all_to_all);
}

/* What comes lies in the stage until what was there has gone. */
static Status swap_blocks(CommGroup *g, char *buffer, int64_t block)
{
    char *stage = end_of(g)->stage;
    int64_t most = STAGE_BYTES / g->n / LINE * LINE;
    for (int64_t at = 0; at < block; at += most) {
        Range part = {at, at + most < block ? at + most : block};
        TRY(exchange_blocks(g, buffer, stage, most, block, part));
        for (int i = 0; i < g->n; i++)
            if (i != g->me)
                copy(g, buffer + i * block + at, stage + i * most, part.end - part.first);
    }
    return OK;
}

Status far_all_to_all(CommGroup *g, const void *send, void *recv, int64_t count, DType dtype)
{
    assert(count % g->n == 0 && "blocks of an all-to-all are equal");
    int64_t block = count / g->n * dtype_bytes(dtype);
    if (send == recv)
        return swap_blocks(g, recv, block);
    copy(g, (char *)recv + g->me * block, (const char *)send + g->me * block, block);
    return exchange_blocks(g, send, recv, block, block, (Range){0, block});
}

/* ---- barrier ---- */

Status far_barrier(CommGroup *g)
{
    static const char here = 1;
    for (int i = 1; i < g->n; i++) {
        TRY(take(g, turn(g, i), end_of(g)->stage + turn(g, i), 1));
        TRY(give(g, turn(g, i), &here, 1));
    }
    return settle(g, WAIT_barrier);
}
