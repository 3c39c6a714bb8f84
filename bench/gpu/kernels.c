/* What the kernels of a plan reach on a GPU, one by one.
 *
 *     gpu_kernels PLAN
 *
 * Instructions of a step that are alike are one *kind*, timed by events around a row of launches; each launch of the row has
 * operands of its own, so that small ones are not found in the cache.  Prints a line of JSON for each kind, those that take the
 * largest share of a step first, then one for all of them:
 *
 *     call          the op, the axes of its operands, a letter each, and their extents
 *     times         it runs in a step, of `seconds` each; `predicted` is what the plan's cluster promises
 *     tflops        reached, of what is bound by the peak, less what is masked; else
 *     gbytes        a second, through memory
 *     of_peak       either, as a part of what the plan's cluster says of the device */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/load.h"
#include "codegen/cost.h"
#include "kernels/cuda/cuda.h"

enum {
    PATTERN = 1 << 20,                /* bytes that operands are filled with, again and again */
    APART   = 256 << 20,              /* bytes that a row of launches has for operands: more than any cache */
    MOST_COPIES = 16,                 /* launches of a row with operands of their own */
    MOST_LAUNCHES = 200, ROWS = 3
};
#define ROW_SECONDS 0.005             /* at least, of a row, where MOST_LAUNCHES are as much */

/* Instructions that are alike. */
typedef struct Kind {
    const Instr *in;                  /* the first of them */
    const char  *call;                /* what they have in common */
    int64_t      times;
    double       seconds, predicted;  /* of one */
} Kind;

typedef struct Kinds { Kind *kind; uint32_t n; } Kinds;

/* The device, and what is on it. */
typedef struct Bench {
    const Program *p;
    cudaStream_t   stream;
    cudaEvent_t    from, to;
    cublasLtHandle_t lt;
    CudaStep      *now;
    KStep          step;
    char          *lt_work, *work, *pool, *host;
    char          *pattern[DTYPES];   /* PATTERN bytes of numbers of a type */
} Bench;

static void must(int status, const char *what)
{
    if (status == 0)
        return;
    fprintf(stderr, "gpu_kernels: %s returns %d (%s)\n", what, status, cudaGetErrorString((cudaError_t)status));
    exit(3);
}
#define MUST(call) must((int)(call), #call)

/* ---- kinds ---- */

/* Letters stand for factors: their roles are not always one letter. */
static void put_axes(Text *t, const Program *p, const Instr *in, TensorId id, const uint8_t *factor)
{
    if (!has_tensor(id)) {
        text_add(t, " -");
        return;
    }
    text_add(t, " %s:", dtype_name(p->tensor[id.i].dtype));
    for (int x = 0; x < p->tensor[id.i].rank; x++)
        text_add(t, "%c", factor[x] < in->nfactor ? 'a' + factor[x] : '.');
}

static const char *call_text(Arena *a, const Program *p, const Instr *in)
{
    Text t = text_new(a);
    text_add(&t, "%s", op_info[in->op].name);
    for (int k = 0; k < in->narg; k++)
        put_axes(&t, p, in, in->arg[k], in->arg_factor[k]);
    text_add(&t, " ->");
    for (int k = 0; k < in->nout; k++)
        put_axes(&t, p, in, in->out[k], in->out_factor[k]);
    for (int f = 0; f < in->nfactor; f++)
        text_add(&t, " %c=%lld", 'a' + f, (long long)in->extent[f]);
    return t.s;
}

static void add_instr(Arena *a, Kinds *all, const Program *p, const Instr *in)
{
    const char *call = call_text(a, p, in);
    for (uint32_t i = 0; i < all->n; i++)
        if (strcmp(all->kind[i].call, call) == 0) {
            all->kind[i].times++;
            return;
        }
    PUSH(a, all->kind, all->n, ((Kind){.in = in, .call = call, .times = 1}));
}

/* Of one step; what communicates has no kernel here. */
static Kinds kinds_of(Arena *a, const Program *p)
{
    Kinds all = {0};
    for (uint32_t k = 0; k < p->ncall; k++) {
        const Proc *proc = &p->proc[p->call[k].proc];
        for (uint32_t i = proc->first; i < proc->end; i++)
            if (instr_runs(&p->instr[i], p, &p->call[k]) && !(op_info[p->instr[i].op].flags & OPF_COMM))
                add_instr(a, &all, p, &p->instr[i]);
    }
    return all;
}

/* ---- operands ---- */

static int64_t room_of(const Program *p, TensorId id)
{
    return has_tensor(id) ? (tensor_bytes(&p->tensor[id.i]) + 255) / 256 * 256 : 0;
}

/* Of all operands of a launch. */
static int64_t operand_bytes(const Program *p, const Instr *in)
{
    int64_t bytes = 256;
    for (int k = 0; k < in->narg; k++)
        bytes += room_of(p, in->arg[k]);
    for (int k = 0; k < in->nout; k++)
        bytes += room_of(p, in->out[k]);
    return bytes;
}

static int copies_of(const Program *p, const Instr *in)
{
    int64_t n = APART / operand_bytes(p, in);
    return n < 1 ? 1 : n > MOST_COPIES ? MOST_COPIES : (int)n;
}

/* How many places the whole numbers of an argument may name: rows of a table, or classes of the logits beside them. */
static int64_t places(const Instr *in, const Program *p)
{
    if (in->op == OP_embed)
        return in->extent[in->arg_factor[1][0]];
    if (in->op == OP_embed_grad)
        return in->extent[in->out_factor[0][0]];
    for (int k = 0; k < in->narg; k++) {
        const Tensor *t = has_tensor(in->arg[k]) ? &p->tensor[in->arg[k].i] : NULL;
        if (t && t->rank > 0 && t->dtype != DT_i32)
            return t->axis[t->rank - 1].local;
    }
    return 1;
}

static uint32_t scrambled(uint32_t i)
{
    i = (i ^ i >> 16) * 0x7feb352du;
    i = (i ^ i >> 15) * 0x846ca68bu;
    return i ^ i >> 16;
}

/* Whole numbers below `below`; real ones in 0.5 .. 1.5, those of bf16 with either sign. */
static void make_pattern(const Bench *b, DType type, int64_t below)
{
    const Tensor all = {.dtype = type, .rank = 1, .axis = {{.local = PATTERN / dtype_bytes(type), .global = PATTERN / dtype_bytes(type)}}};
    for (int64_t i = 0; i < all.axis[0].local; i++) {
        uint32_t r = scrambled((uint32_t)i);
        double x = 0.5 + (double)(r >> 8) * 0x1p-24;
        if (type == DT_i32)
            int_put(&all, b->host, i, (int64_t)(r % (uint64_t)below));
        else
            real_put(&all, b->host, i, type == DT_bf16 && r & 1 ? -x : x);
    }
    MUST(cudaMemcpyAsync(b->pattern[type], b->host, PATTERN, cudaMemcpyHostToDevice, b->stream));
    MUST(cudaStreamSynchronize(b->stream));
}

/* All copies of an argument, which lie `apart` bytes from each other. */
static void fill(const Bench *b, const Tensor *t, char *at, int64_t apart, int copies)
{
    for (int c = 0; c < copies; c++)
        for (int64_t done = 0, bytes = tensor_bytes(t); done < bytes; done += PATTERN) {
            int64_t n = bytes - done < PATTERN ? bytes - done : PATTERN;
            MUST(cudaMemcpyAsync(at + c * apart + done, b->pattern[t->dtype], (size_t)n, cudaMemcpyDeviceToDevice, b->stream));
        }
}

/* The launch on the first copy of its operands, which it fills. */
static CudaCall bind(const Bench *b, const Instr *in, int copies)
{
    const Program *p = b->p;
    int64_t apart = operand_bytes(p, in);
    char *at = b->pool;
    CudaCall c = {.call = {.in = in, .work = b->work, .step = &b->step}, .now = b->now, .stream = b->stream, .lt = b->lt, .lt_work = b->lt_work};
    for (int k = 0; k < in->narg; k++) {
        if (!has_tensor(in->arg[k]))
            continue;
        c.call.argt[k] = &p->tensor[in->arg[k].i];
        c.call.arg[k] = at;
        if (c.call.argt[k]->dtype == DT_i32)
            make_pattern(b, DT_i32, places(in, p));
        fill(b, c.call.argt[k], at, apart, copies);
        at += room_of(p, in->arg[k]);
    }
    for (int k = 0; k < in->nout; k++) {
        if (!has_tensor(in->out[k]))
            continue;
        c.call.outt[k] = &p->tensor[in->out[k].i];
        c.call.out[k] = at;
        at += room_of(p, in->out[k]);
    }
    return c;
}

static CudaCall copy_of(CudaCall c, int64_t by)
{
    for (int k = 0; k < MAX_ARGS; k++)
        c.call.arg[k] = c.call.arg[k] ? (char *)c.call.arg[k] + by : NULL;
    for (int k = 0; k < MAX_OUTS; k++)
        c.call.out[k] = c.call.out[k] ? (char *)c.call.out[k] + by : NULL;
    return c;
}

/* ---- timing ---- */

/* Seconds of a launch, of n in a row. */
static double row(const Bench *b, CudaKernel kernel, const CudaCall *first, int copies, int n)
{
    float ms = 0;
    int64_t apart = operand_bytes(b->p, first->call.in);
    MUST(cudaEventRecord(b->from, b->stream));
    for (int i = 0; i < n; i++) {
        CudaCall c = copy_of(*first, i % copies * apart);
        MUST(kernel(&c));
    }
    MUST(cudaEventRecord(b->to, b->stream));
    MUST(cudaEventSynchronize(b->to));
    MUST(cudaEventElapsedTime(&ms, b->from, b->to));
    return 1e-3 * (double)ms / n;
}

/* The fastest row counts: nothing but the clock of the device makes one slower. */
static double seconds_of(const Bench *b, const Instr *in)
{
    int copies = copies_of(b->p, in);
    CudaCall c = bind(b, in, copies);
    CudaKernel kernel = cuda_kernel_of(in, b->p);
    if (!kernel)
        must(cudaErrorNotSupported, op_info[in->op].name);
    row(b, kernel, &c, copies, 1);
    double once = row(b, kernel, &c, copies, 1), best = once;
    int n = once * MOST_LAUNCHES < ROW_SECONDS ? MOST_LAUNCHES : 1 + (int)(ROW_SECONDS / once);
    for (int i = 0; i < ROWS; i++) {
        double s = row(b, kernel, &c, copies, n);
        best = s < best ? s : best;
    }
    return best;
}

/* ---- the device ---- */

static char *allocate(int64_t bytes)
{
    void *p = NULL;
    MUST(cudaMalloc(&p, (size_t)bytes));
    return p;
}

static const DType types[] = {DT_i32, DT_bf16, DT_f32, DT_f64};         /* of operands */

static void bench_open(Bench *b, const Program *p, const Kinds *all)
{
    int64_t pool = 0, work = 256;
    const CudaStep now = {.seed = 1, .samples = p->batch, .lr = 1e-4, .correction1 = 0.1, .correction2 = 0.05};
    *b = (Bench){.p = p, .step = {.first = true, .optimizer = &p->optimizer, .seed = 1, .samples = p->batch}};
    for (uint32_t i = 0; i < all->n; i++) {
        int64_t needs = operand_bytes(p, all->kind[i].in) * copies_of(p, all->kind[i].in), scratch = cuda_workspace(all->kind[i].in, p);
        pool = needs > pool ? needs : pool;
        work = scratch > work ? scratch : work;
    }
    MUST(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    MUST(cudaEventCreate(&b->from));
    MUST(cudaEventCreate(&b->to));
    MUST(cublasLtCreate(&b->lt));
    MUST(cudaHostAlloc((void **)&b->host, PATTERN, cudaHostAllocDefault));
    b->lt_work = allocate(CUDA_LT_WORKSPACE);
    b->work = allocate(work);
    b->pool = allocate(pool);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        b->pattern[types[i]] = allocate(PATTERN);
        make_pattern(b, types[i], 1);
    }
    b->now = (CudaStep *)allocate(sizeof now);
    memcpy(b->host, &now, sizeof now);
    MUST(cudaMemcpyAsync(b->now, b->host, sizeof now, cudaMemcpyHostToDevice, b->stream));
    MUST(cudaStreamSynchronize(b->stream));
}

static void bench_close(const Bench *b)
{
    void *const memory[] = {b->lt_work, b->work, b->pool, b->now};
    MUST(cudaStreamSynchronize(b->stream));
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        MUST(cudaFree(memory[i]));
    for (int t = 0; t < DTYPES; t++)
        MUST(cudaFree(b->pattern[t]));
    MUST(cudaFreeHost(b->host));
    MUST(cublasLtDestroy(b->lt));
    MUST(cudaEventDestroy(b->from));
    MUST(cudaEventDestroy(b->to));
    MUST(cudaStreamDestroy(b->stream));
}

/* ---- the report ---- */

static double in_step(const Kind *k)
{
    return k->seconds * (double)k->times;
}

static int by_share(const void *x, const void *y)
{
    double a = in_step(x), b = in_step(y);
    return (a < b) - (a > b);
}

static void report(Kinds *all, const Program *p, const Device *d)
{
    double sum = 0, predicted = 0;
    qsort(all->kind, all->n, sizeof *all->kind, by_share);
    for (uint32_t i = 0; i < all->n; i++) {
        sum += in_step(&all->kind[i]);
        predicted += all->kind[i].predicted * (double)all->kind[i].times;
    }
    for (uint32_t i = 0; i < all->n; i++) {
        const Kind *k = &all->kind[i];
        bool computes = op_computes(k->in->op);
        double rate = cost_work(p, k->in) / k->seconds;
        printf("{\"call\": \"%s\", \"times\": %lld, \"seconds\": %.6g, \"predicted\": %.6g, \"share\": %.5f, \"%s\": %.5g, \"of_peak\": %.5f}\n", k->call, (long long)k->times,
               k->seconds, k->predicted, in_step(k) / sum, computes ? "tflops" : "gbytes", rate * (computes ? 1e-12 : 1e-9), rate / (computes ? p->peak : d->bandwidth));
    }
    printf("{\"kinds\": %u, \"seconds\": %.6g, \"predicted\": %.6g}\n", all->n, sum, predicted);
}

static Status measure(Loaded *l)
{
    Plan *plan;
    Programs programs;
    Bench b;
    TRY(load_plan(l, USE_RUN, &plan, &programs));
    const Program *p = programs.rank[0];
    CostModel *cm = cost_model(l->ir, l->cluster, plan, l->profile);
    const GroupCost *groups = cost_groups(cm, p);
    Kinds all = kinds_of(l->ir, p);
    bench_open(&b, p, &all);
    for (uint32_t i = 0; i < all.n; i++) {
        all.kind[i].seconds = seconds_of(&b, all.kind[i].in);
        all.kind[i].predicted = 1e-9 * (double)cost_ns(cm, p, groups, all.kind[i].in);
    }
    bench_close(&b);
    report(&all, p, &l->cluster->device[l->cluster->kind[plan->devices[0]]]);
    return OK;
}

int main(int argc, char **argv)
{
    Arena *a = arena_new("arguments");
    Args args;
    Loaded l;
    if (argc != 2) {
        fprintf(stderr, "usage: gpu_kernels PLAN\n");
        return status_exit(ERR_USAGE);
    }
    Status s = args_read(a, PRUN, argc, argv, &args);
    if (s == OK) {
        s = load_model(&l, &args);
        s = s == OK ? measure(&l) : s;
        load_free(&l);
    }
    arena_free(a);
    return status_exit(s);
}
