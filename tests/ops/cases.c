/* Cases: one function per way of using an op. */
#include "tests/ops/cases.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

/* ---- words the cases are written with ---- */

static DimId dim(Maker *m, const char *name, int64_t small, int64_t large)
{
    return graph_add_dim(m->g, name, m->scale ? large : small, NOWHERE);
}

static ValueId value(Maker *m, const char *name, ValueRole role, DType dtype, Fill fill, int rank, const DimId *axis)
{
    ValueId v = graph_add_value(m->g, name, role, dtype, (uint8_t)rank, axis, NOWHERE);
    m->fill[v.i] = fill;
    if (role == ROLE_WEIGHT)
        PUSH(m->g->arena, m->g->weight, m->g->nweight, ((Weight){.value = v, .gradient = NO_VALUE, .decays = true}));
    return v;
}

#define AXES(...) (int)(sizeof((DimId[]){__VA_ARGS__}) / sizeof(DimId)), (DimId[]){__VA_ARGS__}
#define SCALAR    0, NULL
#define ARGS(...) (int)(sizeof((ValueId[]){__VA_ARGS__}) / sizeof(ValueId)), (ValueId[]){__VA_ARGS__}

/* Reals that get a gradient; in a range that keeps away from where functions end. */
static ValueId reals_in(Maker *m, const char *name, double lo, double hi, int rank, const DimId *axis)
{
    return value(m, name, ROLE_WEIGHT, m->real, (Fill){lo, hi}, rank, axis);
}

static ValueId reals(Maker *m, const char *name, int rank, const DimId *axis)
{
    return reals_in(m, name, -1.5, 1.5, rank, axis);
}

/* Integers lo .. hi - 1. */
static ValueId integers(Maker *m, const char *name, DType t, double lo, double hi, int rank, const DimId *axis)
{
    return value(m, name, ROLE_INPUT, t, (Fill){lo, hi}, rank, axis);
}

static double extent(const Maker *m, DimId d)
{
    return (double)dim_of(m->g, d)->extent;
}

static OpSpec start(Maker *m, OpKind kind, int narg, const ValueId *arg)
{
    const char *path = arena_printf(m->g->arena, "%s[%u]", op_info[kind].name, m->g->nop);
    OpSpec s = op_spec(kind, PHASE_FORWARD, path, NOWHERE);
    s.narg = (uint8_t)narg;
    for (int i = 0; i < narg; i++)
        s.arg[i] = arg[i];
    return s;
}

static void set(OpSpec *s, const char *name, Attr a)
{
    s->attr[op_attr_index(s->kind, name)] = a;
}

static void result(OpSpec *s, const char *suffix, DType t, int rank, const DimId *axis)
{
    OutSpec *o = &s->out[s->nout++];
    *o = (OutSpec){.suffix = suffix, .dtype = t, .rank = (uint8_t)rank};
    for (int i = 0; i < rank; i++)
        o->axis[i] = axis[i];
}

/* Append; the first result. */
static ValueId finish(Maker *m, const OpSpec *s)
{
    return op_of(m->g, graph_add_op(m->g, s))->out[0];
}

static ValueId simple(Maker *m, OpKind kind, int narg, const ValueId *arg, int rank, const DimId *axis)
{
    OpSpec s = start(m, kind, narg, arg);
    result(&s, NULL, m->real, rank, axis);
    return finish(m, &s);
}

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
    DimId b = dim(m, "b", 2, 3), s = dim(m, "s", 4, 33), v = dim(m, "v", 5, 101), d = dim(m, "d", 3, 24);
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

static ValueId layernorm(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), d = dim(m, "d", 5, 129);
    OpSpec s = start(m, OP_layernorm, ARGS(reals(m, "x", AXES(a, d)), reals(m, "w", AXES(d)), reals(m, "b", AXES(d))));
    result(&s, NULL, m->real, AXES(a, d));
    result(&s, "mean", m->real, AXES(a));
    result(&s, "rstd", m->real, AXES(a));
    return finish(m, &s);
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

static ValueId rmsnorm(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), d = dim(m, "d", 5, 129);
    OpSpec s = start(m, OP_rmsnorm, ARGS(reals(m, "x", AXES(a, d)), reals(m, "w", AXES(d))));
    set(&s, "eps", ATTR_F(0.1));
    result(&s, NULL, m->real, AXES(a, d));
    result(&s, "rstd", m->real, AXES(a));
    return finish(m, &s);
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

/* ---- attention ---- */

typedef struct Style { bool grouped, causal, cross, mask, bias, doc, scaled, bare; int window; double dropout; } Style;

static ValueId attention(Maker *m, Style y)
{
    DimId b = dim(m, "b", 2, 2), s = dim(m, "s", 5, 71), h = dim(m, "h", 4, 4), e = dim(m, "e", 3, 24);
    DimId t = y.cross || y.bias ? dim(m, "t", y.cross ? 7 : 5, y.cross ? 133 : 71) : s;
    DimId g = y.grouped ? dim(m, "g", 2, 2) : h;
    DimId q_axis[] = {b, s, h, e}, k_axis[] = {b, t, g, e}, lse_axis[] = {b, s, h};
    int skip = y.bare ? 1 : 0;                       /* no leading axis */
    ValueId q = reals(m, "q", 4 - skip, q_axis + skip);
    ValueId k = reals(m, "k", 4 - skip, k_axis + skip), v = reals(m, "v", 4 - skip, k_axis + skip);
    OpSpec o = start(m, OP_attention, ARGS(q, k, v, NO_VALUE, NO_VALUE, NO_VALUE));
    if (y.mask)
        o.arg[3] = integers(m, "mask", DT_bool, 0, 2, AXES(b, t));
    if (y.bias)
        o.arg[4] = reals(m, "bias", AXES(h, s, t));
    if (y.doc)
        o.arg[5] = integers(m, "doc", DT_i32, 0, 2, AXES(b, t));
    set(&o, "causal", ATTR_B(y.causal));
    if (y.window)
        set(&o, "window", ATTR_I(y.window));
    if (y.scaled)
        set(&o, "scale", ATTR_F(1.0));
    set(&o, "dropout", ATTR_F(y.dropout));
    result(&o, NULL, m->real, 4 - skip, q_axis + skip);
    result(&o, "lse", m->real, 3 - skip, lse_axis + skip);
    return finish(m, &o);
}

static ValueId attention_plain(Maker *m)   { return attention(m, (Style){0}); }
static ValueId attention_bare(Maker *m)    { return attention(m, (Style){.bare = true, .causal = true}); }
static ValueId attention_causal(Maker *m)  { return attention(m, (Style){.causal = true}); }
static ValueId attention_window(Maker *m)  { return attention(m, (Style){.causal = true, .window = m->scale ? 40 : 2}); }
static ValueId attention_grouped(Maker *m) { return attention(m, (Style){.causal = true, .grouped = true}); }
static ValueId attention_cross(Maker *m)   { return attention(m, (Style){.cross = true, .scaled = true}); }
static ValueId attention_mask(Maker *m)    { return attention(m, (Style){.mask = true}); }
static ValueId attention_bias(Maker *m)    { return attention(m, (Style){.bias = true, .causal = true}); }
static ValueId attention_doc(Maker *m)     { return attention(m, (Style){.doc = true, .causal = true}); }
static ValueId attention_drop(Maker *m)    { return attention(m, (Style){.dropout = 0.2, .grouped = true}); }
static ValueId attention_all(Maker *m)     { return attention(m, (Style){.cross = true, .mask = true, .bias = true, .grouped = true, .window = 3, .dropout = 0.1}); }

/* ---- sparse layers ---- */

typedef struct Route { DimId b, s, d, x; ValueId in, route, prob; } Route;

static Route router(Maker *m, int top)
{
    Route r = {dim(m, "b", 2, 2), dim(m, "s", 6, 33), dim(m, "d", 3, 16), dim(m, "expert", 4, 8), NO_VALUE, NO_VALUE, NO_VALUE};
    r.in = reals(m, "x", AXES(r.b, r.s, r.d));
    OpSpec s = start(m, OP_router, ARGS(r.in, reals(m, "w", AXES(r.d, r.x))));
    set(&s, "top", ATTR_I(top));
    result(&s, NULL, m->real, AXES(r.b, r.s, r.x));
    result(&s, "prob", m->real, AXES(r.b, r.s, r.x));
    OpId id = graph_add_op(m->g, &s);
    r.route = op_of(m->g, id)->out[0];
    r.prob = op_of(m->g, id)->out[1];
    return r;
}

static ValueId router_two(Maker *m)
{
    return router(m, 2).route;
}

static ValueId dispatch_to(Maker *m, const Route *r, DimId slot)
{
    OpSpec s = start(m, OP_dispatch, ARGS(r->in, r->route));
    result(&s, NULL, m->real, AXES(r->b, r->x, slot, r->d));
    result(&s, "token", DT_i32, AXES(r->b, r->x, slot));
    return finish(m, &s);
}

static ValueId dispatch(Maker *m)
{
    Route r = router(m, 2);
    return dispatch_to(m, &r, dim(m, "slot", 2, 7));     /* some tokens find no slot */
}

static ValueId combine(Maker *m)
{
    Route r = router(m, 2);
    ValueId y = dispatch_to(m, &r, dim(m, "slot", 3, 9));
    return simple(m, OP_combine, ARGS(y, r.route), AXES(r.b, r.s, r.d));
}

static ValueId load_balance(Maker *m)
{
    Route r = router(m, 2);
    return simple(m, OP_load_balance, ARGS(r.route), AXES(r.b));
}

/* Both ways into the router's gradient. */
static ValueId balanced_layer(Maker *m)
{
    Route r = router(m, 3);
    ValueId y = dispatch_to(m, &r, dim(m, "slot", 6, 33));
    ValueId out = simple(m, OP_combine, ARGS(y, r.route), AXES(r.b, r.s, r.d));
    ValueId balance = simple(m, OP_load_balance, ARGS(r.route), AXES(r.b));
    return simple(m, OP_mul, ARGS(out, balance), AXES(r.b, r.s, r.d));
}

/* ---- images ---- */

static ValueId conv2d(Maker *m)
{
    DimId b = dim(m, "b", 2, 3), c = dim(m, "c", 2, 3), h = dim(m, "h", 5, 17), w = dim(m, "w", 6, 14);
    DimId n = dim(m, "n", 3, 8), kh = dim(m, "kh", 3, 3), kw = dim(m, "kw", 3, 3), i = dim(m, "i", 3, 9), j = dim(m, "j", 3, 7);
    ValueId x = reals(m, "x", AXES(b, c, h, w)), k = reals(m, "w", AXES(n, c, kh, kw)), bias = reals(m, "bias", AXES(n));
    OpSpec s = start(m, OP_conv2d, ARGS(x, k, bias));
    set(&s, "kernel", ATTR_I(3));
    set(&s, "stride", ATTR_I(2));
    set(&s, "pad", ATTR_I(1));
    result(&s, NULL, m->real, AXES(b, n, i, j));
    return finish(m, &s);
}

static ValueId conv2d_patches(Maker *m)
{
    DimId c = dim(m, "c", 2, 3), h = dim(m, "h", 4, 16), w = dim(m, "w", 6, 12), n = dim(m, "n", 3, 8);
    DimId kh = dim(m, "kh", 2, 4), kw = dim(m, "kw", 2, 4), i = dim(m, "i", 2, 4), j = dim(m, "j", 3, 3);
    OpSpec s = start(m, OP_conv2d, ARGS(reals(m, "x", AXES(c, h, w)), reals(m, "w", AXES(n, c, kh, kw))));
    set(&s, "kernel", ATTR_I((int64_t)extent(m, kh)));
    set(&s, "stride", ATTR_I((int64_t)extent(m, kh)));
    result(&s, NULL, m->real, AXES(n, i, j));
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

static ValueId expand_mean(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 4, 5), c = dim(m, "c", 2, 17);
    OpSpec s = start(m, OP_expand, ARGS(reals(m, "x", AXES(b))));
    set(&s, "mean", ATTR_B(true));
    result(&s, NULL, m->real, AXES(a, b, c));
    return finish(m, &s);
}

/* ---- losses ---- */

static ValueId cross_entropy(Maker *m, bool ignore, double smooth)
{
    DimId b = dim(m, "b", 2, 3), s = dim(m, "s", 5, 41), c = dim(m, "c", 4, 203);
    ValueId logits = reals(m, "logits", AXES(b, s, c)), labels = integers(m, "labels", DT_i32, 0, extent(m, c), AXES(b, s));
    OpSpec o = start(m, OP_cross_entropy, ARGS(logits, labels));
    if (ignore)
        set(&o, "ignore", ATTR_I(1));
    set(&o, "smooth", ATTR_F(smooth));
    result(&o, NULL, m->real, SCALAR);
    result(&o, "lse", m->real, AXES(b, s));
    return finish(m, &o);
}

static ValueId cross_entropy_plain(Maker *m)  { return cross_entropy(m, false, 0); }
static ValueId cross_entropy_ignore(Maker *m) { return cross_entropy(m, true, 0); }
static ValueId cross_entropy_smooth(Maker *m) { return cross_entropy(m, true, 0.1); }

static ValueId counted(Maker *m, ValueId labels)
{
    OpSpec n = start(m, OP_count_labels, ARGS(labels));
    set(&n, "ignore", ATTR_I(1));
    result(&n, NULL, DT_f64, SCALAR);
    return finish(m, &n);
}

static ValueId cross_entropy_both(Maker *m)
{
    DimId b = dim(m, "b", 2, 3), s = dim(m, "s", 5, 41), c = dim(m, "c", 4, 203);
    ValueId logits = reals(m, "logits", AXES(b, s, c)), labels = integers(m, "labels", DT_i32, 0, extent(m, c), AXES(b, s));
    OpSpec o = start(m, OP_cross_entropy_both, ARGS(logits, labels, counted(m, labels), NO_VALUE));
    set(&o, "ignore", ATTR_I(1));
    set(&o, "smooth", ATTR_F(0.1));
    set(&o, "seed", ATTR_F(0.5));
    result(&o, NULL, m->real, SCALAR);
    result(&o, "dlogits", m->real, AXES(b, s, c));
    return finish(m, &o);
}

static ValueId class_stats(Maker *m)
{
    DimId b = dim(m, "b", 2, 3), s = dim(m, "s", 5, 41), c = dim(m, "c", 4, 203), e = dim(m, "e", 4, 4);
    ValueId logits = reals(m, "logits", AXES(b, s, c)), labels = integers(m, "labels", DT_i32, 0, extent(m, c), AXES(b, s));
    OpSpec o = start(m, OP_cross_entropy_stats, ARGS(logits, labels));
    set(&o, "ignore", ATTR_I(1));
    result(&o, NULL, m->real, AXES(b, s, e));
    return finish(m, &o);
}

static ValueId class_merge(Maker *m)
{
    DimId p = dim(m, "p", 3, 4), b = dim(m, "b", 2, 3), s = dim(m, "s", 5, 41), e = dim(m, "e", 4, 4);
    ValueId stats = reals_in(m, "stats", 0.5, 2, AXES(p, b, s, e)), labels = integers(m, "labels", DT_i32, 0, 9, AXES(b, s));
    OpSpec o = start(m, OP_cross_entropy_merge, ARGS(stats, labels, counted(m, labels)));
    set(&o, "ignore", ATTR_I(1));
    set(&o, "smooth", ATTR_F(0.1));
    set(&o, "classes", ATTR_I(9));
    result(&o, NULL, m->real, SCALAR);
    result(&o, "lse", m->real, AXES(b, s));
    return finish(m, &o);
}

/* ---- other fusions, and the optimizer ---- */

static ValueId silu_mul(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 129);
    return simple(m, OP_silu_mul, ARGS(reals(m, "x", AXES(a, b)), reals(m, "y", AXES(a, b))), AXES(a, b));
}

static ValueId silu_mul_grad(Maker *m)
{
    DimId a = dim(m, "a", 3, 37), b = dim(m, "b", 5, 129);
    ValueId dy = reals(m, "dy", AXES(a, b)), x = reals(m, "x", AXES(a, b)), y = reals(m, "y", AXES(a, b));
    OpSpec s = start(m, OP_silu_mul_grad, ARGS(dy, x, y));
    result(&s, NULL, m->real, AXES(a, b));
    result(&s, "dother", m->real, AXES(a, b));
    return finish(m, &s);
}

static ValueId linear_gelu(Maker *m)
{
    DimId a = dim(m, "a", 2, 3), s = dim(m, "s", 3, 35), k = dim(m, "k", 4, 67), n = dim(m, "n", 5, 93);
    ValueId x = reals(m, "x", AXES(a, s, k)), w = reals(m, "w", AXES(k, n)), b = reals(m, "b", AXES(n));
    OpSpec o = start(m, OP_linear_gelu, ARGS(x, w, b));
    result(&o, NULL, m->real, AXES(a, s, n));
    result(&o, "pre", m->real, AXES(a, s, n));
    return finish(m, &o);
}

static ValueId sum_squares(Maker *m)
{
    DimId a = dim(m, "a", 13, 40001);
    OpSpec s = start(m, OP_sum_squares, ARGS(reals(m, "g", AXES(a))));
    result(&s, NULL, DT_f64, SCALAR);
    return finish(m, &s);
}

static ValueId optimizer(Maker *m)
{
    bool adamw = m->of->op == OP_adamw;
    DimId a = dim(m, "a", 13, 4099);
    ValueId w = reals(m, "w", AXES(a)), g = reals(m, "g", AXES(a)), m1 = reals(m, "m", AXES(a)), v = reals_in(m, "v", 0.1, 1, AXES(a));
    ValueId norm = value(m, "norm", ROLE_INPUT, DT_f64, (Fill){4, 9}, SCALAR);
    OpSpec s = start(m, m->of->op, ARGS(w, g, m1));
    if (adamw)
        s.arg[s.narg++] = v;
    s.arg[s.narg++] = norm;
    result(&s, NULL, m->real, AXES(a));
    result(&s, "m", m->real, AXES(a));
    if (adamw)
        result(&s, "v", m->real, AXES(a));
    m->g->optimizer = (Optimizer){.kind = adamw ? OPTIMIZER_ADAMW : OPTIMIZER_SGD, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99,
                                  .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.9, .clip = 1};
    return finish(m, &s);
}

static ValueId constant(Maker *m)
{
    OpSpec s = start(m, m->of->op, SCALAR);
    if (s.kind == OP_constant)
        set(&s, "value", ATTR_F(2.5));
    result(&s, NULL, m->real, SCALAR);
    return finish(m, &s);
}

/* ---- the table ---- */

const Case cases[] = {
    {"scale", OP_scale, unary, false}, {"shift", OP_shift, unary, false}, {"reciprocal", OP_reciprocal, reciprocal, false},
    {"relu", OP_relu, unary, false}, {"silu", OP_silu, unary, false}, {"tanh", OP_tanh, unary, false},
    {"gelu", OP_gelu, unary, false}, {"gelu exact", OP_gelu, gelu_exact, false},
    {"dropout", OP_dropout, unary, false}, {"cast", OP_cast, unary, false},
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
    {"rope", OP_rope, rope, false}, {"rope, at", OP_rope, rope_at, false},
    {"relative_bias", OP_relative_bias, relative_two_way, false}, {"relative_bias, one way", OP_relative_bias, relative_one_way, false},
    {"layernorm", OP_layernorm, layernorm, false}, {"layernorm, no bias", OP_layernorm, layernorm_plain, false},
    {"rmsnorm", OP_rmsnorm, rmsnorm, false}, {"softmax", OP_softmax, unary, false},
    {"attention", OP_attention, attention_plain, false}, {"attention, bare", OP_attention, attention_bare, false},
    {"attention, causal", OP_attention, attention_causal, false}, {"attention, window", OP_attention, attention_window, false},
    {"attention, grouped", OP_attention, attention_grouped, false}, {"attention, cross", OP_attention, attention_cross, false},
    {"attention, mask", OP_attention, attention_mask, false}, {"attention, bias", OP_attention, attention_bias, false},
    {"attention, documents", OP_attention, attention_doc, false}, {"attention, dropout", OP_attention, attention_drop, false},
    {"attention, all", OP_attention, attention_all, false},
    {"router", OP_router, router_two, false}, {"dispatch", OP_dispatch, dispatch, false}, {"combine", OP_combine, combine, false},
    {"load_balance", OP_load_balance, load_balance, false}, {"sparse layer", OP_combine, balanced_layer, false},
    {"conv2d", OP_conv2d, conv2d, false}, {"conv2d, patches", OP_conv2d, conv2d_patches, false},
    {"rename", OP_rename, renamed, false}, {"merge", OP_merge, merge, false}, {"transpose", OP_transpose, transpose, false},
    {"select", OP_select, selected, false}, {"slice", OP_slice, sliced, false}, {"place", OP_place, placed, false},
    {"concat", OP_concat, concat, false}, {"concat, a token", OP_concat, concat_token, false},
    {"reduce", OP_reduce, reduce_sum, false}, {"reduce, mean", OP_reduce, reduce_mean, false}, {"expand, mean", OP_expand, expand_mean, false},
    {"cross_entropy", OP_cross_entropy, cross_entropy_plain, false}, {"cross_entropy, ignore", OP_cross_entropy, cross_entropy_ignore, false},
    {"cross_entropy, smooth", OP_cross_entropy, cross_entropy_smooth, false},
    {"cross_entropy_both", OP_cross_entropy_both, cross_entropy_both, true},
    {"cross_entropy_stats", OP_cross_entropy_stats, class_stats, true}, {"cross_entropy_merge", OP_cross_entropy_merge, class_merge, true},
    {"add_layernorm", OP_add_layernorm, add_norm, true}, {"add_rmsnorm", OP_add_rmsnorm, add_norm, true},
    {"silu_mul", OP_silu_mul, silu_mul, true}, {"silu_mul_grad", OP_silu_mul_grad, silu_mul_grad, true},
    {"linear_gelu", OP_linear_gelu, linear_gelu, true}, {"sum_squares", OP_sum_squares, sum_squares, true},
    {"adamw", OP_adamw, optimizer, true}, {"sgd", OP_sgd, optimizer, true},
    {"constant", OP_constant, constant, true}, {"zeros", OP_zeros, constant, true},
};
const int ncases = sizeof cases / sizeof *cases;

/* ---- the graph of a case ---- */

/* A scalar that depends on every element of y differently. */
static ValueId weighted_sum(Maker *m, ValueId y)
{
    Value v = *value_of(m->g, y);
    if (v.rank == 0) {
        OpSpec s = start(m, OP_scale, ARGS(y));
        set(&s, "by", ATTR_F(0.7));
        result(&s, NULL, m->real, SCALAR);
        return finish(m, &s);
    }
    ValueId weights = value(m, "weights of the sum", ROLE_INPUT, m->real, (Fill){-1, 1}, v.rank, v.axis);
    return simple(m, OP_contract, ARGS(y, weights), SCALAR);
}

Maker case_make(Arena *a, const Case *of, int scale, DType real, bool loss)
{
    Maker m = {.g = graph_new(a), .fill = NEWN(a, Fill, 64), .scale = scale, .real = real, .of = of};
    m.g->name = of->name;
    m.g->precision = (Precision){real, real, real, real, real};
    ValueId y = of->make(&m);
    if (loss)
        m.g->loss = weighted_sum(&m, y);
    return m;
}

/* Uniform in [lo, hi), the same for the same value's name and element. */
static double random_element(const Graph *g, ValueId v, Fill fill, int64_t i)
{
    Philox p = philox4(7, fnv1a(value_of(g, v)->path), (uint64_t)i, 0);
    double x = fill.lo + (fill.hi - fill.lo) * p.word[0] * 0x1p-32;
    return dtype_is_float(value_of(g, v)->dtype) ? x : floor(x);
}

void case_fill(const Maker *m, Eval *e)
{
    for (uint32_t v = 0; v < e->g->nvalue; v++) {
        ValueRole role = e->g->value[v].role;
        if (role != ROLE_INPUT && role != ROLE_WEIGHT)
            continue;
        for (int64_t i = 0; i < value_elements(e->g, (ValueId){v}); i++)
            eval_set(e, (ValueId){v}, i, random_element(e->g, (ValueId){v}, m->fill[v], i));
    }
}
