#ifndef CLI_EXPLAIN_H
#define CLI_EXPLAIN_H
/* `pplan explain`: why a plan is as it is, why it is not another one, and what one op,
 * value or stage of it does. */
#include "cli/load.h"
#include "cli/report.h"

Status explain(Loaded *, const Args *);
/* One op or value, every round of a repeat that is named without one; or "stage 2" (explain_path.c). */
Status explain_path(Loaded *, const Plan *, const Programs *, const char *path, Report *);

#endif
