/* Tally: see tally.h. */
#include "runtime/tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

Tally *tally_new(Arena *a, const TallyParts *parts)
{
    Tally *t = NEW(a, Tally);
    t->parts = parts;
    t->step = arena_alloc(a, TALLY_STEPS * sizeof *t->step);
    return t;
}

void tally_begin(Tally *t)
{
    memset(t->now, 0, sizeof t->now);
}

/* When it waited is not known: as much of that is exposed as of the whole. */
void tally_add(Tally *t, uint32_t instr, bool beside, double seconds, double waited, double exposed)
{
    Times *now = &t->now[beside];
    double part = seconds > 0 ? exposed / seconds : 1;
    now->part[t->parts->of_instr[instr]] += part * (seconds - waited);
    now->beside[t->parts->of_instr[instr]] += (1 - part) * (seconds - waited);
    now->part[t->parts->waiting] += part * waited;
}

void tally_wait(Tally *t, double seconds)
{
    t->now[0].part[t->parts->waiting] += seconds;
}

void tally_end(Tally *t, double seconds)
{
    Times *step = &t->step[t->steps++ % TALLY_STEPS];
    double known = 0;
    *step = (Times){.all = seconds};
    for (uint32_t k = 0; k < t->parts->n; k++) {
        step->part[k] = t->now[0].part[k] + t->now[1].part[k];
        step->beside[k] = t->now[0].beside[k] + t->now[1].beside[k];
        known += step->part[k];
    }
    step->part[t->parts->rest] = seconds > known ? seconds - known : 0;
}

/* ---- what came out ---- */

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static uint64_t counted(const Tally *t)
{
    uint64_t n = t->steps > TALLY_SKIPPED ? t->steps - TALLY_SKIPPED : 0;
    return n < TALLY_STEPS ? n : TALLY_STEPS;
}

/* Of one figure of Times, `at` being that of the first step. */
static double median(const Tally *t, const double *at)
{
    double v[TALLY_STEPS];
    uint64_t n = counted(t);
    size_t apart = sizeof *t->step / sizeof *at;
    for (uint64_t i = 0; i < n; i++)
        v[i] = at[apart * ((t->steps - 1 - i) % TALLY_STEPS)];
    qsort(v, n, sizeof *v, by_size);
    return v[n / 2];
}

/* Parts that something may go on beside are communication. */
double tally_busy(const Tally *t)
{
    const TallyParts *p = t->parts;
    double busy = 0;
    for (uint32_t k = 0; k < p->n && counted(t) > 0; k++)
        if (k != p->waiting && k != p->rest && !p->beside[k])
            busy += median(t, &t->step->part[k]);
    return busy;
}

/* A line of what is told. */
typedef struct Told { const char *name; double measured; int64_t ns; } Told;

/* What neither took any time nor was to take any is not told. */
static void tell(Told *told, uint32_t *n, const char *name, double measured, int64_t ns)
{
    if (name && (measured > 0 || ns > 0))
        told[(*n)++] = (Told){name, measured, ns};
}

static uint32_t all_told(const Tally *t, Told *told)
{
    const TallyParts *p = t->parts;
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->n; k++) {
        tell(told, &n, p->name[k], median(t, &t->step->part[k]), p->ns[k]);
        tell(told, &n, p->beside[k], median(t, &t->step->beside[k]), p->beside_ns[k]);
    }
    return n;
}

static const char *seconds_text(Arena *a, double s)
{
    static const struct { const char *unit; double of; } units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
    size_t i = 0;
    if (s <= 0)
        return "0 s";
    while (i + 1 < sizeof units / sizeof *units && s < units[i].of)
        i++;
    return arena_printf(a, "%.3g %s", s / units[i].of, units[i].unit);
}

static void add_line(Arena *a, Text *out, const TallyParts *p, const Told *told)
{
    text_add(out, "  %-34s %10s", told->name, seconds_text(a, told->measured));
    if (p->step_ns > 0)
        text_add(out, " %10s", seconds_text(a, 1e-9 * (double)told->ns));
    text_add(out, "\n");
}

static const char *as_lines(Arena *a, const Tally *t, const Told *told, uint32_t n)
{
    const TallyParts *p = t->parts;
    Text out = text_new(a);
    if (p->who)
        text_add(&out, "  of %s\n", p->who);
    text_add(&out, "  %-34s %10s%s\n", arena_printf(a, "a step, median of %llu", (unsigned long long)counted(t)), "measured",
             p->step_ns > 0 ? "  predicted" : "");
    for (uint32_t k = 0; k < n; k++)
        add_line(a, &out, p, &told[k]);
    add_line(a, &out, p, &(Told){"in all", median(t, &t->step->all), p->step_ns});
    out.s[out.n - 1] = 0;                            /* whoever prints it ends the line */
    return out.s;
}

static void add_words(Arena *a, Text *out, const TallyParts *p, double measured, int64_t ns)
{
    text_add(out, " %s", seconds_text(a, measured));
    if (p->step_ns > 0)
        text_add(out, " (predicted %s)", seconds_text(a, 1e-9 * (double)ns));
}

static const char *as_line(Arena *a, const Tally *t, const Told *told, uint32_t n)
{
    const TallyParts *p = t->parts;
    Text out = text_new(a);
    text_add(&out, "time: a step%s%s, median of %llu,", p->who ? " of " : "", p->who ? p->who : "", (unsigned long long)counted(t));
    add_words(a, &out, p, median(t, &t->step->all), p->step_ns);
    for (uint32_t k = 0; k < n; k++) {
        text_add(&out, "; %s", told[k].name);
        add_words(a, &out, p, told[k].measured, told[k].ns);
    }
    return out.s;
}

const char *tally_text(Arena *a, const Tally *t, bool lines)
{
    Told told[2 * TALLY_PARTS];
    if (counted(t) == 0)
        return NULL;
    uint32_t n = all_told(t, told);
    return lines ? as_lines(a, t, told, n) : as_line(a, t, told, n);
}
