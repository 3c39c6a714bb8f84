#ifndef PLANNER_PINS_H
#define PLANNER_PINS_H
/* Pins: what a plan decided, as rules that leave nothing open; all of it, or the
 * decisions taken so far when they are taken one by one. */
#include "planner/planner.h"

/* Decisions, in the order in which an explanation takes them. */
#define DECISION_LIST(X)                                                                      \
    X(data,      "data parallel")      /* all devices, nothing else */                        \
    X(stages,    "pipeline stages")                                                           \
    X(tensor,    "tensor parallel")    /* tp, but for positions */                            \
    X(sequence,  "sequence split")     /* positions by tp */                                  \
    X(context,   "context parallel")                                                          \
    X(expert,    "expert parallel")                                                           \
    X(splits,    "other splits")       /* by dp, or by parts of it */                         \
    X(micro,     "micro-batches")      /* before it they are the fewest that fit */           \
    X(schedule,  "schedule")                                                                  \
    X(shard,     "sharded states")                                                            \
    X(recompute, "recomputation")                                                             \
    X(bucket,    "gradient buckets")                                                          \
    X(server,    "parameter server")                                                          \
    X(order,     "order of devices")
typedef enum Decision {
#define X(name, text) DECIDE_##name,
    DECISION_LIST(X)
#undef X
    DECISIONS
} Decision;

const char *decision_text(Decision);
const char *decision_key(Decision);

/* Sets of decisions: bit 1 << DECIDE_... */
#define ALL_DECISIONS ((1u << DECISIONS) - 1)
static inline unsigned decisions_upto(Decision last) { return (2u << last) - 1; }

/* The rules of some decisions: what the others would have split, is left to dp. */
Rules      *pins_some(Arena *, const Graph *, const Plan *, unsigned decisions);
/* Those of all. */
Rules      *pins_of(Arena *, const Graph *, const Plan *);
/* What a decision adds, in a few words: "tp = 2 over heads, ffn"; "": the plan does not use it. */
const char *pins_decision(Arena *, const Graph *, const Plan *, Decision);
/* "rule; rule": equal layouts have equal texts. */
const char *pins_text(Arena *, const Rules *);

/* The same for people: of many splits the first, and how many more there are. */
const char *pins_brief(Arena *, const Rules *);

/* The axis of positions in a sequence: the first of an input of whole numbers after the batch; NULL: none. */
const char *pins_positions(const Graph *);
/* Whether a rule, or some rule, is a `split` by a mesh axis. */
bool        rule_splits_by(const Rule *, MeshAxis);
bool        splits_by(const Rules *, MeshAxis);

/* One rule, written by nobody. */
Rule pin_mesh(Arena *, MeshAxis, int64_t size);
Rule pin_number(Arena *, const char *setting, int64_t value);
Rule pin_word(const char *setting, const char *value);
Rule pin_shard(MeshAxis);
Rule pin_recompute(Arena *, const char *repeat, RecomputePolicy);
Rule pin_split(Arena *, const char *name, MeshAxis);
/* A stage begins with this round of a repeat. */
Rule pin_stage(Arena *, const char *repeat, int64_t round);

#endif
