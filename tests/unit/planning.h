#ifndef TESTS_UNIT_PLANNING_H
#define TESTS_UNIT_PLANNING_H
/* A model that is planned again and again: with other rules, on other machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "cli/load.h"
#include "planner/search.h"

typedef struct Case {
    Arena   *a;
    Loaded   l;
    Diags   *ds;                      /* of the last try, not printed */
    Plan    *plan;
    Programs programs;
    Search   found;                   /* what was searched, where rules left something open */
    Program *p;                       /* of the first rank; NULL: the last try failed */
} Case;

static inline const char *temporary_file(Arena *a, const char *text)
{
    char *path = arena_strdup(a, "/tmp/pplan-bug-plan-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

/* As a command line of pplan names it. */
static inline void open_case_args(Case *c, int argc, char **argv)
{
    Args args;
    assert_int_equal(args_read(c->a, PPLAN, argc, argv, &args), OK);
    assert_int_equal(load_model(&c->l, &args), OK);
    graph_complete(c->l.graph);
    if (has_value(c->l.graph->loss))
        graph_differentiate(c->l.graph);
}

/* cluster: the name of a bundled one, or a text. */
static inline void open_case_on(Case *c, const char *text, const char *cluster)
{
    *c = (Case){.a = arena_new("test")};
    bool bundled = !strchr(cluster, '{');
    const char *model = temporary_file(c->a, text), *machine = bundled ? cluster : temporary_file(c->a, cluster);
    open_case_args(c, 4, (char *[]){"pplan", arena_strdup(c->a, model), "-c", arena_strdup(c->a, machine)});
    unlink(model);
    if (!bundled)
        unlink(machine);
}

static inline void open_case(Case *c, const char *text)
{
    open_case_on(c, text, "laptop1");
}

static inline void close_case(Case *c)
{
    load_free(&c->l);
    arena_free(c->a);
}

static inline Status plan_these(Case *c, const Rules *rules, PlanUse use, SearchLimits limits)
{
    PlanRequest q = {.graph = c->l.graph, .cluster = c->l.cluster, .rules = rules, .model_text = "", .profile = c->l.profile, .use = use};
    Status s = planner_search(c->l.ir, c->ds, &q, limits, &c->plan, &c->programs, &c->found);
    c->p = s == OK ? c->programs.rank[0] : NULL;
    return s;
}

/* The layout that the rules say. */
static inline Status try_these(Case *c, const Rules *rules)
{
    return plan_these(c, rules, USE_ESTIMATE, search_limits);
}

/* `microbatches` 0: open. */
static inline Status try_plan(Case *c, int64_t microbatches)
{
    Rule rule = {.kind = RULE_SETTING, .name = "microbatches", .choice = {.value = &microbatches, .nvalue = 1}};
    c->ds = diags_new(c->l.sources);
    return try_these(c, &(Rules){.rule = &rule, .nrule = microbatches > 0});
}

/* Rules as the language has them. */
static inline Status parse_rules(Case *c, const char *text, Rules **rules)
{
    Units units;
    IncludePath none = {0};
    const char *kept = arena_printf(c->l.input, "plan { %s }", text);
    c->ds = diags_new(c->l.sources);
    assert_int_equal(parse_text(c->ds, "<rules>", kept, strlen(kept), none, &units), OK);
    return elaborate_rules(c->ds, &units, c->l.graph, c->l.ir, rules);
}

static inline Status try_rules(Case *c, const char *fmt, ...)
{
    va_list ap;
    Rules *rules;
    va_start(ap, fmt);
    const char *text = arena_vprintf(c->l.input, fmt, ap);
    va_end(ap);
    return parse_rules(c, text, &rules) == OK ? try_these(c, rules) : ERR_REJECT;
}

/* What they leave open is searched: Case.found. */
static inline Status search_rules(Case *c, SearchLimits limits, const char *text)
{
    Rules *rules;
    return parse_rules(c, text, &rules) == OK ? plan_these(c, rules, USE_PLAN, limits) : ERR_REJECT;
}

/* The help of the one error of the last try. */
static inline const char *help(const Case *c)
{
    assert_non_null(c->ds->first);
    const Diag *d = c->ds->first->note;
    while (d && d->severity != SEV_HELP)
        d = d->next;
    assert_non_null(d);
    return d->text;
}

/* The numbers in a text, commas between digits left out; at most `most`. */
static inline int numbers(const char *s, int64_t *out, int most)
{
    int n = 0;
    for (; *s; s++) {
        int64_t v = 0;
        if (*s < '0' || *s > '9')
            continue;
        for (; (*s >= '0' && *s <= '9') || (*s == ',' && s[1] >= '0' && s[1] <= '9'); s++)
            v = *s == ',' ? v : 10 * v + (*s - '0');
        assert_true(n < most);
        out[n++] = v;
        s--;
    }
    return n;
}

/* A perceptron of two layers. */
static inline const char *mlp(Arena *a, int64_t batch, int hidden)
{
    return arena_printf(a,
        "model m {\n  dim batch = %lld, pixel = 5, hidden = %d, class = 3\n"
        "  precision { compute = f32 }\n  optimizer adamw { lr = 1e-3 }\n"
        "  input x[batch, pixel] : f32\n  input label[batch] : i32\n"
        "  minimize cross_entropy(relu(fc1: linear(x, hidden)) |> fc2: linear(class), label)\n}\n", (long long)batch, hidden);
}

/* The divisors of n next to m: below it, or it, and above; how many. */
static inline int nearest_divisors(int64_t n, int64_t m, int64_t out[2])
{
    int64_t below = m < n ? m : n, above = m;
    while (n % below)
        below--;
    while (above < n && n % above)
        above++;
    out[0] = below;
    out[1] = above;
    return above > n || above == below ? 1 : 2;
}

static inline void names_nearest(const Case *c, int64_t n, int64_t m)
{
    int64_t named[2], want[2];
    int k = nearest_divisors(n, m, want);
    assert_int_equal(numbers(help(c), named, 2), k);
    for (int i = 0; i < k; i++)
        assert_int_equal(named[i], want[i]);
}

static inline Device *device_of(Case *c)
{
    return &c->l.cluster->device[0];
}

#endif
