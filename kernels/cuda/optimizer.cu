/* Optimizer steps on flat states, each of a type of its own: formulas in kernels/ref/optimizer.c.  A norm that is not
 * finite changes nothing; norm, learning rate and corrections are read on the device. */
#include "kernels/cuda/device.cuh"

struct Settings { float beta1, beta2, rest1, rest2, eps, decay, momentum, clip; };     /* rest: 1 - beta */

static Settings settings_of(const CudaCall *c)
{
    const Optimizer *o = c->call.step->optimizer;
    return Settings{(float)o->beta1, (float)o->beta2, (float)(1 - o->beta1), (float)(1 - o->beta2), (float)o->eps,
                    attr_bool(&c->call, "decays") ? (float)o->weight_decay : 0, (float)o->momentum, (float)o->clip};
}

/* What the gradient is multiplied by, from the sum of squares of all gradients; negative when it is not finite. */
static __device__ __forceinline__ float clip_of(const Num &squares, float most)
{
    double norm = sqrt(num_get_any(squares, 0));
    if (!isfinite(norm))
        return -1;
    return most > 0 && norm > (double)most ? (float)((double)most / norm) : 1;
}

struct States { Num w, g, m, v, norm, new_w, new_m, new_v, rounded; };

/* What is stepped, and what the model computes with where that is rounded from it. */
static __device__ __forceinline__ void give_weight(const States &s, int64_t i, int n, Wide w)
{
    wide_put(s.new_w, i, n, w);
    if (s.rounded.at) {
        EACH_OF_WIDE(w.of[k] = num_round(s.new_w.dtype, w.of[k]))
        wide_put(s.rounded, i, n, w);
    }
}

static __global__ void __launch_bounds__(BLOCK) adamw(States s, Settings o, int64_t elements, const CudaStep *now)
{
    float clip = clip_of(s.norm, o.clip), lr = (float)now->lr, rate = (float)(now->lr / now->correction1), second = (float)(1 / now->correction2);
    for GRID_STRIDE(pack, (elements + WIDE - 1) / WIDE) {
        int64_t i = pack * WIDE;
        int n = wide_left(elements, i);
        Wide w = wide_get(s.w, i, n), m = wide_get(s.m, i, n), v = wide_get(s.v, i, n), gradient = wide_get(s.g, i, n);
#pragma unroll
        for (int k = 0; k < WIDE && clip >= 0; k++) {
            float g = gradient.of[k] * clip;
            w.of[k] -= lr * o.decay * w.of[k];
            m.of[k] = o.beta1 * m.of[k] + o.rest1 * g;
            v.of[k] = o.beta2 * v.of[k] + o.rest2 * g * g;
            w.of[k] -= rate * m.of[k] / (sqrtf(v.of[k] * second) + o.eps);
        }
        give_weight(s, i, n, w);
        wide_put(s.new_m, i, n, m);
        wide_put(s.new_v, i, n, v);
    }
}

CUDA_KERNEL(adamw)
{
    States s = {ARG(0), ARG(1), ARG(2), ARG(3), ARG(4), OUT(0), OUT(1), OUT(2), c->call.in->nout > 3 ? OUT(3) : Num{NULL, DT_f32}};
    int64_t n = tensor_elements(c->call.argt[0]);
    if (n)
        PRUN_LAUNCH(adamw, blocks_of_threads((n + WIDE - 1) / WIDE), BLOCK, 0, c->stream, s, settings_of(c), n, c->now);
    return cudaGetLastError();
}

static __global__ void __launch_bounds__(BLOCK) sgd(States s, Settings o, int64_t elements, const CudaStep *now)
{
    float clip = clip_of(s.norm, o.clip), lr = (float)now->lr;
    for GRID_STRIDE(pack, (elements + WIDE - 1) / WIDE) {
        int64_t i = pack * WIDE;
        int n = wide_left(elements, i);
        Wide w = wide_get(s.w, i, n), m = {}, g = wide_get(s.g, i, n);
        if (s.m.at)
            m = wide_get(s.m, i, n);
#pragma unroll
        for (int k = 0; k < WIDE && clip >= 0; k++) {
            m.of[k] = o.momentum * m.of[k] + g.of[k] * clip + o.decay * w.of[k];
            w.of[k] -= lr * m.of[k];
        }
        give_weight(s, i, n, w);
        if (s.new_m.at)
            wide_put(s.new_m, i, n, m);
    }
}

CUDA_KERNEL(sgd)
{
    const Num none = {NULL, DT_f32};
    States s = {ARG(0), ARG(1), ARG(2), none, ARG(3), OUT(0), OUT(1), none, c->call.in->nout > 2 ? OUT(2) : none};
    int64_t n = tensor_elements(c->call.argt[0]);
    if (n)
        PRUN_LAUNCH(sgd, blocks_of_threads((n + WIDE - 1) / WIDE), BLOCK, 0, c->stream, s, settings_of(c), n, c->now);
    return cudaGetLastError();
}
