/* prun: execute a plan. */
#include <string.h>

#include "base/text.h"
#include "cli/calibrate.h"
#include "cli/device.h"
#include "cli/load.h"
#include "cli/parts.h"
#include "cli/program.h"
#include "cli/run_options.h"
#include "runtime/ranks.h"

#ifndef PPLAN_VERSION
#define PPLAN_VERSION "unknown"
#endif

/* ---- many ranks ---- */

/* What all ranks must have in common: the program, of which each knows that of rank 0,
 * and what the command line says of the run. */
static uint64_t hash_of(const Program *first, const Args *args)
{
    const uint64_t prime = 0x100000001b3;            /* FNV-1a's, of 64 bits */
    uint64_t hash = program_hash(first);
    for (uint32_t i = 0; i < args->noption; i++)
        hash = (hash ^ ((uint64_t)args->option[i].id << 32 | fnv1a(args->option[i].value))) * prime;
    return (hash ^ fnv1a(PPLAN_VERSION)) * prime;
}

/* What the plan was read from, if that was standard input; else NULL. */
static const char *standard_input(const Loaded *l)
{
    for (uint32_t i = 0; i < l->sources->nfile; i++)
        if (strcmp(l->sources->file[i]->real, "-") == 0)
            return l->sources->file[i]->text;
    return NULL;
}

static Status check_ranks(const Args *args, uint32_t nranks)
{
    const char *how = args_value(args, OPT_ranks);
    if (how && strcmp(how, "processes") != 0 && strcmp(how, "threads") != 0) {
        fprintf(stderr, "error: --ranks '%s': expected 'processes' or 'threads'\n", how);
        return ERR_USAGE;
    }
    if (nranks > 1)
        return OK;
    static const char why[] = "on a plan of one rank, which runs inside prun itself";
    TRY(args_refuse(args, OPT_ranks, why));
    return args_refuse(args, OPT_timeout, why);
}

static const TallyParts *const *all_parts(Loaded *l, const Plan *plan, const Programs *programs, const Program *const *list)
{
    const TallyParts **parts = NEWN(l->ir, const TallyParts *, plan->ndevices);
    for (uint32_t i = 0; i < plan->ndevices; i++)
        parts[i] = parts_of(l, plan, programs, list[i]);
    return parts;
}

static Status start_ranks(Loaded *l, const Args *args, const Plan *plan, const Programs *programs, const RunOptions *o)
{
    const Program **list;
    const char *how = args_value(args, OPT_ranks);
    TRY(load_ranks(l, plan, programs, &list));
    Crew crew = {.program = list, .n = plan->ndevices, .hash = hash_of(list[0], args), .o = o};
    if (how && strcmp(how, "threads") == 0) {
        crew.parts = all_parts(l, plan, programs, list);
        return crew_as_threads(l->ir, &crew);
    }
    return crew_as_processes(l->ir, &crew, args->argv, standard_input(l));
}

static Status be_rank(Loaded *l, const Args *args, const Plan *plan, const Programs *programs, const Member *m, const RunOptions *o)
{
    Program *p;
    if (m->rank < 0 || (uint32_t)m->rank >= plan->ndevices) {
        fprintf(stderr, "error: rank %d of a plan of %u: the plan is not the one that was started\n", m->rank, plan->ndevices);
        return ERR_REJECT;
    }
    TRY(load_rank(l, plan, programs, (uint32_t)m->rank, NULL, &p));
    return member_run(l->ir, p, m, hash_of(programs->rank[0], args), parts_of(l, plan, programs, p), o);
}

/* ---- running ---- */

static Status execute(Loaded *l, const Args *args, const Member *member, RunOptions *o)
{
    Plan *plan;
    Programs programs;
    TRY(load_plan(l, USE_RUN, &plan, &programs));
    TRY(device_choose(l->ir, args, &l->cluster->device[l->cluster->kind[plan->devices[0]]], !member, &o->executor));
    TRY(check_ranks(args, plan->ndevices));
    if (member)
        return be_rank(l, args, plan, &programs, member, o);
    return plan->ndevices > 1 ? start_ranks(l, args, plan, &programs, o) : run(l->ir, programs.rank[0], parts_of(l, plan, &programs, programs.rank[0]), o);
}

static Status load_and_run(const Args *args, const Member *member)
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
        s = execute(&l, args, member, &o);
    load_free(&l);
    return s;
}

static Status do_run(const Args *args)
{
    Member m;
    if (args->command == COMMAND_calibrate)
        return calibrate(args, PPLAN_VERSION);
    if (!member_read(&m))
        return load_and_run(args, NULL);
    Args again = *args;
    again.errors_only = true;
    TRY(member_watch(&m));
    return load_and_run(&again, &m);
}

static void print_version(void)
{
    printf("prun %s\n", PPLAN_VERSION);
    device_print_all();
}

int main(int argc, char **argv)
{
    return program_main(PRUN, argc, argv, do_run, print_version);
}
