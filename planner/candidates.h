#ifndef PLANNER_CANDIDATES_H
#define PLANNER_CANDIDATES_H
/* The plan of a candidate: its decisions as rules. */
#include "planner/stages.h"

Plan *candidate_plan(Arena *, UnitTable *, const Candidate *);

#endif
