/* Every CUDA kernel against the plain form of its op, on every op of every case of tests/ops, in f32 and bf16, at small and
 * at odd larger extents; adding to results and in place where the op table allows it; the same call again gives the same
 * bits, where operands are not aligned so that 16 bytes cannot be loaded at once, and captured in a graph and replayed.  Then
 * on the parts of its tensors that ranks and micro-batches have, padded ones too.  A new row of kernels/cuda/cuda.def is
 * tested without a change here.
 *
 * It is linked with the emulator, and with CUDA for a GPU.  `test_ops WORDS [CASES]` runs the rounds whose names have these words,
 * of the cases those whose names have the others; of attention it says then whether cuDNN executes it, or why not. */
#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/split.h"
#include "kernels/cuda/cuda.h"
#include "tests/cudaemu/clean.h"
#include "tests/ops/cases.h"

typedef enum Manner { OVERWRITE, ADD, IN_PLACE, MANNERS } Manner;
static const char *const manner_name[] = {"overwriting", "adding", "in place"};
/* How a call is made. */
typedef enum Way { PLAIN, UNALIGNED, CAPTURED, WAYS } Way;
static const char *const way_name[] = {"", "where operands are not aligned", "in a graph that is replayed"};

static cudaStream_t stream;
static cublasLtHandle_t lt;
static void *lt_work;
static bool tried[OP_KINDS], cut[OP_KINDS];
static const char *wanted = "";       /* what the names of cases have */

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

/* One op: its arguments, and what the plain form makes of them. */
typedef struct Run {
    Eval       *e;
    const Case *of;
    OpId        id;
    Instr       in;
    Tensor      argt[MAX_ARGS], outt[MAX_OUTS];
    void       *arg[MAX_ARGS], *want[MAX_OUTS];
    Manner      manner;
    Way         way;
    void       *out[MAX_OUTS];        /* what the kernel made, on the host */
    int         wrong;
} Run;

/* Distance over the largest number of the result: in bf16 one form may round up what the other rounds down, and what
 * was rounded may be rounded again. */
static double tolerance(DType t)
{
    return t == DT_bf16 ? 0x1.02p-7 : 1e-5;
}

static size_t arg_bytes(const Run *r, int a)
{
    return (size_t)tensor_bytes(&r->argt[a]);
}

static size_t out_bytes(const Run *r, int o)
{
    return (size_t)tensor_bytes(&r->outt[o]);
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
        return flags & OPF_INPLACE && r->in.narg && arg_bytes(r, 0) == out_bytes(r, 0) &&
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

/* Bytes in front of an operand: unaligned ones begin an element behind an aligned address. */
static size_t before(const Run *r, const Tensor *t)
{
    return r->way == UNALIGNED ? (size_t)dtype_bytes(t->dtype) : 0;
}

static void *operand(const Run *r, const Tensor *t, const void *from)
{
    size_t bytes = (size_t)tensor_bytes(t);
    char *p = on_device(NULL, before(r, t) + bytes);
    if (from && bytes)
        must(cudaMemcpyAsync(p + before(r, t), from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    return p + before(r, t);
}

static void operand_free(const Run *r, const Tensor *t, void *p)
{
    if (p)
        must(cudaFree((char *)p - before(r, t)), "cudaFree");
}

static void upload(const Run *r, KCall *k)
{
    for (int a = 0; a < r->in.narg; a++)
        if (r->arg[a]) {
            k->argt[a] = &r->argt[a];
            k->arg[a] = operand(r, &r->argt[a], r->arg[a]);
        }
    for (int o = 0; o < r->in.nout; o++)
        if (r->want[o]) {
            int a = shared_arg(r, o);
            k->outt[o] = &r->outt[o];
            k->out[o] = a >= 0 ? k->arg[a] : operand(r, &r->outt[o], NULL);
            if (added(r) >> o & 1)
                must(cudaMemsetAsync(k->out[o], 0x3f, out_bytes(r, o), stream), "cudaMemsetAsync");
        }
}

static void download(const Run *r, const KCall *k, void *out[MAX_OUTS])
{
    for (int o = 0; o < r->in.nout; o++) {
        out[o] = k->out[o] ? eval_array(out_bytes(r, o)) : NULL;
        if (out[o] && out_bytes(r, o))
            must(cudaMemcpyAsync(out[o], k->out[o], out_bytes(r, o), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    }
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    for (int a = 0; a < r->in.narg; a++)
        operand_free(r, &r->argt[a], k->arg[a]);
    for (int o = 0; o < r->in.nout; o++)
        if (shared_arg(r, o) < 0)
            operand_free(r, &r->outt[o], k->out[o]);
}

/* A launcher puts its kernels on the stream; or into a graph, which is replayed twice. */
static cudaError_t run_kernel(const Run *r, CudaKernel kernel, const CudaCall *c)
{
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    if (r->way != CAPTURED)
        return kernel(c);
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaError_t status = kernel(c);
    must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    must(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    for (int i = 0; i < 2; i++)
        must(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    must(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return status;
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
    cudaError_t status = kernel ? run_kernel(r, kernel, &c) : cudaErrorNotSupported;
    download(r, &c.call, out);
    must(cudaFree(step), "cudaFree");
    must(cudaFree(work), "cudaFree");
    if (status != cudaSuccess)
        printf("%s: %s, %s: the launcher returns %d\n", r->of->name, op_info[r->in.op].name, manner_name[r->manner], (int)status);
    return status == cudaSuccess;
}

/* What an element must be: the plain form's, plus what was there. */
static double expected(const Run *r, int o, int64_t i)
{
    unsigned char bytes[8];
    memset(bytes, 0x3f, sizeof bytes);
    return real_at(&r->outt[o], r->want[o], i) + (added(r) >> o & 1 ? real_at(&r->outt[o], bytes, 0) : 0);
}

/* The gradient of a router may cancel but for rounding: its size is that of what comes in. */
static double usual_size(const Run *r)
{
    double most = eval_usual_size(r->e, r->id);
    for (int64_t i = 0; r->in.op == OP_router_grad && r->arg[0] && i < tensor_elements(&r->argt[0]); i++)
        most = fmax(most, fabs(real_at(&r->argt[0], r->arg[0], i)));
    return most;
}

static double distance(const Run *r, int o)
{
    double worst = 0, largest = usual_size(r);
    for (int64_t i = 0; i < tensor_elements(&r->outt[o]); i++) {
        double want = expected(r, o, i), got = real_at(&r->outt[o], r->out[o], i), d = fabs(got - want);
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
    for (int64_t i = 0; i < tensor_elements(&r->outt[0]); i++)
        same = same && (real_at(&r->outt[0], r->want[0], i) == 0) == (real_at(&r->outt[0], r->out[0], i) == 0);
    return same;
}

static void judge(Run *r)
{
    for (int o = 0; o < r->in.nout; o++) {
        if (!r->out[o])
            continue;
        double d = distance(r, o);
        if (d <= tolerance(r->outt[o].dtype))
            continue;
        printf("%s: %s, %s: result %d is off by %.2g\n", r->of->name, op_info[r->in.op].name, manner_name[r->manner], o, d);
        r->wrong++;
    }
    if (r->in.op == OP_dropout && !same_mask(r)) {
        printf("%s: other elements are kept than on the CPU\n", r->of->name);
        r->wrong++;
    }
}

/* Attention that cuDNN executes. */
static bool by_cudnn(const Run *r)
{
    return (r->in.op == OP_attention || r->in.op == OP_attention_grad) && !cuda_not_cudnn(&r->in, r->e->program);
}

/* Products and attention where operands are not aligned: a library chooses another kernel, or ours takes its place. */
static bool by_alignment(const Run *r)
{
    return r->in.op == OP_contract || r->in.op == OP_linear || r->in.op == OP_linear_gelu || by_cudnn(r);
}

/* The same call once more, in another way, gives the same bits. */
static void judge_again(Run *r, Way way)
{
    void *first[MAX_OUTS];
    memcpy(first, r->out, sizeof first);
    r->way = way;
    bool same = execute(r, r->out), other = way == UNALIGNED && by_alignment(r);
    r->way = PLAIN;
    if (other)
        judge(r);
    for (int o = 0; o < r->in.nout; o++) {
        same = same && (other || !first[o] || memcmp(first[o], r->out[o], out_bytes(r, o)) == 0);
        free(r->out[o]);
    }
    memcpy(r->out, first, sizeof first);
    if (!same)
        printf("%s: %s: the bits change %s\n", r->of->name, op_info[r->in.op].name, way_name[way]);
    r->wrong += !same;
}

static void try_manner(Run *r, bool whole)
{
    if (execute(r, r->out))
        judge(r);
    else
        r->wrong++;
    for (Way w = UNALIGNED; whole && r->manner == OVERWRITE && w < WAYS; w++)
        judge_again(r, w);
    for (int o = 0; o < r->in.nout; o++)
        free(r->out[o]);
}

/* The whole op, which its plain form has just run. */
static void try_whole(Run *r)
{
    const Tensor *t = r->e->program->tensor;
    r->in = eval_instr(r->e, r->id);
    for (int a = 0; a < r->in.narg; a++)
        if (has_tensor(r->in.arg[a])) {
            r->argt[a] = t[r->in.arg[a].i];
            r->arg[a] = r->e->data[r->in.arg[a].i];
        }
    for (int o = 0; o < r->in.nout; o++)
        if (has_tensor(r->in.out[o])) {
            r->outt[o] = t[r->in.out[o].i];
            r->want[o] = r->e->data[r->in.out[o].i];
        }
    for (r->manner = OVERWRITE; r->manner < MANNERS; r->manner++)
        if (can(r))
            try_manner(r, true);
    if (*wanted && (r->in.op == OP_attention || r->in.op == OP_attention_grad))
        printf("# %s, %s: %s\n", r->of->name, op_info[r->in.op].name, by_cudnn(r) ? "cuDNN" : cuda_not_cudnn(&r->in, r->e->program));
    tried[r->in.op] = true;
}

/* ---- parts ---- */

enum { PARTS = 2, MICRO = 1 };

/* A factor that is cut in PARTS, and the key heads that go with query heads. */
typedef struct Cut {
    uint8_t factor, heads;            /* heads: NO_FACTOR where there are none */
    int     part;
    bool    padded;                   /* equal parts, which reach beyond the end */
    bool    micro;                    /* the last part begins where micro-batch 1 has it */
} Cut;

static int64_t extent(const Run *r, uint8_t f)
{
    return dim_of(r->e->g, op_of(r->e->g, r->id)->factor[f].dim)->extent;
}

static AxisPlace share(const Run *r, const Cut *c, uint8_t f)
{
    int64_t n = extent(r, f), each = n / PARTS, first = each * c->part;
    if (f != c->factor && f != c->heads)
        return (AxisPlace){.local = n, .global = n};
    if (c->padded)
        return (AxisPlace){.local = each + 1, .global = n, .origin = c->part * (each + 1), .pad = (each + 1) * PARTS - n};
    AxisPlace a = {.local = c->part == PARTS - 1 ? n - first : each, .global = n, .origin = first};
    if (c->micro) {
        a.origin -= c->part ? each : 0;
        a.per_micro = c->part ? each : 0;
    }
    return a;
}

static Tensor part_of(const Run *r, const Cut *c, TensorId id, const uint8_t *factor)
{
    Tensor t = r->e->program->tensor[id.i];
    for (int x = 0; x < t.rank; x++)
        t.axis[x] = share(r, c, factor[x]);
    return t;
}

/* Elements of the part, from the whole; what is padding holds large numbers. */
static void *load(const Run *r, const Cut *c, TensorId id, const Tensor *t)
{
    int64_t length = row_length(t);
    void *data = eval_array((size_t)tensor_bytes(t));
    for (int64_t i = 0; i < tensor_elements(t); i++)
        if (i % length < place_row_valid(t, i / length))
            real_put(t, data, i, eval_get(r->e, (ValueId){id.i}, place_row(t, i / length, c->micro ? MICRO : 0) + i % length));
    return data;
}

static void part_new(Run *r, const Cut *c)
{
    r->in = eval_instr(r->e, r->id);
    for (uint8_t f = 0; f < r->in.nfactor; f++)
        r->in.extent[f] = share(r, c, f).local;
    for (int a = 0; a < r->in.narg; a++)
        if (has_tensor(r->in.arg[a])) {
            r->argt[a] = part_of(r, c, r->in.arg[a], r->in.arg_factor[a]);
            r->arg[a] = load(r, c, r->in.arg[a], &r->argt[a]);
        }
    for (int o = 0; o < r->in.nout; o++)
        if (has_tensor(r->in.out[o])) {
            r->outt[o] = part_of(r, c, r->in.out[o], r->in.out_factor[o]);
            r->want[o] = eval_array(out_bytes(r, o));
        }
}

/* What the plain form makes of a part. */
static void part_plain(Run *r)
{
    KCall k = {.in = &r->in, .step = &r->e->step, .team = r->e->team};
    for (int a = 0; a < r->in.narg; a++) {
        k.argt[a] = r->arg[a] ? &r->argt[a] : NULL;
        k.arg[a] = r->arg[a];
    }
    for (int o = 0; o < r->in.nout; o++) {
        k.outt[o] = r->want[o] ? &r->outt[o] : NULL;
        k.out[o] = r->want[o];
    }
    k.work = eval_array((size_t)instr_workspace(&r->in, r->e->program));
    kernel_ref(r->in.op)(&k);
    free(k.work);
}

static void try_part(Run whole, const Cut *c, int *wrong)
{
    Run r = {.e = whole.e, .of = whole.of, .id = whole.id};
    r.e->step.micro = c->micro ? MICRO : 0;
    part_new(&r, c);
    part_plain(&r);
    try_manner(&r, false);
    if (r.wrong)
        printf("    that was part %d of '%c'%s%s\n", c->part, r.in.role[c->factor], c->padded ? ", padded" : "", c->micro ? ", of a micro-batch" : "");
    for (int a = 0; a < r.in.narg; a++)
        free(r.arg[a]);
    for (int o = 0; o < r.in.nout; o++)
        free(r.want[o]);
    cut[r.in.op] = true;
    *wrong += r.wrong;
}

/* Whether micro-batches may cut a factor: those of a batch; in attention not positions and heads, of which each rank
 * has its own. */
static bool may_micro(const Op *op, uint8_t f)
{
    bool attention = op->kind == OP_attention || op->kind == OP_attention_grad;
    bool places = op->kind == OP_dropout || op->kind == OP_iota || op->kind == OP_rope || op->kind == OP_rope_grad ||
                  op->kind == OP_reduce || op->kind == OP_expand;
    return places || (attention && !strchr("shetg", op->factor[f].role));
}

static uint8_t factor_with(const Op *op, char role)
{
    for (uint8_t f = 0; f < op->nfactor; f++)
        if (op->factor[f].role == role)
            return f;
    return NO_FACTOR;
}

/* An op's parts along one factor, and padded where a plan may pad: rows of tables, classes. */
static void try_factor(Run *r, uint8_t f)
{
    const Op *op = op_of(r->e->g, r->id);
    char role = op->factor[f].role;
    bool attention = op->kind == OP_attention || op->kind == OP_attention_grad;
    bool loss = op->kind == OP_cross_entropy || op->kind == OP_cross_entropy_both;
    bool table = role == 'v' || (role == 'c' && (op->kind == OP_cross_entropy_grad || op->kind == OP_cross_entropy_stats));
    if (!op_may_split(r->e->g, op, f) || extent(r, f) < PARTS || (attention && role == 'g') || (loss && role == 'c'))
        return;
    uint8_t heads = attention && role == 'h' ? factor_with(op, 'g') : NO_FACTOR;
    if (heads != NO_FACTOR && extent(r, heads) < PARTS)
        return;
    for (int part = 0; part < PARTS; part++) {
        try_part(*r, &(Cut){.factor = f, .heads = heads, .part = part}, &r->wrong);
        if (may_micro(op, f))
            try_part(*r, &(Cut){.factor = f, .heads = heads, .part = part, .micro = true}, &r->wrong);
        if (table)
            try_part(*r, &(Cut){.factor = f, .heads = heads, .part = part, .padded = true}, &r->wrong);
    }
}

static void try_parts(Run *r)
{
    for (uint8_t f = 0; f < op_of(r->e->g, r->id)->nfactor; f++)
        try_factor(r, f);
    r->e->step.micro = 0;
}

/* ---- cases ---- */

static void try_op(Run *r, bool parts)
{
    if (parts)
        try_parts(r);
    else
        try_whole(r);
}

static int try_case(const Case *c, int scale, DType compute, bool parts, Team *team)
{
    Arena *a = arena_new("case");
    Maker m = case_make(a, c, scale, compute, !c->forward_only);
    if (!c->forward_only)
        graph_differentiate(m.g);
    Eval *e = eval_new(m.g, compute, ISA_REF, team);
    e->step.correction1 = 0.19;
    e->step.correction2 = 0.0199;
    e->step.samples = 5;
    case_fill(&m, e);
    int wrong = 0;
    for (int phase = PHASE_BEGIN; phase <= PHASE_BACKWARD; phase++)
        for (uint32_t i = 0; i < m.g->nop; i++) {
            if ((int)m.g->op[i].phase != phase)
                continue;
            Run r = {.e = e, .of = c, .id = {i}};
            eval_op(e, r.id);
            if (!(op_info[m.g->op[i].kind].flags & OPF_VIEW))
                try_op(&r, parts);
            wrong += r.wrong;
        }
    eval_free(e);
    arena_free(a);
    return wrong;
}

/* All cases in a type and a size, then whether every op that the CPU executes was among them. */
static int try_all(const char *name, int scale, DType compute, bool parts, Team *team)
{
    int wrong = 0, missing = 0;
    const Case *c;
    memset(tried, 0, sizeof tried);
    memset(cut, 0, sizeof cut);
    for (int i = 0; (c = case_at(i)); i++)
        if (strstr(c->name, wanted))
            wrong += try_case(c, scale, compute, parts, team);
    printf("%s every op by its plain form: %s\n", wrong ? "not ok" : "ok", name);
    for (int k = 0; k < OP_KINDS && !*wanted; k++)
        if (kernel_ref((OpKind)k) && !(parts ? cut[k] || k == OP_constant || k == OP_zeros : tried[k])) {
            printf("%s is never run\n", op_info[k].name);
            missing++;
        }
    printf("%s no op is left out: %s\n", missing ? "not ok" : "ok", name);
    fflush(stdout);
    return wrong + missing;
}

typedef struct Round { const char *name; int scale; DType compute; bool parts; } Round;
static const Round rounds[] = {
    {"f32, small extents", 0, DT_f32, false},
    {"bf16, small extents", 0, DT_bf16, false},
    {"f32, parts", 0, DT_f32, true},
    {"bf16, parts", 0, DT_bf16, true},
    {"f32, larger extents", 1, DT_f32, false},
    {"bf16, larger extents", 1, DT_bf16, false},
};

int main(int argc, char **argv)
{
    int wrong = 0;
    Team *team = team_new(1);
    wanted = argc > 2 ? argv[2] : "";
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    must(cublasLtCreate(&lt), "cublasLtCreate");
    lt_work = on_device(NULL, CUDA_LT_WORKSPACE);
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++)
        if (argc < 2 || strstr(rounds[i].name, argv[1]))
            wrong += try_all(rounds[i].name, rounds[i].scale, rounds[i].compute, rounds[i].parts, team);
    team_free(team);
    bool clean = device_is_clean();
    printf("%s the device has nothing to report\n", clean ? "ok" : "not ok");
    return wrong || !clean;
}
