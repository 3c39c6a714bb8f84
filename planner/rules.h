#ifndef PLANNER_RULES_H
#define PLANNER_RULES_H
/* What the rules decide, checked against what this version can do. */
#include "planner/planner.h"

typedef struct Decisions {
    const Rule *mesh_rule[MESH_AXES]; /* NULL: none gives this size */
    int64_t     mesh[MESH_AXES];
    int64_t     outer[MESH_AXES];     /* as in Plan */
    bool        tp_open;              /* tp splits, and no rule says what */
    const char *context;              /* what cp splits, where the search may say so: no rule does; NULL: nothing */
    bool        searched;             /* what rules leave open is looked for, which a .plan leaves nothing of */
    const Rule *devices_rule;         /* NULL: all devices of the cluster */
    uint32_t   *devices; uint32_t ndevices;          /* mesh order -> device number */
    Rule       *rule; uint32_t nrule; /* those that the plan carries */
    Choice      microbatches;         /* any: open; else what the rule allows */
    Span        microbatches_at;
    const char *schedule;
    bool        schedule_given;
    int64_t     bucket;               /* bytes */
    const Rule *server_rule;          /* sync = "server"; NULL: all ranks update their weights */
} Decisions;

bool choice_allows(const Choice *, int64_t n);
/* Every hard rule either takes effect, or is refused by name, or waits for rules_warn();
 * what is left open and cannot be chosen is one diagnostic. */
Status rules_decide(Arena *, Diags *, const PlanRequest *, Decisions *out);
/* The same for one of the meshes that the rules of `base` allow: which rules the plan carries, or
 * what is wrong with them there. */
Status rules_on_mesh(Arena *, Diags *, const PlanRequest *, const Decisions *base, const int64_t size[MESH_AXES], Decisions *out);
/* Whether the plan carries a rule of this kind. */
bool   rules_have(const Decisions *, RuleKind);
/* Whether it carries rules that cut stages. */
bool   rules_cut(const Decisions *);
/* Rules of a .plan: they leave nothing open. */
bool   rules_resolved(const Rules *);
/* Why the model, or the chosen plan, leaves a rule nothing to do; NULL: it takes effect. */
const char *rules_idle(Arena *, const PlanRequest *, const Plan *, const Rule *);
/* A warning at each hard rule that the chosen plan gives nothing to do, with the reason. */
void   rules_warn(Diags *, const PlanRequest *, const Plan *);

/* The devices and the sizes of the mesh axes, from the rules collected in d (mesh.c).
 * *open: what the rules leave open of them, "" when nothing. */
Status mesh_decide(Arena *, Diags *, const PlanRequest *, Decisions *d, const char **open);

#endif
