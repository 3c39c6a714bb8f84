/* Failures of a device: said once, with the call, the rank and the instruction. */
#include <string.h>

#include "runtime/cuda/device.h"

Status device_failed(const Rank *r, const char *call, const char *why)
{
    DeviceRank *d = r->device;
    if (d->failed != OK)
        return d->failed;
    d->failed = ERR_DEVICE;
    fprintf(stderr, "error: rank %u, %s %d: %.*s: %s", r->program->rank, r->executor->name, d->ordinal, (int)strcspn(call, "("), call, why);
    if (d->instr >= 0)
        fprintf(stderr, ", at instruction %lld, %s '%s'", (long long)d->instr, op_info[r->program->instr[d->instr].op].name, r->program->instr[d->instr].path);
    fputc('\n', stderr);
    return d->failed;
}

Status cuda_failed(const Rank *r, const char *call, cudaError_t e)
{
    return device_failed(r, call, cudaGetErrorString(e));
}
