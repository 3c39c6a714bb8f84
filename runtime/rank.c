/* Rank: a program bound to a device; its start values; its steps. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "runtime/executor.h"
#include "runtime/ranks.h"
#include "runtime/states.h"

/* ---- memory and calls ---- */

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

Status rank_calls(Rank *r, const CallList *calls)
{
    return r->executor->calls(r, calls);
}

Status rank_call(Rank *r, const Call *call)
{
    return rank_calls(r, &(CallList){.call = call, .n = 1});
}

Status rank_settle(const Rank *r)
{
    return r->executor->settle(r);
}

/* Run every procedure once on zeroed memory, as for the last micro-batch, which leaves
 * nothing out: libraries generate code and reserve their buffers for these very shapes
 * before step 0. */
static Status warm(Rank *r)
{
    memory_fill_caches(r->team);
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
    int own = p->threads > 0 ? p->threads : 1, threads = (own + p->comm_threads) * r->near;
    r->team = team_new(own);
    if (!r->team) {
        fprintf(stderr, "error: cannot start %d threads\n", own);
        return ERR_DEVICE;
    }
    team_crowd(r->team, threads);
    return OK;
}

static Status open_parts(Rank *r, const Peers *peers)
{
    TRY(r->executor->open(r));
    TRY(start_team(r));
    if (r->world)
        TRY(exchange_open(r, peers));
    TRY(r->executor->join(r));
    r->step = (KStep){.samples = r->program->batch, .first = true, .lr = 0, .correction1 = 1, .correction2 = 1,
                      .optimizer = &r->optimizer};
    if (!(peers && peers->cold))
        TRY(warm(r));
    return states_open(r);
}

Status rank_join(Rank *r, Arena *a, const Program *p, Isa isa, const Peers *peers)
{
    assert(((peers && peers->world) || p->nranks <= 1) && "a program of many ranks runs among them");
    *r = (Rank){.program = p, .arena = a, .isa = isa, .optimizer = p->optimizer, .executor = executor_or_cpu(peers ? peers->executor : NULL),
                 .world = peers ? peers->world : NULL, .near = peers && peers->world ? world_near(peers->world) : 1};
    Status s = open_parts(r, peers);
    bool differs = r->differs;
    if (s != OK)
        rank_close(r);
    r->differs = differs;
    return s;
}

Status rank_open(Rank *r, Arena *a, const Program *p, Isa isa)
{
    return rank_join(r, a, p, isa, NULL);
}

void rank_close(Rank *r)
{
    if (r->executor)
        r->executor->close(r);
    exchange_close(r);
    if (r->team)
        team_free(r->team);
    *r = (Rank){0};
}

/* ---- start values ---- */

static void zero_tensor(const Rank *r, TensorId id)
{
    if (has_tensor(id))
        r->executor->zero(r, rank_at(r, id, 0, 0), tensor_bytes(&r->program->tensor[id.i]));
}

/* Where start values go: elements first..end of what the rank has of a weight.  They are
 * rounded to `through` before they are to the type of `to`. */
typedef struct Start {
    const State *state;
    int64_t      first, end;
    DType        through;
    Reals        to;                  /* of element `first`, in memory of the host while it is filled */
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

/* Padding is 0. */
static void fill_rows(const Rank *r, const Start *f, uint64_t seed)
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

/* A window of start values, of which each worker makes a part, in the fours that random numbers come in. */
typedef struct Filling { const Rank *rank; const Start *window; uint64_t seed; } Filling;

static void fill_part(void *ctx, int worker, int nworker)
{
    const Filling *f = ctx;
    Start part = *f->window;
    int64_t first, end;
    team_part(part.end - part.first, 4, worker, nworker, &first, &end);
    part.to = reals_from(part.to, first);
    part.end = part.first + end;
    part.first += first;
    fill_rows(f->rank, &part, f->seed);
}

static void fill(const Rank *r, const Start *f, uint64_t seed)
{
    Start part = *f;
    int64_t size = dtype_bytes(f->to.dtype), n = RANK_WINDOW / size;
    for (part.first = f->first; part.first < f->end; part.first = part.end) {
        part.end = f->end - part.first < n ? f->end : part.first + n;
        int64_t bytes = (part.end - part.first) * size;
        part.to.at = memset(r->executor->edit(r, reals_from(f->to, part.first - f->first).at, bytes), 0, (size_t)bytes);
        team_run(r->team, fill_part, &(Filling){r, &part, seed});
    }
}

static void fill_tensor(const Rank *r, TensorId id, const State *s, DType through, uint64_t seed)
{
    const Tensor *t = &r->program->tensor[id.i];
    if (!has_tensor(id))
        return;
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

static void fill_states(const Rank *r, uint64_t seed)
{
    const Program *p = r->program;
    for (uint32_t i = 0; i < p->nstate; i++) {
        const State *s = &p->state[i];
        exchange_begin(r, -1);
        DType weight = p->tensor[s->weight.i].dtype;
        fill_tensor(r, s->weight, s, state_is_rounded(p, s) ? p->precision.master : weight, seed);
        fill_tensor(r, s->master, s, p->precision.master, seed);
        fill_shard(r, s, seed);
    }
}

/* Where a device computes, a rank has one thread of the host's, and a billion numbers are a minute's work for it: all that the cores have for it
 * make them. */
void rank_init(Rank *r, uint64_t seed)
{
    Team *own = r->team;
    int cores = team_cores() / r->near;
    r->step.seed = seed;
    for (uint32_t i = 0; i < r->program->nstate; i++)
        zero_states(r, &r->program->state[i]);
    Team *more = r->executor->ahead && cores > 1 ? team_new(cores) : NULL;
    r->team = more ? more : own;
    fill_states(r, seed);
    r->team = own;
    if (more)
        team_free(more);
}

/* ---- steps ---- */

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
    TRY(rank_settle(r));
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

/* Counting the labels is not part of what depends on them. */
static uint32_t calls_that_count(const Program *p)
{
    uint32_t n = 0;
    while (n < p->ncall && (p->proc[p->call[n].proc].kind == PROC_begin || p->proc[p->call[n].proc].kind == PROC_agree))
        n++;
    return n;
}

/* The first call of each procedure in a step opens its accumulation window.  Where calls are executed
 * behind the host, it looks once, at the end: without labels the run is over, and nothing of the step is kept. */
Status rank_train(Rank *r)
{
    const Program *p = r->program;
    bool ahead = r->executor->ahead;
    uint32_t n = ahead ? p->ncall : calls_that_count(p);
    begin_step(r);
    TRY(rank_calls(r, &(CallList){p->call, n, true}));
    if (ahead || n < p->ncall)
        TRY(check_labels(r));
    TRY(rank_calls(r, &(CallList){p->call + n, p->ncall - n, true}));
    r->step.step++;
    return OK;
}

bool rank_reports(const Rank *r)
{
    return r->reporter == (int)r->program->rank;
}

double rank_scalar(const Rank *r, TensorId id)
{
    const Tensor *t = &r->program->tensor[id.i];
    const void *at;
    if (r->executor->look(r, rank_at(r, id, 0, 0), tensor_bytes(t), &at) != OK)
        return (double)NAN;
    return get((Reals){t->dtype, (void *)at}, 0);
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
