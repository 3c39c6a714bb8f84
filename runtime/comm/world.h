#ifndef RUNTIME_COMM_WORLD_H
#define RUNTIME_COMM_WORLD_H
/* The shared memory of a world, private to this folder.
 *
 * The control file is a Header, then one Progress a rank, then Arrivals [group][rank],
 * then Channels [source][destination].  The shared file is the ranks' parts.  Both
 * are mapped at different addresses in different processes, so nothing in them is
 * an address: buffers are offsets into their owner's part. */
#include <stdatomic.h>

#include "runtime/comm/comm.h"

enum { LINE = 64 };

/* A word that one rank advances and others wait for.  Values only grow, modulo 2^32. */
typedef struct Flag {
    atomic_uint value;                /* futex word */
    atomic_uint sleepers;             /* ranks in futex_wait, or about to be */
} Flag;

typedef struct Header {
    uint64_t magic;
    int32_t  nrank, near, cores;      /* near: ranks that share these processors; cores: those that the launcher may use */
    uint32_t ngroup;
    int64_t  control_bytes, shared_bytes;
    int64_t  part[WORLD_RANKS + 1];   /* offset of each rank's part; the end of the last */
    int64_t  part_bytes[WORLD_RANKS];
    int32_t  machine[WORLD_RANKS];    /* the first rank of each rank's machine */
    _Alignas(LINE) atomic_int blamed; /* the rank that ended the run; -1: it goes on.  Every wait looks at it */
} Header;

#define WAIT_LIST(X)                                                       \
    X(nothing,        "nothing")                                           \
    X(barrier,        "barrier")        X(all_reduce,     "all-reduce")     \
    X(reduce,         "reduce")         X(broadcast,      "broadcast")      \
    X(reduce_scatter, "reduce-scatter") X(all_gather,     "all-gather")     \
    X(all_to_all,     "all-to-all")                                        \
    X(send,           "send")           X(recv,           "receive")
typedef enum WaitKind {
#define X(name, text) WAIT_##name,
    WAIT_LIST(X)
#undef X
} WaitKind;

/* What one end of a rank waits for. */
typedef struct Waiting {
    atomic_llong instr;               /* in which instruction */
    atomic_int   rank;                /* whom; -1: nobody, or only just */
    atomic_int   kind;                /* WaitKind */
    atomic_uint  group;
    atomic_llong flag;                /* offset in the control file; -1: it waits for no flag, and says so as long as it waits */
    atomic_uint  value;               /* that the flag must reach */
} Waiting;

/* What a rank does, for messages and for finding who is stuck. */
enum { ENDS = 2 };
typedef struct Progress {
    _Alignas(LINE) atomic_llong instr;               /* begun last, but for those of a second end; -1: none */
    atomic_llong begun;               /* how many, at both ends */
    Waiting      wait[ENDS];
} Progress;

/* What a member says when it arrives at the seq-th meeting of its group.  It writes
 * the half of that parity, then the flag.  It cannot come to write this half again
 * before all members arrived at the meeting in between, so after reading this one. */
typedef struct Half {
    _Alignas(LINE) Flag flag;         /* number of the meeting */
    uint32_t signature, root;         /* what is called, and how: the same at all members */
    int64_t  count;
    int64_t  send, recv;              /* offsets in the rank's part; -1: none */
    unsigned char data[COMM_SMALL];   /* a small send itself */
} Half;

typedef struct Arrival { Half half[2]; } Arrival;

/* One message on its way. */
typedef struct Letter {
    _Alignas(LINE) Flag flag;         /* number of the message, from 1 */
    int64_t bytes, at;                /* offset in the sender's part */
    unsigned char data[COMM_SMALL];   /* a small message itself */
} Letter;

typedef struct Channel {
    Letter letter[COMM_DEPTH];        /* message k in place k mod COMM_DEPTH */
    _Alignas(LINE) Flag received;     /* messages */
} Channel;

struct World {
    Header *header;
    char   *shared;                   /* NULL: a launcher's, or not mapped yet */
    struct Pulse *pulse;              /* of a world whose ranks share no memory (pulse.h); NULL: they do */
};

Progress *world_progress(const World *, int rank);
Arrival  *world_arrival(const World *, uint32_t group, int rank);
Channel  *world_channel(const World *, int from, int to);

/* ---- a rank's end ---- */

/* What every end has, however its ranks communicate. */
typedef struct WorldEnd {
    Endpoint  base;                   /* first */
    World    *world;
    Team     *team;
    Isa       isa;
    double    timeout, waited;        /* seconds; waited: in all, after spinning */
    int       which;                  /* of the rank's ends: 0, or 1 for a second one */
    int64_t   beside;                 /* of a second one, the instruction; -1: none */
    int       spins;                  /* before yielding */
    Caches    caches;
} WorldEnd;

typedef struct CpuEndpoint {
    WorldEnd  end;                    /* first */
    uint32_t *sent, *received;        /* messages to and from each rank */
    uint32_t *lent;                   /* the last message to each rank that is read from a buffer; 0: none */
} CpuEndpoint;

typedef struct CpuGroup {
    CommGroup base;                   /* first */
    uint32_t  meetings;
    Arrival **arrival;                /* of each member */
} CpuGroup;

/* What is waited for, the value of a flag or what a function tells, and whom to blame if it does not come. */
typedef struct Awaited {
    Flag    *flag;
    uint32_t value;
    int      rank;
    WaitKind kind;
    uint32_t group;
    bool   (*there)(void *what);      /* where there is no flag */
    void    *what;
} Awaited;

/* ---- wait.c ---- */
double clock_seconds(void);           /* monotonic */
int    spins_for(int threads, int cores);
void   flag_raise(Flag *, uint32_t value);
/* Until it has come, or the run is over. */
Status await(WorldEnd *, const Awaited *);
/* world_abort() in a process that knows what all ranks do: blame the rank, unless one is, and print. */
void   world_blame(World *, int rank, const char *why);

static inline bool flag_reached(const Flag *f, uint32_t value)
{
    return (int32_t)(atomic_load_explicit(&f->value, memory_order_acquire) - value) >= 0;
}

static inline Status flag_await(WorldEnd *e, const Awaited *a)
{
    return flag_reached(a->flag, a->value) ? OK : await(e, a);
}

/* ---- collective.c, message.c: the rows of the table ---- */
Status cpu_barrier(CommGroup *);
Status cpu_all_reduce(CommGroup *, const void *send, void *recv, int64_t count, DType, ReduceOp);
Status cpu_reduce(CommGroup *, const void *send, void *recv, int64_t count, DType, ReduceOp, int root);
Status cpu_broadcast(CommGroup *, const void *send, void *recv, int64_t count, DType, int root);
Status cpu_reduce_scatter(CommGroup *, const void *send, void *recv, int64_t count, DType, ReduceOp);
Status cpu_all_gather(CommGroup *, const void *send, void *recv, int64_t count, DType);
Status cpu_all_to_all(CommGroup *, const void *send, void *recv, int64_t count, DType);
Status cpu_send(Endpoint *, int to, const void *buffer, int64_t bytes);
Status cpu_recv(Endpoint *, int from, void *buffer, int64_t bytes);
Status cpu_flush(Endpoint *, int to);

/* ---- share.c: work divided among the rank's team ---- */
/* One of the copies of a call; in all of them this rank copies `total` bytes, and its peers as many. */
void endpoint_copy(const WorldEnd *, void *to, const void *from, int64_t bytes, int64_t total);
void endpoint_combine(const WorldEnd *, const Combine *);

/* ---- endpoint.c ---- */
/* What ends have in common, for the first end of a rank; and a copy of it for its second. */
WorldEnd endpoint_new(const Comm *, World *, int rank, Team *, Isa);
WorldEnd endpoint_beside_of(const WorldEnd *first);
/* A group without what its kind of communication adds. */
CommGroup group_new(Endpoint *, Arena *, uint32_t id, const int *rank, int n);
/* Offset of a buffer in the rank's own part, where it must lie. */
int64_t endpoint_offset(const WorldEnd *, const void *buffer, int64_t bytes);
static inline char *endpoint_at(const WorldEnd *e, int rank, int64_t offset)
{
    return e->world->shared + e->world->header->part[rank] + offset;
}

#endif
