/* Buckets: the states lie flat, and the optimizer is one pass over each bucket.
 *
 * Trained weights go into buckets in the order in which backward finishes their
 * gradients; the tensors of a bucket share type, decay, the ranks their gradients are
 * summed over, and the grid axes they are split by.  A bucket has a buffer
 * of weights, one of gradients and one per moment, laid out alike: each tensor
 * padded to PAD_ELEMENTS.  Padding is zero for ever: the map starts as zeros, no
 * kernel writes between tensors, and an optimizer step on zeros leaves zeros. */
#include "codegen/pass.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* What the tensors of a bucket share. */
typedef struct BucketKind {
    DType    dtype;
    bool     decays;
    GridSet  reduce, split;
    StageSet tied;                    /* stages with a copy of the weight, when there are several */
} BucketKind;

typedef struct Bucket {
    BucketKind kind;
    bool     full;
    int64_t  elements;                /* padded */
    uint32_t *state, nstate;          /* members, in order */
    uint32_t nmoment;
    TensorId weights, gradients, moment[2];          /* flat, rank 1 */
} Bucket;

typedef struct Buckets {
    Lowering *lw;
    Program *p;
    Arena   *scratch;
    Bucket  *bucket;
    uint32_t nbucket;
} Buckets;

/* ---- which tensor goes where ---- */

typedef struct Ready { uint32_t state, at; } Ready;  /* at: the last instruction that writes its gradient */

static int by_readiness(const void *x, const void *y)
{
    const Ready *a = x, *b = y;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->state > b->state) - (a->state < b->state);
}

/* Trained weights in order of readiness, then of declaration. */
static Ready *readiness(const Program *p, Arena *scratch, uint32_t *n)
{
    uint32_t *last = NEWN(scratch, uint32_t, p->nbuffer + 1);
    for (uint32_t i = 0; i < p->ninstr; i++)
        for (int k = 0; k < p->instr[i].nout; k++)
            if (has_tensor(p->instr[i].out[k]))
                last[buffer_of(p, p->instr[i].out[k]).i] = i;
    Ready *r = NEWN(scratch, Ready, p->nstate + 1);
    *n = 0;
    for (uint32_t s = 0; s < p->nstate; s++)
        if (has_tensor(p->state[s].gradient))
            r[(*n)++] = (Ready){s, last[buffer_of(p, p->state[s].gradient).i]};
    qsort(r, *n, sizeof *r, by_readiness);
    return r;
}

static int64_t padded(const Tensor *t)
{
    return align_up(tensor_elements(t), PAD_ELEMENTS);
}

static bool fits(const Bucket *b, const Tensor *w, int64_t limit)
{
    return (b->elements + padded(w)) * dtype_bytes(w->dtype) <= limit;
}

static BucketKind kind_of(const Buckets *bs, uint32_t i)
{
    const State *s = &bs->p->state[i];
    const Layout *l = &bs->lw->layout;
    uint32_t weight = bs->lw->weight_of[i];
    ValueId v = l->g->weight[weight].value;
    Placement at = l->value[v.i];
    GridSet whole = placement_on(&l->grid, at, PLACE_WHOLE), all = (GridSet)((1u << l->grid.n) - 1);
    StageSet used = l->used[v.i];
    return (BucketKind){bs->p->tensor[s->weight.i].dtype, s->decays, l->reduce[weight], all & (GridSet)~whole, used & (used - 1) ? used : 0};
}

static bool same_kind(BucketKind a, BucketKind b)
{
    return a.dtype == b.dtype && a.decays == b.decays && a.reduce == b.reduce && a.split == b.split && !a.tied && !b.tied;
}

/* The bucket that weight i goes into: the open one of its kind, unless it is full.
 * A weight with copies on other stages has one of its own, as there others come
 * before it.  A tensor above the limit alone gets one of its own and leaves the open one open. */
static Bucket *bucket_for(Buckets *bs, uint32_t i, int64_t limit)
{
    const Tensor *w = &bs->p->tensor[bs->p->state[i].weight.i];
    BucketKind kind = kind_of(bs, i);
    bool alone = kind.tied || padded(w) * dtype_bytes(w->dtype) > limit;
    for (uint32_t k = bs->nbucket; !alone && k-- > 0;) {
        Bucket *b = &bs->bucket[k];
        if (b->full || !same_kind(b->kind, kind))
            continue;
        if (fits(b, w, limit))
            return b;
        b->full = true;
    }
    PUSH(bs->scratch, bs->bucket, bs->nbucket, ((Bucket){.kind = kind, .full = alone}));
    return &bs->bucket[bs->nbucket - 1];
}

static void fill(Buckets *bs, int64_t limit)
{
    uint32_t n;
    Ready *r = readiness(bs->p, bs->scratch, &n);
    for (uint32_t i = 0; i < n; i++) {
        const State *s = &bs->p->state[r[i].state];
        Bucket *b = bucket_for(bs, r[i].state, limit);
        PUSH(bs->scratch, b->state, b->nstate, r[i].state);
        b->elements += padded(&bs->p->tensor[s->weight.i]);
    }
}

/* ---- making the buffers ---- */

static TensorId flat(Program *p, const char *name, BufferClass cls, DType dtype, int64_t elements, ValueRole role)
{
    Tensor t = {.path = name, .dtype = dtype, .rank = 1, .axis = {{.local = elements, .global = elements}}, .role = role};
    return code_own(p, t, cls);
}

/* Where what lies on a buffer is to lie: `at` bytes further on in `into`.  All moves
 * are noted first and made in one walk over the tensors. */
typedef struct Move { BufferId into; int64_t at; bool moves; } Move;

static void move_tensors(Program *p, const Move *of, uint32_t nbuffer)
{
    for (uint32_t t = 0; t < p->ntensor; t++) {
        Tensor *x = &p->tensor[t];
        if (x->buffer.i < nbuffer && of[x->buffer.i].moves) {
            x->at += of[x->buffer.i].at;
            x->buffer = of[x->buffer.i].into;
        }
    }
}

static TensorId moment_of(Program *p, TensorId weight, TensorId moments, int64_t at)
{
    Tensor t = p->tensor[weight.i];
    t.buffer = buffer_of(p, moments);
    t.at = at;
    return program_add_tensor(p, t);
}

static void lay_out(Program *p, Bucket *b, uint32_t index, Move *of)
{
    const char *name = arena_printf(p->arena, "bucket[%u]", index);
    b->weights = flat(p, arena_printf(p->arena, "%s.weights", name), CLASS_weights, b->kind.dtype, b->elements, ROLE_WEIGHT);
    b->gradients = flat(p, arena_printf(p->arena, "%s.gradients", name), CLASS_gradients, b->kind.dtype, b->elements, ROLE_WEIGHT_GRADIENT);
    for (uint32_t k = 0; k < b->nmoment; k++)
        b->moment[k] = flat(p, arena_printf(p->arena, "%s.moments%u", name, k), CLASS_moments, b->kind.dtype, b->elements, ROLE_STEP);
    int64_t at = 0;
    for (uint32_t i = 0; i < b->nstate; i++) {
        State *s = &p->state[b->state[i]];
        of[buffer_of(p, s->weight).i] = (Move){buffer_of(p, b->weights), at, true};
        of[buffer_of(p, s->gradient).i] = (Move){buffer_of(p, b->gradients), at, true};
        for (uint32_t k = 0; k < b->nmoment; k++)
            s->moment[k] = moment_of(p, s->weight, b->moment[k], at);
        at += padded(&p->tensor[s->weight.i]) * dtype_bytes(b->kind.dtype);
    }
}

/* Weights that no optimizer touches: frozen, unused, or of an inference model. */
static void lay_out_frozen(Program *p, Move *of)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < p->nstate; i++)
        if (!has_tensor(p->state[i].gradient))
            bytes += padded(&p->tensor[p->state[i].weight.i]) * dtype_bytes(p->tensor[p->state[i].weight.i].dtype);
    if (bytes == 0)
        return;
    const char *name = has_tensor(p->loss) ? "frozen.weights" : "weights";
    BufferId b = program_add_buffer(p, (Buffer){.name = name, .cls = CLASS_weights, .bytes = align_up(bytes, BUFFER_ALIGN), .slots = 1});
    int64_t at = 0;
    for (uint32_t i = 0; i < p->nstate; i++) {
        const State *s = &p->state[i];
        if (has_tensor(s->gradient))
            continue;
        const Tensor *w = &p->tensor[s->weight.i];
        of[w->buffer.i] = (Move){b, at, true};
        at += padded(w) * dtype_bytes(w->dtype);
    }
}

/* ---- the update procedure ---- */

static Instr flat_instr(OpKind op, const char *path, int64_t elements)
{
    Instr in = instr_new(op, path);
    in.nfactor = 1;
    in.extent[0] = elements;
    in.role[0] = '.';
    return in;
}

static void give(Instr *in, TensorId t)
{
    in->arg_factor[in->narg][0] = 0;
    in->arg[in->narg++] = t;
}

/* Read and written in place. */
static void update(Instr *in, TensorId t)
{
    in->out_factor[in->nout][0] = 0;
    in->out[in->nout++] = t;
}

static Instr sum_squares(const Program *p, const Bucket *b, bool first)
{
    Instr in = flat_instr(OP_sum_squares, p->tensor[b->gradients.i].path, b->elements);
    give(&in, b->gradients);
    in.out[in.nout++] = p->norm;
    in.acc = first ? ACC_NO : ACC_YES;
    in.acc_out = first ? 0 : 1;
    return in;
}

static Instr step(const Program *p, const Bucket *b)
{
    OpKind op = p->optimizer.kind == OPTIMIZER_ADAMW ? OP_adamw : OP_sgd;
    Instr in = flat_instr(op, p->tensor[b->weights.i].path, b->elements);
    int moments = op == OP_adamw ? 2 : 1;
    give(&in, b->weights);
    give(&in, b->gradients);
    for (int k = 0; k < moments; k++)
        give(&in, b->moment[k]);
    in.arg[in.narg++] = p->norm;
    update(&in, b->weights);
    for (uint32_t k = 0; k < b->nmoment; k++)
        update(&in, b->moment[k]);
    *instr_set(&in, "decays") = ATTR_B(b->kind.decays);
    return in;
}

/* Instructions for the update procedure, emitted at the end of the program and taken
 * from there. */
static void take(Buckets *bs, Insertion **ins, uint32_t *n, uint32_t before, uint32_t from)
{
    Program *p = bs->p;
    for (uint32_t i = from; i < p->ninstr; i++)
        PUSH(bs->scratch, *ins, *n, ((Insertion){before, p->instr[i], PROC_update}));
    p->ninstr = from;
}

/* The gradients of a bucket are summed where ranks hold summands.  Copies of a weight
 * come last, in the order of the weights: that is the same on all of their stages. */
static void reduce_buckets(Buckets *bs)
{
    for (uint32_t i = 0; i < bs->nbucket; i++) {
        const Bucket *b = &bs->bucket[i];
        if (b->kind.reduce && !b->kind.tied)
            collective(bs->lw, OP_all_reduce, b->kind.reduce, bs->p->tensor[b->gradients.i].path, b->gradients, b->gradients);
    }
    for (uint32_t s = 0; s < bs->p->nstate; s++)
        for (uint32_t i = 0; i < bs->nbucket; i++) {
            const Bucket *b = &bs->bucket[i];
            if (b->kind.tied && b->state[0] == s)
                collective_over(bs->lw, OP_all_reduce, b->kind.reduce, b->kind.tied, bs->p->tensor[b->gradients.i].path, b->gradients, b->gradients);
        }
}

/* Of equal copies one is counted. */
static bool counts(const Buckets *bs, const Bucket *b)
{
    const Grid *g = &bs->lw->layout.grid;
    if (b->kind.tied && (uint32_t)__builtin_ctzll(b->kind.tied) != bs->lw->stage)
        return false;
    for (uint32_t d = 0; d < g->n; d++)
        if (!(b->kind.split >> d & 1) && grid_coordinate(g, bs->lw->place, d) > 0)
            return false;
    return true;
}

static void norm_of_all(Buckets *bs)
{
    Program *p = bs->p;
    bool first = true;
    for (uint32_t i = 0; i < bs->nbucket; i++) {
        if (!counts(bs, &bs->bucket[i]))
            continue;
        program_add_instr(p, sum_squares(p, &bs->bucket[i], first));
        first = false;
    }
    if (p->nranks == 1)
        return;
    if (first) {
        Instr zero = instr_new(OP_constant, p->tensor[p->norm.i].path);
        zero.nout = 1;
        zero.out[0] = p->norm;
        program_add_instr(p, zero);
    }
    collective(bs->lw, OP_all_reduce, ALL_RANKS, p->tensor[p->norm.i].path, p->norm, p->norm);
}

static void add_update(Buckets *bs)
{
    Program *p = bs->p;
    Tensor norm = {.path = "norm", .dtype = DT_f64, .role = ROLE_STEP};
    p->norm = code_own(p, norm, CLASS_scalars);
    const Proc *back = proc_find(p, PROC_backward);
    assert(back && "gradients are made in backward");
    Insertion *ins = NULL;
    uint32_t n = 0;
    uint32_t from = p->ninstr, before = back->end;
    reduce_buckets(bs);
    norm_of_all(bs);
    for (uint32_t i = 0; i < bs->nbucket && p->optimizer.kind != OPTIMIZER_NONE; i++)
        program_add_instr(p, step(p, &bs->bucket[i]));
    take(bs, &ins, &n, before, from);
    code_insert(p, bs->scratch, ins, n);
}

static uint32_t moments(const Optimizer *o)
{
    return o->kind == OPTIMIZER_ADAMW ? 2 : o->kind == OPTIMIZER_SGD && o->momentum != 0 ? 1 : 0;
}

void bucket(Lowering *lw)
{
    Program *p = lw->p;
    Arena *scratch = lw->scratch;
    Buckets bs = {.lw = lw, .p = p, .scratch = scratch};
    uint32_t nbuffer = p->nbuffer;                   /* what moves is on those of before */
    Move *of = NEWN(scratch, Move, nbuffer + 1);
    fill(&bs, lw->plan->bucket);
    for (uint32_t i = 0; i < bs.nbucket; i++) {
        Bucket *b = &bs.bucket[i];
        b->nmoment = moments(&p->optimizer);
        b->moment[0] = b->moment[1] = NO_TENSOR;
        lay_out(p, b, i, of);
    }
    lay_out_frozen(p, of);
    move_tensors(p, of, nbuffer);
    if (bs.nbucket > 0)
        add_update(&bs);
    code_sweep(p, scratch);
}
