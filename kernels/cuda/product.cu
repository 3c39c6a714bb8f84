/* Products whose factors are no matrices: a thread for each element of the result. */
#include "kernels/cuda/device.cuh"

/* Operands: y, a, b, bias; of the summed factors: a, b. */
static __global__ void __launch_bounds__(BLOCK) multiply(Loop<4> kept, Loop<2> summed, Num y, Num a, Num b, Num bias, bool adds)
{
    for GRID_STRIDE(i, kept.n) {
        At<4> at = loop_at(kept, i);
        float sum = bias.at ? num_get(bias, at.of[3]) : 0;
        for (int64_t t = 0; t < summed.n; t++) {
            At<2> k = loop_at(summed, t);
            sum += num_get(a, at.of[1] + k.of[0]) * num_get(b, at.of[2] + k.of[1]);
        }
        num_give(y, at.of[0], sum, adds);
    }
}

extern "C" cudaError_t cuda_product(const CudaCall *c, bool bias)
{
    const KCall *k = &c->call;
    FactorSet out = out_factors(k, 0), over = (arg_factors(k, 0) | arg_factors(k, 1)) & ~out;
    Loop<4> kept = loop_over<4>(k, out, {RESULT(0), 0, 1, 2}, true);
    Loop<2> summed = loop_over<2>(k, over, {0, 1}, false);
    if (kept.n)
        PRUN_LAUNCH(multiply, blocks_of_threads(kept.n), BLOCK, 0, c->stream, kept, summed, OUT(0), ARG(0), ARG(1),
                    bias ? ARG(2) : (Num{NULL, DT_f32}), kcall_adds(k, 0));
    return cudaGetLastError();
}
