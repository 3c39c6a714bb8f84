#ifndef PLANNER_GOAL_H
#define PLANNER_GOAL_H
/* What ways to split the ops are measured by, on a mesh and with so many micro-batches. */
#include "planner/intra.h"
#include "planner/space.h"

Goal goal_of(const PlanRequest *, const Mesh *, int64_t micro);

#endif
