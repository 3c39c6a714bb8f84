/* Products as matrices: see product.h. */
#include "kernels/product.h"

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

bool product_as_gemm(const KCall *c, Product *p)
{
    return as_gemm(c, 0, 1, p) || as_gemm(c, 1, 0, p);
}

bool product_bias_fits(const KCall *c, const Product *p)
{
    for (int f = 0; f < c->in->nfactor; f++)
        if ((p->columns >> f & 1) && c->in->extent[f] > 1 && arg_stride(c, 2, f) != out_stride(c, 0, f))
            return false;
    return c->argt[2]->dtype == c->outt[0]->dtype;
}

bool product_types_fit(const KCall *c)
{
    DType t = c->argt[0]->dtype, y = c->outt[0]->dtype;
    return c->argt[1]->dtype == t && (y == t || (t == DT_bf16 && y == DT_f32));
}
