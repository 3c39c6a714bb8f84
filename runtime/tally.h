#ifndef RUNTIME_TALLY_H
#define RUNTIME_TALLY_H
/* Tally: where the time of training steps goes, on one rank, and where it was predicted to
 * go.  Steps are kept in memory that is made before step 0; the median over the latest counts,
 * without the first ones, which find cold caches. */
#include <stdbool.h>

#include "base/arena.h"

enum { TALLY_PARTS = 16, TALLY_STEPS = 64, TALLY_SKIPPED = 2 };

/* The parts of a step's time, by whoever knows the plan. */
typedef struct TallyParts {
    const char    *name[TALLY_PARTS]; uint32_t n;
    const uint8_t *of_instr;          /* per instruction of the rank's program: its part */
    uint8_t        waiting, rest;     /* parts: for ranks that are late; what is no instruction */
    const char    *beside[TALLY_PARTS];              /* the name of what of a part goes on while the rank computes; NULL: nothing does */
    bool           tells;             /* the rank is the first of its stage: one of them tells */
    const char    *who;               /* what it calls itself where there are several stages; else NULL */
    int64_t        ns[TALLY_PARTS], beside_ns[TALLY_PARTS], step_ns;        /* predicted, of a step; step_ns 0: nothing is predicted */
} TallyParts;

/* Seconds of a step.  Parts sum up to the step; what goes on beside computing takes no time of it. */
typedef struct Times { double part[TALLY_PARTS], beside[TALLY_PARTS], all; } Times;

typedef struct Tally {
    const TallyParts *parts;
    Times      now[2];                /* of the step that goes on, by each of two threads */
    Times     *step;                  /* of the latest steps */
    uint64_t   steps;                 /* in all */
} Tally;

Tally *tally_new(Arena *, const TallyParts *);
void   tally_begin(Tally *);          /* a step */
/* An instruction took so long, of which it waited, and of which `exposed` seconds are of the step: the rest went by
 * while the rank computed.  Two threads may tell of theirs at once, one of them as `beside`. */
void   tally_add(Tally *, uint32_t instr, bool beside, double seconds, double waited, double exposed);
void   tally_wait(Tally *, double seconds);          /* between instructions */
void   tally_end(Tally *, double seconds);
/* Seconds of a step in which the rank computes, neither waiting nor communicating; 0 before the first step that counts. */
double tally_busy(const Tally *);
/* What to print, for people on a terminal a line a part, else one line; NULL before the
 * first step that counts. */
const char *tally_text(Arena *, const Tally *, bool lines);

#endif
