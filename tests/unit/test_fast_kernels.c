/* Every fast kernel against its plain form, in f32 and where there is one in bf16:
 * shapes that are no multiple of a register or a tile, added to and overwritten
 * results, teams of 1, 2 and 3, all instruction sets this CPU has, and every run
 * twice, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

#include "tests/call.h"

enum { TEAMS = 3 };

/* Results of one run, from the same start as every other; the caller frees them. */
static void run(Made *m, Kernel f, Team *team, void *result[MAX_OUTS])
{
    m->call.team = team;
    for (int i = 0; i < m->in.nout; i++)
        if (m->call.out[i])
            memcpy(m->call.out[i], m->start[i], (size_t)tensor_bytes(m->call.outt[i]));
    f(&m->call);
    for (int i = 0; i < m->in.nout; i++) {
        result[i] = NULL;
        if (!m->call.out[i])
            continue;
        result[i] = room(m->call.outt[i]);
        memcpy(result[i], m->call.out[i], (size_t)tensor_bytes(m->call.outt[i]));
    }
}

/* To 1e-5 of the element, or of the tensor's root mean square where that is larger; a
 * bf16 may be rounded up by one form and down by the other, 2^-7 of it. */
static void assert_near(const Case *k, const char *how, const Tensor *t, const void *want, const void *got)
{
    int64_t n = tensor_elements(t);
    double square = 0;
    for (int64_t i = 0; i < n; i++) {
        double w = real_at(t, want, i);
        square += isfinite(w) ? w * w : 0;
    }
    double scale = sqrt(square / (double)(n ? n : 1)), allowed = t->dtype == DT_bf16 ? 0x1.02p-7 : 1e-5;
    for (int64_t i = 0; i < n; i++) {
        double w = real_at(t, want, i), g = real_at(t, got, i), size = fabs(w) > scale ? fabs(w) : scale;
        if (w == g || (isnan(w) && isnan(g)) || fabs(w - g) <= allowed * size)
            continue;
        fail_msg("%s [%s] %s: element %ld of a result of %ld: %.9g, the plain form has %.9g", k->call, k->extents, how, (long)i, (long)n, g, w);
    }
}

static void compare(Made *m, const Case *k, Isa isa, Team *team)
{
    char how[64];
    snprintf(how, sizeof how, "%s, %s, team of %d, acc %d", dtype_name(m->real), isa_name(isa), team_size(team), m->in.acc_out);
    void *want[MAX_OUTS], *got[MAX_OUTS], *again[MAX_OUTS];
    Kernel fast = kernel_find(m->in.op, m->real, isa);
    assert_true(fast != kernel_ref(m->in.op));
    run(m, kernel_ref(m->in.op), team, want);
    run(m, fast, team, got);
    run(m, fast, team, again);
    for (int i = 0; i < m->in.nout; i++) {
        if (!got[i])
            continue;
        assert_near(k, how, m->call.outt[i], want[i], got[i]);
        assert_memory_equal(got[i], again[i], (size_t)tensor_bytes(m->call.outt[i]));
        free(want[i]);
        free(got[i]);
        free(again[i]);
    }
}

static void check(const Case *k, DType real)
{
    for (int n = 1; n <= TEAMS; n++) {
        Team *team = team_new(n);
        assert_non_null(team);
        Made m;
        make_call_in(&m, k, real, (uint64_t)n * 77);
        bool adds = op_info[m.in.op].flags & OPF_ACCUM;
        for (int acc = 0; acc <= (adds ? 1 : 0); acc++) {
            m.in.acc_out = (uint8_t)(acc ? (1 << m.in.nout) - 1 : 0);
            for (Isa isa = ISA_V2; isa <= isa_best(); isa++)
                compare(&m, k, isa, team);
        }
        free_call(&m);
        team_free(team);
    }
}

/* Steps of optimizers in bf16 are those of test_bf16: their states are f32. */
static bool has_bf16(const Case *k)
{
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(k->call, ":"), k->call);
    OpKind op = op_find(name);
    return op != OP_adamw && op != OP_sgd && kernel_find(op, DT_bf16, ISA_V2) != kernel_ref(op);
}

static void check_all(const Case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        check(&cases[i], DT_f32);
        if (has_bf16(&cases[i]))
            check(&cases[i], DT_bf16);
    }
}

#define CHECK(cases) check_all(cases, sizeof(cases) / sizeof *(cases))

static void test_elementwise(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"add: bsd bsd -> bsd", "b=3 s=5 d=37", 2, 0},
        {"add: bsd sd -> bsd", "b=3 s=5 d=37", 2, 0},
        {"add: bsd d -> bsd", "b=2 s=3 d=9001", 2, 0},
        {"add: bsd bs -> bsd", "b=3 s=5 d=37", 2, 0},
        {"add: sd bsd -> bsd", "b=3 s=5 d=64", 2, 0},
        {"add: bsd . -> bsd", "b=3 s=5 d=37", 2, 0},
        {"add: bsd sbd -> bsd", "b=3 s=5 d=37", 2, 0},
        {"add: bsd ds -> bsd", "b=3 s=5 d=7", 2, 0},
        {"add: . . -> .", "b=1", 2, 0},
        {"sub: bd bd -> bd", "b=1 d=1", 2, 0},
        {"mul: bd d -> bd", "b=7 d=19", 2, 0},
        {"div: bd +bd -> bd", "b=7 d=19", 2, 0},
        {"scale: bd -> bd | by=0.3", "b=7 d=1019", 2, 0},
        {"shift: bd -> bd | by=0.3", "b=7 d=1019", 2, 0},
        {"reciprocal: +bd -> bd | by=0.3", "b=7 d=19", 2, 0},
        {"relu: bd -> bd", "b=7 d=19", 2, 0},
        {"silu: bd -> bd", "b=7 d=19", 20, 0},
        {"silu: bd -> bd", "b=7 d=19", 200, 0},
        {"gelu: bd -> bd | exact=false", "b=7 d=519", 6, 0},
        {"gelu: bd -> bd | exact=false", "b=7 d=19", 200, 0},
        {"gelu: bd -> bd | exact=true", "b=7 d=519", 6, 0},
        {"gelu: bd -> bd | exact=true", "b=7 d=19", 200, 0},
        {"relu_grad: bd bd -> bd", "b=7 d=19", 2, 0},
        {"tanh_grad: bd bd -> bd", "b=7 d=19", 0.9, 0},
        {"silu_grad: bd bd -> bd", "b=7 d=19", 9, 0},
        {"gelu_grad: bd bd -> bd | exact=false", "b=7 d=519", 6, 0},
        {"gelu_grad: bd bd -> bd | exact=true", "b=7 d=519", 6, 0},
        {"silu_mul: bd bd -> bd", "b=7 d=19", 9, 0},
        {"silu_mul_grad: bd bd bd -> bd bd", "b=7 d=5019", 9, 0},
        {"silu_mul_grad: bd bd bd -> - bd", "b=7 d=19", 9, 0},
        {"dropout: bsd -> bsd | p=0.1", "b=3 s=5 d=37", 2, 0},
        {"dropout: bsd -> bsd | p=0.5", "b=3 s=5 d=2051", 2, 0},
        {"dropout: d -> d | p=0.5", "d=3", 2, 0},
    };
    CHECK(cases);
}

static void test_norms(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"layernorm: bsd d d -> bsd ~bs ~bs | eps=0.00001", "b=3 s=5 d=37", 2, 0},
        {"layernorm: bsd d - -> bsd - - | eps=0.00001", "b=1 s=1 d=768", 2, 0},
        {"rmsnorm: bsd d -> bsd ~bs | eps=0.00001", "b=3 s=5 d=131", 2, 0},
        {"add_layernorm: bsd bsd d d -> bsd bsd ~bs ~bs | eps=0.00001", "b=3 s=5 d=37", 2, 0},
        {"add_rmsnorm: bsd bsd d -> bsd bsd ~bs | eps=0.00001", "b=3 s=5 d=37", 2, 0},
        {"layernorm_grad: bsd bsd d ~bs ~+bs -> bsd ~d ~d", "b=3 s=5 d=37", 2, 0},
        {"layernorm_grad: bsd bsd d ~bs ~+bs -> - ~d ~d", "b=3 s=5 d=768", 2, 0},
        {"layernorm_grad: bsd bsd d ~bs ~+bs -> bsd - -", "b=1 s=1 d=5", 2, 0},
        {"rmsnorm_grad: bsd bsd d ~+bs -> bsd ~d", "b=3 s=5 d=37", 2, 0},
    };
    CHECK(cases);
}

static void test_sums(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"reduce: bsd -> d | mean=false", "b=3 s=15 d=37", 2, 0},
        {"reduce: bsd -> d | mean=true", "b=3 s=5 d=2000", 2, 0},
        {"reduce: bshe -> he | mean=false", "b=3 s=5 h=3 e=7", 2, 0},
        {"reduce: bsd -> sd | mean=false", "b=3 s=5 d=37", 2, 0},
        {"reduce: bsd -> bd | mean=false", "b=3 s=5 d=1037", 2, 0},
        {"reduce: bsd -> bs | mean=true", "b=3 s=5 d=37", 2, 0},
        {"reduce: bsd -> b | mean=true", "b=3 s=5 d=37", 2, 0},
        {"reduce: bsd -> s | mean=true", "b=3 s=5 d=37", 2, 0},
        {"reduce: bsd -> ~d | mean=false", "b=3 s=150 d=37", 2, 0},
        {"reduce: bsd -> . | mean=true", "b=3 s=5 d=37", 2, 0},
        {"reduce: bsd -> ds | mean=false", "b=3 s=5 d=37", 2, 0},
        {"expand: d -> bsd | mean=false", "b=3 s=5 d=37", 2, 0},
        {"expand: bs -> bsd | mean=true", "b=3 s=5 d=37", 2, 0},
        {"expand: . -> bsd | mean=true", "b=3 s=5 d=37", 2, 0},
        {"expand: bd -> bsd | mean=true", "b=3 s=5 d=37", 2, 0},
        {"sum_squares: d -> .", "d=10007", 2, 0},
        {"sum_squares: d -> @.", "d=3", 2, 0},
    };
    CHECK(cases);
}

static void test_losses(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"softmax: bsv -> bsv", "b=3 s=5 v=37", 9, 0},
        {"softmax: bv -> bv", "b=3 v=5001", 30, 0},
        {"softmax_grad: bsv bsv -> bsv", "b=3 s=5 v=37", 1, 0},
        {"cross_entropy: bsv #bs ~+. -> ~. ~bs | smooth=0.0", "b=3 s=5 v=37", 9, 37},
        {"cross_entropy: bsv #bs ~+. -> ~. - | smooth=0.1 ignore=2", "b=3 s=5 v=37", 9, 9},
        {"cross_entropy: bsv #bs ~+. -> ~. ~bs | smooth=0.0", "b=30 s=5 v=1100", 60, 1100},
        {"cross_entropy_grad: ~. bsv #bs ~bs ~+. -> bsv | smooth=0.0", "b=3 s=5 v=37", 2, 37},
        {"cross_entropy_grad: ~. bsv #bs ~bs ~+. -> bsv | smooth=0.1 ignore=2", "b=3 s=5 v=37", 2, 9},
        {"cross_entropy_both: bsv #bs ~+. ~. -> ~. bsv | smooth=0.0 seed=0.7", "b=3 s=5 v=37", 9, 37},
        {"cross_entropy_both: bsv #bs ~+. - -> ~. bsv | smooth=0.2 seed=1.0 ignore=3", "b=3 s=5 v=2037", 9, 37},
    };
    CHECK(cases);
}

static void test_tables(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"embed: #bs vd -> bsd", "b=3 s=5 v=11 d=37", 1, 11},
        {"embed: #bs vd -> bds", "b=3 s=5 v=11 d=37", 1, 11},
        {"embed_grad: #bs bsd -> ~vd", "b=3 s=5 v=4 d=37", 1, 4},
        {"embed_grad: #bs bds -> ~vd", "b=3 s=5 v=4 d=37", 1, 4},
        {"rope: bshe - -> bshe | base=10000.0", "b=3 s=5 h=2 e=10", 1, 0},
        {"rope: bshe #bs -> bshe | base=10000.0", "b=3 s=5 h=2 e=64", 1, 900},
        {"rope: she - -> she | base=500000.0", "s=70 h=1 e=34", 1, 0},
        {"rope_grad: bshe - -> bshe | base=10000.0", "b=3 s=5 h=2 e=10", 1, 0},
        {"rope_grad: bshe #bs -> bshe | base=10000.0", "b=3 s=5 h=2 e=6", 1, 20},
    };
    CHECK(cases);
}

static void test_optimizers(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"adamw: n n n +n +. -> n n n | decays=true", "n=1003", 1, 0},
        {"adamw: n n n +n +. -> n n n | decays=false", "n=5", 40, 0},
        {"sgd: n n n @. -> n n | decays=true", "n=1003", 1, 0},
        {"sgd: n n - @. -> n - | decays=false", "n=77", 40, 0},
    };
    CHECK(cases);
}

static void test_products(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"contract: bsk kn -> bsn", "b=3 s=43 k=70 n=131", 1, 0},
        {"contract: bsn kn -> bsk", "b=3 s=43 k=70 n=131", 1, 0},
        {"contract: bsk bsn -> kn", "b=3 s=43 k=70 n=131", 1, 0},
        {"contract: bsk vk -> bsv", "b=2 s=60 k=300 v=1101", 1, 0},
        {"contract: bsv vk -> bsk", "b=2 s=60 k=65 v=1101", 1, 0},
        {"contract: bsv bsk -> vk", "b=4 s=133 k=65 v=301", 1, 0},
        {"contract: bsk bsn -> ~kn", "b=3 s=43 k=70 n=131", 1, 0},
        {"contract: bmk bkn -> bmn", "b=3 m=5 k=7 n=9", 1, 0},
        {"linear: bsk kn n -> bsn", "b=3 s=43 k=70 n=131", 1, 0},
        {"linear: bsk khe he -> bshe", "b=3 s=43 k=70 h=4 e=17", 1, 0},
        {"linear: bshe hek k -> bsk", "b=3 s=43 k=70 h=4 e=17", 1, 0},
        {"linear: bsk kn - -> bsn", "b=1 s=1 k=70 n=131", 1, 0},
        {"linear_gelu: bsk kn n -> bsn bsn | exact=false", "b=3 s=43 k=70 n=131", 1, 0},
        {"linear_gelu: bsk kn - -> bsn - | exact=true", "b=3 s=4 k=7 n=13", 1, 0},
    };
    CHECK(cases);
}

/* Gradients are those of the plain form's own result and log-sum-exp only when these
 * are given; here they are any numbers, lse above every score. */
static void test_attention(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"attention: bshe bthe bthe - - - -> bshe ~bsh | causal=true dropout=0.0", "b=2 s=64 t=64 h=3 e=64", 1, 0},
        {"attention: bshe bthe bthe - - - -> bshe - | causal=true dropout=0.0", "b=1 s=150 t=150 h=1 e=10", 3, 0},
        {"attention: bshe btge btge - - - -> bshe ~bsh | causal=true window=70 dropout=0.0", "b=1 s=200 t=200 h=4 g=2 e=32", 2, 0},
        {"attention: bshe btge btge - - - -> bshe ~bsh | causal=true window=3 dropout=0.0 scale=0.5", "b=2 s=131 t=131 h=2 g=1 e=7", 2, 0},
        {"attention: she tge tge - - - -> she ~sh | causal=false dropout=0.0", "s=1 t=77 h=4 g=2 e=16", 2, 0},
        {"attention: bshe bthe bthe - - - -> bshe ~bsh | causal=true dropout=0.3", "b=2 s=70 t=70 h=3 e=24", 1, 0},
        {"attention: bshe bthe bthe - - #bt -> bshe ~bsh | causal=true dropout=0.0", "b=2 s=70 t=70 h=1 e=8", 1, 2},
        {"attention: bshe bthe bthe - hst - -> bshe ~bsh | causal=true dropout=0.0", "b=2 s=7 t=7 h=2 e=8", 1, 2},
        {"attention_grad: bshe bshe bthe bthe bshe ~+bsh - - - -> bshe bthe bthe - | causal=true dropout=0.0", "b=2 s=64 t=64 h=3 e=64", 1, 0},
        {"attention_grad: bshe bshe bthe bthe bshe ~+bsh - - - -> bshe bthe bthe - | causal=true dropout=0.0", "b=1 s=150 t=150 h=1 e=10", 1, 0},
        {"attention_grad: bshe bshe btge btge bshe ~+bsh - - - -> bshe btge btge - | causal=true window=70 dropout=0.0", "b=1 s=200 t=200 h=4 g=2 e=32", 1, 0},
        {"attention_grad: she she tge tge she ~+sh - - - -> she tge tge - | causal=false dropout=0.0", "s=1 t=77 h=4 g=2 e=16", 1, 0},
        {"attention_grad: bshe bshe bthe bthe bshe ~+bsh - - - -> bshe bthe bthe - | causal=true dropout=0.3", "b=2 s=70 t=70 h=3 e=24", 1, 0},
        {"attention_grad: bshe bshe bthe bthe bshe ~+bsh - - #bt -> - bthe - - | causal=true dropout=0.3 scale=0.3", "b=2 s=70 t=70 h=1 e=5", 1, 2},
        {"attention_grad: bshe bshe bthe bthe bshe ~+bsh - hst - -> bshe bthe bthe hst | causal=true dropout=0.0", "b=2 s=7 t=7 h=2 e=8", 1, 2},
    };
    CHECK(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_norms), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_losses), cmocka_unit_test(test_tables), cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
