#ifndef CLI_SHOW_H
#define CLI_SHOW_H
/* Show: what pplan tells about models, plans and programs, as report tables. */
#include "cli/report.h"
#include "ir/program.h"

/* Parameters, weights, precision, FLOPs of a step and a token. */
void show_model(Report *, const Graph *);
/* Every forward op: shape, FLOPs, bytes, intensity; with a cluster what bounds it. */
void show_ops(Report *, const Graph *, const Cluster *);
void show_plan(Report *, const Graph *, const Cluster *, const Plan *, const Program *);
/* Bytes by class, and the map's total against the device. */
void show_memory(Report *, const Program *);
/* Every buffer: class, bytes, lifetime, offset. */
void show_ledger(Report *, const Program *);
/* Graphviz input. */
void show_dot(FILE *, const Graph *);
/* The memory and FLOPs of a plan as comment lines, for the end of a .plan. */
void show_predictions(FILE *, Arena *, const Graph *, const Program *);

#endif
