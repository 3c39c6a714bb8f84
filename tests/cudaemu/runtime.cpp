/* runtime.cpp -- devices, errors and copies of the runtime API. */
#include "stream.h"

#include <cstdio>
#include <cstring>

namespace cudaemu {

/* ---- errors ---- */

static thread_local cudaError_t last_error;
static thread_local int device_now;
static std::atomic<int> sticky_errors[MAX_DEVICES];

cudaError_t fail(cudaError_t e)
{
    last_error = e;
    return e;
}

int current_device() { return device_now; }
void use_device(int device) { device_now = device; }
cudaError_t sticky(int device) { return (cudaError_t)sticky_errors[device].load(); }

void set_sticky(int device, cudaError_t e)
{
    int none = cudaSuccess;
    sticky_errors[device].compare_exchange_strong(none, e);
}

cudaError_t enter(const char *name)
{
    if (in_host_function)
        report("%s is called by a host function", name);
    cudaError_t e = (cudaError_t)fault(name);
    if (!e)
        e = sticky(device_now);
    return e ? fail(e) : cudaSuccess;
}

struct ErrorText {
    cudaError_t code;
    const char *name, *text;
};
static const ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
};

static const ErrorText *error_text(cudaError_t e)
{
    for (const ErrorText &t : error_texts)
        if (t.code == e)
            return &t;
    return nullptr;
}

} /* namespace cudaemu */

using namespace cudaemu;

extern "C" const char *cudaGetErrorName(cudaError_t e)
{
    const ErrorText *t = error_text(e);
    return t ? t->name : "cudaErrorUnknown";
}

extern "C" const char *cudaGetErrorString(cudaError_t e)
{
    const ErrorText *t = error_text(e);
    return t ? t->text : "unknown error";
}

extern "C" cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t e = sticky(device_now);
    return e ? e : last_error;
}

extern "C" cudaError_t cudaGetLastError(void)
{
    cudaError_t e = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return e;
}

/* ---- devices ---- */

extern "C" cudaError_t cudaGetDeviceCount(int *n)
{
    Hidden hidden;
    if (int code = fault("cudaGetDeviceCount"))
        return fail((cudaError_t)code);         /* and *n as it was, like the real call */
    *n = settings().devices;
    return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}

extern "C" cudaError_t cudaSetDevice(int device)
{
    Hidden hidden;
    if (int code = fault("cudaSetDevice"))
        return fail((cudaError_t)code);
    if (device < 0 || device >= settings().devices)
        return fail(cudaErrorInvalidDevice);
    device_now = device;
    memory_watch_thread();
    return cudaSuccess;
}

extern "C" cudaError_t cudaGetDevice(int *device)
{
    *device = device_now;
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceReset(void)
{
    Hidden hidden;
    device_wait(device_now);
    memory_release_all(device_now);
    sticky_errors[device_now] = cudaSuccess;
    last_error = cudaSuccess;
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceSynchronize(void)
{
    CUDAEMU_ENTER("cudaDeviceSynchronize");
    if (is_thread_capturing())
        return fail(cudaErrorStreamCaptureUnsupported);
    device_wait(device_now);
    return sticky(device_now);
}

enum { SM_COUNT = 4, MAJOR = 9 };

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    CUDAEMU_ENTER("cudaGetDeviceProperties");
    if (device < 0 || device >= settings().devices)
        return fail(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    if (int kind = settings().kinds > 1 ? settings().machine_device[device] % settings().kinds : 0)
        snprintf(p->name, sizeof p->name, "emulated device, kind %d", kind);
    else
        snprintf(p->name, sizeof p->name, "emulated device");
    p->totalGlobalMem = settings().memory;
    p->major = MAJOR;
    p->multiProcessorCount = SM_COUNT;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->sharedMemPerBlock = SHARED_PER_BLOCK;
    p->sharedMemPerBlockOptin = SHARED_OPTIN;
    p->sharedMemPerMultiprocessor = SHARED_PER_SM;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->l2CacheSize = 32 << 20;
    p->memoryBusWidth = 4096;
    p->pciBusID = settings().machine_device[device];
    snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "emulated %d", p->pciBusID);
    p->maxGridSize[0] = INT_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int device)
{
    cudaDeviceProp p;
    if (cudaError_t e = cudaGetDeviceProperties(&p, device))
        return e;
    switch (what) {
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = SHARED_PER_BLOCK; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_OPTIN; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = SHARED_PER_SM; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    default: return fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    CUDAEMU_ENTER("cudaDeviceGetPCIBusId");
    if (device < 0 || device >= settings().devices || bytes < 13)
        return fail(cudaErrorInvalidValue);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", settings().machine_device[device]);
    return cudaSuccess;
}

extern "C" cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
extern "C" cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
extern "C" cudaError_t cudaDriverGetVersion(int *v) { *v = CUDART_VERSION; return cudaSuccess; }
extern "C" cudaError_t cudaRuntimeGetVersion(int *v) { *v = CUDART_VERSION; return cudaSuccess; }
extern "C" cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = a != b; return cudaSuccess; }
extern "C" cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
extern "C" cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* ---- copies ---- */

static cudaMemcpyKind kind_of(const void *to, const void *from, cudaMemcpyKind kind)
{
    if (kind != cudaMemcpyDefault)
        return kind;
    bool to_device = memory_find(to).kind == MEM_DEVICE, from_device = memory_find(from).kind == MEM_DEVICE;
    return to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                     : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
}

static bool check_copy(const void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const char *a = static_cast<const char *>(to), *b = static_cast<const char *>(from);
    if (n && a < b + n && b < a + n)
        report("a copy of %zu bytes from %p to %p overlaps itself", n, from, to);
    return memory_check(to, n, to_device ? MEM_DEVICE : MEM_HOST, "the target of a copy") &&
           memory_check(from, n, from_device ? MEM_DEVICE : MEM_HOST, "the source of a copy");
}

static void copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows)
{
    for (size_t r = 0; r < rows; r++) {
        char *t = static_cast<char *>(to) + r * to_pitch;
        const char *f = static_cast<const char *>(from) + r * from_pitch;
        note_read(f, width);
        note_write(t, width);
        Hidden hidden;
        memcpy(t, f, width);
    }
}

static cudaError_t copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                        cudaMemcpyKind kind, cudaStream_t s, const char *call, bool blocking)
{
    s = resolve(s, call);
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    if (!width || !rows)
        return cudaSuccess;
    kind = kind_of(to, from, kind);
    if (width > to_pitch || width > from_pitch || !check_copy(to, from, width, kind))
        return fail(cudaErrorInvalidValue);
    size_t to_bytes = (rows - 1) * to_pitch + width, from_bytes = (rows - 1) * from_pitch + width;
    if (rows > 1 && !(memory_check(to, to_bytes, memory_find(to).kind == MEM_DEVICE ? MEM_DEVICE : MEM_HOST, "the target of a copy") &&
                      memory_check(from, from_bytes, memory_find(from).kind == MEM_DEVICE ? MEM_DEVICE : MEM_HOST, "the source of a copy")))
        return fail(cudaErrorInvalidValue);
    bool pageable = memory_find(to).kind == MEM_UNKNOWN || memory_find(from).kind == MEM_UNKNOWN;
    if (pageable && !blocking && settings().pageable)
        report("%s of pageable memory, which is not asynchronous", call);
    if ((pageable || blocking) && s->capture)
        return capture_break(s);
    enqueue(s, Operation{[=]() { copy_rows(to, to_pitch, from, from_pitch, width, rows); }, "a copy", "copy", {}, false});
    if (pageable || blocking) {
        stream_mark(s)->wait();
        return sticky(current_device());
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t s)
{
    CUDAEMU_ENTER("cudaMemcpyAsync");
    return copy(to, n, from, n, n, 1, kind, s, "cudaMemcpyAsync", false);
}

extern "C" cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    CUDAEMU_ENTER("cudaMemcpy");
    return copy(to, n, from, n, n, 1, kind, nullptr, "cudaMemcpy", true);
}

extern "C" cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t n, cudaStream_t s)
{
    CUDAEMU_ENTER("cudaMemcpyPeerAsync");
    return copy(to, n, from, n, n, 1, cudaMemcpyDeviceToDevice, s, "cudaMemcpyPeerAsync", false);
}

extern "C" cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                                         cudaMemcpyKind kind, cudaStream_t s)
{
    CUDAEMU_ENTER("cudaMemcpy2DAsync");
    return copy(to, to_pitch, from, from_pitch, width, rows, kind, s, "cudaMemcpy2DAsync", false);
}

static cudaError_t set(void *to, size_t pitch, int value, size_t width, size_t rows, cudaStream_t s, const char *call)
{
    s = resolve(s, call);
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    if (!width || !rows)
        return cudaSuccess;
    if (width > pitch || !memory_check(to, (rows - 1) * pitch + width, MEM_DEVICE, "the target of cudaMemset"))
        return fail(cudaErrorInvalidValue);
    return enqueue(s, Operation{[=]() {
        for (size_t r = 0; r < rows; r++) {
            char *t = static_cast<char *>(to) + r * pitch;
            note_write(t, width);
            Hidden hidden;
            memset(t, value, width);
        }
    }, "cudaMemset", "copy", {}, false});
}

extern "C" cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t s)
{
    CUDAEMU_ENTER("cudaMemsetAsync");
    return set(to, n, value, n, 1, s, "cudaMemsetAsync");
}

extern "C" cudaError_t cudaMemset(void *to, int value, size_t n)
{
    CUDAEMU_ENTER("cudaMemset");
    return set(to, n, value, n, 1, nullptr, "cudaMemset");
}

extern "C" cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t rows, cudaStream_t s)
{
    CUDAEMU_ENTER("cudaMemset2DAsync");
    return set(to, pitch, value, width, rows, s, "cudaMemset2DAsync");
}

extern "C" cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
extern "C" cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
