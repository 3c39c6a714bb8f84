/* No layout changes the numbers: models under plans of up to eight ranks in all their
 * dimensions.  `make check` runs rows in which every pair of values of two dimensions
 * comes together (a pairwise covering array).  With the name of a model as its argument the
 * program runs every layout of that, the other dimensions in turn: tests/slow/layouts.sh
 * does so for all.
 *
 * Of a row: losses and norms of its steps, the gradients of the first and the weights at
 * the end against one device; copies of a weight bit by bit after every step; whether the
 * plan split what it says. */
#include "tests/unit/layouts.h"

/* ---- models ---- */

typedef struct Fixture {
    const char *name;
    Setting     of;
    const char *block, *half, *last;  /* the repeat; the second norm of a round; the last norm */
    int         layers;
    const char *rules;                /* of every plan */
    int64_t     vocab;                /* elements of the stored axis */
    const char *zeroed;               /* weights of this path start at zero: the loss is ln V */
    bool        ignores;              /* labels that do not count, more of them in the first samples */
} Fixture;

enum { IGNORED = 59, VOCAB = 60 };    /* IGNORED: a class, so that it is a label of any model */

#define DECODER "include \"decoder.pmodel\"\n"                                                                              \
    "model m {\n dim batch = 8, seq = 12, vocab = 60, hidden = 48, ffn = 120, heads = 12, kv_heads = 4\n"                   \
    " param layers = 2, dtype = f64\n defaults { linear.bias = false }\n precision { compute = dtype }\n"                   \
    " optimizer adamw { lr = 1e-3, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1 }\n"                                       \
    " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n"
#define LAYERS(window) " repeat layers as layer {\n"                                                                        \
    "  x = x + attn(norm1: rmsnorm(x), heads, kv_heads" window ")\n  x = x + mlp: swiglu(norm2: rmsnorm(x), ffn)\n }\n"

static const char zero_head[] = DECODER " weight tok[vocab, hidden]\n x = embed(ids, tok)\n" LAYERS("")
    " minimize cross_entropy(head: linear(norm: rmsnorm(x), vocab), labels)\n}\n";
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
    {.name = "zero_head", .of = {"zero_head", "", zero_head}, .block = "layer", .half = "norm2", .last = "norm", .layers = 2, .rules = "", .vocab = 60, .zeroed = "head.w"},
    {.name = "two_losses_of_unequal_labels", .of = {"two_losses", "", two_losses}, .block = "layer", .half = "norm2", .last = "norm", .layers = 2, .rules = "", .vocab = 60, .ignores = true},
    {.name = "window_and_frozen", .of = {"windowed", "", windowed}, .block = "layer", .half = "norm2", .last = "norm", .layers = 3, .rules = "", .vocab = 60},
};
enum { FIXTURES = sizeof fixtures / sizeof *fixtures };

/* ---- rows ---- */

typedef enum Dimension { MODEL, PP, DP, TP, SEQ, MICRO, SCHEDULE, CLIP, EPS, RECOMPUTED, SHARDED, DIMENSIONS } Dimension;
static const uint8_t values[DIMENSIONS] = {[MODEL] = FIXTURES, [PP] = 6, [DP] = 6, [TP] = 6, [SEQ] = 2, [MICRO] = 3, [SCHEDULE] = 2, [CLIP] = 2, [EPS] = 2, [RECOMPUTED] = 2, [SHARDED] = 2};

typedef struct Row { uint8_t at[DIMENSIONS]; } Row;   /* numbers of values; degrees are those + 1 */

static bool is_plan(const Row *r)
{
    int ranks = (r->at[PP] + 1) * (r->at[DP] + 1) * (r->at[TP] + 1);
    return ranks <= 8 && !(r->at[SEQ] && r->at[TP] == 0) && !(r->at[SCHEDULE] && r->at[PP] == 0) && !(r->at[SHARDED] && r->at[DP] == 0);
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

static Setting setting_of(const Model *m, const Row *r, bool large)
{
    const Fixture *f = &fixtures[r->at[MODEL]];
    Setting s = f->of;
    s.defines = arena_printf(m->a, "%s batch=%lld seq=%lld layers=%d", f->of.defines, (long long)(micro_of(r) * (r->at[DP] + 1) * 2),
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

/* ---- what a plan split ---- */

static bool any_extent(const Program *p, const char *dim, const Graph *g, int64_t local)
{
    for (uint32_t v = 0; v < g->nvalue; v++)
        for (int x = 0; x < g->value[v].rank; x++)
            for (uint32_t t = 0; strcmp(dim_of(g, g->value[v].axis[x])->name, dim) == 0 && t < p->ntensor; t++)
                if (p->tensor[t].rank == g->value[v].rank && strcmp(p->tensor[t].path, g->value[v].path) == 0 && p->tensor[t].axis[x].local == local)
                    return true;
    return false;
}

/* Some rank has a part of the axis, of the size it must have. */
static void assert_split(const Model *m, const Lockstep *l, const char *dim, int64_t extent, int64_t tp, const char *what)
{
    for (uint32_t r = 0; r < l->n; r++)
        if (any_extent(l->rank[r].p, dim, m->g, extent / tp))
            return;
    fail_msg("%s: '%s' is not split", what, dim);
}

static void check_split(const Model *m, const Row *r, const Lockstep *l, bool large, const char *what)
{
    int64_t tp = r->at[TP] + 1;
    if (tp == 1)
        return;
    assert_split(m, l, "ffn", 120, tp, what);
    assert_split(m, l, "vocab", fixtures[r->at[MODEL]].vocab, tp, what);
    if (tp != 5)
        assert_split(m, l, "heads", 12, tp, what);
    if (r->at[SEQ])
        assert_split(m, l, "seq", seq_of(r, large), tp, what);
}

/* A plan executed twice. */
static void same_bits(const Lockstep *a, const Lockstep *b, const char *what)
{
    for (uint32_t r = 0; r < a->n; r++)
        for (uint32_t i = 0; i < a->rank[r].p->nstate; i++) {
            TensorId w = a->rank[r].p->state[i].weight;
            if (memcmp(lock_at(&a->rank[r], w, 0, 0), lock_at(&b->rank[r], w, 0, 0), (size_t)tensor_bytes(&a->rank[r].p->tensor[w.i])) != 0)
                fail_msg("%s: '%s' is not the same the second time", what, a->rank[r].p->state[i].path);
        }
}

/* ---- one row ---- */

static void zero_weight(LockRank *r, const char *path)
{
    const State *s = state_of(r->p, path);
    if (s)
        memset(lock_at(r, s->weight, 0, 0), 0, (size_t)tensor_bytes(&r->p->tensor[s->weight.i]));
}

/* Of sample s of n, about (s + 1) / n of the labels count. */
static void ignore_labels(LockRank *r)
{
    for (uint32_t k = 0; k < r->p->ninput; k++) {
        const Input *in = &r->p->input[k];
        if (!has_tensor(in->tensor))
            continue;
        const Tensor *t = &r->p->tensor[in->tensor.i];
        for (uint32_t m = 0; strcmp(in->name, "labels") == 0 && m < r->p->buffer[t->buffer.i].slots; m++)
            for (int64_t i = 0; i < tensor_elements(t); i++) {
                int64_t g = lock_global(t, i, m), sample = g / t->axis[1].global;
                if (lock_noise("ignored", g) > 2.0 * (double)(sample + 1) / (double)t->axis[0].global - 1)
                    int_put(t, lock_at(r, in->tensor, 0, m), i, IGNORED);
            }
    }
}

static Lockstep open_row(Model *m, const Row *r, Pin pin)
{
    const Fixture *f = &fixtures[r->at[MODEL]];
    Plan plan = plan_of(m, pin);
    Lockstep l = lock_open(m->a, lower_programs(m, &plan), plan.ndevices, classes_of(m->g));
    for (uint32_t i = 0; i < l.n; i++) {
        if (f->zeroed)
            zero_weight(&l.rank[i], f->zeroed);
        if (f->ignores)
            ignore_labels(&l.rank[i]);
    }
    return l;
}

static void check_row(const Row *r, int steps, bool large, bool twice)
{
    Arena *names = arena_new("test");
    Model m = {.a = names};
    Setting s = setting_of(&m, r, large);
    Pin pin = pin_of(names, r);
    const char *what = arena_printf(names, "%s %s: pp=%lld dp=%lld tp=%lld m=%lld clip %d eps %d '%s'", s.model, s.defines, (long long)pin.pp, (long long)pin.dp,
                                    (long long)pin.tp, (long long)pin.microbatches, r->at[CLIP], r->at[EPS], pin.rules);
    m = model_load(s);
    m.g->optimizer.clip = r->at[CLIP] ? 0.5 : 0;
    m.g->optimizer.eps = r->at[EPS] ? 1 : 1e-8;
    Lockstep one = open_row(&m, r, (Pin){1, 1, 1, 1, 1, ""}), all = open_row(&m, r, pin), again = {0};
    if (twice)
        again = open_row(&m, r, pin);
    check_split(&m, r, &all, large, what);
    for (int step = 0; step < steps; step++) {
        lock_step(&one);
        lock_step(&all);
        same_scalars(&one, &all, what);
        same_copies(&all, what);
        if (step == 0)
            same_states(&one, &all, true, 1e-10, what);
        if (step == 0 && fixtures[r->at[MODEL]].zeroed && fabs(scalar(&one.rank[0], one.rank[0].p->loss) - log(VOCAB)) > 1e-12)
            fail_msg("%s: a head of zeros costs %.17g, not ln %d", what, scalar(&one.rank[0], one.rank[0].p->loss), VOCAB);
        if (twice)
            lock_step(&again);
    }
    same_states(&one, &all, false, 1e-9, what);
    if (twice) {
        same_bits(&all, &again, what);
        lock_close(&again);
    }
    lock_close(&one);
    lock_close(&all);
    arena_free(m.a);
    arena_free(names);
}

/* ---- rows that cover all pairs ---- */

enum { MOST_VALUES = 8, MOST_ROWS = 80, TRIES = 1000 };

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

static void all_pairs_of_dimensions(void **unused)
{
    (void)unused;
    Pairs p = all_pairs();
    int rows = 0;
    for (; p.n > 0; rows++) {
        Row r = next_row(&p);
        check_row(&r, 2, false, rows % 8 == 0);
    }
    print_message("# %d plans\n", rows);
    assert_in_range(rows, 1, MOST_ROWS);
}

/* ---- all layouts ---- */

/* What does not change the layout goes through its values, each model and layout at
 * another place. */
static void every_layout_of(uint8_t model)
{
    uint32_t n = model;
    Row r = {{0}};
    r.at[MODEL] = model;
    for (r.at[PP] = 0; r.at[PP] < values[PP]; r.at[PP]++)
        for (r.at[DP] = 0; r.at[DP] < values[DP]; r.at[DP]++)
            for (r.at[TP] = 0; r.at[TP] < values[TP]; r.at[TP]++)
                for (int rest = 0; rest < 24; rest++) {
                    r.at[SEQ] = (uint8_t)(rest % 2);
                    r.at[SCHEDULE] = (uint8_t)(rest / 2 % 2);
                    r.at[RECOMPUTED] = (uint8_t)(rest / 4 % 2);
                    r.at[SHARDED] = 0;
                    r.at[MICRO] = (uint8_t)(rest / 8);
                    if (!is_plan(&r))
                        continue;
                    r.at[CLIP] = n % 2;
                    r.at[EPS] = n / 2 % 2;
                    r.at[SHARDED] = r.at[DP] > 0 && n / 4 % 2;
                    check_row(&r, 3, n % 32 == 0, n % 8 == 0);
                    n++;
                }
}

static void every_layout(void **state)
{
    every_layout_of(*(const uint8_t *)*state);
}

/* ---- what is refused ---- */

static void heads_that_do_not_divide(void **unused)
{
    (void)unused;
    Model m = model_load((Setting){"tiny_llama", "vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120 seq=12", NULL});
    Plan plan = plan_of(&m, (Pin){1, 1, 1, 5, 1, "split heads, ffn, vocab by tp"});
    Program *p;
    assert_int_equal(codegen(m.a, m.ds, m.g, &plan, m.cl, 0, NULL, &p), ERR_REJECT);
    assert_int_equal(m.ds->errors, 1);
    assert_non_null(strstr(m.ds->first->text, "cannot split 'heads' (12) by tp = 5"));
    arena_free(m.a);
}

static int run_model(const char *name)
{
    for (uint8_t i = 0; i < FIXTURES; i++)
        if (strcmp(fixtures[i].name, name) == 0) {
            const struct CMUnitTest tests[] = {{"every_layout", every_layout, NULL, NULL, &i}};
            return cmocka_run_group_tests(tests, NULL, NULL);
        }
    for (int i = 0; i < FIXTURES; i++)
        puts(fixtures[i].name);
    return strcmp(name, "models") != 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_pairs_of_dimensions), cmocka_unit_test(heads_that_do_not_divide)};
    return argc > 1 ? run_model(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
