/* Fewer devices: what is said of them against searches on every half, quarter and so on. */
#include "tests/unit/instances.h"

#include "planner/fewer.h"

/* The rules of an instance that are not about the mesh, for the first n devices. */
static Rules *rules_on(Instance *in, int64_t n)
{
    Rules *given, *out = NEW(in->c.a, Rules);
    Rule devices = {.kind = RULE_SETTING, .name = "devices"};
    assert_int_equal(parse_rules(&in->c, in->given, &given), OK);
    for (uint32_t i = 0; i < given->nrule; i++)
        if (given->rule[i].kind != RULE_MESH)
            PUSH(in->c.a, out->rule, out->nrule, given->rule[i]);
    for (int64_t i = 0; i < n; i++)
        PUSH(in->c.a, devices.choice.value, devices.choice.nvalue, i);
    PUSH(in->c.a, out->rule, out->nrule, devices);
    return out;
}

/* The least time on fewer devices; INT64_MAX: nothing fits on them. */
static int64_t least_on_fewer(Instance *in)
{
    int64_t least = INT64_MAX;
    for (int64_t n = in->devices / 2; n > 0; n /= 2)
        if (plan_these(&in->c, rules_on(in, n), USE_PLAN, search_limits) == OK && in->c.found.sim.ns < least)
            least = in->c.found.sim.ns;
    return least;
}

typedef struct Outcome { int faster, not, gave_way, missed, best; } Outcome;

/* Its layout leaves nothing open, takes as long as is said and has so many devices. */
static void is_as_said(Instance *in, const Fewer *f)
{
    assert_int_equal(try_rules(&in->c, "%s", f->layout), OK);
    Simulation sim = simulate(in->c.l.ir, in->c.l.cluster, in->c.plan, in->c.l.profile, in->c.programs.rank);
    assert_int_equal(sim.ns, f->ns);
    assert_int_equal(in->c.plan->ndevices, f->n);
    for (uint32_t i = 0; i < f->n; i++)
        assert_int_equal(f->devices[i], i);
}

static void check(Instance *in, Outcome *seen)
{
    Rules *given;
    Fewer f;
    assert_int_equal(parse_rules(&in->c, in->given, &given), OK);
    if (plan_these(&in->c, given, USE_PLAN, search_limits) != OK)
        return;
    int64_t ns = in->c.found.sim.ns, enough = ns - ns / 200;
    PlanRequest q = {.graph = in->c.l.graph, .cluster = in->c.l.cluster, .profile = in->c.l.profile, .rules = given, .model_text = "", .use = USE_PLAN};
    Weigher w = {in->c.a, in->c.l.sources, &q};
    bool said = fewer_devices(&w, in->c.plan, &in->c.found.sim, &f);
    int64_t least = least_on_fewer(in);
    if (said) {
        assert_true(f.ns < enough && f.ns >= least);
        assert_int_equal(f.gave_way, strstr(in->given, "mesh") != NULL);
        is_as_said(in, &f);
        seen->gave_way += f.gave_way;
        seen->best += f.ns == least;
    }
    seen->faster += said;
    seen->not += !said;
    seen->missed += !said && least < enough;
}

static void faster_where_a_search_is(void **unused)
{
    (void)unused;
    Outcome seen = {0};
    for (uint64_t seed = 50000; seen.faster + seen.not < 70; seed++) {
        Instance in;
        instance_draw(&in, seed);
        if (in.devices > 1)
            check(&in, &seen);
        close_case(&in.c);
    }
    print_message("# faster on fewer devices %d, not %d; without rules for the mesh %d; the least time %d; missed %d\n", seen.faster, seen.not, seen.gave_way, seen.best, seen.missed);
    assert_true(seen.faster > 20 && seen.not > 10 && seen.gave_way > 5);
    assert_int_equal(seen.missed, 0);
    assert_int_equal(seen.best, seen.faster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(faster_where_a_search_is)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
