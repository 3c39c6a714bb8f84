/* Cases of ops on numbers and shapes: one function per way of using an op. */
#include <string.h>

#include "tests/ops/maker.h"

/* ---- element by element ---- */

static ValueId unary(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 129);
    OpSpec s = start(m, m->of->op, ARGS(reals(m, "x", AXES(a, b))));
    result(&s, NULL, m->real, AXES(a, b));
    if (s.kind == OP_scale || s.kind == OP_shift)
        set(&s, "by", ATTR_F(-0.7));
    if (s.kind == OP_dropout)
        set(&s, "p", ATTR_F(0.3));
    if (s.kind == OP_cast)
        set(&s, "to", ATTR_T(m->real));
    return finish(m, &s);
}

static ValueId reciprocal(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 129);
    OpSpec s = start(m, OP_reciprocal, ARGS(reals_in(m, "x", 0.5, 2, AXES(a, b))));
    set(&s, "by", ATTR_F(1.25));
    result(&s, NULL, m->real, AXES(a, b));
    return finish(m, &s);
}

static ValueId gelu_exact(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 129);
    OpSpec s = start(m, OP_gelu, ARGS(reals_in(m, "x", -4, 4, AXES(a, b))));
    set(&s, "exact", ATTR_B(true));
    result(&s, NULL, m->real, AXES(a, b));
    return finish(m, &s);
}

static ValueId binary(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 129);
    ValueId x = reals(m, "x", AXES(a, b)), y = reals_in(m, "y", 0.5, 2, AXES(a, b));
    return simple(m, m->of->op, ARGS(x, y), AXES(a, b));
}

/* The second operand lacks the first axis. */
static ValueId binary_row(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 129);
    ValueId x = reals(m, "x", AXES(a, b)), y = reals_in(m, "y", 0.5, 2, AXES(b));
    return simple(m, m->of->op, ARGS(x, y), AXES(a, b));
}

/* Each operand lacks an axis, and orders differ. */
static ValueId binary_mixed(Maker *m)
{
    DimId a = dim(m, "a", 3, 19), b = dim(m, "b", 5, 23), c = dim(m, "c", 2, 7);
    ValueId x = reals(m, "x", AXES(c, a)), y = reals_in(m, "y", 0.5, 2, AXES(b, a));
    return simple(m, m->of->op, ARGS(x, y), AXES(a, b, c));
}

static ValueId binary_twice(Maker *m)
{
    DimId a = dim(m, "a", 3, 37);
    ValueId x = reals_in(m, "x", 0.5, 2, AXES(a));
    return simple(m, m->of->op, ARGS(x, x), AXES(a));
}

/* ---- products ---- */

static ValueId linear(Maker *m)
{
    DimId a = dim(m, "a", 2, 3), s = dim(m, "s", 3, 35), k = dim(m, "k", 4, 67), n = dim(m, "n", 5, 93);
    ValueId x = reals(m, "x", AXES(a, s, k)), w = reals(m, "w", AXES(k, n)), b = reals(m, "b", AXES(n));
    return simple(m, OP_linear, ARGS(x, w, b), AXES(a, s, n));
}

static ValueId linear_plain(Maker *m)
{
    DimId a = dim(m, "a", 1, 1), s = dim(m, "s", 3, 35), k = dim(m, "k", 4, 67), n = dim(m, "n", 5, 93);
    return simple(m, OP_linear, ARGS(reals(m, "x", AXES(a, s, k)), reals(m, "w", AXES(k, n))), AXES(a, s, n));
}

/* A square matrix carries one dim under two roles. */
static ValueId linear_square(Maker *m)
{
    DimId a = dim(m, "a", 3, 35), k = dim(m, "k", 4, 67);
    ValueId v[3] = {reals(m, "x", AXES(a, k)), reals(m, "w", AXES(k, k)), reals(m, "b", AXES(k))};
    OpSpec s = start(m, OP_linear, 3, v);
    s.by_dim = false;
    result(&s, NULL, m->real, AXES(a, k));
    memcpy(s.label[0], (uint8_t[]){0, 1}, 2);
    memcpy(s.label[1], (uint8_t[]){1, 2}, 2);
    memcpy(s.label[2], (uint8_t[]){2}, 1);
    memcpy(s.out[0].label, (uint8_t[]){0, 2}, 2);
    return finish(m, &s);
}

static ValueId linear_lists(Maker *m)
{
    DimId a = dim(m, "a", 3, 35), h = dim(m, "h", 2, 5), e = dim(m, "e", 3, 16), g = dim(m, "g", 2, 3), n = dim(m, "n", 5, 31);
    ValueId x = reals(m, "x", AXES(a, h, e)), w = reals(m, "w", AXES(h, e, g, n)), b = reals(m, "b", AXES(g, n));
    return simple(m, OP_linear, ARGS(x, w, b), AXES(a, g, n));
}

/* The summed axis is not the last one. */
static ValueId linear_over(Maker *m)
{
    DimId a = dim(m, "a", 3, 5), k = dim(m, "k", 4, 67), s = dim(m, "s", 2, 35), n = dim(m, "n", 5, 93);
    ValueId x = reals(m, "x", AXES(a, k, s)), w = reals(m, "w", AXES(k, n)), b = reals(m, "b", AXES(n));
    return simple(m, OP_linear, ARGS(x, w, b), AXES(a, s, n));
}

static ValueId linear_per(Maker *m)
{
    DimId a = dim(m, "a", 2, 3), x = dim(m, "expert", 3, 4), s = dim(m, "s", 2, 17), k = dim(m, "k", 4, 67), n = dim(m, "n", 5, 93);
    ValueId in = reals(m, "x", AXES(a, x, s, k)), w = reals(m, "w", AXES(x, k, n)), b = reals(m, "b", AXES(x, n));
    return simple(m, OP_linear, ARGS(in, w, b), AXES(a, x, s, n));
}

static ValueId contract_matrix(Maker *m)
{
    DimId a = dim(m, "a", 3, 35), k = dim(m, "k", 4, 67), n = dim(m, "n", 5, 93);
    return simple(m, OP_contract, ARGS(reals(m, "x", AXES(a, k)), reals(m, "y", AXES(n, k))), AXES(a, n));
}

static ValueId contract_swapped(Maker *m)
{
    DimId a = dim(m, "a", 3, 35), k = dim(m, "k", 4, 67), n = dim(m, "n", 5, 93);
    return simple(m, OP_contract, ARGS(reals(m, "x", AXES(k, a)), reals(m, "y", AXES(k, n))), AXES(n, a));
}

static ValueId contract_heads(Maker *m)
{
    DimId b = dim(m, "b", 2, 3), s = dim(m, "s", 3, 21), t = dim(m, "t", 4, 33), h = dim(m, "h", 2, 5), e = dim(m, "e", 3, 19);
    return simple(m, OP_contract, ARGS(reals(m, "q", AXES(b, s, h, e)), reals(m, "k", AXES(b, t, h, e))), AXES(b, h, s, t));
}

static ValueId contract_outer(Maker *m)
{
    DimId a = dim(m, "a", 3, 35), n = dim(m, "n", 5, 93);
    return simple(m, OP_contract, ARGS(reals(m, "x", AXES(a)), reals(m, "y", AXES(n))), AXES(a, n));
}

/* An axis of one operand alone is summed. */
static ValueId contract_alone(Maker *m)
{
    DimId a = dim(m, "a", 3, 35), k = dim(m, "k", 4, 67), c = dim(m, "c", 2, 3), n = dim(m, "n", 5, 93);
    return simple(m, OP_contract, ARGS(reals(m, "x", AXES(a, c, k)), reals(m, "y", AXES(k, n))), AXES(a, n));
}

/* An order that is no matrix: the plain form runs at every level. */
static ValueId contract_scattered(Maker *m)
{
    DimId a = dim(m, "a", 3, 5), b = dim(m, "b", 2, 3), k = dim(m, "k", 4, 17), l = dim(m, "l", 2, 3), n = dim(m, "n", 5, 9);
    return simple(m, OP_contract, ARGS(reals(m, "x", AXES(k, a, l, b)), reals(m, "y", AXES(l, n, k))), AXES(b, n, a));
}

/* One table looked up and multiplied by: its gradients add up. */
static ValueId tied(Maker *m)
{
    DimId s = dim(m, "s", 4, 33), v = dim(m, "v", 7, 101), d = dim(m, "d", 3, 24);
    ValueId table = reals(m, "table", AXES(v, d)), ids = integers(m, "ids", DT_i32, 0, extent(m, v), AXES(s));
    ValueId x = simple(m, OP_embed, ARGS(ids, table), AXES(s, d));
    return simple(m, OP_contract, ARGS(x, table), AXES(s, v));
}

/* ---- tables and positions ---- */

static ValueId embed(Maker *m)
{
    DimId b = dim(m, "b", 2, 5), s = dim(m, "s", 4, 149), v = dim(m, "v", 5, 19), d = dim(m, "d", 3, 261);
    ValueId ids = integers(m, "ids", DT_i64, 0, extent(m, v), AXES(b, s));
    return simple(m, OP_embed, ARGS(ids, reals(m, "table", AXES(v, d))), AXES(b, s, d));
}

static ValueId embed_positions(Maker *m)
{
    DimId s = dim(m, "s", 4, 33), v = dim(m, "v", 5, 101), d = dim(m, "d", 3, 24);
    OpSpec pos = start(m, OP_iota, SCALAR);
    result(&pos, NULL, DT_i32, AXES(s));
    return simple(m, OP_embed, ARGS(finish(m, &pos), reals(m, "table", AXES(v, d))), AXES(s, d));
}

static ValueId rope(Maker *m)
{
    DimId b = dim(m, "b", 2, 3), s = dim(m, "s", 5, 33), h = dim(m, "h", 2, 3), e = dim(m, "e", 6, 34);
    return simple(m, OP_rope, ARGS(reals(m, "x", AXES(b, s, h, e))), AXES(b, s, h, e));
}

static ValueId rope_at(Maker *m)
{
    DimId b = dim(m, "b", 2, 3), s = dim(m, "s", 5, 33), h = dim(m, "h", 2, 3), e = dim(m, "e", 6, 34);
    ValueId at = integers(m, "at", DT_i32, 0, 50, AXES(b, s));
    OpSpec o = start(m, OP_rope, ARGS(reals(m, "x", AXES(b, s, h, e)), at));
    set(&o, "base", ATTR_F(500.0));
    result(&o, NULL, m->real, AXES(b, s, h, e));
    return finish(m, &o);
}

/* Given positions, so far that f32 cannot turn by them, which differ along b and are shared along a; many heads, rows that can be loaded
 * 16 bytes at a time, and a result in another order of axes. */
static ValueId rope_far(Maker *m)
{
    DimId a = dim(m, "a", 2, 19), b = dim(m, "b", 2, 2), s = dim(m, "s", 3, 2), h = dim(m, "h", 2, 29), e = dim(m, "e", 6, 16);
    ValueId at = integers(m, "at", DT_i32, 999000, 1000000, AXES(b, s));
    return simple(m, OP_rope, ARGS(reals(m, "x", AXES(a, b, s, h, e)), at), AXES(b, a, s, h, e));
}

static ValueId relative_bias(Maker *m, bool two_way)
{
    DimId h = dim(m, "h", 2, 3), s = dim(m, "s", 7, 41), t = dim(m, "t", 9, 57), b = dim(m, "b", 8, 32);
    OpSpec o = start(m, OP_relative_bias, ARGS(reals(m, "w", AXES(b, h))));
    set(&o, "buckets", ATTR_I((int64_t)extent(m, b)));
    set(&o, "reach", ATTR_I(m->scale ? 40 : 6));
    set(&o, "two_way", ATTR_B(two_way));
    result(&o, NULL, m->real, AXES(h, s, t));
    return finish(m, &o);
}

static ValueId relative_two_way(Maker *m)
{
    return relative_bias(m, true);
}

static ValueId relative_one_way(Maker *m)
{
    return relative_bias(m, false);
}

/* ---- normalization ---- */

static ValueId layernorm_of(Maker *m, DimId a, DimId d)
{
    OpSpec s = start(m, OP_layernorm, ARGS(reals(m, "x", AXES(a, d)), reals(m, "w", AXES(d)), reals(m, "b", AXES(d))));
    result(&s, NULL, m->real, AXES(a, d));
    result(&s, "mean", m->real, AXES(a));
    result(&s, "rstd", m->real, AXES(a));
    return finish(m, &s);
}

static ValueId layernorm(Maker *m)
{
    return layernorm_of(m, dim(m, "a", 3, 37), dim(m, "d", 5, 129));
}

/* More rows than one block sums on a GPU. */
static ValueId layernorm_rows(Maker *m)
{
    return layernorm_of(m, dim(m, "a", 3, 1543), dim(m, "d", 5, 37));
}

static ValueId layernorm_plain(Maker *m)
{
    DimId a = dim(m, "a", 2, 3), b = dim(m, "b", 3, 7), d = dim(m, "d", 5, 129);
    OpSpec s = start(m, OP_layernorm, ARGS(reals(m, "x", AXES(a, b, d)), reals(m, "w", AXES(d)), NO_VALUE));
    result(&s, NULL, m->real, AXES(a, b, d));
    result(&s, "mean", m->real, AXES(a, b));
    result(&s, "rstd", m->real, AXES(a, b));
    return finish(m, &s);
}

static ValueId rmsnorm_of(Maker *m, DimId a, DimId d)
{
    OpSpec s = start(m, OP_rmsnorm, ARGS(reals(m, "x", AXES(a, d)), reals(m, "w", AXES(d))));
    set(&s, "eps", ATTR_F(0.1));
    result(&s, NULL, m->real, AXES(a, d));
    result(&s, "rstd", m->real, AXES(a));
    return finish(m, &s);
}

static ValueId rmsnorm(Maker *m)
{
    return rmsnorm_of(m, dim(m, "a", 3, 37), dim(m, "d", 5, 129));
}

static ValueId rmsnorm_column(Maker *m)
{
    return rmsnorm_of(m, dim(m, "a", 3, 1031), dim(m, "d", 1, 1));
}

static ValueId add_norm(Maker *m)
{
    bool layer = m->of->op == OP_add_layernorm;
    DimId a = dim(m, "a", 3, 37), d = dim(m, "d", 5, 129);
    ValueId x = reals(m, "x", AXES(a, d)), y = reals(m, "y", AXES(a, d)), w = reals(m, "w", AXES(d));
    OpSpec s = start(m, m->of->op, ARGS(x, y, w));
    if (layer)
        s.arg[s.narg++] = reals(m, "b", AXES(d));
    result(&s, NULL, m->real, AXES(a, d));
    result(&s, "sum", m->real, AXES(a, d));
    if (layer)
        result(&s, "mean", m->real, AXES(a));
    result(&s, "rstd", m->real, AXES(a));
    return finish(m, &s);
}

/* ---- shapes ---- */

static ValueId renamed(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 29), c = dim(m, "c", 5, 29);
    OpSpec s = start(m, OP_rename, ARGS(reals(m, "x", AXES(a, b))));
    s.by_dim = false;
    result(&s, NULL, m->real, AXES(a, c));
    memcpy(s.label[0], (uint8_t[]){0, 1}, 2);
    memcpy(s.out[0].label, (uint8_t[]){0, 1}, 2);
    return finish(m, &s);
}

static ValueId merge(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 2, 5), c = dim(m, "c", 4, 6), bc = dim(m, "bc", 8, 30);
    return simple(m, OP_merge, ARGS(reals(m, "x", AXES(a, b, c))), AXES(a, bc));
}

static ValueId transpose(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 2, 5), c = dim(m, "c", 4, 17);
    return simple(m, OP_transpose, ARGS(reals(m, "x", AXES(a, b, c))), AXES(c, a, b));
}

static ValueId selected(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 4, 5), c = dim(m, "c", 2, 17);
    OpSpec s = start(m, OP_select, ARGS(reals(m, "x", AXES(a, b, c))));
    set(&s, "at", ATTR_I(2));
    result(&s, NULL, m->real, AXES(a, c));
    return finish(m, &s);
}

/* Whole numbers, below `below`: selected, transposed, and made factors of reals. */
static ValueId whole(Maker *m, DType t, double below)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 4, 5), c = dim(m, "c", 2, 17);
    OpSpec s = start(m, OP_select, ARGS(integers(m, "x", t, 0, below, AXES(a, b, c))));
    set(&s, "at", ATTR_I(2));
    result(&s, NULL, t, AXES(a, c));
    s = start(m, OP_transpose, ARGS(finish(m, &s)));
    result(&s, NULL, t, AXES(c, a));
    s = start(m, OP_cast, ARGS(finish(m, &s)));
    set(&s, "to", ATTR_T(m->real));
    result(&s, NULL, m->real, AXES(c, a));
    return simple(m, OP_mul, ARGS(finish(m, &s), reals(m, "y", AXES(a))), AXES(c, a));
}

static ValueId whole_u8(Maker *m)
{
    return whole(m, DT_u8, 256);
}

static ValueId whole_bool(Maker *m)
{
    return whole(m, DT_bool, 2);
}

static ValueId whole_i32(Maker *m)
{
    return whole(m, DT_i32, 1000);
}

static ValueId whole_i64(Maker *m)
{
    return whole(m, DT_i64, 1000);
}

static ValueId sliced(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 11), c = dim(m, "c", 2, 17), part = dim(m, "part", 3, 6);
    OpSpec s = start(m, OP_slice, ARGS(reals(m, "x", AXES(a, b, c))));
    set(&s, "first", ATTR_I(1));
    result(&s, NULL, m->real, AXES(a, part, c));
    return finish(m, &s);
}

static ValueId placed(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 11), part = dim(m, "part", 3, 6);
    OpSpec s = start(m, OP_place, ARGS(reals(m, "x", AXES(part, a))));
    set(&s, "first", ATTR_I(2));
    result(&s, NULL, m->real, AXES(b, a));
    return finish(m, &s);
}

static ValueId concat(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 2, 11), c = dim(m, "c", 4, 17), d = dim(m, "d", 2, 3), bc = dim(m, "bc", 6, 28);
    return simple(m, OP_concat, ARGS(reals(m, "x", AXES(a, b, d)), reals(m, "y", AXES(a, c, d))), AXES(a, bc, d));
}

/* A token put before all sequences: no axis of its own, and repeated along the batch. */
static ValueId concat_token(Maker *m)
{
    DimId a = dim(m, "a", 3, 5), t = dim(m, "t", 4, 17), d = dim(m, "d", 2, 9), s = dim(m, "s", 5, 18);
    return simple(m, OP_concat, ARGS(reals(m, "x", AXES(d)), reals(m, "y", AXES(a, t, d))), AXES(a, s, d));
}

static ValueId reduce(Maker *m, bool mean)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 4, 5), c = dim(m, "c", 2, 17);
    OpSpec s = start(m, OP_reduce, ARGS(reals(m, "x", AXES(a, b, c))));
    set(&s, "mean", ATTR_B(mean));
    result(&s, NULL, m->real, AXES(b));
    return finish(m, &s);
}

static ValueId reduce_sum(Maker *m)
{
    return reduce(m, false);
}

static ValueId reduce_mean(Maker *m)
{
    return reduce(m, true);
}

/* More terms than one block sums on a GPU: of results side by side, of few, and of terms side by side. */
static ValueId reduce_rows(Maker *m)
{
    DimId a = dim(m, "a", 3, 1543), b = dim(m, "b", 4, 45);
    return simple(m, OP_reduce, ARGS(reals(m, "x", AXES(a, b))), AXES(b));
}

static ValueId reduce_few(Maker *m)
{
    DimId a = dim(m, "a", 3, 6151), b = dim(m, "b", 2, 3);
    OpSpec s = start(m, OP_reduce, ARGS(reals(m, "x", AXES(a, b))));
    set(&s, "mean", ATTR_B(true));
    result(&s, NULL, m->real, AXES(b));
    return finish(m, &s);
}

static ValueId reduce_along(Maker *m)
{
    DimId a = dim(m, "a", 3, 32771), b = dim(m, "b", 2, 2);
    return simple(m, OP_reduce, ARGS(reals(m, "x", AXES(b, a))), AXES(b));
}

static ValueId expand_mean(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 4, 5), c = dim(m, "c", 2, 17);
    OpSpec s = start(m, OP_expand, ARGS(reals(m, "x", AXES(b))));
    set(&s, "mean", ATTR_B(true));
    result(&s, NULL, m->real, AXES(a, b, c));
    return finish(m, &s);
}

/* ---- the table ---- */

const Case basic_cases[] = {
    {"scale", OP_scale, unary, false}, {"shift", OP_shift, unary, false}, {"reciprocal", OP_reciprocal, reciprocal, false},
    {"relu", OP_relu, unary, false}, {"silu", OP_silu, unary, false}, {"tanh", OP_tanh, unary, false},
    {"gelu", OP_gelu, unary, false}, {"gelu exact", OP_gelu, gelu_exact, false},
    {"dropout", OP_dropout, unary, false}, {"cast", OP_cast, unary, false},
    {"cast, u8", OP_cast, whole_u8, false}, {"cast, bool", OP_cast, whole_bool, false},
    {"cast, i32", OP_cast, whole_i32, false}, {"cast, i64", OP_cast, whole_i64, false},
    {"add", OP_add, binary, false}, {"add, a row", OP_add, binary_row, false}, {"add, mixed", OP_add, binary_mixed, false},
    {"sub", OP_sub, binary, false}, {"sub, mixed", OP_sub, binary_mixed, false}, {"sub, the same", OP_sub, binary_twice, false},
    {"mul", OP_mul, binary, false}, {"mul, a row", OP_mul, binary_row, false}, {"mul, mixed", OP_mul, binary_mixed, false},
    {"mul, the same", OP_mul, binary_twice, false},
    {"div", OP_div, binary, false}, {"div, a row", OP_div, binary_row, false}, {"div, mixed", OP_div, binary_mixed, false},
    {"linear", OP_linear, linear, false}, {"linear, no bias", OP_linear, linear_plain, false}, {"linear, square", OP_linear, linear_square, false},
    {"linear, lists", OP_linear, linear_lists, false}, {"linear, over", OP_linear, linear_over, false}, {"linear, per", OP_linear, linear_per, false},
    {"contract", OP_contract, contract_matrix, false}, {"contract, swapped", OP_contract, contract_swapped, false},
    {"contract, heads", OP_contract, contract_heads, false}, {"contract, outer", OP_contract, contract_outer, false},
    {"contract, alone", OP_contract, contract_alone, false}, {"contract, scattered", OP_contract, contract_scattered, false},
    {"tied table", OP_embed, tied, false}, {"embed", OP_embed, embed, false}, {"embed, positions", OP_embed, embed_positions, false},
    {"rope", OP_rope, rope, false}, {"rope, at", OP_rope, rope_at, false}, {"rope, far", OP_rope, rope_far, false},
    {"relative_bias", OP_relative_bias, relative_two_way, false}, {"relative_bias, one way", OP_relative_bias, relative_one_way, false},
    {"layernorm", OP_layernorm, layernorm, false}, {"layernorm, no bias", OP_layernorm, layernorm_plain, false},
    {"layernorm, many rows", OP_layernorm, layernorm_rows, false}, {"rmsnorm, one column", OP_rmsnorm, rmsnorm_column, false},
    {"rmsnorm", OP_rmsnorm, rmsnorm, false}, {"softmax", OP_softmax, unary, false},
    {"rename", OP_rename, renamed, false}, {"merge", OP_merge, merge, false}, {"transpose", OP_transpose, transpose, false},
    {"select", OP_select, selected, false}, {"slice", OP_slice, sliced, false}, {"place", OP_place, placed, false},
    {"concat", OP_concat, concat, false}, {"concat, a token", OP_concat, concat_token, false},
    {"reduce", OP_reduce, reduce_sum, false}, {"reduce, mean", OP_reduce, reduce_mean, false},
    {"reduce, many rows", OP_reduce, reduce_rows, false}, {"reduce, few columns", OP_reduce, reduce_few, false},
    {"reduce, along", OP_reduce, reduce_along, false}, {"expand, mean", OP_expand, expand_mean, false},
    {"add_layernorm", OP_add_layernorm, add_norm, true}, {"add_rmsnorm", OP_add_rmsnorm, add_norm, true},
};
const int nbasic_cases = sizeof basic_cases / sizeof *basic_cases;
