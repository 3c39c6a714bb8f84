/* Look-up in a table and its gradient. */
#include "kernels/table.h"

REF_KERNEL(embed)
{
    Reals table = ARG(1), y = OUT(0);
    int64_t d = row_length(c->argt[1]), stride = out_stride(c, 0, c->in->arg_factor[1][1]);
    for (Walk w = walk_over(c, arg_factors(c, 0)); w.more; walk_next(&w)) {
        int64_t row = table_row(c, c->argt[1], w.at[0]);
        for (int64_t i = 0; i < d; i++)
            put(y, w.at[MAX_ARGS] + i * stride, row < 0 ? 0 : get(table, row * d + i));
    }
}

/* Rows are added in the order of the ids. */
REF_KERNEL(embed_grad)
{
    Reals dy = ARG(1), dtable = OUT(0);
    int64_t d = row_length(c->outt[0]), stride = arg_stride(c, 1, c->in->out_factor[0][1]);
    if (!kcall_adds(c, 0))
        clear(c->outt[0], c->out[0]);
    for (Walk w = walk_over(c, arg_factors(c, 0)); w.more; walk_next(&w)) {
        int64_t row = table_row(c, c->outt[0], w.at[0]);
        for (int64_t i = 0; row >= 0 && i < d; i++)
            give(dtable, row * d + i, get(dy, w.at[1] + i * stride), true);
    }
}
