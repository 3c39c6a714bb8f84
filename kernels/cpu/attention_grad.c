/* The gradient of blocked attention.  Probabilities of a tile are made again from
 * the saved log-sum-exp; with dP = dy v^T and D = dy . y,  dS = P (kept dP - D),
 * dq = dS k, dk = dS^T q, dv = (P kept)^T dy (Dao et al. 2022, appendix B).  A unit
 * of work is a key head of a sequence: its dk and dv, and the dq of the query heads
 * that read it, belong to one worker.  In f32 a dq is summed where it stands, tile of
 * keys by tile.  In bf16 it must not be rounded between tiles: where there are
 * several, the tiles are gone through a second time, a tile of queries after the other. */
#include "kernels/cpu/attend.h"

enum { DY, Q, K, V, Y, LSE, MASK };   /* arguments */

/* Scratch of a worker, as ops.def counts it: P and dS of a tile, keys and values as columns,
 * sums of dk, dv and dq, and rows of dy, q and k. */
typedef struct Scratch { float *p, *ds, *keys, *values, *dk, *dv, *dq, *dy, *q, *k; } Scratch;

static Scratch scratch_of(const Attend *a, int worker)
{
    int64_t tile = TILE * TILE, e = a->n.e;
    float *p = (float *)a->c->work + worker * (4 * tile + 8 * TILE * e + 256);
    Scratch s = {.p = p, .ds = p + tile, .keys = p + 2 * tile};
    s.values = s.keys + TILE * e;
    float *next = s.values + TILE * e;
    float **place[] = {&s.dk, &s.dv, &s.dq, &s.dy, &s.q, &s.k};
    for (int i = 0; i < 6; i++, next += TILE * a->wide)
        *place[i] = next;
    return s;
}

/* From scores and dP: what dv is made of, in p, and dS times the scale, in ds. */
static void slope_row(const Attend *a, const Tiling *t, const Scratch *s, int64_t r)
{
    const KCall *c = a->c;
    int64_t i = t->i0 + r, e = a->n.e;
    float *p = s->p + r * TILE, *ds = s->ds + r * TILE;
    Reals dy = query_row(a, t, DY, i), y = query_row(a, t, Y, i);
    float lse = (float)get(ARG(LSE), t->at->at[LSE] + i * a->n.h + t->head);
    Vec dot = vec_all(0);
    for (int64_t x = 0; x < e; x += LANES)
        dot = vec_fma(lanes_take(dy, x, e), lanes_take(y, x, e), dot);
    const Vec scale = vec_all(a->scale), d = vec_all(vec_sum(dot)), kept = vec_all((float)(1 / (1 - a->n.dropout)));
    const Vec high = vec_all(lse == -INFINITY ? 0 : lse);
    uint32_t room[RANDOM_ROOM(TILE) + LANES];
    const uint32_t *word = a->n.dropout == 0 ? NULL : row_words(a, t, r, room);
    hide(a, t, r, p);
    for (int64_t j = 0; j < TILE; j += LANES) {
        Vec w = vec_exp(vec_fma(vec_load(p + j), scale, -high)), by = word ? random_keep(word + j, a->threshold, kept) : kept;
        vec_store(p + j, w * by);
        vec_store(ds + j, w * scale * (by * vec_load(ds + j) - d));
    }
}

/* Keys and values of the tile, where the scratch has them; returns the keys' rows.  Values
 * stand as rows in dv for a moment. */
static TileB pack_keys(const Attend *a, const Tiling *t, const Scratch *s)
{
    TileB k = key_rows(a, t, K, s->k);
    as_columns(a, t, k, s->keys);
    as_columns(a, t, key_rows(a, t, V, s->dv), s->values);
    return k;
}

/* P and dS of the tile, into p and ds. */
static void slope_tile(const Attend *a, const Tiling *t, const Scratch *s, TileB q, TileB dy)
{
    tile_product((TileA){q.p, q.row, 1}, (TileB){s->keys, TILE}, (TileC){s->p, TILE}, t->m, TILE, a->n.e, false);
    tile_product((TileA){dy.p, dy.row, 1}, (TileB){s->values, TILE}, (TileC){s->ds, TILE}, t->m, TILE, a->n.e, false);
    for (int64_t r = 0; r < t->m; r++)
        slope_row(a, t, s, r);
}

/* dq of the tile's queries += the first rows of a sum in the scratch. */
static void give_dq(const Attend *a, const Tiling *t, const float *sum)
{
    const KCall *c = a->c;
    for (int64_t r = 0; r < t->m; r++) {
        Reals dq = reals_from(OUT(0), t->at->at[MAX_ARGS] + ((t->i0 + r) * a->n.h + t->head) * a->n.e);
        for (int64_t x = 0; x < a->n.e; x += LANES)
            lanes_give(dq, x, vec_load(sum + r * a->wide + x) + lanes_take(dq, x, a->n.e), a->n.e);
    }
}

/* dS k to dq, at once or through the scratch. */
static void add_dq(const Attend *a, const Tiling *t, const Scratch *s, TileB k)
{
    const KCall *c = a->c;
    TileA ds = {s->ds, TILE, 1};
    if (c->outt[0]->dtype == DT_f32 && a->wide == a->n.e) {
        float *dq = OUT_F32(0) + t->at->at[MAX_ARGS] + (t->i0 * a->n.h + t->head) * a->n.e;
        tile_product(ds, k, (TileC){dq, a->n.h * a->n.e}, t->m, a->wide, t->n, true);
        return;
    }
    tile_product(ds, k, (TileC){s->dq, a->wide}, t->m, a->wide, t->n, false);
    give_dq(a, t, s->dq);
}

/* Whether dq can be summed while dk and dv are. */
static bool dq_along(const Attend *a)
{
    const KCall *c = a->c;
    return c->out[0] && (c->outt[0]->dtype == DT_f32 || a->n.t <= TILE);
}

/* All queries of the heads that read key head g, against one tile of its keys. */
static void slope_keys(const Attend *a, Tiling t, int64_t g, const Scratch *s)
{
    bool packed = false, dq = dq_along(a);
    TileB k = {0};
    memset(s->dk, 0, sizeof *s->dk * (size_t)(TILE * a->wide));
    memset(s->dv, 0, sizeof *s->dv * (size_t)(TILE * a->wide));
    for (t.head = 0; t.head < a->n.h; t.head++) {
        if (heads_key(&a->n, t.head) != g)
            continue;
        if (!packed) {
            k = pack_keys(a, &t, s);               /* uses dv */
            memset(s->dv, 0, sizeof *s->dv * (size_t)(TILE * a->wide));
            packed = true;
        }
        for (t.i0 = 0; t.i0 < a->n.s; t.i0 += TILE) {
            t.m = least(TILE, a->n.s - t.i0);
            if (tile_unseen(a, &t))
                continue;
            TileB q = query_rows(a, &t, Q, s->q), dy = query_rows(a, &t, DY, s->dy);
            slope_tile(a, &t, s, q, dy);
            if (a->c->out[2])
                tile_product((TileA){s->p, 1, TILE}, dy, (TileC){s->dv, a->wide}, t.n, a->wide, t.m, true);
            if (a->c->out[1])
                tile_product((TileA){s->ds, 1, TILE}, q, (TileC){s->dk, a->wide}, t.n, a->wide, t.m, true);
            if (dq)
                add_dq(a, &t, s, k);
        }
    }
}

/* dq of the heads that read key head g, each tile of queries over all its keys. */
static void slope_queries(const Attend *a, Tiling t, int64_t g, const Scratch *s)
{
    for (t.head = 0; t.head < a->n.h; t.head++)
        for (t.i0 = 0; heads_key(&a->n, t.head) == g && t.i0 < a->n.s; t.i0 += TILE) {
            t.m = least(TILE, a->n.s - t.i0);
            TileB q = query_rows(a, &t, Q, s->q), dy = query_rows(a, &t, DY, s->dy);
            memset(s->dq, 0, sizeof *s->dq * (size_t)(TILE * a->wide));
            for (t.j0 = 0; t.j0 < a->n.t; t.j0 += TILE) {
                t.n = least(TILE, a->n.t - t.j0);
                if (tile_unseen(a, &t))
                    continue;
                TileB k = pack_keys(a, &t, s);
                slope_tile(a, &t, s, q, dy);
                tile_product((TileA){s->ds, TILE, 1}, k, (TileC){s->dq, a->wide}, t.m, a->wide, t.n, true);
            }
            give_dq(a, &t, s->dq);
        }
}

/* Rows of dk (out 1) or dv (out 2), from the scratch. */
static void give_keys(const Attend *a, const Tiling *t, int64_t g, int out, const float *from)
{
    const KCall *c = a->c;
    Reals to = OUT(out);
    for (int64_t j = 0; to.at && j < t->n; j++) {
        Reals row = reals_from(to, t->at->at[MAX_ARGS + out] + ((t->j0 + j) * a->n.g + g) * a->n.e);
        for (int64_t x = 0; x < a->n.e; x += LANES)
            lanes_give(row, x, vec_load(from + j * a->wide + x), a->n.e);
    }
}

static void clear_queries(const Attend *a, const Walk *w, int64_t g)
{
    const KCall *c = a->c;
    Reals dq = OUT(0);
    for (int64_t h = 0; dq.at && h < a->n.h; h++)
        for (int64_t i = 0; heads_key(&a->n, h) == g && i < a->n.s; i++)
            memset(reals_from(dq, w->at[MAX_ARGS] + (i * a->n.h + h) * a->n.e).at, 0, (size_t)(a->n.e * dtype_bytes(dq.dtype)));
}

static void slope_some(void *ctx, int worker, int nworker)
{
    const Attend *a = ctx;
    int64_t first, end;
    Scratch s = scratch_of(a, worker);
    team_part(a->leads * a->n.g, 1, worker, nworker, &first, &end);
    if (first == end)
        return;
    Walk w = walk_over(a->c, a->lead);
    walk_seek(&w, first / a->n.g);
    for (int64_t i = first; i < end; i++) {
        int64_t g = i % a->n.g;
        clear_queries(a, &w, g);
        for (int64_t j0 = 0; j0 < a->n.t; j0 += TILE) {
            Tiling t = {.at = &w, .lead = i / a->n.g, .j0 = j0, .n = least(TILE, a->n.t - j0)};
            slope_keys(a, t, g, &s);
            give_keys(a, &t, g, 1, s.dk);
            give_keys(a, &t, g, 2, s.dv);
        }
        if (a->c->out[0] && !dq_along(a))
            slope_queries(a, (Tiling){.at = &w, .lead = i / a->n.g}, g, &s);
        if (g == a->n.g - 1)
            walk_next(&w);
    }
}

CPU_REALS(attention_grad)
{
    if (!attend_can(c, MASK) || c->out[3]) {
        ref_attention_grad(c);
        return;
    }
    Attend a = attend_of(c, Q, MASK);
    team_run(c->team, slope_some, &a);
}
