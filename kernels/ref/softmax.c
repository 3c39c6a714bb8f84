/* Softmax over the last axis, and cross entropy with everything that goes with it. */
#ifndef REAL
#include "kernels/ref/ref.h"

#define THIS "kernels/ref/softmax.c"
#include "kernels/each_real.h"
#else

static double NAME(log_sum_exp)(const REAL *x, int64_t n)
{
    double top = (double)x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        top = (double)x[i] > top ? (double)x[i] : top;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    return top + log(sum);
}

REF_KERNEL(softmax)
{
    const REAL *x = ARG(0);
    REAL *y = OUT(0);
    int64_t d = row_length(c->argt[0]), n = tensor_elements(c->argt[0]);
    for (int64_t r = 0; r < n; r += d) {
        double lse = NAME(log_sum_exp)(x + r, d);
        for (int64_t i = 0; i < d; i++)
            y[r + i] = (REAL)exp((double)x[r + i] - lse);
    }
}

/* dx = y (dy - sum(dy y)) */
REF_KERNEL(softmax_grad)
{
    const REAL *dy = ARG(0), *y = ARG(1);
    REAL *dx = OUT(0);
    int64_t d = row_length(c->argt[0]), n = tensor_elements(c->argt[0]);
    for (int64_t r = 0; r < n; r += d) {
        double sum = 0;
        for (int64_t i = 0; i < d; i++)
            sum += (double)dy[r + i] * (double)y[r + i];
        for (int64_t i = 0; i < d; i++)
            dx[r + i] = (REAL)((double)y[r + i] * ((double)dy[r + i] - sum));
    }
}

/* Rows of logits: the class axis is the last one. */
typedef struct NAME(Classes) { const REAL *logits; int64_t n; double smooth; } NAME(Classes);

static NAME(Classes) NAME(classes)(const KCall *c, int arg)
{
    return (NAME(Classes)){ARG(arg), row_length(c->argt[arg]), attr_real(c, "smooth")};
}

/* Loss of a row: (1 - s) (lse - logit of the label) + s (lse - mean of the logits). */
static double NAME(row_loss)(const NAME(Classes) *k, int64_t at, double lse, int64_t label)
{
    double mean = 0;
    for (int64_t i = 0; i < k->n; i++)
        mean += (double)k->logits[at + i] / (double)k->n;
    assert(label >= 0 && label < k->n && "a label outside the classes");
    return (1 - k->smooth) * (lse - (double)k->logits[at + label]) + k->smooth * (lse - mean);
}

/* Its gradient times `by`; a row that does not count has none.  May overwrite the logits. */
static void NAME(row_grad)(const NAME(Classes) *k, int64_t at, double lse, int64_t label, double by, REAL *out)
{
    for (int64_t i = 0; i < k->n; i++) {
        double target = (i == label ? 1 - k->smooth : 0) + k->smooth / (double)k->n;
        out[i] = by == 0 ? 0 : (REAL)(by * (exp((double)k->logits[at + i] - lse) - target));
    }
}

static FactorSet NAME(row_factors)(const KCall *c, int logits)
{
    return arg_factors(c, logits) & ~(1u << c->in->arg_factor[logits][c->argt[logits]->rank - 1]);
}

REF_KERNEL(cross_entropy)
{
    NAME(Classes) k = NAME(classes)(c, 0);
    REAL *save = OUT(1);
    double loss = 0, count = real_at(c->argt[2], c->arg[2], 0);
    for (Walk w = walk_over(c, NAME(row_factors)(c, 0)); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[1], c->arg[1], w.at[1]);
        double lse = NAME(log_sum_exp)(k.logits + w.at[0], k.n);
        if (save)
            save[w.at[MAX_ARGS + 1]] = (REAL)lse;
        if (label_counts(c, label))
            loss += NAME(row_loss)(&k, w.at[0], lse, label);
    }
    give_loss(c, count > 0 ? loss / count : 0);
}

REF_KERNEL(cross_entropy_grad)
{
    NAME(Classes) k = NAME(classes)(c, 1);
    const REAL *lse = ARG(3);
    REAL *dx = OUT(0);
    double count = real_at(c->argt[4], c->arg[4], 0), by = count > 0 ? real_at(c->argt[0], c->arg[0], 0) / count : 0;
    for (Walk w = walk_over(c, NAME(row_factors)(c, 1)); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[2], c->arg[2], w.at[2]);
        NAME(row_grad)(&k, w.at[1], (double)lse[w.at[3]], label, label_counts(c, label) ? by : 0, dx + w.at[MAX_ARGS]);
    }
}

/* Loss and gradient in one pass; `seed` and the optional dy are the gradient of
 * the loss. */
REF_KERNEL(cross_entropy_both)
{
    NAME(Classes) k = NAME(classes)(c, 0);
    REAL *dx = OUT(1);
    double loss = 0, count = real_at(c->argt[2], c->arg[2], 0), inverse = count > 0 ? 1 / count : 0;
    double by = attr_real(c, "seed") * inverse * (c->arg[3] ? real_at(c->argt[3], c->arg[3], 0) : 1);
    for (Walk w = walk_over(c, NAME(row_factors)(c, 0)); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[1], c->arg[1], w.at[1]);
        double lse = NAME(log_sum_exp)(k.logits + w.at[0], k.n);
        bool counts = label_counts(c, label);
        if (counts)
            loss += NAME(row_loss)(&k, w.at[0], lse, label);
        NAME(row_grad)(&k, w.at[0], lse, label, counts ? by : 0, dx + w.at[MAX_ARGS + 1]);
    }
    give_loss(c, loss * inverse);
}

REF_KERNEL(count_labels)
{
    double n = kcall_adds(c, 0) ? real_at(c->outt[0], c->out[0], 0) : 0;
    for (int64_t i = 0; i < tensor_elements(c->argt[0]); i++)
        n += label_counts(c, int_at(c->argt[0], c->arg[0], i));
    real_put(c->outt[0], c->out[0], 0, n);
}

#endif
