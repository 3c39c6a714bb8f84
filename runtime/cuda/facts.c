/* Facts: what the driver says of the devices of this machine. */
#include <string.h>

#include "base/text.h"
#include "runtime/cuda/device.h"

/* There is no rank yet that could have failed. */
static Status facts_failed(cudaError_t e)
{
    fprintf(stderr, "error: --device %s: %s\n", EXECUTOR, cudaGetErrorString(e));
    return ERR_DEVICE;
}

static Status read_first(Arena *a, DeviceFacts *f)
{
    struct cudaDeviceProp p;
    size_t free_bytes = 0, all = 0;
    cudaError_t e = cudaGetDeviceProperties(&p, 0);
    e = e == cudaSuccess ? cudaSetDevice(0) : e;
    e = e == cudaSuccess ? cudaMemGetInfo(&free_bytes, &all) : e;
    if (e != cudaSuccess)
        return facts_failed(e);
    f->name = arena_strdup(a, p.name);
    f->memory = (int64_t)all;
    f->free = (int64_t)free_bytes;
    f->cache = p.l2CacheSize;
    return OK;
}

/* What the first does is said of all. */
static Status check_alike(const DeviceFacts *f)
{
    for (int i = 1; i < f->count; i++) {
        struct cudaDeviceProp p;
        cudaError_t e = cudaGetDeviceProperties(&p, i);
        if (e != cudaSuccess)
            return facts_failed(e);
        if (strcmp(p.name, f->name) == 0)
            continue;
        fprintf(stderr, "error: devices 0 and %d are of two kinds, '%s' and '%s': choose those of one kind by CUDA_VISIBLE_DEVICES\n", i, f->name, p.name);
        return ERR_REJECT;
    }
    return OK;
}

Status device_facts(Arena *a, DeviceFacts *f)
{
    *f = (DeviceFacts){.count = 0};
    cudaError_t e = cudaGetDeviceCount(&f->count);
    if (e != cudaSuccess)
        return facts_failed(e);
    TRY(read_first(a, f));
    return check_alike(f);
}
