#ifndef RUNTIME_FILES_H
#define RUNTIME_FILES_H
/* Files: mapping for reading, and durable replacement for writing.  Every failure
 * is printed with the path and the system's reason. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* Map a whole regular file read-only.  An empty file maps to NULL with size 0. */
Status file_map(const char *path, const void **map, size_t *bytes);
void   file_unmap(const void *map, size_t bytes);

/* A file being written beside its final name; behind a link, beside the link's target.
 * What is no regular file (a device, a pipe) is written in place.  writer_close() makes it durable
 * (fsync, rename, fsync of the folder) or removes it; after a failed put the
 * rest are ignored and close reports the first failure. */
typedef struct Writer {
    const char *path;                 /* as given, for messages */
    const char *target, *temporary, *folder;
    int         fd, error;            /* error: errno of the first failure */
    bool        in_place;             /* a device or pipe: never replaced */
    const char *failed;               /* the call that failed */
    uint64_t    hash, bytes;          /* running XXH3 of what was put, in a state of its own */
    void       *state;
} Writer;
Status writer_open(Arena *, Writer *, const char *path);
void   writer_put(Writer *, const void *, size_t bytes);
Status writer_close(Writer *);        /* then hash and bytes are final */

/* Make a folder and its parents durable entries; existing ones are fine. */
Status folder_make(Arena *, const char *path);
Status folder_sync(const char *path);
/* Whether a file of this path could be made: asked before work whose result goes there. */
Status folder_writable(Arena *a, const char *path);

#endif
