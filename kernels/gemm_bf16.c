/* Products of bf16 matrices, summed in f32 and rounded once to the type of C.
 *
 * oneDNN multiplies them where the CPU has AVX-512 (with or without the instructions
 * for bf16).  Elsewhere it refuses, and blocks of the operands are converted to f32 and
 * multiplied as such: correct, and slower than f32 by the conversions. */
#include "kernels/gemm.h"

#include <pthread.h>

/* ---- oneDNN ---- */

static dnnl_engine_t engine;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;

/* One for the process, as the library's caches are. */
static void make_engine(void)
{
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
}

/* Without memory there is no other form to fall back on: it would round otherwise. */
static bool good(dnnl_status_t s, const Gemm *g)
{
    if (s == dnnl_out_of_memory)
        gemm_made(s, g);
    return s == dnnl_success;
}

static bool matrix_desc(dnnl_memory_desc_t *d, int64_t rows, int64_t columns, int64_t ld, bool transposed, dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, columns}, strides = {transposed ? 1 : ld, transposed ? ld : 1};
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides) == dnnl_success;
}

/* The product as a primitive, from the library's cache after the first time; NULL when it has none. */
static dnnl_primitive_t make_product(const Gemm *g, dnnl_memory_desc_t desc[3], DType c)
{
    dnnl_matmul_desc_t product;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t after = NULL;
    dnnl_primitive_desc_t chosen = NULL;
    dnnl_primitive_t made = NULL;
    bool ok = matrix_desc(&desc[0], g->m, g->k, g->lda, g->ta, dnnl_bf16) && matrix_desc(&desc[1], g->k, g->n, g->ldb, g->tb, dnnl_bf16) &&
              matrix_desc(&desc[2], g->m, g->n, g->ldc, false, c == DT_bf16 ? dnnl_bf16 : dnnl_f32);
    ok = ok && good(dnnl_matmul_desc_init(&product, &desc[0], &desc[1], NULL, &desc[2]), g);
    ok = ok && good(dnnl_primitive_attr_create(&attr), g) && good(dnnl_post_ops_create(&after), g);
    if (ok && g->beta != 0)
        ok = good(dnnl_post_ops_append_sum(after, (float)g->beta), g) && good(dnnl_primitive_attr_set_post_ops(attr, after), g);
    if (ok && good(dnnl_primitive_desc_create(&chosen, &product, attr, engine, NULL), g) &&
        !good(dnnl_primitive_create(&made, chosen), g))
        made = NULL;
    if (chosen)
        dnnl_primitive_desc_destroy(chosen);
    if (after)
        dnnl_post_ops_destroy(after);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return made;
}

static bool run_product(const Gemm *g, dnnl_primitive_t product, dnnl_memory_desc_t desc[3], const void *a, const void *b, void *c)
{
    static const int role[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    void *data[3] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c};
    dnnl_exec_arg_t arg[3] = {{0}};
    dnnl_stream_t stream = NULL;
    bool ok = good(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), g);
    for (int i = 0; i < 3 && ok; i++) {
        arg[i].arg = role[i];
        ok = good(dnnl_memory_create(&arg[i].memory, &desc[i], engine, data[i]), g);
    }
    ok = ok && good(dnnl_primitive_execute(product, stream, 3, arg), g) && good(dnnl_stream_wait(stream), g);
    for (int i = 0; i < 3; i++)
        if (arg[i].memory)
            dnnl_memory_destroy(arg[i].memory);
    if (stream)
        dnnl_stream_destroy(stream);
    return ok;
}

/* ---- by blocks ---- */

enum { ROWS = 64, COLUMNS = 256, DEPTH = 512 };      /* of a block */

/* The blocks of a thread, as f32. */
typedef struct Blocks { float a[ROWS * DEPTH], b[DEPTH * COLUMNS], c[ROWS * COLUMNS]; } Blocks;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows and columns of a stored matrix, element (i, j) at i row + j column. */
static void take_block(const Bf16 *from, int64_t row, int64_t column, int64_t m, int64_t n, float *to, int64_t ld)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            to[i * ld + j] = bf16_value(from[i * row + j * column]);
}

static void multiply_block(const Gemm *g, const Bf16 *a, const Bf16 *b, Reals c, Blocks *x, Gemm block, int64_t i, int64_t j)
{
    for (int64_t r = 0; r < block.m * block.n; r++)
        x->c[r] = g->beta == 0 ? 0 : (float)(g->beta * get(c, (i + r / block.n) * g->ldc + j + r % block.n));
    for (int64_t k = 0; k < g->k; k += DEPTH) {
        int64_t deep = least(DEPTH, g->k - k);
        take_block(a + (g->ta ? i + k * g->lda : i * g->lda + k), g->ta ? 1 : g->lda, g->ta ? g->lda : 1, block.m, deep, x->a, DEPTH);
        take_block(b + (g->tb ? k + j * g->ldb : k * g->ldb + j), g->tb ? 1 : g->ldb, g->tb ? g->ldb : 1, deep, block.n, x->b, COLUMNS);
        dnnl_status_t s = dnnl_sgemm('N', 'N', block.m, block.n, deep, 1, x->a, DEPTH, x->b, COLUMNS, 1, x->c, block.n);
        gemm_made(s, g);
    }
    for (int64_t r = 0; r < block.m * block.n; r++)
        put(c, (i + r / block.n) * g->ldc + j + r % block.n, (double)x->c[r]);
}

void multiply_bf16_blocks(const Gemm *g, const Bf16 *a, const Bf16 *b, Reals c)
{
    static _Thread_local Blocks blocks;
    work_alone();
    for (int64_t j = 0; j < g->n; j += COLUMNS)
        for (int64_t i = 0; i < g->m; i += ROWS)
            multiply_block(g, a, b, c, &blocks, (Gemm){.m = least(ROWS, g->m - i), .n = least(COLUMNS, g->n - j)}, i, j);
}

/* ---- either ---- */

/* A product whose sums fit into the scratch it may take. */
static void multiply_some(const Gemm *g, const Bf16 *a, const Bf16 *b, Reals c)
{
    dnnl_memory_desc_t desc[3];
    dnnl_primitive_t product = engine ? make_product(g, desc, c.dtype) : NULL;
    bool done = product && run_product(g, product, desc, a, b, c.at);
    if (product)
        dnnl_primitive_destroy(product);
    if (!done)
        multiply_bf16_blocks(g, a, b, c);
}

/* The library keeps the f32 sums of a C in bf16 on the heap: at most this much of it. */
enum { SUM_ROWS = 512, SUM_COLUMNS = 1024 };

void multiply_bf16(const Gemm *g, const Bf16 *a, const Bf16 *b, Reals c)
{
    bool whole = c.dtype != DT_bf16;
    int64_t high = whole ? g->m : SUM_ROWS, wide = whole ? g->n : SUM_COLUMNS;
    pthread_once(&engine_once, make_engine);
    work_alone();
    for (int64_t j = 0; j < g->n; j += wide)
        for (int64_t i = 0; i < g->m; i += high) {
            Gemm part = *g;
            part.m = least(high, g->m - i);
            part.n = least(wide, g->n - j);
            multiply_some(&part, a + (g->ta ? i : i * g->lda), b + (g->tb ? j * g->ldb : j), reals_from(c, i * g->ldc + j));
        }
}
