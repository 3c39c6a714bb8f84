/* Inputs: which ranks have memory for them, and what all ranks know of their numbers. */
#include "tests/unit/layouts.h"

static const Setting gpt2 = {"tiny_gpt2", "batch=8 seq=16 vocab=64 hidden=32 heads=4 ffn=64 layers=3", NULL};

static Setting with_body(Arena *a, const char *body)
{
    const char *head = "model m {\n dim batch = 8, seq = 4, other = 6, vocab = 10, d = 4\n param dtype = f64\n precision { compute = dtype }\n optimizer sgd { lr = 0.1 }\n";
    return (Setting){"inputs", "", arena_printf(a, "%s%s}\n", head, body)};
}

static const Input *input_of(const Program *p, const char *name)
{
    for (uint32_t i = 0; i < p->ninput; i++)
        if (strcmp(p->input[i].name, name) == 0)
            return &p->input[i];
    fail_msg("no input '%s'", name);
    return NULL;
}

static int64_t input_bytes(const Program *p)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        bytes += p->buffer[i].cls == CLASS_inputs ? p->buffer[i].bytes * p->buffer[i].slots : 0;
    return bytes;
}

/* ---- where they lie ---- */

static void stages_hold_what_they_read(void **unused)
{
    (void)unused;
    Model m = model_load(gpt2);
    Lockstep l = lower_all(&m, (Pin){3, 1, 1, 1, 4, "stage before h[1]; stage before h[2]"});
    static const bool ids[] = {true, false, false}, labels[] = {false, false, true};
    for (int stage = 0; stage < 3; stage++) {
        const Program *p = l.rank[stage].p;
        assert_int_equal(p->ninput, 2);
        assert_int_equal(has_tensor(input_of(p, "ids")->tensor), ids[stage]);
        assert_int_equal(has_tensor(input_of(p, "labels")->tensor), labels[stage]);
        assert_int_equal(input_bytes(p), (ids[stage] + labels[stage]) * 4 * 2 * 16 * 4);
        for (uint32_t i = 0; stage < 2 && i < p->nproc; i++)
            assert_true(p->proc[i].kind != PROC_begin && p->proc[i].kind != PROC_agree);
    }
    lock_close(&l);
    arena_free(m.a);
}

/* Also on one device. */
static void what_nobody_reads_has_no_memory(void **unused)
{
    (void)unused;
    Arena *a = arena_new("text");
    Model m = model_load(with_body(a, " input x[batch, d] : f64\n input idle[batch, d] : f64\n y = fc: linear(x, d)\n minimize mean(mean(y * y, over = d), over = batch)\n"));
    Lockstep l = lower_all(&m, (Pin){1, 1, 1, 1, 1, ""});
    assert_int_equal(input_bytes(l.rank[0].p), 8 * 4 * 8);
    assert_false(has_tensor(input_of(l.rank[0].p, "idle")->tensor));
    lock_close(&l);
    arena_free(m.a);
    arena_free(a);
}

/* ---- what is known of them ---- */

static void same_limit(const InputLimit *x, const InputLimit *y)
{
    assert_int_equal(x->label, y->label);
    assert_int_equal(x->of == NULL, y->of == NULL);
    if (x->of)
        assert_string_equal(x->of, y->of);
    assert_int_equal(x->below, y->below);
    assert_int_equal(x->ignores, y->ignores);
    assert_int_equal(x->ignore, y->ignore);
}

static void check_limits(const char *body, Pin pin, InputLimit ids, InputLimit labels)
{
    Arena *a = arena_new("text");
    Model m = model_load(with_body(a, body));
    Lockstep l = lower_all(&m, pin);
    for (uint32_t r = 0; r < l.n; r++) {
        same_limit(&input_of(l.rank[r].p, "ids")->limit, &ids);
        same_limit(&input_of(l.rank[r].p, "labels")->limit, &labels);
    }
    lock_close(&l);
    arena_free(m.a);
    arena_free(a);
}

/* Of several readers the smallest counts, wherever it is, and an ignored label only
 * where all ignore it. */
static void all_ranks_know_the_limits(void **unused)
{
    (void)unused;
    static const Pin one = {1, 1, 1, 1, 1, ""}, stages = {2, 1, 1, 1, 2, "stage before head"}, split = {2, 1, 1, 2, 1, "stage before head; split vocab by tp"};
    static const char plain[] = " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n weight tok[vocab, d]\n x = embed(ids, tok)\n"
                                " minimize cross_entropy(head: linear(x, vocab), labels, ignore = -1)\n";
    static const char twice[] = " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n weight tok[vocab, d]\n x = embed(ids, tok)\n"
                                " weight small[other, d]\n y = head: linear(x, vocab)\n z = tail: linear(embed(ids, small) + x, other)\n"
                                " minimize cross_entropy(y, labels, ignore = 7) + cross_entropy(z, labels)\n";
    const Pin pin[] = {one, stages, split};
    for (int i = 0; i < 3; i++) {
        check_limits(plain, pin[i], (InputLimit){.of = "tok", .below = 10}, (InputLimit){.label = true, .of = "head", .below = 10, .ignores = true, .ignore = -1});
        check_limits(twice, pin[i], (InputLimit){.of = "small", .below = 6}, (InputLimit){.label = true, .of = "tail", .below = 6, .ignore = 7});
    }
}

/* Whether the last batch may have fewer rows is the same for all ranks. */
static void all_ranks_need_full_batches_or_none(void **unused)
{
    (void)unused;
    Arena *a = arena_new("text");
    static const char *const body[] = {
        " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n weight tok[vocab, d]\n minimize cross_entropy(head: linear(embed(ids, tok), vocab), labels)\n",
        " input x[batch, d] : f64\n y = head: linear(fc: linear(x, d), d)\n minimize mean(mean(y * y, over = d), over = batch)\n",
    };
    for (int full = 0; full < 2; full++) {
        Model m = model_load(with_body(a, body[full]));
        Lockstep l = lower_all(&m, (Pin){2, 2, 1, 1, 2, "stage before head"});
        for (uint32_t r = 0; r < l.n; r++)
            assert_int_equal(l.rank[r].p->full_only, full);
        lock_close(&l);
        arena_free(m.a);
    }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_hold_what_they_read),
        cmocka_unit_test(what_nobody_reads_has_no_memory),
        cmocka_unit_test(all_ranks_know_the_limits),
        cmocka_unit_test(all_ranks_need_full_batches_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
