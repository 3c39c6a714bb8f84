/* gemm.cpp -- products by way of OpenBLAS, in f32 or f64: in place where that is the matrix's type, of copies otherwise.
 *
 * Memory of devices is the process's, and tests watch what of it is resident: copies of large matrices would come
 * and go in it as streams happen to meet.
 * Sums are f32 for f32, bf16 and fp16, in another order than a GPU's.  TF32 is not rounded to: it is exact f32. */
#include "gemm.h"
#include "numbers.h"

#include <cmath>

#include <cblas.h>

namespace cudaemu {

size_t type_bytes(cudaDataType t)
{
    switch (t) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F: case CUDA_R_16BF: return 2;
    default: return 0;
    }
}

bool gemm_types(cublasComputeType_t compute, cudaDataType a, cudaDataType b, cudaDataType d)
{
    if (a != b)
        return false;
    if (compute == CUBLAS_COMPUTE_64F)
        return a == CUDA_R_64F && d == CUDA_R_64F;
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32 && compute != CUBLAS_COMPUTE_32F_PEDANTIC)
        return false;
    return a == CUDA_R_32F ? d == CUDA_R_32F : (a == CUDA_R_16BF || a == CUDA_R_16F) && (d == a || d == CUDA_R_32F);
}

/* ---- elements ---- */

static double load(const void *p, int64_t i, cudaDataType t)
{
    switch (t) {
    case CUDA_R_64F: return static_cast<const double *>(p)[i];
    case CUDA_R_32F: return static_cast<const float *>(p)[i];
    case CUDA_R_16F: return from_f16(static_cast<const uint16_t *>(p)[i]);
    default: return from_bf16(static_cast<const uint16_t *>(p)[i]);
    }
}

static void store(void *p, int64_t i, cudaDataType t, double v)
{
    switch (t) {
    case CUDA_R_64F: static_cast<double *>(p)[i] = v; break;
    case CUDA_R_32F: static_cast<float *>(p)[i] = (float)v; break;
    case CUDA_R_16F: static_cast<uint16_t *>(p)[i] = to_f16((float)v); break;
    default: static_cast<uint16_t *>(p)[i] = to_bf16((float)v); break;
    }
}

/* ---- checks ---- */

static char *at(const Matrix &x, int64_t batch) { return static_cast<char *>(x.p) + batch * x.stride * (int64_t)type_bytes(x.type); }

static bool check_matrix(const Matrix &x, int64_t rows, int64_t columns, int64_t batch, const char *what)
{
    size_t n = type_bytes(x.type);
    if (reinterpret_cast<uintptr_t>(x.p) % n) {
        report("%s at %p is not aligned to its elements of %zu bytes", what, x.p, n);
        return false;
    }
    size_t elements = (size_t)((batch - 1) * x.stride + (columns - 1) * x.ld + rows);
    return memory_check(x.p, elements * n, MEM_DEVICE, what);
}

cublasStatus_t gemm_check(const Gemm &g, const char *call)
{
    int64_t rows_a = g.ta ? g.k : g.m, rows_b = g.tb ? g.n : g.k;
    if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!g.m || !g.n || !g.batch)
        return CUBLAS_STATUS_SUCCESS;
    if (g.a.ld < rows_a || g.b.ld < rows_b || g.d.ld < g.m || (g.beta != 0 && g.c.ld < g.m))
        return CUBLAS_STATUS_INVALID_VALUE;
    std::string name = call;
    bool good = !g.k || (check_matrix(g.a, rows_a, g.ta ? g.m : g.k, g.batch, (name + ": A").c_str()) &&
                         check_matrix(g.b, rows_b, g.tb ? g.k : g.n, g.batch, (name + ": B").c_str()));
    good = good && check_matrix(g.d, g.m, g.n, g.batch, (name + ": D").c_str());
    if (good && g.beta != 0)
        good = check_matrix(g.c, g.m, g.n, g.batch, (name + ": C").c_str());
    if (good && g.ep.bits & EP_AUX)
        good = check_matrix(g.ep.aux, g.m, g.n, g.batch, (name + ": the auxiliary matrix").c_str());
    if (good && g.ep.bits & (EP_BIAS | EP_BGRAD | EP_BGRADA | EP_BGRADB)) {
        Matrix bias = {g.ep.bias, g.ep.bias_type, 0, g.ep.bias_stride};
        good = check_matrix(bias, g.ep.bits & EP_BGRADB ? g.n : g.m, 1, g.batch, (name + ": the bias").c_str());
    }
    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- what the sanitizer is told ---- */

static void note(const Matrix &x, int64_t z, int64_t rows, int64_t columns, bool writes)
{
    if (!__tsan_read_range)
        return;
    size_t n = type_bytes(x.type);
    for (int64_t j = 0; j < columns; j++) {
        char *column = at(x, z) + (size_t)(j * x.ld) * n;
        if (writes)
            note_write(column, (size_t)rows * n);
        else
            note_read(column, (size_t)rows * n);
    }
}

static void note_gemm(const Gemm &g, int64_t z)
{
    if (g.k) {
        note(g.a, z, g.ta ? g.k : g.m, g.ta ? g.m : g.k, false);
        note(g.b, z, g.tb ? g.n : g.k, g.tb ? g.k : g.n, false);
    }
    if (g.beta != 0)
        note(g.c, z, g.m, g.n, false);
    note(g.d, z, g.m, g.n, true);
    if (g.ep.bits & EP_AUX)
        note(g.ep.aux, z, g.m, g.n, !(g.ep.bits & EP_DGELU));
    Matrix bias = {g.ep.bias, g.ep.bias_type, 0, g.ep.bias_stride};
    if (g.ep.bits & (EP_BIAS | EP_BGRAD | EP_BGRADA | EP_BGRADB))
        note(bias, z, g.ep.bits & EP_BGRADB ? g.n : g.m, 1, !(g.ep.bits & EP_BIAS));
    /* Two products that share a workspace must not run at once, whatever of it they use. */
    const size_t SOME = 4096;
    note_write(g.workspace, g.workspace_bytes < SOME ? g.workspace_bytes : SOME);
}

/* ---- computing ---- */

template <class T> struct TypeOf;
template <> struct TypeOf<float> { static const cudaDataType type = CUDA_R_32F; };
template <> struct TypeOf<double> { static const cudaDataType type = CUDA_R_64F; };

/* op(X), ROWS x COLUMNS, of one of the batch: element (i, j) is p[i + j * ld], or p[j + i * ld] where it is transposed. */
template <class T> struct Operand {
    const T *p;
    int64_t ld;
    bool transposed;
    std::vector<T> copy;        /* of another type's, by columns without gaps */

    Operand(const Matrix &x, int64_t z, bool transpose, int64_t rows, int64_t columns)
        : p(static_cast<const T *>(static_cast<const void *>(at(x, z)))), ld(x.ld), transposed(transpose)
    {
        if (x.type == TypeOf<T>::type)
            return;
        copy.resize((size_t)(rows * columns));
        for (int64_t j = 0; j < columns; j++)
            for (int64_t i = 0; i < rows; i++)
                copy[(size_t)(j * rows + i)] = (T)load(at(x, z), transpose ? i * x.ld + j : j * x.ld + i, x.type);
        p = copy.data();
        ld = rows ? rows : 1;
        transposed = false;
    }
    T at_row(int64_t i, int64_t j) const { return transposed ? p[i * ld + j] : p[j * ld + i]; }
};

/* As in kernels/gemm.c: Debian's serial OpenBLAS has one packing buffer for the whole process. */
static Lock blas_lock;

static CBLAS_TRANSPOSE form(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

static void product(const Gemm &g, const Operand<float> &a, const Operand<float> &b, float *d, int64_t ld)
{
    Guard guard(blas_lock);
    cblas_sgemm(CblasColMajor, form(a.transposed), form(b.transposed), (int)g.m, (int)g.n, (int)g.k, (float)g.alpha, a.p, (int)a.ld, b.p, (int)b.ld,
                (float)g.beta, d, (int)ld);
}
static void product(const Gemm &g, const Operand<double> &a, const Operand<double> &b, double *d, int64_t ld)
{
    Guard guard(blas_lock);
    cblas_dgemm(CblasColMajor, form(a.transposed), form(b.transposed), (int)g.m, (int)g.n, (int)g.k, g.alpha, a.p, (int)a.ld, b.p, (int)b.ld, g.beta, d,
                (int)ld);
}

/* GELU by tanh, as cublasLt's, and its derivative. */
static const double ROOT_2_PI = 0.7978845608028654, CUBIC = 0.044715;
static double gelu(double x) { return 0.5 * x * (1 + tanh(ROOT_2_PI * (x + CUBIC * x * x * x))); }
static double gelu_slope(double x)
{
    double t = tanh(ROOT_2_PI * (x + CUBIC * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT_2_PI * (1 + 3 * CUBIC * x * x);
}

/* One element of D after the epilogue; AUX is where its input of GELU is. */
static double finish(const Epilogue &ep, double v, const void *bias, int64_t row, void *aux, int64_t aux_at)
{
    if (ep.bits & EP_BIAS)
        v += load(bias, row, ep.bias_type);
    if ((ep.bits & (EP_AUX | EP_DGELU)) == EP_AUX)
        store(aux, aux_at, ep.aux.type, v);
    if (ep.bits & EP_GELU)
        v = gelu(v);
    if (ep.bits & EP_DGELU)
        v *= gelu_slope(load(aux, aux_at, ep.aux.type));
    return v;
}

/* Sums of COUNT elements each into the bias: element i of sum o is OF(o, i). */
template <class T, class Of> static void sum_bias(const Epilogue &ep, void *bias, int64_t sums, int64_t count, Of of)
{
    for (int64_t o = 0; o < sums; o++) {
        T sum = 0;
        for (int64_t i = 0; i < count; i++)
            sum += of(o, i);
        store(bias, o, ep.bias_type, (double)sum);
    }
}

template <class T> static void run_one(const Gemm &g, int64_t z)
{
    Operand<T> a(g.a, z, g.ta, g.m, g.k), b(g.b, z, g.tb, g.k, g.n);
    bool in_place = g.d.type == TypeOf<T>::type;
    std::vector<T> copy(in_place ? 0 : (size_t)(g.m * g.n));
    T *d = in_place ? static_cast<T *>(static_cast<void *>(at(g.d, z))) : copy.data();
    int64_t ld = in_place ? g.d.ld : g.m;
    if (g.beta != 0 && !(in_place && g.c.type == g.d.type && at(g.c, z) == at(g.d, z) && g.c.ld == g.d.ld))
        for (int64_t j = 0; j < g.n; j++)
            for (int64_t i = 0; i < g.m; i++)
                d[j * ld + i] = (T)load(at(g.c, z), j * g.c.ld + i, g.c.type);
    product(g, a, b, d, ld);
    const Epilogue &ep = g.ep;
    char *bias = ep.bias ? static_cast<char *>(ep.bias) + z * ep.bias_stride * (int64_t)type_bytes(ep.bias_type) : nullptr;
    char *aux = ep.aux.p ? at(ep.aux, z) : nullptr;
    for (int64_t j = 0; j < g.n; j++)
        for (int64_t i = 0; i < g.m; i++) {
            double v = finish(ep, (double)d[j * ld + i], bias, i, aux, j * ep.aux.ld + i);
            d[j * ld + i] = (T)v;
            store(at(g.d, z), j * g.d.ld + i, g.d.type, v);
        }
    if (ep.bits & EP_BGRAD)
        sum_bias<T>(ep, bias, g.m, g.n, [&](int64_t row, int64_t i) { return d[i * ld + row]; });
    if (ep.bits & EP_BGRADA)
        sum_bias<T>(ep, bias, g.m, g.k, [&](int64_t row, int64_t i) { return a.at_row(row, i); });
    if (ep.bits & EP_BGRADB)
        sum_bias<T>(ep, bias, g.n, g.k, [&](int64_t column, int64_t i) { return b.at_row(i, column); });
}

void gemm_run(const Gemm &g)
{
    if (!g.m || !g.n)
        return;
    for (int64_t z = 0; z < g.batch; z++) {
        note_gemm(g, z);
        Hidden hidden;
        if (g.f64)
            run_one<double>(g, z);
        else
            run_one<float>(g, z);
    }
}

} /* namespace cudaemu */
