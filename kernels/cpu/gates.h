#ifndef KERNELS_CPU_GATES_H
#define KERNELS_CPU_GATES_H
/* The smooth gates of feed-forward layers and their slopes. */
#include "kernels/cpu/vec.h"
#include "kernels/ref/functions.h"

static inline Vec silu(Vec x)
{
    return x * vec_sigmoid(x);
}

/* s (1 + x (1 - s)) */
static inline Vec silu_slope(Vec x)
{
    Vec s = vec_sigmoid(x);
    return s * vec_fma(x, vec_all(1) - s, vec_all(1));
}

/* The tanh form: (1 + tanh u) / 2 is the sigmoid of 2u. */
static inline Vec gelu_gate(Vec x)
{
    const Vec a = vec_all((float)(2 * gelu_a)), ab = vec_all((float)(2 * gelu_a * gelu_b));
    return vec_sigmoid(x * vec_fma(ab, x * x, a));
}

static inline Vec gelu_slope(Vec x)
{
    const Vec a = vec_all((float)(2 * gelu_a)), ab3 = vec_all((float)(6 * gelu_a * gelu_b));
    Vec s = gelu_gate(x);
    return s * vec_fma(x * (vec_all(1) - s), vec_fma(ab3, x * x, a), vec_all(1));
}

#endif
