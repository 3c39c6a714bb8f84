/* Public bug reports about estimates of memory: the worst rank decides, each byte is named, and
 * communication takes what its distinct groups take. */
#include "tests/unit/planning.h"

#include "planner/weigh.h"

static const char machine[] =
    "device core {\n  backend = cpu\n  threads = 1\n  memory = 4 GB\n  reserve = 4 KiB\n  bandwidth = 10 GB/s\n  peak.f32 = 100 GFLOP/s\n}\n"
    "cluster box {\n  level node = 4 * core { link = 10 GB/s, latency = 1 us }\n}\n";

static Program *program_of(Case *c, uint32_t rank)
{
    Program *p;
    assert_int_equal(codegen(c->l.ir, c->ds, c->l.graph, c->plan, c->l.cluster, rank, NULL, &p), OK);
    return p;
}

static int64_t needed(const Program *p)
{
    return program_map_bytes(p) + p->reserve;
}

/* ---- I01: fit is decided on the worst rank, and stages are what they are ---- */

static int64_t parameters(const Program *p)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->nstate; i++)
        n += tensor_elements(&p->tensor[p->state[i].weight.i]);
    return n;
}

/* The rank that needs most decides: what it needs is enough, and a byte less is too little, which names it. */
static void the_worst_decides(Case *c, const char *rules)
{
    uint32_t worst = 0;
    int64_t most = 0, live;
    for (uint32_t r = 0; r < c->plan->ndevices; r++) {
        const Program *p = program_of(c, r);
        live = program_live_peak(p);
        assert_true(live <= program_map_bytes(p) && program_map_bytes(p) <= live + live / 4);
        worst = needed(p) > most ? r : worst;
        most = needed(p) > most ? needed(p) : most;
    }
    device_of(c)->memory = most;
    assert_int_equal(try_rules(c, "%s", rules), OK);
    assert_int_equal(c->programs.fullest, worst);
    device_of(c)->memory = most - 1;
    assert_int_equal(try_rules(c, "%s", rules), ERR_REJECT);
    assert_non_null(strstr(c->ds->first->text, arena_printf(c->a, "on rank %u", worst)));
    device_of(c)->memory = 4000000000;
}

static const char *stack(Arena *a, int layers, const char *before, const char *after)
{
    return arena_printf(a, "model m {\n dim batch = 8, seq = 4, vocab = 50000, d = 32, ffn = 64, wide = 2048, layers = %d\n precision { compute = f32 }\n optimizer adamw { lr = 1e-3 }\n"
                           " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n input z[batch, seq, d] : f32\n y = z\n%s"
                           " repeat layers as h {\n  y = y + down: linear(relu(up: linear(y, ffn)), d)\n }\n%s}\n", layers, before, after);
}

static const char mean_of_squares[] = " minimize mean(mean(mean(y * y, over = d), over = seq), over = batch)\n";

static void I01_stages_of_unequal_layers(void **unused)
{
    (void)unused;
    static const int of[] = {1, 2, 2, 3};
    static const char rules[] = "mesh pp = 4; stage before h[1]; stage before h[3]; stage before h[5]; microbatches = 4";
    Arena *a = arena_new("texts");
    Case c;
    open_case_on(&c, stack(a, 8, "", mean_of_squares), machine);
    assert_int_equal(try_rules(&c, "%s", rules), OK);
    for (uint32_t s = 0; s < 4; s++)
        assert_int_equal(parameters(program_of(&c, s)), of[s] * (2 * 32 * 64 + 64 + 32));
    the_worst_decides(&c, rules);
    close_case(&c);
    arena_free(a);
}

static void I01_one_wide_layer_among_narrow(void **unused)
{
    (void)unused;
    static const char rules[] = "mesh pp = 4; stage before h[0]; stage before h[1]; stage before h[2]; microbatches = 2";
    Arena *a = arena_new("texts");
    Case c;
    open_case_on(&c, stack(a, 3, " y = y + out: linear(relu(in: linear(y, wide)), d)\n", mean_of_squares), machine);
    assert_int_equal(try_rules(&c, "%s", rules), OK);
    assert_int_equal(parameters(program_of(&c, 0)), 2 * 32 * 2048 + 2048 + 32);
    assert_int_equal(parameters(program_of(&c, 3)), 2 * 32 * 64 + 64 + 32);
    assert_int_equal(c.programs.fullest, 0);
    the_worst_decides(&c, rules);
    close_case(&c);
    arena_free(a);
}

static void I01_a_heavy_head(void **unused)
{
    (void)unused;
    static const char rules[] = "mesh pp = 2, dp = 2; stage before h[3]; microbatches = 2";
    Arena *a = arena_new("texts");
    Case c;
    open_case_on(&c, stack(a, 6, "", " minimize cross_entropy(head: linear(y, vocab), labels)\n"), machine);
    assert_int_equal(try_rules(&c, "%s", rules), OK);
    assert_int_equal(parameters(program_of(&c, 0)), 3 * (2 * 32 * 64 + 64 + 32));
    assert_int_equal(parameters(program_of(&c, 2)), 3 * (2 * 32 * 64 + 64 + 32) + 33 * 50000);
    assert_int_equal(c.programs.fullest, 2);
    the_worst_decides(&c, rules);
    close_case(&c);
    arena_free(a);
}

/* Two layers that all tokens pass, and two of experts. */
static void I01_dense_layers_and_experts(void **unused)
{
    (void)unused;
    static const char text[] =
        "model m {\n dim batch = 8, seq = 4, d = 32, ffn = 64, expert = 4\n precision { compute = f32 }\n optimizer adamw { lr = 1e-3 }\n input z[batch, seq, d] : f32\n y = z\n"
        " repeat 2 as h {\n  y = y + down: linear(relu(up: linear(y, ffn)), d)\n }\n"
        " repeat 2 as e {\n  route = gate: router(y, expert, 2)\n  t = dispatch(y, route)\n  t = down: linear(relu(up: linear(t, ffn, per = expert)), d, per = expert)\n"
        "  y = y + combine(t, route)\n }\n minimize mean(mean(mean(y * y, over = d), over = seq), over = batch)\n}\n";
    static const char rules[] = "mesh pp = 4; stage before h[1]; stage before e[0]; stage before e[1]; microbatches = 4";
    enum { DENSE = 2 * 32 * 64 + 64 + 32 };
    Case c;
    open_case_on(&c, text, machine);
    assert_int_equal(try_rules(&c, "%s", rules), OK);
    for (uint32_t s = 0; s < 4; s++)
        assert_int_equal(parameters(program_of(&c, s)), s < 2 ? DENSE : 4 * DENSE + 4 * 32);
    the_worst_decides(&c, rules);
    close_case(&c);
}

/* ---- I02: logits and what is made of them are named, and end with their last use ---- */

static const char big_vocabulary[] =
    "model m {\n dim batch = 1, seq = 1024, vocab = 50257, d = 8\n precision { compute = f32 }\n optimizer adamw { lr = 1e-3 }\n"
    " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n weight tok[vocab, d]\n"
    " minimize cross_entropy(logits: linear(embed(ids, tok), vocab, bias = false), labels)\n}\n";

/* Buffers of logits, or of their gradient: each of `bytes`, none beyond its last use. */
static int64_t copies(const Program *p, int64_t bytes)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++) {
        const Buffer *b = &p->buffer[i];
        if (!strstr(b->name, "logits") || b->cls <= CLASS_moments || b->bytes < bytes / 2)
            continue;
        assert_int_equal(b->bytes, bytes);
        assert_true(b->first >= 0 && b->last < (int32_t)p->ninstr);
        n += b->slots;
    }
    return n;
}

static void check_logits(Case *c, const char *rules, int64_t bytes)
{
    assert_int_equal(try_rules(c, "%s", rules), OK);
    const Program *p = c->programs.rank[0];
    Peak peak = peak_of(c->a, p);
    int64_t n = copies(p, bytes);
    assert_true(n >= 1);
    assert_true(program_map_bytes(p) >= bytes);
    assert_non_null(strstr(peak.largest[0].name, "logits"));
    assert_int_equal(peak.largest[0].bytes, bytes);
    device_of(c)->memory = needed(p);
    assert_int_equal(try_rules(c, "%s", rules), OK);
    device_of(c)->memory = needed(p) - 1;
    assert_int_equal(try_rules(c, "%s", rules), ERR_REJECT);
    device_of(c)->memory = 4000000000;
}

static void I02_logits_are_in_the_plan(void **unused)
{
    (void)unused;
    Case c;
    open_case_on(&c, big_vocabulary, machine);
    check_logits(&c, "devices = [0]", 205852672);
    check_logits(&c, "mesh tp = 2; devices = [0, 1]; pad vocab to 2; split vocab by tp", 1024LL * 50258 / 2 * 4);
    check_logits(&c, "mesh tp = 4; pad vocab to 4; split vocab by tp", 1024LL * 50260 / 4 * 4);
    close_case(&c);
}

/* ---- G03: what a plan recomputes is what runs, and what it keeps for it is less ---- */

/* Bytes of a class, of all slots. */
static int64_t bytes_of(const Program *p, BufferClass cls)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        n += p->buffer[i].cls == cls ? p->buffer[i].bytes * p->buffer[i].slots : 0;
    return n;
}

/* Instructions of forward ops that a step executes in a procedure of that kind, by what they do in `path`. */
static int again(const Program *p, const char *path)
{
    int n = 0;
    for (uint32_t c = 0; c < p->nproc; c++)
        for (uint32_t i = p->proc[c].first; p->proc[c].kind == PROC_backward && i < p->proc[c].end; i++)
            n += strncmp(p->instr[i].path, path, strlen(path)) == 0 && (p->instr[i].op == OP_linear || p->instr[i].op == OP_relu);
    return n;
}

static void G03_what_is_recomputed_runs(void **unused)
{
    (void)unused;
    Arena *a = arena_new("texts");
    Case c;
    open_case_on(&c, stack(a, 8, "", mean_of_squares), machine);
    int64_t saved[3], map[3];
    static const char *const rules[] = {"devices = [0]", "devices = [0]; recompute h[2..4]", "devices = [0]; recompute h"};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(try_rules(&c, "%s", rules[k]), OK);
        const Program *p = c.programs.rank[0];
        saved[k] = bytes_of(p, CLASS_saved);
        map[k] = program_map_bytes(p);
        for (int layer = 0; layer < 8; layer++) {
            bool runs = k == 2 || (k == 1 && layer >= 2 && layer <= 4);
            assert_int_equal(again(p, arena_printf(a, "h[%d].", layer)) > 0, runs);
        }
    }
    assert_true(saved[1] < saved[0] && saved[2] < saved[1] && map[2] < map[0]);
    close_case(&c);
    arena_free(a);
}

/* ---- I04: one communicator a distinct set of ranks ---- */

static uint32_t groups_of(Case *c, uint32_t rank)
{
    const Program *p = program_of(c, rank);
    for (uint32_t i = 0; i < p->ngroup; i++) {
        assert_true(p->group[i].n > 1);
        for (uint32_t k = 0; k < i; k++)
            assert_true(p->group[i].n != p->group[k].n || memcmp(p->group[i].rank, p->group[k].rank, p->group[i].n * sizeof *p->group[i].rank) != 0);
    }
    return p->ngroup;
}

static void I04_groups_do_not_grow_with_layers(void **unused)
{
    (void)unused;
    static const struct { const char *rules; uint32_t groups; } row[] = {
        {"mesh dp = 4", 1},
        {"mesh tp = 4; split ffn by tp", 1},
        {"mesh dp = 2, tp = 2; split ffn by tp", 3},     /* tp, dp, and both for the norm */
    };
    Arena *a = arena_new("texts");
    for (int layers = 2; layers <= 32; layers *= 4) {
        Case c;
        open_case_on(&c, stack(a, layers, "", mean_of_squares), machine);
        for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
            assert_int_equal(try_rules(&c, "%s", row[k].rules), OK);
            for (uint32_t r = 0; r < 4; r++)
                assert_int_equal(groups_of(&c, r), row[k].groups);
        }
        close_case(&c);
    }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(I01_stages_of_unequal_layers),
        cmocka_unit_test(I01_one_wide_layer_among_narrow),
        cmocka_unit_test(I01_a_heavy_head),
        cmocka_unit_test(I01_dense_layers_and_experts),
        cmocka_unit_test(G03_what_is_recomputed_runs),
        cmocka_unit_test(I02_logits_are_in_the_plan),
        cmocka_unit_test(I04_groups_do_not_grow_with_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
