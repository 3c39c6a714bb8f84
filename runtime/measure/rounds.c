/* Rounds: see rounds.h. */
#include "runtime/measure/rounds.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/runtime.h"

/* A clock is read before and after a turn: it must be much longer than that takes, and
 * short against the seconds for which a neighbour is busy. */
static const double TURN = 1.5e-3;    /* seconds */

/* How much longer than it was to take the least may take, on a machine that others use. */
static const double PATIENCE = 1.5;

double seconds_of_thread(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

double median_of(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double middle_half(const double *v, uint32_t n)
{
    double middle = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
    return middle > 0 ? (v[n - 1 - n / 4] - v[n / 4]) / middle : 0;
}

/* What a probe is given in a turn, and what it gave. */
typedef struct Turns { int64_t times; double once, sample[MOST_ROUNDS]; uint32_t n; } Turns;

static int64_t times_in(const Probe *p, double once)
{
    double turn = p->turn > 0 ? p->turn : TURN;
    return once < turn ? (int64_t)(turn / (once > 1e-9 ? once : 1e-9)) + 1 : 1;
}

/* Once for nothing, then how often a turn is. */
static void warm(Probe *p, Turns *t, double most)
{
    double first = p->time(p->ctx, 1);
    if (most > 0 && first > 4 * most)                /* libraries generate code in the first call */
        return;
    t->once = p->time(p->ctx, 1);
    if (most > 0 && t->once > most)
        return;
    t->times = times_in(p, t->once);
    if (p->turn > 0 && t->times > 1) {               /* what a turn takes beside was as long as many times */
        t->once = p->time(p->ctx, t->times) / (double)t->times;
        t->times = times_in(p, t->once);
    }
}

static uint32_t rounds_within(const Turns *t, uint32_t n, double seconds)
{
    double round = 0;
    for (uint32_t i = 0; i < n; i++)
        round += (double)t[i].times * t[i].once;
    double rounds = round > 0 ? seconds / round : LEAST_ROUNDS;
    return rounds < LEAST_ROUNDS ? LEAST_ROUNDS : rounds > MOST_ROUNDS ? MOST_ROUNDS : (uint32_t)rounds;
}

static void settle(Probe *p, Turns *t)
{
    if (t->n == 0)
        return;
    p->seconds = median_of(t->sample, t->n);
    p->spread = t->n < LEAST_ROUNDS ? INFINITY : middle_half(t->sample, t->n);
}

void rounds_run(Probe *p, uint32_t n, double seconds, double most)
{
    Arena *scratch = arena_new("rounds");
    Turns *t = NEWN(scratch, Turns, n);
    double start = seconds_now();
    for (uint32_t i = 0; i < n; i++)
        warm(&p[i], &t[i], most);
    uint32_t rounds = rounds_within(t, n, seconds - (seconds_now() - start));
    for (uint32_t r = 0; r < rounds && (r == 0 || seconds_now() - start < (r < LEAST_ROUNDS ? PATIENCE : 1) * seconds); r++)
        for (uint32_t i = 0; i < n; i++)
            if (t[i].times > 0)
                t[i].sample[t[i].n++] = p[i].time(p[i].ctx, t[i].times) / (double)t[i].times;
    for (uint32_t i = 0; i < n; i++)
        settle(&p[i], &t[i]);
    arena_free(scratch);
}

Spread rounds_spread(const Probe *p, uint32_t n)
{
    Arena *scratch = arena_new("rounds");
    double *v = NEWN(scratch, double, n);
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (p[i].seconds > 0)
            v[k++] = p[i].spread;
    Spread s = {0};
    if (k > 0) {
        s.usual = median_of(v, k);
        s.worst = v[k - 1];
    }
    arena_free(scratch);
    return s;
}
