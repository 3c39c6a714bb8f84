/* gemm.h -- one product of matrices as cuBLAS means it: by columns, D = epilogue(alpha op(A) op(B) + beta C). */
#ifndef CUDAEMU_GEMM_H
#define CUDAEMU_GEMM_H

#include "internal.h"

#include <cublas_v2.h>

namespace cudaemu {

struct Matrix {
    void *p;
    cudaDataType type;
    int64_t ld, stride;         /* in elements; STRIDE from one of the batch to the next */
};

/* What is done to the result; the bits of cublasLtEpilogue_t. */
enum { EP_BIAS = 4, EP_BGRAD = 16, EP_GELU = 32, EP_DGELU = 64, EP_AUX = 128, EP_BGRADA = 256, EP_BGRADB = 512 };
struct Epilogue {
    int bits = 0;
    void *bias = nullptr;       /* one for each row of D, read or (gradient) written; BGRADB: for each column */
    cudaDataType bias_type = CUDA_R_32F;
    int64_t bias_stride = 0;
    Matrix aux = {nullptr, CUDA_R_32F, 0, 0};   /* input of GELU: written going forward, read going backward */
};

struct Gemm {
    bool ta, tb, f64;
    int64_t m, n, k, batch;
    double alpha, beta;
    Matrix a, b, c, d;
    Epilogue ep;
    void *workspace;
    size_t workspace_bytes;
};

size_t type_bytes(cudaDataType t);      /* 0: not emulated */
/* Whether cuBLAS has a kernel for these types. */
bool gemm_types(cublasComputeType_t compute, cudaDataType a, cudaDataType b, cudaDataType d);
/* Whether sizes and leading dimensions make sense, and all of it lies in device memory; reports the latter. */
cublasStatus_t gemm_check(const Gemm &g, const char *call);
void gemm_run(const Gemm &g);

} /* namespace cudaemu */

#endif
