/* Fuse: fewer, larger instructions on less memory.
 *
 * The table at the end lists the patterns in the order in which they are tried;
 * each is a function that looks at one instruction, its condition stated above it.
 * A fused instruction is one that every backend has.  Instructions whose results
 * nobody reads go first and last. */
#include "codegen/pass.h"

#include <string.h>

#include "base/text.h"

/* ---- what conditions are made of ---- */

static bool same_tensor(TensorId a, TensorId b)
{
    return has_tensor(a) && a.i == b.i;
}

/* Both arguments have the result's axes, in its order: no broadcast. */
static bool same_axes(const Instr *in)
{
    return memcmp(in->arg_factor[0], in->arg_factor[1], MAX_RANK) == 0 && memcmp(in->arg_factor[0], in->out_factor[0], MAX_RANK) == 0;
}

static bool available(const Uses *u, TensorId t, uint32_t i)
{
    uint32_t w = has_tensor(t) ? uses_writer(u, buffer_of(u->p, t)) : NOTHING;
    return w == NOTHING || w < i;
}

/* Nothing writes t's memory in (from, to]: what reads it at `from` may read it at `to`. */
static bool unchanged(const Uses *u, TensorId t, uint32_t from, uint32_t to)
{
    BufferId b = buffer_of(u->p, t);
    for (uint32_t i = from + 1; i <= to; i++)
        if (u->p->instr[i].op != REMOVED && instr_writes(u->p, &u->p->instr[i], b))
            return false;
    return true;
}

/* ---- building a fused instruction ---- */

/* Start from `like` for its extents, roles and factors, without tensors. */
static Instr fused_like(const Instr *like, OpKind op)
{
    Instr in = *like;
    instr_clear(&in);
    in.op = op;
    in.acc = ACC_NO;
    in.acc_out = 0;
    memset(in.attr, 0, sizeof in.attr);
    return in;
}

static void give(Instr *in, TensorId t, const uint8_t *factor)
{
    in->arg[in->narg] = t;
    memcpy(in->arg_factor[in->narg++], factor, MAX_RANK);
}

static void make(Instr *in, TensorId t, const uint8_t *factor)
{
    in->out[in->nout] = t;
    memcpy(in->out_factor[in->nout++], factor, MAX_RANK);
}

static void copy_attr(Instr *in, const Instr *from, const char *name)
{
    *instr_set(in, name) = from->attr[op_attr_index(from->op, name)];
}

static void put(Uses *u, uint32_t i, Instr in)
{
    u->p->instr[i] = in;
    uses_add(u, i);
}

static void drop(Uses *u, uint32_t i)
{
    u->p->instr[i].op = REMOVED;
}

/* "a+b": the paths a fused instruction came from. */
static const char *both_paths(const Uses *u, const Instr *a, const Instr *b)
{
    return arena_printf(u->p->arena, "%s+%s", a->path, b->path);
}

/* ---- cross_entropy + cross_entropy_grad -> cross_entropy_both ---- */

/* Whether t is a scalar known here: a constant, or one scaled. */
static bool constant_value(const Uses *u, TensorId t, double *value)
{
    uint32_t w = uses_writer(u, buffer_of(u->p, t));
    if (w == NOTHING || u->p->tensor[t.i].rank > 0)
        return false;
    const Instr *in = &u->p->instr[w];
    if (in->op == OP_constant) {
        *value = instr_attr(in, "value")->f;
        return true;
    }
    if (in->op != OP_scale || !constant_value(u, in->arg[0], value))
        return false;
    *value *= instr_attr(in, "by")->f;
    return true;
}

/* When: the logits are read by these two alone and not kept, lse by the gradient
 * alone, labels are counted, and the upstream gradient is a constant.  The gradient
 * is then made in forward, in the logits' memory. */
static bool fuse_cross_entropy(Uses *u, uint32_t i)
{
    Program *p = u->p;
    const Instr *ce = &p->instr[i];
    BufferId logits = buffer_of(p, ce->arg[0]);
    uint32_t j = uses_next_read(u, logits, i);
    if (j == NOTHING || p->instr[j].op != OP_cross_entropy_grad || !uses_free(u, logits) || uses_reads(u, logits) != 2)
        return false;
    const Instr *grad = &p->instr[j];
    double seed;
    if (!same_tensor(grad->arg[1], ce->arg[0]) || ce->narg < 3 || !has_tensor(ce->arg[2]) || !constant_value(u, grad->arg[0], &seed))
        return false;
    if (!same_tensor(grad->arg[3], ce->out[1]) || uses_reads(u, buffer_of(p, ce->out[1])) != 1 || !uses_free(u, buffer_of(p, grad->out[0])))
        return false;
    Instr in = fused_like(ce, OP_cross_entropy_both);
    in.path = both_paths(u, ce, grad);
    in.acc = ce->acc;
    in.acc_out = ce->acc_out;
    for (int a = 0; a < 3; a++)
        give(&in, ce->arg[a], ce->arg_factor[a]);
    in.narg = 4;
    make(&in, ce->out[0], ce->out_factor[0]);
    make(&in, grad->out[0], ce->arg_factor[0]);
    copy_attr(&in, ce, "ignore");
    copy_attr(&in, ce, "smooth");
    *instr_set(&in, "seed") = ATTR_F(seed);
    uses_merge(u, buffer_of(p, grad->out[0]), logits);
    drop(u, j);
    put(u, i, in);
    return true;
}

/* ---- add + norm -> add_norm ---- */

/* When: an addition without broadcast whose result is first read by a norm, in the
 * same procedure, with the norm's weights at hand.  The sum stays a result. */
static bool fuse_add_norm(Uses *u, uint32_t i)
{
    Program *p = u->p;
    const Instr *add = &p->instr[i];
    uint32_t j = uses_next_read(u, buffer_of(p, add->out[0]), i);
    if (j == NOTHING || add->acc != ACC_NO || !same_axes(add) || !same_procedure(p, i, j))
        return false;
    const Instr *norm = &p->instr[j];
    if ((norm->op != OP_layernorm && norm->op != OP_rmsnorm) || !same_tensor(norm->arg[0], add->out[0]))
        return false;
    for (int a = 1; a < norm->narg; a++)
        if (!available(u, norm->arg[a], i))
            return false;
    Instr in = fused_like(norm, norm->op == OP_layernorm ? OP_add_layernorm : OP_add_rmsnorm);
    in.path = both_paths(u, add, norm);
    give(&in, add->arg[0], norm->arg_factor[0]);
    give(&in, add->arg[1], norm->arg_factor[0]);
    for (int a = 1; a < norm->narg; a++)
        give(&in, norm->arg[a], norm->arg_factor[a]);
    make(&in, norm->out[0], norm->out_factor[0]);
    make(&in, add->out[0], norm->arg_factor[0]);
    for (int k = 1; k < norm->nout; k++)
        make(&in, norm->out[k], norm->out_factor[k]);
    copy_attr(&in, norm, "eps");
    drop(u, j);
    put(u, i, in);
    return true;
}

/* ---- linear + gelu -> linear_gelu ---- */

/* When: the weight is one matrix [k, n] between the last axes of x and the result,
 * and the result is first read by a gelu in the same procedure.  What gelu_grad
 * needs, the product, stays a result. */
static bool fuse_linear_gelu(Uses *u, uint32_t i)
{
    Program *p = u->p;
    const Instr *lin = &p->instr[i];
    uint32_t j = uses_next_read(u, buffer_of(p, lin->out[0]), i);
    if (j == NOTHING || lin->acc != ACC_NO || p->instr[j].op != OP_gelu || !same_procedure(p, i, j))
        return false;
    const Instr *gelu = &p->instr[j];
    uint8_t nx = p->tensor[lin->arg[0].i].rank, nout = p->tensor[lin->out[0].i].rank;
    if (!same_tensor(gelu->arg[0], lin->out[0]) || p->tensor[lin->arg[1].i].rank != 2 || nx == 0 || nout != nx)
        return false;
    if (lin->arg_factor[1][0] != lin->arg_factor[0][nx - 1] || lin->arg_factor[1][1] != lin->out_factor[0][nout - 1])
        return false;
    Instr in = fused_like(lin, OP_linear_gelu);
    in.path = both_paths(u, lin, gelu);
    for (int a = 0; a < lin->narg; a++)
        give(&in, lin->arg[a], lin->arg_factor[a]);
    make(&in, gelu->out[0], lin->out_factor[0]);
    make(&in, lin->out[0], lin->out_factor[0]);
    copy_attr(&in, gelu, "exact");
    drop(u, j);
    put(u, i, in);
    return true;
}

/* ---- silu(x) * y -> silu_mul, and its backward ops -> silu_mul_grad ---- */

/* The three ops that autodiff makes of p = s * y, s = silu(x):
 * dother = dp * s, ds = dp * y, dx = silu_grad(ds, x). */
typedef struct GateGrad { uint32_t dother, ds, dx; TensorId dp; } GateGrad;

static TensorId other_arg(const Instr *in, TensorId t)
{
    return same_tensor(in->arg[0], t) ? in->arg[1] : same_tensor(in->arg[1], t) ? in->arg[0] : NO_TENSOR;
}

/* The instruction that makes ds, read by a silu_grad of x alone. */
static bool find_ds(const Uses *u, TensorId x, TensorId y, GateGrad *g)
{
    Program *p = u->p;
    BufferId b = buffer_of(p, x);
    for (uint32_t i = uses_next_read(u, b, NOTHING); i != NOTHING; i = uses_next_read(u, b, i)) {
        const Instr *in = &p->instr[i];
        if (in->op != OP_silu_grad || !same_tensor(in->arg[1], x))
            continue;
        uint32_t w = uses_writer(u, buffer_of(p, in->arg[0]));
        if (w == NOTHING || p->instr[w].op != OP_mul || !same_axes(&p->instr[w]) || !same_tensor(p->instr[w].out[0], in->arg[0]))
            continue;
        g->dx = i;
        g->ds = w;
        return same_tensor(other_arg(&p->instr[w], y), g->dp) && uses_reads(u, buffer_of(p, in->arg[0])) == 1 && uses_free(u, buffer_of(p, in->arg[0]));
    }
    return false;
}

static bool find_gate_grad(const Uses *u, TensorId x, TensorId s, TensorId y, uint32_t at, GateGrad *g)
{
    const Instr *in = &u->p->instr[at];
    if (in->op != OP_mul || !same_axes(in))
        return false;
    g->dother = at;
    g->dp = other_arg(in, s);
    if (!has_tensor(g->dp) || !find_ds(u, x, y, g))
        return false;
    uint32_t first = g->ds < at ? g->ds : at;
    return unchanged(u, g->dp, first, g->ds < at ? at : g->ds) && same_procedure(u->p, at, g->dx);
}

static void put_gate_grad(Uses *u, const GateGrad *g, TensorId x, TensorId y)
{
    const Instr *dother = &u->p->instr[g->dother], *dx = &u->p->instr[g->dx];
    uint32_t at = g->dother < g->ds ? g->dother : g->ds;
    const uint8_t *f = dother->out_factor[0];
    Instr in = fused_like(dother, OP_silu_mul_grad);
    in.path = both_paths(u, dother, dx);
    give(&in, g->dp, f);
    give(&in, x, f);
    give(&in, y, f);
    make(&in, dx->out[0], f);
    make(&in, dother->out[0], f);
    drop(u, g->dother);
    drop(u, g->ds);
    drop(u, g->dx);
    put(u, at, in);
}

/* When: silu's result is read by one product without broadcast, and otherwise only
 * by that product's backward op, whose two partners are there to be fused too. */
static bool fuse_silu_mul(Uses *u, uint32_t i)
{
    Program *p = u->p;
    const Instr *silu = &p->instr[i];
    TensorId x = silu->arg[0], s = silu->out[0];
    BufferId b = buffer_of(p, s);
    uint32_t j = uses_next_read(u, b, i);
    if (j == NOTHING || p->instr[j].op != OP_mul || !uses_free(u, b) || !same_axes(&p->instr[j]) || !same_procedure(p, i, j))
        return false;
    const Instr *mul = &p->instr[j];
    TensorId y = other_arg(mul, s);
    if (!has_tensor(y) || same_tensor(y, s) || mul->acc != ACC_NO || !unchanged(u, x, i, j))
        return false;
    uint32_t k = uses_next_read(u, b, j);
    GateGrad g = {0};
    if (k != NOTHING && (uses_reads(u, b) != 2 || !find_gate_grad(u, x, s, y, k, &g)))
        return false;
    Instr in = fused_like(mul, OP_silu_mul);
    in.path = both_paths(u, silu, mul);
    give(&in, x, mul->out_factor[0]);
    give(&in, y, mul->out_factor[0]);
    make(&in, mul->out[0], mul->out_factor[0]);
    drop(u, i);
    put(u, j, in);
    if (k != NOTHING)
        put_gate_grad(u, &g, x, y);
    return true;
}

/* ---- in place ---- */

static bool only_in_arg0(const Program *p, const Instr *in, BufferId b)
{
    for (int a = 1; a < in->narg; a++)
        if (has_tensor(in->arg[a]) && buffer_of(p, in->arg[a]).i == b.i)
            return false;
    return true;
}

static bool dies_in(const Uses *u, const Instr *in, uint32_t i, int a)
{
    BufferId b = buffer_of(u->p, in->arg[a]);
    return uses_free(u, b) && uses_last(u, b) == i && memcmp(in->arg_factor[a], in->out_factor[0], MAX_RANK) == 0;
}

/* a + b = b + a: let the argument that dies stand first. */
static void dying_first(const Uses *u, Instr *in, uint32_t i)
{
    bool commutes = (in->op == OP_add || in->op == OP_mul) && same_axes(in);
    if (!commutes || dies_in(u, in, i, 0) || !dies_in(u, in, i, 1))
        return;
    TensorId t = in->arg[0];
    in->arg[0] = in->arg[1];
    in->arg[1] = t;
}

/* When: the op can work in place, argument 0 has the result's axes and type and is
 * not used after it (nor twice in it), and neither outlives its procedures. */
static bool fuse_in_place(Uses *u, uint32_t i)
{
    Program *p = u->p;
    Instr *in = &p->instr[i];
    if (!(op_info[in->op].flags & OPF_INPLACE) || in->acc != ACC_NO || !has_tensor(in->out[0]))
        return false;
    dying_first(u, in, i);
    BufferId from = buffer_of(p, in->arg[0]), to = buffer_of(p, in->out[0]);
    if (from.i == to.i || !dies_in(u, in, i, 0) || !only_in_arg0(p, in, from) || p->tensor[in->arg[0].i].dtype != p->tensor[in->out[0].i].dtype)
        return false;
    if (p->buffer[to.i].cls != CLASS_working || p->buffer[from.i].bytes != p->buffer[to.i].bytes || uses_writer(u, from) == NOTHING)
        return false;
    uses_merge(u, to, from);
    return true;
}

/* ---- the patterns ---- */

enum { ANY_OP = OP_KINDS };

typedef struct Pattern {
    const char *name;
    int         anchor;               /* the op it starts from */
    bool      (*apply)(Uses *, uint32_t instr);
} Pattern;

static const Pattern combining[] = {
    {"cross_entropy_both", OP_cross_entropy, fuse_cross_entropy},
    {"accumulate", OP_add, accumulate_add},
    {"add_norm", OP_add, fuse_add_norm},
    {"silu_mul", OP_silu, fuse_silu_mul},
    {"linear_gelu", OP_linear, fuse_linear_gelu},
};
/* After gradients got their accumulators, which nothing may share. */
static const Pattern sharing[] = {
    {"in_place", ANY_OP, fuse_in_place},
};

static void apply(Uses *u, const Pattern *pattern)
{
    for (uint32_t i = 0; i < u->p->ninstr; i++) {
        OpKind op = u->p->instr[i].op;
        if (op != REMOVED && (pattern->anchor == ANY_OP || pattern->anchor == (int)op))
            pattern->apply(u, i);
    }
}

void fuse(Program *p, Arena *scratch)
{
    Uses u = uses_read(p, scratch);
    uses_remove_dead(&u);
    for (size_t k = 0; k < sizeof combining / sizeof *combining; k++)
        apply(&u, &combining[k]);
    uses_remove_dead(&u);
    code_compact(p);
    accumulate_gradients(p, scratch);
    u = uses_read(p, scratch);
    for (size_t k = 0; k < sizeof sharing / sizeof *sharing; k++)
        apply(&u, &sharing[k]);
    code_sweep(p, scratch);
}
