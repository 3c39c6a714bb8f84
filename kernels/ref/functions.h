#ifndef KERNELS_REF_FUNCTIONS_H
#define KERNELS_REF_FUNCTIONS_H
/* Scalar functions of the plain forms. */
#include <math.h>

#include "base/text.h"
#include "kernels/operand.h"

/* The word that decides element i (in the whole tensor) of the op with this key. */
static inline uint32_t random_word(const KCall *c, uint32_t key, int64_t i)
{
    return philox4(c->step->seed, key, (uint64_t)i / 4, (uint64_t)c->step->step).word[i % 4];
}

/* Whether a label takes part in the loss. */
static inline bool label_counts(const KCall *c, int64_t label)
{
    return label != LABEL_PAD && !(attr_given(c, "ignore") && label == attr_int(c, "ignore"));
}

/* The losses of micro-batches add up. */
static inline void give_loss(const KCall *c, double loss)
{
    real_put(c->outt[0], c->out[0], 0, loss + (kcall_adds(c, 0) ? real_at(c->outt[0], c->out[0], 0) : 0));
}

static inline double scalar_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static inline double scalar_silu(double x)
{
    return x * scalar_sigmoid(x);
}

static inline double scalar_silu_slope(double x)
{
    double s = scalar_sigmoid(x);
    return s * (1 + x * (1 - s));
}

/* Hendrycks and Gimpel 2016: x P(Z < x), and its tanh form with the constants of
 * the paper. */
static const double gelu_a = 0.7978845608028654;     /* sqrt(2 / pi) */
static const double gelu_b = 0.044715;

static inline double scalar_gelu(double x, bool exact)
{
    return exact ? 0.5 * x * (1 + erf(x * M_SQRT1_2)) : 0.5 * x * (1 + tanh(gelu_a * (x + gelu_b * x * x * x)));
}

static inline double scalar_gelu_slope(double x, bool exact)
{
    if (exact)
        return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) * 0.3989422804014327;   /* 1 / sqrt(2 pi) */
    double t = tanh(gelu_a * (x + gelu_b * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_a * (1 + 3 * gelu_b * x * x);
}

#endif
