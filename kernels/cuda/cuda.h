#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H
/* CUDA kernels: one instruction of a Program, executed on memory of a GPU.
 *
 * A launcher puts the kernels of its instruction on a stream and returns; it allocates nothing, waits for
 * nothing and copies nothing to or from the host, so that calls can be captured in a CUDA graph.  What
 * changes from step to step lies in device memory (CudaStep), except whether results are overwritten or
 * added to: `first` of the host's KStep, the only number beside `optimizer` that is read there.  All sums
 * run in an order that depends on shapes alone; nothing is summed by atomics. */
#include <cuda_runtime_api.h>

#include "kernels/operand.h"

/* Numbers of the current step in device memory, see KStep; written before the step's first kernel. */
typedef struct CudaStep {
    uint64_t seed;
    int64_t  step, micro, samples;
    double   lr, correction1, correction2;
} CudaStep;

/* What a library said as it failed, and its name; NULL: none did. */
typedef struct CudaFault { const char *by; char words[256]; } CudaFault;

typedef struct CudaCall {
    KCall           call;             /* arg, out and work are device addresses; work: cuda_workspace() bytes, aligned to 256; no team */
    const CudaStep *now;              /* device memory */
    cudaStream_t    stream;           /* not the default one */
    struct cublasLtContext *lt;       /* a cublasLtHandle_t */
    void           *lt_work;          /* CUDA_LT_WORKSPACE bytes of device memory, for products on this stream alone */
    CudaFault      *fault;            /* where a launcher leaves it; NULL: nobody asks */
} CudaCall;

enum { CUDA_LT_WORKSPACE = 32 << 20 };

typedef cudaError_t (*CudaKernel)(const CudaCall *);

/* The launcher for an instruction whose operands are f32 and bf16 (scalars may be f64); NULL when there is
 * none (say so by name). */
CudaKernel cuda_kernel_of(const Instr *, const Program *);

/* Scratch bytes of an instruction on the current device.  What a library executes is compiled for it here, once for each shape. */
int64_t cuda_workspace(const Instr *, const Program *);
/* NULL: an attention or its gradient is executed by cuDNN; else why not.  cuda_workspace() was asked before. */
const char *cuda_not_cudnn(const Instr *, const Program *);
/* Of the products launched so far: how many shapes cuBLASLt does not support, so that they run by loops. */
int cuda_products_by_loops(void);
/* The version of cuDNN; 0: it is not there, and *why says it. */
size_t cuda_cudnn_version(const char **why);

#define CUDA(op) cudaError_t cuda_##op(const CudaCall *c);
#include "kernels/cuda/cuda.def"
#undef CUDA

/* A call into a library failed: the error of what was executed before, if that is why, else cudaErrorUnknown and the library's words. */
cudaError_t cuda_library_failed(const CudaCall *, const char *library, const char *words);

/* The product of arguments 0 and 1 by loops, for what is no matrix product; bias: argument 2 is added. */
cudaError_t cuda_product(const CudaCall *, bool bias);
/* Result 0 = gelu(x), x of its shape. */
cudaError_t cuda_gelu_of(const CudaCall *, const Tensor *xt, const void *x);

#endif
