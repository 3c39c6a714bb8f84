/* Exchange: instructions of communication, and what ranks agree on beside them. */
#include "runtime/ranks.h"

#include <assert.h>
#include <stdio.h>

/* ---- instructions ---- */

typedef Status (*Exchange)(const Rank *, const KCall *);

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
    return r->end->comm->recv(r->end, (int)r->program->group[c->in->group].rank[0], c->out[0], tensor_bytes(c->outt[0]));
}

static const Exchange table[OP_KINDS] = {
    [OP_all_reduce] = all_reduce, [OP_reduce_scatter] = reduce_scatter, [OP_all_gather] = all_gather, [OP_all_to_all] = all_to_all,
    [OP_broadcast] = broadcast,   [OP_send] = send,                     [OP_recv] = recv,
};

Status exchange(const Rank *r, const KCall *c)
{
    assert(r->end && table[c->in->op] && "a rank that communicates has joined a world");
    return table[c->in->op](r, c);
}

/* ---- groups ---- */

uint32_t ranks_groups(const Program *const *program, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = program[i]->ngroup > most ? program[i]->ngroup : most;
    return GROUPS_OF_RUN + most;
}

static CommGroup *make_group(Rank *r, uint32_t id, const RankGroup *g)
{
    int *rank = NEWN(r->arena, int, g->n);
    for (uint32_t i = 0; i < g->n; i++)
        rank[i] = (int)g->rank[i];
    return r->end->comm->group(r->end, r->arena, id, rank, (int)g->n);
}

static void make_group_of_all(Rank *r)
{
    RankGroup g = {NEWN(r->arena, uint32_t, r->program->nranks), r->program->nranks};
    for (uint32_t i = 0; i < g.n; i++)
        g.rank[i] = i;
    r->all = make_group(r, GROUP_OF_ALL, &g);
}

/* Those that an instruction meets in; messages need none.  The number of a group in its
 * program is the same at all its members, but for the group of all, of which ranks of
 * other stages have other numbers. */
static void make_groups(Rank *r)
{
    const Program *p = r->program;
    r->group = NEWN(r->arena, CommGroup *, p->ngroup);
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        bool meets = op_info[in->op].flags & OPF_COMM && in->op != OP_send && in->op != OP_recv;
        if (!meets || r->group[in->group])
            continue;
        const RankGroup *g = &p->group[in->group];
        r->group[in->group] = g->n == p->nranks ? r->all : make_group(r, GROUPS_OF_RUN + in->group, g);
    }
}

/* ---- agreement ---- */

enum { MOST_AGREED = 16 };

Status rank_agree(const Rank *r, int64_t *v, int n, ReduceOp op)
{
    assert(n <= MOST_AGREED);
    return r->end ? r->end->comm->all_reduce(r->all, v, v, n, DT_i64, op) : OK;
}

/* What each rank tells all others before anything else. */
enum { HELLO_HASH, HELLO_REPORTS, HELLOS };

/* All hold parts of one plan; the first rank that does not says so. */
static Status compare_hashes(const Rank *r, const int64_t *hello)
{
    uint32_t i = 0, n = r->program->nranks;
    while (i < n && hello[i * HELLOS + HELLO_HASH] == hello[HELLO_HASH])
        i++;
    if (i == n)
        return OK;
    if (i == r->program->rank)
        fprintf(stderr, "error: rank %u has another plan, other options or another version of prun than rank 0: start all ranks with the same\n", i);
    return ERR_REJECT;
}

/* The first rank that has the loss speaks for all. */
static int find_reporter(const Rank *r, const int64_t *hello)
{
    for (uint32_t i = 0; i < r->program->nranks; i++)
        if (hello[i * HELLOS + HELLO_REPORTS])
            return (int)i;
    return 0;
}

static Status meet(Rank *r, uint64_t hash)
{
    const int64_t mine[HELLOS] = {(int64_t)hash, has_tensor(r->program->loss)};
    int64_t *all = NEWN(r->arena, int64_t, r->program->nranks * HELLOS);
    TRY(r->end->comm->all_gather(r->all, mine, all, (int64_t)r->program->nranks * HELLOS, DT_i64));
    r->reporter = find_reporter(r, all);
    return compare_hashes(r, all);
}

/* ---- joining ---- */

Status exchange_open(Rank *r, const Peers *peers)
{
    int rank = (int)r->program->rank;
    assert(world_nrank(peers->world) == (int)r->program->nranks);
    r->end = endpoint_open(r->arena, peers->world, rank, r->team, r->isa);
    r->shared = world_part(peers->world, rank);
    r->timeout = peers->timeout;
    if (peers->timeout > 0)
        endpoint_timeout(r->end, peers->timeout);
    make_group_of_all(r);
    TRY(meet(r, peers->hash));
    make_groups(r);
    return OK;
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

int64_t exchange_slowest(const Rank *r)
{
    return (int64_t)(1e9 * r->slowest);
}

void exchange_pace(const Rank *r, int64_t slowest)
{
    double limit = SLOWEST_TIMES * 1e-9 * (double)slowest;
    if (r->end && r->timeout == 0)
        endpoint_timeout(r->end, limit > LEAST_TIMEOUT ? limit : LEAST_TIMEOUT);
}
