/* Sums over axes and their reverse.  A sum keeps either the last axes of its
 * argument (column sums, as of a bias) or the first ones (row sums). */
#include "kernels/cpu/rows.h"
#include "kernels/cpu/runs.h"

typedef struct Sums {
    const KCall *c;
    Reals        x, y;
    FactorSet    kept, summed;        /* walked over: from run to run, and over the rows summed into one run */
    int64_t      runs, n;             /* n contiguous elements are kept (columns) or summed (rows) */
    float        by;
    bool         adds;
} Sums;

enum { COLUMNS = 512 };               /* columns summed at once: they stay in the first-level cache */

/* Trailing axes of argument 0 that the result keeps in the same order, contiguous in both. */
static int64_t kept_tail(const KCall *c, FactorSet *tail)
{
    const Tensor *t = c->argt[0];
    int64_t n = 1;
    *tail = 0;
    for (int a = t->rank - 1; a >= 0; a--) {
        int f = c->in->arg_factor[0][a];
        if (t->axis[a].local != 1 && (!(out_factors(c, 0) >> f & 1) || out_stride(c, 0, f) != n))
            break;
        n *= t->axis[a].local;
        *tail |= 1u << f;
    }
    return n;
}

/* Trailing axes of argument 0 that are summed. */
static int64_t summed_tail(const KCall *c, FactorSet *tail)
{
    const Tensor *t = c->argt[0];
    int64_t n = 1;
    *tail = 0;
    for (int a = t->rank - 1; a >= 0 && !(out_factors(c, 0) >> c->in->arg_factor[0][a] & 1); a--) {
        n *= t->axis[a].local;
        *tail |= 1u << c->in->arg_factor[0][a];
    }
    return n;
}

/* Columns [first, first + n) of the run where w stands. */
static void sum_columns(const Sums *s, const Walk *w, int64_t first, int64_t n)
{
    float total[COLUMNS] = {0};
    Walk rows = walk_over(s->c, s->summed);
    for (walk_from(&rows, w); rows.more; walk_next(&rows)) {
        Reals x = reals_from(s->x, rows.at[0] + first);
        for (int64_t i = 0; i < n; i += LANES)
            vec_give(total + i, vec_load(total + i) + lanes_take(x, i, n), n - i);
    }
    Reals y = reals_from(s->y, w->at[MAX_ARGS] + first);
    for (int64_t i = 0; i < n; i++)
        put(y, i, (double)((s->adds ? (float)get(y, i) : 0) + total[i] * s->by));
}

static void columns_some(void *ctx, int worker, int nworker)
{
    const Sums *s = ctx;
    int64_t units = (s->n + 15) / 16, per_run = (units * 16 + COLUMNS - 1) / COLUMNS, first, end;
    if (s->runs == 1) {
        team_part(s->n, 16, worker, nworker, &first, &end);
        for (Walk w = walk_over(s->c, s->kept); first < end; first += COLUMNS)
            sum_columns(s, &w, first, end - first < COLUMNS ? end - first : COLUMNS);
        return;
    }
    team_part(s->runs * per_run, 1, worker, nworker, &first, &end);
    Walk w = walk_over(s->c, s->kept);
    walk_seek(&w, first / per_run);
    for (int64_t i = first; i < end; i++) {
        int64_t at = i % per_run * COLUMNS;
        sum_columns(s, &w, at, s->n - at < COLUMNS ? s->n - at : COLUMNS);
        if (i % per_run == per_run - 1)
            walk_next(&w);
    }
}

static void rows_some(void *ctx, int worker, int nworker)
{
    const Sums *s = ctx;
    int64_t first, end;
    team_part(s->runs, 1, worker, nworker, &first, &end);
    Walk w = walk_over(s->c, s->kept), inner = walk_over(s->c, s->summed);
    walk_seek(&w, first);
    for (int64_t i = first; i < end; i++, walk_next(&w)) {
        double sum = 0;
        for (walk_from(&inner, &w); inner.more; walk_next(&inner))
            sum += (double)row_sum(reals_from(s->x, inner.at[0]), s->n);
        float was = s->adds ? (float)get(s->y, w.at[MAX_ARGS]) : 0;
        put(s->y, w.at[MAX_ARGS], (double)(was + (float)sum * s->by));
    }
}

CPU_REALS(reduce)
{
    FactorSet kept = out_factors(c, 0), summed = arg_factors(c, 0) & ~kept, tail;
    Sums s = {.c = c, .x = ARG(0), .y = OUT(0), .adds = kcall_adds(c, 0), .by = attr_bool(c, "mean") ? (float)(1 / mean_count(c, summed)) : 1};
    TeamFn some = columns_some;
    s.n = kept_tail(c, &tail);
    s.kept = kept & ~tail;
    s.summed = summed & ~tail;
    if (s.n == 1) {
        some = rows_some;
        s.n = summed_tail(c, &tail);
        s.kept = kept;
        s.summed = summed & ~tail;
    }
    s.runs = set_extent(c, s.kept);
    if (s.n == 1)
        ref_reduce(c);
    else
        team_run(c->team, some, &s);
}

static void expand_run(const Run *r)
{
    const Vec by = vec_all(r->by);
    for (int64_t i = 0; i < r->n; i += LANES)
        run_give(r, 0, i, run_take(r, 0, i) * by);
}

static void expand_add_run(const Run *r)
{
    const Vec by = vec_all(r->by);
    for (int64_t i = 0; i < r->n; i += LANES)
        run_give(r, 0, i, vec_fma(run_take(r, 0, i), by, lanes_take(r->out[0], i, r->n)));
}

CPU_REALS(expand)
{
    FactorSet made = out_factors(c, 0) & ~arg_factors(c, 0);
    double by = attr_bool(c, "mean") ? 1 / mean_count(c, made) : 1;
    if (!each_run(c, kcall_adds(c, 0) ? expand_add_run : expand_run, (float)by))
        ref_expand(c);
}

/* ---- sum of squares, in double ---- */

typedef float  VecHalf __attribute__((vector_size(sizeof(Vec) / 2)));
typedef double VecD    __attribute__((vector_size(sizeof(Vec))));

typedef struct Squares { const float *g; int64_t n; double piece[SUM_PIECES]; } Squares;

static double squares(const float *g, int64_t n)
{
    enum { HALF = LANES / 2, CHAINS = 8 };
    VecD part[CHAINS] = {{0}};
    int64_t i = 0;
    for (; i + HALF * CHAINS <= n; i += HALF * CHAINS)
        for (int k = 0; k < CHAINS; k++) {
            VecHalf x;
            memcpy(&x, g + i + k * HALF, sizeof x);
            VecD v = __builtin_convertvector(x, VecD);
            part[k] += v * v;
        }
    double sum = 0;
    for (int k = 0; k < CHAINS; k++)
        for (int l = 0; l < HALF; l++)
            sum += part[k][l];
    for (; i < n; i++)
        sum += (double)g[i] * (double)g[i];
    return sum;
}

static void squares_some(void *ctx, int worker, int nworker)
{
    Squares *s = ctx;
    int64_t first, end;
    team_part(SUM_PIECES, 1, worker, nworker, &first, &end);
    for (int64_t k = first; k < end; k++) {
        int64_t a, b;
        team_part(s->n, 64, (int)k, SUM_PIECES, &a, &b);
        s->piece[k] = squares(s->g + a, b - a);
    }
}

CPU_KERNEL(sum_squares, f32)
{
    Squares s = {.g = ARG_F32(0), .n = tensor_elements(c->argt[0])};
    team_run(c->team, squares_some, &s);
    double sum = kcall_adds(c, 0) ? real_at(c->outt[0], c->out[0], 0) : 0;
    for (int k = 0; k < SUM_PIECES; k++)
        sum += s.piece[k];
    real_put(c->outt[0], c->out[0], 0, sum);
}
