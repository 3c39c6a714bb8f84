/* Sums and maxima of several arrays, and copies: every instruction set this CPU has,
 * bit for bit against a plain loop; odd lengths and places, in place, around the caches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/combine.h"

enum { MOST = 5, ROOM = 8192, EDGE = 64 };           /* arrays; bytes of one */

typedef struct Arrays { _Alignas(64) unsigned char at[MOST][ROOM]; } Arrays;

#define PLAIN(T, U)                                                                                  \
    for (int64_t i = c->first; i < c->end; i++) {                                                    \
        T x = ((const T *)c->in[0])[i];                                                              \
        for (int k = 1; k < c->nin; k++) {                                                           \
            T y = ((const T *)c->in[k])[i];                                                          \
            x = c->op == REDUCE_SUM ? (T)((U)x + (U)y) : x > y || x != x ? x : y;                     \
        }                                                                                            \
        for (int o = 0; o < c->nout; o++)                                                            \
            ((T *)c->out[o])[i] = x;                                                                 \
    }

/* In f32, rounded at the end. */
static void plain_bf16(const Combine *c)
{
    for (int64_t i = c->first; i < c->end; i++) {
        float x = bf16_value(((const Bf16 *)c->in[0])[i]);
        for (int k = 1; k < c->nin; k++) {
            float y = bf16_value(((const Bf16 *)c->in[k])[i]);
            x = c->op == REDUCE_SUM ? x + y : x > y || x != x ? x : y;
        }
        for (int o = 0; o < c->nout; o++)
            ((Bf16 *)c->out[o])[i] = bf16_round(x);
    }
}

static void plain(const Combine *c)
{
    switch ((int)c->dtype) {
    case DT_bf16: plain_bf16(c); break;
    case DT_f32: PLAIN(float, float) break;
    case DT_f64: PLAIN(double, double) break;
    case DT_i32: PLAIN(int32_t, uint32_t) break;
    case DT_i64: PLAIN(int64_t, uint64_t) break;
    }
}

static void fill(Arrays *a, DType dtype)
{
    uint64_t h = 1;
    for (int k = 0; k < MOST; k++)
        for (int i = 0; i < ROOM; i += dtype_bytes(dtype)) {
            h = h * 6364136223846793005u + 1442695040888963407u;
            float f = h >> 60 == 3 ? NAN : (float)((double)(int64_t)h * 1e-12);
            double d = f;
            Bf16 b = bf16_round(f);
            const void *from = dtype == DT_f32 ? (const void *)&f : dtype == DT_f64 ? (const void *)&d : dtype == DT_bf16 ? (const void *)&b : (const void *)&h;
            memcpy(a->at[k] + i, from, (size_t)dtype_bytes(dtype));
        }
}

/* Outputs are the first arrays themselves, or others; `shift` elements off a cache line. */
static void combine_once(DType dtype, ReduceOp op, int nin, int nout, bool in_place, int shift, int64_t n, bool stream, Isa isa)
{
    static Arrays from, want, got, want_out, got_out;
    const void *in[2][MOST];
    void *out[2][MOST];
    int64_t size = dtype_bytes(dtype);
    fill(&from, dtype);
    want = got = from;
    memset(&want_out, 0x5a, sizeof want_out);
    got_out = want_out;
    for (int k = 0; k < MOST; k++) {
        in[0][k] = want.at[k] + EDGE + shift * size;
        in[1][k] = got.at[k] + EDGE + shift * size;
        out[0][k] = (in_place ? want.at[k] : want_out.at[k]) + EDGE + shift * size;
        out[1][k] = (in_place ? got.at[k] : got_out.at[k]) + EDGE + shift * size;
    }
    Combine c = {.dtype = dtype, .op = op, .nin = nin, .nout = nout, .in = in[0], .out = out[0], .first = 3, .end = 3 + n, .stream = stream};
    plain(&c);
    c.in = in[1];
    c.out = out[1];
    combine(&c, isa);
    if (memcmp(&want, &got, sizeof want) != 0 || memcmp(&want_out, &got_out, sizeof want_out) != 0)
        fail_msg("%s, op %d, %d to %d, in place %d, shift %d, n %ld, stream %d: %s differs from the plain loop", dtype_name(dtype), (int)op,
                 nin, nout, in_place, shift, (long)n, stream, isa_name(isa));
}

static void sums_and_maxima(void **state)
{
    (void)state;
    const DType dtype[] = {DT_f32, DT_f64, DT_bf16, DT_i32, DT_i64};
    const int64_t lengths[] = {0, 1, 15, 16, 17, 64, 129, 509};
    for (Isa isa = ISA_V2; isa <= isa_best(); isa++)
        for (int d = 0; d < 5; d++)
            for (int how = 0; how < 32; how++)
                for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
                    for (int nin = 1; nin <= MOST; nin++)
                        combine_once(dtype[d], how & 1 ? REDUCE_MAX : REDUCE_SUM, nin, how & 8 ? nin : 1, how & 2, how & 4 ? 5 : 13,
                                     lengths[l], how & 16, isa);
}

static void copies(void **state)
{
    (void)state;
    static Arrays a, b;
    for (Isa isa = ISA_V2; isa <= isa_best(); isa++)
        for (int64_t n = 0; n < 1200; n += n < 300 ? 1 : 37)
            for (int shift = 0; shift < 4; shift++)
                for (CopyWay way = COPY_PLAIN; way <= COPY_STREAM; way++) {
                    fill(&a, DT_i64);
                    memset(&b, 0x5a, sizeof b);
                    unsigned char *to = b.at[0] + EDGE + (shift & 1) * 3, *from = a.at[0] + (shift & 2);
                    copy_bytes(to, from, n, way, isa);
                    assert_memory_equal(to, from, (size_t)n);
                    assert_int_equal(to[-1], 0x5a);
                    assert_int_equal(to[n], 0x5a);
                }
}

/* Ways go from plain to strings, where there are any, to streaming. */
static void way_grows_with_what_is_touched(void **state)
{
    (void)state;
    const Caches with = {.last = 1000, .strings = true}, without = {.last = 1000};
    assert_int_equal(copy_way(&with, 499), COPY_PLAIN);
    assert_int_equal(copy_way(&with, 500), COPY_STRING);
    assert_int_equal(copy_way(&with, 1999), COPY_STRING);
    assert_int_equal(copy_way(&with, 2000), COPY_STREAM);
    assert_int_equal(copy_way(&without, 1999), COPY_PLAIN);
    assert_int_equal(copy_way(&without, 2000), COPY_STREAM);
    assert_false(combine_streams(&with, 999));
    assert_true(combine_streams(&with, 1000));
    assert_true(caches_read().last > 0);
}

static void other_types_are_not_had(void **state)
{
    (void)state;
    assert_true(combine_has(DT_f32, REDUCE_MAX));
    assert_false(combine_has(DT_f16, REDUCE_SUM));
    assert_false(combine_has(DT_bool, REDUCE_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_and_maxima), cmocka_unit_test(copies),
                                       cmocka_unit_test(way_grows_with_what_is_touched), cmocka_unit_test(other_types_are_not_had)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
