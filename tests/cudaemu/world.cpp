/* world.cpp -- ranks find each other, wait for each other, and say what they were doing when that takes too long. */
#include "world.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cudaemu {

static size_t header_bytes() { return (sizeof(World) + 4095) & ~(size_t)4095; }
static size_t world_bytes(int size)
{
    return header_bytes() + (size_t)size * SLOT_BYTES + (size_t)size * (size_t)size * sizeof(Pipe);
}

char *world_slot(World *w, int rank) { return reinterpret_cast<char *>(w) + header_bytes() + (size_t)rank * SLOT_BYTES; }

Pipe *world_pipe(World *w, int from, int to)
{
    return reinterpret_cast<Pipe *>(world_slot(w, w->ranks.load())) + from * w->ranks.load() + to;
}

void world_doing(World *w, int rank, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->rank[rank].doing, sizeof w->rank[rank].doing, format, args);
    va_end(args);
}

/* ---- mapping ---- */

/* The file of who made it is open, and locked, until all have joined: it is known to live, in whichever namespace of processes. */
struct Map {
    World *world;
    int fd;
};
static Lock maps_lock;
static std::map<std::string, Map> &maps()
{
    static std::map<std::string, Map> *m = new std::map<std::string, Map>();
    return *m;
}

static World *map_file(int fd, int size)
{
    void *p = mmap(nullptr, world_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return p == MAP_FAILED ? nullptr : static_cast<World *>(p);
}

static Map create(const char *name, int size)
{
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd < 0)
        return {nullptr, -1};
    World *w = flock(fd, LOCK_EX) || ftruncate(fd, (off_t)world_bytes(size)) ? nullptr : map_file(fd, size);
    if (!w)
        fatal("no shared memory for a communicator of %d ranks", size);
    w->ranks = size;
    w->id = std::hash<std::string>()(name);
    w->ready = 1;
    return {w, fd};
}

/* The file of others; none as long as there is none, or one that a process left that is gone. */
static Map open_existing(const char *name, int size)
{
    int fd = shm_open(name, O_RDWR, 0600);
    if (fd < 0)
        return {nullptr, -1};
    struct stat st;
    World *w = fstat(fd, &st) || (size_t)st.st_size < world_bytes(size) ? nullptr : map_file(fd, size);
    bool other = !w && st.st_size > 0, lives = flock(fd, LOCK_SH | LOCK_NB) != 0;
    close(fd);
    if (other)
        fatal("ranks of one communicator disagree about its size: one says %d", size);
    bool whole = w && w->ready.load();
    if (whole && lives)
        return {w, -1};
    if (w)
        munmap(w, world_bytes(size));
    if (whole)
        shm_unlink(name);
    return {nullptr, -1};
}

static World *find(const char *name, int size)
{
    Guard guard(maps_lock);
    auto it = maps().find(name);
    if (it != maps().end())
        return it->second.world;
    Map m = create(name, size);
    if (!m.world)
        m = open_existing(name, size);
    if (m.world)
        maps()[name] = m;
    return m.world;
}

/* ---- waiting ---- */

static std::string what_ranks_do(World *w)
{
    std::string text;
    for (int r = 0; r < w->ranks.load(); r++)
        text += "\n    rank " + std::to_string(r) + ": " + (w->rank[r].joined.load() ? w->rank[r].doing : "has not joined");
    return text;
}

WaitEnd world_wait(World *w, int rank, const std::atomic<int> *given_up, const std::function<bool()> &ready)
{
    double start = now_seconds();
    for (int i = 0; !ready(); i++) {
        if (w->aborted.load() || (given_up && given_up->load()))
            return WAIT_ABORTED;
        if (i < 200) {
            sched_yield();
            continue;
        }
        usleep(i < 2000 ? 20 : 200);
        if (now_seconds() - start > settings().timeout) {
            fprintf(stderr, "cudaemu: rank %d of %d waits too long:%s\n", rank, w->ranks.load(), what_ranks_do(w).c_str());
            return WAIT_LATE;
        }
    }
    return WAIT_OK;
}

WaitEnd world_barrier(World *w, int rank, const std::atomic<int> *given_up)
{
    int generation = w->generation.load();
    if (w->arrived.fetch_add(1) + 1 == w->ranks.load()) {
        w->arrived = 0;
        w->generation++;
        futex(&w->generation, FUTEX_WAKE, INT_MAX);
        return WAIT_OK;
    }
    return world_wait(w, rank, given_up, [w, generation]() {
        if (w->generation.load() != generation)
            return true;
        timespec soon = {0, 1000000};
        futex(&w->generation, FUTEX_WAIT, generation, &soon);
        return w->generation.load() != generation;
    });
}

/* ---- joining ---- */

/* Files that not all ranks have mapped yet. */
static std::vector<std::string> &half_joined()
{
    static std::vector<std::string> *list = new std::vector<std::string>();
    return *list;
}

void world_forget_files()
{
    for (const std::string &name : half_joined())
        shm_unlink(name.c_str());
}

static void remember_file(const char *name, bool yes)
{
    Guard guard(maps_lock);
    std::vector<std::string> &list = half_joined();
    if (yes)
        list.push_back(name);
    for (size_t i = 0; i < list.size() && !yes; i++)
        if (list[i] == name) {
            list.erase(list.begin() + (long)i);
            return;
        }
}

/* Who comes later under this name means another communicator. */
static void forget_map(const char *name, const World *w)
{
    Guard guard(maps_lock);
    auto it = maps().find(name);
    if (it == maps().end() || it->second.world != w)
        return;
    if (it->second.fd >= 0)
        close(it->second.fd);
    maps().erase(it);
}

World *world_join(const char *name, int size, int rank, const std::atomic<int> *given_up)
{
    double start = now_seconds();
    World *w;
    while (!(w = find(name, size))) {
        usleep(200);
        if (now_seconds() - start > settings().timeout)
            return nullptr;
    }
    if (w->ranks.load() != size)
        fatal("ranks of one communicator disagree about its size: %d and %d", w->ranks.load(), size);
    if (w->rank[rank].joined.exchange(1))
        fatal("two ranks of one communicator are rank %d", rank);
    remember_file(name, true);
    world_doing(w, rank, "joins");
    if (w->joined.fetch_add(1) + 1 == size)
        shm_unlink(name);           /* all have it mapped */
    WaitEnd end = world_wait(w, rank, given_up, [w, size]() { return w->joined.load() >= size; });
    remember_file(name, false);
    if (end != WAIT_OK) {
        shm_unlink(name);
        return nullptr;
    }
    world_doing(w, rank, "has called nothing yet");
    forget_map(name, w);
    return w;
}

} /* namespace cudaemu */
