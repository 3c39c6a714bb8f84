#ifndef PLANNER_SPLITS_H
#define PLANNER_SPLITS_H
/* Splits: the rules that cut ops as a Way does. */
#include "planner/intra.h"

/* A rule per op that is cut, all rounds of a repeat in one; arena memory. */
uint32_t splits_of(Arena *, const Intra *, const Way *, Rule **out);
/* The pattern of an op's path, in all rounds of its part. */
Path     splits_path(Arena *, const Chain *, OpId);

#endif
