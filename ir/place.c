/* Local to global indices: see place.h. */
#include "ir/place.h"

int64_t place_row_valid(const Tensor *t, int64_t row)
{
    if (t->rank == 0)
        return 1;
    int64_t n = place_valid(&t->axis[t->rank - 1]);
    for (int x = t->rank - 2; x >= 0; x--) {
        const AxisPlace *a = &t->axis[x];
        if (row % a->local >= place_valid(a))
            return 0;
        row /= a->local;
    }
    return n;
}
