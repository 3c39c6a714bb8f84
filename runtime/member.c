/* Member: a process that is one rank of a run, started by a launcher. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/ranks.h"

static const char name[] = "PRUN_RANK";

const char *member_entry(Arena *a, const Member *m)
{
    return arena_printf(a, "%s=%d,%d,%d,%d,%d,%d", name, m->rank, m->files.control, m->files.shared, m->trace, m->life, m->launcher);
}

bool member_read(Member *m)
{
    const char *text = getenv(name);
    bool good = text && sscanf(text, "%d,%d,%d,%d,%d,%d", &m->rank, &m->files.control, &m->files.shared, &m->trace, &m->life, &m->launcher) == 6;
    unsetenv(name);
    return good;
}

/* ---- the launcher's death ---- */

static char farewell[80];             /* made before it is needed: a signal handler writes it */

static atomic_flag told = ATOMIC_FLAG_INIT;
static pid_t launcher;

/* Nobody would wait for this rank any more, nor pass on a signal. */
static void say_farewell(void)
{
    ssize_t written = write(STDERR_FILENO, farewell, strlen(farewell));
    _exit(status_exit(written < 0 ? ERR_IO : ERR_COMM));
}

/* Whoever comes second leaves the message and the end to the first. */
static void end_with_launcher(void)
{
    while (atomic_flag_test_and_set(&told))
        pause();
    say_farewell();
}

/* The signal that lets a stopped process go on: sent by the kernel when the launcher dies,
 * by anybody else when it does not.  Only the thread that watches takes it: see run.c. */
static void on_continue(int signal)
{
    (void)signal;
    if (getppid() != launcher && !atomic_flag_test_and_set(&told))   /* else the thread that it interrupts may be saying it */
        say_farewell();
}

static sigset_t only_continue(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCONT);
    return set;
}

/* The pipe has no writer but the launcher: reading it ends when that does. */
static void *watch_pipe(void *ctx)
{
    int fd = (int)(intptr_t)ctx;
    char byte;
    sigset_t its = only_continue();
    pthread_sigmask(SIG_UNBLOCK, &its, NULL);
    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
    end_with_launcher();
    return NULL;
}

/* The thread takes none of the signals that are the rank's to handle. */
static int start_watching(int fd)
{
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int reason = pthread_create(&thread, NULL, watch_pipe, (void *)(intptr_t)fd);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (reason == 0)
        pthread_detach(thread);
    return reason;
}

/* Two ways, as one of them may be barred: the kernel's signal, and the pipe. */
Status member_watch(const Member *m)
{
    snprintf(farewell, sizeof farewell, "error: rank %d ends: prun, which started it, is gone\n", m->rank);
    launcher = m->launcher;
    struct sigaction act = {.sa_handler = on_continue, .sa_flags = SA_RESTART};
    sigset_t its = only_continue();
    pthread_sigmask(SIG_BLOCK, &its, NULL);
    sigaction(SIGCONT, &act, NULL);
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    if (getppid() != launcher)
        end_with_launcher();
    int reason = start_watching(m->life);
    if (reason == 0)
        return OK;
    fprintf(stderr, "error: rank %d cannot start a thread: %s\n", m->rank, strerror(reason));
    return ERR_DEVICE;
}

/* ---- the run ---- */

Status member_run(Arena *a, const Program *p, const Member *m, uint64_t hash, const TallyParts *parts, const RunOptions *o)
{
    World *w;
    WorldFiles files = m->files;
    Peers peers = {.executor = o->executor, .hash = hash, .timeout = o->timeout, .parts = parts, .pss = memory_pss()};
    Status s = world_map(a, &files, m->rank, &w);
    world_discard(&files);
    TRY(s);
    peers.world = w;
    Traces t;
    s = traces_map(&t, m->trace, p->nranks, p->rank);
    if (s == OK) {
        peers.trace = trace_of(&t, p->rank);
        s = run_rank(a, p, o, &peers);
    }
    traces_close(&t);
    world_unmap(w);
    return s;
}
