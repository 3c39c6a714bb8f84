/* Stop: signals stay blocked, and are asked for between steps.  A handler would run on the stack of a thread that
 * computes, and oneDNN's products keep numbers below the end of theirs. */
#include "runtime/stop.h"

void stop_signals(sigset_t *set)
{
    struct sigaction hangup;
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(set, SIGHUP);
}

void stop_hold(void)
{
    sigset_t set;
    stop_signals(&set);
    signal(SIGTERM, SIG_DFL);                        /* one that is ignored need not become pending */
    signal(SIGINT, SIG_DFL);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

bool stop_asked(void)
{
    sigset_t set, pending, came;
    stop_signals(&set);
    sigpending(&pending);
    sigandset(&came, &set, &pending);
    return !sigisemptyset(&came);
}
