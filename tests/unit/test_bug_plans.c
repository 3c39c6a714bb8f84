/* Public bug reports about planners, on one device: what is planned is what was
 * asked, fits and runs, and what is refused has a way out that is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "cli/load.h"
#include "planner/planner.h"
#include "runtime/runtime.h"

/* ---- a model that is planned again and again ---- */

typedef struct Case {
    Arena   *a;
    Loaded   l;
    Diags   *ds;                      /* of the last try, not printed */
    Plan    *plan;
    Program *p;
} Case;

static void open_case(Case *c, const char *text)
{
    *c = (Case){.a = arena_new("test")};
    char path[] = "/tmp/pplan-bug-plan-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    char *argv[] = {"pplan", path, "-c", "laptop1"};
    Args args;
    assert_int_equal(args_read(c->a, PPLAN, 4, argv, &args), OK);
    assert_int_equal(load_model(&c->l, &args), OK);
    unlink(path);
    graph_complete(c->l.graph);
    if (has_value(c->l.graph->loss))
        graph_differentiate(c->l.graph);
}

static void close_case(Case *c)
{
    load_free(&c->l);
    arena_free(c->a);
}

/* `microbatches` 0: open. */
static Status try_plan(Case *c, int64_t microbatches)
{
    Rule rule = {.kind = RULE_SETTING, .name = "microbatches", .choice = {.value = &microbatches, .nvalue = 1}};
    Rules rules = {.rule = &rule, .nrule = microbatches > 0};
    PlanRequest q = {.graph = c->l.graph, .cluster = c->l.cluster, .rules = &rules, .model_text = ""};
    c->ds = diags_new(c->l.sources);
    Programs programs;
    Status s = planner_choose(c->l.ir, c->ds, &q, &c->plan, &programs);
    c->p = s == OK ? programs.rank[0] : NULL;
    return s;
}

/* The help of the one error of the last try. */
static const char *help(const Case *c)
{
    assert_non_null(c->ds->first);
    const Diag *d = c->ds->first->note;
    while (d && d->severity != SEV_HELP)
        d = d->next;
    assert_non_null(d);
    return d->text;
}

/* The numbers in a text, commas inside them left out. */
static int numbers(const char *s, int64_t out[2])
{
    int n = 0;
    for (; *s; s++) {
        int64_t v = 0;
        if (*s < '0' || *s > '9')
            continue;
        for (; (*s >= '0' && *s <= '9') || (*s == ',' && s[1] >= '0' && s[1] <= '9'); s++)
            v = *s == ',' ? v : 10 * v + (*s - '0');
        assert_true(n < 2);
        out[n++] = v;
        s--;
    }
    return n;
}

static const char *mlp(Arena *a, int64_t batch, int hidden)
{
    return arena_printf(a,
        "model m {\n  dim batch = %lld, pixel = 5, hidden = %d, class = 3\n"
        "  precision { compute = f32 }\n  optimizer adamw { lr = 1e-3 }\n"
        "  input x[batch, pixel] : f32\n  input label[batch] : i32\n"
        "  minimize cross_entropy(relu(fc1: linear(x, hidden)) |> fc2: linear(class), label)\n}\n", (long long)batch, hidden);
}

/* ---- J01: models planned in one process do not know of each other ---- */

static uint64_t hash_of(const char *text)
{
    Case c;
    open_case(&c, text);
    assert_int_equal(try_plan(&c, 0), OK);
    uint64_t hash = program_hash(c.p);
    close_case(&c);
    return hash;
}

static void J01_two_models_in_one_process(void **state)
{
    (void)state;
    Arena *a = arena_new("texts");
    const char *small = mlp(a, 6, 4), *large = mlp(a, 10, 7);
    uint64_t first = hash_of(small), other = hash_of(large);
    assert_true(first != other);
    assert_true(hash_of(small) == first);
    assert_true(hash_of(large) == other);
    arena_free(a);
}

/* ---- J03: the batch is cut as asked, or refused with the nearest numbers ---- */

static void check_cut(Case *c, int64_t batch, int64_t m)
{
    int64_t named[2], below = m < batch ? m : batch, above = m;
    Status s = try_plan(c, m);
    assert_int_equal(s == OK, batch % m == 0);
    if (s == OK) {
        assert_int_equal(c->plan->microbatches, m);
        assert_int_equal(c->p->tensor[c->p->input[0].tensor.i].axis[0].local * m, batch);
        return;
    }
    while (batch % below)
        below--;
    while (above < batch && batch % above)
        above++;
    int n = numbers(help(c), named);
    assert_int_equal(named[0], below);
    assert_int_equal(n, above > batch ? 1 : 2);
    assert_true(n == 1 || named[1] == above);
}

static void J03_the_batch_is_what_was_asked(void **state)
{
    (void)state;
    Arena *a = arena_new("texts");
    for (int64_t batch = 1; batch <= 12; batch++) {
        Case c;
        open_case(&c, mlp(a, batch, 4));
        for (int64_t m = 1; m <= batch + 3; m++)
            check_cut(&c, batch, m);
        close_case(&c);
    }
    arena_free(a);
}

/* ---- J04: a plan fits and runs; where there is none, no cut fits ---- */

static Device *device_of(Case *c)
{
    return &c->l.cluster->device[0];
}

static void run_a_step(Case *c)
{
    Rank r;
    assert_true(c->p->map_bytes[PART_PRIVATE] + c->p->reserve <= device_of(c)->memory);
    assert_int_equal(rank_open(&r, c->a, c->p, isa_best()), OK);
    rank_init(&r, 1);
    rank_train(&r);
    rank_close(&r);
}

/* Whether the batch in m parts fits, by itself. */
static bool fits(Case *c, int64_t m)
{
    return try_plan(c, m) == OK;
}

static void check_limit(Case *c, int64_t batch, int64_t memory)
{
    int64_t need[2], m = 1;
    device_of(c)->memory = memory;
    while (m <= batch && (batch % m || !fits(c, m)))
        m++;
    if (try_plan(c, 0) == OK) {
        assert_int_equal(c->plan->microbatches, m);
        run_a_step(c);
        return;
    }
    assert_true(m > batch);
    assert_int_equal(numbers(help(c), need), 1);
    device_of(c)->memory = need[0];                   /* what the message says would do, does */
    assert_int_equal(try_plan(c, 0), OK);
    run_a_step(c);
}

static void J04_a_plan_fits_or_none_does(void **state)
{
    (void)state;
    Arena *a = arena_new("texts");
    int planned[2] = {0};
    for (int hidden = 2; hidden <= 32; hidden *= 2) {
        Case c;
        open_case(&c, mlp(a, 12, hidden));
        device_of(&c)->reserve = 4096;
        for (int64_t memory = 4096 + 1024; memory < 4096 + (32 << 10); memory += 320) {
            check_limit(&c, 12, memory);
            planned[device_of(&c)->memory == memory]++;
        }
        close_case(&c);
    }
    assert_true(planned[false] > 20 && planned[true] > 20);
    arena_free(a);
}

/* ---- J07: without a loss there is nothing of training ---- */

static void J07_inference_has_no_gradients(void **state)
{
    (void)state;
    Case c;
    open_case(&c, "model m {\n  dim batch = 6, pixel = 5, class = 3\n  precision { compute = f32 }\n"
                  "  input x[batch, pixel] : f32\n  y = fc: linear(x, class) |> relu\n  output y\n}\n");
    assert_int_equal(try_plan(&c, 0), OK);
    assert_null(c.ds->first);
    for (uint32_t i = 0; i < c.p->nbuffer; i++)
        assert_true(c.p->buffer[i].cls != CLASS_gradients && c.p->buffer[i].cls != CLASS_moments &&
                    c.p->buffer[i].cls != CLASS_saved);
    for (uint32_t i = 0; i < c.p->ninstr; i++)
        assert_true(c.p->instr[i].op != OP_adamw && c.p->instr[i].op != OP_sgd);
    close_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(J01_two_models_in_one_process),
        cmocka_unit_test(J03_the_batch_is_what_was_asked),
        cmocka_unit_test(J04_a_plan_fits_or_none_does),
        cmocka_unit_test(J07_inference_has_no_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
