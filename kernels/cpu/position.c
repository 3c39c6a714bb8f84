/* Rotary embedding.  The angles of a position are computed once, in double, for all
 * heads and, where the position is the place along the sequence, for all sequences. */
#include "kernels/cpu/rows.h"

enum { MOST_PAIRS = 512 };

typedef struct Turn {
    const KCall *c;
    double       sign;
    int          s, h;                /* factors of the sequence and the heads */
    FactorSet    outer, inner;        /* outer: one position each; inner: what shares it, without heads */
    int64_t      positions, heads, half;
    double       frequency[MOST_PAIRS];
} Turn;

static int64_t turn_position(const Turn *t, const Walk *w)
{
    const KCall *c = t->c;
    if (c->in->narg > 1 && c->arg[1])
        return int_at(c->argt[1], c->arg[1], w->at[1]);
    return place_global(factor_place(c, t->s), walk_index(w, t->s), c->step->micro);
}

static void turn_angles(const Turn *t, int64_t position, float *cosine, float *sine)
{
    for (int64_t i = 0; i < t->half; i++) {
        double angle = t->sign * (double)position * t->frequency[i];
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
}

static void turn_head(const float *x, float *y, int64_t half, const float *cosine, const float *sine)
{
    for (int64_t i = 0; i < half; i += LANES) {
        int64_t left = half - i;
        Vec a = vec_take(x + i, left), b = vec_take(x + i + half, left);
        Vec k = vec_take(cosine + i, left), s = vec_take(sine + i, left);
        vec_give(y + i, a * k - b * s, left);
        vec_give(y + i + half, vec_fma(b, k, a * s), left);
    }
}

static void turn_some(void *ctx, int worker, int nworker)
{
    const Turn *t = ctx;
    const KCall *c = t->c;
    float cosine[MOST_PAIRS], sine[MOST_PAIRS];
    int64_t first, end, in_step = arg_stride(c, 0, t->h), out_step = out_stride(c, 0, t->h);
    team_part(t->positions, 1, worker, nworker, &first, &end);
    Walk w = walk_over(c, t->outer), rest = walk_over(c, t->inner);
    walk_seek(&w, first);
    for (int64_t i = first; i < end; i++, walk_next(&w)) {
        turn_angles(t, turn_position(t, &w), cosine, sine);
        for (walk_from(&rest, &w); rest.more; walk_next(&rest))
            for (int64_t h = 0; h < t->heads; h++)
                turn_head(ARG_F32(0) + rest.at[0] + h * in_step, OUT_F32(0) + rest.at[MAX_ARGS] + h * out_step, t->half, cosine, sine);
    }
}

/* False, and nothing done, when the heads are too wide for the tables. */
static bool turn(const KCall *c, double sign)
{
    const Tensor *x = c->argt[0];
    const uint8_t *factor = c->in->arg_factor[0];
    Turn t = {.c = c, .sign = sign, .s = factor[x->rank - 3], .h = factor[x->rank - 2], .half = row_length(x) / 2};
    if (t.half > MOST_PAIRS)
        return false;
    FactorSet all = arg_factors(c, 0) & ~(1u << t.h) & ~(1u << factor[x->rank - 1]);
    t.outer = 1u << t.s | (arg_factors(c, 1) & all);
    t.inner = all & ~t.outer;
    t.positions = set_extent(c, t.outer);
    t.heads = c->in->extent[t.h];
    for (int64_t i = 0; i < t.half; i++)
        t.frequency[i] = pow(attr_real(c, "base"), -(double)i / (double)t.half);
    team_run(c->team, turn_some, &t);
    return true;
}

CPU_KERNEL(rope, f32)
{
    if (!turn(c, 1))
        ref_rope(c);
}

CPU_KERNEL(rope_grad, f32)
{
    if (!turn(c, -1))
        ref_rope_grad(c);
}
