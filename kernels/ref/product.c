/* Products: contract and linear, sums over the factors the result lacks. */
#include "kernels/ref/ref.h"

/* y = sum of a b (+ bias), or that added to y. */
static void product(const KCall *c, Reals bias, Reals y)
{
    Reals a = ARG(0), b = ARG(1);
    FactorSet kept = out_factors(c, 0), summed = (arg_factors(c, 0) | arg_factors(c, 1)) & ~kept;
    bool adds = kcall_adds(c, 0);
    Walk k = walk_over(c, summed);
    for (Walk w = walk_over(c, kept); w.more; walk_next(&w)) {
        double sum = bias.at ? get(bias, w.at[2]) : 0;
        for (walk_from(&k, &w); k.more; walk_next(&k))
            sum += get(a, k.at[0]) * get(b, k.at[1]);
        give(y, w.at[MAX_ARGS], sum, adds);
    }
}

REF_KERNEL(contract)
{
    product(c, (Reals){0}, OUT(0));
}

REF_KERNEL(linear)
{
    product(c, ARG(2), OUT(0));
}

/* gelu of a linear layer; `pre`, the value before gelu, is saved. */
REF_KERNEL(linear_gelu)
{
    Reals y = OUT(0), pre = OUT(1);
    bool exact = attr_bool(c, "exact");
    product(c, ARG(2), y);
    for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w)) {
        double x = get(y, w.at[MAX_ARGS]);
        if (pre.at)
            put(pre, w.at[MAX_ARGS + 1], x);
        put(y, w.at[MAX_ARGS], scalar_gelu(x, exact));
    }
}
