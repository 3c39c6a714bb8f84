/* Softmax over the last axis, and cross entropy with everything that goes with it. */
#include "kernels/classes.h"
#include "kernels/ref/ref.h"

/* The largest of some numbers, and the sum of exponentials of what they lie below it. */
static ClassStats stats(Reals x, int64_t n)
{
    ClassStats s = {.top = -INFINITY};
    for (int64_t i = 0; i < n; i++)
        s.top = get(x, i) > s.top ? get(x, i) : s.top;
    for (int64_t i = 0; i < n; i++)
        s.sum += stats_exp(get(x, i), s.top);
    return s;
}

REF_KERNEL(softmax)
{
    Reals x = ARG(0), y = OUT(0);
    int64_t d = row_length(c->argt[0]), n = tensor_elements(c->argt[0]);
    for (int64_t r = 0; r < n; r += d) {
        ClassStats s = stats(reals_from(x, r), d);
        double lse = stats_lse(&s);
        for (int64_t i = 0; i < d; i++)
            put(y, r + i, exp(get(x, r + i) - lse));
    }
}

/* dx = y (dy - sum(dy y)) */
REF_KERNEL(softmax_grad)
{
    Reals dy = ARG(0), y = ARG(1), dx = OUT(0);
    int64_t d = row_length(c->argt[0]), n = tensor_elements(c->argt[0]);
    for (int64_t r = 0; r < n; r += d) {
        double sum = 0;
        for (int64_t i = 0; i < d; i++)
            sum += get(dy, r + i) * get(y, r + i);
        for (int64_t i = 0; i < d; i++)
            put(dx, r + i, get(y, r + i) * (get(dy, r + i) - sum));
    }
}

/* A row of logits. */
static ClassStats row_stats(const Classes *k, Reals x, bool counts, int64_t label)
{
    ClassStats s = stats(x, k->valid);
    int64_t column = counts ? classes_column(k, label) : -1;
    s.target = column >= 0 ? get(x, column) : 0;
    for (int64_t i = 0; i < k->valid; i++)
        s.total += get(x, i);
    return s;
}

/* The gradient of its loss times `by`; a row that does not count has none.  May
 * overwrite the logits. */
static void row_grad(const Classes *k, Reals x, double lse, int64_t label, double smooth, double by, Reals out)
{
    int64_t column = by == 0 ? -1 : classes_column(k, label);
    for (int64_t i = 0; i < k->columns; i++) {
        double target = (i == column ? 1 - smooth : 0) + smooth / (double)k->all;
        put(out, i, by == 0 || i >= k->valid ? 0 : by * (exp(get(x, i) - lse) - target));
    }
}

REF_KERNEL(cross_entropy)
{
    Classes k = classes_of(c, 0);
    Reals logits = ARG(0), save = OUT(1);
    double loss = 0, count = real_at(c->argt[2], c->arg[2], 0);
    for (Walk w = walk_over(c, k.rows); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[1], c->arg[1], w.at[1]);
        bool counts = label_counts(c, label);
        ClassStats s = row_stats(&k, reals_from(logits, w.at[0]), counts, label);
        if (save.at)
            put(save, w.at[MAX_ARGS + 1], stats_lse(&s));
        loss += counts ? stats_loss(&s, attr_real(c, "smooth"), k.all) : 0;
    }
    give_loss(c, count > 0 ? loss / count : 0);
}

REF_KERNEL(cross_entropy_grad)
{
    Classes k = classes_of(c, 1);
    Reals logits = ARG(1), lse = ARG(3), dx = OUT(0);
    double count = real_at(c->argt[4], c->arg[4], 0), by = count > 0 ? real_at(c->argt[0], c->arg[0], 0) / count : 0;
    for (Walk w = walk_over(c, k.rows); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[2], c->arg[2], w.at[2]);
        row_grad(&k, reals_from(logits, w.at[1]), get(lse, w.at[3]), label, attr_real(c, "smooth"), label_counts(c, label) ? by : 0,
                 reals_from(dx, w.at[MAX_ARGS]));
    }
}

/* Loss and gradient in one pass; `seed` and the optional dy are the gradient of
 * the loss. */
REF_KERNEL(cross_entropy_both)
{
    Classes k = classes_of(c, 0);
    Reals logits = ARG(0), dx = OUT(1);
    double loss = 0, count = real_at(c->argt[2], c->arg[2], 0), inverse = count > 0 ? 1 / count : 0, smooth = attr_real(c, "smooth");
    double by = attr_real(c, "seed") * inverse * (c->arg[3] ? real_at(c->argt[3], c->arg[3], 0) : 1);
    for (Walk w = walk_over(c, k.rows); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[1], c->arg[1], w.at[1]);
        bool counts = label_counts(c, label);
        ClassStats s = row_stats(&k, reals_from(logits, w.at[0]), counts, label);
        loss += counts ? stats_loss(&s, smooth, k.all) : 0;
        row_grad(&k, reals_from(logits, w.at[0]), stats_lse(&s), label, smooth, counts ? by : 0, reals_from(dx, w.at[MAX_ARGS + 1]));
    }
    give_loss(c, loss * inverse);
}

REF_KERNEL(cross_entropy_stats)
{
    Classes k = classes_of(c, 0);
    Reals logits = ARG(0);
    for (Walk w = walk_over(c, k.rows); w.more; walk_next(&w)) {
        int64_t label = int_at(c->argt[1], c->arg[1], w.at[1]);
        ClassStats s = row_stats(&k, reals_from(logits, w.at[0]), label_counts(c, label), label);
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
