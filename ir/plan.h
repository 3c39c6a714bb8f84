#ifndef IR_PLAN_H
#define IR_PLAN_H
/* Plan: what was decided, and nothing that follows from it.  Rules come from a
 * .pplan, `--with`, or a .plan; a Plan is what they and the planner decide
 * together, and prints as rules that leave nothing open. */
#include <stdio.h>

#include "base/diag.h"
#include "ir/cluster.h"
#include "ir/graph.h"

typedef enum MeshAxis { AXIS_pp, AXIS_dp, AXIS_cp, AXIS_ep, AXIS_tp, MESH_AXES } MeshAxis;   /* outermost first */
const char *mesh_axis_name(MeshAxis);
/* MESH_AXES when there is none of that name. */
MeshAxis    mesh_axis_find(const char *name);

/* A mesh axis, or the outer or inner part of one made as `dp = 4 * 2`. */
typedef enum MeshPart { PART_WHOLE, PART_OUTER, PART_INNER } MeshPart;
typedef struct MeshRef { MeshAxis axis[4]; MeshPart part[4]; uint8_t n; } MeshRef;

/* Part of a path: a name, or the rounds first..last of the repeat before it. */
typedef struct PathStep { const char *name; int64_t first, last; } PathStep;   /* name NULL: rounds */
typedef struct Path { PathStep *step; uint32_t nstep; Span at; } Path;
/* Round of the repeat that the pattern names and the path lies in; -1: it lies in none. */
int64_t path_round(const Path *, const char *path);
bool path_matches(const Path *, const char *path);   /* path lies at or under the pattern; no rounds given: every round */
/* "'h' has 2 rounds, h[0] to h[1]": for whoever named another one. */
const char *rounds_text(Arena *, const char *repeat, int64_t rounds);

typedef enum RuleKind {
    RULE_MESH, RULE_SPLIT, RULE_KEEP, RULE_PAD, RULE_STAGE_BEFORE, RULE_STAGE_AFTER, RULE_STAGE_EVERY,
    RULE_STAGE_MESH, RULE_RECOMPUTE, RULE_SAVE, RULE_SHARD, RULE_OFFLOAD, RULE_SET, RULE_SETTING, RULE_KINDS
} RuleKind;
typedef enum RecomputePolicy { RECOMPUTE_NONE, RECOMPUTE_CHEAP, RECOMPUTE_ATTENTION, RECOMPUTE_FULL } RecomputePolicy;
typedef enum StateClass { STATE_OPTIMIZER, STATE_GRADIENTS, STATE_WEIGHTS } StateClass;

/* Values an integer may have: a list of numbers, or a range, or anything. */
typedef struct Choice { bool any; int64_t *value; uint32_t nvalue; } Choice;

typedef struct Rule {
    RuleKind    kind;
    bool        soft;                 /* prefer */
    bool        resolved;             /* of a `plan NAME on CLUSTER`, which writes out every choice */
    Span        at;
    const char *name;                 /* axis, setting or override */
    const char **names; uint32_t nnames; Span *name_at;      /* split, keep: axes */
    MeshAxis    axis;                 /* mesh */
    Choice      choice;               /* mesh, integer settings */
    int64_t     outer, inner;         /* mesh `4 * 2`; 0: not in parts */
    MeshRef     by;                   /* split, shard */
    Path        path;                 /* nstep 0: everywhere */
    int64_t     number;               /* pad to, stage every, stage mesh's stage */
    RecomputePolicy policy;
    StateClass  state;
    const char *text;                 /* set: the value; settings: a string */
} Rule;

/* Whether it cuts stages: `stage before`, `stage after`, `stage every`. */
bool rule_cuts(const Rule *);

typedef struct Rules {
    const char *model, *cluster;      /* `plan for MODEL`, `plan MODEL on CLUSTER`; NULL: not said */
    Rule       *rule; uint32_t nrule;
    Span        at;
} Rules;

/* The default size of a gradient bucket, in bytes: 25 MB, DistributedDataParallel's. */
enum { DEFAULT_BUCKET = 25000000 };

/* One device decides only the micro-batch; many ranks come as rows of this struct. */
typedef struct Plan {
    Arena      *arena;
    const char *model, *cluster;
    const char *model_text;           /* model and includes, `fmt` form, in one file */
    const char *cluster_text;
    int64_t     mesh[MESH_AXES];
    int64_t     outer[MESH_AXES];     /* outer part of an axis made in parts; 0: in one */
    Rule       *rule; uint32_t nrule; /* how ops are split, axes padded, stages cut, states sharded, values recomputed */
    uint32_t   *devices; uint32_t ndevices;          /* mesh order (pp, dp, cp, ep, tp) -> device number */
    int64_t     microbatches;
    const char *schedule;             /* "1f1b" or "gpipe" */
    int64_t     bucket;               /* bytes of a gradient bucket */
    bool        server;               /* the first of the ranks that hold summands of a gradient updates the weight for all */
    const char *why_microbatches;     /* "given", or the reason; printed as a comment */
} Plan;

/* A rule as the language has it; one that gives a choice of sizes has a list of them. */
const char *rule_text(Arena *, const Rule *);

/* The whole .plan file: model, devices, cluster, then the rules. */
void plan_print(FILE *, const Plan *, const Graph *);
int  plan_check(const Plan *, const Graph *, const Cluster *, FILE *err);

#endif
