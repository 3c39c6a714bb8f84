/* Ops that make one element of one element of each argument, in any order of axes and with any axes lacking. */
#include "kernels/cuda/device.cuh"

/* A function of x and y: elements of arguments 0 and 1. */
struct Function {
    int   op;
    float by;                         /* of scale, shift, reciprocal */
    bool  exact;                      /* of gelu */
};

static __device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

static __device__ __forceinline__ float silu_slope(float x)
{
    float s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

/* Hendrycks and Gimpel 2016: x P(Z < x), and its tanh form with the constants of the paper. */
#define GELU_A 0.7978845608028654f    /* sqrt(2 / pi) */
#define GELU_B 0.044715f

static __device__ float gelu(float x, bool exact)
{
    return exact ? 0.5f * x * (1 + erff(x * 0.70710678118654752f)) : 0.5f * x * (1 + tanhf(GELU_A * (x + GELU_B * x * x * x)));
}

static __device__ float gelu_slope(float x, bool exact)
{
    if (exact)
        return 0.5f * (1 + erff(x * 0.70710678118654752f)) + x * expf(-0.5f * x * x) * 0.3989422804014327f;     /* 1 / sqrt(2 pi) */
    float t = tanhf(GELU_A * (x + GELU_B * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * GELU_A * (1 + 3 * GELU_B * x * x);
}

static __device__ __forceinline__ float apply(const Function &f, float x, float y)
{
    switch (f.op) {
    case OP_add:        return x + y;
    case OP_sub:        return x - y;
    case OP_mul:        return x * y;
    case OP_div:        return x / y;
    case OP_scale:      return x * f.by;
    case OP_shift:      return x + f.by;
    case OP_reciprocal: return f.by / x;
    case OP_relu:       return x < 0 ? 0 : x;                /* a NaN stays one */
    case OP_silu:       return x * sigmoid(x);
    case OP_tanh:       return tanhf(x);
    case OP_gelu:       return gelu(x, f.exact);
    case OP_relu_grad:  return y > 0 ? x : 0;
    case OP_tanh_grad:  return x * (1 - y * y);
    case OP_silu_grad:  return x * silu_slope(y);
    case OP_gelu_grad:  return x * gelu_slope(y, f.exact);
    case OP_silu_mul:   return x * sigmoid(x) * y;
    default:            return x;
    }
}

/* Operands: the result, x, y. */
static __global__ void __launch_bounds__(BLOCK) map(Function f, Loop<3> l, Num out, Num x, Num y)
{
    for GRID_STRIDE(i, l.n) {
        At<3> at = loop_at(l, i);
        num_put(out, at.of[0], apply(f, num_get(x, at.of[1]), y.at ? num_get(y, at.of[2]) : 0));
    }
}

static cudaError_t launch_map(const CudaCall *c, Function f)
{
    Loop<3> l = loop_over<3>(&c->call, out_factors(&c->call, 0), {RESULT(0), 0, 1}, true);
    if (l.n)
        PRUN_LAUNCH(map, blocks_of_threads(l.n), BLOCK, 0, c->stream, f, l, OUT(0), ARG(0), c->call.in->narg > 1 ? ARG(1) : Num{NULL, DT_f32});
    return cudaGetLastError();
}

#define PLAIN(op) CUDA_KERNEL(op) { return launch_map(c, Function{OP_##op, 0, false}); }
#define BY(op)    CUDA_KERNEL(op) { return launch_map(c, Function{OP_##op, (float)attr_real(&c->call, "by"), false}); }
#define EXACT(op) CUDA_KERNEL(op) { return launch_map(c, Function{OP_##op, 0, attr_bool(&c->call, "exact")}); }

PLAIN(add) PLAIN(sub) PLAIN(mul) PLAIN(div) PLAIN(relu) PLAIN(silu) PLAIN(tanh)
PLAIN(relu_grad) PLAIN(tanh_grad) PLAIN(silu_grad) PLAIN(silu_mul) PLAIN(transpose)
BY(scale) BY(shift) BY(reciprocal)
EXACT(gelu) EXACT(gelu_grad)

extern "C" cudaError_t cuda_gelu_of(const CudaCall *c, const Tensor *xt, const void *x)
{
    Loop<3> l;
    memset(&l, 0, sizeof l);
    l.depth = 1;
    l.n = l.extent[0] = tensor_elements(c->call.outt[0]);
    l.step[0][0] = l.step[1][0] = 1;
    if (l.n)
        PRUN_LAUNCH(map, blocks_of_threads(l.n), BLOCK, 0, c->stream, (Function{OP_gelu, 0, attr_bool(&c->call, "exact")}), l, OUT(0),
                    num_of(xt, const_cast<void *>(x)), (Num{NULL, DT_f32}));
    return cudaGetLastError();
}

/* Operands: dx, dother, dy, x, y. */
static __global__ void __launch_bounds__(BLOCK) gate_grad(Loop<5> l, Num dx, Num dother, Num dy, Num x, Num y)
{
    for GRID_STRIDE(i, l.n) {
        At<5> at = loop_at(l, i);
        float g = num_get(dy, at.of[2]), a = num_get(x, at.of[3]), b = num_get(y, at.of[4]);
        if (dx.at)
            num_put(dx, at.of[0], g * b * silu_slope(a));
        if (dother.at)
            num_put(dother, at.of[1], g * a * sigmoid(a));
    }
}

CUDA_KERNEL(silu_mul_grad)
{
    Loop<5> l = loop_over<5>(&c->call, arg_factors(&c->call, 0), {RESULT(0), RESULT(1), 0, 1, 2}, true);
    if (l.n)
        PRUN_LAUNCH(gate_grad, blocks_of_threads(l.n), BLOCK, 0, c->stream, l, OUT(0), OUT(1), ARG(0), ARG(1), ARG(2));
    return cudaGetLastError();
}

static __global__ void __launch_bounds__(BLOCK) convert(Loop<2> l, Num y, Num x)
{
    for GRID_STRIDE(i, l.n) {
        At<2> at = loop_at(l, i);
        num_put_any(y, at.of[0], num_get_any(x, at.of[1]));
    }
}

CUDA_KERNEL(cast)
{
    Loop<2> l = loop_over<2>(&c->call, out_factors(&c->call, 0), {RESULT(0), 0}, true);
    if (l.n)
        PRUN_LAUNCH(convert, blocks_of_threads(l.n), BLOCK, 0, c->stream, l, OUT(0), ARG(0));
    return cudaGetLastError();
}

/* ---- dropout: which elements are kept follows from their index in the whole tensor ---- */

struct Places {
    int       rank;
    AxisPlace axis[MAX_RANK];
};

static __global__ void __launch_bounds__(BLOCK) drop(Places p, int64_t n, int64_t d, uint64_t threshold, uint32_t key, float by,
                                                     const CudaStep *now, Num y, Num x)
{
    for GRID_STRIDE(i, n) {
        uint64_t at = (uint64_t)(place_row_of(p.axis, p.rank, i / d, now->micro) + i % d);
        uint32_t word = philox4(now->seed, key, at / 4, (uint64_t)now->step).word[at % 4];
        num_put(y, i, word >= threshold ? num_get(x, i) * by : 0);
    }
}

CUDA_KERNEL(dropout)
{
    const Tensor *t = c->call.outt[0];
    double p = attr_real(&c->call, "p");
    int64_t n = tensor_elements(t);
    Places places = {t->rank, {}};
    memcpy(places.axis, t->axis, sizeof places.axis);
    if (n)
        PRUN_LAUNCH(drop, blocks_of_threads(n), BLOCK, 0, c->stream, places, n, row_length(t), dropout_threshold(p), fnv1a(c->call.in->key),
                    (float)(1 / (1 - p)), c->now, OUT(0), ARG(0));
    return cudaGetLastError();
}
