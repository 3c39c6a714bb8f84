/* internal.h -- what the parts of the emulator share.
 *
 * Nothing here is seen by the program under test: it includes NVIDIA's headers, and for its tests control.h.
 * The emulator is not instrumented by sanitizers.  What it does on behalf of the program it tells the thread
 * sanitizer in so many words: which ranges an operation reads and writes, and what happens before what. */
#ifndef CUDAEMU_INTERNAL_H
#define CUDAEMU_INTERNAL_H

#include <cuda_runtime_api.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <linux/futex.h>

/* Of the thread sanitizer's runtime, where the program is linked with it. */
extern "C" {
void __tsan_acquire(void *) __attribute__((weak));
void __tsan_release(void *) __attribute__((weak));
void __tsan_read_range(void *, unsigned long) __attribute__((weak));
void __tsan_write_range(void *, unsigned long) __attribute__((weak));
void *__tsan_create_fiber(unsigned) __attribute__((weak));
void *__tsan_get_current_fiber(void) __attribute__((weak));
void __tsan_destroy_fiber(void *) __attribute__((weak));
void __tsan_switch_to_fiber(void *, unsigned) __attribute__((weak));
void AnnotateIgnoreReadsBegin(const char *, int) __attribute__((weak));
void AnnotateIgnoreReadsEnd(const char *, int) __attribute__((weak));
}

namespace cudaemu {

enum { MAX_DEVICES = 64 };

/* ---- settings, from the environment (README.md) ---- */

struct Settings {
    unsigned seed;          /* 0: one fixed order */
    unsigned delay_us;      /* longest delay of a stream before an operation, with a seed */
    bool strict;            /* a report ends the process; the default stream is refused */
    bool threads;           /* each CUDA thread is one of the thread sanitizer's */
    bool pageable;          /* an asynchronous copy of pageable memory is reported */
    bool order;             /* the order of two communicators' operations is compared */
    bool trace, profile;
    int devices, kinds;
    int machine_device[MAX_DEVICES];    /* of each, its number among all that the machine has */
    size_t memory;          /* bytes of each device */
    double timeout;         /* seconds a rank waits for others */
    size_t cudnn;           /* the version of cuDNN there is; 0: none */
};
const Settings &settings();
double now_seconds();       /* monotonic */

/* ---- reports ---- */

/* A misuse: prints "cudaemu: ..." with what runs in this thread, and ends the process if strict. */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for what cannot go on in any case. */
[[noreturn]] void fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether this OS thread is in a host function of a stream, which must call nothing of CUDA. */
extern thread_local bool in_host_function;

/* Removes what a process that ends now would leave in /dev/shm. */
void world_forget_files();

/* What this OS thread executes, for reports: the name of a kernel or of an operation, or NULL. */
extern thread_local const char *running;

/* ---- faults asked for by CUDAEMU_FAIL or cudaemu_fail() ---- */

/* The error that this call of NAME is to return, 0 for none.  Counts the call. */
int fault(const char *name);

/* ---- random numbers of a place, from the seed ---- */

/* The next place of this OS thread: of a stream's thread it follows from the stream's number. */
extern thread_local uint64_t place;

struct Random {
    uint64_t state;
    explicit Random(uint64_t of);
    uint32_t below(uint32_t n);     /* 0 .. n - 1 */
};

/* ---- what the thread sanitizer is told ---- */

inline void acquire(const void *p) { if (__tsan_acquire) __tsan_acquire(const_cast<void *>(p)); }
inline void release(const void *p) { if (__tsan_release) __tsan_release(const_cast<void *>(p)); }
inline void note_read(const void *p, size_t n) { if (__tsan_read_range && n) __tsan_read_range(const_cast<void *>(p), n); }
inline void note_write(const void *p, size_t n) { if (__tsan_write_range && n) __tsan_write_range(const_cast<void *>(p), n); }

/* While one lives, the thread sanitizer sees no access of this thread: its interceptors of malloc, free and
 * memcpy would take what the emulator does under its own locks for races. */
struct Hidden {
    Hidden() { if (AnnotateIgnoreReadsBegin) AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
    ~Hidden() { if (AnnotateIgnoreReadsEnd) AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
    Hidden(const Hidden &) = delete;
    Hidden &operator=(const Hidden &) = delete;
};

/* ---- waiting ---- */

/* A futex: the sanitizer must take no lock of the emulator for an order of the program. */
long futex(std::atomic<int> *word, int operation, int value, const timespec *limit = nullptr);

struct Lock {
    std::atomic<int> state{0};      /* 0 free, 1 taken, 2 taken and waited for */
    void lock();
    void unlock();
};
struct Guard {
    Lock &held;
    explicit Guard(Lock &l) : held(l) { held.lock(); }
    ~Guard() { held.unlock(); }
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;
};

/* Something that will be done: a place in a stream. */
struct Token {
    std::atomic<int> done{0};
    double when = 0;                /* seconds, once done */
    void set();
    void wait();
    bool is_done();
};
typedef std::shared_ptr<Token> TokenRef;

/* ---- errors of the runtime API ---- */

/* Keep E for cudaGetLastError and return it. */
cudaError_t fail(cudaError_t e);
/* At the start of a call: the device's sticky error, or the fault that is due. */
cudaError_t enter(const char *name);
/* The device can do nothing more: what an illegal address in a kernel leads to. */
void set_sticky(int device, cudaError_t e);
cudaError_t sticky(int device);
int current_device();
void use_device(int device);        /* of this OS thread */

/* ---- memory ---- */

enum MemoryKind { MEM_UNKNOWN, MEM_DEVICE, MEM_HOST, MEM_FREED };
struct MemoryInfo {
    MemoryKind kind;
    int device;
    uintptr_t base;
    size_t bytes;
};
MemoryInfo memory_find(const void *p);
/* Whether P .. P + N lies in one allocation of KIND (MEM_DEVICE, MEM_HOST); reports if not. */
bool memory_check(const void *p, size_t n, MemoryKind kind, const char *what);
/* Reports writes into the few bytes between an allocation's end and its guard page. */
void memory_check_ends(int device);
void memory_totals(int device, size_t *free_bytes, size_t *total);
void memory_release_all(int device);
/* Handles bad addresses: called by each thread that executes operations. */
void memory_watch_thread();
/* A stack for a fiber: STACK_BYTES, and below what nobody may touch. */
enum : size_t { STACK_BYTES = 256 << 10, STACK_GUARD = 128 << 10 };
char *stack_new();
void stack_free(char *stack);

/* ---- streams ---- */

/* Operations of one communicator run in the order of their issue, whatever their streams. */
struct Order {
    TokenRef last;
};
/* Until all that was issued has ended. */
void order_wait(Order *o);

struct Operation {
    std::function<void()> run;
    const char *what;               /* a string that stays */
    const char *kind;               /* of faults: "kernel", "copy", "gemm"; NULL: none */
    std::vector<Order *> orders;
    bool internal = false;          /* goes on after a sticky error */
    bool is_mark = false;           /* only says that all before it is done */
};
/* Append to a stream, or to the graph it is captured into.  Not called with locks held. */
cudaError_t enqueue(cudaStream_t s, Operation op);
/* NULL and a report if S is no stream in use; the default stream in a process that is not strict. */
cudaStream_t resolve(cudaStream_t s, const char *call);
/* Whether this thread captures, and so must not make calls that wait for a device or allocate. */
bool is_thread_capturing();
/* A token at the end of what S has now; and S waits for one. */
TokenRef stream_mark(cudaStream_t s);
void stream_wait(cudaStream_t s, TokenRef t);
void device_wait(int device);
/* A stream for a lane of a graph, on the current device. */
cudaStream_t stream_new(unsigned flags);
void stream_delete(cudaStream_t s);

/* ---- kernels ---- */

struct Launch {
    const char *name;
    dim3 grid, block;
    size_t shared;                  /* bytes of dynamic shared memory */
    std::function<void()> body;     /* one CUDA thread */
};
/* What runs blocks, one at a time, with the stacks it keeps for their threads. */
struct Runner;
Runner *runner_new();
void runner_delete(Runner *r);
void run_block(Runner *r, const Launch &launch, uint3 block);
/* "kernel k, block (0,0,0), thread (3,0,0)" for reports; NULL outside a kernel. */
const char *where_in_kernel(char *buffer, size_t size);
/* Whether a bad access at ADDRESS is the overflow of a CUDA thread's stack. */
bool is_stack_guard(uintptr_t address);

/* Bytes of shared memory of a block: without asking, after asking, and of a multiprocessor.  What a kernel has statically is part of
 * these, and not seen here: so much of it is taken for granted. */
enum { STATIC_SHARED = 1 << 10 };
enum { SHARED_PER_BLOCK = 48 << 10, SHARED_OPTIN = 227 << 10, SHARED_PER_SM = 228 << 10 };

} /* namespace cudaemu */

/* At the start of a function of the runtime API. */
#define CUDAEMU_ENTER(name)                                 \
    ::cudaemu::Hidden hidden;                               \
    if (cudaError_t error_ = ::cudaemu::enter(name))        \
        return error_

#endif
