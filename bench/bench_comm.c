/* Collectives of ranks on one machine.
 *
 *     bench_comm [--ranks N] [--most BYTES] [--only OPERATION] [--copy]
 *
 * Starts N processes, pinned to the cores in turn, and prints a JSON
 * line for each operation and size, or for one operation of BYTES: see comm_loop.h.  --copy also times what bounds
 * them, copies by all ranks at once: half so many bytes of its own buffer (copy), or
 * the next rank's (fetch), which lie in that rank's cache if anywhere; and a pass over
 * its own buffer that replaces all of it (update).
 *
 * As in prun, what a peer reads lies in shared memory and what a rank alone reads in its own. */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/comm_loop.h"
#include "runtime/comm/comm.h"

enum { MOST_RANKS = 64, SLACK = 4096 };

typedef struct Options { int ranks; long long most; const char *only; bool copy; } Options;

static CommPeer peer;
static Endpoint *end;
static CommGroup *all;
static float *next_send;              /* the next rank's buffer */
static Isa isa;                       /* asking the processor each time would cost more than a copy */
static Caches caches;

static void must(Status s)
{
    if (s != OK)
        exit(status_exit(s));
}

static void barrier(void)
{
    must(end->comm->barrier(all));
}

static void update(int64_t count)
{
    const void *in[] = {peer.send};
    void *out[] = {peer.send};
    const Combine c = {.dtype = DT_f32, .op = REDUCE_SUM, .nin = 1, .nout = 1, .in = in, .out = out, .end = count};
    combine(&c, isa);
}

static void call(CommOp op, int64_t count)
{
    const Comm *c = end->comm;
    int64_t bytes = count * 4, part = count / peer.nrank;
    int next = (peer.rank + 1) % peer.nrank, previous = (peer.rank + peer.nrank - 1) % peer.nrank;
    switch (op) {
    case BENCH_ALL_REDUCE:     must(c->all_reduce(all, peer.send, peer.send, count, DT_f32, REDUCE_SUM)); break;
    case BENCH_ALL_GATHER:     must(c->all_gather(all, peer.send + part * peer.rank, peer.send, count, DT_f32)); break;
    case BENCH_REDUCE_SCATTER: must(c->reduce_scatter(all, peer.send, peer.recv, count, DT_f32, REDUCE_SUM)); break;
    case BENCH_EXCHANGE:
        must(c->send(end, next, peer.send, bytes));
        must(c->recv(end, previous, peer.recv, bytes));
        must(c->flush(end, COMM_ANY));
        break;
    case BENCH_UPDATE: update(count); break;
    default:
        copy_bytes(peer.recv, op == BENCH_COPY ? peer.send : next_send, bytes / 2, copy_way(&caches, bytes * peer.nrank), isa);
    }
}

static void slowest(double *seconds, int n)
{
    memcpy(peer.send, seconds, (size_t)n * sizeof *seconds);
    must(end->comm->all_reduce(all, peer.send, peer.send, n, DT_f64, REDUCE_MAX));
    memcpy(seconds, peer.send, (size_t)n * sizeof *seconds);
}

/* The rank-th processor this process may run on. */
static void pin(int rank)
{
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof may, &may) != 0)
        return;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && rank-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
}

static void be_rank(const WorldFiles *f, int rank, const Options *o, int cores)
{
    int member[MOST_RANKS];
    Arena *a = arena_new("rank");
    World *w;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(rank % cores);
    must(world_map(a, f, rank, &w));
    isa = isa_best();
    caches = caches_read();
    end = endpoint_open(a, w, rank, NULL, isa);
    for (int i = 0; i < o->ranks; i++)
        member[i] = i;
    all = end->comm->group(end, a, 0, member, o->ranks);
    peer = (CommPeer){.name = "prun", .rank = rank, .nrank = o->ranks, .send = world_part(w, rank), .recv = loop_buffer(ROOM),
                      .call = call, .barrier = barrier, .slowest = slowest};
    next_send = world_part(w, (rank + 1) % o->ranks);
    loop_all(&peer, o->most, o->only);
    for (int64_t bytes = 256 << 10; o->copy && bytes <= 2 * o->most; bytes *= 2) {
        loop_measure(&peer, BENCH_COPY, bytes);
        loop_measure(&peer, BENCH_FETCH, bytes);
        if (bytes <= o->most)
            loop_measure(&peer, BENCH_UPDATE, bytes);
    }
    fflush(stdout);
    exit(0);
}

/* Start all ranks; 0 when each ended well. */
static int run_ranks(const Options *o)
{
    int64_t part[MOST_RANKS];
    for (int i = 0; i < o->ranks; i++)
        part[i] = o->most + SLACK;
    WorldFiles f;
    World *w;
    Arena *a = arena_new("launcher");
    must(world_create(&f, o->ranks, part, 1));
    must(world_map(a, &f, -1, &w));
    int cores = team_cores(), bad = 0, status;
    fflush(stdout);
    for (int i = 0; i < o->ranks; i++)
        if (fork() == 0)
            be_rank(&f, i, o, cores);
    while (wait(&status) > 0)
        if (status != 0 && bad++ == 0)
            world_abort(w, 0, "or another ended early");
    return bad > 0;
}

int main(int argc, char **argv)
{
    Options o = {.ranks = 2, .most = LARGEST};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--copy") == 0) {
            o.copy = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--ranks") == 0) {
            o.ranks = atoi(argv[++i]);
        } else if (i + 1 < argc && strcmp(argv[i], "--most") == 0) {
            o.most = atoll(argv[++i]);
        } else if (i + 1 < argc && strcmp(argv[i], "--only") == 0) {
            o.only = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_comm [--ranks N] [--most BYTES] [--only OPERATION] [--copy]\n");
            return 2;
        }
    }
    if (o.ranks < 1 || o.ranks > MOST_RANKS || o.most < 8 || o.most > LARGEST) {
        fprintf(stderr, "bench_comm: expected 1 to %d ranks and 8 to %d bytes\n", MOST_RANKS, LARGEST);
        return 2;
    }
    return run_ranks(&o);
}
