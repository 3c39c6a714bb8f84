/* Optimizer steps as one pass over the states: AdamW reads four numbers of an
 * element and writes three, so it runs at the speed of memory. */
#include "kernels/cpu/rows.h"

typedef struct Update {
    const KCall *c;
    float        clip, decay;         /* decay: weights are multiplied by 1 - it (AdamW), or it by them is added (SGD) */
    float        beta1, beta2, rate, root, eps;      /* rate: lr / correction1; root: sqrt(1 / correction2) */
} Update;

/* All states in f32, but for weights rounded from what is stepped. */
static bool fits(const KCall *c, int states)
{
    for (int i = 0; i < states; i++)
        if (c->argt[i] && c->argt[i]->dtype != DT_f32)
            return false;
    return !c->out[states - 1] || c->outt[states - 1]->dtype == DT_bf16;
}

/* What the gradient is multiplied by; false when its norm is not finite. */
static bool update_clip(const KCall *c, int arg, float *by)
{
    double norm = sqrt(real_at(c->argt[arg], c->arg[arg], 0)), clip = c->step->optimizer->clip;
    *by = (float)(clip > 0 && norm > clip ? clip / norm : 1);
    return isfinite(norm);
}

static void adamw_some(void *ctx, int worker, int nworker)
{
    const Update *u = ctx;
    const KCall *c = u->c;
    const float *w = ARG_F32(0), *g = ARG_F32(1), *m = ARG_F32(2), *v = ARG_F32(3);
    float *w1 = OUT_F32(0), *m1 = OUT_F32(1), *v1 = OUT_F32(2);
    Bf16 *rounded = c->out[3];
    const Vec clip = vec_all(u->clip), keep = vec_all(u->decay), b1 = vec_all(u->beta1), b2 = vec_all(u->beta2);
    const Vec c1 = vec_all((float)(1 - c->step->optimizer->beta1)), c2 = vec_all((float)(1 - c->step->optimizer->beta2));
    const Vec rate = vec_all(-u->rate), root = vec_all(u->root), eps = vec_all(u->eps);
    int64_t first, end;
    team_part(tensor_elements(c->argt[0]), 64, worker, nworker, &first, &end);
    for (int64_t i = first; i < end; i += LANES) {
        int64_t left = end - i;
        Vec grad = vec_take(g + i, left) * clip;
        Vec mean = vec_fma(b1, vec_take(m + i, left), c1 * grad);
        Vec square = vec_fma(b2, vec_take(v + i, left), c2 * grad * grad);
        Vec step = mean / vec_fma(vec_sqrt(square), root, eps), old = vec_take(w + i, left);
        Vec new = vec_fma(rate, step, vec_fma(keep, old, old));
        vec_give(w1 + i, new, left);
        if (rounded)
            vec_round(rounded + i, new, left);
        vec_give(m1 + i, mean, left);
        vec_give(v1 + i, square, left);
    }
}

CPU_REALS(adamw)
{
    const Optimizer *o = c->step->optimizer;
    Update u = {.c = c, .beta1 = (float)o->beta1, .beta2 = (float)o->beta2, .eps = (float)o->eps};
    u.decay = attr_bool(c, "decays") ? (float)(-c->step->lr * o->weight_decay) : 0;
    u.rate = (float)(c->step->lr / c->step->correction1);
    u.root = (float)sqrt(1 / c->step->correction2);
    if (!fits(c, 4) || !update_clip(c, 4, &u.clip))
        ref_adamw(c);
    else
        team_run(c->team, adamw_some, &u);
}

static void sgd_some(void *ctx, int worker, int nworker)
{
    const Update *u = ctx;
    const KCall *c = u->c;
    const float *w = ARG_F32(0), *g = ARG_F32(1), *m = ARG_F32(2);
    float *w1 = OUT_F32(0), *m1 = OUT_F32(1);
    Bf16 *rounded = c->out[2];
    const Vec clip = vec_all(u->clip), decay = vec_all(u->decay), momentum = vec_all(u->beta1), rate = vec_all(-u->rate);
    int64_t first, end;
    team_part(tensor_elements(c->argt[0]), 64, worker, nworker, &first, &end);
    for (int64_t i = first; i < end; i += LANES) {
        int64_t left = end - i;
        Vec old = vec_take(w + i, left), step = vec_fma(decay, old, vec_take(g + i, left) * clip);
        if (m)
            step = vec_fma(momentum, vec_take(m + i, left), step);
        Vec new = vec_fma(rate, step, old);
        vec_give(w1 + i, new, left);
        if (m1)
            vec_give(m1 + i, step, left);
        if (rounded)
            vec_round(rounded + i, new, left);
    }
}

CPU_REALS(sgd)
{
    const Optimizer *o = c->step->optimizer;
    Update u = {.c = c, .beta1 = (float)o->momentum, .rate = (float)c->step->lr};
    u.decay = attr_bool(c, "decays") ? (float)o->weight_decay : 0;
    if (!fits(c, 3) || !update_clip(c, 3, &u.clip))
        ref_sgd(c);
    else
        team_run(c->team, sgd_some, &u);
}
