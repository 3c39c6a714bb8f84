/* Sums over axes and their reverse, broadcasts. */
#include "kernels/ref/ref.h"

REF_KERNEL(reduce)
{
    Reals x = ARG(0), y = OUT(0);
    FactorSet summed = arg_factors(c, 0) & ~out_factors(c, 0);
    double by = attr_bool(c, "mean") ? 1 / mean_count(c, summed) : 1;
    bool adds = kcall_adds(c, 0);
    Walk s = walk_over(c, summed);
    for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w)) {
        double sum = 0;
        for (walk_from(&s, &w); s.more; walk_next(&s))
            sum += get(x, s.at[0]);
        give(y, w.at[MAX_ARGS], sum * by, adds);
    }
}

REF_KERNEL(expand)
{
    Reals x = ARG(0), y = OUT(0);
    FactorSet made = out_factors(c, 0) & ~arg_factors(c, 0);
    double by = attr_bool(c, "mean") ? 1 / mean_count(c, made) : 1;
    bool adds = kcall_adds(c, 0);
    for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w))
        give(y, w.at[MAX_ARGS], get(x, w.at[0]) * by, adds);
}

REF_KERNEL(sum_squares)
{
    double sum = 0;
    Reals g = ARG(0);
    for (int64_t i = 0; i < tensor_elements(c->argt[0]); i++)
        sum += get(g, i) * get(g, i);
    if (kcall_adds(c, 0))
        sum += real_at(c->outt[0], c->out[0], 0);
    real_put(c->outt[0], c->out[0], 0, sum);
}
