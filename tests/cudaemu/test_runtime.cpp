/* test_runtime.cpp -- memory, copies, streams, events, faults: what they do, and misuse that is found. */
#include "control.h"
#include "harness.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include <unistd.h>

/* ---- memory ---- */

static void accounting()
{
    size_t free_bytes, total;
    void *a, *b, *c;
    OK(cudaMemGetInfo(&free_bytes, &total));
    CHECK(total == 1 << 20 && free_bytes == total);
    OK(cudaMalloc(&a, 1000));
    OK(cudaMalloc(&b, 512 << 10));
    OK(cudaMemGetInfo(&free_bytes, &total));
    CHECK(total - free_bytes == 1024 + (512 << 10) && cudaemu_live_bytes(0) == total - free_bytes);
    CHECK(cudaMalloc(&c, 512 << 10) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&c, 512 << 10));      /* each device has its own */
    OK(cudaSetDevice(0));
    OK(cudaFree(b));
    OK(cudaFree(a));
    CHECK(cudaemu_live_bytes(0) == 0 && cudaemu_peak_bytes(0) == 1024 + (512 << 10) && cudaemu_live_bytes(-1) == 512 << 10);
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, c));
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 1);
}

static void double_free()
{
    float *x = device_floats(4);
    OK(cudaFree(x));
    cudaFree(x);
}

static void foreign_free()
{
    float *x = device_floats(4);
    cudaFree(x + 1);
}

/* Memory of the program's own, made known. */
static void registered()
{
    static float own[64];
    void *same;
    cudaStream_t s = new_stream();
    float *x = device_floats(64);
    CHECK(cudaHostGetDevicePointer(&same, own, 0) == cudaErrorInvalidValue);
    OK(cudaHostRegister(own, sizeof own, cudaHostRegisterDefault));
    CHECK(cudaHostRegister(own, sizeof own, cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostGetDevicePointer(&same, own, 0));
    CHECK(same == own);
    OK(cudaMemcpyAsync(x, own, sizeof own, cudaMemcpyHostToDevice, s));     /* pinned: it may be asynchronous */
    OK(cudaStreamSynchronize(s));
    OK(cudaHostUnregister(own));
    CHECK(cudaHostUnregister(own) == cudaErrorHostMemoryNotRegistered);
}

/* ---- copies ---- */

static void copies()
{
    float *host, back[6];
    cudaStream_t s = new_stream();
    OK(cudaMallocHost(reinterpret_cast<void **>(&host), 6 * sizeof(float)));
    for (int i = 0; i < 6; i++)
        host[i] = (float)i;
    float *a = device_floats(6), *b = device_floats(6);
    OK(cudaMemcpyAsync(a, host, 6 * sizeof(float), cudaMemcpyHostToDevice, s));
    OK(cudaMemcpyAsync(b, a, 6 * sizeof(float), cudaMemcpyDefault, s));
    OK(cudaMemsetAsync(b, 0, 2 * sizeof(float), s));
    OK(cudaMemcpy2DAsync(b + 3, 4, a, 8, 4, 3, cudaMemcpyDeviceToDevice, s));
    OK(cudaMemcpyAsync(back, b, sizeof back, cudaMemcpyDeviceToHost, s));
    CHECK(back[0] == 0 && back[1] == 0 && back[2] == 2 && back[3] == 0 && back[4] == 2 && back[5] == 4);
    OK(cudaFreeHost(host));
}

static void copy_to(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    cudaStream_t s = new_stream();
    cudaMemcpyAsync(to, from, n, kind, s);
}

static float some[64];
static void wrong_kind() { copy_to(some, some + 32, 16, cudaMemcpyHostToDevice); }
static void swapped_kind() { copy_to(device_floats(4), some, 16, cudaMemcpyDeviceToHost); }
static void too_long() { copy_to(device_floats(4), some, 20, cudaMemcpyHostToDevice); }
static void right_copy() { copy_to(device_floats(4), some, 16, cudaMemcpyHostToDevice); }
static void overlapping()
{
    float *x = device_floats(8);
    copy_to(x + 1, x, 16, cudaMemcpyDeviceToDevice);
}
static void host_too_short()
{
    void *host;
    OK(cudaMallocHost(&host, 8));
    copy_to(device_floats(4), host, 16, cudaMemcpyHostToDevice);
}
static void freed_source()
{
    float *x = device_floats(4);
    OK(cudaFree(x));
    copy_to(some, x, 16, cudaMemcpyDeviceToHost);
}
static void default_copy() { cudaMemcpy(device_floats(4), some, 16, cudaMemcpyHostToDevice); }

/* ---- streams and events ---- */

static void append(void *p)
{
    static std::atomic<int> at;
    usleep(1000);
    static_cast<int *>(p)[0] = ++at;
}

static std::atomic<bool> gate;
static void wait_at_gate(void *)
{
    while (!gate)
        usleep(100);
}

/* Whatever the delays: what an event orders comes in that order. */
static void event_order()
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t e, f;
    OK(cudaEventCreate(&e));
    OK(cudaEventCreate(&f));
    int when[3];
    OK(cudaStreamWaitEvent(b, e, 0));           /* never recorded: no wait */
    OK(cudaEventRecord(e, a));
    OK(cudaLaunchHostFunc(a, wait_at_gate, nullptr));
    OK(cudaLaunchHostFunc(a, append, &when[0]));
    OK(cudaEventRecord(f, a));
    OK(cudaStreamWaitEvent(b, f, 0));
    OK(cudaLaunchHostFunc(b, append, &when[1]));
    OK(cudaEventRecord(e, b));
    OK(cudaStreamWaitEvent(a, e, 0));
    OK(cudaLaunchHostFunc(a, append, &when[2]));
    CHECK(cudaStreamQuery(a) == cudaErrorNotReady && cudaEventQuery(f) == cudaErrorNotReady);
    gate = true;
    OK(cudaStreamSynchronize(a));
    OK(cudaStreamQuery(a));
    OK(cudaEventQuery(e));
    CHECK(when[0] == 1 && when[1] == 2 && when[2] == 3);
    OK(cudaEventRecord(e, b));
    OK(cudaEventSynchronize(e));
    float ms;
    OK(cudaEventElapsedTime(&ms, f, e));
    CHECK(ms >= 1);
    OK(cudaStreamDestroy(a));
    OK(cudaEventDestroy(e));
    OK(cudaDeviceSynchronize());
}

static void destroyed_stream()
{
    cudaStream_t s = new_stream();
    OK(cudaStreamDestroy(s));
    cudaStreamSynchronize(s);
}
static void destroyed_event()
{
    cudaEvent_t e;
    OK(cudaEventCreate(&e));
    OK(cudaEventDestroy(e));
    cudaEventRecord(e, new_stream());
}
static void default_stream_event()
{
    cudaEvent_t e;
    OK(cudaEventCreate(&e));
    cudaEventRecord(e, nullptr);
}

static void call_cuda(void *p) { cudaStreamQuery(*static_cast<cudaStream_t *>(p)); }
static void calling_host_function()
{
    cudaStream_t s = new_stream(), t = new_stream();
    OK(cudaLaunchHostFunc(s, call_cuda, &t));
    OK(cudaStreamSynchronize(s));
}

/* Without strictness the default stream waits for blocking ones, and they for it. */
static void default_stream_allowed()
{
    cudaStream_t s;
    int when[3];
    OK(cudaStreamCreate(&s));
    OK(cudaLaunchHostFunc(s, append, &when[0]));
    OK(cudaLaunchHostFunc(nullptr, append, &when[1]));
    OK(cudaLaunchHostFunc(s, append, &when[2]));
    OK(cudaStreamSynchronize(s));
    CHECK(when[0] == 1 && when[1] == 2 && when[2] == 3);
}

/* ---- faults ---- */

static void failing_calls()
{
    void *p;
    CHECK(!cudaemu_fail("cudaMalloc") && !cudaemu_fail("cudaMalloc:0=2"));
    CHECK(cudaemu_fail("cudaMalloc:2=2,cudaStreamCreateWithFlags:1=46@3"));
    OK(cudaMalloc(&p, 10));
    CHECK(cudaMalloc(&p, 10) == cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, 10));
    new_stream();
    cudaStream_t s;
    OK(cudaSetDevice(3));
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == 46);
    CHECK(cudaemu_fail("cudaMalloc:1=2") && cudaemu_fail(nullptr));
    OK(cudaMalloc(&p, 10));
}

/* An error of the device: all that comes later fails, until the device is reset. */
static void failing_operation()
{
    cudaStream_t s = new_stream();
    float *x = device_floats(4, some), host[4] = {7, 7, 7, 7};
    void *p;
    CHECK(cudaemu_fail("copy:2=700"));
    OK(cudaMemsetAsync(x, 0, 16, s));
    OK(cudaMemsetAsync(x, 0, 16, s));
    CHECK(cudaStreamSynchronize(s) == cudaErrorIllegalAddress);
    CHECK(cudaMemcpyAsync(host, x, 16, cudaMemcpyDeviceToHost, s) == cudaErrorIllegalAddress && host[0] == 7);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&p, 10));
    OK(cudaSetDevice(0));
    OK(cudaDeviceReset());
    OK(cudaMalloc(&p, 10));
}

static void failing_by_environment()
{
    int n = 5;
    CHECK(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver && n == 5);
    OK(cudaGetDeviceCount(&n));
    CHECK(n == 8 && !strcmp(cudaGetErrorName(cudaErrorInsufficientDriver), "cudaErrorInsufficientDriver"));
}

static void few_devices()
{
    int n;
    OK(cudaGetDeviceCount(&n));
    char bus[16];
    OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 1));
    CHECK(!strcmp(bus, "0000:01:00.0"));
    int value;
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    CHECK(value == 227 << 10);
    CHECK(n == 2 && cudaSetDevice(2) == cudaErrorInvalidDevice && cudaSetDevice(1) == cudaSuccess);
}

static void visible_devices()
{
    int n;
    char bus[16];
    cudaDeviceProp p;
    OK(cudaGetDeviceCount(&n));
    OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    CHECK(n == 2 && !strcmp(bus, "0000:05:00.0"));
    OK(cudaGetDeviceProperties(&p, 1));
    CHECK(p.pciBusID == 3 && cudaSetDevice(2) == cudaErrorInvalidDevice);
}

static void two_kinds()
{
    cudaDeviceProp p[3];
    for (int i = 0; i < 3; i++)
        OK(cudaGetDeviceProperties(&p[i], i));
    CHECK(strcmp(p[0].name, p[1].name) && !strcmp(p[0].name, p[2].name));
}

static const Case cases[] = {
    {"accounting of memory", accounting, nullptr, "CUDAEMU_MEMORY=1M"},
    {"freeing twice", double_free, "freed already", nullptr},
    {"freeing what was not allocated", foreign_free, "not the start", nullptr},
    {"memory of the program, registered", registered, nullptr, "CUDAEMU_PAGEABLE=1"},
    {"two devices", few_devices, nullptr, "CUDAEMU_DEVICES=2"},
    {"those that are visible", visible_devices, nullptr, "CUDA_VISIBLE_DEVICES=5,3,9,1"},
    {"two kinds of devices", two_kinds, nullptr, "CUDAEMU_KINDS=2"},
    {"copies", copies, nullptr, nullptr},
    {"copies, delayed", copies, nullptr, "CUDAEMU_SEED=7"},
    {"a copy from host to host called host to device", wrong_kind, "is not device memory", nullptr},
    {"a copy with the kinds exchanged", swapped_kind, "is not host memory", nullptr},
    {"a copy beyond an allocation", too_long, "4 bytes beyond an allocation of 16 bytes", nullptr},
    {"a copy that fits", right_copy, nullptr, nullptr},
    {"a copy onto itself", overlapping, "overlaps itself", nullptr},
    {"a copy beyond host memory", host_too_short, "beyond an allocation of 8 bytes", nullptr},
    {"a copy of freed memory", freed_source, "that was freed", nullptr},
    {"a copy of pageable memory, when that is an error", right_copy, "pageable", "CUDAEMU_PAGEABLE=1"},
    {"a copy on the default stream", default_copy, "default stream", nullptr},
    {"events order streams", event_order, nullptr, nullptr},
    {"events order streams, delayed", event_order, nullptr, "CUDAEMU_SEED=11"},
    {"a stream that was destroyed", destroyed_stream, "a stream that was destroyed", nullptr},
    {"an event that was destroyed", destroyed_event, "an event that was destroyed", nullptr},
    {"an event on the default stream", default_stream_event, "default stream", nullptr},
    {"the default stream, where it is allowed", default_stream_allowed, nullptr, "CUDAEMU_STRICT=0"},
    {"a host function that calls CUDA", calling_host_function, "is called by a host function", nullptr},
    {"calls that fail", failing_calls, nullptr, nullptr},
    {"an operation that fails", failing_operation, nullptr, nullptr},
    {"a call that fails by the environment", failing_by_environment, nullptr, "CUDAEMU_FAIL=cudaGetDeviceCount:1=35"},
};

int main(int argc, char **argv) { return RUN_CASES(argc, argv, cases); }
