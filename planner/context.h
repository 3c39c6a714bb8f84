#ifndef PLANNER_CONTEXT_H
#define PLANNER_CONTEXT_H
/* Context parallelism that no rule asks for: what cp splits where it is the search's to choose. */
#include "planner/planner.h"

/* The axis of positions, where all inputs of tokens have the same one and every op that has it can be
 * split along it, attention by gathering keys and values; NULL: there is none. */
const char *context_axis(const PlanRequest *, Sources *);

#endif
