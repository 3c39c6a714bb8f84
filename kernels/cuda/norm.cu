/* Layer and root-mean-square normalization over the last axis, and their gradients (Ba, Kiros, Hinton 2016; Zhang,
 * Sennrich 2019): formulas in kernels/ref/norm.c.  A block takes a row; the gradients of scale and shift are sums over
 * rows in columns of their own. */
#include "kernels/cuda/device.cuh"

/* Rows of a normalization; y is added to x first where there is one.  All but `out` and x may be absent. */
struct Norm {
    Num     x, y, w, b, out, sum, mean, rstd;
    int64_t rows, d;
    float   eps;
    bool    centered;
};

/* An element of the sum, rounded as if the sum had been stored. */
static __device__ __forceinline__ float element(const Norm &n, int64_t i)
{
    return n.y.at ? num_round(n.x.dtype, num_get(n.x, i) + num_get(n.y, i)) : num_get(n.x, i);
}

static __global__ void __launch_bounds__(BLOCK) normalize(Norm n)
{
    int64_t row = blockIdx.x, at = row * n.d;
    float mean = 0, square = 0;
    if (n.centered) {
        for (int64_t i = threadIdx.x; i < n.d; i += blockDim.x)
            mean += element(n, at + i);
        mean = block_sum(mean) / (float)n.d;
    }
    for (int64_t i = threadIdx.x; i < n.d; i += blockDim.x) {
        float v = element(n, at + i) - mean;
        square += v * v;
    }
    float rstd = 1 / sqrtf(block_sum(square) / (float)n.d + n.eps);
    for (int64_t i = threadIdx.x; i < n.d; i += blockDim.x) {
        float x = element(n, at + i);
        if (n.sum.at)
            num_put(n.sum, at + i, x);
        num_put(n.out, at + i, (x - mean) * rstd * num_get(n.w, i) + (n.b.at ? num_get(n.b, i) : 0));
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

#define NONE (Num{NULL, DT_f32})

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

static __device__ __forceinline__ float normalized(const Saved &s, int64_t row, int64_t i)
{
    return (num_get(s.x, row * s.d + i) - (s.mean.at ? num_get(s.mean, row) : 0)) * num_get(s.rstd, row);
}

static __global__ void __launch_bounds__(BLOCK) norm_grad_rows(Saved s, Num dx, bool adds)
{
    int64_t row = blockIdx.x;
    float mean_g = 0, mean_gh = 0;
    for (int64_t i = threadIdx.x; i < s.d; i += blockDim.x) {
        float g = num_get(s.dy, row * s.d + i) * num_get(s.w, i);
        mean_g += g;
        mean_gh += g * normalized(s, row, i);
    }
    mean_gh = block_sum(mean_gh) / (float)s.d;
    mean_g = s.mean.at ? block_sum(mean_g) / (float)s.d : 0;
    float rstd = num_get(s.rstd, row);
    for (int64_t i = threadIdx.x; i < s.d; i += blockDim.x) {
        float g = num_get(s.dy, row * s.d + i) * num_get(s.w, i);
        num_give(dx, row * s.d + i, rstd * (g - mean_g - normalized(s, row, i) * mean_gh), adds);
    }
}

enum { COLUMNS = 32, ROW_LANES = 8 };

/* Blocks of 32 columns; each of 8 rows of threads sums every eighth row of the tensor. */
static __global__ void __launch_bounds__(COLUMNS * ROW_LANES) norm_grad_columns(Saved s, Num dw, Num db, bool dw_adds, bool db_adds)
{
    __shared__ float part[2][ROW_LANES][COLUMNS];
    int64_t i = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    float scale = 0, shift = 0;
    for (int64_t row = threadIdx.y; i < s.d && row < s.rows; row += ROW_LANES) {
        float g = num_get(s.dy, row * s.d + i);
        scale += g * normalized(s, row, i);
        shift += g;
    }
    part[0][threadIdx.y][threadIdx.x] = scale;
    part[1][threadIdx.y][threadIdx.x] = shift;
    __syncthreads();
    if (threadIdx.y != 0 || i >= s.d)
        return;
    for (int k = 1; k < ROW_LANES; k++) {
        scale += part[0][k][threadIdx.x];
        shift += part[1][k][threadIdx.x];
    }
    if (dw.at)
        num_give(dw, i, scale, dw_adds);
    if (db.at)
        num_give(db, i, shift, db_adds);
}

static cudaError_t launch_norm_grad(const CudaCall *c, Saved s, Num db)
{
    s.d = row_length(c->call.argt[0]);
    s.rows = row_count(c->call.argt[0]);
    if (OUT(0).at && s.rows)
        PRUN_LAUNCH(norm_grad_rows, (unsigned)s.rows, row_block(s.d), 0, c->stream, s, OUT(0), kcall_adds(&c->call, 0));
    if ((OUT(1).at || db.at) && s.d)
        PRUN_LAUNCH(norm_grad_columns, (unsigned)((s.d + COLUMNS - 1) / COLUMNS), dim3(COLUMNS, ROW_LANES), 0, c->stream, s, OUT(1), db,
                    kcall_adds(&c->call, 1), kcall_adds(&c->call, 2));
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
