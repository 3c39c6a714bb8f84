#ifndef RUNTIME_COMM_PULSE_H
#define RUNTIME_COMM_PULSE_H
/* Pulse: what ranks that share no memory know of each other.  Private to this folder.
 *
 * A thread of each rank tells all others a few times a second what the rank does (its Progress),
 * and keeps what it hears in this rank's control block.  So every rank has the control block
 * that ranks of one machine share, a little old, and finds who is stuck in the same way.  Who
 * is silent was stopped, or its machine was lost; of a rank on this machine the kernel tells when it dies.
 *
 * One message in all: whoever finds a rank to blame leaves it to the *speaker*, the
 * lowest rank that is not silent, which prints it and tells the others. */
#include "runtime/comm/world.h"

struct Net;
typedef struct Pulse Pulse;

/* Begin to tell and to hear, for a world whose control block is this rank's own. */
Status pulse_open(Arena *, const struct Net *, World *, int rank);
/* When all ranks do, and nothing else is under way. */
void   pulse_close(Pulse *);
/* A rank is this process of this machine. */
void   pulse_watch(Pulse *, int rank, int pid);
/* All ranks are there: from now on also one that was never heard of is silent. */
void   pulse_met(Pulse *);
void   pulse_pace(Pulse *, double timeout);
const struct Net *pulse_net(const Pulse *);

/* Blame a rank, and wait until the run is over. */
void pulse_abort(Pulse *, int rank, const char *why);
/* The run was aborted: until this rank has told the others.  From then on nothing is sent or received. */
void pulse_hush(Pulse *);
/* Then: end this process with a status, and what does not end by itself. */
void pulse_end(const Pulse *, int status);
/* So many more messages of this rank are on their way, which the thread then helps on. */
void pulse_lend(Pulse *, int messages);

#endif
