/* Attention: softmax(scale q k^T + bias + mask) v, a row of scores at a time, and
 * its gradient by the saved log-sum-exp (Rabe, Staats 2021; Dao et al. 2022).
 *
 * q is [.., s, h, e], k and v [.., t, g, e]; query head h reads key head
 * h / (heads / key heads).  Dropout draws element [.., h, s, t] of the whole
 * matrix of probabilities, row-major in that order. */
#include "kernels/heads.h"
#include "kernels/ref/ref.h"

static double heads_kept(const KCall *c, const Heads *n, int64_t row, int64_t j)
{
    if (n->dropout == 0)
        return 1;
    int64_t i = place_row(&n->matrix, row, c->step->micro) + j;
    return random_word(c, n->random, i) >= dropout_threshold(n->dropout) ? 1 / (1 - n->dropout) : 0;
}

/* What the forward op and its gradient read, and where they stand: offsets of the
 * current leading index. */
typedef struct Attention {
    Reals          q, k, v, bias;
    const KCall   *c;
    const uint8_t *mask;              /* [.., t]: true is attended */
    Heads          n;
    int64_t        at_q, at_k, at_v, at_mask, at_doc;
    int64_t        lead;              /* number of the leading index */
} Attention;

static Attention attention(const KCall *c, int q, int mask)
{
    return (Attention){.q = ARG(q), .k = ARG(q + 1), .v = ARG(q + 2), .bias = ARG(mask + 1), .c = c,
                       .mask = c->arg[mask], .n = heads_of(c, q, mask + 2)};
}

static void stand(Attention *a, const Walk *w, int q, int mask)
{
    a->at_q = w->at[q];
    a->at_k = w->at[q + 1];
    a->at_v = w->at[q + 2];
    a->at_mask = w->at[mask];
    a->at_doc = w->at[mask + 2];
}

static bool visible(const Attention *a, int64_t i, int64_t j)
{
    return (!a->mask || a->mask[a->at_mask + j]) && heads_visible(&a->n, a->at_doc, i, j);
}

/* Score of query i, head h, and key j. */
static double score(const Attention *a, int64_t i, int64_t h, int64_t j)
{
    const Heads *n = &a->n;
    int64_t q = a->at_q + (i * n->h + h) * n->e, k = a->at_k + (j * n->g + heads_key(n, h)) * n->e;
    double sum = 0;
    for (int64_t x = 0; x < n->e; x++)
        sum += get(a->q, q + x) * get(a->k, k + x);
    return sum * n->scale + (a->bias.at ? get(a->bias, (h * n->s + i) * n->t + j) : 0);
}

/* log of the sum of exp(score) over the visible keys; -inf when none is. */
static double log_sum(const Attention *a, int64_t i, int64_t h)
{
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->n.t; j++) {
        if (!visible(a, i, j))
            continue;
        double x = score(a, i, h, j), higher = x > top ? x : top;
        if (higher == -INFINITY)
            continue;
        sum = sum * exp(top - higher) + exp(x - higher);
        top = higher;
    }
    return sum > 0 ? top + log(sum) : -INFINITY;
}

/* What dropout multiplies the probability by: 0 or 1 / (1 - p). */
static double kept(const Attention *a, int64_t i, int64_t h, int64_t j)
{
    return heads_kept(a->c, &a->n, (a->lead * a->n.h + h) * a->n.s + i, j);
}

static void attend(const Attention *a, int64_t i, int64_t h, double lse, double *sum, Reals y)
{
    const Heads *n = &a->n;
    memset(sum, 0, sizeof *sum * (size_t)n->e);
    for (int64_t j = 0; j < n->t; j++) {
        if (!visible(a, i, j))
            continue;
        double p = exp(score(a, i, h, j) - lse) * kept(a, i, h, j);
        int64_t v = a->at_v + (j * n->g + heads_key(n, h)) * n->e;
        for (int64_t x = 0; x < n->e; x++)
            sum[x] += p * get(a->v, v + x);
    }
    for (int64_t x = 0; x < n->e; x++)
        put(y, x, sum[x]);
}

REF_KERNEL(attention)
{
    Attention a = attention(c, 0, 3);
    const Heads *n = &a.n;
    Reals y = OUT(0), save = OUT(1);
    for (Walk w = walk_over(c, heads_leading(c, 0)); w.more; walk_next(&w), a.lead++) {
        stand(&a, &w, 0, 3);
        for (int64_t r = 0; r < n->s * n->h; r++) {
            int64_t i = r / n->h, h = r % n->h;
            double lse = log_sum(&a, i, h);
            attend(&a, i, h, lse, c->work, reals_from(y, w.at[MAX_ARGS] + r * n->e));
            if (save.at)
                put(save, w.at[MAX_ARGS + 1] + r, lse);
        }
    }
}

/* ---- gradients: D = dy . y of a query, then per key P = exp(score - lse), dS = P (kept dy . v - D) ---- */

/* The call, and where the results of the current leading index begin. */
typedef struct Gradient {
    Attention a;
    Reals     dy, y, lse,     dq, dk, dv, dbias;      /* those that are not asked for are absent */
} Gradient;

static double dot(Reals x, int64_t i, Reals y, int64_t j, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += get(x, i + k) * get(y, j + k);
    return sum;
}

/* Of query i, head h and key j: dS, and P with dropout. */
static double score_grad(const Gradient *g, int64_t i, int64_t h, int64_t j, double *p)
{
    const Heads *n = &g->a.n;
    int64_t query = (i * n->h + h) * n->e, key = g->a.at_v + (j * n->g + heads_key(n, h)) * n->e;
    double plain = exp(score(&g->a, i, h, j) - get(g->lse, i * n->h + h)), keep = kept(&g->a, i, h, j);
    *p = plain * keep;
    return plain * (keep * dot(g->dy, query, g->a.v, key, n->e) - dot(g->dy, query, g->y, query, n->e));
}

/* dq of a query, and its rows of dbias: over the keys. */
static void query_grad(const Gradient *g, int64_t i, int64_t h, double *sum)
{
    const Heads *n = &g->a.n;
    double p;
    memset(sum, 0, sizeof *sum * (size_t)n->e);
    for (int64_t j = 0; j < n->t; j++) {
        if (!visible(&g->a, i, j))
            continue;
        double ds = score_grad(g, i, h, j, &p);
        int64_t k = g->a.at_k + (j * n->g + heads_key(n, h)) * n->e;
        for (int64_t x = 0; x < n->e; x++)
            sum[x] += n->scale * ds * get(g->a.k, k + x);
        if (g->dbias.at)
            give(g->dbias, (h * n->s + i) * n->t + j, ds, true);
    }
    for (int64_t x = 0; g->dq.at && x < n->e; x++)
        put(g->dq, (i * n->h + h) * n->e + x, sum[x]);
}

/* dk and dv of key j, key head u: over the queries of the heads that read it. */
static void key_grad(const Gradient *g, int64_t j, int64_t u, double *sum)
{
    const Heads *n = &g->a.n;
    double *dk = sum, *dv = sum + n->e, p;
    memset(sum, 0, 2 * sizeof *sum * (size_t)n->e);
    for (int64_t r = 0; r < n->s * n->h; r++) {
        int64_t i = r / n->h, h = r % n->h;
        if (heads_key(n, h) != u || !visible(&g->a, i, j))
            continue;
        double ds = score_grad(g, i, h, j, &p);
        for (int64_t x = 0; x < n->e; x++) {
            dk[x] += n->scale * ds * get(g->a.q, g->a.at_q + r * n->e + x);
            dv[x] += p * get(g->dy, r * n->e + x);
        }
    }
    for (int64_t x = 0; x < n->e; x++) {
        if (g->dk.at)
            put(g->dk, (j * n->g + u) * n->e + x, dk[x]);
        if (g->dv.at)
            put(g->dv, (j * n->g + u) * n->e + x, dv[x]);
    }
}

REF_KERNEL(attention_grad)
{
    Gradient g = {.a = attention(c, 1, 6), .dbias = OUT(3)};
    const Heads *n = &g.a.n;
    if (g.dbias.at)
        clear(c->outt[3], c->out[3]);
    for (Walk w = walk_over(c, heads_leading(c, 1)); w.more; walk_next(&w), g.a.lead++) {
        stand(&g.a, &w, 1, 6);
        g.dy = reals_from(ARG(0), w.at[0]);
        g.y = reals_from(ARG(4), w.at[4]);
        g.lse = reals_from(ARG(5), w.at[5]);
        g.dq = reals_from(OUT(0), w.at[MAX_ARGS]);
        g.dk = reals_from(OUT(1), w.at[MAX_ARGS + 1]);
        g.dv = reals_from(OUT(2), w.at[MAX_ARGS + 2]);
        for (int64_t r = 0; r < n->s * n->h; r++)
            query_grad(&g, r / n->h, r % n->h, c->work);
        for (int64_t r = 0; r < n->t * n->g; r++)
            key_grad(&g, r / n->g, r % n->g, c->work);
    }
}
