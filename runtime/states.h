#ifndef RUNTIME_STATES_H
#define RUNTIME_STATES_H
/* States: weights and what belongs to them, as files name them.  Weights go by their
 * paths and are those of the master copy, wherever that is; rounded ones are what is made
 * of it; moments by what PyTorch calls them; gradients
 * are those of the step before, by the paths of their weights. */
#include "runtime/runtime.h"

typedef enum StateKind { STATES_WEIGHTS, STATES_ROUNDED, STATES_MOMENTS, STATES_GRADIENTS } StateKind;

/* What this rank has: all of a kind, or of one name (NULL: all). */
StoredList states_list(Arena *, const Rank *, StateKind, const char *only);

/* Find what all ranks have of weights and moments. */
Status states_open(Rank *);

#endif
