#ifndef RUNTIME_COMM_FAR_H
#define RUNTIME_COMM_FAR_H
/* Far: ends of ranks that share no memory.  Private to this folder. */
#include "runtime/comm/net.h"
#include "runtime/comm/pulse.h"

/* A message travels in up to so many pieces: each that arrives is a sign of life. */
enum { PIECES = 16, PIECE_BYTES = 16 << 20 };

/* What is received for a sum, or to be put in place of what is still sent: bytes of an end. */
enum { STAGE_BYTES = 4 << 20 };

/* Tags of messages: those of group g have GROUP_TAG + g. */
enum { PULSE_TAG, LETTER_TAG, GROUP_TAG };

typedef struct Message {
    NetRequest request[PIECES];
    int64_t    bytes[PIECES];         /* to be received; -1: it is sent */
    int        n, done, peer;         /* pieces; those that are over; whose */
} Message;

/* Letters to one rank, the k-th in place k mod COMM_DEPTH. */
typedef struct Letters { Message message[COMM_DEPTH]; uint32_t sent; } Letters;

typedef struct FarEnd {
    WorldEnd   end;                   /* first */
    const Net *net;
    Letters   *letters;               /* to each rank */
    Message   *message; int nmessage; /* of a collective that goes on; two for each rank */
    char      *stage;                 /* STAGE_BYTES */
} FarEnd;

Endpoint *far_open(Arena *, World *, int rank, Team *, Isa);

/* ---- far.c: messages ---- */
Status far_post_send(FarEnd *, int to, int tag, const void *, int64_t bytes, Message *);
Status far_post_recv(FarEnd *, int from, int tag, void *, int64_t bytes, Message *);
Status far_await(FarEnd *, Message *, WaitKind, uint32_t group);

/* ---- far_collective.c: the rows of the table ---- */
Status far_barrier(CommGroup *);
Status far_all_reduce(CommGroup *, const void *send, void *recv, int64_t count, DType, ReduceOp);
Status far_reduce(CommGroup *, const void *send, void *recv, int64_t count, DType, ReduceOp, int root);
Status far_broadcast(CommGroup *, const void *send, void *recv, int64_t count, DType, int root);
Status far_reduce_scatter(CommGroup *, const void *send, void *recv, int64_t count, DType, ReduceOp);
Status far_all_gather(CommGroup *, const void *send, void *recv, int64_t count, DType);
Status far_all_to_all(CommGroup *, const void *send, void *recv, int64_t count, DType);

#endif
