/* FLOPs, bytes and workspaces: the formulas of ops.def, evaluated.
 *
 * One evaluator serves a Graph's op at its global extents and an Instr at its
 * rank's local ones.  The letters of the formulas are explained in ops.def. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "ir/program.h"

/* What a formula can ask about one call. */
typedef struct Shape {
    int            nfactor;
    int64_t        extent[MAX_FACTORS];
    char           role[MAX_FACTORS];
    const uint8_t (*arg)[MAX_RANK], (*out)[MAX_RANK];        /* axis -> factor */
    double         width, threads;    /* bytes of an element; of the rank's team */
} Shape;

static double product(const Shape *s)
{
    double p = 1;
    for (int f = 0; f < s->nfactor; f++)
        p *= (double)s->extent[f];
    return p;
}

static double elements(const Shape *s, const uint8_t *factor)
{
    double p = 1;
    for (int x = 0; x < MAX_RANK && factor[x] != NO_FACTOR; x++)
        p *= (double)s->extent[factor[x]];
    return p;
}

static double of_role(const Shape *s, char role)
{
    double p = 1;
    for (int f = 0; f < s->nfactor; f++)
        if (s->role[f] == role)
            p *= (double)s->extent[f];
    return p;
}

#define A       product(s)
#define I(n)    elements(s, s->arg[n])
#define O(n)    elements(s, s->out[n])
#define E(role) of_role(s, role)
#define W       s->width
#define THREADS s->threads

static double flops_of(OpKind kind, const Shape *s)
{
    assert(kind < OP_KINDS);
    switch (kind) {
#define OP(name, use, signature, saves, flops, workspace, linear, flags) case OP_##name: return (double)(flops);
#include "ir/ops.def"
#undef OP
    case OP_KINDS: break;
    }
    return 0;
}

static double workspace_of(OpKind kind, const Shape *s)
{
    assert(kind < OP_KINDS);
    switch (kind) {
#define OP(name, use, signature, saves, flops, workspace, linear, flags) case OP_##name: return (double)(workspace);
#include "ir/ops.def"
#undef OP
    case OP_KINDS: break;
    }
    return 0;
}

#undef A
#undef I
#undef O
#undef E
#undef W
#undef THREADS

/* ---- ops of a Graph ---- */

static Shape op_shape(const Graph *g, const Op *op)
{
    Shape s = {.nfactor = op->nfactor, .arg = op->arg_factor, .out = op->out_factor,
               .width = dtype_bytes(g->precision.compute), .threads = 1};
    for (int f = 0; f < op->nfactor; f++) {
        s.extent[f] = dim_of(g, op->factor[f].dim)->extent;
        s.role[f] = op->factor[f].role;
    }
    return s;
}

double op_flops(const Graph *g, OpId id)
{
    const Op *op = op_of(g, id);
    Shape s = op_shape(g, op);
    return flops_of(op->kind, &s);
}

static double value_bytes(const Graph *g, ValueId v)
{
    return has_value(v) ? (double)value_elements(g, v) * dtype_bytes(value_of(g, v)->dtype) : 0;
}

double op_bytes(const Graph *g, OpId id)
{
    const Op *op = op_of(g, id);
    if (op_info[op->kind].flags & OPF_VIEW)
        return 0;
    double bytes = 0;
    for (int i = 0; i < op->narg; i++)
        bytes += value_bytes(g, op->arg[i]);
    for (int o = 0; o < op->nout; o++)
        bytes += value_bytes(g, op->out[o]);
    return bytes;
}

/* ---- model FLOPs ---- */

/* Sum of min(i + shift, most) over i = 0 .. n-1; shift >= 0. */
static double ramp(double n, double shift, double most)
{
    double rising = fmin(fmax(most - shift, 0), n);
    return rising * shift + rising * (rising - 1) / 2 + (n - rising) * most;
}

/* (query, key) pairs that attention does not mask, queries and keys counted from
 * the same position 0: causal keeps j <= i, a window w keeps |i - j| < w.  Of the
 * keys below a row's last one, those below its first one are taken away. */
static double attended_pairs(const Op *op, double queries, double keys)
{
    bool causal = op_attr(op, "causal")->i != 0;
    const Attr *window = op_attr(op, "window");
    double w = window->kind == ATTR_INT ? (double)window->i : queries + keys;
    double late = fmax(queries - (w - 1), 0);        /* rows whose window begins at or behind key 0 */
    return ramp(queries, causal ? 1 : w, keys) - ramp(late, 0, keys);
}

/* The matmul part of a forward op: all of it, but a router also has a softmax. */
static double matmul_flops(const Graph *g, const Op *op, bool causal)
{
    Shape s = op_shape(g, op);
    if (op->kind == OP_router)
        return 2 * product(&s);
    double flops = flops_of(op->kind, &s);
    if (op->kind != OP_attention || !causal)
        return flops;
    double queries = of_role(&s, 's'), keys = of_role(&s, 't');
    return flops * (attended_pairs(op, queries, keys) / (queries * keys));
}

/* Each token visits `top` experts, however many slots its group has: what part of
 * a dispatch's slots model FLOPs count. */
static double slot_share(const Graph *g, const Op *op)
{
    int64_t top = 1;
    OpId router = value_of(g, op->arg[1])->maker;
    if (has_op(router) && op_of(g, router)->kind == OP_router)
        top = op_attr(op_of(g, router), "top")->i;
    Shape s = op_shape(g, op);
    double share = (double)top * of_role(&s, 's') / (of_role(&s, 'x') * of_role(&s, 'p'));
    return share < 1 ? share : 1;
}

static bool has_factor_of(const Op *op, DimId d)
{
    for (int f = 0; f < op->nfactor; f++)
        if (same_dim(op->factor[f].dim, d))
            return true;
    return false;
}

static DimId slot_dim(const Op *dispatch)
{
    for (int f = 0; f < dispatch->nfactor; f++)
        if (dispatch->factor[f].role == 'p')
            return dispatch->factor[f].dim;
    return NO_DIM;
}

static uint32_t first_dispatch(const Graph *g)
{
    uint32_t i = 0;
    while (i < g->nop && g->op[i].kind != OP_dispatch)
        i++;
    return i;
}

/* The part of an op that is counted: of one on a dispatch's slots, what tokens fill.
 * Dispatches are looked for from op `first` on. */
static double counted_share(const Graph *g, const Op *op, uint32_t first)
{
    for (uint32_t i = first; i < g->nop; i++)
        if (g->op[i].kind == OP_dispatch && has_factor_of(op, slot_dim(&g->op[i])))
            return slot_share(g, &g->op[i]);
    return 1;
}

double graph_model_flops(const Graph *g, bool causal)
{
    double flops = 0;
    uint32_t dispatch = first_dispatch(g);
    for (uint32_t i = 0; i < g->nop; i++) {
        const Op *op = &g->op[i];
        if (op->phase == PHASE_FORWARD && (op_info[op->kind].flags & OPF_MATMUL))
            flops += matmul_flops(g, op, causal) * counted_share(g, op, dispatch);
    }
    return has_value(g->loss) ? 3 * flops : flops;
}

/* ---- instructions of a Program ---- */

/* Scratch is for arithmetic, which is in f32 where operands have fewer bits. */
static Shape instr_shape(const Instr *in, const Program *p)
{
    const int64_t least = dtype_bytes(DT_f32);
    Shape s = {.nfactor = in->nfactor, .arg = in->arg_factor, .out = in->out_factor,
               .threads = p->threads > 0 ? p->threads : 1};
    memcpy(s.extent, in->extent, sizeof s.extent);
    memcpy(s.role, in->role, sizeof s.role);
    bool typed = in->narg > 0 && has_tensor(in->arg[0]);
    int64_t width = dtype_bytes(typed ? p->tensor[in->arg[0].i].dtype : p->precision.compute);
    s.width = (double)(width > least ? width : least);
    return s;
}

double instr_flops(const Instr *in, const Program *p)
{
    Shape s = instr_shape(in, p);
    return flops_of(in->op, &s);
}

static int64_t bytes_once(const Program *p, const TensorId *t, int n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += has_tensor(t[i]) ? tensor_bytes(&p->tensor[t[i].i]) : 0;
    return bytes;
}

void instr_measure(Instr *in, const Program *p)
{
    in->flops = instr_flops(in, p);
    in->bytes = bytes_once(p, in->arg, in->narg) + bytes_once(p, in->out, in->nout);
}

int64_t instr_workspace(const Instr *in, const Program *p)
{
    Shape s = instr_shape(in, p);
    return (int64_t)workspace_of(in->op, &s);
}

/* ---- what figures are given for ---- */

int64_t graph_samples(const Graph *g)
{
    return same_dim(g->batch, NO_DIM) ? 1 : dim_of(g, g->batch)->extent;
}

int64_t graph_tokens(const Graph *g)
{
    int64_t most = graph_samples(g);
    for (uint32_t i = 0; i < g->nop; i++)
        if (g->op[i].kind == OP_cross_entropy)
            return value_elements(g, g->op[i].arg[1]);
    for (uint32_t i = 0; i < g->nvalue; i++) {
        int64_t n = value_elements(g, (ValueId){i});
        bool narrow = dtype_bytes(g->value[i].dtype) == 1;           /* pixels, masks */
        if (g->value[i].role == ROLE_INPUT && !dtype_is_float(g->value[i].dtype) && !narrow && n > most)
            most = n;
    }
    return most;
}
