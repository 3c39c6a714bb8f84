/* prun: execute a plan. */
#include <stdlib.h>
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

static Status check_ranks(Arena *a, const Args *args, uint32_t nranks, const Hosted *hosted)
{
    if (hosted)
        return args_refuse(args, OPT_ranks, arena_printf(a, "on ranks that %s started", starter_name(hosted_by(hosted))));
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

/* Rank 0 does what else a launcher does, and the others wait for it. */
static Status be_hosted(Loaded *l, const Args *args, const Plan *plan, const Programs *programs, Hosted *h, const RunOptions *o)
{
    const Program **list = NULL;
    Program *p = NULL;
    Crew crew = {.n = plan->ndevices, .hash = hash_of(programs->rank[0], args), .o = o};
    TRY(hosted_check_size(h, crew.n));
    if (hosted_rank(h) == 0) {
        TRY(load_ranks(l, plan, programs, &list));
        crew.program = list;
        TRY(crew_check(l->ir, &crew));
        TRY(hosted_gate(h, OK));
    } else {
        TRY(load_rank(l, plan, programs, (uint32_t)hosted_rank(h), NULL, &p));
    }
    const Program *mine = list ? list[0] : p;
    return hosted_run(h, l->ir, mine, &crew, parts_of(l, plan, programs, mine));
}

/* ---- running ---- */

/* How this process came to be: both NULL: a user started it. */
typedef struct Origin { const Member *member; Hosted *hosted; } Origin;

/* Whether nobody else says what is true of all ranks. */
static bool speaks(const Origin *from)
{
    return !from->member && (!from->hosted || hosted_rank(from->hosted) == 0);
}

static Status execute(Loaded *l, const Args *args, const Origin *from, RunOptions *o)
{
    Plan *plan;
    Programs programs;
    TRY(load_plan(l, USE_RUN, &plan, &programs));
    TRY(device_choose(l->ir, args, &l->cluster->device[l->cluster->kind[plan->devices[0]]], speaks(from), &o->executor));
    TRY(check_ranks(l->ir, args, plan->ndevices, from->hosted));
    if (from->member)
        return be_rank(l, args, plan, &programs, from->member, o);
    if (from->hosted)
        return be_hosted(l, args, plan, &programs, from->hosted, o);
    return plan->ndevices > 1 ? start_ranks(l, args, plan, &programs, o) : run(l->ir, programs.rank[0], parts_of(l, plan, &programs, programs.rank[0]), o);
}

static Status load_and_run(const Args *args, const Origin *from)
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
        s = execute(&l, args, from, &o);
    load_free(&l);
    return s;
}

static Status run_as_member(const Args *args, const Member *m)
{
    Args again = *args;
    again.errors_only = true;
    TRY(member_watch(m));
    return load_and_run(&again, &(Origin){.member = m});
}

/* Whether something that is read is called '-'. */
static bool reads_input(const Args *args)
{
    const char *cluster = args_value(args, OPT_cluster);
    for (uint32_t i = 0; i < args->npositional; i++)
        if (strcmp(args->positional[i], "-") == 0)
            return true;
    return cluster && strcmp(cluster, "-") == 0;
}

static Status run_as_hosted(const Args *args, Starter by)
{
    Arena *a = arena_new("hosted");
    Args mine = *args;
    Hosted *h;
    Status s = hosted_open(a, by, &h);
    if (s == OK) {
        mine.errors_only = hosted_rank(h) > 0;
        if (reads_input(args))
            s = hosted_share_input(h);
        if (hosted_rank(h) > 0)
            s = hosted_gate(h, s);
        if (s == OK)
            s = load_and_run(&mine, &(Origin){.hosted = h});
        hosted_close(h, s);
    }
    arena_free(a);
    return s;
}

static Status do_run(const Args *args)
{
    Member m;
    if (args->command == COMMAND_calibrate)
        return calibrate(args, PPLAN_VERSION);
    if (member_read(&m))
        return run_as_member(args, &m);
    Starter by = starter();
    if (by == STARTER_MPI || by == STARTER_TORCHRUN)
        return run_as_hosted(args, by);
    if (by != STARTER_SRUN)
        return load_and_run(args, &(Origin){0});
    fprintf(stderr, "error: srun started %s processes of prun, and each of them would be a run of its own: ranks need 'srun --mpi=pmix' (or pmi2)\n",
            getenv("SLURM_STEP_NUM_TASKS"));
    return ERR_USAGE;
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
