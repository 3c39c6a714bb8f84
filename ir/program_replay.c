/* The verifier's second half: the calls of a step, replayed without numbers.
 *
 * For each slot of each buffer a list of the byte ranges that hold what was
 * written is kept.  Reading a tensor needs its whole range; writing one adds it,
 * and takes it from every other buffer that lies on the same bytes of the map.
 * What one micro-batch wrote into a buffer of values is nothing to another.  So one
 * walk proves that every read has an earlier write, that nothing in between
 * has overwritten it, and that each gradient is accumulated in every micro-batch.
 *
 * Micro-batches between the second and the last do what the second does, so only
 * those three are replayed: the cost does not grow with their number. */
#include <stdlib.h>
#include <string.h>

#include "ir/program_check.h"

typedef struct Range { int64_t from, to; } Range;
typedef struct Ranges { Range *r; uint32_t n, micro; } Ranges;  /* sorted, apart from each other; who wrote */

typedef struct Replay {
    const Program *p;
    Checker       *k;
    Arena         *arena;
    uint32_t      *slot0;             /* by buffer: its first entry in `held` */
    Ranges        *held;              /* by slot */
    uint32_t     **meets, *nmeets;    /* by buffer: others that share bytes of the map */
    bool          *written;           /* by state: its gradient, in the micro-batch being replayed */
    uint32_t       micro, slot;       /* of the call being replayed */
} Replay;

/* ---- byte ranges ---- */

static bool holds(const Ranges *s, Range x)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->r[i].from <= x.from && x.to <= s->r[i].to)
            return true;
    return x.from == x.to;
}

static void append(Replay *rp, Ranges *s, Range x)
{
    if (x.from < x.to)
        PUSH(rp->arena, s->r, s->n, x);
}

static void take_range(Replay *rp, Ranges *s, Range x)
{
    bool touched = false;
    for (uint32_t i = 0; i < s->n; i++)
        touched |= s->r[i].from < x.to && x.from < s->r[i].to;
    if (!touched)
        return;
    Ranges left = {0};
    for (uint32_t i = 0; i < s->n; i++) {
        Range r = s->r[i];
        append(rp, &left, (Range){r.from, r.to < x.from ? r.to : x.from});
        append(rp, &left, (Range){r.from > x.to ? r.from : x.to, r.to});
    }
    left.micro = s->micro;
    *s = left;
}

static void add_range(Replay *rp, Ranges *s, Range x)
{
    if (holds(s, x))
        return;
    Ranges all = {0};
    uint32_t i = 0;
    for (; i < s->n && s->r[i].to < x.from; i++)
        append(rp, &all, s->r[i]);
    for (; i < s->n && s->r[i].from <= x.to; i++) {
        x.from = s->r[i].from < x.from ? s->r[i].from : x.from;
        x.to = s->r[i].to > x.to ? s->r[i].to : x.to;
    }
    append(rp, &all, x);
    for (; i < s->n; i++)
        append(rp, &all, s->r[i]);
    all.micro = s->micro;
    *s = all;
}

/* ---- reads and writes ---- */

static uint32_t slot_of(const Replay *rp, const Buffer *b)
{
    uint32_t slot = b->by_micro ? rp->micro : rp->slot;
    return slot < b->slots ? slot : 0;
}

static Range range_of(const Tensor *t)
{
    return (Range){t->at, t->at + tensor_bytes(t)};
}

static Ranges *held_by(const Replay *rp, const Tensor *t)
{
    const Buffer *b = &rp->p->buffer[t->buffer.i];
    return &rp->held[rp->slot0[t->buffer.i] + slot_of(rp, b)];
}

/* Values of one micro-batch, not kept from one to the next. */
static bool by_micro(BufferClass c)
{
    return c == CLASS_saved || c == CLASS_working || c == CLASS_workspace;
}

static void read_tensor(Replay *rp, uint32_t i, TensorId id)
{
    const Tensor *t = &rp->p->tensor[id.i];
    const Ranges *held = held_by(rp, t);
    bool stale = by_micro(rp->p->buffer[t->buffer.i].cls) && held->micro != rp->micro;
    if (stale || !holds(held, range_of(t)))
        broken(rp->k, "instruction %u (%s) reads '%s', which nothing wrote or something overwrote", i,
               rp->p->instr[i].path, t->path);
}

/* What lies under the bytes [from, to) of the map is no longer what it was. */
static void overwrite(Replay *rp, uint32_t other, Range x)
{
    const Buffer *b = &rp->p->buffer[other];
    for (uint32_t s = 0; s < b->slots && b->bytes > 0; s++) {
        int64_t base = b->offset + (int64_t)s * b->bytes;
        Range part = {x.from - base, x.to - base};
        take_range(rp, &rp->held[rp->slot0[other] + s], part);
    }
}

static void mark_gradients(Replay *rp, const Tensor *t)
{
    for (uint32_t i = 0; i < rp->p->nstate; i++) {
        if (!has_tensor(rp->p->state[i].gradient))
            continue;
        const Tensor *g = &rp->p->tensor[rp->p->state[i].gradient.i];
        if (g->buffer.i == t->buffer.i && g->at < t->at + tensor_bytes(t) && t->at < g->at + tensor_bytes(g))
            rp->written[i] = true;
    }
}

static void write_tensor(Replay *rp, TensorId id)
{
    const Tensor *t = &rp->p->tensor[id.i];
    const Buffer *b = &rp->p->buffer[t->buffer.i];
    int64_t base = b->offset + (int64_t)slot_of(rp, b) * b->bytes;
    Range x = range_of(t);
    for (uint32_t m = 0; m < rp->nmeets[t->buffer.i]; m++)
        overwrite(rp, rp->meets[t->buffer.i][m], (Range){base + x.from, base + x.to});
    Ranges *held = held_by(rp, t);
    if (by_micro(b->cls) && held->micro != rp->micro)
        held->n = 0;
    held->micro = rp->micro;
    add_range(rp, held, x);
    if (b->cls == CLASS_gradients)
        mark_gradients(rp, t);
}

static bool adds(const Replay *rp, const Instr *in, int out)
{
    return (in->acc_out >> out & 1) && (in->acc == ACC_YES || (in->acc == ACC_AFTER_FIRST && rp->micro > 0));
}

static void replay_instr(Replay *rp, uint32_t i)
{
    const Instr *in = &rp->p->instr[i];
    for (int a = 0; a < in->narg; a++)
        if (has_tensor(in->arg[a]))
            read_tensor(rp, i, in->arg[a]);
    for (int o = 0; o < in->nout; o++)
        if (has_tensor(in->out[o]) && adds(rp, in, o))
            read_tensor(rp, i, in->out[o]);
    if (has_tensor(in->workspace))
        write_tensor(rp, in->workspace);
    for (int o = 0; o < in->nout; o++)
        if (has_tensor(in->out[o]))
            write_tensor(rp, in->out[o]);
}

/* ---- procedures ---- */

static void replay_proc(Replay *rp, uint32_t proc, uint32_t micro, uint32_t slot)
{
    rp->micro = micro;
    rp->slot = slot;
    for (uint32_t i = rp->p->proc[proc].first; i < rp->p->proc[proc].end; i++)
        replay_instr(rp, i);
}

/* After a backward call: every trained weight has got its summand. */
static void check_gradients(Replay *rp, uint32_t micro)
{
    for (uint32_t i = 0; i < rp->p->nstate; i++) {
        if (has_tensor(rp->p->state[i].gradient) && !rp->written[i])
            broken(rp->k, "the gradient of '%s' is not written in micro-batch %u", rp->p->state[i].path, micro);
        rp->written[i] = false;
    }
}

static bool is_replayed(const Program *p, uint32_t micro)
{
    return micro < 2 || micro + 1 == (uint64_t)p->microbatches;
}

static void replay_step(Replay *rp)
{
    const Program *p = rp->p;
    bool buckets = has_tensor(p->norm);              /* gradients have their accumulators */
    for (uint32_t c = 0; c < p->ncall; c++) {
        const Call *call = &p->call[c];
        if (!is_replayed(p, call->micro))
            continue;
        replay_proc(rp, call->proc, call->micro, call->slot);
        if (buckets && p->proc[call->proc].kind == PROC_backward && p->proc[call->proc].chunk == 0)
            check_gradients(rp, call->micro);
    }
}

/* An evaluation may come at any time: labels are counted anew. */
static void replay_evaluation(Replay *rp)
{
    const Program *p = rp->p;
    bool any = false;
    for (uint32_t i = 0; i < p->nproc; i++)
        if (p->proc[i].kind == PROC_begin)
            replay_proc(rp, i, 0, 0);
    for (uint32_t i = 0; i < p->nproc; i++)
        if (p->proc[i].kind == PROC_evaluate) {
            replay_proc(rp, i, 0, 0);
            any = true;
        }
    for (uint32_t o = 0; any && o < p->noutput; o++) {
        const Tensor *t = &p->tensor[p->output[o].i];
        if (!holds(held_by(rp, t), range_of(t)))
            broken(rp->k, "output '%s' is not there after an evaluation", t->path);
    }
}

/* ---- before the first call ---- */

/* Given from outside, or zero from the start. */
static bool is_given(BufferClass c)
{
    return c == CLASS_weights || c == CLASS_master || c == CLASS_moments || c == CLASS_inputs || c == CLASS_gradients;
}

static void find_meetings(Replay *rp)
{
    const Program *p = rp->p;
    uint32_t n = program_is_mapped(p) ? p->nbuffer : 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++)
            if (buffers_meet(&p->buffer[i], &p->buffer[j])) {
                PUSH(rp->arena, rp->meets[i], rp->nmeets[i], j);
                PUSH(rp->arena, rp->meets[j], rp->nmeets[j], i);
            }
}

enum { SLOT_LIMIT = 1 << 22 };        /* more than any program has; a damaged dump may say otherwise */

void program_replay(const Program *p, Checker *k)
{
    uint64_t slots = 0;
    for (uint32_t b = 0; b < p->nbuffer; b++)
        slots += p->buffer[b].slots;
    if (slots > SLOT_LIMIT) {
        broken(k, "%llu slots in all, more than %d", (unsigned long long)slots, SLOT_LIMIT);
        return;
    }
    Replay rp = {.p = p, .k = k, .arena = arena_new("scratch")};
    rp.slot0 = NEWN(rp.arena, uint32_t, p->nbuffer + 1);
    rp.held = NEWN(rp.arena, Ranges, slots + 1);
    rp.meets = NEWN(rp.arena, uint32_t *, p->nbuffer + 1);
    rp.nmeets = NEWN(rp.arena, uint32_t, p->nbuffer + 1);
    rp.written = NEWN(rp.arena, bool, p->nstate + 1);
    uint32_t at = 0;
    for (uint32_t b = 0; b < p->nbuffer; b++) {
        rp.slot0[b] = at;
        for (uint32_t s = 0; s < p->buffer[b].slots; s++, at++)
            if (is_given(p->buffer[b].cls))
                append(&rp, &rp.held[at], (Range){0, p->buffer[b].bytes});
    }
    find_meetings(&rp);
    replay_step(&rp);
    replay_evaluation(&rp);
    arena_free(rp.arena);
}
