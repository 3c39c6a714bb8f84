#ifndef PLANNER_GOAL_H
#define PLANNER_GOAL_H
/* What ways to split the ops are measured by, in a configuration. */
#include "planner/intra.h"
#include "planner/space.h"

/* least_ns: of a micro-batch on all stages. */
Goal   goal_of(const PlanRequest *, const Config *, double least_ns);
/* Bytes of a weight element, its gradient and its optimizer states, which so many ranks share out. */
double goal_state_bytes(const Graph *, double copies);
/* Micro-batches in flight on a stage. */
double goal_flight(const Config *, uint32_t stage);
/* On average over the stages. */
double goal_mean_flight(const Config *);

#endif
