/* cublaslt.cpp -- cublasLtMatmul by columns, with the epilogues of bias and GELU and their gradients.
 *
 * Descriptors keep what the program sets and refuse what it could not set on a GPU.  The heuristic gives one
 * algorithm, which remembers the alignments it was promised: pointers that break the promise are refused. */
#include "gemm.h"

#include <cublasLt.h>

#include <cstring>

namespace cudaemu {

struct Desc {
    cublasComputeType_t compute;
    cudaDataType scale;
    cublasOperation_t ta, tb;
    uint32_t epilogue;
    void *bias, *aux;
    int64_t bias_stride, aux_ld, aux_stride;
    int32_t bias_type, aux_type;        /* -1: D's */
};
struct Layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld, stride;
    int32_t batch, order;
};
struct Preference {
    uint64_t workspace;
    uint32_t alignment[4];              /* of A, B, C, D */
};
/* In cublasLtMatmulAlgo_t. */
struct Algorithm {
    uint64_t mark, workspace;
    uint32_t alignment[4];
};
enum : uint64_t { ALGORITHM_MARK = 0x63756461656d75u, WORKSPACE = 1 << 20 };
enum : uint32_t { VECTOR = 16 };        /* bytes that a kernel of the heuristic's moves at once */

static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t) && sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
              sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t) && sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "fits");

template <class T, class Opaque> static T *inside(Opaque *o) { return reinterpret_cast<T *>(o); }

/* Copies an attribute of exactly this size. */
static cublasStatus_t set(void *to, size_t bytes, const void *from, size_t given)
{
    if (!from || given != bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_epilogue(uint32_t e)
{
    switch (e) {
    case CUBLASLT_EPILOGUE_DEFAULT: case CUBLASLT_EPILOGUE_BIAS: case CUBLASLT_EPILOGUE_GELU: case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX: case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD: case CUBLASLT_EPILOGUE_BGRADA: case CUBLASLT_EPILOGUE_BGRADB: return true;
    default: return false;
    }
}

/* The product that the descriptors mean, without pointers to matrices. */
static cublasStatus_t describe(Gemm *g, const Desc *q, const Layout *a, const Layout *b, const Layout *c, const Layout *d)
{
    for (const Layout *l : {a, b, c, d})
        if (l->order != CUBLASLT_ORDER_COL || l->batch != d->batch)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!gemm_types(q->compute, a->type, b->type, d->type) || c->type != d->type || !is_epilogue(q->epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *g = Gemm();
    g->ta = q->ta != CUBLAS_OP_N;
    g->tb = q->tb != CUBLAS_OP_N;
    g->f64 = q->compute == CUBLAS_COMPUTE_64F;
    g->m = (int64_t)d->rows;
    g->n = (int64_t)d->columns;
    g->k = (int64_t)(g->ta ? a->rows : a->columns);
    g->batch = d->batch;
    if ((int64_t)(g->ta ? a->columns : a->rows) != g->m || (int64_t)(g->tb ? b->rows : b->columns) != g->n ||
        (int64_t)(g->tb ? b->columns : b->rows) != g->k || c->rows != d->rows || c->columns != d->columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    Epilogue &ep = g->ep;
    ep.bits = q->epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 0 : (int)q->epilogue;
    ep.bias = q->bias;
    ep.bias_type = q->bias_type < 0 ? d->type : (cudaDataType)q->bias_type;
    ep.bias_stride = q->bias_stride;
    ep.aux = Matrix{q->aux, q->aux_type < 0 ? d->type : (cudaDataType)q->aux_type, q->aux_ld, q->aux_stride};
    if (ep.bits & EP_AUX && (!ep.aux.p || ep.aux.ld % 8 || ep.aux.ld < g->m || ep.aux.stride % 8 || reinterpret_cast<uintptr_t>(ep.aux.p) % VECTOR))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (ep.bits & ~(EP_AUX | EP_GELU) && !(ep.bits == (EP_DGELU | EP_AUX)) && !ep.bias)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (ep.bits && g->f64)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

static Matrix matrix(const void *p, const Layout *l) { return Matrix{const_cast<void *>(p), l->type, l->ld, l->stride}; }

} /* namespace cudaemu */

using namespace cudaemu;

struct cublasLtContext {
    int device;
};

extern "C" cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    Hidden hidden;
    if (int code = fault("cublasLtCreate"))
        return (cublasStatus_t)code;
    *handle = new cublasLtContext{current_device()};
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    Hidden hidden;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

/* ---- descriptors ---- */

extern "C" cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)
{
    Hidden hidden;
    *desc = new cublasLtMatmulDescOpaque_t();
    Desc d = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0, 0, 0, -1, -1};
    memcpy(static_cast<void *>(*desc), &d, sizeof d);
    return scale == (compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

extern "C" cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    Hidden hidden;
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, const void *value,
                                                         size_t bytes)
{
    Desc *d = inside<Desc>(desc);
    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&d->ta, sizeof(int32_t), value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&d->tb, sizeof(int32_t), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&d->epilogue, sizeof d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&d->bias, sizeof d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return set(&d->bias_stride, sizeof d->bias_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(&d->bias_type, sizeof d->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(&d->aux, sizeof d->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(&d->aux_ld, sizeof d->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return set(&d->aux_stride, sizeof d->aux_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return set(&d->aux_type, sizeof d->aux_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return set(&d->compute, sizeof(int32_t), value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return set(&d->scale, sizeof(int32_t), value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

extern "C" cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                                     int64_t ld)
{
    Hidden hidden;
    *layout = new cublasLtMatrixLayoutOpaque_t();
    Layout l = {type, rows, columns, ld, 0, 1, CUBLASLT_ORDER_COL};
    memcpy(static_cast<void *>(*layout), &l, sizeof l);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    Hidden hidden;
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what,
                                                           const void *value, size_t bytes)
{
    Layout *l = inside<Layout>(layout);
    switch (what) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return set(&l->type, sizeof(int32_t), value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return set(&l->order, sizeof l->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return set(&l->rows, sizeof l->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return set(&l->columns, sizeof l->columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return set(&l->ld, sizeof l->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(&l->batch, sizeof l->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(&l->stride, sizeof l->stride, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    Hidden hidden;
    *preference = new cublasLtMatmulPreferenceOpaque_t();
    Preference p = {0, {256, 256, 256, 256}};
    memcpy(static_cast<void *>(*preference), &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    Hidden hidden;
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                               cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t bytes)
{
    Preference *p = inside<Preference>(preference);
    switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(&p->workspace, sizeof p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(&p->alignment[0], sizeof p->alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(&p->alignment[1], sizeof p->alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(&p->alignment[2], sizeof p->alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(&p->alignment[3], sizeof p->alignment[3], value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* ---- products ---- */

extern "C" cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int asked,
    cublasLtMatmulHeuristicResult_t results[], int *found)
{
    Hidden hidden;
    *found = 0;
    if (int code = fault("cublasLtMatmulAlgoGetHeuristic"))
        return (cublasStatus_t)code;
    if (asked < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    Gemm g;
    if (cublasStatus_t status = describe(&g, inside<Desc>(desc), inside<Layout>(a), inside<Layout>(b), inside<Layout>(c), inside<Layout>(d)))
        return status;
    const Preference *p = inside<Preference>(preference);
    Algorithm algorithm = {ALGORITHM_MARK, p->workspace < WORKSPACE ? (uint64_t)0 : (uint64_t)WORKSPACE, {0, 0, 0, 0}};
    for (int i = 0; i < 4; i++)
        algorithm.alignment[i] = p->alignment[i] < VECTOR ? p->alignment[i] : VECTOR;
    memset(static_cast<void *>(results), 0, sizeof *results);
    memcpy(&results[0].algo, &algorithm, sizeof algorithm);
    results[0].workspaceSize = algorithm.workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* What the algorithm was promised. */
static cublasStatus_t check_promises(const Gemm &g, const cublasLtMatmulAlgo_t *algo)
{
    Algorithm q;
    memcpy(&q, algo, sizeof q);
    if (q.mark != ALGORITHM_MARK)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (g.workspace_bytes < q.workspace)
        return CUBLAS_STATUS_INVALID_VALUE;
    const Matrix *all[4] = {&g.a, &g.b, &g.c, &g.d};
    for (int i = 0; i < 4; i++)
        if ((i != 2 || g.beta != 0) && q.alignment[i] && reinterpret_cast<uintptr_t>(all[i]->p) % q.alignment[i]) {
            report("cublasLtMatmul: %c at %p is not aligned to the %u bytes that the heuristic was told of", "ABCD"[i], all[i]->p, q.alignment[i]);
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
    if (g.ep.bits & EP_BIAS && q.alignment[3] && reinterpret_cast<uintptr_t>(g.ep.bias) % q.alignment[3]) {
        report("cublasLtMatmul: the bias at %p is not aligned to the %u bytes that the heuristic was told of for D", g.ep.bias, q.alignment[3]);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "no error";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library has no handle";
    case CUBLAS_STATUS_ALLOC_FAILED: return "no memory was left";
    case CUBLAS_STATUS_INVALID_VALUE: return "a value that is not accepted";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the device did not execute it";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "this is not supported";
    default: return "a status without a name";
    }
}

extern "C" cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
    cublasLtMatrixLayout_t a_desc, const void *b, cublasLtMatrixLayout_t b_desc, const void *beta, const void *c,
    cublasLtMatrixLayout_t c_desc, void *d, cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t *algo, void *workspace,
    size_t workspace_bytes, cudaStream_t stream)
{
    Hidden hidden;
    if (int code = fault("cublasLtMatmul"))
        return (cublasStatus_t)code;
    if (!handle || sticky(current_device()))
        return handle ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_NOT_INITIALIZED;
    stream = resolve(stream, "cublasLtMatmul");
    Gemm g;
    cublasStatus_t status = describe(&g, inside<Desc>(desc), inside<Layout>(a_desc), inside<Layout>(b_desc), inside<Layout>(c_desc),
                                     inside<Layout>(d_desc));
    if (status || !stream)
        return status ? status : CUBLAS_STATUS_INVALID_VALUE;
    g.alpha = g.f64 ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha);
    g.beta = g.f64 ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta);
    g.a = matrix(a, inside<Layout>(a_desc));
    g.b = matrix(b, inside<Layout>(b_desc));
    g.c = matrix(c, inside<Layout>(c_desc));
    g.d = matrix(d, inside<Layout>(d_desc));
    g.workspace = workspace;
    g.workspace_bytes = workspace_bytes;
    if (workspace_bytes && !memory_check(workspace, workspace_bytes, MEM_DEVICE, "the workspace of cublasLtMatmul"))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo)
        status = check_promises(g, algo);
    if (!status)
        status = gemm_check(g, "cublasLtMatmul");
    if (!status)
        enqueue(stream, Operation{[g]() { gemm_run(g); }, "cublasLtMatmul", "gemm", {}, false});
    return status;
}
