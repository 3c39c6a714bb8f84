/* Every CUDA kernel against the plain form of its op, on every op of every case of tests/ops, in f32 and bf16, at small and
 * at odd larger extents; adding to results and in place where the op table allows it; the same call again gives the same
 * bits.  A new row of kernels/cuda/cuda.def is tested without a change here. */
#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "tests/cudaemu/control.h"
#include "tests/ops/cases.h"

typedef enum Manner { OVERWRITE, ADD, IN_PLACE, MANNERS } Manner;
static const char *const manner_name[] = {"overwriting", "adding", "in place"};

static cudaStream_t stream;
static cublasLtHandle_t lt;
static void *lt_work;
static bool tried[OP_KINDS];

static void must(int status, const char *what)
{
    if (status == 0)
        return;
    printf("%s returns %d\n", what, status);
    exit(1);
}

static void *on_device(const void *from, size_t bytes)
{
    void *p = NULL;
    must(cudaMalloc(&p, bytes ? bytes : 1), "cudaMalloc");
    if (from && bytes)
        must(cudaMemcpyAsync(p, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    return p;
}

/* One op, its arguments as the plain forms left them and its results as the plain form made them. */
typedef struct Run {
    Eval       *e;
    const Case *of;
    OpId        id;
    Instr       in;
    Manner      manner;
    void       *out[MAX_OUTS];        /* what the kernel made, on the host */
    int         wrong;
} Run;

/* Distance over the largest number of the result: in bf16 one form may round up what the other rounds down, and what
 * was rounded may be rounded again. */
static double tolerance(DType t)
{
    return t == DT_bf16 ? 0x1.02p-7 : 1e-5;
}

static size_t bytes_of(const Run *r, TensorId t)
{
    return (size_t)tensor_bytes(&r->e->program->tensor[t.i]);
}

/* Which results a trial adds to: the loss of a cross entropy, else all. */
static uint8_t added(const Run *r)
{
    OpKind k = r->in.op;
    if (r->manner != ADD)
        return 0;
    bool loss = k == OP_cross_entropy || k == OP_cross_entropy_both || k == OP_cross_entropy_merge;
    return (uint8_t)(loss ? 1 : (1 << r->in.nout) - 1);
}

static bool can(const Run *r)
{
    unsigned flags = op_info[r->in.op].flags;
    if (r->manner == ADD)
        return flags & OPF_ACCUM;
    if (r->manner == IN_PLACE)
        return flags & OPF_INPLACE && r->in.narg && bytes_of(r, r->in.arg[0]) == bytes_of(r, r->in.out[0]) &&
               memcmp(r->in.arg_factor[0], r->in.out_factor[0], MAX_RANK) == 0;
    return true;
}

/* Argument that shares memory with a result in place, or -1: an optimizer updates all its states. */
static int shared_arg(const Run *r, int out)
{
    if (r->manner != IN_PLACE)
        return -1;
    return out == 0 ? 0 : r->in.op == OP_adamw || r->in.op == OP_sgd ? out + 1 : -1;
}

static void upload(const Run *r, KCall *k)
{
    const Tensor *t = r->e->program->tensor;
    for (int a = 0; a < r->in.narg; a++)
        if (has_tensor(r->in.arg[a])) {
            k->argt[a] = &t[r->in.arg[a].i];
            k->arg[a] = on_device(r->e->data[r->in.arg[a].i], bytes_of(r, r->in.arg[a]));
        }
    for (int o = 0; o < r->in.nout; o++)
        if (has_tensor(r->in.out[o])) {
            int a = shared_arg(r, o);
            k->outt[o] = &t[r->in.out[o].i];
            k->out[o] = a >= 0 ? k->arg[a] : on_device(NULL, bytes_of(r, r->in.out[o]));
            if (added(r) >> o & 1)
                must(cudaMemsetAsync(k->out[o], 0x3f, bytes_of(r, r->in.out[o]), stream), "cudaMemsetAsync");
        }
}

static void download(const Run *r, const KCall *k, void *out[MAX_OUTS])
{
    for (int o = 0; o < r->in.nout; o++) {
        out[o] = k->out[o] ? eval_array(bytes_of(r, r->in.out[o])) : NULL;
        if (out[o] && bytes_of(r, r->in.out[o]))
            must(cudaMemcpyAsync(out[o], k->out[o], bytes_of(r, r->in.out[o]), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    }
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    for (int a = 0; a < r->in.narg; a++)
        must(cudaFree(k->arg[a]), "cudaFree");
    for (int o = 0; o < r->in.nout; o++)
        if (shared_arg(r, o) < 0)
            must(cudaFree(k->out[o]), "cudaFree");
}

/* Runs the kernel on copies of its operands; false: it refuses. */
static bool execute(Run *r, void *out[MAX_OUTS])
{
    const KStep *s = &r->e->step;
    CudaStep now = {s->seed, s->step, s->micro, s->samples, s->lr, s->correction1, s->correction2};
    CudaStep *step = on_device(&now, sizeof now);
    void *work = on_device(NULL, (size_t)cuda_workspace(&r->in, r->e->program));
    r->in.acc = r->manner == ADD ? ACC_YES : ACC_NO;
    r->in.acc_out = added(r);
    CudaCall c = {.call = {.in = &r->in, .work = work, .step = s}, .now = step, .stream = stream, .lt = lt, .lt_work = lt_work};
    upload(r, &c.call);
    CudaKernel kernel = cuda_kernel_of(&r->in, r->e->program);
    cudaError_t status = kernel ? kernel(&c) : cudaErrorNotSupported;
    download(r, &c.call, out);
    must(cudaFree(step), "cudaFree");
    must(cudaFree(work), "cudaFree");
    if (status != cudaSuccess)
        printf("%s: %s, %s: the launcher returns %d\n", r->of->name, op_info[r->in.op].name, manner_name[r->manner], (int)status);
    return status == cudaSuccess;
}

static ValueId result(const Run *r, int o)
{
    return (ValueId){r->in.out[o].i};
}

/* What an element must be: the plain form's, plus what was there. */
static double expected(const Run *r, int o, int64_t i)
{
    unsigned char bytes[8];
    memset(bytes, 0x3f, sizeof bytes);
    return eval_get(r->e, result(r, o), i) + (added(r) >> o & 1 ? eval_get_from(r->e, result(r, o), bytes, 0) : 0);
}

static double distance(const Run *r, int o)
{
    double worst = 0, largest = eval_usual_size(r->e, r->id);
    for (int64_t i = 0; i < value_elements(r->e->g, result(r, o)); i++) {
        double want = expected(r, o, i), got = eval_get_from(r->e, result(r, o), r->out[o], i), d = fabs(got - want);
        if (!isfinite(want) && (isnan(want) ? isnan(got) : got == want))
            d = 0;                                   /* the same infinity, or no number either */
        worst = d > worst || isnan(d) ? d : worst;
        largest = fabs(want) > largest && isfinite(want) ? fabs(want) : largest;
    }
    return worst / (largest > 0 ? largest : 1);
}

/* Dropout keeps the very elements that the CPU keeps. */
static bool same_mask(const Run *r)
{
    bool same = true;
    for (int64_t i = 0; i < value_elements(r->e->g, result(r, 0)); i++)
        same = same && (eval_get(r->e, result(r, 0), i) == 0) == (eval_get_from(r->e, result(r, 0), r->out[0], i) == 0);
    return same;
}

static void judge(Run *r)
{
    for (int o = 0; o < r->in.nout; o++) {
        if (!r->out[o])
            continue;
        double d = distance(r, o);
        if (d <= tolerance(value_of(r->e->g, result(r, o))->dtype))
            continue;
        printf("%s: %s, %s: result %d is off by %.2g\n", r->of->name, op_info[r->in.op].name, manner_name[r->manner], o, d);
        r->wrong++;
    }
    if (r->in.op == OP_dropout && !same_mask(r)) {
        printf("%s: other elements are kept than on the CPU\n", r->of->name);
        r->wrong++;
    }
}

/* The same call again gives the same bits. */
static void judge_again(Run *r)
{
    void *again[MAX_OUTS];
    bool same = execute(r, again);
    for (int o = 0; o < r->in.nout; o++) {
        same = same && (!again[o] || memcmp(again[o], r->out[o], bytes_of(r, r->in.out[o])) == 0);
        free(again[o]);
    }
    if (!same)
        printf("%s: %s: the bits change\n", r->of->name, op_info[r->in.op].name);
    r->wrong += !same;
}

static void try_op(Run *r)
{
    r->in = eval_instr(r->e, r->id);
    for (r->manner = OVERWRITE; r->manner < MANNERS; r->manner++) {
        if (!can(r))
            continue;
        if (execute(r, r->out))
            judge(r);
        else
            r->wrong++;
        if (r->manner == OVERWRITE)
            judge_again(r);
        for (int o = 0; o < r->in.nout; o++)
            free(r->out[o]);
    }
    tried[r->in.op] = true;
}

static int try_case(const Case *c, int scale, DType compute, Team *team)
{
    Arena *a = arena_new("case");
    Maker m = case_make(a, c, scale, compute, !c->forward_only);
    if (!c->forward_only)
        graph_differentiate(m.g);
    Eval *e = eval_new(m.g, compute, ISA_REF, team);
    e->step.correction1 = 0.19;
    e->step.correction2 = 0.0199;
    e->step.samples = 1;
    case_fill(&m, e);
    Run r = {.e = e, .of = c};
    for (int phase = PHASE_BEGIN; phase <= PHASE_BACKWARD; phase++)
        for (uint32_t i = 0; i < m.g->nop; i++) {
            if ((int)m.g->op[i].phase != phase)
                continue;
            r.id = (OpId){i};
            eval_op(e, r.id);
            if (!(op_info[m.g->op[i].kind].flags & OPF_VIEW))
                try_op(&r);
        }
    eval_free(e);
    arena_free(a);
    return r.wrong;
}

/* All cases in a type and a size, then whether every op that the CPU executes was among them. */
static int try_all(int scale, DType compute, Team *team)
{
    int wrong = 0;
    const Case *c;
    memset(tried, 0, sizeof tried);
    for (int i = 0; (c = case_at(i)); i++)
        wrong += try_case(c, scale, compute, team);
    printf("%s every op by its plain form: %s, %s extents\n", wrong ? "not ok" : "ok", dtype_name(compute), scale ? "larger" : "small");
    int missing = 0;
    for (int k = 0; k < OP_KINDS; k++)
        if (kernel_ref((OpKind)k) && !tried[k]) {
            printf("%s is never run\n", op_info[k].name);
            missing++;
        }
    printf("%s no op is left out: %s, %s extents\n", missing ? "not ok" : "ok", dtype_name(compute), scale ? "larger" : "small");
    fflush(stdout);
    return wrong + missing;
}

int main(void)
{
    int wrong = 0;
    Team *team = team_new(1);
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    must(cublasLtCreate(&lt), "cublasLtCreate");
    lt_work = on_device(NULL, CUDA_LT_WORKSPACE);
    for (int scale = 0; scale < 2; scale++) {
        wrong += try_all(scale, DT_f32, team);
        wrong += try_all(scale, DT_bf16, team);
    }
    team_free(team);
    bool clean = cudaemu_reports() == 0;
    printf("%s the emulator has nothing to report\n", clean ? "ok" : "not ok");
    return wrong || !clean;
}
