/* device.cuh -- what all CUDA kernels are written with: numbers of any type, loops over factors, sums of a block.
 *
 * Private to kernels/cuda.  Arithmetic is in f32 and a result is rounded once; a number beside tensors may be f64. */
#ifndef KERNELS_CUDA_DEVICE_CUH
#define KERNELS_CUDA_DEVICE_CUH

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"

#define _Noreturn __attribute__((noreturn))     /* C's word in the headers below */
extern "C" {
#include "base/text.h"
#include "kernels/cuda/limits.h"
}
#undef _Noreturn

/* Head of a launcher. */
#define CUDA_KERNEL(op) extern "C" cudaError_t cuda_##op(const CudaCall *c)

/* ---- numbers ---- */

/* Elements of a tensor; at NULL: there are none. */
struct Num {
    void *at;
    int   dtype;
};

static inline Num num_of(const Tensor *t, void *p) { return Num{p, t ? (int)t->dtype : (int)DT_f32}; }
#define ARG(i) num_of(c->call.argt[i], c->call.arg[i])
#define OUT(i) num_of(c->call.outt[i], c->call.out[i])
#define NONE (Num{NULL, DT_f32})

/* Of f32 or bf16. */
static __device__ __forceinline__ float num_get(const Num &x, int64_t i)
{
    return x.dtype == DT_bf16 ? __bfloat162float(static_cast<const __nv_bfloat16 *>(x.at)[i]) : static_cast<const float *>(x.at)[i];
}

static __device__ __forceinline__ void num_put(const Num &x, int64_t i, float value)
{
    if (x.dtype == DT_bf16)
        static_cast<__nv_bfloat16 *>(x.at)[i] = __float2bfloat16(value);
    else
        static_cast<float *>(x.at)[i] = value;
}

/* A number, or it added to what is there. */
static __device__ __forceinline__ void num_give(const Num &x, int64_t i, float value, bool adds)
{
    num_put(x, i, adds ? num_get(x, i) + value : value);
}

/* As if it had been stored and read again. */
static __device__ __forceinline__ float num_round(int dtype, float value)
{
    return dtype == DT_bf16 ? __bfloat162float(__float2bfloat16(value)) : value;
}

/* Of integers and bool. */
static __device__ __forceinline__ int64_t num_int(const Num &x, int64_t i)
{
    switch (x.dtype) {
    case DT_i64: return static_cast<const int64_t *>(x.at)[i];
    case DT_i32: return static_cast<const int32_t *>(x.at)[i];
    case DT_i16: return static_cast<const int16_t *>(x.at)[i];
    case DT_i8:  return static_cast<const int8_t *>(x.at)[i];
    default:     return static_cast<const uint8_t *>(x.at)[i];
    }
}

static __device__ __forceinline__ void num_put_int(const Num &x, int64_t i, int64_t value)
{
    switch (x.dtype) {
    case DT_i64:  static_cast<int64_t *>(x.at)[i] = value; break;
    case DT_i32:  static_cast<int32_t *>(x.at)[i] = (int32_t)value; break;
    case DT_i16:  static_cast<int16_t *>(x.at)[i] = (int16_t)value; break;
    case DT_i8:   static_cast<int8_t *>(x.at)[i] = (int8_t)value; break;
    case DT_bool: static_cast<uint8_t *>(x.at)[i] = value != 0; break;
    default:      static_cast<uint8_t *>(x.at)[i] = (uint8_t)value; break;
    }
}

static __host__ __device__ __forceinline__ bool num_real(const Num &x) { return x.dtype == DT_f32 || x.dtype == DT_bf16; }

/* Of any type. */
static __device__ __forceinline__ double num_get_any(const Num &x, int64_t i)
{
    if (x.dtype == DT_f64)
        return static_cast<const double *>(x.at)[i];
    return num_real(x) ? (double)num_get(x, i) : (double)num_int(x, i);
}

static __device__ __forceinline__ void num_put_any(const Num &x, int64_t i, double value)
{
    if (x.dtype == DT_f64)
        static_cast<double *>(x.at)[i] = value;
    else if (num_real(x))
        num_put(x, i, (float)value);
    else
        num_put_int(x, i, (int64_t)value);
}

/* ---- up to WIDE neighbouring numbers ---- */

/* What a thread takes at a time: 16 bytes of bf16, twice 16 of f32. */
constexpr int WIDE = 8;
struct alignas(16) Wide { float of[WIDE]; };

static __device__ __forceinline__ unsigned bf16_pair(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    unsigned word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

static __device__ __forceinline__ uint4 wide_bf16(const Wide &w)
{
    return make_uint4(bf16_pair(w.of[0], w.of[1]), bf16_pair(w.of[2], w.of[3]), bf16_pair(w.of[4], w.of[5]), bf16_pair(w.of[6], w.of[7]));
}

/* Where elements i.. can be loaded and stored 16 bytes at a time, else NULL: the one place that decides it. */
static __device__ __forceinline__ uint4 *wide_at(const Num &x, int64_t i, int n)
{
    char *at = static_cast<char *>(x.at) + i * (x.dtype == DT_bf16 ? 2 : 4);
    return n == WIDE && (reinterpret_cast<uintptr_t>(at) & 15) == 0 ? reinterpret_cast<uint4 *>(at) : NULL;
}

/* Elements as they lie in memory: loaded, and not looked at yet, so that a thread can have several loads on their way. */
struct Raw { unsigned word[WIDE]; };

/* The n elements from i on, of f32 or bf16, and zeros behind them; the same however they are aligned. */
static __device__ __forceinline__ Raw raw_get(const Num &x, int64_t i, int n)
{
    Raw r = {};
    const uint4 *at = wide_at(x, i, n);
    if (at) {
        uint4 a = at[0], b = {};
        if (x.dtype != DT_bf16)
            b = at[1];
        r = Raw{{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else if (x.dtype == DT_bf16) {
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            if (k < n)
                r.word[k / 2] |= (unsigned)__bfloat16_as_ushort(static_cast<const __nv_bfloat16 *>(x.at)[i + k]) << k % 2 * 16;
    } else {
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            if (k < n)
                r.word[k] = __float_as_uint(static_cast<const float *>(x.at)[i + k]);
    }
    return r;
}

static __device__ __forceinline__ Wide raw_wide(const Num &x, const Raw &r)
{
    Wide w;
    if (x.dtype == DT_bf16) {
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            w.of[k] = __uint_as_float(k % 2 ? r.word[k / 2] & 0xffff0000u : r.word[k / 2] << 16);
    } else {
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            w.of[k] = __uint_as_float(r.word[k]);
    }
    return w;
}

static __device__ __forceinline__ Wide wide_get(const Num &x, int64_t i, int n) { return raw_wide(x, raw_get(x, i, n)); }

static __device__ __forceinline__ void wide_put(const Num &x, int64_t i, int n, const Wide &w)
{
    uint4 *at = wide_at(x, i, n);
    if (!at) {
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            if (k < n)
                num_put(x, i + k, w.of[k]);
    } else if (x.dtype == DT_bf16) {
        *at = wide_bf16(w);
    } else {
        at[0] = make_uint4(__float_as_uint(w.of[0]), __float_as_uint(w.of[1]), __float_as_uint(w.of[2]), __float_as_uint(w.of[3]));
        at[1] = make_uint4(__float_as_uint(w.of[4]), __float_as_uint(w.of[5]), __float_as_uint(w.of[6]), __float_as_uint(w.of[7]));
    }
}

/* As num_give. */
static __device__ __forceinline__ void wide_give(const Num &x, int64_t i, int n, Wide w, bool adds)
{
    if (adds) {
        Wide there = wide_get(x, i, n);
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            w.of[k] = there.of[k] + w.of[k];
    }
    wide_put(x, i, n, w);
}

static __device__ __forceinline__ float wide_sum(const Wide &w)
{
    float sum = w.of[0];
#pragma unroll
    for (int k = 1; k < WIDE; k++)
        sum += w.of[k];
    return sum;
}

/* A statement for each of the elements, whose number is k. */
#define EACH_OF_WIDE(...) \
    { _Pragma("unroll") for (int k = 0; k < WIDE; k++) { __VA_ARGS__; } }

/* Elements of a row of d from i on, by the threads of a block; the first `wide_left` of them exist. */
#define ROW_STRIDE(i, d) (int64_t i = (int64_t)threadIdx.x * WIDE; i < (d); i += (int64_t)blockDim.x * WIDE)
static __device__ __forceinline__ int wide_left(int64_t d, int64_t i) { return (int)(d - i < WIDE ? d - i : WIDE); }

/* ---- loops over factors ---- */

/* All indices of some factors, in row-major order of the loops, seen in SEEN operands. */
template <int SEEN> struct Loop {
    int     depth;
    int64_t n;                        /* indices in all */
    int64_t extent[MAX_FACTORS], step[SEEN][MAX_FACTORS];
};
/* Element of each operand. */
template <int SEEN> struct At { int64_t of[SEEN]; };

/* Number of a result among operands, behind the arguments. */
#define RESULT(i) (MAX_ARGS + (i))

static inline int64_t operand_stride(const KCall *k, int operand, int factor)
{
    return operand < MAX_ARGS ? arg_stride(k, operand, factor) : out_stride(k, operand - MAX_ARGS, factor);
}

/* Appends a factor inside the others, joined to the one before where every operand allows. */
template <int SEEN> static void loop_append(Loop<SEEN> *l, int64_t extent, const int64_t *step)
{
    int last = l->depth - 1;
    bool joins = last >= 0;
    l->n *= extent;
    if (extent == 1)
        return;
    for (int i = 0; joins && i < SEEN; i++)
        joins = l->step[i][last] == step[i] * extent;
    if (!joins)
        l->extent[last = l->depth++] = 1;
    l->extent[last] *= extent;
    for (int i = 0; i < SEEN; i++)
        l->step[i][last] = step[i];
}

/* The factors of a set: in order of their numbers, as kernels on the CPU walk; or `sorted`, by the stride of the
 * operand that is seen first, so that neighbouring threads have neighbouring elements of it. */
template <int SEEN> static Loop<SEEN> loop_over(const KCall *k, FactorSet set, const int (&operand)[SEEN], bool sorted)
{
    Loop<SEEN> l;
    memset(&l, 0, sizeof l);
    l.n = 1;
    while (set) {
        int next = -1;
        for (int f = 0; f < k->in->nfactor; f++)
            if ((set >> f & 1) && (next < 0 || (sorted && operand_stride(k, operand[0], f) > operand_stride(k, operand[0], next))))
                next = f;
        int64_t step[SEEN];
        for (int i = 0; i < SEEN; i++)
            step[i] = operand_stride(k, operand[i], next);
        loop_append(&l, k->in->extent[next], step);
        set &= ~(1u << next);
    }
    return l;
}

/* Where the operands stand at the i-th index.  Divisions are of 32 bits where those do; FEW indices: they always do, and those of 64
 * bits, which are calls that want registers, are not there. */
template <int SEEN, bool FEW = false> static __device__ __forceinline__ At<SEEN> loop_at(const Loop<SEEN> &l, int64_t i)
{
    At<SEEN> at;
    for (int k = 0; k < SEEN; k++)
        at.of[k] = 0;
    for (int d = l.depth - 1; d >= 0; d--) {
        int64_t index = i;
        if (d > 0 && (FEW || l.n <= INT32_MAX)) {
            uint32_t rest = (uint32_t)i / (uint32_t)l.extent[d];
            index = (int64_t)((uint32_t)i - rest * (uint32_t)l.extent[d]);
            i = (int64_t)rest;
        } else if (d > 0) {
            index = i % l.extent[d];
            i /= l.extent[d];
        }
        for (int k = 0; k < SEEN; k++)
            at.of[k] += index * l.step[k][d];
    }
    return at;
}

/* A loop whose indices are packs: up to WIDE elements of the innermost factor where every operand has those side by
 * side or has one for all, else one. */
template <int SEEN> struct Packs {
    Loop<SEEN> packs;
    int64_t    length, each;          /* elements of the innermost factor, and of a pack */
    int64_t    step[SEEN];            /* between those of a pack */
};

template <int SEEN> static Packs<SEEN> packs_of(const Loop<SEEN> &l, bool wide)
{
    Packs<SEEN> p = {l, 1, 1, {}};
    int last = l.depth - 1;
    for (int i = 0; i < SEEN && last >= 0; i++)
        wide = wide && (l.step[i][last] == 0 || l.step[i][last] == 1);
    if (l.n == 0 || last < 0 || !wide)
        return p;
    p.length = l.extent[last];
    p.each = WIDE;
    p.packs.extent[last] = (p.length + WIDE - 1) / WIDE;
    p.packs.n = l.n / p.length * p.packs.extent[last];
    for (int i = 0; i < SEEN; i++) {
        p.step[i] = l.step[i][last];
        p.packs.step[i][last] *= WIDE;
    }
    return p;
}

/* Elements of the i-th pack. */
template <int SEEN> static __device__ __forceinline__ int pack_size(const Packs<SEEN> &p, int64_t i)
{
    int last = p.packs.depth - 1;
    if (p.length % p.each == 0)
        return (int)p.each;
    return wide_left(p.length, (last ? i % p.packs.extent[last] : i) * WIDE);
}

/* The n numbers of operand `seen` in the pack that begins at its element `at`; of none: zeros. */
template <int SEEN> static __device__ __forceinline__ Wide pack_get(const Packs<SEEN> &p, int seen, const Num &x, int64_t at, int n)
{
    Wide w = {};
    if (x.at && p.step[seen])
        return wide_get(x, at, n);
    if (x.at)
        EACH_OF_WIDE(w.of[k] = num_get(x, at))
    return w;
}

/* ---- what `mean` divides by ---- */

struct Mean {
    double fixed;                     /* 0: this is a sum */
    int    per_micro;                 /* times the samples of the window */
};

static inline Mean mean_of(const KCall *k, FactorSet set)
{
    Mean m = {1, 0};
    if (!attr_bool(k, "mean"))
        return Mean{0, 0};
    for (int f = 0; f < k->in->nfactor; f++) {
        if (!(set >> f & 1))
            continue;
        const AxisPlace *p = factor_place(k, f);
        m.per_micro += p->per_micro != 0;
        m.fixed *= p->per_micro ? 1 : (double)p->global;
    }
    return m;
}

static __device__ __forceinline__ float mean_by(const Mean &m, const CudaStep *now)
{
    double n = m.fixed;
    for (int i = 0; i < m.per_micro; i++)
        n *= (double)now->samples;
    return m.fixed == 0 ? 1.0f : (float)(1 / n);
}

/* ---- blocks ---- */

enum { BLOCK = 256, WARP = 32 };

/* Threads for a row of d elements that are taken WIDE at a time, and blocks for n threads of work. */
static inline unsigned row_block(int64_t d) { return d <= 512 ? 32 : d <= 1024 ? 64 : d <= 2048 ? 128 : BLOCK; }
static inline unsigned blocks_for(int64_t n, int64_t most) { return (unsigned)(n < most ? n : most); }
static inline unsigned blocks_of_threads(int64_t n) { return blocks_for((n + BLOCK - 1) / BLOCK, 16384); }
#define GRID_STRIDE(i, n) (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (int64_t)gridDim.x * blockDim.x)

template <class T> static __device__ __forceinline__ T warp_sum(T x)
{
    for (int lanes = WARP / 2; lanes; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (int lanes = WARP / 2; lanes; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

/* Over all threads of a block, whose size is a multiple of a warp's; each gets it. */
template <class T> static inline __device__ T block_sum(T x)
{
    __shared__ T part[BLOCK / WARP];
    x = warp_sum(x);
    if (blockDim.x == WARP)
        return x;
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = x;
    __syncthreads();
    x = part[0];
    for (unsigned w = 1; w < blockDim.x / WARP; w++)
        x += part[w];
    return x;
}

static inline __device__ float block_max(float x)
{
    __shared__ float part[BLOCK / WARP];
    x = warp_max(x);
    if (blockDim.x == WARP)
        return x;
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = x;
    __syncthreads();
    x = part[0];
    for (unsigned w = 1; w < blockDim.x / WARP; w++)
        x = fmaxf(x, part[w]);
    return x;
}

/* ---- sums over all rows: a part of each block, then all parts by one block in their order ---- */

/* Result 0 = by * sum of the parts at `work`, or that added to it; by: 1, or where `count` is given 1 / count, 0 for none. */
void launch_finish(const CudaCall *c, unsigned parts, Num count);

/* Zeros of any type. */
static inline cudaError_t clear(const CudaCall *c, int out)
{
    return c->call.out[out] ? cudaMemsetAsync(c->call.out[out], 0, (size_t)tensor_bytes(c->call.outt[out]), c->stream) : cudaSuccess;
}

/* Rows of a tensor seen along its last axis. */
static inline int64_t row_count(const Tensor *t)
{
    int64_t d = row_length(t);
    return d ? tensor_elements(t) / d : 0;
}

#endif
