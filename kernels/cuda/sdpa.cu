/* Attention by cuDNN: see sdpa.h.  Its log-sum-exp passes through scratch, as it has the axes of it in another order. */
#include "kernels/cuda/device.cuh"

#define _Noreturn __attribute__((noreturn))
extern "C" {
#include "kernels/cuda/sdpa.h"
}
#undef _Noreturn

/* From [.., h, s] to [.., s, h], or back: n numbers in all. */
static __global__ void __launch_bounds__(BLOCK) turn_lse(Num lse, float *turned, int64_t s, int64_t h, int64_t n, bool back)
{
    for GRID_STRIDE(i, n) {
        int64_t at = (i / h / s * h + i % h) * s + i / h % s;
        if (back)
            turned[at] = num_get(lse, i);
        else
            num_put(lse, i, turned[at]);
    }
}

static cudaError_t turn(const CudaCall *c, const SdpaPlan *p, const Tensor *t, const Num &lse, bool back)
{
    int64_t n = tensor_elements(t);
    PRUN_LAUNCH(turn_lse, blocks_of_threads(n), BLOCK, 0, c->stream, lse, sdpa_lse(c, p), t->axis[t->rank - 2].local, t->axis[t->rank - 1].local, n, back);
    return cudaGetLastError();
}

extern "C" bool sdpa_attention(const CudaCall *c, cudaError_t *status)
{
    const SdpaPlan *p = sdpa_plan_of(c);
    if (!p)
        return false;
    *status = sdpa_execute(c, p);
    if (*status == cudaSuccess && c->call.out[1])
        *status = turn(c, p, c->call.outt[1], OUT(1), false);
    return true;
}

extern "C" bool sdpa_attention_grad(const CudaCall *c, cudaError_t *status)
{
    const SdpaPlan *p = sdpa_plan_of(c);
    if (!p)
        return false;
    *status = turn(c, p, c->call.argt[5], ARG(5), true);
    if (*status == cudaSuccess)
        *status = sdpa_execute(c, p);
    return true;
}
