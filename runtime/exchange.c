/* Exchange: instructions of communication, and what ranks agree on beside them. */
#include "runtime/courier.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "runtime/groups.h"

/* ---- instructions ---- */

typedef Status (*Exchange)(const Rank *, const KCall *);

/* The end at which an instruction communicates: who sends and flushes is the rank's own thread. */
static Endpoint *end_of(const Rank *r, const Instr *in)
{
    return r->second && side_of(in) == SIDE_COMM ? r->second : r->end;
}

static CommGroup *group_of(const Rank *r, const KCall *c)
{
    return r->group[c->in->group];
}

static Status all_reduce(const Rank *r, const KCall *c)
{
    return r->end->comm->all_reduce(group_of(r, c), c->arg[0], c->out[0], tensor_elements(c->argt[0]), c->argt[0]->dtype, REDUCE_SUM);
}

static Status reduce_scatter(const Rank *r, const KCall *c)
{
    return r->end->comm->reduce_scatter(group_of(r, c), c->arg[0], c->out[0], tensor_elements(c->argt[0]), c->argt[0]->dtype, REDUCE_SUM);
}

static Status all_gather(const Rank *r, const KCall *c)
{
    return r->end->comm->all_gather(group_of(r, c), c->arg[0], c->out[0], tensor_elements(c->outt[0]), c->argt[0]->dtype);
}

static Status all_to_all(const Rank *r, const KCall *c)
{
    return r->end->comm->all_to_all(group_of(r, c), c->arg[0], c->out[0], tensor_elements(c->argt[0]), c->argt[0]->dtype);
}

static Status reduce_to(const Rank *r, const KCall *c)
{
    return r->end->comm->reduce(group_of(r, c), c->arg[0], c->out[0], tensor_elements(c->argt[0]), c->argt[0]->dtype, REDUCE_SUM, 0);
}

static Status broadcast(const Rank *r, const KCall *c)
{
    return r->end->comm->broadcast(group_of(r, c), c->arg[0], c->out[0], tensor_elements(c->argt[0]), c->argt[0]->dtype, 0);
}

/* A group of two is source and destination. */
static Status send(const Rank *r, const KCall *c)
{
    return r->end->comm->send(r->end, (int)r->program->group[c->in->group].rank[1], c->arg[0], tensor_bytes(c->argt[0]));
}

static Status recv(const Rank *r, const KCall *c)
{
    return r->end->comm->recv(end_of(r, c->in), (int)r->program->group[c->in->group].rank[0], c->out[0], tensor_bytes(c->outt[0]));
}

static const Exchange table[OP_KINDS] = {
    [OP_all_reduce] = all_reduce, [OP_reduce_scatter] = reduce_scatter, [OP_all_gather] = all_gather, [OP_all_to_all] = all_to_all,
    [OP_reduce_to] = reduce_to,   [OP_broadcast] = broadcast,           [OP_send] = send,             [OP_recv] = recv,
};

Status exchange(const Rank *r, const KCall *c)
{
    assert(r->end && table[c->in->op] && "a rank that communicates has joined a world");
    if (end_of(r, c->in) == r->end)
        return table[c->in->op](r, c);
    endpoint_beside(r->second, c->in - r->program->instr);
    TRY(table[c->in->op](r, c));
    endpoint_beside(r->second, -1);
    return OK;
}

Status exchange_settle(const Rank *r, uint32_t proc)
{
    const Program *p = r->program;
    double waited = r->end ? endpoint_waited(r->end) : 0;
    for (uint32_t i = r->end ? r->sent.first[proc] : 0; r->end && i < r->sent.first[proc + 1]; i++)
        TRY(r->end->comm->flush(r->end, (int)p->group[p->instr[r->sent.instr[i]].group].rank[1]));
    if (r->tally && r->end)
        tally_wait(r->tally, endpoint_waited(r->end) - waited);
    return OK;
}

/* ---- groups ---- */

uint32_t ranks_groups(const Program *const *program, uint32_t n)
{
    Arena *a = arena_new("groups");
    GroupNames *names = NEWN(a, GroupNames, n);
    for (uint32_t i = 0; i < n; i++)
        group_names(program[i], &names[i]);
    uint32_t groups = GROUPS_OF_RUN + group_ids(a, names, n).nid;
    arena_free(a);
    return groups;
}

static CommGroup *make_group(Rank *r, uint32_t id, const RankGroup *g)
{
    int *rank = NEWN(r->arena, int, g->n);
    for (uint32_t i = 0; i < g->n; i++)
        rank[i] = (int)g->rank[i];
    return r->end->comm->group(r->second ? r->second : r->end, r->arena, id, rank, (int)g->n);
}

static void make_group_of_all(Rank *r)
{
    RankGroup g = {NEWN(r->arena, uint32_t, r->program->nranks), r->program->nranks};
    for (uint32_t i = 0; i < g.n; i++)
        g.rank[i] = i;
    r->all = make_group(r, GROUP_OF_ALL, &g);
}

static void make_groups(Rank *r, const GroupIds *ids)
{
    const Program *p = r->program;
    r->group = NEWN(r->arena, CommGroup *, p->ngroup);
    for (uint32_t i = 0; i < p->ninstr; i++) {
        if (!group_meets(&p->instr[i]) || r->group[p->instr[i].group])
            continue;
        const RankGroup *g = &p->group[p->instr[i].group];
        r->group[p->instr[i].group] = g->n == p->nranks ? r->all : make_group(r, GROUPS_OF_RUN + group_id(ids, g), g);
    }
}

/* ---- agreement ---- */

Status rank_agree(const Rank *r, int64_t *v, int n, ReduceOp op)
{
    assert(n <= MOST_AGREED);
    return r->end ? r->end->comm->all_reduce(r->all, v, v, n, DT_i64, op) : OK;
}

Status rank_outcome(const Rank *r, Status mine)
{
    int64_t worst = mine;
    TRY(rank_agree(r, &worst, 1, REDUCE_MAX));
    return (Status)worst;
}

/* What each rank tells all others before anything else. */
typedef struct Hello { int64_t hash, reports; GroupNames groups; } Hello;
enum { HELLO_WORDS = sizeof(Hello) / sizeof(int64_t) };

/* All hold parts of one plan; the first rank that does not says so. */
static Status compare_hashes(Rank *r, const Hello *hello)
{
    uint32_t i = 0, n = r->program->nranks;
    while (i < n && hello[i].hash == hello[0].hash)
        i++;
    if (i == n)
        return OK;
    r->differs = true;
    if (i == r->program->rank)
        fprintf(stderr, "error: rank %u has another plan, other options or another version of prun than rank 0: start all ranks with the same\n", i);
    return ERR_REJECT;
}

/* The first rank that has the loss speaks for all. */
static int find_reporter(const Rank *r, const Hello *hello)
{
    for (uint32_t i = 0; i < r->program->nranks; i++)
        if (hello[i].reports)
            return (int)i;
    return 0;
}

static Status meet(Rank *r, uint64_t hash)
{
    Hello mine = {.hash = (int64_t)hash, .reports = has_tensor(r->program->loss)};
    Hello *all = NEWN(r->arena, Hello, r->program->nranks);
    GroupNames *names = NEWN(r->arena, GroupNames, r->program->nranks);
    group_names(r->program, &mine.groups);
    TRY(r->end->comm->all_gather(r->all, &mine, all, (int64_t)r->program->nranks * HELLO_WORDS, DT_i64));
    r->reporter = find_reporter(r, all);
    TRY(compare_hashes(r, all));
    for (uint32_t i = 0; i < r->program->nranks; i++)
        names[i] = all[i].groups;
    const GroupIds ids = group_ids(r->arena, names, r->program->nranks);
    make_groups(r, &ids);
    return OK;
}

/* ---- joining ---- */

static void set_timeout(const Rank *r, double seconds)
{
    endpoint_timeout(r->end, seconds);
    if (r->second)
        endpoint_timeout(r->second, seconds);
}

Status exchange_open(Rank *r, const Peers *peers)
{
    int rank = (int)r->program->rank;
    assert(world_nrank(peers->world) == (int)r->program->nranks);
    r->end = endpoint_open(r->arena, peers->world, rank, r->program->comm_threads > 0 ? NULL : r->team, r->isa);
    if (r->program->comm_threads > 0)
        r->second = r->end->comm->second(r->arena, r->end);
    r->timeout = peers->timeout;
    if (peers->timeout > 0)
        set_timeout(r, peers->timeout);
    r->sent = program_sent_before(r->program, r->arena);
    make_group_of_all(r);
    return meet(r, peers->hash);
}

void exchange_close(Rank *r)
{
    if (r->end)
        r->end->comm->close(r->end);
    r->end = NULL;
}

/* ---- progress ---- */

enum { LEAST_TIMEOUT = 10, SLOWEST_TIMES = 20 };     /* seconds; of the slowest instruction */

void exchange_begin(const Rank *r, int64_t instr)
{
    if (r->end)
        endpoint_progress(r->end, instr);
}

double exchange_waited(const Rank *r, const Instr *in)
{
    return endpoint_waited(end_of(r, in));
}

int64_t exchange_slowest(const Rank *r)
{
    return (int64_t)(1e9 * r->slowest);
}

void exchange_pace(const Rank *r, int64_t slowest)
{
    double limit = SLOWEST_TIMES * 1e-9 * (double)slowest;
    if (r->end && r->timeout == 0)
        set_timeout(r, limit > LEAST_TIMEOUT ? limit : LEAST_TIMEOUT);
}
