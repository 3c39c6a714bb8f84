/* Place: every value becomes a tensor with a buffer, every op an instruction.
 *
 * One device holds everything, so each axis lies whole at origin 0, except the
 * batch axis of a value that is cut: a tensor holds one micro-batch of it.
 *
 * The forward ops are placed twice: for training, and for evaluation (dropout
 * off, nothing saved), which has buffers of its own.  What is given from outside
 * or made once per step (weights, inputs, label counts) and the loss are shared. */
#include "codegen/pass.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"

/* One placing of the forward pass. */
typedef struct World {
    ProcKind forward;                 /* PROC_forward or PROC_evaluate */
    TensorId *tensor;                 /* per value */
    TensorId *given;                  /* per value: an input as the loader gives it */
} World;

/* ---- tensors ---- */

static Tensor tensor_of(const Lowering *lw, ValueId v)
{
    const Value *val = value_of(lw->g, v);
    MicroValue mv = lw->micro.value[v.i];
    Tensor t = {.path = val->path, .buffer = NO_BUFFER, .dtype = val->dtype, .rank = val->rank, .role = val->role};
    if (t.dtype == DT_bool)
        t.dtype = DT_u8;
    for (uint32_t x = 0; x < val->rank; x++) {
        int64_t n = dim_of(lw->g, val->axis[x])->extent;
        bool cut = mv.kind == MICRO_CUT && mv.axis == x;
        t.axis[x] = (AxisPlace){.local = cut ? n / lw->micro.count : n, .global = n, .per_micro = cut ? n / lw->micro.count : 0};
    }
    return t;
}

static void place_weights(Lowering *lw, TensorId *tensor)
{
    Program *p = lw->p;
    for (uint32_t i = 0; i < lw->g->nweight; i++) {
        const Weight *w = &lw->g->weight[i];
        TensorId t = tensor[w->value.i] = code_own(p, tensor_of(lw, w->value), CLASS_weights);
        State s = {.path = value_of(lw->g, w->value)->path, .weight = t, .master = NO_TENSOR, .gradient = NO_TENSOR,
                   .moment = {NO_TENSOR, NO_TENSOR}, .init = w->init, .frozen = w->frozen, .decays = w->decays};
        PUSH(p->arena, p->state, p->nstate, s);
    }
}

/* A slot per micro-batch: the loader fills a whole step's batch at once. */
static void place_inputs(Lowering *lw, TensorId *given)
{
    Program *p = lw->p;
    for (uint32_t v = 0; v < lw->g->nvalue; v++) {
        if (lw->g->value[v].role != ROLE_INPUT)
            continue;
        TensorId t = given[v] = code_own(p, tensor_of(lw, (ValueId){v}), CLASS_inputs);
        Buffer *b = &p->buffer[buffer_of(p, t).i];
        b->slots = (uint32_t)lw->micro.count;
        b->by_micro = true;
        PUSH(p->arena, p->input, p->ninput, ((Input){lw->g->value[v].path, t}));
    }
}

/* ---- instructions ---- */

Instr instr_from_op(const Lowering *lw, OpId o)
{
    const Op *op = op_of(lw->g, o);
    uint8_t cut = lw->micro.cut[o.i];
    Instr in = {.op = op->kind, .path = op->path, .key = op->key, .narg = op->narg, .nout = op->nout, .nfactor = op->nfactor, .workspace = NO_TENSOR};
    for (int i = 0; i < MAX_ARGS; i++)
        in.arg[i] = NO_TENSOR;
    for (int i = 0; i < MAX_OUTS; i++)
        in.out[i] = NO_TENSOR;
    for (uint8_t f = 0; f < op->nfactor; f++) {
        int64_t n = dim_of(lw->g, op->factor[f].dim)->extent;
        in.extent[f] = f == cut ? n / lw->micro.count : n;
        in.role[f] = op->factor[f].role;
    }
    memcpy(in.arg_factor, op->arg_factor, sizeof in.arg_factor);
    memcpy(in.out_factor, op->out_factor, sizeof in.out_factor);
    memcpy(in.attr, op->attr, sizeof in.attr);
    return in;
}

/* A whole operand that meets a summand counts once: a part of it per micro-batch. */
static TensorId once(Lowering *lw, const Op *op, TensorId x)
{
    Tensor t = lw->p->tensor[x.i];
    TensorId part = code_own(lw->p, t, CLASS_working);
    Instr in = instr_copy(lw->p, x, part);
    in.op = OP_scale;
    in.path = op->path;
    in.key = op->key;
    memset(in.attr, 0, sizeof in.attr);
    *instr_set(&in, "by") = ATTR_F(1.0 / (double)lw->micro.count);
    program_add_instr(lw->p, in);
    return part;
}

/* ---- ops that are no instruction ---- */

/* A dropout that drops nothing, and a cast that changes nothing, are their argument. */
static bool is_identity(const Lowering *lw, const World *w, const Op *op)
{
    if (op->kind == OP_dropout)
        return w->forward == PROC_evaluate || op_attr(op, "p")->f == 0;
    return op->kind == OP_cast && value_of(lw->g, op->arg[0])->dtype == value_of(lw->g, op->out[0])->dtype;
}

/* ---- one op ---- */

static bool sums_up(const Lowering *lw, OpId o)
{
    return micro_closes(lw->g, &lw->micro, o);
}

static BufferClass class_of(const Lowering *lw, OpId o, int k)
{
    const Op *op = op_of(lw->g, o);
    bool count = op->phase == PHASE_BEGIN && value_of(lw->g, op->out[k])->rank == 0;
    return count || (k == 0 && sums_up(lw, o)) ? CLASS_scalars : CLASS_working;
}

static void place_results(Lowering *lw, World *w, OpId o, Instr *in)
{
    const Op *op = op_of(lw->g, o);
    for (int k = 0; k < op->nout; k++) {
        if (!has_value(op->out[k]))
            continue;
        TensorId *t = &w->tensor[op->out[k].i];
        if (!has_tensor(*t))
            *t = code_own(lw->p, tensor_of(lw, op->out[k]), class_of(lw, o, k));
        in->out[k] = *t;
    }
    if (sums_up(lw, o)) {
        in->acc = ACC_AFTER_FIRST;
        in->acc_out = 1;
    }
}

static void place_op(Lowering *lw, World *w, OpId o)
{
    const Op *op = op_of(lw->g, o);
    if (op_info[op->kind].flags & OPF_VIEW || is_identity(lw, w, op)) {
        TensorId *out = &w->tensor[op->out[0].i];
        *out = view_place(lw, op, w->tensor[op->arg[0].i], tensor_of(lw, op->out[0]), *out);
        return;
    }
    Instr in = instr_from_op(lw, o);
    for (int a = 0; a < op->narg; a++) {
        if (!has_value(op->arg[a]))
            continue;
        in.arg[a] = w->tensor[op->arg[a].i];
        assert(has_tensor(in.arg[a]) && "makers come first");
        if (lw->micro.once[o.i] >> a & 1)
            in.arg[a] = once(lw, op, in.arg[a]);
    }
    if (op->kind == OP_attention && w->forward == PROC_evaluate)
        *instr_set(&in, "dropout") = ATTR_F(0);
    place_results(lw, w, o, &in);
    program_add_instr(lw->p, in);
}

static void place_phase(Lowering *lw, World *w, Phase phase)
{
    for (uint32_t o = 0; o < lw->g->nop; o++)
        if (lw->g->op[o].phase == phase)
            place_op(lw, w, (OpId){o});
}

/* Inputs of floats arrive in their own type; what computes with them reads a copy
 * in the compute type, made at the head of the procedure. */
static void cast_inputs(Lowering *lw, World *w)
{
    DType compute = lw->g->precision.compute;
    for (uint32_t v = 0; v < lw->g->nvalue; v++) {
        const Value *val = &lw->g->value[v];
        if (val->role != ROLE_INPUT || !dtype_is_float(val->dtype) || val->dtype == compute)
            continue;
        Tensor t = tensor_of(lw, (ValueId){v});
        t.dtype = compute;
        t.role = ROLE_ACTIVATION;
        t.path = arena_printf(lw->p->arena, "%s:cast", val->path);
        w->tensor[v] = code_own(lw->p, t, CLASS_working);
        Instr in = instr_copy(lw->p, w->given[v], w->tensor[v]);
        in.op = OP_cast;
        memset(in.attr, 0, sizeof in.attr);
        *instr_set(&in, "to") = ATTR_T(compute);
        program_add_instr(lw->p, in);
    }
}

/* ---- procedures ---- */

static void close_proc(Program *p, ProcKind kind, uint32_t first)
{
    if (p->ninstr > first)
        PUSH(p->arena, p->proc, p->nproc, ((Proc){.kind = kind, .first = first, .end = p->ninstr}));
}

static void place_forward(Lowering *lw, World *w)
{
    uint32_t first = lw->p->ninstr;
    cast_inputs(lw, w);
    place_phase(lw, w, PHASE_FORWARD);
    close_proc(lw->p, w->forward, first);
}

/* The gradient must be a summand: one that is the same in every micro-batch is
 * counted in parts. */
static void place_gradients(Lowering *lw, World *w)
{
    for (uint32_t i = 0; i < lw->g->nweight; i++) {
        const Weight *wt = &lw->g->weight[i];
        if (wt->frozen || !has_value(wt->gradient))
            continue;
        TensorId t = w->tensor[wt->gradient.i];
        const Op *maker = op_of(lw->g, value_of(lw->g, wt->gradient)->maker);
        if (lw->micro.count > 1 && lw->micro.value[wt->gradient.i].kind == MICRO_WHOLE)
            t = once(lw, maker, t);
        lw->p->state[i].gradient = t;
    }
}

static void place_training(Lowering *lw, World *w)
{
    place_forward(lw, w);
    uint32_t first = lw->p->ninstr;
    place_phase(lw, w, PHASE_BACKWARD);
    place_gradients(lw, w);
    close_proc(lw->p, PROC_backward, first);
}

static World world_new(Lowering *lw, ProcKind forward, const World *shared)
{
    size_t bytes = sizeof(TensorId) * (lw->g->nvalue + 1);
    World w = {.forward = forward, .tensor = arena_alloc(lw->scratch, bytes), .given = arena_alloc(lw->scratch, bytes)};
    if (shared) {
        memcpy(w.tensor, shared->tensor, bytes);
        memcpy(w.given, shared->given, bytes);
        return w;
    }
    for (uint32_t v = 0; v <= lw->g->nvalue; v++)
        w.tensor[v] = w.given[v] = NO_TENSOR;
    return w;
}

static void place_shared(Lowering *lw, World *w)
{
    place_weights(lw, w->tensor);
    place_inputs(lw, w->given);
    for (uint32_t v = 0; v < lw->g->nvalue; v++)
        if (has_tensor(w->given[v]))
            w->tensor[v] = w->given[v];
    place_phase(lw, w, PHASE_BEGIN);
    close_proc(lw->p, PROC_begin, 0);
    ValueId loss = lw->g->loss;
    if (has_value(loss) && !has_tensor(w->tensor[loss.i]))
        w->tensor[loss.i] = code_own(lw->p, tensor_of(lw, loss), CLASS_scalars);
}

void place(Lowering *lw)
{
    const Graph *g = lw->g;
    World shared = world_new(lw, PROC_begin, NULL);
    place_shared(lw, &shared);
    if (has_value(g->loss)) {
        World train = world_new(lw, PROC_forward, &shared);
        place_training(lw, &train);
        lw->p->loss = shared.tensor[g->loss.i];
    }
    World eval = world_new(lw, PROC_evaluate, &shared);
    place_forward(lw, &eval);
    for (uint32_t i = 0; i < g->noutput; i++)
        PUSH(lw->p->arena, lw->p->output, lw->p->noutput, eval.tensor[g->output[i].i]);
}
