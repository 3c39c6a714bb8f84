#ifndef TESTS_UNIT_LOWERING_H
#define TESTS_UNIT_LOWERING_H
/* Graphs built by hand, and their lowering: shared by the tests of codegen. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"

/* ---- building ---- */

typedef struct Build {
    Arena *a;
    Graph *g;
    Sources *sources;
    Diags *ds;
    Cluster *cl;
    Plan   *plan;
} Build;

typedef struct Shape { uint8_t rank; DimId axis[MAX_RANK]; } Shape;
#define SHAPE(...) ((Shape){(uint8_t)(sizeof((DimId[]){__VA_ARGS__}) / sizeof(DimId)), {__VA_ARGS__}})
#define SCALAR ((Shape){0})

static inline Build build_new(int64_t batch)
{
    Build b = {.a = arena_new("test")};
    b.g = graph_new(b.a);
    b.g->name = "test";
    b.sources = sources_new(b.a);
    b.ds = diags_new(b.sources);
    b.g->batch = graph_add_dim(b.g, "batch", batch, NOWHERE);
    b.g->optimizer = (Optimizer){.kind = OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
    b.cl = NEW(b.a, Cluster);
    b.cl->device = NEW(b.a, Device);
    b.cl->ndevice = b.cl->ndevices = 1;
    b.cl->kind = NEW(b.a, uint32_t);
    *b.cl->device = (Device){.name = "cpu", .backend = BACKEND_CPU, .memory = 8LL << 30, .reserve = 1 << 28, .threads = 2};
    b.cl->device->peak[DT_f32] = b.cl->device->peak[DT_f64] = 1e11;
    b.plan = NEW(b.a, Plan);
    b.plan->microbatches = 1;
    b.plan->bucket = DEFAULT_BUCKET;
    b.plan->schedule = "1f1b";
    for (int i = 0; i < MESH_AXES; i++)
        b.plan->mesh[i] = 1;
    b.plan->ndevices = 1;
    b.plan->devices = NEW(b.a, uint32_t);
    return b;
}

static inline void build_free(Build *b)
{
    arena_free(b->a);
}

static inline DimId dim(Build *b, const char *name, int64_t n)
{
    return graph_add_dim(b->g, name, n, NOWHERE);
}

static inline ValueId input(Build *b, const char *path, DType t, Shape s)
{
    return graph_add_value(b->g, path, ROLE_INPUT, t, s.rank, s.axis, NOWHERE);
}

static inline ValueId weight(Build *b, const char *path, Shape s)
{
    Weight w = {.gradient = NO_VALUE, .init = {.kind = INIT_normal, .a = 0.02}, .decays = s.rank >= 2};
    w.value = graph_add_value(b->g, path, ROLE_WEIGHT, b->g->precision.weights, s.rank, s.axis, NOWHERE);
    PUSH(b->a, b->g->weight, b->g->nweight, w);
    return w.value;
}

static inline OpSpec spec(Build *b, OpKind kind, const char *path, int narg, const ValueId *arg, Shape out)
{
    OpSpec s = op_spec(kind, PHASE_FORWARD, path, NOWHERE);
    s.narg = (uint8_t)narg;
    for (int i = 0; i < narg; i++)
        s.arg[i] = arg[i];
    s.nout = 1;
    s.out[0] = (OutSpec){.dtype = b->g->precision.compute, .rank = out.rank};
    memcpy(s.out[0].axis, out.axis, sizeof out.axis);
    return s;
}

static inline void also(Build *b, OpSpec *s, const char *suffix, Shape out)
{
    OutSpec *o = &s->out[s->nout++];
    *o = (OutSpec){.suffix = suffix, .dtype = b->g->precision.compute, .rank = out.rank};
    memcpy(o->axis, out.axis, sizeof out.axis);
}

static inline ValueId emit(Build *b, const OpSpec *s)
{
    return op_of(b->g, graph_add_op(b->g, s))->out[0];
}

static inline Shape shape_of(Build *b, ValueId v)
{
    Shape s = {.rank = value_of(b->g, v)->rank};
    memcpy(s.axis, value_of(b->g, v)->axis, sizeof s.axis);
    return s;
}

static inline ValueId op1(Build *b, OpKind kind, const char *path, ValueId x, Shape out)
{
    OpSpec s = spec(b, kind, path, 1, &x, out);
    return emit(b, &s);
}

static inline ValueId op2(Build *b, OpKind kind, const char *path, ValueId x, ValueId y, Shape out)
{
    OpSpec s = spec(b, kind, path, 2, (ValueId[]){x, y}, out);
    return emit(b, &s);
}

/* An elementwise op of one argument, and of two of one shape. */
static inline ValueId map1(Build *b, OpKind kind, const char *path, ValueId x)
{
    return op1(b, kind, path, x, shape_of(b, x));
}

static inline ValueId map2(Build *b, OpKind kind, const char *path, ValueId x, ValueId y)
{
    return op2(b, kind, path, x, y, shape_of(b, x));
}

static inline ValueId dropout(Build *b, const char *path, ValueId x, double p)
{
    OpSpec s = spec(b, OP_dropout, path, 1, &x, shape_of(b, x));
    s.attr[op_attr_index(OP_dropout, "p")] = ATTR_F(p);
    return emit(b, &s);
}

static inline const char *sub(Build *b, const char *path, const char *name)
{
    return arena_printf(b->a, "%s.%s", path, name);
}

/* x[.., in] -> [.., out..] with weights path.w and, asked for, path.b. */
static inline ValueId linear(Build *b, const char *path, ValueId x, Shape in, Shape out, bool bias)
{
    Shape w = in, y = shape_of(b, x);
    y.rank = (uint8_t)(y.rank - in.rank);
    for (int i = 0; i < out.rank; i++) {
        w.axis[w.rank++] = out.axis[i];
        y.axis[y.rank++] = out.axis[i];
    }
    ValueId arg[3] = {x, weight(b, sub(b, path, "w"), w), NO_VALUE};
    if (bias)
        arg[2] = weight(b, sub(b, path, "b"), out);
    OpSpec s = spec(b, OP_linear, path, bias ? 3 : 2, arg, y);
    return emit(b, &s);
}

static inline ValueId layernorm(Build *b, const char *path, ValueId x)
{
    Shape y = shape_of(b, x), rows = y, d = {1, {y.axis[y.rank - 1]}};
    rows.rank--;
    ValueId arg[3] = {x, weight(b, sub(b, path, "w"), d), weight(b, sub(b, path, "b"), d)};
    OpSpec s = spec(b, OP_layernorm, path, 3, arg, y);
    also(b, &s, "mean", rows);
    also(b, &s, "rstd", rows);
    return emit(b, &s);
}

static inline ValueId rmsnorm(Build *b, const char *path, ValueId x)
{
    Shape y = shape_of(b, x), rows = y, d = {1, {y.axis[y.rank - 1]}};
    rows.rank--;
    ValueId arg[2] = {x, weight(b, sub(b, path, "w"), d)};
    OpSpec s = spec(b, OP_rmsnorm, path, 2, arg, y);
    also(b, &s, "rstd", rows);
    return emit(b, &s);
}

static inline ValueId attention(Build *b, const char *path, ValueId q, ValueId k, ValueId v, double p)
{
    Shape y = shape_of(b, q), lse = y;
    lse.rank--;
    OpSpec s = spec(b, OP_attention, path, 3, (ValueId[]){q, k, v}, y);
    s.attr[op_attr_index(OP_attention, "causal")] = ATTR_B(true);
    s.attr[op_attr_index(OP_attention, "dropout")] = ATTR_F(p);
    also(b, &s, "lse", lse);
    return emit(b, &s);
}

static inline ValueId cross_entropy(Build *b, const char *path, ValueId logits, ValueId labels)
{
    OpSpec s = spec(b, OP_cross_entropy, path, 2, (ValueId[]){logits, labels}, SCALAR);
    also(b, &s, "lse", shape_of(b, labels));
    return emit(b, &s);
}

static inline void minimize(Build *b, ValueId loss)
{
    b->g->loss = loss;
    graph_differentiate(b->g);
    assert_int_equal(graph_check(b->g, stderr), 0);
}

/* ---- whole models ---- */

typedef struct Sizes { int64_t batch, seq, vocab, hidden, heads, ffn; int layers; double drop; } Sizes;
static const Sizes tiny = {4, 8, 29, 16, 2, 64, 2, 0.1};

typedef struct Dims { Shape ids, x, hidden, heads, ffn; DimId seq, vocab; } Dims;

static inline Dims model_dims(Build *b, const Sizes *z)
{
    Dims d = {.seq = dim(b, "seq", z->seq), .vocab = dim(b, "vocab", z->vocab)};
    DimId hidden = dim(b, "hidden", z->hidden);
    d.ids = SHAPE(b->g->batch, d.seq);
    d.x = SHAPE(b->g->batch, d.seq, hidden);
    d.hidden = SHAPE(hidden);
    d.heads = SHAPE(dim(b, "heads", z->heads), dim(b, "head_dim", z->hidden / z->heads));
    d.ffn = SHAPE(dim(b, "ffn", z->ffn));
    return d;
}

static inline ValueId attn(Build *b, const Dims *d, const char *path, ValueId x, double drop, bool bias)
{
    ValueId q = linear(b, sub(b, path, "q"), x, d->hidden, d->heads, bias);
    ValueId k = linear(b, sub(b, path, "k"), x, d->hidden, d->heads, bias);
    ValueId v = linear(b, sub(b, path, "v"), x, d->hidden, d->heads, bias);
    ValueId a = attention(b, sub(b, path, "a"), q, k, v, drop);
    return linear(b, sub(b, path, "out"), a, d->heads, d->hidden, bias);
}

/* Contract x[.., hidden] with the table's hidden axis. */
static inline ValueId tied_head(Build *b, const Dims *d, ValueId x, ValueId wte)
{
    return op2(b, OP_contract, "logits", x, wte, SHAPE(b->g->batch, d->seq, d->vocab));
}

static inline void gpt2(Build *b, Sizes z)
{
    Dims d = model_dims(b, &z);
    ValueId ids = input(b, "ids", DT_i32, d.ids), labels = input(b, "labels", DT_i32, d.ids);
    ValueId wte = weight(b, "wte", SHAPE(d.vocab, d.hidden.axis[0]));
    ValueId wpe = weight(b, "wpe", SHAPE(dim(b, "context", z.seq), d.hidden.axis[0]));
    OpSpec pos = spec(b, OP_iota, "iota", 0, NULL, SHAPE(d.seq));
    pos.out[0].dtype = DT_i32;
    ValueId at = emit(b, &pos);
    ValueId x = op2(b, OP_embed, "embed[0]", ids, wte, d.x);
    ValueId p = op2(b, OP_embed, "embed[1]", at, wpe, SHAPE(d.seq, d.hidden.axis[0]));
    x = dropout(b, "dropout", op2(b, OP_add, "add", x, p, d.x), z.drop);
    for (int i = 0; i < z.layers; i++) {
        const char *h = arena_printf(b->a, "h[%d]", i);
        ValueId a = attn(b, &d, sub(b, h, "attn"), layernorm(b, sub(b, h, "ln1"), x), z.drop, true);
        x = map2(b, OP_add, sub(b, h, "add[0]"), x, dropout(b, sub(b, h, "attn.dropout"), a, z.drop));
        ValueId u = linear(b, sub(b, h, "mlp.up"), layernorm(b, sub(b, h, "ln2"), x), d.hidden, d.ffn, true);
        ValueId m = linear(b, sub(b, h, "mlp.down"), map1(b, OP_gelu, sub(b, h, "mlp.gelu"), u), d.ffn, d.hidden, true);
        x = map2(b, OP_add, sub(b, h, "add[1]"), x, dropout(b, sub(b, h, "mlp.dropout"), m, z.drop));
    }
    ValueId logits = tied_head(b, &d, layernorm(b, "ln_f", x), wte);
    minimize(b, cross_entropy(b, "loss", logits, labels));
}

static inline void llama(Build *b, Sizes z)
{
    Dims d = model_dims(b, &z);
    ValueId ids = input(b, "ids", DT_i32, d.ids), labels = input(b, "labels", DT_i32, d.ids);
    ValueId x = op2(b, OP_embed, "embed", ids, weight(b, "tok", SHAPE(d.vocab, d.hidden.axis[0])), d.x);
    for (int i = 0; i < z.layers; i++) {
        const char *h = arena_printf(b->a, "h[%d]", i);
        ValueId a = attn(b, &d, sub(b, h, "attn"), rmsnorm(b, sub(b, h, "norm1"), x), 0, false);
        x = map2(b, OP_add, sub(b, h, "add[0]"), x, a);
        ValueId n = rmsnorm(b, sub(b, h, "norm2"), x);
        ValueId gate = map1(b, OP_silu, sub(b, h, "mlp.silu"), linear(b, sub(b, h, "mlp.gate"), n, d.hidden, d.ffn, false));
        ValueId up = linear(b, sub(b, h, "mlp.up"), n, d.hidden, d.ffn, false);
        ValueId down = linear(b, sub(b, h, "mlp.down"), map2(b, OP_mul, sub(b, h, "mlp.mul"), gate, up), d.ffn, d.hidden, false);
        x = map2(b, OP_add, sub(b, h, "add[1]"), x, down);
    }
    ValueId logits = linear(b, "head", rmsnorm(b, "norm", x), d.hidden, SHAPE(d.vocab), false);
    minimize(b, cross_entropy(b, "loss", logits, labels));
}

/* ---- lowering ---- */

static inline void check_pass(void *ctx, const char *pass, const Program *p)
{
    (void)ctx;
    if (program_check(p, stderr) > 0)
        fail_msg("the program is broken after %s", pass);
}

static inline Program *lower_to(Build *b, int64_t microbatches, Status want)
{
    Program *p;
    b->plan->microbatches = microbatches;
    PassDump dump = {check_pass, NULL};
    Status got = codegen(b->a, b->ds, b->g, b->plan, b->cl, 0, &dump, &p);
    if (got != want)
        diags_flush(b->ds, stderr);
    assert_int_equal(got, want);
    return p;
}

/* Lowered, checked and fitted. */
static inline Program *lowered(Build *b, int64_t microbatches)
{
    Program *p = lower_to(b, microbatches, OK);
    assert_int_equal(program_check(p, stderr), 0);
    return p;
}

/* The text of the only diagnostic of a refused lowering. */
static inline const char *refusal(Build *b, int64_t microbatches)
{
    assert_null(lower_to(b, microbatches, ERR_REJECT));
    assert_int_equal(b->ds->errors, 1);
    return b->ds->first->text;
}

/* ---- looking at programs ---- */

static inline const Proc *proc(const Program *p, ProcKind kind)
{
    for (uint32_t i = 0; i < p->nproc; i++)
        if (p->proc[i].kind == kind)
            return &p->proc[i];
    return NULL;
}

static inline int count_op(const Program *p, ProcKind kind, OpKind op)
{
    const Proc *pr = proc(p, kind);
    int n = 0;
    for (uint32_t i = pr ? pr->first : 0; pr && i < pr->end; i++)
        n += p->instr[i].op == op;
    return n;
}

/* The only instruction of an op in a procedure. */
static inline const Instr *the(const Program *p, ProcKind kind, OpKind op)
{
    assert_int_equal(count_op(p, kind, op), 1);
    uint32_t i = proc(p, kind)->first;
    while (p->instr[i].op != op)
        i++;
    return &p->instr[i];
}

static inline BufferId on(const Program *p, TensorId t)
{
    assert_true(has_tensor(t));
    return p->tensor[t.i].buffer;
}

static inline const State *state(const Program *p, const char *path)
{
    for (uint32_t i = 0; i < p->nstate; i++)
        if (strcmp(p->state[i].path, path) == 0)
            return &p->state[i];
    fail_msg("no state %s", path);
    return NULL;
}

/* ---- small graphs of one input ---- */

typedef struct Mini { Build b; DimId d, n; ValueId x; } Mini;

/* An inference model with one input x[batch, d]. */
static inline Mini mini(void)
{
    Mini m = {.b = build_new(4)};
    m.d = dim(&m.b, "d", 16);
    m.n = dim(&m.b, "n", 12);
    m.x = input(&m.b, "x", DT_f32, SHAPE(m.b.g->batch, m.d));
    return m;
}

static inline ValueId own(Mini *m, OpKind kind, const char *path)
{
    return map1(&m->b, kind, path, m->x);
}

static inline void output(Build *b, ValueId v)
{
    PUSH(b->a, b->g->output, b->g->noutput, ((NamedValue){value_of(b->g, v)->path, v}));
}

/* Lower the inference model whose outputs are given, and forget the build. */
static inline Program *inferred(Mini *m, int n, const ValueId *out)
{
    for (int i = 0; i < n; i++)
        output(&m->b, out[i]);
    Program *p = lowered(&m->b, 1);
    assert_null(proc(p, PROC_forward));
    return p;
}
#define INFERRED(m, ...) inferred((m), (int)(sizeof((ValueId[]){__VA_ARGS__}) / sizeof(ValueId)), (ValueId[]){__VA_ARGS__})

static inline int evaluated(const Program *p, OpKind op)
{
    return count_op(p, PROC_evaluate, op);
}

#endif
