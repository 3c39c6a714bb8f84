/* Normalizations and their gradients, a row at a time.  The gradients of the
 * weights are summed in f32 by each worker over its rows, then over the workers
 * in their order. */
#include "kernels/cpu/rows.h"

typedef struct Norm {
    Reals   x, y, w, b;               /* y is added to x first */
    Reals   out, sum, mean, rstd;     /* all but `out` may be absent */
    int64_t rows, d;
    double  eps;
    bool    centered;
} Norm;

static float square_sum(Reals x, int64_t n, float mean)
{
    Vec a = vec_all(0), b = vec_all(0), m = vec_all(mean);
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        Vec u = lanes_load(x, i) - m, v = lanes_load(x, i + LANES) - m;
        a = vec_fma(u, u, a);
        b = vec_fma(v, v, b);
    }
    float sum = vec_sum(a + b);
    for (; i < n; i++)
        sum += ((float)get(x, i) - mean) * ((float)get(x, i) - mean);
    return sum;
}

/* The row to be normalized: x's, or the sum, stored and so rounded. */
static Reals norm_source(const Norm *n, int64_t at)
{
    Reals x = reals_from(n->x, at), y = reals_from(n->y, at), sum = reals_from(n->sum.at ? n->sum : n->out, at);
    if (!y.at)
        return x;
    for (int64_t i = 0; i < n->d; i += LANES)
        lanes_give(sum, i, lanes_take(x, i, n->d) + lanes_take(y, i, n->d), n->d);
    return sum;
}

static void norm_row(const Norm *n, int64_t row)
{
    int64_t d = n->d;
    Reals x = norm_source(n, row * d), out = reals_from(n->out, row * d), w = n->w, b = n->b;
    float mean = n->centered ? row_sum(x, d) / (float)d : 0;
    float rstd = (float)(1 / sqrt((double)square_sum(x, d, mean) / (double)d + n->eps));
    const Vec m = vec_all(mean), s = vec_all(rstd);
    for (int64_t i = 0; i < d; i += LANES) {
        Vec h = (lanes_take(x, i, d) - m) * s, shift = b.at ? lanes_take(b, i, d) : vec_all(0);
        lanes_give(out, i, vec_fma(h, lanes_take(w, i, d), shift), d);
    }
    if (n->mean.at)
        put(n->mean, row, (double)mean);
    if (n->rstd.at)
        put(n->rstd, row, (double)rstd);
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
    n.d = row_length(c->argt[0]);
    n.rows = tensor_elements(c->argt[0]) / n.d;
    n.eps = attr_real(c, "eps");
    team_run(c->team, norm_some, &n);
}

CPU_REALS(layernorm)
{
    normalize(c, (Norm){.x = ARG(0), .w = ARG(1), .b = ARG(2), .out = OUT(0), .mean = OUT(1),
                        .rstd = OUT(2), .centered = true});
}

CPU_REALS(rmsnorm)
{
    normalize(c, (Norm){.x = ARG(0), .w = ARG(1), .out = OUT(0), .rstd = OUT(1)});
}

CPU_REALS(add_layernorm)
{
    normalize(c, (Norm){.x = ARG(0), .y = ARG(1), .w = ARG(2), .b = ARG(3), .out = OUT(0),
                        .sum = OUT(1), .mean = OUT(2), .rstd = OUT(3), .centered = true});
}

CPU_REALS(add_rmsnorm)
{
    normalize(c, (Norm){.x = ARG(0), .y = ARG(1), .w = ARG(2), .out = OUT(0), .sum = OUT(1), .rstd = OUT(2)});
}

/* ---- gradients: dx = rstd (g - mean(g) - h mean(g h)), h the normalized row, g = dy w ---- */

typedef struct Grad {
    const KCall *c;
    Reals        dy, x, w, mean, rstd;               /* no mean without centering */
    float       *part;                /* of worker k: dw at 2 k d, db d after it */
    int64_t      rows, d;
} Grad;

/* A row's dy and x, what was taken off x, and what that was multiplied by. */
typedef struct GradRow { Reals dy, x; Vec mean, rstd; } GradRow;

static GradRow row_of(const Grad *g, int64_t row)
{
    float mean = g->mean.at ? (float)get(g->mean, row) : 0;
    return (GradRow){reals_from(g->dy, row * g->d), reals_from(g->x, row * g->d), vec_all(mean), vec_all((float)get(g->rstd, row))};
}

/* mean(g) and mean(g h); dw += dy h and db += dy on the way. */
static void grad_sums(const Grad *g, GradRow r, float *dw, float *db, float mean[2])
{
    int64_t d = g->d;
    Reals w = g->w;
    bool centered = g->mean.at;
    Vec sum = vec_all(0), sum_h = vec_all(0);
    for (int64_t i = 0; i < d; i += LANES) {
        int64_t left = d - i;
        Vec y = lanes_take(r.dy, i, d), h = (lanes_take(r.x, i, d) - r.mean) * r.rstd, gw = y * lanes_take(w, i, d);
        sum += gw;
        sum_h = vec_fma(gw, h, sum_h);
        vec_give(dw + i, vec_fma(y, h, vec_take(dw + i, left)), left);
        if (centered)
            vec_give(db + i, y + vec_take(db + i, left), left);
    }
    mean[0] = centered ? vec_sum(sum) / (float)d : 0;
    mean[1] = vec_sum(sum_h) / (float)d;
}

static void grad_row(const Grad *g, GradRow r, const float mean[2], Reals dx, bool adds)
{
    int64_t d = g->d;
    Reals w = g->w;
    const Vec mg = vec_all(mean[0]), mgh = vec_all(mean[1]);
    for (int64_t i = 0; i < d; i += LANES) {
        Vec h = (lanes_take(r.x, i, d) - r.mean) * r.rstd, gw = lanes_take(r.dy, i, d) * lanes_take(w, i, d);
        Vec v = r.rstd * (gw - mg - h * mgh);
        if (adds)
            v += lanes_take(dx, i, d);
        lanes_give(dx, i, v, d);
    }
}

static void grad_some(void *ctx, int worker, int nworker)
{
    const Grad *g = ctx;
    const KCall *c = g->c;
    float *dw = g->part + 2 * g->d * worker, *db = dw + g->d;
    Reals dx = OUT(0);
    int64_t first, end;
    memset(dw, 0, sizeof *dw * (size_t)(2 * g->d));
    team_part(g->rows, 1, worker, nworker, &first, &end);
    for (int64_t r = first; r < end; r++) {
        GradRow row = row_of(g, r);
        float mean[2];
        grad_sums(g, row, dw, db, mean);
        if (dx.at)
            grad_row(g, row, mean, reals_from(dx, r * g->d), kcall_adds(c, 0));
    }
}

/* One worker's columns of dw (out 1) and db (out 2). */
static void grad_join(void *ctx, int worker, int nworker)
{
    const Grad *g = ctx;
    const KCall *c = g->c;
    int64_t first, end;
    team_part(g->d, LANES, worker, nworker, &first, &end);
    for (int out = 1; out < c->in->nout; out++) {
        Reals dw = OUT(out);
        for (int64_t i = first; dw.at && i < end; i++) {
            float sum = kcall_adds(c, out) ? (float)get(dw, i) : 0;
            for (int k = 0; k < nworker; k++)
                sum += g->part[(2 * k + out - 1) * g->d + i];
            put(dw, i, (double)sum);
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

CPU_REALS(layernorm_grad)
{
    norm_grad(c, (Grad){.dy = ARG(0), .x = ARG(1), .w = ARG(2), .mean = ARG(3), .rstd = ARG(4)});
}

CPU_REALS(rmsnorm_grad)
{
    norm_grad(c, (Grad){.dy = ARG(0), .x = ARG(1), .w = ARG(2), .rstd = ARG(3)});
}
