/* collective.cpp -- executes collectives and transfers between ranks over their shared memory.
 *
 * All ranks first compare what they call.  Sums run in the order of ranks, in f32 for bf16 and fp16, rounded once. */
#include "numbers.h"
#include "world.h"

#include <cstdio>
#include <cstring>
#include <set>

#include <sched.h>
#include <unistd.h>

namespace cudaemu {

const char *const call_names[] = {"AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce", "AlltoAll", "Gather", "Scatter"};

size_t nccl_bytes(ncclDataType_t t)
{
    switch (t) {
    case ncclInt8: case ncclUint8: case ncclFloat8e4m3: case ncclFloat8e5m2: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    default: return 4;
    }
}

size_t sent_parts(CallKind kind, int size, int rank, int root)
{
    switch (kind) {
    case REDUCE_SCATTER: case ALL_TO_ALL: return (size_t)size;
    case BROADCAST: return rank == root;
    case SCATTER: return rank == root ? (size_t)size : 0;
    default: return 1;
    }
}

size_t received_parts(CallKind kind, int size, int rank, int root)
{
    switch (kind) {
    case ALL_GATHER: case ALL_TO_ALL: return (size_t)size;
    case REDUCE: return rank == root;
    case GATHER: return rank == root ? (size_t)size : 0;
    default: return 1;
    }
}

/* ---- failures ---- */

static void fail_comm(ncclComm *c, ncclResult_t e)
{
    int none = ncclSuccess;
    c->state.compare_exchange_strong(none, e);
}

/* Ends what all ranks do; the others see a remote error. */
static void end_world(ncclComm *c, ncclResult_t e)
{
    fail_comm(c, e);
    c->world->aborted = 1 + c->rank;
}

static bool went_well(ncclComm *c, WaitEnd end)
{
    if (end == WAIT_LATE)
        end_world(c, ncclSystemError);
    if (end == WAIT_ABORTED)
        fail_comm(c, ncclRemoteError);
    return end == WAIT_OK;
}

/* ---- the contract ---- */

bool same_order(const Seen *mine, int nmine, const Seen *theirs, int ntheirs)
{
    for (int i = 0; i < nmine; i++)
        for (int j = 0; j < ntheirs; j++)
            if (mine[i].comm == theirs[j].comm && mine[i].issued != theirs[j].issued)
                return false;
    return true;
}

static std::string call_text(const Call &c)
{
    char text[160];
    snprintf(text, sizeof text, "%s #%lu of %lu (type %d, reduction %d, root %d)", call_names[c.kind], (unsigned long)c.sequence,
             (unsigned long)c.count, c.type, c.reduction, c.root);
    return text;
}

/* Whether all ranks call the same; the first one that finds a difference reports it. */
static bool contract_holds(ncclComm *c)
{
    World *w = c->world;
    const Call &mine = w->rank[c->rank].call;
    for (int r = 0; r < c->size; r++) {
        const Call &x = w->rank[r].call;
        bool same = x.sequence == mine.sequence && x.count == mine.count && x.kind == mine.kind && x.type == mine.type &&
                    x.reduction == mine.reduction && x.root == mine.root;
        if (!same) {
            end_world(c, ncclInvalidUsage);
            report("ranks disagree: rank %d calls %s, rank %d calls %s", c->rank, call_text(mine).c_str(), r, call_text(x).c_str());
            return false;
        }
        if (settings().order && !same_order(mine.seen, mine.nseen, x.seen, x.nseen)) {
            end_world(c, ncclInvalidUsage);
            report("ranks %d and %d issue %s and operations of another communicator in different orders", c->rank, r, call_text(mine).c_str());
            return false;
        }
    }
    return true;
}

static void publish(const Collective &op)
{
    ncclComm *c = op.comm;
    RankState &state = c->world->rank[c->rank];
    Call &call = state.call;
    call.sequence = ++c->sequence;
    call.count = op.count;
    call.kind = op.kind;
    call.type = op.type;
    call.reduction = op.reduction;
    call.root = op.root;
    call.nseen = 0;
    for (const Seen &s : op.seen)
        if (call.nseen < MAX_SEEN)
            call.seen[call.nseen++] = s;
    world_doing(c->world, c->rank, "in %s", call_text(call).c_str());
}

/* ---- reductions ---- */

template <class T> static T combine(T a, T b, int reduction)
{
    switch (reduction) {
    case ncclProd: return (T)(a * b);
    case ncclMax: return a > b ? a : b;
    case ncclMin: return a < b ? a : b;
    default: return (T)(a + b);
    }
}

/* N elements of all ranks' slots at OFFSET into OUT, by way of T, some at a time. */
template <class Stored, class T, class Load, class Store>
static void reduce_as(World *w, size_t offset, char *out, size_t n, int reduction, Load load, Store store)
{
    enum : size_t { SOME = 256 };
    int size = w->ranks.load();
    T sum[SOME];
    for (size_t first = 0; first < n; first += SOME) {
        size_t count = n - first < SOME ? n - first : (size_t)SOME;
        for (int r = 0; r < size; r++) {
            const Stored *x = reinterpret_cast<const Stored *>(world_slot(w, r) + offset) + first;
            for (size_t i = 0; i < count; i++)
                sum[i] = r ? combine<T>(sum[i], load(x[i]), reduction) : load(x[i]);
        }
        Stored *to = reinterpret_cast<Stored *>(out) + first;
        for (size_t i = 0; i < count; i++)
            to[i] = store(reduction == ncclAvg ? (T)(sum[i] / (T)size) : sum[i]);
    }
}

template <class T> static void reduce_plain(World *w, size_t offset, char *out, size_t n, int reduction)
{
    reduce_as<T, T>(w, offset, out, n, reduction, [](T x) { return x; }, [](T x) { return x; });
}

static void reduce_slots(World *w, size_t offset, char *out, size_t n, ncclDataType_t type, int reduction)
{
    switch (type) {
    case ncclInt8: reduce_plain<int8_t>(w, offset, out, n, reduction); break;
    case ncclUint8: reduce_plain<uint8_t>(w, offset, out, n, reduction); break;
    case ncclInt32: reduce_plain<int32_t>(w, offset, out, n, reduction); break;
    case ncclUint32: reduce_plain<uint32_t>(w, offset, out, n, reduction); break;
    case ncclInt64: reduce_plain<int64_t>(w, offset, out, n, reduction); break;
    case ncclUint64: reduce_plain<uint64_t>(w, offset, out, n, reduction); break;
    case ncclFloat32: reduce_plain<float>(w, offset, out, n, reduction); break;
    case ncclFloat64: reduce_plain<double>(w, offset, out, n, reduction); break;
    case ncclBfloat16: reduce_as<uint16_t, float>(w, offset, out, n, reduction, from_bf16, to_bf16); break;
    case ncclFloat16: reduce_as<uint16_t, float>(w, offset, out, n, reduction, from_f16, to_f16); break;
    default: fatal("NCCL: reductions of type %d are not emulated", type);
    }
}

/* ---- collectives ---- */

/* N elements from element FIRST of each part into my slot, part behind part. */
static void fill_slot(const Collective &op, size_t parts, size_t first, size_t n, size_t room)
{
    size_t bytes = nccl_bytes(op.type);
    char *slot = world_slot(op.comm->world, op.comm->rank);
    for (size_t p = 0; p < parts; p++)
        memcpy(slot + p * room, op.send + (p * op.count + first) * bytes, n * bytes);
}

/* What I get of the slots. */
static void take(const Collective &op, size_t first, size_t n, size_t room)
{
    ncclComm *c = op.comm;
    World *w = c->world;
    size_t bytes = nccl_bytes(op.type), me = (size_t)c->rank;
    char *to = op.recv + first * bytes;
    switch (op.kind) {
    case ALL_REDUCE: reduce_slots(w, 0, to, n, op.type, op.reduction); break;
    case REDUCE: if (c->rank == op.root) reduce_slots(w, 0, to, n, op.type, op.reduction); break;
    case REDUCE_SCATTER: reduce_slots(w, me * room, to, n, op.type, op.reduction); break;
    case BROADCAST: memcpy(to, world_slot(w, op.root), n * bytes); break;
    case SCATTER: memcpy(to, world_slot(w, op.root) + me * room, n * bytes); break;
    case ALL_GATHER: case GATHER: case ALL_TO_ALL:
        if (op.kind == GATHER && c->rank != op.root)
            break;
        for (int r = 0; r < c->size; r++)
            memcpy(to + (size_t)r * op.count * bytes, world_slot(w, r) + (op.kind == ALL_TO_ALL ? me * room : 0), n * bytes);
        break;
    }
}

/* The order of memory that a collective gives: who needs nobody's data waits for nobody. */
static void announce(const Collective &op, bool before)
{
    ncclComm *c = op.comm;
    unsigned turn = c->sequence & 1 ? 16 : 0;
    if (before) {
        release(&c->world->rank[c->rank].doing[turn]);
        return;
    }
    bool from_root = op.kind == BROADCAST || op.kind == SCATTER, to_root = op.kind == REDUCE || op.kind == GATHER;
    for (int r = 0; r < c->size; r++)
        if (from_root ? r == op.root : !to_root || c->rank == op.root)
            acquire(&c->world->rank[r].doing[turn]);
}

/* In place a round overwrites nothing but what it has sent. */
static bool move(const Collective &op)
{
    ncclComm *c = op.comm;
    size_t parts = sent_parts(op.kind, c->size, c->rank, op.root), most = op.kind == REDUCE_SCATTER || op.kind == ALL_TO_ALL || op.kind == SCATTER ? (size_t)c->size : 1;
    size_t room = SLOT_BYTES / most / 8 * 8, step = room / nccl_bytes(op.type);
    for (size_t first = 0; first < op.count; first += step) {
        size_t n = op.count - first < step ? op.count - first : step;
        {
            Hidden hidden;
            fill_slot(op, parts, first, n, room);
        }
        if (!went_well(c, world_barrier(c->world, c->rank, &c->given_up)))
            return false;
        {
            Hidden hidden;
            take(op, first, n, room);
        }
        if (!went_well(c, world_barrier(c->world, c->rank, &c->given_up)))
            return false;
    }
    return true;
}

/* Unless it fails, or is stuck: then it waits until the communicator is aborted. */
static bool begins(ncclComm *c)
{
    int code = fault("collective");
    if (code < 0)
        went_well(c, world_wait(c->world, c->rank, &c->given_up, []() { return false; }));
    else if (code)
        fail_comm(c, (ncclResult_t)code);
    return !code;
}

void run_collective(const Collective &op)
{
    ncclComm *c = op.comm;
    if (c->state.load() > ncclSuccess && c->state.load() != ncclInProgress)
        return;
    if (!begins(c))
        return;
    size_t bytes = op.count * nccl_bytes(op.type);
    size_t sent = bytes * sent_parts(op.kind, c->size, c->rank, op.root), received = bytes * received_parts(op.kind, c->size, c->rank, op.root);
    note_read(op.send, sent);
    note_write(op.recv, received);
    {
        Hidden hidden;
        publish(op);
    }
    announce(op, true);
    if (!went_well(c, world_barrier(c->world, c->rank, &c->given_up)) || !contract_holds(c))
        return;
    /* All have read the calls before any publishes its next one. */
    if (!went_well(c, world_barrier(c->world, c->rank, &c->given_up)))
        return;
    if (move(op))
        announce(op, false);
    Hidden hidden;
    world_doing(c->world, c->rank, "has done %s", call_text(c->world->rank[c->rank].call).c_str());
}

/* ---- transfers ---- */

struct Progress {
    const Transfer *t;
    Pipe *pipe;
    size_t bytes, moved;
    bool started, ended;
};

/* The first chunk of a message: does it fit what is received? */
static bool message_fits(const Progress &p)
{
    const Transfer &t = *p.t;
    ncclComm *c = t.comm;
    if (p.pipe->total != p.bytes || p.pipe->type != t.type) {
        end_world(c, ncclInvalidUsage);
        report("ranks disagree: rank %d sends %lu bytes of type %d, rank %d receives %zu of type %d", t.peer, (unsigned long)p.pipe->total,
               p.pipe->type, c->rank, p.bytes, t.type);
        return false;
    }
    if (settings().order && !same_order(t.seen.data(), (int)t.seen.size(), p.pipe->seen, p.pipe->nseen)) {
        end_world(c, ncclInvalidUsage);
        report("ranks %d and %d issue a transfer and operations of another communicator in different orders", t.peer, c->rank);
        return false;
    }
    return true;
}

/* A send ends when it was received, as one that NCCL has no buffer for. */
static void put_chunk(Progress *p)
{
    Pipe *q = p->pipe;
    const Transfer &t = *p->t;
    unsigned put = q->put.load();
    if (p->started && p->moved == p->bytes) {
        p->ended = q->got.load() == put;
        return;
    }
    if (put - q->got.load() >= (p->started ? (unsigned)PIPE_CHUNKS : 1u))
        return;             /* a message begins when the one before has been taken */
    if (!p->started) {
        q->total = p->bytes;
        q->type = t.type;
        q->nseen = 0;
        for (const Seen &s : t.seen)
            if (q->nseen < MAX_SEEN)
                q->seen[q->nseen++] = s;
        p->started = true;
    }
    size_t n = p->bytes - p->moved < PIPE_BYTES ? p->bytes - p->moved : (size_t)PIPE_BYTES;
    memcpy(q->data[put % PIPE_CHUNKS], t.data + p->moved, n);
    q->bytes[put % PIPE_CHUNKS] = n;
    q->put = put + 1;
    p->moved += n;
}

static bool get_chunk(Progress *p)
{
    Pipe *q = p->pipe;
    unsigned got = q->got.load();
    if (got == q->put.load())
        return true;
    if (!p->started && !message_fits(*p))
        return false;
    p->started = true;
    size_t n = q->bytes[got % PIPE_CHUNKS];
    memcpy(p->t->data + p->moved, q->data[got % PIPE_CHUNKS], n);
    p->moved += n;
    q->got = got + 1;
    p->ended = p->moved == p->bytes;
    return true;
}

/* One round over all; messages between two ranks keep their order.  The number of chunks moved, -1 after a failure. */
static int move_chunks(std::vector<Progress> *list)
{
    int moves = 0;
    std::set<std::pair<Pipe *, bool>> busy;
    for (Progress &p : *list) {
        if (p.ended || !busy.insert({p.pipe, p.t->sends}).second)
            continue;
        size_t before = p.moved;
        bool was_started = p.started;
        if (p.t->sends)
            put_chunk(&p);
        else if (!get_chunk(&p))
            return -1;
        moves += p.moved != before || p.started != was_started || p.ended;
    }
    return moves;
}

static void describe_transfers(const std::vector<Progress> &list)
{
    for (const Progress &p : list)
        if (!p.ended)
            world_doing(p.t->comm->world, p.t->comm->rank, "%s rank %d: %zu of %zu bytes", p.t->sends ? "in Send to" : "in Recv from",
                        p.t->peer, p.moved, p.bytes);
}

static bool all_ended(const std::vector<Progress> &list)
{
    for (const Progress &p : list)
        if (!p.ended)
            return false;
    return true;
}

static bool run_all(std::vector<Progress> *list)
{
    ncclComm *c = (*list)[0].t->comm;
    while (!all_ended(*list)) {
        describe_transfers(*list);
        int moves = 0;
        WaitEnd end = world_wait(c->world, c->rank, &c->given_up, [&]() {
            for (Progress &p : *list)
                if (p.t->comm->world->aborted.load() || p.t->comm->given_up.load())
                    moves = -1;
            moves = moves < 0 ? -1 : move_chunks(list);
            return moves != 0;
        });
        for (Progress &p : *list)
            if (end != WAIT_OK || moves < 0)
                went_well(p.t->comm, end == WAIT_OK ? WAIT_ABORTED : end);
        if (end != WAIT_OK || moves < 0)
            return false;
    }
    return true;
}

void run_transfers(const std::vector<Transfer> &ops)
{
    std::vector<Progress> list;
    for (const Transfer &t : ops) {
        ncclComm *c = t.comm;
        if (c->state.load() > ncclSuccess && c->state.load() != ncclInProgress)
            return;
        if (!begins(c))
            return;
        size_t bytes = t.count * nccl_bytes(t.type);
        if (t.sends) {
            note_read(t.data, bytes);
            release(world_pipe(c->world, c->rank, t.peer));
        } else {
            note_write(t.data, bytes);
        }
        Hidden hidden;
        list.push_back(Progress{&t, t.sends ? world_pipe(c->world, c->rank, t.peer) : world_pipe(c->world, t.peer, c->rank), bytes, 0, false, false});
    }
    bool good;
    {
        Hidden hidden;
        good = run_all(&list);
    }
    for (const Transfer &t : ops) {
        if (good && !t.sends)
            acquire(world_pipe(t.comm->world, t.peer, t.comm->rank));
        Hidden hidden;
        if (good)
            world_doing(t.comm->world, t.comm->rank, "has done %s rank %d", t.sends ? "Send to" : "Recv from", t.peer);
    }
    Hidden hidden;
    list = std::vector<Progress>();
}

} /* namespace cudaemu */
