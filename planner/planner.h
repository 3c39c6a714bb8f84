#ifndef PLANNER_PLANNER_H
#define PLANNER_PLANNER_H
/* Planner: Graph + Cluster + Rules -> Plan.  It decides what the rules leave open
 * and calls codegen to judge: a plan is good only if its lowered program fits. */
#include "codegen/codegen.h"
#include "ir/plan.h"

typedef struct PlanRequest {
    const Graph   *graph;             /* differentiated when it has a loss */
    const Cluster *cluster;
    const Rules   *rules;
    const char    *model_text;        /* self-contained, `fmt` form */
    bool           closed;            /* prun: the rules must leave nothing open */
    const PassDump *dump;             /* of the chosen plan's lowering; may be NULL */
} PlanRequest;

/* Choose a plan and lower it.  A rule that cannot be met, or a model that fits in
 * no way, is a diagnostic with the reason, the bytes and what would help. */
Status planner_choose(Arena *, Diags *, const PlanRequest *, Plan **plan, Program **program);

/* A diagnostic when the device has no peak in the dtype the model computes in. */
Status check_peak(Diags *, const Graph *, const Cluster *, const Device *);

#endif
