/* test_gemm.cpp -- products of cuBLAS and cuBLASLt against sums written out, their epilogues, and what they refuse. */
#include "harness.h"
#include "numbers.h"

#include <cublasLt.h>
#include <cublas_v2.h>

#include <cmath>
#include <vector>

using cudaemu::from_bf16;
using cudaemu::to_bf16;

/* ---- values ---- */

/* Small multiples of 1/8: exact in bf16, and their sums in f32. */
static std::vector<float> values(size_t n, int seed)
{
    std::vector<float> v(n);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)((int)((i * 37 + (size_t)seed * 11) % 23) - 11) / 8;
    return v;
}

/* In device memory, as f32 or bf16. */
static void *put(const std::vector<float> &v, cudaDataType type)
{
    if (type == CUDA_R_32F)
        return device_floats(v.size(), v.data());
    std::vector<float> halves((v.size() + 1) / 2);
    for (size_t i = 0; i < v.size(); i++)
        reinterpret_cast<uint16_t *>(halves.data())[i] = to_bf16(v[i]);
    return device_floats(halves.size(), halves.data());
}
static std::vector<float> get(void *p, size_t n, cudaDataType type, cudaStream_t s)
{
    std::vector<float> v(n);
    const float *raw = read_floats(static_cast<float *>(p), type == CUDA_R_32F ? n : (n + 1) / 2, s);
    for (size_t i = 0; i < n; i++)
        v[i] = type == CUDA_R_32F ? raw[i] : from_bf16(reinterpret_cast<const uint16_t *>(raw)[i]);
    return v;
}

/* op(X)[i, j] of a matrix by columns. */
static float element(const std::vector<float> &x, bool transposed, int64_t i, int64_t j, int64_t ld)
{
    return x[(size_t)(transposed ? i * ld + j : j * ld + i)];
}

static bool near(float a, float b, float tolerance) { return std::fabs(a - b) <= tolerance * (1 + std::fabs(b)); }

/* ---- cuBLAS ---- */

static void check_gemm(bool ta, bool tb, cudaDataType type, int batch)
{
    const int m = 5, n = 7, k = 9, lda = (ta ? k : m) + 1, ldb = (tb ? n : k) + 2, ldc = m + 3;
    const long long sa = lda * (ta ? m : k), sb = ldb * (tb ? k : n), sc = ldc * n;
    std::vector<float> a = values((size_t)(sa * batch), 1), b = values((size_t)(sb * batch), 2), c = values((size_t)(sc * batch), 3);
    void *da = put(a, type), *db = put(b, type), *dc = put(c, type);
    float alpha = 0.5f, beta = 2;
    cudaStream_t s = new_stream();
    cublasHandle_t h;
    OK(cublasCreate(&h));
    OK(cublasSetStream(h, s));
    OK(cublasGemmStridedBatchedEx(h, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &alpha, da, type, lda, sa, db, type,
                                  ldb, sb, &beta, dc, type, ldc, sc, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    std::vector<float> got = get(dc, c.size(), type, s);
    for (int z = 0; z < batch; z++)
        for (int j = 0; j < n; j++)
            for (int i = 0; i < ldc; i++) {
                std::vector<float> az(a.begin() + z * sa, a.begin() + (z + 1) * sa), bz(b.begin() + z * sb, b.begin() + (z + 1) * sb);
                float sum = 0, old = c[(size_t)(z * sc + j * ldc + i)];
                for (int q = 0; q < k && i < m; q++)
                    sum += element(az, ta, i, q, lda) * element(bz, tb, q, j, ldb);
                float want = i < m ? alpha * sum + beta * old : old;
                CHECK(near(got[(size_t)(z * sc + j * ldc + i)], want, type == CUDA_R_32F ? 1e-6f : 4e-3f));
            }
    OK(cublasDestroy(h));
}

static void all_transposes()
{
    for (int i = 0; i < 8; i++)
        check_gemm(i & 1, i & 2, i & 4 ? CUDA_R_16BF : CUDA_R_32F, i & 4 ? 3 : 1);
}

/* Nothing of C is read with beta = 0, and fresh memory in A shows. */
static void poison()
{
    float one = 1, zero = 0;
    std::vector<float> ones(4, 1.0f);
    cudaStream_t s = new_stream();
    cublasHandle_t h;
    OK(cublasCreate(&h));
    OK(cublasSetStream(h, s));
    float *a = device_floats(4, ones.data()), *fresh = device_floats(4), *c = device_floats(4);
    OK(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, 2, a, 2, &zero, c, 2));
    CHECK(read_floats(c, 4, s)[3] == 2);
    OK(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, 2, fresh, 2, &zero, c, 2));
    CHECK(std::isnan(read_floats(c, 4, s)[0]));
}

/* Of streams that multiply at once, each other matrices, each gets what it gets alone. */
static void at_once()
{
    enum : int { SIDE = 32, STREAMS = 8, ROUNDS = 1000, SIZE = SIDE * SIDE };
    float one = 1, zero = 0, *a[STREAMS], *c[STREAMS];
    std::vector<float> want[STREAMS];
    cudaStream_t s[STREAMS];
    cublasHandle_t h[STREAMS];
    auto multiply = [&](int i, int round) {
        OK(cublasSgemm(h[i], CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, a[i], SIDE, a[i], SIDE, &zero, c[i] + round * SIZE, SIDE));
    };
    for (int i = 0; i < STREAMS; i++) {
        s[i] = new_stream();
        a[i] = device_floats(SIZE, values(SIZE, i).data());
        c[i] = device_floats(ROUNDS * SIZE);
        OK(cublasCreate(&h[i]));
        OK(cublasSetStream(h[i], s[i]));
        multiply(i, 0);
        want[i] = get(c[i], SIZE, CUDA_R_32F, s[i]);
    }
    for (int k = 0; k < STREAMS * ROUNDS; k++)
        multiply(k % STREAMS, k / STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        const std::vector<float> got = get(c[i], ROUNDS * SIZE, CUDA_R_32F, s[i]);
        for (size_t k = 0; k < got.size(); k++)
            CHECK(got[k] == want[i][k % SIZE]);
    }
}

static void small_product(cudaStream_t s, size_t bytes, int ldc, cudaDataType type)
{
    float one = 1, zero = 0;
    cublasHandle_t h;
    OK(cublasCreate(&h));
    OK(cublasSetStream(h, s));
    float *a = device_floats(16), *c;
    OK(cudaMalloc(reinterpret_cast<void **>(&c), bytes));
    CHECK(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a, type, 4, a, type, 4, &zero, c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) == (ldc < 4 ? CUBLAS_STATUS_INVALID_VALUE : type == CUDA_R_64F ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS));
}
static void short_result() { small_product(new_stream(), 60, 4, CUDA_R_32F); }
static void refused()
{
    small_product(new_stream(), 64, 3, CUDA_R_32F);
    small_product(new_stream(), 64, 4, CUDA_R_64F);
    small_product(new_stream(), 64, 4, CUDA_R_32F);
}
static void no_stream() { small_product(nullptr, 64, 4, CUDA_R_32F); }

/* ---- cuBLASLt ---- */

struct Lt {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    cudaStream_t stream;
};
enum { M = 8, N = 6, K = 10 };
/* How operands are stored: a product of f32 reads them where they are, one of bf16 copies of them. */
struct Form {
    cudaDataType type;
    bool transposed;
};
static const cudaDataType LT_TYPE = CUDA_R_16BF;
static const Form LT_FORM = {LT_TYPE, false}, FORMS[] = {LT_FORM, {LT_TYPE, true}, {CUDA_R_32F, false}, {CUDA_R_32F, true}};

template <class T> static void set(const Lt &lt, cublasLtMatmulDescAttributes_t what, T value)
{
    OK(cublasLtMatmulDescSetAttribute(lt.desc, what, &value, sizeof value));
}

static cublasLtMatrixLayout_t new_layout(const Form &f, uint64_t rows, uint64_t columns)
{
    cublasLtMatrixLayout_t l;
    OK(cublasLtMatrixLayoutCreate(&l, f.type, f.transposed ? columns : rows, f.transposed ? rows : columns, (int64_t)(f.transposed ? columns : rows)));
    return l;
}

static Lt new_lt(uint32_t epilogue, const Form &f = LT_FORM)
{
    Lt lt;
    lt.stream = new_stream();
    OK(cublasLtCreate(&lt.handle));
    OK(cublasLtMatmulDescCreate(&lt.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    lt.a = new_layout(f, M, K);
    lt.b = new_layout(f, K, N);
    lt.d = new_layout({f.type, false}, M, N);
    OK(cublasLtMatmulPreferenceCreate(&lt.preference));
    set(lt, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(lt, CUBLASLT_MATMUL_DESC_TRANSA, f.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(lt, CUBLASLT_MATMUL_DESC_TRANSB, f.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    return lt;
}

static cublasStatus_t find(Lt *lt)
{
    int n = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(lt->handle, lt->desc, lt->a, lt->b, lt->d, lt->d, lt->preference, 1, &lt->found, &n);
    CHECK(status || n == 1);
    return status;
}

static cublasStatus_t multiply(const Lt &lt, void *a, void *b, void *d, void *workspace = nullptr, size_t bytes = 0)
{
    float one = 1, zero = 0;
    return cublasLtMatmul(lt.handle, lt.desc, &one, a, lt.a, b, lt.b, &zero, d, lt.d, d, lt.d, &lt.found.algo, workspace, bytes, lt.stream);
}

static float gelu(float x) { return 0.5f * x * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x))); }
/* By differences: the derivative written out is what is tested. */
static float gelu_slope(float x) { return (gelu(x + 1e-2f) - gelu(x - 1e-2f)) / 2e-2f; }

struct LtCase {
    std::vector<float> a, b, bias, aux, product;
    void *da, *db, *dbias, *daux, *dd;
};

/* ROWS x COLUMNS by columns, as it is stored. */
static void *put_operand(const std::vector<float> &x, size_t rows, size_t columns, const Form &f)
{
    std::vector<float> stored(x);
    for (size_t i = 0; i < rows && f.transposed; i++)
        for (size_t j = 0; j < columns; j++)
            stored[i * columns + j] = x[j * rows + i];
    return put(stored, f.type);
}

static LtCase lt_case(const Form &f = LT_FORM)
{
    LtCase c;
    c.a = values(M * K, 1);
    c.b = values(K * N, 2);
    c.bias = values(M > K ? M : K, 3);
    c.aux = values(M * N, 4);
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += c.a[(size_t)(k * M + i)] * c.b[(size_t)(j * K + k)];
            c.product.push_back(sum);
        }
    c.da = put_operand(c.a, M, K, f);
    c.db = put_operand(c.b, K, N, f);
    c.dbias = put(c.bias, f.type);
    c.daux = put(c.aux, f.type);
    c.dd = put(values(M * N, 5), f.type);
    return c;
}

static LtCase run_epilogue(uint32_t epilogue, const Form &f, Lt *out)
{
    LtCase c = lt_case(f);
    *out = new_lt(epilogue, f);
    set(*out, CUBLASLT_MATMUL_DESC_BIAS_POINTER, c.dbias);
    set(*out, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, c.daux);
    set(*out, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)M);
    OK(find(out));
    OK(multiply(*out, c.da, c.db, c.dd));
    return c;
}

static void forward(const Form &f)
{
    Lt lt;
    LtCase c = run_epilogue(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, f, &lt);
    std::vector<float> d = get(c.dd, M * N, f.type, lt.stream), aux = get(c.daux, M * N, f.type, lt.stream);
    for (size_t i = 0; i < M * N; i++) {
        float x = c.product[i] + c.bias[i % M];
        CHECK(near(aux[i], x, 4e-3f) && near(d[i], gelu(x), 4e-3f));
    }
    c = run_epilogue(CUBLASLT_EPILOGUE_BIAS, f, &lt);
    d = get(c.dd, M * N, f.type, lt.stream);
    for (size_t i = 0; i < M * N; i++)
        CHECK(near(d[i], c.product[i] + c.bias[i % M], 4e-3f));
    CHECK(get(c.daux, M * N, f.type, lt.stream) == c.aux);
}

static void backward(const Form &f)
{
    Lt lt;
    LtCase c = run_epilogue(CUBLASLT_EPILOGUE_DGELU_BGRAD, f, &lt);
    std::vector<float> d = get(c.dd, M * N, f.type, lt.stream), bias = get(c.dbias, M, f.type, lt.stream);
    for (size_t i = 0; i < M; i++) {
        float sum = 0;
        for (size_t j = 0; j < N; j++) {
            float want = c.product[j * M + i] * gelu_slope(c.aux[j * M + i]);
            CHECK(near(d[j * M + i], want, 8e-3f));
            sum += want;
        }
        CHECK(near(bias[i], sum, 1e-2f));
    }
    c = run_epilogue(CUBLASLT_EPILOGUE_BGRADB, f, &lt);
    bias = get(c.dbias, N, f.type, lt.stream);
    for (size_t j = 0; j < N; j++) {
        float sum = 0;
        for (size_t k = 0; k < K; k++)
            sum += c.b[j * K + k];
        CHECK(near(bias[j], sum, 4e-3f));
    }
    c = run_epilogue(CUBLASLT_EPILOGUE_BGRADA, f, &lt);
    bias = get(c.dbias, M, f.type, lt.stream);
    for (size_t i = 0; i < M; i++) {
        float sum = 0;
        for (size_t k = 0; k < K; k++)
            sum += c.a[k * M + i];
        CHECK(near(bias[i], sum, 4e-3f));
    }
}

/* D is not C, which stays as it was. */
static void adds_another(const Form &f)
{
    LtCase x = lt_case(f);
    Lt lt = new_lt(CUBLASLT_EPILOGUE_DEFAULT, f);
    OK(find(&lt));
    float alpha = 0.5f, beta = 2;
    OK(cublasLtMatmul(lt.handle, lt.desc, &alpha, x.da, lt.a, x.db, lt.b, &beta, x.daux, lt.d, x.dd, lt.d, &lt.found.algo, nullptr, 0, lt.stream));
    std::vector<float> d = get(x.dd, M * N, f.type, lt.stream);
    for (size_t i = 0; i < M * N; i++)
        CHECK(near(d[i], x.product[i] / 2 + 2 * x.aux[i], 4e-3f));
    CHECK(get(x.daux, M * N, f.type, lt.stream) == x.aux);
}

static void epilogues_forward()
{
    for (const Form &f : FORMS)
        forward(f);
}
static void epilogues_backward()
{
    for (const Form &f : FORMS)
        backward(f);
}

static void another_added()
{
    for (const Form &f : FORMS)
        adds_another(f);
}

static void lt_refused()
{
    LtCase c = lt_case();
    Lt lt = new_lt(CUBLASLT_EPILOGUE_GELU_AUX);
    set(lt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, c.daux);
    set(lt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)M + 4);
    CHECK(find(&lt) == CUBLAS_STATUS_INVALID_VALUE);        /* not divisible by 8 */
    set(lt, CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)CUBLASLT_EPILOGUE_BIAS);
    CHECK(find(&lt) == CUBLAS_STATUS_INVALID_VALUE);        /* no bias */
    set(lt, CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)CUBLASLT_EPILOGUE_DEFAULT);
    uint64_t workspace = 4 << 20;
    OK(cublasLtMatmulPreferenceSetAttribute(lt.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    OK(find(&lt));
    CHECK(multiply(lt, c.da, c.db, c.dd) == CUBLAS_STATUS_INVALID_VALUE);       /* it was promised a workspace */
    OK(multiply(lt, c.da, c.db, c.dd, device_floats(lt.found.workspaceSize / 4), lt.found.workspaceSize));
    CHECK(cublasLtMatmulDescSetAttribute(lt.desc, CUBLASLT_MATMUL_DESC_TRANSA, &workspace, 8) == CUBLAS_STATUS_INVALID_VALUE);
    OK(cublasLtMatrixLayoutDestroy(lt.b));
    OK(cublasLtMatrixLayoutCreate(&lt.b, LT_TYPE, K + 1, N, K + 1));
    CHECK(find(&lt) == CUBLAS_STATUS_INVALID_VALUE);
}

static void at_offset(uint32_t alignment)
{
    Lt lt = new_lt(CUBLASLT_EPILOGUE_DEFAULT);
    if (alignment)
        OK(cublasLtMatmulPreferenceSetAttribute(lt.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment));
    LtCase c = lt_case();
    OK(find(&lt));
    void *a = put(values(M * K + 8, 1), LT_TYPE);
    OK(multiply(lt, static_cast<char *>(a) + 2, c.db, c.dd));
    OK(cudaStreamSynchronize(lt.stream));
}
static void misaligned() { at_offset(0); }
static void announced() { at_offset(2); }

/* A bias is promised with the result. */
static void bias_at_offset(uint32_t alignment)
{
    Lt lt = new_lt(CUBLASLT_EPILOGUE_BIAS);
    if (alignment)
        OK(cublasLtMatmulPreferenceSetAttribute(lt.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment));
    LtCase c = lt_case();
    set(lt, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<char *>(put(values(M + 8, 3), LT_TYPE)) + 2);
    OK(find(&lt));
    OK(multiply(lt, c.da, c.db, c.dd));
    OK(cudaStreamSynchronize(lt.stream));
}
static void misaligned_bias() { bias_at_offset(0); }
static void announced_bias() { bias_at_offset(2); }

static const Case cases[] = {
    {"products, all transposes, batches", all_transposes, nullptr, nullptr},
    {"products on many streams at once", at_once, nullptr, nullptr},
    {"fresh memory in a product", poison, nullptr, nullptr},
    {"a result that does not fit", short_result, "4 bytes beyond an allocation of 60 bytes", nullptr},
    {"sizes and types that are refused", refused, nullptr, nullptr},
    {"a product on the default stream", no_stream, "default stream", nullptr},
    {"epilogues going forward", epilogues_forward, nullptr, nullptr},
    {"epilogues going backward", epilogues_backward, nullptr, nullptr},
    {"what is added lies elsewhere", another_added, nullptr, nullptr},
    {"descriptors that are refused", lt_refused, nullptr, nullptr},
    {"a misaligned matrix", misaligned, "is not aligned to the 16 bytes", nullptr},
    {"a misaligned matrix, announced", announced, nullptr, nullptr},
    {"a misaligned bias", misaligned_bias, "is not aligned to the 16 bytes that the heuristic was told of for D", nullptr},
    {"a misaligned bias, announced", announced_bias, nullptr, nullptr},
};

int main(int argc, char **argv) { return RUN_CASES(argc, argv, cases); }
