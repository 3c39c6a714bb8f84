/* A rank: steps on a lowered program, with the real kernels and memory. */
#include <math.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "tests/unit/lowering.h"

typedef struct World { Build b; Program *p; Rank r; Data *d; } World;
typedef struct Bytes { char *at; size_t n; } Bytes;

static World *world_new(int64_t microbatches, double drop)
{
    World *w = calloc(1, sizeof *w);
    w->b = build_new(8);
    w->b.g->precision = (Precision){DT_f64, DT_f64, DT_f64, DT_f64, DT_f64};
    Sizes z = {8, 5, 11, 8, 2, 12, 2, drop};
    gpt2(&w->b, z);
    w->p = lowered(&w->b, microbatches);
    const char *spec[1] = {"random"};
    assert_int_equal(data_open(w->b.a, w->p, spec, 1, 1, &w->d), OK);
    assert_int_equal(rank_open(&w->r, w->b.a, w->p, isa_best()), OK);
    rank_init(&w->r, 1);
    w->r.step.step = 0;
    return w;
}

static void world_free(World *w)
{
    rank_close(&w->r);
    data_close(w->d);
    build_free(&w->b);
    free(w);
}

static void step(World *w)
{
    assert_int_equal(data_fill(w->d, &w->r, w->r.step.step * 8, 8, 0, true), OK);
    rank_train(&w->r);
}

/* All weights, gradients excepted, and moments, as bytes. */
static Bytes states(World *w)
{
    Bytes out = {NULL, 0};
    for (uint32_t i = 0; i < w->p->nstate; i++) {
        const State *s = &w->p->state[i];
        const TensorId id[3] = {s->weight, s->moment[0], s->moment[1]};
        for (int k = 0; k < 3; k++) {
            size_t bytes = (size_t)tensor_bytes(&w->p->tensor[id[k].i]);
            out.at = arena_grow(w->b.a, out.at, out.n, out.n + bytes);
            memcpy(out.at + out.n, rank_at(&w->r, id[k], 0, 0), bytes);
            out.n += bytes;
        }
    }
    return out;
}

static bool same(Bytes x, Bytes y)
{
    return x.n == y.n && memcmp(x.at, y.at, x.n) == 0;
}

/* A step whose numbers are none changes no weight and no moment. */
static void D04_a_step_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    World *w = world_new(2, 0);
    step(w);
    const State *last = &w->p->state[w->p->nstate - 1];
    double *x = rank_at(&w->r, last->weight, 0, 0), kept = x[0];
    x[0] = NAN;
    Bytes before = states(w);
    step(w);
    assert_true(!isfinite(rank_scalar(&w->r, w->p->loss)));
    assert_true(!isfinite(rank_scalar(&w->r, w->p->norm)));
    assert_true(same(before, states(w)));
    x[0] = kept;
    step(w);
    assert_true(isfinite(rank_scalar(&w->r, w->p->loss)));
    assert_false(same(before, states(w)));
    world_free(w);
}

/* Same seed and data, same bits, dropout included; micro-batches change rounding only. */
static void steps_repeat(void **state)
{
    (void)state;
    World *first = world_new(1, 0.3);
    for (int i = 0; i < 4; i++)
        step(first);
    double want = rank_scalar(&first->r, first->p->loss);
    Bytes bytes = states(first);
    for (int64_t micro = 1; micro <= 8; micro *= 2) {
        World *w = world_new(micro, 0.3);
        for (int i = 0; i < 4; i++)
            step(w);
        if (micro == 1)
            assert_true(same(bytes, states(w)));
        assert_true(fabs(rank_scalar(&w->r, w->p->loss) - want) < 1e-12 * want);
        world_free(w);
    }
    world_free(first);
}

/* ---- start values of parts ---- */

enum { ROWS = 5, COLUMNS = 6, PART_ROWS = 2, PART_COLUMNS = 3 };

/* A weight [5, 6], of which a rank holds [2, 3] from `row` and `column`: the sixth row is padding. */
static Program *part_program(Arena *a, DType dtype, int threads, int64_t row, int64_t column)
{
    Program *p = program_new(a);
    Tensor t = {.path = "w", .dtype = dtype, .rank = 2, .role = ROLE_WEIGHT};
    t.axis[0] = (AxisPlace){.local = PART_ROWS, .global = ROWS, .origin = row, .pad = 1};
    t.axis[1] = (AxisPlace){.local = PART_COLUMNS, .global = COLUMNS, .origin = column};
    t.buffer = program_add_buffer(p, (Buffer){.name = "w", .cls = CLASS_weights, .bytes = BUFFER_ALIGN, .slots = 1, .first = -1, .last = -1});
    State s = {.path = "w", .weight = program_add_tensor(p, t), .master = NO_TENSOR, .gradient = NO_TENSOR,
               .moment = {NO_TENSOR, NO_TENSOR}, .init = {.kind = INIT_normal, .a = 1}};
    PUSH(a, p->state, p->nstate, s);
    p->precision.compute = dtype;
    p->map_bytes[PART_PRIVATE] = BUFFER_ALIGN;
    p->threads = threads;
    return p;
}

static void part_starts_as_the_whole(DType dtype, int threads, int64_t row, int64_t column)
{
    Arena *a = arena_new("part");
    Program *p = part_program(a, dtype, threads, row, column);
    const State *s = p->state;
    Rank r;
    double whole[ROWS * COLUMNS];
    float whole32[ROWS * COLUMNS];
    init_fill(&s->init, s->path, 9, 0, ROWS * COLUMNS, (Reals){DT_f64, whole});
    init_fill(&s->init, s->path, 9, 0, ROWS * COLUMNS, (Reals){DT_f32, whole32});
    assert_int_equal(rank_open(&r, a, p, isa_best()), OK);
    memset(rank_at(&r, s->weight, 0, 0), 0x7f, (size_t)tensor_bytes(&p->tensor[0]));
    rank_init(&r, 9);
    for (int64_t i = 0; i < PART_ROWS; i++)
        for (int64_t j = 0; j < PART_COLUMNS; j++) {
            int64_t at = (row + i) * COLUMNS + column + j, here = i * PART_COLUMNS + j;
            const void *data = rank_at(&r, s->weight, 0, 0);
            double got = dtype == DT_f64 ? ((const double *)data)[here] : (double)((const float *)data)[here];
            double want = row + i >= ROWS ? 0 : dtype == DT_f64 ? whole[at] : (double)whole32[at];
            assert_true(got == want);
        }
    rank_close(&r);
    arena_free(a);
}

static void parts_start_as_the_whole(void **state)
{
    (void)state;
    for (int64_t row = 0; row < ROWS; row += PART_ROWS)
        for (int64_t column = 0; column < COLUMNS; column += PART_COLUMNS) {
            part_starts_as_the_whole(DT_f64, 1, row, column);
            part_starts_as_the_whole(DT_f32, 1, row, column);
            part_starts_as_the_whole(DT_f32, 3, row, column);
        }
}

/* Linear warm-up, then cosine or linear decay, ending at min_lr (BUG-CASES L07). */
static void L07_learning_rates(void **state)
{
    (void)state;
    Optimizer o = {.kind = OPTIMIZER_ADAMW, .lr = 1e-3, .min_lr = 1e-4, .warmup = 4, .steps = 20, .decay = DECAY_COSINE};
    static const struct { int step; double lr; } want[] = {{1, 2.5e-4}, {4, 1e-3}, {8, 8.68198e-4}, {9, 8.00007e-4}, {12, 5.5e-4}, {20, 1e-4}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_true(fabs(learning_rate(&o, want[i].step - 1) / want[i].lr - 1) < 1e-6);
    assert_true(learning_rate(&o, 30) == 1e-4);
    o.decay = DECAY_LINEAR;
    assert_true(fabs(learning_rate(&o, 11) - 5.5e-4) < 1e-15);
    o.decay = DECAY_NONE;
    assert_true(learning_rate(&o, 100) == 1e-3);
}

static void settings(void **state)
{
    (void)state;
    Optimizer o = {.kind = OPTIMIZER_SGD};
    assert_int_equal(settings_apply(&o, (const char *const[]){"lr=0.5", "momentum=0.25", "steps=7", "decay=linear"}, 4, true), OK);
    assert_true(o.lr == 0.5 && o.momentum == 0.25 && o.steps == 7 && o.decay == DECAY_LINEAR);
    static const char *const bad[] = {"lr", "lr=", "=1", "lr=x", "lr=-1", "lr=nan", "lr=1e300", "lr=0x1p-3", "lr=inf", "lr= 1", "lr=1e-400", "steps=2.5", "decay=cubic", "beta1=0.9", "rate=1", "momentum=1"};
    FILE *sink = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(sink), STDERR_FILENO);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(settings_apply(&o, &bad[i], 1, false), ERR_USAGE);
    dup2(saved, STDERR_FILENO);
    close(saved);
    fclose(sink);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(D04_a_step_that_is_not_finite_changes_nothing),
        cmocka_unit_test(steps_repeat),
        cmocka_unit_test(parts_start_as_the_whole),
        cmocka_unit_test(L07_learning_rates),
        cmocka_unit_test(settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
