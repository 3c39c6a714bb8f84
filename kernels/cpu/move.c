/* Ops that move elements, at the speed of memory: what packs and unpacks the parts of
 * a collective, and a rank's own part of a value. */
#include "kernels/cpu/runs.h"
#include "kernels/ref/ref.h"

static void copy_run(const Run *r)
{
    if (r->repeats[0] || r->arg[0].dtype != r->out[0].dtype)
        for (int64_t i = 0; i < r->n; i += LANES)
            run_give(r, 0, i, run_take(r, 0, i));
    else
        memcpy(r->out[0].at, r->arg[0].at, (size_t)(r->n * dtype_bytes(r->out[0].dtype)));
}

CPU_REALS(transpose)
{
    if (!each_run(c, copy_run, 0))
        ref_transpose(c);
}

/* A slice whose result has the argument's order of axes is a copy of `rows` blocks of
 * `bytes`, `step` bytes apart in the argument. */
typedef struct Blocks { const char *from; char *to; int64_t rows, bytes, step; } Blocks;

enum { BLOCK_PIECE = 1 << 16 };       /* bytes copied at a time */

static bool find_blocks(const KCall *c, Blocks *b)
{
    const Tensor *x = c->argt[0], *y = c->outt[0];
    int64_t size = dtype_bytes(x->dtype), rest = 1;
    int cut = -1;
    for (int a = 0; a < x->rank; a++) {
        bool same = c->in->arg_factor[0][a] == c->in->out_factor[0][a];
        if (!same && cut >= 0)
            return false;
        cut = same ? cut : a;
    }
    for (int a = cut + 1; a < x->rank; a++)
        rest *= x->axis[a].local;
    *b = (Blocks){.to = c->out[0], .rows = 1, .bytes = y->axis[cut].local * rest * size, .step = x->axis[cut].local * rest * size};
    b->from = (const char *)c->arg[0] + attr_int(c, "first") * rest * size;
    for (int a = 0; a < cut; a++)
        b->rows *= x->axis[a].local;
    return true;
}

static void copy_blocks(void *ctx, int worker, int nworker)
{
    const Blocks *b = ctx;
    int64_t pieces = (b->bytes + BLOCK_PIECE - 1) / BLOCK_PIECE, first, end;
    team_part(b->rows * pieces, 1, worker, nworker, &first, &end);
    for (int64_t i = first; i < end; i++) {
        int64_t row = i / pieces, at = i % pieces * BLOCK_PIECE, n = b->bytes - at < BLOCK_PIECE ? b->bytes - at : BLOCK_PIECE;
        memcpy(b->to + row * b->bytes + at, b->from + row * b->step + at, (size_t)n);
    }
}

CPU_REALS(slice)
{
    Blocks b;
    if (find_blocks(c, &b))
        team_run(c->team, copy_blocks, &b);
    else
        ref_slice(c);
}
