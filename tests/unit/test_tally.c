/* The tally of a step's time: parts, medians, and how they are told. */
#include <math.h>

#include "runtime/tally.h"
#include "tests/unit/syntax.h"

enum { WORK, LINK, WAIT, REST };
static const uint8_t of_instr[] = {WORK, LINK, WORK};

static TallyParts some_parts(int64_t step_ns)
{
    TallyParts p = {.name = {"work", "link", "waiting", "rest"}, .n = 4, .of_instr = of_instr, .waiting = WAIT, .rest = REST, .step_ns = step_ns};
    p.ns[WORK] = step_ns / 2;
    return p;
}

/* `work` seconds of two instructions, `link` seconds of which `waited` are waited. */
static void one_step(Tally *t, double work, double link, double waited)
{
    tally_begin(t);
    tally_add(t, 0, false, work / 2, 0, work / 2);
    tally_add(t, 1, true, link, waited, link);
    tally_add(t, 2, false, work / 2, 0, work / 2);
    tally_end(t, work + link + 0.25);
}

static void test_parts(void **state)
{
    (void)state;
    Arena *a = arena_new("tally");
    TallyParts p = some_parts(0);
    Tally *t = tally_new(a, &p);
    assert_null(tally_text(a, t, true));
    for (int i = 0; i < 2; i++) {
        one_step(t, 900, 900, 900);                  /* cold: never shown */
        assert_null(tally_text(a, t, false));
    }
    for (int i = 0; i < 3; i++)
        one_step(t, i == 1 ? 100 : 2, 1, 0.5);       /* one of them is disturbed */
    assert_string_equal(tally_text(a, t, false),
                        "time: a step, median of 3, 3.25 s; work 2 s; link 500 ms; waiting 500 ms; rest 250 ms");
    arena_free(a);
}

/* A rank among several stages says which it is; it is busy while it computes. */
static void test_who(void **state)
{
    (void)state;
    Arena *a = arena_new("tally");
    TallyParts p = some_parts(0);
    p.who = "rank 2 (stage 1, the busiest)";
    p.beside[LINK] = "hidden link";
    Tally *t = tally_new(a, &p);
    assert_true(tally_busy(t) == 0);
    for (int i = 0; i < 5; i++)
        one_step(t, 2, 1, 0.5);
    assert_true(tally_busy(t) == 2);
    assert_string_equal(tally_text(a, t, false),
                        "time: a step of rank 2 (stage 1, the busiest), median of 3, 3.25 s; work 2 s; link 500 ms; waiting 500 ms; rest 250 ms");
    assert_non_null(strstr(tally_text(a, t, true), "  of rank 2 (stage 1, the busiest)\n  a step, median of 3 "));
    arena_free(a);
}

/* Only the latest steps count. */
static void test_latest(void **state)
{
    (void)state;
    Arena *a = arena_new("tally");
    TallyParts p = some_parts(4000000000);
    Tally *t = tally_new(a, &p);
    for (int i = 0; i < 200; i++)
        one_step(t, 7, 1, 0);
    for (int i = 0; i < TALLY_STEPS; i++)
        one_step(t, 3e-6, 0, 0);
    assert_string_equal(tally_text(a, t, false),
                        "time: a step, median of 64, 250 ms (predicted 4 s); work 3 us (predicted 2 s); rest 250 ms (predicted 0 s)");
    assert_string_equal(tally_text(a, t, true), "  a step, median of 64                 measured  predicted\n"
                                                "  work                                     3 us        2 s\n"
                                                "  rest                                   250 ms        0 s\n"
                                                "  in all                                 250 ms        4 s");
    arena_free(a);
}

/* What goes on while the rank computes is told, and is no part of the step. */
static void test_beside(void **state)
{
    (void)state;
    Arena *a = arena_new("tally");
    TallyParts p = some_parts(4000000000);
    p.name[LINK] = "exposed link";
    p.beside[LINK] = "hidden link";
    p.ns[LINK] = p.beside_ns[LINK] = 500000000;
    Tally *t = tally_new(a, &p);
    for (int i = 0; i < TALLY_SKIPPED + 3; i++) {
        tally_begin(t);
        tally_add(t, 0, false, 3, 0, 3);
        tally_add(t, 1, true, 2, 0.5, 0.5);              /* a quarter is exposed, of waiting as of the rest */
        tally_add(t, 2, false, 0, 0, 0);
        tally_end(t, 4);
    }
    assert_string_equal(tally_text(a, t, false),
                        "time: a step, median of 3, 4 s (predicted 4 s); work 3 s (predicted 2 s); exposed link 375 ms (predicted 500 ms); hidden link 1.12 s "
                        "(predicted 500 ms); waiting 125 ms (predicted 0 s); rest 500 ms (predicted 0 s)");
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_who), cmocka_unit_test(test_latest), cmocka_unit_test(test_beside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
