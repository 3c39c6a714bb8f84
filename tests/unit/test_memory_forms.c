/* Memory against closed forms: states by the parameter, and what a block keeps for backward, which is what
 * three rounds of a model have, less what two have. */
#include "tests/unit/planning.h"

typedef struct Subject { const char *model, *set[3]; } Subject;     /* a bundled model; values for -D */

static const Subject llama70b = {"llama3_70b.pmodel", {"batch=4", "nodes=2"}}, llama8b = {"llama3_8b.pmodel", {"batch=4"}},
                     gpt = {"gpt2.pmodel", {"batch=8", "hidden=1024", "heads=16"}};

/* Bytes of the classes, a bit each, on rank 0. */
static int64_t bytes_of(unsigned classes, int layers, const Subject *of, const char *rules)
{
    Case c = {.a = arena_new("test")};
    char *argv[12] = {"pplan", arena_strdup(c.a, of->model), "-c", "dgx_h100", "-D", arena_strdup(c.a, arena_printf(c.a, "layers=%d", layers))};
    int argc = 6;
    for (int i = 0; i < 3 && of->set[i]; i++) {
        argv[argc++] = "-D";
        argv[argc++] = arena_strdup(c.a, of->set[i]);
    }
    open_case_args(&c, argc, argv);
    Status s = try_rules(&c, "%s", rules);
    if (s != OK)
        print_error("%s: %s\n", rules, c.ds->first->text);
    assert_int_equal(s, OK);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < c.p->nbuffer; i++)
        if (classes >> c.p->buffer[i].cls & 1)
            bytes += c.p->buffer[i].bytes * c.p->buffer[i].slots;
    close_case(&c);
    return bytes;
}

/* ---- states ---- */

#define STATES (1u << CLASS_weights | 1u << CLASS_master | 1u << CLASS_gradients | 1u << CLASS_moments)

static int64_t a_layers_states(const Subject *of, const char *rules)
{
    return bytes_of(STATES, 3, of, rules) - bytes_of(STATES, 2, of, rules);
}

/* 18 bytes a parameter with bf16 weights and f32 gradients, master and two moments; 6 + 12 / d where d ranks
 * share the optimizer's (Rajbhandari et al. 2020, figure 1, with gradients in f32 as Megatron-LM has them). */
static void states_a_parameter(void **unused)
{
    (void)unused;
    const int64_t layer = 2LL * 4096 * 4096 + 2LL * 4096 * 1024 + 3LL * 4096 * 14336 + 2 * 4096;
    assert_int_equal(a_layers_states(&llama8b, "mesh dp = 1; devices = [0]; microbatches = 4"), 18 * layer);
    assert_int_equal(a_layers_states(&llama8b, "mesh dp = 2; devices = [0, 1]; microbatches = 2"), 18 * layer);
    assert_int_equal(a_layers_states(&llama8b, "mesh dp = 2; devices = [0, 1]; microbatches = 2; shard optimizer by dp"), 12 * layer);
    assert_int_equal(a_layers_states(&llama8b, "mesh dp = 4; devices = [0, 1, 2, 3]; microbatches = 1; shard optimizer by dp"), 9 * layer);
}

/* ---- saved for backward ---- */

static int64_t a_layer_keeps(const Subject *of, const char *rules)
{
    return bytes_of(1u << CLASS_saved, 3, of, rules) - bytes_of(1u << CLASS_saved, 2, of, rules);
}

/* To a tenth. */
static void check_mib(int64_t bytes, double mib)
{
    int64_t off = llabs(10 * bytes - (int64_t)(10 * mib * 1048576));
    if (off > 1048576 / 2)
        print_error("%.2f MiB, not %.1f\n", (double)bytes / 1048576, mib);
    assert_true(off <= 1048576 / 2);
}

/* Inputs of norms and matmuls 4 x 16 MiB, q 16, k and v 4, attention 16, its log-sum-exp 0.25, gate, up and product 168. */
static void llama3_70b_over_eight(void **unused)
{
    (void)unused;
    check_mib(a_layer_keeps(&llama70b, "mesh dp = 1, tp = 8; devices = [0, 1, 2, 3, 4, 5, 6, 7]; microbatches = 4; split heads, ffn, vocab by tp; split seq by tp"), 268.3);
}

/* Each of sixteen ranks has one of eight kv heads: k and v are as large as with eight ranks, all else is half. */
static void kv_heads_fewer_than_ranks(void **unused)
{
    (void)unused;
    check_mib(a_layer_keeps(&llama70b, "mesh tp = 16; microbatches = 4; split heads, ffn, vocab by tp; split seq by tp"), (268.3 - 4) / 2 + 4);
}

static void llama3_8b(void **unused)
{
    (void)unused;
    check_mib(a_layer_keeps(&llama8b, "mesh tp = 1; devices = [0]; microbatches = 4"), 1089.1);
    check_mib(a_layer_keeps(&llama8b, "mesh tp = 4; devices = [0, 1, 2, 3]; microbatches = 4; split heads, ffn, vocab by tp; split seq by tp"), 272.3);
}

/* Korthikanti et al. 2022, equations 2 to 6, for a GPT block of s positions, b samples, width h and a heads
 * in 16 bits: s b h (10 + 24 / t) under tensor parallelism, 34 s b h / t with split sequences, the scores of
 * attention never kept.  Here no dropout mask is kept either: 2 s b h less.  On top are attention's
 * log-sum-exp, 4 s b a / t, and the mean and deviation of two norms, 16 s b. */
static void gpt_as_in_korthikanti(void **unused)
{
    (void)unused;
    enum { S = 1024, B = 2, H = 1024, A = 16 };
    const int64_t sbh = (int64_t)S * B * H, stats = 16 * S * B;
    assert_int_equal(a_layer_keeps(&gpt, "mesh tp = 1; devices = [0]; microbatches = 4"), 32 * sbh + 4 * S * B * A + stats);
    for (int t = 2; t <= 8; t *= 2) {
        const char *head = "microbatches = 4; split heads, ffn by tp";
        Arena *a = arena_new("rules");
        const char *devices = t == 2 ? "0, 1" : t == 4 ? "0, 1, 2, 3" : "0, 1, 2, 3, 4, 5, 6, 7";
        const char *whole = arena_printf(a, "mesh tp = %d; devices = [%s]; %s", t, devices, head);
        const char *split = arena_printf(a, "%s; split seq by tp", whole);
        const char *full = arena_printf(a, "%s; recompute h full", whole), *both = arena_printf(a, "%s; recompute h full", split);
        assert_int_equal(a_layer_keeps(&gpt, whole), 8 * sbh + 24 * sbh / t + 4 * S * B * A / t + stats);
        assert_int_equal(a_layer_keeps(&gpt, split), 32 * sbh / t + 4 * S * B * A / t + stats / t);
        assert_int_equal(a_layer_keeps(&gpt, full), 2 * sbh);
        assert_int_equal(a_layer_keeps(&gpt, both), 2 * sbh / t);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_a_parameter),
        cmocka_unit_test(llama3_70b_over_eight),
        cmocka_unit_test(kv_heads_fewer_than_ranks),
        cmocka_unit_test(llama3_8b),
        cmocka_unit_test(gpt_as_in_korthikanti),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
