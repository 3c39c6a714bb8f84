/* Layer and root-mean-square normalization over the last axis, and their gradients
 * (Ba, Kiros, Hinton 2016; Zhang, Sennrich 2019).  With h = (x - mean) rstd and
 * g = dy w:  dx = rstd (g - mean(g) - h mean(g h)); without the mean, the same
 * less its terms. */
#include "kernels/ref/ref.h"

/* Rows of a normalization; y is added to x first where there is one. */
typedef struct Norm {
    Reals   x, y, w, b,   out, sum, mean, rstd;     /* all but `out` may be absent */
    int64_t rows, d;
    double  eps;
    bool    centered;
} Norm;

/* An element of the sum, rounded as if the sum had been stored. */
static double element(const Norm *n, int64_t i)
{
    double cell = 0;
    if (!n->y.at)
        return get(n->x, i);
    put((Reals){n->x.dtype, &cell}, 0, get(n->x, i) + get(n->y, i));
    return get((Reals){n->x.dtype, &cell}, 0);
}

static void norm_row(const Norm *n, int64_t row)
{
    int64_t at = row * n->d;
    double mean = 0, square = 0;
    for (int64_t i = 0; n->centered && i < n->d; i++)
        mean += element(n, at + i) / (double)n->d;
    for (int64_t i = 0; i < n->d; i++) {
        double v = element(n, at + i) - mean;
        square += v * v / (double)n->d;
    }
    double rstd = 1 / sqrt(square + n->eps);
    for (int64_t i = 0; i < n->d; i++) {
        double x = element(n, at + i);
        if (n->sum.at)
            put(n->sum, at + i, x);
        put(n->out, at + i, (x - mean) * rstd * get(n->w, i) + (n->b.at ? get(n->b, i) : 0));
    }
    if (n->mean.at)
        put(n->mean, row, mean);
    if (n->rstd.at)
        put(n->rstd, row, rstd);
}

static void normalize(const KCall *c, Norm n)
{
    n.d = row_length(c->argt[0]);
    n.rows = tensor_elements(c->argt[0]) / n.d;
    n.eps = attr_real(c, "eps");
    for (int64_t r = 0; r < n.rows; r++)
        norm_row(&n, r);
}

REF_KERNEL(layernorm)
{
    normalize(c, (Norm){.x = ARG(0), .w = ARG(1), .b = ARG(2), .out = OUT(0), .mean = OUT(1), .rstd = OUT(2), .centered = true});
}

REF_KERNEL(rmsnorm)
{
    normalize(c, (Norm){.x = ARG(0), .w = ARG(1), .out = OUT(0), .rstd = OUT(1)});
}

REF_KERNEL(add_layernorm)
{
    normalize(c, (Norm){.x = ARG(0), .y = ARG(1), .w = ARG(2), .b = ARG(3), .out = OUT(0), .sum = OUT(1),
                        .mean = OUT(2), .rstd = OUT(3), .centered = true});
}

REF_KERNEL(add_rmsnorm)
{
    normalize(c, (Norm){.x = ARG(0), .y = ARG(1), .w = ARG(2), .out = OUT(0), .sum = OUT(1), .rstd = OUT(2)});
}

/* The saved numbers of the forward op; without centering there is no mean. */
typedef struct Saved { Reals dy, x, w, mean, rstd; int64_t rows, d; } Saved;

static double normalized(const Saved *s, int64_t row, int64_t i)
{
    return (get(s->x, row * s->d + i) - (s->mean.at ? get(s->mean, row) : 0)) * get(s->rstd, row);
}

static void norm_grad_row(const Saved *s, int64_t row, bool adds, Reals dx)
{
    double mean_g = 0, mean_gh = 0;
    for (int64_t i = 0; i < s->d; i++) {
        double g = get(s->dy, row * s->d + i) * get(s->w, i) / (double)s->d;
        mean_g += s->mean.at ? g : 0;
        mean_gh += g * normalized(s, row, i);
    }
    for (int64_t i = 0; i < s->d; i++) {
        double g = get(s->dy, row * s->d + i) * get(s->w, i);
        give(dx, row * s->d + i, get(s->rstd, row) * (g - mean_g - normalized(s, row, i) * mean_gh), adds);
    }
}

/* dw (of the scale) or db (of the shift). */
static void norm_grad_weight(const KCall *c, const Saved *s, int out, bool shift)
{
    Reals dw = OUT(out);
    for (int64_t i = 0; dw.at && i < s->d; i++) {
        double sum = 0;
        for (int64_t r = 0; r < s->rows; r++)
            sum += get(s->dy, r * s->d + i) * (shift ? 1 : normalized(s, r, i));
        give(dw, i, sum, kcall_adds(c, out));
    }
}

static void norm_grad(const KCall *c, Saved s)
{
    s.d = row_length(c->argt[0]);
    s.rows = tensor_elements(c->argt[0]) / s.d;
    norm_grad_weight(c, &s, 1, false);
    if (s.mean.at)
        norm_grad_weight(c, &s, 2, true);
    Reals dx = OUT(0);
    for (int64_t r = 0; dx.at && r < s.rows; r++)
        norm_grad_row(&s, r, kcall_adds(c, 0), dx);
}

REF_KERNEL(layernorm_grad)
{
    norm_grad(c, (Saved){.dy = ARG(0), .x = ARG(1), .w = ARG(2), .mean = ARG(3), .rstd = ARG(4)});
}

REF_KERNEL(rmsnorm_grad)
{
    norm_grad(c, (Saved){.dy = ARG(0), .x = ARG(1), .w = ARG(2), .rstd = ARG(3)});
}
