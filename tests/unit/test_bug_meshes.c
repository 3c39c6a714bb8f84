/* Public bug reports about planners, on many devices: what divides is planned, and what
 * does not is refused with the sizes that do; a plan fits, and runs a step. */
#include "tests/unit/planned_step.h"

/* Four nodes of eight. */
static const char nodes[] =
    "device core {\n  backend = cpu\n  threads = 1\n  memory = 1 GiB\n  reserve = 4 KiB\n  bandwidth = 10 GB/s\n  peak.f32 = 100 GFLOP/s\n  peak.f64 = 50 GFLOP/s\n}\n"
    "cluster nodes {\n  level node = 8 * core { link = 10 GB/s, latency = 1 us }\n  level pod = 4 * node { link = 1 GB/s, latency = 5 us }\n}\n";

/* "devices = [0, 1, ..]" */
static const char *first_of(Arena *a, int64_t n)
{
    Text t = text_new(a);
    for (int64_t i = 0; i < n; i++)
        text_add(&t, "%s%lld", i ? ", " : "devices = [", (long long)i);
    return arena_printf(a, "%s]", t.s);
}

/* ---- J01: every size of every split ---- */

static const char heads_of_six[] =
    "model m {\n dim batch = 4, seq = 18, vocab = 64, d = 24, heads = 6, kv_heads = 2, ffn = 66\n precision { compute = f32 }\n optimizer adamw { lr = 1e-3 }\n"
    " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n dim head_dim = d / heads\n weight tok[vocab, d]\n x = n0: rmsnorm(embed(ids, tok))\n"
    " q = wq: linear(x, [heads, head_dim])\n k = wk: linear(x, [kv_heads, head_dim])\n v = wv: linear(x, [kv_heads, head_dim])\n"
    " y = x + wo: linear(attention(q, k, v, causal = true), d, over = [heads, head_dim])\n y = y + down: linear(relu(up: linear(y, ffn)), d)\n"
    " minimize cross_entropy(head: linear(n1: rmsnorm(y), vocab), labels)\n}\n";

static Status try_split(Case *c, const char *dim, const char *axis, int64_t n, const char *more)
{
    return try_rules(c, "mesh %s = %lld; %s; split %s by %s%s", axis, (long long)n, first_of(c->a, n), dim, axis, more);
}

/* "numbers that divide 18: 2, 3, ..": of those up to 9, they are the sizes that are planned. */
static void check_named(const Case *c, int64_t extent, const bool *planned)
{
    int64_t named[16];
    int k = numbers(help(c), named, 16);
    assert_int_equal(named[0], extent);
    for (int64_t v = 2; v < 10; v++) {
        bool found = false;
        for (int i = 1; i < k; i++)
            found |= named[i] == v;
        assert_int_equal(found, planned[v]);
    }
}

/* What the help of a refusal proposes is planned: another size, or a padding. */
static void check_split(Case *c, const char *dim, int64_t extent, const char *axis)
{
    bool planned[10] = {0};
    for (int64_t n = 2; n < 10; n++) {
        planned[n] = try_split(c, dim, axis, n, "") == OK;
        assert_int_equal(planned[n], extent % n == 0);
    }
    for (int64_t n = 2; n < 10; n++) {
        if (planned[n])
            continue;
        try_split(c, dim, axis, n, "");
        const char *pad = strstr(help(c), "'pad ");
        if (pad)
            assert_int_equal(try_split(c, dim, axis, n, arena_printf(c->a, "; %.*s", (int)strcspn(pad + 1, "'"), pad + 1)), OK);
        else
            check_named(c, extent, planned);
    }
}

static void J01_sizes_that_divide(void **unused)
{
    (void)unused;
    Case c;
    open_case_on(&c, heads_of_six, nodes);
    check_split(&c, "heads", 6, "tp");               /* also where they do not divide the two kv heads */
    check_split(&c, "seq", 18, "tp");
    check_split(&c, "seq", 18, "cp");
    check_split(&c, "ffn", 66, "tp");
    check_split(&c, "vocab", 64, "tp");
    /* More parts than heads: of the six that cp has, tp finds none to split. */
    assert_int_equal(try_rules(&c, "mesh cp = 6, tp = 2; %s; split heads by (cp, tp)", first_of(c.a, 12)), ERR_REJECT);
    assert_non_null(strstr(c.ds->first->text, "cannot split 'heads' (6) by tp = 2, beside a split into 6"));
    assert_string_equal(help(&c), "there is nothing left of it to split: leave this out");
    close_case(&c);
}

/* ---- J03: micro-batches of data parallel ranks ---- */

/* Samples of the batch that the ranks have, by their programs. */
static int64_t samples_of(Case *c)
{
    int64_t sum = 0;
    for (uint32_t r = 0; r < c->plan->ndevices; r++) {
        Program *p;
        assert_int_equal(codegen(c->l.ir, c->ds, c->l.graph, c->plan, c->l.cluster, r, NULL, &p), OK);
        sum += p->tensor[p->input[0].tensor.i].axis[0].local * p->microbatches;
    }
    return sum;
}

static void check_cut(Case *c, int64_t batch, int64_t dp, int64_t m)
{
    Status s = try_rules(c, "mesh dp = %lld; %s; microbatches = %lld", (long long)dp, first_of(c->a, dp), (long long)m);
    assert_int_equal(s == OK, batch % (dp * m) == 0);
    if (s == OK)
        assert_int_equal(samples_of(c), batch);
    else if (batch % dp)
        names_nearest(c, batch, dp);
    else
        names_nearest(c, batch / dp, m);
}

static void J03_batches_of_data_parallel_ranks(void **unused)
{
    (void)unused;
    static const int64_t batches[] = {1, 6, 7, 10, 12, 256};
    Arena *a = arena_new("texts");
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        Case c;
        open_case_on(&c, mlp(a, batches[b], 4), nodes);
        for (int64_t dp = 1; dp <= 8; dp++)
            for (int64_t m = 1; m <= 7; m++)
                check_cut(&c, batches[b], dp, m);
        /* Ranks that share samples are no parts of the batch. */
        for (int64_t m = 1; m <= 7; m++)
            assert_int_equal(try_rules(&c, "mesh tp = 2; split hidden by tp; devices = [0, 1]; microbatches = %lld", (long long)m) == OK, batches[b] % m == 0);
        close_case(&c);
    }
    arena_free(a);
}

/* ---- J04: what is planned fits on every rank and runs; what is refused fits in no way ---- */

/* The least number of micro-batches that fits, by itself; 0: none. */
static int64_t least_that_fits(Case *c, const char *rules, int64_t batch)
{
    for (int64_t m = 1; m <= batch; m++)
        if (try_rules(c, "%s; microbatches = %lld", rules, (long long)m) == OK)
            return m;
    return 0;
}

/* Whether it was planned. */
static bool check_limit(Case *c, const char *rules, int64_t batch, int64_t memory)
{
    int64_t need[2];
    device_of(c)->memory = memory;
    int64_t m = least_that_fits(c, rules, batch);
    bool planned = try_rules(c, "%s", rules) == OK;
    assert_int_equal(planned, m > 0);
    if (!planned) {
        assert_int_equal(numbers(help(c), need, 2), 1);
        device_of(c)->memory = need[0] - 1;          /* the least that would do: one byte less does not */
        assert_int_equal(least_that_fits(c, rules, batch), 0);
        device_of(c)->memory = need[0];
        assert_int_equal(try_rules(c, "%s", rules), OK);
        run_a_step(c, 3);
        return false;
    }
    assert_int_equal(c->plan->microbatches, m);
    run_a_step(c, 3);
    return true;
}

static void J04_plans_of_many_ranks_fit(void **unused)
{
    (void)unused;
    static const char *const rules[] = {
        "mesh dp = 4; devices = [0, 1, 2, 3]", "mesh tp = 2; devices = [0, 1]; split hidden by tp", "mesh dp = 2, tp = 2; devices = [0, 1, 2, 3]; split hidden by tp",
        "mesh pp = 2; devices = [0, 1]; stage before fc2", "mesh pp = 2, dp = 2; devices = [0, 1, 2, 3]; stage before fc2; shard optimizer by dp",
        "mesh dp = 2; devices = [0, 1]; sync = \"server\"",
    };
    Arena *a = arena_new("texts");
    int planned[2] = {0};
    for (int hidden = 8; hidden <= 32; hidden *= 4) {
        Case c;
        open_case_on(&c, mlp(a, 12, hidden), nodes);
        for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
            for (int64_t memory = 4096 + 1536; memory < 4096 + (12 << 10); memory += 1100)
                planned[check_limit(&c, rules[k], 12, memory)]++;
        close_case(&c);
    }
    assert_true(planned[false] > 20 && planned[true] > 20);
    arena_free(a);
}

/* ---- J07: stages and groups follow the machine; a model without a loss is planned ---- */

static uint32_t node_of(const Case *c, uint32_t rank)
{
    return c->plan->devices[rank] / 8;
}

static const char *chain(Arena *a, const char *end)
{
    return arena_printf(a, "model m {\n dim batch = 4, d = 8, ffn = 16, layers = 32\n precision { compute = f32 }\n input x[batch, d] : f32\n"
                           " y = x\n repeat layers as h {\n  y = y + down: linear(relu(up: linear(y, ffn)), d)\n }\n %s\n}\n", end);
}

static void J07_stages_follow_the_machine(void **unused)
{
    (void)unused;
    Arena *a = arena_new("texts");
    Case c;
    open_case_on(&c, chain(a, "optimizer sgd { lr = 0.1 }\n minimize mean(mean(y * y, over = d), over = batch)"), nodes);
    assert_int_equal(try_rules(&c, "mesh pp = 32; stage every 1 in h"), OK);
    int crossings = 0;
    for (uint32_t r = 1; r < 32; r++)
        crossings += node_of(&c, r) != node_of(&c, r - 1);
    assert_int_equal(crossings, 3);
    for (int64_t tp = 2; tp <= 8; tp *= 2) {
        assert_int_equal(try_rules(&c, "mesh pp = %lld, tp = %lld, dp = 1, cp = 1; split ffn by tp; stage every %lld in h", (long long)(32 / tp), (long long)tp, (long long)tp), OK);
        for (uint32_t r = 0; r < 32; r++)            /* a group of tp: ranks side by side */
            assert_int_equal(node_of(&c, r), node_of(&c, r - r % (uint32_t)tp));
    }
    close_case(&c);
    arena_free(a);
}

static void J07_inference_on_many_ranks(void **unused)
{
    (void)unused;
    static const char *const rules[] = {"mesh dp = 4; devices = [0, 1, 2, 3]", "mesh tp = 4; devices = [0, 1, 2, 3]; split ffn by tp",
                                        "mesh pp = 4; devices = [0, 1, 2, 3]; stage every 8 in h; microbatches = 4", "mesh pp = 2, dp = 2; devices = [0, 1, 2, 3]; stage before h[16]"};
    Arena *a = arena_new("texts");
    Case c;
    open_case_on(&c, chain(a, "output y"), nodes);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(try_rules(&c, "%s", rules[k]), OK);
        for (uint32_t r = 0; r < 4; r++) {
            Program *p;
            assert_int_equal(codegen(c.l.ir, c.ds, c.l.graph, c.plan, c.l.cluster, r, NULL, &p), OK);
            for (uint32_t i = 0; i < p->nbuffer; i++)
                assert_true(p->buffer[i].cls != CLASS_gradients && p->buffer[i].cls != CLASS_moments && p->buffer[i].cls != CLASS_saved);
            assert_int_equal(p->ncall, 0);
        }
    }
    close_case(&c);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(J01_sizes_that_divide),
        cmocka_unit_test(J03_batches_of_data_parallel_ranks),
        cmocka_unit_test(J04_plans_of_many_ranks_fit),
        cmocka_unit_test(J07_stages_follow_the_machine),
        cmocka_unit_test(J07_inference_on_many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
