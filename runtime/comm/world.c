/* World: its files, its map, and the addresses in it. */
#include "runtime/comm/world.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

/* Changes with the layout of the control block. */
static const uint64_t magic = 0x70706c616e770001;

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* ---- layout ---- */

static int64_t progress_at(void)
{
    return round_up((int64_t)sizeof(Header), LINE);
}

static int64_t arrivals_at(const Header *h)
{
    return progress_at() + h->nrank * (int64_t)sizeof(Progress);
}

static int64_t channels_at(const Header *h)
{
    return arrivals_at(h) + (int64_t)h->ngroup * h->nrank * (int64_t)sizeof(Arrival);
}

static int64_t control_bytes(const Header *h)
{
    return channels_at(h) + (h->ngroup > 0 ? (int64_t)h->nrank * h->nrank * (int64_t)sizeof(Channel) : 0);
}

Progress *world_progress(const World *w, int rank)
{
    return (Progress *)((char *)w->header + progress_at()) + rank;
}

Arrival *world_arrival(const World *w, uint32_t group, int rank)
{
    const Header *h = w->header;
    assert(group < h->ngroup && "a group's id is below the number of groups");
    return (Arrival *)((char *)w->header + arrivals_at(h)) + (int64_t)group * h->nrank + rank;
}

Channel *world_channel(const World *w, int from, int to)
{
    const Header *h = w->header;
    return (Channel *)((char *)w->header + channels_at(h)) + (int64_t)from * h->nrank + to;
}

int world_nrank(const World *w)
{
    return w->header->nrank;
}

int world_near(const World *w)
{
    return w->header->near;
}

int world_machine(const World *w, int rank)
{
    return w->header->machine[rank];
}

void *world_part(const World *w, int rank)
{
    return w->shared + w->header->part[rank];
}

/* ---- files ---- */

/* A part that can fill a huge page begins at the start of one. */
static void lay_out(Header *h, const int64_t *part)
{
    int64_t page = sysconf(_SC_PAGESIZE), at = 0;
    for (int i = 0; i < h->nrank; i++) {
        int64_t unit = part[i] >= HUGE_PAGE ? HUGE_PAGE : page;
        h->part[i] = round_up(at, unit);
        h->part_bytes[i] = part[i];
        at = h->part[i] + round_up(part[i], unit);
    }
    h->shared_bytes = at > 0 ? at : page;
    h->control_bytes = control_bytes(h);
}

static Status make_file(const char *name, int64_t bytes, int *fd)
{
    *fd = memfd_create(name, MFD_ALLOW_SEALING);
    if (*fd >= 0 && ftruncate(*fd, bytes) == 0 && fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        return OK;
    fprintf(stderr, "error: cannot make %lld bytes of shared memory: %s\n", (long long)bytes, strerror(errno));
    return ERR_NOMEM;
}

static bool write_at(int fd, const void *from, size_t bytes, int64_t at)
{
    return pwrite(fd, from, bytes, at) == (ssize_t)bytes;
}

/* The control block before the first rank starts; all but this is zero. */
static Status write_control(int fd, const Header *h)
{
    const Progress none = {.instr = -1, .wait = {{.rank = -1}, {.rank = -1}}};
    bool good = write_at(fd, h, sizeof *h, 0);
    for (int i = 0; i < h->nrank && good; i++)
        good = write_at(fd, &none, sizeof none, progress_at() + i * (int64_t)sizeof none);
    if (good)
        return OK;
    fprintf(stderr, "error: cannot write shared memory: %s\n", strerror(errno));
    return ERR_NOMEM;
}

Status world_create(WorldFiles *f, int nrank, const int64_t *part, uint32_t ngroup)
{
    *f = (WorldFiles){-1, -1};
    if (nrank < 1 || nrank > WORLD_RANKS) {
        fprintf(stderr, "error: %d ranks, expected 1 to %d\n", nrank, WORLD_RANKS);
        return ERR_REJECT;
    }
    Header h = {.magic = magic, .nrank = nrank, .near = nrank, .cores = team_cores(), .ngroup = ngroup, .blamed = -1};
    lay_out(&h, part);
    Status s;
    TRY_OR(s, make_file("pplan control", h.control_bytes, &f->control), out);
    TRY_OR(s, make_file("pplan shared", h.shared_bytes, &f->shared), out);
    TRY_OR(s, write_control(f->control, &h), out);
    return OK;
out:
    world_discard(f);
    return s;
}

void world_discard(WorldFiles *f)
{
    if (f->control >= 0)
        close(f->control);
    if (f->shared >= 0)
        close(f->shared);
    *f = (WorldFiles){-1, -1};
}

/* ---- maps ---- */

static Status read_header(int fd, Header *h)
{
    struct stat st;
    if (pread(fd, h, sizeof *h, 0) == (ssize_t)sizeof *h && h->magic == magic && fstat(fd, &st) == 0 && st.st_size == h->control_bytes)
        return OK;
    fprintf(stderr, "error: file descriptor %d is not the control block of a world of this program\n", fd);
    return ERR_COMM;
}

static Status map_file(int fd, int64_t bytes, void **at)
{
    *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*at != MAP_FAILED)
        return OK;
    fprintf(stderr, "error: cannot map %lld bytes of shared memory: %s\n", (long long)bytes, strerror(errno));
    *at = NULL;
    return ERR_NOMEM;
}

/* Have pages of a part made, and entered into this process's tables.  Peers may be at work
 * in them already, so nothing is changed.  Small pages of a GiB take seconds, so each
 * huge page's worth counts as progress of `rank`, which others may wait for. */
static void touch(const World *w, int part, int rank)
{
    char *at = world_part(w, part);
    int64_t page = sysconf(_SC_PAGESIZE);
    for (int64_t i = 0; i < w->header->part_bytes[part]; i += page) {
        atomic_fetch_or_explicit((atomic_uchar *)(at + i), 0, memory_order_relaxed);
        if (i % HUGE_PAGE == 0)
            atomic_fetch_add_explicit(&world_progress(w, rank)->begun, 1, memory_order_relaxed);
    }
}

static void touch_parts(const World *w, int rank)
{
    const Header *h = w->header;
    for (int i = 0; i < h->nrank; i++)
        if (h->part_bytes[i] >= HUGE_PAGE)
            (void)madvise(world_part(w, i), (size_t)round_up(h->part_bytes[i], HUGE_PAGE), MADV_HUGEPAGE);
    for (int i = 0; i < h->nrank; i++)
        touch(w, (rank + i) % h->nrank, rank);
}

Status world_take_part(World *w, int rank, int64_t bytes)
{
    Header *h = w->header;
    h->part_bytes[rank] = bytes;
    h->shared_bytes = round_up(bytes > 0 ? bytes : 1, bytes >= HUGE_PAGE ? HUGE_PAGE : sysconf(_SC_PAGESIZE));
    void *at = mmap(NULL, (size_t)h->shared_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        fprintf(stderr, "error: cannot map %lld bytes of memory: %s\n", (long long)h->shared_bytes, strerror(errno));
        return ERR_NOMEM;
    }
    w->shared = at;
    touch_parts(w, rank);
    return OK;
}

Status world_map(Arena *a, const WorldFiles *f, int rank, World **out)
{
    Header h;
    TRY(read_header(f->control, &h));
    assert(rank < h.nrank);
    World *w = NEW(a, World);
    void *at;
    TRY(map_file(f->control, h.control_bytes, &at));
    w->header = at;
    if (rank >= 0) {
        Status s;
        TRY_OR(s, map_file(f->shared, h.shared_bytes, &at), out);
        w->shared = at;
        touch_parts(w, rank);
    }
    *out = w;
    return OK;
out:
    munmap(w->header, (size_t)h.control_bytes);
    return ERR_NOMEM;
}

void world_unmap(World *w)
{
    if (w->shared)
        munmap(w->shared, (size_t)w->header->shared_bytes);
    munmap(w->header, (size_t)w->header->control_bytes);
    *w = (World){0};
}
