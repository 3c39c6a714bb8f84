/* Public bug reports as tests of many ranks, named after their rows in
 * docs/bug-cases.md: closed forms, and the same numbers as one device has. */
#include "tests/unit/prepared.h"

/* The reports' small models: four layers with biases and tied tables (D4), and of
 * grouped heads without biases (GQA). */
static const Setting d4 = {"tiny_gpt2", "batch=8 seq=16 vocab=64 hidden=32 heads=4 ffn=64 layers=4", NULL};
static const Setting gqa = {"tiny_llama", "batch=8 seq=32 vocab=64 hidden=64 heads=8 kv_heads=2 ffn=64 layers=2", NULL};
static const Setting wide = {"tiny_llama", "batch=8 seq=16 vocab=64 hidden=32 heads=4 kv_heads=4 ffn=64 layers=2", NULL};

#define MEGATRON "split heads, ffn, vocab by tp"
#define WITH_SEQ MEGATRON "; split seq by tp"
#define HEADS_AND_VOCAB "split heads, vocab by tp"

/* ---- A: tensor and sequence parallel algebra ---- */

static double one(int64_t global, double old) { (void)global; (void)old; return 1; }
static double times_30(int64_t global, double old) { (void)global; return 30 * old; }
static double times_1000(int64_t global, double old) { (void)global; return 1000 * old; }
static double count(int64_t global, double old) { (void)old; return (double)(global + 1); }

static void biases_of_one(LockRank *r)
{
    set_weights(r, ".b", one);
}

static void biases_that_count(LockRank *r)
{
    set_weights(r, "layer.w", zero);
    set_weights(r, "layer.b", count);
}

/* A linear layer of weight 0 and bias 1, 2, 3 whose summed axis is split: its output. */
static void A01_bias_of_a_row_split_product(void **unused)
{
    (void)unused;
    static const char text[] = "model m {\n dim batch = 2, d = 8, out = 3\n param dtype = f64\n precision { compute = dtype }\n optimizer sgd { lr = 0.1 }\n"
                               " input x[batch, d] : f32\n y = layer: linear(x, out)\n minimize mean(mean(y, over = out), over = batch)\n}\n";
    for (int64_t tp = 1; tp <= 4; tp *= 2) {
        Stepped x = stepped((Setting){"A01", "", text}, (Pin){1, 1, 1, tp, 1, tp > 1 ? "split d by tp" : ""}, biases_that_count);
        assert_loss(&x, 2);                          /* the mean of 1, 2, 3; as many times that is the fault */
        forget(&x);
    }
    for (int64_t tp = fewer(1, 4); tp <= 4; tp *= 2)
        same_numbers_from(d4, (Pin){1, 1, 1, tp, 1, tp > 1 ? MEGATRON : ""}, biases_of_one);
}

/* Weights that ranks hold copies of and train on parts of the tokens drift apart slowly. */
static void same_ten_steps(Setting s, Pin pin)
{
    Model m = model_on_way(s);
    same_steps_of(&m, pin, NULL, 10);
    arena_free(m.a);
}

/* Weights of norms, also of queries and keys, are the same on ranks that see parts of the
 * tokens or of the heads. */
static void A03_norms_under_sequence_parallelism(void **unused)
{
    (void)unused;
    static const char text[] =
        "model m {\n dim batch = 4, seq = 8, vocab = 64, d = 64, heads = 8, kv_heads = 2\n param dtype = f64\n precision { compute = dtype }\n"
        " defaults { linear.bias = false }\n optimizer adamw { lr = 1e-3 }\n input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n"
        " dim head_dim = d / heads\n weight tok[vocab, d]\n x = n0: rmsnorm(embed(ids, tok))\n"
        " q = qn: rmsnorm(wq: linear(x, [heads, head_dim]))\n k = kn: rmsnorm(wk: linear(x, [kv_heads, head_dim]))\n v = wv: linear(x, [kv_heads, head_dim])\n"
        " y = x + wo: linear(attention(q, k, v, causal = true), d, over = [heads, head_dim])\n"
        " minimize cross_entropy(head: linear(n1: rmsnorm(y), vocab), labels)\n}\n";
    for (int64_t tp = 2; tp <= fewer(4, 2); tp += 2) {
        same_ten_steps(d4, (Pin){1, 1, 1, tp, 1, WITH_SEQ});
        same_ten_steps(gqa, (Pin){1, 2, 1, tp, 1, WITH_SEQ});
        same_ten_steps((Setting){"A03", "", text}, (Pin){1, 1, 1, tp, 2, "split heads, vocab by tp; split seq by tp"});
    }
}

static void head_of_zeros(LockRank *r)
{
    set_weights(r, "head.w", zero);
}

static void head_times_1000(LockRank *r)
{
    set_weights(r, "head.w", times_1000);
}

static void A04_loss_over_a_split_vocabulary(void **unused)
{
    (void)unused;
    static const char *const rules[] = {"", "split vocab by tp", WITH_SEQ, "split ffn by tp"};
    for (int64_t tp = fewer(1, 2); tp <= fewer(4, 2); tp *= 2)
        for (int k = tp > 1; k < (tp > 1 ? fewer(4, 3) : 1); k++) {
            Stepped x = stepped(wide, (Pin){1, 1, 1, tp, 1, rules[k]}, head_of_zeros);
            assert_loss(&x, 4.158883);               /* ln 64 */
            forget(&x);
            same_numbers_from(wide, (Pin){1, 1, 1, tp, 1, rules[k]}, head_times_1000);
        }
}

static double minus_5(int64_t global, double old) { (void)global; (void)old; return -5; }

static void logits_of_minus_5(LockRank *r)
{
    set_weights(r, "head.w", zero);
    set_weights(r, "head.b", minus_5);
}

/* Ten classes stored as twelve: the two more have logits of 0, larger than all others, and no part in the loss. */
static void M06_padding_has_no_probability(void **unused)
{
    (void)unused;
    static const char text[] = "model m {\n dim batch = 4, seq = 4, vocab = 10, d = 8\n param dtype = f64\n precision { compute = dtype }\n optimizer sgd { lr = 0.1 }\n"
                               " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n weight tok[vocab, d]\n"
                               " minimize cross_entropy(head: linear(embed(ids, tok), vocab), labels)\n}\n";
    static const Pin pins[] = {{1, 1, 1, 4, 1, "split vocab by tp; pad vocab to 4"}, {1, 2, 1, 4, 2, "split vocab by tp; pad vocab to 12"},
                               {1, 1, 1, 3, 1, "split vocab by tp; pad vocab to 3"}, {1, 1, 1, 2, 1, "split vocab by tp; pad vocab to 64"},
                               {1, 1, 1, 1, 2, "pad vocab to 16; pad d to 64"}};
    for (size_t k = 0; k < sizeof pins / sizeof *pins; k++) {
        Stepped x = stepped((Setting){"M06", "", text}, pins[k], logits_of_minus_5);
        assert_loss(&x, 2.302585);                   /* ln 10 */
        forget(&x);
        same_numbers_from((Setting){"M06", "", text}, pins[k], logits_of_minus_5);
    }
}

/* One matrix for queries, keys and values, head by head or part by part; of grouped heads,
 * one for keys and values.  Gate and up are one matrix too. */
#define PACKED(kv_heads, body) \
    "model m {\n dim batch = 4, seq = 8, vocab = 64, d = 64, heads = 8, kv_heads = " kv_heads ", three = 3, two = 2, ffn = 32\n param dtype = f64\n" \
    " precision { compute = dtype }\n optimizer adamw { lr = 1e-3 }\n input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n dim head_dim = d / heads\n" \
    " weight tok[vocab, d]\n x = n0: rmsnorm(embed(ids, tok))\n" body \
    " y = x + wo: linear(attention(q, k, v, causal = true), d, over = [heads, head_dim])\n" \
    " z = gate_up: linear(n1: rmsnorm(y), [two, ffn])\n y = y + down: linear(silu(z[two = 0]) * z[two = 1], d)\n" \
    " minimize cross_entropy(head: linear(y, vocab), labels)\n}\n"
#define THREE_OF(order) " p = qkv: linear(x, " order ")\n q = p[three = 0]\n k = p[three = 1]\n v = p[three = 2]\n"
#define TWO_OF(order) " q = wq: linear(x, [heads, head_dim])\n p = kv: linear(x, " order ")\n k = p[two = 0]\n v = p[two = 1]\n"

/* Two ranks have half of the weight each. */
static void assert_cut(Setting s, const char *weight)
{
    Model m = model_load(s);
    Lockstep l = lower_all(&m, (Pin){1, 1, 1, 2, 1, "split heads by tp"});
    const Tensor *t = &l.rank[1].p->tensor[state_of(l.rank[1].p, weight)->weight.i];
    assert_int_equal(2 * tensor_elements(t), lock_elements(t));
    lock_close(&l);
    arena_free(m.a);
}

static void A06_packed_projections(void **unused)
{
    (void)unused;
    static const char *const text[] = {
        PACKED("8", THREE_OF("[heads, three, head_dim]")), PACKED("8", THREE_OF("[three, heads, head_dim]")),
        PACKED("2", TWO_OF("[kv_heads, two, head_dim]")),  PACKED("2", TWO_OF("[two, kv_heads, head_dim]")),
    };
    static const char *const rules[] = {"split heads, ffn by tp", "split heads, ffn, vocab by tp; split seq by tp"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        assert_cut((Setting){"A06", "", text[i]}, i < 2 ? "qkv.w" : "kv.w");
        for (int k = fewer(0, 1); k < 2; k++)
            for (int64_t tp = fewer(2, 4); tp <= 4; tp *= 2)
                same_numbers((Setting){"A06", "", text[i]}, (Pin){1, 1, 1, tp, 1, rules[k]});
    }
}

static void A07_masks_do_not_depend_on_the_layout(void **unused)
{
    (void)unused;
    Setting half = d4;
    half.defines = "batch=8 seq=16 vocab=64 hidden=32 heads=4 ffn=64 layers=1 drop=0.5";
    static const char *const rules[] = {MEGATRON, WITH_SEQ};
    same_numbers(half, (Pin){1, 2, 1, 1, 2, ""});
    for (int64_t tp = 2; tp <= 4; tp *= 2)
        for (int k = 0; k < 2; k++)
            same_numbers(half, (Pin){1, 8 / tp / 2, 1, tp, 1, rules[k]});
    same_numbers(half, (Pin){2, 1, 1, 1, 4, "stage before h[0].ln2"});
    same_numbers(half, (Pin){1, 1, 1, 2, 1, WITH_SEQ "; recompute h"});
}

/* ---- B: stages, tied weights, accumulation ---- */

static void B01_tied_tables_on_several_stages(void **unused)
{
    (void)unused;
    static const Pin pins[] = {
        {2, 1, 1, 1, 2, "stage before h[2]"}, {2, 2, 1, 1, 2, "stage before h[2]"}, {2, 2, 1, 2, 2, MEGATRON "; stage before h[2]"}, {3, 2, 1, 1, 2, "stage before h[1]; stage before h[3]"},
        {3, 1, 1, 1, 2, "stage before h[2]; stage before cross_entropy"},      /* the last has no weight */
        {2, 2, 1, 1, 2, "stage before h[2]; shard optimizer by dp"}, {3, 2, 1, 1, 2, "stage before h[1]; stage before h[3]; shard optimizer by dp; bucket = 1 kB"}};
    for (size_t k = 0; k < sizeof pins / sizeof *pins; k += (size_t)fewer(1, 3))
        same_numbers(d4, pins[k]);
}

static int64_t sample_number(int64_t sample, int64_t position)
{
    (void)position;
    return sample;
}

static void sample_by_sample(LockRank *r)
{
    set_inputs(r, "ids", sample_number);
    set_inputs(r, "labels", sample_number);
    set_weights(r, "head.w", zero);
    set_weights(r, "head.b", zero);
}

/* Micro-batch i holds token i alone: the bias's gradient has each exactly once. */
static void B03_every_micro_batch_counts_once(void **unused)
{
    (void)unused;
    static const char text[] = "model m {\n dim batch = 8, seq = 1, vocab = 64, d = 32\n param dtype = f64\n precision { compute = dtype }\n optimizer sgd { lr = 0.1 }\n"
                               " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n weight tok[vocab, d]\n"
                               " minimize cross_entropy(head: linear(norm: rmsnorm(embed(ids, tok)), vocab, bias = true), labels)\n}\n";
    static const Pin pins[] = {{1, 2, 1, 1, 4, ""}, {1, 4, 1, 1, 2, ""}, {1, 1, 1, 1, 8, ""}, {1, 2, 1, 2, 4, "split vocab by tp"}, {2, 2, 1, 1, 4, "stage before norm"},
                               {1, 2, 1, 1, 4, "shard optimizer by dp"}, {1, 4, 1, 1, 2, "shard optimizer by dp"}, {2, 2, 1, 1, 4, "stage before norm; shard optimizer by dp"}};
    for (size_t k = 0; k < sizeof pins / sizeof *pins; k++) {
        Stepped x = stepped((Setting){"B03", "", text}, pins[k], sample_by_sample);
        int64_t seen = 0;
        for (uint32_t r = 0; r < x.l.n; r++) {
            const State *s = state_of(x.l.rank[r].p, "head.b");
            const Tensor *t = s ? &x.l.rank[r].p->tensor[s->gradient.i] : NULL;
            for (int64_t i = 0; s && i < tensor_elements(t); i++) {
                double have = real_at(t, lock_at(&x.l.rank[r], s->gradient, 0, 0), i), want = lock_global(t, i, 0) < 8 ? -0.109375 : 0.015625;
                if (!is_summed(s, i))
                    continue;
                seen++;
                if (!(fabs(have - want) <= way.limits->loss))
                    fail_msg("plan %zu, rank %u: element %lld is %.9g, expected %.9g", k, r, (long long)lock_global(t, i, 0), have, want);
            }
        }
        assert_true(seen >= 64);                     /* each element on some rank */
        forget(&x);
        same_ten_steps((Setting){"B03", "", text}, pins[k]);
    }
}

/* ---- C: averages ---- */

enum { NOT_COUNTED = 3 };

static int64_t three_and_one(int64_t sample, int64_t position)
{
    return sample == 0 && position < 3 ? 0 : sample == 1 && position == 0 ? 1 : NOT_COUNTED;
}

static int64_t three_before_one(int64_t sample, int64_t position)
{
    return sample == 0 && position < 3 ? 0 : sample == 0 && position == 3 ? 1 : NOT_COUNTED;
}

static double ln_5_first(int64_t global, double old)
{
    (void)old;
    return global == 0 ? log(5) : 0;
}

static void unequal_samples(LockRank *r)
{
    set_weights(r, "head.w", zero);
    set_weights(r, "head.b", ln_5_first);
    set_inputs(r, "ids", three_and_one);
    set_inputs(r, "labels", three_and_one);
}

static void unequal_halves(LockRank *r)
{
    unequal_samples(r);
    set_inputs(r, "labels", three_before_one);
}

/* Three tokens that cost ln 1.6 here, one that costs ln 8 there. */
static void C01_loss_is_no_average_of_averages(void **unused)
{
    (void)unused;
    static const char text[] = "model m {\n dim batch = 2, seq = 6, vocab = 4, d = 8\n param dtype = f64\n precision { compute = dtype }\n optimizer sgd { lr = 0.1 }\n"
                               " input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n weight tok[vocab, d]\n"
                               " minimize cross_entropy(head: linear(embed(ids, tok), vocab, bias = true), labels, ignore = 3)\n}\n";
    static const struct { Pin pin; void (*prepare)(LockRank *); } row[] = {
        {{1, 1, 1, 1, 1, ""}, unequal_samples}, {{1, 2, 1, 1, 1, ""}, unequal_samples}, {{1, 1, 1, 1, 2, ""}, unequal_samples},
        {{1, 1, 2, 1, 1, "split seq by cp"}, unequal_halves}, {{1, 2, 2, 1, 1, "split seq by cp"}, unequal_samples},
        {{1, 1, 1, 2, 2, "split vocab by tp"}, unequal_samples}, {{2, 2, 1, 1, 1, "stage before head"}, unequal_samples},
    };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        Stepped x = stepped((Setting){"C01", "", text}, row[k].pin, row[k].prepare);
        assert_loss(&x, 0.872363);                   /* 1.274723: the average of two averages */
        forget(&x);
    }
}

/* ---- D: norm and odd sizes ---- */

static void D01_one_norm_for_all_ranks(void **unused)
{
    (void)unused;
    static const Pin pins[] = {
        {2, 1, 1, 1, 2, "stage before h[2]"}, {4, 1, 1, 1, 4, "stage every 1 in h"}, {1, 1, 1, 2, 1, MEGATRON}, {1, 2, 1, 2, 1, WITH_SEQ}, {1, 2, 1, 1, 1, "shard optimizer by dp"},
        {2, 2, 1, 1, 2, "stage before h[2]; shard optimizer by dp"}, {1, 2, 1, 2, 1, WITH_SEQ "; shard optimizer by dp"}};
    for (size_t k = 0; k < sizeof pins / sizeof *pins; k += (size_t)fewer(1, 3)) {
        Model m = model_on_way(d4);
        m.g->optimizer.clip = 0.1;
        same_numbers_of(&m, pins[k], NULL);
        arena_free(m.a);
    }
}

static double not_a_number(int64_t global, double old) { return global == 0 ? NAN : old; }

/* Bytes of a rank's weights and moments. */
static const char *states_of(Arena *a, const LockRank *r, size_t *bytes)
{
    char *all = NULL;
    *bytes = 0;
    for (uint32_t i = 0; i < r->p->nstate; i++) {
        const State *s = &r->p->state[i];
        const TensorId id[] = {s->weight, s->moment[0], s->moment[1]};
        for (int k = 0; k < 3; k++) {
            size_t n = has_tensor(id[k]) ? (size_t)tensor_bytes(&r->p->tensor[id[k].i]) : 0;
            all = arena_grow(a, all, *bytes, *bytes + n);
            if (n)
                memcpy(all + *bytes, lock_at(r, id[k], 0, 0), n);
            *bytes += n;
        }
    }
    return all;
}

/* One weight of the last stage, and moments that any step would change. */
static void one_is_no_number(LockRank *r)
{
    set_weights(r, "h[3].mlp.up.w", not_a_number);
    for (uint32_t i = 0; i < r->p->nstate; i++)
        for (int k = 0; k < 2; k++) {
            const TensorId id = r->p->state[i].moment[k];
            for (int64_t e = 0; has_tensor(id) && e < tensor_elements(&r->p->tensor[id.i]); e++)
                real_put(&r->p->tensor[id.i], lock_at(r, id, 0, 0), e, 0.001 * (double)(e % 7 + 1));
        }
}

/* No rank's states change, and all see the same norm to decide by. */
static void D04_all_ranks_skip_a_step(void **unused)
{
    (void)unused;
    static const Pin pins[] = {{2, 1, 1, 2, 2, MEGATRON "; stage before h[2]"}, {2, 2, 1, 1, 2, "stage before h[2]; shard optimizer by dp"},
                               {1, 2, 1, 2, 1, WITH_SEQ "; shard optimizer by dp"}, {4, 1, 1, 1, 4, "stage every 1 in h"}};
    for (size_t k = 0; k < sizeof pins / sizeof *pins; k++) {
        Stepped x = stepped(d4, pins[k], one_is_no_number);
        Lockstep start = lower_all(&x.m, pins[k]);
        for (uint32_t r = 0; r < x.l.n; r++) {
            size_t bytes, all;
            one_is_no_number(&start.rank[r]);
            const char *before = states_of(x.m.a, &start.rank[r], &all), *after = states_of(x.m.a, &x.l.rank[r], &bytes);
            assert_true(isfinite(scalar(&x.l.rank[r], x.l.rank[r].p->norm)) == 0);
            assert_int_equal(bytes, all);
            assert_memory_equal(before, after, bytes);
        }
        lock_close(&start);
        forget(&x);
    }
}

/* A weight that tp splits by heads, one that it splits by kv heads and holds twice, one
 * that all ranks hold: each is counted once, on whichever rank it is. */
static void D02_what_is_split_counts_once(void **unused)
{
    (void)unused;
    static const char text[] =
        "model m {\n dim batch = 4, seq = 8, vocab = 64, d = 64, heads = 8, kv_heads = 2\n param dtype = f64\n precision { compute = dtype }\n"
        " optimizer adamw { lr = 1e-3, clip = 0.1 }\n input ids[batch, seq] : i32\n input labels[batch, seq] : i32\n dim head_dim = d / heads\n"
        " weight tok[vocab, d]\n weight gain[heads, head_dim]\n weight kv_gain[kv_heads, head_dim]\n x = n0: rmsnorm(embed(ids, tok))\n"
        " q = wq: linear(x, [heads, head_dim]) * gain\n k = wk: linear(x, [kv_heads, head_dim]) * kv_gain\n v = wv: linear(x, [kv_heads, head_dim])\n"
        " y = x + wo: linear(attention(q, k, v, causal = true), d, over = [heads, head_dim])\n"
        " minimize cross_entropy(head: linear(n1: rmsnorm(y), vocab), labels)\n}\n";
    static const char *const weight[] = {"gain", "kv_gain", "wq.w", "wk.w", "wq.b", "wo.w", "wo.b", "n0.w", "tok", "head.w"};
    static const Pin pins[] = {{1, 1, 1, 2, 1, HEADS_AND_VOCAB}, {1, 1, 1, 4, 1, HEADS_AND_VOCAB "; split seq by tp"},
                               {1, 2, 1, 4, 1, HEADS_AND_VOCAB "; split seq by tp; shard optimizer by dp"}, {2, 1, 1, 4, 2, HEADS_AND_VOCAB "; stage before head"}};
    const Setting s = {"D02", "", text};
    Stepped one = stepped(s, (Pin){1, 1, 1, 1, 1, ""}, NULL);
    for (size_t k = 0; k < sizeof pins / sizeof *pins; k += (size_t)fewer(1, 2)) {
        Stepped x = stepped(s, pins[k], NULL);
        for (size_t w = 0; w < sizeof weight / sizeof *weight; w++)
            same_squares(&one, &x, weight[w], pins[k].rules);
        same_scalars(&one.l, &x.l, way.limits, "D02");
        forget(&x);
        same_numbers(s, pins[k]);
    }
    forget(&one);
}

/* Elements of a weight whose moments ranks have, by ranks that have them. */
static void count_moments(const Lockstep *l, const char *path)
{
    const State *s = state_of(l->rank[0].p, path);
    int64_t n = tensor_elements(&l->rank[0].p->tensor[s->weight.i]);
    for (int64_t i = 0; i < n; i++) {
        int owners = 0;
        for (uint32_t r = 0; r < l->n; r++) {
            s = state_of(l->rank[r].p, path);
            assert_true(s->sharded);
            owners += is_summed(s, i);
        }
        assert_int_equal(owners, 1);
    }
}

/* A model with fewer elements than ranks, and one whose parts do not divide. */
static void D07_optimizer_states_of_any_number(void **unused)
{
    (void)unused;
    static const char few[] = "model m {\n dim batch = 120, out = 3\n param dtype = f64\n precision { compute = dtype }\n optimizer adamw { lr = 1e-3 }\n"
                              " input x[batch, out] : f32\n weight b[out]\n y = x + b\n minimize mean(mean(y * y, over = out), over = batch)\n}\n";
    for (int64_t dp = 2; dp <= 5; dp++) {
        const Setting odd = {"tiny_gpt2", dp == 3 ? "batch=6 hidden=30 heads=3 layers=1 vocab=61" : "batch=40 seq=2 context=2 hidden=30 heads=3 layers=1 vocab=61", NULL};
        const Pin pin = {1, dp, 1, 1, 2, "shard optimizer by dp"};
        same_numbers((Setting){"D07", "", few}, pin);
        same_numbers(odd, pin);
        Model m = model_load(odd);
        Lockstep l = lower_all(&m, pin);
        for (uint32_t i = 0; i < l.rank[0].p->nstate; i++)
            count_moments(&l, l.rank[0].p->state[i].path);
        lock_close(&l);
        arena_free(m.a);
    }
}

static void D07_sizes_that_ranks_do_not_divide(void **unused)
{
    (void)unused;
    static const char *const odd[] = {"batch=4 hidden=30 heads=3 layers=1 vocab=61", "batch=6 hidden=30 heads=3 layers=1 vocab=61", "batch=10 hidden=30 heads=3 layers=1 vocab=61"};
    static const int64_t dp[] = {2, 3, 5};
    for (int k = 0; k < 3; k++)
        same_numbers((Setting){"tiny_gpt2", odd[k], NULL}, (Pin){1, dp[k], 1, 1, 2, ""});
    same_numbers((Setting){"tiny_gpt2", odd[1], NULL}, (Pin){1, 2, 1, 3, 1, "split heads by tp"});
}

/* ---- E: positions split by cp ---- */

/* Logits of hundreds: blocks of keys have maxima far apart. */
static void large_logits(LockRank *r)
{
    set_weights(r, ".q.w", times_30);
    set_weights(r, ".k.w", times_30);
}

static void E02_attention_over_split_positions(void **unused)
{
    (void)unused;
    const Setting few = {"tiny_gpt2", "batch=8 seq=16 vocab=64 hidden=32 heads=4 ffn=64 layers=2", NULL};
    /* In f32 such logits are off by 1e-4, and a second layer's multiply what the first one's rounding does to them. */
    const Setting shallow = {"tiny_llama", "batch=8 seq=32 vocab=64 hidden=64 heads=8 kv_heads=2 ffn=64 layers=1", NULL};
    for (int64_t cp = 2; cp <= fewer(4, 2); cp *= 2)
        for (int64_t tp = 1; tp <= 2; tp++)
            for (int64_t m = fewer(1, 4); m <= 4; m *= 4) {
                const Pin pin = {1, 1, cp, tp, m, tp > 1 ? "split seq by cp; " MEGATRON : "split seq by cp"};
                same_numbers(few, pin);
                same_numbers(gqa, pin);
                Model model = model_on_way(m == 1 ? few : way.device ? shallow : gqa);
                same_steps_within(way.large, START_lockstep, &model, pin, large_logits, 1);       /* later steps multiply any rounding */
                arena_free(model.a);
            }
}

/* ---- H: schedules ---- */

/* Each number of stages and micro-batches has an end under each schedule; the last few
 * also run. */
static void H01_schedules_end(void **unused)
{
    (void)unused;
    for (int64_t m = 1; m <= 9; m++) {
        Arena *a = arena_new("test");
        Setting s = {"tiny_gpt2", arena_printf(a, "batch=%d seq=4 vocab=16 hidden=8 heads=2 ffn=8 layers=4", (int)m), NULL};
        for (int64_t pp = 1; pp <= 4; pp++)
            for (int gpipe = 0; gpipe < 2; gpipe++) {
                static const char *const cuts[] = {"", "stage before h[2]", "stage before h[1]; stage before h[3]", "stage every 1 in h"};
                same_numbers(s, (Pin){pp, 1, 1, 1, m, arena_printf(a, "%s%s", cuts[pp - 1], !gpipe ? "" : pp > 1 ? "; schedule = \"gpipe\"" : "schedule = \"gpipe\"")});
            }
        arena_free(a);
    }
}

/* Values that are read several stages on, as a U-Net's are, and a loss that is not the last stage's: a stage that
 * runs ahead must not wait for one that it has not served yet. */
static void H01_schedules_end_with_values_that_pass_stages(void **unused)
{
    (void)unused;
    static const char text[] = "model m {\n dim batch = 9, d = 4, vocab = 64, class = 64, kind = 64\n param dtype = f64\n precision { compute = dtype }\n optimizer sgd { lr = 0.1 }\n"
                               " input ids[batch] : i32\n input y[batch] : i32\n input z[batch] : i32\n"
                               " weight tok[vocab, d]\n e1 = l1: linear(embed(ids, tok), d) |> relu\n e2 = l2: linear(e1, d) |> relu\n near = lossy: cross_entropy(yhead: linear(e1, class), y)\n"
                               " e3 = l3: linear(e2, d) |> relu\n d2 = l4: linear(e3 + e2, d) |> relu\n d1 = l5: linear(d2 + e1, d) |> relu\n"
                               " far = lossz: cross_entropy(zhead: linear(d1, kind), z)\n minimize near + far\n}\n";
    static const struct { int pp; const char *cuts; } cut[] = {
        {2, "stage before l4"}, {3, "stage before lossy; stage before lossz"}, {3, "stage before l3; stage before l5"}, {4, "stage before l2; stage before l3; stage before l4"},
        {5, "stage before l2; stage before l3; stage before l4; stage before l5"}, {6, "stage before l2; stage before l3; stage before l4; stage before l5; stage before zhead"}};
    for (size_t k = 0; k < sizeof cut / sizeof *cut; k++)
        for (int m = 1; m <= 9; m += m < 3 ? 2 : 6)
            for (int gpipe = 0; gpipe < 2; gpipe++) {
                Arena *a = arena_new("test");
                same_numbers((Setting){"H01", "", text}, (Pin){cut[k].pp, 1, 1, 1, m, arena_printf(a, "%s%s", cut[k].cuts, gpipe ? "; schedule = \"gpipe\"" : "")});
                arena_free(a);
            }
}

/* `test_bug_layouts DEVICE`: on that, but for rows that prun runs there; otherwise all, in lockstep. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A01_bias_of_a_row_split_product),
        cmocka_unit_test(A03_norms_under_sequence_parallelism),
        cmocka_unit_test(A04_loss_over_a_split_vocabulary),
        cmocka_unit_test(M06_padding_has_no_probability),
        cmocka_unit_test(A06_packed_projections),
        cmocka_unit_test(B01_tied_tables_on_several_stages),
        cmocka_unit_test(B03_every_micro_batch_counts_once),
        cmocka_unit_test(C01_loss_is_no_average_of_averages),
        cmocka_unit_test(D01_one_norm_for_all_ranks),
        cmocka_unit_test(D02_what_is_split_counts_once),
        cmocka_unit_test(D04_all_ranks_skip_a_step),
        cmocka_unit_test(D07_optimizer_states_of_any_number),
        cmocka_unit_test(D07_sizes_that_ranks_do_not_divide),
        cmocka_unit_test(E02_attention_over_split_positions),
    };
    const struct CMUnitTest lockstep[] = {
        cmocka_unit_test(A07_masks_do_not_depend_on_the_layout),
        cmocka_unit_test(H01_schedules_end),
        cmocka_unit_test(H01_schedules_end_with_values_that_pass_stages),
    };
    if (argc > 1)
        run_on_device(argv[1]);
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    return way.device ? bad : bad + cmocka_run_group_tests(lockstep, NULL, NULL);
}
