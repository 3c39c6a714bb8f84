/* Files that ranks write together, and read their parts of.
 *
 * The rank that reports makes the file under its temporary name and writes the header;
 * every rank writes its parts into it; when all have, the first syncs the file and
 * renames it.  After each of these the ranks agree on how it went, so a file is there for
 * all or for none, and whoever failed has said why. */
#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY       /* states that need no heap */
#include <xxhash.h>

#include "base/files.h"
#include "kernels/reals.h"
#include "runtime/ranks.h"
#include "runtime/stored.h"

enum { BLOCK = 64 << 10, SYNC = 32 << 20 };         /* bytes read back at a time; written between two syncs */

/* A file being written. */
typedef struct Together {
    Arena      *a;
    const Rank *rank;
    const char *path;
    bool        makes;                /* this rank makes it and gives it its name */
    Writer      out;                  /* its name, at the rank that makes it */
    Writer      file;                 /* where bytes go: out's file, or what stands in for a device or pipe */
    int64_t     at;                   /* where the data of a tensor begin */
    uint64_t    unsynced;
    bool        opened;               /* file is open */
} Together;

/* ---- opening ---- */

/* A pipe takes bytes in their order only, so the file is made in memory first. */
static Status stand_in(Together *t)
{
    int fd = memfd_create("prun dump", MFD_CLOEXEC);
    t->file = (Writer){.shown = t->out.shown, .fd = fd, .in_place = true,
                       .temporary = arena_printf(t->a, "/proc/%ld/fd/%d", (long)getpid(), fd)};
    if (fd >= 0)
        return OK;
    perror("error: cannot make a file in memory");
    return ERR_NOMEM;
}

static Status make(Together *t, SFileHead head)
{
    TRY(writer_open(t->a, &t->out, t->path));
    t->file = t->out;
    if (t->out.in_place) {
        Status s = stand_in(t);
        if (s != OK) {
            writer_discard(&t->out);
            return s;
        }
    }
    t->opened = true;
    writer_put(&t->file, head.data, head.bytes);
    return OK;
}

static Status join(Together *t, const char *name)
{
    TRY(writer_join(&t->file, t->path, arena_strdup(t->a, name)));
    t->opened = true;
    return OK;
}

/* The temporary name, from the rank that has it. */
static Status share_name(const Together *t, char name[PATH_MAX])
{
    const Rank *r = t->rank;
    memset(name, 0, PATH_MAX);
    if (t->makes)
        snprintf(name, PATH_MAX, "%s", t->file.temporary);
    for (int at = 0; r->end && at < PATH_MAX; at += COMM_SMALL)
        TRY(r->end->comm->broadcast(r->all, name + at, name + at, COMM_SMALL, DT_u8, r->reporter));
    return OK;
}

static Status open_file(Together *t, SFileHead head)
{
    char name[PATH_MAX];
    TRY(rank_outcome(t->rank, t->makes ? make(t, head) : OK));
    TRY(share_name(t, name));
    return rank_outcome(t->rank, t->makes ? OK : join(t, name));
}

/* ---- writing ---- */

/* Synced piece by piece: a call that takes long is no sign of life. */
static void write_bytes(void *ctx, char *data, int64_t at, int64_t bytes)
{
    Together *t = ctx;
    writer_put_at(&t->file, data, (size_t)bytes, (uint64_t)(t->at + at));
    t->unsynced += (uint64_t)bytes;
    if (t->unsynced < SYNC)
        return;
    writer_sync(&t->file);
    t->unsynced = 0;
}

static Status write_parts(Together *t, const StoredList *list, SFileHead head)
{
    t->at = (int64_t)head.bytes;
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->tensor[i].part.writes)
            TRY(stored_walk(t->rank, &list->tensor[i], STORED_READ, write_bytes, t));
        t->at += list->tensor[i].shape.bytes;
    }
    return OK;
}

/* All of the file again: its hash, and its bytes for the device or pipe it stands in for. */
static void read_back(Together *t, uint64_t *xxh3)
{
    char *block = arena_alloc(t->a, BLOCK);
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    for (int64_t at = 0; at < t->at && !t->file.error; at += BLOCK) {
        size_t n = t->at - at < BLOCK ? (size_t)(t->at - at) : BLOCK;
        exchange_begin(t->rank, -1);
        writer_get(&t->file, block, n, (uint64_t)at);
        XXH3_64bits_update(&hash, block, n);
        if (t->out.in_place)
            writer_put(&t->out, block, n);
    }
    *xxh3 = XXH3_64bits_digest(&hash);
}

/* ---- closing ---- */

/* What was written is complete: it gets its name. */
static Status finish(Together *t, SFileSum *sum)
{
    read_back(t, &sum->xxh3);
    sum->bytes = (uint64_t)t->at;
    t->opened = false;
    Status s = writer_close(&t->file), closed = t->out.in_place ? writer_close(&t->out) : OK;
    return s == OK ? closed : s;
}

/* This rank has written its parts; the one that made the file keeps it open. */
static Status finish_parts(Together *t)
{
    if (t->makes)
        return writer_status(&t->file);
    t->opened = false;
    return writer_close(&t->file);
}

static void discard(Together *t)
{
    if (t->opened)
        writer_discard(&t->file);
    if (t->opened && t->makes && t->out.in_place)
        writer_discard(&t->out);
}

static STensor *shapes(Arena *a, const StoredList *list)
{
    STensor *shape = NEWN(a, STensor, list->n + 1);
    for (uint32_t i = 0; i < list->n; i++)
        shape[i] = list->tensor[i].shape;
    return shape;
}

static Status write_together(Together *t, const StoredList *list, SFileSum *sum)
{
    SFileHead head;
    TRY(rank_outcome(t->rank, sfile_head(t->a, shapes(t->a, list), list->n, &head)));
    TRY(open_file(t, head));
    Status s = write_parts(t, list, head);
    TRY(rank_outcome(t->rank, s == OK ? finish_parts(t) : s));
    return rank_outcome(t->rank, t->makes ? finish(t, sum) : OK);
}

Status stored_write(Arena *a, const Rank *r, const char *path, const StoredList *list, SFileSum *sum)
{
    Together t = {.a = a, .rank = r, .path = path, .makes = rank_reports(r)};
    Status s = rank_settle(r);
    if (s == OK)
        s = write_together(&t, list, sum);
    if (s != OK)
        discard(&t);
    return s;
}

/* ---- reading ---- */

/* A tensor of a file, and the type that the rank has it in. */
typedef struct Taken { const STensor *from; DType to; } Taken;

static void take_bytes(void *ctx, char *data, int64_t at, int64_t bytes)
{
    const Taken *t = ctx;
    int64_t size = dtype_bytes(t->to);
    if (t->from->dtype == t->to) {
        memcpy(data, (const char *)t->from->data + at, (size_t)bytes);
        return;
    }
    Reals from = reals_from((Reals){t->from->dtype, (void *)(uintptr_t)t->from->data}, at / size);
    for (int64_t i = 0; i < bytes / size; i++)
        put((Reals){t->to, data}, i, get(from, i));
}

Status stored_read(Arena *a, const Rank *r, const char *path, const StoredList *list)
{
    SFile f;
    Status s = sfile_open(a, path, &f);
    TRY(s);
    for (uint32_t i = 0; i < list->n && s == OK; i++) {
        const STensor *t = sfile_find(&f, list->tensor[i].shape.name);
        Taken taken = {t, list->tensor[i].shape.dtype};
        assert(t && t->bytes / dtype_bytes(t->dtype) == list->tensor[i].shape.bytes / dtype_bytes(taken.to) && "files are checked first");
        s = stored_walk(r, &list->tensor[i], STORED_WRITE, take_bytes, &taken);
    }
    sfile_close(&f);
    return s;
}
