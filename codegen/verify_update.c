/* What must hold of one rank's sums of gradients and its update procedure: no summand of a gradient counts twice;
 * nothing reads what is not summed; every weight is stepped, by this rank or by one that
 * it comes from; and where states are shared out, each rank steps its part, and the parts
 * are all there is.  That the sums are over all who hold summands is seen in the programs
 * of all ranks (verify_weights.c). */
#include "codegen/pass.h"
#include "ir/check.h"

/* ---- bytes ---- */

typedef struct Bytes { uint32_t buffer; int64_t from, to; } Bytes;

static Bytes bytes_of(const Program *p, TensorId t)
{
    const Tensor *x = &p->tensor[t.i];
    return (Bytes){x->buffer.i, x->at, x->at + tensor_bytes(x)};
}

static bool equal(Bytes a, Bytes b)
{
    return a.buffer == b.buffer && a.from == b.from && a.to == b.to;
}

static bool inside(Bytes a, Bytes b)
{
    return a.buffer == b.buffer && a.from >= b.from && a.to <= b.to;
}

/* ---- sums ---- */

/* A bucket's gradients: what this rank has of the sum so far, the groups that it is
 * over, and the first instruction that has read it; NOTHING: none has. */
typedef struct Sum {
    Bytes     have;
    uint32_t *group, ngroup;
    uint32_t  read;
} Sum;

typedef struct Update {
    Checker       *k;
    const Program *p;
    Sum           *sum;               /* per buffer */
    Arena         *scratch;
} Update;

static bool is_gradient(const Program *p, TensorId t)
{
    return has_tensor(t) && p->buffer[buffer_of(p, t).i].cls == CLASS_gradients;
}

/* Whether another rank than this is in both groups: its summand would count twice. */
static bool share_others(const Program *p, const RankGroup *a, const RankGroup *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t j = 0; j < b->n; j++)
            if (a->rank[i] == b->rank[j] && a->rank[i] != p->rank)
                return true;
    return false;
}

static void sum_over(Update *u, uint32_t i)
{
    const Program *p = u->p;
    const Instr *in = &p->instr[i];
    const RankGroup *g = &p->group[in->group];
    Sum *s = &u->sum[buffer_of(p, in->out[0]).i];
    for (uint32_t k = 0; k < s->ngroup; k++)
        if (share_others(p, &p->group[s->group[k]], g)) {
            broken(u->k, "'%s' is summed over ranks twice, again by instruction %u", in->path, i);
            break;
        }
    if (s->read != NOTHING)
        broken(u->k, "instruction %u sums '%s' over ranks after instruction %u has read it", i, in->path, s->read);
    if (!equal(bytes_of(p, in->arg[0]), s->have))
        broken(u->k, "instruction %u sums other bytes of '%s' over ranks than are to be summed", i, in->path);
    bool gets = in->op != OP_reduce_to || g->rank[0] == p->rank;
    s->have = bytes_of(p, in->out[0]);
    s->have.to = gets ? s->have.to : s->have.from;
    PUSH(u->scratch, s->group, s->ngroup, in->group);
}

static void check_reads(Update *u, uint32_t i)
{
    const Program *p = u->p;
    for (int a = 0; a < p->instr[i].narg; a++) {
        TensorId t = p->instr[i].arg[a];
        if (!is_gradient(p, t))
            continue;
        Sum *s = &u->sum[buffer_of(p, t).i];
        s->read = s->read == NOTHING ? i : s->read;
        if (!inside(bytes_of(p, t), s->have))
            broken(u->k, "instruction %u reads more of '%s' than is summed on this rank", i, p->tensor[t.i].path);
    }
}

static void check_sums(Update *u)
{
    const Program *p = u->p;
    for (uint32_t b = 0; b < p->nbuffer; b++)
        u->sum[b] = (Sum){.have = {b, 0, p->buffer[b].bytes}, .read = NOTHING};
    for (uint32_t i = 0; i < p->ninstr; i++)
        if (sums_gradients(p, i))
            sum_over(u, i);
        else
            check_reads(u, i);
}

/* ---- steps ---- */

static bool is_step(const Instr *in)
{
    return in->op == OP_adamw || in->op == OP_sgd;
}

/* The weights that an instruction of the procedure makes: of a step, the result past the
 * moments where there is one. */
static TensorId makes_weights(const Instr *in)
{
    int rounded = in->op == OP_adamw ? 3 : 2;
    return is_step(in) && in->nout > rounded ? in->out[rounded] : in->nout > 0 ? in->out[0] : NO_TENSOR;
}

/* The instruction that makes these bytes of weights last; NOTHING: none does. */
static uint32_t last_writer(const Program *p, const Proc *update, Bytes b)
{
    for (uint32_t i = update->end; i-- > update->first;) {
        TensorId t = makes_weights(&p->instr[i]);
        if (has_tensor(t) && inside(b, bytes_of(p, t)))
            return i;
    }
    return NOTHING;
}

/* The step that makes these bytes of weights, perhaps with others; NULL: none of this rank. */
static const Instr *step_of(const Program *p, const Proc *update, Bytes b)
{
    for (uint32_t i = update->first; i < update->end; i++)
        if (is_step(&p->instr[i]) && inside(b, bytes_of(p, makes_weights(&p->instr[i]))))
            return &p->instr[i];
    return NULL;
}

static int64_t element_of(const Program *p, TensorId t, TensorId flat)
{
    return (p->tensor[t.i].at - p->tensor[flat.i].at) / dtype_bytes(p->tensor[t.i].dtype);
}

/* What a state names as its master is what its step steps, element for element; without a
 * step on this rank, it has none. */
static void check_master(Checker *k, const Program *p, const State *st, const Instr *step)
{
    if (!step) {
        if (has_tensor(st->master) || has_tensor(st->shard.master))
            broken(k, "the master copy of '%s' is not stepped", st->path);
        return;
    }
    TensorId rounded = makes_weights(step), stepped = step->out[0], master = st->sharded ? st->shard.master : st->master;
    bool copies = rounded.i != stepped.i, same = has_tensor(master) == copies;
    if (same && copies && st->sharded)
        same = equal(bytes_of(p, master), bytes_of(p, stepped));
    else if (same && copies)
        same = inside(bytes_of(p, master), bytes_of(p, stepped)) && element_of(p, master, stepped) == element_of(p, st->weight, rounded);
    if (!same)
        broken(k, "the step of '%s' is not one of its master copy", st->path);
}

static uint32_t place_in(const RankGroup *g, uint32_t rank)
{
    uint32_t i = 0;
    while (i < g->n && g->rank[i] != rank)
        i++;
    return i;
}

/* The gathered parts are equal and end to end, this rank's is where its place in the
 * group says, is what it steps, and is what the state says.  As all ranks of the group
 * are checked alike, their parts cover the whole. */
static void check_part(Checker *k, const Program *p, const Proc *update, const State *st, const Instr *gather)
{
    Bytes part = bytes_of(p, gather->arg[0]), all = bytes_of(p, gather->out[0]), weight = bytes_of(p, st->weight);
    const RankGroup *g = &p->group[gather->group];
    int64_t size = part.to - part.from, element = dtype_bytes(p->tensor[st->weight.i].dtype);
    if (part.buffer != all.buffer || size * g->n != all.to - all.from || part.from - all.from != size * place_in(g, p->rank))
        broken(k, "the parts of '%s' that ranks gather do not cover it", gather->path);
    const Instr *step = step_of(p, update, part);
    if (!step || !equal(bytes_of(p, makes_weights(step)), part))
        broken(k, "no instruction steps this rank's part of '%s'", gather->path);
    check_master(k, p, st, step);
    if (st->shard.first * element != part.from - all.from || st->shard.end * element != part.to - all.from ||
        st->shard.at * element != weight.from - all.from)
        broken(k, "state '%s' says elements %lld..%lld from %lld, but this rank steps others", st->path, (long long)st->shard.first,
               (long long)st->shard.end, (long long)st->shard.at);
}

static void check_steps(Checker *k, const Program *p, const Proc *update)
{
    for (uint32_t s = 0; s < p->nstate && p->optimizer.kind != OPTIMIZER_NONE; s++) {
        const State *st = &p->state[s];
        if (!has_tensor(st->gradient))
            continue;
        uint32_t i = last_writer(p, update, bytes_of(p, st->weight));
        OpKind op = i == NOTHING ? OP_KINDS : p->instr[i].op;
        if (st->sharded ? op != OP_all_gather : op != OP_broadcast && op != OP_adamw && op != OP_sgd)
            broken(k, "weight '%s' is not updated", st->path);
        else if (st->sharded)
            check_part(k, p, update, st, &p->instr[i]);
        else
            check_master(k, p, st, step_of(p, update, bytes_of(p, st->weight)));
    }
}

int verify_update(const Program *p, FILE *err)
{
    Checker k = {err, "update", 0};
    const Proc *update = proc_find(p, PROC_update);
    if (!update)
        return 0;
    Update u = {.k = &k, .p = p, .scratch = arena_new("scratch")};
    u.sum = NEWN(u.scratch, Sum, p->nbuffer + 1);
    check_sums(&u);
    check_steps(&k, p, update);
    arena_free(u.scratch);
    return k.broken;
}
