/* Ops: every op of the table that has a kernel, at sizes in the caches and beyond them.
 *
 * Shapes come from the ops' signatures.  The table below lists those whose signature does
 * not say how its axes meet, or whose axes are like others in name only. */
#include <math.h>
#include <string.h>

#include "runtime/measure/device.h"

typedef struct Shape { OpKind op; const char *signature; Extent extent[9]; } Shape;

#define IMAGE {{"c", 16}, {"h", 30}, {"w", 30}, {"out", 16}, {"row", 28}, {"col", 28}, {"kh", 3}, {"kw", 3}}

static const Shape shapes[] = {
    {OP_transpose, "x[.., p, d] -> [p, .., d]", {{0}}},            /* parts of a collective */
    {OP_reduce, "x[.., d] -> [d]", {{0}}},           /* a bias's gradient */
    {OP_expand, "x[d] -> [.., d]", {{0}}},
    {OP_select, "x[.., s, d] -> [.., d]", {{0}}},
    {OP_slice, "x[.., s, d] -> [.., t, d]", {{"t", 32}}},
    {OP_place, "x[.., t, d] -> [.., s, d]", {{"t", 32}}},
    {OP_concat, "x[.., s, d], y[.., t, d] -> [.., m, d]", {{"m", 128}}},
    {OP_cross_entropy_stats, "logits[.., c], labels[..] -> [.., f]", {{0}}},
    {OP_cross_entropy_merge, "stats[p, .., f], labels[..], count[] -> [], lse[..]", {{0}}},
    {OP_router_grad, "droute[.., s, expert], dprob[.., s, expert], route[.., s, expert], prob[.., s, expert] -> [.., s, expert]", {{0}}},
    {OP_sgd, "w[..], g[..], m[..], norm[] -> [..], m[..]", {{0}}},
    {OP_linear_gelu, NULL, {{"k", 128}, {"n", 512}}},                /* many rows: few would have it wait for its weights */
    {OP_conv2d, NULL, IMAGE}, {OP_conv2d_grad_x, NULL, IMAGE}, {OP_conv2d_grad_w, NULL, IMAGE},
};

/* Options with which kernels are not as fast as without. */
static const struct { OpKind op; const char *option; } options[] = {
    {OP_gelu, "exact"}, {OP_gelu_grad, "exact"}, {OP_linear_gelu, "exact"}, {OP_attention, "bias"}, {OP_attention_grad, "bias"},
};

enum { WIDTH = 768, USUAL_POSITIONS = 64 };

static const Shape *shape_of(OpKind op)
{
    static const Shape plain = {.op = OP_KINDS};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].op == op)
            return &shapes[i];
    return &plain;
}

/* Whether all axes of an op are '..': its rows need a length. */
static bool only_dots(OpKind op)
{
    const OpSig *sig = op_sig(op);
    for (int i = 0; i < sig->nformal; i++)
        for (int x = 0; x < sig->formal[i].naxis; x++)
            if (!sig->formal[i].axis[x].dots)
                return false;
    for (int i = 0; i < sig->nresult; i++)
        for (int x = 0; x < sig->result[i].naxis; x++)
            if (!sig->result[i].axis[x].dots)
                return false;
    return true;
}

static bool has_axis(OpKind op, const char *axis)
{
    for (int i = 0; i < op_narg(op); i++)
        for (int x = 0; x < op_arg(op, i)->naxis; x++)
            if (strcmp(op_arg(op, i)->axis[x].name, axis) == 0)
                return true;
    return false;
}

static bool listed(const Extent *list, const char *axis)
{
    for (; list->axis; list++)
        if (strcmp(list->axis, axis) == 0)
            return true;
    return false;
}

/* Extents of GPT-2's blocks and of what is like them, with so many rows and positions. */
static void extents_of(OpKind op, int64_t rows, int64_t positions, Extent *out)
{
    const Extent usual[] = {{"..", rows}, {"v", rows}, {"d", WIDTH}, {"k", WIDTH}, {"n", 4 * WIDTH}, {"c", 4096}, {"s", positions}, {"t", positions},
                            {"h", 12}, {"g", 12}, {"e", 64}, {"expert", 8}, {"slot", 16}, {"b", 32}, {"p", 2}, {"f", 4}};
    const Shape *shape = shape_of(op);
    uint32_t n = 0;
    for (const Extent *own = shape->extent; own->axis; own++)
        out[n++] = *own;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!listed(shape->extent, usual[i].axis))
            out[n++] = usual[i];
    if (only_dots(op) && !shape->signature)
        out[n++] = (Extent){"..", WIDTH};
    out[n] = (Extent){0};
}

uint32_t ops_add_one(Bench *b, OpKind op, int64_t rows, int64_t positions)
{
    Extent extent[BENCH_EXTENTS];
    extents_of(op, rows, positions, extent);
    return bench_add(b, op, shape_of(op)->signature, extent);
}

/* An instruction of so many rows. */
typedef struct Sample { double work, bytes; KernelForm form; } Sample;

static Sample sample_of(const Machine *m, OpKind op, DType compute, int64_t rows)
{
    Arena *scratch = arena_new("bench");
    Bench *b = bench_new(scratch, m, compute, 1, 0);
    uint32_t item = ops_add_one(b, op, rows, USUAL_POSITIONS);
    const Instr *in = bench_instr(b, item);
    Sample s = {bench_work(b, item), (double)in->bytes, m->executor->form(in, b->program, m->isa)};
    arena_free(scratch);
    return s;
}

/* ---- sizes ---- */

/* Plain forms are far below the memory's speed wherever their numbers lie, and slow. */
static bool is_plain(const Machine *m, OpKind op, DType compute)
{
    return sample_of(m, op, compute, USUAL_POSITIONS).form == KERNEL_PLAIN;
}

/* An instruction has no more than this of the memory. */
static double most_bytes(const Machine *m)
{
    return (double)m->memory / 8;
}

static void add_sizes(Bench *b, OpKind op, const Machine *m, const double *work, int n)
{
    DType compute = b->program->precision.compute;
    Sample one = sample_of(m, op, compute, 1), two = sample_of(m, op, compute, 2);
    double per_row = two.work - one.work;
    int64_t before = 0;
    for (int i = 0; i < n; i++) {
        double more = per_row > 0 ? (work[i] - one.work) / per_row : 0;
        int64_t rows = more > 0 ? 1 + (int64_t)more : 1;
        bool fits = before == 0 || one.bytes + (double)(rows - 1) * (two.bytes - one.bytes) <= most_bytes(m);
        if (rows <= before || !fits)
            continue;
        ops_add_one(b, op, rows, USUAL_POSITIONS);
        before = rows;
    }
}

/* Attention grows with the square of its positions: rows of several lengths, the first and the last two for devices; without so many of
 * the longest. */
static void add_lengths(Bench *b, OpKind op, const Machine *m, int fewer)
{
    static const struct { int64_t rows, positions; } lengths[] = {{1, 16}, {4, 64}, {1, 256}, {1, 1024}, {8, 2048}, {2, 8192}};
    bool device = m->devices > 0;
    for (int i = device ? 0 : 1, end = (device ? 6 : 4) - (fewer > 0); i < end; i++) {
        double scores = 4 * 12 * (double)lengths[i].rows * (double)lengths[i].positions * (double)lengths[i].positions;
        if (scores <= most_bytes(m))
            ops_add_one(b, op, lengths[i].rows, lengths[i].positions);
    }
}

bool ops_timed(const Machine *m, OpKind op, DType compute)
{
    bool product = op == OP_contract || op == OP_linear;
    if (product || (op_info[op].flags & (OPF_COMM | OPF_VIEW)) || !kernel_ref(op))
        return false;
    Sample s = sample_of(m, op, compute, USUAL_POSITIONS);
    return s.form != KERNEL_NONE && s.work > BUFFER_ALIGN;
}

/* Without so many of the largest sizes, at most two. */
static void add_op(Bench *b, OpKind op, const Machine *m, int fewer)
{
    bool device = m->devices > 0;
    double beyond = fmin(fmin(fmax(4 * (double)m->cache, 64e6), device ? 1e9 : 128e6), most_bytes(m));
    const double bytes[] = {64e3, 1e6, 8e6, beyond}, flop[] = {4e6, 32e6, 1e9, 32e9};
    if (op_computes(op) && has_axis(op, "t"))
        add_lengths(b, op, m, fewer);
    else if (op_computes(op))
        add_sizes(b, op, m, flop, (device ? 4 : 3) - (fewer > 0));
    else
        add_sizes(b, op, m, bytes, 4 - fewer);
}

void ops_add(Bench *b, const Machine *m)
{
    DType compute = b->program->precision.compute;
    const int64_t apart = b->apart;
    for (OpKind op = 0; op < OP_KINDS; op++)
        if (ops_timed(m, op, compute)) {
            bool plain = is_plain(m, op, compute);
            b->apart = plain ? 0 : apart;
            add_op(b, op, m, plain ? 1 : 0);
        }
    b->apart = m->devices > 0 ? apart : 0;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        b->with = op_option(options[i].op, options[i].option);
        add_op(b, options[i].op, m, 1);
    }
    b->with = 0;
    b->apart = apart;
}

/* What is kept in more bits, whatever a model computes in. */
static bool is_wide(OpKind op)
{
    return op == OP_adamw || op == OP_sgd || op == OP_sum_squares || op == OP_cast;
}

void ops_add_narrow(Bench *b, const Machine *m)
{
    DType compute = b->program->precision.compute;
    const int64_t apart = b->apart;
    for (OpKind op = 0; op < OP_KINDS; op++)
        if (ops_timed(m, op, compute) && !is_wide(op)) {
            b->apart = is_plain(m, op, compute) ? 0 : apart;
            add_op(b, op, m, m->devices > 0 ? 0 : 2);
        }
    b->apart = apart;
}
