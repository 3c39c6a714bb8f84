/* Mutated dumps of graphs and programs through their readers.  What is read may be
 * broken, and the checkers must see it; what they accept must print, read back and
 * be fit for all that follows. */
#include <string.h>

#include "cli/load.h"
#include "tests/fuzz/forms.h"
#include "tests/fuzz/mutate.h"

static const char *const words[] = {
    "-", "0", "1", "2", "3", "7", "8", "9", "10", "16", "17", "39", "40", "255", "256", "65536", "4294967295", "4294967296",
    "9223372036854775807", "-9223372036854775808", "-1", "1e308", "inf", "nan", "0.5", "true", "false", "[]", "[[]]", "[0]", "[0,1]",
    "[-]", "[0,0,0,0,0,0,0,0,0]", "\"\"", "\"x\"", "\"\\n\"", "\"\\\"\"", "f32", "f64", "i32", "bf16", "bool", "forward", "backward", "update",
    "input", "weight", "activation", "none", "linear", "contract", "cross_entropy", "softmax", "adamw", "sum", "cast", "\n", "=", NULL,
};
static const char *const files[] = {NULL};

/* What seeds are made of: small models with many kinds of ops. */
static const char *const models[] = {
    "tests/golden/codegen/mlp.pmodel", "tests/reference/tiny_gpt2.pmodel", "tests/reference/tiny_llama.pmodel", "models/tiny/tiny_llama.pmodel",
};

static void add_model(FuzzSeeds *seeds, const char *path)
{
    char *argv[] = {"pplan", "-c", "laptop1", (char *)(uintptr_t)path};
    Arena *a = arena_new("arguments");
    Args args;
    Loaded l;
    Plan *plan;
    Programs programs;
    if (args_read(a, PPLAN, 4, argv, &args) == OK && load_model(&l, &args) == OK) {
        const char *text = graph_form(l.ir, l.graph);
        fuzz_seed(seeds, text, strlen(text));
        if (load_plan(&l, false, &plan, &programs) == OK) {
            text = graph_form(l.ir, l.graph);
            fuzz_seed(seeds, text, strlen(text));
            text = program_form(l.ir, programs.rank[0]);
            fuzz_seed(seeds, text, strlen(text));
        }
    }
    load_free(&l);
    arena_free(a);
}

static void start(FuzzSeeds *seeds)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        add_model(seeds, models[i]);
}

static const char *check_graph(Arena *a, FILE *f)
{
    Graph *g;
    if (graph_read(a, f, "mutant", stderr, &g) != OK || graph_check(g, stderr) != 0)
        return NULL;
    fuzz_accept();
    const char *wrong = check_graph_form(a, g);
    for (uint32_t i = 0; i < g->nop; i++)
        if (!(op_flops(g, (OpId){i}) >= 0) || !(op_bytes(g, (OpId){i}) >= 0))
            return "an op with negative FLOPs or bytes";
    return wrong;
}

static const char *check_program(Arena *a, FILE *f)
{
    Program *p;
    if (program_read(a, f, "mutant", stderr, &p) != OK || program_check(p, stderr) != 0)
        return NULL;
    fuzz_accept();
    return check_program_form(a, p);
}

static const char *run(const char *text, size_t bytes)
{
    Arena *a = arena_new("graph");
    FILE *f = fmemopen((void *)(uintptr_t)text, bytes ? bytes : 1, "r");
    if (!f)
        return "fmemopen failed";
    const char *wrong = check_graph(a, f);
    rewind(f);
    if (!wrong)
        wrong = check_program(a, f);
    fclose(f);
    arena_free(a);
    return wrong;
}

int main(int argc, char **argv)
{
    const Fuzz fuzz = {.run = run, .word = words, .files = files, .start = start};
    return fuzz_main(argc, argv, &fuzz);
}
