#ifndef KERNELS_TABLE_H
#define KERNELS_TABLE_H
/* Rows of a table of which a rank may hold a part. */
#include "kernels/ref/ref.h"

/* Local row for the id at element i of argument 0, or -1: another rank's.  A wrong id
 * was refused earlier. */
static inline int64_t table_row(const KCall *c, const Tensor *table, int64_t i)
{
    const AxisPlace *rows = &table->axis[0];
    int64_t id = int_at(c->argt[0], c->arg[0], i), row = id - rows->origin;
    assert(id >= 0 && id < rows->global && "an index outside the table");
    return row >= 0 && row < place_valid(rows) ? row : -1;
}

#endif
