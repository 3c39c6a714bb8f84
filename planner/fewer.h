#ifndef PLANNER_FEWER_H
#define PLANNER_FEWER_H
/* Fewer: whether the model runs faster on fewer of the plan's devices. */
#include "planner/changes.h"

typedef struct Fewer {
    uint32_t   *devices; uint32_t n;  /* ascending */
    int64_t     ns;                   /* of a step on these alone */
    const char *layout;               /* as Weighed.layout */
    bool        gave_way;             /* rules for the mesh are not part of it */
} Fewer;

/* The best plan that a search finds on the first half of the devices, the first quarter and so on; with the rules of a
 * question about another mesh.  False: on none of them a step is shorter by more than predictions can tell. */
bool fewer_devices(const Weigher *, const Plan *, const Simulation *, Fewer *out);

#endif
