/* bf16: conversions bit for bit, products, gradients of every op, and steps of a master copy. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm.h"
#include "tests/ops/cases.h"
#include "tests/unit/team.h"

/* ---- conversions ---- */

static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* By the definition: the nearest of the two neighbours, and the even one of two as near. */
static Bf16 nearest(double x)
{
    Bf16 low = 0;
    if (isinf(x) || x == 0)
        return (Bf16)((signbit(x) ? 0x8000 : 0) | (x == 0 ? 0 : 0x7f80));
    double size = fabs(x);
    for (int bit = 14; bit >= 0; bit--)              /* the largest that is not above */
        if ((double)bf16_value((Bf16)(low | 1 << bit)) <= size)
            low = (Bf16)(low | 1 << bit);
    double a = (double)bf16_value(low), b = low + 1 == 0x7f80 ? 0x1p128 : (double)bf16_value((Bf16)(low + 1));
    bool up = size - a > b - size || (size - a == b - size && low & 1);
    return (Bf16)((signbit(x) ? 0x8000 : 0) | (low + (up ? 1 : 0)));
}

static void check_number(float f)
{
    if (bf16_round(f) != nearest((double)f) || bf16_round_double((double)f) != nearest((double)f))
        fail_msg("%a is rounded to %04x and %04x, expected %04x", (double)f, bf16_round(f), bf16_round_double((double)f), nearest((double)f));
}

/* Every bf16 stays what it is; around each, the f32 next to it, and those by the middle. */
static void floats_are_rounded_to_the_nearest(void **unused)
{
    (void)unused;
    static const uint32_t low[] = {0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
    for (uint32_t high = 0; high < 0x10000; high += 1) {
        if ((high & 0x7f80) == 0x7f80)
            continue;
        assert_int_equal(bf16_round(bf16_value((Bf16)high)), high);
        for (size_t i = 0; i < sizeof low / sizeof *low && high % 7 == 0; i++)
            check_number(of_bits(high << 16 | low[i]));
    }
    check_number(INFINITY);
    check_number(-INFINITY);
    check_number(of_bits(0x7f7f7fff));               /* the last that stays finite */
    check_number(of_bits(0x7f7f8000));
    check_number(of_bits(1));                        /* the least f32 there is */
    check_number(of_bits(0x8000));                   /* half of the least bf16 */
    check_number(of_bits(0x8001));
    check_number(-0.0f);
}

/* A double is rounded once: what is a little above the middle goes up, though as an f32 it
 * is the middle. */
static void doubles_are_rounded_once(void **unused)
{
    (void)unused;
    static const double x[] = {1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8 - 0x1p-40, 1 + 3 * 0x1p-8, 1 + 3 * 0x1p-8 - 0x1p-40, 0x1.01p-130 + 0x1p-170,
                               3.389531389251535e38, 3.3961775292304957e38, 3.3961775292304958e38, 1e39, 1e-45, 1e-60, 0x1p-134, 0x1.8p-134 };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        for (int sign = -1; sign <= 1; sign += 2)
            if (bf16_round_double(sign * x[i]) != nearest(sign * x[i]))
                fail_msg("%a is rounded to %04x, expected %04x", sign * x[i], bf16_round_double(sign * x[i]), nearest(sign * x[i]));
}

static void no_number_stays_none(void **unused)
{
    (void)unused;
    static const uint32_t nan[] = {0x7fc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffff0000};
    for (size_t i = 0; i < sizeof nan / sizeof *nan; i++) {
        assert_true(isnan(bf16_value(bf16_round(of_bits(nan[i])))));
        assert_true(isnan(bf16_value(bf16_round_double((double)of_bits(nan[i])))));
        assert_int_equal(bf16_round(of_bits(nan[i])) >> 15, nan[i] >> 31);
    }
}

/* Vectors round as scalars do: a cast of every kind of number, at every place of a vector. */
static void vectors_round_alike(void **unused)
{
    (void)unused;
    enum { N = 331 };
    static _Alignas(64) float x[N], back[N];
    static _Alignas(64) Bf16 y[N];
    for (int i = 0; i < N; i++)
        x[i] = of_bits(i % 2 ? (uint32_t)i * 2654435761u : ((uint32_t)i * 2654435761u & 0xffff0000) | 0x8000);   /* by turns in the middle of two */
    Program *p = program_new(arena_new("test"));
    Tensor wide = {.dtype = DT_f32, .rank = 1, .axis = {{.local = N, .global = N}}}, half = wide;
    half.dtype = DT_bf16;
    Instr in = {.op = OP_cast, .narg = 1, .nout = 1, .nfactor = 1, .extent = {N}};
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++) {
        Team *team = team_new(1);
        KCall down = {.in = &in, .argt = {&wide}, .outt = {&half}, .arg = {x}, .out = {y}, .team = team};
        KCall up = {.in = &in, .argt = {&half}, .outt = {&wide}, .arg = {y}, .out = {back}, .team = team};
        kernel_find(OP_cast, DT_bf16, isa)(&down);
        kernel_find(OP_cast, DT_bf16, isa)(&up);
        for (int i = 0; i < N; i++) {
            assert_int_equal(y[i], bf16_round(x[i]));
            assert_true(isnan(x[i]) ? isnan(back[i]) : back[i] == bf16_value(y[i]));
        }
        team_free(team);
    }
    arena_free(p->arena);
}

/* ---- products ---- */

enum { ROOM = 1 << 20 };

typedef struct Matrices { Bf16 a[ROOM], b[ROOM]; char c[4 * ROOM], want[4 * ROOM]; } Matrices;

static double noise(uint32_t i)
{
    return (double)(i * 2654435761u) * 0x1p-31 - 1;
}

static double product_at(const Gemm *g, const Matrices *x, int64_t i, int64_t j, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t k = 0; k < g->k; k++) {
        double t = (double)bf16_value(x->a[g->ta ? k * g->lda + i : i * g->lda + k]) * (double)bf16_value(x->b[g->tb ? j * g->ldb + k : k * g->ldb + j]);
        sum += t;
        *size += fabs(t);
    }
    return sum;
}

/* Sums in f32, and one rounding to the type of C; columns between rows stay. */
static void check_product(Matrices *x, const Gemm *g, DType type, Team *team, bool blocks)
{
    Reals c = {type, x->c}, before = {type, x->want};
    for (int64_t i = 0; i < g->m * g->ldc; i++)
        put(c, i, noise((uint32_t)i + 5));
    memcpy(x->want, x->c, sizeof x->c);
    if (blocks)
        multiply_bf16_blocks(g, x->a, x->b, c);
    else
        gemm_bf16(team, g, x->a, x->b, x->c, type);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->ldc; j++) {
            double size = 0, had = get(before, i * g->ldc + j), got = get(c, i * g->ldc + j);
            double want = j < g->n ? product_at(g, x, i, j, &size) + g->beta * had : had;
            double allowed = j < g->n ? 4e-6 * (size + fabs(had)) + (type == DT_bf16 ? fabs(want) * 0x1.01p-8 : 0) : 0;
            if (!(fabs(got - want) <= allowed))
                fail_msg("%lld x %lld x %lld, ta %d tb %d beta %g to %s, team of %d%s: (%lld, %lld) is %.9g, expected %.9g", (long long)g->m, (long long)g->n,
                         (long long)g->k, g->ta, g->tb, g->beta, dtype_name(type), team ? team_size(team) : 0, blocks ? ", by blocks" : "", (long long)i,
                         (long long)j, got, want);
        }
}

static void products(void **unused)
{
    (void)unused;
    static Matrices x;
    static const int64_t size[][3] = {{1, 1, 1}, {5, 7, 3}, {33, 130, 65}, {70, 300, 520}, {530, 9, 40}, {3, 1050, 17}, {64, 48, 0}};
    for (uint32_t i = 0; i < ROOM; i++) {
        x.a[i] = bf16_round_double(noise(i));
        x.b[i] = bf16_round_double(noise(i + 77));
    }
    Team *team[2] = {team_new(1), team_new(3)};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++)
        for (int how = 0; how < 32; how++) {
            int64_t m = size[s][0], n = size[s][1], k = size[s][2], gap = how & 16 ? 3 : 0;
            Gemm g = {.ta = how & 1, .tb = how & 2, .m = m, .n = n, .k = k, .ldc = n + gap, .alpha = 1, .beta = how & 4 ? 1 : 0};
            g.lda = (g.ta ? m : k) + gap + (k == 0);
            g.ldb = (g.tb ? k : n) + gap + (k == 0);
            DType type = how & 8 ? DT_f32 : DT_bf16;
            check_product(&x, &g, type, team[0], false);
            check_product(&x, &g, type, team[1], false);
            if (k > 0)
                check_product(&x, &g, type, NULL, true);
        }
    team_free(team[0]);
    team_free(team[1]);
}

/* ---- gradients ---- */

/* The case in a type, its weights and inputs rounded to bf16 in any. */
typedef struct Trained { Arena *a; Maker m; Eval *e; } Trained;

static Trained train(const Case *c, DType type, Team *team)
{
    Trained t = {.a = arena_new("case")};
    t.m = case_make(t.a, c, 0, type, true);
    graph_differentiate(t.m.g);
    t.e = eval_new(t.m.g, type, isa_best(), team);
    case_fill(&t.m, t.e);
    for (uint32_t v = 0; v < t.m.g->nvalue; v++)
        for (int64_t i = 0; !has_op(t.m.g->value[v].maker) && dtype_is_float(t.m.g->value[v].dtype) && i < value_elements(t.m.g, (ValueId){v}); i++)
            eval_set(t.e, (ValueId){v}, i, (double)bf16_value(bf16_round_double(eval_get(t.e, (ValueId){v}, i))));
    for (int phase = PHASE_BEGIN; phase <= PHASE_BACKWARD; phase++)
        eval_phase(t.e, (Phase)phase);
    return t;
}

static void train_ends(Trained *t)
{
    eval_free(t->e);
    arena_free(t->a);
}

/* Distance of a gradient in bf16 from that in f64, over the norm of this. */
static double gradient_error(const Trained *half, const Trained *exact, uint32_t weight)
{
    const Weight *h = &half->m.g->weight[weight], *x = &exact->m.g->weight[weight];
    double distance = 0, norm = 0;
    if (!has_value(x->gradient))
        return 0;
    for (int64_t i = 0; i < value_elements(exact->m.g, x->value); i++) {
        double want = eval_get(exact->e, x->gradient, i), d = eval_get(half->e, h->gradient, i) - want;
        distance += d * d;
        norm += want * want;
    }
    return sqrt(distance) / (norm > 0 ? sqrt(norm) : 1);
}

/* What a value is rounded to lies within half a unit in its last place, 2^-8 of it.  A case
 * is one op, the sum that is its loss, and their gradients: a gradient is a function of a
 * few rounded values, which multiplies their errors by no more than a small number. */
static void gradients_are_those_of_f64(void **state)
{
    int wrong = 0;
    const Case *c;
    for (int i = 0; (c = case_at(i)); i++) {
        if (c->forward_only)
            continue;
        Trained half = train(c, DT_bf16, *state), exact = train(c, DT_f64, *state);
        for (uint32_t w = 0; w < exact.m.g->nweight; w++) {
            double error = gradient_error(&half, &exact, w);
            if (!(error <= 8 * 0x1p-8)) {
                print_message("%s: gradient of %s is off by %.2g of its norm\n", c->name, value_of(exact.m.g, exact.m.g->weight[w].value)->path, error);
                wrong++;
            }
        }
        train_ends(&half);
        train_ends(&exact);
    }
    assert_int_equal(wrong, 0);
}

/* ---- the optimizer ---- */

enum { STATES = 1003 };

typedef struct States { _Alignas(64) float w[STATES], g[STATES], m[STATES], v[STATES]; Bf16 rounded[STATES]; double norm; } States;

static void step_states(OpKind op, Isa isa, Team *team, States *s, bool rounds)
{
    static const Optimizer o = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.9, .clip = 1};
    Tensor t = {.dtype = DT_f32, .rank = 1, .axis = {{.local = STATES, .global = STATES}}}, h = t, scalar = {.dtype = DT_f64};
    h.dtype = DT_bf16;
    int moments = op == OP_adamw ? 2 : 1;
    Instr in = {.op = (OpKind)op, .narg = (uint8_t)(3 + moments), .nout = (uint8_t)(1 + moments + rounds), .nfactor = 1, .extent = {STATES}};
    in.attr[op_attr_index(op, "decays")] = ATTR_B(true);
    KStep step = {.lr = 1e-2, .correction1 = 0.1, .correction2 = 0.05, .optimizer = &o};
    KCall c = {.in = &in, .argt = {&t, &t, &t, &t}, .outt = {&t, &t, &t, &h}, .arg = {s->w, s->g, s->m, s->v}, .out = {s->w, s->m, s->v}, .step = &step, .team = team};
    c.argt[2 + moments] = &scalar;
    c.arg[2 + moments] = &s->norm;
    c.out[1 + moments] = rounds ? s->rounded : NULL;
    c.outt[1 + moments] = rounds ? &h : NULL;
    kernel_find(op, rounds ? DT_bf16 : DT_f32, isa)(&c);
}

/* With a master copy, the f32 states are those of an f32 run bit for bit, and the weights
 * are the master rounded; also where a norm that is no number changes nothing. */
static void a_master_is_stepped_as_f32(void **state)
{
    static States with, without;
    static const OpKind op[] = {OP_adamw, OP_sgd};
    for (int k = 0; k < 2; k++)
        for (Isa isa = ISA_REF; isa <= isa_best(); isa++)
            for (int bad = 0; bad < 2; bad++) {
                for (uint32_t i = 0; i < STATES; i++) {
                    with.w[i] = (float)noise(i);
                    with.g[i] = (float)noise(i + 11);
                    with.m[i] = (float)(0.1 * noise(i + 23));
                    with.v[i] = (float)fabs(noise(i + 31));
                }
                with.norm = bad ? NAN : 5;
                without = with;
                step_states(op[k], isa, *state, &with, true);
                step_states(op[k], isa, *state, &without, false);
                assert_memory_equal(with.w, without.w, sizeof with.w);
                assert_memory_equal(with.m, without.m, sizeof with.m);
                assert_memory_equal(with.v, without.v, sizeof with.v);
                for (int i = 0; i < STATES; i++)
                    assert_int_equal(with.rounded[i], bf16_round(with.w[i]));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_are_rounded_to_the_nearest),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(no_number_stays_none),
        cmocka_unit_test(vectors_round_alike),
        cmocka_unit_test(products),
        cmocka_unit_test(gradients_are_those_of_f64),
        cmocka_unit_test(a_master_is_stepped_as_f32),
    };
    return cmocka_run_group_tests(tests, team_of_one, team_ends);
}
