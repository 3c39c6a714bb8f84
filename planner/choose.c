/* choose: the outer decisions for one device.
 *
 * On one device every mesh axis has size 1, so the only open choice is the number
 * of micro-batches: fewer is never slower (each micro-batch runs the same kernels
 * on fewer rows), so the smallest number whose program fits is taken. */
#include <assert.h>

#include "planner/planner.h"
#include "planner/rules.h"
#include "base/text.h"

/* Programs grow with the number of micro-batches, and so does the search for it:
 * more than these are taken only when they are given. */
enum { MICROBATCHES_TRIED = 1 << 16 };

/* The smallest divisor of `n` that is larger than `m`; 0 when none is worth trying. */
static int64_t next_divisor(int64_t n, int64_t m)
{
    for (int64_t d = m + 1; d <= n && d <= MICROBATCHES_TRIED; d++)
        if (n % d == 0)
            return d;
    return 0;
}

static int64_t batch_extent(const Graph *g)
{
    return same_dim(g->batch, NO_DIM) ? 1 : dim_of(g, g->batch)->extent;
}

/* A device that cannot compute in the model's dtype has no peak for it. */
static Status check_dtype(Diags *ds, const PlanRequest *r, const Device *d)
{
    DType compute = r->graph->precision.compute;
    if (d->peak[compute] > 0)
        return OK;
    Diag *e = diag_error(ds, NOWHERE, "device '%s' of cluster '%s' has no peak for %s, which model '%s' computes in",
                         d->name, r->cluster->name, dtype_name(compute), r->graph->name);
    Text can = text_new(ds->arena);
    for (int t = 0; t < DTYPES; t++)
        if (d->peak[t] > 0)
            text_add(&can, "%s-D dtype=%s", can.n ? " or " : "", dtype_name((DType)t));
    if (can.n)
        diag_help(ds, e, "it computes with %s", can.s);
    return ERR_REJECT;
}

static Plan *plan_with(Arena *a, const PlanRequest *r, const Decisions *d, int64_t microbatches)
{
    Plan *p = NEW(a, Plan);
    *p = (Plan){.arena = a, .model = r->graph->name, .cluster = r->cluster->name, .model_text = r->model_text,
                .cluster_text = r->cluster->text, .microbatches = microbatches, .schedule = d->schedule,
                .bucket = d->bucket};
    for (int x = 0; x < MESH_AXES; x++)
        p->mesh[x] = 1;
    PUSH(a, p->devices, p->ndevices, d->device);
    return p;
}

/* Why no number of micro-batches fits: the ledger's classes of the smallest try. */
static Status nothing_fits(Diags *ds, const PlanRequest *r, const Program *p, const Decisions *d)
{
    int64_t excess = program_excess(p), by_class[CLASSES] = {0};
    for (uint32_t i = 0; i < p->nbuffer; i++)
        by_class[p->buffer[i].cls] += p->buffer[i].bytes * p->buffer[i].slots;
    static const char *const text[] = {
#define X(name, text) text,
        BUFFER_CLASS_LIST(X)
#undef X
    };
    Diag *e = diag_error(ds, d->microbatches_at, "model '%s' does not fit device '%s' with %lld micro-batch%s: %s too much",
                         r->graph->name, r->cluster->device[r->cluster->kind[d->device]].name, (long long)p->microbatches,
                         p->microbatches == 1 ? "" : "es", text_bytes(ds->arena, excess));
    Text parts = text_new(ds->arena);
    for (int c = CLASS_weights; c <= CLASS_saved; c++)
        if (by_class[c])
            text_add(&parts, "%s%s %s", parts.n ? ", " : "", text[c], text_bytes(ds->arena, by_class[c]));
    diag_note(ds, e, NOWHERE, "%s needed, %s in all less %s reserved; %s", text_bytes(ds->arena, p->map_bytes[PART_PRIVATE]),
              text_bytes(ds->arena, p->memory), text_bytes(ds->arena, p->reserve), parts.s);
    if (d->microbatches && p->microbatches < batch_extent(r->graph))
        diag_help(ds, e, "leave 'microbatches' open, or give a larger number");
    else
        diag_help(ds, e, "a device with at least %s of memory would do",
                  text_bytes(ds->arena, p->map_bytes[PART_PRIVATE] + p->reserve));
    return ERR_REJECT;
}

/* Lower with m micro-batches; a diagnostic only when the user pinned m. */
static Status lower(Arena *a, Diags *ds, const PlanRequest *r, Plan *plan, bool pinned, Program **out)
{
    Diags *silent = diags_new(ds->sources);
    return codegen(a, pinned ? ds : silent, r->graph, plan, r->cluster, NULL, out);
}

static Status choose_microbatches(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, Plan **plan)
{
    Program *p, *last = NULL;
    int64_t batch = batch_extent(r->graph), m = d->microbatches ? d->microbatches : 1;
    for (; m; m = d->microbatches ? 0 : next_divisor(batch, m)) {
        *plan = plan_with(a, r, d, m);
        bool must = d->microbatches || m == 1;       /* a mistake that m = 1 shows is the user's */
        if (lower(a, ds, r, *plan, must, &p) != OK) {
            if (must)
                return ERR_REJECT;
            break;                                   /* this model cannot be cut further */
        }
        last = p;
        if (program_excess(p) <= 0) {
            (*plan)->why_microbatches = d->microbatches ? "given"
                : m == 1 ? "the whole batch fits at once" : "the largest micro-batch that fits";
            return OK;
        }
    }
    assert(last && "one micro-batch was lowered, or the mistake was reported");
    return nothing_fits(ds, r, last, d);
}

Status planner_choose(Arena *a, Diags *ds, const PlanRequest *r, Plan **plan, Program **program)
{
    Decisions d;
    TRY(rules_decide(ds, r, &d));
    TRY(check_dtype(ds, r, &r->cluster->device[r->cluster->kind[d.device]]));
    TRY(choose_microbatches(a, ds, r, &d, plan));
    return codegen(a, ds, r->graph, *plan, r->cluster, r->dump, program);
}
