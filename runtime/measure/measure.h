#ifndef RUNTIME_MEASURE_MEASURE_H
#define RUNTIME_MEASURE_MEASURE_H
/* Measure: what this machine does in a second, as figures of a Cluster.
 *
 * It runs the instructions, kernels and collectives that a training run would, on
 * made-up numbers, never a model.  Start at measure_machine(). */
#include "base/status.h"
#include "ir/cluster.h"
#include "kernels/kernel.h"

/* ---- machine.c: what the system says ---- */

typedef struct Machine {
    const char *cpu;                  /* the processor's name */
    int         cores;                /* that this process may run on */
    int64_t     memory, cache;        /* bytes: free; of the last cache, 0: not known */
    int64_t     own_cache;            /* bytes: of the last cache that a core has for itself */
    Isa         isa;
} Machine;

Machine machine_read(Arena *);

/* ---- measure.c ---- */

/* How much samples of the same thing differed: half of them lie within a range this
 * wide, as a fraction of their median. */
typedef struct Spread { double usual, worst; } Spread;     /* of the median thing, and of the worst */

/* A device of so many threads.  `of` has peaks, bandwidth, curves and launch. */
typedef struct MeasuredDevice {
    Device   of;
    uint32_t products, ops;           /* products and other instructions timed */
    Spread   matmul, op;
} MeasuredDevice;

/* Ranks that talk to each other.  `of` has link, latency and efficiency. */
typedef struct MeasuredLink {
    int    ranks;                     /* most of them */
    Level  of;
    double apart;                     /* median factor between what was measured and what these three say */
    Spread spread;
} MeasuredLink;

typedef struct Measured {
    Machine        machine;
    MeasuredDevice one, all;          /* a device of one thread, and of a thread a core; the same where there is one core */
    const int     *threads; double *bandwidth; uint32_t ncopying;   /* bytes/s copied by so many threads together */
    Spread         copying;
    MeasuredLink   link, crowd;       /* ranks with a core each; twice as many ranks as cores */
} Measured;

typedef struct MeasureOptions {
    Machine machine;
    double  seconds;                  /* for all of it, about */
    void  (*say)(const char *);       /* told what is being measured; NULL: nobody listens */
} MeasureOptions;

/* ERR_DEVICE when the machine is too busy for figures that mean anything; the reason has
 * been printed. */
Status measure_machine(Arena *, const MeasureOptions *, Measured *);

/* ---- report.c ---- */

/* The text of a .pcluster of three clusters, or four where there are cores to communicate on: see the file's own head.  `version`: of the
 * program that measured. */
const char *measure_text(Arena *, const Measured *, const char *version);

#endif
