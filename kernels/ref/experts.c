/* Sparse layers: router, dispatch, combine, load balance (Shazeer et al. 2017;
 * Fedus, Zoph, Shazeer 2022), each over one sequence at a time.
 *
 * What route, prob and token hold is said at the head of ops.def.  An unused slot
 * holds zeros and token -1.
 */
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

/* ---- router ---- */

/* Weights of the chosen experts from all probabilities, in place.  An expert whose
 * turn has come and who was not chosen is marked by its sign. */
static void choose(Reals p, int64_t n, int64_t top)
{
    double total = 0;
    for (int64_t e = 0; e < n; e++) {
        int64_t better = 0;
        for (int64_t o = 0; o < n; o++)
            better += fabs(get(p, o)) > get(p, e) || (o < e && fabs(get(p, o)) == get(p, e));
        total += better < top ? get(p, e) : 0;
        if (better >= top)
            put(p, e, -get(p, e));
    }
    for (int64_t e = 0; e < n; e++)
        put(p, e, signbit(get(p, e)) ? 0 : get(p, e) / total);
}

static void softmax_row(Reals x, int64_t n)
{
    double top = get(x, 0), sum = 0;
    for (int64_t e = 1; e < n; e++)
        top = get(x, e) > top ? get(x, e) : top;
    for (int64_t e = 0; e < n; e++)
        sum += exp(get(x, e) - top);
    for (int64_t e = 0; e < n; e++)
        put(x, e, exp(get(x, e) - top) / sum);
}

REF_KERNEL(router)
{
    Reals x = ARG(0), weight = ARG(1), route = OUT(0), prob = OUT(1);
    int64_t n = row_length(c->argt[1]), d = row_length(c->argt[0]), rows = tensor_elements(c->argt[0]) / d;
    for (int64_t r = 0; r < rows; r++, route = reals_from(route, n)) {
        for (int64_t e = 0; e < n; e++) {
            double sum = 0;
            for (int64_t i = 0; i < d; i++)
                sum += get(x, r * d + i) * get(weight, i * n + e);
            put(route, e, sum);
        }
        softmax_row(route, n);
        for (int64_t e = 0; prob.at && e < n; e++)
            put(prob, r * n + e, get(route, e));
        choose(route, n, attr_int(c, "top"));
    }
}

/* Gradient of a probability: through the weights of the chosen, and its own. */
static double prob_grad(Reals droute, Reals dprob, Reals route, Reals prob, int64_t n, int64_t e)
{
    double own = dprob.at ? get(dprob, e) : 0, total = 0, mean = 0;
    if (!droute.at || get(route, e) == 0)
        return own;
    for (int64_t o = 0; o < n; o++) {
        total += get(route, o) != 0 ? get(prob, o) : 0;
        mean += get(droute, o) * get(route, o);
    }
    return own + (get(droute, e) - mean) / total;
}

/* Of the logits: through the softmax. */
REF_KERNEL(router_grad)
{
    Reals droute = ARG(0), dprob = ARG(1), route = ARG(2), prob = ARG(3), dx = OUT(0);
    int64_t n = row_length(c->outt[0]), all = tensor_elements(c->outt[0]);
    for (int64_t r = 0; r < all; r += n) {
        Reals dr = reals_from(droute, r), dp = reals_from(dprob, r), chosen = reals_from(route, r), all_of = reals_from(prob, r);
        double mean = 0;
        for (int64_t e = 0; e < n; e++)
            mean += get(all_of, e) * prob_grad(dr, dp, chosen, all_of, n, e);
        for (int64_t e = 0; e < n; e++)
            put(dx, r + e, get(all_of, e) * (prob_grad(dr, dp, chosen, all_of, n, e) - mean));
    }
}

/* ---- dispatch and combine: tokens[.., s, d] and slots[.., expert, slot, d] ---- */

/* Slot of token s at expert e, or -1: how many before it chose the expert. */
static int64_t slot_of(const Sparse *m, Reals route, int64_t s, int64_t e)
{
    int64_t before = 0;
    if (get(route, s * m->experts + e) == 0)
        return -1;
    for (int64_t i = 0; i < s; i++)
        before += get(route, i * m->experts + e) != 0;
    return before < m->slots ? before : -1;
}

REF_KERNEL(dispatch)
{
    Sparse m = sparse_of(c->argt[0], c->outt[0]);
    Reals x = ARG(0), route = ARG(1), y = OUT(0);
    clear(c->outt[0], c->out[0]);
    for (int64_t i = 0; c->out[1] && i < tensor_elements(c->outt[1]); i++)
        int_put(c->outt[1], c->out[1], i, -1);
    for (int64_t r = 0; r < m.groups * m.s * m.experts; r++) {
        int64_t g = r / (m.s * m.experts), s = r / m.experts % m.s, e = r % m.experts;
        int64_t slot = slot_of(&m, reals_from(route, g * m.s * m.experts), s, e), at = (g * m.experts + e) * m.slots + slot;
        if (slot < 0)
            continue;
        for (int64_t i = 0; i < m.d; i++)
            put(y, at * m.d + i, get(x, (g * m.s + s) * m.d + i));
        if (c->out[1])
            int_put(c->outt[1], c->out[1], at, s);
    }
}

REF_KERNEL(dispatch_grad)
{
    Sparse m = sparse_of(c->outt[0], c->argt[0]);
    Reals dy = ARG(0), dx = OUT(0);
    clear(c->outt[0], c->out[0]);
    for (int64_t at = 0; at < m.groups * m.experts * m.slots; at++) {
        int64_t s = int_at(c->argt[1], c->arg[1], at), g = at / (m.experts * m.slots);
        for (int64_t i = 0; s >= 0 && i < m.d; i++)
            give(dx, (g * m.s + s) * m.d + i, get(dy, at * m.d + i), true);
    }
}

REF_KERNEL(combine)
{
    Sparse m = sparse_of(c->outt[0], c->argt[0]);
    Reals y = ARG(0), route = ARG(1), out = OUT(0);
    clear(c->outt[0], c->out[0]);
    for (int64_t at = 0; at < m.groups * m.experts * m.slots; at++) {
        int64_t s = int_at(c->argt[2], c->arg[2], at), g = at / (m.experts * m.slots), e = at / m.slots % m.experts;
        for (int64_t i = 0; s >= 0 && i < m.d; i++)
            give(out, (g * m.s + s) * m.d + i, get(route, (g * m.s + s) * m.experts + e) * get(y, at * m.d + i), true);
    }
}

REF_KERNEL(combine_grad)
{
    Sparse m = sparse_of(c->argt[0], c->argt[1]);
    Reals dout = ARG(0), y = ARG(1), route = ARG(2), dy = OUT(0), droute = OUT(1);
    clear(c->outt[1], c->out[1]);
    for (int64_t at = 0; at < m.groups * m.experts * m.slots; at++) {
        int64_t s = int_at(c->argt[3], c->arg[3], at), g = at / (m.experts * m.slots), e = at / m.slots % m.experts;
        int64_t r = (g * m.s + s) * m.experts + e, token = (g * m.s + s) * m.d;
        double sum = 0;
        for (int64_t i = 0; i < m.d; i++) {
            sum += s < 0 ? 0 : get(dout, token + i) * get(y, at * m.d + i);
            if (dy.at)
                put(dy, at * m.d + i, s < 0 ? 0 : get(route, r) * get(dout, token + i));
        }
        if (droute.at && s >= 0)
            put(droute, r, sum);
    }
}

/* ---- load balance ---- */

/* Part of the tokens of a sequence that chose expert e; no gradient flows through it. */
static double share(Reals route, int64_t s, int64_t n, int64_t e)
{
    double chosen = 0;
    for (int64_t i = 0; i < s; i++)
        chosen += get(route, i * n + e) != 0;
    return chosen / (double)s;
}

REF_KERNEL(load_balance)
{
    Reals route = ARG(0), prob = ARG(1), y = OUT(0);
    int64_t n = row_length(c->argt[0]), s = c->argt[0]->axis[c->argt[0]->rank - 2].local;
    for (int64_t g = 0; g < tensor_elements(c->outt[0]); g++) {
        double sum = 0;
        for (int64_t i = 0; i < s * n; i++)
            sum += share(reals_from(route, g * s * n), s, n, i % n) * get(prob, g * s * n + i);
        put(y, g, sum * (double)n / (double)s);
    }
}

REF_KERNEL(load_balance_grad)
{
    Reals dy = ARG(0), route = ARG(1), dprob = OUT(0);
    int64_t n = row_length(c->argt[1]), s = c->argt[1]->axis[c->argt[1]->rank - 2].local;
    for (int64_t i = 0; i < tensor_elements(c->outt[0]); i++) {
        int64_t g = i / (s * n);
        put(dprob, i, get(dy, g) * share(reals_from(route, g * s * n), s, n, i % n) * (double)n / (double)s);
    }
}
