/* Plans of attention in this process: one for each shape and device, and the call of one. */
#include <float.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/sdpa.h"
#include "kernels/heads.h"

/* A handle of each device, which is one rank's: its calls come from one thread. */
typedef struct Handle {
    struct cudnnContext *cudnn;
    void        *device;              /* a descriptor of its properties */
    cudaStream_t stream;              /* that it was given last */
    int          status;              /* of opening it */
    bool         tried;
} Handle;
enum { MOST_DEVICES = 64 };
static Handle handles[MOST_DEVICES];

typedef struct Entry {
    Sdpa        shape;
    int         device;
    const char *why;                  /* there is no plan; NULL: there is one */
    SdpaPlan    plan;
    struct Entry *next;
} Entry;

/* Programs have a few shapes, so a list will do.  Guarded by `lock`; entries stay where they are. */
static Entry *entries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static Entry *entry_of(const Sdpa *shape, int device)
{
    pthread_mutex_lock(&lock);
    Entry *e = entries;
    while (e && (e->device != device || memcmp(&e->shape, shape, sizeof *shape) != 0))
        e = e->next;
    pthread_mutex_unlock(&lock);
    return e;
}

/* NULL: there is a handle. */
static const char *open_handle(const Cudnn *lib, Handle *h)
{
    if (!h->tried) {
        h->tried = true;
        h->status = lib->cudnnCreate(&h->cudnn);
        if (h->status == CUDNN_STATUS_SUCCESS)
            h->status = lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &h->device);
        if (h->status == CUDNN_STATUS_SUCCESS)
            h->status = lib->cudnnBackendSetAttribute(h->device, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &h->cudnn);
        if (h->status == CUDNN_STATUS_SUCCESS)
            h->status = lib->cudnnBackendFinalize(h->device);
    }
    return h->status == CUDNN_STATUS_SUCCESS ? NULL : "cuDNN does not start on this device";
}

static const Entry *entry_new(const Cudnn *lib, const Sdpa *shape, int device, int64_t most)
{
    Entry *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->shape = *shape;
    e->device = device;
    e->why = open_handle(lib, &handles[device]);
    if (!e->why && !sdpa_compile(lib, shape, handles[device].device, most, &e->plan))
        e->why = e->plan.graph.said;
    pthread_mutex_lock(&lock);
    e->next = entries;
    entries = e;
    pthread_mutex_unlock(&lock);
    return e;
}

/* NULL: cuDNN executes it; else why not.  A plan that is missing is compiled if it may want `most` bytes of scratch, not 0. */
static const char *find_plan(const KCall *c, int64_t most, const SdpaPlan **plan)
{
    Sdpa shape;
    const char *why = sdpa_shape(c, &shape);
    const Cudnn *lib = why ? NULL : cudnn_library(&why);
    int device = 0;
    if (!lib)
        return why;
    if (cudaGetDevice(&device) != cudaSuccess || device >= MOST_DEVICES)
        return "no device";
    const Entry *e = entry_of(&shape, device);
    if (!e && most)
        e = entry_new(lib, &shape, device, most);
    *plan = e ? &e->plan : NULL;
    return e ? e->why : "no plan";
}

/* A call of which only shapes are known. */
static KCall shapes_of(const Instr *in, const Program *p)
{
    KCall c = {.in = in};
    for (int a = 0; a < in->narg; a++)
        c.argt[a] = has_tensor(in->arg[a]) ? &p->tensor[in->arg[a].i] : NULL;
    for (int k = 0; k < in->nout; k++)
        c.outt[k] = has_tensor(in->out[k]) ? &p->tensor[in->out[k].i] : NULL;
    return c;
}

/* Scratch comes out of the device's reserve, of which the context and NCCL leave half, a context alone all but 1 GiB; some where a
 * program says nothing of it. */
static int64_t scratch_limit(const Program *p)
{
    static const int64_t least = 64 << 20, context = 1 << 30;
    int64_t half = p->reserve / 2, most = p->nranks == 1 && half > context ? p->reserve - context : half;
    return most > least ? most : least;
}

int64_t sdpa_workspace(const Instr *in, const Program *p)
{
    const SdpaPlan *plan = NULL;
    KCall c = shapes_of(in, p);
    return find_plan(&c, scratch_limit(p), &plan) ? 0 : plan->bytes;
}

const char *cuda_not_cudnn(const Instr *in, const Program *p)
{
    const SdpaPlan *plan = NULL;
    KCall c = shapes_of(in, p);
    return find_plan(&c, 0, &plan);
}

size_t cuda_cudnn_version(const char **why)
{
    const Cudnn *lib = cudnn_library(why);
    return lib ? lib->cudnnGetVersion() : 0;
}

/* ---- calls ---- */

typedef struct Operands { int64_t number[SDPA_NUMBERS]; void *at[SDPA_NUMBERS]; int64_t n; } Operands;

static void add(Operands *o, int64_t number, void *at)
{
    o->number[o->n] = number;
    o->at[o->n++] = at;
}

/* Whether all are there, and aligned as the plan was promised. */
static bool are_aligned(const Operands *o)
{
    bool aligned = true;
    for (int64_t i = 0; i < o->n; i++)
        aligned = aligned && o->at[i] && (uintptr_t)o->at[i] % CUDNN_ALIGNMENT == 0;
    return aligned;
}

static Operands operands_of(const KCall *c)
{
    Operands o = {.n = 0};
    bool gradient = c->in->op == OP_attention_grad;
    int q = gradient ? 1 : 0;
    for (int i = 0; i < 3; i++)
        add(&o, SDPA_Q + i, c->arg[q + i]);
    add(&o, SDPA_Y, gradient ? c->arg[4] : c->out[0]);
    if (gradient)
        add(&o, SDPA_DY, c->arg[0]);
    for (int k = 0; gradient && k < 3; k++)
        add(&o, SDPA_DQ + k, c->out[k]);
    return o;
}

const SdpaPlan *sdpa_plan_of(const CudaCall *c)
{
    const SdpaPlan *plan = NULL;
    Operands o = operands_of(&c->call);
    return !are_aligned(&o) || find_plan(&c->call, 0, &plan) ? NULL : plan;
}

cudaError_t sdpa_execute(const CudaCall *c, const SdpaPlan *plan)
{
    const KCall *k = &c->call;
    bool gradient = k->in->op == OP_attention_grad;
    float scale = (float)heads_scale(k, row_length(k->argt[gradient ? 1 : 0])), hidden = -FLT_MAX, one = 1;
    const char *why;
    const Cudnn *lib = cudnn_library(&why);
    int device = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e != cudaSuccess)
        return e;
    Handle *h = &handles[device];
    Operands o = operands_of(k);
    add(&o, SDPA_LSE, sdpa_lse(c, plan));
    add(&o, SDPA_SCALE, &scale);
    if (plan->causal)
        add(&o, SDPA_HIDDEN, &hidden);
    if (gradient) {
        add(&o, SDPA_DOTS, (char *)k->work + plan->dots);
        add(&o, SDPA_ONE, &one);
    }
    int status = h->stream == c->stream ? CUDNN_STATUS_SUCCESS : lib->cudnnSetStream(h->cudnn, c->stream);
    h->stream = c->stream;
    if (status == CUDNN_STATUS_SUCCESS)
        status = dnn_execute(lib, h->cudnn, plan->plan, o.n, o.number, o.at, k->work);
    if (status == CUDNN_STATUS_SUCCESS)
        return cudaSuccess;
    char words[256] = "";
    lib->cudnnGetLastErrorString(words, sizeof words);
    return cuda_library_failed(c, "cuDNN", words);
}
