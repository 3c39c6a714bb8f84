/* fit: damped least squares on the logarithms of constants, with weights that make it a sum of absolute
 * misses where they are small and lets go of those that are large.  The same steps in the same order every time. */
#include "bench/accuracy/fit.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

/* A miss below this counts no less: the noise of the runs themselves. */
static const double NOISE = 0.03;
/* Where a miss begins to count less than its size: a run that is off by more says something of that run (a stall,
 * a mode of its own), not of constants.  At first all are off, so that comes after a fit in which hardly any is let go. */
static const double TAILS[] = {1, 0.1};
static const double NUDGE = 0.02;                    /* of a logarithm, to see what a constant does */
/* What a constant's way from its start to its end is worth, in misses: keeps what rows say nothing of where it began. */
static const double PULL = 0.05;
enum { TRIES = 4, IDLE = 2 };     /* IDLE: rounds in a row that gain next to nothing end it */

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

double fit_predict(Fit *f, uint32_t i)
{
    arena_reset(f->scratch, 64 << 20);
    f->tried++;
    return case_seconds(f->cases[i], f->scratch);
}

/* ---- constants ---- */

static double pull_of(const Constant *k)
{
    double reach = log(constant_most(k) / constant_least(k));
    return PULL * log(k->value / constant_start(k)) / reach;
}

static double within(const Constant *k, double value)
{
    double least = constant_least(k), most = constant_most(k);
    return value < least ? least : value > most ? most : value;
}

static void set(Fit *f, Constant *k, double value)
{
    k->value = within(k, value);
    for (uint32_t i = 0; i < f->n; i++)
        if (constant_concerns(k, f->cases[i]))
            constant_apply(k, f->cases[i]);
}

static void predict_all(Fit *f, double *seconds)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (f->in[i])
            seconds[i] = fit_predict(f, i);
}

static double miss(double predicted, const Row *r)
{
    return log(predicted / r->seconds);
}

/* |miss|, rounded at 0. */
static double miss_size(double m)
{
    return fabs(m) > NOISE ? fabs(m) : m * m / (2 * NOISE) + NOISE / 2;
}

/* What a miss costs, and the weight with which its square has the same slope. */
static double miss_cost(double m, double tail)
{
    return tail * log1p(miss_size(m) / tail);
}

static double miss_weight(double m, double tail)
{
    return 1 / ((fabs(m) > NOISE ? fabs(m) : NOISE) * (1 + miss_size(m) / tail));
}

/* What misses cost in sum, and what constants are away from their start. */
static double objective(const Fit *f, const double *seconds)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (f->in[i])
            sum += miss_cost(miss(seconds[i], f->cases[i]->row), f->tail);
    for (uint32_t k = 0; k < f->constants.n; k++)
        sum += pull_of(&f->constants.constant[k]) * pull_of(&f->constants.constant[k]) / PULL;
    return sum;
}

/* ---- steps ---- */

/* What each constant does to each case: d ln(seconds) / d ln(constant); [constant][case]. */
static double *slopes(Fit *f)
{
    double *slope = NEWN(f->scratch_fit, double, (size_t)f->constants.n * f->n + 1);
    for (uint32_t k = 0; k < f->constants.n; k++) {
        Constant *c = &f->constants.constant[k];
        double was = c->value, to = within(c, was * exp(NUDGE));
        if (to == was)
            to = within(c, was * exp(-NUDGE));
        set(f, c, to);
        for (uint32_t i = 0; i < f->n; i++)
            if (f->in[i] && constant_concerns(c, f->cases[i]))
                slope[(size_t)k * f->n + i] = log(fit_predict(f, i) / f->seconds[i]) / log(to / was);
        set(f, c, was);
    }
    return slope;
}

/* Solve a x = b of n unknowns in place, by Gauss's elimination; a is symmetric and positive. */
static void solve(double *a, double *b, uint32_t n)
{
    for (uint32_t p = 0; p < n; p++)
        for (uint32_t i = p + 1; i < n; i++) {
            double part = a[i * n + p] / a[p * n + p];
            for (uint32_t j = p; j < n && part != 0; j++)
                a[i * n + j] -= part * a[p * n + j];
            b[i] -= part * b[p];
        }
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t j = i + 1; j < n; j++)
            b[i] -= a[i * n + j] * b[j];
        b[i] /= a[i * n + i];
    }
}

/* The equations for the change of each logarithm, with a damping; those of `held` are 0. */
static double *solved_step(const Fit *f, const double *slope, double damping, const bool *held)
{
    uint32_t n = f->constants.n;
    double *a = NEWN(f->scratch_fit, double, (size_t)n * n + 1), *b = NEWN(f->scratch_fit, double, n + 1);
    for (uint32_t i = 0; i < f->n; i++) {
        if (!f->in[i])
            continue;
        double m = miss(f->seconds[i], f->cases[i]->row), weight = miss_weight(m, f->tail);
        for (uint32_t k = 0; k < n; k++) {
            double s = slope[(size_t)k * f->n + i];
            b[k] -= weight * s * m;
            for (uint32_t j = 0; j < n && s != 0; j++)
                a[k * n + j] += weight * s * slope[(size_t)j * f->n + i];
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        const Constant *c = &f->constants.constant[k];
        double reach = log(constant_most(c) / constant_least(c));
        b[k] -= 2 * pull_of(c) / reach;
        a[k * n + k] = a[k * n + k] * (1 + damping) + 2 * PULL / (reach * reach);
    }
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t j = 0; j < n && held[k]; j++) {
            a[k * n + j] = a[j * n + k] = k == j;
            b[k] = 0;
        }
    solve(a, b, n);
    return b;
}

/* A constant that would leave its range stays at the end, and the others are asked again. */
static double *step_of(const Fit *f, const double *slope, double damping)
{
    bool *held = NEWN(f->scratch_fit, bool, f->constants.n + 1);
    double *step = solved_step(f, slope, damping, held);
    for (bool more = true; more; step = more ? solved_step(f, slope, damping, held) : step) {
        more = false;
        for (uint32_t k = 0; k < f->constants.n; k++) {
            const Constant *c = &f->constants.constant[k];
            bool out = (c->value <= constant_least(c) && step[k] < 0) || (c->value >= constant_most(c) && step[k] > 0);
            more |= out && !held[k];
            held[k] |= out;
        }
    }
    return step;
}

static void move(Fit *f, const double *from, const double *step)
{
    for (uint32_t k = 0; k < f->constants.n; k++) {
        double s = step[k] > 0.5 ? 0.5 : step[k] < -0.5 ? -0.5 : step[k];
        set(f, &f->constants.constant[k], from[k] * exp(s));
    }
}

/* One round: the first damping with which it gets better; the part of the objective it gains. */
static double improve(Fit *f, double *damping)
{
    double *from = NEWN(f->scratch_fit, double, f->constants.n + 1), *seconds = NEWN(f->scratch_fit, double, f->n + 1);
    double before = objective(f, f->seconds), *slope = slopes(f);
    for (uint32_t k = 0; k < f->constants.n; k++)
        from[k] = f->constants.constant[k].value;
    for (int t = 0; t < TRIES; t++, *damping *= 6) {
        move(f, from, step_of(f, slope, *damping));
        predict_all(f, seconds);
        double now = objective(f, seconds);
        if (now < before) {
            memcpy(f->seconds, seconds, f->n * sizeof *seconds);
            *damping /= 4;
            return 1 - now / before;
        }
    }
    for (uint32_t k = 0; k < f->constants.n; k++)
        set(f, &f->constants.constant[k], from[k]);
    return 0;
}

void fit_run(Fit *f, int rounds)
{
    f->scratch_fit = arena_new("fit");
    for (uint32_t k = 0; k < f->constants.n; k++)
        set(f, &f->constants.constant[k], constant_start(&f->constants.constant[k]));
    predict_all(f, f->seconds);
    for (size_t t = 0; t < sizeof TAILS / sizeof *TAILS; t++) {
        double damping = 0.1;
        f->tail = TAILS[t];
        for (int round = 0, idle = 0; round < rounds && idle < IDLE; round++)
            idle = improve(f, &damping) < 0.003 ? idle + 1 : 0;
    }
    arena_free(f->scratch_fit);
}
