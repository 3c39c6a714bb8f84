/* Softmax over the last axis and cross entropy, a row per worker at a time: the
 * maximum and the sum of exponentials in one pass over the row, and the gradient in
 * a second one, while the row is still in the cache. */
#include "kernels/cpu/rows.h"

enum { BLOCK = 1024 };                /* elements between two looks at the maximum */

typedef struct Lse { double top, sum; } Lse;

static void lse_block(Lse *l, const float *x, int64_t n)
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
        a += vec_exp(vec_load(x + i) - t);
        b += vec_exp(vec_load(x + i + LANES) - t);
    }
    l->sum += (double)vec_sum(a + b);
    for (; i < n; i++)
        l->sum += exp((double)x[i] - l->top);
}

static double row_lse(const float *x, int64_t n)
{
    Lse l = {-INFINITY, 0};
    for (int64_t i = 0; i < n; i += BLOCK)
        lse_block(&l, x + i, n - i < BLOCK ? n - i : BLOCK);
    return l.top + log(l.sum);
}

/* out = by e^(x - lse) - off; may lie in x's memory. */
static void row_exp(const float *x, int64_t n, double lse, float by, float off, float *out)
{
    const Vec l = vec_all((float)lse), rest = vec_all((float)((double)(float)lse - lse)), b = vec_all(by), o = vec_all(-off);
    for (int64_t i = 0; i < n; i += LANES)
        vec_give(out + i, vec_fma(b, vec_exp(vec_take(x + i, n - i) - l + rest), o), n - i);
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
        const float *x = ARG_F32(0) + i * r->d;
        row_exp(x, r->d, row_lse(x, r->d), 1, 0, OUT_F32(0) + i * r->d);
    }
}

CPU_KERNEL(softmax, f32)
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
        const float *dy = ARG_F32(0) + k * d, *y = ARG_F32(1) + k * d;
        float *dx = OUT_F32(0) + k * d;
        Vec sum = vec_all(0);
        for (int64_t i = 0; i < d; i += LANES)
            sum = vec_fma(vec_take(dy + i, d - i), vec_take(y + i, d - i), sum);
        sum = vec_all(vec_sum(sum));
        for (int64_t i = 0; i < d; i += LANES)
            vec_give(dx + i, vec_take(y + i, d - i) * (vec_take(dy + i, d - i) - sum), d - i);
    }
}

CPU_KERNEL(softmax_grad, f32)
{
    Rows r = rows_of(c);
    team_run(c->team, softmax_grad_some, &r);
}

/* ---- cross entropy ---- */

typedef struct Entropy {
    const KCall *c;
    int          logits, labels;      /* arguments */
    int          lse_out, grad_out;   /* results; -1: not made */
    const float *lse;                 /* saved by the forward op, or NULL */
    FactorSet    over;                /* the rows */
    int64_t      rows, n;
    double       smooth, by;          /* by: gradient of the loss over the number of valid labels */
    double       piece[SUM_PIECES];   /* losses */
} Entropy;

static Entropy entropy_of(const KCall *c, int logits, int labels)
{
    Entropy e = {.c = c, .logits = logits, .labels = labels, .lse_out = -1, .grad_out = -1,
                 .n = row_length(c->argt[logits]), .smooth = attr_real(c, "smooth")};
    e.over = arg_factors(c, logits) & ~(1u << c->in->arg_factor[logits][c->argt[logits]->rank - 1]);
    e.rows = set_extent(c, e.over);
    return e;
}

/* (1 - s) (lse - logit of the label) + s (lse - mean of the logits) */
static double entropy_loss(const Entropy *e, const float *x, double lse, int64_t label)
{
    double mean = 0;
    for (int64_t i = 0; e->smooth != 0 && i < e->n; i += BLOCK)
        mean += (double)row_sum(x + i, e->n - i < BLOCK ? e->n - i : BLOCK) / (double)e->n;
    assert(label >= 0 && label < e->n && "a label outside the classes");
    return (1 - e->smooth) * (lse - (double)x[label]) + e->smooth * (lse - mean);
}

static void entropy_grad(const Entropy *e, const float *x, double lse, int64_t label, double by, float *out)
{
    if (by == 0) {
        memset(out, 0, sizeof *out * (size_t)e->n);
        return;
    }
    double own = (double)x[label], off = by * e->smooth / (double)e->n;
    row_exp(x, e->n, lse, (float)by, (float)off, out);
    out[label] = (float)(by * (exp(own - lse) - (1 - e->smooth)) - off);
}

/* Loss of the row where w stands; 0 when its label does not count. */
static double entropy_row(const Entropy *e, const Walk *w)
{
    const KCall *c = e->c;
    const float *x = (const float *)c->arg[e->logits] + w->at[e->logits];
    int64_t label = int_at(c->argt[e->labels], c->arg[e->labels], w->at[e->labels]);
    bool counts = label_counts(c, label);
    double lse = e->lse ? (double)e->lse[w->at[3]] : counts || e->lse_out >= 0 ? row_lse(x, e->n) : 0;
    if (e->lse_out >= 0 && c->out[e->lse_out])
        ((float *)c->out[e->lse_out])[w->at[MAX_ARGS + e->lse_out]] = (float)lse;
    double loss = counts && !e->lse ? entropy_loss(e, x, lse, label) : 0;
    if (e->grad_out >= 0)
        entropy_grad(e, x, lse, label, counts ? e->by : 0, (float *)c->out[e->grad_out] + w->at[MAX_ARGS + e->grad_out]);
    return loss;
}

static void entropy_some(void *ctx, int worker, int nworker)
{
    Entropy *e = ctx;
    int64_t first, end;
    team_part(SUM_PIECES, 1, worker, nworker, &first, &end);
    for (int64_t k = first; k < end; k++) {
        int64_t a, b;
        team_part(e->rows, 1, (int)k, SUM_PIECES, &a, &b);
        Walk w = walk_over(e->c, e->over);
        walk_seek(&w, a);
        double sum = 0;
        for (int64_t i = a; i < b; i++, walk_next(&w))
            sum += entropy_row(e, &w);
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

CPU_KERNEL(cross_entropy, f32)
{
    Entropy e = entropy_of(c, 0, 1);
    e.lse_out = c->in->nout > 1 ? 1 : -1;
    double count = real_at(c->argt[2], c->arg[2], 0), loss = entropy_sum(&e);
    give_loss(c, count > 0 ? loss / count : 0);
}

CPU_KERNEL(cross_entropy_grad, f32)
{
    Entropy e = entropy_of(c, 1, 2);
    double count = real_at(c->argt[4], c->arg[4], 0);
    e.by = count > 0 ? real_at(c->argt[0], c->arg[0], 0) / count : 0;
    e.lse = ARG_F32(3);
    e.grad_out = 0;
    entropy_sum(&e);
}

CPU_KERNEL(cross_entropy_both, f32)
{
    Entropy e = entropy_of(c, 0, 1);
    double count = real_at(c->argt[2], c->arg[2], 0), inverse = count > 0 ? 1 / count : 0;
    e.by = attr_real(c, "seed") * inverse * (c->arg[3] ? real_at(c->argt[3], c->arg[3], 0) : 1);
    e.grad_out = 1;
    double loss = entropy_sum(&e);
    give_loss(c, loss * inverse);
}
