/* Rotary embedding.  The angles of a position are computed once, in double, for all
 * heads and, where the position is the place along the sequence, for all sequences. */
#include "kernels/cpu/rows.h"

enum { MOST_PAIRS = 512 };

typedef struct Turn {
    const KCall *c;
    int          s, h;                /* factors of the sequence and the heads */
    FactorSet    outer, inner;        /* outer: one position each; inner: what shares it, without heads */
    int64_t      positions, heads, half;
    double       quarters[MOST_PAIRS];               /* of a turn, for each position */
} Turn;

static int64_t turn_position(const Turn *t, const Walk *w)
{
    const KCall *c = t->c;
    if (c->in->narg > 1 && c->arg[1])
        return int_at(c->argt[1], c->arg[1], w->at[1]);
    return place_global(factor_place(c, t->s), walk_index(w, t->s), c->step->micro);
}

/* Of the angle r + q pi/2, |r| <= pi/4: the Taylor sums of r to r^12, whose rest is below
 * 1e-11, exchanged where q is odd and signed by q modulo 4.  In double, and without a branch,
 * so that the compiler makes vectors of the loop. */
static void turn_angles(const Turn *t, int64_t position, float *cosine, float *sine)
{
    for (int64_t i = 0; i < t->half; i++) {
        double turn = (double)position * t->quarters[i], q = rint(turn), r = (turn - q) * (M_PI / 2), x = r * r;
        double s = r * (1 + x * (-1.0 / 6 + x * (1.0 / 120 + x * (-1.0 / 5040 + x * (1.0 / 362880 - x * (1.0 / 39916800))))));
        double c = 1 + x * (-1.0 / 2 + x * (1.0 / 24 + x * (-1.0 / 720 + x * (1.0 / 40320 + x * (-1.0 / 3628800 + x * (1.0 / 479001600))))));
        q -= 4 * rint(q / 4 - 0.375);                /* 0 to 3: rint() is a vector instruction, and floor() is none */
        double half = rint(q / 2 - 0.25), odd = q - 2 * half;
        cosine[i] = (float)((1 - 2 * (half - odd) * (half - odd)) * (odd * s + (1 - odd) * c));
        sine[i] = (float)((1 - 2 * half) * (odd * c + (1 - odd) * s));
    }
}

static void turn_head(Reals x, Reals y, int64_t half, const float *cosine, const float *sine)
{
    Reals x2 = reals_from(x, half), y2 = reals_from(y, half);
    for (int64_t i = 0; i < half; i += LANES) {
        int64_t left = half - i;
        Vec a = lanes_take(x, i, half), b = lanes_take(x2, i, half);
        Vec k = vec_take(cosine + i, left), s = vec_take(sine + i, left);
        lanes_give(y, i, a * k - b * s, half);
        lanes_give(y2, i, vec_fma(b, k, a * s), half);
    }
}

static void turn_some(void *ctx, int worker, int nworker)
{
    const Turn *t = ctx;
    const KCall *c = t->c;
    float cosine[MOST_PAIRS], sine[MOST_PAIRS];
    Reals x = ARG(0), y = OUT(0);
    int64_t first, end, in_step = arg_stride(c, 0, t->h), out_step = out_stride(c, 0, t->h);
    team_part(t->positions, 1, worker, nworker, &first, &end);
    Walk w = walk_over(c, t->outer), rest = walk_over(c, t->inner);
    walk_seek(&w, first);
    for (int64_t i = first; i < end; i++, walk_next(&w)) {
        turn_angles(t, turn_position(t, &w), cosine, sine);
        for (walk_from(&rest, &w); rest.more; walk_next(&rest))
            for (int64_t h = 0; h < t->heads; h++)
                turn_head(reals_from(x, rest.at[0] + h * in_step), reals_from(y, rest.at[MAX_ARGS] + h * out_step), t->half, cosine, sine);
    }
}

/* False, and nothing done, when the heads are too wide for the tables. */
static bool turn(const KCall *c, double sign)
{
    const Tensor *x = c->argt[0];
    const uint8_t *factor = c->in->arg_factor[0];
    Turn t = {.c = c, .s = factor[x->rank - 3], .h = factor[x->rank - 2], .half = row_length(x) / 2};
    if (t.half > MOST_PAIRS)
        return false;
    FactorSet all = arg_factors(c, 0) & ~(1u << t.h) & ~(1u << factor[x->rank - 1]);
    t.outer = 1u << t.s | (arg_factors(c, 1) & all);
    t.inner = all & ~t.outer;
    t.positions = set_extent(c, t.outer);
    t.heads = c->in->extent[t.h];
    for (int64_t i = 0; i < t.half; i++)
        t.quarters[i] = sign * pow(attr_real(c, "base"), -(double)i / (double)t.half) / (M_PI / 2);
    team_run(c->team, turn_some, &t);
    return true;
}

CPU_REALS(rope)
{
    if (!turn(c, 1))
        ref_rope(c);
}

CPU_REALS(rope_grad)
{
    if (!turn(c, -1))
        ref_rope_grad(c);
}
