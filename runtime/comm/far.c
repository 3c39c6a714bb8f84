/* Ends of ranks that share no memory: messages in pieces, point to point, and the table. */
#include "runtime/comm/far.h"

#include <assert.h>

/* ---- messages ---- */

static int64_t piece_bytes(int64_t bytes)
{
    int64_t least = (bytes + PIECES - 1) / PIECES;
    return least > PIECE_BYTES ? least : PIECE_BYTES;
}

/* The net has said what is wrong. */
static Status lost(const FarEnd *e, int peer)
{
    world_abort(e->end.world, peer, "cannot be reached");
    return ERR_COMM;
}

Status far_post_send(FarEnd *e, int to, int tag, const void *from, int64_t bytes, Message *m)
{
    int64_t size = piece_bytes(bytes), at = 0;
    *m = (Message){.peer = to};
    do {
        int64_t n = bytes - at < size ? bytes - at : size;
        m->bytes[m->n] = -1;
        if (!e->net->send(to, tag, (const char *)from + at, n, &m->request[m->n++]))
            return lost(e, to);
        at += n;
    } while (at < bytes);
    return OK;
}

Status far_post_recv(FarEnd *e, int from, int tag, void *to, int64_t bytes, Message *m)
{
    int64_t size = piece_bytes(bytes), at = 0;
    *m = (Message){.peer = from};
    do {
        int64_t n = bytes - at < size ? bytes - at : size;
        m->bytes[m->n] = n;
        if (!e->net->recv(from, tag, (char *)to + at, n, &m->request[m->n++]))
            return lost(e, from);
        at += n;
    } while (at < bytes);
    return OK;
}

/* A look at the next piece of a message. */
typedef struct Look { const Net *net; Message *message; NetState state; int64_t bytes; } Look;

static bool is_there(void *what)
{
    Look *l = what;
    if (l->state == NET_UNDER_WAY)
        l->state = l->net->test(&l->message->request[l->message->done], &l->bytes);
    return l->state != NET_UNDER_WAY;
}

Status far_await(FarEnd *e, Message *m, WaitKind kind, uint32_t group)
{
    for (; m->done < m->n; m->done++) {
        Look look = {.net = e->net, .message = m};
        Awaited a = {.rank = m->peer, .kind = kind, .group = group, .there = is_there, .what = &look};
        if (!is_there(&look))
            TRY(await(&e->end, &a));
        if (look.state == NET_FAILED)
            return lost(e, m->peer);
        assert((m->bytes[m->done] < 0 || look.bytes == m->bytes[m->done]) && "sender and receiver agree on the size of a message");
        atomic_fetch_add_explicit(&world_progress(e->end.world, e->end.base.rank)->begun, 1, memory_order_relaxed);
    }
    return OK;
}

/* ---- point to point ---- */

/* Until a letter's place is free. */
static Status settle(FarEnd *e, Message *m)
{
    TRY(far_await(e, m, WAIT_send, 0));
    if (m->n > 0)
        pulse_lend(e->end.world->pulse, -1);
    m->n = m->done = 0;
    return OK;
}

static Status far_send(Endpoint *end, int to, const void *buffer, int64_t bytes)
{
    FarEnd *e = (FarEnd *)end;
    Letters *l = &e->letters[to];
    Message *m = &l->message[l->sent % COMM_DEPTH];
    TRY(settle(e, m));
    l->sent++;
    pulse_lend(e->end.world->pulse, 1);
    return far_post_send(e, to, LETTER_TAG, buffer, bytes, m);
}

static Status far_recv(Endpoint *end, int from, void *buffer, int64_t bytes)
{
    FarEnd *e = (FarEnd *)end;
    Message m;
    TRY(far_post_recv(e, from, LETTER_TAG, buffer, bytes, &m));
    return far_await(e, &m, WAIT_recv, 0);
}

static Status flush_to(FarEnd *e, int to)
{
    for (int i = 0; i < COMM_DEPTH; i++)
        TRY(settle(e, &e->letters[to].message[i]));
    return OK;
}

static Status far_flush(Endpoint *end, int to)
{
    FarEnd *e = (FarEnd *)end;
    if (to != COMM_ANY)
        return flush_to(e, to);
    for (int i = 0; i < end->nrank; i++)
        TRY(flush_to(e, i));
    return OK;
}

/* ---- ends ---- */

static void give_memory(FarEnd *e, Arena *a)
{
    e->letters = NEWN(a, Letters, e->end.base.nrank);
    e->message = NEWN(a, Message, 2 * e->end.base.nrank);
    e->stage = arena_alloc(a, STAGE_BYTES);
}

Endpoint *far_open(Arena *a, World *w, int rank, Team *team, Isa isa)
{
    FarEnd *e = NEW(a, FarEnd);
    *e = (FarEnd){.end = endpoint_new(&comm_far, w, rank, team, isa), .net = pulse_net(w->pulse)};
    give_memory(e, a);
    return &e->end.base;
}

static Endpoint *far_second(Arena *a, const Endpoint *first)
{
    FarEnd *e = NEW(a, FarEnd);
    *e = *(const FarEnd *)first;
    e->end = endpoint_beside_of(&((const FarEnd *)first)->end);
    give_memory(e, a);
    return &e->end.base;
}

static CommGroup *far_group(Endpoint *end, Arena *a, uint32_t id, const int *rank, int n)
{
    CommGroup *g = NEW(a, CommGroup);
    *g = group_new(end, a, id, rank, n);
    return g;
}

/* What is under way after a run was aborted must not reach memory that is given back. */
static void far_close(Endpoint *end)
{
    World *w = ((FarEnd *)end)->end.world;
    if (world_aborted(w) >= 0)
        pulse_hush(w->pulse);
    end->comm = NULL;
}

const Comm comm_far = {
    .name = "far",
    .second = far_second,
    .group = far_group,
    .barrier = far_barrier,
    .all_reduce = far_all_reduce,
    .reduce = far_reduce,
    .broadcast = far_broadcast,
    .reduce_scatter = far_reduce_scatter,
    .all_gather = far_all_gather,
    .all_to_all = far_all_to_all,
    .send = far_send,
    .recv = far_recv,
    .flush = far_flush,
    .close = far_close,
};
