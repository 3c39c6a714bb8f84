/* choose: the outer decisions that rules leave open, which is the number of
 * micro-batches: fewer is never slower (each micro-batch runs the same kernels
 * on fewer rows), so the smallest number is taken whose programs fit on all ranks. */
#include "planner/planner.h"
#include "planner/open.h"
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

/* ---- judging ---- */

/* Whether no rank before this one has its stage and its kind of device. */
static bool is_first(const Plan *p, const Cluster *cl, uint32_t rank)
{
    uint32_t stage = p->ndevices / (uint32_t)p->mesh[AXIS_pp], kind = cl->kind[p->devices[rank]];
    for (uint32_t r = rank / stage * stage; r < rank; r++)
        if (cl->kind[p->devices[r]] == kind)
            return false;
    return true;
}

/* Programs of a plan, for a while: only those of the first try are made to last, the
 * others have arenas of their own, so that there are never more than two of them.
 * Ranks that are alike are judged by one, which comes first and so has the most slots. */
typedef struct Try {
    Arena   *own, *arena;             /* own: NULL where the programs are made to last */
    Plan    *plan;
    Codegen *codegen;
    Programs programs;
    bool    *stands_in;               /* per rank: its program was made from another's */
} Try;

static void end_try(Try *t)
{
    codegen_close(t->codegen);
    arena_free(t->own);
    *t = (Try){0};
}

/* The first rank lowered that this one is like; the rank itself: there is none. */
static uint32_t find_alike(const Try *t, uint32_t rank)
{
    uint32_t stage = t->plan->ndevices / (uint32_t)t->plan->mesh[AXIS_pp];
    for (uint32_t i = rank % stage; i < rank; i += stage)
        if (t->programs.rank[i] && !t->stands_in[i] && codegen_alike(t->codegen, i, rank))
            return i;
    return rank;
}

static void find_fullest(Programs *p)
{
    p->fullest = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->rank[i] && program_excess(p->rank[i]) > program_excess(p->rank[p->fullest]))
            p->fullest = i;
}

/* Lower for a judgement. */
static Status lower(Try *t, Diags *ds, const PlanRequest *r)
{
    Programs *p = &t->programs;
    *p = (Programs){.rank = NEWN(t->arena, Program *, t->plan->ndevices), .n = t->plan->ndevices};
    t->stands_in = NEWN(t->arena, bool, p->n);
    TRY(codegen_open(ds, r->graph, t->plan, r->cluster, &t->codegen));
    for (uint32_t i = 0; i < p->n; i++) {
        if (!is_first(t->plan, r->cluster, i))
            continue;
        uint32_t like = find_alike(t, i);
        t->stands_in[i] = like != i;
        p->rank[i] = like != i ? codegen_like(t->codegen, t->arena, p->rank[like], i) : codegen_rank(t->codegen, t->arena, i);
    }
    find_fullest(p);
    return OK;
}

/* Programs that will be shown and executed: each rank's own, verified. */
static void complete(Try *t, Arena *a)
{
    Programs *p = &t->programs;
    for (uint32_t i = 0; i < p->n; i++) {
        if (!p->rank[i])
            continue;
        if (t->stands_in[i] || a != t->arena)
            p->rank[i] = codegen_rank(t->codegen, a, i);
        t->stands_in[i] = false;
        codegen_verify(p->rank[i]);
    }
    find_fullest(p);
}

static const Program *fullest(const Programs *p)
{
    return p->rank[p->fullest];
}

/* ---- parts of the batch ---- */

/* Ways a mesh axis splits the batch: dp and ep do by themselves, others where rules say so. */
static int64_t batch_ways(const Decisions *d, MeshAxis x)
{
    bool outer = x == AXIS_dp || x == AXIS_ep, inner = outer;
    for (uint32_t i = 0; i < d->nrule; i++) {
        const Rule *r = &d->rule[i];
        for (uint32_t k = 0; r->kind == RULE_SPLIT && k < r->nnames; k++)
            for (int y = 0; strcmp(r->names[k], "batch") == 0 && y < r->by.n; y++) {
                outer |= r->by.axis[y] == x && r->by.part[y] != PART_INNER;
                inner |= r->by.axis[y] == x && r->by.part[y] != PART_OUTER;
            }
    }
    int64_t first = d->outer[x] ? d->outer[x] : d->mesh[x];
    return (outer ? first : 1) * (inner ? d->mesh[x] / first : 1);
}

/* Parts of the batch that different ranks have: each is cut into micro-batches. */
static int64_t batch_parts(const Decisions *d)
{
    int64_t n = 1;
    for (int x = 0; x < MESH_AXES; x++)
        n *= batch_ways(d, (MeshAxis)x);
    return n;
}

/* A batch that does not divide has one micro-batch, whose lowering says why. */
static int64_t samples_of_part(const PlanRequest *r, const Decisions *d)
{
    int64_t batch = graph_samples(r->graph), parts = batch_parts(d);
    return batch % parts ? 1 : batch / parts;
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

/* The divisors of n next to m, as a help: "the nearest number that divides it is 8". */
static void help_nearest(Diags *ds, Diag *e, const char *one, const char *many, int64_t n, int64_t m)
{
    int64_t below = m < n ? m : n, above = m;
    while (n % below)
        below--;
    while (above < n && n % above)
        above = above < m + MICROBATCHES_TRIED ? above + 1 : n;
    if (above > n || above == below)
        diag_help(ds, e, "the nearest %s is %lld", one, (long long)below);
    else
        diag_help(ds, e, "the nearest %s are %lld and %lld", many, (long long)below, (long long)above);
}

static void note_batch(Diags *ds, Diag *e, const Graph *g)
{
    if (!same_dim(g->batch, NO_DIM) && span_known(dim_of(g, g->batch)->at))
        diag_note(ds, e, dim_of(g, g->batch)->at, "'batch' is declared here");
}

/* None of the numbers the rules allow divides the batch: name the nearest that do. */
static Status none_divides(Diags *ds, const PlanRequest *r, const Decisions *d)
{
    int64_t m = d->microbatches.value[0], parts = batch_parts(d);
    const char *some = is_pinned(d) ? "" : "any of ", *more = is_pinned(d) ? "" : ", ...";
    Diag *e = diag_error(ds, d->microbatches_at, "cannot cut 'batch' (%lld) into %s%lld%s equal micro-batches%s", (long long)graph_samples(r->graph),
                         some, (long long)m, more, parts > 1 ? arena_printf(ds->arena, " in each of its %lld parts", (long long)parts) : "");
    if (d->mesh_rule[AXIS_dp] && d->mesh[AXIS_dp] > 1 && span_known(d->mesh_rule[AXIS_dp]->at))
        diag_note(ds, e, d->mesh_rule[AXIS_dp]->at, "dp is %lld here", (long long)d->mesh[AXIS_dp]);
    note_batch(ds, e, r->graph);
    if (parts > 1)
        help_nearest(ds, e, "number of micro-batches", "numbers of micro-batches", samples_of_part(r, d), m);
    else
        help_nearest(ds, e, "number that divides it", "numbers that divide it", samples_of_part(r, d), m);
    return ERR_REJECT;
}

/* The batch is cut by dp first, whatever the micro-batches. */
static Status check_batch(Diags *ds, const PlanRequest *r, const Decisions *d)
{
    int64_t batch = graph_samples(r->graph), dp = d->mesh[AXIS_dp];
    if (batch % dp == 0)
        return OK;
    const Rule *rule = d->mesh_rule[AXIS_dp];
    Diag *e = diag_error(ds, rule ? rule->at : NOWHERE, "cannot split 'batch' (%lld) evenly by dp (%lld)", (long long)batch, (long long)dp);
    note_batch(ds, e, r->graph);
    help_nearest(ds, e, "number that divides it", "numbers that divide it", batch, dp);
    return ERR_REJECT;
}

static const char *why(const Decisions *d, int64_t m, int64_t first)
{
    return is_pinned(d) ? "given" : m == 1 ? "the whole batch fits at once"
         : m == first   ? "the smallest number the rules allow fits" : "the largest micro-batch that fits";
}

static bool fits(const Try *t)
{
    return program_excess(fullest(&t->programs)) <= 0;
}

static int64_t needed(const Try *t)
{
    return bytes_needed(fullest(&t->programs));
}

/* What rules leave open of the splits, for this number of micro-batches. */
static Status add_open_splits(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, bool lean, Plan *p)
{
    Rule *split, *all;
    uint32_t n;
    TRY(open_splits(a, ds, r, d, p->microbatches, lean, &split, &n));
    all = NEWN(a, Rule, p->nrule + n);
    for (uint32_t i = 0; i < p->nrule + n; i++)
        all[i] = i < p->nrule ? p->rule[i] : split[i - p->nrule];
    p->rule = all;
    p->nrule += n;
    return OK;
}

/* Diagnostics are the user's to see in the first try alone. */
static Status begin_try(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, int64_t m, bool lean, bool first, Try *out)
{
    Diags *said = first ? ds : diags_new(ds->sources);
    *out = (Try){.own = first ? NULL : arena_new("scratch"), .plan = plan_with(a, r, d, m)};
    out->arena = first ? a : out->own;
    Status s = d->tp_open ? add_open_splits(a, said, r, d, lean, out->plan) : OK;
    if (s == OK)
        s = lower(out, said, r);
    if (s != OK)
        end_try(out);
    return s;
}

/* The first number that fits, its programs complete; else *best is the one that needs the
 * least.  Open splits are the fastest with that number, or the leanest where those do not fit. */
static Status try_microbatches(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, int64_t first, Try *best)
{
    int64_t samples = samples_of_part(r, d);
    bool lean = false, started = false;
    for (int64_t m = first; m; lean = d->tp_open && !lean, m = lean ? m : next_microbatches(d, samples, m), started = true) {
        Try now;
        if (begin_try(a, ds, r, d, m, lean, !started, &now) != OK) {
            if (!started)                            /* what the first try shows is the user's mistake */
                return ERR_REJECT;
            break;                                   /* this model cannot be cut further */
        }
        if (fits(&now))
            complete(&now, a);
        bool done = fits(&now), better = done || !started || needed(&now) < needed(best);
        end_try(better ? best : &now);
        if (better)
            *best = now;
        if (done) {
            now.plan->why_microbatches = why(d, m, first);
            return OK;
        }
    }
    complete(best, a);
    return nothing_fits(ds, r, best->plan, fullest(&best->programs), d);
}

static Status choose_microbatches(Arena *a, Diags *ds, const PlanRequest *r, const Decisions *d, Plan **plan, Programs *out)
{
    int64_t first = next_microbatches(d, samples_of_part(r, d), 0);
    if (!first)
        return none_divides(ds, r, d);
    Try best = {0};
    Status s = try_microbatches(a, ds, r, d, first, &best);
    *plan = best.plan;
    *out = best.programs;
    out->rank = NEWN(a, Program *, out->n + 1);
    for (uint32_t i = 0; i < out->n; i++)
        out->rank[i] = best.programs.rank[i];
    end_try(&best);
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

Status planner_choose(Arena *a, Diags *ds, const PlanRequest *r, Plan **plan, Programs *out)
{
    Decisions d;
    *plan = NULL;
    TRY(rules_decide(a, ds, r, &d));
    TRY(check_peaks(ds, r, &d));
    TRY(check_batch(ds, r, &d));
    TRY(choose_microbatches(a, ds, r, &d, plan, out));
    rules_warn(ds, r, *plan);
    return OK;
}
