/* Show: why a plan is as it is, and why it is not another one. */
#include <string.h>

#include "base/text.h"
#include "cli/show.h"

static const Cell none = {.text = ""};

static const char *fits_text(const Weighed *w)
{
    return !w->legal ? "refused" : weighed_fits(w) ? "fits" : "too big";
}

static Cell figure(const Weighed *w, double number)
{
    return w->legal ? CELL_NUMBER(number) : none;
}

/* ---- from data parallelism to the plan ---- */

void show_ladder(Report *r, const Rung *rung, uint32_t n)
{
    static const Column columns[] = {{"decision", "decision", SHOW_TEXT}, {"adds", "adds", SHOW_TEXT}, {"microbatches", "micro-batches", SHOW_COUNT},
                                     {"step_ns", "step", SHOW_NS}, {"mfu", "mfu", SHOW_PART}, {"memory_bytes", "memory", SHOW_BYTES},
                                     {"verdict", "", SHOW_TEXT}, {"reason", "because", SHOW_TEXT}};
    Table *t = report_table(r, "ladder", columns, 8);
    for (uint32_t i = 0; i < n; i++) {
        const Weighed *w = &rung[i].weighed;
        const Figures *f = &w->figures;
        Cell row[] = {CELL_TEXT(decision_text(rung[i].decision)), CELL_TEXT(rung[i].adds), figure(w, (double)f->microbatches), figure(w, (double)f->ns),
                      figure(w, f->mfu), figure(w, (double)f->map), CELL_TEXT(fits_text(w)), CELL_TEXT(rung[i].reason)};
        table_row(r, t, row);
    }
}

/* ---- data parallelism alone ---- */

void show_scaling(Report *r, const Scaling *s)
{
    static const Column columns[] = {{"dp", "data parallel", SHOW_COUNT}, {"microbatches", "micro-batches", SHOW_COUNT}, {"step_ns", "step", SHOW_NS},
                                     {"efficiency", "of one device", SHOW_PART}, {"exposed_ns", "exposed", SHOW_NS}, {"memory_bytes", "memory", SHOW_BYTES},
                                     {"verdict", "", SHOW_TEXT}, {"refused", "because", SHOW_TEXT}};
    Table *t = report_table(r, "scaling", columns, 8);
    for (uint32_t i = 0; i < s->n; i++) {
        const Scaled *x = &s->row[i];
        const Figures *f = &x->weighed.figures;
        Cell row[] = {CELL_NUMBER(x->dp), figure(&x->weighed, (double)f->microbatches), figure(&x->weighed, (double)f->ns),
                      x->efficiency > 0 ? CELL_NUMBER(x->efficiency) : none, figure(&x->weighed, (double)f->part[TIME_EXPOSED + AXIS_dp]),
                      figure(&x->weighed, (double)f->map), CELL_TEXT(fits_text(&x->weighed)), CELL_TEXT(x->weighed.refused)};
        table_row(r, t, row);
    }
}

/* ---- what bounds it ---- */

/* "matmul 61.2 %, waiting for other stages 20.1 %, .." of a stage's time. */
static const char *bounds_text(Arena *a, const Figures *f)
{
    enum { MOST = 4 };
    bool said[TIME_PARTS] = {0};
    Text t = text_new(a);
    for (int i = 0; i < MOST && f->ns > 0; i++) {
        int best = -1;
        for (int k = 0; k < TIME_PARTS; k++)
            if (!said[k] && f->part[k] > 0 && (best < 0 || f->part[k] > f->part[best]))
                best = k;
        if (best < 0)
            break;
        said[best] = true;
        text_add(&t, "%s%s %.1f %%", t.n ? ", " : "", time_part_text(a, best), (double)f->part[best] * 100 / (double)f->ns);
    }
    return t.s;
}

static void verdict(Report *r, Table *t, const char *name, const char *key, const char *text)
{
    table_line(r, t, name, text);
    table_fact(r, t, key, CELL_TEXT(text));
}

void show_verdicts(Report *r, const Figures *f, const Scaling *s)
{
    Arena *a = r->arena;
    Table *t = report_lines(r, "verdicts");
    verdict(r, t, "fits one device", "one_device", s->one_device);
    if (s->n > 1)
        verdict(r, t, "data parallelism alone", "data_parallel", s->verdict);
    verdict(r, t, "time bound by", "bound", arena_printf(a, "%s, of stage %u, the busiest", bounds_text(a, f), f->stage));
    verdict(r, t, "memory bound by", "fullest", arena_printf(a, "rank %u, %s of %s, most of it at %s of '%s'", f->rank, text_bytes(a, f->map),
            text_bytes(a, f->memory - f->reserve), f->peak.op, f->peak.path));
}

/* ---- techniques ---- */

/* "yes", "no", or "more" where the plan has some of it. */
static const char *used_text(const Change *c, uint32_t n, const Change *x)
{
    if (x->without)
        return "yes";
    for (uint32_t i = 0; i < n; i++)
        if (c[i].without && c[i].decision == x->decision)
            return "more";
    return "no";
}

void show_techniques(Report *r, const Weighed *plan, const Change *c, uint32_t n)
{
    static const Column columns[] = {{"technique", "technique", SHOW_TEXT}, {"used", "in the plan", SHOW_TEXT}, {"change", "weighed", SHOW_TEXT},
                                     {"microbatches", "micro-batches", SHOW_COUNT}, {"step_ns", "step", SHOW_NS}, {"memory_bytes", "memory", SHOW_BYTES},
                                     {"verdict", "", SHOW_TEXT}, {"reason", "so it would be", SHOW_TEXT}};
    Table *t = report_table(r, "techniques", columns, 8);
    for (uint32_t i = 0; i < n; i++) {
        const Weighed *w = &c[i].weighed;
        bool same = w->legal && strcmp(w->layout, plan->layout) == 0;
        const char *reason = hardly_faster(plan, w) ? "as fast, as far as predictions tell" : reason_of(r->arena, plan, w);
        Cell row[] = {CELL_TEXT(decision_text(c[i].decision)), CELL_TEXT(used_text(c, n, &c[i])), CELL_TEXT(c[i].text),
                      figure(w, (double)w->figures.microbatches), figure(w, (double)w->figures.ns), figure(w, (double)w->figures.map), CELL_TEXT(fits_text(w)), CELL_TEXT(reason)};
        if (!same)
            table_row(r, t, row);
    }
}

/* ---- the next best ---- */

static bool is_next(const Weighed *plan, const Change *other, uint32_t n, const Change *x)
{
    if (!weighed_fits(&x->weighed) || strcmp(x->weighed.layout, plan->layout) == 0 || hardly_faster(plan, &x->weighed))
        return false;
    for (const Change *y = other; y < other + n && y < x; y++)
        if (y->weighed.legal && strcmp(y->weighed.layout, x->weighed.layout) == 0)
            return false;
    return true;
}

/* The fastest that is not shown yet; NULL: none. */
static const Change *next_best(const Weighed *plan, const Change *other, uint32_t n, const bool *shown)
{
    const Change *best = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (!shown[i] && is_next(plan, other, n, &other[i]) && (!best || other[i].weighed.figures.ns < best->weighed.figures.ns))
            best = &other[i];
    return best;
}

void show_next(Report *r, const Weighed *plan, const Change *other, uint32_t n, uint32_t most, bool searched)
{
    static const Column columns[] = {{"layout", "next best", SHOW_TEXT}, {"microbatches", "micro-batches", SHOW_COUNT}, {"step_ns", "step", SHOW_NS}, {"more_ns", "more", SHOW_MORE_NS},
                                     {"memory_bytes", "memory", SHOW_BYTES}, {"reason", "because", SHOW_TEXT}};
    verdict(r, report_lines(r, "compared"), "compared with", "with", searched ? "the next plans of the search, and layouts one decision away"
            : "layouts one decision away: the rules leave nothing open, so nothing was searched");
    Table *t = report_table(r, "next", columns, 6);
    bool *shown = NEWN(r->arena, bool, n + 1);
    for (uint32_t i = 0; i < most; i++) {
        const Change *x = next_best(plan, other, n, shown);
        if (!x)
            break;
        shown[x - other] = true;
        const Figures *f = &x->weighed.figures;
        Cell row[] = {CELL_TEXT(x->text), CELL_NUMBER(f->microbatches), CELL_NUMBER(f->ns), CELL_NUMBER(f->ns - plan->figures.ns), CELL_NUMBER(f->map),
                      CELL_TEXT(reason_of(r->arena, plan, &x->weighed))};
        table_row(r, t, row);
    }
}

/* ---- differences ---- */

static void difference(Report *r, Table *t, const char *name, int64_t x, int64_t y)
{
    Cell row[] = {CELL_TEXT(name), CELL_NUMBER(x), CELL_NUMBER(y), CELL_NUMBER(y - x)};
    table_row(r, t, row);
}

static int64_t shared(const Figures *f)
{
    int64_t bytes = f->map;
    for (int c = 0; c < CLASSES; c++)
        bytes -= f->by_class[c];
    return bytes;
}

void show_difference(Report *r, const Figures *x, const Figures *y)
{
    static const Column times[] = {{"part", "time of the busiest stage", SHOW_TEXT}, {"plan", "plan", SHOW_NS}, {"asked", "asked", SHOW_NS},
                                   {"more", "more", SHOW_MORE_NS}};
    static const Column bytes[] = {{"class", "memory of the fullest rank", SHOW_TEXT}, {"plan", "plan", SHOW_BYTES}, {"asked", "asked", SHOW_BYTES},
                                   {"more", "more", SHOW_MORE_BYTES}};
    Table *t = report_table(r, "time_difference", times, 4);
    for (int k = 0; k < TIME_PARTS; k++)
        if (x->part[k] || y->part[k])
            difference(r, t, time_part_text(r->arena, k), x->part[k], y->part[k]);
    difference(r, t, "step", x->ns, y->ns);
    t = report_table(r, "memory_difference", bytes, 4);
    for (int c = 0; c < CLASSES; c++)
        if (x->by_class[c] || y->by_class[c])
            difference(r, t, buffer_class_text((BufferClass)c), x->by_class[c], y->by_class[c]);
    difference(r, t, "shared by lifetime", shared(x), shared(y));
    difference(r, t, "map", x->map, y->map);
}

void show_peak(Report *r, const Figures *f)
{
    static const Column columns[] = {{"buffer", "largest at the peak", SHOW_TEXT}, {"class", "memory", SHOW_TEXT}, {"bytes", "bytes", SHOW_BYTES}};
    Table *t = report_table(r, "peak", columns, 3);
    for (uint32_t i = 0; i < f->peak.n; i++) {
        const Live *l = &f->peak.largest[i];
        Cell row[] = {CELL_TEXT(l->name), CELL_TEXT(buffer_class_text(l->cls)), CELL_NUMBER(l->bytes)};
        table_row(r, t, row);
    }
}
