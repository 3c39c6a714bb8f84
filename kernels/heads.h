#ifndef KERNELS_HEADS_H
#define KERNELS_HEADS_H
/* Heads: what an attention is asked to do, as both of its forms read it. */
#include <math.h>

#include "base/text.h"
#include "kernels/operand.h"

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

static inline double heads_scale(const KCall *c, int64_t width)
{
    return attr_given(c, "scale") ? attr_real(c, "scale") : 1 / sqrt((double)width);
}

static inline Heads heads_of(const KCall *c, int q, int doc)
{
    const Tensor *tq = c->argt[q], *tk = c->argt[q + 1];
    const AxisPlace *aq = &tq->axis[tq->rank - 3], *ak = &tk->axis[tk->rank - 3];
    Heads n = {.s = aq[0].local, .h = aq[1].local, .e = aq[2].local, .t = ak[0].local, .g = ak[1].local,
               .query = aq[0], .key = ak[0], .head = aq[1], .key_head = ak[1]};
    n.scale = heads_scale(c, n.e);
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
static inline FactorSet heads_leading(const KCall *c, int q)
{
    FactorSet set = arg_factors(c, q);
    for (int i = 1; i <= 3; i++)
        set &= ~(1u << c->in->arg_factor[q][c->argt[q]->rank - i]);
    return set;
}

/* The key head that query head h reads, both by local number. */
static inline int64_t heads_key(const Heads *n, int64_t h)
{
    int64_t queries = n->head.global / n->key_head.global;
    return (n->head.origin + h) / queries - n->key_head.origin;
}

/* By position and document; `at_doc` is where the documents of this leading index start. */
static inline bool heads_visible(const Heads *n, int64_t at_doc, int64_t i, int64_t j)
{
    int64_t query = place_global(&n->query, i, 0), key = place_global(&n->key, j, 0);
    if ((n->causal && key > query) || (n->window && key <= query - n->window))
        return false;
    return !n->doc || int_at(n->doct, n->doc, at_doc + j) == int_at(n->doct, n->doc, at_doc + query - n->key.origin);
}

#endif
