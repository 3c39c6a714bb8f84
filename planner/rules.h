#ifndef PLANNER_RULES_H
#define PLANNER_RULES_H
/* What the rules decide, checked against what this version can do. */
#include "planner/planner.h"

typedef struct Decisions {
    uint32_t    device;               /* number in the cluster */
    Choice      microbatches;         /* any: open; else what the rule allows */
    Span        microbatches_at;
    const char *schedule;
    int64_t     bucket;               /* bytes */
} Decisions;

bool choice_allows(const Choice *, int64_t n);
/* Every hard rule either takes effect, or is refused by name, or waits for rules_warn(). */
Status rules_decide(Diags *, const PlanRequest *, Decisions *out);
/* A warning at each rule that the chosen plan gives nothing to do, with the reason. */
void   rules_warn(Diags *, const PlanRequest *, const Plan *);

#endif
