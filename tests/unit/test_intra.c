/* The dynamic program over splits: what it says a way takes is what the instructions take that
 * the pass `place` makes of it, to the nanosecond. */
#include "tests/unit/layouts.h"

#include <math.h>

#include "planner/intra.h"
#include "planner/pins.h"
#include "planner/splits.h"

typedef struct Placed { CostModel *cost; int64_t ns; } Placed;

static int64_t measured_ns(CostModel *cost, const Program *p, const GroupCost *groups, Instr in)
{
    instr_measure(&in, p);
    return cost_ns(cost, p, groups, &in);
}

/* Sum of all instructions of forward and backward after the pass `place`. */
static void after_place(void *ctx, const char *pass, const Program *p)
{
    Placed *x = ctx;
    if (strcmp(pass, "place") != 0)
        return;
    const GroupCost *groups = cost_groups(x->cost, p);
    for (uint32_t i = 0; i < p->nproc; i++)
        for (uint32_t k = p->proc[i].first; (p->proc[i].kind == PROC_forward || p->proc[i].kind == PROC_backward) && k < p->proc[i].end; k++)
            x->ns += measured_ns(x->cost, p, groups, p->instr[k]);
}

static int64_t placed_ns(Model *m, Plan *plan, const Profile *profile, const char *what)
{
    Placed x = {.cost = cost_model(m->a, m->cl, plan, profile)};
    PassDump dump = {.after = after_place, .ctx = &x};
    Program *p;
    Status s = codegen(m->a, m->ds, m->g, plan, m->cl, 0, &dump, &p);
    if (s != OK) {
        diags_flush(m->ds, stderr);
        fail_msg("%s: not lowered", what);
    }
    return x.ns;
}

/* within: parts of the time by which it may differ. */
static void check_ways_within(Setting setting, int64_t cp, int64_t tp, int64_t micro, uint32_t width, double within)
{
    Model m = model_load(setting);
    Profile profile = {.name = "prun", .slow_compute = 1, .slow_link = 1, .fuses_sums = true, .packs = true, .slow_matmul = 1, .slow_attention = 1, .slow_memory = 1, .pad = 1};
    Rule context = pin_split(m.a, "seq", AXIS_cp), *by_tp;
    Plan plan = plan_of(&m, (Pin){1, 1, cp, tp, micro, ""});
    Chain chain = chain_read(m.a, m.g);
    Pricer *pricer;
    Intra in;
    assert_int_equal(pricer_open(m.a, m.ds, price_graph(m.a, m.g), &plan, m.cl, &profile, false, &pricer), OK);
    plan.rule = &context;
    plan.nrule = cp > 1;
    assert_true(splits_given(m.a, m.ds, &plan, pricer_layout(pricer)));
    intra_solve(m.a, pricer, &chain, (Goal){.micro = micro, .width = width}, NULL, &in);
    if (in.why_not)
        fail_msg("%s: %s", setting.model, in.why_not);
    print_message("# %s cp=%lld tp=%lld m=%lld: %u parts, %u ways%s, best %lld\n", setting.model, (long long)cp, (long long)tp, (long long)micro, chain.npart, in.nway, in.cut_short ? ", cut short" : "", in.nway ? (long long)in.way[0].ns : -1);
    assert_true(in.nway > 0);
    for (uint32_t i = 0; i < in.nway; i++) {
        uint32_t n = splits_of(m.a, &in, &in.way[i], &by_tp);
        plan.rule = NULL;
        plan.nrule = 0;
        for (uint32_t k = 0; k < n; k++)
            PUSH(m.a, plan.rule, plan.nrule, by_tp[k]);
        if (cp > 1)
            PUSH(m.a, plan.rule, plan.nrule, context);
        int64_t ns = placed_ns(&m, &plan, &profile, setting.model);
        if (fabs((double)(ns - in.way[i].ns)) > within * (double)ns)
            fail_msg("%s cp=%lld tp=%lld m=%lld: way %u has %lld ns, its program %lld", setting.model, (long long)cp, (long long)tp, (long long)micro, i, (long long)in.way[i].ns, (long long)ns);
    }
    pricer_close(pricer);
    arena_free(m.a);
}

static void check_ways(Setting setting, int64_t cp, int64_t tp, int64_t micro, uint32_t width)
{
    check_ways_within(setting, cp, tp, micro, width, 0);
}

static void ways_are_their_programs(void **unused)
{
    (void)unused;
    for (int64_t tp = 1; tp <= 4; tp++)
        for (int64_t micro = 1; micro <= 2; micro++) {
            check_ways((Setting){"tiny_llama", "vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120 layers=3 batch=4 seq=12", NULL}, 1, tp, micro, tp == 3 ? 0 : 400);
            check_ways((Setting){"tiny_gpt2", "vocab=60 hidden=48 heads=12 ffn=120 context=60 layers=3 batch=4 seq=12", NULL}, 1, tp, micro, tp == 3 ? 0 : 400);
        }
}

/* Rounds that hand on two values, an activation and a sum of losses, are looked at once too.  The first round adds to a
 * number that has no gradient, so what later ones do with that, some launches, is not counted. */
static void ways_of_sparse_models_are(void **unused)
{
    (void)unused;
    static const char sizes[] = "vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120 expert=4 layers=3 batch=4 seq=12 dtype=f32";
    Model m = model_load((Setting){"mixtral_8x7b", sizes, NULL});
    Chain chain = chain_read(m.a, m.g);
    uint32_t repeats = 0;
    for (uint32_t i = 0; i < chain.npart; i++) {
        assert_true(chain.part[i].rounds == 1 || (chain.part[i].rounds == 3 && chain.part[i].ncarried == 2));
        repeats += chain.part[i].rounds == 3;
    }
    assert_int_equal(repeats, 1);
    arena_free(m.a);
    for (int64_t tp = 1; tp <= 4; tp++)
        for (int64_t micro = 1; micro <= 2; micro++)
            check_ways_within((Setting){"mixtral_8x7b", sizes, NULL}, 1, tp, micro, 400, 0.004);
}

/* Beside cuts of positions by cp. */
static void ways_beside_context_are(void **unused)
{
    (void)unused;
    for (int64_t tp = 1; tp <= 3; tp++) {
        check_ways((Setting){"tiny_llama", "vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120 layers=2 batch=4 seq=12", NULL}, 2, tp, 2, 200);
        check_ways((Setting){"tiny_gpt2", "vocab=60 hidden=48 heads=12 ffn=120 context=60 layers=3 batch=4 seq=12", NULL}, 2, tp, 1, 200);
    }
}

/* ---- few states ---- */

static double worth(const Way *w, const Goal *g, double byte_ns)
{
    return w->step + byte_ns * (g->param_bytes * (double)w->params + g->flight * (double)w->saved);
}

/* The least of the ways that the dynamic program found by itself. */
static double least_worth(const Intra *in, const Goal *g, double byte_ns)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < in->nway; i++)
        if (!in->way[i].seed && worth(&in->way[i], g, byte_ns) < least)
            least = worth(&in->way[i], g, byte_ns);
    return least;
}

static void solve_anew(Model *m, const Plan *plan, const Chain *chain, Goal goal, Intra *in)
{
    Profile profile = {.name = "prun", .slow_compute = 1, .slow_link = 1, .fuses_sums = true, .packs = true, .slow_matmul = 1, .slow_attention = 1, .slow_memory = 1, .pad = 1};
    Pricer *pricer;
    assert_int_equal(pricer_open(m->a, m->ds, price_graph(m->a, m->g), plan, m->cl, &profile, false, &pricer), OK);
    intra_solve(m->a, pricer, chain, goal, NULL, in);
    pricer_close(pricer);
}

/* With 16 states a step, ways that are nearly as good as with thousands, whatever a byte is worth. */
static void check_few_states(const char *model, const char *sizes, int64_t tp)
{
    Model m = model_load((Setting){model, sizes, NULL});
    Plan plan = plan_of(&m, (Pin){1, 1, 1, tp, 1, ""});
    Chain chain = chain_read(m.a, m.g);
    Goal goal = {.micro = 1, .width = 4000, .param_bytes = 16, .flight = 1};
    Intra fast, many, few;
    solve_anew(&m, &plan, &chain, goal, &fast);
    assert_true(fast.nway > 0);
    goal.byte_ns = 4 * fast.way[0].step / (16.0 * (double)fast.way[0].params + (double)fast.way[0].saved);
    solve_anew(&m, &plan, &chain, goal, &many);
    goal.width = 16;
    solve_anew(&m, &plan, &chain, goal, &few);
    for (int price = 0; price < 2; price++) {
        double best = least_worth(&many, &goal, 0.5 * price * goal.byte_ns), found = least_worth(&few, &goal, 0.5 * price * goal.byte_ns);
        print_message("# %s tp=%lld, a byte %g ns: %.0f with few states, %.0f with many\n", model, (long long)tp, 0.5 * price * goal.byte_ns, found, best);
        assert_true(found <= 1.1 * best);
    }
    arena_free(m.a);
}

static void few_states_do(void **unused)
{
    (void)unused;
    for (int64_t tp = 2; tp <= 4; tp += 2) {
        check_few_states("tiny_llama", "vocab=64 hidden=256 heads=8 kv_heads=4 ffn=512 layers=4 batch=8 seq=64", tp);
        check_few_states("mixtral_8x7b", "vocab=64 hidden=256 heads=8 kv_heads=4 ffn=512 expert=4 layers=4 batch=8 seq=64 dtype=f32", tp);
        check_few_states("tiny_gpt2", "vocab=64 hidden=256 heads=8 ffn=512 context=64 layers=4 batch=8 seq=64", tp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ways_are_their_programs), cmocka_unit_test(ways_of_sparse_models_are), cmocka_unit_test(ways_beside_context_are),
                                       cmocka_unit_test(few_states_do)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
