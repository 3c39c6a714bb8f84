/* Collectives and messages of ranks on one machine: every one of them, bit for bit
 * against a plain loop over the members, for all types, sizes, group shapes, in place
 * and not, by threads and by processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/comm_cases.h"

/* ---- tests ---- */

/* Parts of any size, none too: in place, apart from each other, and zero. */
static void parts_differ(void **state)
{
    (void)state;
    const int64_t bytes[] = {0, (3 << 20) + 1, 100, 4096, 2 << 20};
    enum { N = sizeof bytes / sizeof *bytes };
    Arena *a = arena_new("test");
    WorldFiles f;
    World *w;
    assert_int_equal(world_create(&f, N, bytes, 1), OK);
    assert_int_equal(world_map(a, &f, 0, &w), OK);
    for (int i = 0; i < N; i++) {
        char *part = world_part(w, i);
        assert_int_equal((uintptr_t)part % 4096, 0);
        for (int64_t k = 0; k < bytes[i]; k++)
            assert_int_equal(part[k], 0);
        memset(part, i + 1, (size_t)bytes[i]);
    }
    for (int i = 0; i < N; i++)
        for (int64_t k = 0; k < bytes[i]; k++)
            assert_int_equal(((char *)world_part(w, i))[k], i + 1);
    world_unmap(w);
    world_discard(&f);
    arena_free(a);
}

static Ranks ranks(int n, RankFn fn)
{
    return (Ranks){.n = n, .part = COMM_PART, .ngroup = COMM_GROUPS, .fn = fn};
}

static void threads_do_everything(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n++) {
        Ranks r = ranks(n, comm_everything);
        assert_int_equal(run_threads(&r), 0);
    }
}

static void teams_do_everything(void **state)
{
    (void)state;
    Ranks r = ranks(2, comm_everything);
    r.team = 2;
    assert_int_equal(run_threads(&r), 0);
}

static void teams_share_huge_ones(void **state)
{
    (void)state;
    Ranks r = ranks(2, comm_huge_ones);
    r.part = COMM_HUGE_PART;
    r.team = 2;
    assert_int_equal(run_threads(&r), 0);
}

static void processes_do_everything(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        Ranks r = ranks(n, comm_everything);
        assert_int_equal(run_processes(&r, NULL), 0);
    }
}

static void threads_at_random(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n++) {
        Ranks r = ranks(n, comm_at_random);
        assert_int_equal(run_threads(&r), 0);
    }
}

static void processes_at_random(void **state)
{
    (void)state;
    Ranks r = ranks(4, comm_at_random);
    assert_int_equal(run_processes(&r, NULL), 0);
}

static void letters_wait_for_room(void **state)
{
    (void)state;
    Ranks r = ranks(2, comm_many_letters);
    assert_int_equal(run_threads(&r), 0);
    assert_int_equal(run_processes(&r, NULL), 0);
}

static void sends_need_no_receiver(void **state)
{
    (void)state;
    Ranks r = ranks(5, comm_all_send_first);
    assert_int_equal(run_threads(&r), 0);
}

static void parts_cover_any_count(void **state)
{
    (void)state;
    for (int n = 1; n <= 7; n++)
        for (int64_t count = 0; count < 40; count++) {
            int64_t next = 0;
            for (int i = 0; i < n; i++) {
                int64_t first, end;
                comm_part(count, i, n, &first, &end);
                assert_int_equal(first, next);
                assert_true(end - first <= (count + n - 1) / n);
                next = end;
            }
            assert_int_equal(next, count);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_any_count),            cmocka_unit_test(parts_differ),
        cmocka_unit_test(threads_do_everything),            cmocka_unit_test(teams_do_everything),
        cmocka_unit_test(teams_share_huge_ones),            cmocka_unit_test(processes_do_everything),
        cmocka_unit_test(threads_at_random),                cmocka_unit_test(processes_at_random),
        cmocka_unit_test(letters_wait_for_room),            cmocka_unit_test(sends_need_no_receiver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
