/* Public bug reports as closed forms on one device: the numbers a whole run, from
 * a model's text to kernels, must give however the batch is cut. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/load.h"
#include "kernels/kernel.h"
#include "runtime/runtime.h"

/* ---- a model under test ---- */

typedef struct Subject {
    Arena   *a;
    Loaded   l;
    Program *p;
    Rank     rank;
} Subject;

static char *write_model(Arena *a, const char *body, int threads, int microbatches)
{
    char *path = arena_strdup(a, "/tmp/pplan-bug-case-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *text = arena_printf(a,
        "model m {\n%s\n}\n"
        "device d { backend = cpu, threads = %d, memory = 1 GiB, bandwidth = 10 GB/s, peak.f32 = 1 TFLOP/s, peak.f64 = 1 TFLOP/s }\n"
        "cluster c { level l = 1 * d }\n"
        "plan for m { microbatches = %d }\n", body, threads, microbatches);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

/* Weights are filled from `seed`; no batch lies in the inputs yet. */
static void open_subject(Subject *s, const char *body, int threads, int microbatches, uint64_t seed)
{
    *s = (Subject){.a = arena_new("test")};
    char *argv[] = {"pplan", write_model(s->a, body, threads, microbatches)};
    Args args;
    Plan *plan;
    Programs programs;
    assert_int_equal(args_read(s->a, PPLAN, 2, argv, &args), OK);
    assert_int_equal(load_model(&s->l, &args), OK);
    unlink(argv[1]);
    assert_int_equal(load_plan(&s->l, true, &plan, &programs), OK);
    s->p = programs.rank[0];
    assert_int_equal(s->p->microbatches, microbatches);
    assert_int_equal(rank_open(&s->rank, s->a, s->p, isa_best()), OK);
    rank_init(&s->rank, seed);
    s->rank.step.step = 0;
}

static void close_subject(Subject *s)
{
    rank_close(&s->rank);
    load_free(&s->l);
    arena_free(s->a);
}

/* The input as the whole batch has it; a cut input lies in its micro-batches' slots. */
static void set_input(Subject *s, const char *name, const void *values, size_t bytes)
{
    for (uint32_t i = 0; i < s->p->ninput; i++) {
        TensorId id = s->p->input[i].tensor;
        if (strcmp(s->p->input[i].name, name) != 0)
            continue;
        size_t part = bytes / (size_t)s->p->microbatches;
        assert_int_equal(part, tensor_bytes(&s->p->tensor[id.i]));
        for (uint32_t m = 0; m < (uint32_t)s->p->microbatches; m++)
            memcpy(rank_at(&s->rank, id, 0, m), (const char *)values + m * part, part);
        return;
    }
    fail_msg("no input '%s'", name);
}

static const State *state_of(const Subject *s, const char *path)
{
    for (uint32_t i = 0; i < s->p->nstate; i++)
        if (strcmp(s->p->state[i].path, path) == 0)
            return &s->p->state[i];
    fail_msg("no weight '%s'", path);
    return NULL;
}

static int64_t count(const Subject *s, TensorId id)
{
    return tensor_elements(&s->p->tensor[id.i]);
}

/* Models compute in f64 throughout, but for A07 and D05: their kernels are the f32 ones. */
static double *weight(const Subject *s, const char *path)
{
    return rank_at(&s->rank, state_of(s, path)->weight, 0, 0);
}

static const double *gradient(const Subject *s, const char *path)
{
    return rank_at(&s->rank, state_of(s, path)->gradient, 0, 0);
}

static void set_zero(const Subject *s, const char *path)
{
    memset(weight(s, path), 0, sizeof(double) * (size_t)count(s, state_of(s, path)->weight));
}

static double train(Subject *s)
{
    rank_train(&s->rank);
    return rank_scalar(&s->rank, s->p->loss);
}

static void near_to(const char *what, int64_t i, double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed))
        fail_msg("%s[%lld] = %.17g, expected %.17g", what, (long long)i, got, want);
}

/* ---- B03: every micro-batch trains the model, once ---- */

enum { B03_TOKENS = 8, B03_VOCAB = 64, B03_WIDTH = 4 };

static const char b03_untied[] =
    "dim batch = 8, seq = 1, vocab = 64, hidden = 4\n"
    "precision { compute = f64 }\noptimizer sgd { lr = 0.0 }\n"
    "input ids[batch, seq] : i32\ninput labels[batch, seq] : i32\n"
    "weight wte[vocab, hidden] ~ normal(1.0)\n"
    "logits = head: linear(embed(ids, wte), vocab)\n"
    "minimize cross_entropy(logits, labels)";

static const char b03_tied[] =
    "dim batch = 8, seq = 1, vocab = 64, hidden = 4\n"
    "precision { compute = f64 }\noptimizer sgd { lr = 0.0 }\n"
    "input ids[batch, seq] : i32\ninput labels[batch, seq] : i32\n"
    "weight wte[vocab, hidden] ~ normal(1.0)\n"
    "x = embed(ids, wte)\n"
    "logits[batch, seq, vocab] = x * wte\n"
    "minimize cross_entropy(logits, labels)";

/* Sample i holds token i alone, as input and as label. */
static void set_b03(Subject *s)
{
    int32_t token[B03_TOKENS];
    for (int32_t i = 0; i < B03_TOKENS; i++)
        token[i] = i;
    set_input(s, "ids", token, sizeof token);
    set_input(s, "labels", token, sizeof token);
}

static void B03_each_micro_batch_counts_once(void **state)
{
    (void)state;
    for (int m = 1; m <= B03_TOKENS; m *= 2) {
        Subject s;
        open_subject(&s, b03_untied, 2, m, 1);
        set_zero(&s, "head.w");
        set_zero(&s, "head.b");
        set_b03(&s);
        for (int step = 0; step < 2; step++) {       /* the second window starts from zero again */
            near_to("loss", m, train(&s), log(B03_VOCAB), 1e-14);
            for (int64_t v = 0; v < B03_VOCAB; v++)
                near_to("gradient of the bias", v, gradient(&s, "head.b")[v], v < B03_TOKENS ? -0.109375 : 0.015625, 1e-16);
        }
        close_subject(&s);
    }
}

/* The gradient of a table used at both ends, from the definition of the loss. */
static void tied_gradient(const double *w, double *out)
{
    memset(out, 0, sizeof(double) * B03_VOCAB * B03_WIDTH);
    for (int i = 0; i < B03_TOKENS; i++) {
        const double *x = w + i * B03_WIDTH;
        double p[B03_VOCAB], sum = 0;
        for (int v = 0; v < B03_VOCAB; v++) {
            p[v] = 0;
            for (int h = 0; h < B03_WIDTH; h++)
                p[v] += x[h] * w[v * B03_WIDTH + h];
            sum += p[v] = exp(p[v]);
        }
        for (int v = 0; v < B03_VOCAB; v++)
            for (int h = 0; h < B03_WIDTH; h++) {
                double g = (p[v] / sum - (v == i)) / B03_TOKENS;
                out[v * B03_WIDTH + h] += g * x[h];
                out[i * B03_WIDTH + h] += g * w[v * B03_WIDTH + h];
            }
    }
}

static void B03_a_tied_table_sums_both_uses(void **state)
{
    (void)state;
    for (int m = 1; m <= B03_TOKENS; m *= 2) {
        Subject s;
        double want[B03_VOCAB * B03_WIDTH];
        open_subject(&s, b03_tied, 2, m, 1);
        set_b03(&s);
        tied_gradient(weight(&s, "wte"), want);
        for (int step = 0; step < 2; step++) {
            train(&s);
            for (int64_t i = 0; i < B03_VOCAB * B03_WIDTH; i++)
                near_to("gradient of the table", i, gradient(&s, "wte")[i], want[i], 1e-14);
        }
        close_subject(&s);
    }
}

/* ---- C01, C02: the mean is over the valid labels of the whole batch ---- */

static const char c01[] =
    "dim batch = 2, seq = 3, vocab = 4, hidden = 2\n"
    "precision { compute = f64 }\noptimizer sgd { lr = 0.0 }\n"
    "input ids[batch, seq] : i32\ninput labels[batch, seq] : i32\n"
    "weight wte[vocab, hidden] ~ normal(1.0)\n"
    "logits = head: linear(embed(ids, wte), vocab)\n"
    "minimize cross_entropy(logits, labels, ignore = -100)";

/* Three valid labels in the first sample, one in the second. */
static void set_c01(Subject *s)
{
    const int32_t ids[] = {0, 1, 2, 3, 0, 1}, labels[] = {0, 0, 0, 1, -100, -100};
    set_input(s, "ids", ids, sizeof ids);
    set_input(s, "labels", labels, sizeof labels);
}

static void C01_the_loss_is_no_average_of_averages(void **state)
{
    (void)state;
    for (int m = 1; m <= 2; m++) {
        Subject s;
        open_subject(&s, c01, 2, m, 1);
        set_zero(&s, "head.w");
        set_zero(&s, "head.b");
        weight(&s, "head.b")[0] = log(5);
        set_c01(&s);
        double loss = train(&s), want = (3 * log(1.6) + log(8)) / 4;
        near_to("loss", m, loss, want, 1e-15);
        near_to("loss as printed in the report", m, loss, 0.872363, 5e-7);
        /* softmax is (5, 1, 1, 1) / 8; three labels of 4 are 0, one is 1 */
        const double bias[] = {5 / 8. - 3 / 4., 1 / 8. - 1 / 4., 1 / 8., 1 / 8.};
        for (int v = 0; v < 4; v++)
            near_to("gradient of the bias", v, gradient(&s, "head.b")[v], bias[v], 1e-15);
        close_subject(&s);
    }
}

static void C02_gradients_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    Subject whole, cut;
    open_subject(&whole, c01, 2, 1, 5);
    open_subject(&cut, c01, 2, 2, 5);
    set_c01(&whole);
    set_c01(&cut);
    near_to("loss", 0, train(&cut), train(&whole), 1e-15);
    near_to("sum of squares", 0, rank_scalar(&cut.rank, cut.p->norm), rank_scalar(&whole.rank, whole.p->norm), 1e-15);
    static const char *const path[] = {"wte", "head.w", "head.b"};
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < count(&whole, state_of(&whole, path[k])->gradient); i++)
            near_to(path[k], i, gradient(&cut, path[k])[i], gradient(&whole, path[k])[i], 1e-15);
    close_subject(&whole);
    close_subject(&cut);
}

/* ---- A04: the loss over the vocabulary ---- */

static void A04_a_zero_head_costs_ln_of_the_vocabulary(void **state)
{
    (void)state;
    Subject s;
    open_subject(&s, b03_untied, 2, 2, 1);
    set_zero(&s, "head.w");
    set_zero(&s, "head.b");
    set_b03(&s);
    near_to("loss", 0, train(&s), 4.1588830833596715, 1e-15);
    close_subject(&s);
}

/* Logits of thousands: a sum of exponentials would overflow. */
static void A04_large_logits_stay_finite(void **state)
{
    (void)state;
    for (int m = 1; m <= B03_TOKENS; m *= 8) {
        Subject s;
        open_subject(&s, b03_untied, 2, m, 1);
        set_zero(&s, "head.w");
        double *b = weight(&s, "head.b"), most = -INFINITY, sum = 0, want = 0;
        for (int v = 0; v < B03_VOCAB; v++) {
            b[v] = 1000 * sin(v + 1.0);
            most = fmax(most, b[v]);
        }
        for (int v = 0; v < B03_VOCAB; v++)
            sum += exp(b[v] - most);
        for (int v = 0; v < B03_TOKENS; v++)
            want += (most + log(sum) - b[v]) / B03_TOKENS;
        set_b03(&s);
        near_to("loss", m, train(&s), want, 1e-12 * want);
        for (int v = 0; v < B03_VOCAB; v++)
            near_to("gradient of the bias", v, gradient(&s, "head.b")[v],
                    exp(b[v] - most) / sum - (v < B03_TOKENS ? 1. / B03_TOKENS : 0), 1e-12);
        close_subject(&s);
    }
}

/* ---- A08: weights start from the seed alone ---- */

static void A08_the_start_does_not_depend_on_the_plan(void **state)
{
    (void)state;
    Subject first, other;
    open_subject(&first, b03_untied, 1, 1, 7);
    static const struct { int threads, microbatches; uint64_t seed; bool same; } cases[] = {
        {1, 8, 7, true}, {2, 1, 7, true}, {2, 4, 7, true}, {1, 1, 8, false}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        open_subject(&other, b03_untied, cases[k].threads, cases[k].microbatches, cases[k].seed);
        static const char *const path[] = {"wte", "head.w"};
        for (int i = 0; i < 2; i++) {
            size_t bytes = sizeof(double) * (size_t)count(&first, state_of(&first, path[i])->weight);
            assert_true((memcmp(weight(&first, path[i]), weight(&other, path[i]), bytes) == 0) == cases[k].same);
        }
        close_subject(&other);
    }
    close_subject(&first);
}

/* ---- A07: a mask is a function of seed, step, path and global index ---- */

enum { A07_BATCH = 8, A07_WIDTH = 512, A07_ELEMENTS = A07_BATCH * A07_WIDTH };

static const char a07[] =
    "dim batch = 8, width = 512, class = 2\n"
    "precision { compute = f32 }\noptimizer sgd { lr = 0.0 }\n"
    "input x[batch, width] : f32 \ninput label[batch] : i32\n"
    "y = first: dropout(x, 0.5)\nz = second: dropout(x, 0.5)\n"
    "minimize cross_entropy(head: linear(y + z, class), label)";

/* What `path` holds in step `step` with inputs of ones. */
static void mask_of(const char *path, int threads, int microbatches, uint64_t seed, int64_t step, float out[A07_ELEMENTS])
{
    Subject s;
    open_subject(&s, a07, threads, microbatches, seed);
    DumpSpec dump = {.kind = path, .path = "/dev/null", .step = step + 1};
    assert_int_equal(dump_prepare(s.a, &s.rank, &dump, 1, 0, step + 1), OK);
    int32_t label[A07_BATCH] = {0};
    for (int i = 0; i < A07_ELEMENTS; i++)
        out[i] = 1;
    set_input(&s, "x", out, sizeof(float) * A07_ELEMENTS);
    set_input(&s, "label", label, sizeof label);
    s.rank.step.step = step;
    train(&s);
    memcpy(out, dump.list.tensor[0].part.data, sizeof(float) * A07_ELEMENTS);
    close_subject(&s);
}

static double fraction_kept(const float *mask, int first, int n)
{
    int kept = 0;
    for (int i = first; i < first + n; i++) {
        assert_true(mask[i] == 0.0f || mask[i] == 2.0f);   /* kept ones are scaled by 1 / (1 - p) */
        kept += mask[i] != 0.0f;
    }
    return (double)kept / n;
}

/* Independent masks of 4,096 agree in half of the places; 5 standard deviations are 0.04. */
static bool independent(const float *x, const float *y)
{
    int same = 0;
    for (int i = 0; i < A07_ELEMENTS; i++)
        same += (x[i] != 0.0f) == (y[i] != 0.0f);
    return fabs((double)same / A07_ELEMENTS - 0.5) < 0.04;
}

static void A07_masks_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    float *want = malloc(sizeof(float) * A07_ELEMENTS), *got = malloc(sizeof(float) * A07_ELEMENTS);
    mask_of("first", 1, 1, 3, 0, want);
    near_to("fraction kept", 0, fraction_kept(want, 0, A07_ELEMENTS), 0.5, 0.03);
    for (int i = 1; i < A07_BATCH; i++)              /* no sample repeats another's part */
        assert_memory_not_equal(want, want + i * A07_WIDTH, sizeof(float) * A07_WIDTH);
    for (int m = 1; m <= A07_BATCH; m *= 2) {
        mask_of("first", m % 3, m, 3, 0, got);       /* one or two threads */
        assert_memory_equal(want, got, sizeof(float) * A07_ELEMENTS);
    }
    mask_of("first", 2, 4, 3, 1, got);
    assert_true(independent(want, got));             /* another step */
    mask_of("first", 2, 4, 4, 0, got);
    assert_true(independent(want, got));             /* another seed */
    mask_of("second", 2, 4, 3, 0, got);
    assert_true(independent(want, got));             /* another path */
    free(want);
    free(got);
}

/* ---- D05: sums over micro-batches lose nothing ---- */

static void D05_a_sum_of_512_ones_is_512(void **state)
{
    (void)state;
    static const char body[] =
        "dim batch = 512, width = 3\n"
        "precision { compute = f32 }\noptimizer sgd { lr = 0.0 }\n"
        "input x[batch, width] : f32\nweight b[width] ~ zeros\n"
        "minimize sum(x + b, over = [batch, width])";
    for (int m = 1; m <= 512; m *= 8) {
        Subject s;
        open_subject(&s, body, 2, m, 1);
        train(&s);
        const float *g = rank_at(&s.rank, state_of(&s, "b")->gradient, 0, 0);
        for (int i = 0; i < 3; i++)
            assert_true(g[i] == 512);
        assert_true(rank_scalar(&s.rank, s.p->norm) == 3 * 512 * 512);     /* the sum of squares */
        close_subject(&s);
    }
}

/* ---- G02: every form of the optimizer's step is the published rule ---- */

enum { G02_STEPS = 10, G02_MOST = 1000 };
static const Optimizer g02 = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};

typedef struct AdamW { float w[G02_MOST], g[G02_MOST], m[G02_MOST], v[G02_MOST]; double norm; } AdamW;

static float g02_number(int i, int k)
{
    return (float)(sin(1.7 * i + 3.1 * k) + 0.3 * cos(0.37 * i * k));
}

/* Step `t`, from 1, of n elements. */
static void adamw_kernel(Isa isa, Team *team, AdamW *s, int n, int t)
{
    Tensor x = {.dtype = DT_f32, .rank = 1, .axis = {{.local = n, .global = n}}}, scalar = {.dtype = DT_f64};
    Instr in = {.op = OP_adamw, .narg = 5, .nout = 3, .nfactor = 1, .extent = {n}};
    KStep step = {.lr = 0.1, .correction1 = 1 - pow(g02.beta1, t), .correction2 = 1 - pow(g02.beta2, t), .optimizer = &g02};
    in.attr[op_attr_index(OP_adamw, "decays")] = ATTR_B(true);
    KCall c = {.in = &in, .argt = {&x, &x, &x, &x, &scalar}, .outt = {&x, &x, &x}, .arg = {s->w, s->g, s->m, s->v, &s->norm}, .out = {s->w, s->m, s->v},
               .step = &step, .team = team};
    kernel_find(OP_adamw, DT_f32, isa)(&c);
}

/* Loshchilov and Hutter 2019, algorithm 2: the decay is no part of the gradient. */
static double adamw_rule(double w, int i)
{
    double m = 0, v = 0;
    for (int t = 1; t <= G02_STEPS; t++) {
        double g = g02_number(i, t);
        m = g02.beta1 * m + (1 - g02.beta1) * g;
        v = g02.beta2 * v + (1 - g02.beta2) * g * g;
        w -= 0.1 * (m / (1 - pow(g02.beta1, t)) / (sqrt(v / (1 - pow(g02.beta2, t))) + g02.eps) + g02.weight_decay * w);
    }
    return w;
}

static void G02_adamw_is_the_published_rule(void **state)
{
    (void)state;
    static AdamW s;
    static const int lengths[] = {1, 7, 8, G02_MOST};
    Team *team = team_new(2);
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++)
        for (int k = 0; k < 4; k++) {
            s = (AdamW){.norm = 1};
            for (int i = 0; i < lengths[k]; i++)
                s.w[i] = g02_number(i, 0);
            for (int t = 1; t <= G02_STEPS; t++) {
                for (int i = 0; i < lengths[k]; i++)
                    s.g[i] = g02_number(i, t);
                adamw_kernel(isa, team, &s, lengths[k], t);
            }
            for (int i = 0; i < lengths[k]; i++)
                near_to("weight", i, (double)s.w[i], adamw_rule((double)g02_number(i, 0), i), 1e-5);
            for (int i = lengths[k]; i < G02_MOST; i++)
                assert_true(s.w[i] == 0 && s.m[i] == 0);
        }
    team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B03_each_micro_batch_counts_once),
        cmocka_unit_test(B03_a_tied_table_sums_both_uses),
        cmocka_unit_test(C01_the_loss_is_no_average_of_averages),
        cmocka_unit_test(C02_gradients_do_not_depend_on_the_cut),
        cmocka_unit_test(A04_a_zero_head_costs_ln_of_the_vocabulary),
        cmocka_unit_test(A04_large_logits_stay_finite),
        cmocka_unit_test(A08_the_start_does_not_depend_on_the_plan),
        cmocka_unit_test(A07_masks_do_not_depend_on_the_cut),
        cmocka_unit_test(D05_a_sum_of_512_ones_is_512),
        cmocka_unit_test(G02_adamw_is_the_published_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
