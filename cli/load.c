/* Load: finds files, bundled ones too, and runs the frontend over them. */
#include "cli/load.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#ifndef PPLAN_DATADIR
#define PPLAN_DATADIR "/usr/local/share/pplan"
#endif

/* ---- where bundled models are ---- */

/* Above the executable in a source tree (build/VARIANT/prun, build/VARIANT/tests/...),
 * else installed. */
static const char *bundled_dir(Arena *a)
{
    static const char *const up[] = {"", "/..", "/../..", "/../../..", "/../../../.."};
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    for (size_t i = 0; n > 0 && i < sizeof up / sizeof *up; i++) {
        exe[n] = 0;
        char *slash = strrchr(exe, '/');
        const char *dir = arena_printf(a, "%.*s%s/models", (int)(slash - exe), exe, up[i]);
        if (access(arena_printf(a, "%s/std", dir), R_OK) == 0)
            return dir;
    }
    return arena_printf(a, "%s/models", PPLAN_DATADIR);
}

const char *load_path(Loaded *l, const char *name)
{
    if (strcmp(name, "-") == 0 || access(name, F_OK) == 0 || name[0] == '/')
        return name;
    const char *bundled = arena_printf(l->input, "%s/%s", bundled_dir(l->input), name);
    return access(bundled, R_OK) == 0 ? bundled : name;
}

static IncludePath include_path(Loaded *l, const Args *args)
{
    const char **dir = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < args->noption; i++)
        if (args->option[i].id == OPT_include)
            PUSH(l->input, dir, n, args->option[i].value);
    PUSH(l->input, dir, n, bundled_dir(l->input));
    return (IncludePath){dir, n};
}

/* ---- overrides ---- */

static Status add_defines(Loaded *l, const Args *args)
{
    for (uint32_t i = 0; i < args->noption; i++) {
        const char *text = args->option[i].value, *equals = strchr(text, '=');
        if (args->option[i].id != OPT_define)
            continue;
        if (!equals || equals == text || !equals[1]) {
            fprintf(stderr, "error: -D '%s': expected NAME=VALUE\n", text);
            return ERR_USAGE;
        }
        Source *s = sources_add(l->sources, "<command line>", text, strlen(text));
        if (!s)
            return ERR_REJECT;
        s->excerpt = false;
        uint32_t name = (uint32_t)(equals - text);
        Define d = {.name = arena_strndup(l->input, text, name), .value = equals + 1,
                    .at = {s->start + name + 1, s->start + s->bytes}};
        PUSH(l->input, l->define, l->ndefine, d);
    }
    return OK;
}

/* ---- clusters ---- */

/* -c takes `file`, `file:name`, or the name of a bundled cluster. */
static const char *cluster_file(Loaded *l, const char *given, const char **name)
{
    *name = NULL;
    if (access(given, R_OK) == 0)
        return given;
    const char *colon = strrchr(given, ':');
    if (colon) {
        const char *file = arena_strndup(l->input, given, (size_t)(colon - given));
        if (access(file, R_OK) == 0) {
            *name = colon + 1;
            return file;
        }
    }
    const char *bundled = arena_printf(l->input, "%s/clusters/%s.pcluster", bundled_dir(l->input), given);
    return access(bundled, R_OK) == 0 ? bundled : given;
}

static Status load_cluster(Loaded *l, const Args *args)
{
    const char *given = args_value(args, OPT_cluster), *name = NULL;
    Units *units = &l->model_units;
    if (given) {
        units = &l->cluster_units;
        TRY(parse_file(l->ds, cluster_file(l, given, &name), include_path(l, args), units));
        TRY(diags_status(l->ds));
    }
    return elaborate_cluster(l->ds, units, name, l->define, l->ndefine, l->ir, &l->cluster);
}

/* ---- rules ---- */

static Status add_rules(Loaded *l, const Units *units)
{
    Rules *more;
    TRY(elaborate_rules(l->ds, units, l->graph, l->ir, &more));
    if (!l->rules) {
        l->rules = more;
        return OK;
    }
    for (uint32_t i = 0; i < more->nrule; i++)
        PUSH(l->ir, l->rules->rule, l->rules->nrule, more->rule[i]);
    return OK;
}

static Status load_rules(Loaded *l, const Args *args)
{
    TRY(add_rules(l, &l->model_units));
    for (uint32_t i = 0; i < args->noption; i++) {
        if (args->option[i].id != OPT_with)
            continue;
        const char *text = arena_printf(l->input, "plan { %s }", args->option[i].value);
        Units units;
        TRY(parse_text(l->ds, "<--with>", text, strlen(text), include_path(l, args), &units));
        TRY(diags_status(l->ds));
        TRY(add_rules(l, &units));
    }
    return OK;
}

/* ---- the whole ---- */

static Status load_parts(Loaded *l, const Args *args)
{
    TRY(parse_file(l->ds, load_path(l, args->positional[0]), include_path(l, args), &l->model_units));
    TRY(diags_status(l->ds));
    plan_sets(l->ds, &l->model_units, &l->define, &l->ndefine);
    TRY(add_defines(l, args));
    TRY(elaborate_model(l->ds, &l->model_units, args_value(args, OPT_model), l->define, l->ndefine, l->ir, &l->graph));
    TRY(load_cluster(l, args));
    TRY(defines_check(l->ds, &l->model_units, l->graph, l->define, l->ndefine));
    return load_rules(l, args);
}

Status load_model(Loaded *l, const Args *args)
{
    *l = (Loaded){.input = arena_new("input"), .ir = arena_new("graph")};
    l->sources = sources_new(l->input);
    l->ds = diags_new(l->sources);
    Status s = load_parts(l, args);
    diags_flush(l->ds, stderr);
    return s;
}

Status load_plan(Loaded *l, bool closed, const PassDump *dump, Plan **plan, Program **program)
{
    if (!l->cluster) {
        fprintf(stderr, "error: no cluster: name one with -c\n"
                        "help: 'laptop1' is one CPU device; see models/clusters for the others\n");
        return ERR_USAGE;
    }
    graph_complete(l->graph);
    if (has_value(l->graph->loss))
        graph_differentiate(l->graph);
    PlanRequest request = {.graph = l->graph, .cluster = l->cluster, .rules = l->rules, .closed = closed, .dump = dump,
                           .model_text = inline_model(l->ir, l->ds, &l->model_units, l->graph->name)};
    Status s = planner_choose(l->ir, l->ds, &request, plan, program);
    diags_flush(l->ds, stderr);
    return s;
}

void load_free(Loaded *l)
{
    arena_free(l->ir);
    arena_free(l->input);
}
