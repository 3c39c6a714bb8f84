/* Waiting: a short spin, then yielding the processor, then sleep in the kernel; a
 * rank that others wait for in vain is found and blamed.
 *
 * With a core for each rank a long spin is the fastest.  With fewer cores a spinning
 * rank holds the one that its peer needs, so it yields almost at once; the kernel's
 * sleep and wake cost more than a peer's turn, and are for long waits. */
#include "runtime/comm/pulse.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/pause.h"

enum { SPINS = 2000, POLITE_SPINS = 20, YIELDS = 1000 };

/* Among ranks that take turns one that waits and yields is in the way: of caches, and of the
 * kernel, which takes it for one that works and leaves two that do on another core. */
static const double YIELD_SECONDS = 1e-3, POLITE_YIELD_SECONDS = 5e-5;

/* How long a sleeper goes without a look at the abort flag and at the rank it waits for, in
 * nanoseconds; and, where nothing wakes it, without one at what it waits for: longer and longer. */
enum { NAP = 50000000, FIRST_LOOK = 20000, LAST_LOOK = 1000000 };

/* The most that goes by between two looks while this process runs, in seconds: when a
 * whole job was stopped and goes on, nobody was slow. */
static const double longest_nap = 1;

/* The rank at the end of the chain of who waits for whom, how much it had begun when it
 * was first seen there, and for how many seconds it has been. */
typedef struct Suspect { int rank; long long begun; double looked, waited; } Suspect;

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool running(const World *w)
{
    return atomic_load_explicit(&w->header->blamed, memory_order_acquire) < 0;
}

void flag_raise(Flag *f, uint32_t value)
{
    /* The value is written before `sleepers` is read, and a sleeper adds itself
     * before it reads the value: one of the two sees the other. */
    atomic_store(&f->value, value);
    if (atomic_load(&f->sleepers) > 0)
        syscall(SYS_futex, &f->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- who is to blame ---- */

/* Whom a rank waits for; -1: nobody.  One that is stopped in a wait says for ever that it
 * waits, but what it waits for comes. */
static bool is_waiting(const World *w, const Waiting *x)
{
    if (atomic_load(&x->rank) < 0)
        return false;
    if (atomic_load(&x->flag) < 0)
        return true;
    const Flag *f = (const Flag *)((const char *)w->header + atomic_load(&x->flag));
    return !flag_reached(f, atomic_load(&x->value));
}

/* What it waits for, at one of its ends; NULL: nothing. */
static const Waiting *waits(const World *w, int rank)
{
    const Progress *p = world_progress(w, rank);
    for (int i = 0; i < ENDS; i++)
        if (is_waiting(w, &p->wait[i]))
            return &p->wait[i];
    return NULL;
}

static int waits_for(const World *w, int rank)
{
    const Waiting *x = waits(w, rank);
    return x ? atomic_load(&x->rank) : -1;
}

/* Follow the chain from `rank`; in a circle, some rank of it. */
static int last_waited_for(const World *w, int rank)
{
    for (int i = 0; i < w->header->nrank; i++) {
        int next = waits_for(w, rank);
        if (next < 0)
            break;
        rank = next;
    }
    return rank;
}

static bool is_stuck(const WorldEnd *e, int waited_for, Suspect *s)
{
    int rank = last_waited_for(e->world, waited_for);
    long long begun = atomic_load(&world_progress(e->world, rank)->begun);
    double now = clock_seconds(), gone = now - s->looked;
    if (rank != s->rank || begun != s->begun)
        *s = (Suspect){.rank = rank, .begun = begun};
    else
        s->waited += gone < longest_nap ? gone : longest_nap;
    s->looked = now;
    return s->waited >= e->timeout;
}

static void accuse(const WorldEnd *e, const Suspect *s)
{
    char why[100];
    if (waits_for(e->world, s->rank) >= 0)
        snprintf(why, sizeof why, "waits for ranks that wait for it, since %.1f s", s->waited);
    else
        snprintf(why, sizeof why, "made no progress for %.1f s while others waited for it", s->waited);
    world_abort(e->world, s->rank, why);
}

/* ---- waiting ---- */

static bool has_come(const Awaited *a)
{
    return a->flag ? flag_reached(a->flag, a->value) : a->there(a->what);
}

/* Whether the wait is over, and how. */
static bool over(const WorldEnd *e, const Awaited *a, Status *s)
{
    *s = has_come(a) ? OK : ERR_COMM;
    return *s == OK || !running(e->world);
}

static void sleep_at_flag(const WorldEnd *e, const Awaited *a)
{
    static const struct timespec nap = {.tv_nsec = NAP};
    atomic_fetch_add(&a->flag->sleepers, 1);
    uint32_t seen = atomic_load(&a->flag->value);
    if ((int32_t)(seen - a->value) < 0 && running(e->world))
        syscall(SYS_futex, &a->flag->value, FUTEX_WAIT, seen, &nap, NULL, 0);
    atomic_fetch_sub(&a->flag->sleepers, 1);
}

/* Look again and again, for as long as a sleep at a flag. */
static void sleep_and_look(const WorldEnd *e, const Awaited *a)
{
    Status s;
    for (long nap = FIRST_LOOK, slept = 0; slept < NAP && !over(e, a, &s); slept += nap) {
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        nap = 2 * nap < LAST_LOOK ? 2 * nap : LAST_LOOK;
    }
}

static Status sleep_until(WorldEnd *e, const Awaited *a)
{
    Suspect suspect = {.rank = -1};
    Status s;
    for (;;) {
        if (a->flag)
            sleep_at_flag(e, a);
        else
            sleep_and_look(e, a);
        if (over(e, a, &s))
            return s;
        if (is_stuck(e, a->rank, &suspect))
            accuse(e, &suspect);
    }
}

/* Other programs may make a single turn of theirs last milliseconds, so time counts too. */
static Status yield_until(WorldEnd *e, const Awaited *a)
{
    double end = clock_seconds() + (e->spins < SPINS ? POLITE_YIELD_SECONDS : YIELD_SECONDS);
    Status s;
    for (int i = 1; i <= YIELDS; i++) {
        if (over(e, a, &s))
            return s;
        if (i % 16 == 0 && clock_seconds() > end)
            break;
        sched_yield();
    }
    return sleep_until(e, a);
}

Status await(WorldEnd *e, const Awaited *a)
{
    Status s;
    for (int i = 0; i < e->spins; i++) {
        if (over(e, a, &s))
            return s;
        pause_once();
    }
    Progress *mine = world_progress(e->world, e->base.rank);
    Waiting *x = &mine->wait[e->which];
    double start = clock_seconds();
    long long in = e->beside >= 0 ? e->beside : atomic_load_explicit(&mine->instr, memory_order_relaxed);
    atomic_store_explicit(&x->instr, in, memory_order_relaxed);
    atomic_store_explicit(&x->kind, a->kind, memory_order_relaxed);
    atomic_store_explicit(&x->group, a->group, memory_order_relaxed);
    atomic_store_explicit(&x->flag, a->flag ? (char *)a->flag - (char *)e->world->header : -1, memory_order_relaxed);
    atomic_store_explicit(&x->value, a->value, memory_order_relaxed);
    atomic_store_explicit(&x->rank, a->rank, memory_order_release);
    s = yield_until(e, a);
    e->waited += clock_seconds() - start;
    if (s == OK)                      /* else it stays, for the message of whoever ends the run */
        atomic_store_explicit(&x->rank, -1, memory_order_release);
    return s;
}

int spins_for(int threads, int cores)
{
    return threads <= cores ? SPINS : POLITE_SPINS;
}

/* ---- the end of a run ---- */

static const char *const wait_text[] = {
#define X(name, text) text,
    WAIT_LIST(X)
#undef X
};

static long long instr_of(const World *w, int rank)
{
    const Waiting *x = waits(w, rank);
    return atomic_load(x ? &x->instr : &world_progress(w, rank)->instr);
}

static void print_instr(long long instr)
{
    if (instr >= 0)
        fprintf(stderr, ", at instruction %lld", instr);
}

static void print_waiting(int rank, const Waiting *x)
{
    int kind = atomic_load(&x->kind);
    fprintf(stderr, "note: rank %d", rank);
    print_instr(atomic_load(&x->instr));
    fprintf(stderr, ", waits for rank %d in %s", atomic_load(&x->rank), wait_text[kind]);
    if (kind != WAIT_send && kind != WAIT_recv)
        fprintf(stderr, " of group %u", atomic_load(&x->group));
    fputc('\n', stderr);
}

static void print_waits(const World *w, int rank)
{
    const Progress *p = world_progress(w, rank);
    for (int i = 0; i < ENDS; i++)
        if (is_waiting(w, &p->wait[i]))
            print_waiting(rank, &p->wait[i]);
}

void world_blame(World *w, int rank, const char *why)
{
    Header *h = w->header;
    int nobody = -1;
    assert(rank >= 0 && rank < h->nrank);
    if (!atomic_compare_exchange_strong(&h->blamed, &nobody, rank))
        return;
    fprintf(stderr, "error: rank %d %s", rank, why);
    print_instr(instr_of(w, rank));
    fputc('\n', stderr);
    for (int i = 0; i < h->nrank; i++)
        print_waits(w, i);
}

void world_abort(World *w, int rank, const char *why)
{
    if (w->pulse)
        pulse_abort(w->pulse, rank, why);
    else
        world_blame(w, rank, why);
}

int world_aborted(const World *w)
{
    return atomic_load(&w->header->blamed);
}

int64_t world_instr(const World *w, int rank)
{
    return instr_of(w, rank);
}
