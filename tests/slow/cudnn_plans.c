/* Whether cuDNN has plans for all attentions of a plan and their gradients, for GPUs that are not here.
 *
 *     cudnn_plans PLAN NAME
 *
 * Prints a line 'ok ...' or 'not ok ...' for each kind of GPU and each shape.  cuDNN compiles for a device by its
 * properties; it loads what it compiled, which needs no more than a driver that says yes (slow/driver.c). */
#include <stdio.h>
#include <string.h>

#include "cli/load.h"
#include "kernels/cuda/sdpa_graph.h"
#include "runtime/runtime.h"

/* What a plan may depend on. */
typedef struct Gpu { const char *arch, *name; int version, processors, shared, l2_mib; } Gpu;
static const Gpu gpus[] = {
    {"sm_80", "A100", 800, 108, 163, 40},
    {"sm_90", "H200", 900, 132, 227, 50},
    {"sm_100", "B200", 1000, 148, 227, 126},
};

static const char *properties(Arena *a, const Gpu *gpu)
{
    return arena_printf(a, "{\"deviceVer\": %d, \"driverVer\": 13000, \"deviceName\": \"%s\", \"cudaDeviceId\": 0, \"pciDeviceId\": 0, \"isTccDriver\": 0, "
                        "\"multiProcessorCount\": %d, \"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
                        "\"regsPerBlock\": 65536, \"maxRegistersPerSM\": 65536, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
                        "\"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, "
                        "\"maxThreadsPerSM\": 2048, \"supportCoopLaunch\": 1, \"totalGlobalMem\": 85899345920, \"smClockRateKHz\": 1410000, "
                        "\"memClockRateKHz\": 1593000, \"l2CacheSize\": %d}", gpu->version, gpu->name, gpu->processors, gpu->shared << 10, gpu->l2_mib << 20);
}

/* A descriptor of the device, or NULL, which has been said. */
static void *device_of(Arena *a, const Cudnn *lib, const Gpu *gpu)
{
    const char *json = properties(a, gpu);
    char said[400];
    void *d = NULL;
    int status = lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->cudnnBackendFinalize(d);
    if (status == CUDNN_STATUS_SUCCESS)
        return d;
    lib->cudnnGetLastErrorString(said, sizeof said);
    printf("%s: status %d: %s\n", json, status, said);
    return NULL;
}

static bool is_attention(const Instr *in)
{
    return in->op == OP_attention || in->op == OP_attention_grad;
}

static KCall shapes_of(const Instr *in, const Program *p)
{
    KCall c = {.in = in};
    for (int k = 0; k < in->narg; k++)
        c.argt[k] = has_tensor(in->arg[k]) ? &p->tensor[in->arg[k].i] : NULL;
    for (int k = 0; k < in->nout; k++)
        c.outt[k] = has_tensor(in->out[k]) ? &p->tensor[in->out[k].i] : NULL;
    return c;
}

/* The shapes of a program, each once; -1: one that is not for cuDNN, which has been said. */
static int shapes(const Program *p, Sdpa *found, int most)
{
    int n = 0;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        Sdpa shape;
        if (!is_attention(&p->instr[i]))
            continue;
        KCall c = shapes_of(&p->instr[i], p);
        const char *why = sdpa_shape(&c, &shape);
        if (why) {
            printf("%s: not for cuDNN: %s\n", p->instr[i].path, why);
            return -1;
        }
        int k = 0;
        while (k < n && memcmp(&found[k], &shape, sizeof shape) != 0)
            k++;
        if (k == n && n < most)
            found[n++] = shape;
    }
    return n;
}

static void try_shape(const Cudnn *lib, const Gpu *gpu, void *device, const Sdpa *s, int64_t most, const char *name)
{
    SdpaPlan plan;
    double begin = seconds_now();
    bool done = sdpa_compile(lib, s, device, most, &plan);
    printf("# %s: b = %lld, h = %lld, g = %lld, s = %lld, t = %lld, e = %lld: ", gpu->name, (long long)s->b, (long long)s->h, (long long)s->g, (long long)s->s,
           (long long)s->t, (long long)s->e);
    if (done)
        printf("%.1f s, %lld bytes of scratch\n", seconds_now() - begin, (long long)plan.scratch);
    else
        printf("%s\n", plan.graph.said);
    printf("%s %s of %s by cuDNN for %s\n", done ? "ok" : "not ok", s->gradient ? "the gradient of attention" : "attention", name, gpu->arch);
    fflush(stdout);
}

static Status try_all(Loaded *l, const char *name)
{
    Plan *plan;
    Programs programs;
    Sdpa found[8];
    const char *why;
    const Cudnn *lib = cudnn_library(&why);
    TRY(load_plan(l, USE_RUN, &plan, &programs));
    int n = shapes(programs.rank[0], found, sizeof found / sizeof *found);
    if (!lib || n < 2)
        printf("%s\nnot ok attention of %s has %d shapes\n", lib ? "" : why, name, n);
    for (size_t g = 0; lib && g < sizeof gpus / sizeof *gpus; g++) {
        void *device = device_of(l->ir, lib, &gpus[g]);
        for (int i = 0; device && i < n; i++)
            try_shape(lib, &gpus[g], device, &found[i], programs.rank[0]->reserve / 2, name);
        if (!device)
            printf("not ok cuDNN takes the properties of %s\n", gpus[g].arch);
    }
    return OK;
}

int main(int argc, char **argv)
{
    Arena *a = arena_new("arguments");
    Args args;
    Loaded l;
    if (argc != 3) {
        fprintf(stderr, "usage: cudnn_plans PLAN NAME\n");
        return status_exit(ERR_USAGE);
    }
    Status s = args_read(a, PRUN, 2, argv, &args);
    if (s == OK) {
        s = load_model(&l, &args);
        s = s == OK ? try_all(&l, argv[2]) : s;
        load_free(&l);
    }
    arena_free(a);
    return status_exit(s);
}
