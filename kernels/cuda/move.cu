/* Ops that move elements: parts of an axis, axes joined, constants.  Transposes are in elementwise.cu. */
#include "kernels/cuda/device.cuh"

/* Every element of a loop, of any type, from x at an offset to y at an offset.  Operands: y, x.  Packs are of f32 and bf16. */
static __global__ void __launch_bounds__(BLOCK) copy(Packs<2> p, int64_t y_from, int64_t x_from, Num y, Num x)
{
    for GRID_STRIDE(i, p.packs.n) {
        At<2> at = loop_at(p.packs, i);
        int64_t to = at.of[0] + y_from, from = at.of[1] + x_from;
        int n = pack_size(p, i);
        if (num_real(y))
            wide_put(y, to, n, pack_get(p, 1, x, from, n));
        else
            num_put_int(y, to, num_int(x, from));
    }
}

static cudaError_t launch_copy(const CudaCall *c, const Loop<2> &l, int64_t y_from, int arg, int64_t x_from)
{
    Packs<2> p = packs_of(l, num_real(OUT(0)));
    if (l.n)
        PRUN_LAUNCH(copy, blocks_of_threads(p.packs.n), BLOCK, 0, c->stream, p, y_from, x_from, OUT(0), ARG(arg));
    return cudaGetLastError();
}

/* Index `at` of the axis that the result lacks. */
CUDA_KERNEL(select)
{
    const KCall *k = &c->call;
    int s = factor_of(arg_factors(k, 0) & ~out_factors(k, 0));
    return launch_copy(c, loop_over<2>(k, out_factors(k, 0), {RESULT(0), 0}, true), 0, 0, attr_int(k, "at") * arg_stride(k, 0, s));
}

/* Factors that operand and result share, and a pair of factors that is one axis under two names. */
static Loop<2> loop_of_pair(const KCall *k, FactorSet shared, int arg, int in, int out, int64_t extent)
{
    Loop<2> l = loop_over<2>(k, shared, {RESULT(0), arg}, true);
    int64_t step[2] = {out_stride(k, 0, out), arg_stride(k, arg, in)};
    loop_append(&l, extent, step);
    return l;
}

/* Indices from `first` of the axis that the result has under another name, of any type. */
CUDA_KERNEL(slice)
{
    const KCall *k = &c->call;
    FactorSet in = arg_factors(k, 0), out = out_factors(k, 0);
    int from = factor_of(in & ~out), to = factor_of(out & ~in);
    Loop<2> l = loop_of_pair(k, in & out, 0, from, to, k->in->extent[to]);
    return launch_copy(c, l, 0, 0, attr_int(k, "first") * arg_stride(k, 0, from));
}

/* Zeros, but x at the indices from `first` of the axis that only the result has; x has it under another name
 * (the reverse of slice) or not at all (of select). */
CUDA_KERNEL(place)
{
    const KCall *k = &c->call;
    FactorSet in = arg_factors(k, 0), out = out_factors(k, 0), own = in & ~out;
    int to = factor_of(out & ~in);
    Loop<2> l = own ? loop_of_pair(k, in & out, 0, factor_of(own), to, set_extent(k, own)) : loop_over<2>(k, in, {RESULT(0), 0}, true);
    cudaError_t e = clear(c, 0);
    return e ? e : launch_copy(c, l, attr_int(k, "first") * out_stride(k, 0, to), 0, 0);
}

/* An operand of concat without an axis of its own is one index long; one that lacks another axis of the result is
 * repeated along it. */
CUDA_KERNEL(concat)
{
    const KCall *k = &c->call;
    FactorSet out = out_factors(k, 0);
    int joined = factor_of(out & ~(arg_factors(k, 0) | arg_factors(k, 1)));
    int64_t first = 0;
    for (int a = 0; a < 2; a++) {
        FactorSet own = arg_factors(k, a) & ~out, rest = out & ~(1u << joined);
        Loop<2> l = own ? loop_of_pair(k, rest, a, factor_of(own), joined, set_extent(k, own)) : loop_over<2>(k, rest, {RESULT(0), a}, true);
        cudaError_t e = launch_copy(c, l, first * out_stride(k, 0, joined), a, 0);
        if (e)
            return e;
        first += set_extent(k, own);
    }
    return cudaSuccess;
}

static __global__ void set_one(Num y, double value)
{
    num_put_any(y, 0, value);
}

CUDA_KERNEL(constant)
{
    PRUN_LAUNCH(set_one, 1, 1, 0, c->stream, OUT(0), attr_real(&c->call, "value"));
    return cudaGetLastError();
}

CUDA_KERNEL(zeros)
{
    return clear(c, 0);
}

static __global__ void __launch_bounds__(BLOCK) count_up(Num y, int64_t n, AxisPlace axis, const CudaStep *now)
{
    for GRID_STRIDE(i, n)
        num_put_any(y, i, (double)place_global(&axis, i, now->micro));
}

CUDA_KERNEL(iota)
{
    int64_t n = tensor_elements(c->call.outt[0]);
    if (n)
        PRUN_LAUNCH(count_up, blocks_of_threads(n), BLOCK, 0, c->stream, OUT(0), n, c->call.outt[0]->axis[0], c->now);
    return cudaGetLastError();
}
