/* flash.cuh -- attention of bf16 by tensor cores: tiles, fragments and products; private to kernels/cuda.
 *
 * The algorithm of Dao et al. 2022 and 2023 with products of 16 x 8 x 16 (ptx.h).  A block has 64 queries (or keys, for dk and
 * dv), a warp sixteen of them: its *own* rows, kept in registers where those suffice.  The *other* side comes by in tiles of
 * shared memory, of which the next is copied while the last is multiplied.  A head is as wide as the next of the widths in the
 * tables of launchers; what is missing is zeros.  Sums are f32; probabilities are rounded to bf16 before the second product. */
#ifndef KERNELS_CUDA_FLASH_CUH
#define KERNELS_CUDA_FLASH_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/ptx.h"

typedef __nv_bfloat16 Element;

constexpr int OWN = 16, ROWS = WARPS * OWN;

/* Columns of a result that a block sums: more do not fit in registers, so a wide head takes two blocks, which both
 * multiply queries and keys. */
template <int W> constexpr int COLUMNS = W <= 128 ? W : 128;

/* Where the operands of a leading index stand; not in registers, which are short. */
#define LEADING(at, index)                      \
    __shared__ At<SEES> at;                     \
    if (threadIdx.x == 0)                       \
        at = loop_at(a.lead, index);            \
    __syncthreads();

/* Attention and its gradient for operands that are all bf16; false: they are not, and nothing was done. */
bool flash_attention(const CudaCall *c, const Attention &a);
bool flash_attention_grad(const CudaCall *c, const Attention &a);

static inline bool is_bf16(const Num &x) { return x.dtype == DT_bf16; }

/* Blocks along the first axis of the grid for n own rows, and the first row and column of this one; LAST_FIRST: of causal
 * attention the last queries see most keys, and are begun first. */
template <int W> static inline unsigned row_blocks(int n) { return (unsigned)((n + ROWS - 1) / ROWS * (W / COLUMNS<W>)); }

template <int W> static __device__ __forceinline__ void block_rows(int n, bool last_first, int *row, int *column)
{
    int blocks = (n + ROWS - 1) / ROWS, block = (int)blockIdx.x % blocks;
    *row = (last_first ? blocks - 1 - block : block) * ROWS;
    *column = (int)blockIdx.x / blocks * COLUMNS<W>;
}

/* ---- tiles ---- */

/* Eight columns of a row of a tile of W columns.  They change places by row, so that eight rows of one column are in all banks. */
template <int W> static __device__ __forceinline__ Element *tile_at(Element *tile, int row, int eight)
{
    return tile + row * W + (eight ^ (row & 7)) * WIDE;
}

/* N rows of e numbers, row r from x[from + r step]; zeros behind `rows` and e.  By all threads of the block; the tile is there
 * when its copies have been waited for and the block has met. */
template <int W, int N> static __device__ __forceinline__ void fetch(Element *tile, const Num &of, int64_t from, int64_t step, int rows, int e)
{
    const Num x = {of.at, DT_bf16};
    for (int n = (int)threadIdx.x; n < N * (W / WIDE); n += WARPS * WARP) {
        int row = n / (W / WIDE), eight = n % (W / WIDE), left = row < rows ? min(e - eight * WIDE, WIDE) : 0;
        int64_t i = from + row * step + eight * WIDE;
        Element *to = tile_at<W>(tile, row, eight);
        const uint4 *at = wide_at(x, i, left);
        if (at)
            ptx_copy_async(to, at, sizeof *at);
        else
            *reinterpret_cast<uint4 *>(to) = wide_bf16(left > 0 ? wide_get(x, i, left) : Wide{});
    }
}

/* All copies are there, and the block has met. */
static __device__ __forceinline__ void await_tiles()
{
    ptx_copy_async_commit();
    ptx_copy_async_wait<0>();
    __syncthreads();
}

/* ---- fragments: what a lane holds of an operand, see ptx_mma_bf16 ---- */

/* Address that a lane gives for 16 x 16 numbers whose upper and lower halves follow each other: a left operand, or by
 * columns a right one. */
template <int W> static __device__ __forceinline__ const Element *halves_at(const Element *tile, int row, int step)
{
    int lane = (int)threadIdx.x % WARP;
    return tile_at<W>(const_cast<Element *>(tile), row + lane % OWN, 2 * step + lane / OWN);
}

/* The own rows of a warp. */
template <int W, bool HELD> struct Own {
    const Element *tile;
    int         row;
    unsigned    held[HELD ? W / OWN : 1][4];
};

template <int W, bool HELD> static __device__ __forceinline__ Own<W, HELD> own_rows(const Element *tile)
{
    Own<W, HELD> own;
    own.tile = tile;
    own.row = (int)threadIdx.x / WARP * OWN;
#pragma unroll
    for (int k = 0; HELD && k < W / OWN; k++)
        ptx_ldmatrix_x4(own.held[HELD ? k : 0], halves_at<W>(tile, own.row, k));
    return own;
}

/* s = own rows times the N rows of a tile. */
template <int W, int N, bool HELD> static __device__ __forceinline__ void multiply(float (&s)[N / 8][4], const Own<W, HELD> &own, const Element *tile)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < W / OWN; k++) {
        unsigned a[4], b[4];
        if (!HELD)
            ptx_ldmatrix_x4(a, halves_at<W>(own.tile, own.row, k));
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            ptx_ldmatrix_x4(b, tile_at<W>(const_cast<Element *>(tile), 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
            ptx_mma_bf16(s[2 * n], HELD ? own.held[HELD ? k : 0] : a, b);
            ptx_mma_bf16(s[2 * n + 1], HELD ? own.held[HELD ? k : 0] : a, b + 2);
        }
    }
}

/* sum += p times the N rows of a tile, C columns of them from `first` on. */
template <int W, int N, int C> static __device__ __forceinline__ void add_product(float (&sum)[C / 8][4], const float (&p)[N / 8][4], const Element *tile, int first)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        unsigned a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = bf16_pair(p[2 * k + i / 2][i % 2 * 2], p[2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int c = 0; c < C / 16; c++) {
            ptx_ldmatrix_x4_transposed(b, halves_at<W>(tile, 16 * k, first / 16 + c));
            ptx_mma_bf16(sum[2 * c], a, b);
            ptx_mma_bf16(sum[2 * c + 1], a, b + 2);
        }
    }
}

/* Row and column of a lane's x-th number of the n-th 16 x 8 block. */
static __device__ __forceinline__ int lane_row(int x) { return (int)threadIdx.x % WARP / 4 + x / 2 * 8; }
static __device__ __forceinline__ int lane_column(int n, int x) { return 8 * n + (int)threadIdx.x % 4 * 2 + x % 2; }

/* A statement for each number of a lane, of the x-th of the n-th block. */
#define EACH_OF_LANE(N, ...) \
    { _Pragma("unroll") for (int n = 0; n < (N) / 8; n++) { _Pragma("unroll") for (int x = 0; x < 4; x++) { __VA_ARGS__; } } }

/* ---- scores ---- */

/* A tile of queries and keys of one head and leading index. */
struct Pairs {
    int64_t lead;
    int     i, h, j;                  /* first query and key */
    bool    whole;                    /* every query sees every key, and nothing but the product tells how much */
};

/* Of n queries from i and m keys from j. */
static __device__ __forceinline__ Pairs pairs_of(const Attention &a, int64_t lead, int i, int n, int h, int j, int m)
{
    bool whole = i + n <= a.s && j + m <= a.t && !a.mask.at && !a.bias.at && !a.doc.at;
    int64_t first = place_global(&a.query, i, 0), last = place_global(&a.query, i + n - 1, 0);
    whole = whole && !(a.causal && place_global(&a.key, j + m - 1, 0) > first) && !(a.window && place_global(&a.key, j, 0) <= last - a.window);
    return Pairs{lead, i, h, j, whole};
}

/* Query and key of a lane's number; BY_KEY: rows are keys. */
template <bool BY_KEY> static __device__ __forceinline__ int query_of(const Pairs &p, int n, int x) { return p.i + (BY_KEY ? lane_column(n, x) : lane_row(x)); }
template <bool BY_KEY> static __device__ __forceinline__ int key_of(const Pairs &p, int n, int x) { return p.j + (BY_KEY ? lane_row(x) : lane_column(n, x)); }

/* Bit 4 n + x: whether a lane's number is of a query and a key that are there and pass a test.  What is asked rarely is asked
 * in a loop: unrolled it would cost the common case its registers. */
template <int N, bool BY_KEY, class Test> static __device__ __forceinline__ unsigned bits_of(const Attention &a, const Pairs &p, Test test)
{
    unsigned bits = 0;
    static_assert(N <= 64, "a lane has 32 numbers at most");
#pragma unroll 1
    for (int b = 0; b < N / 2; b++) {
        int i = query_of<BY_KEY>(p, b / 4, b % 4), j = key_of<BY_KEY>(p, b / 4, b % 4);
        bits |= (unsigned)(i < a.s && j < a.t && test(i, j)) << b;
    }
    return bits;
}

/* Products become scores, -INFINITY where a query does not see a key. */
template <int N, bool BY_KEY> static __device__ __forceinline__ void score(const Attention &a, const At<SEES> &at, const Pairs &p, float (&s)[N / 8][4])
{
    EACH_OF_LANE(N, s[n][x] *= a.scale)
    if (p.whole)
        return;
    unsigned seen = bits_of<N, BY_KEY>(a, p, [&](int i, int j) { return visible(a, at, i, j); });
    EACH_OF_LANE(N,
        if (a.bias.at && (seen >> (4 * n + x) & 1))
            s[n][x] += num_get(a.bias, ((int64_t)p.h * a.s + query_of<BY_KEY>(p, n, x)) * a.t + key_of<BY_KEY>(p, n, x));
        s[n][x] = seen >> (4 * n + x) & 1 ? s[n][x] : -INFINITY)
}

/* Bits of the probabilities that dropout keeps. */
template <int N, bool BY_KEY> static __device__ __forceinline__ unsigned kept_bits(const Attention &a, const CudaStep *now, const Pairs &p)
{
    return a.threshold == 0 ? ~0u : bits_of<N, BY_KEY>(a, p, [&](int i, int j) { return kept(a, now, p.lead, i, p.h, j) != 0; });
}

/* ---- ranges: what others of a block's own rows may see or be seen by, in whole tiles; one range, as a mask has no holes ---- */

struct Range { int first, end; };

template <int N> static __device__ __forceinline__ Range keys_seen(const Attention &a, int i, int i_end)
{
    Range r = {0, a.t};
    while (r.first < r.end && hidden(a, i, i_end, r.first, min(r.first + N, a.t) - 1))
        r.first += N;
    while (r.first < r.end && hidden(a, i, i_end, (r.end - 1) / N * N, r.end - 1))
        r.end = (r.end - 1) / N * N;
    return r;
}

template <int N> static __device__ __forceinline__ Range queries_seeing(const Attention &a, int j, int j_end)
{
    Range r = {0, a.s};
    while (r.first < r.end && hidden(a, r.first, min(r.first + N, a.s) - 1, j, j_end))
        r.first += N;
    while (r.first < r.end && hidden(a, (r.end - 1) / N * N, r.end - 1, j, j_end))
        r.end = (r.end - 1) / N * N;
    return r;
}

/* ---- results ---- */

/* Rows of a warp's sum times `by` of each, C columns from `first` on; row r of the block to y[at + r step]. */
template <int C> static __device__ __forceinline__ void put_rows(const Num &y, int64_t at, int64_t step, int rows, int e, int first,
                                                                 const float (&sum)[C / 8][4], float upper, float lower)
{
    const int warp = (int)threadIdx.x / WARP * OWN;
#pragma unroll
    for (int n = 0; n < C / 8; n++)
#pragma unroll
        for (int x = 0; x < 4; x += 2) {
            int row = warp + lane_row(x), column = first + lane_column(n, x);
            float by = x ? lower : upper;
            Element *to = static_cast<Element *>(y.at) + at + row * step + column;
            if (row < rows && column + 1 < e && (reinterpret_cast<uintptr_t>(to) & 3) == 0)
                *reinterpret_cast<unsigned *>(to) = bf16_pair(sum[n][x] * by, sum[n][x + 1] * by);
            else
                for (int k = 0; k < 2; k++)
                    if (row < rows && column + k < e)
                        to[k] = __float2bfloat16(sum[n][x + k] * by);
        }
}

/* A launch with more dynamic shared memory than kernels have unasked, which is 48 KiB less their static one. */
template <class Kernel> static inline void ask_shared(Kernel *kernel, size_t bytes)
{
    cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* The launcher for the narrowest width that holds a head. */
struct Width {
    int  columns;
    void (*launch)(const CudaCall *c, const Attention &a);
};

template <int N> static inline void launch_width(const Width (&width)[N], const CudaCall *c, const Attention &a)
{
    int i = 0;
    while (i < N - 1 && a.e > width[i].columns)
        i++;
    width[i].launch(c, a);
}

#endif
