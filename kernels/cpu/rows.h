#ifndef KERNELS_CPU_ROWS_H
#define KERNELS_CPU_ROWS_H
/* Operands as arrays of float, and sums over contiguous rows. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"
#include "kernels/ref/ref.h"

#define ARG_F32(i) ((const float *)floats_of(c->argt[i], c->arg[i]))
#define OUT_F32(i) ((float *)floats_of(c->outt[i], c->out[i]))

static inline void *floats_of(const Tensor *t, void *p)
{
    assert(!p || t->dtype == DT_f32);
    (void)t;
    return p;
}

/* In four chains, because an addition waits for the one before it. */
static inline float row_sum(const float *x, int64_t n)
{
    Vec part[4] = {vec_all(0), vec_all(0), vec_all(0), vec_all(0)};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int k = 0; k < 4; k++)
            part[k] += vec_load(x + i + k * LANES);
    for (; i < n; i += LANES)
        part[0] += vec_take(x + i, n - i);
    return vec_sum((part[0] + part[1]) + (part[2] + part[3]));
}

/* The last vectors may overlap the ones before them: a maximum does not mind. */
static inline float row_top(const float *x, int64_t n)
{
    float top = -INFINITY;
    if (n < 2 * LANES) {
        for (int64_t i = 0; i < n; i++)
            top = x[i] > top ? x[i] : top;
        return top;
    }
    Vec a = vec_load(x + n - 2 * LANES), b = vec_load(x + n - LANES);
    for (int64_t i = 0; i + 2 * LANES <= n; i += 2 * LANES) {
        a = vec_max(a, vec_load(x + i));
        b = vec_max(b, vec_load(x + i + LANES));
    }
    return vec_top(vec_max(a, b));
}

/* A sum over many items is cut into this many pieces, summed one after the other
 * in double and then joined in order, whatever the size of the team. */
enum { SUM_PIECES = 64 };

#endif
