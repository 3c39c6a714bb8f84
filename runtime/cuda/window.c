/* Windows: what the host writes to a device and reads from it, through pinned memory and a stream of its own. */
#include <string.h>

#include "runtime/cuda/device.h"

enum { ALIGN = 64 };

static int64_t round_up(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- sizes ---- */

/* The largest piece that is asked for at once: no more than RANK_WINDOW of a tensor, or a row of an input. */
static int64_t largest_piece(const Program *p)
{
    int64_t most = ALIGN;
    for (uint32_t i = 0; i < p->ntensor; i++) {
        int64_t bytes = tensor_bytes(&p->tensor[i]);
        if (p->tensor[i].role != ROLE_INPUT && bytes > RANK_WINDOW)
            bytes = RANK_WINDOW;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void add_scalar(const Rank *r, TensorId id)
{
    Scalars *s = &r->device->scalars;
    if (has_tensor(id) && s->n < MOST_SCALARS)
        s->id[s->n++] = id;
}

/* Losses, the norm, and how many labels count: the program has a handful of them. */
static void find_scalars(const Rank *r)
{
    const Program *p = r->program;
    add_scalar(r, p->loss);
    add_scalar(r, p->norm);
    for (uint32_t i = 0; i < p->nterm; i++)
        add_scalar(r, p->term[i].tensor);
    for (uint32_t i = 0; i < p->nproc; i++)
        for (uint32_t k = p->proc[i].first; p->proc[i].kind == PROC_begin && k < p->proc[i].end; k++)
            if (p->instr[k].op == OP_count_labels)
                add_scalar(r, p->instr[k].out[0]);
}

Status windows_open(Rank *r)
{
    DeviceRank *d = r->device;
    int64_t piece = round_up(largest_piece(r->program));
    d->out.bytes = d->in.bytes = piece;
    find_scalars(r);
    CUDA_TRY(r, cudaHostAlloc((void **)&d->out.host, (size_t)piece, cudaHostAllocDefault));
    CUDA_TRY(r, cudaHostAlloc((void **)&d->in.host, (size_t)piece, cudaHostAllocDefault));
    CUDA_TRY(r, cudaHostAlloc((void **)&d->scalars.host, MOST_SCALARS * sizeof(double), cudaHostAllocDefault));
    return OK;
}

void windows_close(DeviceRank *d)
{
    cudaFreeHost(d->out.host);
    cudaFreeHost(d->in.host);
    cudaFreeHost(d->scalars.host);
}

/* ---- writing ---- */

Status windows_flush(const Rank *r)
{
    DeviceRank *d = r->device;
    Window *w = &d->out;
    if (d->failed != OK || !w->to)
        return d->failed;
    char *to = w->to;
    w->to = NULL;
    CUDA_TRY(r, cudaMemcpyAsync(to, w->host + w->from, (size_t)w->lent, cudaMemcpyHostToDevice, d->side));
    return OK;
}

/* What is on its way is read from the window, so that begins anew only when all of it is there. */
static Status begin_anew(const Rank *r)
{
    TRY(windows_flush(r));
    TRY(await_side(r));
    r->device->out.used = 0;
    return OK;
}

void *window_edit(const Rank *r, void *at, int64_t bytes)
{
    Window *w = &r->device->out;
    bool follows = w->to && w->to + w->lent == (char *)at && w->used + bytes <= w->bytes;
    if (!follows) {
        if (windows_flush(r) != OK || (round_up(w->used) + bytes > w->bytes && begin_anew(r) != OK))
            w->used = 0;                             /* nothing of it will be read */
        *w = (Window){.host = w->host, .bytes = w->bytes, .to = r->device->failed == OK ? at : NULL, .from = round_up(w->used)};
    }
    char *out = w->host + w->from + w->lent;
    w->lent += bytes;
    w->used = w->from + w->lent;
    return out;
}

void window_zero(const Rank *r, void *at, int64_t bytes)
{
    if (windows_flush(r) != OK)
        return;
    cudaError_t e = cudaMemsetAsync(at, 0, (size_t)bytes, r->device->side);
    if (e != cudaSuccess)
        (void)cuda_failed(r, "cudaMemsetAsync", e);  /* the rank has failed: the next call of it says so */
}

/* ---- reading ---- */

Status scalars_return(const Rank *r)
{
    DeviceRank *d = r->device;
    for (uint32_t i = 0; i < d->scalars.n; i++) {
        TensorId id = d->scalars.id[i];
        CUDA_TRY(r, cudaMemcpyAsync(&d->scalars.host[i], rank_at(r, id, 0, 0), (size_t)tensor_bytes(&r->program->tensor[id.i]), cudaMemcpyDeviceToHost,
                                    d->stream[STREAM_compute]));
    }
    d->scalars.valid = true;
    return OK;
}

/* A number that came back behind the latest list. */
static const void *find_returned(const Rank *r, const void *at)
{
    const Scalars *s = &r->device->scalars;
    for (uint32_t i = 0; s->valid && i < s->n; i++)
        if (rank_at(r, s->id[i], 0, 0) == at)
            return &s->host[i];
    return NULL;
}

Status window_look(const Rank *r, const void *at, int64_t bytes, const void **out)
{
    DeviceRank *d = r->device;
    *out = d->failed == OK ? find_returned(r, at) : NULL;
    if (*out)
        return await_event(r, d->done);
    TRY(windows_flush(r));
    CUDA_TRY(r, cudaMemcpyAsync(d->in.host, at, (size_t)bytes, cudaMemcpyDeviceToHost, d->side));
    *out = d->in.host;
    return await_side(r);
}
