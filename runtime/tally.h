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
    int64_t        ns[TALLY_PARTS], step_ns;         /* predicted, of a step; step_ns 0: nothing is predicted */
} TallyParts;

typedef struct Tally {
    const TallyParts *parts;
    double     now[TALLY_PARTS];      /* seconds of the step that goes on */
    double   (*step)[TALLY_PARTS + 1];               /* of the latest steps; at the end, of the whole step */
    uint64_t   steps;                 /* in all */
} Tally;

Tally *tally_new(Arena *, const TallyParts *);
void   tally_begin(Tally *);          /* a step */
/* An instruction took so long, of which it waited. */
void   tally_add(Tally *, uint32_t instr, double seconds, double waited);
void   tally_wait(Tally *, double seconds);          /* between instructions */
void   tally_end(Tally *, double seconds);
/* What to print, for people on a terminal a line a part, else one line; NULL before the
 * first step that counts. */
const char *tally_text(Arena *, const Tally *, bool lines);

#endif
