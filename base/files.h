#ifndef BASE_FILES_H
#define BASE_FILES_H
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

/* A file being written beside its final name, under a name that no other file has;
 * behind a link, beside the link's target.  What is no regular file (a device, a
 * pipe, standard output for '-') is written in place.  writer_close() makes it durable
 * (fsync, rename, fsync of the folder) or removes it; after a failed put the
 * rest are ignored and close reports the first failure. */
typedef struct Writer {
    const char *shown;                /* the path as given, or what it stands for */
    const char *target, *temporary, *folder;
    int         fd, error;            /* error: errno of the first failure */
    bool        in_place;             /* never replaced */
    const char *failed;               /* the call that failed */
    uint64_t    bytes;                /* put so far */
} Writer;
Status writer_open(Arena *, Writer *, const char *path);
void   writer_put(Writer *, const void *, size_t bytes);
/* At a place of a file that is no device or pipe; and back from there. */
void   writer_put_at(Writer *, const void *, size_t bytes, uint64_t at);
void   writer_get(Writer *, void *, size_t bytes, uint64_t at);
void   writer_sync(Writer *);         /* make durable what was put so far */
/* Put into another Writer's file, known by its `temporary`: who joined only closes it. */
Status writer_join(Writer *, const char *path, const char *temporary);
Status writer_status(const Writer *); /* reports the first failure */
Status writer_close(Writer *);
void   writer_discard(Writer *);      /* instead of closing: nothing is left of the file */
/* Whether a folder's entry is what a Writer of the file `of` left when it was killed. */
bool   writer_left(const char *entry, const char *of);

/* The whole path a file has or will have: links are followed, even to what is not
 * there yet, so two names of one place give the same text. */
const char *file_target(Arena *, const char *path);
/* Whether two paths lead to one file or folder that exists. */
bool   file_same(const char *, const char *);

/* For a path to what is not there, the nearest one to what is: with one of its names misspelt, but
 * for its ending, or with another ending.  A relative one is meant below one of some folders ("": this
 * one, as without any), and the result stands below that too.  NULL: none. */
const char *file_near(Arena *, const char *path, const char *const *dir, uint32_t ndir);
/* The same as the end of a message: "; did you mean 'PATH'?", or "". */
const char *file_hint(Arena *, const char *path, const char *const *dir, uint32_t ndir);

/* Say that a file cannot be opened or read, for a reason (errno), and which may be meant. */
Status file_unopened(const char *what, const char *path, int reason);

/* "FOLDER/PATH"; "" is this folder, before which nothing stands. */
const char *file_join(Arena *, const char *folder, const char *path);

/* Make a folder and its parents durable entries; existing ones are fine. */
Status folder_make(Arena *, const char *path);
Status folder_sync(const char *path);
/* Whether a file of this path could be made: asked before work whose result goes there. */
Status folder_writable(Arena *a, const char *path);

#endif
