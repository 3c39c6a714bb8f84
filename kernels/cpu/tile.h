#ifndef KERNELS_CPU_TILE_H
#define KERNELS_CPU_TILE_H
/* Products of matrices that lie in the cache.  A block of the result stays in
 * registers: TILE_ROWS x 2 vectors, so that every element loaded is used twice or
 * TILE_ROWS times and the additions of 2 TILE_ROWS chains hide each other's delay. */
#include <stdbool.h>

#include "kernels/cpu/vec.h"

#define TILE_INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { TILE_ROWS = 6 };

/* An operand by rows: element (i, k) of the first one is at i row + k column. */
typedef struct TileA { const float *p; int64_t row, column; } TileA;
typedef struct TileB { const float *p; int64_t row; } TileB;
typedef struct TileC { float *p; int64_t row; } TileC;

/* c[rows, vectors * LANES] = (add ? c : 0) + a b, `rows` and `vectors` constants. */
TILE_INLINE void tile_block(TileA a, TileB b, int64_t depth, TileC c, bool add, const int rows, const int vectors)
{
    Vec sum[TILE_ROWS][2];
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int j = 0; j < vectors; j++)
            sum[i][j] = add ? vec_load(c.p + i * c.row + j * LANES) : vec_all(0);
    for (int64_t k = 0; k < depth; k++) {
        Vec x[2];
        UNROLL
        for (int j = 0; j < vectors; j++)
            x[j] = vec_load(b.p + k * b.row + j * LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            Vec y = vec_all(a.p[i * a.row + k * a.column]);
            UNROLL
            for (int j = 0; j < vectors; j++)
                sum[i][j] = vec_fma(y, x[j], sum[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int j = 0; j < vectors; j++)
            vec_store(c.p + i * c.row + j * LANES, sum[i][j]);
}

TILE_INLINE void tile_strip(TileA a, TileB b, int64_t depth, TileC c, bool add, int64_t m, const int vectors)
{
    for (; m >= TILE_ROWS; m -= TILE_ROWS) {
        tile_block(a, b, depth, c, add, TILE_ROWS, vectors);
        a.p += TILE_ROWS * a.row;
        c.p += TILE_ROWS * c.row;
    }
    switch (m) {
    case 5:  tile_block(a, b, depth, c, add, 5, vectors); break;
    case 4:  tile_block(a, b, depth, c, add, 4, vectors); break;
    case 3:  tile_block(a, b, depth, c, add, 3, vectors); break;
    case 2:  tile_block(a, b, depth, c, add, 2, vectors); break;
    case 1:  tile_block(a, b, depth, c, add, 1, vectors); break;
    default: break;
    }
}

/* c[m, n] = (add ? c : 0) + a[m, depth] b[depth, n]; n is a multiple of LANES. */
static inline void tile_product(TileA a, TileB b, TileC c, int64_t m, int64_t n, int64_t depth, bool add)
{
    for (; n >= 2 * LANES; n -= 2 * LANES) {
        tile_strip(a, b, depth, c, add, m, 2);
        b.p += 2 * LANES;
        c.p += 2 * LANES;
    }
    if (n > 0)
        tile_strip(a, b, depth, c, add, m, 1);
}

/* to[k, i] = from[i, k] for i < rows and k < columns; rows of `to` are to_row apart,
 * and zero from `rows` on to `filled`. */
static inline void tile_transpose(const float *from, int64_t from_row, int64_t rows, int64_t columns, float *to, int64_t to_row, int64_t filled)
{
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        int64_t k = 0;
        for (; k + 4 <= columns; k += 4) {
            const float *p = from + i * from_row + k;
            float *q = to + k * to_row + i;
            __m128 a = _mm_loadu_ps(p), b = _mm_loadu_ps(p + from_row), c = _mm_loadu_ps(p + 2 * from_row), d = _mm_loadu_ps(p + 3 * from_row);
            _MM_TRANSPOSE4_PS(a, b, c, d);
            _mm_storeu_ps(q, a);
            _mm_storeu_ps(q + to_row, b);
            _mm_storeu_ps(q + 2 * to_row, c);
            _mm_storeu_ps(q + 3 * to_row, d);
        }
        for (; k < columns; k++)
            for (int64_t r = i; r < i + 4; r++)
                to[k * to_row + r] = from[r * from_row + k];
    }
    for (int64_t k = 0; k < columns; k++)
        for (int64_t r = i; r < filled; r++)
            to[k * to_row + r] = r < rows ? from[r * from_row + k] : 0;
}

#endif
