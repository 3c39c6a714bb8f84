/* The byte map against an array with a holder per byte. */
#include <stdarg.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ir/bytemap.h"

enum { BYTES = 60, RANGES = 40, STEPS = 400, ROUNDS = 50 };

static uint32_t random_below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;          /* Numerical Recipes, 7.1 */
    return (*seed >> 8) % n;
}

static ByteRange random_range(uint32_t *seed)
{
    int64_t a = random_below(seed, BYTES + 1), b = random_below(seed, BYTES + 1);
    return a < b ? (ByteRange){a, b} : (ByteRange){b, a};
}

/* Whether `found` is what bytemap_other() may answer. */
static bool right(const uint32_t *holder, ByteRange r, uint32_t who, uint32_t found)
{
    bool seen = false, all = true;
    for (int64_t i = r.from; i < r.to; i++) {
        seen |= holder[i] == found;
        all &= holder[i] == who;
    }
    return found == who ? all : seen;
}

static void one_round(uint32_t *seed)
{
    Arena *a = arena_new("scratch");
    ByteRange range[RANGES];
    uint32_t holder[BYTES] = {0};
    for (int i = 0; i < RANGES; i++)
        range[i] = random_range(seed);
    ByteMap m = bytemap_new(a, range, RANGES);
    for (int step = 0; step < STEPS; step++) {
        uint32_t r = random_below(seed, RANGES), who = random_below(seed, 4);
        assert_true(right(holder, range[r], who, bytemap_other(&m, r, who)));
        if (step % 2)
            continue;
        bytemap_take(&m, r, who);
        for (int64_t i = range[r].from; i < range[r].to; i++)
            holder[i] = who;
    }
    arena_free(a);
}

static void answers_like_bytes(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int i = 0; i < ROUNDS; i++)
        one_round(&seed);
}

static void a_map_without_ranges(void **state)
{
    (void)state;
    Arena *a = arena_new("scratch");
    ByteRange empty = {8, 8};
    (void)bytemap_new(a, NULL, 0);
    ByteMap m = bytemap_new(a, &empty, 1);
    bytemap_take(&m, 0, 3);
    assert_int_equal(bytemap_other(&m, 0, 5), 5);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_like_bytes),
        cmocka_unit_test(a_map_without_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
