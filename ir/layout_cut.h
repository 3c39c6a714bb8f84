#ifndef IR_LAYOUT_CUT_H
#define IR_LAYOUT_CUT_H
/* Private to layout: from a plan's rules to the grid, the padding and the cuts of
 * forward ops.  What a rule asks and cannot have is a diagnostic at the rule. */
#include "ir/layout.h"

Status layout_grid(Diags *, const Graph *, const Plan *, Grid *out);
Status layout_pads(Diags *, const Graph *, const Plan *, Layout *);
Status layout_stages(Arena *, Diags *, const Graph *, const Plan *, Layout *);
Status layout_cuts(Arena *, Diags *, const Graph *, const Plan *, Layout *);

#endif
