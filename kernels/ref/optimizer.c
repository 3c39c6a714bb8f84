/* Optimizer steps on flat states, each of a type of its own.  Updates as PyTorch's
 * AdamW (Loshchilov, Hutter 2019) and SGD; the gradient is scaled down so that its
 * norm is at most `clip`.  A norm that is not finite changes nothing. */
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

/* What is stepped, and what the model computes with where that is rounded from it. */
static void give_weight(Reals stepped, Reals rounded, int64_t i, double w)
{
    put(stepped, i, w);
    if (rounded.at)
        put(rounded, i, get(stepped, i));
}

REF_KERNEL(adamw)
{
    const Optimizer *o = c->step->optimizer;
    Reals weight = ARG(0), grad = ARG(1), mean = ARG(2), square = ARG(3);
    double lr = c->step->lr, clip = clip_of(c, 4), decay = attr_bool(c, "decays") ? lr * o->weight_decay : 0;
    for (int64_t i = 0; i < tensor_elements(c->argt[0]); i++) {
        double w = get(weight, i), m = get(mean, i), v = get(square, i), g = get(grad, i) * clip;
        if (clip >= 0) {
            w -= decay * w;
            m = o->beta1 * m + (1 - o->beta1) * g;
            v = o->beta2 * v + (1 - o->beta2) * g * g;
            w -= lr / c->step->correction1 * m / (sqrt(v / c->step->correction2) + o->eps);
        }
        give_weight(OUT(0), OUT(3), i, w);
        put(OUT(1), i, m);
        put(OUT(2), i, v);
    }
}

REF_KERNEL(sgd)
{
    const Optimizer *o = c->step->optimizer;
    Reals weight = ARG(0), grad = ARG(1), moment = ARG(2), moved = OUT(1);
    double clip = clip_of(c, 3), decay = attr_bool(c, "decays") ? o->weight_decay : 0;
    for (int64_t i = 0; i < tensor_elements(c->argt[0]); i++) {
        double w = get(weight, i), m = moment.at ? get(moment, i) : 0, g = get(grad, i) * clip;
        if (clip >= 0) {
            m = o->momentum * m + g + decay * w;
            w -= c->step->lr * m;
        }
        give_weight(OUT(0), OUT(2), i, w);
        if (moved.at)
            put(moved, i, m);
    }
}
