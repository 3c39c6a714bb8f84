#ifndef PLANNER_CHOOSE_H
#define PLANNER_CHOOSE_H
/* Choose: the plan by hard rules alone. */
#include "planner/search.h"

/* planner_search(), as if no rule were soft; nothing is said of rules without effect. */
Status choose_plan(Arena *, Diags *, const PlanRequest *, SearchLimits, Plan **plan, Programs *out, Search *found);

#endif
