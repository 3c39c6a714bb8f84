/* Run options: what prun's command line says about the run itself. */
#include "cli/run_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* KIND@STEP=FILE; no kind has a '=', but a file may. */
static Status read_dump(Arena *a, const char *text, DumpSpec *out)
{
    const char *equals = strchr(text, '='), *at = NULL;
    for (const char *p = text; equals && p < equals; p++)
        if (*p == '@')
            at = p;
    char *end = NULL;
    errno = 0;
    out->step = at ? strtoll(at + 1, &end, 10) : -1;
    if (!at || at == text || end != equals || end == at + 1 || errno || out->step < 0 || !equals[1]) {
        fprintf(stderr, "error: --dump '%s': expected KIND@STEP=FILE, such as weights@0=start.safetensors, with a STEP from 0 to %lld\n", text,
                (long long)INT64_MAX);
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

/* A decimal number of seconds. */
static Status read_timeout(const Args *args, double *out)
{
    const char *text = args_value(args, OPT_timeout);
    char *end = NULL;
    *out = text ? strtod(text, &end) : 0;
    bool decimal = text && text[strspn(text, "0123456789.")] == 0 && end != text && *end == 0;
    if (!text || (decimal && *out >= 0.1 && *out <= 1e6))
        return OK;
    fprintf(stderr, "error: --timeout '%s': expected a number of seconds from 0.1 to 1000000\n", text);
    return ERR_USAGE;
}

Status run_options_read(Arena *a, const Args *args, RunOptions *o)
{
    int64_t seed;
    *o = (RunOptions){.isa = isa_best(), .save = args_value(args, OPT_save), .resume = args_value(args, OPT_resume),
                      .log = args_value(args, OPT_log), .trace = args_value(args, OPT_trace), .graphs = args_value(args, OPT_graphs) != NULL};
    o->data = all_values(a, args, OPT_data, &o->ndata);
    o->eval = all_values(a, args, OPT_eval, &o->neval);
    o->set = all_values(a, args, OPT_set, &o->nset);
    TRY(args_integer(args, OPT_eval_every, 1, INT64_MAX, 0, &o->eval_every));
    TRY(args_integer(args, OPT_save_every, 1, INT64_MAX, 0, &o->save_every));
    TRY(args_integer(args, OPT_keep, 1, INT32_MAX, 2, &o->keep));
    TRY(args_integer(args, OPT_steps, 1, INT64_MAX, 0, &o->steps));
    TRY(args_integer(args, OPT_seed, 0, INT64_MAX, 1, &seed));
    o->seed = (uint64_t)seed;
    o->seed_given = args_value(args, OPT_seed) != NULL;
    TRY(read_timeout(args, &o->timeout));
    TRY(need(args, OPT_eval_every, "eval-every", OPT_eval, "eval"));
    TRY(need(args, OPT_save_every, "save-every", OPT_save, "save"));
    TRY(need(args, OPT_keep, "keep", OPT_save, "save"));
    return read_dumps(a, args, o);
}
