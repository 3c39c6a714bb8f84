/* Preloaded by tests: the n-th of the calls that change files fails or kills the
 * process.
 *
 *   FAULT_AT=n      which call; 0 or unset: none, but count them
 *   FAULT_HOW=kill  SIGKILL before the call; else the call fails with ENOSPC
 *   FAULT_SKIP=m    checkpoints to let pass: counting starts with the folder made after
 *                   `latest` was renamed m times
 *   FAULT_RANK=r    of many processes, only rank r's, from the first byte it puts at a place of a file
 *   FAULT_COUNT=F   write the number of calls counted to file F at exit */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long calls, markers;
static int counting, other;           /* other: another process is meant */

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

/* A launcher tells its ranks who they are before they run. */
__attribute__((constructor)) static void find_rank(void)
{
    const char *me = getenv("PRUN_RANK");
    other = getenv("FAULT_RANK") && (!me || atol(me) != number("FAULT_RANK"));
}

/* Whether this call is to fail. */
static int fault(void)
{
    if (other || !counting || ++calls != number("FAULT_AT"))
        return 0;
    const char *how = getenv("FAULT_HOW");
    if (how && strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    errno = ENOSPC;
    return 1;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#define REAL(type, name, params)                \
    type (*real) params;                        \
    void *symbol = next(#name);                 \
    memcpy(&real, &symbol, sizeof real)

#define WRAP(type, name, params, args)          \
    type name params                            \
    {                                           \
        REAL(type, name, params);               \
        return fault() ? -1 : real args;        \
    }

WRAP(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n))
WRAP(int, fdatasync, (int fd), (fd))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, close, (int fd), (fd))
WRAP(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags))

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    REAL(ssize_t, pwrite, (int, const void *, size_t, off_t));
    counting = counting || getenv("FAULT_RANK");
    return fault() ? -1 : real(fd, data, n, at);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, mkdir, (const char *, mode_t));
    counting = counting || (!getenv("FAULT_RANK") && markers >= number("FAULT_SKIP"));
    return fault() ? -1 : real(path, mode);
}

/* Removing what is not there changes nothing. */
#define WRAP_REMOVE(name)                                               \
    int name(const char *path)                                          \
    {                                                                   \
        REAL(int, name, (const char *));                                \
        return access(path, F_OK) == 0 && fault() ? -1 : real(path);    \
    }

WRAP_REMOVE(unlink)
WRAP_REMOVE(rmdir)

int rename(const char *from, const char *to)
{
    REAL(int, rename, (const char *, const char *));
    if (fault())
        return -1;
    size_t n = strlen(to);
    int bad = real(from, to);
    markers += !bad && n > 7 && strcmp(to + n - 7, "/latest") == 0;
    return bad;
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAULT_COUNT");
    FILE *f = path && !other ? fopen(path, "w") : NULL;
    if (!f)
        return;
    fprintf(f, "%ld\n", calls);
    fclose(f);
}
