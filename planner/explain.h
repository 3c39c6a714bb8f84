#ifndef PLANNER_EXPLAIN_H
#define PLANNER_EXPLAIN_H
/* Explain: from plain data parallelism to a plan, decision by decision; how far data
 * parallelism alone goes; what another layout takes more or less.  Every figure is
 * weigh()'s, and every reason is computed from figures. */
#include "planner/pins.h"
#include "planner/weigh.h"

/* ---- reasons ---- */

/* What changed between two layouts, in one line: whether it fits now, or which part of
 * the time changed most in the direction of the whole. */
const char *reason_of(Arena *, const Weighed *before, const Weighed *after);
/* Whether a step of a layout that fits takes less than another one's, by so little that predictions do not tell (TIE). */
bool        hardly_faster(const Weighed *than, const Weighed *);
/* The part of the time that differs most, of those that differ in the direction of the
 * whole; TIME_PARTS: none does. */
int         largest_change(const Figures *before, const Figures *after);

/* ---- the ladder ---- */

typedef struct Rung {
    Decision    decision;
    const char *adds;                 /* "tp = 2 over heads, ffn" */
    Weighed     weighed;
    const char *reason;               /* against the rung before; of the first: what it is */
} Rung;

/* The first rung is data parallelism over the plan's devices, the last one is the plan.
 * A decision after which the layout is the same has none.  Number of rungs, at most DECISIONS. */
uint32_t ladder(const Weigher *, const Plan *, Rung out[DECISIONS]);

/* ---- data parallelism alone ---- */

typedef struct Scaled {
    int64_t dp;
    Weighed weighed;
    double  efficiency;               /* of one device's throughput, a device; 0: unknown */
} Scaled;

typedef struct Scaling {
    Scaled     *row; uint32_t n;      /* dp = 1, 2, 4, .. and all devices of the plan */
    const char *one_device;           /* does it fit one, and how */
    const char *verdict;              /* where it stops, and what stops it */
} Scaling;

Scaling scaling(const Weigher *, const Plan *);

#endif
