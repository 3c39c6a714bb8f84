/* Preloaded by tests: one call for memory, or for what ranks are started with, finds none.
 *
 *   SCARCE_AT=n     the n-th of these calls fails; 0 or unset: none, but count them
 *   SCARCE_LEFT=1   and all after it, as on a machine that has none left
 *   SCARCE_OF=KIND  which calls: heap (malloc and its like), map (mmap, memfd_create,
 *                   ftruncate, fork, pthread_create, pipe2), or library: all of these that
 *                   oneDNN and the C++ library make, which are not counted else
 *   SCARCE_RANK=r   of many processes, only rank r's; launcher: only the one that starts them
 *   SCARCE_COUNT=F  write the number of calls counted to file F at exit
 *   SCARCE_SAID=F   write which call was hit, and by which object and symbol, to F */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* The C library's own names: dlsym() itself asks for memory. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

typedef enum Kind { HEAP = 1, MAP = 2, LIBRARY = 4 } Kind;

static atomic_long calls;
static long at;
static unsigned kinds;                /* counted; 0: none, as before the constructor */
static bool left;
static const char *said;
static struct { uintptr_t start, end; } library[8];  /* where the code of these libraries lies */
static int nlibrary;

/* ---- who calls ---- */

static int note_library(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size, (void)ctx;
    if (!strstr(info->dlpi_name, "libdnnl") && !strstr(info->dlpi_name, "libstdc++") && !strstr(info->dlpi_name, "libgomp"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && nlibrary < 8; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
            continue;
        library[nlibrary].start = info->dlpi_addr + p->p_vaddr;
        library[nlibrary].end = library[nlibrary].start + p->p_memsz;
        nlibrary++;
    }
    return 0;
}

static bool is_library(void *from)
{
    for (int i = 0; i < nlibrary; i++)
        if ((uintptr_t)from >= library[i].start && (uintptr_t)from < library[i].end)
            return true;
    return false;
}

/* ---- which call ---- */

static bool is(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text && strcmp(text, value) == 0;
}

/* A launcher tells its ranks who they are before they run. */
__attribute__((constructor)) static void begin(void)
{
    const char *me = getenv("PRUN_RANK"), *meant = getenv("SCARCE_RANK"), *n = getenv("SCARCE_AT");
    at = n ? atol(n) : 0;
    left = getenv("SCARCE_LEFT") != NULL;
    said = getenv("SCARCE_SAID");
    if (meant && (is("SCARCE_RANK", "launcher") ? me != NULL : !me || atoi(me) != atoi(meant)))
        return;
    dl_iterate_phdr(note_library, NULL);
    kinds = is("SCARCE_OF", "heap") ? HEAP : is("SCARCE_OF", "map") ? MAP : is("SCARCE_OF", "library") ? LIBRARY : HEAP | MAP;
}

/* Straight to the kernel, and with nothing from the heap. */
static void say(const char *call, size_t size, void *from)
{
    char line[1000];
    Dl_info who = {0};
    int fd = (int)syscall(SYS_openat, AT_FDCWD, said, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        return;
    dladdr(from, &who);
    int n = snprintf(line, sizeof line, "call %ld: %s(%zu) by %s %s\n", at, call, size, who.dli_fname ? who.dli_fname : "?", who.dli_sname ? who.dli_sname : "?");
    syscall(SYS_write, fd, line, n);
    syscall(SYS_close, fd);
}

/* Whether this call is to fail. */
static bool scarce(Kind kind, const char *call, size_t size, void *from)
{
    if (kinds == 0 || !(kinds & (is_library(from) ? LIBRARY : kind)))
        return false;
    long n = atomic_fetch_add(&calls, 1) + 1;
    if (at == 0 || n < at || (n > at && !left))
        return false;
    if (n == at && said)
        say(call, size, from);
    errno = ENOMEM;
    return true;
}

#define CALLER __builtin_return_address(0)

/* ---- the heap ---- */

void *malloc(size_t size)
{
    return scarce(HEAP, "malloc", size, CALLER) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return scarce(HEAP, "calloc", n * size, CALLER) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    return scarce(HEAP, "realloc", size, CALLER) ? NULL : __libc_realloc(old, size);
}

void *memalign(size_t align, size_t size);
void *memalign(size_t align, size_t size)
{
    return scarce(HEAP, "memalign", size, CALLER) ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return scarce(HEAP, "aligned_alloc", size, CALLER) ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    if (scarce(HEAP, "posix_memalign", size, CALLER))
        return ENOMEM;
    *out = __libc_memalign(align, size);
    return *out ? 0 : ENOMEM;
}

/* ---- what is mapped, and what ranks are started with ---- */

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#define REAL(type, name, params)                \
    type (*real) params;                        \
    void *symbol = next(#name);                 \
    memcpy(&real, &symbol, sizeof real)

void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t from)
{
    if (scarce(MAP, "mmap", size, CALLER))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, where, size, protection, flags, fd, from);
}

void *mmap64(void *where, size_t size, int protection, int flags, int fd, off_t from)
{
    return mmap(where, size, protection, flags, fd, from);
}

int memfd_create(const char *name, unsigned flags)
{
    return scarce(MAP, "memfd_create", 0, CALLER) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

int ftruncate(int fd, off_t size)
{
    return scarce(MAP, "ftruncate", (size_t)size, CALLER) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

pid_t fork(void)
{
    REAL(pid_t, fork, (void));
    return scarce(MAP, "fork", 0, CALLER) ? -1 : real();
}

int pipe2(int end[2], int flags)
{
    return scarce(MAP, "pipe2", 0, CALLER) ? -1 : (int)syscall(SYS_pipe2, end, flags);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *ctx)
{
    REAL(int, pthread_create, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *));
    return scarce(MAP, "pthread_create", 0, CALLER) ? EAGAIN : real(thread, attr, run, ctx);
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("SCARCE_COUNT");
    char line[32];
    if (!path || kinds == 0)
        return;
    int n = snprintf(line, sizeof line, "%ld\n", (long)calls);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    syscall(SYS_write, fd, line, n);
    syscall(SYS_close, fd);
}
