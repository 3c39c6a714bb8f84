/* Sums of gradients over ranks, and the update procedure.  What is done to a bucket
 * depends on how its states lie:
 *
 *   whole      gradients all_reduce; every rank steps
 *   shared out gradients reduce_scatter over the shard axes, what is got all_reduce
 *              over the others; every rank steps its part; weights all_gather
 *   at a server  gradients reduce_to the first rank of all that hold summands; that
 *              one steps; weights broadcast
 *
 * Copies of a weight on several stages are summed before anything is scattered.  Where
 * there is a master copy, that is stepped, and the weights are rounded from it in the
 * same pass; what goes over ranks is the rounded one.
 *
 * A bucket is summed as soon as the last micro-batch's backward has completed it, while
 * the rest of backward goes on.  Copies of a weight on several stages wait for update:
 * a stage that met others in its last backward would hold up the pipeline. */
#include "codegen/bucket.h"


/* ---- instructions ---- */

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

/* What this rank has of a flat tensor of the bucket. */
static TensorId mine(Program *p, const Bucket *b, TensorId all)
{
    if (!b->kind.shard)
        return all;
    Tensor t = p->tensor[all.i];
    t.at += b->first * dtype_bytes(t.dtype);
    t.axis[0] = (AxisPlace){.local = b->part, .global = b->elements, .origin = b->first};
    return program_add_tensor(p, t);
}

static Instr sum_squares(Program *p, const Bucket *b, bool first)
{
    Instr in = flat_instr(OP_sum_squares, p->tensor[b->gradients.i].path, b->part);
    give(&in, mine(p, b, b->gradients));
    in.out[in.nout++] = p->norm;
    in.acc = first ? ACC_NO : ACC_YES;
    in.acc_out = first ? 0 : 1;
    return in;
}

static Instr step(Program *p, const Bucket *b)
{
    OpKind op = p->optimizer.kind == OPTIMIZER_ADAMW ? OP_adamw : OP_sgd;
    Instr in = flat_instr(op, p->tensor[b->weights.i].path, b->part);
    int moments = op == OP_adamw ? 2 : 1;
    TensorId weights = mine(p, b, b->weights), stepped = has_tensor(b->master) ? b->master : weights;
    give(&in, stepped);
    give(&in, mine(p, b, b->gradients));
    for (int k = 0; k < moments; k++)
        give(&in, b->moment[k]);
    in.arg[in.narg++] = p->norm;
    update(&in, stepped);
    for (uint32_t k = 0; k < b->nmoment; k++)
        update(&in, b->moment[k]);
    if (has_tensor(b->master)) {
        in.nout = (uint8_t)(1 + moments);
        update(&in, weights);
    }
    *instr_set(&in, "decays") = ATTR_B(b->kind.decays);
    return in;
}

/* Instructions that were emitted at the end of the program, `from` on those that have no place yet. */
typedef struct Taken { Insertion *ins; uint32_t n, from; } Taken;

static void take(Buckets *bs, Taken *t, uint32_t before, ProcKind proc)
{
    Program *p = bs->p;
    for (; t->from < p->ninstr; t->from++) {
        Instr *in = &p->instr[t->from];
        in->when = proc == PROC_backward ? WHEN_LAST : WHEN_ALWAYS;
        PUSH(bs->scratch, t->ins, t->n, ((Insertion){before, *in, proc}));
    }
}

/* ---- sums ---- */

/* Over these axes, and over the stages with a copy: a bucket has other numbers there, so
 * those speak of its weight. */
static void over(Buckets *bs, const Bucket *b, OpKind op, GridSet set, StageSet stages, TensorId src, TensorId dst)
{
    if (stages)
        collective_over(bs->lw, op, set, stages, bs->p->state[b->state[0]].path, src, dst);
    else if (set)
        collective(bs->lw, op, set, bs->p->tensor[src.i].path, src, dst);
}

static void reduce(Buckets *bs, const Bucket *b)
{
    const BucketKind *k = &b->kind;
    TensorId all = b->gradients, part = mine(bs->p, b, all);
    if (bs->lw->plan->server) {
        over(bs, b, OP_reduce_to, k->reduce, k->tied, all, all);
        return;
    }
    GridSet rest = k->reduce & (GridSet)~k->shard;
    if (k->tied)
        over(bs, b, OP_all_reduce, rest, k->tied, all, all);
    over(bs, b, OP_reduce_scatter, k->shard, 0, all, part);
    if (!k->tied)
        over(bs, b, OP_all_reduce, rest, 0, part, part);
}

/* Of equal copies one is counted. */
static bool counts(const Buckets *bs, const Bucket *b)
{
    const Grid *g = &bs->lw->layout.grid;
    if (b->kind.tied && (uint32_t)__builtin_ctzll(b->kind.tied) != bs->lw->stage)
        return false;
    for (uint32_t d = 0; d < g->n; d++)
        if (!((b->kind.split | b->kind.shard) >> d & 1) && grid_coordinate(g, bs->lw->place, d) > 0)
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

/* ---- steps ---- */

/* The weights go to the ranks that did not make them. */
static void spread(Buckets *bs, const Bucket *b)
{
    const BucketKind *k = &b->kind;
    if (bs->lw->plan->server)
        over(bs, b, OP_broadcast, k->reduce, k->tied, b->weights, b->weights);
    else
        over(bs, b, OP_all_gather, k->shard, 0, mine(bs->p, b, b->weights), b->weights);
}

static void step_all(Buckets *bs)
{
    for (uint32_t i = 0; i < bs->nbucket; i++) {
        const Bucket *b = &bs->bucket[i];
        if (b->updated)
            program_add_instr(bs->p, step(bs->p, b));
        spread(bs, b);
    }
}

/* Where the procedures of micro-batches end: a stage without weights may have no backward. */
static uint32_t end_of_step(const Program *p)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < p->nproc && p->proc[i].kind < PROC_update; i++)
        end = p->proc[i].end;
    return end;
}

void add_update(Buckets *bs)
{
    Program *p = bs->p;
    Tensor norm = {.path = "norm", .dtype = DT_f64, .role = ROLE_STEP};
    p->norm = code_own(p, norm, CLASS_scalars);
    uint32_t first = p->ninstr, before = end_of_step(p);
    Taken t = {.from = first};
    for (uint32_t i = 0; i < bs->nbucket; i++) {     /* those that are tied are last */
        const Bucket *b = &bs->bucket[i];
        reduce(bs, b);
        if (!b->kind.tied)
            take(bs, &t, b->ready + 1, PROC_backward);
    }
    norm_of_all(bs);
    if (p->optimizer.kind != OPTIMIZER_NONE)
        step_all(bs);
    take(bs, &t, before, PROC_update);
    p->ninstr = first;                               /* all of them go where they belong */
    code_insert(p, bs->scratch, t.ins, t.n);
}
