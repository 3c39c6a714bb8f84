/* pplan: plan how to spread a model over devices. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/files.h"
#include "base/text.h"
#include "cli/explain.h"
#include "cli/load.h"
#include "cli/notes.h"
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

static Simulation simulated(Loaded *l, const Plan *plan, const Programs *programs)
{
    return simulate(l->ir, l->cluster, plan, l->profile, programs->rank);
}

static Status write_plan(Loaded *l, const Plan *plan, const Program *p, const Simulation *sim, const char *path)
{
    TextStream s;
    size_t bytes;
    text_stream_open(&s);
    plan_print(s.f, plan, l->graph);
    show_predictions(s.f, l->ir, l->graph, p, l->profile, sim);
    const char *text = text_stream_take(&s, l->ir, &bytes);
    Writer w;
    TRY(writer_open(l->ir, &w, path));
    writer_put(&w, text, bytes);
    return writer_close(&w);
}

enum { MOST_PLANS = 1000 };

static Status top_wanted(const Args *args, uint32_t *top)
{
    const char *text = args_value(args, OPT_top);
    char *end;
    long n = text ? strtol(text, &end, 10) : 1;
    if (text && (end == text || *end || n < 1 || n > MOST_PLANS)) {
        fprintf(stderr, "error: --top '%s': expected a number from 1 to %d\n", text, MOST_PLANS);
        return ERR_USAGE;
    }
    *top = (uint32_t)n;
    return OK;
}

static Status do_plan(Loaded *l, const Args *args)
{
    Plan *plan;
    Programs programs;
    Search found;
    uint32_t top = 1;
    const char *out = args_value(args, OPT_output);
    if (out && strcmp(out, "-") == 0)
        TRY(args_refuse(args, OPT_json, "with '-o -', which prints the plan alone"));
    if (out)
        TRY(check_output(l, out));
    TRY(top_wanted(args, &top));
    TRY(load_search(l, USE_PLAN, top, &plan, &programs, &found));
    note_assumptions(l, plan, &programs);
    const Program *program = programs.rank[programs.fullest];
    Simulation sim = found.sim.ns > 0 ? found.sim : simulated(l, plan, &programs);
    if (out)
        TRY(write_plan(l, plan, program, &sim, out));
    if (out && strcmp(out, "-") == 0)
        return OK;
    Report *r = report_new(l->ir);
    PlanRequest request = load_request(l, USE_PLAN);
    Weigher w = {l->ir, l->sources, &request};
    show_plan(r, l->graph, l->cluster, plan, &programs, l->profile, &sim);
    show_fewer(r, &w, plan, &sim);
    show_search(r, l->graph, &found);
    show_memory(r, program);
    return finish(r, args);
}

/* ---- estimate ---- */

/* Every rule of legality was checked on the way here; this says by which numbers it is met. */
static void show_legality(Report *r, const Graph *g, const Plan *plan, const Programs *programs)
{
    int64_t batch = graph_samples(g), parts = plan->mesh[AXIS_dp] * plan->mesh[AXIS_ep];
    Table *t = report_lines(r, "legality");
    table_line(r, t, "legal", arena_printf(r->arena, "batch %lld = %lld part%s of %lld micro-batch%s of %lld; every split divides; all %u rank%s fit",
               (long long)batch, (long long)parts, parts == 1 ? "" : "s", (long long)plan->microbatches, plan->microbatches == 1 ? "" : "es",
               (long long)(batch / parts / plan->microbatches), programs->n, programs->n == 1 ? "" : "s"));
    table_fact(r, t, "legal", CELL_NUMBER(1));
}

static Status do_estimate(Loaded *l, const Args *args)
{
    Plan *plan;
    Programs programs;
    Layout layout;
    TRY(load_plan(l, USE_ESTIMATE, &plan, &programs));
    note_assumptions(l, plan, &programs);
    TRY(layout_read(l->ir, l->ds, l->graph, plan, &layout));
    Simulation sim = simulated(l, plan, &programs);
    Report *r = report_new(l->ir);
    PlanRequest request = load_request(l, USE_ESTIMATE);
    Weigher w = {l->ir, l->sources, &request};
    show_plan(r, l->graph, l->cluster, plan, &programs, l->profile, &sim);
    show_open(r, &w, plan, &sim);
    show_legality(r, l->graph, plan, &programs);
    show_ranks(r, l->cluster, plan, &programs);
    show_times(r, &sim, UINT32_MAX);
    show_busiest(r, l->graph, plan, &programs, &sim);
    if (plan->ndevices > 1) {
        if (layout.grid.n > 0)
            show_splits(r, &layout);
        show_op_splits(r, &layout, NULL);
    }
    return finish(r, args);
}

/* ---- dump ---- */

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

/* The one thing that is to be dumped. */
static Status dumped(const Args *args, OptionId *out)
{
    static const OptionId all[] = {OPT_layout, OPT_program, OPT_memory, OPT_timeline, OPT_pass};
    int n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (args_value(args, all[i])) {
            *out = all[i];
            n++;
        }
    if (n == 1)
        return OK;
    fprintf(stderr, "pplan: 'dump' %s one of --layout, --program, --memory, --timeline and --pass NAME%s\n", n ? "prints only" : "needs",
            n ? "; more than one was given" : "");
    return ERR_USAGE;
}

static Status check_dump(const Args *args, OptionId what)
{
    if (what == OPT_program || what == OPT_pass)
        TRY(args_refuse(args, OPT_json, "with --program or --pass: programs have a text form of their own"));
    if (what == OPT_layout) {
        TRY(args_refuse(args, OPT_rank, "with --layout, which is one for all ranks"));
        TRY(args_refuse(args, OPT_stage, "with --layout, which is one for all ranks"));
    }
    if (args_value(args, OPT_rank))
        TRY(args_refuse(args, OPT_stage, "with --rank: a rank is of one stage"));
    return OK;
}

static Status out_of_range(const char *option, int64_t given, const char *what, int64_t n)
{
    fprintf(stderr, "error: --%s %lld: the plan has %lld %s%s, numbered from 0\n", option, (long long)given, (long long)n, what, n == 1 ? "" : "s");
    return ERR_REJECT;
}

static Status which_rank(const Args *args, const Plan *plan, uint32_t fallback, uint32_t *out)
{
    int64_t rank, stage, stages = plan->mesh[AXIS_pp];
    TRY(args_integer(args, OPT_rank, 0, INT32_MAX, fallback, &rank));
    TRY(args_integer(args, OPT_stage, 0, INT32_MAX, -1, &stage));
    if (rank >= plan->ndevices)
        return out_of_range("rank", rank, "rank", plan->ndevices);
    if (stage >= stages)
        return out_of_range("stage", stage, "stage", stages);
    *out = stage < 0 ? (uint32_t)rank : (uint32_t)(stage * (plan->ndevices / stages));
    return OK;
}

static Status dump_layout(Loaded *l, const Args *args, const Plan *plan)
{
    Layout layout;
    TRY(layout_read(l->ir, l->ds, l->graph, plan, &layout));
    Report *r = report_new(l->ir);
    show_values(r, &layout, NULL);
    show_conversions(r, &layout, NULL);
    if (layout.nstages > 1)
        show_crossings(r, &layout, UINT32_MAX);
    return finish(r, args);
}

static Status dump_tables(Loaded *l, const Args *args, OptionId what, const Plan *plan, const Programs *programs, const Program *p)
{
    Report *r = report_new(l->ir);
    if (what == OPT_timeline) {
        Simulation sim = simulated(l, plan, programs);
        const StageTimes *of = &sim.stage[p->rank / (plan->ndevices / sim.nstage)];
        show_timeline(r, p, of, simulate_instructions(l->ir, l->cluster, plan, l->profile, p, of));
        return finish(r, args);
    }
    if (programs->n > 1)
        show_ranks(r, l->cluster, plan, programs);
    show_memory(r, p);
    show_ledger(r, p);
    return finish(r, args);
}

static Status do_dump(Loaded *l, const Args *args)
{
    Plan *plan;
    Program *program;
    Programs programs;
    OptionId what = OPTIONS;
    PassWanted wanted = {.name = args_value(args, OPT_pass)};
    PassDump dump = {dump_pass, &wanted};
    uint32_t rank;
    TRY(dumped(args, &what));
    TRY(check_dump(args, what));
    TRY(check_pass(l->ir, wanted.name));
    TRY(load_plan(l, USE_PLAN, &plan, &programs));
    if (what == OPT_layout)
        return dump_layout(l, args, plan);
    TRY(which_rank(args, plan, what == OPT_memory ? programs.fullest : 0, &rank));
    TRY(load_rank(l, plan, &programs, rank, what == OPT_pass ? &dump : NULL, &program));
    if (what == OPT_program)
        program_print(stdout, program);
    return what == OPT_program || what == OPT_pass ? OK : dump_tables(l, args, what, plan, &programs, program);
}

static Status do_fmt(const Args *args)
{
    Arena *a = arena_new("input");
    Sources *sources = sources_new(a);
    Diags *ds = diags_new(sources);
    Source *source;
    Status s = read_source(ds, args->positional[0], (IncludePath){0}, &source);
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
        s = args->command == COMMAND_check    ? do_check(&l, args)
          : args->command == COMMAND_graph    ? do_graph(&l, args)
          : args->command == COMMAND_dump     ? do_dump(&l, args)
          : args->command == COMMAND_estimate ? do_estimate(&l, args)
          : args->command == COMMAND_explain  ? explain(&l, args)
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

/* A candidate that is judged takes some megabytes and drops them: the heap keeps them for
 * the next one, as pages cost more than what is done with them. */
static void keep_heap(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

int main(int argc, char **argv)
{
    keep_heap();
    return program_main(PPLAN, argc, argv, do_command, print_version);
}
