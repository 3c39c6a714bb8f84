/* launch.cpp -- kernel launches: what is refused, the blocks of a grid, their order, and times by kernel. */
#include "device.h"
#include "stream.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace cudaemu {

/* ---- a grid ---- */

static std::vector<unsigned> block_order(unsigned n)
{
    Random random(place++);
    std::vector<unsigned> order(n);
    for (unsigned i = 0; i < n; i++)
        order[i] = i;
    for (unsigned i = n; settings().seed && i > 1; i--)
        std::swap(order[i - 1], order[random.below(i)]);
    return order;
}

static uint3 block_at(const Launch &l, unsigned i)
{
    return uint3{i % l.grid.x, i / l.grid.x % l.grid.y, i / (l.grid.x * l.grid.y)};
}

/* Blocks that the sanitizer takes for concurrent: an OS thread each, though they run by turns.  All are started before
 * the first one runs, as starting and joining a thread orders it. */
struct Turns {
    const Launch *launch;
    const unsigned *order;
    unsigned count;
    int device;
    uint64_t place;
    std::atomic<int> turn{0}, taken{0};
};

static void *block_thread(void *p)
{
    Turns *t = static_cast<Turns *>(p);
    int me = t->taken++;
    use_device(t->device);
    place = t->place + ((uint64_t)me << 16);
    memory_watch_thread();
    running = t->launch->name;
    for (int now; (now = t->turn.load()) != me;)
        futex(&t->turn, FUTEX_WAIT_PRIVATE, now);
    Runner *r = runner_new();
    run_block(r, *t->launch, block_at(*t->launch, t->order[me]));
    runner_delete(r);
    t->turn++;
    futex(&t->turn, FUTEX_WAKE_PRIVATE, INT_MAX);
    return nullptr;
}

static void run_blocks_apart(const Launch &launch, const unsigned *order, unsigned count)
{
    Turns t;
    t.launch = &launch;
    t.order = order;
    t.count = count;
    t.device = current_device();
    t.place = place++;
    std::vector<pthread_t> threads(count);
    for (pthread_t &thread : threads)
        if (pthread_create(&thread, nullptr, block_thread, &t))
            fatal("no thread for a block");
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
}

/* Stacks are many: there are as many runners as kernels at once.  To the sanitizer a stack is a thread's own. */
static Lock runners_lock;
static std::vector<Runner *> &idle_runners()
{
    static std::vector<Runner *> *list = new std::vector<Runner *>();
    return *list;
}

static Runner *take_runner()
{
    if (__tsan_acquire) {
        static thread_local std::unique_ptr<Runner, void (*)(Runner *)> mine(runner_new(), runner_delete);
        return mine.get();
    }
    Guard guard(runners_lock);
    if (idle_runners().empty())
        return runner_new();
    Runner *r = idle_runners().back();
    idle_runners().pop_back();
    return r;
}

static void give_runner(Runner *r)
{
    if (__tsan_acquire)
        return;
    Guard guard(runners_lock);
    idle_runners().push_back(r);
}

static void run_grid(const Launch &launch)
{
    unsigned blocks = launch.grid.x * launch.grid.y * launch.grid.z;
    std::vector<unsigned> order = block_order(blocks);
    if (settings().threads) {
        const unsigned AT_ONCE = 64;
        for (unsigned i = 0; i < blocks; i += AT_ONCE)
            run_blocks_apart(launch, &order[i], blocks - i < AT_ONCE ? blocks - i : AT_ONCE);
        return;
    }
    Runner *r = take_runner();
    for (unsigned i = 0; i < blocks; i++)
        run_block(r, launch, block_at(launch, order[i]));
    give_runner(r);
}

/* ---- launches ---- */

static Lock kernels_lock;
static std::map<const void *, size_t> &shared_limits()
{
    static std::map<const void *, size_t> *m = new std::map<const void *, size_t>();
    return *m;
}

struct Profile {
    unsigned long launches;
    double seconds, threads;
};
static std::map<std::string, Profile> &profiles()
{
    static std::map<std::string, Profile> *m = new std::map<std::string, Profile>();
    return *m;
}

static void print_profiles()
{
    for (auto &p : profiles())
        fprintf(stderr, "cudaemu: %8lu launches %10.3f ms %8.1f ns a thread  %s\n", p.second.launches, p.second.seconds * 1e3,
                p.second.seconds * 1e9 / p.second.threads, p.first.c_str());
}

static void run_launch(const Launch &l)
{
    double start = settings().profile ? now_seconds() : 0;
    run_grid(l);
    Hidden hidden;
    memory_check_ends(current_device());
    if (!settings().profile)
        return;
    Guard guard(kernels_lock);
    static const int registered = atexit(print_profiles);
    (void)registered;
    Profile &p = profiles()[l.name];
    p.launches++;
    p.seconds += now_seconds() - start;
    p.threads += (double)l.grid.x * l.grid.y * l.grid.z * l.block.x * l.block.y * l.block.z;
}

static bool is_launchable(const Launch &l, size_t limit)
{
    size_t threads = (size_t)l.block.x * l.block.y * l.block.z;
    return threads && threads <= 1024 && l.block.z <= 64 && l.grid.x && l.grid.x <= INT_MAX && l.grid.y && l.grid.y <= 65535 &&
           l.grid.z && l.grid.z <= 65535 && l.shared <= limit;
}

void launch_grid(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                 std::function<void()> body)
{
    Hidden hidden;
    if (enter("cudaLaunchKernel"))
        return;
    stream = resolve(stream, name);
    if (!stream || stream->device != current_device()) {
        fail(cudaErrorInvalidResourceHandle);
        return;
    }
    size_t limit = SHARED_PER_BLOCK - STATIC_SHARED;
    {
        Guard guard(kernels_lock);
        auto it = shared_limits().find(kernel);
        if (it != shared_limits().end() && it->second > limit)
            limit = it->second;
    }
    std::shared_ptr<Launch> l(new Launch{name, grid, block, shared, std::move(body)});
    if (!is_launchable(*l, limit)) {
        fail(shared > limit ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration);
        return;
    }
    enqueue(stream, Operation{[l]() { run_launch(*l); }, name, "kernel", {}, false});
}

} /* namespace cudaemu */

using namespace cudaemu;

extern "C" cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what, int value)
{
    CUDAEMU_ENTER("cudaFuncSetAttribute");
    if (what == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > SHARED_OPTIN - STATIC_SHARED)
            return fail(cudaErrorInvalidValue);
        Guard guard(kernels_lock);
        shared_limits()[kernel] = (size_t)value;
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *kernel)
{
    CUDAEMU_ENTER("cudaFuncGetAttributes");
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    Guard guard(kernels_lock);
    auto it = shared_limits().find(kernel);
    a->maxDynamicSharedSizeBytes = it == shared_limits().end() ? SHARED_PER_BLOCK - STATIC_SHARED : (int)it->second;
    return cudaSuccess;
}

extern "C" cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads, size_t shared)
{
    CUDAEMU_ENTER("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    if (threads < 1 || threads > 1024)
        return fail(cudaErrorInvalidValue);
    int by_shared = shared ? (int)(SHARED_PER_SM / shared) : 32;
    *blocks = 2048 / threads < by_shared ? 2048 / threads : by_shared;
    if (*blocks > 32)
        *blocks = 32;
    return cudaSuccess;
}
