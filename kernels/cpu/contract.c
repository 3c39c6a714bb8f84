/* Products: gemms where kernels/product.h says that they are some, else the plain form runs. */
#include "kernels/cpu/gates.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/runs.h"
#include "kernels/product.h"

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

/* The product as gemms; false, and nothing done, when it is none. */
static bool product(const KCall *c, bool biased)
{
    Product p;
    if (!product_types_fit(c) || !product_as_gemm(c, &p))
        return false;
    if (biased && !product_bias_fits(c, &p))
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
