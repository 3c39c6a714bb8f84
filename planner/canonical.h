#ifndef PLANNER_CANONICAL_H
#define PLANNER_CANONICAL_H
/* Canonical: the splits that Megatron-LM has, for a model of any names.
 *
 * An axis is *inner* when rounds do not hand it on: heads, the width of a feed-forward, a vocabulary.  Every op that
 * has one is split along it, of several along the one that most ops have; the others are whole, or split along
 * positions, as in sequence parallelism (Korthikanti et al. 2022, section 4.2.2). */
#include "planner/intra.h"

enum { MOST_SEEDS = 2 };

/* Choices as in Way, per op of the chain's parts; their number: 0 in a model without rounds. */
uint32_t canonical_choices(Arena *, const Chain *, CutChoice *const *cut, const uint32_t *ncut, const uint8_t *out[MOST_SEEDS]);

#endif
