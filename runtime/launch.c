/* Launch: ranks as processes that execute this program again, and the wait for them.
 *
 * The launcher computes nothing.  It sees what no rank can see of another: that it died,
 * and how, or that it is stopped; and it ends what does not end by itself. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/ranks.h"
#include "runtime/stop.h"

/* Seconds: how long a rank may be stopped; until the run is aborted after a rank was
 * killed (the others come to wait for it, and can be asked for what) or ended with an
 * error (which all may see, and end alike); for the others to end then. */
static const double stop_limit = 5, death_limit = 0.3, error_limit = 1, end_limit = 4;

/* The wait between two looks; and the most that counts of one, in seconds: when all of a
 * job is stopped and goes on, no rank was slow. */
static const struct timespec nap = {.tv_nsec = 50000000};
static const double longest_nap = 1;

typedef struct Child {
    pid_t  pid;                       /* 0: ended, or never started */
    bool   ended;
    int    status;                    /* as wait() gives it */
    double stopped;                   /* seconds; < 0: it is not */
} Child;

typedef struct Launcher {
    Arena      *arena;
    const Crew *crew;
    World      *world;
    WorldFiles  files;
    Traces      traces;
    int         life[2];              /* a pipe of which this process alone has the end to write to */
    sigset_t    waited, before;       /* signals that are waited for; the mask before */
    Child       child[WORLD_RANKS];
    uint32_t    left;                 /* children that run */
    int         failed;               /* the first rank that was killed or ended with an error; -1: none */
    double      since_failed, since_aborted;         /* seconds */
} Launcher;

extern char **environ;

/* ---- starting ---- */

/* What was read from standard input, for those who read it again; -1: it was not read. */
static Status keep_input(const char *text, int *fd)
{
    *fd = -1;
    if (!text)
        return OK;
    size_t n = strlen(text);
    *fd = memfd_create("prun input", MFD_CLOEXEC);
    if (*fd >= 0 && write(*fd, text, n) == (ssize_t)n)
        return OK;
    fprintf(stderr, "error: cannot keep %zu bytes of standard input: %s\n", n, strerror(errno));
    return ERR_NOMEM;
}

static char **environment_with(Arena *a, const char *entry)
{
    char **list = NULL;
    uint32_t n = 0;
    for (char **e = environ; *e; e++)
        PUSH(a, list, n, *e);
    PUSH(a, list, n, arena_strdup(a, entry));
    PUSH(a, list, n, NULL);
    return list;
}

/* Each child has an offset of its own in the input.  What asks to stop stays blocked,
 * as the rank looks for it between its steps. */
static void become_rank(const Launcher *l, int input, char *const *argv, char **env)
{
    char path[40];
    sigset_t stop, mask;
    snprintf(path, sizeof path, "/proc/self/fd/%d", input);
    int fd = input < 0 ? -1 : open(path, O_RDONLY);
    bool good = (input < 0 || (fd >= 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO)) && fcntl(l->life[0], F_SETFD, 0) == 0;
    stop_signals(&stop);
    sigorset(&mask, &l->before, &stop);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (good)
        execve("/proc/self/exe", argv, env);
    fprintf(stderr, "error: cannot execute prun again for a rank: %s\n", strerror(errno));
    _exit(status_exit(ERR_DEVICE));
}

static Status start_all(Launcher *l, int input, char *const *argv)
{
    for (uint32_t i = 0; i < l->crew->n; i++) {
        const Member m = {.rank = (int)i, .files = l->files, .trace = l->traces.fd, .life = l->life[0], .launcher = getpid()};
        char **env = environment_with(l->arena, member_entry(l->arena, &m));
        pid_t pid = fork();
        if (pid == 0)
            become_rank(l, input, argv, env);
        if (pid < 0) {
            fprintf(stderr, "error: cannot start a process for rank %u: %s\n", i, strerror(errno));
            world_abort(l->world, (int)i, "could not be started");
            return ERR_DEVICE;
        }
        l->child[i] = (Child){.pid = pid, .stopped = -1};
        l->left++;
    }
    return OK;
}

/* ---- watching ---- */

static void signal_all(const Launcher *l, int signal)
{
    for (uint32_t i = 0; i < l->crew->n; i++)
        if (l->child[i].pid > 0)
            kill(l->child[i].pid, signal);
}

static void note_end(Launcher *l, int rank, int status)
{
    l->child[rank] = (Child){.ended = true, .status = status, .stopped = -1};
    l->left--;
    if (status != 0 && l->failed < 0)
        l->failed = rank;
}

static void reap(Launcher *l)
{
    int status;
    for (uint32_t i = 0; i < l->crew->n; i++) {
        Child *c = &l->child[i];
        while (c->pid > 0 && waitpid(c->pid, &status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
            if (WIFSTOPPED(status))
                c->stopped = 0;
            else if (WIFCONTINUED(status))
                c->stopped = -1;
            else
                note_end(l, (int)i, status);
        }
    }
}

/* `seconds` went by. */
static void judge_stopped(Launcher *l, double seconds)
{
    double limit = l->crew->o->timeout > 0 ? l->crew->o->timeout : stop_limit;
    for (uint32_t i = 0; i < l->crew->n; i++) {
        Child *c = &l->child[i];
        if (c->pid == 0 || c->stopped < 0)
            continue;
        c->stopped += seconds;
        if (c->stopped >= limit)
            world_abort(l->world, (int)i, arena_printf(l->arena, "was stopped by a signal, %.1f s ago", c->stopped));
    }
}

static void abort_for(Launcher *l, int rank)
{
    int status = l->child[rank].status, signal = WTERMSIG(status);
    const char *name = WIFSIGNALED(status) ? sigabbrev_np(signal) : NULL;
    world_abort(l->world, rank, name                 ? arena_printf(l->arena, "was killed by SIG%s", name)
                                : WIFSIGNALED(status) ? arena_printf(l->arena, "was killed by signal %d", signal)
                                                      : arena_printf(l->arena, "ended with status %d", WEXITSTATUS(status)));
}

static void judge_failed(Launcher *l, double seconds)
{
    if (l->failed < 0 || l->left == 0)
        return;
    l->since_failed += seconds;
    if (l->since_failed >= (WIFSIGNALED(l->child[l->failed].status) ? death_limit : error_limit))
        abort_for(l, l->failed);
}

/* Who is stopped cannot end by itself. */
static void end_aborted(Launcher *l, double seconds)
{
    if (world_aborted(l->world) < 0)
        return;
    l->since_aborted += seconds;
    for (uint32_t i = 0; i < l->crew->n; i++)
        if (l->child[i].pid > 0 && (l->child[i].stopped >= 0 || l->since_aborted >= end_limit))
            kill(l->child[i].pid, SIGKILL);
}

static void watch(Launcher *l)
{
    for (double last = seconds_now(); l->left > 0;) {
        int signal = sigtimedwait(&l->waited, NULL, &nap);
        if (signal > 0 && signal != SIGCHLD)
            signal_all(l, SIGTERM);
        reap(l);
        double now = seconds_now(), gone = now - last;
        gone = gone < longest_nap ? gone : longest_nap;
        judge_stopped(l, gone);
        judge_failed(l, gone);
        end_aborted(l, gone);
        last = now;
    }
}

/* ---- all of it ---- */

static void take_signals(Launcher *l)
{
    signal(SIGCHLD, SIG_DFL);
    stop_signals(&l->waited);
    sigaddset(&l->waited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &l->waited, &l->before);
}

static Status of_exit(int status)
{
    if (!WIFEXITED(status))
        return ERR_COMM;
    return WEXITSTATUS(status) == 0 ? OK : WEXITSTATUS(status) == 1 ? ERR_REJECT : WEXITSTATUS(status) == 2 ? ERR_USAGE : ERR_COMM;
}

/* Of the rank that is to blame, else of the first that failed. */
static Status outcome(const Launcher *l)
{
    int rank = world_aborted(l->world);
    if (rank < 0)
        return l->failed < 0 ? OK : of_exit(l->child[l->failed].status);
    Status s = of_exit(l->child[rank].status);
    return s == OK ? ERR_COMM : s;
}

/* The others only missed it. */
static void explain_early_end(const Launcher *l)
{
    int rank = world_aborted(l->world);
    if (rank >= 0 && l->child[rank].ended && l->child[rank].status == 0)
        fprintf(stderr, "note: rank %d had ended with status 0\n", rank);
}

static Status launch(Launcher *l, char *const *argv, const char *input)
{
    int fd;
    TRY(keep_input(input, &fd));
    take_signals(l);
    Status s = start_all(l, fd, argv);
    if (fd >= 0)
        close(fd);
    watch(l);
    if (l->failed >= 0 && WIFSIGNALED(l->child[l->failed].status))
        abort_for(l, l->failed);                     /* unless it was said before the others ended */
    explain_early_end(l);
    crew_explain(l->crew, l->world);
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    return s == OK ? outcome(l) : s;
}

/* Memory and files that ranks inherit. */
static Status open_all(Launcher *l)
{
    const Crew *c = l->crew;
    TRY(crew_world(c, &l->files));
    TRY(world_map(l->arena, &l->files, -1, &l->world));
    TRY(traces_open(&l->traces, c->o->trace, c->n));
    if (pipe2(l->life, O_CLOEXEC) == 0)
        return OK;
    fprintf(stderr, "error: cannot make a pipe: %s\n", strerror(errno));
    return ERR_DEVICE;
}

static void close_all(Launcher *l)
{
    traces_close(&l->traces);
    if (l->world)
        world_unmap(l->world);
    world_discard(&l->files);
    for (int i = 0; i < 2; i++)
        if (l->life[i] >= 0)
            close(l->life[i]);
}

Status crew_as_processes(Arena *a, const Crew *c, char *const *argv, const char *input)
{
    Launcher l = {.arena = a, .crew = c, .files = {-1, -1}, .traces = {.fd = -1}, .life = {-1, -1}, .failed = -1};
    TRY(crew_check(a, c));
    Status s = open_all(&l);
    if (s == OK) {
        s = launch(&l, argv, input);
        Status written = traces_write(a, &l.traces, c->program, c->o->trace);
        s = s == OK ? written : s;
    }
    close_all(&l);
    return s;
}
