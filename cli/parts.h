#ifndef CLI_PARTS_H
#define CLI_PARTS_H
/* Parts: what the time of a step is told in at the end of a run, and how long each part was
 * predicted to take. */
#include "cli/load.h"
#include "runtime/tally.h"

/* For the rank of a program of the plan.  Nothing is predicted where no profile was loaded. */
const TallyParts *parts_of(Loaded *, const Plan *, const Programs *, const Program *);

#endif
