/* No layout changes the numbers: tiny models under pinned plans of many ranks, all
 * ranks run in lockstep in f64, against the same model on one device.  Losses of
 * some steps, the gradients of the first, the weights at the end. */
#include <math.h>

#include "base/text.h"
#include "frontend/frontend.h"
#include "tests/unit/lockstep.h"

/* ---- models and plans ---- */

typedef struct Setting { const char *model, *defines; } Setting;     /* "batch=4 heads=12": dims and params */

typedef struct Model { Arena *a; Diags *ds; Units units; Graph *g; Cluster *cl; } Model;

static void add_define(Model *m, Define **d, uint32_t *n, const char *text)
{
    const char *equals = strchr(text, '=');
    Source *s = sources_add(m->ds->sources, "<test>", equals + 1, strlen(equals + 1));
    Define x = {.name = arena_strndup(m->a, text, (size_t)(equals - text)), .value = equals + 1, .at = {s->start, s->start + s->bytes}};
    PUSH(m->a, *d, *n, x);
}

static Model model_load(Setting s)
{
    Model m = {.a = arena_new("test")};
    m.ds = diags_new(sources_new(m.a));
    const char *top = getenv("TOP");
    Define *d = NULL;
    uint32_t n = 0;
    char *words = arena_printf(m.a, "dtype=f64 %s", s.defines), *save;
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        add_define(&m, &d, &n, w);
    Units machine;
    IncludePath none = {0};
    Status status = parse_file(m.ds, arena_printf(m.a, "%s/models/tiny/%s.pmodel", top ? top : ".", s.model), none, &m.units);
    if (status == OK)
        status = elaborate_model(m.ds, &m.units, NULL, d, n, m.a, &m.g);
    if (status == OK)
        status = parse_file(m.ds, arena_printf(m.a, "%s/models/clusters/laptop4.pcluster", top ? top : "."), none, &machine);
    if (status == OK)
        status = elaborate_cluster(m.ds, &machine, NULL, NULL, 0, m.a, &m.cl);
    diags_flush(m.ds, stderr);
    assert_int_equal(status, OK);
    graph_differentiate(m.g);
    return m;
}

typedef struct Pin { int64_t pp, dp, cp, tp, microbatches; const char *rules; } Pin;

static Plan plan_of(Model *m, Pin pin)
{
    Plan plan = {.arena = m->a, .mesh = {pin.pp, pin.dp, pin.cp, 1, pin.tp}, .microbatches = pin.microbatches, .bucket = 20000, .schedule = "1f1b"};
    for (uint32_t i = 0; i < pin.pp * pin.dp * pin.cp * pin.tp; i++)
        PUSH(m->a, plan.devices, plan.ndevices, 0);
    const char *text = arena_printf(m->a, "plan { %s }", pin.rules);
    Units units;
    Rules *rules;
    IncludePath none = {0};
    assert_int_equal(parse_text(m->ds, "<rules>", text, strlen(text), none, &units), OK);
    Status s = elaborate_rules(m->ds, &units, m->g, m->a, &rules);
    diags_flush(m->ds, stderr);
    assert_int_equal(s, OK);
    plan.rule = rules->rule;
    plan.nrule = rules->nrule;
    for (uint32_t i = 0; i < rules->nrule; i++)
        if (rules->rule[i].kind == RULE_SETTING && strcmp(rules->rule[i].name, "schedule") == 0)
            plan.schedule = rules->rule[i].text;
    return plan;
}

static Lockstep lower_all(Model *m, Pin pin)
{
    Plan plan = plan_of(m, pin);
    Program **p = NEWN(m->a, Program *, plan.ndevices);
    for (uint32_t r = 0; r < plan.ndevices; r++) {
        Status s = codegen(m->a, m->ds, m->g, &plan, m->cl, r, NULL, &p[r]);
        diags_flush(m->ds, stderr);
        assert_int_equal(s, OK);
    }
    return lock_open(m->a, p, plan.ndevices, m->g->dim[0].extent > 0 ? 60 : 0);
}

/* ---- comparing ---- */

static double scalar(const LockRank *r, TensorId t)
{
    return real_at(&r->p->tensor[t.i], lock_at(r, t, 0, 0), 0);
}

static const State *state_of(const Program *p, const char *path)
{
    for (uint32_t i = 0; i < p->nstate; i++)
        if (strcmp(p->state[i].path, path) == 0)
            return &p->state[i];
    return NULL;
}

static TensorId tensor_of(const State *s, bool gradient)
{
    return gradient ? s->gradient : s->weight;
}

/* Every element that a rank holds of a weight or gradient against the one device's.
 * Gradients that are zero but for rounding (of key biases) are measured by all. */
static void same_tensor(const LockRank *one, const LockRank *r, const State *s, bool gradient, double tolerance, const char *what)
{
    const State *o = state_of(one->p, s->path);
    TensorId have = tensor_of(s, gradient), want = tensor_of(o, gradient);
    const Tensor *t = &r->p->tensor[have.i], *w = &one->p->tensor[want.i];
    double norm = gradient ? 1e-12 * scalar(one, one->p->norm) : 0, error = 0;
    for (int64_t i = 0; i < tensor_elements(w); i++)
        norm += pow(real_at(w, lock_at(one, want, 0, 0), i), 2);
    for (int64_t i = 0; i < tensor_elements(t); i++) {
        int64_t g = lock_global(t, i, 0);
        double x = real_at(t, lock_at(r, have, 0, 0), i), y = g < 0 ? 0 : real_at(w, lock_at(one, want, 0, 0), g);
        error = fmax(error, isnan(x) ? INFINITY : fabs(x - y));
    }
    if (error > tolerance * sqrt(norm))
        fail_msg("%s: rank %u: %s of '%s' is off by %g of a norm of %g", what, r->p->rank, gradient ? "gradient" : "weight", s->path, error, sqrt(norm));
}

static void same_states(const Lockstep *one, const Lockstep *l, bool gradient, double tolerance, const char *what)
{
    for (uint32_t r = 0; r < l->n; r++)
        for (uint32_t i = 0; i < l->rank[r].p->nstate; i++) {
            const State *s = &l->rank[r].p->state[i];
            if (!gradient || has_tensor(s->gradient))
                same_tensor(&one->rank[0], &l->rank[r], s, gradient, tolerance, what);
        }
}

static void same_scalars(const Lockstep *one, const Lockstep *l, const char *what)
{
    double loss = scalar(&one->rank[0], one->rank[0].p->loss), norm = scalar(&one->rank[0], one->rank[0].p->norm);
    for (uint32_t r = 0; r < l->n; r++) {
        const LockRank *x = &l->rank[r];
        if (has_tensor(x->p->loss) && fabs(scalar(x, x->p->loss) - loss) > 1e-12 * fabs(loss))
            fail_msg("%s: step %lld, rank %u: loss %.17g, expected %.17g", what, (long long)x->step.step, r, scalar(x, x->p->loss), loss);
        if (fabs(scalar(x, x->p->norm) - norm) > 1e-11 * norm)
            fail_msg("%s: step %lld, rank %u: norm %.17g, expected %.17g", what, (long long)x->step.step, r, scalar(x, x->p->norm), norm);
    }
}

enum { STEPS = 3 };

static void same_numbers(Setting s, Pin pin)
{
    Model m = model_load(s);
    char what[300];
    snprintf(what, sizeof what, "%s pp=%lld dp=%lld cp=%lld tp=%lld m=%lld '%s'", s.model, (long long)pin.pp, (long long)pin.dp, (long long)pin.cp,
             (long long)pin.tp, (long long)pin.microbatches, pin.rules);
    Lockstep one = lower_all(&m, (Pin){1, 1, 1, 1, 1, ""}), all = lower_all(&m, pin);
    for (int step = 0; step < STEPS; step++) {
        lock_step(&one);
        lock_step(&all);
        same_scalars(&one, &all, what);
        if (step == 0)
            same_states(&one, &all, true, 1e-10, what);
    }
    same_states(&one, &all, false, 1e-9, what);
    lock_close(&one);
    lock_close(&all);
    arena_free(m.a);
}

/* ---- the layouts ---- */

static const Setting gpt2 = {"tiny_gpt2", "batch=8 seq=12 vocab=60 hidden=48 heads=12 ffn=120 layers=2 context=12"};
static const Setting llama = {"tiny_llama", "batch=8 seq=12 vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120 layers=2"};

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
        cmocka_unit_test(sequence_parallel),
        cmocka_unit_test(mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
