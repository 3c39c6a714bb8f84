#ifndef PLANNER_CHANGES_H
#define PLANNER_CHANGES_H
/* Changes: layouts that are one decision away from another one, the cheapest first: what
 * would make it fit, and what a technique that it does not use would bring. */
#include "planner/pins.h"
#include "planner/search.h"
#include "planner/weigh.h"

typedef struct Change {
    Decision    decision;
    const char *text;                 /* "shard optimizer by dp" */
    const char *assumed;              /* rules that it needs beside, such as where stages begin; "": none */
    bool        without;              /* it takes the decision back */
    Rules      *rules;                /* of the changed layout */
    PlanUse     use;                  /* USE_PLAN: splits by tp are open, and are searched for */
    Weighed     weighed;              /* once change_weigh() was called */
} Change;

/* Those that this plan leaves room for; arena memory. */
uint32_t changes_of(const Weigher *, const Plan *, Change **out);
/* One of each kind, weighed. */
uint32_t neighbours(const Weigher *, const Plan *, Change **out);

/* The plans that a search found beside this one, weighed; each says in which rules it differs (runners.c). */
/* "stage before h[2]; without shard optimizer by dp": the rules of the other plan that differ; "": none do. */
const char *plans_differ(Arena *, const Graph *, const Plan *, const Plan *other);
uint32_t runners_up(const Weigher *, const Plan *, const Search *, Change **out);

/* The rules of one layout that another one has not, and those it leaves out: "microbatches = 4; without recompute h full"
 * (runners.c). */
const char *difference_of(Arena *, const Rules *plan, const Rules *other);

/* A layout with other rules in place of the plan's own: those of the kinds that are given
 * are dropped, and what followed from a mesh that changes; stages that nobody gives are as equal as can be.
 * *assumed: rules that were added; "": none. */
Rules   *changed_by(const Weigher *, const Plan *, const Rules *given, PlanUse *use, const char **assumed);
/* The same as a question.  Of another mesh, or other stages, the best plan is meant: the rules are then the user's
 * own, as far as the given ones leave them alone, and USE_PLAN searches what they leave open. */
Rules   *asked_about(const Weigher *, const Plan *, const Rules *given, PlanUse *use);
/* Whether a plan is as the rules say already: with them besides it is the same (kept.c).  Rules that leave a choice ask
 * for another one. */
bool     keeps(const Weigher *, const Plan *, const Weighed *plan, const Rules *given);

/* Changes with which a plan that does not fit does, the smallest first, at most `most`;
 * when none alone is enough, the fewest of them together that are.  *nearest: of those that do not fit, what needs
 * the least; not legal: nothing needs less than the plan does. */
uint32_t remedies(const Weigher *, const Plan *, int64_t needed, uint32_t most, Change *out, Change *nearest);
/* Bytes of memory with which a device would do. */
int64_t  change_needs(const Change *);
/* "61.0 GB of 76.0 GB, 12.3 ms a step" */
const char *fit_text(Arena *, const Figures *);

/* Notes at an error that says that a plan, which needs so many bytes, does not fit: which of the user's
 * rules stands in the way, and which changes make it fit.  searched: the plan is what needs the least of a whole
 * search, so any rule is dropped, and devices are added. */
void  relax(const Weigher *, const Plan *, int64_t needed, bool searched, Diags *, Diag *error);
/* The help of an error, taken away and put back when all notes are there; NULL: it has none. */
Diag *relax_take_help(Diag *error);
void  relax_put_last(Diag *error, Diag *help);

#endif
