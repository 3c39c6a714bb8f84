/* Failures of a device: said once, with the call, the rank and the instruction. */
#include <string.h>

#include "base/text.h"
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

/* Errors of what was executed, which whatever call comes next returns. */
static bool is_late(cudaError_t e)
{
    switch (e) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
    }
}

/* Of a late error neither the call nor the instruction is known, but how far streams had come. */
Status cuda_failed(const Rank *r, const char *call, cudaError_t e)
{
    if (!is_late(e))
        return device_failed(r, call, cudaGetErrorString(e));
    Arena *a = arena_new("message");
    const char *streams = streams_text(a, r);
    r->device->instr = -1;
    Status s = device_failed(r, "what it executed", arena_printf(a, "%s; %s", cudaGetErrorString(e), streams));
    arena_free(a);
    return s;
}
