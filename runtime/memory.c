/* Memory: the heap beside the map, kept in one piece and reported. */
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "runtime/executor.h"
#include "runtime/run.h"

/* Untouched room at the heap's end: short-lived buffers of libraries find it there
 * instead of asking the system for more in the middle of a run. */
enum { HEAP_ROOM = 4 << 20 };

void memory_settle(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, HEAP_ROOM);
    mallopt(M_MXFAST, 0);
}

/* What glibc keeps apart by thread: blocks of up to LARGEST usable bytes, KEPT of a size. */
enum { SMALLEST = 24, LARGEST = 1032, GRAIN = 16, KEPT = 7, SIZES = (LARGEST - SMALLEST) / GRAIN + 1 };

static void fill_cache(void *ctx, int worker, int nworker)
{
    void *volatile block[SIZES][KEPT];               /* volatile, or compilers leave out what is freed unused */
    (void)ctx, (void)worker, (void)nworker;
    for (size_t i = 0; i < SIZES; i++)
        for (size_t k = 0; k < KEPT; k++)
            block[i][k] = malloc(SMALLEST + i * GRAIN);
    for (size_t i = 0; i < SIZES; i++)
        for (size_t k = 0; k < KEPT; k++)
            free(block[i][k]);
}

/* glibc before 2.38 makes an aligned block out of a larger one and frees both ends.  A
 * small end goes to the thread's cache, where it does not merge with the block when that
 * is freed: the hole is too short for the next block of the same size, and the heap grows
 * by one block after the other.  A full cache takes no ends. */
void memory_fill_caches(Team *team)
{
    team_run(team, fill_cache, NULL);
}

/* Under a sanitizer nobody has asked glibc's own heap for memory, and the first call of
 * mallinfo2() makes it, without a lock: ranks that are threads would find it half made. */
static void wake_heap(void) { (void)mallinfo2(); }

static struct mallinfo2 heap_facts(void)
{
    static pthread_once_t woken = PTHREAD_ONCE_INIT;
    pthread_once(&woken, wake_heap);
    return mallinfo2();
}

/* While libraries were warmed, their buffers of two threads may have been alive one after
 * the other; at some step they are at once.  What is free now was needed then, or is
 * room: as much again, in one piece. */
void memory_leave_room(void)
{
    void *volatile room = malloc(heap_facts().fordblks);
    free(room);
}

/* A sanitizer has a heap of its own, which glibc does not see: nothing is said of it. */
static const char *heap_text(Arena *a)
{
    struct mallinfo2 heap = heap_facts();
    size_t most = heap.arena + heap.hblkhd;
    return most ? arena_printf(a, "heap at most %s", text_bytes(a, (int64_t)most)) : "heap not known under a sanitizer,";
}

int64_t memory_pss(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long long kib = 0;
    while (f && fgets(line, sizeof line, f) && sscanf(line, "Pss: %lld kB", &kib) != 1)
        ;
    if (f)
        fclose(f);
    return kib * 1024;
}

static void report_one(const Run *r)
{
    const Rank *k = &r->rank;
    Arena *a = r->arena;
    fprintf(stderr, "memory: %s, %s of the reserve of %s\n", k->executor->memory(a, k), heap_text(a), text_bytes(a, r->program->reserve));
}

static void report_many(const Run *r, const int64_t *sum)
{
    Arena *a = r->arena;
    enum { PRIVATE, SHARED, HUGE_, RESERVE, PSS };
    fprintf(stderr, "memory: %u ranks: maps %s bytes (%s private, %s in huge pages; %s shared) and a reserve of %s", r->program->nranks,
            text_count(a, sum[PRIVATE] + sum[SHARED]), text_bytes(a, sum[PRIVATE]), text_bytes(a, sum[HUGE_]), text_bytes(a, sum[SHARED]),
            text_bytes(a, sum[RESERVE]));
    if (sum[PSS] > 0)
        fprintf(stderr, "; processes grew by %s in all", text_bytes(a, sum[PSS]));
    fputc('\n', stderr);
}

/* Threads of one process share its pages, which are then nobody's. */
Status memory_report(const Run *r)
{
    const Program *p = r->program;
    if (!r->peers->world) {
        report_one(r);
        return OK;
    }
    int64_t grown = r->peers->pss > 0 ? memory_pss() - r->peers->pss : 0;
    int64_t sum[] = {r->rank.map.bytes, p->map_bytes[PART_SHARED], r->rank.map.huge, p->reserve, grown};
    TRY(rank_agree(&r->rank, sum, sizeof sum / sizeof *sum, REDUCE_SUM));
    if (r->speaks)
        report_many(r, sum);
    return OK;
}
