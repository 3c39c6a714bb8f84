#ifndef PLANNER_JUDGE_H
#define PLANNER_JUDGE_H
/* Judge: a plan lowered for as many of its ranks as tell whether it fits, and how long it takes. */
#include "planner/planner.h"

/* Programs of a plan, for a while: those that are not made to last have an arena of
 * their own.  Ranks that are alike are judged by one, which comes first and so has the most slots. */
typedef struct Try {
    Arena   *own, *arena;             /* own: NULL where the programs are made to last */
    Plan    *plan;
    Codegen *codegen;
    Programs programs;
    bool    *stands_in;               /* per rank: its program was made from another's */
} Try;

/* Lower the plan of a Try, whose arenas and plan are set; the diagnostics of codegen_open(). */
Status         try_lower(Try *, Diags *, const PlanRequest *);
/* Programs that will be shown and executed: each rank's own, verified. */
void           try_complete(Try *, Arena *);
/* The program with the least memory to spare. */
const Program *try_fullest(const Try *);
void           try_end(Try *);

#endif
