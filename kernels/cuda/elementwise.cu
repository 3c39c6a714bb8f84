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

/* All elements of a pack at once: an op is chosen once for them. */
static __device__ __forceinline__ Wide apply(const Function &f, const Wide &a, const Wide &b)
{
    Wide r;
#define OF_X(op, value)  case op: EACH_OF_WIDE(float x = a.of[k]; r.of[k] = (value)) break;
#define OF_XY(op, value) case op: EACH_OF_WIDE(float x = a.of[k], y = b.of[k]; r.of[k] = (value)) break;
    switch (f.op) {
    OF_XY(OP_add, x + y)
    OF_XY(OP_sub, x - y)
    OF_XY(OP_mul, x * y)
    OF_XY(OP_div, x / y)
    OF_X(OP_scale, x * f.by)
    OF_X(OP_shift, x + f.by)
    OF_X(OP_reciprocal, f.by / x)
    OF_X(OP_relu, x < 0 ? 0 : x)             /* a NaN stays one */
    OF_X(OP_silu, x * sigmoid(x))
    OF_X(OP_tanh, tanhf(x))
    OF_X(OP_gelu, gelu(x, f.exact))
    OF_XY(OP_relu_grad, y > 0 ? x : 0)
    OF_XY(OP_tanh_grad, x * (1 - y * y))
    OF_XY(OP_silu_grad, x * silu_slope(y))
    OF_XY(OP_gelu_grad, x * gelu_slope(y, f.exact))
    OF_XY(OP_silu_mul, x * sigmoid(x) * y)
    default: return a;
    }
#undef OF_X
#undef OF_XY
    return r;
}

/* Operands: the result, x, y. */
static __global__ void __launch_bounds__(BLOCK) map(Function f, Packs<3> p, Num out, Num x, Num y)
{
    for GRID_STRIDE(i, p.packs.n) {
        At<3> at = loop_at(p.packs, i);
        int n = pack_size(p, i);
        wide_put(out, at.of[0], n, apply(f, pack_get(p, 1, x, at.of[1], n), pack_get(p, 2, y, at.of[2], n)));
    }
}

static cudaError_t launch_map(const CudaCall *c, Function f)
{
    Packs<3> p = packs_of(loop_over<3>(&c->call, out_factors(&c->call, 0), {RESULT(0), 0, 1}, true), true);
    if (p.packs.n)
        PRUN_LAUNCH(map, blocks_of_threads(p.packs.n), BLOCK, 0, c->stream, f, p, OUT(0), ARG(0), c->call.in->narg > 1 ? ARG(1) : Num{NULL, DT_f32});
    return cudaGetLastError();
}

#define PLAIN(op) CUDA_KERNEL(op) { return launch_map(c, Function{OP_##op, 0, false}); }
#define BY(op)    CUDA_KERNEL(op) { return launch_map(c, Function{OP_##op, (float)attr_real(&c->call, "by"), false}); }
#define EXACT(op) CUDA_KERNEL(op) { return launch_map(c, Function{OP_##op, 0, attr_bool(&c->call, "exact")}); }

PLAIN(add) PLAIN(sub) PLAIN(mul) PLAIN(div) PLAIN(relu) PLAIN(silu) PLAIN(tanh)
PLAIN(relu_grad) PLAIN(tanh_grad) PLAIN(silu_grad) PLAIN(silu_mul)
BY(scale) BY(shift) BY(reciprocal)
EXACT(gelu) EXACT(gelu_grad)

extern "C" cudaError_t cuda_gelu_of(const CudaCall *c, const Tensor *xt, const void *x)
{
    Loop<3> l;
    memset(&l, 0, sizeof l);
    l.depth = 1;
    l.n = l.extent[0] = tensor_elements(c->call.outt[0]);
    l.step[0][0] = l.step[1][0] = 1;
    Packs<3> p = packs_of(l, true);
    if (l.n)
        PRUN_LAUNCH(map, blocks_of_threads(p.packs.n), BLOCK, 0, c->stream, (Function{OP_gelu, 0, attr_bool(&c->call, "exact")}), p, OUT(0),
                    num_of(xt, const_cast<void *>(x)), (Num{NULL, DT_f32}));
    return cudaGetLastError();
}

/* Operands: dx, dother, dy, x, y. */
static __global__ void __launch_bounds__(BLOCK) gate_grad(Packs<5> p, Num dx, Num dother, Num dy, Num x, Num y)
{
    for GRID_STRIDE(i, p.packs.n) {
        At<5> at = loop_at(p.packs, i);
        int n = pack_size(p, i);
        Wide g = pack_get(p, 2, dy, at.of[2], n), a = pack_get(p, 3, x, at.of[3], n), b = pack_get(p, 4, y, at.of[4], n), to_x, to_y;
        EACH_OF_WIDE(to_x.of[k] = g.of[k] * b.of[k] * silu_slope(a.of[k]); to_y.of[k] = g.of[k] * a.of[k] * sigmoid(a.of[k]))
        if (dx.at)
            wide_put(dx, at.of[0], n, to_x);
        if (dother.at)
            wide_put(dother, at.of[1], n, to_y);
    }
}

CUDA_KERNEL(silu_mul_grad)
{
    Packs<5> p = packs_of(loop_over<5>(&c->call, arg_factors(&c->call, 0), {RESULT(0), RESULT(1), 0, 1, 2}, true), true);
    if (p.packs.n)
        PRUN_LAUNCH(gate_grad, blocks_of_threads(p.packs.n), BLOCK, 0, c->stream, p, OUT(0), OUT(1), ARG(0), ARG(1), ARG(2));
    return cudaGetLastError();
}

/* Packs are of f32 and bf16; of other types one element. */
static __global__ void __launch_bounds__(BLOCK) convert(Packs<2> p, Num y, Num x)
{
    for GRID_STRIDE(i, p.packs.n) {
        At<2> at = loop_at(p.packs, i);
        int n = pack_size(p, i);
        if (num_real(x) && num_real(y))
            wide_put(y, at.of[0], n, pack_get(p, 1, x, at.of[1], n));
        else
            num_put_any(y, at.of[0], num_get_any(x, at.of[1]));
    }
}

static cudaError_t launch_convert(const CudaCall *c)
{
    Num y = OUT(0), x = ARG(0);
    Packs<2> p = packs_of(loop_over<2>(&c->call, out_factors(&c->call, 0), {RESULT(0), 0}, true), num_real(x) && num_real(y));
    if (p.packs.n)
        PRUN_LAUNCH(convert, blocks_of_threads(p.packs.n), BLOCK, 0, c->stream, p, y, x);
    return cudaGetLastError();
}

CUDA_KERNEL(cast) { return launch_convert(c); }
CUDA_KERNEL(transpose) { return launch_convert(c); }

/* ---- dropout: which elements are kept follows from their index in the whole tensor ---- */

struct Places {
    int       rank;
    AxisPlace axis[MAX_RANK];
};

/* Packs of rows of d elements; four neighbouring elements share a draw. */
static __global__ void __launch_bounds__(BLOCK) drop(Places p, int64_t rows, int64_t d, uint64_t threshold, uint32_t key, float by,
                                                     const CudaStep *now, Num y, Num x)
{
    int64_t packs = (d + WIDE - 1) / WIDE;
    for GRID_STRIDE(i, rows * packs) {
        int64_t row = i / packs, column = i % packs * WIDE;
        int n = wide_left(d, column);
        uint64_t at = (uint64_t)(place_row_of(p.axis, p.rank, row, now->micro) + column);
        Philox random = {};
        Wide w = wide_get(x, row * d + column, n);
#pragma unroll
        for (int k = 0; k < WIDE; k++) {
            if (k == 0 || (at + (uint64_t)k) % 4 == 0)
                random = philox4(now->seed, key, (at + (uint64_t)k) / 4, (uint64_t)now->step);
            w.of[k] = random.word[(at + (uint64_t)k) % 4] >= threshold ? w.of[k] * by : 0;
        }
        wide_put(y, row * d + column, n, w);
    }
}

CUDA_KERNEL(dropout)
{
    const Tensor *t = c->call.outt[0];
    double p = attr_real(&c->call, "p");
    int64_t d = row_length(t), rows = row_count(t);
    Places places = {t->rank, {}};
    memcpy(places.axis, t->axis, sizeof places.axis);
    if (rows)
        PRUN_LAUNCH(drop, blocks_of_threads(rows * ((d + WIDE - 1) / WIDE)), BLOCK, 0, c->stream, places, rows, d, dropout_threshold(p),
                    fnv1a(c->call.in->key), (float)(1 / (1 - p)), c->now, OUT(0), ARG(0));
    return cudaGetLastError();
}
