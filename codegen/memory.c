/* Memory: lifetimes of buffers, which part of the map they lie in, and offsets that
 * never put two live ones in one place.  What communication reads or writes lies in
 * the shared part, where peers see it.
 *
 * A position is an instruction id; procedures follow each other in it, which is
 * also the order in time of one micro-batch.  A buffer lives from the first to the
 * last instruction that names it.  Two kinds live always: states, inputs and
 * scalars, and nothing else.  Evaluation has later ids than training and never runs
 * at the same time, so the two share memory.
 *
 * Offsets are greedy: buffers by decreasing size (then by first use, then by
 * number), each at the lowest offset where no buffer that lives with it lies. */
#include "codegen/pass.h"

#include <stdlib.h>
#include <string.h>

/* ---- workspace and the cost of instructions ---- */

static void add_workspace(Program *p, Instr *in)
{
    int64_t bytes = instr_workspace(in, p);
    if (bytes == 0)
        return;
    Tensor t = {.path = in->path, .dtype = DT_u8, .rank = 1, .axis = {{.local = bytes, .global = bytes}}, .role = ROLE_STEP};
    in->workspace = code_own(p, t, CLASS_workspace);
}

static void finish_instrs(Program *p)
{
    for (uint32_t i = 0; i < p->ninstr; i++) {
        Instr *in = &p->instr[i];
        instr_measure(in, p);
        add_workspace(p, in);
    }
}

/* ---- lifetimes and classes ---- */

static void touch(Program *p, TensorId t, uint32_t i)
{
    if (!has_tensor(t))
        return;
    Buffer *b = &p->buffer[buffer_of(p, t).i];
    if (b->first < 0)
        b->first = (int32_t)i;
    b->last = (int32_t)i;
}

static void read_lifetimes(Program *p)
{
    for (uint32_t b = 0; b < p->nbuffer; b++)
        p->buffer[b].first = p->buffer[b].last = -1;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        for (int a = 0; a < in->narg; a++)
            touch(p, in->arg[a], i);
        for (int k = 0; k < in->nout; k++)
            touch(p, in->out[k], i);
        touch(p, in->workspace, i);
    }
    for (uint32_t o = 0; o < p->noutput; o++) {
        if (!has_tensor(p->output[o].tensor))
            continue;
        Buffer *b = &p->buffer[buffer_of(p, p->output[o].tensor).i];
        b->last = (int32_t)p->ninstr - 1;
        b->first = b->first < 0 ? b->last : b->first;
    }
}

static bool within_calls(BufferClass c)
{
    return c == CLASS_working || c == CLASS_saved || c == CLASS_workspace;
}

/* With several micro-batches in flight, one is saved while another runs forward or
 * backward, so its slot is taken during all of both. */
static void save(Buffer *b, const Proc *forward, const Proc *backward, uint32_t slots)
{
    b->cls = CLASS_saved;
    b->slots = slots;
    if (slots > 1) {
        b->first = (int32_t)forward->first;
        b->last = (int32_t)backward->end - 1;
    }
}

/* Made in forward and read in backward: saved.  States, inputs and scalars: always. */
static void classify(Program *p, uint32_t slots)
{
    const Proc *forward = proc_find(p, PROC_forward), *backward = proc_find(p, PROC_backward);
    for (uint32_t i = 0; i < p->nbuffer; i++) {
        Buffer *b = &p->buffer[i];
        if (!within_calls(b->cls))
            b->first = b->last = -1;
        else if (proc_has(forward, (uint32_t)b->first) && proc_has(backward, (uint32_t)b->last))
            save(b, forward, backward, slots);
    }
}

/* What is sent is read by its receiver when that comes to it: nothing else may lie
 * there before the sender makes it anew. */
static void keep_sent(Program *p)
{
    for (uint32_t i = 0; i < p->ninstr; i++)
        if (p->instr[i].op == OP_send) {
            Buffer *b = &p->buffer[buffer_of(p, p->instr[i].arg[0]).i];
            b->first = b->first < 0 ? -1 : 0;
            b->last = b->first < 0 ? -1 : (int32_t)p->ninstr - 1;
        }
}

/* ---- parts of the map ---- */

static void share_tensor(Program *p, TensorId t)
{
    if (has_tensor(t))
        p->buffer[buffer_of(p, t).i].part = PART_SHARED;
}

static void share(Program *p)
{
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        if (!(op_info[in->op].flags & OPF_COMM))
            continue;
        for (int a = 0; a < in->narg; a++)
            share_tensor(p, in->arg[a]);
        for (int k = 0; k < in->nout; k++)
            share_tensor(p, in->out[k]);
    }
}

/* ---- offsets ---- */

/* A buffer placed in the map. */
typedef struct Block { int64_t offset, end; int32_t first, last; } Block;

/* Blocks, sorted by offset. */
typedef struct Shelf { Block *block; uint32_t n; } Shelf;

/* Most buffers live shortly, beside few others, so time is cut into equal spans.  What
 * lives within one span or across the end of one is on the shelves of these spans; what
 * lives longer is on one for all of them.  One more has everything. */
typedef struct Placed { Shelf all, wide, *span; Arena *arena; } Placed;

enum { SPAN = 64, SHELVES = 3 };      /* instructions; shelves that are looked through together */

static bool is_wide(int32_t first, int32_t last)
{
    return last / SPAN - first / SPAN > 1;
}

static int64_t whole_bytes(const Buffer *b)
{
    return b->bytes * b->slots;
}

typedef struct Order { int64_t bytes; int32_t first; uint32_t buffer; } Order;

static int larger_first(const void *x, const void *y)
{
    const Order *a = x, *b = y;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->buffer < b->buffer ? -1 : 1;
}

/* The next block in order of offset, on whichever shelf; NULL: there is none. */
static const Block *next_block(const Shelf *const shelf[SHELVES], uint32_t at[SHELVES])
{
    int best = -1;
    for (int s = 0; s < SHELVES; s++)
        if (shelf[s] && at[s] < shelf[s]->n && (best < 0 || shelf[s]->block[at[s]].offset < shelf[best]->block[at[best]].offset))
            best = s;
    return best < 0 ? NULL : &shelf[best]->block[at[best]++];
}

/* Lowest offset >= base for a buffer beside all placed blocks that live when it does. */
static int64_t lowest_gap(const Placed *p, const Buffer *b, int64_t base)
{
    int64_t lowest = base, bytes = whole_bytes(b);
    int32_t i = b->first / SPAN, k = b->last / SPAN;
    const Shelf *shelf[SHELVES] = {&p->wide, &p->span[i], i != k ? &p->span[k] : NULL};
    if (is_wide(b->first, b->last))
        memcpy(shelf, ((const Shelf *const[SHELVES]){&p->all}), sizeof shelf);
    uint32_t at[SHELVES] = {0};
    for (const Block *x = next_block(shelf, at); x && x->offset < lowest + bytes; x = next_block(shelf, at))
        if (x->first <= b->last && b->first <= x->last && x->end > lowest)
            lowest = x->end;
    return lowest;
}

static void put_block(Shelf *s, Arena *a, Block x)
{
    uint32_t lo = 0, hi = s->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (s->block[mid].offset <= x.offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    PUSH(a, s->block, s->n, x);
    memmove(&s->block[lo + 1], &s->block[lo], sizeof x * (s->n - 1 - lo));
    s->block[lo] = x;
}

static void insert_block(Placed *p, Block x)
{
    put_block(&p->all, p->arena, x);
    if (is_wide(x.first, x.last)) {
        put_block(&p->wide, p->arena, x);
        return;
    }
    put_block(&p->span[x.first / SPAN], p->arena, x);
    if (x.first / SPAN != x.last / SPAN)
        put_block(&p->span[x.last / SPAN], p->arena, x);
}

/* What lives always lies at the bottom, in order of class and number. */
static int64_t place_persistent(Program *p, MapPart part)
{
    int64_t at = 0;
    for (int c = 0; c < CLASSES; c++)
        for (uint32_t i = 0; i < p->nbuffer; i++) {
            Buffer *b = &p->buffer[i];
            if (b->cls != (BufferClass)c || b->first >= 0 || b->part != part)
                continue;
            b->offset = at;
            at += whole_bytes(b);
        }
    return at;
}

static void place_offsets(Program *p, MapPart part, Arena *scratch)
{
    int64_t base = place_persistent(p, part), end = base;
    Order *order = NEWN(scratch, Order, p->nbuffer + 1);
    Placed placed = {.span = NEWN(scratch, Shelf, p->ninstr / SPAN + 1), .arena = scratch};
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (p->buffer[i].first >= 0 && p->buffer[i].part == part)
            order[n++] = (Order){whole_bytes(&p->buffer[i]), p->buffer[i].first, i};
    qsort(order, n, sizeof *order, larger_first);
    for (uint32_t i = 0; i < n; i++) {
        Buffer *b = &p->buffer[order[i].buffer];
        b->offset = lowest_gap(&placed, b, base);
        Block x = {b->offset, b->offset + whole_bytes(b), b->first, b->last};
        insert_block(&placed, x);
        end = x.end > end ? x.end : end;
    }
    p->map_bytes[part] = end;
}

void memory(Lowering *lw)
{
    finish_instrs(lw->p);
    memory_map(lw);
}

void memory_map(Lowering *lw)
{
    Program *p = lw->p;
    Arena *scratch = lw->scratch;
    read_lifetimes(p);
    classify(p, schedule_slots(lw));
    keep_sent(p);
    share(p);
    place_offsets(p, PART_PRIVATE, scratch);
    place_offsets(p, PART_SHARED, scratch);
}

int64_t program_live_peak(const Program *p)
{
    Arena *scratch = arena_new("scratch");
    int64_t *change = NEWN(scratch, int64_t, p->ninstr + 1);
    int64_t always = 0, live = 0, peak = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++) {
        const Buffer *b = &p->buffer[i];
        if (b->first < 0) {
            always += whole_bytes(b);
            continue;
        }
        change[b->first] += whole_bytes(b);
        change[b->last + 1] -= whole_bytes(b);
    }
    for (uint32_t i = 0; i < p->ninstr; i++) {
        live += change[i];
        peak = live > peak ? live : peak;
    }
    arena_free(scratch);
    return always + peak;
}

int64_t program_excess(const Program *p)
{
    return program_map_bytes(p) + p->reserve - p->memory;
}
