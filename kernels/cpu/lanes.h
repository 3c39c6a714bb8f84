#ifndef KERNELS_CPU_LANES_H
#define KERNELS_CPU_LANES_H
/* Numbers of f32 or bf16 in a row, as lanes of floats: read widened, written rounded
 * once.  The type of a row is the same in all of a loop, so the branch on it costs
 * next to nothing. */
#include <math.h>
#include <stdbool.h>

#include "kernels/cpu/vec.h"
#include "kernels/reals.h"

/* Lanes from element i on, of n. */
static inline Vec lanes_take(Reals x, int64_t i, int64_t n)
{
    return x.dtype == DT_bf16 ? vec_widen((const Bf16 *)x.at + i, n - i) : vec_take((const float *)x.at + i, n - i);
}

static inline void lanes_give(Reals x, int64_t i, Vec v, int64_t n)
{
    if (x.dtype == DT_bf16)
        vec_round((Bf16 *)x.at + i, v, n - i);
    else
        vec_give((float *)x.at + i, v, n - i);
}

/* All lanes from element i on, of a row that has as many. */
static inline Vec lanes_load(Reals x, int64_t i)
{
    return x.dtype == DT_bf16 ? vec_widen((const Bf16 *)x.at + i, LANES) : vec_load((const float *)x.at + i);
}

static inline Reals floats(const float *p)
{
    return (Reals){DT_f32, (void *)(uintptr_t)p};
}

/* In four chains, because an addition waits for the one before it. */
static inline float row_sum(Reals x, int64_t n)
{
    Vec part[4] = {vec_all(0), vec_all(0), vec_all(0), vec_all(0)};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int k = 0; k < 4; k++)
            part[k] += lanes_load(x, i + k * LANES);
    for (; i < n; i += LANES)
        part[0] += lanes_take(x, i, n);
    return vec_sum((part[0] + part[1]) + (part[2] + part[3]));
}

/* The last vectors may overlap the ones before them: a maximum does not mind. */
static inline float row_top(Reals x, int64_t n)
{
    float top = -INFINITY;
    if (n < 2 * LANES) {
        for (int64_t i = 0; i < n; i++)
            top = (float)get(x, i) > top ? (float)get(x, i) : top;
        return top;
    }
    Vec a = lanes_load(x, n - 2 * LANES), b = lanes_load(x, n - LANES);
    for (int64_t i = 0; i + 2 * LANES <= n; i += 2 * LANES) {
        a = vec_max(a, lanes_load(x, i));
        b = vec_max(b, lanes_load(x, i + LANES));
    }
    return vec_top(vec_max(a, b));
}

#endif
