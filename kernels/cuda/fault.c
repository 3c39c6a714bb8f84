/* Libraries that fail: see cuda.h.  After an error of what was executed every call of theirs fails too, and says other things. */
#include <stdio.h>

#include "kernels/cuda/cuda.h"

cudaError_t cuda_library_failed(const CudaCall *c, const char *library, const char *words)
{
    cudaError_t late = cudaGetLastError();
    if (late != cudaSuccess)
        return late;
    if (c->fault) {
        c->fault->by = library;
        snprintf(c->fault->words, sizeof c->fault->words, "%s", words);
    }
    return cudaErrorUnknown;
}
