/* Stored: see stored.h. */
#include "runtime/stored.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ir/place.h"
#include "runtime/executor.h"
#include "runtime/ranks.h"

/* ---- what a rank has ---- */

static int batch_axis(const Tensor *t)
{
    for (int x = 0; x < t->rank; x++)
        if (t->axis[x].per_micro > 0)
            return x;
    return -1;
}

Stored stored_whole(const Rank *r, TensorId id, const char *name, char *data, int64_t stride)
{
    const Tensor *t = &r->program->tensor[id.i];
    Stored s = {.shape = {.name = name, .dtype = t->dtype, .rank = t->rank, .bytes = dtype_bytes(t->dtype)}, .batch = batch_axis(t)};
    for (uint32_t i = 0; i < t->rank; i++) {
        s.shape.extent[i] = t->axis[i].global;
        s.shape.bytes *= t->axis[i].global;
    }
    s.part = (Part){.tensor = id, .end = tensor_elements(t), .data = data, .stride = stride,
                    .micros = s.batch < 0 ? 1 : (uint32_t)r->program->microbatches};
    return s;
}

bool stored_cut(Stored *s, int64_t at, int64_t first, int64_t end)
{
    Part *p = &s->part;
    int64_t from = first > at ? first - at : 0, to = end - at < p->end ? end - at : p->end;
    if (from >= to)
        return false;
    p->first = from;
    p->end = to;
    return true;
}

/* ---- what all have ---- */

/* What a rank tells of a tensor; the name follows. */
typedef struct Notice {
    int64_t  extent[MAX_RANK], origin[MAX_RANK], local[MAX_RANK], first, end;
    int32_t  dtype, rank, batch;
    uint32_t name;                    /* bytes, the last of them 0 */
} Notice;

typedef struct Letter { char *data; int64_t bytes; } Letter;

static Notice notice_of(const Rank *r, const Stored *s)
{
    const Tensor *t = &r->program->tensor[s->part.tensor.i];
    Notice n;
    memset(&n, 0, sizeof n);                         /* gaps too: notices are compared */
    for (uint32_t i = 0; i < s->shape.rank; i++) {
        n.extent[i] = s->shape.extent[i];
        n.origin[i] = t->axis[i].origin;
        n.local[i] = t->axis[i].local;
    }
    n.first = s->part.first;
    n.end = s->part.end;
    n.dtype = (int32_t)s->shape.dtype;
    n.rank = s->shape.rank;
    n.batch = s->batch;
    n.name = (uint32_t)strlen(s->shape.name) + 1;
    return n;
}

static Letter write_letter(Arena *a, const Rank *r, const StoredList *mine)
{
    Letter l = {0};
    for (uint32_t i = 0; i < mine->n; i++)
        l.bytes += (int64_t)(sizeof(Notice) + strlen(mine->tensor[i].shape.name) + 1);
    char *at = l.data = arena_alloc(a, (size_t)l.bytes + 1);
    for (uint32_t i = 0; i < mine->n; i++) {
        Notice n = notice_of(r, &mine->tensor[i]);
        memcpy(at, &n, sizeof n);
        memcpy(at + sizeof n, mine->tensor[i].shape.name, n.name);
        at += sizeof n + n.name;
    }
    return l;
}

/* Letters go round in pieces that need no shared memory. */
static Status send_letters(Arena *a, const Rank *r, Letter *letter)
{
    uint32_t n = r->program->nranks, me = r->program->rank;
    int64_t *bytes = NEWN(a, int64_t, n), most = 0;
    TRY(r->end->comm->all_gather(r->all, &letter[me].bytes, bytes, n, DT_i64));
    for (uint32_t i = 0; i < n; i++) {
        if (i != me)
            letter[i] = (Letter){arena_alloc(a, (size_t)bytes[i] + 1), bytes[i]};
        most = bytes[i] > most ? bytes[i] : most;
    }
    char piece[COMM_SMALL], *pieces = arena_alloc(a, (size_t)n * COMM_SMALL);
    for (int64_t at = 0; at < most; at += COMM_SMALL) {
        int64_t left = bytes[me] - at;
        memset(piece, 0, sizeof piece);
        if (left > 0)
            memcpy(piece, letter[me].data + at, (size_t)(left < COMM_SMALL ? left : COMM_SMALL));
        TRY(r->end->comm->all_gather(r->all, piece, pieces, (int64_t)n * COMM_SMALL, DT_u8));
        for (uint32_t i = 0; i < n; i++) {
            left = bytes[i] - at;
            if (i != me && left > 0)
                memcpy(letter[i].data + at, pieces + (size_t)i * COMM_SMALL, (size_t)(left < COMM_SMALL ? left : COMM_SMALL));
        }
    }
    return OK;
}

/* ---- one list ---- */

/* What one rank has, as all know it. */
typedef struct Known { Notice notice; const char *name; uint32_t rank; } Known;

static int by_name(const void *x, const void *y)
{
    const Known *a = x, *b = y;
    int order = strverscmp(a->name, b->name);
    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

static Known *read_letters(Arena *a, const Letter *letter, uint32_t nranks, uint32_t *n)
{
    Known *list = NULL;
    *n = 0;
    for (uint32_t i = 0; i < nranks; i++)
        for (const char *at = letter[i].data, *end = at + letter[i].bytes; at < end;) {
            Known k = {.name = at + sizeof(Notice), .rank = i};
            memcpy(&k.notice, at, sizeof k.notice);
            at += sizeof k.notice + k.notice.name;
            PUSH(a, list, *n, k);
        }
    if (*n)
        qsort(list, *n, sizeof *list, by_name);
    return list;
}

static Stored of_notice(const Known *k)
{
    const Notice *n = &k->notice;
    Stored s = {.shape = {.name = k->name, .dtype = (DType)n->dtype, .rank = (uint8_t)n->rank, .bytes = dtype_bytes((DType)n->dtype)},
                .batch = n->batch, .part = {.tensor = NO_TENSOR}};
    for (int i = 0; i < n->rank; i++) {
        s.shape.extent[i] = n->extent[i];
        s.shape.bytes *= n->extent[i];
    }
    return s;
}

static const Stored *find_mine(const StoredList *mine, const char *name)
{
    for (uint32_t i = 0; i < mine->n; i++)
        if (strcmp(mine->tensor[i].shape.name, name) == 0)
            return &mine->tensor[i];
    return NULL;
}

/* Known ranks first..end have the same tensor: whether none before `me` has its part. */
static bool is_first(const Known *list, uint32_t first, uint32_t me)
{
    for (uint32_t i = first; i < me; i++)
        if (memcmp(&list[i].notice, &list[me].notice, sizeof list->notice) == 0)
            return false;
    return true;
}

static StoredList merge(Arena *a, uint32_t rank, const StoredList *mine, const Known *list, uint32_t n)
{
    StoredList all = {0};
    for (uint32_t first = 0, end; first < n; first = end) {
        Stored s = of_notice(&list[first]);
        for (end = first; end < n && strcmp(list[end].name, list[first].name) == 0; end++) {
            assert(list[end].notice.rank == list[first].notice.rank && list[end].notice.dtype == list[first].notice.dtype &&
                   memcmp(list[end].notice.extent, list[first].notice.extent, sizeof list->notice.extent) == 0 && "ranks agree on global tensors");
            if (list[end].rank != rank)
                continue;
            s.part = find_mine(mine, s.shape.name)->part;
            s.part.writes = is_first(list, first, end);
        }
        PUSH(a, all.tensor, all.n, s);
    }
    return all;
}

Status stored_share(const Rank *r, Arena *a, const StoredList *mine, StoredList *all)
{
    uint32_t n, nranks = r->end ? r->program->nranks : 1, me = r->end ? r->program->rank : 0;
    Letter *letter = NEWN(a, Letter, nranks);
    letter[me] = write_letter(a, r, mine);
    if (r->end)
        TRY(send_letters(a, r, letter));
    Known *list = read_letters(a, letter, nranks, &n);
    *all = merge(a, me, mine, list, n);
    return OK;
}

/* ---- from memory to the global tensor ---- */

typedef struct Walk {
    const Rank *rank;
    const Part *part;
    StoredUse   use;
    StoredFn    fn;
    void       *ctx;
    char       *data;                 /* what is contiguous so far, */
    int64_t     at, bytes;            /* and where it lies in the global tensor */
} Walk;

/* Where the host has the next n bytes. */
static Status lend(const Walk *w, int64_t n, char **out)
{
    const Rank *r = w->rank;
    const void *seen = w->data;
    if (w->use == STORED_READ && !w->part->copied)
        TRY(r->executor->look(r, w->data, n, &seen));
    *out = w->use == STORED_READ ? (char *)(uintptr_t)seen : r->executor->edit(r, w->data, n);
    return OK;
}

/* A window at a time, each a sign of life. */
static Status flush(Walk *w)
{
    char *data;
    for (int64_t n; w->bytes > 0; w->data += n, w->at += n, w->bytes -= n) {
        n = w->bytes < RANK_WINDOW ? w->bytes : RANK_WINDOW;
        exchange_begin(w->rank, -1);
        TRY(lend(w, n, &data));
        w->fn(w->ctx, data, w->at, n);
    }
    return OK;
}

static Status add(Walk *w, char *data, int64_t at, int64_t bytes)
{
    if (w->bytes > 0 && w->data + w->bytes == data && w->at + w->bytes == at) {
        w->bytes += bytes;
        return OK;
    }
    TRY(flush(w));
    w->data = data;
    w->at = at;
    w->bytes = bytes;
    return OK;
}

/* Micro-batch `micro` of a local tensor, of which the file has `extent` along the batch. */
static Tensor in_micro(const Tensor *t, const Stored *s, uint32_t micro)
{
    Tensor m = *t;
    if (s->batch >= 0) {
        AxisPlace *x = &m.axis[s->batch];
        x->origin += micro * x->per_micro;
        x->per_micro = 0;
        x->global = s->shape.extent[s->batch];
    }
    return m;
}

static Status walk_micro(Walk *w, const Tensor *t, char *data)
{
    const Part *p = w->part;
    int64_t size = dtype_bytes(t->dtype), length = t->rank ? t->axis[t->rank - 1].local : 1;
    for (int64_t row = p->first / length; row * length < p->end; row++) {
        int64_t start = row * length, from = p->first > start ? p->first - start : 0;
        int64_t to = p->end - start < length ? p->end - start : length, valid = place_row_valid(t, row);
        to = to < valid ? to : valid;
        if (from < to)
            TRY(add(w, data + (start + from - p->first) * size, (place_row(t, row, 0) + from) * size, (to - from) * size));
    }
    return OK;
}

Status stored_walk(const Rank *r, const Stored *s, StoredUse use, StoredFn fn, void *ctx)
{
    const Part *p = &s->part;
    Walk w = {.rank = r, .part = p, .use = use, .fn = fn, .ctx = ctx};
    for (uint32_t m = 0; has_tensor(p->tensor) && m < p->micros; m++) {
        Tensor t = in_micro(&r->program->tensor[p->tensor.i], s, m);
        t.dtype = s->shape.dtype;
        TRY(walk_micro(&w, &t, p->data + m * p->stride));
    }
    return flush(&w);
}
