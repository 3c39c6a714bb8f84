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
static const struct { int64_t k, n; } weights[] = {{128, 128}, {256, 1024}, {768, 768}, {768, 3072}, {3072, 768}, {768, 12288}, {4096, 4096}, {4096, 14336}};
static const int64_t rows[] = {4, 16, 64, 256, 1024, 4096, 16384};
enum { WEIGHTS = sizeof weights / sizeof *weights, ROWS = sizeof rows / sizeof *rows, FEW_ROWS = 64 };

/* Larger products are no faster, and take a second on slow machines; of a processor and of a device. */
static const double MOST_FLOP = 6e9, MOST_FLOP_DEVICE = 2e12;

/* More rows, and weights of so many elements, are for devices alone, and the latter for no few rows. */
static const double LARGE_WEIGHTS = 16e6;
enum { USUAL_ROWS = 4096 };

static void add(Bench *b, int64_t m, int64_t k, int64_t n)
{
    const Extent extent[] = {{"m", m}, {"k", k}, {"n", n}, {0}};
    for (int f = 0; f < FORMS; f++)
        bench_add(b, OP_contract, forms[f], extent);
}

/* A weight matrix may be most of what is free; all dtypes have the same shapes. */
static bool wanted(int64_t m, int64_t k, int64_t n, const Machine *machine)
{
    double weight = (double)k * (double)n, elements = weight + (double)m * (double)(k + n), most = machine->devices > 0 ? MOST_FLOP_DEVICE : MOST_FLOP;
    bool usual = (weight < LARGE_WEIGHTS && m <= USUAL_ROWS) || (machine->devices > 0 && m >= FEW_ROWS);
    return usual && 2.0 * (double)m * weight <= most && elements * (double)sizeof(double) <= (double)machine->memory / 4;
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

void products_add(Bench *b, Products which, const Machine *machine)
{
    for (int w = 0; w < WEIGHTS; w++)
        for (int r = 0; r < ROWS; r++)
            if (wanted(rows[r], weights[w].k, weights[w].n, machine) && among(which, rows[r], weights[w].k, weights[w].n))
                add(b, rows[r], weights[w].k, weights[w].n);
}
