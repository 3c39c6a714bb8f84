/* Attention: softmax(scale q k^T + bias + mask) v, a row of scores at a time, and
 * its gradient by the saved log-sum-exp (Rabe, Staats 2021; Dao et al. 2022).
 *
 * q is [.., s, h, e], k and v [.., t, g, e]; query head h reads key head
 * h / (heads / key heads).  Dropout draws element [.., h, s, t] of the whole
 * matrix of probabilities, row-major in that order. */
#ifndef REAL
#include "kernels/heads.h"
#include "kernels/ref/ref.h"

static double heads_kept(const KCall *c, const Heads *n, int64_t row, int64_t j)
{
    if (n->dropout == 0)
        return 1;
    int64_t i = place_row(&n->matrix, row, c->step->micro) + j;
    return random_word(c, n->random, i) >= dropout_threshold(n->dropout) ? 1 / (1 - n->dropout) : 0;
}

#define THIS "kernels/ref/attention.c"
#include "kernels/each_real.h"
#else

/* What the forward op and its gradient read, and where they stand: offsets of the
 * current leading index. */
typedef struct NAME(Attention) {
    const REAL    *q, *k, *v, *bias;
    const KCall   *c;
    const uint8_t *mask;              /* [.., t]: true is attended */
    Heads          n;
    int64_t        at_q, at_k, at_v, at_mask, at_doc;
    int64_t        lead;              /* number of the leading index */
} NAME(Attention);

static NAME(Attention) NAME(attention)(const KCall *c, int q, int mask)
{
    return (NAME(Attention)){.q = ARG(q), .k = ARG(q + 1), .v = ARG(q + 2), .bias = ARG(mask + 1), .c = c,
                             .mask = c->arg[mask], .n = heads_of(c, q, mask + 2)};
}

static void NAME(stand)(NAME(Attention) *a, const Walk *w, int q, int mask)
{
    a->at_q = w->at[q];
    a->at_k = w->at[q + 1];
    a->at_v = w->at[q + 2];
    a->at_mask = w->at[mask];
    a->at_doc = w->at[mask + 2];
}

static bool NAME(visible)(const NAME(Attention) *a, int64_t i, int64_t j)
{
    return (!a->mask || a->mask[a->at_mask + j]) && heads_visible(&a->n, a->at_doc, i, j);
}

/* Score of query i, head h, and key j. */
static double NAME(score)(const NAME(Attention) *a, int64_t i, int64_t h, int64_t j)
{
    const Heads *n = &a->n;
    const REAL *q = a->q + a->at_q + (i * n->h + h) * n->e;
    const REAL *k = a->k + a->at_k + (j * n->g + heads_key(n, h)) * n->e;
    double sum = 0;
    for (int64_t x = 0; x < n->e; x++)
        sum += (double)q[x] * (double)k[x];
    return sum * n->scale + (a->bias ? (double)a->bias[(h * n->s + i) * n->t + j] : 0);
}

/* log of the sum of exp(score) over the visible keys; -inf when none is. */
static double NAME(lse)(const NAME(Attention) *a, int64_t i, int64_t h)
{
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->n.t; j++) {
        if (!NAME(visible)(a, i, j))
            continue;
        double x = NAME(score)(a, i, h, j), higher = x > top ? x : top;
        if (higher == -INFINITY)
            continue;
        sum = sum * exp(top - higher) + exp(x - higher);
        top = higher;
    }
    return sum > 0 ? top + log(sum) : -INFINITY;
}

/* What dropout multiplies the probability by: 0 or 1 / (1 - p). */
static double NAME(kept)(const NAME(Attention) *a, int64_t i, int64_t h, int64_t j)
{
    return heads_kept(a->c, &a->n, (a->lead * a->n.h + h) * a->n.s + i, j);
}

static void NAME(attend)(const NAME(Attention) *a, int64_t i, int64_t h, double lse, double *sum, REAL *y)
{
    const Heads *n = &a->n;
    memset(sum, 0, sizeof *sum * (size_t)n->e);
    for (int64_t j = 0; j < n->t; j++) {
        if (!NAME(visible)(a, i, j))
            continue;
        double p = exp(NAME(score)(a, i, h, j) - lse) * NAME(kept)(a, i, h, j);
        const REAL *v = a->v + a->at_v + (j * n->g + heads_key(n, h)) * n->e;
        for (int64_t x = 0; x < n->e; x++)
            sum[x] += p * (double)v[x];
    }
    for (int64_t x = 0; x < n->e; x++)
        y[x] = (REAL)sum[x];
}

REF_KERNEL(attention)
{
    NAME(Attention) a = NAME(attention)(c, 0, 3);
    const Heads *n = &a.n;
    REAL *y = OUT(0), *save = OUT(1);
    for (Walk w = walk_over(c, heads_leading(c, 0)); w.more; walk_next(&w), a.lead++) {
        NAME(stand)(&a, &w, 0, 3);
        for (int64_t r = 0; r < n->s * n->h; r++) {
            int64_t i = r / n->h, h = r % n->h;
            double lse = NAME(lse)(&a, i, h);
            NAME(attend)(&a, i, h, lse, c->work, y + w.at[MAX_ARGS] + r * n->e);
            if (save)
                save[w.at[MAX_ARGS + 1] + r] = (REAL)lse;
        }
    }
}

/* Gradients of one query: D = dy . y, then per key P = exp(score - lse),
 * dS = P (kept dy . v - D). */
typedef struct NAME(Gradient) { const REAL *dy, *y; REAL *dq, *dk, *dv, *dbias; double lse; } NAME(Gradient);

static void NAME(key_grad)(const NAME(Attention) *a, const NAME(Gradient) *g, int64_t i, int64_t h, int64_t j, double d)
{
    const Heads *n = &a->n;
    int64_t key = (j * n->g + heads_key(n, h)) * n->e, query = (i * n->h + h) * n->e;
    const REAL *q = a->q + a->at_q + query, *k = a->k + a->at_k + key, *v = a->v + a->at_v + key;
    double p = exp(NAME(score)(a, i, h, j) - g->lse), kept = NAME(kept)(a, i, h, j), dp = 0;
    for (int64_t x = 0; x < n->e; x++)
        dp += (double)g->dy[query + x] * (double)v[x];
    double ds = p * (kept * dp - d);
    for (int64_t x = 0; x < n->e; x++) {
        if (g->dq)
            g->dq[query + x] += (REAL)(n->scale * ds * (double)k[x]);
        if (g->dk)
            g->dk[key + x] += (REAL)(n->scale * ds * (double)q[x]);
        if (g->dv)
            g->dv[key + x] += (REAL)(p * kept * (double)g->dy[query + x]);
    }
    if (g->dbias)
        g->dbias[(h * n->s + i) * n->t + j] += (REAL)ds;
}

static void NAME(query_grad)(const NAME(Attention) *a, const NAME(Gradient) *g, int64_t i, int64_t h)
{
    const Heads *n = &a->n;
    double d = 0;
    for (int64_t x = 0; x < n->e; x++)
        d += (double)g->dy[(i * n->h + h) * n->e + x] * (double)g->y[(i * n->h + h) * n->e + x];
    for (int64_t j = 0; j < n->t; j++)
        if (NAME(visible)(a, i, j))
            NAME(key_grad)(a, g, i, h, j, d);
}

static REAL *NAME(cleared)(const KCall *c, int out)
{
    REAL *p = OUT(out);
    if (p)
        memset(p, 0, sizeof *p * (size_t)tensor_elements(c->outt[out]));
    return p;
}

static REAL *NAME(moved)(REAL *p, int64_t at)
{
    return p ? p + at : NULL;
}

REF_KERNEL(attention_grad)
{
    NAME(Attention) a = NAME(attention)(c, 1, 6);
    const Heads *n = &a.n;
    const REAL *dy = ARG(0), *y = ARG(4), *lse = ARG(5);
    REAL *dq = NAME(cleared)(c, 0), *dk = NAME(cleared)(c, 1), *dv = NAME(cleared)(c, 2), *dbias = NAME(cleared)(c, 3);
    for (Walk w = walk_over(c, heads_leading(c, 1)); w.more; walk_next(&w), a.lead++) {
        NAME(stand)(&a, &w, 1, 6);
        for (int64_t r = 0; r < n->s * n->h; r++) {
            NAME(Gradient) g = {dy + w.at[0], y + w.at[4], NAME(moved)(dq, w.at[MAX_ARGS]), NAME(moved)(dk, w.at[MAX_ARGS + 1]),
                                NAME(moved)(dv, w.at[MAX_ARGS + 2]), dbias, (double)lse[w.at[5] + r]};
            NAME(query_grad)(&a, &g, r / n->h, r % n->h);
        }
    }
}

#endif
