/* test_builtins.cu -- what a kernel may call gives what CUDA says, in every order of threads and blocks. */
#include "harness.h"
#include "numbers.h"
#include "../../kernels/cuda/launch.h"
#include "../../kernels/cuda/ptx.h"

#include <vector>

/* ---- indices ---- */

__global__ void write_indices(int *out)
{
    int block = (int)((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);
    int thread = (int)((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    out[block * (int)(blockDim.x * blockDim.y * blockDim.z) + thread] = block * 1000 + thread;
}

static void indices()
{
    const int blocks = 2 * 3 * 2, threads = 5 * 3 * 4;
    cudaStream_t s = new_stream();
    float *memory = device_floats(blocks * threads);
    PRUN_LAUNCH(write_indices, dim3(2, 3, 2), dim3(5, 3, 4), 0, s, reinterpret_cast<int *>(memory));
    OK(cudaGetLastError());
    const int *got = reinterpret_cast<const int *>(read_floats(memory, blocks * threads, s));
    for (int b = 0; b < blocks; b++)
        for (int t = 0; t < threads; t++)
            CHECK(got[b * threads + t] == b * 1000 + t);
}

/* ---- a launch ---- */

template <class T, int SCALE> __global__ void scale_by(T *x, T by, long n)
{
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= by * SCALE;
}

static void launches()
{
    float one[3] = {1, 2, 3};
    cudaStream_t s = new_stream();
    float *x = device_floats(3, one);
    PRUN_LAUNCH((scale_by<float, 2>), 1, 32, 0, s, x, 3, 3);        /* arguments become the parameters' types */
    OK(cudaGetLastError());
    CHECK(read_floats(x, 3, s)[2] == 18);
    PRUN_LAUNCH((scale_by<float, 2>), 1, 1025, 0, s, x, 3, 3);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaSuccess);
    PRUN_LAUNCH((scale_by<float, 2>), dim3(1, 65536), 32, 0, s, x, 3, 3);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    PRUN_LAUNCH((scale_by<float, 2>), 1, 32, 48 << 10, s, x, 3, 3);        /* no room for what it has statically */
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(reinterpret_cast<const void *>(&scale_by<float, 2>), cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    PRUN_LAUNCH((scale_by<float, 2>), 1, 32, 64 << 10, s, x, 1, 3);
    OK(cudaGetLastError());
    CHECK(read_floats(x, 3, s)[0] == 12);
    OK(cudaSetDevice(1));
    PRUN_LAUNCH((scale_by<float, 2>), 1, 32, 0, s, x, 3, 3);        /* the stream is device 0's */
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
}

/* ---- barriers and shared memory ---- */

__global__ void reverse(float *x, int n)
{
    PRUN_DYNAMIC_SHARED(float, dynamic);
    __shared__ float fixed[256];
    int i = (int)threadIdx.x;
    dynamic[i] = x[blockIdx.x * n + i];
    __syncthreads();
    fixed[n - 1 - i] = dynamic[i];
    __syncthreads();
    x[blockIdx.x * n + i] = fixed[i];
}

__global__ void count_threads(int *out)
{
    int odd = (int)threadIdx.x % 2;
    int n = __syncthreads_count(odd), all = __syncthreads_and(threadIdx.x < 100), any = __syncthreads_or(threadIdx.x == 99);
    int none = __syncthreads_or(0);
    out[threadIdx.x] = n * 1000 + all * 100 + any * 10 + none;
}

static void barriers()
{
    const int n = 200, blocks = 3;
    std::vector<float> x(n * blocks);
    for (int i = 0; i < n * blocks; i++)
        x[(size_t)i] = (float)i;
    cudaStream_t s = new_stream();
    float *d = device_floats(x.size(), x.data());
    PRUN_LAUNCH(reverse, blocks, n, n * sizeof(float), s, d, n);
    const float *got = read_floats(d, x.size(), s);
    for (int b = 0; b < blocks; b++)
        for (int i = 0; i < n; i++)
            CHECK(got[b * n + i] == (float)(b * n + n - 1 - i));
    PRUN_LAUNCH(count_threads, 1, 100, 0, s, reinterpret_cast<int *>(d));
    const int *counts = reinterpret_cast<const int *>(read_floats(d, 100, s));
    for (int i = 0; i < 100; i++)
        CHECK(counts[i] == 50110);
}

/* ---- warps ---- */

__global__ void warp_values(int *out)
{
    unsigned all = 0xffffffffu;
    int lane = (int)threadIdx.x % 32, base = (int)threadIdx.x / 32 * 100, v = base + lane, *o = out + threadIdx.x * 16;
    o[0] = __shfl_sync(all, v, 5);
    o[1] = __shfl_sync(all, v, 3, 8);
    o[2] = __shfl_xor_sync(all, v, 16);
    o[3] = __shfl_down_sync(all, v, 3);
    o[4] = __shfl_up_sync(all, v, 3);
    o[5] = __shfl_down_sync(all, v, 3, 8);
    o[6] = (int)__ballot_sync(all, lane % 3 == 0);
    o[7] = __any_sync(all, lane == 7) * 2 + __all_sync(all, lane < 31);
    o[8] = __reduce_add_sync(all, lane);
    o[9] = __reduce_max_sync(all, v);
    unsigned sixteen = lane < 16 ? 0xffffu : 0xffff0000u;
    o[10] = lane < 16 ? __shfl_xor_sync(sixteen, v, 1) : 0;
    if (lane >= 16)
        o[10] = __shfl_xor_sync(sixteen, v, 2);
    double wide = v;
    o[11] = (int)__shfl_xor_sync(all, wide, 1);
    __syncwarp();
}

static void warps()
{
    cudaStream_t s = new_stream();
    float *d = device_floats(64 * 16);
    PRUN_LAUNCH(warp_values, 1, 64, 0, s, reinterpret_cast<int *>(d));
    const int *got = reinterpret_cast<const int *>(read_floats(d, 64 * 16, s));
    for (int t = 0; t < 64; t++) {
        int lane = t % 32, base = t / 32 * 100;
        const int *o = got + t * 16;
        CHECK(o[0] == base + 5);
        CHECK(o[1] == base + lane / 8 * 8 + 3);
        CHECK(o[2] == base + (lane ^ 16));
        CHECK(o[3] == base + (lane + 3 < 32 ? lane + 3 : lane));
        CHECK(o[4] == base + (lane >= 3 ? lane - 3 : lane));
        CHECK(o[5] == base + (lane % 8 + 3 < 8 ? lane + 3 : lane));
        CHECK(o[6] == 0x49249249);
        CHECK(o[7] == 2);
        CHECK(o[8] == 31 * 16 && o[9] == base + 31);
        CHECK(o[10] == base + (lane < 16 ? lane ^ 1 : lane ^ 2));
        CHECK(o[11] == base + (lane ^ 1));
    }
}

/* ---- atomics, bits, functions ---- */

__global__ void use_atomics(float *sum, int *n)
{
    atomicAdd(sum, 0.5f);
    atomicAdd(&n[0], 1);
    atomicMax(&n[1], (int)(blockIdx.x * blockDim.x + threadIdx.x));
    atomicMin(&n[2], -(int)threadIdx.x);
    atomicOr(&n[3], 1 << threadIdx.x % 8);
    atomicInc(reinterpret_cast<unsigned *>(&n[4]), 9);
    if (atomicCAS(&n[5], 0, 7) == 0)
        atomicExch(&n[6], 3);
}

static void atomics()
{
    float zero[8] = {0};
    cudaStream_t s = new_stream();
    float *d = device_floats(8, zero);
    PRUN_LAUNCH(use_atomics, 5, 40, 0, s, d, reinterpret_cast<int *>(d + 1));
    const float *got = read_floats(d, 8, s);
    const int *n = reinterpret_cast<const int *>(got + 1);
    CHECK(got[0] == 100);
    CHECK(n[0] == 200 && n[1] == 199 && n[2] == -39 && n[3] == 255 && n[4] == 0 && n[5] == 7 && n[6] == 3);
}

__global__ void use_functions(float *out)
{
    out[0] = rsqrtf(16.0f) + __fdividef(1.0f, 4.0f) + __saturatef(3.0f) + __expf(0.0f) + __logf(1.0f);
    out[1] = (float)(__popc(0xff) + __clz(1) + __ffs(8) + (int)__brev(1u << 31) + (int)__umulhi(1u << 31, 4));
    out[2] = __uint_as_float(__float_as_uint(1.5f)) + (float)__float_as_int(0.0f);
    out[3] = (float)min(3, 4) + max(1.5f, 2.5f) + (float)(__byte_perm(0x44332211, 0x88776655, 0x7410) == 0x88552211u);
    out[4] = __bfloat162float(__float2bfloat16(1.00390625f)) + __half2float(__float2half(0.5f));
    out[5] = __ldg(out) + (float)sizeof(__nv_bfloat162);
}

static void functions()
{
    cudaStream_t s = new_stream();
    float *d = device_floats(6);
    PRUN_LAUNCH(use_functions, 1, 1, 0, s, d);
    const float *got = read_floats(d, 6, s);
    CHECK(got[0] == 0.25f + 0.25f + 1 + 1);
    CHECK(got[1] == 8 + 31 + 4 + 1 + 2);
    CHECK(got[2] == 1.5f);
    CHECK(got[3] == 3 + 2.5f + 1);
    CHECK(got[4] == 1.0f + 0.5f);
    CHECK(got[5] == 2.5f + 4);
}

/* ---- PTX ---- */

__global__ void product(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *d)
{
    __shared__ __align__(16) __nv_bfloat16 rows[16 * 16], columns[8 * 16], turned[16 * 8];
    unsigned lane = threadIdx.x, fa[4], fb[2], ft[2];
    ptx_copy_async(&rows[lane * 8], &a[lane * 8], 16);
    if (lane < 16)
        ptx_copy_async(&columns[lane * 8], &b[lane * 8], 16);
    ptx_copy_async_commit();
    ptx_copy_async_wait<0>();
    __syncthreads();
    for (unsigned i = lane; i < 128; i += 32)
        turned[i % 16 * 8 + i / 16] = columns[i];
    __syncthreads();
    ptx_ldmatrix_x4(fa, &rows[lane % 16 * 16 + lane / 16 * 8]);
    ptx_ldmatrix_x2(fb, &columns[lane % 8 * 16 + lane / 8 % 2 * 8]);
    ptx_ldmatrix_x2_transposed(ft, &turned[lane % 16 * 8]);
    float c[4] = {0, 0, 0, 0};
    ptx_mma_bf16(c, fa, fb);
    ptx_mma_bf16(c, fa, ft);
    unsigned g = lane / 4, t = 2 * (lane % 4);
    for (unsigned i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + t + i % 2] = c[i];
}

static void tensor_cores()
{
    unsigned short a[16 * 16], b[8 * 16];
    float fa[16 * 16], fb[8 * 16];
    for (int i = 0; i < 16 * 16; i++)
        fa[i] = (float)(i * 7 % 13 - 6);
    for (int i = 0; i < 8 * 16; i++)
        fb[i] = (float)(i * 5 % 11 - 5);
    for (int i = 0; i < 16 * 16; i++)
        a[i] = cudaemu::to_bf16(fa[i]);
    for (int i = 0; i < 8 * 16; i++)
        b[i] = cudaemu::to_bf16(fb[i]);
    cudaStream_t s = new_stream();
    float *da = device_floats(128, reinterpret_cast<float *>(a)), *db = device_floats(64, reinterpret_cast<float *>(b)), *d = device_floats(128);
    PRUN_LAUNCH(product, 1, 32, 0, s, reinterpret_cast<__nv_bfloat16 *>(da), reinterpret_cast<__nv_bfloat16 *>(db), d);
    const float *got = read_floats(d, 128, s);
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 8; c++) {
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += fa[r * 16 + k] * fb[c * 16 + k];
            CHECK(got[r * 8 + c] == 2 * sum);
        }
}

__global__ void part_of_sixteen(const float *from, float *to)
{
    __shared__ __align__(16) float values[4];
    ptx_copy_async(values, from, 8);
    ptx_copy_async_commit();
    ptx_copy_async_wait<0>();
    for (int i = 0; i < 4; i++)
        to[i] = values[i];
}

static void partial_copies()
{
    float two[2] = {1, 2};
    cudaStream_t s = new_stream();
    float *d = device_floats(2, two), *o = device_floats(4);
    PRUN_LAUNCH(part_of_sixteen, 1, 1, 0, s, d, o);
    const float *got = read_floats(o, 4, s);
    CHECK(got[0] == 1 && got[1] == 2 && got[2] == 0 && got[3] == 0);
}

/* The last block adds what the others have left; allowed, as it waits for none. */
__global__ void sum_in_last_block(const float *x, float *part, unsigned *done, float *out)
{
    part[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    if (atomicAdd(done, 1u) == gridDim.x - 1) {
        *out = 0;
        for (unsigned b = 0; b < gridDim.x; b++)
            *out += part[b];
    }
}

static void last_block()
{
    float x[7] = {1, 2, 3, 4, 5, 6, 7}, zero[1] = {0};
    cudaStream_t s = new_stream();
    float *d = device_floats(7, x), *part = device_floats(7), *done = device_floats(1, zero), *out = device_floats(1);
    PRUN_LAUNCH(sum_in_last_block, 7, 1, 0, s, d, part, reinterpret_cast<unsigned *>(done), out);
    CHECK(read_floats(out, 1, s)[0] == 28);
}

static const Case cases[] = {
    {"indices", indices, nullptr, nullptr},
    {"launches", launches, nullptr, nullptr},
    {"barriers", barriers, nullptr, nullptr},
    {"barriers in another order", barriers, nullptr, "CUDAEMU_SEED=3"},
    {"warps", warps, nullptr, nullptr},
    {"warps in another order", warps, nullptr, "CUDAEMU_SEED=5"},
    {"atomics", atomics, nullptr, nullptr},
    {"functions", functions, nullptr, nullptr},
    {"mma and ldmatrix", tensor_cores, nullptr, nullptr},
    {"mma and ldmatrix in another order", tensor_cores, nullptr, "CUDAEMU_SEED=9"},
    {"asynchronous copies of less than 16 bytes", partial_copies, nullptr, nullptr},
    {"the last block adds", last_block, nullptr, "CUDAEMU_SEED=2"},
};

int main(int argc, char **argv) { return RUN_CASES(argc, argv, cases); }
