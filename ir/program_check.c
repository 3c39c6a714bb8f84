/* program_check(): what holds of any Program, looked at without running it.  The
 * order of reads and writes is checked by replaying a step: program_replay.c.
 *
 * A program whose map is empty has no offsets yet (the passes before the memory
 * map): lifetimes and places are then not looked at. */
#include "ir/program_check.h"
#include "ir/stream_order.h"

bool program_is_mapped(const Program *p)
{
    return p->map_bytes[PART_PRIVATE] > 0 || p->map_bytes[PART_SHARED] > 0;
}

/* ---- buffers ---- */

static void check_buffer(Checker *k, const Program *p, const Buffer *b)
{
    if (b->bytes < 0 || b->bytes % BUFFER_ALIGN != 0 || b->slots < 1)
        broken(k, "buffer '%s' has %u slots of %lld bytes, not a multiple of %d", b->name, b->slots,
               (long long)b->bytes, BUFFER_ALIGN);
    if (b->by_micro && (int64_t)b->slots != p->microbatches)
        broken(k, "buffer '%s' has %u slots for %lld micro-batches", b->name, b->slots, (long long)p->microbatches);
    if (!program_is_mapped(p))
        return;
    if ((b->first < 0) != (b->last < 0) || b->first > b->last || b->last >= (int32_t)p->ninstr)
        broken(k, "buffer '%s' lives from %d to %d of %u instructions", b->name, b->first, b->last, p->ninstr);
    if (b->offset < 0 || b->offset % BUFFER_ALIGN != 0 || b->offset + b->bytes * b->slots > p->map_bytes[b->part])
        broken(k, "buffer '%s' lies at %lld + %lld, outside the map of %lld bytes", b->name, (long long)b->offset,
               (long long)(b->bytes * b->slots), (long long)p->map_bytes[b->part]);
}

int64_t map_address(const Program *p, const Buffer *b)
{
    return (b->part == PART_SHARED ? p->map_bytes[PART_PRIVATE] : 0) + b->offset;
}

bool program_addresses(const Program *p, int64_t *address)
{
    int64_t at = 0, bytes;
    for (uint32_t b = 0; b < p->nbuffer; b++) {
        address[b] = program_is_mapped(p) ? map_address(p, &p->buffer[b]) : at;
        if (__builtin_mul_overflow(p->buffer[b].bytes, (int64_t)p->buffer[b].slots, &bytes) || __builtin_add_overflow(at, bytes, &at))
            return false;
    }
    return true;
}

/* Numbers of buffers in lists by an instruction: where their lives begin, or end. */
typedef struct Lives { uint32_t *head, *next; } Lives;
enum { NO_BUFFER_LEFT = UINT32_MAX };

static Lives lives_new(Arena *a, const Program *p)
{
    Lives l = {NEWN(a, uint32_t, p->ninstr + 1), NEWN(a, uint32_t, p->nbuffer + 1)};
    for (uint32_t i = 0; i <= p->ninstr; i++)
        l.head[i] = NO_BUFFER_LEFT;
    return l;
}

static void lives_add(Lives *l, int32_t at, uint32_t buffer)
{
    l->next[buffer] = l->head[at];
    l->head[at] = buffer;
}

/* A buffer comes to life: nobody may hold its bytes.  The holder of a buffer's
 * bytes is its number + 1. */
static void begin_life(Checker *k, const Program *p, ByteMap *map, uint32_t buffer)
{
    uint32_t other = bytemap_other(map, buffer, NOBODY);
    if (other != NOBODY) {
        const Buffer *a = &p->buffer[other - 1], *b = &p->buffer[buffer];
        broken(k, "buffers '%s' (%lld) and '%s' (%lld) overlap while both live", a->name, (long long)a->offset, b->name,
               (long long)b->offset);
    }
    bytemap_take(map, buffer, buffer + 1);
}

/* What lives always first, then instruction by instruction. */
static void check_overlaps(Checker *k, const Program *p)
{
    Arena *scratch = arena_new("scratch");
    ByteRange *range = NEWN(scratch, ByteRange, p->nbuffer + 1);
    for (uint32_t i = 0; i < p->nbuffer; i++) {
        const Buffer *b = &p->buffer[i];
        range[i] = (ByteRange){map_address(p, b), map_address(p, b) + b->bytes * b->slots};
    }
    ByteMap map = bytemap_new(scratch, range, p->nbuffer);
    Lives first = lives_new(scratch, p), last = lives_new(scratch, p);
    for (uint32_t i = p->nbuffer; i-- > 0;) {
        const Buffer *b = &p->buffer[i];
        if (b->first < 0) {
            begin_life(k, p, &map, i);
            continue;
        }
        lives_add(&first, b->first, i);
        lives_add(&last, b->last, i);
    }
    for (uint32_t at = 0; at < p->ninstr; at++) {
        for (uint32_t b = first.head[at]; b != NO_BUFFER_LEFT; b = first.next[b])
            begin_life(k, p, &map, b);
        for (uint32_t b = last.head[at]; b != NO_BUFFER_LEFT; b = last.next[b])
            bytemap_take(&map, b, NOBODY);
    }
    arena_free(scratch);
}

/* ---- tensors ---- */

static void check_tensor(Checker *k, const Program *p, uint32_t i)
{
    const Tensor *t = &p->tensor[i];
    if (t->buffer.i >= p->nbuffer) {
        broken(k, "tensor %u '%s' lies in no buffer", i, t->path);
        return;
    }
    const Buffer *b = &p->buffer[t->buffer.i];
    if (t->at < 0 || t->at % dtype_bytes(t->dtype) != 0 || t->at > b->bytes || tensor_bytes(t) > b->bytes - t->at)
        broken(k, "tensor %u '%s' lies at %lld + %lld in a buffer of %lld bytes", i, t->path, (long long)t->at,
               (long long)tensor_bytes(t), (long long)b->bytes);
    for (int x = 0; x < t->rank; x++) {
        const AxisPlace *a = &t->axis[x];
        int64_t parts = a->per_micro ? p->microbatches : 1;
        if (a->local < 1 || a->origin < 0 || a->pad < 0 || a->per_micro < 0 ||
            a->origin + (parts - 1) * a->per_micro > a->global + a->pad - a->local)
            broken(k, "tensor %u '%s': axis %d holds %lld of %lld from %lld in %lld parts", i, t->path, x,
                   (long long)a->local, (long long)a->global, (long long)a->origin, (long long)parts);
    }
}

/* ---- instructions ---- */

typedef struct At { Checker *k; const Program *p; const Instr *in; uint32_t i; } At;

/* Extents of a tensor agree with the instruction's factors, axis by axis. */
static void check_edge(At at, const char *what, int n, TensorId id, const uint8_t *factor)
{
    if (id.i >= at.p->ntensor) {
        broken(at.k, "instruction %u (%s): %s %d is no tensor", at.i, at.in->path, what, n);
        return;
    }
    const Tensor *t = &at.p->tensor[id.i];
    for (int x = 0; x < MAX_RANK; x++) {
        bool axis = x < t->rank, labelled = factor[x] != NO_FACTOR;
        if (axis != labelled || (labelled && factor[x] >= at.in->nfactor))
            broken(at.k, "instruction %u (%s): axis %d of %s %d has %s", at.i, at.in->path, x, what, n,
                   axis ? "no factor" : "a factor, but is none");
        else if (axis && t->axis[x].local != at.in->extent[factor[x]])
            broken(at.k, "instruction %u (%s): axis %d of %s %d has %lld elements, expected %lld", at.i, at.in->path,
                   x, what, n, (long long)t->axis[x].local, (long long)at.in->extent[factor[x]]);
    }
    const Buffer *b = &at.p->buffer[t->buffer.i];
    if (program_is_mapped(at.p) && b->first >= 0 && ((int32_t)at.i < b->first || (int32_t)at.i > b->last))
        broken(at.k, "instruction %u (%s) uses buffer '%s' outside its life from %d to %d", at.i, at.in->path,
               b->name, b->first, b->last);
}

static void check_workspace(At at)
{
    int64_t need = instr_workspace(at.in, at.p);
    if (!has_tensor(at.in->workspace)) {
        if (program_is_mapped(at.p) && need > 0)
            broken(at.k, "instruction %u (%s) has no workspace, but needs %lld bytes", at.i, at.in->path,
                   (long long)need);
        return;
    }
    if (at.in->workspace.i >= at.p->ntensor || tensor_bytes(&at.p->tensor[at.in->workspace.i]) < need)
        broken(at.k, "instruction %u (%s) needs a workspace of %lld bytes", at.i, at.in->path, (long long)need);
}

/* The rank is one of the group's, and a cut or joined axis has an element for each. */
static void check_group(At at)
{
    const Program *p = at.p;
    const RankGroup *g = at.in->group < p->ngroup ? &p->group[at.in->group] : NULL;
    bool mine = false;
    for (uint32_t i = 0; g && i < g->n; i++)
        mine |= g->rank[i] == p->rank;
    if (!g || !mine)
        broken(at.k, "instruction %u (%s): rank %u is not in group %u", at.i, at.in->path, p->rank, at.in->group);
    for (int f = 0; g && f < at.in->nfactor; f++)
        if (at.in->role[f] == 'p' && at.in->extent[f] != (int64_t)g->n)
            broken(at.k, "instruction %u (%s): %lld parts for a group of %u ranks", at.i, at.in->path, (long long)at.in->extent[f], g->n);
}

static void check_groups(Checker *k, const Program *p)
{
    if (p->rank >= p->nranks)
        broken(k, "rank %u of %u", p->rank, p->nranks);
    for (uint32_t i = 0; i < p->ngroup; i++)
        for (uint32_t r = 0; r < p->group[i].n; r++)
            if (p->group[i].rank[r] >= p->nranks)
                broken(k, "group %u has rank %u of %u", i, p->group[i].rank[r], p->nranks);
}

static void check_instr(At at)
{
    const Instr *in = at.in;
    const OpSig *sig = op_sig(in->op);
    int before = at.k->broken, nout = 0;
    if (in->narg > op_narg(in->op) || in->nout > sig->nresult + sig->nsaved || in->nfactor > MAX_FACTORS) {
        broken(at.k, "instruction %u (%s): too many arguments, results or factors for %s", at.i, in->path,
               op_info[in->op].name);
        return;
    }
    for (int a = 0; a < op_narg(in->op); a++) {
        const SigFormal *f = op_arg(in->op, a);
        if (a < in->narg && has_tensor(in->arg[a]))
            check_edge(at, "argument", a, in->arg[a], in->arg_factor[a]);
        else if (!f->optional && f->kind != SIG_SCALAR)
            broken(at.k, "instruction %u (%s): argument '%s' is absent", at.i, in->path, f->name);
    }
    for (int o = 0; o < in->nout; o++) {
        nout += has_tensor(in->out[o]);
        if (has_tensor(in->out[o]))
            check_edge(at, "result", o, in->out[o], in->out_factor[o]);
    }
    if (nout == 0 && in->op != OP_send)
        broken(at.k, "instruction %u (%s) has no result", at.i, in->path);
    if (op_info[in->op].flags & OPF_COMM)
        check_group(at);
    if (in->stream >= STREAMS)
        broken(at.k, "instruction %u (%s): no stream %d", at.i, in->path, (int)in->stream);
    if ((in->acc == ACC_NO) != (in->acc_out == 0) || (in->acc != ACC_NO && !(op_info[in->op].flags & OPF_ACCUM)))
        broken(at.k, "instruction %u (%s): %s cannot accumulate like that", at.i, in->path, op_info[in->op].name);
    if (at.k->broken == before)
        check_workspace(at);
}

/* ---- procedures, calls and what the outside reads ---- */

static void check_order(Checker *k, const Program *p)
{
    for (uint32_t i = 0; i < p->nproc; i++)
        if (p->proc[i].kind >= PROCS || p->proc[i].first > p->proc[i].end || p->proc[i].end > p->ninstr)
            broken(k, "procedure %u is [%u, %u) of %u instructions", i, p->proc[i].first, p->proc[i].end, p->ninstr);
    for (uint32_t i = 0; i < p->ncall; i++)
        if (p->call[i].proc >= p->nproc || p->call[i].micro >= (uint64_t)p->microbatches)
            broken(k, "call %u: procedure %u, micro-batch %u", i, p->call[i].proc, p->call[i].micro);
}

/* Only backward goes through the micro-batches of a step once and is done with the last. */
static void check_guards(Checker *k, const Program *p)
{
    for (uint32_t i = 0; i < p->nproc; i++)
        for (uint32_t n = p->proc[i].first; n < p->proc[i].end && p->proc[i].kind != PROC_backward; n++)
            if (p->instr[n].when != WHEN_ALWAYS)
                broken(k, "instruction %u (%s) is of the last micro-batch, but not of backward", n, p->instr[n].path);
}

static void check_waits(Checker *k, const Program *p)
{
    for (uint32_t i = 0; i < p->nwait; i++) {
        const Wait *w = &p->wait[i];
        if (w->instr >= p->ninstr || w->on >= p->ninstr)
            broken(k, "wait %u: instruction %u waits for instruction %u of %u", i, w->instr, w->on, p->ninstr);
        else if (p->instr[w->instr].stream == p->instr[w->on].stream)
            broken(k, "wait %u: instruction %u waits for instruction %u of its own stream", i, w->instr, w->on);
        else if (i > 0 && p->wait[i - 1].instr > w->instr)
            broken(k, "wait %u, of instruction %u, stands after that of instruction %u", i, w->instr, p->wait[i - 1].instr);
    }
}

/* Instructions that use the same bytes follow each other, whatever streams they are on. */
static void check_streams(Checker *k, const Program *p)
{
    Arena *scratch = arena_new("scratch");
    StreamOrder order = stream_order(p, scratch);
    for (uint32_t i = 0; i < order.nmissing; i++) {
        const MissingWait *m = &order.missing[i];
        const Instr *in = &p->instr[m->wait.instr], *on = &p->instr[m->wait.on];
        broken(k, "instruction %u (%s of '%s', stream %s) %s '%s' and does not wait for instruction %u (%s of '%s', stream %s), which %s it", m->wait.instr,
               op_info[in->op].name, in->path, stream_name(in->stream), m->writes ? "writes" : "reads",
               p->buffer[p->tensor[m->tensor.i].buffer.i].name, m->wait.on, op_info[on->op].name, on->path, stream_name(on->stream),
               m->on_writes ? "writes" : "reads");
    }
    if (order.too_long)
        broken(k, "the calls of a step execute more instructions than are checked");
    arena_free(scratch);
}

static void check_named(Checker *k, const Program *p, const char *what, const char *name, TensorId t, bool needed)
{
    if (has_tensor(t) ? t.i >= p->ntensor : needed)
        broken(k, "%s of '%s' is no tensor", what, name);
}

/* Moments of one part of several equal ones, of an order that the weight lies in. */
static void check_shard(Checker *k, const Program *p, const State *s)
{
    const Shard *h = &s->shard;
    int64_t part = h->end - h->first;
    check_named(k, p, "the shard's master", s->path, h->master, false);
    check_named(k, p, "shard moment 0", s->path, h->moment[0], false);
    check_named(k, p, "shard moment 1", s->path, h->moment[1], false);
    if (!s->sharded || k->broken)
        return;
    if (has_tensor(s->master) || has_tensor(s->moment[0]) || has_tensor(s->moment[1]))
        broken(k, "state '%s' has a master or moments of all its elements and of a part", s->path);
    if (h->at < 0 || h->first < 0 || part < 1 || h->first % part != 0)
        broken(k, "state '%s': elements %lld..%lld are no part of equal ones", s->path, (long long)h->first, (long long)h->end);
    if (has_tensor(h->master) && tensor_elements(&p->tensor[h->master.i]) != part)
        broken(k, "state '%s': its master has not the %lld elements of its part", s->path, (long long)part);
    for (int m = 0; m < 2; m++)
        if (has_tensor(h->moment[m]) && tensor_elements(&p->tensor[h->moment[m].i]) != part)
            broken(k, "state '%s': moment %d has not the %lld elements of its part", s->path, m, (long long)part);
}

/* The tensor is a part of what the input is. */
static void check_input(Checker *k, const Program *p, const Input *in)
{
    check_named(k, p, "the tensor", in->name, in->tensor, false);
    if (k->broken || !has_tensor(in->tensor))
        return;
    const Tensor *t = &p->tensor[in->tensor.i];
    bool alike = t->dtype == (in->dtype == DT_bool ? DT_u8 : in->dtype) && t->rank == in->rank;
    for (int x = 0; alike && x < t->rank; x++)
        alike = t->axis[x].global == in->extent[x];
    if (!alike)
        broken(k, "input '%s' and its tensor have different types or extents", in->name);
}

static void check_outside(Checker *k, const Program *p)
{
    check_named(k, p, "the loss", "the step", p->loss, false);
    check_named(k, p, "the norm", "the step", p->norm, false);
    for (uint32_t i = 0; i < p->ninput; i++)
        check_input(k, p, &p->input[i]);
    for (uint32_t i = 0; i < p->noutput; i++)
        check_named(k, p, "the tensor", p->output[i].name, p->output[i].tensor, false);
    for (uint32_t i = 0; i < p->nterm; i++)
        check_named(k, p, "the loss", p->term[i].name, p->term[i].tensor, false);
    for (uint32_t i = 0; i < p->nstate; i++) {
        const State *s = &p->state[i];
        check_named(k, p, "the weight", s->path, s->weight, true);
        check_named(k, p, "the master", s->path, s->master, false);
        check_named(k, p, "the gradient", s->path, s->gradient, false);
        check_named(k, p, "moment 0", s->path, s->moment[0], false);
        check_named(k, p, "moment 1", s->path, s->moment[1], false);
        check_shard(k, p, s);
        if (k->broken)
            continue;
        if (has_tensor(s->master) && tensor_elements(&p->tensor[s->weight.i]) != tensor_elements(&p->tensor[s->master.i]))
            broken(k, "weight '%s' and its master copy have different extents", s->path);
        if (!has_tensor(s->gradient))
            continue;
        if (tensor_elements(&p->tensor[s->weight.i]) != tensor_elements(&p->tensor[s->gradient.i]))
            broken(k, "weight '%s' and its gradient have different extents", s->path);
    }
}

int program_check(const Program *p, FILE *err)
{
    Checker k = {err, "program", 0};
    check_groups(&k, p);
    for (uint32_t i = 0; i < p->nbuffer; i++)
        check_buffer(&k, p, &p->buffer[i]);
    for (uint32_t i = 0; i < p->ntensor; i++)
        check_tensor(&k, p, i);
    if (k.broken)
        return k.broken;
    if (program_is_mapped(p))
        check_overlaps(&k, p);
    for (uint32_t i = 0; i < p->ninstr; i++)
        check_instr((At){&k, p, &p->instr[i], i});
    check_order(&k, p);
    if (!k.broken) {
        check_guards(&k, p);
        check_waits(&k, p);
    }
    check_outside(&k, p);
    if (!k.broken)
        program_replay(p, &k);
    if (!k.broken)
        check_streams(&k, p);
    return k.broken;
}
