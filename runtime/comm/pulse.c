/* Pulse: see pulse.h. */
#include "runtime/comm/pulse.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/far.h"

/* Seconds: between two beats; a rank that was heard of so long ago is silent.  From the death of a rank until it is blamed, in which others come to wait for it; until
 * a rank speaks itself when the speaker does not; for all to end after the run was aborted; in
 * which a rank that was stopped and goes on may find that the others have ended the run. */
static const double beat_time = 0.2, silence = 1, death_limit = 0.3, speaker_limit = 1.5, end_limit = 2, grace = 3;
/* How long one may be silent, unless a timeout was given; of which so many beats are to be heard. */
enum { SILENCE_LIMIT = 5, BEATS = 5 };

/* Nanoseconds between two looks, also while messages of this rank are on their way; and the most
 * that counts of the time between two looks, in seconds: when a whole job was stopped and goes on, no rank was slow. */
enum { LOOK = 20000000, BUSY_LOOK = 2000000 };
static const double longest_look = 1;

typedef enum BeatKind { BEAT_alive, BEAT_leaves, BEAT_accuses, BEAT_ends } BeatKind;

/* What a rank says.  leaves: the last of its beats; accuses, ends: the rank that is to blame, or was blamed. */
typedef struct Beat {
    int32_t  from, kind, blamed, pad;
    int64_t  instr, begun;
    struct { int64_t instr; int32_t rank, kind; uint32_t group, pad; } wait[ENDS];
    char     why[128];
} Beat;

/* Another rank. */
typedef struct Peer {
    Beat       out;                   /* on its way to it */
    NetRequest sent;
    bool       busy;                  /* out is */
    BeatKind   told;                  /* that this rank leaves, or how the run ended; BEAT_alive: neither */
    bool       left, dead;
    atomic_int pidfd;                 /* of its process, where that is on this machine; else -1 */
    double     heard, dead_for;       /* seconds since; < 0: not yet heard of, which counts once all have met */
} Peer;

struct Pulse {
    const Net      *net;
    World          *world;
    int             rank, nrank;
    Peer           *peer;
    Beat            in;
    NetRequest      next;             /* receives the next beat into `in` */
    pthread_t       thread;
    pthread_mutex_t lock;             /* of the accusation */
    int             accused;          /* -1: nobody */
    char            why[sizeof(((Beat *)0)->why)];
    bool            passed_on;        /* to the speaker, */
    double          since_passed, since_aborted, since_beat, since_stopped;           /* seconds */
    _Atomic double  timeout;
    atomic_int      lent;
    atomic_bool     met, leaves, left, hushed;                                       /* met: all ranks were there once */
};

/* ---- sending ---- */

static Beat beat_of(const Pulse *p, BeatKind kind)
{
    const Progress *mine = world_progress(p->world, p->rank);
    Beat b = {.from = p->rank, .kind = (int32_t)kind, .blamed = world_aborted(p->world), .instr = atomic_load(&mine->instr),
              .begun = atomic_load(&mine->begun)};
    for (int i = 0; i < ENDS; i++) {
        const Waiting *w = &mine->wait[i];
        b.wait[i].rank = atomic_load(&w->rank);
        b.wait[i].instr = atomic_load(&w->instr);
        b.wait[i].kind = atomic_load(&w->kind);
        b.wait[i].group = atomic_load(&w->group);
    }
    return b;
}

static bool is_busy(const Pulse *p, Peer *peer)
{
    int64_t bytes;
    peer->busy = peer->busy && p->net->test(&peer->sent, &bytes) == NET_UNDER_WAY;
    return peer->busy;
}

/* Unless the one before is still on its way.  A net that fails has said so, and the silence will tell. */
static bool send_beat(Pulse *p, int to, const Beat *b)
{
    Peer *peer = &p->peer[to];
    if (is_busy(p, peer))
        return false;
    peer->out = *b;
    peer->busy = p->net->send(to, PULSE_TAG, &peer->out, sizeof peer->out, &peer->sent);
    return peer->busy;
}

static bool is_silent(const Pulse *p, int rank)
{
    return rank != p->rank && (p->peer[rank].heard >= silence || p->peer[rank].dead);
}

static int speaker_of(const Pulse *p)
{
    int rank = 0;
    while (rank < p->rank && (is_silent(p, rank) || p->peer[rank].left))
        rank++;
    return rank;
}

/* What it has to say to all who are left, once to each. */
static bool tell_all(Pulse *p, BeatKind kind)
{
    Beat b = beat_of(p, kind);
    bool all = true;
    for (int i = 0; i < p->nrank; i++) {
        Peer *peer = &p->peer[i];
        if (i == p->rank || peer->dead)
            continue;
        if (peer->told != kind && send_beat(p, i, &b))
            peer->told = kind;
        all = all && peer->told == kind && !is_busy(p, peer);
    }
    return all;
}

static void beat(Pulse *p)
{
    Beat b = beat_of(p, BEAT_alive);
    double least = atomic_load(&p->timeout) / BEATS;
    if (p->since_beat < (least < beat_time ? least : beat_time))
        return;
    p->since_beat = 0;
    for (int i = 0; i < p->nrank; i++)
        if (i != p->rank && !p->peer[i].dead)
            (void)send_beat(p, i, &b);
}

/* ---- hearing ---- */

static void note_progress(Pulse *p, const Beat *b)
{
    Progress *theirs = world_progress(p->world, b->from);
    atomic_store(&theirs->instr, b->instr);
    atomic_store(&theirs->begun, b->begun);
    for (int i = 0; i < ENDS; i++) {
        Waiting *w = &theirs->wait[i];
        atomic_store(&w->flag, -1);
        atomic_store(&w->instr, b->wait[i].instr);
        atomic_store(&w->kind, b->wait[i].kind);
        atomic_store(&w->group, b->wait[i].group);
        atomic_store(&w->rank, b->wait[i].rank);
    }
}

/* Another rank speaks for all: it has printed. */
static void note_end(Pulse *p, int blamed)
{
    int nobody = -1;
    atomic_compare_exchange_strong(&p->world->header->blamed, &nobody, blamed);
}

static void hear(Pulse *p, const Beat *b)
{
    Peer *peer = &p->peer[b->from];
    peer->heard = 0;
    switch ((BeatKind)b->kind) {
    case BEAT_alive:   note_progress(p, b); break;
    case BEAT_leaves:  peer->left = true; break;
    case BEAT_accuses: world_blame(p->world, b->blamed, b->why); break;
    case BEAT_ends:    note_end(p, b->blamed); break;
    }
}

static bool expect(Pulse *p)
{
    return p->net->recv(NET_ANY, PULSE_TAG, &p->in, sizeof p->in, &p->next);
}

static void hear_all(Pulse *p)
{
    int64_t bytes;
    while (p->net->test(&p->next, &bytes) == NET_DONE) {
        const Beat b = p->in;
        assert(bytes == (int64_t)sizeof b && b.from >= 0 && b.from < p->nrank);
        if (!expect(p))
            return;
        hear(p, &b);
    }
}

/* ---- judging ---- */

/* The kernel tells of a rank of this machine, the net perhaps of any. */
static bool has_died(const Pulse *p, int rank)
{
    struct pollfd f = {.fd = p->peer[rank].pidfd, .events = POLLIN};
    return (f.fd >= 0 && poll(&f, 1, 0) == 1) || (p->net->gone && p->net->gone(rank));
}

static void accuse(Pulse *p, int rank, const char *why)
{
    pthread_mutex_lock(&p->lock);
    if (p->accused < 0) {
        p->accused = rank;
        snprintf(p->why, sizeof p->why, "%s", why);
    }
    pthread_mutex_unlock(&p->lock);
}

/* What a rank waited for that is dead, or is silent, may have come. */
static void forget_waits(const Pulse *p, int rank)
{
    for (int i = 0; i < ENDS; i++)
        atomic_store(&world_progress(p->world, rank)->wait[i].rank, -1);
}

static void judge_dead(Pulse *p, int rank, double gone)
{
    Peer *peer = &p->peer[rank];
    char why[sizeof p->why];
    forget_waits(p, rank);
    peer->dead_for += gone;
    if (peer->dead_for < death_limit || p->since_stopped < grace)
        return;
    if (peer->heard < 0)
        snprintf(why, sizeof why, "died before it was heard of");
    else
        snprintf(why, sizeof why, "died; it was last heard of %.1f s before that", peer->heard - peer->dead_for);
    accuse(p, rank, why);
}

static const char *say_silent(const Pulse *p, int rank, char why[sizeof p->why])
{
    snprintf(why, sizeof p->why, "has not been heard of for %.1f s: it was stopped, or its machine or the network was lost", p->peer[rank].heard);
    return why;
}

static void judge_silent(Pulse *p, int rank)
{
    double limit = atomic_load(&p->timeout);
    char why[sizeof p->why];
    forget_waits(p, rank);
    if (p->peer[rank].heard >= (limit > silence ? limit : silence))
        accuse(p, rank, say_silent(p, rank, why));
}

static void judge(Pulse *p, double gone)
{
    for (int i = 0; i < p->nrank; i++) {
        Peer *peer = &p->peer[i];
        if (i == p->rank || peer->left)
            continue;
        peer->dead = peer->dead || has_died(p, i);
        if (peer->heard >= 0 || atomic_load(&p->met))
            peer->heard = (peer->heard > 0 ? peer->heard : 0) + gone;
        if (peer->dead)
            judge_dead(p, i, gone);
        else if (is_silent(p, i))
            judge_silent(p, i);
    }
}

/* ---- the end of a run ---- */

/* Whom this rank accuses.  Of one for whom it waited in vain, silence is the reason if it is silent. */
static int accused_now(Pulse *p)
{
    pthread_mutex_lock(&p->lock);
    int accused = p->accused;
    if (accused >= 0 && is_silent(p, accused) && !p->peer[accused].dead && !p->passed_on)
        (void)say_silent(p, accused, p->why);
    pthread_mutex_unlock(&p->lock);
    return accused;
}

/* Have the speaker blame whom this rank accuses, or do it. */
static void pass_on(Pulse *p, double gone)
{
    int accused = accused_now(p), speaker = speaker_of(p);
    if (accused < 0)
        return;
    p->since_passed += gone;
    if (speaker == p->rank || p->since_passed >= speaker_limit) {
        world_blame(p->world, accused, p->why);
    } else if (!p->passed_on) {
        Beat b = beat_of(p, BEAT_accuses);
        b.blamed = accused;
        memcpy(b.why, p->why, sizeof b.why);
        p->passed_on = send_beat(p, speaker, &b);
    }
}

/* A rank of this machine that was stopped nobody else may end. */
void pulse_end(const Pulse *p, int status)
{
    for (int i = 0; i < p->nrank && !p->net->ends_all; i++)
        if (p->peer[i].pidfd >= 0 && is_silent(p, i))
            syscall(SYS_pidfd_send_signal, p->peer[i].pidfd, SIGKILL, NULL, 0);
    p->net->abort(status);
}

/* Whoever does not end by itself is ended with the others, by the speaker, or by all if that does not. */
static void end_aborted(Pulse *p, double gone)
{
    double limit = speaker_of(p) == p->rank ? end_limit : end_limit + speaker_limit;
    bool told = atomic_load(&p->hushed) || tell_all(p, BEAT_ends);
    p->since_aborted += gone;
    if (told || p->since_aborted >= end_limit / 2)
        atomic_store(&p->hushed, true);
    if (p->since_aborted >= limit)
        pulse_end(p, status_exit(ERR_COMM));
}

/* ---- the thread ---- */

static bool all_left(const Pulse *p)
{
    for (int i = 0; i < p->nrank; i++)
        if (i != p->rank && !p->peer[i].left && !p->peer[i].dead)
            return false;
    return true;
}

/* `gone` seconds after the last look. */
static void look(Pulse *p, double gone)
{
    p->since_beat += gone;
    p->since_stopped = gone < longest_look ? p->since_stopped + gone : 0;
    if (atomic_load(&p->hushed)) {
        end_aborted(p, gone);
        return;
    }
    hear_all(p);
    judge(p, gone);
    pass_on(p, gone);
    if (world_aborted(p->world) >= 0)
        end_aborted(p, gone);
    else if (!atomic_load(&p->leaves))
        beat(p);
    else if (tell_all(p, BEAT_leaves) && all_left(p))
        atomic_store(&p->left, true);
}

static void *pulse_main(void *ctx)
{
    Pulse *p = ctx;
    for (double last = clock_seconds(); !atomic_load(&p->left);) {
        nanosleep(&(struct timespec){.tv_nsec = atomic_load(&p->lent) > 0 ? BUSY_LOOK : LOOK}, NULL);
        double at = clock_seconds(), gone = at - last;
        look(p, gone < longest_look ? gone : longest_look);
        last = at;
    }
    return NULL;
}

/* Signals are the rank's own thread's to handle. */
static Status start(Pulse *p)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int reason = pthread_create(&p->thread, NULL, pulse_main, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (reason == 0)
        return OK;
    fprintf(stderr, "error: rank %d cannot start a thread: %s\n", p->rank, strerror(reason));
    return ERR_DEVICE;
}

/* ---- for others ---- */

Status pulse_open(Arena *a, const Net *net, World *w, int rank)
{
    Pulse *p = NEW(a, Pulse);
    int n = world_nrank(w);
    *p = (Pulse){.net = net, .world = w, .rank = rank, .nrank = n, .peer = NEWN(a, Peer, n), .accused = -1, .timeout = SILENCE_LIMIT, .since_stopped = grace};
    for (int i = 0; i < n; i++) {
        p->peer[i].heard = -1;
        p->peer[i].pidfd = -1;
    }
    pthread_mutex_init(&p->lock, NULL);
    w->pulse = p;
    if (!expect(p))
        return ERR_COMM;
    return start(p);
}

void pulse_watch(Pulse *p, int rank, int pid)
{
    p->peer[rank].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
}

void pulse_close(Pulse *p)
{
    atomic_store(&p->leaves, true);
    pthread_join(p->thread, NULL);
    p->net->cancel(&p->next);
    for (int i = 0; i < p->nrank; i++)
        if (p->peer[i].pidfd >= 0)
            close(p->peer[i].pidfd);
}

const Net *pulse_net(const Pulse *p)
{
    return p->net;
}

void pulse_met(Pulse *p)
{
    atomic_store(&p->met, true);
}

void pulse_pace(Pulse *p, double timeout)
{
    atomic_store(&p->timeout, timeout);
}

void pulse_abort(Pulse *p, int rank, const char *why)
{
    accuse(p, rank, why);
    while (world_aborted(p->world) < 0)
        nanosleep(&(struct timespec){.tv_nsec = BUSY_LOOK}, NULL);
}

void pulse_hush(Pulse *p)
{
    while (!atomic_load(&p->hushed))
        nanosleep(&(struct timespec){.tv_nsec = BUSY_LOOK}, NULL);
}

void pulse_lend(Pulse *p, int messages)
{
    atomic_fetch_add(&p->lent, messages);
}
