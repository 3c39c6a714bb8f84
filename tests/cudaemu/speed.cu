/* speed.cu -- what the emulator's parts cost in processor time: `make build/emu/speed && build/emu/speed`. */
#include "harness.h"
#include "../../kernels/cuda/launch.h"
#include "../../kernels/cuda/ptx.h"

#include <nccl.h>

#include <time.h>

/* Of processor time, of all threads. */
static double seconds()
{
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__global__ void nothing(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
__global__ void barriers(float *x, int n)
{
    for (int i = 0; i < n; i++)
        __syncthreads();
    x[threadIdx.x] = 1;
}
__global__ void shuffles(float *x, int n)
{
    float v = (float)threadIdx.x;
    for (int i = 0; i < n; i++)
        v = __shfl_xor_sync(0xffffffffu, v, 1);
    x[threadIdx.x] = v;
}
__global__ void products(float *x, int n)
{
    unsigned a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
    float d[4] = {0, 0, 0, 0};
    for (int i = 0; i < n; i++)
        ptx_mma_bf16(d, a, b);
    x[threadIdx.x] = d[0];
}

static cudaStream_t s;

/* Nanoseconds of one of N. */
static void print(const char *what, double start, double n) { printf("%-44s %10.1f ns\n", what, (seconds() - start) * 1e9 / n); }

static void launches(float *x)
{
    double start = seconds();
    for (int i = 0; i < 20000; i++)
        PRUN_LAUNCH(nothing, 1, 1, 0, s, x);
    OK(cudaStreamSynchronize(s));
    print("a launch, in a row", start, 20000);
    start = seconds();
    for (int i = 0; i < 5000; i++) {
        PRUN_LAUNCH(nothing, 1, 1, 0, s, x);
        OK(cudaStreamSynchronize(s));
    }
    print("a launch, waited for", start, 5000);
    start = seconds();
    PRUN_LAUNCH(nothing, 4000, 256, 0, s, x);
    OK(cudaStreamSynchronize(s));
    print("a thread without barriers", start, 4000 * 256);
}

static void inside(float *x)
{
    for (int threads : {32, 128, 1024}) {
        char text[64];
        PRUN_LAUNCH(barriers, 1, threads, 0, s, x, 1);      /* makes the stacks */
        OK(cudaStreamSynchronize(s));
        double start = seconds();
        PRUN_LAUNCH(barriers, 1, threads, 0, s, x, 1000);
        OK(cudaStreamSynchronize(s));
        snprintf(text, sizeof text, "a barrier, one thread of %d", threads);
        print(text, start, 1000.0 * threads);
        start = seconds();
        PRUN_LAUNCH(shuffles, 1, threads, 0, s, x, 1000);
        OK(cudaStreamSynchronize(s));
        snprintf(text, sizeof text, "a shuffle, one lane of %d", threads);
        print(text, start, 1000.0 * threads);
    }
    double start = seconds();
    PRUN_LAUNCH(products, 1, 32, 0, s, x, 1000);
    OK(cudaStreamSynchronize(s));
    print("mma.sync m16n8k16 of a warp", start, 1000);
}

static void events()
{
    cudaEvent_t e;
    cudaStream_t t = new_stream();
    OK(cudaEventCreate(&e));
    double start = seconds();
    for (int i = 0; i < 5000; i++) {
        OK(cudaEventRecord(e, i % 2 ? s : t));
        OK(cudaStreamWaitEvent(i % 2 ? t : s, e, 0));
    }
    OK(cudaDeviceSynchronize());
    print("an event from a stream to another", start, 5000);
}

static void collectives(int n, size_t count, int times)
{
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    double start = 0;
    on_ranks(n, [&](int r) {
        ncclComm_t c;
        OK(ncclCommInitRank(&c, n, id, r));
        cudaStream_t mine = new_stream();
        float *x = device_floats(count);
        OK(cudaMemsetAsync(x, 0, count * 4, mine));
        OK(cudaStreamSynchronize(mine));
        if (r == 0)
            start = seconds();
        for (int i = 0; i < times; i++)
            OK(ncclAllReduce(x, x, count, ncclFloat, ncclSum, c, mine));
        OK(cudaStreamSynchronize(mine));
    });
    char text[64];
    snprintf(text, sizeof text, "all-reduce of %zu bytes, %d ranks", count * 4, n);
    print(text, start, times);
}

int main()
{
    s = new_stream();
    float *x = device_floats(4000 * 256);
    launches(x);
    inside(x);
    events();
    collectives(4, 1000, 500);
    collectives(4, 100000, 50);
    collectives(8, 1000, 200);
    return 0;
}
