/* Preloaded by tests: calls that change files fail, or end, stop or delay the process, or
 * end the one that started it.
 *
 *   FAULT_AT=n      the n-th of these calls; 0 or unset: none, but count them
 *   FAULT_HOW=HOW   what becomes of it: it fails with ENOSPC; or before it, kill: SIGKILL to
 *                   the process, stop: SIGSTOP, exit: it ends with status 0, parent: SIGKILL to its parent,
 *                   pause: it waits until somebody removes the file FAULT_SAID
 *   FAULT_SKIP=m    checkpoints to let pass: counting starts with the folder made after
 *                   `latest` was renamed m times
 *   FAULT_RANK=r    of many processes, only rank r's, from the first byte it puts at a place of
 *                   a file; each: all ranks, and each counts for itself
 *   FAULT_PATH=TEXT of the calls, only those for files whose path has TEXT in it
 *   FAULT_NOT=NAME  of the calls, only those of another name
 *   FAULT_FULL=TEXT instead of a call by its number: all writes to files whose path has TEXT
 *                   in it, as when there is no room but for the first FAULT_ROOM bytes
 *   FAULT_COUNT=F   write the number of calls counted to file F at exit; of each rank, to F.r
 *   FAULT_SAID=F    write which call was hit, and the file it was for, to F */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static long calls, markers, room;
static int counting, other, rank;     /* other: another process is meant */

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

/* A launcher tells its ranks who they are before they run. */
__attribute__((constructor)) static void find_rank(void)
{
    const char *me = getenv("PRUN_RANK"), *meant = getenv("FAULT_RANK");
    rank = me ? atoi(me) : -1;
    other = meant && (rank < 0 || (strcmp(meant, "each") != 0 && rank != atoi(meant)));
    room = number("FAULT_ROOM");
}

/* ---- which file ---- */

static const char *path_of(int fd)
{
    static char path[PATH_MAX];
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return path;
}

/* Straight to the kernel: these calls are none of the program's. */
static void say(const char *call, const char *path)
{
    char line[PATH_MAX + 100];
    const char *to = getenv("FAULT_SAID");
    int fd = to ? (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    int n = snprintf(line, sizeof line, "call %ld, %s %s\n", calls, call, path);
    if (fd < 0)
        return;
    syscall(SYS_write, fd, line, n);
    syscall(SYS_close, fd);
}

/* ---- the n-th call ---- */

/* Whether this call is to fail. */
static int fault(const char *call, const char *path)
{
    const char *how = getenv("FAULT_HOW"), *wanted = getenv("FAULT_PATH"), *unwanted = getenv("FAULT_NOT");
    if (other || !counting || (wanted && !strstr(path, wanted)) || (unwanted && strcmp(call, unwanted) == 0))
        return 0;
    if (++calls != number("FAULT_AT"))
        return 0;
    say(call, path);
    if (how && strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (how && strcmp(how, "exit") == 0)
        _exit(0);
    if (how && strcmp(how, "parent") == 0)
        return kill(getppid(), SIGKILL);
    if (how && strcmp(how, "stop") == 0)
        return kill(getpid(), SIGSTOP);
    while (how && strcmp(how, "pause") == 0)
        if (usleep(10000) != 0 || access(getenv("FAULT_SAID"), F_OK) != 0)
            return 0;
    errno = ENOSPC;
    return 1;
}

/* How much of n bytes finds room in a file. */
static size_t room_for(int fd, size_t n)
{
    const char *full = other ? NULL : getenv("FAULT_FULL");
    if (!full || !strstr(path_of(fd), full))
        return n;
    n = (long)n < room ? n : (size_t)room;
    room -= (long)n;
    errno = ENOSPC;
    return n;
}

/* ---- the calls ---- */

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#define REAL(type, name, params)                \
    type (*real) params;                        \
    void *symbol = next(#name);                 \
    memcpy(&real, &symbol, sizeof real)

#define WRAP(type, name, params, args, path)    \
    type name params                            \
    {                                           \
        REAL(type, name, params);               \
        return fault(#name, path) ? -1 : real args; \
    }

WRAP(int, fdatasync, (int fd), (fd), path_of(fd))
WRAP(int, fsync, (int fd), (fd), path_of(fd))
WRAP(int, close, (int fd), (fd), path_of(fd))
WRAP(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags), from)

ssize_t write(int fd, const void *data, size_t n)
{
    REAL(ssize_t, write, (int, const void *, size_t));
    if (fault("write", path_of(fd)))
        return -1;
    size_t fits = room_for(fd, n);
    return n > 0 && fits == 0 ? -1 : real(fd, data, fits);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    REAL(ssize_t, pwrite, (int, const void *, size_t, off_t));
    counting = counting || getenv("FAULT_RANK");
    if (fault("pwrite", path_of(fd)))
        return -1;
    size_t fits = room_for(fd, n);
    return n > 0 && fits == 0 ? -1 : real(fd, data, fits, at);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, mkdir, (const char *, mode_t));
    counting = counting || (!getenv("FAULT_RANK") && markers >= number("FAULT_SKIP"));
    return fault("mkdir", path) ? -1 : real(path, mode);
}

/* Removing what is not there changes nothing. */
#define WRAP_REMOVE(name)                                               \
    int name(const char *path)                                          \
    {                                                                   \
        REAL(int, name, (const char *));                                \
        return access(path, F_OK) == 0 && fault(#name, path) ? -1 : real(path); \
    }

WRAP_REMOVE(unlink)
WRAP_REMOVE(rmdir)

int rename(const char *from, const char *to)
{
    REAL(int, rename, (const char *, const char *));
    if (fault("rename", from))
        return -1;
    size_t n = strlen(to);
    int bad = real(from, to);
    markers += !bad && n > 7 && strcmp(to + n - 7, "/latest") == 0;
    return bad;
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAULT_COUNT"), *meant = getenv("FAULT_RANK");
    char of_rank[PATH_MAX];
    if (path && meant && strcmp(meant, "each") == 0) {
        snprintf(of_rank, sizeof of_rank, "%s.%d", path, rank);
        path = of_rank;
    }
    FILE *f = path && !other ? fopen(path, "w") : NULL;
    if (!f)
        return;
    fprintf(f, "%ld\n", calls);
    fclose(f);
}
