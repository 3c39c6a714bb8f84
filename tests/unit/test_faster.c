/* What is faster than a plan: on fewer devices against searches on every half, quarter and so on; with more decided
 * against a search of what rules leave open. */
#include "tests/unit/instances.h"

#include "planner/faster.h"

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

/* What was said and what there was, counted. */
typedef struct Outcome { int faster, not, gave_way, missed, best; } Outcome;

/* A layout that leaves nothing open, takes as long as is said and has so many devices. */
static void is_as_said(Instance *in, const Faster *f, uint32_t devices)
{
    assert_int_equal(try_rules(&in->c, "%s", f->layout), OK);
    Simulation sim = simulate(in->c.l.ir, in->c.l.cluster, in->c.plan, in->c.l.profile, in->c.programs.rank);
    assert_int_equal(sim.ns, f->ns);
    assert_int_equal(in->c.plan->ndevices, devices);
}

/* `least`: of a whole search; what was said takes as long or longer, and clearly less than the plan. */
static void count(Outcome *seen, bool said, const Faster *f, int64_t ns, int64_t least)
{
    int64_t enough = ns - ns / 200;
    assert_true(!said || (f->ns < enough && f->ns >= least));
    seen->faster += said;
    seen->not += !said;
    seen->best += said && f->ns == least;
    seen->gave_way += said && f->gave_way;
    seen->missed += !said && least < enough;
}

static void show(const char *what, const Outcome *seen)
{
    print_message("# %s: faster %d, not %d; without rules for the mesh %d; the least time %d; missed %d\n", what, seen->faster, seen->not, seen->gave_way, seen->best, seen->missed);
    assert_true(seen->faster > 3 && seen->not > 10);
    assert_true(seen->best * 10 >= seen->faster * 8 && seen->missed * 20 <= seen->faster);
}

/* Of each instance that something fits, with its rules planned. */
static void of_instances(uint64_t seed, void (*check)(Instance *, const Weigher *, Outcome *), Outcome *seen)
{
    for (uint64_t end = seed + 1000; seen->faster + seen->not < 70 && seed < end; seed++) {
        Instance in;
        Rules *given;
        instance_draw(&in, seed);
        assert_int_equal(parse_rules(&in.c, in.given, &given), OK);
        PlanRequest q = {.graph = in.c.l.graph, .cluster = in.c.l.cluster, .profile = in.c.l.profile, .rules = given, .model_text = "", .use = USE_PLAN};
        Weigher w = {in.c.a, in.c.l.sources, &q};
        if (in.devices > 1 && plan_these(&in.c, given, USE_PLAN, search_limits) == OK)
            check(&in, &w, seen);
        close_case(&in.c);
    }
}

static void check_fewer(Instance *in, const Weigher *w, Outcome *seen)
{
    Faster f;
    Simulation sim = in->c.found.sim;
    bool said = faster_on_fewer(w, in->c.plan, &sim, &f);
    count(seen, said, &f, sim.ns, least_on_fewer(in));
    if (!said)
        return;
    assert_int_equal(f.gave_way, strstr(in->given, "mesh") != NULL);
    is_as_said(in, &f, f.n);
    for (uint32_t i = 0; i < f.n; i++)
        assert_int_equal(f.devices[i], i);
}

static void fewer_devices_are_faster_where_a_search_is(void **unused)
{
    (void)unused;
    Outcome seen = {0};
    of_instances(50000, check_fewer, &seen);
    show("on fewer devices", &seen);
    assert_true(seen.gave_way > 5);
}

/* The mesh, stages and splits of the plan that was found, and no more: as much as is estimated. */
static void check_more(Instance *in, const Weigher *w, Outcome *seen)
{
    Faster f;
    PlanRequest q = *w->request;
    Weigher given = {w->arena, w->sources, &q};
    q.rules = pins_some(in->c.a, q.graph, in->c.plan, decisions_upto(DECIDE_splits));
    if (try_these(&in->c, q.rules) != OK)
        return;
    Plan *plan = in->c.plan;
    Simulation sim = simulate(in->c.l.ir, q.cluster, plan, q.profile, in->c.programs.rank);
    bool said = faster_with_more(&given, plan, &sim, &f);
    SearchLimits limits = search_limits;
    limits.exhaustive = 200;                             /* more of them take too long */
    assert_int_equal(plan_these(&in->c, q.rules, USE_PLAN, limits), OK);
    count(seen, said, &f, sim.ns, in->c.found.nbest ? in->c.found.sim.ns : sim.ns);
    assert_true(!said || (*f.change && !strstr(f.change, "mesh") && !strstr(f.change, "stage")));
    if (said)
        is_as_said(in, &f, plan->ndevices);
}

static void what_is_open_is_faster_where_a_search_is(void **unused)
{
    (void)unused;
    Outcome seen = {0};
    of_instances(60000, check_more, &seen);
    show("with more decided", &seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fewer_devices_are_faster_where_a_search_is), cmocka_unit_test(what_is_open_is_faster_where_a_search_is)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
