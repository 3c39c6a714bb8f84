/* Random models under random layouts of up to eight ranks, as the planner makes plans of
 * them: each plan is lowered and executed in f64, in lockstep or by the runtime with ranks
 * as threads, and has the losses and norms of one device.  What the program refuses is
 * counted by its reason; and every kind of layout must have been executed.
 *
 * With two numbers the program takes that many models from that seed on; with `print` and a
 * seed it writes the texts of that one, to be looked at with pplan. */
#include "tests/unit/history.h"
#include "tests/unit/layouts.h"
#include "tests/unit/planning.h"
#include "tests/unit/random_model.h"

enum { MODELS = 50, LAYOUTS = 4, STEPS_RUN = 3 };

typedef struct Seeds { uint64_t first, n; } Seeds;

/* ---- what was executed and what was refused ---- */

enum { MOST_REASONS = 64 };

typedef struct Reasons { Arena *a; const char *text[MOST_REASONS]; int count[MOST_REASONS], n, refused; } Reasons;

/* A message without its numbers: the same mistake reads the same. */
static const char *without_numbers(Arena *a, const char *s)
{
    Text t = text_new(a);
    for (; *s; s++)
        if (*s < '0' || *s > '9')
            text_puts(&t, s, 1);
        else if (t.n == 0 || t.s[t.n - 1] != '#')
            text_puts(&t, "#", 1);
    return t.s;
}

static void count_reason(Reasons *r, const char *message)
{
    const char *text = without_numbers(r->a, message);
    int i = 0;
    while (i < r->n && strcmp(r->text[i], text) != 0)
        i++;
    assert_true(i < MOST_REASONS);
    r->text[i] = text;
    r->n = i == r->n ? i + 1 : r->n;
    r->count[i]++;
    r->refused++;
}

/* What a plan may have, by its rules; by.axis counts where names are given. */
typedef struct Kind { const char *what; RuleKind rule; const char *axis; MeshAxis by; RecomputePolicy policy; } Kind;
static const Kind kinds[] = {
    {"heads by tp", RULE_SPLIT, "heads", AXIS_tp, 0}, {"ffn by tp", RULE_SPLIT, "ffn", AXIS_tp, 0}, {"vocab by tp", RULE_SPLIT, "vocab", AXIS_tp, 0},
    {"seq by tp", RULE_SPLIT, "seq", AXIS_tp, 0}, {"seq by cp", RULE_SPLIT, "seq", AXIS_cp, 0},
    {"padding", RULE_PAD, NULL, 0, 0}, {"stages", RULE_STAGE_BEFORE, NULL, 0, 0}, {"sharded moments", RULE_SHARD, NULL, 0, 0},
    {"full recomputation", RULE_RECOMPUTE, NULL, 0, RECOMPUTE_FULL}, {"attention recomputed", RULE_RECOMPUTE, NULL, 0, RECOMPUTE_ATTENTION},
    {"cheap recomputation", RULE_RECOMPUTE, NULL, 0, RECOMPUTE_CHEAP},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static bool is_kind(const Rule *r, const Kind *k)
{
    bool axis = !k->axis;
    for (uint32_t i = 0; !axis && r->kind == RULE_SPLIT && i < r->nnames; i++)
        axis = strcmp(r->names[i], k->axis) == 0 && r->by.axis[0] == k->by;
    return r->kind == k->rule && axis && (k->rule != RULE_RECOMPUTE || r->policy == k->policy);
}

/* Plans by what they have, and by their sizes. */
typedef struct Executed { int plans, of_kind[KINDS], of_axis[MESH_AXES], of_family[RANDOM_FAMILIES], gpipe, micro, three, eight; } Executed;

static void count_plan(Executed *e, const Plan *p, RandomFamily family)
{
    int axes = 0;
    for (int k = 0; k < KINDS; k++) {
        uint32_t i = 0;
        while (i < p->nrule && !is_kind(&p->rule[i], &kinds[k]))
            i++;
        e->of_kind[k] += i < p->nrule;
    }
    for (int x = 0; x < MESH_AXES; x++) {
        e->of_axis[x] += p->mesh[x] > 1;
        axes += p->mesh[x] > 1;
    }
    e->plans++;
    e->of_family[family]++;
    e->gpipe += p->mesh[AXIS_pp] > 1 && strcmp(p->schedule, "gpipe") == 0;
    e->micro += p->microbatches > 1;
    e->three += axes == 3;
    e->eight += p->ndevices == 8;
}

/* ---- executing plans ---- */

static void fill_random(LockRank *r, const void *ctx)
{
    lock_fill(r, *(const int64_t *)ctx);
}

static void run_plan(History *h, Arena *a, Case *c, const Plan *plan, Start start, const char *what)
{
    Model m = {.a = a, .ds = diags_new(c->l.sources), .g = c->l.graph, .cl = c->l.cluster};
    int64_t classes = classes_of(m.g);
    history_run(h, a, lower_programs(&m, plan), plan->ndevices, STEPS_RUN, start, &(Beginning){.fill = fill_random, .ctx = &classes}, what);
}

static const char *plan_text(Arena *a, const Plan *p)
{
    return arena_printf(a, "pp=%lld dp=%lld cp=%lld tp=%lld m=%lld %s", (long long)p->mesh[AXIS_pp], (long long)p->mesh[AXIS_dp], (long long)p->mesh[AXIS_cp],
                        (long long)p->mesh[AXIS_tp], (long long)p->microbatches, p->schedule);
}

static void check_plan(Case *c, const History *one, const Plan *plan, Start start, const char *what)
{
    Arena *a = arena_new("plan");
    History all;
    what = arena_printf(a, "%s: %s", what, plan_text(a, plan));
    run_plan(&all, a, c, plan, start, what);
    for (int s = 0; s < STEPS_RUN; s++) {
        same_scalars(&one->after[s], &all.after[s], &in_f64, what);
        same_copies(&all.after[s], what);
    }
    history_close(&all);
    arena_free(a);
}

/* ---- where plans come from ---- */

static const char *first_devices(Arena *a, int64_t n)
{
    Text t = text_new(a);
    for (int64_t i = 0; i < n; i++)
        text_add(&t, "%s%lld", i ? ", " : "", (long long)i);
    return t.s;
}

static const char *layout_rules(Arena *a, uint64_t seed, uint64_t k, const RandomModel *m)
{
    RandomLayout l = random_layout(a, seed * LAYOUTS + k, m);
    return arena_printf(a, "devices = [%s]; %s", first_devices(a, l.pp * l.dp * l.cp * l.tp), l.rules);
}

/* Only some of what is open is looked at: any plan will do. */
static const SearchLimits few = {.top = 1, .effort = 20000};

/* The plans of layouts that are not refused; how many. */
static uint32_t plans_of(Arena *a, Case *c, uint64_t seed, const RandomModel *m, Plan **plan, Reasons *r)
{
    uint32_t n = 0;
    for (uint64_t k = 0; k < LAYOUTS; k++)
        if (search_rules(c, few, layout_rules(a, seed, k, m)) == OK)
            plan[n++] = c->plan;
        else
            count_reason(r, c->ds->first->text);
    return n;
}

static void check_model(uint64_t seed, Executed *e, Reasons *r)
{
    Arena *a = arena_new("model");
    RandomModel m = random_model(a, seed, "f64");
    const char *what = arena_printf(a, "seed %d", (int)seed);
    Plan *plan[LAYOUTS];
    Case c;
    History one;
    open_case_on(&c, m.text, random_cores(a, MOST_RANKS));
    assert_int_equal(try_rules(&c, "devices = [0]; microbatches = 1"), OK);
    run_plan(&one, a, &c, c.plan, START_lockstep, what);
    uint32_t n = plans_of(a, &c, seed, &m, plan, r);
    for (uint32_t i = 0; i < n; i++) {
        check_plan(&c, &one, plan[i], i % 2 ? START_threads : START_lockstep, what);
        count_plan(e, plan[i], m.family);
    }
    history_close(&one);
    close_case(&c);
    arena_free(a);
}

static void print_counts(const Executed *e, const Reasons *r)
{
    print_message("# %d plans executed, %d of them of eight ranks; %d layouts refused\n", e->plans, e->eight, r->refused);
    for (int i = 0; i < r->n; i++)
        print_message("#   %d: %s\n", r->count[i], r->text[i]);
    for (int i = 0; i < KINDS; i++)
        print_message("#   %s: %d\n", kinds[i].what, e->of_kind[i]);
}

static void assert_all_kinds(const Executed *e, const Reasons *r)
{
    for (int i = 0; i < KINDS; i++)
        if (e->of_kind[i] == 0)
            fail_msg("no plan with %s was executed", kinds[i].what);
    for (int i = 0; i < RANDOM_FAMILIES; i++)
        assert_true(e->of_family[i] > 0);
    for (int x = 0; x < MESH_AXES; x++)
        assert_true(e->of_axis[x] > 0 || x == AXIS_ep);
    assert_true(e->gpipe > 0 && e->micro > 0 && e->three > 0 && e->eight > 0 && r->refused > 0);
    assert_true(4 * r->refused < e->plans + r->refused);
}

static void random_layouts(void **state)
{
    const Seeds *seeds = *state;
    Executed e = {.plans = 0};
    Reasons r = {.a = arena_new("reasons")};
    for (uint64_t i = 0; i < seeds->n; i++)
        check_model(seeds->first + i, &e, &r);
    print_counts(&e, &r);
    if (seeds->n >= MODELS)
        assert_all_kinds(&e, &r);
    arena_free(r.a);
}

/* ---- plans that are searched for ---- */

enum { SEARCHED = 40, BEST = 5 };

static uint32_t check_best(uint64_t seed)
{
    Arena *a = arena_new("model");
    RandomModel m = random_model(a, seed, "f64");
    int64_t devices = 1 + (int64_t)(seed % MOST_RANKS);
    SearchLimits limits = few;
    Case c;
    History one;
    limits.top = BEST;
    open_case_on(&c, m.text, random_cores(a, MOST_RANKS));
    assert_int_equal(try_rules(&c, "devices = [0]; microbatches = 1"), OK);
    run_plan(&one, a, &c, c.plan, START_lockstep, "one device");
    const char *rules = arena_printf(a, "devices = [%s]; %s", first_devices(a, devices), random_pins(a, seed, &m, devices));
    uint32_t n = search_rules(&c, limits, rules) == OK ? c.found.nbest : 0;
    for (uint32_t i = 0; i < n; i++)
        check_plan(&c, &one, c.found.best[i].plan, i % 2 ? START_threads : START_lockstep, arena_printf(a, "seed %d, '%s', best %u", (int)seed, rules, i));
    history_close(&one);
    close_case(&c);
    arena_free(a);
    return n;
}

/* The plan that is found, and the next ones: the losses of one device. */
static void best_plans(void **state)
{
    const Seeds *seeds = *state;
    uint32_t plans = 0, models = 0;
    for (uint64_t i = 0; i < seeds->n && models < (seeds->n > MODELS ? seeds->n : SEARCHED); i++) {
        uint32_t n = check_best(seeds->first + 7000 + i);
        models += n > 0;
        plans += n;
    }
    print_message("# %u plans of %u models, the best that were found\n", plans, models);
    assert_true(seeds->n < MODELS || (models >= SEARCHED && plans > 3 * models));
}

static int print_texts(uint64_t seed)
{
    Arena *a = arena_new("texts");
    RandomModel m = random_model(a, seed, "f64");
    printf("%s\n%s", m.text, random_cores(a, MOST_RANKS));
    for (uint64_t k = 0; k < LAYOUTS; k++)
        printf("# --with '%s'\n", layout_rules(a, seed, k, &m));
    arena_free(a);
    return 0;
}

int main(int argc, char **argv)
{
    Seeds seeds = {0, MODELS};
    if (argc == 3 && strcmp(argv[1], "print") == 0)
        return print_texts(strtoull(argv[2], NULL, 10));
    if (argc == 3)
        seeds = (Seeds){strtoull(argv[2], NULL, 10), strtoull(argv[1], NULL, 10)};
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(random_layouts, &seeds), cmocka_unit_test_prestate(best_plans, &seeds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
