/* Buckets: the states lie flat, and the optimizer is one pass over each bucket.
 *
 * Trained weights go into buckets in the order in which backward finishes their
 * gradients; the tensors of a bucket share type, decay, the ranks their gradients are
 * summed over, and the grid axes they are split by.  A bucket has a buffer
 * of weights, one of gradients and one per moment, laid out alike: each tensor
 * padded to PAD_ELEMENTS.  Padding is zero for ever: the map starts as zeros, no
 * kernel writes between tensors, and an optimizer step on zeros leaves zeros.
 *
 * Where weights have fewer bits than `precision.master`, a copy in that type is what
 * the optimizer steps; moments never have fewer bits than f32.
 *
 * Where the plan shards the optimizer, the bucket is padded to equal parts, and a rank
 * has master and moments for one of them.  Where a server updates, only the server has any. */
#include "codegen/bucket.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

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

/* The limit is one of gradients, which are what ranks sum. */
static bool fits(const Bucket *b, const Tensor *w, int64_t limit)
{
    return (b->elements + padded(w)) * dtype_bytes(b->kind.grads) <= limit;
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
    return (BucketKind){.dtype = bs->p->tensor[s->weight.i].dtype, .grads = bs->p->tensor[s->gradient.i].dtype, .decays = s->decays, .reduce = l->reduce[weight], .shard = l->shard[weight],
                        .split = all & (GridSet)~whole, .tied = used & (used - 1) ? used : 0};
}

static bool same_kind(BucketKind a, BucketKind b)
{
    return a.dtype == b.dtype && a.grads == b.grads && a.decays == b.decays && a.reduce == b.reduce && a.shard == b.shard && a.split == b.split &&
           !a.tied && !b.tied;
}

/* The bucket that weight i goes into: the open one of its kind, unless it is full.
 * A weight with copies on other stages has one of its own, as there others come
 * before it.  A tensor above the limit alone gets one of its own and leaves the open one open. */
static Bucket *bucket_for(Buckets *bs, uint32_t i, int64_t limit)
{
    const Tensor *w = &bs->p->tensor[bs->p->state[i].weight.i];
    BucketKind kind = kind_of(bs, i);
    bool alone = kind.tied || padded(w) * dtype_bytes(kind.grads) > limit;
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
        b->ready = r[i].at;
    }
}

/* ---- order ---- */

static int by_weight(const void *x, const void *y)
{
    const Bucket *a = x, *b = y;
    return (a->state[0] > b->state[0]) - (a->state[0] < b->state[0]);
}

/* Copies of a weight come last, in the order of the weights: that is the same on all
 * of their stages, which meet in that order.  The others stay in order of readiness. */
static void order(Buckets *bs)
{
    Bucket *tied = NEWN(bs->scratch, Bucket, bs->nbucket + 1);
    uint32_t n = 0, ntied = 0;
    for (uint32_t i = 0; i < bs->nbucket; i++)
        if (bs->bucket[i].kind.tied)
            tied[ntied++] = bs->bucket[i];
        else
            bs->bucket[n++] = bs->bucket[i];
    qsort(tied, ntied, sizeof *tied, by_weight);
    for (uint32_t i = 0; i < ntied; i++)
        bs->bucket[n + i] = tied[i];
}

/* ---- parts ---- */

/* Whether this rank's coordinate is 0 wherever summands of the gradient are. */
static bool serves(const Lowering *lw, const BucketKind *k)
{
    for (uint32_t d = 0; d < lw->layout.grid.n; d++)
        if (k->reduce >> d & 1 && grid_coordinate(&lw->layout.grid, lw->place, d) > 0)
            return false;
    return !k->tied || (uint32_t)__builtin_ctzll(k->tied) == lw->stage;
}

/* The bucket is padded to a part for each rank of the shard axes; the parts are in the
 * order of those ranks. */
static void cut(const Buckets *bs, Bucket *b)
{
    const Lowering *lw = bs->lw;
    RankGroup g = grid_group(bs->scratch, &lw->layout.grid, lw->place, b->kind.shard);
    assert(!(lw->plan->server && b->kind.shard) && "the planner refuses one of the two");
    b->elements = align_up(b->elements, (int64_t)g.n * PAD_ELEMENTS);
    b->part = b->elements / g.n;
    for (uint32_t i = 0; g.rank[i] != lw->place; i++)
        b->first += b->part;
    b->updated = !lw->plan->server || serves(lw, &b->kind);
    b->nmoment = b->updated ? (uint32_t)optimizer_moments(&bs->p->optimizer) : 0;
    b->master = b->moment[0] = b->moment[1] = NO_TENSOR;
}

/* ---- making the buffers ---- */

static TensorId flat(Program *p, const char *name, BufferClass cls, DType dtype, AxisPlace axis, ValueRole role)
{
    Tensor t = {.path = name, .dtype = dtype, .rank = 1, .axis = {axis}, .role = role};
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

/* The weight's shape on a flat tensor, from element `at` of it on. */
static TensorId like_weight(Program *p, TensorId weight, TensorId flat, int64_t at)
{
    Tensor t = p->tensor[weight.i];
    t.dtype = p->tensor[flat.i].dtype;
    t.buffer = buffer_of(p, flat);
    t.at = at * dtype_bytes(t.dtype);
    return program_add_tensor(p, t);
}

/* `at`: element of the bucket's order where the state begins. */
static void give_states(Program *p, const Bucket *b, State *s, int64_t at)
{
    if (b->kind.shard) {
        s->sharded = true;
        s->shard = (Shard){b->master, {b->moment[0], b->moment[1]}, at, b->first, b->first + b->part};
        return;
    }
    if (has_tensor(b->master))
        s->master = like_weight(p, s->weight, b->master, at);
    for (uint32_t k = 0; k < b->nmoment; k++)
        s->moment[k] = like_weight(p, s->weight, b->moment[k], at);
}

static void lay_out_states(Program *p, Bucket *b, const char *name)
{
    AxisPlace part = {.local = b->part, .global = b->elements, .origin = b->first};
    DType stepped = b->kind.dtype;
    if (b->updated && state_is_rounded(p, &p->state[b->state[0]])) {
        stepped = p->precision.master;
        b->master = flat(p, arena_printf(p->arena, "%s.master", name), CLASS_master, stepped, part, ROLE_STEP);
    }
    DType moments = dtype_bytes(stepped) < dtype_bytes(DT_f32) ? DT_f32 : stepped;
    for (uint32_t k = 0; k < b->nmoment; k++)
        b->moment[k] = flat(p, arena_printf(p->arena, "%s.moments%u", name, k), CLASS_moments, moments, part, ROLE_STEP);
}

static void lay_out(Program *p, Bucket *b, uint32_t index, Move *of)
{
    const char *name = arena_printf(p->arena, "bucket[%u]", index);
    AxisPlace all = {.local = b->elements, .global = b->elements};
    b->weights = flat(p, arena_printf(p->arena, "%s.weights", name), CLASS_weights, b->kind.dtype, all, ROLE_WEIGHT);
    b->gradients = flat(p, arena_printf(p->arena, "%s.gradients", name), CLASS_gradients, b->kind.grads, all, ROLE_WEIGHT_GRADIENT);
    lay_out_states(p, b, name);
    int64_t at = 0;
    for (uint32_t i = 0; i < b->nstate; i++) {
        State *s = &p->state[b->state[i]];
        of[buffer_of(p, s->weight).i] = (Move){buffer_of(p, b->weights), at * dtype_bytes(b->kind.dtype), true};
        of[buffer_of(p, s->gradient).i] = (Move){buffer_of(p, b->gradients), at * dtype_bytes(b->kind.grads), true};
        give_states(p, b, s, at);
        at += padded(&p->tensor[s->weight.i]);
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

/* A stage without a trained weight sums the norm with those that have one. */
static bool meets_others(const Lowering *lw)
{
    bool trained = false;
    for (uint32_t w = 0; w < lw->g->nweight; w++)
        trained |= has_value(lw->g->weight[w].gradient);
    return trained && lw->p->nranks > 1;
}

void bucket(Lowering *lw)
{
    Program *p = lw->p;
    Arena *scratch = lw->scratch;
    Buckets bs = {.lw = lw, .p = p, .scratch = scratch};
    uint32_t nbuffer = p->nbuffer;                   /* what moves is on those of before */
    Move *of = NEWN(scratch, Move, nbuffer + 1);
    fill(&bs, lw->plan->bucket);
    order(&bs);
    for (uint32_t i = 0; i < bs.nbucket; i++) {
        cut(&bs, &bs.bucket[i]);
        lay_out(p, &bs.bucket[i], i, of);
    }
    lay_out_frozen(p, of);
    move_tensors(p, of, nbuffer);
    if (bs.nbucket > 0 || meets_others(lw))
        add_update(&bs);
    code_sweep(p, scratch);
}
