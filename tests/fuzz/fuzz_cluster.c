/* Mutated machines.  One that is accepted must keep its invariants and read back,
 * and a small model must be planned for it or refused for a reason. */
#include <string.h>

#include "frontend/frontend.h"
#include "planner/planner.h"
#include "tests/fuzz/forms.h"
#include "tests/fuzz/mutate.h"

static const char *const words[] = {
    "cluster c { group n { 4 of d } link = 1 GB/s }", "device d { }", "0", "1", "2", "8", "1000000", "4294967296", "9223372036854775807",
    "-1", "0.5", "1e300", "80 GB", "1 B", "8 EB", "0 GB", "1e30 GB", "1 us", "0 s", "1e300 s", "50 GB/s", "1 bit/s", "50%", "0%", "200%",
    "312 TFLOP/s", "0 FLOP/s", "1e300 TFLOP/s", "memory", "reserve", "bandwidth", "peak", "efficiency", "efficiency.memory", "efficiency.linear", "sms", "tile", "depth", "depth.attention", "launch", "threads", "comm_threads", "backend",
    "cpu", "cuda", "link", "latency", "topology", "switch", "ring", "full", "mesh", "host.memory", "host.link", "of", "param", "{", "}",
    "[", "]", "(", ")", ",", "=", ":", "+", "*", "/", "-", "\n", "\"s\"", "# c\n", "f32", "bf16", "f64", NULL,
};

static const char *const files[] = {"models/clusters/*.pcluster", "tests/golden/syntax/*.pcluster", NULL};

static const char model_text[] =
    "model m {\n  dim batch = 64, pixel = 6, class = 3\n  input x[batch, pixel] : f32\n  input y[batch] : i32\n"
    "  optimizer adamw { lr = 0.1 }\n  minimize cross_entropy(fc: linear(x, class), y)\n}\n";

static struct {
    Arena *a;
    Graph *g;
} model;                              /* what is planned on each machine */

static void start(FuzzSeeds *seeds)
{
    Units units;
    (void)seeds;
    model.a = arena_new("model");
    Diags *ds = diags_new(sources_new(model.a));
    if (parse_text(ds, "model", model_text, strlen(model_text), (IncludePath){0}, &units) == OK)
        elaborate_model(ds, &units, NULL, NULL, 0, model.a, &model.g);
    diags_flush(ds, stderr);
    graph_differentiate(model.g);
}

static void end(void)
{
    arena_free(model.a);
}

static const char *check_form(Arena *a, Diags *ds, const Cluster *cl)
{
    const char *text = cluster_form(a, cl);
    Units units;
    Cluster *back = NULL;
    if (parse_text(ds, "printed", text, strlen(text), (IncludePath){0}, &units) != OK || diags_status(ds) != OK ||
        elaborate_cluster(ds, &units, NULL, NULL, 0, a, &back) != OK || !back)
        return "a printed cluster does not read back";
    return strcmp(text, cluster_form(a, back)) == 0 ? NULL : "a cluster reads back to another one";
}

static const char *check_plan(Arena *a, Diags *ds, const Cluster *cl)
{
    Rules rules = {0};
    PlanRequest request = {.graph = model.g, .cluster = cl, .rules = &rules, .model_text = model_text};
    Plan *plan;
    Programs programs;
    if (planner_choose(a, ds, &request, &plan, &programs) != OK)
        return diags_status(ds) == OK ? "a machine was refused without a word" : NULL;
    Program *p = programs.rank[programs.fullest];
    if (program_check(p, stderr) != 0)
        return "the planner made a broken program";
    return check_program_form(a, p);
}

static const char *check_cluster(Arena *a, Diags *ds, const Units *units)
{
    Cluster *cl = NULL;
    if (elaborate_cluster(ds, units, NULL, NULL, 0, a, &cl) != OK)
        return diags_status(ds) == OK ? "a cluster was refused without a word" : NULL;
    if (!cl)
        return NULL;
    fuzz_accept();
    if (cluster_check(cl, stderr) != 0)
        return "elaboration made a broken cluster";
    const char *wrong = check_form(a, ds, cl);
    return wrong ? wrong : check_plan(a, ds, cl);
}

static const char *run(const char *text, size_t bytes)
{
    return read_mutant(text, bytes, (IncludePath){0}, check_cluster);
}

int main(int argc, char **argv)
{
    const Fuzz fuzz = {.run = run, .word = words, .files = files, .start = start, .end = end};
    return fuzz_main(argc, argv, &fuzz);
}
