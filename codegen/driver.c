/* The passes, in order.  After each one the program is verified and shown to who
 * asked, after the last one checked as a whole (tests do that after each); a
 * violation is our bug and ends the process. */
#include "codegen/pass.h"

#include <assert.h>
#include <stdlib.h>

const char *const codegen_passes[] = {"place", "fuse", "bucket", "schedule", "memory", "streams"};
const int         codegen_npasses = sizeof codegen_passes / sizeof *codegen_passes;

/* ---- what the program says of the whole step ---- */

static Program *program_of(Arena *a, const Lowering *lw)
{
    const Graph *g = lw->g;
    const Device *d = lw->device;
    Program *p = program_new(a);
    p->model = g->name;
    p->loss = p->norm = NO_TENSOR;
    p->optimizer = g->optimizer;
    p->precision = g->precision;
    p->batch = graph_samples(g);
    p->microbatches = lw->plan->microbatches;
    p->full_only = micro_needs_full(g, &lw->micro);
    p->reserve = d->reserve;
    p->memory = d->memory;
    p->threads = d->threads;
    p->peak = d->peak[g->precision.compute];
    p->model_flops = graph_model_flops(g, false);
    p->model_flops_causal = graph_model_flops(g, true);
    p->tokens = graph_tokens(g);
    return p;
}

/* ---- the passes ---- */

static void after(const Program *p, int pass, const PassDump *dump)
{
    bool last = pass == codegen_npasses - 1;
    if (verify(p, stderr) > 0 || verify_update(p, stderr) > 0 || (last && program_check(p, stderr) > 0)) {
        fprintf(stderr, "codegen: the program is broken after pass '%s'\n", codegen_passes[pass]);
        abort();
    }
    if (dump)
        dump->after(dump->ctx, codegen_passes[pass], p);
}

static void lower(Lowering *lw, const PassDump *dump)
{
    Program *p = lw->p;
    number_groups(lw);
    place(lw);
    after(p, 0, dump);
    fuse(p, lw->scratch);
    after(p, 1, dump);
    bucket(lw);
    after(p, 2, dump);
    schedule(lw);
    after(p, 3, dump);
    memory(lw);
    after(p, 4, dump);
    streams(p, lw->scratch);
    after(p, 5, dump);
}

Status codegen(Arena *a, Diags *ds, const Graph *g, const Plan *plan, const Cluster *cl, uint32_t rank, const PassDump *dump, Program **out)
{
    Lowering lw = {.g = g, .plan = plan, .cluster = cl, .ds = ds, .scratch = arena_new("scratch")};
    lw.device = &cl->device[cl->kind[plan->devices[rank]]];
    lw.micro = micro_read(lw.scratch, g, plan->microbatches);
    int errors = ds->errors;
    support_check(&lw);
    *out = NULL;
    if (ds->errors == errors && layout_read(lw.scratch, ds, g, plan, &lw.layout) == OK) {
        lw.stage = rank / lw.layout.grid.nranks;
        lw.place = rank % lw.layout.grid.nranks;
        lw.recompute = recompute_read(&lw);
        lw.p = program_of(a, &lw);
        lw.p->rank = rank;
        lw.p->nranks = plan->ndevices;
        lower(&lw, dump);
        *out = lw.p;
    }
    arena_free(lw.scratch);
    return ds->errors == errors ? OK : ERR_REJECT;
}
