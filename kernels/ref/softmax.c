/* Softmax over the last axis, and cross entropy with everything that goes with it. */
#ifndef REAL
#include "kernels/classes.h"
#include "kernels/ref/ref.h"

#define THIS "kernels/ref/softmax.c"
#include "kernels/each_real.h"
#else

/* The largest of some numbers, and the sum of exponentials of what they lie below it. */
static ClassStats NAME(stats)(const REAL *x, int64_t n)
{
    ClassStats s = {.top = -INFINITY};
    for (int64_t i = 0; i < n; i++)
        s.top = (double)x[i] > s.top ? (double)x[i] : s.top;
    for (int64_t i = 0; i < n; i++)
        s.sum += stats_exp((double)x[i], s.top);
    return s;
}

REF_KERNEL(softmax)
{
    const REAL *x = ARG(0);
    REAL *y = OUT(0);
    int64_t d = row_length(c->argt[0]), n = tensor_elements(c->argt[0]);
    for (int64_t r = 0; r < n; r += d) {
        ClassStats s = NAME(stats)(x + r, d);
        double lse = stats_lse(&s);
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

/* A row of logits. */
static ClassStats NAME(row_stats)(const Classes *k, const REAL *x, bool counts, int64_t label)
{
    ClassStats s = NAME(stats)(x, k->valid);
    int64_t column = counts ? classes_column(k, label) : -1;
    s.target = column >= 0 ? (double)x[column] : 0;
    for (int64_t i = 0; i < k->valid; i++)
        s.total += (double)x[i];
    return s;
}

/* The gradient of its loss times `by`; a row that does not count has none.  May
 * overwrite the logits. */
static void NAME(row_grad)(const Classes *k, const REAL *x, double lse, int64_t label, double smooth, double by, REAL *out)
{
    int64_t column = by == 0 ? -1 : classes_column(k, label);
    for (int64_t i = 0; i < k->columns; i++) {
        double target = (i == column ? 1 - smooth : 0) + smooth / (double)k->all;
        out[i] = by == 0 || i >= k->valid ? 0 : (REAL)(by * (exp((double)x[i] - lse) - target));
    }
}

REF_KERNEL(cross_entropy)
{
    Classes k = classes_of(c, 0);
    const REAL *logits = ARG(0);
    REAL *save = OUT(1);
    double loss = 0, count = real_at(c->argt[2], c->arg[2], 0);
    for (Walk w = walk_over(c, k.rows); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[1], c->arg[1], w.at[1]);
        bool counts = label_counts(c, label);
        ClassStats s = NAME(row_stats)(&k, logits + w.at[0], counts, label);
        if (save)
            save[w.at[MAX_ARGS + 1]] = (REAL)stats_lse(&s);
        loss += counts ? stats_loss(&s, attr_real(c, "smooth"), k.all) : 0;
    }
    give_loss(c, count > 0 ? loss / count : 0);
}

REF_KERNEL(cross_entropy_grad)
{
    Classes k = classes_of(c, 1);
    const REAL *logits = ARG(1), *lse = ARG(3);
    REAL *dx = OUT(0);
    double count = real_at(c->argt[4], c->arg[4], 0), by = count > 0 ? real_at(c->argt[0], c->arg[0], 0) / count : 0;
    for (Walk w = walk_over(c, k.rows); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[2], c->arg[2], w.at[2]);
        NAME(row_grad)(&k, logits + w.at[1], (double)lse[w.at[3]], label, attr_real(c, "smooth"), label_counts(c, label) ? by : 0,
                       dx + w.at[MAX_ARGS]);
    }
}

/* Loss and gradient in one pass; `seed` and the optional dy are the gradient of
 * the loss. */
REF_KERNEL(cross_entropy_both)
{
    Classes k = classes_of(c, 0);
    const REAL *logits = ARG(0);
    REAL *dx = OUT(1);
    double loss = 0, count = real_at(c->argt[2], c->arg[2], 0), inverse = count > 0 ? 1 / count : 0, smooth = attr_real(c, "smooth");
    double by = attr_real(c, "seed") * inverse * (c->arg[3] ? real_at(c->argt[3], c->arg[3], 0) : 1);
    for (Walk w = walk_over(c, k.rows); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[1], c->arg[1], w.at[1]);
        bool counts = label_counts(c, label);
        ClassStats s = NAME(row_stats)(&k, logits + w.at[0], counts, label);
        loss += counts ? stats_loss(&s, smooth, k.all) : 0;
        NAME(row_grad)(&k, logits + w.at[0], stats_lse(&s), label, smooth, counts ? by : 0, dx + w.at[MAX_ARGS + 1]);
    }
    give_loss(c, loss * inverse);
}

REF_KERNEL(cross_entropy_stats)
{
    Classes k = classes_of(c, 0);
    const REAL *logits = ARG(0);
    for (Walk w = walk_over(c, k.rows); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[1], c->arg[1], w.at[1]);
        ClassStats s = NAME(row_stats)(&k, logits + w.at[0], label_counts(c, label), label);
        stats_put(c, w.at[MAX_ARGS], &s);
    }
}

REF_KERNEL(cross_entropy_merge)
{
    Merge m = merge_of(c);
    double loss = 0, count = real_at(c->argt[2], c->arg[2], 0);
    for (Walk w = walk_over(c, m.rows); w.more; walk_next(&w))
        loss += merge_row(c, &m, &w);
    give_loss(c, count > 0 ? loss / count : 0);
}

REF_KERNEL(count_labels)
{
    double n = kcall_adds(c, 0) ? real_at(c->outt[0], c->out[0], 0) : 0;
    for (int64_t i = 0; i < tensor_elements(c->argt[0]); i++)
        n += label_counts(c, int_at(c->argt[0], c->arg[0], i));
    real_put(c->outt[0], c->out[0], 0, n);
}

#endif
