/* Mutated models through elaboration and differentiation.  A model that is
 * accepted must give graphs that keep their invariants and read back, and its
 * inlined text must give the same graph. */
#include <string.h>

#include "frontend/frontend.h"
#include "tests/fuzz/forms.h"
#include "tests/fuzz/mutate.h"

enum { FORM_OPS = 2000 };             /* graphs up to here are printed and read back */

static const char *const words[] = {
#define X(token, text, where) text,
#include "frontend/words.def"
#undef X
    "0", "1", "2", "3", "7", "16", "99999", "1000000", "1099511627776", "9007199254740993", "-1", "0.5", "1e300", "1e-300",
    "[batch, seq]", "[batch, seq, hidden]", "[hidden]", "[]", "[.., hidden]", "over = [seq]", "linear(x, hidden)", "gelu(x)",
    "x * x", "x + x", "softmax(x, seq)", "layernorm(x)", "rmsnorm(x)", "sum(x, over = [batch])", "x |> dropout(0.1)",
    "cast(x, bf16)", "embed(ids, wte)", "repeat 3 as b { x = a: linear(x, hidden) }", "repeat 99999 as r { x = x + x }",
    "rename(x, seq = key)", "concat(x, x, seq)", "split(x, heads)", "merge(x, heads)", "matmul(x, x)", "iota(seq)", "frozen",
    "attention(x, x, x)", "rope(x)", "topk", "conv2d(x, 3, hidden)", "mean(x)", "max(x)", "if 1 > 0 { x = x }", "none", "auto",
    "f64", "f32", "bf16", "i32", "bool", NULL,
};

static const char *const files[] = {
    "models/tiny/*.pmodel", "models/mlp.pmodel", "models/two_tower.pmodel", "models/mixtral_8x7b.pmodel", "models/t5_small.pmodel",
    "models/vit_b16.pmodel", "models/bert_base.pmodel", "models/gpt2.pmodel", "models/std/*.pmodel", "tests/reference/*.pmodel",
    "tests/golden/codegen/*.pmodel", "tests/golden/syntax/*.pmodel", NULL,
};

static const char *const dirs[] = {"models/std", "models/tiny", "models"};
#define INCLUDES ((IncludePath){dirs, 3})

static const char *check_graph(Arena *a, Graph *g, const char *broken)
{
    for (uint32_t i = 0; i < g->nop; i++)
        if (!(op_flops(g, (OpId){i}) >= 0) || !(op_bytes(g, (OpId){i}) >= 0))
            return "an op with negative FLOPs or bytes";
    if (graph_check(g, stderr) != 0)
        return broken;
    return g->nop <= FORM_OPS ? check_graph_form(a, g) : NULL;
}

/* The model's text with its includes in one file gives the same graph. */
static const char *check_inlined(Arena *a, Diags *ds, const Units *units, const Graph *g)
{
    if (g->nop > FORM_OPS)
        return NULL;
    const char *text = inline_model(a, ds, units, g->name);
    Units again;
    Graph *h;
    if (parse_text(ds, "inlined", text, strlen(text), (IncludePath){0}, &again) != OK || diags_status(ds) != OK ||
        elaborate_model(ds, &again, g->name, NULL, 0, a, &h) != OK)
        return "an inlined model has mistakes";
    return strcmp(graph_form(a, g), graph_form(a, h)) == 0 ? NULL : "an inlined model is another one";
}

static const char *check_model(Arena *a, Diags *ds, const Units *units)
{
    Graph *g;
    if (elaborate_model(ds, units, NULL, NULL, 0, a, &g) != OK)
        return diags_status(ds) == OK ? "a model was refused without a word" : NULL;
    fuzz_accept();
    const char *wrong = check_inlined(a, ds, units, g);
    if (wrong)
        return wrong;
    graph_complete(g);
    wrong = check_graph(a, g, "elaboration made a broken graph");
    if (wrong || !has_value(g->loss))
        return wrong;
    graph_differentiate(g);
    wrong = check_graph(a, g, "differentiation made a broken graph");
    if (!wrong && !(graph_model_flops(g, false) >= graph_model_flops(g, true)))
        wrong = "a causal model has more FLOPs";
    return wrong;
}

/* Models of many layers are cut to two: a round should take milliseconds. */
static void start(FuzzSeeds *seeds)
{
    for (size_t i = 0; i < seeds->n; i++) {
        char *s = (char *)(uintptr_t)seeds->file[i].s, *at = memmem(s, seeds->file[i].n, "param layers", 12);
        while (at && (*at < '0' || *at > '9'))
            at++;
        if (at && at[1] >= '0' && at[1] <= '9')
            memcpy(at, "2 ", 2);
    }
}

static const char *run(const char *text, size_t bytes)
{
    return read_mutant(text, bytes, INCLUDES, check_model);
}

int main(int argc, char **argv)
{
    const Fuzz fuzz = {.run = run, .word = words, .files = files, .start = start};
    return fuzz_main(argc, argv, &fuzz);
}
