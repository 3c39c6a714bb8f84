/* Matrix products from several threads at once, as ranks in one process make them:
 * a provider that shares a buffer between calls gives wrong numbers now and then. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernel.h"

enum { M = 48, N = 40, K = 16, CALLS = 20000, THREADS = 3 };

typedef struct Product { bool f64; float a[M * K], b[K * N]; double a64[M * K], b64[K * N]; } Product;

static void multiply(const Product *p, void *c)
{
    const Gemm g = {.m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N, .alpha = 1};
    if (p->f64)
        gemm_f64(NULL, &g, p->a64, p->b64, c);
    else
        gemm_f32(NULL, &g, p->a, p->b, c);
}

/* Number of products that differ from the first one. */
static void *repeat(void *ctx)
{
    const Product *p = ctx;
    double first[M * N] = {0}, again[M * N] = {0};
    intptr_t wrong = 0;
    multiply(p, first);
    for (int i = 0; i < CALLS; i++) {
        multiply(p, again);
        wrong += memcmp(first, again, sizeof first) != 0;
    }
    return (void *)wrong;
}

static void together(bool f64)
{
    static Product p;
    p.f64 = f64;
    for (int i = 0; i < M * K; i++)
        p.a[i] = (float)(p.a64[i] = (i * 37 % 101) / 101.0);
    for (int i = 0; i < K * N; i++)
        p.b[i] = (float)(p.b64[i] = (i * 53 % 97) / 97.0);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, repeat, &p), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_int_equal((intptr_t)wrong, 0);
    }
}

static void f32_from_many_threads(void **state)
{
    (void)state;
    together(false);
}

static void f64_from_many_threads(void **state)
{
    (void)state;
    together(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(f32_from_many_threads), cmocka_unit_test(f64_from_many_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
