/* Matrices: the same product whatever the team, call after call. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "kernels/kernel.h"

enum { M = 64, N = 96, K = 16, ROUNDS = 3000 };

/* Providers share buffers between threads; a product that another call disturbed differs. */
static void products_do_not_disturb_each_other(void **state)
{
    (void)state;
    static double a[M * K], b[K * N], c[M * N];
    static float af[M * K], bf[K * N], cf[M * N];
    for (int i = 0; i < M * K; i++)
        af[i] = (float)(a[i] = i % 17 - 8);
    for (int i = 0; i < K * N; i++)
        bf[i] = (float)(b[i] = i % 13 - 6);
    double want[M * N] = {0};
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++)
            for (int j = 0; j < N; j++)
                want[i * N + j] += a[i * K + k] * b[k * N + j];
    Team *team = team_new(2);
    assert_non_null(team);
    Gemm g = {.m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N, .alpha = 1};
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        memset(c, 0, sizeof c);
        memset(cf, 0, sizeof cf);
        gemm_f64(team, &g, a, b, c);
        gemm_f32(team, &g, af, bf, cf);
        for (int i = 0; i < M * N; i++)
            wrong += c[i] != want[i] || (double)cf[i] != want[i];
    }
    team_free(team);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_do_not_disturb_each_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
