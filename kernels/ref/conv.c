/* Convolution of images and its gradients, in direct loops.
 * y[o, i, j] = b[o] + sum of x[c, i stride + p - pad, j stride + q - pad] w[o, c, p, q]. */
#ifndef REAL
#include "kernels/ref/ref.h"

typedef struct Conv {
    int64_t images, c, h, w, out, row, col, kh, kw, stride, pad;
    int64_t row0, col0;               /* where the rows and columns of the result start in the whole one */
} Conv;

/* From the shapes x[.., c, h, w], w[out, c, kh, kw] and y[.., out, row, col]. */
static Conv conv_of(const KCall *c, const Tensor *x, const Tensor *w, const Tensor *y)
{
    const AxisPlace *ax = &x->axis[x->rank - 3], *ay = &y->axis[y->rank - 3];
    Conv v = {.c = ax[0].local, .h = ax[1].local, .w = ax[2].local, .out = ay[0].local, .row = ay[1].local, .col = ay[2].local,
              .kh = w->axis[2].local, .kw = w->axis[3].local, .stride = attr_int(c, "stride"), .pad = attr_int(c, "pad"),
              .row0 = place_global(&ay[1], 0, 0), .col0 = place_global(&ay[2], 0, 0)};
    v.images = tensor_elements(x) / (v.c * v.h * v.w);
    return v;
}

/* Offset in its image of the pixel under tap (p, q) at place (i, j); -1: padding. */
static int64_t pixel(const Conv *v, int64_t ch, int64_t i, int64_t j, int64_t p, int64_t q)
{
    int64_t y = (v->row0 + i) * v->stride + p - v->pad, x = (v->col0 + j) * v->stride + q - v->pad;
    return y < 0 || y >= v->h || x < 0 || x >= v->w ? -1 : (ch * v->h + y) * v->w + x;
}

static int64_t tap(const Conv *v, int64_t o, int64_t ch, int64_t p, int64_t q)
{
    return ((o * v->c + ch) * v->kh + p) * v->kw + q;
}

#define THIS "kernels/ref/conv.c"
#include "kernels/each_real.h"
#else

/* One element of the result, without bias. */
static double NAME(window)(const Conv *v, int64_t o, int64_t i, int64_t j, const REAL *x, const REAL *w)
{
    double sum = 0;
    for (int64_t ch = 0; ch < v->c; ch++)
        for (int64_t p = 0; p < v->kh; p++)
            for (int64_t q = 0; q < v->kw; q++) {
                int64_t at = pixel(v, ch, i, j, p, q);
                if (at >= 0)
                    sum += (double)x[at] * (double)w[tap(v, o, ch, p, q)];
            }
    return sum;
}

REF_KERNEL(conv2d)
{
    Conv v = conv_of(c, c->argt[0], c->argt[1], c->outt[0]);
    const REAL *x = ARG(0), *w = ARG(1), *b = ARG(2);
    REAL *y = OUT(0);
    for (int64_t n = 0; n < v.images; n++, x += v.c * v.h * v.w)
        for (int64_t o = 0; o < v.out; o++)
            for (int64_t i = 0; i < v.row * v.col; i++)
                *y++ = (REAL)(NAME(window)(&v, o, i / v.col, i % v.col, x, w) + (b ? (double)b[o] : 0));
}

/* Add the part of dx that comes from one element of dy. */
static void NAME(spread)(const Conv *v, int64_t o, int64_t i, int64_t j, REAL dy, const REAL *w, REAL *dx)
{
    for (int64_t ch = 0; ch < v->c; ch++)
        for (int64_t p = 0; p < v->kh; p++)
            for (int64_t q = 0; q < v->kw; q++) {
                int64_t at = pixel(v, ch, i, j, p, q);
                if (at >= 0)
                    dx[at] += dy * w[tap(v, o, ch, p, q)];
            }
}

REF_KERNEL(conv2d_grad_x)
{
    Conv v = conv_of(c, c->outt[0], c->argt[1], c->argt[0]);
    const REAL *dy = ARG(0), *w = ARG(1);
    REAL *dx = OUT(0);
    memset(dx, 0, sizeof *dx * (size_t)tensor_elements(c->outt[0]));
    for (int64_t n = 0; n < v.images; n++, dx += v.c * v.h * v.w)
        for (int64_t o = 0; o < v.out; o++)
            for (int64_t i = 0; i < v.row * v.col; i++)
                NAME(spread)(&v, o, i / v.col, i % v.col, *dy++, w, dx);
}

/* Gradient of one tap, over all images and places. */
static double NAME(tap_grad)(const Conv *v, int64_t o, int64_t ch, int64_t p, int64_t q, const REAL *dy, const REAL *x)
{
    double sum = 0;
    for (int64_t n = 0; n < v->images; n++)
        for (int64_t i = 0; i < v->row * v->col; i++) {
            int64_t at = pixel(v, ch, i / v->col, i % v->col, p, q);
            if (at >= 0)
                sum += (double)dy[(n * v->out + o) * v->row * v->col + i] * (double)x[n * v->c * v->h * v->w + at];
        }
    return sum;
}

REF_KERNEL(conv2d_grad_w)
{
    Conv v = conv_of(c, c->argt[1], c->outt[0], c->argt[0]);
    const REAL *dy = ARG(0), *x = ARG(1);
    REAL *dw = OUT(0);
    for (int64_t o = 0; o < v.out; o++)
        for (int64_t ch = 0; ch < v.c; ch++)
            for (int64_t k = 0; k < v.kh * v.kw; k++, dw++)
                *dw = (REAL)(NAME(tap_grad)(&v, o, ch, k / v.kw, k % v.kw, dy, x) + (kcall_adds(c, 0) ? (double)*dw : 0));
}

#endif
