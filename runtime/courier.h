#ifndef RUNTIME_COURIER_H
#define RUNTIME_COURIER_H
/* Courier: the thread of a rank that communicates while the rank computes.
 *
 * A rank whose program has `comm_threads` executes its calls on two threads at once: the rank's own
 * takes the instructions of the compute stream and sends, which only leave word, the courier all others.  Each
 * goes in the order of the program, and before an instruction waits as the program's waits say.
 * So nothing waits but for what is before it in that order, as where one thread does all of it;
 * what cannot deadlock there cannot here.
 *
 * A *position* counts the instructions of all calls that a rank executed, in order, and one more
 * at the head of each call: there the rank's own thread waits until what was sent from its buffers has been read.  Each thread
 * publishes the position that it has passed. */
#include "runtime/ranks.h"

typedef struct Courier Courier;

/* Which of the two threads. */
typedef enum Side { SIDE_COMPUTE, SIDE_COMM, SIDES } Side;

static inline Side side_of(const Instr *in)
{
    return in->stream == STREAM_compute || in->stream == STREAM_send ? SIDE_COMPUTE : SIDE_COMM;
}

/* Start the courier of a rank that has joined a world; its memory is the rank's arena. */
Status courier_open(Rank *);
void   courier_close(Rank *);
/* Execute calls on both threads; returns when both are through, or one of them failed. */
Status courier_run(Rank *, const CallList *);

/* ---- calls.c ---- */

/* Execute calls in order, or, where the rank has a courier, on both threads. */
Status calls_run(Rank *, const CallList *);
/* What one of the threads has to do of them. */
Status calls_run_side(Rank *, Side, const CallList *);

/* ---- what a thread tells and asks on its way ---- */

/* A call begins: for the rank's own thread, until its buffers may be written. */
Status courier_enter(Rank *, Side, const Call *);
/* The thread's next instruction is this one of the call: until all that it must wait for is done. */
Status courier_pass(Rank *, Side, uint32_t instr);
void   courier_leave(Rank *, Side);
/* Of an instruction of communication that went on from begin to end (now), in seconds: for how
 * much of it the rank's own thread waited. */
double courier_exposed(const Rank *, double begin, double end);

#endif
