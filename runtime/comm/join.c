/* Join: a world of ranks that another program started. */
#include "runtime/comm/far.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

/* Where a rank is: a running kernel, the numbers its processes have there, the processors
 * that it may use, and its own number. */
typedef struct Where { int64_t kernel, numbers, processors, process; } Where;
enum { WHERE_WORDS = sizeof(Where) / sizeof(int64_t) };

/* ---- who is near ---- */

/* What a boot of this machine is known by; 0: by nothing. */
static int64_t kernel_now(void)
{
    char id[64] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    int64_t known = f && fgets(id, sizeof id, f) ? fnv1a(id) : 0;
    if (f)
        fclose(f);
    return known;
}

static Where where_am_i(void)
{
    struct stat st;
    cpu_set_t set;
    char text[CPU_SETSIZE + 1] = "";
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof set, &set);
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        text[i] = CPU_ISSET(i, &set) ? '1' : '0';
    return (Where){.kernel = kernel_now(), .numbers = stat("/proc/self/ns/pid", &st) == 0 ? (int64_t)st.st_ino : 0,
                   .processors = fnv1a(text), .process = getpid()};
}

/* A rank whose machine is not known is alone there. */
static int first_beside(const Where *of, int rank)
{
    int i = 0;
    while (i < rank && (of[i].kernel == 0 || of[i].kernel != of[rank].kernel))
        i++;
    return i;
}

static Status find_near(Arena *a, World *w, int rank, Endpoint *end)
{
    int n = world_nrank(w), *all = NEWN(a, int, n);
    Where mine = where_am_i(), *of = NEWN(a, Where, n);
    for (int i = 0; i < n; i++)
        all[i] = i;
    TRY(end->comm->all_gather(end->comm->group(end, a, 0, all, n), &mine, of, (int64_t)n * WHERE_WORDS, DT_i64));
    pulse_met(w->pulse);
    w->header->near = 0;
    for (int i = 0; i < n; i++)
        w->header->machine[i] = first_beside(of, i);
    for (int i = 0; i < n; i++) {
        bool here = mine.kernel != 0 && of[i].kernel == mine.kernel;
        w->header->near += i == rank || (here && of[i].processors == mine.processors);
        if (i != rank && here && of[i].numbers == mine.numbers)
            pulse_watch(w->pulse, i, (int)of[i].process);
    }
    return OK;
}

/* ---- joining and leaving ---- */

/* The control block is a world's without groups: nobody meets there. */
static Status make_world(Arena *a, int nrank, World **out)
{
    static const int64_t none[WORLD_RANKS];
    WorldFiles f;
    TRY(world_create(&f, nrank, none, 0));
    Status s = world_map(a, &f, -1, out);
    world_discard(&f);
    return s;
}

Status world_join(Arena *a, const Net *net, int rank, int nrank, World **out)
{
    TRY(make_world(a, nrank, out));
    TRY(pulse_open(a, net, *out, rank));
    Endpoint *end = far_open(a, *out, rank, NULL, isa_best());
    endpoint_timeout(end, HUGE_VAL);                 /* they may be started one after the other */
    Status s = find_near(a, *out, rank, end);
    end->comm->close(end);
    return s;
}

void world_pace(World *w, double seconds)
{
    pulse_pace(w->pulse, seconds);
}

/* The others may have something to say yet. */
static _Noreturn void end_all(World *w, int rank, Status s)
{
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    if ((world_aborted(w) == rank && s != OK) || !pulse_net(w->pulse)->ends_all)
        pulse_end(w->pulse, status_exit(s == OK ? ERR_COMM : s));
    for (;;)
        pause();
}

void world_leave(World *w, int rank, Status s)
{
    const Net *net = pulse_net(w->pulse);
    if (world_aborted(w) >= 0)
        end_all(w, rank, s);
    pulse_close(w->pulse);
    net->close();
    world_unmap(w);
}
