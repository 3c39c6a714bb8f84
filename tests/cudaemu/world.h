/* world.h -- a communicator's shared memory: who has joined, what each rank does, and where data passes.
 *
 * A file of POSIX shared memory, of which a process has one mapping, however many of its threads are ranks. */
#ifndef CUDAEMU_WORLD_H
#define CUDAEMU_WORLD_H

#include "internal.h"

#include <nccl.h>

namespace cudaemu {

enum { MAX_RANKS = 64, MAX_SEEN = 24, SLOT_BYTES = 128 << 10, PIPE_BYTES = 16 << 10, PIPE_CHUNKS = 2 };

/* How many operations a rank had issued on another communicator when it issued one on this. */
struct Seen {
    uint64_t comm, issued;
};
/* What a rank calls; all ranks' must agree. */
struct Call {
    uint64_t sequence, count;
    int kind, type, reduction, root;
    int nseen;
    Seen seen[MAX_SEEN];
};
struct RankState {
    std::atomic<int> joined;
    int color, key;             /* of a split */
    Call call;
    char doing[120];            /* for reports */
};
/* Chunks on their way from one rank to another. */
struct Pipe {
    std::atomic<unsigned> put, got;
    uint64_t total;             /* bytes of the message they belong to */
    int type, nseen;
    Seen seen[MAX_SEEN];
    size_t bytes[PIPE_CHUNKS];
    char data[PIPE_CHUNKS][PIPE_BYTES];
};
struct World {
    std::atomic<int> ready;     /* the rest is there */
    std::atomic<int> ranks, joined, arrived, generation;
    std::atomic<int> aborted;   /* 1 + the rank that ended it */
    uint64_t id;
    RankState rank[MAX_RANKS];
    /* follows: a slot for each rank, then a pipe from each rank to each */
};

/* How a wait ended. */
enum WaitEnd { WAIT_OK, WAIT_ABORTED, WAIT_LATE };

/* Joins rank RANK of SIZE under a name; NULL if the others do not come in time, which it reports. */
World *world_join(const char *name, int size, int rank, const std::atomic<int> *given_up);
char *world_slot(World *w, int rank);
Pipe *world_pipe(World *w, int from, int to);
/* Until READY, or an abort, or too late; the last one is reported with what all ranks do. */
WaitEnd world_wait(World *w, int rank, const std::atomic<int> *given_up, const std::function<bool()> &ready);
WaitEnd world_barrier(World *w, int rank, const std::atomic<int> *given_up);
void world_doing(World *w, int rank, const char *format, ...) __attribute__((format(printf, 3, 4)));

} /* namespace cudaemu */

struct ncclComm {
    std::atomic<unsigned> live{0x6e63636c};
    cudaemu::World *world = nullptr;
    std::string name;
    int rank, size, device;
    bool blocking = true;
    std::atomic<int> state{ncclSuccess};        /* what ncclCommGetAsyncError says */
    std::atomic<int> given_up{0};               /* aborted by its own rank */
    uint64_t sequence = 0;                      /* of collectives executed */
    uint64_t issued = 0, splits = 0;
    cudaemu::Order order;
    bool says_in_progress = false;
};

namespace cudaemu {

enum CallKind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, ALL_TO_ALL, GATHER, SCATTER };
extern const char *const call_names[];

struct Collective {
    ncclComm *comm;
    CallKind kind;
    const char *send;
    char *recv;
    size_t count;               /* as the API counts: of one rank's part, where ranks have parts */
    ncclDataType_t type;
    int reduction, root;
    std::vector<Seen> seen;
};
struct Transfer {
    ncclComm *comm;
    bool sends;
    char *data;
    size_t count;
    ncclDataType_t type;
    int peer;
    std::vector<Seen> seen;
};

size_t nccl_bytes(ncclDataType_t t);
/* How many COUNTs are sent (received) by a rank, 0 if its buffer is not used. */
size_t sent_parts(CallKind kind, int size, int rank, int root);
size_t received_parts(CallKind kind, int size, int rank, int root);
/* Execute, in the thread of a stream; failures become the communicator's state. */
void run_collective(const Collective &op);
void run_transfers(const std::vector<Transfer> &ops);
/* Report where two ranks' orders of operations differ. */
bool same_order(const Seen *mine, int nmine, const Seen *theirs, int ntheirs);

} /* namespace cudaemu */

#endif
