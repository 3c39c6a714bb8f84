/* prun: execute a plan. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/load.h"
#include "runtime/runtime.h"

#ifndef PPLAN_VERSION
#define PPLAN_VERSION "unknown"
#endif

/* KIND@STEP=FILE */
static Status read_dump(Arena *a, const char *text, DumpSpec *out)
{
    const char *equals = strrchr(text, '='), *at = NULL;
    for (const char *p = text; equals && p < equals; p++)
        if (*p == '@')
            at = p;
    char *end = NULL;
    out->step = at ? strtoll(at + 1, &end, 10) : -1;
    if (!at || at == text || end != equals || end == at + 1 || out->step < 0 || !equals[1]) {
        fprintf(stderr, "error: --dump '%s': expected KIND@STEP=FILE, such as weights@0=start.safetensors\n", text);
        return ERR_USAGE;
    }
    out->kind = arena_strndup(a, text, (size_t)(at - text));
    out->path = equals + 1;
    return OK;
}

/* The values of a repeatable option. */
static const char *const *all_values(Arena *a, const Args *args, OptionId id, uint32_t *n)
{
    const char **list = NULL;
    *n = 0;
    for (uint32_t i = 0; i < args->noption; i++)
        if (args->option[i].id == id)
            PUSH(a, list, *n, args->option[i].value);
    return list;
}

static Status read_dumps(Arena *a, const Args *args, RunOptions *o)
{
    uint32_t n;
    const char *const *text = all_values(a, args, OPT_dump, &n);
    for (uint32_t i = 0; i < n; i++) {
        DumpSpec d;
        TRY(read_dump(a, text[i], &d));
        PUSH(a, o->dump, o->ndump, d);
    }
    return OK;
}

static Status need(const Args *args, OptionId what, const char *what_name, OptionId with, const char *with_name)
{
    if (!args_value(args, what) || args_value(args, with))
        return OK;
    fprintf(stderr, "error: --%s has no effect without --%s\n", what_name, with_name);
    return ERR_USAGE;
}

static Status read_options(Arena *a, const Args *args, RunOptions *o)
{
    int64_t seed;
    *o = (RunOptions){.isa = isa_best(), .save = args_value(args, OPT_save), .resume = args_value(args, OPT_resume),
                      .log = args_value(args, OPT_log)};
    o->data = all_values(a, args, OPT_data, &o->ndata);
    o->eval = all_values(a, args, OPT_eval, &o->neval);
    o->set = all_values(a, args, OPT_set, &o->nset);
    TRY(args_integer(args, OPT_eval_every, 1, 0, &o->eval_every));
    TRY(args_integer(args, OPT_save_every, 1, 0, &o->save_every));
    TRY(args_integer(args, OPT_keep, 1, 2, &o->keep));
    TRY(args_integer(args, OPT_steps, 1, 0, &o->steps));
    TRY(args_integer(args, OPT_seed, 0, 1, &seed));
    o->seed = (uint64_t)seed;
    o->seed_given = args_value(args, OPT_seed) != NULL;
    TRY(need(args, OPT_eval_every, "eval-every", OPT_eval, "eval"));
    TRY(need(args, OPT_save_every, "save-every", OPT_save, "save"));
    TRY(need(args, OPT_keep, "keep", OPT_save, "save"));
    return read_dumps(a, args, o);
}

static Status check_device(const Loaded *l, const Args *args, const Plan *plan)
{
    const char *asked = args_value(args, OPT_device);
    if (asked && strcmp(asked, "cpu") != 0 && strcmp(asked, "auto") != 0) {
        fprintf(stderr, "error: --device '%s': this version has 'cpu' (and 'auto', which takes it)\n", asked);
        return ERR_USAGE;
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
    Program *program;
    TRY(load_plan(l, true, NULL, &plan, &program));
    TRY(check_device(l, args, plan));
    if (o->ndata == 0) {
        fprintf(stderr, "error: no data: name a file with --data, or '--data random'\n");
        return ERR_USAGE;
    }
    return run(l->ir, program, o);
}

static Status do_run(const Args *args)
{
    Loaded l;
    RunOptions o;
    Status s = load_model(&l, args);
    if (s == OK)
        s = read_options(l.input, args, &o);
    if (s == OK)
        s = execute(&l, args, &o);
    load_free(&l);
    return s;
}

int main(int argc, char **argv)
{
    Arena *a = arena_new("arguments");
    Args args;
    signal(SIGPIPE, SIG_IGN);            /* a closed pipe is a failed write, with its message */
    Status s = args_read(a, PRUN, argc, argv, &args);
    if (s == OK && args.help)
        args_help(PRUN, stdout);
    else if (s == OK && args.version)
        printf("prun %s\ncpu: %s, kernels for %s\n", PPLAN_VERSION, gemm_providers(), isa_name(isa_best()));
    else if (s == OK)
        s = do_run(&args);
    if (s == OK && (fflush(stdout) != 0 || ferror(stdout))) {
        perror("standard output");
        s = ERR_IO;
    }
    arena_free(a);
    return status_exit(s);
}
