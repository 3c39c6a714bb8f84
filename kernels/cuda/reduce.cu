/* Sums over axes and over everything, and their reverse, broadcasts. */
#include "kernels/cuda/device.cuh"

/* Blocks of blockDim.x packs of results, each by blockDim.y threads that sum every blockDim.y-th pack of terms: packs are
 * of results or of terms, whichever lie side by side in x.  Operands: y, x; the terms are walked in x alone. */
static __global__ void __launch_bounds__(BLOCK) sum_terms(Packs<2> kept, Packs<1> summed, Num y, Num x, Mean mean, const CudaStep *now, bool adds)
{
    __shared__ Wide part[BLOCK];
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    bool there = i < kept.packs.n;
    At<2> at = loop_at(kept.packs, there ? i : 0);
    int results = pack_size(kept, there ? i : 0);
    Wide sum = {};
    for (int64_t t = threadIdx.y; there && t < summed.packs.n; t += blockDim.y) {
        int64_t from = at.of[1] + loop_at(summed.packs, t).of[0];
        if (summed.each == 1) {
            Wide term = pack_get(kept, 1, x, from, results);
            EACH_OF_WIDE(sum.of[k] += term.of[k])
        } else {
            sum.of[0] += wide_sum(wide_get(x, from, pack_size(summed, t)));
        }
    }
    part[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    for (unsigned rest = blockDim.y / 2; rest; rest /= 2) {
        if (threadIdx.y < rest)
            EACH_OF_WIDE(part[threadIdx.y * blockDim.x + threadIdx.x].of[k] += part[(threadIdx.y + rest) * blockDim.x + threadIdx.x].of[k])
        __syncthreads();
    }
    sum = part[threadIdx.x];
    EACH_OF_WIDE(sum.of[k] *= mean_by(mean, now))
    if (threadIdx.y == 0 && there)
        wide_give(y, at.of[0], results, sum, adds);
}

/* Whether neighbours of the innermost factor lie side by side in an operand. */
template <int SEEN> static bool side_by_side(const Loop<SEEN> &l, int operand)
{
    return l.depth && l.step[operand][l.depth - 1] == 1;
}

CUDA_KERNEL(reduce)
{
    const KCall *k = &c->call;
    FactorSet out = out_factors(k, 0), over = arg_factors(k, 0) & ~out;
    Loop<2> results = loop_over<2>(k, out, {RESULT(0), 0}, true);
    Loop<1> terms = loop_over<1>(k, over, {0}, true);
    bool along = side_by_side(terms, 0);
    Packs<2> kept = packs_of(results, !along && side_by_side(results, 1));
    Packs<1> summed = packs_of(terms, along);
    dim3 block = kept.packs.n < 4 || along ? dim3(1, summed.packs.n > 64 ? BLOCK : 32) : dim3(4, BLOCK / 4);
    if (results.n)
        PRUN_LAUNCH(sum_terms, (unsigned)((kept.packs.n + block.x - 1) / block.x), block, 0, c->stream, kept, summed, OUT(0), ARG(0),
                    mean_of(k, over), c->now, kcall_adds(k, 0));
    return cudaGetLastError();
}

static __global__ void __launch_bounds__(BLOCK) repeat(Packs<2> p, Num y, Num x, Mean mean, const CudaStep *now, bool adds)
{
    float by = mean_by(mean, now);
    for GRID_STRIDE(i, p.packs.n) {
        At<2> at = loop_at(p.packs, i);
        int n = pack_size(p, i);
        Wide w = pack_get(p, 1, x, at.of[1], n);
        EACH_OF_WIDE(w.of[k] *= by)
        wide_give(y, at.of[0], n, w, adds);
    }
}

CUDA_KERNEL(expand)
{
    const KCall *k = &c->call;
    Packs<2> p = packs_of(loop_over<2>(k, out_factors(k, 0), {RESULT(0), 0}, true), true);
    if (p.packs.n)
        PRUN_LAUNCH(repeat, blocks_of_threads(p.packs.n), BLOCK, 0, c->stream, p, OUT(0), ARG(0),
                    mean_of(k, out_factors(k, 0) & ~arg_factors(k, 0)), c->now, kcall_adds(k, 0));
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
    for GRID_STRIDE(pack, (n + WIDE - 1) / WIDE) {
        Wide w = wide_get(x, pack * WIDE, wide_left(n, pack * WIDE));
        EACH_OF_WIDE(sum += (double)w.of[k] * (double)w.of[k])
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

CUDA_KERNEL(sum_squares)
{
    int64_t n = tensor_elements(c->call.argt[0]);
    unsigned parts = blocks_for((n + BLOCK * WIDE - 1) / (BLOCK * WIDE), CUDA_PARTS);
    if (parts)
        PRUN_LAUNCH(square_parts, parts, BLOCK, 0, c->stream, ARG(0), n, static_cast<double *>(c->call.work));
    launch_finish(c, parts, Num{NULL, DT_f64});
    return cudaGetLastError();
}
