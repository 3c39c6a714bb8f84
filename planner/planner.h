#ifndef PLANNER_PLANNER_H
#define PLANNER_PLANNER_H
/* Planner: Graph + Cluster + Rules -> Plan.  It decides what the rules leave open
 * and calls codegen to judge: a plan is good only if its lowered program fits. */
#include "codegen/codegen.h"
#include "ir/plan.h"
#include "ir/profile.h"

/* What the plan is wanted for. */
typedef enum PlanUse {
    USE_PLAN,                         /* the planner chooses what it can of what rules leave open */
    USE_ESTIMATE,                     /* the layout is as the rules say; micro-batches alone are chosen */
    USE_RUN                           /* nothing may be open */
} PlanUse;

typedef struct PlanRequest {
    const Graph   *graph;             /* differentiated when it has a loss */
    const Cluster *cluster;
    const Rules   *rules;
    const char    *model_text;        /* self-contained, `fmt` form */
    const Profile *profile;           /* of the runtime that executes the plan; NULL: no times are asked for */
    PlanUse        use;
} PlanRequest;

/* Programs of a plan's ranks.  Ranks of one stage on one kind of device differ in where
 * their axes begin and, with a server, in moments, of which the first has the most: so
 * the first is lowered to judge all. */
typedef struct Programs {
    Program **rank; uint32_t n;       /* NULL: not lowered; codegen() does that for one rank */
    uint32_t  fullest;                /* of those lowered, the one with the least memory to spare */
} Programs;

/* Choose a plan.  A rule that cannot be met, or a model that fits in no way, is a
 * diagnostic with the reason, the rank, the bytes and what would help.  Where nothing
 * fits, *plan and its programs are those that need the least; else *plan is then NULL. */
Status planner_choose(Arena *, Diags *, const PlanRequest *, Plan **plan, Programs *out);

/* A diagnostic when the device has no peak in the dtype the model computes in. */
Status check_peak(Diags *, const Graph *, const Cluster *, const Device *);

#endif
