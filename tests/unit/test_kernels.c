/* What all kernels stand on: the team, matrices, random numbers, start values. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "kernels/kernel.h"

/* ---- the team ---- */

typedef struct Rounds { int64_t sum[8], visits[8]; } Rounds;

static void visit(void *ctx, int worker, int nworker)
{
    Rounds *r = ctx;
    int64_t first, end;
    team_part(1000, 7, worker, nworker, &first, &end);
    for (int64_t i = first; i < end; i++)
        r->sum[worker] += i;
    r->visits[worker]++;
}

static void every_worker_runs_once_a_round(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        Team *t = team_new(n);
        assert_non_null(t);
        assert_int_equal(team_size(t), n);
        for (int round = 1; round <= 200; round++) {
            Rounds r = {{0}, {0}};
            team_run(t, visit, &r);
            int64_t sum = 0;
            for (int w = 0; w < 8; w++) {
                assert_int_equal(r.visits[w], w < n);
                sum += r.sum[w];
            }
            assert_int_equal(sum, 1000 * 999 / 2);
        }
        team_free(t);
    }
    team_free(NULL);
}

static void parts_cover_everything_in_grains(void **state)
{
    (void)state;
    static const int64_t length[] = {0, 1, 7, 8, 9, 63, 64, 1000};
    for (size_t l = 0; l < sizeof length / sizeof *length; l++)
        for (int n = 1; n <= 9; n++) {
            int64_t at = 0;
            for (int w = 0; w < n; w++) {
                int64_t first, end;
                team_part(length[l], 8, w, n, &first, &end);
                assert_int_equal(first, at);
                assert_true(first % 8 == 0 || first == length[l]);
                at = end;
            }
            assert_int_equal(at, length[l]);
        }
}

/* ---- matrices ---- */

static double pattern(int64_t i)
{
    return philox4(11, 0, (uint64_t)i, 0).word[0] * 0x1p-31 - 1;
}

typedef struct Matrices { float *a, *b, *c; double *da, *db, *dc, *want; int64_t na, nb, nc; } Matrices;

static Matrices matrices_new(const Gemm *g)
{
    Matrices m = {.na = (g->ta ? g->k : g->m) * g->lda + 1, .nb = (g->tb ? g->n : g->k) * g->ldb + 1, .nc = g->m * g->ldc + 1};
    m.a = malloc((size_t)m.na * sizeof *m.a);
    m.b = malloc((size_t)m.nb * sizeof *m.b);
    m.c = malloc((size_t)m.nc * sizeof *m.c);
    m.da = malloc((size_t)m.na * sizeof *m.da);
    m.db = malloc((size_t)m.nb * sizeof *m.db);
    m.dc = malloc((size_t)m.nc * sizeof *m.dc);
    m.want = malloc((size_t)m.nc * sizeof *m.want);
    for (int64_t i = 0; i < m.na; i++)
        m.a[i] = (float)(m.da[i] = (double)(float)pattern(i));
    for (int64_t i = 0; i < m.nb; i++)
        m.b[i] = (float)(m.db[i] = (double)(float)pattern(i + 7777));
    /* Without beta, what was there must not matter. */
    for (int64_t i = 0; i < m.nc; i++)
        m.c[i] = (float)(m.want[i] = m.dc[i] = g->beta == 0 ? (double)NAN : (double)(float)pattern(i + 99));
    return m;
}

static void matrices_free(Matrices *m)
{
    void *all[] = {m->a, m->b, m->c, m->da, m->db, m->dc, m->want};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void multiply_by_loops(const Gemm *g, Matrices *m)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double sum = 0, *c = &m->want[i * g->ldc + j];
            for (int64_t k = 0; k < g->k; k++)
                sum += m->da[g->ta ? k * g->lda + i : i * g->lda + k] * m->db[g->tb ? j * g->ldb + k : k * g->ldb + j];
            *c = g->alpha * sum + (g->beta == 0 ? 0 : g->beta * *c);
        }
}

static bool near(double got, double want, double tolerance)
{
    return fabs(got - want) <= tolerance || (isnan(got) && isnan(want));
}

/* Also what lies between the rows of C stays as it was. */
static void check_gemm(Team *team, const Gemm *g)
{
    Matrices m = matrices_new(g);
    multiply_by_loops(g, &m);
    gemm_f32(team, g, m.a, m.b, m.c);
    gemm_f64(team, g, m.da, m.db, m.dc);
    for (int64_t i = 0; i < m.nc; i++) {
        if (!near((double)m.c[i], m.want[i], 1e-4) || !near(m.dc[i], m.want[i], 1e-12))
            fail_msg("m %d n %d k %d ta %d tb %d alpha %g beta %g, team of %d: element %d is %g, %g, not %g", (int)g->m, (int)g->n,
                     (int)g->k, g->ta, g->tb, g->alpha, g->beta, team ? team_size(team) : 0, (int)i, (double)m.c[i], m.dc[i], m.want[i]);
    }
    matrices_free(&m);
}

static void check_gemm_all_ways(Team *team, int64_t m, int64_t n, int64_t k)
{
    static const double factors[][2] = {{1, 0}, {1, 1}, {-0.5, 0.25}};
    for (int way = 0; way < 4; way++)
        for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
            Gemm g = {.ta = way & 1, .tb = way & 2, .m = m, .n = n, .k = k, .alpha = factors[f][0], .beta = factors[f][1]};
            g.lda = (g.ta ? m : k) + 3;
            g.ldb = (g.tb ? k : n) + (way ? 1 : 0);
            g.ldc = n + 5;
            check_gemm(team, &g);
        }
}

static void gemm_equals_loops(void **state)
{
    (void)state;
    static const int64_t shape[][3] = {{1, 1, 1}, {1, 97, 33}, {97, 1, 33}, {3, 5, 7}, {64, 64, 64}, {17, 131, 29},
                                       {131, 17, 50}, {49, 97, 1}, {0, 5, 3}, {5, 0, 3}, {5, 3, 0}, {0, 0, 0}};
    for (int n = 0; n <= 4; n++) {
        Team *team = n ? team_new(n) : NULL;
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
            check_gemm_all_ways(team, shape[s][0], shape[s][1], shape[s][2]);
        team_free(team);
    }
}

static void gemm_gives_the_same_bits(void **state)
{
    (void)state;
    Team *team = team_new(2);
    Gemm g = {.m = 130, .n = 200, .k = 300, .lda = 300, .ldb = 200, .ldc = 200, .alpha = 1};
    Matrices m = matrices_new(&g), again = matrices_new(&g);
    for (int round = 0; round < 3; round++) {
        gemm_f32(team, &g, m.a, m.b, m.c);
        gemm_f32(team, &g, m.a, m.b, again.c);
        assert_memory_equal(m.c, again.c, (size_t)(g.m * g.n) * sizeof *m.c);
        gemm_f64(team, &g, m.da, m.db, m.dc);
        gemm_f64(team, &g, m.da, m.db, again.dc);
        assert_memory_equal(m.dc, again.dc, (size_t)(g.m * g.n) * sizeof *m.dc);
    }
    matrices_free(&m);
    matrices_free(&again);
    team_free(team);
}

static void providers_have_versions(void **state)
{
    (void)state;
    const char *s = gemm_providers();
    assert_non_null(strstr(s, "oneDNN "));
    assert_non_null(strstr(s, " (f32, bf16), OpenBLAS "));
    assert_null(strchr(s, '?'));
}

/* ---- random numbers ---- */

/* The authors' known answers (Random123, kat_vectors), as seed, key, block, step. */
static void philox_known_answers(void **state)
{
    (void)state;
    static const struct { uint64_t seed; uint32_t key; uint64_t block, step; Philox want; } known[] = {
        {0, 0, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {UINT64_MAX, UINT32_MAX, UINT64_MAX, UINT32_MAX, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {0x03707344a4093822, 0x299f31d0, 0x85a308d3243f6a88, 0x13198a2e, {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        Philox got = philox4(known[i].seed, known[i].key, known[i].block, known[i].step);
        assert_memory_equal(&got, &known[i].want, sizeof got);
    }
}

static void dropout_keeps_at_the_threshold(void **state)
{
    (void)state;
    assert_int_equal(dropout_threshold(0), 0);
    assert_int_equal(dropout_threshold(0.5), 0x80000000u);
    assert_int_equal(dropout_threshold(0.1), 429496729);
    assert_true(dropout_threshold(1) == (uint64_t)1 << 32);
}

/* ---- start values ---- */

enum { MANY = 20000 };

/* The uniform number that element i is made of. */
static double uniform(uint64_t seed, const char *path, int64_t i)
{
    return (philox4(seed, fnv1a(path), (uint64_t)i / 4, 0).word[i % 4] + 0.5) * 0x1p-32;
}

static double below(double z)
{
    return 0.5 * erfc(-z * M_SQRT1_2);
}

/* P(Z < z) of a normal element is its uniform number again. */
static void normal_elements_are_quantiles(void **state)
{
    (void)state;
    static double x[MANY];
    Init normal = {.kind = INIT_normal, .a = 0.02}, cut = {.kind = INIT_trunc_normal, .a = 0.5};
    init_fill(&normal, "w", 5, 0, MANY, (Reals){DT_f64, x});
    for (int64_t i = 0; i < MANY; i++)
        assert_true(fabs(below(x[i] / 0.02) - uniform(5, "w", i)) < 1e-14);
    init_fill(&cut, "w", 5, 0, MANY, (Reals){DT_f64, x});
    for (int64_t i = 0; i < MANY; i++) {
        assert_true(fabs(x[i]) <= 2 * 0.5);
        assert_true(fabs((below(x[i] / 0.5) - below(-2)) / (below(2) - below(-2)) - uniform(5, "w", i)) < 1e-14);
    }
}

/* Both tails of the quantile function, from published values. */
static void far_quantiles(void **state)
{
    (void)state;
    int64_t least = 0, most = 0;
    static double x[MANY];
    Init normal = {.kind = INIT_normal, .a = 1};
    init_fill(&normal, "tails", 1, 0, MANY, (Reals){DT_f64, x});
    for (int64_t i = 0; i < MANY; i++) {
        least = x[i] < x[least] ? i : least;
        most = x[i] > x[most] ? i : most;
    }
    assert_true(x[least] < -3.5 && x[most] > 3.5);
    assert_true(fabs(below(x[least]) / uniform(1, "tails", least) - 1) < 1e-12);
    assert_true(fabs(below(-x[most]) / (1 - uniform(1, "tails", most)) - 1) < 1e-10);
}

static void check_width(InitKind kind, double width)
{
    static double x[MANY];
    Init init = {.kind = kind, .fan_in = 30, .fan_out = 70};
    double largest = 0, square = 0;
    init_fill(&init, "w", 9, 0, MANY, (Reals){DT_f64, x});
    for (int64_t i = 0; i < MANY; i++) {
        assert_true(fabs(x[i] - (2 * uniform(9, "w", i) - 1) * width) < 1e-15);
        largest = fmax(largest, fabs(x[i]));
        square += x[i] * x[i] / MANY;
    }
    assert_true(largest < width && largest > 0.99 * width);
    assert_true(fabs(square / (width * width / 3) - 1) < 0.03);
}

static void uniform_widths(void **state)
{
    (void)state;
    check_width(INIT_xavier, sqrt(6.0 / 100));
    check_width(INIT_kaiming, sqrt(6.0 / 30));
    check_width(INIT_fan_in, sqrt(1.0 / 30));
    double x[2] = {0, 0};
    init_fill(&(Init){.kind = INIT_ones}, "w", 1, 0, 2, (Reals){DT_f64, x});
    assert_true(x[0] == 1 && x[1] == 1);
    init_fill(&(Init){.kind = INIT_zeros}, "w", 1, 0, 2, (Reals){DT_f64, x});
    assert_true(x[0] == 0 && x[1] == 0);
    init_fill(&(Init){.kind = INIT_uniform, .a = 3, .b = 5}, "w", 1, 6, 1, (Reals){DT_f64, x});
    assert_true(x[0] == 3 + 2 * uniform(1, "w", 6));
}

/* A weight filled in pieces, as by several ranks, is the same weight; f32 is f64 rounded. */
static void pieces_make_the_whole(void **state)
{
    (void)state;
    static double whole[1000], part[1000];
    static float single[1000];
    Init init = {.kind = INIT_normal, .a = 0.02};
    init_fill(&init, "h[3].attn.q.w", 0xfedcba9876543210, 0, 1000, (Reals){DT_f64, whole});
    init_fill(&init, "h[3].attn.q.w", 0xfedcba9876543210, 0, 1000, (Reals){DT_f32, single});
    for (int64_t at = 0, n = 1; at < 1000; at += n, n = 1000 - at < n + 2 ? 1000 - at : n + 2)
        init_fill(&init, "h[3].attn.q.w", 0xfedcba9876543210, at, n, (Reals){DT_f64, part + at});
    assert_memory_equal(whole, part, sizeof whole);
    for (int i = 0; i < 1000; i++)
        assert_true(single[i] == (float)whole[i]);
}

/* ---- kernels by name ---- */

static void kernels_are_found(void **state)
{
    (void)state;
    assert_true(isa_best() >= ISA_REF && isa_best() <= ISA_V4);
    assert_string_equal(isa_name(ISA_V3), "x86-64-v3");
    assert_true(kernel_find(OP_linear, DT_f32, ISA_REF) == kernel_ref(OP_linear));
    assert_true(kernel_find(OP_linear, DT_f32, ISA_V3) != kernel_ref(OP_linear));
    assert_true(kernel_find(OP_linear, DT_f32, ISA_V3) != kernel_find(OP_linear, DT_f64, ISA_V3));
    assert_true(kernel_find(OP_conv2d, DT_f64, ISA_V3) == kernel_ref(OP_conv2d));
    assert_null(kernel_find(OP_merge, DT_f32, ISA_V3));
    for (DType t = 0; t < DTYPES; t++)
        assert_true(!kernel_find(OP_contract, t, ISA_V3) == (t != DT_f64 && t != DT_f32 && t != DT_bf16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_runs_once_a_round),
        cmocka_unit_test(parts_cover_everything_in_grains),
        cmocka_unit_test(gemm_equals_loops),
        cmocka_unit_test(gemm_gives_the_same_bits),
        cmocka_unit_test(providers_have_versions),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(dropout_keeps_at_the_threshold),
        cmocka_unit_test(normal_elements_are_quantiles),
        cmocka_unit_test(far_quantiles),
        cmocka_unit_test(uniform_widths),
        cmocka_unit_test(pieces_make_the_whole),
        cmocka_unit_test(kernels_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
