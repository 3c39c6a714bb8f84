#ifndef TESTS_UNIT_RANKS_H
#define TESTS_UNIT_RANKS_H
/* Ranks of a world, started as threads of the test or as processes. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/comm.h"

enum { MOST_RANKS = 6 };

typedef struct Ranks Ranks;
/* What a rank does; the result is 0 when all is well.  No assertions of cmocka: they
 * work in the main thread only. */
typedef int (*RankFn)(Ranks *, Arena *, Endpoint *);

struct Ranks {
    int        n, team;               /* threads of each rank's team; 0: no team */
    int64_t    part;                  /* bytes of each */
    uint32_t   ngroup;
    RankFn     fn;
    void      *ctx;
    WorldFiles files;
    World     *world;                 /* of this process */
    Arena     *arena;
    int        result[MOST_RANKS];
};

typedef struct RankThread { Ranks *r; int rank; } RankThread;

static inline int rank_main(Ranks *r, int rank)
{
    Arena *a = arena_new("rank");
    Team *team = r->team > 0 ? team_new(r->team) : NULL;
    Endpoint *e = endpoint_open(a, r->world, rank, team, isa_best());
    int result = r->fn(r, a, e);
    e->comm->close(e);
    team_free(team);
    arena_free(a);
    return result;
}

static inline void *rank_thread(void *ctx)
{
    RankThread *t = ctx;
    t->r->result[t->rank] = rank_main(t->r, t->rank);
    return NULL;
}

static inline Status ranks_open(Ranks *r)
{
    int64_t part[MOST_RANKS];
    for (int i = 0; i < r->n; i++)
        part[i] = r->part;
    r->arena = arena_new("ranks");
    return world_create(&r->files, r->n, part, r->ngroup);
}

static inline void ranks_close(Ranks *r)
{
    world_unmap(r->world);
    world_discard(&r->files);
    arena_free(r->arena);
}

/* Number of ranks whose function failed. */
static inline int ranks_failed(const Ranks *r)
{
    int failed = 0;
    for (int i = 0; i < r->n; i++)
        failed += r->result[i] != 0;
    return failed;
}

static inline int run_threads(Ranks *r)
{
    if (ranks_open(r) != OK || world_map(r->arena, &r->files, 0, &r->world) != OK)
        return -1;
    RankThread t[MOST_RANKS];
    pthread_t thread[MOST_RANKS];
    for (int i = 0; i < r->n; i++) {
        t[i] = (RankThread){r, i};
        if (pthread_create(&thread[i], NULL, rank_thread, &t[i]) != 0)
            abort();
    }
    for (int i = 0; i < r->n; i++)
        pthread_join(thread[i], NULL);
    ranks_close(r);
    return ranks_failed(r);
}

/* The same in processes, each with its own map.  `watch` (may be NULL) is the launcher:
 * it sees the processes at work, and gets the status of each as it ends. */
typedef void (*WatchFn)(Ranks *, int rank, int status);

static inline int process_main(Ranks *r, int rank)
{
    /* Forked processes would map the world at one address. */
    if (mmap(NULL, (size_t)(rank + 1) << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        return 98;
    return world_map(r->arena, &r->files, rank, &r->world) == OK ? rank_main(r, rank) : 99;
}

static inline int run_processes(Ranks *r, WatchFn watch)
{
    if (ranks_open(r) != OK || world_map(r->arena, &r->files, -1, &r->world) != OK)
        return -1;
    pid_t pid[MOST_RANKS];
    for (int i = 0; i < r->n; i++) {
        pid[i] = fork();
        if (pid[i] < 0)
            abort();
        if (pid[i] == 0)
            _exit(process_main(r, i));
    }
    for (int left = r->n; left > 0; left--) {
        int status, rank = 0;
        pid_t who = wait(&status);
        while (pid[rank] != who)
            rank++;
        r->result[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        if (watch)
            watch(r, rank, status);
    }
    ranks_close(r);
    return ranks_failed(r);
}

#endif
