/* The verifier's second half: the calls of a step, replayed without numbers.
 *
 * Every byte of the map has a holder: the slot of the buffer that wrote it last.
 * Reading a tensor needs all its bytes to be held by its own slot; writing one takes
 * them from whoever lies on the same bytes of the map.  What one micro-batch wrote
 * into a buffer of values is nothing to another, so with each micro-batch such a slot
 * is a new holder.  One walk proves that every read has an earlier write, that nothing
 * in between has overwritten it, and that each gradient is accumulated in every
 * micro-batch.
 *
 * Micro-batches between the second and the last do what the second does, so only
 * those three are replayed: the cost does not grow with their number. */
#include "ir/program_check.h"

typedef struct Slot { uint32_t holder, micro; } Slot;        /* as whom it writes now; since which micro-batch */

typedef struct Replay {
    const Program *p;
    Checker       *k;
    Arena         *arena;
    Slot          *slot_of;           /* by buffer and slot */
    uint32_t      *slot0;             /* by buffer, and one more: its first entry in `slot_of` */
    uint32_t      *range0;            /* by tensor: its first range, one a slot, in `map` */
    ByteMap        map;
    uint32_t       holders;           /* so far */
    GradientPlaces gradients;
    bool          *written;           /* by state: its gradient, in the micro-batch being replayed */
    uint32_t       micro, slot;       /* of the call being replayed */
} Replay;

/* ---- slots ---- */

/* Inputs have a slot per micro-batch: those of the micro-batches that are replayed count. */
enum { MICRO_REPLAYED = 3 };

static uint32_t slots_of(const Buffer *b)
{
    return b->by_micro && b->slots > MICRO_REPLAYED ? MICRO_REPLAYED : b->slots;
}

static int64_t slot_offset(const Buffer *b, uint32_t slot)
{
    bool last = b->by_micro && slot + 1 == MICRO_REPLAYED;
    return b->bytes * (int64_t)(last ? b->slots - 1 : slot);
}

/* The one that the call being replayed uses. */
static uint32_t slot_now(const Replay *rp, const Buffer *b)
{
    uint32_t last = MICRO_REPLAYED - 1, slot = !b->by_micro ? rp->slot : rp->micro < last ? rp->micro : last;
    return slot < slots_of(b) ? slot : 0;
}

static Slot *slot_at(const Replay *rp, const Tensor *t)
{
    return &rp->slot_of[rp->slot0[t->buffer.i] + slot_now(rp, &rp->p->buffer[t->buffer.i])];
}

static uint32_t range_at(const Replay *rp, TensorId id)
{
    return rp->range0[id.i] + slot_now(rp, &rp->p->buffer[rp->p->tensor[id.i].buffer.i]);
}

/* ---- reads and writes ---- */

/* Values of one micro-batch, not kept from one to the next. */
static bool by_micro(BufferClass c)
{
    return c == CLASS_saved || c == CLASS_working || c == CLASS_workspace;
}

/* Whether what was written to the tensor is still there. */
static bool holds(const Replay *rp, TensorId id)
{
    uint32_t holder = slot_at(rp, &rp->p->tensor[id.i])->holder;
    return bytemap_other(&rp->map, range_at(rp, id), holder) == holder;
}

static void read_tensor(Replay *rp, uint32_t i, TensorId id)
{
    const Tensor *t = &rp->p->tensor[id.i];
    bool stale = by_micro(rp->p->buffer[t->buffer.i].cls) && slot_at(rp, t)->micro != rp->micro;
    if (stale || !holds(rp, id))
        broken(rp->k, "instruction %u (%s) reads '%s', which nothing wrote or something overwrote", i,
               rp->p->instr[i].path, t->path);
}

static void mark_gradients(Replay *rp, const Tensor *t)
{
    const GradientPlaces *g = &rp->gradients;
    for (uint32_t i = gradients_first(g, t); i < g->n; i = gradients_next(g, t, i))
        rp->written[g->place[i].state] = true;
}

/* A sum over ranks is no summand. */
static void write_tensor(Replay *rp, TensorId id, bool summand)
{
    const Tensor *t = &rp->p->tensor[id.i];
    BufferClass cls = rp->p->buffer[t->buffer.i].cls;
    Slot *slot = slot_at(rp, t);
    if (by_micro(cls) && slot->micro != rp->micro)
        slot->holder = ++rp->holders;
    slot->micro = rp->micro;
    bytemap_take(&rp->map, range_at(rp, id), slot->holder);
    if (cls == CLASS_gradients && summand)
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
        write_tensor(rp, in->workspace, false);
    for (int o = 0; o < in->nout; o++)
        if (has_tensor(in->out[o]))
            write_tensor(rp, in->out[o], !(op_info[in->op].flags & OPF_COMM));
}

/* ---- procedures ---- */

static void replay_call(Replay *rp, const Call *c)
{
    const Program *p = rp->p;
    rp->micro = c->micro;
    rp->slot = c->slot;
    for (uint32_t i = p->proc[c->proc].first; i < p->proc[c->proc].end; i++)
        if (instr_runs(&p->instr[i], p, c))
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
        replay_call(rp, call);
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
            replay_call(rp, &(Call){.proc = i});
    for (uint32_t i = 0; i < p->nproc; i++)
        if (p->proc[i].kind == PROC_evaluate) {
            replay_call(rp, &(Call){.proc = i});
            any = true;
        }
    for (uint32_t o = 0; any && o < p->noutput; o++) {
        if (has_tensor(p->output[o].tensor) && !holds(rp, p->output[o].tensor))
            broken(rp->k, "output '%s' is not there after an evaluation", p->tensor[p->output[o].tensor.i].path);
    }
}

/* ---- before the first call ---- */

/* Given from outside, or zero from the start. */
static bool is_given(BufferClass c)
{
    return c == CLASS_weights || c == CLASS_master || c == CLASS_moments || c == CLASS_inputs || c == CLASS_gradients;
}

enum { RANGE_LIMIT = 1 << 24 };       /* more than any program has; a damaged dump may say otherwise */

/* Ranges of bytes that are asked about, one a slot: of buffers, then of tensors. */
static uint64_t count_ranges(const Program *p)
{
    uint64_t n = 0;
    for (uint32_t b = 0; b < p->nbuffer; b++)
        n += slots_of(&p->buffer[b]);
    for (uint32_t t = 0; t < p->ntensor; t++)
        n += slots_of(&p->buffer[p->tensor[t].buffer.i]);
    return n;
}

static uint32_t add_ranges(ByteRange *range, uint32_t n, const Buffer *b, int64_t from, int64_t bytes)
{
    for (uint32_t s = 0; s < slots_of(b); s++)
        range[n++] = (ByteRange){from + slot_offset(b, s), from + slot_offset(b, s) + bytes};
    return n;
}

/* The slot of a buffer and its range have one number, so those are first. */
static void find_ranges(Replay *rp, const int64_t *address, ByteRange *range)
{
    const Program *p = rp->p;
    uint32_t n = 0;
    rp->slot0 = NEWN(rp->arena, uint32_t, p->nbuffer + 1);
    rp->range0 = NEWN(rp->arena, uint32_t, p->ntensor + 1);
    for (uint32_t b = 0; b < p->nbuffer; b++) {
        rp->slot0[b] = n;
        n = add_ranges(range, n, &p->buffer[b], address[b], p->buffer[b].bytes);
    }
    rp->slot0[p->nbuffer] = n;
    for (uint32_t t = 0; t < p->ntensor; t++) {
        const Tensor *x = &p->tensor[t];
        rp->range0[t] = n;
        n = add_ranges(range, n, &p->buffer[x->buffer.i], address[x->buffer.i] + x->at, tensor_bytes(x));
    }
}

static void make_map(Replay *rp, const int64_t *address, uint32_t nrange)
{
    const Program *p = rp->p;
    ByteRange *range = NEWN(rp->arena, ByteRange, nrange + 1);
    find_ranges(rp, address, range);
    rp->map = bytemap_new(rp->arena, range, nrange);
    rp->slot_of = NEWN(rp->arena, Slot, rp->slot0[p->nbuffer] + 1);
    rp->written = NEWN(rp->arena, bool, p->nstate + 1);
    rp->gradients = gradient_places(p, rp->arena);
    for (uint32_t b = 0; b < p->nbuffer; b++)
        for (uint32_t s = rp->slot0[b]; s < rp->slot0[b + 1]; s++) {
            rp->slot_of[s].holder = ++rp->holders;
            if (is_given(p->buffer[b].cls))
                bytemap_take(&rp->map, s, rp->slot_of[s].holder);
        }
}

void program_replay(const Program *p, Checker *k)
{
    uint64_t ranges = count_ranges(p);
    if (ranges > RANGE_LIMIT) {
        broken(k, "%llu tensors and buffers in all slots, more than %d", (unsigned long long)ranges, RANGE_LIMIT);
        return;
    }
    Replay rp = {.p = p, .k = k, .arena = arena_new("scratch")};
    int64_t *address = NEWN(rp.arena, int64_t, p->nbuffer + 1);
    if (program_addresses(p, address)) {
        make_map(&rp, address, (uint32_t)ranges);
        replay_step(&rp);
        replay_evaluation(&rp);
    } else {
        broken(k, "all buffers have more bytes than 64 bits count");
    }
    arena_free(rp.arena);
}
