/* The gradient of blocked attention.  Probabilities of a tile are made again from
 * the saved log-sum-exp; with dP = dy v^T and D = dy . y,  dS = P (kept dP - D),
 * dq = dS k, dk = dS^T q, dv = (P kept)^T dy (Dao et al. 2022, appendix B).  A unit
 * of work is a key head of a sequence: its dk and dv, and the dq of the query heads
 * that read it, belong to one worker. */
#include "kernels/cpu/attend.h"

enum { DY, Q, K, V, Y, LSE, MASK };   /* arguments */

/* Scratch of a worker, as ops.def counts it. */
typedef struct Scratch { float *p, *ds, *keys, *values, *copy[4], *dk, *dv; } Scratch;

static Scratch scratch_of(const Attend *a, int worker)
{
    int64_t tile = TILE * TILE, e = a->n.e;
    float *p = (float *)a->c->work + worker * (4 * tile + 8 * TILE * e + 256);
    Scratch s = {.p = p, .ds = p + tile, .keys = p + 2 * tile};
    s.values = s.keys + TILE * e;
    float *next = s.values + TILE * e;
    float **place[] = {&s.dk, &s.dv, &s.copy[0], &s.copy[1], &s.copy[2], &s.copy[3]};
    for (int i = 0; i < (a->wide == e ? 2 : 6); i++, next += TILE * a->wide)
        *place[i] = next;
    return s;
}

/* From scores and dP: what dv is made of, in p, and dS times the scale, in ds. */
static void slope_row(const Attend *a, const Tiling *t, const Scratch *s, int64_t r)
{
    int64_t i = t->i0 + r, e = a->n.e;
    float *p = s->p + r * TILE, *ds = s->ds + r * TILE;
    const float *dy = query_row(a, t, DY, i), *y = query_row(a, t, Y, i);
    float lse = ((const float *)a->c->arg[LSE])[t->at->at[LSE] + i * a->n.h + t->head];
    Vec dot = vec_all(0);
    for (int64_t x = 0; x < e; x += LANES)
        dot = vec_fma(vec_take(dy + x, e - x), vec_take(y + x, e - x), dot);
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

/* dq of the tile's queries, from ds. */
static void give_dq(const Attend *a, const Tiling *t, const Scratch *s, TileB keys)
{
    int64_t step = a->n.h * a->n.e;
    float *dq = (float *)a->c->out[0] + t->at->at[MAX_ARGS] + (t->i0 * a->n.h + t->head) * a->n.e;
    TileA ds = {s->ds, TILE, 1};
    if (a->wide == a->n.e) {
        tile_product(ds, keys, (TileC){dq, step}, t->m, a->wide, t->n, true);
        return;
    }
    float *sum = s->copy[3];
    tile_product(ds, keys, (TileC){sum, a->wide}, t->m, a->wide, t->n, false);
    for (int64_t r = 0; r < t->m; r++)
        for (int64_t x = 0; x < a->n.e; x++)
            dq[r * step + x] += sum[r * a->wide + x];
}

static void slope_tile(const Attend *a, const Tiling *t, const Scratch *s)
{
    int64_t step = a->n.h * a->n.e, e = a->n.e;
    const float *q = query_row(a, t, Q, t->i0), *dy = query_row(a, t, DY, t->i0);
    tile_product((TileA){q, step, 1}, (TileB){s->keys, TILE}, (TileC){s->p, TILE}, t->m, TILE, e, false);
    tile_product((TileA){dy, step, 1}, (TileB){s->values, TILE}, (TileC){s->ds, TILE}, t->m, TILE, e, false);
    for (int64_t r = 0; r < t->m; r++)
        slope_row(a, t, s, r);
    if (a->c->out[2])
        tile_product((TileA){s->p, 1, TILE}, whole_vectors(a, dy, step, t->m, s->copy[0]), (TileC){s->dv, a->wide}, t->n, a->wide, t->m, true);
    if (a->c->out[1])
        tile_product((TileA){s->ds, 1, TILE}, whole_vectors(a, q, step, t->m, s->copy[1]), (TileC){s->dk, a->wide}, t->n, a->wide, t->m, true);
    if (a->c->out[0])
        give_dq(a, t, s, whole_vectors(a, key_row(a, t, K, t->j0), a->n.g * e, t->n, s->copy[2]));
}

/* All queries of the heads that read key head g, against one tile of its keys. */
static void slope_keys(const Attend *a, Tiling t, int64_t g, const Scratch *s)
{
    bool packed = false;
    memset(s->dk, 0, sizeof *s->dk * (size_t)(TILE * a->wide));
    memset(s->dv, 0, sizeof *s->dv * (size_t)(TILE * a->wide));
    for (t.head = 0; t.head < a->n.h; t.head++) {
        if (heads_key(&a->n, t.head) != g)
            continue;
        if (!packed) {
            tile_transpose(key_row(a, &t, K, t.j0), a->n.g * a->n.e, t.n, a->n.e, s->keys, TILE, TILE);
            tile_transpose(key_row(a, &t, V, t.j0), a->n.g * a->n.e, t.n, a->n.e, s->values, TILE, TILE);
            packed = true;
        }
        for (t.i0 = 0; t.i0 < a->n.s; t.i0 += TILE) {
            t.m = least(TILE, a->n.s - t.i0);
            if (!tile_unseen(a, &t))
                slope_tile(a, &t, s);
        }
    }
}

/* Rows of dk (out 1) or dv (out 2), from the scratch. */
static void give_keys(const Attend *a, const Tiling *t, int64_t g, int out, const float *from)
{
    float *to = a->c->out[out];
    for (int64_t j = 0; to && j < t->n; j++)
        memcpy(to + t->at->at[MAX_ARGS + out] + ((t->j0 + j) * a->n.g + g) * a->n.e, from + j * a->wide, sizeof *to * (size_t)a->n.e);
}

static void clear_queries(const Attend *a, const Walk *w, int64_t g)
{
    float *dq = a->c->out[0];
    for (int64_t h = 0; dq && h < a->n.h; h++)
        for (int64_t i = 0; heads_key(&a->n, h) == g && i < a->n.s; i++)
            memset(dq + w->at[MAX_ARGS] + (i * a->n.h + h) * a->n.e, 0, sizeof *dq * (size_t)a->n.e);
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
        if (g == a->n.g - 1)
            walk_next(&w);
    }
}

CPU_KERNEL(attention_grad, f32)
{
    if (!attend_can(c, MASK) || c->out[3]) {
        ref_attention_grad(c);
        return;
    }
    Attend a = attend_of(c, Q, MASK);
    team_run(c->team, slope_some, &a);
}
