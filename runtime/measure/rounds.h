#ifndef RUNTIME_MEASURE_ROUNDS_H
#define RUNTIME_MEASURE_ROUNDS_H
/* Rounds: how anything is timed here.  All probes are called once to warm up, then take
 * turns in rounds, so that a neighbour's busy second falls on all of them; the median over
 * the rounds counts. */
#include "runtime/measure/measure.h"

enum { MOST_ROUNDS = 15, LEAST_ROUNDS = 3 };

/* Something to be timed.  `time` does it so often and returns the seconds of all. */
typedef struct Probe {
    double (*time)(void *ctx, int64_t times);
    void    *ctx;
    uint32_t like;                    /* probes of one number do the same thing, */
    double   work;                    /* and so much of it; 0: not known */
    double   turn;                    /* seconds, at least, of a turn; 0: what suits a clock of the processor */
    double   seconds;                 /* of one time, the median; 0: it was not measured, as it takes too long */
    double   spread;                  /* see Spread */
} Probe;

/* Time n probes for about `seconds` in all; the spread of one that came to fewer than
 * LEAST_ROUNDS in half as much again is infinite.  Unless `most` is 0, one that takes longer than
 * that once is left out; and so is, before it is called, what takes much longer by the pace of smaller ones that are like it, or longer
 * than there is time. */
void rounds_run(Probe *, uint32_t n, double seconds, double most);
/* Over what was measured. */
Spread rounds_spread(const Probe *, uint32_t n);

double median_of(double *, uint32_t n);              /* sorts; n > 0 */
/* The range that holds the middle half of n sorted numbers, as a fraction of their median. */
double middle_half(const double *sorted, uint32_t n);

double seconds_of_thread(void);       /* processor time of the calling thread: a neighbour's time slices do not count */

#endif
