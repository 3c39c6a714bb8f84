/* Cases of attention, sparse layers, images, losses, fusions and optimizers: one
 * function per way of using an op. */
#include "tests/ops/maker.h"

/* ---- attention ---- */

typedef struct Style { bool grouped, causal, cross, mask, bias, doc, scaled, bare; int window, width; double dropout; } Style;

static ValueId attention(Maker *m, Style y)
{
    DimId b = dim(m, "b", 2, y.width ? 1 : 2), s = dim(m, "s", 5, y.width ? 141 : 71), h = dim(m, "h", 4, y.width ? 2 : 4);
    DimId e = dim(m, "e", 3, y.width ? y.width : 24);
    DimId t = y.cross || y.bias ? dim(m, "t", y.cross ? 7 : 5, y.cross ? 133 : 71) : s;
    DimId g = y.grouped ? dim(m, "g", 2, y.width ? 1 : 2) : h;
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
static ValueId attention_wide(Maker *m)    { return attention(m, (Style){.causal = true, .grouped = true, .window = m->scale ? 40 : 2, .width = 72}); }
static ValueId attention_widest(Maker *m)  { return attention(m, (Style){.doc = true, .causal = true, .dropout = 0.2, .width = 200}); }
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

static ValueId optimizer_of(Maker *m, Fill squares)
{
    bool adamw = m->of->op == OP_adamw;
    DimId a = dim(m, "a", 13, 4099);
    ValueId w = reals(m, "w", AXES(a)), g = reals(m, "g", AXES(a)), m1 = reals(m, "m", AXES(a)), v = reals_in(m, "v", 0.1, 1, AXES(a));
    ValueId norm = value(m, "norm", ROLE_INPUT, DT_f64, squares, SCALAR);
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

static ValueId optimizer(Maker *m) { return optimizer_of(m, (Fill){4, 9}); }
static ValueId optimizer_skips(Maker *m) { return optimizer_of(m, (Fill){NAN, NAN}); }

static ValueId constant(Maker *m)
{
    OpSpec s = start(m, m->of->op, SCALAR);
    if (s.kind == OP_constant)
        set(&s, "value", ATTR_F(2.5));
    result(&s, NULL, m->real, SCALAR);
    return finish(m, &s);
}

/* ---- the table ---- */

const Case layer_cases[] = {
    {"attention", OP_attention, attention_plain, false}, {"attention, bare", OP_attention, attention_bare, false},
    {"attention, causal", OP_attention, attention_causal, false}, {"attention, window", OP_attention, attention_window, false},
    {"attention, grouped", OP_attention, attention_grouped, false}, {"attention, cross", OP_attention, attention_cross, false},
    {"attention, mask", OP_attention, attention_mask, false}, {"attention, bias", OP_attention, attention_bias, false},
    {"attention, documents", OP_attention, attention_doc, false}, {"attention, dropout", OP_attention, attention_drop, false},
    {"attention, wide", OP_attention, attention_wide, false}, {"attention, widest", OP_attention, attention_widest, false},
    {"attention, all", OP_attention, attention_all, false},
    {"router", OP_router, router_two, false}, {"dispatch", OP_dispatch, dispatch, false}, {"combine", OP_combine, combine, false},
    {"load_balance", OP_load_balance, load_balance, false}, {"sparse layer", OP_combine, balanced_layer, false},
    {"conv2d", OP_conv2d, conv2d, false}, {"conv2d, patches", OP_conv2d, conv2d_patches, false},
    {"cross_entropy", OP_cross_entropy, cross_entropy_plain, false}, {"cross_entropy, ignore", OP_cross_entropy, cross_entropy_ignore, false},
    {"cross_entropy, smooth", OP_cross_entropy, cross_entropy_smooth, false},
    {"cross_entropy_both", OP_cross_entropy_both, cross_entropy_both, true},
    {"cross_entropy_stats", OP_cross_entropy_stats, class_stats, true}, {"cross_entropy_merge", OP_cross_entropy_merge, class_merge, true},
    {"silu_mul", OP_silu_mul, silu_mul, true}, {"silu_mul_grad", OP_silu_mul_grad, silu_mul_grad, true},
    {"linear_gelu", OP_linear_gelu, linear_gelu, true}, {"sum_squares", OP_sum_squares, sum_squares, true},
    {"adamw", OP_adamw, optimizer, true}, {"sgd", OP_sgd, optimizer, true},
    {"adamw, skipped", OP_adamw, optimizer_skips, true}, {"sgd, skipped", OP_sgd, optimizer_skips, true},
    {"constant", OP_constant, constant, true}, {"zeros", OP_zeros, constant, true},
};
const int nlayer_cases = sizeof layer_cases / sizeof *layer_cases;
