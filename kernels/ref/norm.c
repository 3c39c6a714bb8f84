/* Layer and root-mean-square normalization over the last axis, and their gradients
 * (Ba, Kiros, Hinton 2016; Zhang, Sennrich 2019).  With h = (x - mean) rstd and
 * g = dy w:  dx = rstd (g - mean(g) - h mean(g h)); without the mean, the same
 * less its terms. */
#ifndef REAL
#include "kernels/ref/ref.h"

#define THIS "kernels/ref/norm.c"
#include "kernels/each_real.h"
#else

/* Rows of a normalization; y is added to x first where there is one. */
typedef struct NAME(Norm) {
    const REAL *x, *y, *w, *b;
    REAL       *out, *sum, *mean, *rstd;             /* all but `out` may be absent */
    int64_t     rows, d;
    double      eps;
    bool        centered;
} NAME(Norm);

/* An element of the sum, rounded as if the sum had been stored. */
static double NAME(element)(const NAME(Norm) *n, int64_t i)
{
    return (double)(n->y ? (REAL)((double)n->x[i] + (double)n->y[i]) : n->x[i]);
}

static void NAME(norm_row)(const NAME(Norm) *n, int64_t row)
{
    int64_t at = row * n->d;
    double mean = 0, square = 0;
    for (int64_t i = 0; n->centered && i < n->d; i++)
        mean += NAME(element)(n, at + i) / (double)n->d;
    for (int64_t i = 0; i < n->d; i++) {
        double v = NAME(element)(n, at + i) - mean;
        square += v * v / (double)n->d;
    }
    double rstd = 1 / sqrt(square + n->eps);
    for (int64_t i = 0; i < n->d; i++) {
        double x = NAME(element)(n, at + i);
        if (n->sum)
            n->sum[at + i] = (REAL)x;
        n->out[at + i] = (REAL)((x - mean) * rstd * (double)n->w[i] + (n->b ? (double)n->b[i] : 0));
    }
    if (n->mean)
        n->mean[row] = (REAL)mean;
    if (n->rstd)
        n->rstd[row] = (REAL)rstd;
}

static void NAME(normalize)(const KCall *c, NAME(Norm) n)
{
    n.d = row_length(c->argt[0]);
    n.rows = tensor_elements(c->argt[0]) / n.d;
    n.eps = attr_real(c, "eps");
    for (int64_t r = 0; r < n.rows; r++)
        NAME(norm_row)(&n, r);
}

REF_KERNEL(layernorm)
{
    NAME(normalize)(c, (NAME(Norm)){.x = ARG(0), .w = ARG(1), .b = ARG(2), .out = OUT(0), .mean = OUT(1), .rstd = OUT(2), .centered = true});
}

REF_KERNEL(rmsnorm)
{
    NAME(normalize)(c, (NAME(Norm)){.x = ARG(0), .w = ARG(1), .out = OUT(0), .rstd = OUT(1)});
}

REF_KERNEL(add_layernorm)
{
    NAME(normalize)(c, (NAME(Norm)){.x = ARG(0), .y = ARG(1), .w = ARG(2), .b = ARG(3), .out = OUT(0), .sum = OUT(1),
                                    .mean = OUT(2), .rstd = OUT(3), .centered = true});
}

REF_KERNEL(add_rmsnorm)
{
    NAME(normalize)(c, (NAME(Norm)){.x = ARG(0), .y = ARG(1), .w = ARG(2), .out = OUT(0), .sum = OUT(1), .rstd = OUT(2)});
}

/* The saved numbers of the forward op; mean NULL without centering. */
typedef struct NAME(Saved) { const REAL *dy, *x, *w, *mean, *rstd; int64_t rows, d; } NAME(Saved);

static double NAME(normalized)(const NAME(Saved) *s, int64_t row, int64_t i)
{
    return ((double)s->x[row * s->d + i] - (s->mean ? (double)s->mean[row] : 0)) * (double)s->rstd[row];
}

static void NAME(norm_grad_row)(const NAME(Saved) *s, int64_t row, bool adds, REAL *dx)
{
    double mean_g = 0, mean_gh = 0;
    for (int64_t i = 0; i < s->d; i++) {
        double g = (double)s->dy[row * s->d + i] * (double)s->w[i] / (double)s->d;
        mean_g += s->mean ? g : 0;
        mean_gh += g * NAME(normalized)(s, row, i);
    }
    for (int64_t i = 0; i < s->d; i++) {
        double g = (double)s->dy[row * s->d + i] * (double)s->w[i];
        REAL *out = &dx[row * s->d + i];
        *out = (REAL)((double)s->rstd[row] * (g - mean_g - NAME(normalized)(s, row, i) * mean_gh) + (adds ? (double)*out : 0));
    }
}

/* dw (of the scale) or db (of the shift). */
static void NAME(norm_grad_weight)(const KCall *c, const NAME(Saved) *s, int out, bool shift)
{
    REAL *dw = OUT(out);
    for (int64_t i = 0; dw && i < s->d; i++) {
        double sum = kcall_adds(c, out) ? (double)dw[i] : 0;
        for (int64_t r = 0; r < s->rows; r++)
            sum += (double)s->dy[r * s->d + i] * (shift ? 1 : NAME(normalized)(s, r, i));
        dw[i] = (REAL)sum;
    }
}

static void NAME(norm_grad)(const KCall *c, NAME(Saved) s)
{
    s.d = row_length(c->argt[0]);
    s.rows = tensor_elements(c->argt[0]) / s.d;
    NAME(norm_grad_weight)(c, &s, 1, false);
    if (s.mean)
        NAME(norm_grad_weight)(c, &s, 2, true);
    REAL *dx = OUT(0);
    for (int64_t r = 0; dx && r < s.rows; r++)
        NAME(norm_grad_row)(&s, r, kcall_adds(c, 0), dx);
}

REF_KERNEL(layernorm_grad)
{
    NAME(norm_grad)(c, (NAME(Saved)){.dy = ARG(0), .x = ARG(1), .w = ARG(2), .mean = ARG(3), .rstd = ARG(4)});
}

REF_KERNEL(rmsnorm_grad)
{
    NAME(norm_grad)(c, (NAME(Saved)){.dy = ARG(0), .x = ARG(1), .w = ARG(2), .rstd = ARG(3)});
}

#endif
