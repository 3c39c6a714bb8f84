/* Graphs: kernels of training steps that are captured before step 0 and launched at once.
 *
 * A *segment* is a run of kernels of a procedure that wait for no other stream and that none waits for before their last: what is
 * between communications.  These stay outside, on their streams, as without graphs, so nothing of when they may start, of
 * communicators or of how a run ends is different.  A graph of a segment serves all micro-batches that have its slot: their
 * numbers and inputs are copied to one place first, on the same stream.  Another one is captured where the first
 * micro-batch overwrites what later ones add to, or the last one has more instructions. */
#include "runtime/cuda/device.h"

enum { FEWEST = 4 };                  /* instructions: fewer are launched as fast one by one */

/* ---- segments ---- */

static bool is_watched(const Rank *r, uint32_t i)
{
    const Instr *in = &r->program->instr[i];
    for (uint32_t k = 0; k < in->nout; k++)
        for (uint32_t w = 0; w < r->nwatch; w++)
            if (has_tensor(in->out[k]) && in->out[k].i == r->watch[w].tensor.i)
                return true;
    return false;
}

/* Something follows an instruction that is no kernel: a stream that waits for it, or a copy. */
static bool ends_segment(const Rank *r, uint32_t i)
{
    return r->device->recorded[i].event || is_watched(r, i);
}

static bool begins_segment(const Rank *r, uint32_t i)
{
    return r->device->wait0[i] < r->device->wait0[i + 1];
}

/* That of a call which begins with an instruction that runs.  *n: how many of its instructions do. */
static Replay segment_at(const Rank *r, uint32_t i, const Call *call, uint32_t *n)
{
    const Program *p = r->program;
    Replay g = {.end = i};
    for (*n = 0; g.end < p->proc[call->proc].end; g.end++) {
        const Instr *in = &p->instr[g.end];
        g.by_last = g.by_last || in->when == WHEN_LAST;
        if (!instr_runs(in, p, call))
            continue;
        if (communicates(in) || (g.end > i && begins_segment(r, g.end)))
            break;
        g.by_first = g.by_first || in->acc == ACC_AFTER_FIRST;
        g.last = g.end;
        ++*n;
        if (ends_segment(r, g.end)) {
            g.end++;
            break;
        }
    }
    return g;
}

/* ---- kinds of calls ---- */

enum { FIRST = 1, LAST = 2, KINDS = 4 };

static uint32_t kind_of(const Program *p, const Call *call)
{
    return (call->micro == 0 ? FIRST : 0u) + (call->micro + (int64_t)1 == p->microbatches ? LAST : 0u);
}

static Replay *place_at(const Rank *r, uint32_t i, uint32_t slot, uint32_t kind)
{
    return &r->device->graphs.replay[(i * r->device->slots + slot) * KINDS + kind];
}

/* One that was captured for another kind of call and is the same for this. */
static const Replay *same_graph(const Rank *r, uint32_t i, const Call *call, const Replay *g)
{
    uint32_t mine = kind_of(r->program, call);
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        const Replay *x = place_at(r, i, call->slot, kind);
        uint32_t differs = kind ^ mine;
        if (x->exec && x->end == g->end && !(differs & FIRST && (g->by_first || x->by_first)) && !(differs & LAST && (g->by_last || x->by_last)))
            return x;
    }
    return NULL;
}

/* ---- what is the same for all micro-batches ---- */

/* The inputs of one micro-batch, one behind the other. */
static Status make_room(Rank *r)
{
    const Program *p = r->program;
    Graphs *g = &r->device->graphs;
    int64_t bytes = 0;
    g->input_at = NEWN(r->arena, int64_t, p->nbuffer + 1);
    for (uint32_t b = 0; b < p->nbuffer; b++) {
        g->input_at[b] = bytes;
        bytes += p->buffer[b].by_micro ? p->buffer[b].bytes : 0;
    }
    TRY(device_allocate(r, (char **)&g->now, sizeof *g->now));
    return device_allocate(r, &g->inputs, bytes);
}

/* Which of them a procedure reads. */
static void find_inputs(Rank *r, uint32_t proc)
{
    const Program *p = r->program;
    Graphs *g = &r->device->graphs;
    bool *seen = NEWN(r->arena, bool, p->nbuffer + 1);
    g->feed0[proc] = g->nfeed;
    for (uint32_t i = p->proc[proc].first; i < p->proc[proc].end; i++)
        for (uint32_t k = 0; k < p->instr[i].narg; k++) {
            TensorId t = p->instr[i].arg[k];
            uint32_t b = has_tensor(t) ? p->tensor[t.i].buffer.i : 0;
            if (!has_tensor(t) || !p->buffer[b].by_micro || seen[b])
                continue;
            seen[b] = true;
            PUSH(r->arena, g->feed, g->nfeed, b);
        }
    g->feed0[proc + 1] = g->nfeed;
}

Status graphs_feed(const Rank *r, const Call *call)
{
    const Program *p = r->program;
    const DeviceRank *d = r->device;
    const Graphs *g = &d->graphs;
    cudaStream_t stream = d->stream[STREAM_compute];
    CUDA_TRY(r, cudaMemcpyAsync(g->now, &d->step[call->micro], sizeof *g->now, cudaMemcpyDeviceToDevice, stream));
    for (uint32_t k = g->feed0[call->proc]; k < g->feed0[call->proc + 1]; k++) {
        const Buffer *b = &p->buffer[g->feed[k]];
        const char *from = rank_part(r, b->part) + b->offset + call->micro * b->bytes;
        CUDA_TRY(r, cudaMemcpyAsync(g->inputs + g->input_at[g->feed[k]], from, (size_t)b->bytes, cudaMemcpyDeviceToDevice, stream));
    }
    return OK;
}

static void take_copies(const Rank *r, KCall *c)
{
    const Program *p = r->program;
    const Graphs *g = &r->device->graphs;
    for (uint32_t k = 0; k < c->in->narg; k++) {
        const Tensor *t = c->argt[k];
        if (t && p->buffer[t->buffer.i].by_micro)
            c->arg[k] = g->inputs + g->input_at[t->buffer.i] + t->at;
    }
}

/* ---- capturing ---- */

static Status launch_all(Rank *r, uint32_t first, uint32_t end, const Call *call)
{
    for (uint32_t i = first; i < end; i++) {
        if (!instr_runs(&r->program->instr[i], r->program, call))
            continue;
        KCall c = issue_bind(r, i, call);
        r->device->instr = i;
        take_copies(r, &c);
        TRY(issue_kernel(r, &c, r->device->graphs.now));
    }
    r->device->instr = -1;
    return OK;
}

static Status make_graph(Rank *r, uint32_t i, const Call *call, Replay *g)
{
    cudaStream_t stream = r->device->stream[STREAM_compute];
    cudaGraph_t graph = NULL;
    r->step.first = call->micro == 0;
    CUDA_TRY(r, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    Status s = launch_all(r, i, g->end, call);
    cudaError_t e = cudaStreamEndCapture(stream, &graph);
    if (s == OK && e == cudaSuccess)
        e = cudaGraphInstantiateWithFlags(&g->exec, graph, 0);
    if (graph)
        (void)cudaGraphDestroy(graph);
    TRY(s);
    if (e != cudaSuccess)
        return cuda_failed(r, "a graph of kernels", e);
    r->device->graphs.n++;
    CUDA_TRY(r, cudaGraphUpload(g->exec, stream));
    return OK;
}

static Status capture_segment(Rank *r, uint32_t i, const Call *call, const Replay *g)
{
    Replay *to = place_at(r, i, call->slot, kind_of(r->program, call));
    const Replay *same = same_graph(r, i, call, g);
    if (to->exec)
        return OK;
    *to = same ? *same : *g;
    to->shared = same != NULL;
    return same ? OK : make_graph(r, i, call, to);
}

static Status capture_call(Rank *r, const Call *call)
{
    const Program *p = r->program;
    uint32_t n = 0, next;
    for (uint32_t i = p->proc[call->proc].first; i < p->proc[call->proc].end; i = next) {
        next = i + 1;
        if (!instr_runs(&p->instr[i], p, call))
            continue;
        const Replay g = segment_at(r, i, call, &n);
        if (n >= FEWEST)
            TRY(capture_segment(r, i, call, &g));
        next = n > 0 ? g.end : next;
    }
    return OK;
}

/* ---- all ---- */

Status graphs_open(Rank *r)
{
    const Program *p = r->program;
    Graphs *g = &r->device->graphs;
    g->replay = NEWN(r->arena, Replay, (size_t)p->ninstr * r->device->slots * KINDS + 1);
    g->feed0 = NEWN(r->arena, uint32_t, p->nproc + 1);
    TRY(make_room(r));
    for (uint32_t i = 0; i < p->nproc; i++)
        find_inputs(r, i);
    for (uint32_t k = 0; k < p->ncall; k++)
        TRY(capture_call(r, &p->call[k]));
    return OK;
}

void graphs_close(DeviceRank *d, const Program *p)
{
    Graphs *g = &d->graphs;
    for (size_t i = 0; g->replay && i < (size_t)p->ninstr * d->slots * KINDS; i++)
        if (g->replay[i].exec && !g->replay[i].shared)
            (void)cudaGraphExecDestroy(g->replay[i].exec);
    (void)cudaFree(g->now);
    (void)cudaFree(g->inputs);
}

const Replay *graphs_find(const Rank *r, uint32_t i, const Call *call)
{
    const Replay *g = r->device->graphs.on ? place_at(r, i, call->slot, kind_of(r->program, call)) : NULL;
    return g && g->exec ? g : NULL;
}
