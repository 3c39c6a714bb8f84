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

/* The exact form: the normal distribution Phi(x) = erfc(-x / sqrt 2) / 2, and e^(-x^2 / 2) by the way.  For z >= 0,
 * (1 + 2z) e^(z^2) erfc(z) is a polynomial in u = (z - 2.5) / (z + 2.5): the substitution of Shepherd and Laframboise,
 * "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < inf", Mathematics of Computation 36 (1981), 249-253.
 * These ten coefficients interpolate it at Chebyshev points to 2.6e-8 for z <= 9.9; above, the result is 0.  What
 * rounding x^2 leaves out is put back, so that far on the left Phi has as many digits as elsewhere. */
typedef struct Normal { Vec below, bell; } Normal;   /* Phi; e^(-x^2 / 2) */

static inline Normal normal_of(Vec x)
{
    static const float term[] = {0.000465072284f, 0.000345177235f, -0.00429193368f, 0.00101117278f, 0.0327385636f,
                                 -0.102983853f, 0.157632531f, -0.0990233272f, -0.122356867f, 1.26483817f};
    const Vec root2 = vec_all(1.41421356f), k = vec_all(3.53553391f), half = vec_all(0.5f), one = vec_all(1);
    Vec a = vec_min(vec_max(x, -x), vec_all(14)), square = a * a;
    Vec bell = vec_exp(-half * square) * (one - half * vec_fma(a, a, -square));
    Vec grows = vec_fma(root2, a, one), part = one / ((a + k) * grows), u = (a - k) * grows * part;
    Vec p = vec_all(term[0]);
    for (int i = 1; i < 10; i++)
        p = vec_fma(p, u, vec_all(term[i]));
    Vec tail = half * bell * p * (a + k) * part;
    return (Normal){vec_where(x < vec_all(0), tail, one - tail), bell};
}

static inline Vec gelu_exact_gate(Vec x)
{
    return normal_of(x).below;
}

/* Phi(x) + x e^(-x^2 / 2) / sqrt(2 pi) */
static inline Vec gelu_exact_slope(Vec x)
{
    Normal n = normal_of(x);
    return vec_fma(x * vec_all(0.398942280f), n.bell, n.below);
}

#endif
