/* memory.cpp -- device memory and pinned host memory: extents, guard pages, poison, accounting.
 *
 * An allocation ends right before a page that nobody may touch, but for the less than 256 bytes that its alignment
 * leaves; those are checked after each kernel.  Fresh device memory is all ones: a NaN in every floating-point
 * type.  Freed memory stays reserved and forbidden for a long time. */
#include "internal.h"

#include "control.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cudaemu {

enum : size_t { PAGE = 4096, ALIGNMENT = 256, KEPT_FREED = 4096 };
enum : unsigned char { POISON = 0xff, REDZONE = 0xa5 };

struct Allocation {
    size_t bytes;
    MemoryKind kind;
    int device;
    char *map;              /* NULL: registered, the program's own */
    size_t map_bytes;
};

struct Memory {
    Lock lock;
    std::map<uintptr_t, Allocation> allocations;        /* by first byte; freed ones too */
    std::deque<uintptr_t> freed;                        /* oldest first */
    std::map<uintptr_t, size_t> ends[MAX_DEVICES];      /* of live device memory that ends before its guard page: size */
    size_t used[MAX_DEVICES], peak[MAX_DEVICES];
};

/* Never destroyed: streams may still run when the process ends. */
static Memory &memory()
{
    static Memory *m = new Memory();
    return *m;
}

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* ---- pages ---- */

/* Pages that nobody may touch yet.  The thread sanitizer is not told what this library maps (tsan.supp), nor when the C library unmaps
 * the stack of a thread, so at an address that is used again it would take what another thread did there long ago for a race.  What is
 * allocated it always knows to be new. */
static char *pages_new(size_t bytes)
{
    void *p = nullptr;
    if (!__tsan_acquire) {
        p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return p == MAP_FAILED ? nullptr : static_cast<char *>(p);
    }
    if (posix_memalign(&p, PAGE, bytes) || mprotect(p, bytes, PROT_NONE))
        return nullptr;
    return static_cast<char *>(p);
}

static void pages_free(char *p, size_t bytes)
{
    if (!__tsan_acquire)
        munmap(p, bytes);
    else if (mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0)
        free(p);
}

/* ---- finding ---- */

static MemoryInfo find_locked(Memory &m, uintptr_t a)
{
    auto it = m.allocations.upper_bound(a);
    if (it == m.allocations.begin())
        return MemoryInfo{MEM_UNKNOWN, 0, 0, 0};
    --it;
    if (a - it->first >= it->second.bytes)
        return MemoryInfo{MEM_UNKNOWN, 0, 0, 0};
    return MemoryInfo{it->second.kind, it->second.device, it->first, it->second.bytes};
}

MemoryInfo memory_find(const void *p)
{
    Memory &m = memory();
    Guard guard(m.lock);
    return find_locked(m, reinterpret_cast<uintptr_t>(p));
}

bool memory_check(const void *p, size_t n, MemoryKind kind, const char *what)
{
    if (!n)
        return true;
    MemoryInfo i = memory_find(p);
    const char *wanted = kind == MEM_DEVICE ? "device memory" : "host memory";
    size_t left = i.base + i.bytes - reinterpret_cast<uintptr_t>(p);
    if (i.kind == MEM_FREED)
        report("%s: address %p is in memory that was freed", what, p);
    else if (i.kind != kind && !(kind == MEM_HOST && i.kind == MEM_UNKNOWN))
        report("%s: address %p is not %s", what, p, wanted);
    else if (i.kind == kind && n > left)
        report("%s: %zu bytes at %p go %zu bytes beyond an allocation of %zu bytes", what, n, p, n - left, i.bytes);
    else
        return true;
    return false;
}

void memory_check_ends(int device)
{
    Memory &m = memory();
    Guard guard(m.lock);
    for (auto &e : m.ends[device]) {
        const unsigned char *end = reinterpret_cast<unsigned char *>(e.first);
        size_t slack = round_up(e.second, ALIGNMENT) - e.second;
        for (size_t i = 0; i < slack; i++)
            if (end[i] != REDZONE)
                fatal("an allocation of %zu bytes is written %zu bytes behind its end", e.second, i);
    }
}

/* ---- allocating ---- */

static char *map_guarded(size_t bytes, char **map, size_t *map_bytes)
{
    size_t room = round_up(bytes, ALIGNMENT);
    *map_bytes = round_up(room, PAGE) + 2 * PAGE;
    *map = pages_new(*map_bytes);
    if (!*map)
        return nullptr;
    if (mprotect(*map + PAGE, *map_bytes - 2 * PAGE, PROT_READ | PROT_WRITE)) {
        pages_free(*map, *map_bytes);
        return nullptr;
    }
    return *map + *map_bytes - PAGE - room;
}

static cudaError_t allocate(void **out, size_t bytes, MemoryKind kind)
{
    Memory &m = memory();
    int device = current_device();
    size_t counted = kind == MEM_DEVICE ? round_up(bytes, ALIGNMENT) : 0;
    {
        Guard guard(m.lock);
        if (m.used[device] + counted > settings().memory)
            return fail(cudaErrorMemoryAllocation);
        m.used[device] += counted;
        if (m.peak[device] < m.used[device])
            m.peak[device] = m.used[device];
    }
    Allocation a = {bytes, kind, device, nullptr, 0};
    char *p = map_guarded(bytes, &a.map, &a.map_bytes);
    Guard guard(m.lock);
    if (!p) {
        m.used[device] -= counted;
        return fail(cudaErrorMemoryAllocation);
    }
    memset(p, POISON, bytes);
    memset(p + bytes, REDZONE, round_up(bytes, ALIGNMENT) - bytes);
    m.allocations[reinterpret_cast<uintptr_t>(p)] = a;
    if (kind == MEM_DEVICE && bytes % ALIGNMENT)
        m.ends[device][reinterpret_cast<uintptr_t>(p) + bytes] = bytes;
    *out = p;
    return cudaSuccess;
}

static void forget_oldest(Memory &m)
{
    auto it = m.allocations.find(m.freed.front());
    m.freed.pop_front();
    if (it == m.allocations.end())
        return;
    pages_free(it->second.map, it->second.map_bytes);
    m.allocations.erase(it);
}

static void free_locked(Memory &m, uintptr_t at, Allocation &a)
{
    if (a.kind == MEM_DEVICE) {
        m.used[a.device] -= round_up(a.bytes, ALIGNMENT);
        m.ends[a.device].erase(at + a.bytes);
    }
    mmap(a.map, a.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    a.kind = MEM_FREED;
    m.freed.push_back(at);
    if (m.freed.size() > KEPT_FREED)
        forget_oldest(m);
}

static cudaError_t release_memory(void *p, MemoryKind kind, const char *call)
{
    Memory &m = memory();
    Guard guard(m.lock);
    auto it = m.allocations.find(reinterpret_cast<uintptr_t>(p));
    if (it == m.allocations.end() || it->second.kind != kind || !it->second.map) {
        bool again = it != m.allocations.end() && it->second.kind == MEM_FREED;
        report("%s: %p is %s", call, p, again ? "freed already" : "not the start of such an allocation");
        return fail(cudaErrorInvalidValue);
    }
    free_locked(m, it->first, it->second);
    return cudaSuccess;
}

void memory_totals(int device, size_t *free_bytes, size_t *total)
{
    Memory &m = memory();
    Guard guard(m.lock);
    *total = settings().memory;
    *free_bytes = *total - m.used[device];
}

void memory_release_all(int device)
{
    Memory &m = memory();
    Guard guard(m.lock);
    for (auto &a : m.allocations)
        if (a.second.device == device && a.second.map && a.second.kind == MEM_DEVICE)
            free_locked(m, a.first, a.second);
}

/* ---- stacks of fibers ---- */

char *stack_new()
{
    char *p = pages_new(STACK_GUARD + STACK_BYTES);
    if (!p || mprotect(p + STACK_GUARD, STACK_BYTES, PROT_READ | PROT_WRITE))
        fatal("no memory for the stack of a CUDA thread");
    return p + STACK_GUARD;
}

void stack_free(char *stack) { pages_free(stack - STACK_GUARD, STACK_GUARD + STACK_BYTES); }

/* ---- bad addresses ---- */

static std::string describe(uintptr_t a)
{
    Memory &m = memory();
    char text[160];
    if (is_stack_guard(a))
        return "the end of its stack";
    MemoryInfo inside = find_locked(m, a);
    if (inside.kind == MEM_FREED) {
        snprintf(text, sizeof text, "memory of %zu bytes that was freed", inside.bytes);
        return text;
    }
    auto after = m.allocations.upper_bound(a);
    if (after != m.allocations.begin()) {
        auto before = std::prev(after);
        uintptr_t end = before->first + before->second.bytes;
        if (a - end < (1 << 16)) {
            snprintf(text, sizeof text, "%zu bytes behind an allocation of %zu bytes", (size_t)(a - end), before->second.bytes);
            return text;
        }
    }
    if (after != m.allocations.end() && after->first - a < (1 << 16)) {
        snprintf(text, sizeof text, "%zu bytes before an allocation of %zu bytes", (size_t)(after->first - a), after->second.bytes);
        return text;
    }
    return a < (1 << 16) ? "near NULL" : "no memory of the program";
}

static void bad_address(int, siginfo_t *info, void *)
{
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    if (info->si_code == SI_KERNEL)         /* the processor does not say where */
        fatal("a misaligned access, or an address that can not be one");
    fatal("bad address %p: %s", info->si_addr, describe(reinterpret_cast<uintptr_t>(info->si_addr)).c_str());
}

static bool install_handler()
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = bad_address;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    return true;
}

void memory_watch_thread()
{
    static const bool installed = install_handler();
    (void)installed;
    enum : size_t { HANDLER_BYTES = 64 << 10 };
    stack_t stack;
    if (sigaltstack(nullptr, &stack) == 0 && !(stack.ss_flags & SS_DISABLE))
        return;             /* a sanitizer's own, which it frees */
    static thread_local std::unique_ptr<char[]> room(new char[HANDLER_BYTES]);
    memset(&stack, 0, sizeof stack);
    stack.ss_sp = room.get();
    stack.ss_size = HANDLER_BYTES;
    sigaltstack(&stack, nullptr);
}

} /* namespace cudaemu */

/* ---- the API ---- */

using namespace cudaemu;

extern "C" cudaError_t cudaMalloc(void **p, size_t bytes)
{
    CUDAEMU_ENTER("cudaMalloc");
    if (is_thread_capturing())
        return fail(cudaErrorStreamCaptureUnsupported);
    *p = nullptr;
    return bytes ? allocate(p, bytes, MEM_DEVICE) : cudaSuccess;
}

/* Freeing waits for the device, as the real call does. */
extern "C" cudaError_t cudaFree(void *p)
{
    CUDAEMU_ENTER("cudaFree");
    if (!p)
        return cudaSuccess;
    MemoryInfo i = memory_find(p);
    if (i.kind == MEM_DEVICE)
        device_wait(i.device);
    return release_memory(p, MEM_DEVICE, "cudaFree");
}

extern "C" cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    CUDAEMU_ENTER("cudaHostAlloc");
    if (is_thread_capturing())
        return fail(cudaErrorStreamCaptureUnsupported);
    *p = nullptr;
    return bytes ? allocate(p, bytes, MEM_HOST) : cudaSuccess;
}

extern "C" cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    CUDAEMU_ENTER("cudaMallocHost");
    if (is_thread_capturing())
        return fail(cudaErrorStreamCaptureUnsupported);
    *p = nullptr;
    return bytes ? allocate(p, bytes, MEM_HOST) : cudaSuccess;
}

extern "C" cudaError_t cudaFreeHost(void *p)
{
    CUDAEMU_ENTER("cudaFreeHost");
    if (!p)
        return cudaSuccess;
    device_wait(current_device());
    return release_memory(p, MEM_HOST, "cudaFreeHost");
}

extern "C" cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned)
{
    CUDAEMU_ENTER("cudaHostRegister");
    Memory &m = memory();
    Guard guard(m.lock);
    if (!bytes || find_locked(m, reinterpret_cast<uintptr_t>(p)).kind != MEM_UNKNOWN)
        return fail(bytes ? cudaErrorHostMemoryAlreadyRegistered : cudaErrorInvalidValue);
    m.allocations[reinterpret_cast<uintptr_t>(p)] = Allocation{bytes, MEM_HOST, current_device(), nullptr, 0};
    return cudaSuccess;
}

extern "C" cudaError_t cudaHostUnregister(void *p)
{
    CUDAEMU_ENTER("cudaHostUnregister");
    Memory &m = memory();
    Guard guard(m.lock);
    auto it = m.allocations.find(reinterpret_cast<uintptr_t>(p));
    if (it == m.allocations.end() || it->second.map)
        return fail(cudaErrorHostMemoryNotRegistered);
    m.allocations.erase(it);
    return cudaSuccess;
}

extern "C" cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    CUDAEMU_ENTER("cudaHostGetDevicePointer");
    if (memory_find(host).kind != MEM_HOST)
        return fail(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    CUDAEMU_ENTER("cudaMemGetInfo");
    memory_totals(current_device(), free_bytes, total);
    return cudaSuccess;
}

extern "C" cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p)
{
    CUDAEMU_ENTER("cudaPointerGetAttributes");
    memset(a, 0, sizeof *a);
    MemoryInfo i = memory_find(p);
    a->type = i.kind == MEM_DEVICE ? cudaMemoryTypeDevice : i.kind == MEM_HOST ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    a->device = i.kind == MEM_UNKNOWN ? cudaInvalidDeviceId : i.device;
    a->devicePointer = i.kind == MEM_DEVICE || i.kind == MEM_HOST ? const_cast<void *>(p) : nullptr;
    a->hostPointer = i.kind == MEM_HOST ? const_cast<void *>(p) : nullptr;
    return cudaSuccess;
}

static size_t sum(const size_t *of, int device)
{
    if (device >= 0)
        return of[device];
    size_t n = 0;
    for (int d = 0; d < MAX_DEVICES; d++)
        n += of[d];
    return n;
}

extern "C" size_t cudaemu_live_bytes(int device)
{
    Guard guard(memory().lock);
    return sum(memory().used, device);
}

extern "C" size_t cudaemu_peak_bytes(int device)
{
    Guard guard(memory().lock);
    return sum(memory().peak, device);
}
