#ifndef KERNELS_CPU_RUNS_H
#define KERNELS_CPU_RUNS_H
/* Runs: an elementwise op cut into pieces in which every operand is either
 * contiguous or one number, and the pieces divided among the team. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/operand.h"

/* One piece. */
typedef struct Run {
    Reals   arg[3], out[2];           /* f32 or bf16; absent where unused */
    bool    repeats[3];               /* the argument is one number */
    int64_t n;
    float   by;                       /* of the op, see each_run() */
} Run;
typedef void (*RunFn)(const Run *);

typedef struct Runs {
    const KCall *c;
    RunFn        fn;
    FactorSet    outer;               /* walked from run to run */
    int64_t      rows, n;             /* runs, and elements of each */
    bool         repeats[3];
    float        by;
} Runs;

enum { RUN_PIECE = 4096 };            /* elements; a multiple of every LANES */

/* Whether factor f, just outside a run of n elements, continues it in every argument;
 * a run of one element takes its kind from f. */
static inline bool runs_extend(Runs *r, int narg, int f)
{
    bool repeats[3] = {false, false, false};
    for (int i = 0; i < narg && i < 3; i++) {
        int64_t stride = arg_stride(r->c, i, f);
        repeats[i] = r->n == 1 ? stride == 0 : r->repeats[i];
        if (stride != (repeats[i] ? 0 : r->n))
            return false;
    }
    memcpy(r->repeats, repeats, sizeof repeats);
    return true;
}

/* The longest runs there are along the last axes of the result; false when the
 * arguments do not lie along them. */
static inline bool runs_find(Runs *r, const KCall *c)
{
    const Tensor *t = c->outt[0] ? c->outt[0] : c->outt[1];
    const uint8_t *factor = c->in->out_factor[c->outt[0] ? 0 : 1];
    *r = (Runs){.c = c, .rows = 1, .n = 1};
    for (int a = 0; a < t->rank; a++)
        r->outer |= 1u << factor[a];
    for (int a = t->rank - 1; a >= 0; a--) {
        int64_t extent = t->axis[a].local;
        if (extent != 1 && !runs_extend(r, c->in->narg, factor[a]))
            break;
        r->n *= extent;
        r->outer &= ~(1u << factor[a]);
    }
    r->rows = set_extent(c, r->outer);
    return r->n >= LANES || r->rows == 1;
}

static inline Reals runs_from(const Tensor *t, void *p, int64_t i)
{
    return p ? reals_from((Reals){t->dtype, p}, i) : (Reals){0};
}

static inline void runs_piece(const Runs *r, const Walk *w, int64_t first, int64_t n)
{
    Run run = {.n = n, .by = r->by};
    for (int i = 0; i < r->c->in->narg && i < 3; i++) {
        run.arg[i] = runs_from(r->c->argt[i], r->c->arg[i], w->at[i] + (r->repeats[i] ? 0 : first));
        run.repeats[i] = r->repeats[i];
    }
    for (int i = 0; i < r->c->in->nout && i < 2; i++)
        run.out[i] = runs_from(r->c->outt[i], r->c->out[i], w->at[MAX_ARGS + i] + first);
    r->fn(&run);
}

static inline void runs_some(void *ctx, int worker, int nworker)
{
    const Runs *r = ctx;
    int64_t pieces = (r->n + RUN_PIECE - 1) / RUN_PIECE, first, end;
    team_part(r->rows * pieces, 1, worker, nworker, &first, &end);
    if (first >= end)
        return;
    Walk w = walk_over(r->c, r->outer);
    walk_seek(&w, first / pieces);
    for (int64_t i = first; i < end; i++) {
        int64_t at = i % pieces * RUN_PIECE;
        runs_piece(r, &w, at, r->n - at < RUN_PIECE ? r->n - at : RUN_PIECE);
        if (i % pieces == pieces - 1)
            walk_next(&w);
    }
}

/* Run fn over all of a call; false, and nothing done, when it has no runs.  Every
 * argument must be f32 or bf16, and results alike in shape. */
static inline bool each_run(const KCall *c, RunFn fn, float by)
{
    Runs r;
    if (!runs_find(&r, c))
        return false;
    r.fn = fn;
    r.by = by;
    if (r.rows * r.n > 0)
        team_run(c->team, runs_some, &r);
    return true;
}

static inline Vec run_take(const Run *r, int k, int64_t i)
{
    return r->repeats[k] ? vec_all((float)get(r->arg[k], 0)) : lanes_take(r->arg[k], i, r->n);
}

static inline void run_give(const Run *r, int k, int64_t i, Vec x)
{
    if (r->out[k].at)
        lanes_give(r->out[k], i, x, r->n);
}

#endif
