#ifndef RUNTIME_STOP_H
#define RUNTIME_STOP_H
/* Stop: the signals that end a run after the step it is at, saved, with status 0. */
#include <signal.h>
#include <stdbool.h>

/* SIGTERM, SIGINT, and SIGHUP, a closed terminal's, unless it is ignored, as under nohup. */
void stop_signals(sigset_t *);

/* From now on they end a run after its step, and no thread that is started later takes one. */
void stop_hold(void);

/* Whether one of them came.  Ranks agree on it before they act on it. */
bool stop_asked(void);

#endif
