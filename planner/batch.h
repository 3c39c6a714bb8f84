#ifndef PLANNER_BATCH_H
#define PLANNER_BATCH_H
/* Batch: the parts that a mesh makes of it, each of which is cut into micro-batches. */
#include "planner/rules.h"

/* Parts of the batch that different ranks have. */
int64_t batch_parts(const Decisions *);
/* Samples of a part.  A batch that does not divide has one micro-batch, whose lowering says why. */
int64_t batch_samples(const Graph *, const Decisions *);

/* Diagnostics: no number of micro-batches that the rules allow divides a part, so the nearest that do
 * are named; always ERR_REJECT. */
Status  batch_none_divides(Diags *, const PlanRequest *, const Decisions *);
/* ERR_REJECT where dp does not divide the batch, whatever the micro-batches. */
Status  batch_check(Diags *, const PlanRequest *, const Decisions *);

#endif
