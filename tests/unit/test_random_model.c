/* The random texts of tests: the same from the same seed, all of them right, and every
 * feature among the first of them. */
#include "tests/unit/planning.h"
#include "tests/unit/random_model.h"

enum { SEEDS = 300 };

typedef struct Texts { RandomModel model; RandomCluster cluster; const char *pins; RandomLayout layout; } Texts;

static Texts texts_of(Arena *a, uint64_t seed)
{
    Texts t = {.model = random_model(a, seed, "f32")};
    t.cluster = random_cluster(a, seed, &t.model);
    t.pins = random_pins(a, seed, &t.model, t.cluster.devices);
    t.layout = random_layout(a, seed, &t.model);
    return t;
}

/* ---- the same from the same seed ---- */

static void same_seed(void **unused)
{
    (void)unused;
    Arena *a = arena_new("texts");
    int others = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        Texts x = texts_of(a, seed), y = texts_of(a, seed), z = texts_of(a, seed + 1);
        assert_string_equal(x.model.text, y.model.text);
        assert_string_equal(x.cluster.text, y.cluster.text);
        assert_string_equal(x.pins, y.pins);
        assert_string_equal(x.layout.rules, y.layout.rules);
        others += strcmp(x.model.text, z.model.text) != 0;
    }
    assert_true(others > SEEDS * 9 / 10);
    arena_free(a);
}

/* ---- all of them right ---- */

static void read_rules(Case *c, const char *rules, uint64_t seed)
{
    Units units;
    Rules *read;
    IncludePath none = {0};
    const char *text = arena_printf(c->l.input, "plan { %s }", rules);
    c->ds = diags_new(c->l.sources);
    assert_int_equal(parse_text(c->ds, "<rules>", text, strlen(text), none, &units), OK);
    if (elaborate_rules(c->ds, &units, c->l.graph, c->l.ir, &read) != OK && !strstr(c->ds->first->text, "evenly"))
        fail_msg("seed %d: %s in '%s'", (int)seed, c->ds->first->text, rules);
}

/* Models and machines are read, and rules, but for splits that do not divide. */
static void all_are_read(void **unused)
{
    (void)unused;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        Arena *a = arena_new("texts");
        Texts t = texts_of(a, seed);
        Case c;
        open_case_on(&c, t.model.text, t.cluster.text);
        assert_int_equal(c.l.cluster->ndevices, t.cluster.devices);
        read_rules(&c, t.pins, seed);
        read_rules(&c, t.layout.rules, seed);
        close_case(&c);
        arena_free(a);
    }
}

/* ---- every feature ---- */

static bool is_prime(int64_t n)
{
    for (int64_t k = 2; k * k <= n; k++)
        if (n % k == 0)
            return false;
    return n > 1;
}

/* Features that are a matter of numbers. */
static bool has_number(const Texts *t, const char *name)
{
    const RandomModel *m = &t->model;
    const RandomLayout *l = &t->layout;
    const struct { const char *name; bool is; } list[] = {
        {"groups of heads", m->kv_heads > 1 && m->kv_heads < m->heads}, {"one kv head", m->kv_heads == 1 && m->heads > 1},
        {"an odd width", m->width % 2 == 1}, {"a prime width of the model", is_prime(m->hidden) && m->hidden > 2},
        {"a prime sequence", is_prime(m->seq)}, {"a prime ffn", is_prime(m->ffn)}, {"a prime vocabulary", is_prime(m->vocab)},
        {"one sample", m->batch == 1}, {"an odd batch", m->batch == 3}, {"no moments", !m->moments},
        {"one device", t->cluster.devices == 1}, {"seven devices", t->cluster.devices == 7}, {"eight devices", t->cluster.devices == 8},
        {"no pins", !*t->pins}, {"stages", l->pp > 1}, {"many stages", l->pp > 4}, {"dp", l->dp > 1}, {"cp", l->cp > 1}, {"tp", l->tp > 1},
        {"all of pp, dp and tp", l->pp > 1 && l->dp > 1 && l->tp > 1}, {"micro-batches", l->microbatches > 1},
        {"fewer kv heads than tp", l->tp > m->kv_heads && m->kv_heads > 0 && m->heads % l->tp == 0},
        {"samples that do not divide", m->batch % (l->dp * l->microbatches) != 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].is;
    fail_msg("no feature '%s'", name);
    return false;
}

/* Where a feature is read off: a text, which then has it word for word, or numbers. */
typedef enum Where { IN_MODEL, IN_CLUSTER, IN_PINS, IN_LAYOUT, IN_NUMBERS } Where;
static const struct { Where where; const char *what; } features[] = {
    {IN_MODEL, "causal = true"}, {IN_MODEL, "a = attention(q, k, v)"}, {IN_MODEL, "rope("}, {IN_MODEL, "image[batch, pixel]"}, {IN_MODEL, "iota(seq)"},
    {IN_MODEL, "= x * tok"}, {IN_MODEL, "head: linear"}, {IN_MODEL, "mean(x, over = seq)"}, {IN_MODEL, ": layernorm(x)"}, {IN_MODEL, ": rmsnorm(x)"},
    {IN_MODEL, "layernorm(x + attn("}, {IN_MODEL, "linear.bias = true"}, {IN_MODEL, "linear.bias = false"}, {IN_MODEL, "layernorm.bias = false"},
    {IN_MODEL, "up: linear"}, {IN_MODEL, "(gate |> silu)"}, {IN_MODEL, "(gate |> gelu)"}, {IN_MODEL, "|> relu"}, {IN_MODEL, "exact = true"},
    {IN_MODEL, "drop = 0.0"}, {IN_MODEL, "drop = 0.1"}, {IN_MODEL, "layers = 1,"}, {IN_MODEL, "layers = 2,"}, {IN_MODEL, "layers = 3,"},
    {IN_MODEL, "layers = 4,"}, {IN_MODEL, "layers = 5,"}, {IN_MODEL, "layers = 6,"}, {IN_MODEL, "ignore = "}, {IN_MODEL, "smooth = "},
    {IN_MODEL, "adamw"}, {IN_MODEL, "clip = "}, {IN_MODEL, "momentum"}, {IN_MODEL, "sgd { lr = 0.01 }"},
    {IN_CLUSTER, "backend = cpu"}, {IN_CLUSTER, "backend = cuda"}, {IN_CLUSTER, "cores = 1"}, {IN_CLUSTER, "cores = 4"}, {IN_CLUSTER, "level pod"},
    {IN_CLUSTER, "topology = ring"}, {IN_CLUSTER, "sms = "}, {IN_CLUSTER, "efficiency = "},
    {IN_PINS, "mesh pp"}, {IN_PINS, "mesh dp"}, {IN_PINS, "mesh tp"}, {IN_PINS, "microbatches"}, {IN_PINS, "gpipe"}, {IN_PINS, "1f1b"},
    {IN_PINS, "keep heads whole"}, {IN_PINS, "split ffn by tp"}, {IN_PINS, "keep ffn whole"}, {IN_PINS, "recompute"}, {IN_PINS, "shard optimizer"},
    {IN_LAYOUT, "pad vocab"}, {IN_LAYOUT, "split heads, ffn by tp"}, {IN_LAYOUT, "vocab by tp"}, {IN_LAYOUT, "split seq by tp"}, {IN_LAYOUT, "split seq by cp"},
    {IN_LAYOUT, "gpipe"}, {IN_LAYOUT, "shard optimizer"}, {IN_LAYOUT, "recompute h full"}, {IN_LAYOUT, "recompute h attention"},
    {IN_LAYOUT, "recompute h cheap"}, {IN_LAYOUT, "norm2"}, {IN_LAYOUT, "before last"},
    {IN_NUMBERS, "groups of heads"}, {IN_NUMBERS, "one kv head"}, {IN_NUMBERS, "an odd width"}, {IN_NUMBERS, "a prime width of the model"},
    {IN_NUMBERS, "a prime sequence"}, {IN_NUMBERS, "a prime ffn"}, {IN_NUMBERS, "a prime vocabulary"}, {IN_NUMBERS, "one sample"},
    {IN_NUMBERS, "an odd batch"}, {IN_NUMBERS, "no moments"}, {IN_NUMBERS, "one device"}, {IN_NUMBERS, "seven devices"}, {IN_NUMBERS, "eight devices"},
    {IN_NUMBERS, "no pins"}, {IN_NUMBERS, "stages"}, {IN_NUMBERS, "many stages"}, {IN_NUMBERS, "dp"}, {IN_NUMBERS, "cp"}, {IN_NUMBERS, "tp"},
    {IN_NUMBERS, "all of pp, dp and tp"}, {IN_NUMBERS, "micro-batches"}, {IN_NUMBERS, "fewer kv heads than tp"}, {IN_NUMBERS, "samples that do not divide"},
};
enum { FEATURES = sizeof features / sizeof *features };

static bool has_feature(const Texts *t, int i)
{
    const char *const text[] = {[IN_MODEL] = t->model.text, [IN_CLUSTER] = t->cluster.text, [IN_PINS] = t->pins, [IN_LAYOUT] = t->layout.rules};
    return features[i].where == IN_NUMBERS ? has_number(t, features[i].what) : strstr(text[features[i].where], features[i].what) != NULL;
}

static void every_feature(void **unused)
{
    (void)unused;
    Arena *a = arena_new("texts");
    int count[FEATURES] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        Texts t = texts_of(a, seed);
        for (int i = 0; i < FEATURES; i++)
            count[i] += has_feature(&t, i);
    }
    for (int i = 0; i < FEATURES; i++)
        if (count[i] == 0 || count[i] == SEEDS)
            fail_msg("'%s' is in %d of %d texts", features[i].what, count[i], SEEDS);
    arena_free(a);
}

/* ---- memory ---- */

/* Machines have room for a model on one device, or only on several, or on none. */
static void memory_is_tight(void **unused)
{
    (void)unused;
    int fits = 0, tight = 0;
    for (uint64_t seed = 0; seed < SEEDS / 5; seed++) {
        Arena *a = arena_new("texts");
        Texts t = texts_of(a, seed);
        Case c;
        open_case_on(&c, t.model.text, t.cluster.text);
        Status s = try_rules(&c, "devices = [0]");
        fits += s == OK;
        tight += s != OK && strstr(c.ds->first->text, "does not fit") != NULL;
        assert_true(s == OK || strstr(c.ds->first->text, "does not fit"));
        close_case(&c);
        arena_free(a);
    }
    print_message("# one device has room for %d models, too little for %d\n", fits, tight);
    assert_true(fits >= SEEDS / 20 && tight >= SEEDS / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed),
        cmocka_unit_test(all_are_read),
        cmocka_unit_test(every_feature),
        cmocka_unit_test(memory_is_tight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
