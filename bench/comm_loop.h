#ifndef BENCH_COMM_LOOP_H
#define BENCH_COMM_LOOP_H
/* What is measured of communication, the same for prun's collectives and a peer's:
 * operations, sizes, how often, and the loop.
 *
 * Every rank rewrites what it sends before each call, untimed, so that its cache holds
 * it dirty as after a computation.  From 64 KiB on there are barriers before the clock
 * starts and after it stops.  A call's time is that of the slowest rank; the median and the least over
 * the calls are printed, a JSON line for each operation and size. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef enum CommOp { BENCH_ALL_REDUCE, BENCH_ALL_GATHER, BENCH_REDUCE_SCATTER, BENCH_EXCHANGE, BENCH_COPY, BENCH_FETCH, BENCH_UPDATE, BENCH_OPS } CommOp;
static const char *const comm_op_name[BENCH_OPS] = {"all_reduce", "all_gather", "reduce_scatter", "exchange", "copy", "fetch", "update"};

enum { MOST_CALLS = 400, LARGEST = 64 << 20, SYNC_FROM = 64 << 10, ROOM = LARGEST + (2 << 20) };

/* How one program communicates.  Counts are of floats, a multiple of the number of
 * ranks: of the whole buffer for all_reduce, of the result of all_gather (the own
 * part lies in place), of the argument of reduce_scatter, of what each rank sends to
 * the next in exchange. */
typedef struct CommPeer {
    const char *name;
    int         rank, nrank;
    float      *send, *recv;          /* ROOM bytes each, or the largest size and a little */
    void      (*call)(CommOp, int64_t count);
    void      (*barrier)(void);
    void      (*slowest)(double *seconds, int n);    /* maximum over ranks of each */
} CommPeer;

/* Touched, and in huge pages where the system grants them. */
static void *loop_buffer(size_t bytes)
{
    void *p = aligned_alloc(2 << 20, bytes);
    if (!p) {
        fprintf(stderr, "no memory to measure communication\n");
        exit(3);
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static double loop_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int loop_calls(int64_t bytes)
{
    int64_t calls = (256 << 20) / bytes;
    return calls < 6 ? 6 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rewrite what this rank sends: in all_gather its own part of the result. */
static void loop_dirty(const CommPeer *p, CommOp op, int64_t count, int turn)
{
    int64_t n = op == BENCH_ALL_GATHER ? count / p->nrank : op == BENCH_COPY || op == BENCH_FETCH ? count / 2 : count;
    float *x = p->send + (op == BENCH_ALL_GATHER ? n * p->rank : 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(turn + p->rank);
}

static void loop_measure(const CommPeer *p, CommOp op, int64_t bytes)
{
    double t[MOST_CALLS];
    int64_t unit = 4 * p->nrank, count = (bytes + unit - 1) / unit * p->nrank;
    int calls = loop_calls(bytes);
    for (int i = -2; i < calls; i++) {
        loop_dirty(p, op, count, i);
        if (bytes >= SYNC_FROM)
            p->barrier();
        double start = loop_seconds();
        p->call(op, count);
        if (i >= 0)
            t[i] = loop_seconds() - start;
        if (bytes >= SYNC_FROM)       /* else a rank that is done would keep its core from others that are not */
            p->barrier();
    }
    p->slowest(t, calls);
    qsort(t, (size_t)calls, sizeof *t, by_size);
    if (p->rank == 0)
        printf("{\"who\": \"%s\", \"ranks\": %d, \"op\": \"%s\", \"bytes\": %lld, \"us\": %.3f, \"best\": %.3f}\n", p->name, p->nrank, comm_op_name[op],
               (long long)bytes, 1e6 * t[calls / 2], 1e6 * t[0]);
}

/* All operations, up to `most` bytes; or the named one alone, of `most` bytes. */
static void loop_all(const CommPeer *p, int64_t most, const char *only)
{
    const int64_t sizes[] = {8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    for (int op = 0; op < BENCH_COPY; op++) {
        for (size_t i = 0; !only && i < sizeof sizes / sizeof *sizes && sizes[i] <= most; i++)
            loop_measure(p, (CommOp)op, sizes[i]);
        if (only && strcmp(only, comm_op_name[op]) == 0)
            loop_measure(p, (CommOp)op, most);
    }
    fflush(stdout);
}

#endif
