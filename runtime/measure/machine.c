/* Machine: what the system says of it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "runtime/measure/measure.h"

static const char *cpu_name(Arena *a)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256], name[200] = "processor of unknown name";
    while (f && fgets(line, sizeof line, f) && sscanf(line, "model name : %199[^\n]", name) != 1)
        ;
    if (f)
        fclose(f);
    return arena_strdup(a, name);
}

/* The number in a file of one; INT64_MAX: there is none, so no limit. */
static int64_t number_in(const char *path)
{
    FILE *f = fopen(path, "r");
    long long n = INT64_MAX;
    if (f && fscanf(f, "%lld", &n) != 1)
        n = INT64_MAX;
    if (f)
        fclose(f);
    return n;
}

static int64_t last_cache(void)
{
    int64_t shared = number_in("/sys/devices/system/cpu/cpu0/cache/index3/size");       /* "32768K" */
    long third = sysconf(_SC_LEVEL3_CACHE_SIZE), second = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (shared < INT64_MAX >> 10)
        return shared << 10;
    return third > 0 ? third : second > 0 ? second : 0;
}

/* The second; where the system does not say, what most have. */
static int64_t own_cache(void)
{
    long second = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return second > 0 ? second : 1 << 20;
}

/* What the system could hand out without swapping, and what a container may still have. */
static int64_t free_memory(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[256];
    long long kib = 0;
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %lld kB", &kib) != 1)
        ;
    if (f)
        fclose(f);
    int64_t bytes = kib > 0 ? kib * 1024 : (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    int64_t most = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
    return most < INT64_MAX && used < most && most - used < bytes ? most - used : bytes;
}

Status machine_read(Arena *a, const Executor *e, Machine *m)
{
    DeviceFacts f;
    *m = (Machine){.executor = e, .name = cpu_name(a), .cores = team_cores(), .memory = free_memory(), .cache = last_cache(), .own_cache = own_cache(), .isa = isa_best()};
    if (!e->devices)
        return OK;
    TRY(e->devices(a, &f));
    m->name = f.name;
    m->devices = f.count;
    m->host_memory = m->memory;
    m->memory = f.free;
    m->cache = f.cache;
    m->device_memory = f.memory;
    return OK;
}

int64_t machine_reserve(const Machine *m)
{
    return m->devices > 0 ? m->device_memory - m->memory + m->device_memory / DEVICE_SLACK : 0;
}
