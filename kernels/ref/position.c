/* Positions: rotary embedding (Su et al. 2021, pairs i and i + e/2) and the relative
 * bias of T5 (Raffel et al. 2020). */
#include "kernels/ref/ref.h"
#include "kernels/relative.h"

/* Position of the row where the walk stands: given, or its place along factor s. */
static int64_t position_of(const KCall *c, const Walk *w, int s)
{
    if (c->in->narg > 1 && c->arg[1])
        return int_at(c->argt[1], c->arg[1], w->at[1]);
    return place_global(factor_place(c, s), walk_index(w, s), c->step->micro);
}

static int64_t bucket_of(const KCall *c, const AxisPlace axis[3], int64_t i, int64_t j)
{
    RelativeBuckets b = {attr_int(c, "buckets"), attr_int(c, "reach"), attr_bool(c, "two_way")};
    return relative_bucket(b, place_global(&axis[2], j, 0) - place_global(&axis[1], i, 0));
}

/* Turn every pair by `sign` times its angle, position * base^(-2i/e). */
static void turn(const KCall *c, double sign)
{
    Reals x = ARG(0), y = OUT(0);
    const Tensor *t = c->argt[0];
    int64_t half = row_length(t) / 2;
    int s = c->in->arg_factor[0][t->rank - 3], e = c->in->arg_factor[0][t->rank - 1];
    double base = attr_real(c, "base");
    assert(row_length(t) % 2 == 0);
    for (Walk w = walk_over(c, arg_factors(c, 0) & ~(1u << e)); w.more; walk_next(&w)) {
        double position = (double)position_of(c, &w, s);
        Reals in = reals_from(x, w.at[0]), out = reals_from(y, w.at[MAX_ARGS]);
        for (int64_t i = 0; i < half; i++) {
            double angle = sign * position * pow(base, -(double)i / (double)half);
            double a = get(in, i), b = get(in, i + half);
            put(out, i, a * cos(angle) - b * sin(angle));
            put(out, i + half, b * cos(angle) + a * sin(angle));
        }
    }
}

REF_KERNEL(rope)
{
    turn(c, 1);
}

REF_KERNEL(rope_grad)
{
    turn(c, -1);
}

/* [h, s, t] from w[b, h] */
REF_KERNEL(relative_bias)
{
    Reals weight = ARG(0), y = OUT(0);
    const AxisPlace *axis = c->outt[0]->axis;
    int64_t at = 0;
    for (int64_t h = 0; h < axis[0].local; h++)
        for (int64_t i = 0; i < axis[1].local; i++)
            for (int64_t j = 0; j < axis[2].local; j++)
                put(y, at++, get(weight, bucket_of(c, axis, i, j) * axis[0].local + h));
}

REF_KERNEL(relative_bias_grad)
{
    Reals dy = ARG(0), dw = OUT(0);
    const AxisPlace *axis = c->argt[0]->axis;
    int64_t at = 0;
    if (!kcall_adds(c, 0))
        clear(c->outt[0], c->out[0]);
    for (int64_t h = 0; h < axis[0].local; h++)
        for (int64_t i = 0; i < axis[1].local; i++)
            for (int64_t j = 0; j < axis[2].local; j++)
                give(dw, bucket_of(c, axis, i, j) * axis[0].local + h, get(dy, at++), true);
}
