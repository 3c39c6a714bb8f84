/* Ops that move elements: other orders of axes, parts of an axis, constants. */
#include "kernels/ref/ref.h"

/* One element, of any type. */
static void move(const KCall *c, int64_t to, int64_t from)
{
    real_put(c->outt[0], c->out[0], to, real_at(c->argt[0], c->arg[0], from));
}

REF_KERNEL(transpose)
{
    for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w))
        move(c, w.at[MAX_ARGS], w.at[0]);
}

/* Index `at` of the axis that the result lacks. */
REF_KERNEL(select)
{
    int64_t first = attr_int(c, "at") * arg_stride(c, 0, factor_of(arg_factors(c, 0) & ~out_factors(c, 0)));
    for (Walk w = walk_over(c, out_factors(c, 0)); w.more; walk_next(&w))
        move(c, w.at[MAX_ARGS], first + w.at[0]);
}

/* Indices from `first` of the axis that the result has under another name, of any type. */
REF_KERNEL(slice)
{
    const char *x = c->arg[0];
    char *y = c->out[0];
    int64_t size = dtype_bytes(c->outt[0]->dtype);
    FactorSet in = arg_factors(c, 0), out = out_factors(c, 0);
    int64_t stride = arg_stride(c, 0, factor_of(in & ~out));
    int t = factor_of(out & ~in);
    for (Walk w = walk_over(c, out); w.more; walk_next(&w))
        memcpy(y + w.at[MAX_ARGS] * size, x + (w.at[0] + (attr_int(c, "first") + walk_index(&w, t)) * stride) * size, (size_t)size);
}

/* Zeros, but x at the indices from `first` of the axis that only the result has;
 * x has it under another name (the reverse of slice) or not at all (of select). */
REF_KERNEL(place)
{
    Reals x = ARG(0), y = OUT(0);
    FactorSet in = arg_factors(c, 0), out = out_factors(c, 0), own = in & ~out;
    int64_t stride = out_stride(c, 0, factor_of(out & ~in));
    clear(c->outt[0], c->out[0]);
    for (Walk w = walk_over(c, in); w.more; walk_next(&w)) {
        int64_t i = attr_int(c, "first") + (own ? walk_index(&w, factor_of(own)) : 0);
        put(y, w.at[MAX_ARGS] + i * stride, get(x, w.at[0]));
    }
}

/* One operand of concat, from index `first` of the joined axis; returns where it
 * ends.  An operand without an axis of its own there is one index long; one that
 * lacks another axis of the result is repeated along it. */
static int64_t join(const KCall *c, int arg, Reals x, int64_t first)
{
    Reals y = OUT(0);
    FactorSet out = out_factors(c, 0), own = arg_factors(c, arg) & ~out;
    int joined = factor_of(out & ~(arg_factors(c, 0) | arg_factors(c, 1)));
    int64_t stride = out_stride(c, 0, joined);
    for (Walk w = walk_over(c, (out & ~(1u << joined)) | own); w.more; walk_next(&w)) {
        int64_t i = own ? walk_index(&w, factor_of(own)) : 0;
        put(y, w.at[MAX_ARGS] + (first + i) * stride, get(x, w.at[arg]));
    }
    return first + set_extent(c, own);
}

REF_KERNEL(concat)
{
    int64_t first = join(c, 0, ARG(0), 0);
    join(c, 1, ARG(1), first);
}

REF_KERNEL(constant)
{
    real_put(c->outt[0], c->out[0], 0, attr_real(c, "value"));
}

REF_KERNEL(zeros)
{
    for (int64_t i = 0; i < tensor_elements(c->outt[0]); i++)
        real_put(c->outt[0], c->out[0], i, 0);
}

REF_KERNEL(iota)
{
    for (int64_t i = 0; i < tensor_elements(c->outt[0]); i++)
        real_put(c->outt[0], c->out[0], i, (double)place_global(&c->outt[0]->axis[0], i, c->step->micro));
}
