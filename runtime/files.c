/* Files: see files.h. */
#include "runtime/files.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static Status complain(const char *what, const char *path, int reason)
{
    fprintf(stderr, "error: cannot %s '%s': %s\n", what, path, strerror(reason));
    return ERR_IO;
}

/* ---- reading ---- */

static Status unreadable(const char *what, const char *path, int reason)
{
    complain(what, path, reason);
    return status_unopened(reason);
}

Status file_map(const char *path, const void **map, size_t *bytes)
{
    struct stat st;
    *map = NULL;
    *bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return unreadable("open", path, errno);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        int reason = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        close(fd);
        return unreadable("read", path, reason);
    }
    void *p = st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int reason = errno;
    close(fd);
    if (p == MAP_FAILED)
        return complain("map", path, reason);
    *map = p;
    *bytes = (size_t)st.st_size;
    return OK;
}

void file_unmap(const void *map, size_t bytes)
{
    if (map)
        munmap((void *)(uintptr_t)map, bytes);
}

/* ---- writing ---- */

static void note_failure(Writer *w, const char *call)
{
    if (!w->error) {
        w->error = errno ? errno : EIO;
        w->failed = call;
    }
}

static bool is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

/* The file a path stands for: a link's target is replaced, not the link. */
static const char *target_of(Arena *a, const char *path)
{
    char real[PATH_MAX];
    struct stat st;
    bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    return link && realpath(path, real) ? arena_strdup(a, real) : path;
}

Status writer_open(Arena *a, Writer *w, const char *path)
{
    *w = (Writer){.path = path, .target = path, .temporary = path, .in_place = is_special(path)};
    if (!w->in_place) {
        w->target = target_of(a, path);
        w->temporary = arena_printf(a, "%s.tmp", w->target);
    }
    w->folder = arena_strdup(a, dirname(arena_strdup(a, w->target)));
    w->fd = open(w->temporary, w->in_place ? O_WRONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return complain("create", w->temporary, errno);
    w->state = XXH3_createState();
    XXH3_64bits_reset(w->state);
    return OK;
}

void writer_put(Writer *w, const void *data, size_t bytes)
{
    XXH3_64bits_update(w->state, data, bytes);
    w->bytes += bytes;
    const char *p = data;
    while (bytes && !w->error) {
        ssize_t n = write(w->fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            note_failure(w, "write");
            return;
        }
        p += n;
        bytes -= (size_t)n;
    }
}

Status folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return complain("open", path, errno);
    int bad = fsync(fd), reason = errno;
    close(fd);
    return bad ? complain("sync", path, reason) : OK;
}

Status writer_close(Writer *w)
{
    w->hash = XXH3_64bits_digest(w->state);
    XXH3_freeState(w->state);
    w->state = NULL;
    if (!w->error && !w->in_place && fsync(w->fd) != 0)
        note_failure(w, "sync");
    if (close(w->fd) != 0)
        note_failure(w, "close");
    if (!w->error && !w->in_place && rename(w->temporary, w->target) != 0)
        note_failure(w, "rename");
    if (w->error) {
        if (!w->in_place)
            unlink(w->temporary);
        fprintf(stderr, "error: cannot %s '%s' (%llu bytes): %s\n", w->failed, w->path, (unsigned long long)w->bytes,
                strerror(w->error));
        return ERR_IO;
    }
    return w->in_place ? OK : folder_sync(w->folder);
}

Status folder_writable(Arena *a, const char *path)
{
    const char *folder = dirname(arena_strdup(a, path));
    return access(folder, W_OK | X_OK) == 0 ? OK : complain("write into", folder, errno);
}

/* A folder that was made is durable once its parent is. */
static Status make_one(Arena *a, const char *path)
{
    if (mkdir(path, 0777) == 0)
        return folder_sync(dirname(arena_strdup(a, path)));
    return errno == EEXIST ? OK : complain("make folder", path, errno);
}

Status folder_make(Arena *a, const char *path)
{
    char *p = arena_strdup(a, path);
    for (char *s = p; *s; s++)
        if (*s == '/' && s > p) {
            *s = 0;
            TRY(make_one(a, p));
            *s = '/';
        }
    TRY(make_one(a, p));
    struct stat st;
    if (stat(p, &st) != 0 || !S_ISDIR(st.st_mode))
        return complain("make folder", p, ENOTDIR);
    return OK;
}
