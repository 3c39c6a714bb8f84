/* Eval: one instruction per op, run at once. */
#include "tests/ops/eval.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/operand.h"

static Tensor tensor_of(const Graph *g, ValueId v)
{
    const Value *val = value_of(g, v);
    Tensor t = {.path = val->path, .buffer = NO_BUFFER, .dtype = val->dtype, .rank = val->rank, .role = val->role};
    for (int i = 0; i < val->rank; i++) {
        int64_t n = dim_of(g, val->axis[i])->extent;
        t.axis[i] = (AxisPlace){.local = n, .global = n};
    }
    return t;
}

void *eval_array(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, BUFFER_ALIGN, bytes ? bytes : 1) != 0)
        abort();
    memset(p, 0x7f, bytes);
    return p;
}

Eval *eval_new(Graph *g, DType compute, Isa isa, Team *team)
{
    Eval *e = calloc(1, sizeof *e);
    *e = (Eval){.g = g, .program = program_new(g->arena), .compute = compute, .isa = isa, .team = team};
    e->program->precision.compute = compute;
    e->step = (KStep){.seed = 1234567, .step = 3, .first = true, .lr = 1e-2, .optimizer = &g->optimizer};
    e->data = calloc(g->nvalue + 1, sizeof *e->data);
    for (uint32_t v = 0; v < g->nvalue; v++) {
        program_add_tensor(e->program, tensor_of(g, (ValueId){v}));
        e->data[v] = eval_array(eval_bytes(e, (ValueId){v}));
    }
    return e;
}

void eval_free(Eval *e)
{
    for (uint32_t v = 0; v < e->g->nvalue; v++)
        free(e->data[v]);
    free(e->data);
    free(e);
}

Instr eval_instr(const Eval *e, OpId id)
{
    const Graph *g = e->g;
    const Op *op = op_of(g, id);
    Instr in = {.op = op->kind, .path = op->path, .key = op->key, .narg = op->narg, .nout = op->nout, .nfactor = op->nfactor, .workspace = NO_TENSOR};
    for (int i = 0; i < MAX_ARGS; i++)
        in.arg[i] = (TensorId){op->arg[i].i};
    for (int i = 0; i < MAX_OUTS; i++)
        in.out[i] = (TensorId){op->out[i].i};
    for (int f = 0; f < op->nfactor; f++) {
        in.extent[f] = dim_of(g, op->factor[f].dim)->extent;
        in.role[f] = op->factor[f].role;
    }
    memcpy(in.arg_factor, op->arg_factor, sizeof in.arg_factor);
    memcpy(in.out_factor, op->out_factor, sizeof in.out_factor);
    memcpy(in.attr, op->attr, sizeof in.attr);
    return in;
}

static void call(Eval *e, const Instr *in, const Trial *how)
{
    KCall c = {.in = in, .step = &e->step, .team = how->team};
    for (int i = 0; i < in->narg; i++)
        if (has_tensor(in->arg[i])) {
            c.argt[i] = &e->program->tensor[in->arg[i].i];
            c.arg[i] = how->arg[i] ? how->arg[i] : e->data[in->arg[i].i];
        }
    for (int i = 0; i < in->nout; i++)
        if (has_tensor(in->out[i])) {
            c.outt[i] = &e->program->tensor[in->out[i].i];
            c.out[i] = how->out[i] ? how->out[i] : e->data[in->out[i].i];
        }
    c.work = eval_array((size_t)instr_workspace(in, e->program));
    Kernel k = kernel_of(in, e->program, how->isa);
    assert(k);
    k(&c);
    free(c.work);
}

void eval_trial(Eval *e, OpId id, const Trial *how)
{
    Instr in = eval_instr(e, id);
    in.acc = how->acc;
    in.acc_out = how->acc_out;
    e->program->threads = team_size(how->team);
    call(e, &in, how);
}

void eval_op(Eval *e, OpId id)
{
    const Op *op = op_of(e->g, id);
    if (op_info[op->kind].flags & OPF_VIEW) {
        memcpy(e->data[op->out[0].i], e->data[op->arg[0].i], eval_bytes(e, op->out[0]));
        return;
    }
    eval_trial(e, id, &(Trial){.isa = e->isa, .team = e->team});
}

void eval_phase(Eval *e, Phase phase)
{
    for (uint32_t i = 0; i < e->g->nop; i++)
        if (e->g->op[i].phase == phase)
            eval_op(e, (OpId){i});
}

size_t eval_bytes(const Eval *e, ValueId v)
{
    return (size_t)tensor_bytes(&e->program->tensor[v.i]);
}

double eval_get_from(const Eval *e, ValueId v, const void *data, int64_t i)
{
    return real_at(&e->program->tensor[v.i], data, i);
}

double eval_get(const Eval *e, ValueId v, int64_t i)
{
    return eval_get_from(e, v, e->data[v.i], i);
}

void eval_set(Eval *e, ValueId v, int64_t i, double x)
{
    real_put(&e->program->tensor[v.i], e->data[v.i], i, x);
}

static double norm(const Eval *e, ValueId v)
{
    double sum = 0;
    for (int64_t i = 0; i < value_elements(e->g, v); i++)
        sum += eval_get(e, v, i) * eval_get(e, v, i);
    return sqrt(sum);
}

double eval_usual_size(const Eval *e, OpId id)
{
    const Op *op = op_of(e->g, id);
    if (op->kind != OP_contract || value_of(e->g, op->out[0])->rank > 0)
        return 0;
    return norm(e, op->arg[0]) * norm(e, op->arg[1]) / sqrt((double)value_elements(e->g, op->arg[0]));
}
