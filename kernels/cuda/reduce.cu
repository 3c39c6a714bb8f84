/* Sums over axes and over everything, and their reverse, broadcasts. */
#include "kernels/cuda/parts.cuh"

/* Terms whose loads a thread has on their way at once: as many as leave registers for four blocks. */
constexpr int IN_FLIGHT = 3;

/* Packs are of results or of terms, whichever lie side by side in x.  Operands: y, x; the terms are walked in x alone. */
static __global__ void __launch_bounds__(BLOCK) sum_terms(Packs<2> kept, Packs<1> summed, Parts p, Into y, Num x, Mean mean, const CudaStep *now)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, end = part_end(p, summed.packs.n);
    bool there = i < p.packs;
    At<2> at = loop_at(kept.packs, there ? i : 0);
    int results = pack_size(kept, there ? i : 0);
    Wide sum = {};
#pragma unroll 1
    for (int64_t t = blockIdx.y * p.terms + threadIdx.y; there && t < end; t += IN_FLIGHT * blockDim.y) {
        int64_t from[IN_FLIGHT];
        int n[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            int64_t of = t + j * blockDim.y;
            from[j] = at.of[1] + loop_at(summed.packs, of).of[0];
            n[j] = of >= end ? 0 : summed.each == 1 ? results : pack_size(summed, of);
        }
        Raw term[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++)
            term[j] = raw_get(x, from[j], n[j]);
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            Wide w = raw_wide(x, term[j]);
            EACH_OF_WIDE(sum.of[k] += w.of[k])
        }
    }
    sum = column_sum(sum);
    if (summed.each > 1)
        sum.of[0] = wide_sum(sum);
    if (threadIdx.y == 0 && there)
        part_give(p, 0, i, y, at.of[0], results, sum, mean_by(mean, now));
}

/* Blocks along y have a result tensor each; a thread adds every blockDim.y-th part. */
static __global__ void __launch_bounds__(BLOCK) add_parts(Packs<2> kept, Parts p, Into first, Into second, Mean mean, const CudaStep *now)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    Into to = blockIdx.y ? second : first;
    bool there = i < p.packs;
    Wide sum = {};
#pragma unroll 4
    for (int64_t t = threadIdx.y; there && t < p.n; t += blockDim.y) {
        Wide w = p.sum[(blockIdx.y * p.n + t) * p.packs + i];
        EACH_OF_WIDE(sum.of[k] += w.of[k])
    }
    sum = column_sum(sum);
    if (threadIdx.y != 0 || !there || !to.y.at)
        return;
    float by = mean_by(mean, now);
    EACH_OF_WIDE(sum.of[k] *= by)
    wide_give(to.y, loop_at(kept.packs, i).of[0], pack_size(kept, i), sum, to.adds);
}

/* A thread for each part, up to a block of them. */
void launch_parts(const CudaCall *c, const Packs<2> &kept, const Parts &p, Into first, Into second, const Mean &mean)
{
    unsigned lanes = 1;
    while (lanes < BLOCK && lanes < p.n)
        lanes *= 2;
    dim3 block(BLOCK / lanes, lanes);
    if (p.n > 1)
        PRUN_LAUNCH(add_parts, dim3((unsigned)((p.packs + block.x - 1) / block.x), second.y.at ? 2 : 1), block, 0, c->stream, kept, p, first, second,
                    mean, c->now);
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
    dim3 block = kept.packs.n < PACKS || along ? dim3(1, summed.packs.n > 64 ? BLOCK : WARP) : dim3(PACKS, LANES);
    Parts p = parts_of(c, kept.packs.n, summed.packs.n, block);
    Into y = {OUT(0), kcall_adds(k, 0)};
    if (results.n) {
        PRUN_LAUNCH(sum_terms, parts_grid(p, block), block, 0, c->stream, kept, summed, p, y, ARG(0), mean_of(k, over), c->now);
        launch_parts(c, kept, p, y, Into{NONE, false}, mean_of(k, over));
    }
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
