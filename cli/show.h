#ifndef CLI_SHOW_H
#define CLI_SHOW_H
/* Show: what pplan tells about models, plans and programs, as report tables. */
#include "cli/report.h"
#include "codegen/simulate.h"
#include "ir/layout.h"
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
/* What was searched, and how much faster any plan could be; the plans found when there are several. */
void show_search(Report *, const Cluster *, const Search *);
/* Where the time of each stage goes. */
void show_times(Report *, const Simulation *);
/* Which ops of a stage take how long, and what bounds them; the program is the stage's first. */
void show_bounds(Report *, const Program *, const Simulation *, uint32_t stage);
/* Bytes by class, and the map's total against the device. */
void show_memory(Report *, const Program *);
/* The same for all ranks, a row for those that are alike. */
void show_ranks(Report *, const Cluster *, const Plan *, const Programs *);
/* Every buffer: class, bytes, lifetime, and offset in its part of the map. */
void show_ledger(Report *, const Program *);
/* The calls of a step in order, then the instructions of each procedure, with when they start in
 * the step and in their call. */
void show_timeline(Report *, const Program *, const StageTimes *, const int64_t *at);
/* What each mesh axis splits, and by which name users know that; then the same by op. */
void show_splits(Report *, const Layout *);
void show_op_splits(Report *, const Layout *);
/* Where each value lies; what is converted, and which axis makes that necessary. */
void show_values(Report *, const Layout *);
void show_conversions(Report *, const Layout *);
/* What stages of a pipeline send to each other. */
void show_crossings(Report *, const Layout *);
/* Graphviz input. */
void show_dot(FILE *, const Graph *);
/* The time, memory and FLOPs of a plan as comment lines, for the end of a .plan. */
void show_predictions(FILE *, Arena *, const Graph *, const Program *, const Profile *, const Simulation *);

#endif
