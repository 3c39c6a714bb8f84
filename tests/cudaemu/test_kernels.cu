/* test_kernels.cu -- mistakes in kernels are found, and the same kernels without them pass. */
#include "harness.h"
#include "../../kernels/cuda/launch.h"
#include "../../kernels/cuda/ptx.h"

#include <cmath>

/* ---- barriers and warps ---- */

__global__ void some_skip_a_barrier(float *x, int skip)
{
    if (!skip || threadIdx.x < 16)
        __syncthreads();
    x[threadIdx.x] = 1;
}

__global__ void two_barriers(float *x, int differ)
{
    if (differ && threadIdx.x >= 32) {
        __syncthreads();
        x[threadIdx.x] = 2;
    } else {
        __syncthreads();
        x[threadIdx.x] = 1;
    }
}

__global__ void barrier_and_shuffle(float *x, int differ)
{
    if (differ && threadIdx.x == 0)
        __syncthreads();
    x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    if (!differ)
        __syncthreads();
}

__global__ void shuffle_with_mask(float *x, unsigned mask, unsigned stay)
{
    if (threadIdx.x < stay)
        x[threadIdx.x] = __shfl_xor_sync(mask, 1.0f, 1);
}

/* Threads of a warp that stop at different operations, each for all. */
__global__ void shuffle_and_vote(float *x, int differ)
{
    if (differ && threadIdx.x < 16)
        x[threadIdx.x] = (float)__any_sync(0xffffffffu, 1);
    else
        x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

template <class... Args, class... Values> static void run(void (*kernel)(float *, Args...), int threads, Values... values)
{
    cudaStream_t s = new_stream();
    float *x = device_floats(1024);
    PRUN_LAUNCH(kernel, 2, threads, 0, s, x, values...);
    OK(cudaGetLastError());
    OK(cudaStreamSynchronize(s));
}

static void skipped_barrier() { run(some_skip_a_barrier, 64, 1); }
static void no_skipped_barrier() { run(some_skip_a_barrier, 64, 0); }
static void different_barriers() { run(two_barriers, 64, 1); }
static void same_barrier() { run(two_barriers, 64, 0); }
static void deadlock() { run(barrier_and_shuffle, 32, 1); }
static void no_deadlock() { run(barrier_and_shuffle, 32, 0); }
static void lanes_gone() { run(shuffle_with_mask, 32, 0xffffffffu, 16u); }
static void lanes_there() { run(shuffle_with_mask, 32, 0xffffu, 16u); }
static void not_in_mask() { run(shuffle_with_mask, 32, 0xffu, 16u); }
static void beyond_block() { run(shuffle_with_mask, 20, 0xffffffffu, 32u); }
static void different_operations() { run(shuffle_and_vote, 32, 1); }
static void same_operation() { run(shuffle_and_vote, 32, 0); }

/* ---- memory ---- */

__global__ void write_at(float *x, long at) { x[at] = 1; }
static void write_behind() { run(write_at, 1, 1024L + 512); }
static void write_before() { run(write_at, 1, -1L); }
static void write_inside() { run(write_at, 1, 1023L); }

/* The last bytes before a guard page are an allocation's only if it ends there. */
static void write_just_behind()
{
    cudaStream_t s = new_stream();
    float *x = device_floats(5);
    PRUN_LAUNCH(write_at, 1, 1, 0, s, x, 5L);
    OK(cudaStreamSynchronize(s));
}

__global__ void write_dynamic(float *x, int at)
{
    PRUN_DYNAMIC_SHARED(float, shared);
    shared[at] = 1;
    x[0] = shared[at];
}
static void run_dynamic(int at)
{
    cudaStream_t s = new_stream();
    float *x = device_floats(1);
    PRUN_LAUNCH(write_dynamic, 1, 1, 40, s, x, at);
    OK(cudaStreamSynchronize(s));
}
static void beyond_shared() { run_dynamic(10); }
static void within_shared() { run_dynamic(9); }

__global__ void read_dynamic(float *x)
{
    PRUN_DYNAMIC_SHARED(float, shared);
    x[threadIdx.x] = shared[threadIdx.x];
}
static void fresh_memory_is_nan()
{
    cudaStream_t s = new_stream();
    float *x = device_floats(4);
    CHECK(std::isnan(read_floats(x, 4, s)[3]));
    PRUN_LAUNCH(read_dynamic, 1, 4, 16, s, x);
    CHECK(std::isnan(read_floats(x, 4, s)[3]));
}

static void use_after_free()
{
    cudaStream_t s = new_stream();
    float *x = device_floats(1000);
    OK(cudaFree(x));
    PRUN_LAUNCH(write_at, 1, 1, 0, s, x, 1L);
    OK(cudaStreamSynchronize(s));
}

__device__ void fill_more(float *x, int depth)
{
    volatile float big[20000];
    for (int i = 0; i < 20000; i++)
        big[i] = (float)(depth + i);
    x[0] = big[depth];
    if (depth > 0)
        fill_more(x, depth - 1);
    x[1] = big[depth + 1];
}
__global__ void fill_stack(float *x, int depth) { fill_more(x, depth); }
static void stack_overflow() { run(fill_stack, 1, 5); }

__global__ void load_four(float *x, long at) { *reinterpret_cast<float4 *>(x + 4) = *reinterpret_cast<const float4 *>(x + at); }
static void misaligned_load() { run(load_four, 1, 1L); }
static void aligned_load() { run(load_four, 1, 8L); }

/* ---- asynchronous copies ---- */

__global__ void copy_to_shared(const float *from, float *to, int wait)
{
    __shared__ __align__(16) float values[4];
    for (int i = 0; i < 4; i++)
        values[i] = -1;
    ptx_copy_async(values, from, 16);
    ptx_copy_async_commit();
    if (wait)
        ptx_copy_async_wait<0>();
    for (int i = 0; i < 4; i++)
        to[i] = values[i];
    ptx_copy_async_wait<0>();
}
static float copied(int wait)
{
    float four[4] = {1, 2, 3, 4};
    cudaStream_t s = new_stream();
    float *d = device_floats(4, four), *o = device_floats(4);
    PRUN_LAUNCH(copy_to_shared, 1, 1, 0, s, d, o, wait);
    return read_floats(o, 4, s)[3];
}
static void copy_waited_for() { CHECK(copied(1) == 4); }
static void copy_not_waited_for() { CHECK(copied(0) == -1); }      /* the value before: the mistake shows */

__global__ void copy_and_leave(float *x)
{
    __shared__ __align__(16) float values[4];
    ptx_copy_async(values, x, 16);
    ptx_copy_async_commit();
}
static void copy_left_behind() { run(copy_and_leave, 1); }

/* ---- order of threads: a missing barrier gives wrong values without a sanitizer too ---- */

__global__ void rotate(float *x, int with_barrier)
{
    __shared__ float values[64];
    values[threadIdx.x] = (float)threadIdx.x;
    if (with_barrier)
        __syncthreads();
    x[threadIdx.x] = values[(threadIdx.x + 1) % 64];
    __syncthreads();
    values[threadIdx.x] = -1;
}
static bool rotates(int with_barrier)
{
    cudaStream_t s = new_stream();
    float *x = device_floats(64);
    PRUN_LAUNCH(rotate, 2, 64, 0, s, x, with_barrier);
    const float *got = read_floats(x, 64, s);
    for (int i = 0; i < 64; i++)
        if (got[i] != (float)((i + 1) % 64))
            return false;
    return true;
}
static void barrier_gives_values() { CHECK(rotates(1)); }
static void no_barrier_gives_others() { CHECK(!rotates(0)); }

/* ---- what is printed if asked for; it ends as a failure so that its output is looked at ---- */

static void printing()
{
    run(write_at, 1, 5L);
    exit(3);
}

static const Case cases[] = {
    {"threads that skip a barrier", skipped_barrier, "divergent barrier", nullptr},
    {"no thread skips it", no_skipped_barrier, nullptr, nullptr},
    {"threads at two barriers", different_barriers, "divergent barrier", nullptr},
    {"all at one barrier", same_barrier, nullptr, nullptr},
    {"a barrier and a shuffle wait for each other", deadlock, "deadlock", nullptr},
    {"first the shuffle, then the barrier", no_deadlock, nullptr, nullptr},
    {"a mask names lanes that have left", lanes_gone, "have left the kernel", "CUDAEMU_SEED=4"},
    {"a mask names lanes that never come", lanes_gone, "lane", nullptr},
    {"a mask names those that come", lanes_there, nullptr, nullptr},
    {"a lane is not in its mask", not_in_mask, "is not in the mask", nullptr},
    {"a mask goes beyond the block", beyond_block, "not in the block", nullptr},
    {"lanes at different operations", different_operations, "divergent warp", nullptr},
    {"lanes at one operation", same_operation, nullptr, nullptr},
    {"a write behind an allocation", write_behind, "behind an allocation of 4096 bytes", nullptr},
    {"a write before an allocation", write_before, "4 bytes before an allocation", nullptr},
    {"a write at its end", write_inside, nullptr, nullptr},
    {"a write one element behind an allocation", write_just_behind, "written 0 bytes behind its end", nullptr},
    {"a write behind dynamic shared memory", beyond_shared, "dynamic shared memory of 40 bytes", nullptr},
    {"a write at its end, shared", within_shared, nullptr, nullptr},
    {"fresh memory is NaN", fresh_memory_is_nan, nullptr, nullptr},
    {"use after free", use_after_free, "memory of 4000 bytes that was freed", nullptr},
    {"a stack overflows", stack_overflow, "the end of its stack", nullptr},
    {"a misaligned load of 16 bytes", misaligned_load, "misaligned", nullptr},
    {"an aligned load of 16 bytes", aligned_load, nullptr, nullptr},
    {"an asynchronous copy, waited for", copy_waited_for, nullptr, nullptr},
    {"an asynchronous copy, not waited for", copy_not_waited_for, nullptr, nullptr},
    {"an asynchronous copy, left behind", copy_left_behind, "asynchronous copies", nullptr},
    {"values over a barrier", barrier_gives_values, nullptr, "CUDAEMU_SEED=1"},
    {"wrong values without it", no_barrier_gives_others, nullptr, nullptr},
    {"a profile by kernel", printing, "1 launches", "CUDAEMU_PROFILE=1"},
    {"a trace of streams", printing, "device 0, stream 0: kernel", "CUDAEMU_TRACE=1"},
    {"a setting that is no number", printing, "CUDAEMU_SEED is 'x'", "CUDAEMU_SEED=x"},
    {"faults that are no faults", printing, "CUDAEMU_FAIL is 'cudaMalloc'", "CUDAEMU_FAIL=cudaMalloc"},
};

int main(int argc, char **argv) { return RUN_CASES(argc, argv, cases); }
