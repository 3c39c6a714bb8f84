#ifndef RUNTIME_MEASURE_BENCH_H
#define RUNTIME_MEASURE_BENCH_H
/* Bench: a Program whose procedures are one instruction each, bound to a rank as a run
 * binds its own, so that what is timed is what a run executes.
 *
 * All instructions read from one area and write into another, which are as large as the
 * largest needs; what an optimizer updates, it updates in place, as in a run.
 *
 * In a step an instruction finds its first argument where another one has just put it, and
 * the others (weights, what forward saved) where they were left long ago.  So each has
 * copies, called in turns, that read the others elsewhere. */
#include "runtime/measure/rounds.h"
#include "runtime/runtime.h"

typedef struct Bench Bench;
/* What is timed: instructions that are alike, and which of them is next. */
typedef struct BenchItem {
    Bench   *bench;
    uint32_t first, copies, next;
    uint8_t  with;                    /* the option that it has, see OpCurve */
} BenchItem;

struct Bench {
    Arena     *arena;
    const Executor *executor;
    Isa        isa;
    Program   *program;               /* instruction i is procedure i */
    int64_t    apart;                 /* bytes that the copies of an instruction read in all; 0: it has one */
    uint8_t    with;                  /* the option that instructions get which are added; 0: none */
    Rank       rank;
    BufferId   args, outs, work;      /* areas; whole numbers have buffers of their own, */
    TensorId  *index; int64_t *below; uint32_t nindex;         /* and what each of these is below */
    BenchItem *item; uint32_t nitem;
    Probe     *probe;                 /* per item, once the bench is open */
    Call      *call;                  /* a list in the making */
    Status     failed;                /* what came of calls; nothing is called once one went wrong */
    double    *before, *after;        /* clocks of the team's threads around a turn, where they execute it */
};

/* The extent of an axis of a signature.  Several of the name ".." are its axes. */
typedef struct Extent { const char *axis; int64_t n; } Extent;
enum { BENCH_EXTENTS = 32 };          /* most of a list, its end included */

/* threads: of a rank; 0: a device that is not the processor has none. */
Bench *bench_new(Arena *, const Machine *, DType compute, int threads, int64_t apart);
/* Add an instruction whose tensors have the axes of a signature (NULL: the op's own) and
 * extents from a list that ends with a NULL.  Arguments that may be absent are, but for
 * vectors: biases, which models have.  The number of its item. */
uint32_t bench_add(Bench *, OpKind, const char *signature, const Extent *);
const Instr *bench_instr(const Bench *, uint32_t item);
/* What costs of it are by: see cost_work(). */
double   bench_work(const Bench *, uint32_t item);
/* Map, bind, fill; then bench_run() may time all items, as rounds_run() does. */
Status   bench_open(Bench *);
Status   bench_run(Bench *, double seconds, double most);
void     bench_close(Bench *);

#endif
