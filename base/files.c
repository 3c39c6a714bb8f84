/* Files: see files.h. */
#include "base/files.h"

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


static Status complain(const char *what, const char *path, int reason)
{
    fprintf(stderr, "error: cannot %s '%s': %s\n", what, path, strerror(reason));
    return ERR_IO;
}

/* ---- reading ---- */

Status file_unopened(const char *what, const char *path, int reason)
{
    Arena *a = arena_new("hint");
    fprintf(stderr, "error: cannot %s '%s': %s%s\n", what, path, strerror(reason), reason == ENOENT ? file_hint(a, path, NULL, 0) : "");
    arena_free(a);
    return status_unopened(reason);
}

Status file_map(const char *path, const void **map, size_t *bytes)
{
    struct stat st;
    *map = NULL;
    *bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return file_unopened("open", path, errno);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        int reason = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        close(fd);
        return file_unopened("read", path, reason);
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

/* ---- names ---- */

const char *file_join(Arena *a, const char *folder, const char *path)
{
    size_t n = strlen(folder);
    return arena_printf(a, "%s%s%s", folder, n && folder[n - 1] != '/' ? "/" : "", path);
}

/* What is there is resolved by the system; a link to what is not is followed; else
 * the folder is resolved, and the name stands in it. */
static const char *follow(Arena *a, const char *path, int left)
{
    char to[PATH_MAX];
    if (realpath(path, to))
        return arena_strdup(a, to);
    ssize_t n = readlink(path, to, sizeof to - 1);
    const char *folder = dirname(arena_strdup(a, path)), *name = basename(arena_strdup(a, path));
    if (left == 0 || strcmp(folder, path) == 0)
        return path;
    if (n > 0) {
        to[n] = 0;
        return follow(a, to[0] == '/' ? arena_strdup(a, to) : arena_printf(a, "%s/%s", folder, to), left - 1);
    }
    folder = follow(a, folder, left - 1);
    return strcmp(name, ".") == 0 ? folder : arena_printf(a, "%s/%s", folder, name);
}

const char *file_target(Arena *a, const char *path)
{
    enum { DEPTH = 64 };                             /* of links and of folders that are not there */
    return follow(a, path, DEPTH);
}

bool file_same(const char *x, const char *y)
{
    struct stat a, b;
    return stat(x, &a) == 0 && stat(y, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
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

/* A name in the target's folder that nothing has: a file of the user's is never
 * opened, whatever it is called. */
static void create_temporary(Arena *a, Writer *w)
{
    enum { TRIES = 1000, NAME = 200 };               /* bytes of the target's name: the whole must fit 255 */
    const char *name = basename(arena_strdup(a, w->target));
    w->fd = -1;
    errno = EEXIST;
    for (int k = 0; k < TRIES && w->fd < 0 && errno == EEXIST; k++) {
        w->temporary = arena_printf(a, "%s/.%.*s.%ld.%d.tmp", w->folder, NAME, name, (long)getpid(), k);
        w->fd = open(w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
}

bool writer_left(const char *entry, const char *of)
{
    size_t n = strlen(of);
    if (entry[0] != '.' || strncmp(entry + 1, of, n) != 0 || entry[1 + n] != '.')
        return false;
    const char *number = entry + 1 + n;
    return strcmp(number + strspn(number, ".0123456789"), "tmp") == 0;
}

Status writer_open(Arena *a, Writer *w, const char *path)
{
    bool standard = strcmp(path, "-") == 0;
    *w = (Writer){.shown = standard ? "standard output" : path, .target = path, .in_place = standard || is_special(path)};
    if (standard) {
        fflush(stdout);
        w->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    } else if (w->in_place) {
        w->fd = open(path, O_WRONLY | O_CLOEXEC);
    } else {
        struct stat st;
        if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
            w->target = file_target(a, path);
        w->folder = dirname(arena_strdup(a, w->target));
        create_temporary(a, w);
    }
    return w->fd < 0 ? complain("create", w->shown, errno) : OK;
}

Status writer_join(Writer *w, const char *path, const char *temporary)
{
    *w = (Writer){.shown = path, .temporary = temporary, .in_place = true, .fd = open(temporary, O_RDWR | O_CLOEXEC)};
    return w->fd < 0 ? complain("open", temporary, errno) : OK;
}

static const off_t NO_PLACE = -1;

/* Write all, at a place or where the file is at. */
static void put(Writer *w, const char *p, size_t bytes, off_t at)
{
    w->bytes += bytes;
    while (bytes && !w->error) {
        ssize_t n = at == NO_PLACE ? write(w->fd, p, bytes) : pwrite(w->fd, p, bytes, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            note_failure(w, "write");
            return;
        }
        p += n;
        bytes -= (size_t)n;
        at += at == NO_PLACE ? 0 : n;
    }
}

void writer_put(Writer *w, const void *data, size_t bytes)
{
    put(w, data, bytes, NO_PLACE);
}

void writer_put_at(Writer *w, const void *data, size_t bytes, uint64_t at)
{
    put(w, data, bytes, (off_t)at);
}

void writer_get(Writer *w, void *data, size_t bytes, uint64_t at)
{
    for (char *p = data; bytes && !w->error;) {
        errno = 0;
        ssize_t n = pread(w->fd, p, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            note_failure(w, "read back");
            return;
        }
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
}

void writer_sync(Writer *w)
{
    if (!w->error && fdatasync(w->fd) != 0)
        note_failure(w, "sync");
}

Status writer_status(const Writer *w)
{
    if (!w->error)
        return OK;
    fprintf(stderr, "error: cannot %s '%s' (%llu bytes): %s\n", w->failed, w->shown, (unsigned long long)w->bytes, strerror(w->error));
    return ERR_IO;
}

void writer_discard(Writer *w)
{
    close(w->fd);
    if (!w->in_place)
        unlink(w->temporary);
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
    if (!w->error && !w->in_place && fsync(w->fd) != 0)
        note_failure(w, "sync");
    if (close(w->fd) != 0)
        note_failure(w, "close");
    if (!w->error && !w->in_place && rename(w->temporary, w->target) != 0)
        note_failure(w, "rename");
    if (w->error) {
        if (!w->in_place)
            unlink(w->temporary);
        return writer_status(w);
    }
    return w->in_place ? OK : folder_sync(w->folder);
}

Status folder_writable(Arena *a, const char *path)
{
    struct stat st;
    const char *target = file_target(a, path);
    bool there = stat(target, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        return complain("write", path, EISDIR);
    if (there && !S_ISREG(st.st_mode))               /* a pipe or a device is written where it is */
        return access(target, W_OK) == 0 ? OK : complain("write", path, errno);
    const char *folder = dirname(arena_strdup(a, target));
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
