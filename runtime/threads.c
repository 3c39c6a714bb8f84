/* Ranks as threads of one process: for tests, and for looking into a run with a debugger. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/ranks.h"

typedef struct RankThread {
    const Crew *crew;
    uint32_t    rank;
    Peers       peers;
    pthread_t   thread;
    Status      status;
} RankThread;

static void *rank_main(void *ctx)
{
    RankThread *t = ctx;
    Arena *a = arena_new("rank");
    t->status = run_rank(a, t->crew->program[t->rank], t->crew->o, &t->peers);
    arena_free(a);
    return NULL;
}

/* Number of threads that were started; when not all could be, the run is over. */
static uint32_t start_all(RankThread *t, const Crew *c, World *w, const Traces *traces)
{
    for (uint32_t i = 0; i < c->n; i++) {
        t[i] = (RankThread){.crew = c, .rank = i, .peers = {.world = w, .executor = c->o->executor, .hash = c->hash, .trace = trace_of(traces, i), .timeout = c->o->timeout,
                                                                   .parts = c->parts ? c->parts[i] : NULL}};
        int reason = pthread_create(&t[i].thread, NULL, rank_main, &t[i]);
        if (reason == 0)
            continue;
        fprintf(stderr, "error: cannot start a thread for rank %u: %s\n", i, strerror(reason));
        world_abort(w, (int)i, "could not be started");
        return i;
    }
    return c->n;
}

/* The first failure that is not another rank's. */
static Status join_all(RankThread *t, uint32_t n)
{
    Status first = OK;
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(t[i].thread, NULL);
        if (t[i].status != OK && (first == OK || first == ERR_COMM))
            first = t[i].status;
    }
    return first;
}

static Status run_threads(Arena *a, const Crew *c, World *w, const Traces *traces)
{
    RankThread *t = NEWN(a, RankThread, c->n);
    run_hold_signals();
    uint32_t started = start_all(t, c, w, traces);
    Status s = join_all(t, started);
    crew_explain(c, w);
    return started < c->n ? ERR_DEVICE : s;
}

Status crew_as_threads(Arena *a, const Crew *c)
{
    WorldFiles files;
    World *w;
    TRY(crew_check(a, c));
    TRY(crew_world(c, &files));
    Status s = world_map(a, &files, 0, &w);
    world_discard(&files);
    TRY(s);
    Traces traces;
    s = traces_open(&traces, c->o->trace, c->n);
    if (s == OK) {
        s = run_threads(a, c, w, &traces);
        Status written = traces_write(a, &traces, c->program, c->o->trace);
        s = s == OK ? written : s;
    }
    traces_close(&traces);
    world_unmap(w);
    return s;
}
