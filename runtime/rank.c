/* Rank: a program bound to memory and kernels, and the execution of its calls. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "runtime/guard.h"
#include "runtime/ranks.h"
#include "runtime/states.h"

/* ---- binding ---- */

char *rank_part(const Rank *r, MapPart part)
{
    return part == PART_SHARED ? r->shared : r->map.base;
}

int64_t rank_slot(const Buffer *b, uint32_t slot, uint32_t micro)
{
    uint32_t s = b->by_micro ? micro : b->slots > 1 ? slot : 0;
    assert(s < b->slots && "a call names a slot its buffer does not have");
    return s;
}

void *rank_at(const Rank *r, TensorId id, uint32_t slot, uint32_t micro)
{
    const Tensor *t = &r->program->tensor[id.i];
    const Buffer *b = &r->program->buffer[t->buffer.i];
    return rank_part(r, b->part) + b->offset + rank_slot(b, slot, micro) * b->bytes + t->at;
}

static void bind_tensor(const Rank *r, TensorId id, const Tensor **shape, void **at)
{
    *shape = has_tensor(id) ? &r->program->tensor[id.i] : NULL;
    *at = has_tensor(id) ? rank_at(r, id, 0, 0) : NULL;
}

static void bind_instr(Rank *r, uint32_t i)
{
    const Instr *in = &r->program->instr[i];
    KCall *c = &r->call[i];
    c->in = in;
    c->team = r->team;
    c->step = &r->step;
    for (uint32_t k = 0; k < in->narg; k++)
        bind_tensor(r, in->arg[k], &c->argt[k], &c->arg[k]);
    for (uint32_t k = 0; k < in->nout; k++)
        bind_tensor(r, in->out[k], &c->outt[k], &c->out[k]);
    c->work = has_tensor(in->workspace) ? rank_at(r, in->workspace, 0, 0) : NULL;
}

static bool communicates(const Instr *in)
{
    return op_info[in->op].flags & OPF_COMM;
}

/* The first that is missing is said: the others are likely to be of its kind. */
static Status find_kernels(Rank *r)
{
    const Program *p = r->program;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        r->kernel[i] = kernel_of(in, p, r->isa);
        if (r->kernel[i] || communicates(in))
            continue;
        TensorId t = in->narg && has_tensor(in->arg[0]) ? in->arg[0] : in->out[0];
        fprintf(stderr, "error: %s: the cpu backend cannot run op '%s' on %s\n", in->path, op_info[in->op].name, dtype_name(p->tensor[t.i].dtype));
        return ERR_REJECT;
    }
    return OK;
}

/* Run every procedure once on zeroed memory, as for the last micro-batch, which leaves
 * nothing out: libraries generate code and reserve their buffers for these very shapes
 * before step 0. */
static Status warm(Rank *r)
{
    memory_fill_caches(r->team);
    r->step = (KStep){.samples = r->program->batch, .first = true, .lr = 0, .correction1 = 1, .correction2 = 1,
                      .optimizer = &r->optimizer};
    for (uint32_t i = 0; i < r->program->nproc; i++)
        TRY(rank_call(r, &(Call){.proc = i, .micro = (uint32_t)r->program->microbatches - 1}));
    int64_t slowest = exchange_slowest(r);
    TRY(rank_agree(r, &slowest, 1, REDUCE_MAX));
    exchange_pace(r, slowest);
    return OK;
}

static Status start_team(Rank *r)
{
    const Program *p = r->program;
    r->team = team_new(p->threads);
    if (!r->team) {
        fprintf(stderr, "error: cannot start %d threads\n", p->threads);
        return ERR_DEVICE;
    }
    team_crowd(r->team, p->threads * (int)p->nranks);
    return OK;
}

static Status open_parts(Rank *r, const Peers *peers)
{
    TRY(find_kernels(r));
    TRY(map_open(&r->map, r->program->map_bytes[PART_PRIVATE]));
    TRY(start_team(r));
    if (peers && peers->world)
        TRY(exchange_open(r, peers));
    for (uint32_t i = 0; i < r->program->ninstr; i++)
        bind_instr(r, i);
    guard_open(r);
    TRY(warm(r));
    return states_open(r);
}

Status rank_join(Rank *r, Arena *a, const Program *p, Isa isa, const Peers *peers)
{
    assert(((peers && peers->world) || p->nranks <= 1) && "a program of many ranks runs among them");
    *r = (Rank){.program = p, .arena = a, .isa = isa, .optimizer = p->optimizer};
    r->call = NEWN(a, KCall, p->ninstr);
    r->kernel = NEWN(a, Kernel, p->ninstr);
    Status s = open_parts(r, peers);
    if (s != OK)
        rank_close(r);
    return s;
}

Status rank_open(Rank *r, Arena *a, const Program *p, Isa isa)
{
    return rank_join(r, a, p, isa, NULL);
}

void rank_close(Rank *r)
{
    guard_close(r);
    exchange_close(r);
    if (r->team)
        team_free(r->team);
    map_close(&r->map);
    *r = (Rank){0};
}

/* ---- start values ---- */

static void zero_tensor(const Rank *r, TensorId id)
{
    if (has_tensor(id))
        memset(rank_at(r, id, 0, 0), 0, (size_t)tensor_bytes(&r->program->tensor[id.i]));
}

/* Where start values go: elements first..end of what the rank has of a weight.  They are
 * rounded to `through` before they are to the type of `to`. */
typedef struct Start {
    const State *state;
    int64_t      first, end;
    DType        through;
    Reals        to;                  /* of element `first` */
} Start;

/* Global elements, which lie row by row. */
static void fill_row(const Start *f, uint64_t seed, int64_t global, int64_t n, int64_t at)
{
    enum { PIECE = 256 };
    double piece[PIECE];
    Reals start = {f->through, piece};
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = n - i < PIECE ? n - i : PIECE;
        init_fill(&f->state->init, f->state->path, seed, global + i, m, start);
        for (int64_t k = 0; k < m; k++)
            put(f->to, at + i + k, get(start, k));
    }
}

/* Padding stays 0. */
static void fill(const Rank *r, const Start *f, uint64_t seed)
{
    const Tensor *t = &r->program->tensor[f->state->weight.i];
    int64_t length = t->rank ? t->axis[t->rank - 1].local : 1;
    for (int64_t row = f->first / length; row * length < f->end; row++) {
        int64_t start = row * length, from = f->first > start ? f->first - start : 0;
        int64_t to = f->end - start < length ? f->end - start : length, valid = place_row_valid(t, row);
        to = to < valid ? to : valid;
        if (from < to)
            fill_row(f, seed, place_row(t, row, 0) + from, to - from, start + from - f->first);
    }
}

static void fill_tensor(const Rank *r, TensorId id, const State *s, DType through, uint64_t seed)
{
    const Tensor *t = &r->program->tensor[id.i];
    if (!has_tensor(id))
        return;
    zero_tensor(r, id);
    fill(r, &(Start){s, 0, tensor_elements(t), through, {t->dtype, rank_at(r, id, 0, 0)}}, seed);
}

/* The part of the master copy that the rank has. */
static void fill_shard(const Rank *r, const State *s, uint64_t seed)
{
    const Shard *h = &s->shard;
    if (!s->sharded || !has_tensor(h->master))
        return;
    int64_t all = tensor_elements(&r->program->tensor[s->weight.i]);
    int64_t first = h->first > h->at ? h->first - h->at : 0, end = h->end - h->at < all ? h->end - h->at : all;
    Reals to = {r->program->tensor[h->master.i].dtype, rank_at(r, h->master, 0, 0)};
    if (first < end)
        fill(r, &(Start){s, first, end, to.dtype, reals_from(to, h->at + first - h->first)}, seed);
}

static void zero_states(const Rank *r, const State *s)
{
    zero_tensor(r, s->gradient);
    for (int k = 0; k < 2; k++) {
        zero_tensor(r, s->moment[k]);
        if (s->sharded && s->shard.at == 0)          /* by the first of its bucket */
            zero_tensor(r, s->shard.moment[k]);
    }
    if (s->sharded && s->shard.at == 0)
        zero_tensor(r, s->shard.master);
}

void rank_init(Rank *r, uint64_t seed)
{
    const Program *p = r->program;
    r->step.seed = seed;
    for (uint32_t i = 0; i < p->nstate; i++)
        zero_states(r, &p->state[i]);
    for (uint32_t i = 0; i < p->nstate; i++) {
        const State *s = &p->state[i];
        exchange_begin(r, -1);
        DType weight = p->tensor[s->weight.i].dtype;
        fill_tensor(r, s->weight, s, state_is_rounded(p, s) ? p->precision.master : weight, seed);
        fill_tensor(r, s->master, s, p->precision.master, seed);
        fill_shard(r, s, seed);
    }
}

/* ---- execution ---- */

static void move(const Rank *r, TensorId id, const Call *call, void **at)
{
    if (has_tensor(id))
        *at = rank_at(r, id, call->slot, call->micro);
}

/* The prepared call, moved to this slot and micro-batch. */
static KCall call_on(const Rank *r, uint32_t i, const Call *call)
{
    KCall c = r->call[i];
    for (uint32_t k = 0; k < c.in->narg; k++)
        move(r, c.in->arg[k], call, &c.arg[k]);
    for (uint32_t k = 0; k < c.in->nout; k++)
        move(r, c.in->out[k], call, &c.out[k]);
    return c;
}

/* Copy what was just made and is watched. */
static void copy_watched(const Rank *r, const KCall *c)
{
    for (uint32_t k = 0; k < c->in->nout; k++)
        for (uint32_t w = 0; w < r->nwatch; w++) {
            const Watch *watch = &r->watch[w];
            bool added_to = c->in->acc == ACC_YES && (c->in->acc_out >> k & 1);
            if (!has_tensor(c->in->out[k]) || c->in->out[k].i != watch->tensor.i || added_to)
                continue;
            int64_t bytes = tensor_bytes(c->outt[k]);
            memcpy(watch->to + (watch->cut ? r->step.micro * bytes : 0), c->out[k], (size_t)bytes);
        }
}

/* What an instruction took, and how much of that it waited.  How long peers may wait for one
 * is measured at those that do not wait. */
static void measure(Rank *r, uint32_t i, const Call *call, double begin, double end, double waited)
{
    if (r->tally)
        tally_add(r->tally, i, end - begin, waited);
    if (!communicates(&r->program->instr[i]) && end - begin > r->slowest)
        r->slowest = end - begin;
    if (r->trace)
        trace_add(r->trace, &(TraceEvent){.begin = (int64_t)(1e9 * begin), .end = (int64_t)(1e9 * end), .step = r->step.step + 1, .instr = i,
                                          .micro = call->micro, .slot = call->slot});
}

static Status execute(Rank *r, uint32_t i, const KCall *c, const Call *call)
{
    bool measured = r->end || r->trace || r->tally;
    double begin = measured ? seconds_now() : 0, waited = exchange_waited(r);
    exchange_begin(r, i);
    if (communicates(c->in))
        TRY(exchange(r, c));
    else
        r->kernel[i](c);
    if (measured)
        measure(r, i, call, begin, seconds_now(), exchange_waited(r) - waited);
    return OK;
}

/* Wait until what the procedure sent before was taken. */
static Status settle(Rank *r, uint32_t proc)
{
    double waited = exchange_waited(r);
    TRY(exchange_settle(r, proc));
    if (r->tally)
        tally_wait(r->tally, exchange_waited(r) - waited);
    return OK;
}

Status rank_call(Rank *r, const Call *call)
{
    const Proc *proc = &r->program->proc[call->proc];
    TRY(settle(r, call->proc));
    r->step.micro = call->micro;
    for (uint32_t i = proc->first; i < proc->end; i++) {
        if (!instr_runs(&r->program->instr[i], r->program, call))
            continue;
        KCall c = call_on(r, i, call);
        guard_before(r, i, call);
        TRY(execute(r, i, &c, call));
        if (r->nwatch)
            copy_watched(r, &c);
        guard_after(r, i, call);
    }
    return OK;
}

static const Instr *find_unlabelled(const Rank *r)
{
    const Program *p = r->program;
    for (uint32_t i = 0; i < p->nproc; i++)
        for (uint32_t k = p->proc[i].first; p->proc[i].kind == PROC_begin && k < p->proc[i].end; k++)
            if (p->instr[k].op == OP_count_labels && rank_scalar(r, p->instr[k].out[0]) == 0)
                return &p->instr[k];
    return NULL;
}

/* The first rank that sees it speaks. */
Status rank_unlabelled(const Rank *r, const char **input)
{
    const Program *p = r->program;
    const Instr *none = find_unlabelled(r);
    int64_t mine = none ? (int64_t)p->nranks - p->rank : 0, first = mine;
    TRY(rank_agree(r, &first, 1, REDUCE_MAX));
    *input = first == 0 ? NULL : mine == first ? p->tensor[none->arg[0].i].path : "";
    return OK;
}

/* After the labels of all micro-batches were counted, by all ranks. */
static Status check_labels(const Rank *r)
{
    const char *input;
    TRY(rank_unlabelled(r, &input));
    if (!input)
        return OK;
    if (*input)
        fprintf(stderr, "error: no valid label in the batch of step %lld: input '%s'\n", (long long)r->step.step + 1, input);
    return ERR_REJECT;
}

static void begin_step(Rank *r)
{
    KStep *s = &r->step;
    s->samples = r->program->batch;
    s->optimizer = &r->optimizer;
    s->lr = learning_rate(&r->optimizer, s->step);
    s->correction1 = 1 - pow(r->optimizer.beta1, (double)(s->step + 1));
    s->correction2 = 1 - pow(r->optimizer.beta2, (double)(s->step + 1));
}

/* The first call of each procedure in a step opens its accumulation window. */
Status rank_train(Rank *r)
{
    const Program *p = r->program;
    bool counted = false;
    begin_step(r);
    for (uint32_t i = 0; i < p->ncall; i++) {
        ProcKind kind = p->proc[p->call[i].proc].kind;
        if (!counted && kind != PROC_begin && kind != PROC_agree) {
            TRY(check_labels(r));
            counted = true;
        }
        r->step.first = p->call[i].micro == 0;
        TRY(rank_call(r, &p->call[i]));
    }
    r->step.step++;
    return OK;
}

bool rank_reports(const Rank *r)
{
    return r->reporter == (int)r->program->rank;
}

double rank_scalar(const Rank *r, TensorId id)
{
    const void *at = rank_at(r, id, 0, 0);
    return r->program->tensor[id.i].dtype == DT_f64 ? *(const double *)at : (double)*(const float *)at;
}

double learning_rate(const Optimizer *o, int64_t done)
{
    int64_t t = done + 1;
    if (o->warmup > 0 && t <= o->warmup)
        return o->lr * (double)t / (double)o->warmup;
    if (o->decay == DECAY_NONE || o->steps <= o->warmup)
        return o->lr;
    double x = t >= o->steps ? 1 : (double)(t - o->warmup) / (double)(o->steps - o->warmup);
    double shape = o->decay == DECAY_COSINE ? 0.5 * (1 + cos(acos(-1.0) * x)) : 1 - x;
    return o->min_lr + (o->lr - o->min_lr) * shape;
}
