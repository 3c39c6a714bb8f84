/* choose: the outer decisions that rules leave open, which is the number of
 * micro-batches: fewer is never slower (each micro-batch runs the same kernels
 * on fewer rows), so the smallest number is taken whose programs fit on all ranks. */
#include "planner/choose.h"
#include "planner/batch.h"
#include "planner/judge.h"
#include "base/text.h"

#include <string.h>

static Plan *plan_with(Arena *a, const PlanRequest *r, const Decisions *d, int64_t microbatches)
{
    Plan *p = NEW(a, Plan);
    *p = (Plan){.arena = a, .model = r->graph->name, .cluster = r->cluster->name, .model_text = r->model_text,
                .cluster_text = r->cluster->text, .rule = d->rule, .nrule = d->nrule, .devices = d->devices, .ndevices = d->ndevices,
                .microbatches = microbatches, .schedule = d->schedule, .bucket = d->bucket, .server = d->server_rule && d->ndevices > 1};
    memcpy(p->mesh, d->mesh, sizeof p->mesh);
    memcpy(p->outer, d->outer, sizeof p->outer);
    return p;
}

/* ---- when nothing fits ---- */

/* "weights 2.56 kB, gradients 2.56 kB": a program's buffers by class. */
static const char *bytes_by_class(Arena *a, const Program *p)
{
    int64_t by_class[CLASSES] = {0};
    for (uint32_t i = 0; i < p->nbuffer; i++)
        by_class[p->buffer[i].cls] += p->buffer[i].bytes * p->buffer[i].slots;
    Text parts = text_new(a);
    for (int c = 0; c < CLASSES; c++)
        if (by_class[c])
            text_add(&parts, "%s%s %s", parts.n ? ", " : "", buffer_class_text((BufferClass)c), text_bytes(a, by_class[c]));
    return parts.s;
}

/* Bytes of memory with which a device would do. */
static int64_t bytes_needed(const Program *p)
{
    return program_map_bytes(p) + p->reserve;
}

/* Why no number of micro-batches fits: the ledger's classes of the smallest try. */
static Status nothing_fits(Diags *ds, const PlanRequest *r, const Plan *plan, const Program *p, const Decisions *d)
{
    const Device *device = &r->cluster->device[r->cluster->kind[plan->devices[p->rank]]];
    const char *where = p->nranks > 1 ? arena_printf(ds->arena, " on rank %u", p->rank) : "";
    Diag *e = diag_error(ds, d->microbatches_at, "model '%s' does not fit device '%s' with %lld micro-batch%s: %s too much%s", r->graph->name,
                         device->name, (long long)p->microbatches, p->microbatches == 1 ? "" : "es", text_bytes(ds->arena, program_excess(p)), where);
    diag_note(ds, e, NOWHERE, "%s needed, %s in all less %s reserved; before sharing by lifetime: %s", text_bytes(ds->arena, program_map_bytes(p)),
              text_bytes(ds->arena, p->memory), text_bytes(ds->arena, p->reserve), bytes_by_class(ds->arena, p));
    diag_help(ds, e, "a device with at least %s bytes of memory would do", text_count(ds->arena, bytes_needed(p)));
    return ERR_REJECT;
}

/* ---- numbers of micro-batches ---- */

static bool is_pinned(const Decisions *d)
{
    return d->microbatches.nvalue == 1;
}

/* Programs grow with the number of micro-batches, and so does the search for it:
 * more than these are taken only when they are given. */
enum { MICROBATCHES_TRIED = 1 << 16 };

/* The least number after `m` that the rules name and the samples divide by; 0: none. */
static int64_t next_given(const Choice *c, int64_t batch, int64_t m)
{
    int64_t least = 0;
    for (uint32_t i = 0; i < c->nvalue; i++) {
        int64_t v = c->value[i];
        if (v > m && v <= batch && batch % v == 0 && (!least || v < least))
            least = v;
    }
    return least;
}

/* The next number after `m` that the rules allow and the samples divide by; 0: none
 * that is worth trying. */
static int64_t next_microbatches(const Decisions *d, int64_t batch, int64_t m)
{
    if (!d->microbatches.any)
        return next_given(&d->microbatches, batch, m);
    for (int64_t n = m + 1; n <= batch && n <= MICROBATCHES_TRIED; n++)
        if (batch % n == 0)
            return n;
    return 0;
}

static const char *why(const Decisions *d, int64_t m, int64_t first)
{
    return is_pinned(d) ? "given" : m == 1 ? "the whole batch fits at once"
         : m == first   ? "the smallest number the rules allow fits" : "the largest micro-batch that fits";
}

static bool fits(const Try *t)
{
    return program_excess(try_fullest(t)) <= 0;
}

static int64_t needed(const Try *t)
{
    return bytes_needed(try_fullest(t));
}

/* Diagnostics are the user's to see in the first try alone. */
static Status begin_try(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, int64_t m, bool first, Try *out)
{
    Diags *said = first ? ds : diags_new(ds->sources);
    *out = (Try){.own = first ? NULL : arena_new("scratch"), .plan = plan_with(a, r, d, m)};
    out->arena = first ? a : out->own;
    Status s = try_lower(out, said, r);
    if (s != OK)
        try_end(out);
    return s;
}

/* The first number that fits, its programs complete; else *best is the one that needs the least. */
static Status try_microbatches(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, int64_t first, Try *best)
{
    int64_t samples = batch_samples(r->graph, d);
    bool started = false;
    for (int64_t m = first; m; m = next_microbatches(d, samples, m), started = true) {
        Try now;
        if (begin_try(a, ds, r, d, m, !started, &now) != OK) {
            if (!started)                            /* what the first try shows is the user's mistake */
                return ERR_REJECT;
            break;                                   /* this model cannot be cut further */
        }
        if (fits(&now))
            try_complete(&now, a);
        bool done = fits(&now), better = done || !started || needed(&now) < needed(best);
        try_end(better ? best : &now);
        if (better)
            *best = now;
        if (done) {
            now.plan->why_microbatches = why(d, m, first);
            return OK;
        }
    }
    try_complete(best, a);
    return nothing_fits(ds, r, best->plan, try_fullest(best), d);
}

static Status choose_microbatches(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, Plan **plan, Programs *out)
{
    int64_t first = next_microbatches(d, batch_samples(r->graph, d), 0);
    if (!first)
        return batch_none_divides(ds, r, d);
    Try best = {0};
    Status s = try_microbatches(a, ds, r, d, first, &best);
    *plan = best.plan;
    *out = best.programs;
    out->rank = NEWN(a, Program *, out->n + 1);
    for (uint32_t i = 0; i < out->n; i++)
        out->rank[i] = best.programs.rank[i];
    try_end(&best);
    return s;
}

Status check_peak(Diags *ds, const Graph *g, const Cluster *cl, const Device *d)
{
    DType compute = g->precision.compute;
    if (d->peak[compute] > 0)
        return OK;
    Diag *e = diag_error(ds, NOWHERE, "device '%s' of cluster '%s' has no peak for %s, which model '%s' computes in",
                         d->name, cl->name, dtype_name(compute), g->name);
    Text can = text_new(ds->arena);
    DType best = compute;
    for (int t = 0; t < DTYPES; t++) {
        if (d->peak[t] > 0)
            text_add(&can, "%s%s", can.n ? " and " : "", dtype_name((DType)t));
        if (d->peak[t] > d->peak[best])
            best = (DType)t;
    }
    if (can.n)
        diag_help(ds, e, "it has %s: try -D dtype=%s, or change the model's 'precision'", can.s, dtype_name(best));
    return ERR_REJECT;
}

/* Of every kind of device that is used. */
static Status check_peaks(Diags *ds, const PlanRequest *r, const Decisions *d)
{
    const Cluster *cl = r->cluster;
    for (uint32_t k = 0; k < cl->ndevice; k++) {
        bool used = false;
        for (uint32_t i = 0; i < d->ndevices && !used; i++)
            used = cl->kind[d->devices[i]] == k;
        if (used)
            TRY(check_peak(ds, r->graph, cl, &cl->device[k]));
    }
    return OK;
}

/* ---- what is searched ---- */

/* Lower a plan that does not fit, for good. */
static Status complete(Arena *a, Diags *ds, const PlanRequest *r, Plan *p, Programs *out)
{
    Try t = {.arena = a, .plan = p};
    TRY(try_lower(&t, ds, r));
    *out = t.programs;
    try_end(&t);
    return OK;
}

/* A plan that was judged last for as long as its programs do. */
static void complete_judged(Arena *a, Try *t, Programs *out)
{
    arena_keep(a, t->own);
    t->own = NULL;
    try_complete(t, t->arena);
    *out = t->programs;
    try_end(t);
}

static Status choose_searched(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, SearchLimits limits, Plan **plan, Programs *out, Search *found)
{
    Plan *leanest;
    TRY(search(a, ds, r, d, limits, found, &leanest));
    *plan = found->nbest ? found->best[0].plan : leanest;
    if (!found->nbest) {
        TRY(complete(a, ds, r, *plan, out));
        return nothing_fits(ds, r, *plan, out->rank[out->fullest], d);
    }
    complete_judged(a, &found->fastest, out);
    (*plan)->why_microbatches = is_pinned(d) ? "given" : found->proven ? "no other number makes a faster plan" : "the fastest plan found";
    return OK;
}

Status choose_plan(Arena *a, Diags *ds, const PlanRequest *r, SearchLimits limits, Plan **plan, Programs *out, Search *found)
{
    Decisions d;
    *found = (Search){0};
    *plan = NULL;
    TRY(rules_decide(a, ds, r, &d));
    TRY(check_peaks(ds, r, &d));
    if (!d.searched)
        TRY(batch_check(ds, r, &d));
    return d.searched ? choose_searched(a, ds, r, &d, limits, plan, out, found) : choose_microbatches(a, ds, r, &d, plan, out);
}
