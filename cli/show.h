#ifndef CLI_SHOW_H
#define CLI_SHOW_H
/* Show: what pplan tells about models, plans and programs, as report tables. */
#include "cli/report.h"
#include "codegen/simulate.h"
#include "ir/layout.h"
#include "planner/changes.h"
#include "planner/explain.h"
#include "planner/faster.h"
#include "planner/search.h"

/* Parameters, weights, precision, FLOPs of a step and a token. */
void show_model(Report *, const Graph *);
/* FLOPs of a step and of a token, as lines and facts of a table. */
void show_flops(const Report *, Table *, const Graph *);
/* Every forward op: shape, FLOPs, bytes, intensity; with a cluster what bounds it. */
void show_ops(Report *, const Graph *, const Cluster *);
/* Facts of a plan; memory is that of its fullest rank. */
void show_plan(Report *, const Graph *, const Cluster *, const Plan *, const Programs *, const Profile *, const Simulation *);
/* The time of a step, as lines and facts of a table. */
void show_step(const Report *, Table *, const Graph *, const Profile *, const Simulation *);
/* Where the model is faster without some of the plan's devices, as a line and facts of the first table, that of the plan. */
void show_fewer(const Report *, const Weigher *, const Plan *, const Simulation *);
/* Likewise where what the rules leave open makes it faster. */
void show_open(const Report *, const Weigher *, const Plan *, const Simulation *);
/* What was searched, and how much faster any plan could be; the plans found when there are several. */
void show_search(Report *, const Graph *, const Search *);
/* "48 layouts with these rules: none is faster" */
const char *searched_text(Arena *, const Search *);
/* Where the time of each stage goes; UINT32_MAX: not of one alone. */
void show_times(Report *, const Simulation *, uint32_t stage);
const char *proc_text(ProcKind);
/* Which ops of a stage take how long, and what bounds them; the program is the stage's first. */
void show_bounds(Report *, const Program *, const Simulation *, uint32_t stage);
/* The same of the stage that waits least for the others; nothing for a model without a loss. */
void show_busiest(Report *, const Graph *, const Plan *, const Programs *, const Simulation *);
/* Bytes by class, and the map's total against the device. */
void show_memory(Report *, const Program *);
/* The same for all ranks, a row for those that are alike. */
void show_ranks(Report *, const Cluster *, const Plan *, const Programs *);
/* Every buffer: class, bytes, lifetime, and offset in its part of the map. */
void show_ledger(Report *, const Program *);
/* The calls of a step in order, then the instructions of each procedure, with when they start in
 * the step and in their call. */
void show_timeline(Report *, const Program *, const StageTimes *, const int64_t *at);
/* The ops and values that a table is about; NULL: all. */
typedef struct Only { const bool *op, *value; } Only;

/* What each mesh axis splits, and by which name users know that; then the same by op. */
void show_splits(Report *, const Layout *);
void show_op_splits(Report *, const Layout *, const Only *);
/* Where each value lies; what is converted, and which axis makes that necessary. */
void show_values(Report *, const Layout *, const Only *);
void show_conversions(Report *, const Layout *, const Only *);
/* What stages of a pipeline send to each other; UINT32_MAX: not of one stage alone. */
void show_crossings(Report *, const Layout *, uint32_t stage);

/* ---- explanations ---- */

/* From data parallelism to the plan, a decision a row. */
void show_ladder(Report *, const Rung *, uint32_t n);
/* How far data parallelism alone goes. */
void show_scaling(Report *, const Scaling *);
/* What bounds a plan, in sentences: time by its largest parts, memory by its fullest rank. */
void show_verdicts(Report *, const Figures *, const Scaling *);
/* Each technique: whether the plan has it, and what it would be without it, or with it. */
void show_techniques(Report *, const Weighed *plan, const Change *neighbour, uint32_t n);
/* Other layouts that were judged, the fastest that fit first, at most `most`; there may be none.  searched: some
 * are the runners-up of a search. */
void show_next(Report *, const Weighed *plan, const Change *other, uint32_t n, uint32_t most, bool searched);
/* What two layouts take, part by part; differences sum up to that of the step and of the map. */
void show_difference(Report *, const Figures *plan, const Figures *other);
/* Where a rank's memory is fullest, and what lies there. */
void show_peak(Report *, const Figures *);
/* Graphviz input. */
void show_dot(FILE *, const Graph *);
/* The time, memory and FLOPs of a plan as comment lines, for the end of a .plan. */
void show_predictions(FILE *, Arena *, const Graph *, const Program *, const Profile *, const Simulation *);

#endif
