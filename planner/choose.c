/* choose: the outer decisions for one device.
 *
 * On one device every mesh axis has size 1, so the only open choice is the number
 * of micro-batches: fewer is never slower (each micro-batch runs the same kernels
 * on fewer rows), so the smallest number whose program fits is taken. */
#include "planner/planner.h"
#include "planner/rules.h"
#include "base/text.h"

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

/* Whether what does not shrink with the micro-batch is too much by itself. */
static bool states_exceed(const Program *p)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (p->buffer[i].cls <= CLASS_moments)
            bytes += p->buffer[i].bytes * p->buffer[i].slots;
    return bytes > p->memory - p->reserve;
}

/* Why no number of micro-batches fits: the ledger's classes of the smallest try. */
static Status nothing_fits(Diags *ds, const PlanRequest *r, const Program *p, const Decisions *d)
{
    int64_t excess = program_excess(p), by_class[CLASSES] = {0};
    for (uint32_t i = 0; i < p->nbuffer; i++)
        by_class[p->buffer[i].cls] += p->buffer[i].bytes * p->buffer[i].slots;
    Diag *e = diag_error(ds, d->microbatches_at, "model '%s' does not fit device '%s' with %lld micro-batch%s: %s too much",
                         r->graph->name, r->cluster->device[r->cluster->kind[d->device]].name, (long long)p->microbatches,
                         p->microbatches == 1 ? "" : "es", text_bytes(ds->arena, excess));
    Text parts = text_new(ds->arena);
    for (int c = 0; c < CLASSES; c++)
        if (by_class[c])
            text_add(&parts, "%s%s %s", parts.n ? ", " : "", buffer_class_text((BufferClass)c), text_bytes(ds->arena, by_class[c]));
    diag_note(ds, e, NOWHERE, "%s needed, %s in all less %s reserved; before sharing by lifetime: %s", text_bytes(ds->arena, p->map_bytes[PART_PRIVATE]),
              text_bytes(ds->arena, p->memory), text_bytes(ds->arena, p->reserve), parts.s);
    if (!d->microbatches.any && p->microbatches < graph_samples(r->graph) && !states_exceed(p))
        diag_help(ds, e, "leave 'microbatches' open, or give a larger number");
    else
        diag_help(ds, e, "a device with at least %s bytes of memory would do",
                  text_count(ds->arena, p->map_bytes[PART_PRIVATE] + p->reserve));
    return ERR_REJECT;
}

/* Lower with m micro-batches; diagnostics only when asked for. */
static Status lower(Arena *a, Diags *ds, const PlanRequest *r, Plan *plan, bool loud, Program **out)
{
    Diags *silent = diags_new(ds->sources);
    return codegen(a, loud ? ds : silent, r->graph, plan, r->cluster, 0, NULL, out);
}

static bool is_pinned(const Decisions *d)
{
    return d->microbatches.nvalue == 1;
}

/* Programs grow with the number of micro-batches, and so does the search for it:
 * more than these are taken only when they are given. */
enum { MICROBATCHES_TRIED = 1 << 16 };

/* The least number after `m` that the rules name and the batch divides by; 0: none. */
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

/* The next number after `m` that the rules allow and the batch divides by; 0: none
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

/* After m did not fit: the next number, or the last when only its figures matter. */
static int64_t next_try(const Decisions *d, int64_t batch, int64_t m, const Program *p)
{
    int64_t next = next_microbatches(d, batch, m);
    for (int64_t n = next; states_exceed(p) && n; n = next_microbatches(d, batch, n))
        next = n;
    return next;
}

/* None of the numbers the rules allow divides the batch: name the nearest that do. */
static Status none_divides(Diags *ds, const PlanRequest *r, const Decisions *d)
{
    int64_t batch = graph_samples(r->graph), m = d->microbatches.value[0], below = m < batch ? m : batch, above = m;
    while (batch % below)
        below--;
    while (above < batch && batch % above)
        above = above < m + MICROBATCHES_TRIED ? above + 1 : batch;
    bool one = is_pinned(d);
    Diag *e = diag_error(ds, d->microbatches_at, "cannot cut 'batch' (%lld) into %s%lld%s equal micro-batches", (long long)batch,
                         one ? "" : "any of ", (long long)m, one ? "" : ", ...");
    if (!same_dim(r->graph->batch, NO_DIM) && span_known(dim_of(r->graph, r->graph->batch)->at))
        diag_note(ds, e, dim_of(r->graph, r->graph->batch)->at, "'batch' is declared here");
    if (above > batch || above == below)
        diag_help(ds, e, "the nearest number that divides it is %lld", (long long)below);
    else
        diag_help(ds, e, "the nearest numbers that divide it are %lld and %lld", (long long)below, (long long)above);
    return ERR_REJECT;
}

static const char *why(const Decisions *d, int64_t m, int64_t first)
{
    return is_pinned(d) ? "given" : m == 1 ? "the whole batch fits at once"
         : m == first   ? "the smallest number the rules allow fits" : "the largest micro-batch that fits";
}

/* A lowered try; it has an arena of its own, so that there are never more than two. */
typedef struct Try { Arena *arena; Program *program; } Try;

static Status try_microbatches(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, int64_t first, Try *last, Plan **plan)
{
    for (int64_t m = first; m; m = next_try(d, graph_samples(r->graph), m, last->program)) {
        Try now = {.arena = arena_new("scratch")};
        *plan = plan_with(a, r, d, m);
        if (lower(now.arena, ds, r, *plan, m == first, &now.program) != OK) {
            arena_free(now.arena);
            if (m == first)                          /* what the first try shows is the user's mistake */
                return ERR_REJECT;
            break;                                   /* this model cannot be cut further */
        }
        arena_free(last->arena);
        *last = now;
        if (program_excess(now.program) <= 0) {
            (*plan)->why_microbatches = why(d, m, first);
            return OK;
        }
    }
    return nothing_fits(ds, r, last->program, d);
}

static Status choose_microbatches(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, Plan **plan)
{
    int64_t first = next_microbatches(d, graph_samples(r->graph), 0);
    if (!first)
        return none_divides(ds, r, d);
    Try last = {NULL, NULL};
    Status s = try_microbatches(a, ds, r, d, first, &last, plan);
    arena_free(last.arena);
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

Status planner_choose(Arena *a, Diags *ds, const PlanRequest *r, Plan **plan, Program **program)
{
    Decisions d;
    TRY(rules_decide(ds, r, &d));
    TRY(check_peak(ds, r->graph, r->cluster, &r->cluster->device[r->cluster->kind[d.device]]));
    TRY(choose_microbatches(a, ds, r, &d, plan));
    rules_warn(ds, r, *plan);
    return codegen(a, ds, r->graph, *plan, r->cluster, 0, r->dump, program);
}
