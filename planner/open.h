#ifndef PLANNER_OPEN_H
#define PLANNER_OPEN_H
/* Open: what a way to split the ops is measured by, where rules leave it open. */
#include "planner/intra.h"
#include "planner/space.h"

Goal open_goal(const PlanRequest *, const Mesh *, int64_t micro);

#endif
