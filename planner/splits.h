#ifndef PLANNER_SPLITS_H
#define PLANNER_SPLITS_H
/* Splits: the rules that cut ops as a Way does. */
#include "planner/intra.h"

/* A rule per op that is cut, all rounds of a repeat in one; arena memory. */
uint32_t splits_of(Arena *, const Intra *, const Way *, Rule **out);
/* The ways to cut an op by tp that no `keep` rule forbids; their number. */
uint32_t splits_choices(Arena *, const Layout *, const Plan *, OpId, CutChoice **out);
/* Cuts that the plan's rules give along other axes than tp, put into an open layout; false: the rules cannot be met. */
bool     splits_given(Arena *, Diags *, const Plan *, Layout *);
/* "h[3].attn.q" as a pattern. */
Path     path_parse(Arena *, const char *);
/* The pattern of an op's path, in all rounds of its part. */
Path     splits_path(Arena *, const Chain *, OpId);

#endif
