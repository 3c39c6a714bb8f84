#ifndef KERNELS_CPU_ATTEND_H
#define KERNELS_CPU_ATTEND_H
/* What blocked attention and its gradient share: tiles of TILE x TILE scores, which
 * of them are seen, and the arguments where they stand.  A tile is computed in f32;
 * rows of bf16 are widened into scratch first. */
#include "kernels/cpu/random.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/tile.h"
#include "kernels/heads.h"

enum { TILE = 64 };                   /* as the workspaces in ops.def */

typedef struct Attend {
    const KCall *c;
    Heads        n;
    int          q, mask;             /* numbers of these arguments; k and v follow q, bias and doc the mask */
    FactorSet    lead;                /* factors before position, head and width */
    int64_t      leads, wide;         /* wide: the head width in whole vectors */
    float        scale;
    RandomKey    random;
    uint32_t     threshold;           /* words below it are dropped */
} Attend;

/* Queries [i0, i0 + m) of one head against keys [j0, j0 + n). */
typedef struct Tiling { const Walk *at; int64_t lead, head, i0, m, j0, n; } Tiling;

static inline Attend attend_of(const KCall *c, int q, int mask)
{
    Attend a = {.c = c, .n = heads_of(c, q, mask + 2), .q = q, .mask = mask, .lead = heads_leading(c, q)};
    a.leads = set_extent(c, a.lead);
    a.wide = (a.n.e + LANES - 1) / LANES * LANES;
    a.scale = (float)a.n.scale;
    a.random = (RandomKey){c->step->seed, (uint64_t)c->step->step, a.n.random};
    a.threshold = (uint32_t)dropout_threshold(a.n.dropout);
    return a;
}

/* What the tiles cannot do is left to the plain form. */
static inline bool attend_can(const KCall *c, int mask)
{
    return !c->arg[mask + 1] && dropout_threshold(attr_real(c, "dropout")) <= UINT32_MAX;
}

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of q, dy, y (query i of the tile's head) and of k, v. */
static inline Reals query_row(const Attend *a, const Tiling *t, int arg, int64_t i)
{
    const KCall *c = a->c;
    return reals_from(ARG(arg), t->at->at[arg] + (i * a->n.h + t->head) * a->n.e);
}

static inline Reals key_row(const Attend *a, const Tiling *t, int arg, int64_t j)
{
    const KCall *c = a->c;
    return reals_from(ARG(arg), t->at->at[arg] + (j * a->n.g + heads_key(&a->n, t->head)) * a->n.e);
}

/* n rows as floats whose width is whole vectors: where they are, or copied and filled
 * up with zeros. */
static inline TileB whole_vectors(const Attend *a, Reals from, int64_t row, int64_t n, float *copy)
{
    if (a->wide == a->n.e && from.dtype == DT_f32)
        return (TileB){from.at, row};
    for (int64_t i = 0; i < n; i++) {
        Reals x = reals_from(from, i * row);
        for (int64_t k = 0; k < a->wide; k += LANES)
            vec_store(copy + i * a->wide + k, lanes_take(x, k, a->n.e));
    }
    return (TileB){copy, a->wide};
}

/* The same for the tile's queries and for its keys. */
static inline TileB query_rows(const Attend *a, const Tiling *t, int arg, float *copy)
{
    return whole_vectors(a, query_row(a, t, arg, t->i0), a->n.h * a->n.e, t->m, copy);
}

static inline TileB key_rows(const Attend *a, const Tiling *t, int arg, float *copy)
{
    return whole_vectors(a, key_row(a, t, arg, t->j0), a->n.g * a->n.e, t->n, copy);
}

/* Rows of keys or values as columns: they are the second operand of scores. */
static inline void as_columns(const Attend *a, const Tiling *t, TileB rows, float *to)
{
    tile_transpose(rows.p, rows.row, t->n, a->n.e, to, TILE, TILE);
}

/* Keys of the tile that query i (of the sequence) sees by position: [*from, *to). */
static inline void seen(const Attend *a, const Tiling *t, int64_t i, int64_t *from, int64_t *to)
{
    int64_t query = place_global(&a->n.query, i, 0), key = place_global(&a->n.key, t->j0, 0);
    int64_t end = a->n.causal ? query - key + 1 : t->n, first = a->n.window ? query - a->n.window + 1 - key : 0;
    *to = end < 0 ? 0 : least(end, t->n);
    *from = first < 0 ? 0 : least(first, *to);
}

static inline bool tile_unseen(const Attend *a, const Tiling *t)
{
    int64_t query = place_global(&a->n.query, t->i0, 0), key = place_global(&a->n.key, t->j0, 0);
    return (a->n.causal && key > query + t->m - 1) || (a->n.window && key + t->n - 1 <= query - a->n.window);
}

/* -inf where query i0 + r does not see a key, up to the width of a tile. */
static inline void hide(const Attend *a, const Tiling *t, int64_t r, float *score)
{
    int64_t from, to;
    seen(a, t, t->i0 + r, &from, &to);
    for (int64_t j = 0; j < from; j++)
        score[j] = -INFINITY;
    for (int64_t j = to; j < TILE; j++)
        score[j] = -INFINITY;
    const uint8_t *mask = a->c->arg[a->mask];
    if (!mask && !a->n.doc)
        return;
    for (int64_t j = from; j < to; j++) {
        bool attended = !mask || mask[t->at->at[a->mask] + t->j0 + j];
        if (!attended || !heads_visible(&a->n, t->at->at[a->mask + 2], t->i0 + r, t->j0 + j))
            score[j] = -INFINITY;
    }
}

/* Words of the tile's row r, for random_keep(). */
static inline const uint32_t *row_words(const Attend *a, const Tiling *t, int64_t r, uint32_t *room)
{
    int64_t row = (t->lead * a->n.h + t->head) * a->n.s + t->i0 + r;
    return random_words(&a->random, place_row(&a->n.matrix, row, a->c->step->micro) + t->j0, TILE, room);
}

#endif
