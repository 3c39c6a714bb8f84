/* fit: coordinate descent, the same steps in the same order every time. */
#include "bench/accuracy/fit.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

uint32_t fit_fold(const Row *r)
{
    Arena *a = arena_new("fold");
    uint32_t h = fnv1a(arena_printf(a, "%s %lld %lld %lld %lld %lld %lld %s", r->model, (long long)r->seq, (long long)r->gpus, (long long)r->tp,
                                    (long long)r->pp, (long long)r->micro, (long long)r->heads, r->runtime->profile));
    arena_free(a);
    return (h ^ h >> 15) % FOLDS;
}

Fit fit_new(Arena *a, Case **cases, uint32_t n)
{
    Fit f = {.arena = a, .scratch = arena_new("scratch"), .cases = cases, .n = n};
    f.seconds = NEWN(a, double, n + 1);
    f.in = NEWN(a, bool, n + 1);
    memset(f.in, 1, n);
    f.constants = constants_of(a, cases, n);
    return f;
}

static double miss(double predicted, const Row *r)
{
    return fabs(log(predicted / r->seconds));
}

double fit_predict(Fit *f, uint32_t i)
{
    arena_reset(f->scratch, 64 << 20);
    f->tried++;
    return case_seconds(f->cases[i], f->scratch);
}

/* Of cases that a constant concerns: their misses now. */
static double misses(const Fit *f, const Constant *k)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (f->in[i] && constant_concerns(k, f->cases[i]))
            sum += miss(f->seconds[i], f->cases[i]->row);
    return sum;
}

static void apply(Fit *f, const Constant *k)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (constant_concerns(k, f->cases[i]))
            constant_apply(k, f->cases[i]);
}

/* Whether another value is better; then it is taken.  It stops where too much is lost already. */
static bool try_value(Fit *f, Constant *k, double value)
{
    double before = misses(f, k), sum = 0, old = k->value;
    double *seconds = NEWN(f->arena, double, f->n + 1);
    if (value == old)
        return false;
    k->value = value;
    apply(f, k);
    for (uint32_t i = 0; i < f->n && sum < before; i++)
        if (f->in[i] && constant_concerns(k, f->cases[i])) {
            seconds[i] = fit_predict(f, i);
            sum += miss(seconds[i], f->cases[i]->row);
        }
    if (!(sum < before - 1e-4)) {
        k->value = old;
        apply(f, k);
        return false;
    }
    for (uint32_t i = 0; i < f->n; i++)
        if (f->in[i] && constant_concerns(k, f->cases[i]))
            f->seconds[i] = seconds[i];
    return true;
}

static double within(const Constant *k, double value)
{
    double least = constant_least(k), most = constant_most(k);
    return value < least ? least : value > most ? most : value;
}

/* Steps up, else down, as long as they are better. */
static bool improve(Fit *f, Constant *k, double step)
{
    bool better = false;
    while (try_value(f, k, within(k, k->value * step)))
        better = true;
    while (!better && try_value(f, k, within(k, k->value / step)))
        for (better = true; try_value(f, k, within(k, k->value / step));)
            ;
    return better;
}

void fit_run(Fit *f)
{
    static const double steps[] = {1.6, 1.2, 1.06, 1.02};
    for (uint32_t k = 0; k < f->constants.n; k++) {
        f->constants.constant[k].value = constant_start(&f->constants.constant[k]);
        apply(f, &f->constants.constant[k]);
    }
    for (uint32_t i = 0; i < f->n; i++)
        if (f->in[i])
            f->seconds[i] = fit_predict(f, i);
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        for (int round = 0; round < 6; round++) {
            bool better = false;
            for (uint32_t k = 0; k < f->constants.n; k++)
                better |= improve(f, &f->constants.constant[k], steps[s]);
            if (!better)
                break;
        }
}
