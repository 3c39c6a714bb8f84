/* Products: contract and linear, sums over the factors the result lacks. */
#ifndef REAL
#include "kernels/ref/ref.h"

#define THIS "kernels/ref/product.c"
#include "kernels/each_real.h"
#else

/* y = sum of a b (+ bias), or that added to y. */
static void NAME(product)(const KCall *c, const REAL *bias, REAL *y)
{
    const REAL *a = ARG(0), *b = ARG(1);
    FactorSet kept = out_factors(c, 0), summed = (arg_factors(c, 0) | arg_factors(c, 1)) & ~kept;
    bool adds = kcall_adds(c, 0);
    Walk k = walk_over(c, summed);
    for (Walk w = walk_over(c, kept); w.more; walk_next(&w)) {
        double sum = bias ? (double)bias[w.at[2]] : 0;
        for (walk_from(&k, &w); k.more; walk_next(&k))
            sum += (double)a[k.at[0]] * (double)b[k.at[1]];
        REAL *out = &y[w.at[MAX_ARGS]];
        *out = (REAL)(adds ? (double)*out + sum : sum);
    }
}

REF_KERNEL(contract)
{
    NAME(product)(c, NULL, OUT(0));
}

REF_KERNEL(linear)
{
    NAME(product)(c, ARG(2), OUT(0));
}

/* gelu of a linear layer; `pre`, the value before gelu, is saved. */
REF_KERNEL(linear_gelu)
{
    REAL *y = OUT(0), *pre = OUT(1);
    bool exact = attr_bool(c, "exact");
    NAME(product)(c, ARG(2), y);
    for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w)) {
        double x = (double)y[w.at[MAX_ARGS]];
        if (pre)
            pre[w.at[MAX_ARGS + 1]] = (REAL)x;
        y[w.at[MAX_ARGS]] = (REAL)ref_gelu(x, exact);
    }
}

#endif
