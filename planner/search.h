#ifndef PLANNER_SEARCH_H
#define PLANNER_SEARCH_H
/* Search: the plan with the shortest step among all that the rules allow and that fit.
 *
 * Candidates come in the order of an estimate; each is lowered and simulated, which judges it and
 * corrects the estimates of those like it.  Where the space is small, every candidate whose
 * bound is below the best time is judged, in the order of the bounds, and the best plan is proven. */
#include "codegen/simulate.h"
#include "planner/judge.h"
#include "planner/rules.h"

/* A plan that was judged and fits. */
typedef struct Found {
    Plan   *plan;
    int64_t ns;                       /* of its step, simulated */
    int64_t spare;                    /* bytes left on the rank with the fewest */
} Found;

typedef struct Search {
    double   layouts;                 /* candidates that rules, divisibility and the chain allow */
    uint64_t configs, estimated, judged, unfit;      /* unfit: of those judged */
    bool     no_context;              /* context parallelism was not looked at */
    uint64_t excluded;                /* of the configurations: they have no layout that fits */
    double   bound;                   /* ns: no candidate that fits is faster, of those that were looked at */
    bool     proven;                  /* none that could be faster was left unjudged */
    const char *cut;                  /* where not all was looked at; NULL */
    Found   *best; uint32_t nbest;    /* the fastest first; at most SearchLimits.top */
    Try      fastest;                 /* the first of them as it was judged; planner_search() completes it */
    Simulation sim;                   /* its step; ns = 0: nothing was searched for */
    /* of preferences, which may have been searched for several times (prefer.c): then the counts are sums */
    uint32_t soft, kept;              /* soft rules that were weighed; those that the plan keeps */
    int64_t  without;                 /* ns of the best plan when none has to be kept; 0: none was found, or none was given */
} Search;

typedef struct SearchLimits {
    uint32_t top;                     /* plans wanted, 1 or more */
    uint64_t exhaustive;              /* spaces of no more candidates are searched to the end */
    uint64_t effort;                  /* in a space that is larger: what judging plans may cost, see search.c */
    double   below;                   /* ns: what takes longer is not wanted, by its configuration's bound; 0: all is */
} SearchLimits;

/* Steps are as long as each other where one takes at most a 200th, 0.5 %, longer: predictions are not that good. */
enum { TIE = 200 };

extern const SearchLimits search_limits;             /* the usual ones */

/* planner_choose() with what was looked at on the way, and up to limits.top plans.  A plan whose
 * rules leave nothing open is not searched for: *found is then empty. */
Status planner_search(Arena *, Diags *, const PlanRequest *, SearchLimits, Plan **plan, Programs *out, Search *found);

/* ERR_REJECT with a diagnostic where no candidate is legal.  Where none fits, nbest is 0 and *leanest
 * the judged plan that needs least. */
Status search(Arena *, Diags *, const PlanRequest *, const Decisions *, SearchLimits, Search *out, Plan **leanest);

#endif
