/* Preloaded by tests: watches the memory of a run between its steps.
 *
 * Counts mmap, munmap, mremap and brk calls made through the libraries' tables, and
 * malloc, calloc and realloc calls made from the program itself; what the C library
 * does inside is seen by comparing /proc/self/maps and the break at every step.
 * The program says where it is by run_step_mark(steps done).  Counting goes from
 * the first mark of at least 1 to the last; MEMORY_REPORT names the file it goes to, with
 * .R behind it from a process that is rank R:
 *
 *   steps N, map_calls N, our_mallocs N, maps_changed N, pss_kib BEFORE AFTER
 *   our_maps BYTES TOUCHED                  that the program mapped to write to, without control blocks;
 *                                           of them, those of pages that were there at the first mark
 *   peak_kib N                              the most that was resident, from the start to the end
 *   changed WAS | IS                        the first mapping that changed, where one did */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <elf.h>
#include <unistd.h>

void run_step_mark(int64_t done);

static int counting;
static long map_calls, our_mallocs, maps_changed, last_step, pss_before, pss_after;
static long map_calls_at, our_mallocs_at;            /* at the last mark: what follows it is the run's end */
static uintptr_t from, to;                           /* the program's text and data */
static char report_to[4096];                         /* a file; "": none */
static char maps[1 << 20], maps_before[1 << 20];     /* at this mark and the one before */
static char was[256], is[256];                       /* the first mapping that changed */

/* ---- the program's own addresses ---- */

static void find_program(void)
{
    const Elf64_Phdr *h = (const Elf64_Phdr *)getauxval(AT_PHDR);
    unsigned long n = getauxval(AT_PHNUM);
    uintptr_t base = (uintptr_t)h - sizeof(Elf64_Ehdr);
    from = base;
    for (unsigned long i = 0; i < n; i++)
        if (h[i].p_type == PT_LOAD && base + h[i].p_vaddr + h[i].p_memsz > to)
            to = base + h[i].p_vaddr + h[i].p_memsz;
}

static int is_ours(const void *caller)
{
    return (uintptr_t)caller >= from && (uintptr_t)caller < to;
}

static void note_malloc(const void *caller)
{
    our_mallocs += counting && is_ours(caller);
}

/* ---- what the program mapped ---- */

enum { MAPS = 64, PAGE = 4096 };
static struct { char *at; size_t bytes; } our_map[MAPS];
static int nour_map;
static long our_bytes, touched = -1;                 /* -1: there was no mark */

/* Ranks that have nothing to say to each other leave holes in it. */
static int is_control(int fd)
{
    char link[40], name[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, sizeof name);
    return n > 0 && memmem(name, (size_t)n, "pplan control", 13);
}

static void note_map(void *at, size_t n, int prot, int fd, const void *caller)
{
    if (at == MAP_FAILED || !(prot & PROT_WRITE) || !is_ours(caller) || is_control(fd) || nour_map == MAPS)
        return;
    our_map[nour_map].at = at;
    our_map[nour_map++].bytes = n;
}

/* Bytes of n pages that are there; of an address that is mapped no more, none are. */
static long bytes_there(char *at, size_t n)
{
    static unsigned char page[1 << 16];
    long there = 0;
    for (size_t k = 0, m; k < n; k += m) {
        m = n - k < sizeof page ? n - k : sizeof page;
        if (syscall(SYS_mincore, at + k * PAGE, m * PAGE, page) != 0)
            return 0;
        for (size_t j = 0; j < m; j++)
            there += page[j] & 1 ? PAGE : 0;
    }
    return there;
}

static void count_touched(void)
{
    touched = 0;
    for (int i = 0; i < nour_map; i++) {
        our_bytes += (long)our_map[i].bytes;
        touched += bytes_there(our_map[i].at, (our_map[i].bytes + PAGE - 1) / PAGE);
    }
}

/* ---- wrapped calls ---- */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t n)
{
    note_malloc(__builtin_return_address(0));
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    note_malloc(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    note_malloc(__builtin_return_address(0));
    return __libc_realloc(p, n);
}

/* What jansson takes through a function of the program, to be told when there is none, is a library's: here it
 * takes it by itself. */
void json_set_alloc_funcs(void *(*take)(size_t), void (*give)(void *));
void json_set_alloc_funcs(void *(*take)(size_t), void (*give)(void *))
{
    (void)take;
    (void)give;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    map_calls += counting;
    at = (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
    note_map(at, n, prot, fd, __builtin_return_address(0));
    return at;
}

int munmap(void *at, size_t n)
{
    map_calls += counting;
    return (int)syscall(SYS_munmap, at, n);
}

int brk(void *at)
{
    map_calls += counting;
    return (uintptr_t)syscall(SYS_brk, at) == (uintptr_t)at ? 0 : -1;
}

/* ---- what the kernel says ---- */

/* All of a file of /proc, through a buffer that is already there. */
static size_t read_proc(const char *path, char *out, size_t room)
{
    size_t n = 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    for (ssize_t k; n < room && (k = syscall(SYS_read, fd, out + n, room - n)) > 0;)
        n += (size_t)k;
    syscall(SYS_close, fd);
    return n;
}

/* The next line, without the stack: it grows by itself.  NULL: there is none. */
static const char *next_mapping(const char **at, size_t *n)
{
    for (const char *line = *at, *end; (end = strchr(line, '\n')); line = end + 1) {
        *at = end + 1;
        *n = (size_t)(end - line);
        if (!memmem(line, *n, "[stack]", 7))
            return line;
    }
    return NULL;
}

/* Whether address ranges and rights are not what they were. */
static int maps_differ(void)
{
    const char *a = maps_before, *b = maps, *x, *y;
    size_t nx = 0, ny = 0;
    do {
        x = next_mapping(&a, &nx);
        y = next_mapping(&b, &ny);
    } while (x && y && nx == ny && memcmp(x, y, nx) == 0);
    if (!x && !y)
        return 0;
    if (!*was && !*is) {
        snprintf(was, sizeof was, "%.*s", x ? (int)nx : 0, x ? x : "");
        snprintf(is, sizeof is, "%.*s", y ? (int)ny : 0, y ? y : "");
    }
    return 1;
}

static void read_maps(void)
{
    memcpy(maps_before, maps, strlen(maps) + 1);
    maps[read_proc("/proc/self/maps", maps, sizeof maps - 1)] = 0;
}

/* A figure of a file below /proc: what follows "\nNAME:". */
static long proc_figure(const char *file, const char *name)
{
    static char text[4096];
    size_t n = read_proc(file, text, sizeof text - 1);
    text[n] = 0;
    char *at = strstr(text, name);
    return at ? atol(at + strlen(name)) : -1;
}

static long pss_kib(void)
{
    return proc_figure("/proc/self/smaps_rollup", "\nPss:");
}

/* ---- the run ---- */

/* A launcher tells its ranks who they are before they run. */
__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MEMORY_REPORT"), *rank = getenv("PRUN_RANK");
    if (path)
        snprintf(report_to, sizeof report_to, rank ? "%s.%d" : "%s", path, rank ? atoi(rank) : 0);
    find_program();
    pss_before = pss_kib();
}

void run_step_mark(int64_t done)
{
    counting = 0;
    pss_after = pss_kib();
    if (touched < 0)
        count_touched();
    read_maps();
    if (done > 1)
        maps_changed += maps_differ();
    last_step = done;
    map_calls_at = map_calls;
    our_mallocs_at = our_mallocs;
    counting = done >= 1;
}

__attribute__((destructor)) static void report(void)
{
    counting = 0;
    FILE *f = *report_to ? fopen(report_to, "w") : NULL;
    if (!f)
        return;
    fprintf(f, "steps %ld\nmap_calls %ld\nour_mallocs %ld\nmaps_changed %ld\npss_kib %ld %ld\nour_maps %ld %ld\n", last_step, map_calls_at,
            our_mallocs_at, maps_changed, pss_before, pss_after, our_bytes, touched);
    fprintf(f, "peak_kib %ld\n", proc_figure("/proc/self/status", "\nVmHWM:"));
    if (maps_changed > 0)
        fprintf(f, "changed %s | %s\n", was, is);
    fclose(f);
}
