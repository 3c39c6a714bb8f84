/* prun: execute a plan. */
#include <string.h>

#include "cli/load.h"
#include "cli/program.h"
#include "cli/run_options.h"

#ifndef PPLAN_VERSION
#define PPLAN_VERSION "unknown"
#endif

static Status check_device(const Loaded *l, const Args *args, const Plan *plan)
{
    const char *asked = args_value(args, OPT_device);
    if (asked && strcmp(asked, "cpu") != 0 && strcmp(asked, "auto") != 0) {
        fprintf(stderr, "error: --device '%s': this version has 'cpu' (and 'auto', which takes it)\n", asked);
        return ERR_USAGE;
    }
    if (plan->ndevices > 1) {
        fprintf(stderr, "error: the plan has %u ranks, and this version executes plans of one\n", plan->ndevices);
        return ERR_REJECT;
    }
    const Device *d = &l->cluster->device[l->cluster->kind[plan->devices[0]]];
    if (d->backend == BACKEND_CPU)
        return OK;
    fprintf(stderr, "error: the plan is for device '%s', which needs CUDA; this version executes plans for cpu devices, such as "
            "cluster 'laptop1'\n", d->name);
    return ERR_REJECT;
}

static Status execute(Loaded *l, const Args *args, const RunOptions *o)
{
    Plan *plan;
    Programs programs;
    TRY(load_plan(l, true, &plan, &programs));
    TRY(check_device(l, args, plan));
    if (o->ndata == 0) {
        fprintf(stderr, "error: no data: name a file with --data, or '--data random'\n");
        return ERR_USAGE;
    }
    return run(l->ir, programs.rank[0], o);
}

static Status do_run(const Args *args)
{
    Loaded l;
    RunOptions o;
    Status s = load_model(&l, args);
    FileUses uses = {.arena = l.input};
    load_uses(&l, &uses);
    if (s == OK)
        s = run_options_read(l.input, args, &o);
    o.uses = &uses;
    if (s == OK)
        s = execute(&l, args, &o);
    load_free(&l);
    return s;
}

static void print_version(void)
{
    printf("prun %s\ncpu: %s, kernels for %s\n", PPLAN_VERSION, gemm_providers(), isa_name(isa_best()));
}

int main(int argc, char **argv)
{
    return program_main(PRUN, argc, argv, do_run, print_version);
}
