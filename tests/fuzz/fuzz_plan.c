/* Mutated plans and rules all the way to a program, as prun and --with take them.
 * What is accepted must be a program that keeps its invariants, and the plan that
 * was printed must give the same program again. */
#include <stdlib.h>
#include <string.h>

#include "cli/load.h"
#include "tests/fuzz/forms.h"
#include "tests/fuzz/mutate.h"

enum {
    OPTION_BYTES = 300,               /* texts up to here are taken for --with too */
    PLAN_OPS = 400                    /* models up to here are planned: a round should take milliseconds */
};

static const char *const words[] = {
    "plan", "plan for m", "plan m on laptop1 {", "mesh dp = 1", "mesh dp = 2", "mesh tp = 1..8", "mesh pp = 2 * 2", "microbatches = 1",
    "microbatches = 2", "microbatches = 0", "microbatches = 3", "microbatches = [1, 2]", "microbatches = 1..99999999999",
    "microbatches = any", "split batch by dp", "split hidden by tp", "keep seq whole", "pad vocab to 64", "pad vocab to 0", "stage before h[2]",
    "stage after h[0..1]", "stage every 2", "stage 1 { mesh tp = 1 }", "recompute full", "recompute cheap in h", "recompute none",
    "save h[0].attn", "recompute h full", "shard optimizer by dp", "shard weights by dp", "offload optimizer to host", "set batch = 4", "set batch = 0",
    "set layers = 100", "set x = 1", "schedule = \"1f1b\"", "schedule = \"gpipe\"", "bucket = 1 MB", "bucket = 0 B", "bucket = 25000000",
    "bucket = 1e30 GB", "prefer", "devices = [0]", "devices = [1]", "include", ";", "\n", "{", "}", "=", ",", "..", "*", "h[0]", "h[99]",
    "0", "1", "2", "-1", "9223372036854775807", "0.5", "any", NULL,
};

static const char *const files[] = {"tests/golden/syntax/layout_plan.pplan", "tests/golden/syntax/plan_mistakes.pplan",
                                    "tests/golden/codegen/*.pmodel", NULL};

static const char *const rules[] = {
    "microbatches = 2", "microbatches = 1; schedule = \"gpipe\"", "bucket = 1 MB; microbatches = 2", "mesh dp = 1, tp = 1; set batch = 8",
    "recompute none; prefer microbatches = 2", "split batch by dp; shard optimizer by dp", "stage every 1; mesh pp = 1",
};

static const char *const models[] = {
    "tests/golden/codegen/mlp.pmodel", "tests/reference/tiny_gpt2.pmodel", "tests/reference/tiny_llama.pmodel",
};

static struct {
    Arena      *a;
    const char *folder, *mutant, *again;             /* files written for each case */
} scratch;

/* A program and its plan's text from a command line, or NULL when it is refused. */
typedef struct Made { const char *plan, *program, *wrong; } Made;

static Made make(Arena *a, bool closed, int argc, char **argv)
{
    Made m = {0};
    Args args;
    Loaded l;
    Plan *plan;
    Programs programs;
    if (args_read(a, PPLAN, argc, argv, &args) != OK)
        return m;
    if (load_model(&l, &args) == OK && l.graph->nop <= PLAN_OPS && load_plan(&l, closed, &plan, &programs) == OK) {
        const Program *p = programs.rank[programs.fullest];
        m.plan = plan_form(a, plan, l.graph);
        m.program = program_form(a, p);
        m.wrong = program_check(p, stderr) ? "the planner made a broken program" : check_program_form(a, p);
    }
    load_free(&l);
    return m;
}

/* A printed plan is closed and gives the same program. */
static const char *check_again(Arena *a, Made made)
{
    if (!made.plan || made.wrong)
        return made.wrong;
    fuzz_accept();
    char *argv[] = {"pplan", (char *)(uintptr_t)scratch.again};
    scratch_write(scratch.again, made.plan, strlen(made.plan));
    Made again = make(a, true, 2, argv);
    if (!again.plan)
        return "a printed plan is refused";
    if (strcmp(made.program, again.program) != 0)
        return "a printed plan gives another program";
    bool reasons = !strstr(made.plan, "# given");    /* why it was chosen; now it is given */
    return reasons || strcmp(made.plan, again.plan) == 0 ? NULL : "a plan prints differently when it is read back";
}

static void start(FuzzSeeds *seeds)
{
    scratch.a = arena_new("scratch");
    scratch.folder = scratch_open(scratch.a);
    scratch.mutant = arena_printf(scratch.a, "%s/mutant.plan", scratch.folder);
    scratch.again = arena_printf(scratch.a, "%s/again.plan", scratch.folder);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *argv[] = {"pplan", "-c", "laptop1", (char *)(uintptr_t)models[i]};
        Made m = make(scratch.a, false, 4, argv);
        if (m.plan)
            fuzz_seed(seeds, m.plan, strlen(m.plan));
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        fuzz_seed(seeds, rules[i], strlen(rules[i]));
}

static void end(void)
{
    scratch_close(scratch.folder);
    arena_free(scratch.a);
}

/* A whole file, which may name its cluster; if it does not, there is one. */
static const char *run_file(Arena *a, const char *text, size_t bytes)
{
    char *argv[] = {"pplan", (char *)(uintptr_t)scratch.mutant, "-c", "laptop1"};
    scratch_write(scratch.mutant, text, bytes);
    return check_again(a, make(a, bytes % 2, bytes % 4 < 2 ? 4 : 2, argv));
}

static const char *run_with(Arena *a, const char *text, size_t bytes)
{
    const char *model = models[bytes % 2];
    char *argv[] = {"pplan", (char *)(uintptr_t)model, "-c", "laptop1", "--with", (char *)(uintptr_t)text};
    return check_again(a, make(a, false, 6, argv));
}

static const char *run(const char *text, size_t bytes)
{
    Arena *a = arena_new("case");
    const char *wrong = run_file(a, text, bytes);
    if (!wrong && bytes <= OPTION_BYTES)
        wrong = run_with(a, text, bytes);
    arena_free(a);
    return wrong;
}

int main(int argc, char **argv)
{
    const Fuzz fuzz = {.run = run, .word = words, .files = files, .start = start, .end = end};
    return fuzz_main(argc, argv, &fuzz);
}
