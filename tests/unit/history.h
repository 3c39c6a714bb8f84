#ifndef TESTS_UNIT_HISTORY_H
#define TESTS_UNIT_HISTORY_H
/* What each rank of a plan held after every step, whatever ran the ranks: lockstep, or the
 * runtime, with ranks as threads or as processes that meet nowhere but in the program.
 * Each keeps its own numbers, so that nobody waits for who compares. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/executor.h"
#include "runtime/ranks.h"
#include "tests/unit/lockstep.h"

enum { MOST_STEPS = 10, MOST_RANKS = 8 };

typedef enum Start { START_lockstep, START_threads, START_processes } Start;

typedef struct History {
    Program *const *program; uint32_t n;
    int      steps;
    Lockstep after[MOST_STEPS];       /* of a rank's map what keep() takes; the rest is zero */
    char    *memory; size_t bytes;    /* of those maps, seen by processes too */
} History;

/* What ranks begin with: fills weights and inputs; and what executes, NULL: the cpu.  Memory of the emulator's
 * devices is the host's too. */
typedef struct Beginning {
    void (*fill)(LockRank *, const void *);
    const void     *ctx;
    const Executor *executor;
    bool            spoilt;           /* memory out of use is no number; of a device, whose memory no peer reads */
} Beginning;

/* ---- memory ---- */

static inline size_t history_bytes(const Program *p)
{
    size_t bytes = 0;
    for (int part = 0; part < 2; part++)
        bytes += ((size_t)p->map_bytes[part] + 63) / 64 * 64;
    return bytes;
}

/* Pages that nothing is written to take no memory. */
static inline void history_open(History *h, Arena *a, Program *const *p, uint32_t n, int steps)
{
    *h = (History){.program = p, .n = n, .steps = steps};
    for (uint32_t i = 0; i < n; i++)
        h->bytes += (size_t)steps * history_bytes(p[i]);
    h->memory = mmap(NULL, h->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(h->memory, MAP_FAILED);
    char *at = h->memory;
    for (int s = 0; s < steps; s++) {
        h->after[s] = (Lockstep){.a = a, .n = n, .rank = NEWN(a, LockRank, n)};
        for (uint32_t i = 0; i < n; at += history_bytes(p[i]), i++)
            h->after[s].rank[i] = (LockRank){.p = p[i], .map = {at, at + ((size_t)p[i]->map_bytes[0] + 63) / 64 * 64}, .step = {.step = s + 1}};
    }
}

static inline void history_close(History *h)
{
    munmap(h->memory, h->bytes);
}

static inline void keep_tensor(const LockRank *to, const LockRank *r, TensorId t)
{
    if (has_tensor(t))
        memcpy(lock_at(to, t, 0, 0), lock_at(r, t, 0, 0), (size_t)tensor_bytes(&r->p->tensor[t.i]));
}

static inline void keep(const LockRank *to, const LockRank *r)
{
    keep_tensor(to, r, r->p->loss);
    keep_tensor(to, r, r->p->norm);
    for (uint32_t i = 0; i < r->p->nterm; i++)
        keep_tensor(to, r, r->p->term[i].tensor);
    for (uint32_t i = 0; i < r->p->nstate; i++) {
        keep_tensor(to, r, r->p->state[i].weight);
        keep_tensor(to, r, r->p->state[i].gradient);
        for (int k = 0; k < 2; k++)
            keep_tensor(to, r, r->p->state[i].moment[k]);
    }
}

/* Between steps, as lock_spoil() does within one. */
static inline void spoil_unused(const LockRank *r)
{
    for (uint32_t i = 0; i < r->p->nbuffer; i++) {
        const Buffer *b = &r->p->buffer[i];
        if (b->last >= 0 && b->last + 1 < (int32_t)r->p->ninstr)
            memset(r->map[b->part] + b->offset, 0xFF, (size_t)(b->bytes * b->slots));
    }
}

/* ---- one rank ---- */

typedef struct Runner {
    History        *h;
    const Beginning *b;
    uint32_t        rank;
    Peers           peers;
    Status          status;
} Runner;

static inline Status run_steps(const Runner *x, Rank *r)
{
    LockRank view = {.p = r->program, .map = {[PART_PRIVATE] = rank_part(r, PART_PRIVATE), [PART_SHARED] = rank_part(r, PART_SHARED)}};
    TRY(rank_settle(r));
    if (x->b->spoilt)
        spoil_unused(&view);
    rank_init(r, LOCK_SEED);
    r->step.step = 0;
    TRY(rank_settle(r));
    x->b->fill(&view, x->b->ctx);
    for (int s = 0; s < x->h->steps; s++) {
        TRY(rank_train(r));
        keep(&x->h->after[s].rank[x->rank], &view);
    }
    return OK;
}

static inline void *run_one(void *ctx)
{
    Runner *x = ctx;
    const Program *p = x->h->program[x->rank];
    Arena *a = arena_new("rank");
    Rank r;
    x->status = rank_join(&r, a, p, isa_best(), &x->peers);
    if (x->status == OK) {
        x->status = run_steps(x, &r);
        rank_close(&r);
    }
    arena_free(a);
    return NULL;
}

/* A rank that is a process maps the world at an address of its own. */
static inline void run_process(Runner *x, Arena *a, const WorldFiles *files)
{
    bool moved = mmap(NULL, (size_t)(x->rank + 1) << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
    x->status = moved && files ? world_map(a, files, (int)x->rank, &x->peers.world) : moved ? OK : ERR_NOMEM;
    if (x->status == OK)
        run_one(x);
    _exit((int)x->status);
}

/* ---- all of them ---- */

static inline void run_as_threads(Runner *x, uint32_t n, Arena *a, const WorldFiles *files)
{
    World *world = NULL;
    pthread_t thread[MOST_RANKS];
    if (files)
        assert_int_equal(world_map(a, files, 0, &world), OK);
    for (uint32_t i = 0; i < n; i++) {
        x[i].peers.world = world;
        assert_int_equal(pthread_create(&thread[i], NULL, run_one, &x[i]), 0);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    if (world)
        world_unmap(world);
}

static inline void run_as_processes(Runner *x, uint32_t n, Arena *a, const WorldFiles *files)
{
    pid_t pid[MOST_RANKS];
    for (uint32_t i = 0; i < n; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0)
            run_process(&x[i], a, files);
    }
    for (uint32_t i = 0; i < n; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        x[i].status = WIFEXITED(status) ? (Status)WEXITSTATUS(status) : ERR_COMM;
    }
}

static inline void run_by_runtime(History *h, Start start, const Beginning *b, const char *what)
{
    Runner x[MOST_RANKS];
    int64_t part[MOST_RANKS];
    WorldFiles files;
    Arena *a = arena_new("world");
    assert_in_range(h->n, 1, MOST_RANKS);
    for (uint32_t i = 0; i < h->n; i++) {
        x[i] = (Runner){.h = h, .b = b, .rank = i, .peers = {.executor = b->executor, .hash = 7, .timeout = 60}};
        part[i] = executor_or_cpu(b->executor)->peers_read ? h->program[i]->map_bytes[PART_SHARED] : 1;
    }
    if (h->n > 1)
        assert_int_equal(world_create(&files, (int)h->n, part, ranks_groups((const Program *const *)h->program, h->n)), OK);
    (start == START_threads ? run_as_threads : run_as_processes)(x, h->n, a, h->n > 1 ? &files : NULL);
    if (h->n > 1)
        world_discard(&files);
    arena_free(a);
    for (uint32_t i = 0; i < h->n; i++)
        if (x[i].status != OK)
            fail_msg("%s: rank %u ended with status %d", what, i, x[i].status);
}

static inline void run_in_lockstep(History *h, Arena *a, const Beginning *b)
{
    Lockstep l = lock_bind(a, h->program, h->n);
    for (uint32_t i = 0; i < h->n; i++)
        b->fill(&l.rank[i], b->ctx);
    for (int s = 0; s < h->steps; s++) {
        lock_step(&l);
        for (uint32_t i = 0; i < h->n; i++)
            keep(&h->after[s].rank[i], &l.rank[i]);
    }
    lock_close(&l);
}

static inline void history_run(History *h, Arena *a, Program *const *p, uint32_t n, int steps, Start start, const Beginning *b, const char *what)
{
    history_open(h, a, p, n, steps);
    if (start == START_lockstep)
        run_in_lockstep(h, a, b);
    else
        run_by_runtime(h, start, b, what);
}

#endif
