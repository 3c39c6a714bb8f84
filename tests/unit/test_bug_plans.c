/* Public bug reports about planners, on one device: what is planned is what was
 * asked, fits and runs, and what is refused has a way out that is one. */
#include "tests/unit/planning.h"

#include "runtime/runtime.h"

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
    Status s = try_plan(c, m);
    assert_int_equal(s == OK, batch % m == 0);
    if (s == OK) {
        assert_int_equal(c->plan->microbatches, m);
        assert_int_equal(c->p->tensor[c->p->input[0].tensor.i].axis[0].local * m, batch);
        return;
    }
    names_nearest(c, batch, m);
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
    assert_int_equal(numbers(help(c), need, 2), 1);
    device_of(c)->memory = need[0] - 1;              /* the least that would do: one byte less does not */
    for (m = 1; m <= batch; m++)
        assert_true(batch % m || !fits(c, m));
    device_of(c)->memory = need[0];
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
