#ifndef TESTS_UNIT_LAYOUT_ROWS_H
#define TESTS_UNIT_LAYOUT_ROWS_H
/* The layout matrix: models whose axes divide by every degree, and rows, each of a model,
 * a mesh of up to eight ranks and what else may change how a step is computed.  Rows that
 * cover all pairs of values, and dozens of them. */
#include <math.h>

#include "base/text.h"
#include "tests/unit/layouts.h"

/* ---- models ---- */

typedef struct Fixture {
    const char *name;
    Setting     of;
    const char *block, *half, *last;  /* the repeat; the second norm of a round; the last norm */
    int         layers;
    const char *rules;                /* of every plan */
    int64_t     vocab;                /* elements of the stored axis */
    const char *zeroed;               /* weights of this path start at zero: the loss is ln V; NULL: none */
    bool        ignores;              /* labels that do not count, more of them in the first samples */
} Fixture;

enum { IGNORED = 59, VOCAB = 60 };    /* IGNORED: a class, so that it is a label of any model */
#define CLIPPED 0.05                  /* the norm that gradients are clipped to: smaller than that of any model here */

#define DECODER "include \"decoder.pmodel\"\n"                                                                              \
    "model m {\n dim batch = 8, seq = 12, vocab = 60, hidden = 48, ffn = 120, heads = 12, kv_heads = 4\n"                   \
    " param layers = 2, dtype = f64\n defaults { linear.bias = false }\n precision { compute = dtype }\n"                   \
    " optimizer adamw { lr = 1e-3, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1 }\n"                                       \
    " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n"
#define LAYERS(window) " repeat layers as layer {\n"                                                                        \
    "  x = x + attn(norm1: rmsnorm(x), heads, kv_heads" window ")\n  x = x + mlp: swiglu(norm2: rmsnorm(x), ffn)\n }\n"

static const char zero_head[] = DECODER " weight tok[vocab, hidden]\n x = embed(ids, tok)\n" LAYERS("")
    " minimize cross_entropy(head: linear(norm: rmsnorm(x), vocab, init = zeros), labels)\n}\n";
static const char two_losses[] = DECODER " weight tok[vocab, hidden]\n x = embed(ids, tok)\n" LAYERS("")
    " main = cross_entropy(head: linear(norm: rmsnorm(x), vocab, bias = true), labels, ignore = 59, smooth = 0.1)\n"
    " again = cross_entropy(back: linear(x, vocab), ids, ignore = 58)\n minimize main + 0.3 * again\n}\n";
static const char windowed[] = DECODER " weight tok[vocab, hidden] frozen\n x = embed(ids, tok)\n" LAYERS(", window = 5")
    " minimize cross_entropy(head: linear(norm: rmsnorm(x), vocab), labels)\n}\n";

#define GPT2 "vocab=61 hidden=48 heads=12 ffn=120 context=60"

static const Fixture fixtures[] = {
    {.name = "tied_and_padded", .of = {"tiny_gpt2", GPT2, NULL}, .block = "h", .half = "ln2", .last = "ln_f", .layers = 5, .rules = "pad vocab to 60; ", .vocab = 120},
    {.name = "grouped_heads", .of = {"tiny_llama", "vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120", NULL}, .block = "layer", .half = "norm2", .last = "norm", .layers = 7, .rules = "", .vocab = 60},
    {.name = "dropout", .of = {"tiny_gpt2", GPT2 " drop=0.2", NULL}, .block = "h", .half = "ln2", .last = "ln_f", .layers = 2, .rules = "pad vocab to 60; ", .vocab = 120},
    {.name = "zero_head", .of = {"zero_head", "", zero_head}, .block = "layer", .half = "norm2", .last = "norm", .layers = 5, .rules = "", .vocab = 60, .zeroed = "head.w"},
    {.name = "two_losses_of_unequal_labels", .of = {"two_losses", "", two_losses}, .block = "layer", .half = "norm2", .last = "norm", .layers = 7, .rules = "", .vocab = 60, .ignores = true},
    {.name = "window_and_frozen", .of = {"windowed", "", windowed}, .block = "layer", .half = "norm2", .last = "norm", .layers = 3, .rules = "", .vocab = 60},
};
enum { FIXTURES = sizeof fixtures / sizeof *fixtures };

/* ---- rows ---- */

typedef enum Dimension { MODEL, PP, DP, TP, SEQ, MICRO, SCHEDULE, CLIP, EPS, RECOMPUTED, SHARDED, DIMENSIONS } Dimension;
static const uint8_t values[DIMENSIONS] = {[MODEL] = FIXTURES, [PP] = 6, [DP] = 6, [TP] = 6, [SEQ] = 2, [MICRO] = 3, [SCHEDULE] = 2, [CLIP] = 2, [EPS] = 2, [RECOMPUTED] = 2, [SHARDED] = 2};

typedef struct Row { uint8_t at[DIMENSIONS]; } Row;   /* numbers of values; degrees are those + 1 */

static int64_t ranks_of(const Row *r)
{
    return (r->at[PP] + 1) * (r->at[DP] + 1) * (r->at[TP] + 1);
}

static bool is_plan(const Row *r)
{
    return ranks_of(r) <= 8 && !(r->at[SEQ] && r->at[TP] == 0) && !(r->at[SCHEDULE] && r->at[PP] == 0) && !(r->at[SHARDED] && r->at[DP] == 0);
}

static int64_t micro_of(const Row *r)
{
    return (int64_t)1 << r->at[MICRO];
}

/* Divides by every degree that may split it. */
static int64_t seq_of(const Row *r, bool large)
{
    return large ? 60 : r->at[SEQ] && r->at[TP] + 1 == 5 ? 20 : 12;
}

static Setting setting_of(Arena *a, const Row *r, bool large)
{
    const Fixture *f = &fixtures[r->at[MODEL]];
    Setting s = f->of;
    s.defines = arena_printf(a, "%s batch=%lld seq=%lld layers=%d", f->of.defines, (long long)(micro_of(r) * (r->at[DP] + 1) * 2),
                             (long long)seq_of(r, large), f->layers);
    return s;
}

/* The n-th place to cut a model: before a round, before its second half, before the last norm. */
static const char *cut_at(Arena *a, const Fixture *f, int64_t n)
{
    int round = (int)(n / 2);
    if (round == f->layers)
        return f->last;
    return n % 2 ? arena_printf(a, "%s[%d].%s", f->block, round, f->half) : arena_printf(a, "%s[%d]", f->block, round);
}

static Pin pin_of(Arena *a, const Row *r)
{
    const Fixture *f = &fixtures[r->at[MODEL]];
    int64_t pp = r->at[PP] + 1, tp = r->at[TP] + 1, places = 2 * f->layers + 1;
    Text t = text_new(a);
    text_add(&t, "%s", f->rules);
    for (int64_t s = 1; s < pp; s++)
        text_add(&t, "stage before %s; ", cut_at(a, f, s * places / pp));
    if (tp > 1)
        text_add(&t, "split %sffn, vocab by tp; ", tp == 5 ? "" : "heads, ");
    text_add(&t, "%s%s%s%s", r->at[SHARDED] ? "shard optimizer by dp; " : "", r->at[SEQ] ? "split seq by tp; " : "", r->at[SCHEDULE] ? "schedule = \"gpipe\"; " : "",
             r->at[RECOMPUTED] ? arena_printf(a, "recompute %s full", f->block) : "");
    return (Pin){pp, r->at[DP] + 1, 1, tp, micro_of(r), t.s};
}

/* ---- what ranks begin with ---- */

static void zero_weight(LockRank *r, const char *path)
{
    const State *s = state_of(r->p, path);
    if (s)
        memset(lock_at(r, s->weight, 0, 0), 0, (size_t)tensor_bytes(&r->p->tensor[s->weight.i]));
}

/* Of sample s of n, about (s + 1) / n of the labels count; `label`: its number among all. */
static bool is_ignored(int64_t label, int64_t s, int64_t n)
{
    return lock_noise("ignored", label) > 2.0 * (double)(s + 1) / (double)n - 1;
}

static void ignore_labels(LockRank *r)
{
    for (uint32_t k = 0; k < r->p->ninput; k++) {
        const Input *in = &r->p->input[k];
        if (!has_tensor(in->tensor))
            continue;
        const Tensor *t = &r->p->tensor[in->tensor.i];
        for (uint32_t m = 0; strcmp(in->name, "labels") == 0 && m < r->p->buffer[t->buffer.i].slots; m++)
            for (int64_t i = 0; i < tensor_elements(t); i++) {
                int64_t g = lock_global(t, i, m);
                if (is_ignored(g, g / t->axis[1].global, t->axis[0].global))
                    int_put(t, lock_at(r, in->tensor, 0, m), i, IGNORED);
            }
    }
}

typedef struct Begun { const Fixture *f; int64_t classes; } Begun;

static void fill_fixture(LockRank *r, const void *ctx)
{
    const Begun *b = ctx;
    lock_fill(r, b->classes);
    if (b->f->zeroed)
        zero_weight(r, b->f->zeroed);
    if (b->f->ignores)
        ignore_labels(r);
}

/* ---- rows that cover all pairs ---- */

enum { MOST_VALUES = 8, MOST_ROWS = 80, DOZEN = 12, TRIES = 1000 };

typedef struct Rows { Row row[MOST_ROWS]; int n; } Rows;

typedef struct Pairs { bool open[DIMENSIONS][MOST_VALUES][DIMENSIONS][MOST_VALUES]; uint32_t n; uint64_t state; } Pairs;   /* state: of the numbers drawn */

static uint32_t draw(Pairs *p, uint32_t below)
{
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
static Row least(int d, uint8_t x, int e, uint8_t y)
{
    Row r = {{0}};
    r.at[d] = x;
    r.at[e] = y;
    if (r.at[SEQ] && d != TP && e != TP)
        r.at[TP] = 1;
    if (r.at[SCHEDULE] && d != PP && e != PP)
        r.at[PP] = 1;
    if (r.at[SHARDED] && d != DP && e != DP)
        r.at[DP] = 1;
    return r;
}

static Pairs all_pairs(void)
{
    Pairs p = {.state = 1};
    for (int d = 0; d < DIMENSIONS; d++)
        for (int e = d + 1; e < DIMENSIONS; e++)
            for (uint8_t x = 0; x < values[d]; x++)
                for (uint8_t y = 0; y < values[e]; y++) {
                    Row r = least(d, x, e, y);
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
    Row best = least(d, (uint8_t)x, e, (uint8_t)y);
    for (int i = 0; i < TRIES; i++) {
        Row r;
        for (int k = 0; k < DIMENSIONS; k++)
            r.at[k] = (uint8_t)(k == d ? x : k == e ? y : (int)draw(p, values[k]));
        if (is_plan(&r) && news(p, &r) > news(p, &best))
            best = r;
    }
    cover(p, &best);
    return best;
}

static Rows rows_of_all_pairs(void)
{
    Rows all = {.n = 0};
    for (Pairs p = all_pairs(); p.n > 0;) {
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
    bool taken[MOST_ROWS] = {false};
    Rows dozen = {.n = 0};
    for (int k = 0; k <= n; k++) {
        Pairs p = all_pairs();
        for (dozen.n = 0; dozen.n < DOZEN; dozen.n++) {
            int best = best_row(all, taken, &dozen, &p);
            taken[best] = true;
            cover(&p, &all->row[best]);
            dozen.row[dozen.n] = all->row[best];
        }
    }
    for (int d = 0; d < DIMENSIONS; d++)
        for (uint8_t x = 0; x < values[d]; x++)
            if (!has_value_of(&dozen, d, x))
                fail_msg("dozen %d: no row has value %d of dimension %d", n, x, d);
    return dozen;
}

#endif
