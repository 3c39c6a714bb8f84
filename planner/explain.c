/* Explain: see explain.h. */
#include "planner/explain.h"

#include <string.h>

#include "base/text.h"
#include "planner/search.h"

/* ---- reasons ---- */

int largest_change(const Figures *before, const Figures *after)
{
    int best = TIME_PARTS;
    int64_t sign = after->ns < before->ns ? -1 : 1, most = 0;
    for (int k = 0; k < TIME_PARTS && after->ns != before->ns; k++) {
        int64_t change = sign * (after->part[k] - before->part[k]);
        if (change > most) {
            most = change;
            best = k;
        }
    }
    return best;
}

/* "3.0 ms slower: waiting for other stages 1.0 ms -> 4.0 ms" */
static const char *time_reason(Arena *a, const Figures *x, const Figures *y)
{
    int k = largest_change(x, y);
    if (x->ns == y->ns)
        return "as fast";
    bool slower = y->ns > x->ns;
    const char *what = arena_printf(a, "%s %s", text_ns(a, slower ? y->ns - x->ns : x->ns - y->ns), slower ? "slower" : "faster");
    if (k == TIME_PARTS)
        return what;
    return arena_printf(a, "%s: %s %s -> %s", what, time_part_text(a, k), text_ns(a, x->part[k]), text_ns(a, y->part[k]));
}

static const char *memory_change(Arena *a, const Figures *x, const Figures *y)
{
    return arena_printf(a, "%s -> %s", text_bytes(a, x->map), text_bytes(a, y->map));
}

/* Neither fits: how much nearer it is. */
static const char *still_too_much(Arena *a, const Figures *x, const Figures *y)
{
    const char *what = y->map < x->map ? "less" : y->map > x->map ? "more" : "as much";
    return arena_printf(a, "%s memory, %s, %s%s too much", what, memory_change(a, x, y), y->map < x->map ? "still " : "", text_bytes(a, figures_excess(y)));
}

const char *reason_of(Arena *a, const Weighed *before, const Weighed *after)
{
    const Figures *x = &before->figures, *y = &after->figures;
    if (!after->legal)
        return after->refused;
    if (!before->legal)
        return weighed_fits(after) ? "possible, which the line before is not" : "possible, which the line before is not, but too big";
    if (!weighed_fits(before) && !weighed_fits(after))
        return still_too_much(a, x, y);
    if (!weighed_fits(before))
        return arena_printf(a, "fits: %s; %s", memory_change(a, x, y), time_reason(a, x, y));
    if (!weighed_fits(after))
        return arena_printf(a, "no longer fits, %s too much; %s", text_bytes(a, figures_excess(y)), time_reason(a, x, y));
    if (x->map != y->map && y->ns >= x->ns)
        return arena_printf(a, "%s; memory %s", time_reason(a, x, y), memory_change(a, x, y));
    return time_reason(a, x, y);
}

bool hardly_faster(const Weighed *than, const Weighed *w)
{
    int64_t less = than->figures.ns - w->figures.ns;
    return than->legal && weighed_fits(w) && less > 0 && less <= than->figures.ns / TIE;
}

/* ---- the ladder ---- */

static const char *first_reason(Arena *a, const Plan *p, const Weighed *w)
{
    if (!w->legal)
        return w->refused;
    if (!weighed_fits(w))
        return arena_printf(a, "does not fit: %s of %s usable, %s too much", text_bytes(a, w->figures.map),
                            text_bytes(a, w->figures.memory - w->figures.reserve), text_bytes(a, figures_excess(&w->figures)));
    return p->ndevices > 1 ? "fits: each rank has the whole model, and its part of the batch" : "fits";
}

uint32_t ladder(const Weigher *w, const Plan *p, Rung out[DECISIONS])
{
    const Graph *g = w->request->graph;
    Arena *a = w->arena;
    uint32_t n = 0;
    for (int d = 0; d < DECISIONS; d++) {
        const char *adds = pins_decision(a, g, p, (Decision)d);
        if (!*adds && d != DECIDE_micro)             /* before it more of them may have been needed */
            continue;
        Rung r = {.decision = (Decision)d, .adds = *adds ? adds : "microbatches = 1"};
        r.weighed = weigh(w, pins_some(a, g, p, decisions_upto((Decision)d)), USE_ESTIMATE);
        const Rung *before = n ? &out[n - 1] : NULL;
        if (before && before->weighed.legal && r.weighed.legal && strcmp(before->weighed.layout, r.weighed.layout) == 0)
            continue;
        r.reason = before ? reason_of(a, &before->weighed, &r.weighed) : first_reason(a, p, &r.weighed);
        out[n++] = r;
    }
    return n;
}

/* ---- data parallelism alone ---- */

/* The first dp devices of the plan, and nothing but the batch split over them. */
static Rules *data_parallel(Arena *a, const Graph *g, const Plan *p, int64_t dp)
{
    Plan q = {.mesh = {1, dp, 1, 1, 1}, .devices = p->devices, .ndevices = (uint32_t)dp, .schedule = p->schedule, .bucket = p->bucket};
    return pins_some(a, g, &q, decisions_upto(DECIDE_data));
}

static Scaled scaled(const Weigher *w, const Plan *p, int64_t dp, const Weighed *one)
{
    Scaled s = {.dp = dp, .weighed = weigh(w, data_parallel(w->arena, w->request->graph, p, dp), USE_ESTIMATE)};
    one = one ? one : &s.weighed;
    if (s.weighed.legal && one->legal && s.weighed.figures.ns > 0)
        s.efficiency = (double)one->figures.ns / ((double)dp * (double)s.weighed.figures.ns);
    return s;
}

static const char *one_device_text(Arena *a, const Weighed *w)
{
    const Figures *f = &w->figures;
    if (!w->legal)
        return w->refused;
    const char *micro = arena_printf(a, "%lld micro-batch%s", (long long)f->microbatches, f->microbatches == 1 ? "" : "es");
    const char *usable = text_bytes(a, f->memory - f->reserve);
    if (weighed_fits(w))
        return arena_printf(a, "yes, with %s: %s of %s, %s a step", micro, text_bytes(a, f->map), usable, text_ns(a, f->ns));
    if (figures_states(f) > f->memory - f->reserve)
        return arena_printf(a, "no: weights, gradients and optimizer states alone are %s, and %s are usable", text_bytes(a, figures_states(f)), usable);
    return arena_printf(a, "no: with %s it needs %s, %s too much", micro, text_bytes(a, f->map), text_bytes(a, figures_excess(f)));
}

/* Of the time a step takes beyond one device's time over dp, the part that has most of it. */
static const char *what_is_lost(Arena *a, const Figures *one, const Figures *f, int64_t dp)
{
    int64_t lost = f->ns - one->ns / dp, most = 0;
    int part = TIME_PARTS;
    for (int k = 0; k < TIME_PARTS; k++) {
        int64_t x = f->part[k] - one->part[k] / dp;
        if (x > most) {
            most = x;
            part = k;
        }
    }
    if (part == TIME_PARTS)
        return "";
    return arena_printf(a, ": of a step of %s, %s are beyond a fair share, %s of them %s", text_ns(a, f->ns), text_ns(a, lost), text_ns(a, most),
                        time_part_text(a, part));
}

/* No size fits: what the largest that the batch allows still needs. */
static const char *fits_nowhere(Arena *a, const Scaled *last, const Scaled *refused)
{
    const Figures *f = &last->weighed.figures;
    return arena_printf(a, "fits at no size: at dp = %lld a rank needs %s, of which %s are states that the batch does not split, and %s are usable%s",
                        (long long)last->dp, text_bytes(a, f->map), text_bytes(a, figures_states(f)), text_bytes(a, f->memory - f->reserve),
                        refused ? arena_printf(a, "; dp = %lld is refused: %s", (long long)refused->dp, refused->weighed.refused) : "");
}

/* The first size at which it stops, by which of the reasons. */
static const char *verdict_of(Arena *a, const Scaling *s)
{
    const Scaled *one = &s->row[0], *good = NULL, *last = NULL, *refused = NULL;
    for (uint32_t i = 0; i < s->n && !refused; i++) {
        const Scaled *x = &s->row[i];
        refused = x->weighed.legal ? NULL : x;
        last = refused ? last : x;
        if (refused || !weighed_fits(&x->weighed))
            continue;
        if (x->efficiency < 0.5 && one->weighed.legal)
            return arena_printf(a, "pays %s; at dp = %lld a device does %.0f %% of what one alone does%s",
                                good ? arena_printf(a, "up to dp = %lld", (long long)good->dp) : "nowhere", (long long)x->dp, x->efficiency * 100,
                                what_is_lost(a, &one->weighed.figures, &x->weighed.figures, x->dp));
        good = x;
    }
    if (!good)
        return last ? fits_nowhere(a, last, refused) : refused->weighed.refused;
    const char *stop = refused ? arena_printf(a, "; dp = %lld is refused: %s", (long long)refused->dp, refused->weighed.refused) : "";
    return arena_printf(a, "pays up to dp = %lld: there a device does %.0f %% of what one alone does%s", (long long)good->dp, good->efficiency * 100, stop);
}

Scaling scaling(const Weigher *w, const Plan *p)
{
    Scaling s = {0};
    int64_t all = p->ndevices;
    for (int64_t dp = 1; dp <= all; dp = dp < all && 2 * dp > all ? all : 2 * dp) {
        Weighed one = s.n ? s.row[0].weighed : (Weighed){0};
        Scaled x = scaled(w, p, dp, s.n ? &one : NULL);
        PUSH(w->arena, s.row, s.n, x);
    }
    s.one_device = one_device_text(w->arena, &s.row[0].weighed);
    s.verdict = verdict_of(w->arena, &s);
    return s;
}
