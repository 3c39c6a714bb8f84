#ifndef RUNTIME_MEASURE_CURVE_H
#define RUNTIME_MEASURE_CURVE_H
/* Curve of efficiency from measured times.
 *
 * Times of like sizes are joined to their median.  What is larger takes no less time:
 * where noise says otherwise, neighbours get their mean (isotonic regression, by pooling
 * adjacent violators).  And a planner must see time grow between the points too: where a
 * fraction would rise faster than that, the one before is raised. */
#include "ir/cluster.h"

/* An instruction's work, FLOP or bytes, and the seconds it took beside the launch. */
typedef struct Timing { double work, seconds; } Timing;

/* A fraction of `rate`, up to `most`, at each size; sizes within a factor of `like` are one
 * point.  Empty where there are no timings.  Sorts them. */
Curve curve_fit(Arena *, Timing *, uint32_t n, double rate, double most, double like);

#endif
