/* Ops that make one element of one element of each argument. */
#include "kernels/ref/ref.h"

/* y = f(x): `x` is an element of argument 0, as a double. */
#define UNARY(op, f)                                              \
    REF_KERNEL(op)                                                \
    {                                                             \
        Reals x0 = ARG(0), out = OUT(0);                          \
        for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w)) { \
            double x = get(x0, w.at[0]);                          \
            put(out, w.at[MAX_ARGS], f);                          \
        }                                                         \
    }

/* z = f(x, y): elements of arguments 0 and 1; either may lack axes of the result. */
#define BINARY(op, f)                                             \
    REF_KERNEL(op)                                                \
    {                                                             \
        Reals x0 = ARG(0), y0 = ARG(1), out = OUT(0);             \
        for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w)) { \
            double x = get(x0, w.at[0]), y = get(y0, w.at[1]);    \
            put(out, w.at[MAX_ARGS], f);                          \
        }                                                         \
    }

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x * y)
BINARY(div, x / y)
UNARY(scale, x * attr_real(c, "by"))
UNARY(shift, x + attr_real(c, "by"))
UNARY(reciprocal, attr_real(c, "by") / x)
UNARY(relu, x < 0 ? 0 : x)                           /* a NaN stays one */
UNARY(silu, scalar_silu(x))
UNARY(tanh, tanh(x))
UNARY(gelu, scalar_gelu(x, attr_bool(c, "exact")))

/* Gradients: x is the gradient of the result, y the argument or, where the
 * derivative is a function of it, the result. */
BINARY(relu_grad, y > 0 ? x : 0)
BINARY(tanh_grad, x * (1 - y * y))
BINARY(silu_grad, x * scalar_silu_slope(y))
BINARY(gelu_grad, x * scalar_gelu_slope(y, attr_bool(c, "exact")))

REF_KERNEL(silu_mul)
{
    Reals x = ARG(0), y = ARG(1), out = OUT(0);
    for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w))
        put(out, w.at[MAX_ARGS], scalar_silu(get(x, w.at[0])) * get(y, w.at[1]));
}

REF_KERNEL(silu_mul_grad)
{
    Reals dy = ARG(0), x = ARG(1), y = ARG(2), dx = OUT(0), dother = OUT(1);
    for (Walk w = walk_over(c, arg_factors(c, 0)); w.more; walk_next(&w)) {
        double g = get(dy, w.at[0]), a = get(x, w.at[1]), b = get(y, w.at[2]);
        if (dx.at)
            put(dx, w.at[MAX_ARGS], g * b * scalar_silu_slope(a));
        if (dother.at)
            put(dother, w.at[MAX_ARGS + 1], g * scalar_silu(a));
    }
}

REF_KERNEL(cast)
{
    for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w))
        real_put(c->outt[0], c->out[0], w.at[MAX_ARGS], real_at(c->argt[0], c->arg[0], w.at[0]));
}

/* Kept elements are scaled by 1 / (1 - p); which are kept follows from the
 * element's index in the whole tensor (DESIGN 3). */
REF_KERNEL(dropout)
{
    double p = attr_real(c, "p");
    uint64_t threshold = dropout_threshold(p);
    uint32_t key = fnv1a(c->in->key);
    Reals x = ARG(0), y = OUT(0);
    int64_t d = row_length(c->outt[0]), rows = tensor_elements(c->outt[0]) / d;
    for (int64_t r = 0; r < rows; r++) {
        int64_t first = place_row(c->outt[0], r, c->step->micro);
        for (int64_t i = 0; i < d; i++) {
            bool keep = random_word(c, key, first + i) >= threshold;
            put(y, r * d + i, keep ? get(x, r * d + i) / (1 - p) : 0);
        }
    }
}
