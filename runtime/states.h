#ifndef RUNTIME_STATES_H
#define RUNTIME_STATES_H
/* States: a rank's weights and moments as files name them.  Weights go by their
 * paths and are those of the master copy; moments by what PyTorch calls them. */
#include "runtime/runtime.h"

typedef enum StateKind { STATES_WEIGHTS, STATES_MOMENTS } StateKind;

typedef struct NamedTensor { const char *name; TensorId tensor; } NamedTensor;
NamedTensor *states_list(Arena *, const Rank *, StateKind, uint32_t *n);

/* A tensor under a name, its data at `data`. */
STensor states_tensor(const Rank *, TensorId, const char *name, const void *data);

#endif
