#ifndef TESTS_UNIT_LOCKSTEP_H
#define TESTS_UNIT_LOCKSTEP_H
/* The programs of all ranks of a plan, executed by one thread: a
 * rank goes on until it communicates, and a collective happens when all of its group
 * have come to it.  Slow, without memory of its own shared or private, and simple
 * enough to be believed; ranks that wait for each other for ever fail the test.
 *
 * Every buffer is spoilt when its lifetime ends, so a wrong lifetime or offset shows. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "codegen/codegen.h"
#include "ir/layout.h"
#include "kernels/kernel.h"
#include "kernels/operand.h"

typedef struct LockRank {
    const Program *p;
    char    *map[2];                  /* by MapPart */
    uint32_t call, at;                /* in the list that is run, and the next instruction of the call's procedure */
    KStep    step;
} LockRank;

typedef struct Message { uint32_t from, to; char *data; bool taken; } Message;

typedef struct Lockstep {
    Arena    *a;
    LockRank *rank; uint32_t n;
    Isa       isa;
    Message  *message; uint32_t nmessage;
    Team     *team;
} Lockstep;

/* ---- memory ---- */

static inline char *lock_at(const LockRank *r, TensorId id, uint32_t slot, uint32_t micro)
{
    const Tensor *t = &r->p->tensor[id.i];
    const Buffer *b = &r->p->buffer[t->buffer.i];
    uint32_t s = b->by_micro ? micro : b->slots > 1 ? slot : 0;
    assert_true(s < b->slots);
    return r->map[b->part] + b->offset + (int64_t)s * b->bytes + t->at;
}

static inline void lock_spoil(const LockRank *r, uint32_t instr, uint32_t slot)
{
    for (uint32_t i = 0; i < r->p->nbuffer; i++) {
        const Buffer *b = &r->p->buffer[i];
        if (b->last == (int32_t)instr && b->last + 1 < (int32_t)r->p->ninstr)
            memset(r->map[b->part] + b->offset + (int64_t)(b->slots > 1 ? slot : 0) * b->bytes, 0xFF, (size_t)b->bytes);
    }
}

/* Row-major index in the global tensor of local element i; -1: padding. */
static inline int64_t lock_global(const Tensor *t, int64_t i, int64_t micro)
{
    int64_t index = 0, stride = 1;
    for (int x = t->rank - 1; x >= 0; x--) {
        const AxisPlace *a = &t->axis[x];
        int64_t at = place_global(a, i % a->local, micro);
        if (at >= a->global)
            return -1;
        index += at * stride;
        stride *= a->global;
        i /= a->local;
    }
    return index;
}

static inline int64_t lock_elements(const Tensor *t)
{
    int64_t n = 1;
    for (int x = 0; x < t->rank; x++)
        n *= t->axis[x].global;
    return n;
}

/* ---- numbers ---- */

/* In (-1, 1), from a path and a global index. */
static inline double lock_noise(const char *path, int64_t i)
{
    Philox x = philox4(7, fnv1a(path), (uint64_t)(i / 4), 0);
    return (double)x.word[i % 4] / 2147483648.0 - 1;
}

static inline void lock_fill_weights(LockRank *r)
{
    for (uint32_t s = 0; s < r->p->nstate; s++) {
        const State *st = &r->p->state[s];
        const Tensor *t = &r->p->tensor[st->weight.i];
        for (int64_t i = 0; i < tensor_elements(t); i++) {
            int64_t g = lock_global(t, i, 0);
            bool scale = st->init.kind == INIT_ones;
            real_put(t, lock_at(r, st->weight, 0, 0), i, g < 0 ? 0 : (scale ? 1 : 0) + 0.2 * lock_noise(st->path, g));
        }
    }
}

/* Integers below what the input picks from, or `classes` where it is not known; nine in ten truths are true. */
static inline int64_t lock_integer(const Input *in, int64_t classes, double noise)
{
    if (in->dtype == DT_bool)
        return noise > -0.8;
    return (int64_t)((noise + 1) / 2 * (double)(in->limit.of ? in->limit.below : classes));
}

static inline void lock_fill_inputs(LockRank *r, int64_t classes)
{
    for (uint32_t k = 0; k < r->p->ninput; k++) {
        const Input *in = &r->p->input[k];
        if (!has_tensor(in->tensor))
            continue;
        const Tensor *t = &r->p->tensor[in->tensor.i];
        for (uint32_t m = 0; m < r->p->buffer[t->buffer.i].slots; m++)
            for (int64_t i = 0; i < tensor_elements(t); i++) {
                double x = lock_noise(in->name, lock_global(t, i, m));
                if (dtype_is_float(t->dtype))
                    real_put(t, lock_at(r, in->tensor, 0, m), i, x);
                else
                    int_put(t, lock_at(r, in->tensor, 0, m), i, lock_integer(in, classes, x));
            }
    }
}

enum { LOCK_SEED = 3 };               /* of dropout */

/* Zeroed memory. */
static inline Lockstep lock_bind(Arena *a, Program *const *p, uint32_t n)
{
    Lockstep l = {.a = a, .rank = NEWN(a, LockRank, n), .n = n, .isa = isa_best(), .team = team_new(1)};
    for (uint32_t i = 0; i < n; i++) {
        LockRank *r = &l.rank[i];
        r->p = p[i];
        for (int part = 0; part < 2; part++)
            r->map[part] = arena_alloc(a, (size_t)p[i]->map_bytes[part] + 1);
        r->step = (KStep){.seed = LOCK_SEED, .samples = p[i]->batch, .optimizer = &p[i]->optimizer};
    }
    return l;
}

static inline void lock_fill(LockRank *r, int64_t classes)
{
    lock_fill_weights(r);
    lock_fill_inputs(r, classes);
}

static inline Lockstep lock_open(Arena *a, Program **p, uint32_t n, int64_t classes)
{
    Lockstep l = lock_bind(a, p, n);
    for (uint32_t i = 0; i < n; i++)
        lock_fill(&l.rank[i], classes);
    return l;
}

static inline void lock_close(Lockstep *l)
{
    team_free(l->team);
}

/* ---- communication ---- */

typedef struct Piece { char *at; int64_t n; } Piece;

static inline void lock_sum(const Tensor *t, const Piece *x, uint32_t n, int64_t first, int64_t count, char *out)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = real_at(t, x[0].at, first + i);
        for (uint32_t k = 1; k < n; k++)
            sum = t->dtype == DT_f32 || t->dtype == DT_bf16 ? (double)((float)sum + (float)real_at(t, x[k].at, first + i)) : sum + real_at(t, x[k].at, first + i);
        real_put(t, out, i, sum);
    }
}

static inline const Instr *lock_instr(const LockRank *r)
{
    return &r->p->instr[r->at];
}

/* Results are made apart first: arguments may be results too. */
static inline void lock_collective(Lockstep *l, const RankGroup *g, const Call *call)
{
    const Instr *in = lock_instr(&l->rank[g->rank[0]]);
    Piece x[64], y[64];
    const Tensor *t = &l->rank[g->rank[0]].p->tensor[in->arg[0].i];
    int64_t size = dtype_bytes(t->dtype);
    for (uint32_t k = 0; k < g->n; k++) {
        const LockRank *r = &l->rank[g->rank[k]];
        x[k] = (Piece){lock_at(r, lock_instr(r)->arg[0], call->slot, call->micro), tensor_elements(&r->p->tensor[lock_instr(r)->arg[0].i])};
        y[k].n = tensor_elements(&r->p->tensor[lock_instr(r)->out[0].i]);
        y[k].at = malloc((size_t)(y[k].n * size) + 1);
        assert_int_equal(x[k].n, x[0].n);
    }
    for (uint32_t k = 0; k < g->n; k++)
        switch (in->op) {
        case OP_all_reduce:
            lock_sum(t, x, g->n, 0, x[0].n, y[k].at);
            break;
        case OP_reduce_scatter:
            lock_sum(t, x, g->n, k * y[k].n, y[k].n, y[k].at);
            break;
        case OP_all_gather:
            for (uint32_t j = 0; j < g->n; j++)
                memcpy(y[k].at + j * x[j].n * size, x[j].at, (size_t)(x[j].n * size));
            break;
        case OP_all_to_all:
            for (uint32_t j = 0; j < g->n; j++) {
                int64_t part = x[j].n / g->n * size;
                memcpy(y[k].at + j * part, x[j].at + k * part, (size_t)part);
            }
            break;
        case OP_reduce_to:
            memcpy(y[k].at, x[k].at, (size_t)(x[k].n * size));
            if (k == 0)
                lock_sum(t, x, g->n, 0, x[0].n, y[0].at);
            break;
        case OP_broadcast:
            memcpy(y[k].at, x[0].at, (size_t)(x[0].n * size));
            break;
        default:
            fail_msg("'%s' is no collective", op_info[in->op].name);
        }
    for (uint32_t k = 0; k < g->n; k++) {
        const LockRank *r = &l->rank[g->rank[k]];
        memcpy(lock_at(r, lock_instr(r)->out[0], call->slot, call->micro), y[k].at, (size_t)(y[k].n * size));
        free(y[k].at);
    }
}

/* A message waits until it is fetched. */
static inline bool lock_message(Lockstep *l, uint32_t me, const Call *call)
{
    LockRank *r = &l->rank[me];
    const Instr *in = lock_instr(r);
    const RankGroup *g = &r->p->group[in->group];
    TensorId t = in->op == OP_send ? in->arg[0] : in->out[0];
    size_t bytes = (size_t)tensor_bytes(&r->p->tensor[t.i]);
    char *at = lock_at(r, t, call->slot, call->micro);
    if (in->op == OP_send) {
        Message m = {.from = g->rank[0], .to = g->rank[1], .data = arena_alloc(l->a, bytes)};
        memcpy(m.data, at, bytes);
        PUSH(l->a, l->message, l->nmessage, m);
        return true;
    }
    for (uint32_t i = 0; i < l->nmessage; i++) {
        Message *m = &l->message[i];
        if (m->taken || m->from != g->rank[0] || m->to != g->rank[1])
            continue;
        memcpy(at, m->data, bytes);
        m->taken = true;
        return true;
    }
    return false;
}

/* ---- execution ---- */

/* What is run: the calls of a step, or a list of one's own. */
typedef struct Calls { const Call *call; uint32_t n; } Calls;

static inline void lock_kernel(Lockstep *l, LockRank *r, const Call *call)
{
    const Instr *in = lock_instr(r);
    KCall c = {.in = in, .step = &r->step, .team = l->team};
    c.work = has_tensor(in->workspace) ? lock_at(r, in->workspace, call->slot, call->micro) : NULL;
    for (int a = 0; a < in->narg; a++)
        if (has_tensor(in->arg[a])) {
            c.argt[a] = &r->p->tensor[in->arg[a].i];
            c.arg[a] = lock_at(r, in->arg[a], call->slot, call->micro);
        }
    for (int k = 0; k < in->nout; k++)
        if (has_tensor(in->out[k])) {
            c.outt[k] = &r->p->tensor[in->out[k].i];
            c.out[k] = lock_at(r, in->out[k], call->slot, call->micro);
        }
    Kernel kernel = kernel_of(in, r->p, l->isa);
    assert_non_null(kernel);
    kernel(&c);
}

static inline bool lock_communicates(const LockRank *r)
{
    return op_info[lock_instr(r)->op].flags & OPF_COMM;
}

/* What the last micro-batch alone does is passed over in the others. */
static inline void lock_next(LockRank *r, const Calls *calls, const Call *call)
{
    const Proc *proc = &r->p->proc[call->proc];
    do
        lock_spoil(r, r->at++, call->slot);
    while (r->at < proc->end && !instr_runs(lock_instr(r), r->p, call));
    if (r->at < proc->end)
        return;
    r->call++;
    r->at = r->call < calls->n ? r->p->proc[calls->call[r->call].proc].first : 0;
}

/* Whether a procedure sends to a rank. */
static inline bool lock_sends(const Program *p, const Call *call, uint32_t to)
{
    for (uint32_t i = p->proc[call->proc].first; i < p->proc[call->proc].end; i++)
        if (p->instr[i].op == OP_send && p->group[p->instr[i].group].rank[1] == to)
            return true;
    return false;
}

/* A procedure begins when those to whom it sends have received what they were sent before. */
static inline bool lock_may_begin(const Lockstep *l, uint32_t me, const Call *call)
{
    const LockRank *r = &l->rank[me];
    for (uint32_t i = 0; r->at == r->p->proc[call->proc].first && i < l->nmessage; i++)
        if (l->message[i].from == me && !l->message[i].taken && lock_sends(r->p, call, l->message[i].to))
            return false;
    return true;
}

/* Run a rank until it communicates or is done; true when it did anything. */
static inline bool lock_compute(Lockstep *l, uint32_t me, const Calls *calls)
{
    LockRank *r = &l->rank[me];
    bool moved = false;
    while (r->call < calls[me].n) {
        const Call *call = &calls[me].call[r->call];
        r->step.micro = call->micro;
        r->step.first = call->micro == 0;
        if (!lock_may_begin(l, me, call))
            break;
        bool message = lock_instr(r)->op == OP_send || lock_instr(r)->op == OP_recv;
        if (lock_communicates(r) && !(message && lock_message(l, me, call)))
            break;
        if (!message)
            lock_kernel(l, r, call);
        lock_next(r, &calls[me], call);
        moved = true;
    }
    return moved;
}

/* A collective that all of its group have come to. */
static inline bool lock_meet(Lockstep *l, uint32_t me, const Calls *calls)
{
    LockRank *r = &l->rank[me];
    if (r->call >= calls[me].n || !lock_communicates(r) || lock_instr(r)->op == OP_recv || lock_instr(r)->op == OP_send)
        return false;
    const RankGroup *g = &r->p->group[lock_instr(r)->group];
    for (uint32_t k = 0; k < g->n; k++) {
        const LockRank *x = &l->rank[g->rank[k]];
        if (x->call >= calls[g->rank[k]].n || !lock_communicates(x) || lock_instr(x)->op != lock_instr(r)->op)
            return false;
        const RankGroup *h = &x->p->group[lock_instr(x)->group];
        if (h->n != g->n || memcmp(h->rank, g->rank, sizeof *g->rank * g->n) != 0)
            return false;
        if (g->n < l->n)                             /* members call a group by one number */
            assert_int_equal(lock_instr(x)->group, lock_instr(r)->group);
    }
    lock_collective(l, g, &calls[me].call[r->call]);
    for (uint32_t k = 0; k < g->n; k++) {
        LockRank *x = &l->rank[g->rank[k]];
        lock_next(x, &calls[g->rank[k]], &calls[g->rank[k]].call[x->call]);
    }
    return true;
}

static inline void lock_run(Lockstep *l, const Calls *calls)
{
    for (uint32_t i = 0; i < l->n; i++) {
        l->rank[i].call = 0;
        l->rank[i].at = calls[i].n ? l->rank[i].p->proc[calls[i].call[0].proc].first : 0;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < l->n; i++)
            moved |= lock_compute(l, i, calls);
        for (uint32_t i = 0; i < l->n; i++)
            moved |= lock_meet(l, i, calls);
    }
    for (uint32_t i = 0; i < l->n; i++)
        if (l->rank[i].call < calls[i].n)
            fail_msg("rank %u waits for ever at instruction %u (%s %s)", i, l->rank[i].at, op_info[lock_instr(&l->rank[i])->op].name,
                     lock_instr(&l->rank[i])->path);
}

/* One optimizer step. */
static inline void lock_step(Lockstep *l)
{
    Calls *calls = NEWN(l->a, Calls, l->n);
    for (uint32_t i = 0; i < l->n; i++) {
        KStep *s = &l->rank[i].step;
        const Optimizer *o = s->optimizer;
        s->lr = o->lr;
        s->correction1 = 1 - pow(o->beta1, (double)(s->step + 1));
        s->correction2 = 1 - pow(o->beta2, (double)(s->step + 1));
        calls[i] = (Calls){l->rank[i].p->call, l->rank[i].p->ncall};
    }
    lock_run(l, calls);
    for (uint32_t i = 0; i < l->n; i++)
        l->rank[i].step.step++;
}

#endif
