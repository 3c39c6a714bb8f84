/* Memory: the heap beside the map, kept in one piece and reported. */
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>

#include "base/text.h"
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
}

/* A sanitizer has a heap of its own, which mallinfo2() does not see: nothing is said of it. */
static const char *heap_text(Arena *a)
{
    struct mallinfo2 heap = mallinfo2();
    size_t most = heap.arena + heap.hblkhd;
    return most ? arena_printf(a, "heap at most %s", text_bytes(a, (int64_t)most)) : "heap not known under a sanitizer,";
}

void memory_report(const Rank *r)
{
    Arena *a = r->arena;
    fprintf(stderr, "memory: map %s (%s in huge pages), %s of the reserve of %s\n", text_bytes(a, r->map.bytes),
            text_bytes(a, r->map.huge), heap_text(a), text_bytes(a, r->program->reserve));
}
