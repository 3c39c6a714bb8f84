/* Products: matmuls of the shapes that training makes, as the op `contract`, whose kernel
 * is what a run calls. */
#include "runtime/measure/device.h"

/* A layer's forward product, and the gradients of its input and of its weights. */
static const char *const forms[] = {
    "x[m, k], w[k, n] -> [m, n]",
    "dy[m, n], w[k, n] -> [m, k]",
    "x[m, k], dy[m, n] -> [k, n]",
};
enum { FORMS = sizeof forms / sizeof *forms };

/* Weights of small and of large models, and rows: tokens of a micro-batch. */
static const struct { int64_t k, n; } weights[] = {{128, 128}, {256, 1024}, {768, 768}, {768, 3072}, {3072, 768}, {768, 12288}};
static const int64_t rows[] = {4, 16, 64, 256, 1024, 4096};
enum { WEIGHTS = sizeof weights / sizeof *weights, ROWS = sizeof rows / sizeof *rows, FEW_ROWS = 64 };

/* Larger products are no faster, and take a second on slow machines. */
static const double MOST_FLOP = 6e9;

static void add(Bench *b, int64_t m, int64_t k, int64_t n)
{
    const Extent extent[] = {{"m", m}, {"k", k}, {"n", n}, {0}};
    for (int f = 0; f < FORMS; f++)
        bench_add(b, OP_contract, forms[f], extent);
}

/* A weight matrix may be most of what is free; all dtypes have the same shapes. */
static bool wanted(int64_t m, int64_t k, int64_t n, double memory)
{
    double elements = (double)k * (double)n + (double)m * (double)(k + n);
    return 2.0 * (double)m * (double)k * (double)n <= MOST_FLOP && elements * (double)sizeof(double) <= memory / 4;
}

/* Square enough to be fast, and large enough. */
static bool is_best(int64_t m, int64_t k, int64_t n)
{
    return m >= 256 && m <= 1024 && k == n && n >= 512;
}

static bool among(Products which, int64_t m, int64_t k, int64_t n)
{
    return which == PRODUCTS_ALL || (which == PRODUCTS_REUSING ? m >= FEW_ROWS : is_best(m, k, n));
}

void products_add(Bench *b, Products which, double memory)
{
    for (int w = 0; w < WEIGHTS; w++)
        for (int r = 0; r < ROWS; r++)
            if (wanted(rows[r], weights[w].k, weights[w].n, memory) && among(which, rows[r], weights[w].k, weights[w].n))
                add(b, rows[r], weights[w].k, weights[w].n);
}
