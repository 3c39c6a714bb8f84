/* Look-up in a table and its gradient.  The gradient is divided by columns, so that
 * rows named twice are added in the order of the ids. */
#include "kernels/cpu/rows.h"
#include "kernels/table.h"

typedef struct Table {
    const KCall  *c;
    const Tensor *t;                  /* of the table or its gradient */
    FactorSet     over;               /* the ids */
    int64_t       ids, d;
} Table;

static Table table_of(const KCall *c, const Tensor *t)
{
    FactorSet over = arg_factors(c, 0);
    return (Table){c, t, over, set_extent(c, over), row_length(t)};
}

static void embed_some(void *ctx, int worker, int nworker)
{
    const Table *b = ctx;
    const KCall *c = b->c;
    int64_t first, end;
    team_part(b->ids, 1, worker, nworker, &first, &end);
    Walk w = walk_over(c, b->over);
    walk_seek(&w, first);
    for (int64_t i = first; i < end; i++, walk_next(&w)) {
        int64_t row = table_row(c, b->t, w.at[0]);
        Reals y = reals_from(OUT(0), w.at[MAX_ARGS]);
        size_t bytes = (size_t)(b->d * dtype_bytes(y.dtype));
        if (row < 0)
            memset(y.at, 0, bytes);
        else
            memcpy(y.at, reals_from(ARG(1), row * b->d).at, bytes);
    }
}

CPU_REALS(embed)
{
    Table b = table_of(c, c->argt[1]);
    if (c->argt[1]->dtype != c->outt[0]->dtype || (b.d > 1 && out_stride(c, 0, c->in->arg_factor[1][1]) != 1))
        ref_embed(c);
    else if (b.ids > 0)
        team_run(c->team, embed_some, &b);
}

static void clear_some(void *ctx, int worker, int nworker)
{
    const Table *b = ctx;
    int64_t first, end;
    team_part(tensor_elements(b->t), 1024, worker, nworker, &first, &end);
    memset((float *)b->c->out[0] + first, 0, sizeof(float) * (size_t)(end - first));
}

static void add_some(void *ctx, int worker, int nworker)
{
    const Table *b = ctx;
    const KCall *c = b->c;
    int64_t first, end;
    team_part(b->d, 16, worker, nworker, &first, &end);
    for (Walk w = walk_over(c, b->over); w.more; walk_next(&w)) {
        int64_t at = table_row(c, b->t, w.at[0]);
        float *row = OUT_F32(0) + (at < 0 ? 0 : at) * b->d;
        Reals dy = reals_from(ARG(1), w.at[1]);
        for (int64_t i = first; at >= 0 && i < end; i += LANES)
            vec_give(row + i, vec_take(row + i, end - i) + lanes_take(dy, i, end), end - i);
    }
}

/* Sums over ids are f32, as the program has them. */
CPU_REALS(embed_grad)
{
    Table b = table_of(c, c->outt[0]);
    if (c->outt[0]->dtype != DT_f32 || (b.d > 1 && arg_stride(c, 1, c->in->out_factor[0][1]) != 1)) {
        ref_embed_grad(c);
        return;
    }
    if (!kcall_adds(c, 0))
        team_run(c->team, clear_some, &b);
    team_run(c->team, add_some, &b);
}
