/* Attention: softmax(scale q k^T + bias + mask) v, a row of scores at a time, and
 * its gradient by the saved log-sum-exp (Rabe, Staats 2021; Dao et al. 2022).
 *
 * q is [.., s, h, e], k and v [.., t, g, e]; query head h reads key head
 * h / (heads / key heads).  Dropout draws element [.., h, s, t] of the whole
 * matrix of probabilities, row-major in that order. */
#ifndef REAL
#include "kernels/ref/ref.h"

/* Extents, places and settings of an attention. */
typedef struct Heads {
    int64_t       s, h, e, t, g;
    AxisPlace     query, key, head, key_head;
    double        scale, dropout;
    bool          causal;
    int64_t       window;             /* keys seen back from the query, itself included; 0: all */
    const Tensor *doct;               /* document of each key, or NULL */
    const void   *doc;
    uint32_t      random;
    Tensor        matrix;             /* [.., h, s, t] of all probabilities, for places only */
} Heads;

static double scale_of(const KCall *c, int64_t width)
{
    return attr_given(c, "scale") ? attr_real(c, "scale") : 1 / sqrt((double)width);
}

static Heads heads_of(const KCall *c, int q, int doc)
{
    const Tensor *tq = c->argt[q], *tk = c->argt[q + 1];
    const AxisPlace *aq = &tq->axis[tq->rank - 3], *ak = &tk->axis[tk->rank - 3];
    Heads n = {.s = aq[0].local, .h = aq[1].local, .e = aq[2].local, .t = ak[0].local, .g = ak[1].local,
               .query = aq[0], .key = ak[0], .head = aq[1], .key_head = ak[1]};
    n.scale = scale_of(c, n.e);
    n.dropout = attr_real(c, "dropout");
    n.causal = attr_bool(c, "causal");
    n.window = attr_given(c, "window") ? attr_int(c, "window") : 0;
    n.doct = c->argt[doc];
    n.doc = c->arg[doc];
    n.random = fnv1a(c->in->key);
    n.matrix = *tq;
    n.matrix.axis[tq->rank - 3] = n.head;
    n.matrix.axis[tq->rank - 2] = n.query;
    n.matrix.axis[tq->rank - 1] = n.key;
    return n;
}

/* Factors of q before position, head and width. */
static FactorSet leading(const KCall *c, int q)
{
    FactorSet set = arg_factors(c, q);
    for (int i = 1; i <= 3; i++)
        set &= ~(1u << c->in->arg_factor[q][c->argt[q]->rank - i]);
    return set;
}

static int64_t key_head(const Heads *n, int64_t h)
{
    int64_t queries = n->head.global / n->key_head.global;
    return (n->head.origin + h) / queries - n->key_head.origin;
}

/* By position and document; `at_doc` is where the documents of this leading index start. */
static bool heads_visible(const Heads *n, int64_t at_doc, int64_t i, int64_t j)
{
    int64_t query = place_global(&n->query, i, 0), key = place_global(&n->key, j, 0);
    if ((n->causal && key > query) || (n->window && key <= query - n->window))
        return false;
    return !n->doc || int_at(n->doct, n->doc, at_doc + j) == int_at(n->doct, n->doc, at_doc + query - n->key.origin);
}

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
    const REAL *k = a->k + a->at_k + (j * n->g + key_head(n, h)) * n->e;
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
        const REAL *v = a->v + a->at_v + (j * n->g + key_head(n, h)) * n->e;
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
    for (Walk w = walk_over(c, leading(c, 0)); w.more; walk_next(&w), a.lead++) {
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
    int64_t key = (j * n->g + key_head(n, h)) * n->e, query = (i * n->h + h) * n->e;
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
    for (Walk w = walk_over(c, leading(c, 1)); w.more; walk_next(&w), a.lead++) {
        NAME(stand)(&a, &w, 1, 6);
        for (int64_t r = 0; r < n->s * n->h; r++) {
            NAME(Gradient) g = {dy + w.at[0], y + w.at[4], NAME(moved)(dq, w.at[MAX_ARGS]), NAME(moved)(dk, w.at[MAX_ARGS + 1]),
                                NAME(moved)(dv, w.at[MAX_ARGS + 2]), dbias, (double)lse[w.at[5] + r]};
            NAME(query_grad)(&a, &g, r / n->h, r % n->h);
        }
    }
}

#endif
