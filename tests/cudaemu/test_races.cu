/* test_races.cu -- built with the thread sanitizer: each class of race is found, and its corrected twin is clean.
 *
 * Between streams by what operations read and write; within a kernel, and between its blocks, with a thread of the
 * sanitizer's for each CUDA thread (CUDAEMU_THREADS=1). */
#include "harness.h"
#include "../../kernels/cuda/launch.h"

#include <cublas_v2.h>
#include <nccl.h>

enum { N = 256 };

__global__ void fill(float *x, float v) { x[blockIdx.x * blockDim.x + threadIdx.x] = v; }
__global__ void add(float *to, const float *x) { to[blockIdx.x * blockDim.x + threadIdx.x] += x[blockIdx.x * blockDim.x + threadIdx.x]; }

static void fill_on(cudaStream_t s, float *x, float v) { PRUN_LAUNCH(fill, N / 32, 32, 0, s, x, v); }

static void order(cudaStream_t before, cudaStream_t after)
{
    cudaEvent_t e;
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK(cudaEventRecord(e, before));
    OK(cudaStreamWaitEvent(after, e, 0));
}

/* ---- between streams ---- */

/* A kernel writes on one stream what SECOND uses on another; with an event between if ORDERED. */
static void two_streams(bool ordered, void (*second)(float *, cudaStream_t))
{
    cudaStream_t a = new_stream(), b = new_stream();
    float *x = device_floats(N);
    fill_on(a, x, 1);
    if (ordered)
        order(a, b);
    second(x, b);
    OK(cudaDeviceSynchronize());
}

static void by_kernel(float *x, cudaStream_t s) { PRUN_LAUNCH(add, N / 32, 32, 0, s, x, x); }
static void by_copy(float *x, cudaStream_t s) { OK(cudaMemcpyAsync(device_floats(N), x, N * sizeof(float), cudaMemcpyDeviceToDevice, s)); }
static void by_memset(float *x, cudaStream_t s) { OK(cudaMemsetAsync(x + N / 2, 0, 4, s)); }
static void multiply(const float *a, const float *b, float *c, cudaStream_t s)
{
    float one = 1, zero = 0;
    cublasHandle_t h;
    OK(cublasCreate(&h));
    OK(cublasSetStream(h, s));
    OK(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_T, 16, 16, 16, &one, a, 16, b, 16, &zero, c, 16));
}
static void as_a(float *x, cudaStream_t s) { multiply(x, device_floats(N), device_floats(N), s); }
static void as_b(float *x, cudaStream_t s) { multiply(device_floats(N), x, device_floats(N), s); }
static void as_c(float *x, cudaStream_t s) { multiply(device_floats(N), device_floats(N), x, s); }
static void by_collective(float *x, cudaStream_t s)
{
    ncclComm_t c;
    OK(ncclCommInitAll(&c, 1, nullptr));
    OK(ncclAllReduce(x, x, N, ncclFloat, ncclSum, c, s));
}

static void kernels() { two_streams(false, by_kernel); }
static void kernels_ordered() { two_streams(true, by_kernel); }
static void copy() { two_streams(false, by_copy); }
static void copy_ordered() { two_streams(true, by_copy); }
static void set() { two_streams(false, by_memset); }
static void set_ordered() { two_streams(true, by_memset); }
static void product_a() { two_streams(false, as_a); }
static void product_b() { two_streams(false, as_b); }
static void product_c() { two_streams(false, as_c); }
static void product_ordered()
{
    two_streams(true, as_a);
    two_streams(true, as_b);
    two_streams(true, as_c);
}
static void collective() { two_streams(false, by_collective); }
static void collective_ordered() { two_streams(true, by_collective); }

/* The host reads pinned memory that a copy writes. */
static void host_reads(bool waits)
{
    float *host, *x = device_floats(N);
    cudaStream_t s = new_stream();
    OK(cudaMallocHost(reinterpret_cast<void **>(&host), N * sizeof(float)));
    fill_on(s, x, 2);
    OK(cudaMemcpyAsync(host, x, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    if (waits)
        OK(cudaStreamSynchronize(s));
    volatile float seen = host[7];
    (void)seen;
    OK(cudaDeviceSynchronize());
}
static void host_does_not_wait() { host_reads(false); }
static void host_waits() { host_reads(true); }

/* Two products on two streams with one workspace. */
static void workspaces(bool shared)
{
    float one = 1, zero = 0, zeros[N] = {0}, *a = device_floats(N, zeros);
    void *workspace[2] = {device_floats(1024), device_floats(1024)};
    for (int i = 0; i < 2; i++) {
        cublasHandle_t h;
        OK(cublasCreate(&h));
        OK(cublasSetStream(h, new_stream()));
        OK(cublasSetWorkspace(h, workspace[shared ? 0 : i], 4096));
        OK(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 16, 16, 16, &one, a, 16, a, 16, &zero, device_floats(N), 16));
    }
    OK(cudaDeviceSynchronize());
}
static void one_workspace() { workspaces(true); }
static void two_workspaces() { workspaces(false); }

/* A graph whose fork and join lack the wait before the join's work. */
static void graph(bool joined)
{
    cudaStream_t a = new_stream(), b = new_stream();
    float *x = device_floats(N);
    cudaGraph_t g;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    order(a, b);
    fill_on(b, x, 1);
    if (joined)
        order(b, a);
    PRUN_LAUNCH(add, N / 32, 32, 0, a, x, x);
    if (!joined)
        order(b, a);
    OK(cudaStreamEndCapture(a, &g));
    OK(cudaGraphInstantiate(&exec, g, 0));
    for (int i = 0; i < 2; i++)
        OK(cudaGraphLaunch(exec, a));
    OK(cudaDeviceSynchronize());
}
static void graph_without_wait() { graph(false); }
static void graph_with_wait() { graph(true); }

/* Ranks: each step fills, sums over ranks on a second stream, and uses the sum; many true orders, or one less. */
static void ranks(bool complete)
{
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    on_ranks(3, [&](int r) {
        ncclComm_t c, part;
        OK(ncclCommInitRank(&c, 3, id, r));
        OK(ncclCommSplit(c, r < 2, r, &part, nullptr));
        cudaStream_t compute = new_stream(), comm = new_stream();
        float *x = device_floats(N), *sum = device_floats(N);
        fill_on(compute, sum, 0);
        for (int step = 0; step < 4; step++) {
            fill_on(compute, x, (float)step);
            order(compute, comm);
            OK(ncclAllReduce(x, x, N, ncclFloat, ncclSum, step % 2 ? c : part, comm));
            OK(ncclGroupStart());
            OK(ncclSend(x, N / 2, ncclFloat, (r + 1) % 3, c, comm));
            OK(ncclRecv(x + N / 2, N / 2, ncclFloat, (r + 2) % 3, c, comm));
            OK(ncclGroupEnd());
            if (complete || step != 2 || r != 1)
                order(comm, compute);
            PRUN_LAUNCH(add, N / 32, 32, 0, compute, sum, x);
        }
        OK(cudaStreamSynchronize(compute));
        OK(cudaStreamSynchronize(comm));
        OK(ncclCommDestroy(c));
    });
}
static void ranks_all_events() { ranks(true); }
static void ranks_one_less() { ranks(false); }

/* What rank 1 wrote before a collective rank 0 reads after it: right where rank 0 needs data of rank 1's. */
static void through_collective(bool needs_data)
{
    static float cell;
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    on_ranks(2, [&](int r) {
        ncclComm_t c;
        OK(ncclCommInitRank(&c, 2, id, r));
        cudaStream_t s = new_stream();
        float *x = device_floats(N);
        if (r)
            cell = 5;
        if (needs_data)
            OK(ncclAllReduce(x, x, N, ncclFloat, ncclSum, c, s));
        else
            OK(ncclBroadcast(x, x, N, ncclFloat, 0, c, s));
        OK(cudaStreamSynchronize(s));
        volatile float seen = r ? 0 : cell;
        (void)seen;
    });
}
static void after_all_reduce() { through_collective(true); }
static void after_broadcast() { through_collective(false); }

/* ---- within a kernel ---- */

__global__ void through_shared(float *x, int with_barrier)
{
    __shared__ float values[64];
    values[threadIdx.x] = (float)threadIdx.x;
    if (with_barrier)
        __syncthreads();
    x[blockIdx.x * 64 + threadIdx.x] = values[63 - threadIdx.x];
}
static void shared_memory(int with_barrier)
{
    cudaStream_t s = new_stream();
    PRUN_LAUNCH(through_shared, 3, 64, 0, s, device_floats(192), with_barrier);
    OK(cudaStreamSynchronize(s));
}
static void no_barrier() { shared_memory(0); }
static void a_barrier() { shared_memory(1); }

/* A shuffle orders no memory; __syncwarp does. */
__global__ void through_warp(float *x, int with_sync)
{
    PRUN_DYNAMIC_SHARED(float, values);
    values[threadIdx.x] = (float)threadIdx.x;
    if (with_sync)
        __syncwarp();
    else
        __shfl_sync(0xffffffffu, 1, 0);
    x[threadIdx.x] = values[31 - threadIdx.x];
}
static void warp_memory(int with_sync)
{
    cudaStream_t s = new_stream();
    PRUN_LAUNCH(through_warp, 1, 32, 128, s, device_floats(32), with_sync);
    OK(cudaStreamSynchronize(s));
}
static void only_a_shuffle() { warp_memory(0); }
static void a_syncwarp() { warp_memory(1); }

__global__ void count(float *x, int atomic)
{
    if (atomic)
        atomicAdd(x, 1.0f);
    else if (threadIdx.x == 0)
        *x += 1;
}
static void count_blocks(int atomic)
{
    float zero = 0;
    cudaStream_t s = new_stream();
    PRUN_LAUNCH(count, 4, 8, 0, s, device_floats(1, &zero), atomic);
    OK(cudaStreamSynchronize(s));
}
static void blocks_add() { count_blocks(0); }
static void blocks_add_atomically() { count_blocks(1); }

/* Kernel after kernel on a stream is in order, block by block; a host function too. */
static void kernels_in_a_row()
{
    cudaStream_t s = new_stream();
    float *x = device_floats(N);
    fill_on(s, x, 1);
    PRUN_LAUNCH(add, N / 64, 64, 0, s, x, x);
    CHECK(read_floats(x, N, s)[N - 1] == 2);
}

#define RACE "WARNING: ThreadSanitizer: data race"
#define THREADS "CUDAEMU_THREADS=1"
static const Case cases[] = {
    {"two kernels without an event", kernels, RACE, nullptr},
    {"two kernels with one", kernels_ordered, nullptr, nullptr},
    {"a kernel and a copy without an event", copy, RACE, nullptr},
    {"a kernel and a copy with one", copy_ordered, nullptr, nullptr},
    {"a kernel and cudaMemset without an event", set, RACE, nullptr},
    {"a kernel and cudaMemset with one", set_ordered, nullptr, nullptr},
    {"a kernel and a product that reads A without an event", product_a, RACE, nullptr},
    {"a kernel and a product that reads B without an event", product_b, RACE, nullptr},
    {"a kernel and a product that writes without an event", product_c, RACE, nullptr},
    {"a kernel and products with one", product_ordered, nullptr, nullptr},
    {"a kernel and a collective without an event", collective, RACE, nullptr},
    {"a kernel and a collective with one", collective_ordered, nullptr, nullptr},
    {"the host does not wait for a copy", host_does_not_wait, RACE, nullptr},
    {"the host waits for a copy", host_waits, nullptr, nullptr},
    {"products that share a workspace", one_workspace, RACE, nullptr},
    {"products with workspaces of their own", two_workspaces, nullptr, nullptr},
    {"a graph without a wait", graph_without_wait, RACE, nullptr},
    {"a graph with it", graph_with_wait, nullptr, nullptr},
    {"ranks and streams with all events", ranks_all_events, nullptr, "CUDAEMU_SEED=5"},
    {"ranks and streams with one event less", ranks_one_less, RACE, nullptr},
    {"ranks that an all-reduce orders", after_all_reduce, nullptr, nullptr},
    {"ranks that a broadcast does not order", after_broadcast, RACE, nullptr},
    {"shared memory without a barrier", no_barrier, RACE, THREADS},
    {"shared memory with one", a_barrier, nullptr, THREADS},
    {"a warp's memory with only a shuffle", only_a_shuffle, RACE, THREADS},
    {"a warp's memory with __syncwarp", a_syncwarp, nullptr, THREADS},
    {"blocks that add without atomics", blocks_add, RACE, THREADS},
    {"blocks that add with atomics", blocks_add_atomically, nullptr, THREADS},
    {"kernels in a row", kernels_in_a_row, nullptr, THREADS},
    {"kernels in a row, in another order", kernels_in_a_row, nullptr, THREADS " CUDAEMU_SEED=6"},
};

int main(int argc, char **argv) { return RUN_CASES(argc, argv, cases); }
