/* The bundled models, lowered for one CPU: verified, and on little more memory
 * than is live at once. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "frontend/frontend.h"

static const char *const models[] = {
    "mlp", "gpt2", "llama2_7b", "qwen3_0_6b", "mixtral_8x7b", "bert_base", "vit_b16", "t5_small", "two_tower", "tiny/tiny_gpt2", "tiny/tiny_llama",
};

static const char *bundled(Arena *a, const char *name, const char *suffix)
{
    const char *top = getenv("TOP");
    return arena_printf(a, "%s/models/%s.%s", top ? top : ".", name, suffix);
}

typedef struct Loaded { Arena *a; Diags *ds; Graph *g; Cluster *cl; } Loaded;

static Loaded load(const char *model)
{
    Loaded l = {.a = arena_new("test")};
    l.ds = diags_new(sources_new(l.a));
    Define d = {.name = "dtype", .value = "f32", .at = {0, 0}};
    Source *s = sources_add(l.ds->sources, "<command line>", "f32", 3);
    d.at = (Span){s->start, s->start + s->bytes};
    Units units, machine;
    IncludePath none = {0};
    Status status = parse_file(l.ds, bundled(l.a, model, "pmodel"), none, &units);
    if (status == OK)
        status = elaborate_model(l.ds, &units, NULL, &d, 1, l.a, &l.g);
    if (status == OK)
        status = parse_file(l.ds, bundled(l.a, "clusters/laptop1", "pcluster"), none, &machine);
    if (status == OK)
        status = elaborate_cluster(l.ds, &machine, NULL, NULL, 0, l.a, &l.cl);
    diags_flush(l.ds, stderr);
    assert_int_equal(status, OK);
    if (has_value(l.g->loss))
        graph_differentiate(l.g);
    else
        graph_complete(l.g);
    return l;
}

static void check_program(const char *model, const Program *p)
{
    int64_t peak = program_live_peak(p), map = p->map_bytes[PART_PRIVATE];
    assert_int_equal(program_check(p, stderr), 0);
    assert_true(map >= peak);
    if (map > peak + peak / 20)
        fail_msg("%s: the map has %lld bytes, %lld are live at once", model, (long long)map, (long long)peak);
    print_message("# %s: map %.4f of the live peak\n", model, (double)map / (double)peak);
}

static void bundled_models_are_lowered(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        Loaded l = load(models[i]);
        const char *why;
        bool whole = has_op(graph_batch_obstacle(l.a, l.g, &why));
        assert_int_equal(whole, strcmp(models[i], "two_tower") == 0);
        for (int64_t m = 1; m <= (whole ? 1 : 2); m++) {
            Plan plan = {.microbatches = m, .mesh = {1, 1, 1, 1, 1}, .devices = &(uint32_t){0}, .ndevices = 1, .bucket = DEFAULT_BUCKET, .schedule = "1f1b"};
            Program *p;
            Status status = codegen(l.a, l.ds, l.g, &plan, l.cl, 0, NULL, &p);
            diags_flush(l.ds, stderr);
            assert_int_equal(status, OK);
            check_program(models[i], p);
        }
        arena_free(l.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bundled_models_are_lowered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
