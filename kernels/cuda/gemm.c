/* Products by cuBLASLt: kernels/product.h says which matrices they are.
 *
 * cuBLASLt sees columns where we see rows, so it computes the transpose of each matrix: its A is our second operand.
 * What a product needs beside pointers - layouts, and the algorithm that the heuristic picks - is found once per shape and
 * alignment, and kept for the process. */
#include <cublasLt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/product.h"

/* All that the choice of an algorithm depends on; no padding, so that keys compare as bytes. */
typedef struct Key {
    int64_t  m, n, k, lda, ldb, ldc, stride_a, stride_b, stride_c, stride_bias, batches;
    uint32_t ta, tb, type, result_type, epilogue, align_a, align_b, align_c;
    int64_t  ld_aux, device;
    uint32_t align_bias, pad;
} Key;

typedef struct Entry {
    Key                    key;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t   algorithm;
    cublasStatus_t         status;    /* of the heuristic: what no algorithm computes is not asked again */
} Entry;

/* Programs have some tens of shapes, so a list will do.  Guarded by `lock`; entries stay where they are. */
enum { MOST_ENTRIES = 4096 };
static Entry *entries[MOST_ENTRIES];
static int nentries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static cudaDataType data_type(uint32_t t)
{
    return t == DT_bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The alignment of an address, as far as all slots of a buffer share it. */
static uint32_t alignment(const void *p)
{
    uintptr_t low = (uintptr_t)p & -(uintptr_t)p;
    return low == 0 || low > BUFFER_ALIGN ? BUFFER_ALIGN : (uint32_t)low;
}

static cublasStatus_t layout(cublasLtMatrixLayout_t *l, uint32_t type, int64_t rows, int64_t columns, int64_t ld, int64_t batches, int64_t stride)
{
    int32_t count = (int32_t)batches;
    cublasStatus_t s = cublasLtMatrixLayoutCreate(l, data_type(type), (uint64_t)columns, (uint64_t)rows, ld);
    if (s == CUBLAS_STATUS_SUCCESS && batches > 1)
        s = cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (s == CUBLAS_STATUS_SUCCESS && batches > 1)
        s = cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return s;
}

typedef struct Setting { cublasLtMatmulDescAttributes_t what; const void *value; size_t bytes; } Setting;

static cublasStatus_t settings(cublasLtMatmulDesc_t d, const Setting *s, int n)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < n && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulDescSetAttribute(d, s[i].what, s[i].value, s[i].bytes);
    return status;
}

/* What is computed; the pointers of an epilogue are set per call. */
static cublasStatus_t describe(cublasLtMatmulDesc_t *d, const Key *k, const void *bias, void *aux)
{
    int32_t ta = k->tb ? CUBLAS_OP_T : CUBLAS_OP_N, tb = k->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    Setting always[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta},
                        {CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb},
                        {CUBLASLT_MATMUL_DESC_EPILOGUE, &k->epilogue, sizeof k->epilogue}};
    Setting biased[] = {{CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias},
                        {CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &k->stride_bias, sizeof k->stride_bias}};
    Setting saved[] = {{CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux},
                       {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &k->ld_aux, sizeof k->ld_aux}};
    cublasStatus_t s = cublasLtMatmulDescCreate(d, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = settings(*d, always, 3);
    if (s == CUBLAS_STATUS_SUCCESS && bias)
        s = settings(*d, biased, k->batches > 1 ? 2 : 1);
    if (s == CUBLAS_STATUS_SUCCESS && aux)
        s = settings(*d, saved, 2);
    return s;
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t *p, const Key *k)
{
    uint64_t workspace = CUDA_LT_WORKSPACE;
    uint32_t result = k->align_bias < k->align_c ? k->align_bias : k->align_c;       /* what an epilogue reads is taken with the result */
    const uint32_t bytes[] = {k->align_b, k->align_a, k->align_c, result};
    const cublasLtMatmulPreferenceAttributes_t what[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasStatus_t s = cublasLtMatmulPreferenceCreate(p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulPreferenceSetAttribute(*p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (int i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++)
        s = cublasLtMatmulPreferenceSetAttribute(*p, what[i], &bytes[i], sizeof bytes[i]);
    return s;
}

static cublasStatus_t make_layouts(Entry *e)
{
    const Key *k = &e->key;
    int64_t n = k->batches;
    cublasStatus_t s = layout(&e->a, k->type, k->ta ? k->k : k->m, k->ta ? k->m : k->k, k->lda, n, k->stride_a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = layout(&e->b, k->type, k->tb ? k->n : k->k, k->tb ? k->k : k->n, k->ldb, n, k->stride_b);
    return s == CUBLAS_STATUS_SUCCESS ? layout(&e->c, k->result_type, k->m, k->n, k->ldc, n, k->stride_c) : s;
}

static cublasStatus_t choose(cublasLtHandle_t lt, cublasLtMatmulDesc_t d, Entry *e)
{
    cublasLtMatmulPreference_t p = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t s = make_layouts(e);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = prefer(&p, &e->key);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulAlgoGetHeuristic(lt, d, e->b, e->a, e->c, e->c, p, 1, &result, &found);
    if (s == CUBLAS_STATUS_SUCCESS && found < 1)
        s = CUBLAS_STATUS_NOT_SUPPORTED;
    if (s == CUBLAS_STATUS_SUCCESS)
        e->algorithm = result.algo;
    if (p)
        cublasLtMatmulPreferenceDestroy(p);
    return s;
}

/* The entry of a key, made at its first use; NULL: no more room. */
static const Entry *entry_of(cublasLtHandle_t lt, cublasLtMatmulDesc_t d, const Key *k)
{
    Entry *e = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < nentries && !e; i++)
        if (memcmp(&entries[i]->key, k, sizeof *k) == 0)
            e = entries[i];
    if (!e && nentries < MOST_ENTRIES && (e = calloc(1, sizeof *e))) {
        e->key = *k;
        e->status = choose(lt, d, e);
        entries[nentries++] = e;
    }
    pthread_mutex_unlock(&lock);
    return e;
}

int cuda_products_by_loops(void)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < nentries; i++)
        n += entries[i]->status == CUBLAS_STATUS_NOT_SUPPORTED &&
             (entries[i]->key.epilogue == CUBLASLT_EPILOGUE_DEFAULT || entries[i]->key.epilogue == CUBLASLT_EPILOGUE_BIAS);
    pthread_mutex_unlock(&lock);
    return n;
}

/* Where the operands of one call are. */
typedef struct Pointers { const void *a, *b, *bias; void *y, *aux; } Pointers;

static cublasStatus_t multiply(const CudaCall *c, const Key *k, const Pointers *p)
{
    const float one = 1, beta = kcall_adds(&c->call, 0) ? 1 : 0;
    cublasLtMatmulDesc_t d = NULL;
    cublasStatus_t s = describe(&d, k, p->bias, p->aux);
    const Entry *e = s == CUBLAS_STATUS_SUCCESS ? entry_of(c->lt, d, k) : NULL;
    if (s == CUBLAS_STATUS_SUCCESS)
        s = e ? e->status : CUBLAS_STATUS_ALLOC_FAILED;
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmul(c->lt, d, &one, p->b, e->b, p->a, e->a, &beta, p->y, e->c, p->y, e->c, &e->algorithm, c->lt_work, CUDA_LT_WORKSPACE, c->stream);
    if (d)
        cublasLtMatmulDescDestroy(d);
    return s;
}

/* ---- from a call to matrices ---- */

/* The steps of batch factors as one loop in the operands: 0 first, 1 second, 2 result, 3 bias; false: they are none. */
static bool fold_batch(const KCall *c, FactorSet batch, int64_t *n, int64_t step[4])
{
    *n = 1;
    memset(step, 0, 4 * sizeof *step);
    while (batch) {
        int inner = -1;                              /* smallest stride in the result goes next */
        for (int f = 0; f < c->in->nfactor; f++)
            if ((batch >> f & 1) && (inner < 0 || out_stride(c, 0, f) < out_stride(c, 0, inner)))
                inner = f;
        batch &= ~(1u << inner);
        int64_t extent = c->in->extent[inner];
        int64_t own[4] = {arg_stride(c, 0, inner), arg_stride(c, 1, inner), out_stride(c, 0, inner), arg_stride(c, 2, inner)};
        for (int i = 0; i < 4 && extent > 1; i++) {
            if (*n > 1 && own[i] != step[i] * *n)
                return false;
            step[i] = *n > 1 ? step[i] : own[i];
        }
        *n *= extent;
    }
    return *n <= INT32_MAX;
}

static const void *arg_at(const KCall *c, int arg, const Walk *w)
{
    return c->arg[arg] ? (const char *)c->arg[arg] + w->at[arg] * dtype_bytes(c->argt[arg]->dtype) : NULL;
}

static Key key_of(const KCall *c, const Product *p, int64_t batches, const int64_t step[4])
{
    const Gemm *g = &p->gemm;
    int device = 0;
    cudaGetDevice(&device);
    return (Key){.m = g->m, .n = g->n, .k = g->k, .lda = g->lda, .ldb = g->ldb, .ldc = g->ldc, .stride_a = step[p->swapped],
                 .stride_b = step[!p->swapped], .stride_c = step[2], .stride_bias = step[3], .batches = batches, .ta = g->ta, .tb = g->tb,
                 .type = c->argt[0]->dtype, .result_type = c->outt[0]->dtype, .device = device};
}

/* The product of each batch index, all at once where they are evenly spaced.  `epilogue`: CUBLASLT_EPILOGUE_...
 * cudaErrorNotSupported: it is none of cuBLASLt's, and nothing was done. */
static cudaError_t multiply_all(const CudaCall *c, const Product *p, cublasLtEpilogue_t epilogue, bool biased, void *aux)
{
    const KCall *k = &c->call;
    int64_t batches, step[4];
    bool even = fold_batch(k, p->batch, &batches, step), begun = false;
    Key key = key_of(k, p, even ? batches : 1, step);
    key.epilogue = (uint32_t)epilogue;
    key.ld_aux = aux ? key.ldc : 0;
    for (Walk w = walk_over(k, p->batch); w.more; walk_next(&w)) {
        Pointers at = {arg_at(k, p->swapped, &w), arg_at(k, !p->swapped, &w), biased ? arg_at(k, 2, &w) : NULL,
                       (char *)k->out[0] + w.at[MAX_ARGS] * dtype_bytes(k->outt[0]->dtype), aux};
        key.align_a = alignment(at.a);
        key.align_b = alignment(at.b);
        key.align_c = alignment(at.y);
        key.align_bias = alignment(at.bias);
        cublasStatus_t s = multiply(c, &key, &at);
        if (s == CUBLAS_STATUS_NOT_SUPPORTED && !begun)
            return cudaErrorNotSupported;
        if (s != CUBLAS_STATUS_SUCCESS)
            return cuda_library_failed(c, "cuBLASLt", cublasLtGetStatusString(s));
        begun = true;
        if (even)
            break;
    }
    return cudaSuccess;
}

/* Whether there is something to sum: a product of no terms is left to the loops. */
static bool is_gemm(const KCall *c, bool biased, Product *p)
{
    return product_types_fit(c) && product_as_gemm(c, p) && p->gemm.m && p->gemm.n && p->gemm.k && (!biased || product_bias_fits(c, p));
}

static cudaError_t product(const CudaCall *c, bool biased)
{
    Product p;
    cudaError_t e = cudaErrorNotSupported;
    if (is_gemm(&c->call, biased, &p))
        e = multiply_all(c, &p, biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT, biased, NULL);
    return e == cudaErrorNotSupported ? cuda_product(c, biased) : e;
}

cudaError_t cuda_contract(const CudaCall *c)
{
    return product(c, false);
}

cudaError_t cuda_linear(const CudaCall *c)
{
    return product(c, c->call.in->narg > 2 && c->call.arg[2]);
}

/* Whether cuBLASLt's own gelu, which is the tanh form, can save what it is of: rows of 8 elements, 16 bytes aligned. */
static bool gelu_fits(const KCall *c, const Product *p, const void *pre)
{
    return !attr_bool(c, "exact") && !p->batch && (!pre || (p->gemm.ldc % 8 == 0 && alignment(pre) >= 16 && c->outt[1]->dtype == c->outt[0]->dtype));
}

/* With the epilogue, or the product goes to `pre` and, where that is not saved, to y. */
cudaError_t cuda_linear_gelu(const CudaCall *c)
{
    const KCall *k = &c->call;
    bool biased = k->in->narg > 2 && k->arg[2];
    void *pre = k->in->nout > 1 ? k->out[1] : NULL;
    Product p;
    cudaError_t e = cudaErrorNotSupported;
    if (is_gemm(k, biased, &p) && gelu_fits(k, &p, pre))
        e = multiply_all(c, &p, biased ? pre ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS
                                       : pre ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU, biased, pre);
    if (e != cudaErrorNotSupported)
        return e;
    CudaCall inner = *c;
    if (pre) {
        inner.call.out[0] = pre;
        inner.call.outt[0] = k->outt[1];
    }
    e = product(&inner, biased);
    return e ? e : cuda_gelu_of(c, inner.call.outt[0], inner.call.out[0]);
}
