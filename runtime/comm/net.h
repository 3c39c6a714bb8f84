#ifndef RUNTIME_COMM_NET_H
#define RUNTIME_COMM_NET_H
/* Net: messages between ranks that another program started, on one machine or on many.
 *
 * By TCP, or by what a plug-in provides, so that prun itself needs no library for it; all that is
 * known of numbers, groups and faults is on this side.  Nothing here waits, but open(). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_ANY = -1 };                /* from whichever rank */

/* A message under way; what it holds is the net's. */
typedef uint64_t NetRequest;
typedef enum NetState { NET_UNDER_WAY, NET_DONE, NET_FAILED } NetState;

typedef struct Net {
    const char *name;
    bool ends_all;                    /* abort() ends all ranks, wherever they are; else it ends this one */

    /* Once, before all others; false: it has said why. */
    bool (*open)(int *rank, int *nrank);
    /* Any thread may call these.  Messages with one tag, from one rank to another, are
     * received in the order in which they were sent, and no longer than what is asked for.  False: it
     * has said why. */
    bool (*send)(int to, int tag, const void *, int64_t bytes, NetRequest *);
    bool (*recv)(int from, int tag, void *, int64_t bytes, NetRequest *);
    /* Whether it has arrived, or its buffer may be used again; a request that has is over.  `bytes`: received. */
    NetState (*test)(NetRequest *, int64_t *bytes);
    /* Give up a receive for which nothing is to come. */
    void (*cancel)(NetRequest *);
    /* Whether a rank has gone: what is under way with it will never be over.  NULL: the net cannot tell. */
    bool (*gone)(int rank);
    /* End with this exit status; may return before that has happened. */
    void (*abort)(int status);
    /* Once, when all ranks call it and nothing is under way. */
    void (*close)(void);
} Net;

/* tcp.c: for ranks whose variables say who they are and where rank 0 is: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. */
extern const Net net_tcp;

#endif
