#ifndef TESTS_UNIT_LAYOUT_ROWS_H
#define TESTS_UNIT_LAYOUT_ROWS_H
/* The layout matrix: rows, each of a model, a mesh of up to eight ranks and what else may
 * change how a step is computed.  Rows that cover all pairs of values, and dozens of them. */
#include "tests/unit/layout_models.h"

/* ---- rows ---- */

typedef enum Dimension { MODEL, PP, DP, TP, SEQ, MICRO, SCHEDULE, CLIP, EPS, RECOMPUTED, SHARDED, CP, DIMENSIONS } Dimension;

/* Models, and how many values of each dimension their rows have.  Model 0 may have them all. */
typedef struct Family { const Fixture *fixture; uint8_t values[DIMENSIONS]; } Family;

enum { FAMILY_decoders, FAMILY_bundled, FAMILIES };

static const Family families[FAMILIES] = {
    [FAMILY_decoders] = {decoders, {[MODEL] = DECODERS, [PP] = 6, [DP] = 6, [TP] = 6, [SEQ] = 2, [MICRO] = 3, [SCHEDULE] = 2, [CLIP] = 2, [EPS] = 2, [RECOMPUTED] = 2, [SHARDED] = 2, [CP] = 1}},
    [FAMILY_bundled] = {bundled, {[MODEL] = BUNDLED, [PP] = 4, [DP] = 4, [TP] = 4, [SEQ] = 2, [MICRO] = 3, [SCHEDULE] = 2, [CLIP] = 1, [EPS] = 1, [RECOMPUTED] = 2, [SHARDED] = 2, [CP] = 3}},
};

typedef struct Row { const Family *family; uint8_t at[DIMENSIONS]; } Row;   /* numbers of values; degrees are those + 1 */

/* A dimension that another needs more than one of, or itself. */
static const Dimension needs[DIMENSIONS] = {[SEQ] = TP, [SCHEDULE] = PP, [SHARDED] = DP};

static const Fixture *fixture_of(const Row *r)
{
    return &r->family->fixture[r->at[MODEL]];
}

static int64_t ranks_of(const Row *r)
{
    return (r->at[PP] + 1) * (r->at[DP] + 1) * (r->at[CP] + 1) * (r->at[TP] + 1);
}

static int places_of(const Fixture *f)
{
    return f->cut ? f->ncut : 2 * f->layers + 1;
}

static bool is_plan(const Row *r)
{
    const Fixture *f = fixture_of(r);
    for (int d = 0; d < DIMENSIONS; d++)
        if (r->at[d] && needs[d] && r->at[needs[d]] == 0)
            return false;
    return ranks_of(r) <= 8 && !(r->at[MICRO] && f->whole) && r->at[PP] <= places_of(f) && !((r->at[SEQ] || r->at[CP]) && !f->position[0]);
}

static int64_t micro_of(const Row *r)
{
    return (int64_t)1 << r->at[MICRO];
}

/* Divides by every degree that may split it. */
static int64_t seq_of(const Row *r, bool large)
{
    int64_t parts = (r->at[SEQ] ? r->at[TP] + 1 : 1) * (r->at[CP] + 1);
    return large && 60 % parts == 0 ? 60 : parts == 5 ? 20 : 12 % parts ? 24 : 12;
}

static Setting setting_of(Arena *a, const Row *r, bool large)
{
    const Fixture *f = fixture_of(r);
    Setting s = f->of;
    Text t = text_new(a);
    text_add(&t, "%s batch=%lld ", f->of.defines, (long long)(micro_of(r) * (r->at[DP] + 1) * 2));
    f->lengths(&t, seq_of(r, large));
    if (f->layers)
        text_add(&t, " layers=%d", f->layers);
    s.defines = t.s;
    return s;
}

/* The n-th place to cut a model. */
static const char *cut_at(Arena *a, const Fixture *f, int64_t n)
{
    int round = (int)(n / 2);
    if (f->cut)
        return f->cut[n];
    if (round == f->layers)
        return f->last;
    return n % 2 ? arena_printf(a, "%s[%d].%s", f->block, round, f->half) : arena_printf(a, "%s[%d]", f->block, round);
}

static void add_positions(Text *t, const Fixture *f, const char *mesh)
{
    for (int i = 0; i < MOST_POSITIONS && f->position[i]; i++)
        text_add(t, "split %s by %s; ", f->position[i], mesh);
}

static Pin pin_of(Arena *a, const Row *r)
{
    const Fixture *f = fixture_of(r);
    int64_t pp = r->at[PP] + 1, tp = r->at[TP] + 1;
    Text t = text_new(a);
    text_add(&t, "%s", f->rules);
    for (int64_t s = 1; s < pp; s++)
        text_add(&t, "stage before %s; ", cut_at(a, f, s * places_of(f) / pp));
    if (tp > 1)
        text_add(&t, "split %s%s, %s by tp; ", f->heads && tp != 5 ? "heads, " : "", f->split[0].name, f->split[1].name);
    if (r->at[SHARDED])
        text_add(&t, "shard optimizer by dp; ");
    if (r->at[SEQ])
        add_positions(&t, f, "tp");
    if (r->at[CP])
        add_positions(&t, f, "cp");
    text_add(&t, "%s%s", r->at[SCHEDULE] ? "schedule = \"gpipe\"; " : "", r->at[RECOMPUTED] ? f->recomputed : "");
    return (Pin){pp, r->at[DP] + 1, r->at[CP] + 1, tp, micro_of(r), t.s};
}

/* ---- rows that cover all pairs ---- */

enum { MOST_VALUES = 8, MOST_ROWS = 80, DOZEN = 12, TRIES = 1000 };

typedef struct Rows { Row row[MOST_ROWS]; int n; } Rows;

typedef struct Pairs {
    const Family *family;
    bool     open[DIMENSIONS][MOST_VALUES][DIMENSIONS][MOST_VALUES];
    uint32_t n;
    uint64_t state;                   /* of the numbers drawn */
} Pairs;

/* Where there is a choice. */
static uint32_t draw(Pairs *p, uint32_t below)
{
    if (below == 1)
        return 0;
    p->state = p->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(p->state >> 33) % below;
}

static uint32_t news(const Pairs *p, const Row *r)
{
    uint32_t n = 0;
    for (int d = 0; d < DIMENSIONS; d++)
        for (int e = d + 1; e < DIMENSIONS; e++)
            n += p->open[d][r->at[d]][e][r->at[e]];
    return n;
}

static void cover(Pairs *p, const Row *r)
{
    p->n -= news(p, r);
    for (int d = 0; d < DIMENSIONS; d++)
        for (int e = d + 1; e < DIMENSIONS; e++)
            p->open[d][r->at[d]][e][r->at[e]] = false;
}

/* The smallest plan with two values: degrees are 1 and switches off, but for what a value needs. */
static Row least(const Family *family, int d, uint8_t x, int e, uint8_t y)
{
    Row r = {.family = family};
    r.at[d] = x;
    r.at[e] = y;
    for (int k = 0; k < DIMENSIONS; k++)
        if (r.at[k] && needs[k] && d != (int)needs[k] && e != (int)needs[k])
            r.at[needs[k]] = 1;
    return r;
}

static Pairs all_pairs(const Family *family)
{
    const uint8_t *values = family->values;
    Pairs p = {.family = family, .state = 1};
    for (int d = 0; d < DIMENSIONS; d++)
        for (int e = d + 1; e < DIMENSIONS; e++)
            for (uint8_t x = 0; x < values[d]; x++)
                for (uint8_t y = 0; y < values[e]; y++) {
                    Row r = least(family, d, x, e, y);
                    p.open[d][x][e][y] = is_plan(&r);
                    p.n += is_plan(&r);
                }
    return p;
}

/* Of rows that hold the first open pair, all else drawn, the one with the most new ones. */
static Row next_row(Pairs *p)
{
    int d = 0, e = 1, x = 0, y = 0;
    while (!p->open[d][x][e][y]) {
        y = (y + 1) % MOST_VALUES;
        x = (x + (y == 0)) % MOST_VALUES;
        e += x == 0 && y == 0;
        d += e == DIMENSIONS;
        e = e == DIMENSIONS ? d + 1 : e;
    }
    Row best = least(p->family, d, (uint8_t)x, e, (uint8_t)y);
    for (int i = 0; i < TRIES; i++) {
        Row r = {.family = p->family};
        for (int k = 0; k < DIMENSIONS; k++)
            r.at[k] = (uint8_t)(k == d ? x : k == e ? y : (int)draw(p, p->family->values[k]));
        if (is_plan(&r) && news(p, &r) > news(p, &best))
            best = r;
    }
    cover(p, &best);
    return best;
}

static Rows rows_of_all_pairs(const Family *family)
{
    Rows all = {.n = 0};
    for (Pairs p = all_pairs(family); p.n > 0;) {
        assert_true(all.n < MOST_ROWS);
        all.row[all.n++] = next_row(&p);
    }
    return all;
}

/* ---- dozens of them ---- */

static bool has_value_of(const Rows *rows, int d, uint8_t x)
{
    for (int i = 0; i < rows->n; i++)
        if (rows->row[i].at[d] == x)
            return true;
    return false;
}

/* What a row adds to others: values that none of them has count before pairs, and large
 * degrees before small ones, which come with them. */
static uint32_t worth(const Rows *rows, const Pairs *p, const Row *r)
{
    uint32_t fresh = 0;
    for (int d = 0; d < DIMENSIONS; d++)
        fresh += has_value_of(rows, d, r->at[d]) ? 0 : 1u + r->at[d] * r->at[d];
    return fresh * 1000 + news(p, r);
}

static int best_row(const Rows *all, const bool *taken, const Rows *rows, const Pairs *p)
{
    int best = -1;
    for (int i = 0; i < all->n; i++)
        if (!taken[i] && ranks_of(&all->row[i]) > 1 && (best < 0 || worth(rows, p, &all->row[i]) > worth(rows, p, &all->row[best])))
            best = i;
    return best;
}

/* The n-th dozen of rows of many ranks, each with every value of every dimension; no row is in two. */
static Rows dozen_of(const Rows *all, int n)
{
    const Family *family = all->row[0].family;
    bool taken[MOST_ROWS] = {false};
    Rows dozen = {.n = 0};
    for (int k = 0; k <= n; k++) {
        Pairs p = all_pairs(family);
        for (dozen.n = 0; dozen.n < DOZEN; dozen.n++) {
            int best = best_row(all, taken, &dozen, &p);
            taken[best] = true;
            cover(&p, &all->row[best]);
            dozen.row[dozen.n] = all->row[best];
        }
    }
    for (int d = 0; d < DIMENSIONS; d++)
        for (uint8_t x = 0; x < family->values[d]; x++)
            if (!has_value_of(&dozen, d, x))
                fail_msg("dozen %d: no row has value %d of dimension %d", n, x, d);
    return dozen;
}

#endif
