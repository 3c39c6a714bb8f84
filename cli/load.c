/* Load: finds files, bundled ones too, and runs the frontend over them. */
#include "cli/load.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/text.h"
#include "cli/bundled.h"
#include "codegen/simulate.h"
#include "planner/changes.h"


static void flush(Loaded *l)
{
    if (!l->errors_only || l->ds->errors > 0)
        diags_flush(l->ds, stderr);
}

/* ---- where bundled models are ---- */

/* Above the executable in a source tree (build/VARIANT/prun, build/VARIANT/tests/...), else
 * where `make install` puts it from there: what is installed can be moved. */
static const char *bundled_dir(Arena *a)
{
    static const char *const up[] = {"", "/..", "/../..", "/../../..", "/../../../..", "/../share/pplan"};
    const char *dir = "models";
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    for (size_t i = 0; n > 0 && i < sizeof up / sizeof *up; i++) {
        exe[n] = 0;
        char *slash = strrchr(exe, '/');
        dir = arena_printf(a, "%.*s%s/models", (int)(slash - exe), exe, up[i]);
        if (access(arena_printf(a, "%s/std", dir), R_OK) == 0)
            return file_target(a, dir);
    }
    return dir;
}

const char *load_path(Loaded *l, const char *name)
{
    if (strcmp(name, "-") == 0 || !name[0] || access(name, F_OK) == 0 || name[0] == '/')
        return name;
    const char *bundled = arena_printf(l->input, "%s/%s", bundled_dir(l->input), name);
    return access(bundled, R_OK) == 0 ? bundled : name;
}

static Status check_folder(Arena *a, const char *dir)
{
    struct stat st;
    int reason = stat(dir, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (reason == 0)
        return OK;
    fprintf(stderr, "error: -I '%s': %s%s\n", dir, strerror(reason), reason == ENOENT ? file_hint(a, dir, NULL, 0) : "");
    return status_unopened(reason);
}

/* The folders of -I, then the bundled files. */
static Status find_includes(Loaded *l, const Args *args)
{
    const char **dir = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < args->noption; i++)
        if (args->option[i].id == OPT_include) {
            TRY(check_folder(l->input, args->option[i].value));
            PUSH(l->input, dir, n, args->option[i].value);
        }
    PUSH(l->input, dir, n, bundled_dir(l->input));
    l->includes = (IncludePath){dir, n};
    return OK;
}

/* ---- overrides ---- */

/* An override written on the command line; its value is a source of its own. */
static Status make_define(Loaded *l, const char *source, const char *text, uint32_t name, Define *out)
{
    Source *s = sources_add(l->sources, source, text, strlen(text));
    if (!s)
        return ERR_REJECT;
    s->excerpt = false;
    *out = (Define){.name = arena_strndup(l->input, text, name), .value = text + name + 1, .named = {s->start, s->start + name},
                    .at = {s->start + name + 1, s->start + s->bytes}};
    return OK;
}

static Status add_define(Loaded *l, const char *source, const char *text, uint32_t name)
{
    Define d;
    TRY(make_define(l, source, text, name, &d));
    PUSH(l->input, l->define, l->ndefine, d);
    return OK;
}

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
        TRY(add_define(l, "<command line>", text, (uint32_t)(equals - text)));
    }
    return OK;
}

/* ---- clusters and profiles ---- */

/* A kind of file that may be named by a bundled one's name alone. */
typedef struct FileKind {
    const char *what, *option;
    const BundledKind *bundled;
} FileKind;

static const FileKind cluster_files = {"cluster", "-c", &bundled_clusters};
static const FileKind profile_files = {"profile", "--profile", &bundled_profiles};

static Status no_such_file(Arena *a, const FileKind *k, const char *given)
{
    const char **name;
    uint32_t n = bundled_names(a, bundled_dir(a), k->bundled, &name);
    const char *near = nearest_name(given, name, n), *colon = strrchr(given, ':');
    const char *file = near ? NULL : file_near(a, colon ? arena_strndup(a, given, (size_t)(colon - given)) : given, NULL, 0);
    if (file)
        near = arena_printf(a, "%s%s", file, colon ? colon : "");
    const char *hint = near ? arena_printf(a, "; did you mean '%s'?", near) : "";
    fprintf(stderr, "error: %s '%s': neither a file, a file:name nor a bundled %s%s\n", k->option, given, k->what, hint);
    if (n == 0) {
        fprintf(stderr, "help: there are no bundled %ss in '%s/%s': the installation is not whole\n", k->what, bundled_dir(a), k->bundled->folder);
        return ERR_REJECT;
    }
    Text all = text_new(a);
    for (uint32_t i = 0; i < n; i++)
        text_add(&all, "%s%s", i ? ", " : "", name[i]);
    fprintf(stderr, "help: the bundled %ss are %s\n", k->what, all.s);
    return ERR_REJECT;
}

/* What is given is a file, `file:name`, or the name of a bundled one.  NULL: none of them. */
static const char *kind_file(Loaded *l, const FileKind *k, const char *given, const char **name)
{
    *name = NULL;
    if (strcmp(given, "-") == 0 || access(given, F_OK) == 0)
        return given;
    const char *colon = strrchr(given, ':');
    if (colon) {
        const char *file = arena_strndup(l->input, given, (size_t)(colon - given));
        if (access(file, F_OK) == 0) {
            *name = colon + 1;
            return file;
        }
    }
    const char *bundled = arena_printf(l->input, "%s/%s/%s%s", bundled_dir(l->input), k->bundled->folder, given, k->bundled->ending);
    return access(bundled, R_OK) == 0 ? bundled : NULL;
}

static Status load_cluster(Loaded *l, const Args *args)
{
    const char *given = args_value(args, OPT_cluster), *name = NULL;
    Units *units = &l->model_units;
    if (given) {
        units = &l->cluster_units;
        const char *file = kind_file(l, &cluster_files, given, &name);
        if (!file)
            return no_such_file(l->input, &cluster_files, given);
        TRY(parse_file(l->ds, file, l->includes, units));
        TRY(diags_status(l->ds));
    }
    TRY(elaborate_cluster(l->ds, units, name, l->define, l->ndefine, l->ir, &l->cluster));
    if (!given || l->cluster)
        return OK;
    fprintf(stderr, "error: -c '%s': there is no cluster in this file\n", given);
    return ERR_REJECT;
}

static const char *usual_profile(Loaded *l)
{
    return arena_printf(l->input, "%s/profiles/prun.pprofile", bundled_dir(l->input));
}

static Status load_profile(Loaded *l, const Args *args)
{
    const char *given = args_value(args, OPT_profile), *name = NULL;
    const char *file = given ? kind_file(l, &profile_files, given, &name) : usual_profile(l);
    Units units;
    if (!file)
        return no_such_file(l->input, &profile_files, given);
    TRY(parse_file(l->ds, file, l->includes, &units));
    TRY(diags_status(l->ds));
    return elaborate_profile(l->ds, &units, name, l->ir, &l->profile);
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

/* Rules as an option gives them, parsed. */
static Status parse_rules(Loaded *l, const char *option, const char *given, Units *out)
{
    const char *text = arena_printf(l->input, "plan { %s }", given);
    TRY(parse_text(l->ds, arena_printf(l->input, "<--%s>", option), text, strlen(text), l->includes, out));
    return diags_status(l->ds);
}

static Status no_rules(const char *option, const char *given)
{
    fprintf(stderr, "error: --%s '%s': expected rules, for instance 'mesh tp = 2'\n", option, given);
    return ERR_USAGE;
}

/* Parsed before the model is elaborated: a `set` among the rules is an override. */
static Status parse_with(Loaded *l, const Args *args)
{
    for (uint32_t i = 0; i < args->noption; i++) {
        if (args->option[i].id != OPT_with)
            continue;
        Units units;
        const char *given = args->option[i].value;
        if (!given[strspn(given, " \t\n;")])
            return no_rules("with", given);
        TRY(parse_rules(l, "with", given, &units));
        plan_sets(l->ds, &units, &l->define, &l->ndefine);
        PUSH(l->input, l->with, l->nwith, units);
    }
    return OK;
}

static Status load_rules(Loaded *l)
{
    TRY(add_rules(l, &l->model_units));
    for (uint32_t i = 0; i < l->nwith; i++)
        TRY(add_rules(l, &l->with[i]));
    return OK;
}

Status load_text(Loaded *l, const char *option, const char *text, Rules **out)
{
    Units units;
    Status s = parse_rules(l, option, text, &units);
    if (s == OK)
        s = elaborate_rules(l->ds, &units, l->graph, l->ir, out);
    for (uint32_t i = 0; s == OK && i < (*out)->nrule; i++)
        if ((*out)->rule[i].kind == RULE_SET || (*out)->rule[i].soft)
            diag_error(l->ds, (*out)->rule[i].at, "--%s asks about a layout: %s", option,
                       (*out)->rule[i].soft ? "'prefer' pins none" : "'set' changes the model, give it with -D");
    s = s == OK ? diags_status(l->ds) : s;
    flush(l);
    return s == OK && (*out)->nrule == 0 ? no_rules(option, text) : s;
}

/* Whether -c names the cluster that a plan is for: also its text, where the file has it. */
static Status is_own_cluster(Loaded *l, bool *own)
{
    Cluster *carried;
    TRY(elaborate_cluster(l->ds, &l->model_units, NULL, NULL, 0, l->ir, &carried));
    *own = strcmp(l->rules->cluster, l->cluster->name) == 0 && (!carried || strcmp(carried->text, l->cluster->text) == 0);
    return OK;
}

/* A .plan carries the cluster it is for; -c plans the same rules for another one, which
 * is pplan's work and no secret. */
static Status check_given_cluster(Loaded *l, const Args *args)
{
    const char *given = args_value(args, OPT_cluster), *file = args->positional[0], *name = l->cluster->name;
    const char *this = strcmp(l->rules->cluster, name) == 0 ? "another one of that name" : arena_printf(l->input, "'%s'", name);
    bool own;
    TRY(is_own_cluster(l, &own));
    if (own || args->command == COMMAND_check)       /* which plans nothing */
        return OK;
    if (args->command != COMMAND_run) {
        fprintf(stderr, "note: '%s' is a plan for cluster '%s'; its rules are planned anew for %s\n", file, l->rules->cluster, this);
        return OK;
    }
    fprintf(stderr, "error: -c '%s': '%s' is a plan for cluster '%s', and this is %s\n"
                    "help: 'pplan plan %s -c %s -o FILE' plans the same rules for it\n",
            given, file, l->rules->cluster, this, file, given);
    return ERR_REJECT;
}

static Status check_cluster(Loaded *l, const Args *args)
{
    const char *want = l->rules->cluster;
    if (!want || !l->cluster)
        return OK;
    if (args_value(args, OPT_cluster))
        return check_given_cluster(l, args);
    if (strcmp(want, l->cluster->name) != 0)
        diag_error(l->ds, l->rules->at, "this plan is for cluster '%s', but the file has cluster '%s'", want, l->cluster->name);
    return diags_status(l->ds);
}

/* ---- the whole ---- */

static Status load_parts(Loaded *l, const Args *args)
{
    TRY(find_includes(l, args));
    TRY(parse_file(l->ds, load_path(l, args->positional[0]), l->includes, &l->model_units));
    TRY(diags_status(l->ds));
    plan_sets(l->ds, &l->model_units, &l->define, &l->ndefine);
    TRY(parse_with(l, args));
    TRY(add_defines(l, args));
    TRY(elaborate_model(l->ds, &l->model_units, args_value(args, OPT_model), l->define, l->ndefine, l->ir, &l->graph));
    TRY(load_cluster(l, args));
    TRY(defines_check(l->ds, &l->model_units, l->cluster ? &l->cluster_units : NULL, l->graph, l->define, l->ndefine));
    TRY(load_rules(l));
    TRY(check_cluster(l, args));
    bool times = CMD_TIMES >> args->command & 1;
    return times || (args->command == COMMAND_run && access(usual_profile(l), R_OK) == 0) ? load_profile(l, args) : OK;
}

Status load_model(Loaded *l, const Args *args)
{
    *l = (Loaded){.input = arena_new("input"), .ir = arena_new("graph"), .errors_only = args->errors_only};
    l->sources = sources_new(l->input);
    l->ds = diags_new(l->sources);
    Status s = load_parts(l, args);
    flush(l);
    return s;
}

PlanRequest load_request(Loaded *l, PlanUse use)
{
    return (PlanRequest){.graph = l->graph, .cluster = l->cluster, .rules = l->rules, .profile = l->profile, .use = use,
                         .model_text = inline_model(l->ir, l->ds, &l->model_units, l->graph->name)};
}

/* The model with another extent of a dim; NULL: it cannot have that. */
static Graph *with_extent(Loaded *l, const char *dim, int64_t extent)
{
    Graph *g;
    Define *define = NEWN(l->input, Define, l->ndefine + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->ndefine; i++)
        if (strcmp(l->define[i].name, dim) != 0)
            define[n++] = l->define[i];
    const char *text = arena_printf(l->input, "%s=%lld", dim, (long long)extent);
    Diags *said = diags_new(l->sources);
    if (make_define(l, "<command line>", text, (uint32_t)strlen(dim), &define[n++]) != OK || elaborate_model(said, &l->model_units, l->graph->name, define, n, l->ir, &g) != OK || said->errors > 0 || !define[n - 1].used)
        return NULL;
    graph_complete(g);
    if (has_value(g->loss))
        graph_differentiate(g);
    return g;
}

enum { HALVINGS = 5 };

/* A dim halved until the model fits. */
static void halve(Loaded *l, const PlanRequest *q, const char *dim, int64_t extent, Diag *error)
{
    for (int i = 0; i < HALVINGS && extent % 2 == 0; i++) {
        extent /= 2;
        PlanRequest smaller = *q;
        smaller.graph = with_extent(l, dim, extent);
        if (!smaller.graph)
            return;
        Weigher w = {l->ir, l->sources, &smaller};
        Weighed x = weigh(&w, q->rules, q->use);
        if (!weighed_fits(&x))
            continue;
        diag_note(l->ds, error, NOWHERE, "with -D %s=%lld it fits: %s", dim, (long long)extent, fit_text(l->ir, &x.figures));
        return;
    }
}

/* A shorter sequence or a smaller batch, where states alone, shared out over all devices, are not too big. */
static void add_smaller(Loaded *l, const PlanRequest *q, const Plan *plan, const Program *fullest, Diag *error)
{
    const Graph *g = q->graph;
    const char *positions = pins_positions(g);
    int64_t states = 0;
    for (uint32_t i = 0; i < fullest->nbuffer; i++)
        states += fullest->buffer[i].cls <= CLASS_moments ? fullest->buffer[i].bytes * fullest->buffer[i].slots : 0;
    if (states / plan->ndevices * plan->mesh[AXIS_pp] * plan->mesh[AXIS_tp] > fullest->memory - fullest->reserve)
        return;
    for (uint32_t i = 0; positions && i < g->ndim; i++)
        if (strcmp(g->dim[i].name, positions) == 0)
            halve(l, q, positions, g->dim[i].extent, error);
    const char *why;
    if (!same_dim(g->batch, NO_DIM) && has_op(graph_batch_obstacle(l->ir, g, &why)))   /* else micro-batches are small already */
        halve(l, q, dim_of(g, g->batch)->name, graph_samples(g), error);
}

/* Where a plan does not fit, what would make it. */
static void add_relaxations(Loaded *l, const PlanRequest *q, const Plan *plan, const Program *fullest, bool searched)
{
    Weigher w = {l->ir, l->sources, q};
    Diag *d = l->ds->first;
    while (d->severity != SEV_ERROR)
        d = d->next;
    Diag *help = relax_take_help(d);                     /* it is said last */
    relax(&w, plan, program_map_bytes(fullest) + fullest->reserve, searched, l->ds, d);
    if (searched)
        add_smaller(l, q, plan, fullest, d);
    relax_put_last(d, help);
}

static Status no_cluster(void)
{
    fprintf(stderr, "error: no cluster: name one with -c\n"
                    "help: 'laptop1' is one CPU device; see models/clusters for the others\n");
    return ERR_USAGE;
}

/* Times that cannot be counted are not told. */
static Status check_time(Loaded *l, const Plan *plan, const Programs *programs, const Search *found)
{
    const Device *d = &l->cluster->device[l->cluster->kind[plan->devices[0]]];
    int64_t ns = found->nbest > 0 ? found->best[0].ns : simulate(l->ir, l->cluster, plan, l->profile, programs->rank).ns;
    if (ns < SIMULATE_MOST)
        return OK;
    Diag *e = diag_error(l->ds, d->at, "a step of model '%s' on cluster '%s' takes too long to be counted: one instruction more than 11 days, or all together more than 7 years",
                         l->graph->name, l->cluster->name);
    diag_help(l->ds, e, "look at the rates of device '%s' (its peaks, 'bandwidth', 'efficiency' and 'launch') and of the links between devices", d->name);
    return ERR_REJECT;
}

Status load_search(Loaded *l, PlanUse use, uint32_t top, Plan **plan, Programs *programs, Search *found)
{
    if (!l->cluster)
        return no_cluster();
    graph_complete(l->graph);
    if (has_value(l->graph->loss))
        graph_differentiate(l->graph);
    PlanRequest request = load_request(l, use);
    SearchLimits limits = search_limits;
    limits.top = top;
    Status s = planner_search(l->ir, l->ds, &request, limits, plan, programs, found);
    if (s != OK && *plan && use != USE_RUN && l->profile)
        add_relaxations(l, &request, *plan, programs->rank[programs->fullest], found->judged > 0);
    if (s == OK && use != USE_RUN && l->profile)
        s = check_time(l, *plan, programs, found);
    flush(l);
    return s;
}

Status load_plan(Loaded *l, PlanUse use, Plan **plan, Programs *programs)
{
    Search found;
    return load_search(l, use, 1, plan, programs, &found);
}

Status load_rank(Loaded *l, const Plan *plan, const Programs *programs, uint32_t rank, const PassDump *dump, Program **out)
{
    *out = programs->rank[rank];
    if (*out && !dump)
        return OK;
    Status s = codegen(l->ir, l->ds, l->graph, plan, l->cluster, rank, dump, out);
    flush(l);
    return s;
}

Status load_ranks(Loaded *l, const Plan *plan, const Programs *programs, const Program ***out)
{
    const Program **list = NEWN(l->ir, const Program *, plan->ndevices);
    for (uint32_t i = 0; i < plan->ndevices; i++) {
        Program *p;
        TRY(load_rank(l, plan, programs, i, NULL, &p));
        list[i] = p;
    }
    if (verify_ranks(l->graph, plan, list, stderr) > 0) {
        fprintf(stderr, "codegen: the programs of the ranks do not go together\n");
        abort();
    }
    *out = list;
    return OK;
}

/* Texts of the command line are sources too, but no files: they have no resolved path. */
void load_uses(const Loaded *l, FileUses *u)
{
    for (uint32_t i = 0; i < l->sources->nfile; i++) {
        const Source *s = l->sources->file[i];
        if (strcmp(s->real, s->path) != 0 || s->real[0] == '/')
            file_uses_add(u, USE_READ, "the input", strcmp(s->real, "-") == 0 ? s->real : s->path);
    }
}

void load_free(Loaded *l)
{
    arena_free(l->ir);
    arena_free(l->input);
}
