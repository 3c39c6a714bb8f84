#ifndef IR_PLACE_H
#define IR_PLACE_H
/* place_global(): the only code that maps a local to a global index.  iota,
 * rope, masks, dropout, vocabulary offsets, the loader, checkpoints and dumps
 * use it. */
#include "base/device.h"
#include "ir/program.h"

/* Global index of local index i along an axis, in micro-batch `micro`. */
ON_DEVICE static inline int64_t place_global(const AxisPlace *a, int64_t i, int64_t micro)
{
    return a->origin + micro * a->per_micro + i;
}

/* Local elements that exist in the global tensor: the rest of the axis is padding. */
ON_DEVICE static inline int64_t place_valid(const AxisPlace *a)
{
    int64_t n = a->global - a->origin;
    return n < 0 ? 0 : n < a->local ? n : a->local;
}

/* Row-major index in the global tensor of the element at local index 0.. along
 * the last axis of row `row` (the other axes, row-major), of a tensor with these axes. */
ON_DEVICE static inline int64_t place_row_of(const AxisPlace *axis, int rank, int64_t row, int64_t micro)
{
    if (rank == 0)
        return 0;
    int64_t index = place_global(&axis[rank - 1], 0, micro), stride = axis[rank - 1].global;
    for (int x = rank - 2; x >= 0; x--) {
        index += place_global(&axis[x], row % axis[x].local, micro) * stride;
        row /= axis[x].local;
        stride *= axis[x].global;
    }
    return index;
}

static inline int64_t place_row(const Tensor *t, int64_t row, int64_t micro)
{
    return place_row_of(t->axis, t->rank, row, micro);
}

/* How many elements of a row exist in the global tensor: the first ones, or none of a
 * row of padding. */
int64_t place_row_valid(const Tensor *, int64_t row);

#endif
