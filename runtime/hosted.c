/* Hosted: a process that MPI or torchrun started as a rank, on one machine or on several. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"
#include "runtime/comm/net.h"
#include "runtime/executor.h"
#include "runtime/plugin.h"
#include "runtime/ranks.h"

/* All ranks pass two gates before any of them maps memory, and none passes one that another does
 * not: when rank 0 has found all in order, which the others wait for, and when all have. */
enum { GATES = 2 };

struct Hosted {
    Arena     *arena;
    Starter    by;
    World     *world;
    Endpoint  *end;
    CommGroup *all;
    int        rank, nrank, passed;   /* gates */
};

/* ---- who started this process ---- */

static const char *const mpi_rank[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
static const char *const torchrun[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};

static bool has(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

static int number_of(const char *name)
{
    return has(name) ? atoi(getenv(name)) : 0;
}

Starter starter(void)
{
    bool torch = true;
    for (size_t i = 0; i < sizeof mpi_rank / sizeof *mpi_rank; i++)
        if (has(mpi_rank[i]))
            return STARTER_MPI;
    if (has("SLURM_PROCID") && number_of("SLURM_STEP_NUM_TASKS") > 1)
        return STARTER_SRUN;
    for (size_t i = 0; i < sizeof torchrun / sizeof *torchrun; i++)
        torch = torch && has(torchrun[i]);
    return torch && number_of("WORLD_SIZE") > 1 ? STARTER_TORCHRUN : STARTER_USER;
}

const char *starter_name(Starter s)
{
    return s == STARTER_MPI ? "MPI" : "torchrun";
}

/* ---- joining ---- */

/* torchrun gives ranks nothing but variables, which TCP knows. */
static Status find_net(Arena *a, Starter by, const Net **out)
{
    const char *why;
    const Plugin *p = by == STARTER_MPI ? plugin_load(a, "mpi", &why) : NULL;
    *out = p ? p->net : &net_tcp;
    if (p || by != STARTER_MPI)
        return OK;
    fprintf(stderr, "error: prun was started by MPI, which it cannot use: %s\n", why);
    return ERR_DEVICE;
}

/* What no rank does before all others are there; they may take their time. */
static void make_group(Hosted *h)
{
    int *all = NEWN(h->arena, int, h->nrank);
    for (int i = 0; i < h->nrank; i++)
        all[i] = i;
    h->end = endpoint_open(h->arena, h->world, h->rank, NULL, isa_best());
    endpoint_timeout(h->end, HUGE_VAL);
    h->all = h->end->comm->group(h->end, h->arena, GROUP_OF_ALL, all, h->nrank);
}

Status hosted_open(Arena *a, Starter by, Hosted **out)
{
    const Net *net;
    TRY(find_net(a, by, &net));
    Hosted *h = NEW(a, Hosted);
    h->arena = a;
    h->by = by;
    run_hold_signals();                              /* before MPI has threads, which would take them */
    if (!net->open(&h->rank, &h->nrank))
        return ERR_DEVICE;
    TRY(world_join(a, net, h->rank, h->nrank, &h->world));
    make_group(h);
    *out = h;
    return OK;
}

int hosted_rank(const Hosted *h)
{
    return h->rank;
}

Starter hosted_by(const Hosted *h)
{
    return h->by;
}

Status hosted_gate(Hosted *h, Status mine)
{
    int64_t worst = mine;
    Status s = h->end->comm->all_reduce(h->all, &worst, &worst, 1, DT_i64, REDUCE_MAX);
    h->passed = s == OK && worst == OK ? h->passed + 1 : GATES;
    return s == OK ? (Status)worst : s;
}

void hosted_close(Hosted *h, Status s)
{
    while (h->passed < GATES)
        (void)hosted_gate(h, s);
    h->end->comm->close(h->end);
    world_leave(h->world, h->rank, s);
}

/* ---- what only rank 0 is given ---- */

static Status replace_input(const char *text, size_t n)
{
    int fd = memfd_create("prun input", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, text, n) == (ssize_t)n && lseek(fd, 0, SEEK_SET) == 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO) {
        close(fd);
        clearerr(stdin);
        return OK;
    }
    fprintf(stderr, "error: cannot keep %zu bytes of standard input: %s\n", n, strerror(errno));
    return ERR_NOMEM;
}

Status hosted_share_input(Hosted *h)
{
    const Comm *c = h->end->comm;
    size_t n = 0;
    char *text = h->rank == 0 ? read_stream(h->arena, stdin, &n) : NULL;
    int64_t bytes = text ? (int64_t)n : 0;
    TRY(c->broadcast(h->all, &bytes, &bytes, 1, DT_i64, 0));
    if (h->rank > 0)
        text = arena_alloc(h->arena, (size_t)bytes + 1);
    TRY(c->broadcast(h->all, text, text, bytes, DT_u8, 0));
    return replace_input(text ? text : "", (size_t)bytes);
}

Status hosted_check_size(const Hosted *h, uint32_t nranks)
{
    if (nranks == (uint32_t)h->nrank)
        return OK;
    fprintf(stderr, "error: %s started %d process%s, but the plan has %u rank%s: ", starter_name(h->by), h->nrank, h->nrank == 1 ? "" : "es", nranks, nranks == 1 ? "" : "s");
    if (h->by == STARTER_MPI)
        fprintf(stderr, "use 'mpirun -n %u' or 'srun -n %u'\n", nranks, nranks);
    else
        fprintf(stderr, "use '--nnodes' times '--nproc-per-node' = %u\n", nranks);
    return ERR_REJECT;
}

/* ---- traces ---- */

enum { PINGS = 16 };

static int64_t clock_now(void)
{
    return (int64_t)(1e9 * seconds_now());
}

static Status answer(const Hosted *h)
{
    int64_t word;
    for (int i = 0; i < PINGS; i++) {
        TRY(h->end->comm->recv(h->end, 0, &word, sizeof word));
        word = clock_now();
        TRY(h->end->comm->send(h->end, 0, &word, sizeof word));
        TRY(h->end->comm->flush(h->end, 0));
    }
    return OK;
}

/* How far ahead a rank's clock is, in nanoseconds, by the quickest of its answers. */
static Status clock_ahead(const Hosted *h, int rank, int64_t *out)
{
    int64_t least = INT64_MAX, word = 0;
    for (int i = 0; i < PINGS; i++) {
        int64_t asked = clock_now();
        TRY(h->end->comm->send(h->end, rank, &word, sizeof word));
        TRY(h->end->comm->flush(h->end, rank));
        TRY(h->end->comm->recv(h->end, rank, &word, sizeof word));
        int64_t took = clock_now() - asked;
        if (took < least)
            *out = word - asked - took / 2;
        least = took < least ? took : least;
    }
    return OK;
}

/* What a rank traced, by the clock of rank 0. */
static Status take_trace(const Hosted *h, int rank, Trace *t)
{
    int64_t ahead = 0;
    TRY(clock_ahead(h, rank, &ahead));
    TRY(h->end->comm->recv(h->end, rank, t, sizeof *t));
    for (uint64_t i = 0; i < TRACE_EVENTS && i < t->n; i++) {
        t->event[i].begin -= ahead;
        t->event[i].end -= ahead;
    }
    return OK;
}

static Status gather_traces(const Hosted *h, const Traces *t)
{
    if (!t->rank)
        return OK;
    if (h->rank > 0) {
        TRY(answer(h));
        TRY(h->end->comm->send(h->end, 0, &t->rank[h->rank], sizeof *t->rank));
        return h->end->comm->flush(h->end, 0);
    }
    for (int i = 1; i < h->nrank; i++)
        TRY(take_trace(h, i, &t->rank[i]));
    return OK;
}

/* By rank 0, once all have told what they traced. */
static Status write_traces(const Hosted *h, Arena *a, const Traces *t, const Crew *c)
{
    if (world_aborted(h->world) < 0) {
        TRY(gather_traces(h, t));
        return h->rank == 0 ? traces_write(a, t, c->program, c->o->trace) : OK;
    }
    if (t->rank && h->rank == 0)
        fprintf(stderr, "note: there is no trace: ranks that %s started tell what they traced when a run ends in order\n", starter_name(h->by));
    return OK;
}

/* ---- the run ---- */

static Status run_hosted(Hosted *h, Arena *a, const Program *p, const Crew *c, const Peers *peers, const Traces *t)
{
    Peers mine = *peers;
    mine.trace = trace_of(t, p->rank);
    Status s = run_rank(a, p, c->o, &mine), written = write_traces(h, a, t, c);
    if (h->rank == 0)
        crew_explain(c, h->world);
    return s == OK ? written : s;
}

Status hosted_run(Hosted *h, Arena *a, const Program *p, const Crew *c, const TallyParts *parts)
{
    bool read = executor_or_cpu(c->o->executor)->peers_read;
    Peers peers = {.executor = c->o->executor, .world = h->world, .hash = c->hash, .timeout = c->o->timeout, .parts = parts, .pss = memory_pss()};
    Traces t;
    Status s = traces_open(&t, c->o->trace, c->n);
    if (s == OK)
        s = world_take_part(h->world, h->rank, read ? p->map_bytes[PART_SHARED] : 0);
    s = hosted_gate(h, s);
    if (c->o->timeout > 0)
        world_pace(h->world, c->o->timeout);
    if (s == OK)
        s = run_hosted(h, a, p, c, &peers, &t);
    traces_close(&t);
    return s;
}
