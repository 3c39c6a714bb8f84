#ifndef RUNTIME_MEASURE_MEASURE_H
#define RUNTIME_MEASURE_MEASURE_H
/* Measure: what this machine does in a second, as figures of a Cluster.
 *
 * It runs the instructions, kernels and collectives that a training run would, on
 * made-up numbers, never a model.  Start at measure_machine(). */
#include "base/status.h"
#include "ir/cluster.h"
#include "kernels/kernel.h"
#include "runtime/executor.h"

/* ---- machine.c: what the system says ---- */

typedef struct Machine {
    const Executor *executor;         /* what executes on it */
    const char *name;                 /* the processor's, or that of its devices */
    int         devices;              /* of the executor, all alike; 0: the processor itself */
    int         cores;                /* that this process may run on */
    int64_t     memory, cache;        /* bytes: free, of the processor or of a device; of the last cache, 0: not known */
    int64_t     own_cache;            /* bytes: of the last cache that a core has for itself */
    int64_t     device_memory;        /* bytes of a device, free or not, */
    int64_t     host_memory;          /* and what is free of the memory beside devices */
    Isa         isa;
} Machine;

Status machine_read(Arena *, const Executor *, Machine *);

/* This part of a device's memory is left beside what was measured: communicators and kernels of other shapes need more. */
enum { DEVICE_SLACK = 32 };
/* Bytes of a device that its reserve has at least, before anything was measured; 0: of the processor. */
int64_t machine_reserve(const Machine *);

/* ---- measure.c ---- */

/* How much samples of the same thing differed: half of them lie within a range this
 * wide, as a fraction of their median. */
typedef struct Spread { double usual, worst; } Spread;     /* of the median thing, and of the worst */

/* A device of so many threads, or one that is not the processor.  `of` has peaks, bandwidth, curves, launch, and, of the latter, what
 * its reserve was. */
typedef struct MeasuredDevice {
    Device   of;
    uint32_t products, ops;           /* products and other instructions timed */
    Spread   matmul, op;
} MeasuredDevice;

/* Ranks that talk to each other.  `of` has link, latency and efficiency. */
typedef struct MeasuredLink {
    int    ranks;                     /* most of them */
    int64_t largest, beside;          /* bytes: of a message; of a device, beside the map of one of them */
    Level  of;
    double apart;                     /* median factor between what was measured and what these three say */
    Spread spread;
} MeasuredLink;

/* Copies on a device, by their bytes; bytes/s, read and written counted.  To the host: bytes/s of what it has pinned. */
enum { MOST_COPIES_OF = 4 };
typedef struct Copies { double bytes[MOST_COPIES_OF], bandwidth[MOST_COPIES_OF]; uint32_t n; double host; } Copies;

typedef struct Measured {
    Machine        machine;
    MeasuredDevice one, all;          /* a device of one thread, and of a thread a core; the same where there is one core, or a device that is not the processor */
    Copies         copies;            /* on such a device */
    const int     *threads; double *bandwidth; uint32_t ncopying;   /* bytes/s copied by so many threads together */
    Spread         copying;
    MeasuredLink   link, crowd;       /* ranks with a core or a device each (no ranks: there is one); twice as many ranks as cores */
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

/* Bytes of a device that is not the processor, outside the map of a rank. */
double measure_reserve(const Measured *);

/* The text of a .pcluster of three clusters, or four where there are cores to communicate on, or of one of devices: see the file's own
 * head.  `version`: of the program that measured. */
const char *measure_text(Arena *, const Measured *, const char *version);

#endif
