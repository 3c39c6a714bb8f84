#ifndef PLANNER_STATES_H
#define PLANNER_STATES_H
/* States: what the weights of a configuration take beside computing: memory, sums of their gradients, updates. */
#include "planner/units.h"

/* Ranks that share out a weight's optimizer states, at most. */
double states_copies(const UnitTable *, const Config *);
/* Bytes of a weight element with its states. */
double states_bytes(const UnitTable *, const Config *);
/* ns of so many weight elements: their update, which so many ranks share out, .. */
double states_update_ns(const UnitTable *, const Device *, double params, double ways);
/* .. the sums of their gradients over the copies, and what gathers them after the update. */
double states_sum_ns(const UnitTable *, const Config *, double params);
double states_gather_ns(const UnitTable *, const Config *, double params);

#endif
