#ifndef CODEGEN_COST_H
#define CODEGEN_COST_H
/* Costs: how long one instruction takes on the devices of a plan, alone.  Everything that is not a
 * rate of the cluster's text is a constant at the top of cost.c or links.c, with its source.
 * Sums are made in one order and without library functions, so that times are the
 * same under every compiler; they leave here as whole nanoseconds. */
#include "ir/plan.h"
#include "ir/profile.h"
#include "ir/program.h"

/* ---- links (links.c) ---- */

/* How a group of ranks lies in the levels of the machine. */
typedef struct Pattern {
    uint32_t ranks;
    double   latency, far_latency;    /* seconds of one round of a ring through all of them: its hops of the innermost level, and the others */
    double   tree_latency, far_tree_latency;         /* likewise from the leaves of a tree of them to its root */
    double   bandwidth;               /* bytes/s that a ring through all of them carries */
    double   near, far;               /* all to all: parts of a rank's bytes for ranks of its own innermost unit, and for others */
    double   near_bandwidth, far_bandwidth;          /* bytes/s a device has for each */
    double   hop;                     /* seconds to the farthest member */
    bool     crosses;                 /* that is on another unit of the innermost level */
    bool     cuda;
} Pattern;

/* A group whose patterns are known. */
typedef struct Seen { const RankGroup *group; Pattern *pattern; uint32_t npattern; } Seen;

/* Where devices lie, for the groups of a plan's ranks. */
typedef struct Links {
    Arena         *arena;
    const Cluster *cl;
    const Plan    *plan;
    uint32_t      *unit;              /* [level][device]: which unit of that level it is in; units below a level it skips */
    uint32_t       nunit;
    Seen          *seen; uint32_t nseen;
} Links;

Links   links_read(Arena *, const Cluster *, const Plan *);
/* The unit of a level that a device is in. */
static inline uint32_t links_unit(const Links *l, uint32_t level, uint32_t device) { return l->unit[level * l->cl->ndevices + device]; }
/* The distinct patterns of a group, of which place 0 of a stage is a member, and of its
 * likes: the groups that the other places of the stage are in. */
Pattern *links_patterns(Links *, const RankGroup *, uint32_t *n);
/* Seconds of a collective of `bytes` (of the whole: what all_gather makes, what
 * reduce_scatter takes; of one rank for all_to_all) or of a message. */
double  links_seconds(const Pattern *, OpKind, double bytes);

/* ---- instructions (cost.c) ---- */

/* What an instruction is for, where time is shown by kinds. */
#define COST_CLASS_LIST(X)                                                              \
    X(matmul,    "matmul")            /* and convolutions */                            \
    X(attention, "attention")                                                           \
    X(memory,    "memory-bound")      /* norms, activations, additions, moves of data */ \
    X(optimizer, "optimizer")         /* norm and step */                                \
    X(link,      "communication")
typedef enum CostClass {
#define X(name, text) COST_##name,
    COST_CLASS_LIST(X)
#undef X
    COST_CLASSES
} CostClass;

typedef enum Bound { BOUND_COMPUTE, BOUND_MEMORY, BOUND_LAUNCH, BOUND_LINK, BOUNDS } Bound;

CostClass   cost_class(OpKind);
const char *cost_class_text(CostClass);              /* as in the list above */
const char *cost_class_key(CostClass);
const char *bound_text(Bound);

/* ns, 11.6 days: an instruction that takes longer counts as this, so that sums of a few stay within 63 bits. */
#define COST_MOST ((int64_t)1000000000000000)

/* The parts of a time.  Compute and memory overlap, the rest does not. */
typedef struct Cost {
    double    compute;                /* seconds of arithmetic alone */
    double    memory;                 /* seconds of this device's memory alone */
    double    launch;                 /* seconds to start, or that the host needs */
    double    link;                   /* seconds of communication */
    int64_t   ns;                     /* of the whole */
    CostClass cls;
    Bound     bound;                  /* the longest of the parts */
} Cost;

enum { GEMM_MEMO = 512 };

/* One matmul whose time is known: models repeat their shapes. */
typedef struct GemmMemo { double m, n, k, batch, rate; double seconds; } GemmMemo;

typedef struct CostModel {
    Arena         *arena;
    const Cluster *cl;
    const Plan    *plan;
    const Profile *profile;
    Links          links;
    GemmMemo       gemm[GEMM_MEMO];
} CostModel;

CostModel *cost_model(Arena *, const Cluster *, const Plan *, const Profile *);

/* Patterns of a program's groups, found once. */
typedef struct GroupCost { Pattern *pattern; uint32_t npattern; } GroupCost;
GroupCost *cost_groups(CostModel *, const Program *);

/* What an instruction's curve of efficiency is read at: FLOP, less what is masked, of an op that
 * is bound by the peak; bytes that go through memory for the others. */
double  cost_work(const Program *, const Instr *);

/* One instruction of a program, whose rank says which device executes it. */
Cost    cost_of(CostModel *, const Program *, const GroupCost *, const Instr *);
int64_t cost_ns(CostModel *, const Program *, const GroupCost *, const Instr *);
/* The time of the parts when this rank has a share of its processor and of its memory's bandwidth. */
int64_t cost_shared_ns(const Cost *, double processor, double memory);

#endif
