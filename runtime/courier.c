/* Courier: see courier.h. */
#include "runtime/courier.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/pause.h"
#include "runtime/guard.h"

enum { SPINS = 2000 };                /* pauses before sleeping, when there are cores enough for all threads of all ranks */

/* How long a sleeper goes without a look at whether the other thread has given up. */
static const struct timespec nap = {.tv_nsec = 50000000};

/* A position that one thread moves on and the other waits for. */
typedef struct Place {
    atomic_llong at;
    atomic_int turns, sleepers;       /* turns: futex word; sleepers: threads in futex_wait, or about to be */
    char       apart[48];             /* no two places in one cache line */
} Place;

/* One thread's way through the calls. */
typedef struct Track {
    Place       passed;               /* all of its instructions up to here are done */
    int64_t     base;                 /* position of the head of its call */
    const Call *call;
    int64_t    *latest;               /* by When, procedure, any slot (0) or slot k (k + 1): head of the latest call before that ran such; 0: none */
} Track;

struct Courier {
    pthread_t   thread;
    Rank       *rank;
    Track       track[SIDES];
    Place       given;                /* number of orders */
    CallList    order;                /* the last one */
    atomic_bool quit, failed;         /* there will be no more; the courier lost a peer */
    atomic_llong waits_since;         /* ns: the rank's own thread waits for the courier; 0: it does not */
    uint32_t    places;               /* slots, and one for any */
    uint32_t   *proc_of;              /* per instruction */
    uint32_t   *wait0;                /* per instruction, and one more: its first wait */
    bool       *overwrites;           /* per instruction of the courier: what was sent before may lie where it writes */
    int         spins;
};

/* ---- waiting for each other ---- */

static void wake(Place *p)
{
    atomic_fetch_add(&p->turns, 1);
    syscall(SYS_futex, &p->turns, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* The position is written before `sleepers` is read, and a sleeper adds itself before it reads
 * the position: one of the two sees the other. */
static void move_on(Place *p, int64_t at)
{
    atomic_store(&p->at, at);
    if (atomic_load(&p->sleepers) > 0)
        wake(p);
}

static bool has_passed(const Place *p, int64_t at)
{
    return atomic_load_explicit(&p->at, memory_order_acquire) >= at;
}

static bool over(const Courier *c, const Place *p, int64_t at)
{
    return has_passed(p, at) || atomic_load(&c->failed) || atomic_load(&c->quit);
}

static void sleep_until(const Courier *c, Place *p, int64_t at)
{
    atomic_fetch_add(&p->sleepers, 1);
    for (;;) {
        int seen = atomic_load(&p->turns);
        if (over(c, p, at))
            break;
        syscall(SYS_futex, &p->turns, FUTEX_WAIT_PRIVATE, seen, &nap, NULL, 0);
    }
    atomic_fetch_sub(&p->sleepers, 1);
}

static Status await(const Courier *c, Place *p, int64_t at)
{
    for (int i = 0; i < c->spins && !over(c, p, at); i++)
        pause_once();
    if (!over(c, p, at))
        sleep_until(c, p, at);
    return has_passed(p, at) ? OK : ERR_COMM;
}

/* Until the other thread has passed a position. */
static Status await_other(Courier *c, Side side, int64_t at)
{
    Place *p = &c->track[side == SIDE_COMPUTE ? SIDE_COMM : SIDE_COMPUTE].passed;
    if (has_passed(p, at))
        return OK;
    if (side == SIDE_COMM)
        return await(c, p, at);
    atomic_store(&c->waits_since, (int64_t)(1e9 * seconds_now()));
    Status s = await(c, p, at);
    atomic_store(&c->waits_since, 0);
    return s;
}

double courier_exposed(const Rank *r, double begin, double end)
{
    double since = 1e-9 * (double)atomic_load(&r->courier->waits_since);
    if (since == 0)
        return 0;
    since = since > begin ? since : begin;           /* what it waits for comes after this instruction at the earliest */
    return end > since ? end - since : 0;
}

/* ---- positions ---- */

static int64_t *latest_of(const Courier *c, const Track *t, When when, uint32_t proc, uint32_t place)
{
    return &t->latest[((uint32_t)when * c->rank->program->nproc + proc) * c->places + place];
}

static int64_t position_in(const Courier *c, int64_t head, uint32_t instr)
{
    return head + 1 + instr - c->rank->program->proc[c->proc_of[instr]].first;
}

/* Where what a wait is for was done; 0: it has not run yet. */
static int64_t awaited(const Courier *c, const Track *t, const Wait *w)
{
    const Program *p = c->rank->program;
    const Instr *on = &p->instr[w->on];
    uint32_t proc = c->proc_of[w->on];
    if (proc == t->call->proc && w->on < w->instr && instr_runs(on, p, t->call))
        return position_in(c, t->base, w->on);
    int64_t head = *latest_of(c, t, on->when, proc, w->same_slot ? t->call->slot + 1 : 0);
    return head > 0 ? position_in(c, head, w->on) : 0;
}

/* ---- on the way ---- */

Status courier_enter(Rank *r, Side side, const Call *call)
{
    Courier *c = r->courier;
    Track *t = &c->track[side];
    t->call = call;
    if (side == SIDE_COMPUTE)
        TRY(exchange_settle(r, call->proc));
    move_on(&t->passed, t->base);
    return OK;
}

Status courier_pass(Rank *r, Side side, uint32_t instr)
{
    Courier *c = r->courier;
    Track *t = &c->track[side];
    int64_t before = position_in(c, t->base, instr) - 1;
    move_on(&t->passed, before);
    for (uint32_t k = c->wait0[instr]; k < c->wait0[instr + 1]; k++) {
        const Wait *w = &r->program->wait[k];
        if (side_of(&r->program->instr[w->on]) != side)
            TRY(await_other(c, side, awaited(c, t, w)));
    }
    if (c->overwrites[instr])
        TRY(await_other(c, side, t->base));
    return guard_orders(r, instr) ? await_other(c, side, before) : OK;
}

void courier_leave(Rank *r, Side side)
{
    const Program *p = r->program;
    Courier *c = r->courier;
    Track *t = &c->track[side];
    const Proc *proc = &p->proc[t->call->proc];
    bool last = t->call->micro + (int64_t)1 == p->microbatches;
    for (int when = WHEN_ALWAYS; when <= (last ? WHEN_LAST : WHEN_ALWAYS); when++) {
        *latest_of(c, t, (When)when, t->call->proc, 0) = t->base;
        *latest_of(c, t, (When)when, t->call->proc, t->call->slot + 1) = t->base;
    }
    t->base += 1 + (int64_t)(proc->end - proc->first);
    move_on(&t->passed, t->base - 1);
}

/* ---- the thread ---- */

/* One order after the other.  When a peer is lost the run is over, and both threads end their ways. */
static void *courier_main(void *ctx)
{
    Courier *c = ctx;
    for (int64_t k = 1; await(c, &c->given, k) == OK; k++) {
        const CallList mine = c->order;              /* the next may be written as soon as all of this one is passed */
        if (calls_run_side(c->rank, SIDE_COMM, &mine) == OK)
            continue;
        atomic_store(&c->failed, true);
        wake(&c->track[SIDE_COMM].passed);
    }
    return NULL;
}

Status courier_run(Rank *r, const CallList *calls)
{
    Courier *c = r->courier;
    if (calls->n == 0)                               /* no position would tell when the courier has taken it */
        return OK;
    c->order = *calls;
    move_on(&c->given, atomic_load(&c->given.at) + 1);
    TRY(calls_run_side(r, SIDE_COMPUTE, calls));
    return await_other(c, SIDE_COMPUTE, c->track[SIDE_COMPUTE].base - 1);
}

/* Signals are the rank's own thread's to handle, but for those of what a thread itself did. */
static int start(Courier *c)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int reason = pthread_create(&c->thread, NULL, courier_main, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return reason;
}

/* Whether an instruction writes where a send that its procedure waits for had its message. */
static bool overwrites(const Rank *r, uint32_t proc, const Instr *in)
{
    const Program *p = r->program;
    for (uint32_t k = r->sent.first[proc]; k < r->sent.first[proc + 1]; k++)
        for (uint8_t i = 0; i < in->nout; i++)
            if (has_tensor(in->out[i]) && p->tensor[in->out[i].i].buffer.i == p->tensor[p->instr[r->sent.instr[k]].arg[0].i].buffer.i)
                return true;
    return false;
}

static void index_procs(Courier *c, Arena *a)
{
    const Program *p = c->rank->program;
    c->proc_of = NEWN(a, uint32_t, p->ninstr + 1);
    c->overwrites = NEWN(a, bool, p->ninstr + 1);
    for (uint32_t k = 0; k < p->nproc; k++)
        for (uint32_t i = p->proc[k].first; i < p->proc[k].end; i++) {
            c->proc_of[i] = k;
            c->overwrites[i] = side_of(&p->instr[i]) == SIDE_COMM && overwrites(c->rank, k, &p->instr[i]);
        }
}

static void index_program(Courier *c, Arena *a)
{
    const Program *p = c->rank->program;
    index_procs(c, a);
    c->wait0 = NEWN(a, uint32_t, p->ninstr + 1);
    for (uint32_t i = 0, k = 0; i <= p->ninstr; i++) {
        c->wait0[i] = k;
        while (k < p->nwait && p->wait[k].instr == i)
            k++;
    }
    c->places = 2;
    for (uint32_t i = 0; i < p->ncall; i++)
        c->places = p->call[i].slot + 2 > c->places ? p->call[i].slot + 2 : c->places;
    for (int side = 0; side < SIDES; side++) {
        c->track[side].base = 1;
        c->track[side].latest = NEWN(a, int64_t, (size_t)2 * p->nproc * c->places);
    }
}

Status courier_open(Rank *r)
{
    const Program *p = r->program;
    Courier *c = NEW(r->arena, Courier);
    int threads = (p->threads + p->comm_threads) * r->near;
    c->rank = r;
    c->spins = threads <= team_cores() ? SPINS : 0;
    index_program(c, r->arena);
    endpoint_crowd(r->end, threads);
    endpoint_crowd(r->second, threads);
    r->courier = c;
    int reason = start(c);
    if (reason == 0)
        return OK;
    r->courier = NULL;
    fprintf(stderr, "error: rank %u cannot start the thread that communicates: %s\n", p->rank, strerror(reason));
    return ERR_DEVICE;
}

void courier_close(Rank *r)
{
    Courier *c = r->courier;
    if (!c)
        return;
    atomic_store(&c->quit, true);
    wake(&c->given);
    wake(&c->track[SIDE_COMPUTE].passed);
    pthread_join(c->thread, NULL);
    r->courier = NULL;
}
