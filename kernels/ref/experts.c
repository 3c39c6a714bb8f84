/* Sparse layers: router, dispatch, combine, load balance (Shazeer et al. 2017;
 * Fedus, Zoph, Shazeer 2022), each over one sequence at a time.
 *
 * What route, prob and token hold is said at the head of ops.def.  An unused slot
 * holds zeros and token -1.
 */
#ifndef REAL
#include "kernels/ref/ref.h"

typedef struct Sparse { int64_t groups, s, d, experts, slots; } Sparse;

/* From the shapes tokens[.., s, d] and slots[.., expert, slot, d]. */
static Sparse sparse_of(const Tensor *tokens, const Tensor *slots)
{
    Sparse m = {.s = tokens->axis[tokens->rank - 2].local, .d = row_length(tokens),
                .experts = slots->axis[slots->rank - 3].local, .slots = slots->axis[slots->rank - 2].local};
    m.groups = tensor_elements(tokens) / (m.s * m.d);
    return m;
}

#define THIS "kernels/ref/experts.c"
#include "kernels/each_real.h"
#else

/* ---- router ---- */

/* Weights of the chosen experts from all probabilities, in place.  An expert whose
 * turn has come and who was not chosen is marked by its sign. */
static void NAME(choose)(REAL *p, int64_t n, int64_t top)
{
    double total = 0;
    for (int64_t e = 0; e < n; e++) {
        int64_t better = 0;
        for (int64_t o = 0; o < n; o++)
            better += fabs((double)p[o]) > (double)p[e] || (o < e && fabs((double)p[o]) == (double)p[e]);
        total += better < top ? (double)p[e] : 0;
        if (better >= top)
            p[e] = -p[e];
    }
    for (int64_t e = 0; e < n; e++)
        p[e] = signbit(p[e]) ? 0 : (REAL)((double)p[e] / total);
}

static void NAME(softmax_row)(REAL *x, int64_t n)
{
    double top = (double)x[0], sum = 0;
    for (int64_t e = 1; e < n; e++)
        top = (double)x[e] > top ? (double)x[e] : top;
    for (int64_t e = 0; e < n; e++)
        sum += exp((double)x[e] - top);
    for (int64_t e = 0; e < n; e++)
        x[e] = (REAL)(exp((double)x[e] - top) / sum);
}

REF_KERNEL(router)
{
    const REAL *x = ARG(0), *weight = ARG(1);
    REAL *route = OUT(0), *prob = OUT(1);
    int64_t n = row_length(c->argt[1]), d = row_length(c->argt[0]), rows = tensor_elements(c->argt[0]) / d;
    for (int64_t r = 0; r < rows; r++, route += n) {
        for (int64_t e = 0; e < n; e++) {
            double sum = 0;
            for (int64_t i = 0; i < d; i++)
                sum += (double)x[r * d + i] * (double)weight[i * n + e];
            route[e] = (REAL)sum;
        }
        NAME(softmax_row)(route, n);
        if (prob)
            memcpy(prob + r * n, route, sizeof *route * (size_t)n);
        NAME(choose)(route, n, attr_int(c, "top"));
    }
}

/* Gradient of a probability: through the weights of the chosen, and its own. */
static double NAME(prob_grad)(const REAL *droute, const REAL *dprob, const REAL *route, const REAL *prob, int64_t n, int64_t e)
{
    double own = dprob ? (double)dprob[e] : 0, total = 0, mean = 0;
    if (!droute || route[e] == 0)
        return own;
    for (int64_t o = 0; o < n; o++) {
        total += route[o] != 0 ? (double)prob[o] : 0;
        mean += (double)droute[o] * (double)route[o];
    }
    return own + ((double)droute[e] - mean) / total;
}

/* Of the logits: through the softmax. */
REF_KERNEL(router_grad)
{
    const REAL *droute = ARG(0), *dprob = ARG(1), *route = ARG(2), *prob = ARG(3);
    REAL *dx = OUT(0);
    int64_t n = row_length(c->outt[0]), all = tensor_elements(c->outt[0]);
    for (int64_t r = 0; r < all; r += n) {
        const REAL *dr = droute ? droute + r : NULL, *dp = dprob ? dprob + r : NULL;
        double mean = 0;
        for (int64_t e = 0; e < n; e++)
            mean += (double)prob[r + e] * NAME(prob_grad)(dr, dp, route + r, prob + r, n, e);
        for (int64_t e = 0; e < n; e++)
            dx[r + e] = (REAL)((double)prob[r + e] * (NAME(prob_grad)(dr, dp, route + r, prob + r, n, e) - mean));
    }
}

/* ---- dispatch and combine: tokens[.., s, d] and slots[.., expert, slot, d] ---- */

/* Slot of token s at expert e, or -1: how many before it chose the expert. */
static int64_t NAME(slot_of)(const Sparse *m, const REAL *route, int64_t s, int64_t e)
{
    int64_t before = 0;
    if (route[s * m->experts + e] == 0)
        return -1;
    for (int64_t i = 0; i < s; i++)
        before += route[i * m->experts + e] != 0;
    return before < m->slots ? before : -1;
}

REF_KERNEL(dispatch)
{
    Sparse m = sparse_of(c->argt[0], c->outt[0]);
    const REAL *x = ARG(0), *route = ARG(1);
    REAL *y = OUT(0);
    memset(y, 0, sizeof *y * (size_t)tensor_elements(c->outt[0]));
    for (int64_t i = 0; c->out[1] && i < tensor_elements(c->outt[1]); i++)
        int_put(c->outt[1], c->out[1], i, -1);
    for (int64_t r = 0; r < m.groups * m.s * m.experts; r++) {
        int64_t g = r / (m.s * m.experts), s = r / m.experts % m.s, e = r % m.experts;
        int64_t slot = NAME(slot_of)(&m, route + g * m.s * m.experts, s, e), at = (g * m.experts + e) * m.slots + slot;
        if (slot < 0)
            continue;
        memcpy(y + at * m.d, x + (g * m.s + s) * m.d, sizeof *y * (size_t)m.d);
        if (c->out[1])
            int_put(c->outt[1], c->out[1], at, s);
    }
}

REF_KERNEL(dispatch_grad)
{
    Sparse m = sparse_of(c->outt[0], c->argt[0]);
    const REAL *dy = ARG(0);
    REAL *dx = OUT(0);
    memset(dx, 0, sizeof *dx * (size_t)tensor_elements(c->outt[0]));
    for (int64_t at = 0; at < m.groups * m.experts * m.slots; at++) {
        int64_t s = int_at(c->argt[1], c->arg[1], at), g = at / (m.experts * m.slots);
        for (int64_t i = 0; s >= 0 && i < m.d; i++)
            dx[(g * m.s + s) * m.d + i] += dy[at * m.d + i];
    }
}

REF_KERNEL(combine)
{
    Sparse m = sparse_of(c->outt[0], c->argt[0]);
    const REAL *y = ARG(0), *route = ARG(1);
    REAL *out = OUT(0);
    memset(out, 0, sizeof *out * (size_t)tensor_elements(c->outt[0]));
    for (int64_t at = 0; at < m.groups * m.experts * m.slots; at++) {
        int64_t s = int_at(c->argt[2], c->arg[2], at), g = at / (m.experts * m.slots), e = at / m.slots % m.experts;
        for (int64_t i = 0; s >= 0 && i < m.d; i++)
            out[(g * m.s + s) * m.d + i] += route[(g * m.s + s) * m.experts + e] * y[at * m.d + i];
    }
}

REF_KERNEL(combine_grad)
{
    Sparse m = sparse_of(c->argt[0], c->argt[1]);
    const REAL *dout = ARG(0), *y = ARG(1), *route = ARG(2);
    REAL *dy = OUT(0), *droute = OUT(1);
    if (droute)
        memset(droute, 0, sizeof *droute * (size_t)tensor_elements(c->outt[1]));
    for (int64_t at = 0; at < m.groups * m.experts * m.slots; at++) {
        int64_t s = int_at(c->argt[3], c->arg[3], at), g = at / (m.experts * m.slots), e = at / m.slots % m.experts;
        int64_t r = (g * m.s + s) * m.experts + e, token = (g * m.s + s) * m.d;
        double sum = 0;
        for (int64_t i = 0; i < m.d; i++) {
            sum += s < 0 ? 0 : (double)dout[token + i] * (double)y[at * m.d + i];
            if (dy)
                dy[at * m.d + i] = s < 0 ? 0 : route[r] * dout[token + i];
        }
        if (droute && s >= 0)
            droute[r] = (REAL)sum;
    }
}

/* ---- load balance ---- */

/* Part of the tokens of a sequence that chose expert e; no gradient flows through it. */
static double NAME(share)(const REAL *route, int64_t s, int64_t n, int64_t e)
{
    double chosen = 0;
    for (int64_t i = 0; i < s; i++)
        chosen += route[i * n + e] != 0;
    return chosen / (double)s;
}

REF_KERNEL(load_balance)
{
    const REAL *route = ARG(0), *prob = ARG(1);
    REAL *y = OUT(0);
    int64_t n = row_length(c->argt[0]), s = c->argt[0]->axis[c->argt[0]->rank - 2].local;
    for (int64_t g = 0; g < tensor_elements(c->outt[0]); g++) {
        double sum = 0;
        for (int64_t i = 0; i < s * n; i++)
            sum += NAME(share)(route + g * s * n, s, n, i % n) * (double)prob[g * s * n + i];
        y[g] = (REAL)(sum * (double)n / (double)s);
    }
}

REF_KERNEL(load_balance_grad)
{
    const REAL *dy = ARG(0), *route = ARG(1);
    REAL *dprob = OUT(0);
    int64_t n = row_length(c->argt[1]), s = c->argt[1]->axis[c->argt[1]->rank - 2].local;
    for (int64_t i = 0; i < tensor_elements(c->outt[0]); i++) {
        int64_t g = i / (s * n);
        dprob[i] = (REAL)((double)dy[g] * NAME(share)(route + g * s * n, s, n, i % n) * (double)n / (double)s);
    }
}

#endif
