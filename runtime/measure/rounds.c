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

/* What is expected to take so many times what it may is not begun; larger ones are often faster than they are expected to be. */
static const double TOO_LONG = 4;

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
typedef struct Turns {
    bool     begun;
    double   expected;                /* seconds of one time, at the best pace so far of those like it; 0: there is none yet */
    double   once;                    /* what it was then */
    int64_t  times;                   /* in a turn; 0: it has none */
    double   sample[MOST_ROUNDS];
    uint32_t n;
} Turns;

typedef struct Rounds {
    Probe   *p;
    Turns   *t;
    uint32_t n;
    double   most, seconds;           /* see rounds_run() */
    double   spent, round;            /* seconds: while warming, so far; of a round of all that have turns */
} Rounds;

static double turn_of(const Probe *p)
{
    return p->turn > 0 ? p->turn : TURN;
}

static int64_t times_in(const Probe *p, double once)
{
    double turn = turn_of(p);
    return once < turn ? (int64_t)(turn / (once > 1e-9 ? once : 1e-9)) + 1 : 1;
}

static double timed(Rounds *r, uint32_t i, int64_t times)
{
    double seconds = r->p[i].time(r->p[i].ctx, times);
    r->spent += seconds;
    return seconds;
}

/* Larger ones that are like it take as much longer, or less. */
static void learn(Rounds *r, uint32_t i)
{
    const Probe *p = r->p;
    for (uint32_t k = 0; k < r->n && p[i].work > 0; k++) {
        double seconds = r->t[i].once / p[i].work * p[k].work;
        if (p[k].like == p[i].like && (r->t[k].expected == 0 || seconds < r->t[k].expected))
            r->t[k].expected = seconds;
    }
}

/* Once for nothing, as libraries generate code in the first call; then how often a turn is. */
static void warm(Rounds *r, uint32_t i)
{
    const Probe *p = &r->p[i];
    Turns *t = &r->t[i];
    t->begun = true;
    (void)timed(r, i, 1);
    t->once = timed(r, i, 1);
    learn(r, i);
    if (r->most > 0 && t->once > r->most)
        return;
    t->times = times_in(p, t->once);
    if (p->turn > 0 && t->times > 1) {               /* what a turn takes beside was as long as many times */
        t->once = timed(r, i, t->times) / (double)t->times;
        t->times = times_in(p, t->once);
    }
    r->round += (double)t->times * t->once;
}

static bool is_less(const Rounds *r, uint32_t i, uint32_t k)
{
    double x = r->t[i].expected, y = r->t[k].expected;
    return x != y ? x < y : r->p[i].work < r->p[k].work;
}

/* Of those that are not begun, that of which least is expected, or n: the smallest of each kind are before all others. */
static uint32_t least_of(const Rounds *r)
{
    uint32_t least = r->n;
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->t[i].begun && (least == r->n || is_less(r, i, least)))
            least = i;
    return least;
}

/* Whether there is time for it: to warm it, and for the least rounds of all that have turns then. */
static bool fits(const Rounds *r, uint32_t i)
{
    double once = r->t[i].expected, turn = fmax(once, turn_of(&r->p[i]));
    if (r->most == 0 || once == 0)
        return true;
    return once <= TOO_LONG * r->most && r->spent + 2 * once + LEAST_ROUNDS * (r->round + turn) <= r->seconds;
}

/* From the least on, so that what there is no time for is the largest of its kind. */
static void warm_all(Rounds *r)
{
    for (uint32_t i; (i = least_of(r)) < r->n && fits(r, i);)
        warm(r, i);
}

static uint32_t rounds_within(const Rounds *r, double seconds)
{
    double rounds = r->round > 0 ? seconds / r->round : LEAST_ROUNDS;
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
    Rounds r = {.p = p, .t = t, .n = n, .most = most, .seconds = seconds};
    double start = seconds_now();
    warm_all(&r);
    uint32_t rounds = rounds_within(&r, seconds - (seconds_now() - start));
    for (uint32_t k = 0; k < rounds && (k == 0 || seconds_now() - start < (k < LEAST_ROUNDS ? PATIENCE : 1) * seconds); k++)
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
