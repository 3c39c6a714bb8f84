/* cublas.cpp -- the part of cuBLAS that multiplies: GemmEx and its strided batches, scalars in host memory. */
#include "gemm.h"

using namespace cudaemu;

struct cublasContext {
    int device;
    cudaStream_t stream;
    void *workspace;
    size_t workspace_bytes;
};

extern "C" cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    Hidden hidden;
    if (int code = fault("cublasCreate"))
        return (cublasStatus_t)code;
    if (sticky(current_device()))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasContext{current_device(), nullptr, nullptr, 0};
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    Hidden hidden;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int *version)
{
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

/* Takes the workspace away, as the real call does. */
extern "C" cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    Hidden hidden;
    handle->stream = stream;
    handle->workspace = nullptr;
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream)
{
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    Hidden hidden;
    if (reinterpret_cast<uintptr_t>(workspace) % 256 || (bytes && !memory_check(workspace, bytes, MEM_DEVICE, "the workspace of cuBLAS")))
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

extern "C" cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t mode)
{
    return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

extern "C" const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value was used as an argument";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the GPU program failed to execute";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the requested functionality is not supported";
    default: return "unknown status";
    }
}
extern "C" const char *cublasGetStatusName(cublasStatus_t status) { return cublasGetStatusString(status); }

extern "C" cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType a_type, int lda, long long a_stride, const void *b, cudaDataType b_type, int ldb,
    long long b_stride, const void *beta, void *c, cudaDataType c_type, int ldc, long long c_stride, int batch,
    cublasComputeType_t compute, cublasGemmAlgo_t)
{
    Hidden hidden;
    if (int code = fault("cublasGemm"))
        return (cublasStatus_t)code;
    if (!handle || sticky(current_device()))
        return handle ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_NOT_INITIALIZED;
    if (handle->device != current_device())
        report("a handle of cuBLAS for device %d is used on device %d", handle->device, current_device());
    cudaStream_t s = resolve(handle->stream, "a product of cuBLAS");
    if (!s || !gemm_types(compute, a_type, b_type, c_type))
        return s ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_INVALID_VALUE;
    Gemm g = {};
    g.ta = ta != CUBLAS_OP_N;
    g.tb = tb != CUBLAS_OP_N;
    g.f64 = compute == CUBLAS_COMPUTE_64F;
    g.m = m;
    g.n = n;
    g.k = k;
    g.batch = batch;
    g.alpha = g.f64 ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha);
    g.beta = g.f64 ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta);
    g.a = Matrix{const_cast<void *>(a), a_type, lda, a_stride};
    g.b = Matrix{const_cast<void *>(b), b_type, ldb, b_stride};
    g.c = g.d = Matrix{c, c_type, ldc, c_stride};
    g.workspace = handle->workspace;
    g.workspace_bytes = handle->workspace_bytes;
    if (batch > 1 && c_stride < (long long)ldc * (n - 1) + m)
        report("a batch of products writes matrices that overlap: %d x %d with stride %lld", m, n, c_stride);
    if (cublasStatus_t status = gemm_check(g, "a product of cuBLAS"))
        return status;
    enqueue(s, Operation{[g]() { gemm_run(g); }, "a product of cuBLAS", "gemm", {}, false});
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType a_type, int lda, const void *b, cudaDataType b_type, int ldb, const void *beta,
    void *c, cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    return cublasGemmStridedBatchedEx(handle, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type, ldc, 0, 1,
                                      compute, algo);
}

extern "C" cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc)
{
    return cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c, CUDA_R_32F, ldc,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
