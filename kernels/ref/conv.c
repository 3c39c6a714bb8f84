/* Convolution of images and its gradients, in direct loops.
 * y[o, i, j] = b[o] + sum of x[c, i stride + p - pad, j stride + q - pad] w[o, c, p, q]. */
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

/* One element of the result, without bias. */
static double window(const Conv *v, int64_t o, int64_t i, int64_t j, Reals x, Reals w)
{
    double sum = 0;
    for (int64_t ch = 0; ch < v->c; ch++)
        for (int64_t p = 0; p < v->kh; p++)
            for (int64_t q = 0; q < v->kw; q++) {
                int64_t at = pixel(v, ch, i, j, p, q);
                if (at >= 0)
                    sum += get(x, at) * get(w, tap(v, o, ch, p, q));
            }
    return sum;
}

REF_KERNEL(conv2d)
{
    Conv v = conv_of(c, c->argt[0], c->argt[1], c->outt[0]);
    Reals x = ARG(0), w = ARG(1), b = ARG(2), y = OUT(0);
    int64_t at = 0;
    for (int64_t n = 0; n < v.images; n++, x = reals_from(x, v.c * v.h * v.w))
        for (int64_t o = 0; o < v.out; o++)
            for (int64_t i = 0; i < v.row * v.col; i++)
                put(y, at++, window(&v, o, i / v.col, i % v.col, x, w) + (b.at ? get(b, o) : 0));
}

/* The place of the result along one axis that sees pixel `at` under tap p; -1: none of
 * this rank. */
static int64_t place_under(const Conv *v, int64_t at, int64_t p, int64_t first, int64_t n)
{
    int64_t steps = at + v->pad - p, place = steps / v->stride - first;
    return steps < 0 || steps % v->stride != 0 || place < 0 || place >= n ? -1 : place;
}

/* Gradient of one pixel: over all places that see it. */
static double pixel_grad(const Conv *v, int64_t ch, int64_t y, int64_t x, Reals dy, Reals w)
{
    double sum = 0;
    for (int64_t o = 0; o < v->out; o++)
        for (int64_t p = 0; p < v->kh; p++)
            for (int64_t q = 0; q < v->kw; q++) {
                int64_t i = place_under(v, y, p, v->row0, v->row), j = place_under(v, x, q, v->col0, v->col);
                if (i >= 0 && j >= 0)
                    sum += get(dy, (o * v->row + i) * v->col + j) * get(w, tap(v, o, ch, p, q));
            }
    return sum;
}

REF_KERNEL(conv2d_grad_x)
{
    Conv v = conv_of(c, c->outt[0], c->argt[1], c->argt[0]);
    Reals dy = ARG(0), w = ARG(1), dx = OUT(0);
    int64_t at = 0;
    for (int64_t n = 0; n < v.images; n++, dy = reals_from(dy, v.out * v.row * v.col))
        for (int64_t ch = 0; ch < v.c; ch++)
            for (int64_t i = 0; i < v.h * v.w; i++)
                put(dx, at++, pixel_grad(&v, ch, i / v.w, i % v.w, dy, w));
}

/* Gradient of one tap, over all images and places. */
static double tap_grad(const Conv *v, int64_t o, int64_t ch, int64_t p, int64_t q, Reals dy, Reals x)
{
    double sum = 0;
    for (int64_t n = 0; n < v->images; n++)
        for (int64_t i = 0; i < v->row * v->col; i++) {
            int64_t at = pixel(v, ch, i / v->col, i % v->col, p, q);
            if (at >= 0)
                sum += get(dy, (n * v->out + o) * v->row * v->col + i) * get(x, n * v->c * v->h * v->w + at);
        }
    return sum;
}

REF_KERNEL(conv2d_grad_w)
{
    Conv v = conv_of(c, c->argt[1], c->outt[0], c->argt[0]);
    Reals dy = ARG(0), x = ARG(1), dw = OUT(0);
    int64_t at = 0;
    for (int64_t o = 0; o < v.out; o++)
        for (int64_t ch = 0; ch < v.c; ch++)
            for (int64_t k = 0; k < v.kh * v.kw; k++)
                give(dw, at++, tap_grad(&v, o, ch, k / v.kw, k % v.kw, dy, x), kcall_adds(c, 0));
}
