/* Softmax over the last axis and cross entropy, a row per worker at a time: the
 * maximum and the sum of exponentials in one pass over the row, and the gradient in
 * a second one, while the row is still in the cache. */
#include "kernels/classes.h"
#include "kernels/cpu/rows.h"

enum { BLOCK = 1024 };                /* elements between two looks at the maximum */

static void stats_block(ClassStats *l, Reals x, int64_t n)
{
    double top = (double)row_top(x, n);
    if (top > l->top) {
        l->sum *= exp(l->top - top);
        l->top = top;
    }
    if (l->top == -INFINITY)
        return;
    const Vec t = vec_all((float)l->top);
    Vec a = vec_all(0), b = vec_all(0);
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        a += vec_exp(lanes_load(x, i) - t);
        b += vec_exp(lanes_load(x, i + LANES) - t);
    }
    l->sum += (double)vec_sum(a + b);
    for (; i < n; i++)
        l->sum += exp(get(x, i) - l->top);
}

/* The largest of some numbers, and the sum of exponentials of what they lie below it. */
static ClassStats row_stats(Reals x, int64_t n)
{
    ClassStats l = {.top = -INFINITY};
    for (int64_t i = 0; i < n; i += BLOCK)
        stats_block(&l, reals_from(x, i), n - i < BLOCK ? n - i : BLOCK);
    return l;
}

static double row_lse(Reals x, int64_t n)
{
    ClassStats l = row_stats(x, n);
    return stats_lse(&l);
}

/* out = by e^(x - lse) - off; may lie in x's memory. */
static void row_exp(Reals x, int64_t n, double lse, float by, float off, Reals out)
{
    const Vec l = vec_all((float)lse), rest = vec_all((float)((double)(float)lse - lse)), b = vec_all(by), o = vec_all(-off);
    for (int64_t i = 0; i < n; i += LANES)
        lanes_give(out, i, vec_fma(b, vec_exp(lanes_take(x, i, n) - l + rest), o), n);
}

/* ---- softmax ---- */

typedef struct Rows { const KCall *c; int64_t rows, d; } Rows;

static Rows rows_of(const KCall *c)
{
    int64_t d = row_length(c->argt[0]);
    return (Rows){c, d ? tensor_elements(c->argt[0]) / d : 0, d};
}

static void softmax_some(void *ctx, int worker, int nworker)
{
    const Rows *r = ctx;
    const KCall *c = r->c;
    int64_t first, end;
    team_part(r->rows, 1, worker, nworker, &first, &end);
    for (int64_t i = first; i < end; i++) {
        Reals x = reals_from(ARG(0), i * r->d);
        row_exp(x, r->d, row_lse(x, r->d), 1, 0, reals_from(OUT(0), i * r->d));
    }
}

CPU_REALS(softmax)
{
    Rows r = rows_of(c);
    team_run(c->team, softmax_some, &r);
}

/* dx = y (dy - sum(dy y)) */
static void softmax_grad_some(void *ctx, int worker, int nworker)
{
    const Rows *r = ctx;
    const KCall *c = r->c;
    int64_t first, end, d = r->d;
    team_part(r->rows, 1, worker, nworker, &first, &end);
    for (int64_t k = first; k < end; k++) {
        Reals dy = reals_from(ARG(0), k * d), y = reals_from(ARG(1), k * d), dx = reals_from(OUT(0), k * d);
        Vec sum = vec_all(0);
        for (int64_t i = 0; i < d; i += LANES)
            sum = vec_fma(lanes_take(dy, i, d), lanes_take(y, i, d), sum);
        sum = vec_all(vec_sum(sum));
        for (int64_t i = 0; i < d; i += LANES)
            lanes_give(dx, i, lanes_take(y, i, d) * (lanes_take(dy, i, d) - sum), d);
    }
}

CPU_REALS(softmax_grad)
{
    Rows r = rows_of(c);
    team_run(c->team, softmax_grad_some, &r);
}

/* ---- cross entropy ---- */

typedef struct Entropy Entropy;
struct Entropy {
    const KCall *c;
    double     (*row)(const Entropy *, const Walk *);   /* loss of a row, 0 when its label does not count */
    int          logits, labels;      /* arguments */
    Classes      k;
    FactorSet    over;                /* the rows */
    double       smooth, by;          /* by: gradient of the loss over the number of valid labels */
    Merge        merge;
    double       piece[SUM_PIECES];   /* losses */
};

static Entropy entropy_of(const KCall *c, int logits, int labels)
{
    Entropy e = {.c = c, .logits = logits, .labels = labels, .k = classes_of(c, logits)};
    e.over = e.k.rows;
    return e;
}

static Reals entropy_logits(const Entropy *e, const Walk *w)
{
    const KCall *c = e->c;
    return reals_from(ARG(e->logits), w->at[e->logits]);
}

static int64_t entropy_label(const Entropy *e, const Walk *w)
{
    return int_at(e->c->argt[e->labels], e->c->arg[e->labels], w->at[e->labels]);
}

static double row_total(Reals x, int64_t n)
{
    double total = 0;
    for (int64_t i = 0; i < n; i += BLOCK)
        total += (double)row_sum(reals_from(x, i), n - i < BLOCK ? n - i : BLOCK);
    return total;
}

/* Stats of the row where w stands but for the total, which only smoothing needs. */
static ClassStats entropy_stats(const Entropy *e, const Walk *w, int64_t label)
{
    Reals x = entropy_logits(e, w);
    ClassStats s = row_stats(x, e->k.valid);
    int64_t column = label_counts(e->c, label) ? classes_column(&e->k, label) : -1;
    s.target = column >= 0 ? get(x, column) : 0;
    return s;
}

static double entropy_loss(const Entropy *e, const Walk *w, ClassStats *s)
{
    if (e->smooth != 0)
        s->total = row_total(entropy_logits(e, w), e->k.valid);
    return stats_loss(s, e->smooth, e->k.all);
}

/* May lie in the logits' memory. */
static void entropy_grad(const Entropy *e, const Walk *w, double lse, int64_t label, Reals out)
{
    Reals x = entropy_logits(e, w);
    double by = label_counts(e->c, label) ? e->by : 0;
    int64_t valid = by == 0 ? 0 : e->k.valid, column = by == 0 ? -1 : classes_column(&e->k, label);
    double own = column >= 0 ? get(x, column) : 0, off = by * e->smooth / (double)e->k.all;
    row_exp(x, valid, lse, (float)by, (float)off, out);
    if (column >= 0)
        put(out, column, by * (exp(own - lse) - (1 - e->smooth)) - off);
    memset(reals_from(out, valid).at, 0, (size_t)((e->k.columns - valid) * dtype_bytes(out.dtype)));
}

static void entropy_some(void *ctx, int worker, int nworker)
{
    Entropy *e = ctx;
    int64_t first, end, rows = set_extent(e->c, e->over);
    team_part(SUM_PIECES, 1, worker, nworker, &first, &end);
    for (int64_t k = first; k < end; k++) {
        int64_t a, b;
        team_part(rows, 1, (int)k, SUM_PIECES, &a, &b);
        Walk w = walk_over(e->c, e->over);
        walk_seek(&w, a);
        double sum = 0;
        for (int64_t i = a; i < b; i++, walk_next(&w))
            sum += e->row(e, &w);
        e->piece[k] = sum;
    }
}

static double entropy_sum(Entropy *e)
{
    team_run(e->c->team, entropy_some, e);
    double sum = 0;
    for (int k = 0; k < SUM_PIECES; k++)
        sum += e->piece[k];
    return sum;
}

static double loss_row(const Entropy *e, const Walk *w)
{
    const KCall *c = e->c;
    int64_t label = entropy_label(e, w);
    Reals save = c->in->nout > 1 ? OUT(1) : (Reals){0};
    bool counts = label_counts(c, label);
    if (!counts && !save.at)
        return 0;
    ClassStats s = entropy_stats(e, w, label);
    if (save.at)
        put(save, w->at[MAX_ARGS + 1], stats_lse(&s));
    return counts ? entropy_loss(e, w, &s) : 0;
}

CPU_REALS(cross_entropy)
{
    Entropy e = entropy_of(c, 0, 1);
    e.row = loss_row;
    e.smooth = attr_real(c, "smooth");
    double count = real_at(c->argt[2], c->arg[2], 0), loss = entropy_sum(&e);
    give_loss(c, count > 0 ? loss / count : 0);
}

static double grad_row(const Entropy *e, const Walk *w)
{
    const KCall *c = e->c;
    entropy_grad(e, w, get(ARG(3), w->at[3]), entropy_label(e, w), reals_from(OUT(0), w->at[MAX_ARGS]));
    return 0;
}

CPU_REALS(cross_entropy_grad)
{
    Entropy e = entropy_of(c, 1, 2);
    double count = real_at(c->argt[4], c->arg[4], 0);
    e.row = grad_row;
    e.smooth = attr_real(c, "smooth");
    e.by = count > 0 ? real_at(c->argt[0], c->arg[0], 0) / count : 0;
    entropy_sum(&e);
}

static double both_row(const Entropy *e, const Walk *w)
{
    const KCall *c = e->c;
    int64_t label = entropy_label(e, w);
    bool counts = label_counts(c, label);
    ClassStats s = counts ? entropy_stats(e, w, label) : (ClassStats){0};
    double loss = counts ? entropy_loss(e, w, &s) : 0;
    entropy_grad(e, w, counts ? stats_lse(&s) : 0, label, reals_from(OUT(1), w->at[MAX_ARGS + 1]));
    return loss;
}

CPU_REALS(cross_entropy_both)
{
    Entropy e = entropy_of(c, 0, 1);
    double count = real_at(c->argt[2], c->arg[2], 0), inverse = count > 0 ? 1 / count : 0;
    e.row = both_row;
    e.smooth = attr_real(c, "smooth");
    e.by = attr_real(c, "seed") * inverse * (c->arg[3] ? real_at(c->argt[3], c->arg[3], 0) : 1);
    double loss = entropy_sum(&e);
    give_loss(c, loss * inverse);
}

/* ---- cross entropy over a split class axis ---- */

static double stats_row(const Entropy *e, const Walk *w)
{
    ClassStats s = entropy_stats(e, w, entropy_label(e, w));
    s.total = row_total(entropy_logits(e, w), e->k.valid);
    stats_put(e->c, w->at[MAX_ARGS], &s);
    return 0;
}

CPU_REALS(cross_entropy_stats)
{
    Entropy e = entropy_of(c, 0, 1);
    e.row = stats_row;
    entropy_sum(&e);
}

static double parts_row(const Entropy *e, const Walk *w)
{
    return merge_row(e->c, &e->merge, w);
}

CPU_REALS(cross_entropy_merge)
{
    Entropy e = {.c = c, .row = parts_row, .merge = merge_of(c)};
    e.over = e.merge.rows;
    double count = real_at(c->argt[2], c->arg[2], 0), loss = entropy_sum(&e);
    give_loss(c, count > 0 ? loss / count : 0);
}
