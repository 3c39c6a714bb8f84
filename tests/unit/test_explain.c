/* Explanations: every figure is that of `estimate`, parts sum up, changes do what they say. */
#include "tests/unit/planning.h"

#include "planner/changes.h"
#include "planner/explain.h"

/* A decoder of four rounds, and one that two devices of a small machine cannot hold. */
static const char decoder[] =
    "model m {\n dim batch = 16, seq = 8, vocab = 32, d = 16, heads = 4, ffn = 32, layers = 4\n precision { compute = f32 }\n optimizer adamw { lr = 1e-3 }\n"
    " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n dim head_dim = d / heads\n weight tok[vocab, d]\n x = embed(ids, tok)\n"
    " repeat layers as h {\n  n = rmsnorm(x)\n  q = linear(n, [heads, head_dim])\n  k = linear(n, [heads, head_dim])\n  v = linear(n, [heads, head_dim])\n"
    "  x = x + out: linear(attention(q, k, v, causal = true), d, over = [heads, head_dim])\n  x = x + down: linear(relu(up: linear(rmsnorm(x), ffn)), d)\n }\n"
    " minimize cross_entropy(head: linear(rmsnorm(x), vocab), labels)\n}\n";

static const char machine[] =
    "device core {\n  backend = cuda\n  memory = 2 MB\n  reserve = 4 KiB\n  bandwidth = 10 GB/s\n  peak.f32 = 100 GFLOP/s\n  peak.f64 = 50 GFLOP/s\n}\n"
    "cluster box {\n  level node = 8 * core { link = 1 GB/s, latency = 1 us }\n}\n";

static const char *const layouts[] = {
    "mesh dp = 8",
    "mesh dp = 8; shard optimizer by dp",
    "mesh dp = 4, tp = 2; split heads, ffn, vocab by tp; split seq by tp",
    "mesh dp = 2 * 2, tp = 2; split heads, ffn by tp; shard optimizer by dp.inner; bucket = 10 kB",
    "mesh pp = 2, dp = 4; stage before h[2]; microbatches = 4",
    "mesh pp = 2, dp = 2, tp = 2; stage before h[1]; split heads, ffn by tp; schedule = \"gpipe\"; microbatches = 2; recompute h",
    "mesh cp = 2, tp = 2, dp = 2; split seq by cp; split seq by tp; recompute h attention",
    "mesh pp = 2, cp = 2, dp = 2; stage before h[2]; split seq by cp; devices = [1, 0, 2, 3, 4, 5, 6, 7]; recompute h; save h.up",
    "mesh dp = 4; devices = [0, 1, 2, 3]; sync = \"server\"",
    "mesh dp = 2; devices = [5, 3]; microbatches = 4",
    "devices = [2]",
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct Judge { Case c; PlanRequest q; Weigher w; Simulation sim; } Judge;

static void open_judge(Judge *j)
{
    open_case_on(&j->c, decoder, machine);
    j->q = (PlanRequest){.graph = j->c.l.graph, .cluster = j->c.l.cluster, .profile = j->c.l.profile, .rules = j->c.l.rules, .model_text = "", .use = USE_ESTIMATE};
    j->w = (Weigher){j->c.a, j->c.l.sources, &j->q};
}

static void plan_as(Judge *j, const char *rules)
{
    Status s = try_rules(&j->c, "%s", rules);
    if (s != OK)
        diags_flush(j->c.ds, stderr);
    assert_int_equal(s, OK);
    j->sim = simulate(j->c.l.ir, j->c.l.cluster, j->c.plan, j->c.l.profile, j->c.programs.rank);
}

static const Program *fullest(const Judge *j)
{
    return j->c.programs.rank[j->c.programs.fullest];
}

/* Figures against the plan that was made last. */
static void check_figures(const Judge *j, const Figures *f)
{
    assert_int_equal(f->ns, j->sim.ns);
    assert_int_equal(f->map, program_map_bytes(fullest(j)));
    assert_int_equal(f->rank, fullest(j)->rank);
    assert_int_equal(f->microbatches, j->c.plan->microbatches);
    assert_true(f->mfu == j->sim.mfu);
}

static void check_sums(const Figures *f)
{
    int64_t ns = 0;
    for (int k = 0; k < TIME_PARTS; k++)
        ns += f->part[k];
    assert_int_equal(ns, f->ns);
}

/* ---- the ladder ---- */

static void check_rung(Judge *j, const Rung *before, const Rung *r)
{
    const Weighed *w = &r->weighed;
    assert_true(w->legal);
    check_sums(&w->figures);
    assert_true(*r->reason);
    if (!before)
        return;
    assert_true(strcmp(before->weighed.layout, w->layout) != 0);
    assert_int_equal(strncmp(r->reason, "fits:", 5) == 0, !weighed_fits(&before->weighed) && weighed_fits(w));
    if (weighed_fits(&before->weighed) && weighed_fits(w))
        assert_int_equal(strstr(r->reason, "slower") != NULL, w->figures.ns > before->weighed.figures.ns);
    plan_as(j, w->layout);                           /* the texts of rules read back to the same layout */
    check_figures(j, &w->figures);
}

static void the_last_rung_is_the_plan(void **unused)
{
    (void)unused;
    Judge j;
    open_judge(&j);
    for (int i = 0; i < LAYOUTS; i++) {
        Rung rung[DECISIONS];
        plan_as(&j, layouts[i]);
        const Plan *plan = j.c.plan;
        uint32_t n = ladder(&j.w, plan, rung);
        assert_int_equal(rung[0].decision, DECIDE_data);
        check_figures(&j, &rung[n - 1].weighed.figures);
        assert_string_equal(rung[n - 1].weighed.layout, pins_text(j.c.a, pins_of(j.c.a, j.c.l.graph, plan)));
        for (uint32_t k = 0; k < n; k++)
            check_rung(&j, k ? &rung[k - 1] : NULL, &rung[k]);
    }
    close_case(&j.c);
}

static bool has_decision(const Rung *rung, uint32_t n, Decision d)
{
    for (uint32_t i = 0; i < n; i++)
        if (rung[i].decision == d)
            return true;
    return false;
}

/* Each decision of a plan that has many is a rung, in order. */
static void rungs_are_the_decisions(void **unused)
{
    (void)unused;
    static const Decision of[] = {DECIDE_data, DECIDE_stages, DECIDE_tensor, DECIDE_micro, DECIDE_schedule, DECIDE_recompute};
    Judge j;
    Rung rung[DECISIONS];
    open_judge(&j);
    plan_as(&j, layouts[5]);
    uint32_t n = ladder(&j.w, j.c.plan, rung);
    assert_int_equal(n, 6);
    for (uint32_t k = 0; k < n; k++)
        assert_int_equal(rung[k].decision, of[k]);
    plan_as(&j, layouts[6]);
    n = ladder(&j.w, j.c.plan, rung);
    assert_true(has_decision(rung, n, DECIDE_sequence) && has_decision(rung, n, DECIDE_context) && !has_decision(rung, n, DECIDE_tensor));
    plan_as(&j, layouts[7]);
    assert_true(has_decision(rung, ladder(&j.w, j.c.plan, rung), DECIDE_order));
    close_case(&j.c);
}

/* ---- data parallelism alone ---- */

static void scaling_is_of_estimates(void **unused)
{
    (void)unused;
    Judge j;
    open_judge(&j);
    plan_as(&j, layouts[2]);
    Scaling s = scaling(&j.w, j.c.plan);
    assert_int_equal(s.n, 4);
    assert_true(s.row[0].efficiency == 1);
    for (uint32_t i = 0; i < s.n; i++) {
        const Weighed *w = &s.row[i].weighed;
        assert_int_equal(s.row[i].dp, 1 << i);
        plan_as(&j, w->layout);
        check_figures(&j, &w->figures);
        assert_int_equal(j.c.plan->mesh[AXIS_dp], 1 << i);
        assert_true(s.row[i].efficiency == (double)s.row[0].weighed.figures.ns / ((double)s.row[i].dp * (double)j.sim.ns));
    }
    plan_as(&j, "mesh pp = 3, dp = 2; devices = [0, 1, 2, 3, 4, 5]; stage before h[1]; stage before h[2]");
    s = scaling(&j.w, j.c.plan);                     /* 1, 2, 4 and the 6 of the plan, which do not divide 16 */
    assert_int_equal(s.n, 4);
    assert_int_equal(s.row[3].dp, 6);
    assert_false(s.row[3].weighed.legal);
    assert_non_null(strstr(s.row[3].weighed.refused, "by dp (6)"));
    close_case(&j.c);
}

/* ---- the peak ---- */

static void the_peak_is_the_live_peak(void **unused)
{
    (void)unused;
    Judge j;
    open_judge(&j);
    for (int i = 0; i < LAYOUTS; i++) {
        plan_as(&j, layouts[i]);
        Peak peak = peak_of(j.c.a, fullest(&j));
        assert_int_equal(peak.bytes, program_live_peak(fullest(&j)));
        int64_t live = 0, largest = 0;
        for (uint32_t b = 0; b < fullest(&j)->nbuffer; b++) {
            const Buffer *x = &fullest(&j)->buffer[b];
            bool here = x->first < 0 || (x->first <= (int32_t)peak.instr && (int32_t)peak.instr <= x->last);
            live += here ? x->bytes * x->slots : 0;
            largest = here && x->bytes * x->slots > largest ? x->bytes * x->slots : largest;
        }
        assert_int_equal(live, peak.bytes);
        assert_int_equal(peak.largest[0].bytes, largest);
        for (uint32_t k = 1; k < peak.n; k++)
            assert_true(peak.largest[k].bytes <= peak.largest[k - 1].bytes);
    }
    close_case(&j.c);
}

/* ---- neighbours ---- */

static void neighbours_are_other_layouts(void **unused)
{
    (void)unused;
    Judge j;
    open_judge(&j);
    for (int i = 0; i < LAYOUTS; i++) {
        Change *c;
        int legal = 0;
        plan_as(&j, layouts[i]);
        uint32_t n = neighbours(&j.w, j.c.plan, &c);
        for (uint32_t k = 0; k < n; k++) {
            if (!c[k].weighed.legal)
                continue;
            legal++;
            check_sums(&c[k].weighed.figures);
            plan_as(&j, c[k].weighed.layout);
            check_figures(&j, &c[k].weighed.figures);
        }
        assert_true(legal > 0);
    }
    close_case(&j.c);
}

/* ---- runners-up ---- */

/* The other plans of a search, in its order, with its times. */
static void runners_up_are_those_found(void **unused)
{
    (void)unused;
    Judge j;
    Change *c;
    SearchLimits limits = search_limits;
    limits.top = 4;
    open_judge(&j);
    assert_int_equal(search_rules(&j.c, limits, "bucket = 25 MB"), OK);
    const Search found = j.c.found;
    assert_int_equal(found.nbest, 4);
    assert_int_equal(runners_up(&j.w, found.best[0].plan, &found, &c), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(c[i].weighed.figures.ns, found.best[i + 1].ns);
        assert_int_equal(figures_excess(&c[i].weighed.figures), -found.best[i + 1].spare);
        assert_true(*c[i].text);
    }
    assert_int_equal(runners_up(&j.w, found.best[1].plan, &found, &c), 3);
    assert_int_equal(c[0].weighed.figures.ns, found.best[0].ns);
    close_case(&j.c);
}

/* ---- rules in place of the plan's ---- */

/* NULL: they are no rules of the language for this model. */
static Rules *rules_changed(Judge *j, const char *given, PlanUse *use)
{
    const char *assumed;
    Rules *rules;
    return parse_rules(&j->c, given, &rules) == OK ? changed_by(&j->w, j->c.plan, rules, use, &assumed) : NULL;
}

static const char *changed(Judge *j, const char *given, PlanUse *use)
{
    return pins_text(j->c.a, rules_changed(j, given, use));
}

static void given_rules_replace_the_plans(void **unused)
{
    (void)unused;
    PlanUse use;
    Judge j;
    open_judge(&j);
    plan_as(&j, layouts[5]);
    const char *s = changed(&j, "mesh tp = 4", &use);
    assert_non_null(strstr(s, "mesh tp = 4") && strstr(s, "mesh dp = 2") ? s : NULL);
    assert_non_null(strstr(s, "mesh pp = 1"));
    assert_null(strstr(s, "stage"));                 /* no stages any more, and no number that was for others */
    assert_null(strstr(s, "microbatches"));
    assert_null(strstr(s, "gpipe"));
    assert_non_null(strstr(s, "split heads, ffn by tp"));
    assert_int_equal(use, USE_ESTIMATE);
    s = changed(&j, "mesh pp = 4", &use);
    assert_non_null(strstr(s, "stage before h[1]; stage before h[2]; stage before h[3]"));
    s = changed(&j, "microbatches = 8", &use);
    assert_non_null(strstr(s, "microbatches = 8"));
    assert_null(strstr(s, "microbatches = 2"));
    assert_non_null(strstr(s, "stage before h[1]"));
    plan_as(&j, layouts[0]);
    s = changed(&j, "mesh tp = 2", &use);
    assert_int_equal(use, USE_PLAN);                 /* what tp splits is chosen */
    assert_non_null(strstr(changed(&j, "mesh cp = 2", &use), "split seq by cp"));
    close_case(&j.c);
}

/* ---- questions ---- */

/* The rules that a question is answered by, and how. */
static Rules *question(Judge *j, const char *given, PlanUse *use)
{
    Rules *rules;
    assert_int_equal(parse_rules(&j->c, given, &rules), OK);
    return asked_about(&j->w, j->c.plan, rules, use);
}

/* Search for the plan of the user's rules, which questions are then about. */
static void search_as(Judge *j, const char *rules, bool resolved)
{
    Rules *given;
    assert_int_equal(parse_rules(&j->c, rules, &given), OK);
    for (uint32_t i = 0; i < given->nrule; i++)
        given->rule[i].resolved = resolved;
    assert_int_equal(plan_these(&j->c, given, USE_PLAN, search_limits), OK);
    j->q.rules = given;
}

/* A question about a mesh leaves open what `pplan plan --with` leaves open of it, and is answered by the same plan. */
static void a_mesh_is_asked_about_as_it_is_planned(void **unused)
{
    (void)unused;
    static const char *const asked[] = {"mesh pp = 2", "mesh pp = 4", "mesh tp = 2", "mesh cp = 2", "mesh pp = 1..2, dp = 4", "mesh dp = auto", "stage before h[2]",
                                        "mesh pp = 2; microbatches = 2", "mesh pp = 2, dp = 4; stage before h[3]"};
    Judge j;
    open_judge(&j);
    search_as(&j, "bucket = 25 MB", false);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        PlanUse use;
        Rules *rules = question(&j, asked[i], &use);
        Weighed w = weigh(&j.w, rules, use);
        assert_int_equal(use, USE_PLAN);
        Plan *kept = j.c.plan;
        assert_int_equal(search_rules(&j.c, search_limits, arena_printf(j.c.a, "bucket = 25 MB; %s", asked[i])), OK);
        assert_int_equal(w.figures.ns, j.c.found.best[0].ns);
        assert_string_equal(w.layout, pins_text(j.c.a, pins_of(j.c.a, j.c.l.graph, j.c.plan)));
        j.c.plan = kept;
    }
    close_case(&j.c);
}

/* What the user said stands beside a question, what the planner chose or a .plan wrote out does not. */
static void a_question_keeps_what_was_given(void **unused)
{
    (void)unused;
    static const char rules[] = "mesh pp = 2, dp = 4; stage before h[1]; microbatches = 4; schedule = \"gpipe\"; recompute h[0]; bucket = 10 kB; devices = [7, 6, 5, 4, 3, 2, 1, 0]";
    PlanUse use;
    Judge j;
    open_judge(&j);
    search_as(&j, rules, false);
    assert_string_equal(pins_text(j.c.a, question(&j, "mesh pp = 4", &use)), "microbatches = 4; schedule = \"gpipe\"; recompute h[0] full; bucket = 10 kB; devices = [7, 6, 5, 4, 3, 2, 1, 0]; mesh pp = 4");
    assert_string_equal(pins_text(j.c.a, question(&j, "mesh tp = 2; microbatches = 2", &use)),
                        "stage before h[1]; schedule = \"gpipe\"; recompute h[0] full; bucket = 10 kB; devices = [7, 6, 5, 4, 3, 2, 1, 0]; mesh tp = 2; microbatches = 2");
    const char *s = pins_text(j.c.a, question(&j, "microbatches = 2", &use));
    assert_int_equal(use, USE_ESTIMATE);                 /* the plan with one thing changed */
    assert_non_null(strstr(s, "mesh pp = 2; mesh dp = 4"));
    search_as(&j, rules, true);
    assert_string_equal(pins_text(j.c.a, question(&j, "mesh tp = 2", &use)), "bucket = 10 kB; mesh tp = 2");
    assert_string_equal(pins_text(j.c.a, question(&j, "stage before h[2]", &use)), "bucket = 10 kB; stage before h[2]");
    assert_int_equal(use, USE_PLAN);
    for (uint32_t i = 0; i < question(&j, "mesh tp = 2", &use)->nrule; i++)
        assert_false(question(&j, "mesh tp = 2", &use)->rule[i].resolved);
    close_case(&j.c);
}

/* What rules may not say, an explanation does not weigh: four heads on eight ranks. */
static void changed_layouts_are_legal(void **unused)
{
    (void)unused;
    PlanUse use;
    Judge j;
    open_judge(&j);
    plan_as(&j, layouts[2]);
    Weighed w = weigh(&j.w, rules_changed(&j, "mesh tp = 8", &use), USE_ESTIMATE);
    assert_false(w.legal);
    assert_non_null(strstr(w.refused, "cannot split 'heads' (4)"));
    w = weigh(&j.w, rules_changed(&j, "mesh tp = 4", &use), USE_ESTIMATE);
    assert_true(w.legal);
    w = weigh(&j.w, rules_changed(&j, "mesh dp = 3", &use), USE_ESTIMATE);
    assert_non_null(strstr(w.refused, "3 places"));
    close_case(&j.c);
}

/* Whatever stands in place of rules of any plan, is weighed or refused with a reason. */
static void every_rule_may_be_changed(void **unused)
{
    (void)unused;
    static const char *const asked[] = {
        "mesh tp = 2", "mesh tp = 2..4", "mesh dp = 1", "mesh pp = 2", "mesh pp = 4, dp = 2", "mesh pp = 8", "mesh cp = 2, tp = 2", "mesh ep = 2", "mesh dp = 2 * 4",
        "mesh dp = 9000000000, tp = 9000000000", "split ffn in h[1..2] by tp", "split seq by dp", "split d by (tp, cp)", "keep ffn whole", "keep heads whole in h[0]",
        "pad vocab to 5", "pad heads to 8", "stage before h[2]", "stage after h[0]", "stage every 1 in h", "stage 0 { mesh dp = 1 }", "recompute h", "recompute h[1] attention",
        "save h.up", "shard optimizer by dp", "shard optimizer by cp", "shard gradients by dp", "shard weights by (dp, tp)", "offload optimizer to host", "microbatches = 2",
        "microbatches = 5", "microbatches = 1..16", "schedule = \"gpipe\"", "chunks = 2", "bucket = 1 kB", "devices = [0]", "devices = [7, 6, 5, 4, 3, 2, 1, 0]",
        "devices = [1, 1]", "sync = \"server\"", "mesh tp = 2; devices = [3, 4]; microbatches = 2; shard optimizer by tp",
    };
    PlanUse use;
    Judge j;
    int legal = 0, refused = 0;
    open_judge(&j);
    for (int i = 0; i < LAYOUTS; i += 2) {
        plan_as(&j, layouts[i]);
        for (size_t k = 0; k < sizeof asked / sizeof *asked; k++) {
            const Rules *rules = rules_changed(&j, asked[k], &use);
            if (!rules)
                continue;
            Weighed w = weigh(&j.w, rules, use);
            assert_int_equal(w.legal, !*w.refused);
            legal += w.legal;
            refused += !w.legal;
            if (w.legal)
                check_sums(&w.figures);
        }
    }
    assert_true(legal > 80 && refused > 80);
    close_case(&j.c);
}

/* ---- what makes it fit ---- */

/* The first plan at this memory fits or does not; what is said to make it fit does. */
static int check_remedies(Judge *j, const char *rules, int64_t memory)
{
    enum { MOST = 3 };
    Change fix[MOST], nearest;
    device_of(&j->c)->memory = memory;
    if (try_rules(&j->c, "%s", rules) == OK)
        return 0;
    const Plan *plan = j->c.plan;
    assert_non_null(plan);
    assert_true(program_excess(fullest(j)) > 0);
    int64_t needed = program_map_bytes(fullest(j)) + fullest(j)->reserve;
    uint32_t n = remedies(&j->w, plan, needed, MOST, fix, &nearest);
    for (uint32_t k = 0; k < n; k++) {
        assert_true(weighed_fits(&fix[k].weighed));
        plan_as(j, fix[k].weighed.layout);
        check_figures(j, &fix[k].weighed.figures);
    }
    if (n == 0 && nearest.weighed.legal) {
        assert_true(change_needs(&nearest) < needed);
        device_of(&j->c)->memory = change_needs(&nearest);
        plan_as(j, nearest.weighed.layout);
        device_of(&j->c)->memory--;
        assert_int_equal(try_rules(&j->c, "%s", nearest.weighed.layout), ERR_REJECT);
    }
    return n > 0 ? 1 : 2;
}

static void remedies_make_it_fit(void **unused)
{
    (void)unused;
    int seen[3] = {0};
    Judge j;
    open_judge(&j);
    for (int i = 0; i < LAYOUTS; i += 2) {
        device_of(&j.c)->memory = 2000000;
        plan_as(&j, layouts[i]);
        int64_t need = program_map_bytes(fullest(&j)) + fullest(&j)->reserve;
        for (int64_t part = 2; part <= 16; part *= 4)
            seen[check_remedies(&j, layouts[i], need - need / part)]++;
    }
    assert_true(seen[1] > 2 && seen[2] > 2);
    close_case(&j.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_rung_is_the_plan),
        cmocka_unit_test(rungs_are_the_decisions),
        cmocka_unit_test(scaling_is_of_estimates),
        cmocka_unit_test(the_peak_is_the_live_peak),
        cmocka_unit_test(neighbours_are_other_layouts), cmocka_unit_test(runners_up_are_those_found),
        cmocka_unit_test(given_rules_replace_the_plans),
        cmocka_unit_test(a_mesh_is_asked_about_as_it_is_planned),
        cmocka_unit_test(a_question_keeps_what_was_given),
        cmocka_unit_test(changed_layouts_are_legal),
        cmocka_unit_test(every_rule_may_be_changed),
        cmocka_unit_test(remedies_make_it_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
