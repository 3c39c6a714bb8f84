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

void tally_add(Tally *t, uint32_t instr, double seconds, double waited)
{
    t->now[t->parts->of_instr[instr]] += seconds - waited;
    t->now[t->parts->waiting] += waited;
}

void tally_wait(Tally *t, double seconds)
{
    t->now[t->parts->waiting] += seconds;
}

void tally_end(Tally *t, double seconds)
{
    double *step = t->step[t->steps++ % TALLY_STEPS], known = 0;
    for (uint32_t k = 0; k < t->parts->n; k++)
        known += t->now[k];
    t->now[t->parts->rest] = seconds > known ? seconds - known : 0;
    memcpy(step, t->now, sizeof t->now);
    step[TALLY_PARTS] = seconds;
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

static double median(const Tally *t, uint32_t part)
{
    double v[TALLY_STEPS];
    uint64_t n = counted(t);
    for (uint64_t i = 0; i < n; i++)
        v[i] = t->step[(t->steps - 1 - i) % TALLY_STEPS][part];
    qsort(v, n, sizeof *v, by_size);
    return v[n / 2];
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

/* Parts that neither took any time nor were to take any are not shown. */
static bool shown(const TallyParts *p, uint32_t part, double seconds)
{
    return seconds > 0 || p->ns[part] > 0;
}

static void add_line(Arena *a, Text *out, const TallyParts *p, const char *name, double measured, int64_t ns)
{
    text_add(out, "  %-28s %10s", name, seconds_text(a, measured));
    if (p->step_ns > 0)
        text_add(out, " %10s", seconds_text(a, 1e-9 * (double)ns));
    text_add(out, "\n");
}

static const char *as_lines(Arena *a, const Tally *t)
{
    const TallyParts *p = t->parts;
    Text out = text_new(a);
    text_add(&out, "  %-28s %10s%s\n", arena_printf(a, "a step, median of %llu", (unsigned long long)counted(t)), "measured",
             p->step_ns > 0 ? "  predicted" : "");
    for (uint32_t k = 0; k < p->n; k++)
        if (shown(p, k, median(t, k)))
            add_line(a, &out, p, p->name[k], median(t, k), p->ns[k]);
    add_line(a, &out, p, "in all", median(t, TALLY_PARTS), p->step_ns);
    out.s[out.n - 1] = 0;                            /* whoever prints it ends the line */
    return out.s;
}

static void add_words(Arena *a, Text *out, const TallyParts *p, double measured, int64_t ns)
{
    text_add(out, " %s", seconds_text(a, measured));
    if (p->step_ns > 0)
        text_add(out, " (predicted %s)", seconds_text(a, 1e-9 * (double)ns));
}

static const char *as_line(Arena *a, const Tally *t)
{
    const TallyParts *p = t->parts;
    Text out = text_new(a);
    text_add(&out, "time: a step, median of %llu,", (unsigned long long)counted(t));
    add_words(a, &out, p, median(t, TALLY_PARTS), p->step_ns);
    for (uint32_t k = 0; k < p->n; k++)
        if (shown(p, k, median(t, k))) {
            text_add(&out, "; %s", p->name[k]);
            add_words(a, &out, p, median(t, k), p->ns[k]);
        }
    return out.s;
}

const char *tally_text(Arena *a, const Tally *t, bool lines)
{
    return counted(t) == 0 ? NULL : lines ? as_lines(a, t) : as_line(a, t);
}
