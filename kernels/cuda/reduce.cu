/* Sums over axes and over everything, and their reverse, broadcasts. */
#include "kernels/cuda/device.cuh"

/* Blocks of `blockDim.x` results, each by blockDim.y threads that sum every blockDim.y-th term.  Operands: y, x; the terms
 * are walked in x alone. */
static __global__ void __launch_bounds__(BLOCK) sum_terms(Loop<2> kept, Loop<1> summed, Num y, Num x, Mean mean, const CudaStep *now, bool adds)
{
    __shared__ float part[BLOCK];
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    At<2> at = loop_at(kept, i < kept.n ? i : 0);
    float sum = 0;
    for (int64_t t = threadIdx.y; i < kept.n && t < summed.n; t += blockDim.y)
        sum += num_get(x, at.of[1] + loop_at(summed, t).of[0]);
    part[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    for (unsigned rest = blockDim.y / 2; rest; rest /= 2) {
        if (threadIdx.y < rest)
            part[threadIdx.y * blockDim.x + threadIdx.x] += part[(threadIdx.y + rest) * blockDim.x + threadIdx.x];
        __syncthreads();
    }
    if (threadIdx.y == 0 && i < kept.n)
        num_give(y, at.of[0], part[threadIdx.x] * mean_by(mean, now), adds);
}

CUDA_KERNEL(reduce)
{
    const KCall *k = &c->call;
    FactorSet out = out_factors(k, 0), over = arg_factors(k, 0) & ~out;
    Loop<2> kept = loop_over<2>(k, out, {RESULT(0), 0}, true);
    Loop<1> summed = loop_over<1>(k, over, {0}, true);
    bool along = summed.depth && summed.step[0][summed.depth - 1] == 1;      /* neighbouring terms lie side by side */
    dim3 block = along || kept.n < 32 ? dim3(1, summed.n > 64 ? BLOCK : 32) : dim3(32, BLOCK / 32);
    if (kept.n)
        PRUN_LAUNCH(sum_terms, (unsigned)((kept.n + block.x - 1) / block.x), block, 0, c->stream, kept, summed, OUT(0), ARG(0), mean_of(k, over),
                    c->now, kcall_adds(k, 0));
    return cudaGetLastError();
}

static __global__ void __launch_bounds__(BLOCK) repeat(Loop<2> l, Num y, Num x, Mean mean, const CudaStep *now, bool adds)
{
    float by = mean_by(mean, now);
    for GRID_STRIDE(i, l.n) {
        At<2> at = loop_at(l, i);
        num_give(y, at.of[0], num_get(x, at.of[1]) * by, adds);
    }
}

CUDA_KERNEL(expand)
{
    const KCall *k = &c->call;
    Loop<2> l = loop_over<2>(k, out_factors(k, 0), {RESULT(0), 0}, true);
    if (l.n)
        PRUN_LAUNCH(repeat, blocks_of_threads(l.n), BLOCK, 0, c->stream, l, OUT(0), ARG(0), mean_of(k, out_factors(k, 0) & ~arg_factors(k, 0)),
                    c->now, kcall_adds(k, 0));
    return cudaGetLastError();
}

/* ---- sums over all rows ---- */

static __global__ void __launch_bounds__(BLOCK) finish_sum(Num y, const double *part, int parts, Num count, bool adds)
{
    double sum = 0, by = 1;
    for (int i = (int)threadIdx.x; i < parts; i += (int)blockDim.x)
        sum += part[i];
    sum = block_sum(sum);
    if (threadIdx.x != 0)
        return;
    if (count.at) {
        double n = num_get_any(count, 0);
        by = n > 0 ? 1 / n : 0;
    }
    num_put_any(y, 0, by * sum + (adds ? num_get_any(y, 0) : 0));
}

void launch_finish(const CudaCall *c, unsigned parts, Num count)
{
    PRUN_LAUNCH(finish_sum, 1, 128, 0, c->stream, OUT(0), static_cast<const double *>(c->call.work), (int)parts, count, kcall_adds(&c->call, 0));
}

/* In f64: a norm decides whether a step is taken at all. */
static __global__ void __launch_bounds__(BLOCK) square_parts(Num x, int64_t n, double *part)
{
    double sum = 0;
    for GRID_STRIDE(i, n) {
        double v = (double)num_get(x, i);
        sum += v * v;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

CUDA_KERNEL(sum_squares)
{
    int64_t n = tensor_elements(c->call.argt[0]);
    unsigned parts = blocks_for((n + BLOCK - 1) / BLOCK, CUDA_PARTS);
    if (parts)
        PRUN_LAUNCH(square_parts, parts, BLOCK, 0, c->stream, ARG(0), n, static_cast<double *>(c->call.work));
    launch_finish(c, parts, Num{NULL, DT_f64});
    return cudaGetLastError();
}
