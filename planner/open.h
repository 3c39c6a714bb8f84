#ifndef PLANNER_OPEN_H
#define PLANNER_OPEN_H
/* Open: what rules leave open of a layout whose mesh they give. */
#include "planner/rules.h"

/* Rules that split ops by tp, where none of the user's does: those of the fastest way
 * with `micro` micro-batches; lean: of the ways with the fewest weights on a rank.  A model
 * whose splits cannot be chosen is a diagnostic. */
Status open_splits(Arena *, Diags *, const PlanRequest *, const Decisions *, int64_t micro, bool lean, Rule **rule, uint32_t *n);

#endif
