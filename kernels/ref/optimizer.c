/* Optimizer steps on flat states, all of one dtype or not.  Updates as PyTorch's
 * AdamW (Loshchilov, Hutter 2019) and SGD; the gradient is scaled down so that its
 * norm is at most `clip`.  A norm that is not finite changes nothing. */
#ifndef REAL
#include "kernels/ref/ref.h"

/* What the gradient is multiplied by, from the sum of squares of all gradients;
 * negative when it is not finite. */
static double clip_of(const KCall *c, int arg)
{
    double norm = sqrt(real_at(c->argt[arg], c->arg[arg], 0)), clip = c->step->optimizer->clip;
    if (!isfinite(norm))
        return -1;
    return clip > 0 && norm > clip ? clip / norm : 1;
}

static double at(const KCall *c, int arg, int64_t i)
{
    return real_at(c->argt[arg], c->arg[arg], i);
}

static void put(const KCall *c, int out, int64_t i, double x)
{
    real_put(c->outt[out], c->out[out], i, x);
}

#define THIS "kernels/ref/optimizer.c"
#include "kernels/each_real.h"
#else

REF_KERNEL(adamw)
{
    const Optimizer *o = c->step->optimizer;
    double lr = c->step->lr, clip = clip_of(c, 4), decay = attr_bool(c, "decays") ? lr * o->weight_decay : 0;
    for (int64_t i = 0; i < tensor_elements(c->argt[0]); i++) {
        double w = at(c, 0, i), m = at(c, 2, i), v = at(c, 3, i), g = at(c, 1, i) * clip;
        if (clip >= 0) {
            w -= decay * w;
            m = o->beta1 * m + (1 - o->beta1) * g;
            v = o->beta2 * v + (1 - o->beta2) * g * g;
            w -= lr / c->step->correction1 * m / (sqrt(v / c->step->correction2) + o->eps);
        }
        put(c, 0, i, w);
        put(c, 1, i, m);
        put(c, 2, i, v);
    }
}

REF_KERNEL(sgd)
{
    const Optimizer *o = c->step->optimizer;
    double clip = clip_of(c, 3), decay = attr_bool(c, "decays") ? o->weight_decay : 0;
    for (int64_t i = 0; i < tensor_elements(c->argt[0]); i++) {
        double w = at(c, 0, i), m = c->arg[2] ? at(c, 2, i) : 0, g = at(c, 1, i) * clip;
        if (clip >= 0) {
            m = o->momentum * m + g + decay * w;
            w -= c->step->lr * m;
        }
        put(c, 0, i, w);
        if (c->out[1])
            put(c, 1, i, m);
    }
}

#endif
