#ifndef RUNTIME_TRACE_H
#define RUNTIME_TRACE_H
/* Trace: when each rank executed which instruction, for `--trace`.
 *
 * A rank writes its events into memory that is made before step 0 and that whoever
 * started it maps too, so they are there however the rank ends.  A rank keeps its last
 * TRACE_EVENTS events. */
#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"
#include "ir/program.h"

enum { TRACE_EVENTS = 1 << 16 };

/* Times are in nanoseconds of the monotonic clock, which all processes share. */
typedef struct TraceEvent { int64_t begin, end, step; uint32_t instr, micro, slot; bool evaluates; } TraceEvent;   /* evaluates: after the step */

/* Of one rank; two threads add events, each in the order in which its own ended. */
typedef struct Trace {
    atomic_uint_fast64_t n;           /* events in all; the k-th lies at k mod TRACE_EVENTS */
    TraceEvent event[TRACE_EVENTS];
} Trace;

/* Of n ranks; all zero: nothing is traced, and every function does nothing. */
typedef struct Traces {
    Trace   *rank; uint32_t n;
    int      fd;                      /* its memory, for processes to map; open over exec */
} Traces;

/* path NULL: nothing is traced. */
Status traces_open(Traces *, const char *path, uint32_t n);
/* Map in a rank what its starter opened; fd < 0: nothing is traced. */
Status traces_map(Traces *, int fd, uint32_t n, uint32_t rank);
void   traces_close(Traces *);
Trace *trace_of(const Traces *, uint32_t rank);      /* NULL: not traced */
void   trace_add(Trace *, const TraceEvent *);
/* Write the events of all ranks as one file in Chrome's format, which Perfetto reads: a
 * process a rank, a track a stream, an event an instruction.  Says how many events there are, and are lost;
 * without any there is no file: the run was refused before its first instruction. */
Status traces_write(Arena *, const Traces *, const Program *const *, const char *path);

#endif
