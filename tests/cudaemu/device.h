/* device.h -- CUDA C++ for a C++ compiler: what nvcc gives a kernel without an include.
 *
 * A .cu file is compiled by g++ or clang++ with -x c++ -include device.h.  NVIDIA's own headers give the vector types,
 * bf16 and fp16 and the prototypes; here are the qualifiers, the indices, barriers, warp operations and atomics.  What
 * is missing is not to be used in kernels (README.md): cooperative groups, __activemask, curand, CUB, textures. */
#ifndef CUDAEMU_DEVICE_H
#define CUDAEMU_DEVICE_H

#define CUDAEMU 1
/* A block runs on one OS thread, so what its threads share is that thread's own. */
#define __shared__ static thread_local
#define __launch_bounds__(...)

#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cudaemu {

/* Where a CUDA thread is; blocks of a grid run one after another on the OS thread of their stream. */
struct ThreadState {
    uint3 thread;
    unsigned linear, lane, warp;
};
struct BlockState {
    uint3 block, size, grid;
    char *shared;                   /* dynamic shared memory, aligned to 1 KB */
};
/* Of no TLS model: what dlopen loads has no room for another than the dynamic one. */
extern __thread ThreadState *thread_now;
extern __thread BlockState block_now;

/* A line of source that threads meet at: two of them at different lines are a mistake. */
struct Site {
    const char *what, *file;
    int line;
};

enum BarrierKind { BARRIER_PLAIN, BARRIER_COUNT, BARRIER_AND, BARRIER_OR };
int barrier(BarrierKind kind, int predicate, Site site);

/* Values that the lanes of a mask give each other.  LANE_BYTES at most each. */
enum : unsigned { LANE_BYTES = 32 };
struct Exchange {
    alignas(LANE_BYTES) char lane[32][LANE_BYTES];
};
/* Waits for all lanes of MASK.  ORDERED: memory too, as __syncwarp.  Each lane says when it has read. */
const Exchange *exchange(unsigned mask, const void *value, size_t bytes, bool ordered, Site site);
void exchange_read(const Exchange *e);
void report_lane(unsigned lane, unsigned mask, Site site);

/* cp.async: a copy is made when it is waited for, not before. */
void async_copy(void *shared, const void *global, unsigned bytes, unsigned valid);
void async_commit();
void async_wait(unsigned pending);

void misaligned(const void *p, unsigned alignment, const char *what);

void launch_grid(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                 std::function<void()> body);

/* A launch: arguments are converted to the kernel's parameters and copied, as <<<>>> does. */
template <class... Params, class... Args>
void launch(const char *name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, Args... args)
{
    std::tuple<std::remove_const_t<Params>...> values(static_cast<std::remove_const_t<Params>>(args)...);
    launch_grid(name, reinterpret_cast<const void *>(kernel), grid, block, shared, stream,
                [kernel, values]() { std::apply(kernel, values); });
}

template <class T> inline T lane_value(const Exchange *e, unsigned lane)
{
    T v;
    memcpy(&v, e->lane[lane & 31], sizeof v);
    return v;
}

/* The value that lane SOURCE gave, for one lane of a shuffle. */
template <class T> inline T shuffle(unsigned mask, T value, unsigned source, Site site)
{
    static_assert(sizeof(T) <= LANE_BYTES && std::is_trivially_copyable<T>::value, "a shuffle moves small plain values");
    const Exchange *e = exchange(mask, &value, sizeof value, false, site);
    if (!(mask >> source & 1))
        report_lane(source, mask, site);
    value = lane_value<T>(e, source);
    exchange_read(e);
    return value;
}

} /* namespace cudaemu */

/* ---- indices ---- */

#define threadIdx (::cudaemu::thread_now->thread)
#define blockIdx  (::cudaemu::block_now.block)
#define blockDim  (::cudaemu::block_now.size)
#define gridDim   (::cudaemu::block_now.grid)
static const int warpSize __attribute__((unused)) = 32;

/* The caller's line, as the default of the last parameters. */
#define CUDAEMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define CUDAEMU_SITE(what) (::cudaemu::Site{what, file, line})

/* ---- barriers ---- */

inline void __syncthreads(CUDAEMU_HERE)
{
    ::cudaemu::barrier(::cudaemu::BARRIER_PLAIN, 0, CUDAEMU_SITE("__syncthreads"));
}
inline int __syncthreads_count(int p, CUDAEMU_HERE)
{
    return ::cudaemu::barrier(::cudaemu::BARRIER_COUNT, p, CUDAEMU_SITE("__syncthreads_count"));
}
inline int __syncthreads_and(int p, CUDAEMU_HERE)
{
    return ::cudaemu::barrier(::cudaemu::BARRIER_AND, p, CUDAEMU_SITE("__syncthreads_and"));
}
inline int __syncthreads_or(int p, CUDAEMU_HERE)
{
    return ::cudaemu::barrier(::cudaemu::BARRIER_OR, p, CUDAEMU_SITE("__syncthreads_or"));
}
inline void __syncwarp(unsigned mask = 0xffffffffu, CUDAEMU_HERE)
{
    char none = 0;
    ::cudaemu::exchange_read(::cudaemu::exchange(mask, &none, 1, true, CUDAEMU_SITE("__syncwarp")));
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* ---- warp operations ---- */

template <class T> inline T __shfl_sync(unsigned mask, T v, int source, int width = 32, CUDAEMU_HERE)
{
    unsigned first = ::cudaemu::thread_now->lane & ~((unsigned)width - 1);
    return ::cudaemu::shuffle(mask, v, first | ((unsigned)source & ((unsigned)width - 1)), CUDAEMU_SITE("__shfl_sync"));
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32, CUDAEMU_HERE)
{
    unsigned me = ::cudaemu::thread_now->lane, source = me ^ (unsigned)lanes, section = ~((unsigned)width - 1);
    return ::cudaemu::shuffle(mask, v, (source & section) > (me & section) ? me : source, CUDAEMU_SITE("__shfl_xor_sync"));
}
template <class T> inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, CUDAEMU_HERE)
{
    unsigned me = ::cudaemu::thread_now->lane, place = me & ((unsigned)width - 1);
    return ::cudaemu::shuffle(mask, v, place + delta < (unsigned)width ? me + delta : me, CUDAEMU_SITE("__shfl_down_sync"));
}
template <class T> inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, CUDAEMU_HERE)
{
    unsigned me = ::cudaemu::thread_now->lane, place = me & ((unsigned)width - 1);
    return ::cudaemu::shuffle(mask, v, place >= delta ? me - delta : me, CUDAEMU_SITE("__shfl_up_sync"));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, CUDAEMU_HERE)
{
    char vote = predicate != 0;
    const ::cudaemu::Exchange *e = ::cudaemu::exchange(mask, &vote, 1, false, CUDAEMU_SITE("a vote of a warp"));
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; l++)
        if (mask >> l & 1 && e->lane[l][0])
            votes |= 1u << l;
    ::cudaemu::exchange_read(e);
    return votes;
}
inline int __any_sync(unsigned mask, int predicate, CUDAEMU_HERE) { return __ballot_sync(mask, predicate, file, line) != 0; }
inline int __all_sync(unsigned mask, int predicate, CUDAEMU_HERE) { return __ballot_sync(mask, predicate, file, line) == mask; }

#define CUDAEMU_REDUCE(name, T, expression)                                                             \
    inline T name(unsigned mask, T value, CUDAEMU_HERE)                                                 \
    {                                                                                                   \
        const ::cudaemu::Exchange *e = ::cudaemu::exchange(mask, &value, sizeof value, false, CUDAEMU_SITE(#name)); \
        T a = ::cudaemu::lane_value<T>(e, (unsigned)__builtin_ctz(mask));                               \
        for (unsigned l = (unsigned)__builtin_ctz(mask) + 1; l < 32; l++)                               \
            if (mask >> l & 1) {                                                                        \
                T b = ::cudaemu::lane_value<T>(e, l);                                                   \
                a = expression;                                                                         \
            }                                                                                           \
        ::cudaemu::exchange_read(e);                                                                    \
        return a;                                                                                       \
    }
CUDAEMU_REDUCE(__reduce_add_sync, unsigned, a + b)
CUDAEMU_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
CUDAEMU_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
CUDAEMU_REDUCE(__reduce_add_sync, int, a + b)
CUDAEMU_REDUCE(__reduce_min_sync, int, a < b ? a : b)
CUDAEMU_REDUCE(__reduce_max_sync, int, a > b ? a : b)
#undef CUDAEMU_REDUCE

#include "device_math.h"

#endif
