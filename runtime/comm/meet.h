#ifndef RUNTIME_COMM_MEET_H
#define RUNTIME_COMM_MEET_H
/* Meet: ranks that know where rank 0 is, and nothing else, come to be connected by TCP, each to each. */
#include <stdbool.h>
#include <stdint.h>

typedef struct Meeting {
    const char *host;                 /* of rank 0, */
    uint16_t    port;                 /* where it listens until all have come */
    uint64_t    run;                  /* what all have in common; who has not is turned away */
    int         rank, nrank;
    double      patience;             /* seconds until all must have come */
} Meeting;

/* A connection to each rank; -1: to itself.  False: it has said why, and none is open. */
bool meet_all(const Meeting *, int *fd);

#endif
