/* Curve: see curve.h. */
#include "runtime/measure/curve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/measure/rounds.h"

/* Of a fraction; and by how much points must differ from their neighbours to be kept. */
static const double LEAST = 0.001, NEAR = 0.01;

static int by_work(const void *x, const void *y)
{
    const Timing *a = x, *b = y;
    return a->work != b->work ? (a->work > b->work) - (a->work < b->work) : (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

/* Three digits, which is more than was measured. */
static double rounded(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.3g", x);
    return strtod(text, NULL);
}

/* One point of several timings: the geometric mean of the sizes, at the median speed. */
static Timing joined(Arena *a, const Timing *t, uint32_t n)
{
    double *pace = NEWN(a, double, n), log_work = 0;
    for (uint32_t i = 0; i < n; i++) {
        pace[i] = t[i].seconds / t[i].work;
        log_work += log(t[i].work) / n;
    }
    double work = rounded(exp(log_work));
    return (Timing){work, work * median_of(pace, n)};
}

static uint32_t join_alike(Arena *a, Timing *t, uint32_t n, double like)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)                 /* to the digits by which points will differ */
        t[i] = (Timing){rounded(t[i].work), t[i].seconds * rounded(t[i].work) / t[i].work};
    for (uint32_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && t[end].work <= like * t[i].work)
            end++;
        t[kept++] = joined(a, &t[i], end - i);
    }
    return kept;
}

/* Seconds that never fall: each run of falling ones becomes its mean. */
static void never_fall(Arena *a, Timing *t, uint32_t n)
{
    typedef struct Pool { double sum; uint32_t n; } Pool;
    Pool *p = NEWN(a, Pool, n);
    uint32_t np = 0;
    for (uint32_t i = 0; i < n; i++) {
        p[np++] = (Pool){t[i].seconds, 1};
        while (np > 1 && p[np - 2].sum / p[np - 2].n > p[np - 1].sum / p[np - 1].n) {
            p[np - 2].sum += p[np - 1].sum;
            p[np - 2].n += p[np - 1].n;
            np--;
        }
    }
    for (uint32_t i = 0, k = 0; k < np; k++)
        for (uint32_t j = 0; j < p[k].n; j++)
            t[i++].seconds = p[k].sum / p[k].n;
}

static double fraction_of(const Timing *t, double rate, double most)
{
    double f = t->seconds > 0 ? t->work / (t->seconds * rate) : most;
    return rounded(f < LEAST ? LEAST : f > most ? most : f);
}

/* Between points a fraction goes with the logarithm of the size, so work / fraction grows
 * where no fraction is more than 1 + ln(ratio of the sizes) times the one before. */
static void grow_slowly(CurvePoint *p, uint32_t n, double most)
{
    for (uint32_t i = n; i-- > 1;) {
        double least = p[i].fraction / (1 + log(p[i].at / p[i - 1].at));
        if (p[i - 1].fraction < least)
            p[i - 1].fraction = fmin(most, rounded(1.005 * least));
    }
}

static bool near(double x, double y)
{
    return fabs(x - y) <= NEAR * y;
}

/* Without the points that say what their neighbours say. */
static uint32_t drop_needless(CurvePoint *p, uint32_t n)
{
    uint32_t kept = n > 0;
    for (uint32_t i = 1; i < n; i++) {
        bool last = i + 1 == n;
        if (!(near(p[i].fraction, p[kept - 1].fraction) && (last || near(p[i + 1].fraction, p[kept - 1].fraction))))
            p[kept++] = p[i];
    }
    return kept;
}

Curve curve_fit(Arena *a, Timing *t, uint32_t n, double rate, double most, double like)
{
    if (n == 0)
        return (Curve){0};
    qsort(t, n, sizeof *t, by_work);
    n = join_alike(a, t, n, like);
    never_fall(a, t, n);
    Curve c = {NEWN(a, CurvePoint, n), n};
    for (uint32_t i = 0; i < n; i++)
        c.point[i] = (CurvePoint){t[i].work, fraction_of(&t[i], rate, most)};
    grow_slowly(c.point, n, most);
    c.npoint = drop_needless(c.point, n);
    return c;
}
