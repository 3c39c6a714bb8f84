/* No layout changes the numbers: tiny models under pinned plans of many ranks, all
 * ranks run in lockstep in f64, against the same model on one device.  Losses of
 * some steps, the gradients of the first, the weights at the end. */
#include "tests/unit/same_numbers.h"

/* ---- the layouts ---- */

static const Setting gpt2 = {"tiny_gpt2", "batch=8 seq=12 vocab=60 hidden=48 heads=12 ffn=120 layers=2 context=12", NULL};
static const Setting llama = {"tiny_llama", "batch=8 seq=12 vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120 layers=2", NULL};

static void data_parallel(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){1, 2, 1, 1, 1, ""});
    same_numbers(gpt2, (Pin){1, 2, 1, 1, 2, ""});
    same_numbers(llama, (Pin){1, 4, 1, 1, 2, ""});
}

static void tensor_parallel(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){1, 1, 1, 2, 1, "split ffn by tp"});
    same_numbers(gpt2, (Pin){1, 1, 1, 2, 1, "split heads by tp"});
    same_numbers(gpt2, (Pin){1, 1, 1, 2, 1, "split vocab by tp"});
    same_numbers(gpt2, (Pin){1, 1, 1, 4, 2, "split heads, ffn, vocab by tp"});
    same_numbers(llama, (Pin){1, 1, 1, 2, 1, "split heads, ffn, vocab by tp"});
    same_numbers(llama, (Pin){1, 1, 1, 3, 1, "split heads, ffn, vocab by tp"});
    same_numbers(llama, (Pin){1, 1, 1, 6, 1, "split heads, ffn, vocab by tp"});
}

static void sequence_parallel(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){1, 1, 1, 2, 1, "split heads, ffn, vocab by tp; split seq by tp"});
    same_numbers(llama, (Pin){1, 1, 1, 4, 2, "split heads, ffn, vocab by tp; split seq by tp"});
    same_numbers(llama, (Pin){1, 1, 1, 2, 1, "split seq by tp"});
    same_numbers(gpt2, (Pin){1, 1, 2, 1, 1, "split seq by cp"});
}

/* Fewer kv heads than tp: the mesh axis is used in two parts, and cuts by both move at once
 * from one axis of a value to another. */
static void cuts_that_move_together(void **unused)
{
    static const Setting few = {"tiny_llama", "batch=4 seq=12 vocab=60 hidden=48 heads=12 kv_heads=2 ffn=120 layers=1", NULL};
    (void)unused;
    same_numbers(few, (Pin){1, 1, 1, 4, 1, "split hidden in x by tp; split seq by tp"});
    same_numbers(few, (Pin){1, 1, 1, 4, 1, "split seq in layer.norm1 by tp; split heads, ffn, vocab by tp; split hidden by tp"});
}

static void mixed(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){1, 2, 1, 2, 2, "split heads, ffn, vocab by tp; split seq by tp"});
    same_numbers(llama, (Pin){1, 2, 1, 2, 1, "split heads, ffn, vocab by tp"});
    same_numbers(llama, (Pin){1, 2, 2, 2, 1, "split heads, ffn, vocab by tp; split seq by cp"});
    same_numbers(llama, (Pin){1, 1, 1, 4, 1, "split vocab by tp; split kv_heads in layer by tp"});
    same_numbers(llama, (Pin){2, 1, 1, 2, 1, "split vocab by tp; stage before layer[1]"});
}

static void recomputed(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){1, 1, 1, 1, 2, "recompute h"});
    same_numbers(llama, (Pin){1, 1, 1, 2, 1, "split heads, ffn, vocab by tp; split seq by tp; recompute layer full"});
    same_numbers(llama, (Pin){2, 1, 1, 1, 4, "stage before layer[1]; recompute layer.attn; recompute layer.mlp cheap"});
    same_numbers(gpt2, (Pin){1, 2, 1, 2, 1, "split heads, ffn, vocab by tp; recompute h attention; save h[1].mlp"});
}

/* A block keeps little more than its inputs. */
static void recomputing_saves_memory(void **unused)
{
    (void)unused;
    Model m = model_load(gpt2);
    int64_t bytes[2] = {0};
    static const char *const rules[] = {"", "recompute h"};
    for (int k = 0; k < 2; k++) {
        Lockstep l = lower_all(&m, (Pin){1, 1, 1, 1, 1, rules[k]});
        const Program *p = l.rank[0].p;
        for (uint32_t i = 0; i < p->nbuffer; i++)
            bytes[k] += p->buffer[i].cls == CLASS_saved ? p->buffer[i].bytes : 0;
        lock_close(&l);
    }
    assert_true(bytes[1] * 3 < bytes[0]);
    arena_free(m.a);
}

static void pipeline(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){2, 1, 1, 1, 1, "stage before h[1]"});
    same_numbers(gpt2, (Pin){2, 1, 1, 1, 4, "stage before h[1]"});
    same_numbers(llama, (Pin){2, 1, 1, 1, 4, "stage after layer[0]; schedule = \"gpipe\""});
    same_numbers(llama, (Pin){3, 1, 1, 1, 8, "stage before layer[0].mlp; stage before layer[1].mlp.down"});
    same_numbers(gpt2, (Pin){2, 1, 1, 2, 1, "split heads, ffn, vocab by tp; stage before h[1]"});    /* a gradient crosses that is partial over tp */
    same_numbers(gpt2, (Pin){2, 2, 1, 2, 2, "split heads, ffn, vocab by tp; split seq by tp; stage every 1 in h"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputed),
        cmocka_unit_test(recomputing_saves_memory),
        cmocka_unit_test(pipeline),
        cmocka_unit_test(data_parallel),
        cmocka_unit_test(tensor_parallel),
        cmocka_unit_test(sequence_parallel), cmocka_unit_test(cuts_that_move_together),
        cmocka_unit_test(mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
