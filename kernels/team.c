/* Team: a generation counter starts a round, a counter of workers still busy
 * ends it.  Whoever waits spins for some tens of microseconds, the length of a
 * gap between two kernels, and then sleeps in the kernel.  When the team has
 * more threads than the process has cores nobody spins: a spinning thread would
 * hold the core that the awaited one needs. */
#include "kernels/team.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/pause.h"

enum { SPINS = 2000 };                /* pauses before sleeping, when there are cores enough */

typedef struct Worker { Team *team; int index; pthread_t thread; } Worker;

struct Team {
    int         n;
    atomic_int  spins;
    TeamFn      fn;                   /* of the current round; NULL: end the thread */
    void       *ctx;
    atomic_int  round;                /* a change starts a round; futex word of the workers */
    atomic_int  busy;                 /* workers not yet done, without worker 0; futex word of the caller */
    atomic_int  sleepers;             /* threads in futex_wait, or about to be */
    Worker     *worker;               /* n - 1: worker 1 and up */
};

/* Wait until *word is not `old`. */
static void wait_change(Team *t, atomic_int *word, int old)
{
    for (int i = 0, n = atomic_load_explicit(&t->spins, memory_order_relaxed); i < n; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        pause_once();
    }
    /* The waker changes the word before it reads `sleepers`, we add to
     * `sleepers` before we read the word: one of the two sees the other. */
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(word) == old)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&t->sleepers, 1);
}

static void wake(Team *t, atomic_int *word)
{
    if (atomic_load(&t->sleepers) > 0)
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *work(void *arg)
{
    Worker *w = arg;
    Team *t = w->team;
    for (int seen = 0;; seen++) {
        wait_change(t, &t->round, seen);
        if (!t->fn)
            return NULL;
        t->fn(t->ctx, w->index, t->n);
        if (atomic_fetch_sub(&t->busy, 1) == 1)
            wake(t, &t->busy);
    }
}

int team_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void begin_round(Team *t, TeamFn fn, void *ctx)
{
    t->fn = fn;
    t->ctx = ctx;
    atomic_store(&t->busy, t->n - 1);
    atomic_fetch_add(&t->round, 1);
    wake(t, &t->round);
}

/* End and join the workers that were started; `n` counts worker 0. */
static void end_threads(Team *t, int n)
{
    t->n = n;
    begin_round(t, NULL, NULL);
    for (int i = 0; i < n - 1; i++)
        pthread_join(t->worker[i].thread, NULL);
}

static int start_threads(Team *t)
{
    for (int i = 1; i < t->n; i++) {
        Worker *w = &t->worker[i - 1];
        *w = (Worker){.team = t, .index = i};
        if (pthread_create(&w->thread, NULL, work, w) != 0)
            return i;
    }
    return t->n;
}

void team_crowd(Team *t, int threads)
{
    atomic_store_explicit(&t->spins, threads <= team_cores() ? SPINS : 0, memory_order_relaxed);
}

Team *team_new(int n)
{
    assert(n >= 1);
    Team *t = calloc(1, sizeof *t);
    Worker *w = calloc((size_t)n, sizeof *w);
    if (!t || !w) {
        free(t);
        free(w);
        return NULL;
    }
    t->n = n;
    t->worker = w;
    team_crowd(t, n);
    sigset_t all, old;                               /* signals are the caller's to handle, */
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);                        /* but for those of what a thread itself did: */
    sigdelset(&all, SIGBUS);                         /* blocked, they would end the process without a word */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int started = start_threads(t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (started == n)
        return t;
    end_threads(t, started);
    free(w);
    free(t);
    return NULL;
}

int team_size(const Team *t)
{
    return t->n;
}

void team_run(Team *t, TeamFn fn, void *ctx)
{
    if (t->n == 1) {
        fn(ctx, 0, 1);
        return;
    }
    begin_round(t, fn, ctx);
    fn(ctx, 0, t->n);
    for (int busy; (busy = atomic_load_explicit(&t->busy, memory_order_acquire)) != 0;)
        wait_change(t, &t->busy, busy);
}

void team_free(Team *t)
{
    if (!t)
        return;
    end_threads(t, t->n);
    free(t->worker);
    free(t);
}

void team_part(int64_t n, int64_t grain, int worker, int nworker, int64_t *first, int64_t *end)
{
    int64_t units = (n + grain - 1) / grain;
    int64_t a = units * worker / nworker * grain, b = units * (worker + 1) / nworker * grain;
    *first = a < n ? a : n;
    *end = b < n ? b : n;
}
