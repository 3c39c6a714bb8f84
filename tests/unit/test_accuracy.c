/* The statistics of bench/accuracy, against figures worked out by hand, and its reader. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/accuracy/csv.h"
#include "bench/accuracy/stats.h"

static void is_about(double x, double y)
{
    assert_true(x > y - 1e-12 && x < y + 1e-12);
}

static void percentiles_lie_between_members(void **state)
{
    (void)state;
    double error[] = {0.4, 0.1, 0.2, 0.3, 1.0};
    Summary s = summary_of(error, 5);
    assert_int_equal(s.n, 5);
    is_about(s.median, 0.3);
    is_about(s.mean, 0.4);
    is_about(s.p95, 0.4 + 0.8 * 0.6);                /* place 3.8 of 0 to 4 */
    is_about(s.most, 1.0);
    double two[] = {3, 1}, none[1];
    is_about(summary_of(two, 2).median, 2);
    is_about(percentile((double[]){7}, 1, 0.95), 7);
    is_about(summary_of(none, 0).p95, 0);
}

static void tau_counts_pairs_in_order(void **state)
{
    (void)state;
    uint64_t pairs;
    double x[] = {1, 2, 3, 4}, same[] = {10, 20, 30, 40}, back[] = {4, 3, 2, 1}, one_off[] = {1, 3, 2, 4}, ties[] = {1, 1, 2, 3};
    is_about(kendall_tau(x, same, 4, &pairs), 1);
    assert_int_equal(pairs, 6);
    is_about(kendall_tau(x, back, 4, &pairs), -1);
    is_about(kendall_tau(x, one_off, 4, &pairs), 4.0 / 6);           /* five in order, one not */
    is_about(kendall_tau(x, ties, 4, &pairs), 1);
    assert_int_equal(pairs, 5);
    is_about(kendall_tau(x, same, 1, &pairs), 0);
    assert_int_equal(pairs, 0);
}

static void tables_have_quotes_and_gaps(void **state)
{
    (void)state;
    char path[] = "/tmp/accuracyXXXXXX";
    int file = mkstemp(path);
    const char *text = "id,notes,n\r\na,\"one, \"\"two\"\"\",3\n\nb,,\nc\n";
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    Arena *a = arena_new("test");
    Csv csv;
    assert_int_equal(csv_read(a, path, &csv), OK);
    assert_int_equal(csv.nrow, 3);
    assert_string_equal(csv_cell(&csv, &csv.row[0], "notes"), "one, \"two\"");
    assert_string_equal(csv_cell(&csv, &csv.row[0], "n"), "3");
    assert_string_equal(csv_cell(&csv, &csv.row[0], "absent"), "");
    assert_int_equal(csv.row[1].ncell, 3);
    assert_int_equal(csv.row[2].ncell, 1);
    assert_int_equal(csv.row[2].line, 5);
    unlink(path);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_lie_between_members),
        cmocka_unit_test(tau_counts_pairs_in_order),
        cmocka_unit_test(tables_have_quotes_and_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
