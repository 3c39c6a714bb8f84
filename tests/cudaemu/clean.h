/* clean.h -- whether what executed a test has something against it: the emulator, in the programs that are linked with it, or
 * else a GPU. */
#ifndef CUDAEMU_CLEAN_H
#define CUDAEMU_CLEAN_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef CUDAEMU
#include "tests/cudaemu/control.h"

static inline bool device_is_clean(void)
{
    return cudaemu_reports() == 0;
}
#else
static inline bool device_is_clean(void)
{
    return cudaDeviceSynchronize() == cudaSuccess && cudaGetLastError() == cudaSuccess;
}
#endif

#endif
