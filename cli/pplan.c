/* pplan: plan how to spread a model over devices. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/files.h"
#include "base/text.h"
#include "cli/load.h"
#include "cli/program.h"
#include "cli/show.h"

#ifndef PPLAN_VERSION
#define PPLAN_VERSION "unknown"
#endif

static Status finish(const Report *r, const Args *args)
{
    report_print(r, stdout, args_value(args, OPT_json) != NULL);
    return OK;
}

static Status do_check(Loaded *l, const Args *args)
{
    if (!args_value(args, OPT_ops))
        TRY(args_refuse(args, OPT_cluster, "without --ops"));
    if (args_value(args, OPT_ops) && l->cluster)
        TRY(check_peak(l->ds, l->graph, l->cluster, &l->cluster->device[0]));
    Report *r = report_new(l->ir);
    show_model(r, l->graph);
    if (args_value(args, OPT_ops))
        show_ops(r, l->graph, l->cluster);
    return finish(r, args);
}

static Status do_graph(Loaded *l, const Args *args)
{
    if (args_value(args, OPT_backward)) {
        if (!has_value(l->graph->loss)) {
            fprintf(stderr, "error: model '%s' minimizes nothing, so it has no backward operators\n", l->graph->name);
            return ERR_REJECT;
        }
        graph_differentiate(l->graph);
    }
    if (args_value(args, OPT_dot))
        show_dot(stdout, l->graph);
    else
        graph_print(stdout, l->graph);
    return OK;
}

/* An output that is one of the inputs is refused before anything is planned. */
static Status check_output(const Loaded *l, const char *path)
{
    FileUses uses = {.arena = l->input};
    load_uses(l, &uses);
    file_uses_add(&uses, USE_WRITE, "-o", path);
    return file_uses_check(&uses);
}

static Status write_plan(Loaded *l, const Plan *plan, const Program *p, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return cannot_write(path);
    plan_print(f, plan, l->graph);
    show_predictions(f, l->ir, l->graph, p);
    Writer w;
    Status s = fclose(f) == 0 ? writer_open(l->ir, &w, path) : cannot_write(path);
    if (s == OK) {
        writer_put(&w, text, bytes);
        s = writer_close(&w);
    }
    free(text);
    return s;
}

static Status do_plan(Loaded *l, const Args *args)
{
    Plan *plan;
    Programs programs;
    const char *out = args_value(args, OPT_output);
    if (out && strcmp(out, "-") == 0)
        TRY(args_refuse(args, OPT_json, "with '-o -', which prints the plan alone"));
    if (out)
        TRY(check_output(l, out));
    TRY(load_plan(l, false, &plan, &programs));
    const Program *program = programs.rank[programs.fullest];
    if (out)
        TRY(write_plan(l, plan, program, out));
    if (out && strcmp(out, "-") == 0)
        return OK;
    Report *r = report_new(l->ir);
    show_plan(r, l->graph, l->cluster, plan, program);
    show_memory(r, program);
    return finish(r, args);
}

typedef struct PassWanted { const char *name; bool seen; } PassWanted;

static void dump_pass(void *ctx, const char *pass, const Program *p)
{
    PassWanted *w = ctx;
    if (strcmp(pass, w->name) != 0)
        return;
    w->seen = true;
    program_print(stdout, p);
}

static Status unknown_pass(Arena *a, const char *name)
{
    Text all = text_new(a);
    for (int i = 0; i < codegen_npasses; i++)
        text_add(&all, "%s%s", i ? ", " : "", codegen_passes[i]);
    fprintf(stderr, "error: no pass '%s': the passes are %s\n", name, all.s);
    return ERR_USAGE;
}

static Status check_pass(Arena *a, const char *name)
{
    for (int i = 0; name && i < codegen_npasses; i++)
        if (strcmp(codegen_passes[i], name) == 0)
            return OK;
    return name ? unknown_pass(a, name) : OK;
}

static Status do_dump(Loaded *l, const Args *args)
{
    Plan *plan;
    Program *program;
    Programs programs;
    PassWanted wanted = {.name = args_value(args, OPT_pass)};
    PassDump dump = {dump_pass, &wanted};
    bool memory = args_value(args, OPT_memory) != NULL, whole = args_value(args, OPT_program) != NULL;
    if (memory + whole + (wanted.name != NULL) != 1) {
        fprintf(stderr, "pplan: 'dump' needs one of --program, --memory and --pass NAME\n");
        return ERR_USAGE;
    }
    if (!memory)
        TRY(args_refuse(args, OPT_json, "without --memory: programs have a text form of their own"));
    TRY(check_pass(l->ir, wanted.name));
    TRY(load_plan(l, false, &plan, &programs));
    TRY(load_rank(l, plan, &programs, 0, wanted.name ? &dump : NULL, &program));
    if (whole)
        program_print(stdout, program);
    if (!memory)
        return OK;
    Report *r = report_new(l->ir);
    show_memory(r, program);
    show_ledger(r, program);
    return finish(r, args);
}

static Status do_fmt(const Args *args)
{
    Arena *a = arena_new("input");
    Sources *sources = sources_new(a);
    Diags *ds = diags_new(sources);
    Source *source;
    Status s = read_source(ds, args->positional[0], &source);
    if (s == OK && source) {
        const char *text = format_source(a, ds, source);
        if (text)
            fputs(text, stdout);
        s = diags_status(ds);
    }
    diags_flush(ds, stderr);
    arena_free(a);
    return s;
}

static Status do_model_command(const Args *args)
{
    Loaded l;
    Status s = load_model(&l, args);
    if (s == OK)
        s = args->command == COMMAND_check ? do_check(&l, args)
          : args->command == COMMAND_graph ? do_graph(&l, args)
          : args->command == COMMAND_dump  ? do_dump(&l, args)
                                           : do_plan(&l, args);
    diags_flush(l.ds, stderr);
    load_free(&l);
    return s;
}

static Status do_command(const Args *args)
{
    return args->command == COMMAND_fmt ? do_fmt(args) : do_model_command(args);
}

static void print_version(void)
{
    printf("pplan %s\njson: jansson %s\n", PPLAN_VERSION, jansson_version_str());
}

int main(int argc, char **argv)
{
    return program_main(PPLAN, argc, argv, do_command, print_version);
}
