/* Products as matrices.  The factors of a product fall into four groups: batch
 * (in both operands and the result), M (in the first and the result), N (in the
 * second and the result) and K (in both, summed).  Where each group can be walked
 * with one stride in both tensors that have it, in one order, the product is a
 * gemm per batch index, transposed as the strides say; else the plain form runs. */
#include "kernels/cpu/gates.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/runs.h"

/* A group of factors as one loop, seen in two tensors: its elements, and the steps between neighbours. */
typedef struct Loop { int64_t n, step[2]; } Loop;

/* Strides of a factor in the three tensors: 0 the first operand, 1 the second, 2
 * the result. */
static int64_t stride_in(const KCall *c, int tensor, int factor)
{
    return tensor < 2 ? arg_stride(c, tensor, factor) : out_stride(c, 0, factor);
}

/* Fold a set of factors into one loop, the same in tensors p and q.  False when no
 * order of them is evenly spaced in both. */
static bool fold(const KCall *c, FactorSet set, int p, int q, Loop *g)
{
    *g = (Loop){.n = 1, .step = {1, 1}};
    while (set) {
        int inner = -1;                              /* smallest stride in p goes next */
        for (int f = 0; f < c->in->nfactor; f++)
            if ((set >> f & 1) && (inner < 0 || stride_in(c, p, f) < stride_in(c, p, inner)))
                inner = f;
        set &= ~(1u << inner);
        if (c->in->extent[inner] == 1)
            continue;
        int64_t sp = stride_in(c, p, inner), sq = stride_in(c, q, inner);
        if (g->n == 1) {
            g->step[0] = sp;
            g->step[1] = sq;
        } else if (sp != g->step[0] * g->n || sq != g->step[1] * g->n) {
            return false;
        }
        g->n *= c->in->extent[inner];
    }
    return true;
}

/* A matrix in memory: how it is stored and its leading dimension. */
typedef struct Matrix { bool transposed; int64_t ld; } Matrix;

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool as_matrix(int64_t rows, int64_t row_step, int64_t columns, int64_t column_step, Matrix *m)
{
    if (columns == 1 || column_step == 1)
        *m = (Matrix){false, rows == 1 ? columns : row_step};
    else if (rows == 1 || row_step == 1)
        *m = (Matrix){true, column_step};
    else
        return false;
    return m->ld >= (m->transposed ? rows : columns);
}

typedef struct Product {
    FactorSet batch, columns;         /* columns: the factors along a row of the result */
    Gemm      gemm;
    bool      swapped;                /* the gemm computes the transpose: second operand times first */
} Product;

/* With the operands in the order p, q: false when the product is no gemm. */
static bool as_gemm(const KCall *c, int p, int q, Product *out)
{
    FactorSet a = arg_factors(c, p), b = arg_factors(c, q), y = out_factors(c, 0);
    if ((a & ~b & ~y) || (b & ~a & ~y) || (y & ~(a | b)))
        return false;
    Loop m, n, k;
    if (!fold(c, a & y & ~b, 2, p, &m) || !fold(c, b & y & ~a, 2, q, &n) || !fold(c, a & b & ~y, p, q, &k))
        return false;
    Matrix ma, mb, mc;
    if (!as_matrix(m.n, m.step[1], k.n, k.step[0], &ma) || !as_matrix(k.n, k.step[1], n.n, n.step[1], &mb) ||
        !as_matrix(m.n, m.step[0], n.n, n.step[0], &mc) || mc.transposed)
        return false;
    *out = (Product){.batch = a & b & y, .columns = b & y & ~a, .swapped = p != 0};
    out->gemm = (Gemm){.ta = ma.transposed, .tb = mb.transposed, .m = m.n, .n = n.n, .k = k.n,
                       .lda = at_least(ma.ld, 1), .ldb = at_least(mb.ld, 1), .ldc = at_least(mc.ld, 1), .alpha = 1};
    return true;
}

typedef struct Job {
    const KCall   *c;
    const Product *p;
    int64_t        batches;
} Job;

static const void *arg_from(const KCall *c, int arg, const Walk *w)
{
    return (const char *)c->arg[arg] + w->at[arg] * dtype_bytes(c->argt[arg]->dtype);
}

static void multiply(const Job *j, Team *team, const Walk *w)
{
    const KCall *c = j->c;
    const void *a = arg_from(c, j->p->swapped, w), *b = arg_from(c, !j->p->swapped, w);
    DType type = c->outt[0]->dtype;
    void *y = (char *)c->out[0] + w->at[MAX_ARGS] * dtype_bytes(type);
    if (c->argt[0]->dtype == DT_bf16)
        gemm_bf16(team, &j->p->gemm, a, b, y, type);
    else if (type == DT_f64)
        gemm_f64(team, &j->p->gemm, a, b, y);
    else
        gemm_f32(team, &j->p->gemm, a, b, y);
}

static void multiply_some(void *ctx, int worker, int nworker)
{
    const Job *j = ctx;
    int64_t first, end;
    team_part(j->batches, 1, worker, nworker, &first, &end);
    Walk w = walk_over(j->c, j->p->batch);
    walk_seek(&w, first);
    for (int64_t i = first; i < end; i++, walk_next(&w))
        multiply(j, NULL, &w);
}

/* A row of the result before the product: the bias, which is of its type. */
static void start_row(Reals row, Reals bias, int64_t n, bool adds)
{
    if (!adds)
        memcpy(row.at, bias.at, (size_t)(n * dtype_bytes(row.dtype)));
    for (int64_t i = 0; adds && i < n; i++)
        put(row, i, get(row, i) + get(bias, i));
}

/* Every worker some of the rows. */
static void start_rows(void *ctx, int worker, int nworker)
{
    const Job *j = ctx;
    const KCall *c = j->c;
    int64_t first, end;
    FactorSet rows = out_factors(c, 0) & ~j->p->columns;
    team_part(set_extent(c, rows), 1, worker, nworker, &first, &end);
    Walk w = walk_over(c, rows);
    walk_seek(&w, first);
    for (int64_t r = first; r < end; r++, walk_next(&w))
        start_row(reals_from(OUT(0), w.at[MAX_ARGS]), reals_from(ARG(2), w.at[2]), j->p->gemm.n, kcall_adds(c, 0));
}

/* Whether the bias has the result's type and lies along its rows, element for element. */
static bool bias_fits(const KCall *c, const Product *p)
{
    for (int f = 0; f < c->in->nfactor; f++)
        if ((p->columns >> f & 1) && c->in->extent[f] > 1 && arg_stride(c, 2, f) != out_stride(c, 0, f))
            return false;
    return c->argt[2]->dtype == c->outt[0]->dtype;
}

/* Operands of one type, and a result of it or, of bf16, of f32. */
static bool types_fit(const KCall *c)
{
    DType t = c->argt[0]->dtype, y = c->outt[0]->dtype;
    return c->argt[1]->dtype == t && (y == t || (t == DT_bf16 && y == DT_f32));
}

/* The product as gemms; false, and nothing done, when it is none. */
static bool product(const KCall *c, bool biased)
{
    Product p;
    if (!types_fit(c) || (!as_gemm(c, 0, 1, &p) && !as_gemm(c, 1, 0, &p)))
        return false;
    if (biased && !bias_fits(c, &p))
        return false;
    Job j = {c, &p, set_extent(c, p.batch)};
    p.gemm.beta = biased || kcall_adds(c, 0) ? 1 : 0;
    if (biased)
        team_run(c->team, start_rows, &j);
    if (j.batches >= team_size(c->team) && j.batches > 1) {
        team_run(c->team, multiply_some, &j);
        return true;
    }
    for (Walk w = walk_over(c, p.batch); w.more; walk_next(&w))
        multiply(&j, c->team, &w);
    return true;
}

CPU_REALS(contract)
{
    if (!product(c, false))
        ref_contract(c);
}

CPU_KERNEL(contract, f64)
{
    contract_reals(c);
}

CPU_REALS(linear)
{
    if (!product(c, c->arg[2] != NULL))
        ref_linear(c);
}

CPU_KERNEL(linear, f64)
{
    linear_reals(c);
}

/* ---- linear_gelu: the product goes to `pre` and, where that is not saved, to y ---- */

typedef struct Gelu { Reals x, y; int64_t n; bool exact; } Gelu;

static void gelu_some(void *ctx, int worker, int nworker)
{
    const Gelu *g = ctx;
    int64_t first, end;
    team_part(g->n, 1024, worker, nworker, &first, &end);
    for (int64_t i = first; i < end; i += LANES) {
        Vec x = lanes_take(g->x, i, end);
        lanes_give(g->y, i, x * (g->exact ? gelu_exact_gate(x) : gelu_gate(x)), end);
    }
}

CPU_REALS(linear_gelu)
{
    KCall inner = *c;
    if (c->in->nout > 1 && c->out[1]) {
        inner.out[0] = c->out[1];
        inner.outt[0] = c->outt[1];
    }
    if (!product(&inner, c->arg[2] != NULL)) {
        ref_linear_gelu(c);
        return;
    }
    Gelu g = {{inner.outt[0]->dtype, inner.out[0]}, OUT(0), tensor_elements(c->outt[0]), attr_bool(c, "exact")};
    team_run(c->team, gelu_some, &g);
}
