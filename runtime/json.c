/* JSON: the memory of the library. */
#include "runtime/json.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"

/* Bytes that this thread, as it writes, could not have; the library's functions take no
 * context in which to keep it. */
static _Thread_local size_t lacking;

static void *alloc_or_note(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        lacking = bytes;
    return p;
}

void json_begin_reading(void)
{
    json_set_alloc_funcs(heap_alloc, free);
}

void json_begin_writing(void)
{
    lacking = 0;
    json_set_alloc_funcs(alloc_or_note, free);
}

Status json_written(const char *what)
{
    if (lacking == 0)
        return OK;
    fprintf(stderr, "error: out of memory: cannot have %zu bytes for %s\n", lacking, what);
    return ERR_NOMEM;
}
