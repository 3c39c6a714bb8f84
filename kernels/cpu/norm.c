/* Normalizations and their gradients, a row at a time.  The gradients of the
 * weights are summed by each worker over its rows, then over the workers in
 * their order. */
#include "kernels/cpu/rows.h"

typedef struct Norm {
    const KCall *c;
    const float *x, *y, *w, *b;       /* y is added to x first */
    float       *out, *sum, *mean, *rstd;            /* all but `out` may be absent */
    int64_t      rows, d;
    double       eps;
    bool         centered;
} Norm;

static float square_sum(const float *x, int64_t n, float mean)
{
    Vec a = vec_all(0), b = vec_all(0), m = vec_all(mean);
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        Vec u = vec_load(x + i) - m, v = vec_load(x + i + LANES) - m;
        a = vec_fma(u, u, a);
        b = vec_fma(v, v, b);
    }
    float sum = vec_sum(a + b);
    for (; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

/* Where the row to be normalized stands: x's, or the sum, stored. */
static const float *norm_source(const Norm *n, int64_t at)
{
    if (!n->y)
        return n->x + at;
    float *sum = n->sum ? n->sum + at : n->out + at;
    for (int64_t i = 0; i < n->d; i += LANES)
        vec_give(sum + i, vec_take(n->x + at + i, n->d - i) + vec_take(n->y + at + i, n->d - i), n->d - i);
    return sum;
}

static void norm_row(const Norm *n, int64_t row)
{
    int64_t d = n->d;
    const float *x = norm_source(n, row * d);
    float *out = n->out + row * d;
    float mean = n->centered ? row_sum(x, d) / (float)d : 0;
    float rstd = (float)(1 / sqrt((double)square_sum(x, d, mean) / (double)d + n->eps));
    const Vec m = vec_all(mean), s = vec_all(rstd);
    for (int64_t i = 0; i < d; i += LANES) {
        int64_t left = d - i;
        Vec h = (vec_take(x + i, left) - m) * s, b = n->b ? vec_take(n->b + i, left) : vec_all(0);
        vec_give(out + i, vec_fma(h, vec_take(n->w + i, left), b), left);
    }
    if (n->mean)
        n->mean[row] = mean;
    if (n->rstd)
        n->rstd[row] = rstd;
}

static void norm_some(void *ctx, int worker, int nworker)
{
    const Norm *n = ctx;
    int64_t first, end;
    team_part(n->rows, 1, worker, nworker, &first, &end);
    for (int64_t r = first; r < end; r++)
        norm_row(n, r);
}

static void normalize(const KCall *c, Norm n)
{
    n.c = c;
    n.d = row_length(c->argt[0]);
    n.rows = tensor_elements(c->argt[0]) / n.d;
    n.eps = attr_real(c, "eps");
    team_run(c->team, norm_some, &n);
}

CPU_KERNEL(layernorm, f32)
{
    normalize(c, (Norm){.x = ARG_F32(0), .w = ARG_F32(1), .b = ARG_F32(2), .out = OUT_F32(0), .mean = OUT_F32(1),
                        .rstd = OUT_F32(2), .centered = true});
}

CPU_KERNEL(rmsnorm, f32)
{
    normalize(c, (Norm){.x = ARG_F32(0), .w = ARG_F32(1), .out = OUT_F32(0), .rstd = OUT_F32(1)});
}

CPU_KERNEL(add_layernorm, f32)
{
    normalize(c, (Norm){.x = ARG_F32(0), .y = ARG_F32(1), .w = ARG_F32(2), .b = ARG_F32(3), .out = OUT_F32(0),
                        .sum = OUT_F32(1), .mean = OUT_F32(2), .rstd = OUT_F32(3), .centered = true});
}

CPU_KERNEL(add_rmsnorm, f32)
{
    normalize(c, (Norm){.x = ARG_F32(0), .y = ARG_F32(1), .w = ARG_F32(2), .out = OUT_F32(0), .sum = OUT_F32(1), .rstd = OUT_F32(2)});
}

/* ---- gradients: dx = rstd (g - mean(g) - h mean(g h)), h the normalized row, g = dy w ---- */

typedef struct Grad {
    const KCall *c;
    const float *dy, *x, *w, *mean, *rstd;           /* mean NULL without centering */
    float       *part;                /* of worker k: dw at 2 k d, db d after it */
    int64_t      rows, d;
} Grad;

/* mean(g) and mean(g h); dw += dy h and db += dy on the way. */
static void grad_sums(const Grad *g, int64_t row, float *dw, float *db, float mean[2])
{
    int64_t d = g->d;
    const float *dy = g->dy + row * d, *x = g->x + row * d;
    const Vec m = vec_all(g->mean ? g->mean[row] : 0), s = vec_all(g->rstd[row]);
    Vec sum = vec_all(0), sum_h = vec_all(0);
    for (int64_t i = 0; i < d; i += LANES) {
        int64_t left = d - i;
        Vec y = vec_take(dy + i, left), h = (vec_take(x + i, left) - m) * s, gw = y * vec_take(g->w + i, left);
        sum += gw;
        sum_h = vec_fma(gw, h, sum_h);
        vec_give(dw + i, vec_fma(y, h, vec_take(dw + i, left)), left);
        if (g->mean)
            vec_give(db + i, y + vec_take(db + i, left), left);
    }
    mean[0] = g->mean ? vec_sum(sum) / (float)d : 0;
    mean[1] = vec_sum(sum_h) / (float)d;
}

static void grad_row(const Grad *g, int64_t row, const float mean[2], float *dx, bool adds)
{
    int64_t d = g->d;
    const float *dy = g->dy + row * d, *x = g->x + row * d;
    const Vec m = vec_all(g->mean ? g->mean[row] : 0), s = vec_all(g->rstd[row]), mg = vec_all(mean[0]), mgh = vec_all(mean[1]);
    for (int64_t i = 0; i < d; i += LANES) {
        int64_t left = d - i;
        Vec h = (vec_take(x + i, left) - m) * s, gw = vec_take(dy + i, left) * vec_take(g->w + i, left);
        Vec v = s * (gw - mg - h * mgh);
        if (adds)
            v += vec_take(dx + i, left);
        vec_give(dx + i, v, left);
    }
}

static void grad_some(void *ctx, int worker, int nworker)
{
    const Grad *g = ctx;
    float *dw = g->part + 2 * g->d * worker, *db = dw + g->d, *dx = g->c->out[0];
    int64_t first, end;
    memset(dw, 0, sizeof *dw * (size_t)(2 * g->d));
    team_part(g->rows, 1, worker, nworker, &first, &end);
    for (int64_t r = first; r < end; r++) {
        float mean[2];
        grad_sums(g, r, dw, db, mean);
        if (dx)
            grad_row(g, r, mean, dx + r * g->d, kcall_adds(g->c, 0));
    }
}

/* One worker's columns of dw (out 1) and db (out 2). */
static void grad_join(void *ctx, int worker, int nworker)
{
    const Grad *g = ctx;
    int64_t first, end;
    team_part(g->d, LANES, worker, nworker, &first, &end);
    for (int out = 1; out < g->c->in->nout; out++) {
        float *dw = g->c->out[out];
        for (int64_t i = first; dw && i < end; i++) {
            float sum = kcall_adds(g->c, out) ? dw[i] : 0;
            for (int k = 0; k < nworker; k++)
                sum += g->part[(2 * k + out - 1) * g->d + i];
            dw[i] = sum;
        }
    }
}

static void norm_grad(const KCall *c, Grad g)
{
    g.c = c;
    g.d = row_length(c->argt[0]);
    g.rows = tensor_elements(c->argt[0]) / g.d;
    g.part = c->work;
    team_run(c->team, grad_some, &g);
    team_run(c->team, grad_join, &g);
}

CPU_KERNEL(layernorm_grad, f32)
{
    norm_grad(c, (Grad){.dy = ARG_F32(0), .x = ARG_F32(1), .w = ARG_F32(2), .mean = ARG_F32(3), .rstd = ARG_F32(4)});
}

CPU_KERNEL(rmsnorm_grad, f32)
{
    norm_grad(c, (Grad){.dy = ARG_F32(0), .x = ARG_F32(1), .w = ARG_F32(2), .rstd = ARG_F32(3)});
}
