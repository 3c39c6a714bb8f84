/* Blocked attention: a tile of scores at a time, the maximum and the sum of each
 * row kept up to date (Milakov, Gimelshein 2018; Dao et al. 2022), so that no more
 * than a tile of the matrix of probabilities ever exists.  A unit of work is a tile
 * of queries of one head. */
#include "kernels/cpu/attend.h"

/* Scratch of a worker, as ops.def counts it. */
typedef struct Scratch { float *score, *keys, *values, *queries, *out, *top, *sum; } Scratch;

static Scratch scratch_of(const Attend *a, int worker)
{
    int64_t tile = TILE * TILE, e = a->n.e;
    float *p = (float *)a->c->work + worker * (3 * tile + 4 * TILE * e + 256);
    Scratch s = {.score = p, .top = p + tile, .sum = p + tile + TILE, .keys = p + tile + 2 * TILE};
    s.values = s.keys + TILE * e;
    s.queries = s.values + TILE * a->wide;
    s.out = s.queries + TILE * a->wide;
    return s;
}

/* Scores of a row become probabilities, not yet divided by their sum. */
static void weigh_row(const Attend *a, const Tiling *t, const Scratch *s, int64_t r)
{
    float *score = s->score + r * TILE, *out = s->out + r * a->wide;
    const Vec scale = vec_all(a->scale);
    for (int64_t j = 0; j < TILE; j += LANES)
        vec_store(score + j, vec_load(score + j) * scale);
    hide(a, t, r, score);
    float tile_top = row_top(floats(score), TILE), top = tile_top > s->top[r] ? tile_top : s->top[r];
    const Vec high = vec_all(top == -INFINITY ? 0 : top);
    Vec sum = vec_all(0);
    for (int64_t j = 0; j < TILE; j += LANES) {
        Vec p = vec_exp(vec_load(score + j) - high);
        sum += p;
        vec_store(score + j, p);
    }
    float fade = top == s->top[r] ? 1 : expf(s->top[r] - top);
    s->sum[r] = s->sum[r] * fade + vec_sum(sum);
    s->top[r] = top;
    for (int64_t x = 0; fade != 1 && x < a->wide; x += LANES)
        vec_store(out + x, vec_load(out + x) * vec_all(fade));
    if (a->n.dropout == 0)
        return;
    uint32_t room[RANDOM_ROOM(TILE) + LANES];
    const uint32_t *word = row_words(a, t, r, room);
    for (int64_t j = 0; j < TILE; j += LANES)
        vec_store(score + j, random_keep(word + j, a->threshold, vec_load(score + j)));
}

/* The place of the values holds the keys before. */
static void attend_tile(const Attend *a, const Tiling *t, TileB queries, const Scratch *s)
{
    as_columns(a, t, key_rows(a, t, 1, s->values), s->keys);
    tile_product((TileA){queries.p, queries.row, 1}, (TileB){s->keys, TILE}, (TileC){s->score, TILE}, t->m, TILE, a->n.e, false);
    for (int64_t r = 0; r < t->m; r++)
        weigh_row(a, t, s, r);
    TileB values = key_rows(a, t, 2, s->values);
    tile_product((TileA){s->score, TILE, 1}, values, (TileC){s->out, a->wide}, t->m, a->wide, t->n, true);
}

/* Divide by the sum and by what dropout left; a query that sees no key gets 0. */
static void finish(const Attend *a, const Tiling *t, const Scratch *s)
{
    const KCall *c = a->c;
    Reals save = OUT(1);
    float kept = (float)(1 / (1 - a->n.dropout));
    for (int64_t r = 0; r < t->m; r++) {
        int64_t at = (t->i0 + r) * a->n.h + t->head;
        Reals y = reals_from(OUT(0), t->at->at[MAX_ARGS] + at * a->n.e);
        const Vec by = vec_all(s->sum[r] > 0 ? kept / s->sum[r] : 0);
        for (int64_t x = 0; x < a->n.e; x += LANES)
            lanes_give(y, x, vec_load(s->out + r * a->wide + x) * by, a->n.e);
        if (save.at)
            put(save, t->at->at[MAX_ARGS + 1] + at, (double)(s->top[r] + logf(s->sum[r])));
    }
}

static void attend_queries(const Attend *a, Tiling t, const Scratch *s)
{
    TileB queries = query_rows(a, &t, 0, s->queries);
    memset(s->out, 0, sizeof *s->out * (size_t)(t.m * a->wide));
    for (int64_t r = 0; r < t.m; r++) {
        s->top[r] = -INFINITY;
        s->sum[r] = 0;
    }
    for (t.j0 = 0; t.j0 < a->n.t; t.j0 += TILE) {
        t.n = least(TILE, a->n.t - t.j0);
        if (!tile_unseen(a, &t))
            attend_tile(a, &t, queries, s);
    }
    finish(a, &t, s);
}

static void attend_some(void *ctx, int worker, int nworker)
{
    const Attend *a = ctx;
    int64_t tiles = (a->n.s + TILE - 1) / TILE, per_lead = a->n.h * tiles, first, end;
    Scratch s = scratch_of(a, worker);
    team_part(a->leads * per_lead, 1, worker, nworker, &first, &end);
    if (first == end)
        return;
    Walk w = walk_over(a->c, a->lead);
    walk_seek(&w, first / per_lead);
    for (int64_t i = first; i < end; i++) {
        Tiling t = {.at = &w, .lead = i / per_lead, .head = i % per_lead / tiles, .i0 = i % tiles * TILE};
        t.m = least(TILE, a->n.s - t.i0);
        attend_queries(a, t, &s);
        if (i % per_lead == per_lead - 1)
            walk_next(&w);
    }
}

CPU_REALS(attention)
{
    if (!attend_can(c, 3)) {
        ref_attention(c);
        return;
    }
    Attend a = attend_of(c, 0, 3);
    team_run(c->team, attend_some, &a);
}
