/* Layer and root-mean-square normalization over the last axis, and their gradients (Ba, Kiros, Hinton 2016; Zhang,
 * Sennrich 2019): formulas in kernels/ref/norm.c.  A block takes a row; the gradients of scale and shift are sums over
 * rows in columns of their own. */
#include "kernels/cuda/parts.cuh"

/* Rows of a normalization; y is added to x first where there is one.  All but `out` and x may be absent. */
struct Norm {
    Num     x, y, w, b, out, sum, mean, rstd;
    int64_t rows, d;
    float   eps;
    bool    centered;
};

/* Elements of the sum, rounded as if the sum had been stored. */
static __device__ __forceinline__ Wide elements(const Norm &n, int64_t i, int left)
{
    Wide x = wide_get(n.x, i, left);
    if (n.y.at) {
        Wide y = wide_get(n.y, i, left);
        EACH_OF_WIDE(x.of[k] = num_round(n.x.dtype, x.of[k] + y.of[k]))
    }
    return x;
}

/* x normalized, scaled and shifted. */
static __device__ __forceinline__ void put_normal(const Norm &n, int64_t at, int64_t i, int left, Wide x, float mean, float rstd)
{
    Wide w = wide_get(n.w, i, left), b = {};
    if (n.b.at)
        b = wide_get(n.b, i, left);
    EACH_OF_WIDE(x.of[k] = (x.of[k] - mean) * rstd * w.of[k] + b.of[k])
    wide_put(n.out, at + i, left, x);
}

static __global__ void __launch_bounds__(BLOCK) normalize(Norm n)
{
    int64_t row = blockIdx.x, at = row * n.d;
    float mean = 0, square = 0;
    if (n.centered) {
        for ROW_STRIDE(i, n.d)
            mean += wide_sum(elements(n, at + i, wide_left(n.d, i)));
        mean = block_sum(mean) / (float)n.d;
    }
    for ROW_STRIDE(i, n.d) {
        int left = wide_left(n.d, i);
        Wide x = elements(n, at + i, left);
        EACH_OF_WIDE(float v = k < left ? x.of[k] - mean : 0; square += v * v)
    }
    float rstd = 1 / sqrtf(block_sum(square) / (float)n.d + n.eps);
    for ROW_STRIDE(i, n.d) {
        int left = wide_left(n.d, i);
        Wide x = elements(n, at + i, left);
        if (n.sum.at)
            wide_put(n.sum, at + i, left, x);
        put_normal(n, at, i, left, x, mean, rstd);
    }
    if (threadIdx.x == 0 && n.mean.at)
        num_put(n.mean, row, mean);
    if (threadIdx.x == 0 && n.rstd.at)
        num_put(n.rstd, row, rstd);
}

static cudaError_t launch_norm(const CudaCall *c, Norm n)
{
    n.d = row_length(c->call.argt[0]);
    n.rows = row_count(c->call.argt[0]);
    n.eps = (float)attr_real(&c->call, "eps");
    if (n.rows)
        PRUN_LAUNCH(normalize, (unsigned)n.rows, row_block(n.d), 0, c->stream, n);
    return cudaGetLastError();
}

CUDA_KERNEL(layernorm)
{
    return launch_norm(c, Norm{ARG(0), NONE, ARG(1), ARG(2), OUT(0), NONE, OUT(1), OUT(2), 0, 0, 0, true});
}

CUDA_KERNEL(rmsnorm)
{
    return launch_norm(c, Norm{ARG(0), NONE, ARG(1), NONE, OUT(0), NONE, NONE, OUT(1), 0, 0, 0, false});
}

CUDA_KERNEL(add_layernorm)
{
    return launch_norm(c, Norm{ARG(0), ARG(1), ARG(2), ARG(3), OUT(0), OUT(1), OUT(2), OUT(3), 0, 0, 0, true});
}

CUDA_KERNEL(add_rmsnorm)
{
    return launch_norm(c, Norm{ARG(0), ARG(1), ARG(2), NONE, OUT(0), OUT(1), NONE, OUT(2), 0, 0, 0, false});
}

/* ---- gradients, from the saved numbers of the forward op; without centering there is no mean ---- */

struct Saved {
    Num     dy, x, w, mean, rstd;
    int64_t rows, d;
};

static __device__ __forceinline__ Wide normalized(const Saved &s, int64_t row, int64_t i, int left)
{
    Wide x = wide_get(s.x, row * s.d + i, left);
    float mean = s.mean.at ? num_get(s.mean, row) : 0, rstd = num_get(s.rstd, row);
    EACH_OF_WIDE(x.of[k] = (x.of[k] - mean) * rstd)
    return x;
}

/* dy times the scale. */
static __device__ __forceinline__ Wide scaled(const Saved &s, int64_t row, int64_t i, int left)
{
    Wide g = wide_get(s.dy, row * s.d + i, left), w = wide_get(s.w, i, left);
    EACH_OF_WIDE(g.of[k] *= w.of[k])
    return g;
}

static __global__ void __launch_bounds__(BLOCK) norm_grad_rows(Saved s, Num dx, bool adds)
{
    int64_t row = blockIdx.x;
    float mean_g = 0, mean_gh = 0;
    for ROW_STRIDE(i, s.d) {
        int left = wide_left(s.d, i);
        Wide g = scaled(s, row, i, left), h = normalized(s, row, i, left);
        EACH_OF_WIDE(mean_g += g.of[k]; mean_gh += g.of[k] * h.of[k])
    }
    mean_gh = block_sum(mean_gh) / (float)s.d;
    mean_g = s.mean.at ? block_sum(mean_g) / (float)s.d : 0;
    float rstd = num_get(s.rstd, row);
    for ROW_STRIDE(i, s.d) {
        int left = wide_left(s.d, i);
        Wide g = scaled(s, row, i, left), h = normalized(s, row, i, left);
        EACH_OF_WIDE(g.of[k] = rstd * (g.of[k] - mean_g - h.of[k] * mean_gh))
        wide_give(dx, row * s.d + i, left, g, adds);
    }
}

/* Rows whose loads, of dy and x, a thread has on their way at once: as many as leave registers for four blocks. */
constexpr int IN_FLIGHT = 2;

/* Threads have a pack of columns each, and every LANES-th row of the block's part. */
static __global__ void __launch_bounds__(BLOCK) norm_grad_columns(Saved s, Parts p, Into dw, Into db)
{
    int64_t pack = (int64_t)blockIdx.x * PACKS + threadIdx.x, i = pack * WIDE, end = part_end(p, s.rows);
    int left = i < s.d ? wide_left(s.d, i) : 0;
    Wide scale = {}, shift = {};
#pragma unroll 1
    for (int64_t row = blockIdx.y * p.terms + threadIdx.y; left && row < end; row += IN_FLIGHT * LANES) {
        Raw dy[IN_FLIGHT], x[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            int64_t r = row + j * LANES;
            dy[j] = raw_get(s.dy, r * s.d + i, r < end ? left : 0);
            x[j] = raw_get(s.x, r * s.d + i, r < end ? left : 0);
        }
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            int64_t r = min(row + j * LANES, end - 1);           /* behind the end dy is zero */
            float mean = s.mean.at ? num_get(s.mean, r) : 0, rstd = num_get(s.rstd, r);
            Wide g = raw_wide(s.dy, dy[j]), h = raw_wide(s.x, x[j]);
            EACH_OF_WIDE(scale.of[k] += g.of[k] * ((h.of[k] - mean) * rstd); shift.of[k] += g.of[k])
        }
    }
    scale = column_sum(scale);
    if (threadIdx.y == 0 && left)
        part_give(p, 0, pack, dw, i, left, scale, 1);
    shift = column_sum(shift);
    if (threadIdx.y == 0 && left)
        part_give(p, 1, pack, db, i, left, shift, 1);
}

/* The gradients of scale and shift: columns are summed in packs. */
static void launch_columns(const CudaCall *c, const Saved &s, Into dw, Into db)
{
    const int64_t step[] = {1, 1};
    Loop<2> columns = {};
    columns.n = 1;
    loop_append(&columns, s.d, step);
    dim3 block(PACKS, LANES);
    Parts p = parts_of(c, (s.d + WIDE - 1) / WIDE, s.rows, block);
    PRUN_LAUNCH(norm_grad_columns, parts_grid(p, block), block, 0, c->stream, s, p, dw, db);
    launch_parts(c, packs_of(columns, true), p, dw, db, Mean{0, 0});
}

static cudaError_t launch_norm_grad(const CudaCall *c, Saved s, Num db)
{
    s.d = row_length(c->call.argt[0]);
    s.rows = row_count(c->call.argt[0]);
    if (OUT(0).at && s.rows)
        PRUN_LAUNCH(norm_grad_rows, (unsigned)s.rows, row_block(s.d), 0, c->stream, s, OUT(0), kcall_adds(&c->call, 0));
    if ((OUT(1).at || db.at) && s.d)
        launch_columns(c, s, Into{OUT(1), kcall_adds(&c->call, 1)}, Into{db, kcall_adds(&c->call, 2)});
    return cudaGetLastError();
}

CUDA_KERNEL(layernorm_grad)
{
    return launch_norm_grad(c, Saved{ARG(0), ARG(1), ARG(2), ARG(3), ARG(4), 0, 0}, OUT(2));
}

CUDA_KERNEL(rmsnorm_grad)
{
    return launch_norm_grad(c, Saved{ARG(0), ARG(1), ARG(2), NONE, ARG(3), 0, 0}, NONE);
}
