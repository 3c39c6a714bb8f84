#ifndef RUNTIME_COMM_COMM_H
#define RUNTIME_COMM_COMM_H
/* Comm: what ranks say to each other.
 *
 * A `Comm` is a table of functions, one table per way to communicate.  A rank
 * has one `Endpoint`, and a `CommGroup` for each set of ranks (a slice along
 * mesh axes) in which it takes part.  `comm_cpu` is the table for ranks of one
 * machine: they share a `World`, memory that every one of them maps.  `comm_far` is the
 * one for ranks that share no memory: they have a `Net`, which carries messages.
 *
 * All functions block.  They return OK or ERR_COMM: a rank was lost, the run is
 * over, and what was wrong has been printed.  What the members of a group must
 * agree on (order of calls, counts, types) is proved before a program runs, and
 * asserted here. */
#include "base/arena.h"
#include "base/status.h"
#include "kernels/combine.h"

typedef struct Comm Comm;

/* ---- what every implementation has ---- */

/* A rank's end of the communication.  Made by endpoint_open(), closed by comm->close(). */
typedef struct Endpoint {
    const Comm *comm;
    int         rank, nrank;
} Endpoint;

/* Made by comm->group(); lives as long as its arena. */
typedef struct CommGroup {
    Endpoint  *end;
    uint32_t   id;
    int        n, me;                 /* members; which of them this rank is */
    const int *rank;                  /* ascending */
} CommGroup;

/* Collectives are called by all members of a group in the same order.  `count` is
 * in elements, of each member's buffer for all_reduce, reduce and broadcast, and of
 * the larger of the two buffers for the others, which is divided into parts by
 * comm_part(); any count will do, 0 too.  Results are the same bits at all members
 * and in every run: member 0 op member 1 op ..., see kernels/combine.h.  In place
 * means that recv == send, or that the smaller buffer is the member's own part of
 * the larger. */
struct Comm {
    const char *name;

    /* A second end of a rank, for another thread of it: where groups are made at it and it receives, the first
     * one sends and flushes meanwhile.  Closed with the first. */
    Endpoint *(*second)(Arena *, const Endpoint *first);

    /* `rank`: n ranks, ascending, this one among them.  Groups of one id are disjoint:
     * an id may stand for a mesh axis.  Each is made once by each member. */
    CommGroup *(*group)(Endpoint *, Arena *, uint32_t id, const int *rank, int n);

    Status (*barrier)(CommGroup *);
    Status (*all_reduce)(CommGroup *, const void *send, void *recv, int64_t count, DType, ReduceOp);
    /* Root is a member's place in the group.  Others' recv is not used by reduce,
     * nor their send by broadcast. */
    Status (*reduce)(CommGroup *, const void *send, void *recv, int64_t count, DType, ReduceOp, int root);
    Status (*broadcast)(CommGroup *, const void *send, void *recv, int64_t count, DType, int root);
    /* Member i gets part i of the result. */
    Status (*reduce_scatter)(CommGroup *, const void *send, void *recv, int64_t count, DType, ReduceOp);
    /* Member i's part is part i of the result. */
    Status (*all_gather)(CommGroup *, const void *send, void *recv, int64_t count, DType);
    /* Part i of member j's send becomes part j of member i's recv; n divides count. */
    Status (*all_to_all)(CommGroup *, const void *send, void *recv, int64_t count, DType);

    /* Point to point: the k-th send from a rank to another meets the k-th receive.
     * send() hands a buffer over and returns without waiting for the receiver unless
     * COMM_DEPTH earlier ones have not been received; the buffer may be changed after
     * flush(), which waits until nothing that this rank sent to `to` is still to be read;
     * COMM_ANY: to any rank. */
    Status (*send)(Endpoint *, int to, const void *buffer, int64_t bytes);
    Status (*recv)(Endpoint *, int from, void *buffer, int64_t bytes);
    Status (*flush)(Endpoint *, int to);

    void (*close)(Endpoint *);
};

enum { COMM_DEPTH = 4, COMM_ANY = -1 };

/* Part i of n of `count` elements, [*first, *end): the size is that of the quotient
 * rounded up, and the last parts are shorter, or empty. */
void comm_part(int64_t count, int i, int n, int64_t *first, int64_t *end);

/* ---- comm_cpu: ranks of one machine, as processes or threads ---- */

/* Communication is without copies: a rank reads its peers' buffers, and in
 * all_reduce and reduce writes them, where they lie.  So
 *   - send, and what all_reduce and reduce have as recv, lie in the rank's part of
 *     the shared memory, unless they (in all_gather: the largest part) have no more
 *     than COMM_SMALL bytes;
 *   - what a peer sends need not lie where this rank receives.
 * Messages of no more than COMM_SMALL bytes go through the control block. */
extern const Comm comm_cpu;

enum { COMM_SMALL = 2048, WORLD_RANKS = 256 };       /* bytes of send; most ranks of a world */

/* The files of a world: memory without a name, inherited by the processes that a
 * launcher starts.  They stay open over exec; -1: none. */
typedef struct WorldFiles { int control, shared; } WorldFiles;

typedef struct World World;

/* For a launcher: make the files of a world of `nrank` ranks, rank i having part[i] bytes
 * of shared memory, whose groups have ids below ngroup; 0: nobody meets here. */
Status world_create(WorldFiles *, int nrank, const int64_t *part, uint32_t ngroup);
void   world_discard(WorldFiles *);   /* close them; maps stay */

/* Map a world; one map serves all threads of a process.  Every page of the map is
 * touched, those of part `rank` first, which counts as progress of the rank; a launcher,
 * which sends nothing, gives -1 and maps the control block alone. */
Status world_map(Arena *, const WorldFiles *, int rank, World **);
void   world_unmap(World *);
int    world_nrank(const World *);
int    world_near(const World *);                    /* ranks that share this one's processors, itself among them */
int    world_machine(const World *, int rank);      /* of the machine that a rank is on, the first rank */
void  *world_part(const World *, int rank);          /* page-aligned; huge pages are asked for where a part fills one */

/* End the run: all waits, and all later ones, end with ERR_COMM.  The first to call
 * it, in all processes, prints "error: rank R WHY", the instruction R was at and what
 * the others wait for.  A launcher calls it for a rank that died. */
void world_abort(World *, int rank, const char *why);
/* The rank that was blamed; -1: the run is not aborted. */
int  world_aborted(const World *);

/* The instruction in which a rank waits for another, else the one that it began last; -1: none. */
int64_t world_instr(const World *, int rank);

/* ---- comm_far: ranks that share no memory ---- */

/* Addresses are anybody's own; buffers may lie anywhere. */
extern const Comm comm_far;

/* Join a world of ranks that another program started and a net connects.  Called by all of them
 * at once.  From then on each tells the others what it does, by a thread. */
struct Net;
Status world_join(Arena *, const struct Net *, int rank, int nrank, World **);
/* How long a rank may be silent; 5 s until it is called. */
void   world_pace(World *, double seconds);
/* Have `bytes` of memory for world_part() of this rank; the others have none. */
Status world_take_part(World *, int rank, int64_t bytes);
/* Leave it when all do.  After the run was aborted all ranks are ended instead, with this
 * rank's status if it is the one to blame: then it does not return. */
void   world_leave(World *, int rank, Status);

/* ---- an end of either world ---- */

/* A rank's end of a world, opened once.  The team (NULL: none) helps with large messages; its
 * caller is the thread that communicates.  One thread at a time uses an endpoint and its groups. */
Endpoint *endpoint_open(Arena *, World *, int rank, Team *, Isa);
/* To be called when an instruction begins: a rank is stuck when others wait for it,
 * it waits for nobody, and it has begun nothing for `seconds`; who waits for it
 * then aborts the run.  Instructions are counted as they come, ids go into messages. */
void endpoint_progress(Endpoint *, int64_t instr);
/* The same for an instruction at a second end (-1: it is over): it is not said to be what the rank does
 * unless it waits for another rank. */
void endpoint_beside(Endpoint *, int64_t instr);
/* So many threads of all ranks share the processors; until it is called, one a rank. */
void endpoint_crowd(Endpoint *, int threads);
void endpoint_timeout(Endpoint *, double seconds);   /* 10 until it is called */
/* Seconds that it has waited for other ranks so far, but for what a short spin took. */
double endpoint_waited(const Endpoint *);

#endif
