/* Look-up in a table, of which a rank may hold some rows, and its gradient.
 *
 * The gradient is deterministic without atomics: tokens are sorted by the row they name, and of one row by their number; then
 * a warp adds up each row's tokens, in that order.  Sorting is by ranks: runs of a block, then pairs of runs merged. */
#include "kernels/cuda/device.cuh"

struct Table {
    Loop<2> tokens;                   /* operands: ids, the tensor with a row for each token */
    Num     ids, table, rows;
    int64_t origin, valid, d, stride; /* first row of this rank, and how many there are; stride: between a row's elements in `rows` */
};

static Table table_of(const CudaCall *c, const Tensor *table, const int (&seen)[2])
{
    Table t;
    memset(&t, 0, sizeof t);
    t.tokens = loop_over<2>(&c->call, arg_factors(&c->call, 0), seen, false);
    t.ids = ARG(0);
    t.origin = table->axis[0].origin;
    t.valid = place_valid(&table->axis[0]);
    t.d = row_length(table);
    return t;
}

/* Local row of a token's id, or -1: another rank's. */
static __device__ __forceinline__ int64_t table_row(const Table &t, int64_t id)
{
    int64_t row = id - t.origin;
    return row >= 0 && row < t.valid ? row : -1;
}

static __global__ void __launch_bounds__(BLOCK) look_up(Table t)
{
    At<2> at = loop_at(t.tokens, blockIdx.x);
    int64_t row = table_row(t, num_int(t.ids, at.of[0]));
    for ROW_STRIDE(i, t.d) {
        int left = wide_left(t.d, i);
        Wide w = {};
        if (row >= 0)
            w = wide_get(t.table, row * t.d + i, left);
        if (t.stride == 1)
            wide_put(t.rows, at.of[1] + i, left, w);
        else
            EACH_OF_WIDE(if (k < left) num_put(t.rows, at.of[1] + (i + k) * t.stride, w.of[k]))
    }
}

CUDA_KERNEL(embed)
{
    Table t = table_of(c, c->call.argt[1], {0, RESULT(0)});
    t.table = ARG(1);
    t.rows = OUT(0);
    t.stride = out_stride(&c->call, 0, c->call.in->arg_factor[1][1]);
    if (t.tokens.n)
        PRUN_LAUNCH(look_up, (unsigned)t.tokens.n, row_block(t.d), 0, c->stream, t);
    return cudaGetLastError();
}

/* ---- tokens sorted by row: a key is the row, then the token; behind all others those of other ranks ---- */

typedef unsigned long long Key;
constexpr unsigned OTHERS = 0xffffffffu;

static __device__ __forceinline__ unsigned key_row(Key key) { return (unsigned)(key >> 32); }
static __device__ __forceinline__ unsigned key_token(Key key) { return (unsigned)key; }

/* Keys of a block's tokens, each at the number of those below it. */
static __global__ void __launch_bounds__(BLOCK) sort_runs(Table t, Key *sorted)
{
    __shared__ Key run[BLOCK];
    int64_t first = (int64_t)blockIdx.x * BLOCK, token = first + threadIdx.x;
    int n = (int)min((int64_t)BLOCK, t.tokens.n - first), rank = 0;
    Key mine = 0;
    if (token < t.tokens.n) {
        int64_t row = table_row(t, num_int(t.ids, loop_at(t.tokens, token).of[0]));
        mine = (Key)(row < 0 ? OTHERS : (unsigned)row) << 32 | (Key)token;
    }
    run[threadIdx.x] = mine;
    __syncthreads();
    for (int i = 0; i < n; i++)
        rank += run[i] < mine;
    if (token < t.tokens.n)
        sorted[first + rank] = mine;
}

/* Pairs of sorted runs of `width` keys: a key goes behind those of its run and those of the other that are below it. */
static __global__ void __launch_bounds__(BLOCK) merge_runs(const Key *from, Key *to, int64_t n, int64_t width)
{
    for GRID_STRIDE(i, n) {
        int64_t pair = i / (2 * width) * (2 * width), middle = min(pair + width, n);
        int64_t first = i < middle ? middle : pair, low = first, high = i < middle ? min(middle + width, n) : middle;
        Key mine = from[i];
        while (low < high) {
            int64_t middle_of = (low + high) / 2;
            if (from[middle_of] < mine)
                low = middle_of + 1;
            else
                high = middle_of;
        }
        to[i + low - first - (i < middle ? 0 : width)] = mine;
    }
}

/* All tokens; returns in which of two arrays they come to lie. */
static const Key *launch_sort(const CudaCall *c, const Table &t, Key *one, Key *other)
{
    int64_t n = t.tokens.n;
    PRUN_LAUNCH(sort_runs, (unsigned)((n + BLOCK - 1) / BLOCK), BLOCK, 0, c->stream, t, one);
    for (int64_t width = BLOCK; width < n; width *= 2) {
        PRUN_LAUNCH(merge_runs, blocks_of_threads(n), BLOCK, 0, c->stream, one, other, n, width);
        Key *merged = other;
        other = one;
        one = merged;
    }
    return one;
}

/* ---- rows added up ---- */

static __device__ __forceinline__ Wide token_row(const Table &t, unsigned token, int64_t column, int left)
{
    int64_t at = loop_at(t.tokens, token).of[1] + column * t.stride;
    if (t.stride == 1)
        return wide_get(t.rows, at, left);
    Wide w;
    EACH_OF_WIDE(w.of[k] = k < left ? num_get(t.rows, at + k * t.stride) : 0)
    return w;
}

/* A block of one warp for each key and strip of columns, WIDE to a lane; the first key of a row does its work. */
static __global__ void __launch_bounds__(WARP) add_up(Table t, const Key *sorted, bool adds)
{
    int64_t first = blockIdx.x, column = ((int64_t)blockIdx.y * WARP + threadIdx.x) * WIDE;
    unsigned row = key_row(sorted[first]);
    int left = column < t.d ? wide_left(t.d, column) : 0, many = WARP;
    if (row == OTHERS || (first > 0 && key_row(sorted[first - 1]) == row))
        return;
    Wide sum = {};
    for (int64_t from = first; many == WARP; from += WARP) {
        Key mine = from + threadIdx.x < t.tokens.n ? sorted[from + threadIdx.x] : ~(Key)0;
        many = __popc(__ballot_sync(0xffffffffu, key_row(mine) == row));
#pragma unroll 4
        for (int i = 0; i < many; i++) {
            unsigned token = key_token(__shfl_sync(0xffffffffu, mine, i));
            Wide w = {};
            if (left > 0)
                w = token_row(t, token, column, left);
            EACH_OF_WIDE(sum.of[k] += w.of[k])
        }
    }
    if (left > 0)
        wide_give(t.table, (int64_t)row * t.d + column, left, sum, adds);
}

CUDA_KERNEL(embed_grad)
{
    Table t = table_of(c, c->call.outt[0], {0, 1});
    t.table = OUT(0);
    t.rows = ARG(1);
    t.stride = arg_stride(&c->call, 1, c->call.in->out_factor[0][1]);
    bool adds = kcall_adds(&c->call, 0);
    cudaError_t e = adds ? cudaSuccess : clear(c, 0);
    if (!e && t.tokens.n && t.d) {
        Key *key = static_cast<Key *>(c->call.work);
        const Key *sorted = launch_sort(c, t, key, key + t.tokens.n);
        PRUN_LAUNCH(add_up, dim3((unsigned)t.tokens.n, (unsigned)((t.d + WARP * WIDE - 1) / (WARP * WIDE))), WARP, 0, c->stream, t, sorted, adds);
    }
    return e ? e : cudaGetLastError();
}
