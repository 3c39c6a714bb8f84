/* Lowered programs, executed: gradients are those of the loss they minimize, the
 * number of micro-batches changes nothing, and no buffer is read outside its
 * lifetime.  All in f64. */
#include <math.h>

#include "tests/unit/execute.h"

static const Sizes small = {4, 5, 11, 8, 2, 12, 2, 0};

static Build build_f64(int64_t batch)
{
    Build b = build_new(batch);
    b.g->precision = (Precision){DT_f64, DT_f64, DT_f64, DT_f64, DT_f64};
    return b;
}

/* ---- models, each with what the passes could get wrong ---- */

static void build_gpt2(Build *b)
{
    gpt2(b, small);
}

static void build_dropout(Build *b)
{
    Sizes z = small;
    z.drop = 0.2;
    gpt2(b, z);
}

static void build_llama(Build *b)
{
    llama(b, small);
}

/* Two losses and a penalty that no micro-batch owns. */
static void build_penalty(Build *b)
{
    DimId d = dim(b, "d", 6), n = dim(b, "n", 7);
    ValueId x = input(b, "x", DT_f64, SHAPE(b->g->batch, d)), y = input(b, "y", DT_i32, SHAPE(b->g->batch));
    ValueId w = weight(b, "w", SHAPE(d, n));
    ValueId logits = op2(b, OP_contract, "logits", x, w, SHAPE(b->g->batch, n));
    ValueId ce = cross_entropy(b, "ce", logits, y);
    OpSpec m = spec(b, OP_reduce, "mean", 1, (ValueId[]){map2(b, OP_mul, "square", logits, logits)}, SCALAR);
    m.attr[op_attr_index(OP_reduce, "mean")] = ATTR_B(true);
    ValueId mean = emit(b, &m);
    OpSpec s = spec(b, OP_scale, "tenth", 1, (ValueId[]){op1(b, OP_reduce, "norm", map2(b, OP_mul, "ww", w, w), SCALAR)}, SCALAR);
    s.attr[op_attr_index(OP_scale, "by")] = ATTR_F(0.1);
    ValueId data = map2(b, OP_add, "data", ce, mean);
    minimize(b, map2(b, OP_add, "total", data, emit(b, &s)));
}

/* One weight used twice, a view of a view, and a transpose that cannot be avoided. */
static void build_shapes(Build *b)
{
    DimId h = dim(b, "h", 2), e = dim(b, "e", 3), he = dim(b, "he", 6), k = dim(b, "k", 6), n = dim(b, "n", 5);
    ValueId x = input(b, "x", DT_f64, SHAPE(b->g->batch, h, e)), y = input(b, "y", DT_i32, SHAPE(b->g->batch));
    ValueId w = weight(b, "w", SHAPE(he, k)), u = weight(b, "u", SHAPE(h, e)), v = weight(b, "v", SHAPE(k, n));
    x = map2(b, OP_mul, "scaled", x, u);
    OpSpec m = spec(b, OP_merge, "merge", 1, &x, SHAPE(b->g->batch, he));
    ValueId z = emit(b, &m);
    z = op2(b, OP_contract, "first", z, w, SHAPE(b->g->batch, k));
    z = map1(b, OP_tanh, "tanh", z);
    OpSpec r = spec(b, OP_rename, "rename", 1, &z, SHAPE(b->g->batch, he));
    r.by_dim = false;
    r.label[0][0] = r.out[0].label[0] = 0;
    r.label[0][1] = r.out[0].label[1] = 1;
    z = op2(b, OP_contract, "second", emit(b, &r), w, SHAPE(b->g->batch, k));
    DimId pair = dim(b, "pair", 2), third = dim(b, "third", 3), out = dim(b, "out", 6);
    OpSpec part = spec(b, OP_unmerge, "part", 1, &z, SHAPE(b->g->batch, pair, third));
    ValueId parts = emit(b, &part);
    parts = op1(b, OP_transpose, "turn", parts, SHAPE(third, b->g->batch, pair));
    OpSpec join = spec(b, OP_merge, "join", 1, &parts, SHAPE(b->g->batch, out));
    OpSpec back = spec(b, OP_rename, "back", 1, (ValueId[]){emit(b, &join)}, SHAPE(b->g->batch, k));
    back.by_dim = false;
    back.label[0][0] = back.out[0].label[0] = 0;
    back.label[0][1] = back.out[0].label[1] = 1;
    minimize(b, cross_entropy(b, "ce", op2(b, OP_contract, "logits", emit(b, &back), v, SHAPE(b->g->batch, n)), y));
}

/* Two weights with one gradient: both sides of a sum of weights. */
static void build_shared(Build *b)
{
    DimId d = dim(b, "d", 6), n = dim(b, "n", 5);
    ValueId x = input(b, "x", DT_f64, SHAPE(b->g->batch, d)), y = input(b, "y", DT_i32, SHAPE(b->g->batch));
    ValueId w = map2(b, OP_add, "sum", weight(b, "p", SHAPE(d, n)), weight(b, "q", SHAPE(d, n)));
    minimize(b, cross_entropy(b, "ce", op2(b, OP_contract, "logits", x, w, SHAPE(b->g->batch, n)), y));
}

/* A gradient that another op reads cannot be the accumulator. */
static void build_read(Build *b)
{
    DimId d = dim(b, "d", 6), n = dim(b, "n", 5);
    ValueId x = input(b, "x", DT_f64, SHAPE(b->g->batch, d)), y = input(b, "y", DT_i32, SHAPE(b->g->batch));
    ValueId q = map1(b, OP_tanh, "tanh", weight(b, "q", SHAPE(d, n)));
    ValueId w = map2(b, OP_add, "sum", weight(b, "p", SHAPE(d, n)), q);
    minimize(b, cross_entropy(b, "ce", op2(b, OP_contract, "logits", x, w, SHAPE(b->g->batch, n)), y));
}

typedef struct Case { const char *name; void (*build)(Build *); int64_t classes; bool random; } Case;
static const Case cases[] = {
    {"gpt2", build_gpt2, 11, false},       {"dropout", build_dropout, 11, true}, {"llama", build_llama, 11, false},
    {"penalty", build_penalty, 7, false},  {"shapes", build_shapes, 5, false},   {"shared", build_shared, 5, false},
    {"read", build_read, 5, false},
};
enum { NCASES = sizeof cases / sizeof *cases };

/* ---- tests ---- */

static double training_loss(Run *r)
{
    run_gradients(r);
    return loss_of(r);
}

/* Central differences of the training loss, every 7th element. */
static void check_gradient(Run *r, const State *s, const char *name)
{
    int64_t n = tensor_elements(&r->p->tensor[s->weight.i]);
    double *w = data(r, s->weight), h = 1e-5;
    run_gradients(r);
    double *g = arena_alloc(r->a, sizeof *g * (size_t)n);
    memcpy(g, data(r, s->gradient), sizeof *g * (size_t)n);
    for (int64_t i = 0; i < n; i += 7) {
        double keep = w[i];
        w[i] = keep + h;
        double up = training_loss(r);
        w[i] = keep - h;
        double down = training_loss(r);
        w[i] = keep;
        double want = (up - down) / (2 * h);
        if (!(fabs(g[i] - want) < 1e-7 * (1 + fabs(want))))
            fail_msg("%s: gradient of %s[%lld] is %.12g, differences say %.12g", name, s->path, (long long)i, g[i], want);
    }
}

static void gradients_are_those_of_the_loss(void **unused)
{
    (void)unused;
    for (int k = 0; k < NCASES; k++)
        for (int64_t m = 1; m <= 2; m++) {
            Build b = build_f64(small.batch);
            cases[k].build(&b);
            Program *p = lowered(&b, m);
            Run r = run_new(&b, p, cases[k].classes);
            for (uint32_t s = 0; s < p->nstate; s++)
                check_gradient(&r, &p->state[s], cases[k].name);
            run_free(&r);
            build_free(&b);
        }
}

static double *all_gradients(Run *r, int64_t *n)
{
    double *g = NULL;
    *n = 0;
    for (uint32_t s = 0; s < r->p->nstate; s++) {
        const double *x = data(r, r->p->state[s].gradient);
        for (int64_t i = 0; i < tensor_elements(&r->p->tensor[r->p->state[s].gradient.i]); i++)
            PUSH(r->a, g, *n, x[i]);
    }
    return g;
}

static void same_numbers(double a, double b, const char *name, const char *what)
{
    if (!(fabs(a - b) <= 1e-13 * (1 + fabs(a))))
        fail_msg("%s: %s is %.17g and %.17g", name, what, a, b);
}

static void micro_batches_change_nothing(void **unused)
{
    (void)unused;
    for (int k = 0; k < NCASES; k++) {
        Build b = build_f64(small.batch);
        cases[k].build(&b);
        double loss = 0, *gradient = NULL;
        for (int64_t m = 1; m <= 4; m *= 2) {
            Run r = run_new(&b, lowered(&b, m), cases[k].classes);
            run_gradients(&r);
            int64_t n;
            double *g = all_gradients(&r, &n);
            for (int64_t i = 0; i < n && m > 1; i++)
                same_numbers(gradient[i], g[i], cases[k].name, "a gradient");
            if (m > 1)
                same_numbers(loss, loss_of(&r), cases[k].name, "the loss");
            loss = loss_of(&r);
            gradient = g;
            run_free(&r);
        }
        build_free(&b);
    }
}

static void evaluation_is_the_loss_without_dropout(void **unused)
{
    (void)unused;
    for (int k = 0; k < NCASES; k++) {
        Build b = build_f64(small.batch);
        cases[k].build(&b);
        Run r = run_new(&b, lowered(&b, 2), cases[k].classes);
        run_gradients(&r);
        double trained = loss_of(&r), evaluated = evaluate(&r);
        if (cases[k].random)
            assert_true(fabs(trained - evaluated) > 1e-6);
        else
            same_numbers(trained, evaluated, cases[k].name, "the loss");
        run_free(&r);
        build_free(&b);
    }
}

/* The norm is over distinct elements; padding stays zero; the loss goes down. */
static void steps_learn(void **unused)
{
    (void)unused;
    for (int k = 0; k < NCASES; k++) {
        Build b = build_f64(small.batch);
        cases[k].build(&b);
        Run r = run_new(&b, lowered(&b, 2), cases[k].classes);
        double before = evaluate(&r), norm = 0;
        run_gradients(&r);
        int64_t n;
        double *g = all_gradients(&r, &n);
        for (int64_t i = 0; i < n; i++)
            norm += g[i] * g[i];
        run_proc(&r, PROC_update, 0);
        same_numbers(norm, *(double *)data(&r, r.p->norm), cases[k].name, "the norm");
        assert_true(evaluate(&r) < before);
        run_free(&r);
        build_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_loss),
        cmocka_unit_test(micro_batches_change_nothing),
        cmocka_unit_test(evaluation_is_the_loss_without_dropout),
        cmocka_unit_test(steps_learn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
