/* nccl.cpp -- the API of NCCL: communicators, groups, and what is checked when an operation is issued. */
#include "stream.h"
#include "world.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <map>

#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

namespace cudaemu {

/* ---- what a device has issued on which communicator ---- */

static Lock issued_lock;
static std::map<uint64_t, uint64_t> issued[MAX_DEVICES];

/* What DEVICE has issued on communicators other than C. */
static std::vector<Seen> seen_by(int device, const ncclComm *c)
{
    Guard guard(issued_lock);
    std::vector<Seen> list;
    for (auto &i : issued[device])
        if (i.first != c->world->id)
            list.push_back(Seen{i.first, i.second});
    return list;
}

static void count_issue(const ncclComm *c)
{
    Guard guard(issued_lock);
    issued[c->device][c->world->id]++;
}

/* What nobody issues on any more has no order. */
static void forget_issues(const ncclComm *c)
{
    Guard guard(issued_lock);
    if (c->world)
        issued[c->device].erase(c->world->id);
}

/* ---- groups ---- */

struct Start {
    ncclComm *comm;
    std::function<void()> run;
};
struct Pending {
    cudaStream_t stream;
    bool is_transfer;
    Collective collective;
    Transfer transfer;
};
static thread_local int depth;
static thread_local std::vector<Pending> pending;
static thread_local std::vector<Start> starts;
static thread_local std::vector<ncclComm *> aborts;

static std::vector<ncclComm *> standing;            /* communicators; guarded by issued_lock */

/* Whether all ranks of the communicator issue the message, one to send and one to receive it. */
static bool is_of_both(const Transfer &t) { return t.comm->size == 2 && t.peer != t.comm->rank; }

static int device_of(const Pending &p) { return (p.is_transfer ? p.transfer.comm : p.collective.comm)->device; }

/* One operation in one stream for a device's whole group: collectives in the order of communicators, which is the same on all
 * ranks, then transfers at once.  Streams of a group wait for each other, as NCCL makes them. */
static void issue(std::vector<Pending> group)
{
    std::stable_sort(group.begin(), group.end(), [](const Pending &a, const Pending &b) {
        if (a.is_transfer != b.is_transfer)
            return b.is_transfer;
        return !a.is_transfer && a.collective.comm->world->id < b.collective.comm->world->id;
    });
    std::shared_ptr<std::vector<Collective>> collectives(new std::vector<Collective>());
    std::shared_ptr<std::vector<Transfer>> transfers(new std::vector<Transfer>());
    std::vector<ncclComm *> comms;
    std::vector<cudaStream_t> streams;
    for (Pending &p : group) {
        ncclComm *c = p.is_transfer ? p.transfer.comm : p.collective.comm;
        if (p.is_transfer) {
            p.transfer.seen = seen_by(c->device, c);
            transfers->push_back(p.transfer);
        } else {
            p.collective.seen = seen_by(c->device, c);
            collectives->push_back(p.collective);
        }
        if (std::find(comms.begin(), comms.end(), c) == comms.end())
            comms.push_back(c);
        if (std::find(streams.begin(), streams.end(), p.stream) == streams.end())
            streams.push_back(p.stream);
    }
    for (const Collective &c : *collectives)
        count_issue(c.comm);
    for (const Transfer &t : *transfers)
        if (is_of_both(t))
            count_issue(t.comm);
    std::vector<Order *> orders;
    for (ncclComm *c : comms)
        orders.push_back(&c->order);
    cudaStream_t s = streams[0];
    if (streams.size() > 1 && s->capture)
        fatal("a group of NCCL over several streams of a graph is not emulated");
    for (size_t i = 1; i < streams.size(); i++)
        stream_wait(s, stream_mark(streams[i]));
    const char *what = collectives->empty() ? "a transfer of NCCL" : "a collective of NCCL";
    enqueue(s, Operation{[collectives, transfers]() {
        for (const Collective &c : *collectives)
            run_collective(c);
        if (!transfers->empty())
            run_transfers(*transfers);
    }, what, nullptr, orders, false});
    if (streams.size() > 1) {
        TokenRef end = stream_mark(s);
        for (size_t i = 1; i < streams.size(); i++)
            stream_wait(streams[i], end);
    }
}

/* Of a communicator that does not block NCCL gives what was issued to a thread, and is at work when the call returns. */
static ncclResult_t issued_state(ncclComm *c)
{
    if (c->blocking)
        return ncclSuccess;
    c->says_in_progress = true;
    return ncclInProgress;
}

static ncclResult_t add(Pending p)
{
    ncclComm *c = p.is_transfer ? p.transfer.comm : p.collective.comm;
    if (depth) {
        pending.push_back(std::move(p));
        return ncclSuccess;
    }
    issue({std::move(p)});
    return issued_state(c);
}

/* ---- checks at the call ---- */

/* What is wrong with the communicator; the stream may become the default one. */
static ncclResult_t check_call(ncclComm *c, cudaStream_t *s, const char *call)
{
    if (int code = fault(call))
        return (ncclResult_t)code;
    if (!c || c->live.load() != 0x6e63636c) {
        report("%s on %s", call, c ? "a communicator that was destroyed" : "no communicator");
        return ncclInvalidArgument;
    }
    if (c->state.load() == ncclInProgress || c->says_in_progress) {
        report("%s on a communicator that is still %s", call, c->says_in_progress ? "taking the operation before" : "being made");
        return ncclInvalidArgument;
    }
    if (c->state.load())
        return (ncclResult_t)c->state.load();
    if (c->device != current_device()) {
        report("%s on a communicator of device %d, on device %d", call, c->device, current_device());
        return ncclInvalidArgument;
    }
    *s = resolve(*s, call);
    return *s ? ncclSuccess : ncclInvalidArgument;
}

/* Whether buffers that overlap do so in the one way that the operation knows. */
static bool is_in_place(CallKind kind, const char *send, const char *recv, size_t part, int rank, int root)
{
    switch (kind) {
    case REDUCE_SCATTER: return recv == send + part * (size_t)rank;
    case ALL_GATHER: return send == recv + part * (size_t)rank;
    case GATHER: return send == recv + part * (size_t)root;
    case SCATTER: return recv == send + part * (size_t)root;
    case ALL_TO_ALL: return false;
    default: return send == recv;
    }
}

static ncclResult_t collective(CallKind kind, const void *send, void *recv, size_t count, ncclDataType_t type, int reduction, int root,
                               ncclComm_t c, cudaStream_t s)
{
    Hidden hidden;
    std::string call = std::string("nccl") + call_names[kind];
    if (ncclResult_t e = check_call(c, &s, call.c_str()))
        return e;
    if (root < 0 || root >= c->size || reduction < 0 || reduction >= ncclNumOps)
        return ncclInvalidArgument;
    size_t bytes = count * nccl_bytes(type), sent = sent_parts(kind, c->size, c->rank, root), received = received_parts(kind, c->size, c->rank, root);
    if ((sent && !memory_check(send, bytes * sent, MEM_DEVICE, (call + ": the send buffer").c_str())) ||
        (received && !memory_check(recv, bytes * received, MEM_DEVICE, (call + ": the receive buffer").c_str())))
        return ncclInvalidArgument;
    const char *from = static_cast<const char *>(send), *to = static_cast<const char *>(recv);
    if (bytes && sent && received && from < to + bytes * received && to < from + bytes * sent &&
        !is_in_place(kind, from, to, bytes, c->rank, root)) {
        report("%s: the buffers overlap, and not as they do in place", call.c_str());
        return ncclInvalidArgument;
    }
    Pending p = {};
    p.stream = s;
    p.collective = Collective{c, kind, static_cast<const char *>(send), static_cast<char *>(recv), count, type, reduction, root, {}};
    return add(std::move(p));
}

static ncclResult_t transfer(bool sends, void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s)
{
    Hidden hidden;
    const char *call = sends ? "ncclSend" : "ncclRecv";
    if (ncclResult_t e = check_call(c, &s, call))
        return e;
    if (peer < 0 || peer >= c->size)
        return ncclInvalidArgument;
    if (!memory_check(data, count * nccl_bytes(type), MEM_DEVICE, call))
        return ncclInvalidArgument;
    Pending p = {};
    p.stream = s;
    p.is_transfer = true;
    p.transfer = Transfer{c, sends, static_cast<char *>(data), count, type, peer, {}};
    return add(std::move(p));
}

/* ---- communicators ---- */

/* Joins; in a thread of its own for a communicator that does not block. */
static void join(ncclComm *c)
{
    Hidden hidden;
    World *w = world_join(c->name.c_str(), c->size, c->rank, &c->given_up);
    c->world = w;
    if (w) {
        Guard guard(issued_lock);
        issued[c->device][w->id] = 0;
    }
    c->state = w ? ncclSuccess : ncclSystemError;
}

static void *run_start(void *p)
{
    std::unique_ptr<std::function<void()>> f(static_cast<std::function<void()> *>(p));
    (*f)();
    return nullptr;
}

static pthread_t start_thread(std::function<void()> f)
{
    pthread_t t;
    int device = current_device();
    if (pthread_create(&t, nullptr, run_start, new std::function<void()>([f, device]() {
            use_device(device);
            f();
        })))
        fatal("no thread for a communicator");
    return t;
}

/* Runs a communicator's beginning now, at the end of the group, or beside. */
static ncclResult_t begin(ncclComm *c, std::function<void()> run)
{
    c->state = ncclInProgress;
    if (depth) {
        starts.push_back(Start{c, run});
        return ncclSuccess;
    }
    if (!c->blocking) {
        pthread_detach(start_thread(run));
        return ncclInProgress;
    }
    run();
    return (ncclResult_t)c->state.load();
}

static ncclComm *new_comm(int size, int rank, const ncclConfig_t *config, bool blocking)
{
    ncclComm *c = new ncclComm();
    c->size = size;
    c->rank = rank;
    c->device = current_device();
    c->blocking = config && config->blocking != NCCL_CONFIG_UNDEF_INT ? config->blocking != 0 : blocking;
    Guard guard(issued_lock);
    standing.push_back(c);
    return c;
}

/* My new communicator by the colors of all ranks: its size, and my rank by (key, old rank). */
static void split(ncclComm *parent, ncclComm *c, int color, int key)
{
    World *w = parent->world;
    w->rank[parent->rank].color = color;
    w->rank[parent->rank].key = key;
    world_doing(w, parent->rank, "in CommSplit, color %d", color);
    if (world_barrier(w, parent->rank, &parent->given_up) != WAIT_OK) {
        c->state = ncclSystemError;
        return;
    }
    c->size = c->rank = 0;
    for (int r = 0; r < parent->size; r++) {
        if (w->rank[r].color != color)
            continue;
        c->size++;
        c->rank += w->rank[r].key < key || (w->rank[r].key == key && r < parent->rank);
    }
    c->name = parent->name + "." + std::to_string(parent->splits++) + "." + std::to_string(color);
    if (world_barrier(w, parent->rank, &parent->given_up) != WAIT_OK)
        c->state = ncclSystemError;
    else if (color == NCCL_SPLIT_NOCOLOR)
        c->state = ncclSuccess;
    else
        join(c);
}

} /* namespace cudaemu */

using namespace cudaemu;

extern "C" ncclResult_t ncclGetVersion(int *version) { *version = NCCL_VERSION_CODE; return ncclSuccess; }

extern "C" const char *ncclGetErrorString(ncclResult_t e)
{
    switch (e) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
    }
}
extern "C" const char *ncclGetLastError(ncclComm_t) { return ""; }

/* With NCCL_COMM_ID all ranks get the same id, without a call to each other. */
extern "C" ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    Hidden hidden;
    if (int code = fault("ncclGetUniqueId"))
        return (ncclResult_t)code;
    memset(id, 0, sizeof *id);
    const char *address = getenv("NCCL_COMM_ID");
    if (address) {
        snprintf(id->internal, sizeof id->internal, "/cudaemu.%u.%zx", (unsigned)getuid(), std::hash<std::string>()(address));
    } else {
        uint64_t number = 0;
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return ncclSystemError;
        snprintf(id->internal, sizeof id->internal, "/cudaemu.%d.%llx", (int)getpid(), (unsigned long long)number);
    }
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    Hidden hidden;
    *comm = nullptr;
    if (int code = fault("ncclCommInitRank"))
        return (ncclResult_t)code;
    ncclConfig_t right = NCCL_CONFIG_INITIALIZER;
    if (rank < 0 || rank >= size || size > MAX_RANKS || (config && config->magic != right.magic))
        return ncclInvalidArgument;
    ncclComm *c = new_comm(size, rank, config, true);
    c->name = id.internal;
    *comm = c;
    return begin(c, [c]() { join(c); });
}

extern "C" ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

extern "C" ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
    ncclUniqueId id;
    ncclResult_t e = ncclGetUniqueId(&id);
    int device = current_device();
    ncclGroupStart();
    for (int r = 0; r < n && !e; r++) {
        use_device(devices ? devices[r] : r);
        e = ncclCommInitRank(&comms[r], n, id, r);
    }
    use_device(device);
    ncclResult_t end = ncclGroupEnd();
    return e ? e : end;
}

extern "C" ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *comm, ncclConfig_t *config)
{
    Hidden hidden;
    *comm = nullptr;
    if (int code = fault("ncclCommSplit"))
        return (ncclResult_t)code;
    if (!parent || parent->live.load() != 0x6e63636c || parent->state.load())
        return parent && parent->state.load() ? (ncclResult_t)parent->state.load() : ncclInvalidArgument;
    ncclComm *c = new_comm(0, 0, config, parent->blocking);
    c->device = parent->device;
    if (!parent->blocking)
        parent->state = ncclInProgress;
    return begin(c, [=]() {
        split(parent, c, color, key);
        if (color != NCCL_SPLIT_NOCOLOR)
            __atomic_store_n(comm, c, __ATOMIC_RELEASE);             /* not before, as NCCL has it */
        int busy = ncclInProgress;
        parent->state.compare_exchange_strong(busy, c->state.load() ? ncclSystemError : ncclSuccess);
    });
}

extern "C" ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e)
{
    Hidden hidden;
    *e = (ncclResult_t)c->state.load();
    if (!*e && c->says_in_progress) {
        c->says_in_progress = false;
        *e = ncclInProgress;
    }
    return ncclSuccess;
}

/* Waits for what was issued, as long as it can end. */
extern "C" ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    Hidden hidden;
    order_wait(&c->order);
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    Hidden hidden;
    if (!c)
        return ncclSuccess;
    if (c->live.load() != 0x6e63636c) {
        report("ncclCommDestroy on a communicator that was destroyed");
        return ncclInvalidArgument;
    }
    ncclCommFinalize(c);
    if (c->world)
        world_doing(c->world, c->rank, "has destroyed the communicator");
    forget_issues(c);
    c->live = 0;        /* kept, to know it when it is used again */
    static std::vector<ncclComm *> *kept = new std::vector<ncclComm *>();
    Guard guard(issued_lock);
    kept->push_back(c);
    standing.erase(std::remove(standing.begin(), standing.end(), c), standing.end());
    return ncclSuccess;
}

namespace cudaemu {

/* What an aborted communicator has on its device is freed, and that waits for the device: for other communicators too. */
static void finish_aborts(const std::vector<ncclComm *> &list)
{
    std::vector<ncclComm *> all;
    {
        Guard guard(issued_lock);
        all = standing;
    }
    for (ncclComm *c : list) {
        while (c->state.load() == ncclInProgress)
            usleep(100);
        for (ncclComm *other : all)
            if (other->device == c->device)
                order_wait(&other->order);
    }
    for (ncclComm *c : list)
        ncclCommDestroy(c);
}

} /* namespace cudaemu */

/* Ends what this rank waits for, and lets the others know. */
extern "C" ncclResult_t ncclCommAbort(ncclComm_t c)
{
    Hidden hidden;
    if (!c)
        return ncclSuccess;
    c->given_up = 1;
    if (c->world) {
        world_doing(c->world, c->rank, "has aborted");
        c->world->aborted = 1 + c->rank;
    }
    if (depth)
        aborts.push_back(c);
    else
        finish_aborts({c});
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommCount(const ncclComm_t c, int *n) { *n = c->size; return ncclSuccess; }
extern "C" ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank) { *rank = c->rank; return ncclSuccess; }
extern "C" ncclResult_t ncclCommCuDevice(const ncclComm_t c, int *device) { *device = c->device; return ncclSuccess; }

/* ---- groups ---- */

extern "C" ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

extern "C" ncclResult_t ncclGroupEnd(void)
{
    Hidden hidden;
    if (depth == 0)
        return ncclInvalidUsage;
    if (--depth)
        return ncclSuccess;
    std::vector<ncclComm *> ended;
    ended.swap(aborts);
    finish_aborts(ended);
    std::vector<Start> begun;
    begun.swap(starts);
    std::vector<pthread_t> threads;
    ncclResult_t result = ncclSuccess;
    for (Start &s : begun) {
        if (s.comm->blocking) {
            threads.push_back(start_thread(s.run));
        } else {
            pthread_detach(start_thread(s.run));
            result = ncclInProgress;
        }
    }
    for (pthread_t t : threads)
        pthread_join(t, nullptr);
    for (Start &s : begun)
        if (s.comm->blocking && s.comm->state.load())
            result = (ncclResult_t)s.comm->state.load();
    std::vector<Pending> group;
    group.swap(pending);
    if (group.empty())
        return result;
    ncclComm *c = group[0].is_transfer ? group[0].transfer.comm : group[0].collective.comm;
    /* Ranks of one thread do theirs at once, each on its device. */
    while (!group.empty()) {
        int device = device_of(group[0]);
        auto rest = std::stable_partition(group.begin(), group.end(), [device](const Pending &p) { return device_of(p) == device; });
        issue(std::vector<Pending>(group.begin(), rest));
        group.erase(group.begin(), rest);
    }
    return result ? result : issued_state(c);
}

/* ---- operations ---- */

extern "C" ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    return collective(ALL_REDUCE, send, recv, n, type, op, 0, c, s);
}
extern "C" ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    return collective(REDUCE_SCATTER, send, recv, n, type, op, 0, c, s);
}
extern "C" ncclResult_t ncclAllGather(const void *send, void *recv, size_t n, ncclDataType_t type, ncclComm_t c, cudaStream_t s)
{
    return collective(ALL_GATHER, send, recv, n, type, 0, 0, c, s);
}
extern "C" ncclResult_t ncclBroadcast(const void *send, void *recv, size_t n, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t s)
{
    return collective(BROADCAST, send, recv, n, type, 0, root, c, s);
}
extern "C" ncclResult_t ncclReduce(const void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s)
{
    return collective(REDUCE, send, recv, n, type, op, root, c, s);
}
extern "C" ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t n, ncclDataType_t type, ncclComm_t c, cudaStream_t s)
{
    return collective(ALL_TO_ALL, send, recv, n, type, 0, 0, c, s);
}
extern "C" ncclResult_t ncclGather(const void *send, void *recv, size_t n, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t s)
{
    return collective(GATHER, send, recv, n, type, 0, root, c, s);
}
extern "C" ncclResult_t ncclScatter(const void *send, void *recv, size_t n, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t s)
{
    return collective(SCATTER, send, recv, n, type, 0, root, c, s);
}
extern "C" ncclResult_t ncclSend(const void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s)
{
    return transfer(true, const_cast<void *>(data), n, type, peer, c, s);
}
extern "C" ncclResult_t ncclRecv(void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s)
{
    return transfer(false, data, n, type, peer, c, s);
}

extern "C" ncclResult_t ncclMemAlloc(void **p, size_t bytes) { return cudaMalloc(p, bytes) ? ncclUnhandledCudaError : ncclSuccess; }
extern "C" ncclResult_t ncclMemFree(void *p) { return cudaFree(p) ? ncclUnhandledCudaError : ncclSuccess; }
extern "C" ncclResult_t ncclCommRegister(const ncclComm_t, void *, size_t, void **handle)
{
    *handle = nullptr;
    return ncclSuccess;
}
extern "C" ncclResult_t ncclCommDeregister(const ncclComm_t, void *) { return ncclSuccess; }
