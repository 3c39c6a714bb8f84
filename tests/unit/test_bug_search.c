/* Public bug reports about planners, on what the search finds: it is a plan that runs within the memory
 * there is, or there is none. */
#include "tests/unit/planned_step.h"
#include "tests/unit/random_model.h"

/* Not all that is open is looked at: any plan will do. */
static const SearchLimits few = {.top = 1, .effort = 20000};

/* ---- J01: what does not divide is not chosen ---- */

static const char *decoder(Arena *a, int heads, int kv_heads, int seq, int ffn)
{
    return arena_printf(a,
        "include \"std/decoder.pmodel\"\n"
        "model m {\n  dim batch = 2, seq = %d, vocab = 30, hidden = %d, ffn = %d, heads = %d, kv_heads = %d\n"
        "  precision { compute = f64 }\n  optimizer adamw { lr = 1e-3 }\n"
        "  input ids[batch, seq] : i32\n  input labels[batch, seq] : i32\n  weight tok[vocab, hidden]\n"
        "  x = embed(ids, tok)\n  repeat 2 as h {\n    x = x + attn(norm1: rmsnorm(x), heads, kv_heads)\n    x = x + mlp: swiglu(norm2: rmsnorm(x), ffn)\n  }\n"
        "  minimize cross_entropy(head: linear(norm: rmsnorm(x), vocab), labels)\n}\n",
        seq, 8 * heads, ffn, heads, kv_heads);
}

/* On any number of devices: more than the batch has samples, so that other axes are split. */
static void J01_the_search_picks_sizes_that_divide(void **unused)
{
    (void)unused;
    static const int shape[][4] = {{6, 6, 18, 66}, {8, 2, 18, 64}, {6, 2, 7, 10}, {5, 5, 9, 33}};
    Arena *a = arena_new("texts");
    int split = 0;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int n = 3; n <= 8; n++) {
            Case c;
            open_case_on(&c, decoder(a, shape[i][0], shape[i][1], shape[i][2], shape[i][3]), random_cores(a, n));
            if (search_rules(&c, few, "") == OK) {
                split += c.plan->mesh[AXIS_tp] > 1;
                run_a_step(&c, 30);
            } else
                assert_true(n == 5 || n == 7);       /* no axis has such a part, and two rounds no so many stages */
            close_case(&c);
        }
    assert_true(split > 0);
    arena_free(a);
}

/* ---- J04: a plan that is found fits and runs; where none is, no layout fits ---- */

enum { MODELS = 12, MORE_MODELS = 100, LAYOUTS = 40 };       /* more: where CHECK_ALL is set */

static const char *first_devices(Arena *a, int64_t n)
{
    Text t = text_new(a);
    text_add(&t, "devices = [0");
    for (int64_t i = 1; i < n; i++)
        text_add(&t, ", %lld", (long long)i);
    text_add(&t, "]");
    return t.s;
}

/* Rules without the size of buckets, which is not searched. */
static const char *without_bucket(Arena *a, const char *rules)
{
    const char *at = strstr(rules, "bucket"), *end = at ? strchr(at, ';') : NULL;
    return end ? arena_printf(a, "%.*s%s", (int)(at - rules), rules, end + 1) : rules;
}

/* A layout of that many devices, of those that are drawn, that fits; NULL: none.  Stages that begin within a round
 * are nothing that is searched. */
static const char *layout_that_fits(Case *c, uint64_t seed, const RandomModel *m, int64_t devices)
{
    for (uint64_t k = 0; k < LAYOUTS; k++) {
        RandomLayout l = random_layout(c->a, seed * LAYOUTS + k, m);
        const char *rules = without_bucket(c->a, l.rules);
        if (l.pp * l.dp * l.cp * l.tp == devices && !strstr(rules, ".norm2") && search_rules(c, few, arena_printf(c->a, "%s; %s", first_devices(c->a, devices), rules)) == OK)
            return rules;
    }
    return NULL;
}

/* Whether there is a plan at this memory. */
static bool check_limit(Case *c, uint64_t seed, const RandomModel *m, int64_t devices, int64_t memory)
{
    int64_t need[2];
    device_of(c)->memory = memory;
    if (search_rules(c, search_limits, first_devices(c->a, devices)) == OK) {
        run_a_step(c, m->vocab);
        return true;
    }
    assert_int_equal(numbers(help(c), need, 2), 1);
    const char *fits = layout_that_fits(c, seed, m, devices);
    if (fits)
        fail_msg("seed %d, %lld devices of %lld bytes: '%s' fits", (int)seed, (long long)devices, (long long)memory, fits);
    device_of(c)->memory = need[0] + need[0] / 10;   /* what would do, does; another leanest plan may be found there */
    assert_int_equal(search_rules(c, search_limits, first_devices(c->a, devices)), OK);
    run_a_step(c, m->vocab);
    return false;
}

static void J04_the_search_finds_what_fits(void **unused)
{
    (void)unused;
    const char *all = getenv("CHECK_ALL");
    int planned[2] = {0}, models = all && *all ? MORE_MODELS : MODELS;
    for (uint64_t seed = 0; seed < (uint64_t)models; seed++) {
        Arena *a = arena_new("model");
        RandomModel m = random_model(a, 9000 + seed, "f64");
        int64_t devices = 1 + (int64_t)(seed % 8);
        Case c;
        open_case_on(&c, m.text, random_cores(a, 8));
        if (search_rules(&c, few, first_devices(a, devices)) == OK) {
            int64_t need = program_map_bytes(c.p) + c.p->reserve;
            for (int k = 4; k <= 8; k += 2)
                planned[check_limit(&c, seed, &m, devices, need * k / 10)]++;
        }
        close_case(&c);
        arena_free(a);
    }
    print_message("# %d plans, %d limits that nothing meets\n", planned[true], planned[false]);
    assert_true(planned[true] > models / 4 && planned[false] > models / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(J01_the_search_picks_sizes_that_divide),
        cmocka_unit_test(J04_the_search_finds_what_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
