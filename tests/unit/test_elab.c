/* Elaboration: what the Graph of a model holds beside its ops (tests/golden/elab shows
 * those), and that every bundled model elaborates, differentiates and inlines. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "frontend/frontend.h"

typedef struct World {
    Arena   *input, *graph;
    Sources *sources;
    Diags   *ds;
    Units    units;
    Graph   *g;
    Define   define[8];
    uint32_t ndefine;
} World;

static void open_world(World *w)
{
    *w = (World){.input = arena_new("input"), .graph = arena_new("graph")};
    w->sources = sources_new(w->input);
    w->ds = diags_new(w->sources);
}

static void close_world(World *w)
{
    arena_free(w->graph);
    arena_free(w->input);
}

static void define(World *w, const char *text)
{
    Source *s = sources_add(w->sources, "<command line>", text, strlen(text));
    s->excerpt = false;
    uint32_t name = (uint32_t)(strchr(text, '=') - text);
    w->define[w->ndefine++] = (Define){.name = arena_strndup(w->input, text, name), .value = arena_strdup(w->input, text + name + 1),
                                       .named = {s->start, s->start + name}, .at = {s->start + name + 1, s->start + s->bytes}};
}

static void must(World *w, Status s)
{
    diags_flush(w->ds, stderr);
    assert_int_equal(s, OK);
}

/* A model that must elaborate, with overrides defined before. */
static void elaborate(World *w, const char *text)
{
    must(w, parse_text(w->ds, "m.pmodel", text, strlen(text), (IncludePath){NULL, 0}, &w->units));
    must(w, elaborate_model(w->ds, &w->units, NULL, w->define, w->ndefine, w->graph, &w->g));
    must(w, defines_check(w->ds, &w->units, NULL, w->g, w->define, w->ndefine));
}

#define HEAD "  dim batch = 4, hidden = 8\n  input x[batch, hidden] : f32\n"

/* ---- settings ---- */

static Precision precision_of(const char *setting)
{
    World w;
    open_world(&w);
    elaborate(&w, arena_printf(w.input, "model m {\n" HEAD "  precision { %s }\n  output x\n}\n", setting));
    Precision p = w.g->precision;
    close_world(&w);
    return p;
}

static void assert_precision(const char *setting, DType compute, DType weights, DType grads, DType master, DType reduce)
{
    Precision p = precision_of(setting);
    assert_int_equal(p.compute, compute);
    assert_int_equal(p.weights, weights);
    assert_int_equal(p.grads, grads);
    assert_int_equal(p.master, master);
    assert_int_equal(p.reduce, reduce);
}

static void precision_follows_compute(void **state)
{
    (void)state;
    assert_precision("", DT_f32, DT_f32, DT_f32, DT_f32, DT_f32);
    assert_precision("compute = bf16", DT_bf16, DT_bf16, DT_f32, DT_f32, DT_f32);
    assert_precision("compute = f64", DT_f64, DT_f64, DT_f64, DT_f64, DT_f64);
    assert_precision("compute = bf16, weights = f32, grads = bf16", DT_bf16, DT_f32, DT_bf16, DT_f32, DT_f32);
}

static void optimizer_defaults_are_pytorchs(void **state)
{
    (void)state;
    World w;
    open_world(&w);
    elaborate(&w, "model m {\n  dim batch = 4, hidden = 8, one = 1\n  param lr = 2e-3\n  input x[batch, hidden] : f32\n"
                  "  optimizer adamw { lr = lr, clip = 1, decay = cosine, warmup = 5, steps = 10 }\n"
                  "  minimize sum(linear(x, one), over = [batch, one])\n}\n");
    Optimizer o = w.g->optimizer;
    assert_int_equal(o.kind, OPTIMIZER_ADAMW);
    assert_true(o.lr > 1.99e-3 && o.lr < 2.01e-3 && o.beta1 > 0.899 && o.beta1 < 0.901 && o.beta2 > 0.9989 && o.beta2 < 0.9991);
    assert_true(o.eps > 0.99e-8 && o.eps < 1.01e-8 && o.weight_decay > 0.0099 && o.weight_decay < 0.0101 && o.clip > 0.99);
    assert_true(o.warmup == 5 && o.steps == 10 && o.decay == DECAY_COSINE);
    close_world(&w);
    open_world(&w);
    elaborate(&w, "model m {\n  dim batch = 4, hidden = 8\n  input x[batch, hidden] : f32\n  optimizer sgd { momentum = 0.9 }\n"
                  "  minimize mean(mean(linear(x, 1)))\n}\n");
    o = w.g->optimizer;
    assert_int_equal(o.kind, OPTIMIZER_SGD);
    assert_true(o.lr > 0.99e-3 && o.lr < 1.01e-3 && o.momentum > 0.89 && o.weight_decay <= 0 && o.decay == DECAY_NONE && o.steps == 0);
    close_world(&w);
}

/* ---- overrides ---- */

static void overrides_replace_and_are_recorded(void **state)
{
    (void)state;
    World w;
    open_world(&w);
    define(&w, "hidden=2*batch");
    define(&w, "drop=0");
    define(&w, "dtype=f64");
    define(&w, "drop=0.5");                          /* the last of a name counts */
    elaborate(&w, "model m {\n  dim batch = 4, hidden = nonsense, twice = 2 * hidden\n  param drop = 0.1, dtype = f32\n"
                  "  precision { compute = dtype }\n  input x[batch, twice] : f32\n  y = dropout(x, drop)\n  output y\n}\n");
    const Value *y = value_of(w.g, w.g->output[0].value);
    assert_int_equal(dim_of(w.g, y->axis[1])->extent, 16);
    assert_int_equal(y->dtype, DT_f64);
    assert_int_equal(w.g->noverride, 3);
    assert_string_equal(w.g->override[0].name, "hidden");
    assert_string_equal(w.g->override[0].text, "2*batch");
    assert_string_equal(w.g->override[1].text, "0.5");
    const Op *drop = op_of(w.g, y->maker);
    assert_true(op_attr(drop, "p")->f > 0.49);
    for (uint32_t i = 0; i < w.ndefine; i++)
        assert_true(w.define[i].used);
    close_world(&w);
}

/* ---- places and limits ---- */

static void everything_has_a_place(void **state)
{
    (void)state;
    World w;
    open_world(&w);
    elaborate(&w, "block f(x[.., d]) {\n  return linear(x, 3) |> gelu\n}\nmodel m {\n  dim batch = 4, hidden = 8\n"
                  "  input x[batch, hidden] : f32\n  weight w[hidden]\n  y = f(x * w)\n  output y\n}\n");
    for (uint32_t i = 0; i < w.g->ndim; i++)
        assert_true(span_known(w.g->dim[i].at));
    for (uint32_t i = 0; i < w.g->nvalue; i++)
        assert_true(span_known(w.g->value[i].at));
    for (uint32_t i = 0; i < w.g->nop; i++)
        assert_true(span_known(w.g->op[i].at));
    assert_int_equal(w.g->batch.i, 0);
    close_world(&w);
}

static const char *first_error(World *w, const char *text)
{
    must(w, parse_text(w->ds, "m.pmodel", text, strlen(text), (IncludePath){NULL, 0}, &w->units));
    assert_int_equal(elaborate_model(w->ds, &w->units, NULL, NULL, 0, w->graph, &w->g), ERR_REJECT);
    assert_null(w->g);
    return w->ds->first->text;
}

static void deep_chains_of_blocks_are_refused(void **state)
{
    (void)state;
    World w;
    open_world(&w);
    Text t = text_new(w.input);
    text_add(&t, "block b0(x[..]) {\n  return x\n}\n");
    for (int i = 1; i < 300; i++)
        text_add(&t, "block b%d(x[..]) {\n  return b%d(x)\n}\n", i, i - 1);
    text_add(&t, "model m {\n" HEAD "  y = b299(x)\n  output y\n}\n");
    assert_non_null(strstr(first_error(&w, t.s), "nested more than 400 deep"));
    close_world(&w);
}

/* A block that calls another twice, thirty times over: 2^30 expansions. */
static void expansion_ends(void **state)
{
    (void)state;
    World w;
    open_world(&w);
    Text t = text_new(w.input);
    text_add(&t, "block b0(x[..]) {\n  return x\n}\n");
    for (int i = 1; i < 30; i++)
        text_add(&t, "block b%d(x[..]) {\n  a = b%d(x)\n  return b: b%d(a)\n}\n", i, i - 1, i - 1);
    text_add(&t, "model m {\n" HEAD "  y = b29(x)\n  output y\n}\n");
    assert_non_null(strstr(first_error(&w, t.s), "steps to elaborate"));
    close_world(&w);
}

/* ---- bundled models ---- */

static void elaborate_file(World *w, const char *path)
{
    static const char *const dir[] = {"models"};
    open_world(w);
    must(w, parse_file(w->ds, path, (IncludePath){dir, 1}, &w->units));
    must(w, elaborate_model(w->ds, &w->units, NULL, w->define, w->ndefine, w->graph, &w->g));
}

/* The text without includes gives the same graph, and inlines to itself. */
static void assert_inlines(const World *from)
{
    World w;
    open_world(&w);
    const char *text = inline_model(from->input, from->ds, &from->units, from->g->name);
    assert_non_null(text);
    assert_null(strstr(text, "include"));
    elaborate(&w, text);
    assert_int_equal(w.g->nop, from->g->nop);
    assert_int_equal(graph_parameters(w.g), graph_parameters(from->g));
    assert_string_equal(inline_model(w.input, w.ds, &w.units, w.g->name), text);
    close_world(&w);
}

static void check_models_in(const char *folder)
{
    DIR *d = opendir(folder);
    int seen = 0;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        if (!strstr(entry->d_name, ".pmodel"))
            continue;
        char path[512];
        World w;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        elaborate_file(&w, path);
        assert_int_equal(graph_check(w.g, stderr), 0);
        assert_inlines(&w);
        graph_differentiate(w.g);
        assert_int_equal(graph_check(w.g, stderr), 0);
        close_world(&w);
        seen++;
    }
    closedir(d);
    assert_true(seen >= 3);
}

static void bundled_models_are_sound(void **state)
{
    (void)state;
    check_models_in("models");
    check_models_in("models/tiny");
}

static void the_op_declarations_are_the_table(void **state)
{
    (void)state;
    World w;
    open_world(&w);
    static const char *const dir[] = {"models"};
    const char *text = "include \"std/ops.pmodel\"\nmodel m {\n" HEAD "  output x\n}\n";
    must(&w, parse_text(w.ds, "m.pmodel", text, strlen(text), (IncludePath){dir, 1}, &w.units));
    must(&w, elaborate_model(w.ds, &w.units, NULL, NULL, 0, w.graph, &w.g));
    uint32_t declared = 0, known = 0;
    for (uint32_t i = 0; i < w.units.unit[0].root->nkid; i++)
        declared += w.units.unit[0].root->kid[i]->kind == N_OPDECL;
    for (int k = 0; k < OP_KINDS; k++)
        known += op_info[k].use != OP_INTERNAL;
    assert_int_equal(declared, known);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precision_follows_compute),
        cmocka_unit_test(optimizer_defaults_are_pytorchs),
        cmocka_unit_test(overrides_replace_and_are_recorded),
        cmocka_unit_test(everything_has_a_place),
        cmocka_unit_test(deep_chains_of_blocks_are_refused),
        cmocka_unit_test(expansion_ends),
        cmocka_unit_test(bundled_models_are_sound),
        cmocka_unit_test(the_op_declarations_are_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
