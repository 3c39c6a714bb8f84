/* The search against enumeration: on small random instances every layout that rules can say is
 * estimated by itself, and the plan that is found takes as long as the fastest of those that fit. */
#include "tests/unit/instances.h"

#include "planner/pins.h"

/* Draws that have more plans are left out. */
static bool draw_small(Instance *in, uint64_t seed, uint64_t most)
{
    instance_draw(in, seed);
    in->most = most;
    instance_enumerate(in);
    if (in->plans <= most)
        return true;
    close_case(&in->c);
    return false;
}

static void describe(const Instance *in, uint64_t seed)
{
    print_message("seed %llu: kind %d, batch %lld, seq %lld, rounds %lld + %lld, hidden %lld, ffn %lld, class %lld, %lld %s devices in %lld nodes, %lld B; %s\n", (unsigned long long)seed, (int)in->kind,
                  (long long)in->batch, (long long)in->seq, (long long)in->rounds, (long long)in->more, (long long)in->hidden, (long long)in->ffn, (long long)in->class, (long long)in->devices,
                  in->cuda ? "cuda" : "cpu", (long long)in->nodes, (long long)in->memory, in->given);
}

/* What the instances and the plans found for them were, counted. */
typedef struct Coverage { uint64_t plans, fit, of_kind[KINDS], pp, dp, cp, tp, micro, gpipe, shard, again, cuts, order, unfit; } Coverage;

static void count_plan(Coverage *n, const Plan *p)
{
    n->pp += p->mesh[AXIS_pp] > 1;
    n->dp += p->mesh[AXIS_dp] > 1;
    n->cp += p->mesh[AXIS_cp] > 1;
    n->tp += p->mesh[AXIS_tp] > 1;
    n->micro += p->microbatches > 1;
    n->gpipe += strcmp(p->schedule, "gpipe") == 0;
    for (uint32_t i = 0; i < p->nrule; i++) {
        n->shard += p->rule[i].kind == RULE_SHARD;
        n->again += p->rule[i].kind == RULE_RECOMPUTE;
    }
    for (uint32_t i = 0; i + 1 < p->ndevices; i++)
        if (p->devices[i] > p->devices[i + 1]) {
            n->order++;
            return;
        }
}

/* The same in the way of large spaces: what it finds is no better, and its bound no worse, than the best. */
static void check_large(Instance *in, uint64_t seed, uint64_t *missed)
{
    SearchLimits limits = search_limits;
    Search found;
    limits.exhaustive = 0;
    if (instance_ask(in, USE_PLAN, in->given, limits, &found) != OK) {
        *missed += in->fit > 0;                         /* what fits may be missed there */
        return;
    }
    if (in->fit == 0 || found.best[0].ns < in->best || found.bound > (double)in->best) {
        describe(in, seed);
        fail_msg("%lld ns found, bound %.0f, the best %lld", (long long)found.best[0].ns, found.bound, (long long)in->best);
    }
}

static void check_instance(Instance *in, uint64_t seed, Coverage *n)
{
    Search found;
    Status s = instance_ask(in, USE_PLAN, in->given, search_limits, &found);
    n->plans += in->plans;
    n->fit += in->fit;
    n->unfit += in->fit == 0;
    n->of_kind[in->kind]++;
    if ((s == OK) != (in->fit > 0) || (s == OK && found.best[0].ns != in->best) || (s == OK && !found.proven)) {
        describe(in, seed);
        if (s == OK)
            print_message("found: %s\n", pins_text(in->c.l.ir, pins_of(in->c.l.ir, in->c.l.graph, found.best[0].plan)));
        fail_msg("search: %s, %lld ns, %s; %llu of %llu plans fit, the fastest %lld ns", s == OK ? "found" : "refused", s == OK ? (long long)found.best[0].ns : 0,
                 found.proven ? "proven" : found.cut, (unsigned long long)in->fit, (unsigned long long)in->plans, (long long)in->best);
    }
    if (s == OK)
        count_plan(n, found.best[0].plan);
}

/* CHECK_ALL: others, and larger ones. */
static void is_the_best_of_all(void **unused)
{
    (void)unused;
    bool all = getenv("CHECK_ALL") != NULL;
    uint64_t seed = all ? 1000000 : 0, most = all ? 20000 : 150;
    Coverage n = {0};
    Instance in;
    for (int i = 0; i < 300; seed++) {
        if (!draw_small(&in, seed, most))
            continue;
        check_instance(&in, seed, &n);
        close_case(&in.c);
        i++;
    }
    print_message("# %llu plans, %llu fit; of the best: pp %llu, dp %llu, cp %llu, tp %llu, micro-batches %llu, gpipe %llu, sharded %llu, recomputed %llu, another order %llu; nothing fits %llu\n",
                  (unsigned long long)n.plans, (unsigned long long)n.fit, (unsigned long long)n.pp, (unsigned long long)n.dp, (unsigned long long)n.cp, (unsigned long long)n.tp,
                  (unsigned long long)n.micro, (unsigned long long)n.gpipe, (unsigned long long)n.shard, (unsigned long long)n.again, (unsigned long long)n.order,
                  (unsigned long long)n.unfit);
    assert_true(n.of_kind[PERCEPTRON] > 50 && n.of_kind[ATTENTION] > 50 && n.of_kind[BOTH] > 20);
    assert_true(n.pp && n.dp && n.cp && n.tp && n.micro && n.gpipe && n.shard && n.again && n.order && n.unfit);
    assert_true(all || n.plans <= 200000);
}

static void bound_below_optimum_below_heuristic(void **unused)
{
    (void)unused;
    uint64_t missed = 0, fit = 0;
    Instance in;
    for (uint64_t seed = 20000, i = 0; i < 150; seed++) {
        if (!draw_small(&in, seed, 80))
            continue;
        check_large(&in, seed, &missed);
        fit += in.fit > 0;
        close_case(&in.c);
        i++;
    }
    print_message("# %llu instances of which something fits, %llu of them missed\n", (unsigned long long)fit, (unsigned long long)missed);
    assert_true(fit > 50 && missed * 20 < fit);
}

/* Which of equal nodes, or of equal devices of a node, comes first is all the same. */
static void equal_nodes_may_be_permuted(void **unused)
{
    (void)unused;
    int permuted = 0;
    for (uint64_t seed = 30000; permuted < 40; seed++) {
        Instance in;
        Search one, other;
        instance_draw(&in, seed);
        if (in.nodes == 2) {
            Text t = text_new(in.c.a), u = text_new(in.c.a);
            for (int64_t i = 0, half = in.devices / 2; i < in.devices; i++) {
                text_add(&t, "%s%lld", i ? ", " : "", (long long)i);
                text_add(&u, "%s%lld", i ? ", " : "", (long long)((seed % 2 ? in.devices - 1 - i : i < half ? i + half : i - half)));
            }
            Status s = instance_ask(&in, USE_PLAN, arena_printf(in.c.a, "%s devices = [%s]", in.given, t.s), search_limits, &one);
            assert_int_equal(instance_ask(&in, USE_PLAN, arena_printf(in.c.a, "%s devices = [%s]", in.given, u.s), search_limits, &other), s);
            if (s == OK) {
                assert_int_equal(one.best[0].ns, other.best[0].ns);
                permuted++;
            }
        }
        close_case(&in.c);
    }
}

/* From where nothing fits to where nothing is recomputed. */
static void bounds_hold(void **unused)
{
    (void)unused;
    uint64_t configs = 0, tight = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        Instance in;
        instance_draw_deep(&in, seed);
        double weights = 16.0 * (double)(in.rounds * 2 * in.hidden * in.ffn), kept = 4.0 * (double)(in.rounds * in.batch * (in.hidden + 2 * in.ffn));
        for (int part = 1; part <= 30; part++) {
            device_of(&in.c)->memory = (int64_t)((weights + kept) * part / 25);
            in.fit = 0;
            instance_enumerate(&in);
        }
        configs += in.configs;
        tight += in.tight;
        close_case(&in.c);
    }
    print_message("# %llu configurations with room, %llu of them bounded within 10 %%\n", (unsigned long long)configs, (unsigned long long)tight);
    assert_true(configs > 100 && tight > 0);
}

/* Where nothing fits, the plan that is told of is near the one that needs the least, and few were judged to find it. */
static void what_lacks_least_is_found(void **unused)
{
    (void)unused;
    uint64_t judged = 0, plans = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        Instance in;
        Search found;
        SearchLimits limits = search_limits;
        limits.exhaustive = 0;
        instance_draw_deep(&in, seed);
        in.by_config = false;
        device_of(&in.c)->memory = 16 * in.rounds * 2 * in.hidden * in.ffn / (4 * in.devices);
        instance_enumerate(&in);
        Status s = instance_ask(&in, USE_PLAN, in.given, limits, &found);
        if (in.fit > 0 || s == OK || (double)instance_needs(&in) > 1.4 * (double)in.leanest) {
            describe(&in, seed);
            fail_msg("%llu of %llu plans fit, one needs %lld bytes, the one that was found %lld", (unsigned long long)in.fit, (unsigned long long)in.plans,
                     (long long)in.leanest, (long long)instance_needs(&in));
        }
        judged += found.judged;
        plans += in.plans;
        close_case(&in.c);
    }
    print_message("# %llu of %llu plans judged\n", (unsigned long long)judged, (unsigned long long)plans);
    assert_true(judged * 10 < plans);
}

/* Ranks that share processors and whose communication takes no time: what all have to do passes through these. */
static void bounds_of_shared_processors(void **unused)
{
    (void)unused;
    uint64_t checked = 0, tight = 0;
    for (uint64_t seed = 40000; checked < 30; seed++) {
        Instance in;
        Search found;
        SearchLimits limits = search_limits;
        instance_draw(&in, seed);
        Level *level = in.c.l.cluster->level;
        limits.exhaustive = 0;
        in.most = 3000;
        level->cores = 1;
        level->link = 1e15;
        level->latency = 0;
        bool crowded = !in.cuda && in.devices > 1 && in.nodes == 1;
        if (crowded)
            instance_enumerate(&in);
        if (crowded && in.plans <= in.most && in.fit > 0 && instance_ask(&in, USE_PLAN, in.given, limits, &found) == OK) {
            assert_true(found.bound <= (double)in.best);
            tight += found.bound > 0.95 * (double)in.best;
            checked++;
        }
        close_case(&in.c);
    }
    print_message("# %llu instances, %llu of them bounded within 5 %%\n", (unsigned long long)checked, (unsigned long long)tight);
    assert_true(tight > 0);
}

/* A better machine never has a slower best plan: more memory, bandwidth of memory, peak, links. */
static int64_t best_of(Instance *in)
{
    Search found;
    return instance_ask(in, USE_PLAN, in->given, search_limits, &found) == OK ? found.best[0].ns : INT64_MAX;
}

static void more_never_hurts(void **unused)
{
    (void)unused;
    Instance in;
    for (uint64_t seed = 5000, i = 0; i < 40; seed++) {
        if (!draw_small(&in, seed, 60))
            continue;
        i++;
        Device *d = device_of(&in.c);
        int64_t before = best_of(&in);
        for (int what = 0; what < 4; what++) {
            Device was = *d;
            Level level = in.c.l.cluster->level[0];
            d->memory *= what == 0 ? 4 : 1;
            d->bandwidth *= what == 1 ? 2 : 1;
            d->peak[DT_f32] *= what == 2 ? 2 : 1;
            in.c.l.cluster->level[0].link *= what == 3 ? 2 : 1;
            int64_t after = best_of(&in);
            *d = was;
            in.c.l.cluster->level[0] = level;
            if (after > before) {
                describe(&in, seed);
                fail_msg("with more of %d the best plan takes %lld ns, before %lld", what, (long long)after, (long long)before);
            }
        }
        close_case(&in.c);
    }
}

/* One long sequence, of which a device cannot hold what backward reads: with tp and stages forbidden, cp alone helps. */
static void a_long_sequence_fits_by_context(void **unused)
{
    (void)unused;
    static const char model[] =
        "model m {\n dim batch = 2, seq = 4096, vocab = 16, d = 16, heads = 4\n precision { compute = f32 }\n optimizer adamw { lr = 1e-3 }\n"
        " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n dim width = d / heads\n weight tok[vocab, d]\n x = embed(ids, tok)\n"
        " repeat 4 as h {\n  n = rmsnorm(x)\n  q = linear(n, [heads, width])\n  k = linear(n, [heads, width])\n  v = linear(n, [heads, width])\n"
        "  x = x + out: linear(attention(q, k, v, causal = true), d, over = [heads, width])\n }\n minimize cross_entropy(head: linear(x, vocab), labels)\n}\n";
    static const char machine[] = "device g {\n  backend = cuda\n  memory = 2400 kB\n  reserve = 0 B\n  bandwidth = 1 TB/s\n  peak.f32 = 1 TFLOP/s\n}\n"
                                  "cluster c { level node = 8 * g { link = 100 GB/s, latency = 1 us } }\n";
    Instance in = {.kind = ATTENTION};
    Search found;
    open_case_on(&in.c, model, machine);
    assert_int_equal(instance_ask(&in, USE_PLAN, "mesh tp = 1, pp = 1, cp = 1; devices = [0, 1]", search_limits, &found), ERR_REJECT);
    assert_int_equal(instance_ask(&in, USE_PLAN, "mesh tp = 1, pp = 1", search_limits, &found), OK);
    assert_true(in.c.plan->mesh[AXIS_cp] > 1);
    assert_true(in.c.plan->nrule > 0 && in.c.plan->rule[0].kind == RULE_SPLIT && in.c.plan->rule[0].by.axis[0] == AXIS_cp);
    close_case(&in.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_the_best_of_all), cmocka_unit_test(bound_below_optimum_below_heuristic),
                                       cmocka_unit_test(equal_nodes_may_be_permuted), cmocka_unit_test(a_long_sequence_fits_by_context),
                                       cmocka_unit_test(bounds_hold), cmocka_unit_test(what_lacks_least_is_found), cmocka_unit_test(bounds_of_shared_processors), cmocka_unit_test(more_never_hurts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
