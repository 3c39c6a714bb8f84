/* Map: one anonymous mapping for everything a rank owns.
 *
 * Huge pages are asked for because first touch of small pages costs far more than
 * of large ones, and whether they were granted is read back, never assumed. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/runtime.h"

enum { HUGE_PAGE = 2 << 20 };

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* The mapping's own size: whole pages, whole huge pages once it is that large. */
static int64_t mapped_bytes(int64_t bytes)
{
    return round_up(bytes > 0 ? bytes : 1, bytes >= HUGE_PAGE ? HUGE_PAGE : sysconf(_SC_PAGESIZE));
}

/* Bytes of the mapping at `base` that the kernel reports in huge pages. */
static int64_t huge_bytes(const char *base)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f)
        return 0;
    char line[512];
    unsigned long from, to;
    long kib = 0;
    bool mine = false;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            mine = (unsigned long)base >= from && (unsigned long)base < to;
        else if (mine && sscanf(line, "AnonHugePages: %ld kB", &kib) == 1)
            break;
    }
    fclose(f);
    return (int64_t)kib * 1024;
}

Status map_open(Map *m, int64_t bytes)
{
    *m = (Map){.bytes = bytes};
    int64_t size = mapped_bytes(bytes);
    void *p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "error: cannot map %lld bytes of memory: %s\n", (long long)size, strerror(errno));
        return ERR_NOMEM;
    }
    m->base = p;
    if (size >= HUGE_PAGE)
        (void)madvise(p, (size_t)size, MADV_HUGEPAGE);
    memset(p, 0, (size_t)size);
    int64_t huge = size >= HUGE_PAGE ? huge_bytes(m->base) : 0;
    m->huge = huge < bytes ? huge : bytes;           /* the rounding of the last page is not the ledger's */
    return OK;
}

void map_close(Map *m)
{
    if (m->base)
        munmap(m->base, (size_t)mapped_bytes(m->bytes));
    *m = (Map){0};
}
