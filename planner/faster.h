#ifndef PLANNER_FASTER_H
#define PLANNER_FASTER_H
/* Faster: plans that take less time than one that was made or given: on fewer of its devices, or with more
 * decided than was given.  A tenth of a usual search looks for them; what it finds is judged as any plan. */
#include "planner/changes.h"

typedef struct Faster {
    int64_t     ns;                   /* of a step */
    const char *layout;               /* as Weighed.layout */
    const char *change;               /* the rules in which it differs, as of runners_up() */
    uint32_t   *devices; uint32_t n;  /* ascending */
    bool        gave_way;             /* rules for the mesh are not part of it */
} Faster;

/* The best on the first half of the devices, the first quarter and so on; with the rules of a question about another
 * mesh.  False: on none of them a step is shorter by more than predictions can tell. */
bool faster_on_fewer(const Weigher *, const Plan *, const Simulation *, Faster *out);
/* The best of what the rules leave open, for a plan of which nothing more was chosen than they say. */
bool faster_with_more(const Weigher *, const Plan *, const Simulation *, Faster *out);

#endif
