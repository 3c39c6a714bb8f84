/* Preferences: what the planner keeps of random ones, against all sets of them tried as hard rules. */
#include "tests/unit/planning.h"

#include "codegen/simulate.h"
#include "tests/unit/random_model.h"

static const char *const preferences[] = {
    "mesh tp = 2", "mesh dp = 2", "mesh pp = 2", "mesh dp = 3", "microbatches = 2", "schedule = \"gpipe\"", "shard optimizer by dp", "keep hidden whole",
    "devices = [1, 0]", "devices = [0]", "bucket = 1 kB", "bucket = 1 MB", "schedule = \"1f1b\"", "split hidden by tp", "stage before fc2", "sync = \"server\"", "recompute fc1", "shard weights by dp",
};
enum { PREFERENCES = sizeof preferences / sizeof *preferences, MOST = 4 };

static const char *machine(Arena *a, Draw *d)
{
    return arena_printf(a, "device d {\n  backend = %s\n  memory = %lld B\n  reserve = 0 B\n  bandwidth = 1 GB/s\n  peak.f32 = 10 GFLOP/s\n}\n"
                        "cluster c { level node = %lld * d { link = %lld MB/s, latency = 1 us } }\n", draw_below(d, 2) ? "cuda" : "cpu",
                        (long long)DRAW_OF(d, 3000, 6000, 1000000), (long long)DRAW_OF(d, 1, 2, 2, 4), (long long)DRAW_OF(d, 100, 100000));
}

static Status plan_text(Case *c, PlanUse use, const char *text)
{
    Rules *rules;
    return parse_rules(c, text, &rules) == OK ? plan_these(c, rules, use, search_limits) : ERR_REJECT;
}

static int64_t plan_ns(Case *c, PlanUse use, const char *text)
{
    return plan_text(c, use, text) == OK ? simulate(c->l.ir, c->l.cluster, c->plan, c->l.profile, c->programs.rank).ns : INT64_MAX;
}

/* The preferences of a set, each after `word`. */
static const char *rules_of(Arena *a, const char *given, const char *word, const int *pick, int n, int set)
{
    Text t = text_new(a);
    text_add(&t, "%s", given);
    for (int i = 0; i < n; i++)
        if (set >> i & 1)
            text_add(&t, "; %s%s", word, preferences[pick[i]]);
    return t.s;
}

typedef struct Want { int kept; int64_t ns; } Want;

/* The most rules that a plan can keep which is at most 0.5 % slower, and the least time of that. */
static Want enumerate(Case *c, PlanUse use, const char *given, const int *pick, int n)
{
    int64_t ns[1 << MOST], least = INT64_MAX;
    Want best = {-1, INT64_MAX};
    for (int set = 0; set < 1 << n; set++) {
        ns[set] = plan_ns(c, use, rules_of(c->a, given, "", pick, n, set));
        if ((set & (set - 1)) == 0 && ns[set] < least)
            least = ns[set];
    }
    for (int set = 0; set < 1 << n; set++) {
        int size = __builtin_popcount((unsigned)set);
        if (ns[set] < INT64_MAX && ns[set] - least <= least / 200 && (size > best.kept || (size == best.kept && ns[set] < best.ns)))
            best = (Want){size, ns[set]};
    }
    return best;
}

static uint32_t count_warnings(const Case *c, const char *what)
{
    uint32_t n = 0;
    for (const Diag *d = c->ds->first; d; d = d->next)
        n += strncmp(d->text, what, strlen(what)) == 0;
    return n;
}

typedef struct Outcome { int kept, all, several, not, slower, none, beside; } Outcome;

static void check_case(uint64_t seed, Outcome *seen)
{
    Draw d = draw_from(seed, "prefer");
    Arena *a = arena_new("texts");
    Case c;
    int pick[MOST], n = 1 + (int)draw_below(&d, MOST);
    for (int i = 0; i < n; i++)
        pick[i] = (int)draw_below(&d, PREFERENCES);
    PlanUse use = draw_below(&d, 3) ? USE_PLAN : USE_ESTIMATE;
    open_case_on(&c, mlp(a, 4, (int)DRAW_OF(&d, 6, 16)), machine(a, &d));
    const char *given = use == USE_ESTIMATE ? arena_printf(a, "mesh dp = %u", c.l.cluster->ndevices) : DRAW_OF(&d, 0, 1) ? "bucket = 25 MB" : "microbatches = 1..4";
    Want want = enumerate(&c, use, given, pick, n);
    const char *text = rules_of(c.a, given, "prefer ", pick, n, (1 << n) - 1);
    Status s = plan_text(&c, use, text);
    uint32_t not = count_warnings(&c, "this preference is not kept");
    if ((s == OK) != (want.kept >= 0))
        fail_msg("seed %d: '%s' is %s", (int)seed, text, s == OK ? "planned" : "refused");
    seen->none += s != OK;
    if (s == OK) {
        int64_t ns = simulate(c.l.ir, c.l.cluster, c.plan, c.l.profile, c.programs.rank).ns;
        if ((int)c.found.kept != want.kept || ns != want.ns)
            fail_msg("seed %d: of '%s' %u are kept, %lld ns; %d can be in %lld ns", (int)seed, text, c.found.kept, (long long)ns, want.kept, (long long)want.ns);
        assert_int_equal(not, (uint32_t)n - c.found.kept);
        seen->kept += want.kept > 0;
        seen->all += want.kept == n;
        seen->several += want.kept > 1;
        seen->not += want.kept < n;
        seen->slower += c.found.without > 0 && ns > c.found.without;
        seen->beside += count_warnings(&c, "this preference is not kept: beside") > 0;
    }
    close_case(&c);
    arena_free(a);
}

static void the_most_are_kept(void **unused)
{
    (void)unused;
    Outcome n = {0};
    for (uint64_t seed = 0; seed < 200; seed++)
        check_case(seed, &n);
    print_message("# some kept %d, all %d, several %d; not kept %d, not beside others %d; a little slower for it %d; nothing fits %d\n", n.kept, n.all, n.several, n.not,
                  n.beside, n.slower, n.none);
    assert_true(n.kept && n.all && n.several && n.not && n.beside && n.none);
}

/* What the planner says of a rule that it does not keep is what a step takes with it. */
static void the_cost_is_said(void **unused)
{
    (void)unused;
    Case c;
    Arena *a = arena_new("texts");
    open_case_on(&c, mlp(a, 8, 16), "laptop4");
    int64_t without = plan_ns(&c, USE_PLAN, "bucket = 25 MB"), with = plan_ns(&c, USE_PLAN, "mesh tp = 4");
    assert_true(with > without + without / 200);
    assert_int_equal(plan_ns(&c, USE_PLAN, "prefer mesh tp = 4"), without);
    assert_int_equal(c.found.soft, 1);
    assert_int_equal(c.found.kept, 0);
    const char *say = arena_printf(a, "this preference is not kept: a step would take %s, %s (%.1f %%) longer", text_ns(a, with), text_ns(a, with - without),
                                   100 * (double)(with - without) / (double)without);
    assert_string_equal(c.ds->first->text, say);
    /* rules that contradict a hard one, or that this version refuses, are told like errors, and are none */
    assert_int_equal(plan_text(&c, USE_PLAN, "mesh dp = 4; prefer mesh dp = 2"), OK);
    assert_string_equal(c.ds->first->text, "this preference is not kept: 'dp' has another value here");
    assert_int_equal(plan_text(&c, USE_PLAN, "mesh dp = 4; prefer shard weights by dp"), OK);
    assert_non_null(strstr(c.ds->first->text, "not kept: sharded weights (ZeRO 3) are not available"));
    close_case(&c);
    arena_free(a);
}

/* What fits by a preference alone is planned by it. */
static void a_preference_may_make_it_fit(void **unused)
{
    (void)unused;
    Case c;
    Arena *a = arena_new("texts");
    open_case_on(&c, mlp(a, 64, 60), "laptop4");
    assert_int_equal(plan_text(&c, USE_ESTIMATE, "mesh dp = 4; microbatches = 1; shard optimizer by dp"), OK);
    Device *device = device_of(&c);
    device->memory = program_map_bytes(c.p) + device->reserve;
    assert_int_equal(plan_text(&c, USE_ESTIMATE, "mesh dp = 4; microbatches = 1"), ERR_REJECT);
    assert_int_equal(plan_text(&c, USE_ESTIMATE, "mesh dp = 4; microbatches = 1; prefer bucket = 1 kB; prefer shard optimizer by dp"), OK);
    assert_int_equal(c.found.kept, 1);
    assert_non_null(strstr(c.ds->first->text, "not kept: beside the preferences"));
    assert_int_equal(plan_text(&c, USE_ESTIMATE, "mesh dp = 4; shard optimizer by dp; prefer microbatches = 1; prefer sync = \"server\""), OK);
    assert_int_equal(c.found.kept, 1);
    close_case(&c);
    arena_free(a);
}

/* prun chooses nothing. */
static void nothing_is_preferred_in_a_run(void **unused)
{
    (void)unused;
    Case c;
    Arena *a = arena_new("texts");
    open_case_on(&c, mlp(a, 8, 4), "laptop1");
    assert_int_equal(plan_text(&c, USE_RUN, "microbatches = 1; prefer bucket = 1 kB"), OK);
    assert_int_equal(c.plan->bucket, DEFAULT_BUCKET);
    assert_non_null(strstr(c.ds->first->text, "this preference has no effect: prun does what rules say"));
    close_case(&c);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_most_are_kept), cmocka_unit_test(the_cost_is_said), cmocka_unit_test(a_preference_may_make_it_fit),
                                       cmocka_unit_test(nothing_is_preferred_in_a_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
