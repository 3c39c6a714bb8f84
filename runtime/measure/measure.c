/* Measure: see measure.h.  The parts, and how much time each has. */
#include "runtime/measure/measure.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "runtime/measure/device.h"
#include "runtime/runtime.h"

/* Parts of the time. */
static const double SHARE_COPYING = 0.06, SHARE_LINK = 0.10, SHARE_CROWD = 0.10, SHARE_ONE = 0.42, SHARE_ALL = 0.32;

/* Where half of the samples of the usual thing lie farther apart, its median says nothing. */
static const double WORST_SPREAD = 0.5;

enum { MOST_RANKS = 64 };

Status measure_refuse(const char *why)
{
    fprintf(stderr, "error: this machine is too busy to be measured: %s; end other programs, then try again\n", why);
    return ERR_DEVICE;
}

Status spread_judge(const char *what, Spread s)
{
    char why[200];
    if (s.usual <= WORST_SPREAD)
        return OK;
    if (isinf(s.usual))
        snprintf(why, sizeof why, "%s did not come to %d rounds in time", what, LEAST_ROUNDS);
    else
        snprintf(why, sizeof why, "times of %s differ by %.0f %% of their median, expected at most %.0f %%", what, 100 * s.usual, 100 * WORST_SPREAD);
    return measure_refuse(why);
}

/* 1, 2, 4 .. and all. */
static uint32_t thread_counts(Arena *a, int cores, const int **out)
{
    int *list = NULL;
    uint32_t n = 0;
    for (int t = 1; t < cores; t *= 2)
        PUSH(a, list, n, t);
    PUSH(a, list, n, cores);
    *out = list;
    return n;
}

static Status measure_copying(Arena *a, const MeasureOptions *o, Measured *m)
{
    m->ncopying = thread_counts(a, o->machine.cores, &m->threads);
    m->bandwidth = NEWN(a, double, m->ncopying);
    return copying_measure(a, o, SHARE_COPYING * o->seconds, m->threads, m->ncopying, m->bandwidth, &m->copying);
}

static int at_most(int n, int most)
{
    return n < most ? n : most;
}

/* Two ranks at least: on one core they are a crowd, and there is no other figure. */
static Status measure_links(Arena *a, const MeasureOptions *o, Measured *m)
{
    const int apart[] = {2, at_most(o->machine.cores, MOST_RANKS)}, crowd[] = {at_most(2 * o->machine.cores, MOST_RANKS + 1)};
    TRY(link_measure(a, o, apart, o->machine.cores > 2 ? 2 : 1, SHARE_LINK * o->seconds, &m->link));
    return link_measure(a, o, crowd, 1, SHARE_CROWD * o->seconds, &m->crowd);
}

static Status measure_devices(Arena *a, const MeasureOptions *o, Measured *m)
{
    TRY(device_measure(a, o, 1, m->bandwidth[0], SHARE_ONE * o->seconds, &m->one));
    m->all = m->one;
    return o->machine.cores > 1 ? device_measure(a, o, o->machine.cores, m->bandwidth[m->ncopying - 1], SHARE_ALL * o->seconds, &m->all) : OK;
}

static Status check_room(const Measured *m)
{
    double reserve = measure_reserve(m), memory = (double)m->machine.device_memory;
    if (reserve < memory)
        return OK;
    fprintf(stderr, "error: '%s' has no room for a plan: %.0f MiB of its %.0f are taken beside a rank; end other programs that use it, then try again\n", m->machine.name,
            reserve / (1 << 20), memory / (1 << 20));
    return ERR_DEVICE;
}

/* Of devices that are all alike the first is measured, and what they say to each other. */
static Status measure_alike(Arena *a, const MeasureOptions *o, Measured *m)
{
    m->one.of.reserve = o->machine.device_memory - o->machine.memory;          /* no less than that */
    TRY(check_room(m));
    TRY(device_copying(a, o, SHARE_COPYING * o->seconds, &m->copies, &m->copying));
    TRY(device_measure(a, o, 0, m->copies.bandwidth[m->copies.n - 1], (SHARE_ONE + SHARE_ALL) * o->seconds, &m->one));
    m->all = m->one;
    const int ranks[] = {2, at_most(o->machine.devices, MOST_RANKS)};
    if (ranks[1] >= 2)
        TRY(link_measure(a, o, ranks, ranks[1] > 2 ? 2 : 1, (SHARE_LINK + SHARE_CROWD) * o->seconds, &m->link));
    return check_room(m);
}

Status measure_machine(Arena *a, const MeasureOptions *o, Measured *m)
{
    *m = (Measured){.machine = o->machine};
    if (o->machine.devices > 0)
        return measure_alike(a, o, m);
    TRY(measure_copying(a, o, m));
    TRY(measure_links(a, o, m));
    return measure_devices(a, o, m);
}
