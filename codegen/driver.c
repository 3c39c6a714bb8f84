/* The passes, in order.  After each one the program is verified and shown to who
 * asked, after the last one checked as a whole (tests do that after each); a
 * violation is our bug and ends the process.  What follows from the plan alone is
 * found once for all of its ranks. */
#include "codegen/pass.h"

#include <stdlib.h>
#include <string.h>

const char *const codegen_passes[] = {"place", "fuse", "bucket", "schedule", "memory", "streams"};
const int         codegen_npasses = sizeof codegen_passes / sizeof *codegen_passes;

/* ---- what the programs of a plan have in common ---- */

static Program *program_of(Arena *a, const Lowering *lw)
{
    const Graph *g = lw->g;
    Program *p = program_new(a);
    p->model = g->name;
    p->loss = p->norm = NO_TENSOR;
    p->optimizer = g->optimizer;
    p->precision = g->precision;
    p->batch = graph_samples(g);
    p->microbatches = lw->plan->microbatches;
    p->full_only = micro_needs_full(g, &lw->micro);
    p->nranks = lw->plan->ndevices;
    p->model_flops = graph_model_flops(g, false);
    p->model_flops_causal = graph_model_flops(g, true);
    p->tokens = graph_tokens(g);
    return p;
}

/* The ops of each stage, so that no stage looks at those of the others. */
static void list_ops(Codegen *cg)
{
    const Layout *l = &cg->of_all.layout;
    uint32_t *n = cg->first_op = NEWN(cg->arena, uint32_t, l->nstages + 1);
    for (uint32_t o = 0; o < l->g->nop; o++)
        for (StageSet s = l->stages[o]; s; s &= s - 1)
            n[__builtin_ctzll(s) + 1]++;
    for (uint32_t s = 0; s < l->nstages; s++)
        n[s + 1] += n[s];
    uint32_t *at = NEWN(cg->arena, uint32_t, l->nstages);
    memcpy(at, n, sizeof *n * l->nstages);
    cg->op = NEWN(cg->arena, uint32_t, n[l->nstages] + 1);
    for (uint32_t o = 0; o < l->g->nop; o++)
        for (StageSet s = l->stages[o]; s; s &= s - 1)
            cg->op[at[__builtin_ctzll(s)]++] = o;
}

/* For each kind of device that the plan uses, until one fails. */
static Status check_support(Codegen *cg)
{
    Lowering *lw = &cg->of_all;
    const Cluster *cl = lw->cluster;
    bool *seen = NEWN(cg->arena, bool, cl->ndevice + 1);
    int errors = lw->ds->errors;
    for (uint32_t r = 0; r < lw->plan->ndevices && lw->ds->errors == errors; r++) {
        uint32_t kind = cl->kind[lw->plan->devices[r]];
        lw->device = &cl->device[kind];
        if (!seen[kind])
            support_check(lw);
        seen[kind] = true;
    }
    return lw->ds->errors == errors ? OK : ERR_REJECT;
}

static Status open_all(Codegen *cg)
{
    Lowering *lw = &cg->of_all;
    lw->losses = graph_losses(lw->g, cg->arena);
    lw->micro = micro_read(cg->arena, lw->g, lw->plan->microbatches);
    TRY(check_support(cg));
    TRY(layout_read(cg->arena, lw->ds, lw->g, lw->plan, &lw->layout));
    lw->recompute = recompute_read(lw);
    cg->blank = program_of(cg->arena, lw);
    list_ops(cg);
    return OK;
}

Status codegen_open(Diags *ds, const Graph *g, const Plan *plan, const Cluster *cl, Codegen **out)
{
    Arena *a = arena_new("codegen");
    Codegen *cg = NEW(a, Codegen);
    *cg = (Codegen){.arena = a, .of_all = {.g = g, .plan = plan, .cluster = cl, .ds = ds, .scratch = a}};
    Status s = open_all(cg);
    *out = s == OK ? cg : NULL;
    if (s != OK)
        arena_free(a);
    return s;
}

void codegen_close(Codegen *cg)
{
    if (cg)
        arena_free(cg->arena);
}

/* ---- one rank ---- */

Lowering lowering_of(const Codegen *cg, uint32_t rank)
{
    Lowering lw = cg->of_all;
    lw.device = &lw.cluster->device[lw.cluster->kind[lw.plan->devices[rank]]];
    lw.stage = rank / lw.layout.grid.nranks;
    lw.place = rank % lw.layout.grid.nranks;
    lw.op = cg->op + cg->first_op[lw.stage];
    lw.nop = cg->first_op[lw.stage + 1] - cg->first_op[lw.stage];
    lw.scratch = NULL;
    return lw;
}

static Program *program_on(Arena *a, const Codegen *cg, const Device *d, uint32_t rank)
{
    Program *p = NEW(a, Program);
    *p = *cg->blank;
    p->arena = a;
    p->rank = rank;
    p->reserve = d->reserve;
    p->memory = d->memory;
    p->threads = d->threads;
    p->comm_threads = d->comm_threads;
    p->peak = d->peak[p->precision.compute];
    return p;
}

/* ---- the passes ---- */

static void broken_after(const char *pass)
{
    fprintf(stderr, "codegen: the program is broken after pass '%s'\n", pass);
    abort();
}

void codegen_verify(const Program *p)
{
    if (verify(p, stderr) > 0 || verify_update(p, stderr) > 0 || program_check(p, stderr) > 0)
        broken_after(codegen_passes[codegen_npasses - 1]);
}

/* Whether each pass is followed by its checker, and who else looks. */
typedef struct Watch { bool verify; const PassDump *dump; } Watch;

static void after(const Program *p, int pass, Watch w)
{
    bool last = pass == codegen_npasses - 1;
    if (w.verify && last)
        codegen_verify(p);
    else if (w.verify && (verify(p, stderr) > 0 || verify_update(p, stderr) > 0))
        broken_after(codegen_passes[pass]);
    if (w.dump)
        w.dump->after(w.dump->ctx, codegen_passes[pass], p);
}

static void lower(Lowering *lw, Watch w)
{
    Program *p = lw->p;
    number_groups(lw);
    place(lw);
    after(p, 0, w);
    fuse(p, lw->scratch);
    after(p, 1, w);
    bucket(lw);
    after(p, 2, w);
    schedule(lw);
    after(p, 3, w);
    memory(lw);
    after(p, 4, w);
    streams(p, lw->scratch);
    after(p, 5, w);
}

static Program *lower_rank(const Codegen *cg, Arena *a, uint32_t rank, Watch w)
{
    Lowering lw = lowering_of(cg, rank);
    lw.scratch = arena_new("scratch");
    lw.p = program_on(a, cg, lw.device, rank);
    lw.p->lists = lw.scratch;
    lower(&lw, w);
    program_settle(lw.p);
    arena_free(lw.scratch);
    return lw.p;
}

Program *codegen_rank(const Codegen *cg, Arena *a, uint32_t rank)
{
    return lower_rank(cg, a, rank, (Watch){0});
}

Status codegen(Arena *a, Diags *ds, const Graph *g, const Plan *plan, const Cluster *cl, uint32_t rank, const PassDump *dump, Program **out)
{
    Codegen *cg;
    *out = NULL;
    TRY(codegen_open(ds, g, plan, cl, &cg));
    *out = lower_rank(cg, a, rank, (Watch){true, dump});
    codegen_close(cg);
    return OK;
}
