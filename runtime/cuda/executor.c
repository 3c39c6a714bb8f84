/* The executor of GPUs: opening and closing, and the table.  The same sources make the one for real GPUs and the one for the
 * emulator of the tests; EXECUTOR says which. */
#include <cublasLt.h>
#include <sched.h>
#include <string.h>

#include "base/text.h"
#include "runtime/cuda/device.h"
#include "runtime/plugin.h"

/* ---- devices ---- */

/* Whatever fails first, without a driver: there is no GPU to be had. */
static const char *why_absent(void)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    return e != cudaSuccess ? cudaGetErrorString(e) : n == 0 ? "no device" : NULL;
}

static KernelForm gpu_form(const Instr *in, const Program *p, Isa isa)
{
    (void)isa;
    return cuda_kernel_of(in, p) ? KERNEL_OWN : KERNEL_NONE;
}

/* Which of the ranks of its machine this one is. */
static int place_on_machine(const Rank *r)
{
    int n = 0;
    for (int i = 0; r->world && i < (int)r->program->rank; i++)
        n += world_machine(r->world, i) == world_machine(r->world, (int)r->program->rank);
    return n;
}

/* Ranks of a machine that see several GPUs see the same ones, and each takes its own; one that sees a single GPU was given it. */
static Status choose_device(Rank *r)
{
    DeviceRank *d = r->device;
    int n = 0, place = place_on_machine(r);
    CUDA_TRY(r, cudaGetDeviceCount(&n));
    d->ordinal = n == 1 ? 0 : place;
    if (d->ordinal >= n) {
        fprintf(stderr, "error: rank %u has no %s device: %d ranks before it are on this machine, which has %d\n", r->program->rank, r->executor->name, place, n);
        return ERR_DEVICE;
    }
    CUDA_TRY(r, cudaSetDevice(d->ordinal));
    return OK;
}

/* NCCL takes no GPU twice, and would not say whose it is. */
static Status check_device(const Rank *r)
{
    struct cudaDeviceProp p;
    uint32_t me = r->program->rank, i = 0;
    cudaUUID_t *all = NEWN(r->arena, cudaUUID_t, r->program->nranks);
    CUDA_TRY(r, cudaGetDeviceProperties(&p, r->device->ordinal));
    TRY(r->end->comm->all_gather(r->all, &p.uuid, all, (int64_t)r->program->nranks * (int64_t)sizeof *all, DT_u8));
    while (i < me && (world_machine(r->world, (int)i) != world_machine(r->world, (int)me) || memcmp(&all[i], &all[me], sizeof *all) != 0))
        i++;
    if (i < me)
        fprintf(stderr, "error: rank %u has no %s device of its own: the only one that it sees is rank %u's\n", me, r->executor->name, i);
    return rank_outcome(r, i < me ? ERR_DEVICE : OK);
}

/* ---- memory ---- */

Status device_allocate(const Rank *r, char **out, int64_t bytes)
{
    size_t free_bytes = 0, all = 0;
    r->device->allocated += bytes;
    cudaError_t e = bytes > 0 ? cudaMalloc((void **)out, (size_t)bytes) : cudaSuccess;
    if (e != cudaErrorMemoryAllocation)
        return e == cudaSuccess ? OK : cuda_failed(r, "cudaMalloc", e);
    (void)cudaMemGetInfo(&free_bytes, &all);
    fprintf(stderr, "error: rank %u: no %lld bytes of memory on %s device %d: it has %lld, of which %lld are free\n", r->program->rank, (long long)bytes, r->executor->name,
            r->device->ordinal, (long long)all, (long long)free_bytes);
    return r->device->failed = ERR_NOMEM;
}

/* Both parts of the map, zeroed, and what is beside it. */
static Status allocate_all(Rank *r)
{
    DeviceRank *d = r->device;
    const Program *p = r->program;
    size_t steps = (size_t)p->microbatches * sizeof(CudaStep);
    r->map.bytes = p->map_bytes[PART_PRIVATE];
    TRY(device_allocate(r, &r->map.base, p->map_bytes[PART_PRIVATE]));
    TRY(device_allocate(r, &r->shared, p->map_bytes[PART_SHARED]));
    TRY(device_allocate(r, &d->work, d->work_bytes));
    TRY(device_allocate(r, &d->lt_work, CUDA_LT_WORKSPACE));
    TRY(device_allocate(r, (char **)&d->step, (int64_t)steps));
    CUDA_TRY(r, cudaHostAlloc((void **)&d->step_host, steps, cudaHostAllocDefault));
    if (r->map.base)
        CUDA_TRY(r, cudaMemsetAsync(r->map.base, 0, (size_t)p->map_bytes[PART_PRIVATE], d->side));
    if (r->shared)
        CUDA_TRY(r, cudaMemsetAsync(r->shared, 0, (size_t)p->map_bytes[PART_SHARED], d->side));
    return OK;
}

/* Communication comes first: its few blocks would wait until those of kernels have found room, and all other ranks with them. */
static Status make_streams(Rank *r)
{
    DeviceRank *d = r->device;
    int least = 0, greatest = 0;
    CUDA_TRY(r, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int s = 0; s < STREAMS; s++) {
        CUDA_TRY(r, cudaStreamCreateWithPriority(&d->stream[s], cudaStreamNonBlocking, s == STREAM_compute ? least : greatest));
        CUDA_TRY(r, cudaEventCreateWithFlags(&d->end[s], cudaEventDisableTiming));
    }
    CUDA_TRY(r, cudaStreamCreateWithFlags(&d->side, cudaStreamNonBlocking));
    CUDA_TRY(r, cudaEventCreateWithFlags(&d->fed, cudaEventDisableTiming));
    CUDA_TRY(r, cudaEventCreateWithFlags(&d->done, cudaEventDisableTiming));
    return OK;
}

/* ---- opening ---- */

static Status gpu_open(Rank *r)
{
    DeviceRank *d = r->device = NEW(r->arena, DeviceRank);
    d->instr = -1;
    d->limit = 10;
    TRY(choose_device(r));
    TRY(issue_check(r));                             /* what cuDNN executes is compiled for the device */
    TRY(make_streams(r));
    TRY(issue_open(r));
    TRY(allocate_all(r));
    TRY(windows_open(r));
    if (cublasLtCreate(&d->lt) != CUBLAS_STATUS_SUCCESS)
        return device_failed(r, "cublasLtCreate", "no handle");
    return await_side(r);
}

static Status gpu_join(Rank *r)
{
    if (!r->world)
        return OK;
    TRY(check_device(r));
    r->device->limit = r->timeout > SETUP_SECONDS ? r->timeout : SETUP_SECONDS;
    return comms_open(r);
}

static Status gpu_settle(const Rank *r)
{
    TRY(windows_flush(r));
    TRY(await_side(r));                              /* it ends behind the latest list */
    TRY(await_event(r, r->device->done));
    times_tell(r);
    return OK;
}

static Status gpu_ready(Rank *r)
{
    TRY(gpu_settle(r));
    r->device->ready = true;
    times_open(r);
    return r->graphs ? graphs_open(r) : OK;
}

static void close_streams(DeviceRank *d)
{
    for (int s = 0; s < STREAMS; s++) {
        if (d->stream[s])
            (void)cudaStreamDestroy(d->stream[s]);
        event_destroy(d->end[s]);
    }
    if (d->side)
        (void)cudaStreamDestroy(d->side);
    event_destroy(d->fed);
    event_destroy(d->done);
}

/* Whether streams are through: of a run that failed they may never be, and are waited for no longer than this. */
static bool are_through(const DeviceRank *d)
{
    static const double most = 2;     /* seconds */
    double end = seconds_now() + most;
    for (int s = 0; s <= STREAMS; s++) {
        cudaStream_t stream = s < STREAMS ? d->stream[s] : d->side;
        while (stream && cudaStreamQuery(stream) == cudaErrorNotReady && seconds_now() < end)
            sched_yield();
    }
    return seconds_now() < end;
}

/* Communicators first: what they wait for keeps streams from ending.  What a stream still uses is left to the end of the process. */
static void gpu_close(Rank *r)
{
    DeviceRank *d = r->device;
    if (!d)
        return;
    comms_close(r);
    if (!are_through(d))
        return;
    graphs_close(d, r->program);
    issue_close(d, r->program);
    windows_close(d);
    if (d->lt)
        (void)cublasLtDestroy(d->lt);
    void *const memory[] = {r->map.base, r->shared, d->work, d->lt_work, d->step};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        (void)cudaFree(memory[i]);
    (void)cudaFreeHost(d->step_host);
    close_streams(d);
    r->device = NULL;
}

/* ---- words ---- */

static const char *gpu_memory(Arena *a, const Rank *r)
{
    const DeviceRank *d = r->device;
    int64_t beside = d->allocated - program_map_bytes(r->program);
    return arena_printf(a, "map %s of device %d, and %s of it for kernels; %s of the host's pinned%s", text_bytes(a, program_map_bytes(r->program)), d->ordinal,
                        text_bytes(a, beside), text_bytes(a, d->out.bytes + d->in.bytes), r->graphs ? arena_printf(a, "; %u graphs, of what is between communications", d->graphs.n) : "");
}

/* Why attention in bf16 runs without cuDNN: each reason once. */
static const char *attention_reasons(Arena *a, const Rank *r)
{
    const Program *p = r->program;
    Text reasons = text_new(a);
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        bool attention = in->op == OP_attention || in->op == OP_attention_grad;
        const char *why = attention && p->tensor[in->out[0].i].dtype == DT_bf16 ? cuda_not_cudnn(in, p) : NULL;
        if (why && !(reasons.n && strstr(reasons.s, why)))
            text_add(&reasons, "%s%s", reasons.n ? "; " : "", why);
    }
    return reasons.s;
}

static const char *gpu_forms_note(Arena *a, const Rank *r)
{
    const char *reasons = attention_reasons(a, r);
    int loops = cuda_products_by_loops();
    Text note = text_new(a);
    if (*reasons)
        text_add(&note, "attention by prun's own kernels instead of cuDNN's: %s", reasons);
    if (loops)
        text_add(&note, "%sproducts of %d shapes by loops, which are slow, as cuBLASLt does not support them", note.n ? "; " : "", loops);
    return note.n ? note.s : NULL;
}

static const char *gpu_about(Arena *a)
{
    int runtime = 0, nccl = 0;
    const char *no_cudnn;
    size_t cudnn = cuda_cudnn_version(&no_cudnn);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)ncclGetVersion(&nccl);
    const char *absent = why_absent();
    return arena_printf(a, "CUDA %d.%d, cuBLASLt %zu, NCCL %d.%d.%d, %s%s%s", runtime / 1000, runtime % 1000 / 10, cublasLtGetVersion(), nccl / 10000, nccl / 100 % 100,
                        nccl % 100, cudnn ? arena_printf(a, "cuDNN %zu.%zu.%zu", cudnn / 10000, cudnn / 100 % 100, cudnn % 100) : "no cuDNN",
                        absent ? "; not available: " : "", absent ? absent : "");
}

static const Executor executor_gpu = {
    .name = EXECUTOR,
    .ahead = true,
    .measures_every = 8,
    .graphs = true,
    .absent = why_absent,
    .about = gpu_about,
    .devices = device_facts,
    .form = gpu_form,
    .open = gpu_open,
    .join = gpu_join,
    .ready = gpu_ready,
    .close = gpu_close,
    .calls = issue_calls,
    .settle = gpu_settle,
    .edit = window_edit,
    .look = window_look,
    .zero = window_zero,
    .memory = gpu_memory,
    .forms_note = gpu_forms_note,
};

const Plugin prun_plugin = {.abi = PLUGIN_ABI, .version = PPLAN_VERSION, .executor = &executor_gpu};
