/* Issue: calls put on streams, in the order of the program. */
#include <string.h>

#include "runtime/cuda/device.h"

/* ---- before step 0 ---- */

/* The type of an operand that is wider than kernels compute in, or else of the first result. */
static DType type_of(const Instr *in, const Program *p)
{
    for (int k = 0; k < in->narg; k++)
        if (has_tensor(in->arg[k]) && p->tensor[in->arg[k].i].dtype == DT_f64)
            return DT_f64;
    return p->tensor[in->out[0].i].dtype;
}

/* The first that is missing is said: the others are likely to be of its kind. */
static Status no_kernel(const Rank *r, const Instr *in)
{
    DType type = type_of(in, r->program);
    fprintf(stderr, "error: %s: the %s backend cannot run op '%s' on %s", in->path, r->executor->name, op_info[in->op].name, dtype_name(type));
    fputs(type == DT_f64 ? ": it computes in f32 and bf16 ('-D dtype=f32', if the model has that parameter)\n" : " of these sizes\n", stderr);
    return ERR_REJECT;
}

Status issue_check(Rank *r)
{
    const Program *p = r->program;
    DeviceRank *d = r->device;
    d->kernel = NEWN(r->arena, CudaKernel, p->ninstr + 1);
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        if (communicates(in))
            continue;
        d->kernel[i] = cuda_kernel_of(in, p);
        if (!d->kernel[i])
            return no_kernel(r, in);
        int64_t bytes = cuda_workspace(in, p);
        d->work_bytes = bytes > d->work_bytes ? bytes : d->work_bytes;
    }
    return OK;
}

static Status make_events(Rank *r)
{
    const Program *p = r->program;
    DeviceRank *d = r->device;
    d->recorded = NEWN(r->arena, Recorded, p->ninstr + 1);
    for (uint32_t k = 0; k < p->nwait; k++) {
        Recorded *x = &d->recorded[p->wait[k].on];
        if (x->event)
            continue;
        x->event = NEWN(r->arena, cudaEvent_t, d->slots);
        for (uint32_t s = 0; s < d->slots; s++)
            CUDA_TRY(r, cudaEventCreateWithFlags(&x->event[s], cudaEventDisableTiming));
    }
    return OK;
}

static Status make_marks(Rank *r)
{
    Marks *m = &r->device->marks;
    for (int s = 0; s < STREAMS; s++)
        m->first[s] = m->last[s] = m->instr[s] = -1;
    for (int i = 0; i < MARKS; i++) {
        CUDA_TRY(r, cudaEventCreateWithFlags(&m->mark[i].event, cudaEventDisableTiming));
        CUDA_TRY(r, cudaEventCreate(&m->mark[i].begins));
        CUDA_TRY(r, cudaEventCreate(&m->mark[i].ends));
    }
    CUDA_TRY(r, cudaEventCreate(&r->device->times.zero));
    return OK;
}

static void index_waits(Rank *r)
{
    const Program *p = r->program;
    DeviceRank *d = r->device;
    d->wait0 = NEWN(r->arena, uint32_t, p->ninstr + 1);
    for (uint32_t i = 0, k = 0; i <= p->ninstr; i++) {
        d->wait0[i] = k;
        while (k < p->nwait && p->wait[k].instr == i)
            k++;
    }
    d->slots = 1;
    for (uint32_t i = 0; i < p->ncall; i++)
        d->slots = p->call[i].slot >= d->slots ? p->call[i].slot + 1 : d->slots;
}

Status issue_open(Rank *r)
{
    index_waits(r);
    TRY(make_events(r));
    return make_marks(r);
}

void issue_close(DeviceRank *d, const Program *p)
{
    for (uint32_t i = 0; d->recorded && i < p->ninstr; i++)
        for (uint32_t s = 0; d->recorded[i].event && s < d->slots; s++)
            event_destroy(d->recorded[i].event[s]);
    for (int i = 0; i < MARKS; i++) {
        event_destroy(d->marks.mark[i].event);
        event_destroy(d->marks.mark[i].begins);
        event_destroy(d->marks.mark[i].ends);
    }
    event_destroy(d->times.zero);
}

/* ---- one instruction ---- */

static void bind_tensor(const Rank *r, TensorId id, const Call *call, const Tensor **shape, void **at)
{
    if (!has_tensor(id))
        return;
    *shape = &r->program->tensor[id.i];
    *at = rank_at(r, id, call->slot, call->micro);
}

KCall issue_bind(Rank *r, uint32_t i, const Call *call)
{
    const Instr *in = &r->program->instr[i];
    KCall c = {.in = in, .work = r->device->work, .step = &r->step};
    for (uint32_t k = 0; k < in->narg; k++)
        bind_tensor(r, in->arg[k], call, &c.argt[k], &c.arg[k]);
    for (uint32_t k = 0; k < in->nout; k++)
        bind_tensor(r, in->out[k], call, &c.outt[k], &c.out[k]);
    return c;
}

/* As the program's waits mean it: an event that was never recorded is not waited for. */
static Status wait_for_others(const Rank *r, uint32_t i, const Call *call)
{
    const DeviceRank *d = r->device;
    cudaStream_t stream = d->stream[r->program->instr[i].stream];
    for (uint32_t k = d->wait0[i]; k < d->wait0[i + 1]; k++) {
        const Wait *w = &r->program->wait[k];
        const Recorded *on = &d->recorded[w->on];
        CUDA_TRY(r, cudaStreamWaitEvent(stream, on->event[w->same_slot ? call->slot : on->last], 0));
    }
    return OK;
}

static Status record(const Rank *r, uint32_t i, const Call *call)
{
    Recorded *x = &r->device->recorded[i];
    if (!x->event)
        return OK;
    x->last = call->slot;
    CUDA_TRY(r, cudaEventRecord(x->event[call->slot], r->device->stream[r->program->instr[i].stream]));
    return OK;
}

/* What is watched is copied as the value is made; memory of the host that is not pinned makes this wait, so
 * a run that dumps a value is slower. */
static Status copy_watched(const Rank *r, const KCall *c, const Call *call)
{
    for (uint32_t k = 0; k < c->in->nout; k++)
        for (uint32_t w = 0; w < r->nwatch; w++) {
            char *to = watch_place(&r->watch[w], c, k, call->micro);
            if (to)
                CUDA_TRY(r, cudaMemcpyAsync(to, c->out[k], (size_t)tensor_bytes(c->outt[k]), cudaMemcpyDeviceToHost, r->device->stream[c->in->stream]));
        }
    return OK;
}

Status issue_kernel(const Rank *r, const KCall *c, const CudaStep *now)
{
    const DeviceRank *d = r->device;
    CudaFault fault = {0};
    cudaError_t e = d->kernel[c->in - r->program->instr](
        &(CudaCall){.call = *c, .now = now, .stream = d->stream[c->in->stream], .lt = d->lt, .lt_work = d->lt_work, .fault = &fault});
    return e == cudaSuccess ? OK : fault.by ? device_failed(r, fault.by, fault.words) : cuda_failed(r, "a kernel", e);
}

/* What follows an instruction on its stream. */
static Status finish(const Rank *r, const KCall *c, const Call *call, Mark *mark)
{
    TRY(mark_end(r, mark));
    if (r->nwatch)
        TRY(copy_watched(r, c, call));
    return record(r, (uint32_t)(c->in - r->program->instr), call);
}

/* ---- communication ---- */

/* Issue what is held. */
static Status release(Rank *r)
{
    DeviceRank *d = r->device;
    Held *h = &d->held;
    if (h->n == 0)
        return OK;
    d->instr = h->message->call.in - r->program->instr;
    TRY(comms_issue(r, h->message, h->n));
    for (uint32_t k = 0; k < h->n; k++) {
        h->message[k].mark->along = k > 0;
        TRY(finish(r, &h->message[k].call, &h->message[k].of, h->message[k].mark));
    }
    h->n = 0;
    d->instr = -1;
    return OK;
}

static bool waits_for(const Rank *r, uint32_t i, const Instr *on)
{
    for (uint32_t k = r->device->wait0[i]; k < r->device->wait0[i + 1]; k++)
        if (&r->program->instr[r->program->wait[k].on] == on)
            return true;
    return false;
}

/* Whether an instruction goes in one launch with what is held. */
static bool joins(const Rank *r, uint32_t i)
{
    const DeviceRank *d = r->device;
    const Held *h = &d->held;
    bool can = is_message(&r->program->instr[i]) && h->n < MOST_HELD && d->via[i] == d->via[h->message->call.in - r->program->instr];
    for (uint32_t k = 0; can && k < h->n; k++)
        can = !waits_for(r, i, h->message[k].call.in);
    return can;
}

/* Messages wait for their neighbours, of this call and of the next: as 1F1B has it, a stage sends what it made and gets what it
 * goes on with in one launch, as the other stage does, and neither can stand in the other's way. */
static Status hold(Rank *r, const KCall *c, const Call *call, Mark *mark)
{
    Held *h = &r->device->held;
    h->message[h->n++] = (Message){*c, *call, mark};
    return is_message(c->in) ? OK : release(r);
}

/* ---- calls ---- */

static Status issue_instr(Rank *r, uint32_t i, const Call *call)
{
    DeviceRank *d = r->device;
    const Instr *in = &r->program->instr[i];
    Mark *mark;
    if (d->held.n > 0 && !joins(r, i))
        TRY(release(r));
    KCall c = issue_bind(r, i, call);
    d->instr = i;
    TRY(wait_for_others(r, i, call));
    TRY(mark_begin(r, i, call, &mark));
    if (communicates(in))
        return hold(r, &c, call, mark);
    TRY(issue_kernel(r, &c, &d->step[call->micro]));
    TRY(finish(r, &c, call, mark));
    d->instr = -1;
    return OK;
}

/* The kernels from an instruction on that are one graph; a mark follows, whatever their number. */
static Status issue_graph(Rank *r, uint32_t i, const Call *call, const Replay *g)
{
    DeviceRank *d = r->device;
    KCall c = issue_bind(r, g->last, call);
    Mark *mark;
    TRY(release(r));
    d->instr = i;
    d->marks.skipped = MARK_EVERY - 1;
    TRY(wait_for_others(r, i, call));
    TRY(mark_begin(r, g->last, call, &mark));
    CUDA_TRY(r, cudaGraphLaunch(g->exec, d->stream[STREAM_compute]));
    TRY(finish(r, &c, call, mark));
    d->instr = -1;
    return OK;
}

static Status issue_call(Rank *r, const CallList *calls, const Call *call)
{
    const Proc *proc = &r->program->proc[call->proc];
    bool fed = false;
    r->step.micro = call->micro;
    if (calls->opens)
        r->step.first = call->micro == 0;
    for (uint32_t i = proc->first; i < proc->end; i++) {
        if (!instr_runs(&r->program->instr[i], r->program, call))
            continue;
        const Replay *g = graphs_find(r, i, call);
        if (g && !fed)
            TRY(graphs_feed(r, call));
        fed = fed || g;
        TRY(g ? issue_graph(r, i, call, g) : issue_instr(r, i, call));
        i = g ? g->end - 1 : i;
    }
    return OK;
}

/* ---- lists ---- */

/* What kernels read of each micro-batch. */
static Status give_steps(Rank *r)
{
    DeviceRank *d = r->device;
    const KStep *s = &r->step;
    int64_t n = r->program->microbatches;
    for (int64_t i = 0; i < n; i++)
        d->step_host[i] = (CudaStep){.seed = s->seed, .step = s->step, .micro = i, .samples = s->samples, .lr = s->lr, .correction1 = s->correction1, .correction2 = s->correction2};
    CUDA_TRY(r, cudaMemcpyAsync(d->step, d->step_host, (size_t)n * sizeof(CudaStep), cudaMemcpyHostToDevice, d->side));
    return OK;
}

/* The side stream stands behind the list before; all streams begin behind it. */
static Status begin_list(Rank *r)
{
    DeviceRank *d = r->device;
    double limit = 20 * d->slowest, least = d->ready ? 10 : SETUP_SECONDS;
    r->slowest = d->slowest;
    d->limit = r->timeout > 0 ? r->timeout : limit > least ? limit : least;
    TRY(await_event(r, d->fed));                     /* what the host writes anew was read */
    TRY(times_begin(r));
    TRY(windows_flush(r));
    TRY(give_steps(r));
    CUDA_TRY(r, cudaEventRecord(d->fed, d->side));
    for (int s = 0; s < STREAMS; s++)
        CUDA_TRY(r, cudaStreamWaitEvent(d->stream[s], d->fed, 0));
    return OK;
}

static Status end_list(const Rank *r)
{
    DeviceRank *d = r->device;
    for (int s = 0; s < STREAMS; s++) {
        if (s == STREAM_compute)
            continue;
        CUDA_TRY(r, cudaEventRecord(d->end[s], d->stream[s]));
        CUDA_TRY(r, cudaStreamWaitEvent(d->stream[STREAM_compute], d->end[s], 0));
    }
    TRY(scalars_return(r));
    CUDA_TRY(r, cudaEventRecord(d->done, d->stream[STREAM_compute]));
    CUDA_TRY(r, cudaStreamWaitEvent(d->side, d->done, 0));
    return OK;
}

Status issue_calls(Rank *r, const CallList *calls)
{
    if (r->device->failed != OK || calls->n == 0)
        return r->device->failed;
    TRY(begin_list(r));
    r->device->graphs.on = r->device->graphs.replay && calls->opens && !r->device->times.on;
    for (uint32_t k = 0; k < calls->n; k++)
        TRY(issue_call(r, calls, &calls->call[k]));
    TRY(release(r));
    return end_list(r);
}
