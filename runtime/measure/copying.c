/* Copying: what threads get of the memory's bandwidth, alone and together; and what a device's kernels get of its own, and
 * the host of that. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "kernels/combine.h"
#include "runtime/measure/device.h"

/* Of the time of a device's copies. */
static const double PART_HOST = 0.2;

/* What each thread copies, from the first half of its part of a map to the second. */
typedef struct Copying {
    Team   *team;
    char   *base;
    int64_t bytes;                    /* of a half */
    int64_t times;                    /* of this turn */
    Isa     isa;
    double *seconds;                  /* by thread */
} Copying;

/* All begin at once.  The last to end have less company, which many copies make little of. */
static void copy_part(void *ctx, int worker, int nworker)
{
    (void)nworker;
    const Copying *c = ctx;
    char *from = c->base + 2 * worker * c->bytes;
    double start = seconds_of_thread();
    for (int64_t i = 0; i < c->times; i++)
        copy_bytes(from + c->bytes, from, c->bytes, true, c->isa);
    c->seconds[worker] = seconds_of_thread() - start;
}

/* As a Probe: the mean of the threads' times. */
static double time_copies(void *ctx, int64_t times)
{
    Copying *c = ctx;
    double sum = 0;
    int n = team_size(c->team);
    c->times = times;
    team_run(c->team, copy_part, c);
    for (int i = 0; i < n; i++)
        sum += c->seconds[i];
    return sum / n;
}

static Status open_team(Arena *a, Copying *c, int threads)
{
    c->seconds = NEWN(a, double, threads);
    c->team = team_new(threads);
    if (c->team)
        return OK;
    fprintf(stderr, "error: cannot start %d threads\n", threads);
    return ERR_DEVICE;
}

/* All numbers of threads take turns with each other. */
static Status measure(Arena *a, Copying *c, const int *threads, uint32_t n, double seconds, double *bandwidth, Spread *spread)
{
    Probe *p = NEWN(a, Probe, n);
    Status s = OK;
    for (uint32_t i = 0; i < n && s == OK; i++) {
        s = open_team(a, &c[i], threads[i]);
        p[i] = (Probe){.time = time_copies, .ctx = &c[i]};
    }
    if (s == OK) {
        rounds_run(p, n, seconds, 0);
        *spread = rounds_spread(p, n);
    }
    for (uint32_t i = 0; i < n && s == OK; i++)
        bandwidth[i] = 2.0 * threads[i] * (double)c[i].bytes / p[i].seconds;
    for (uint32_t i = 0; i < n; i++)
        team_free(c[i].team);
    return s;
}

Status copying_measure(Arena *a, const MeasureOptions *o, double seconds, const int *threads, uint32_t n, double *bandwidth,
                       Spread *spread)
{
    Map map;
    int most = threads[n - 1];
    double beyond = fmin(fmax(2 * (double)o->machine.cache, 32e6), (double)o->machine.memory / 4) / most;
    int64_t bytes = (int64_t)(beyond / BUFFER_ALIGN) * BUFFER_ALIGN;
    Copying *c = NEWN(a, Copying, n);
    if (o->say)
        o->say("bandwidth of the memory");
    TRY(map_open(&map, 2 * most * bytes));
    for (uint32_t i = 0; i < n; i++)                 /* few threads copy as much as many do */
        c[i] = (Copying){.base = map.base, .bytes = bytes * most / threads[i] / BUFFER_ALIGN * BUFFER_ALIGN, .isa = o->machine.isa};
    Status s = measure(a, c, threads, n, seconds, bandwidth, spread);
    map_close(&map);
    TRY(s);
    return spread_judge("copies in memory", *spread);
}

/* ---- a device ---- */

/* An op that reads as much as it writes. */
static void add_copy(Bench *b, double bytes)
{
    int64_t n = (int64_t)bytes / 2 / dtype_bytes(DT_f32);
    (void)bench_add(b, OP_scale, NULL, (Extent[]){{"..", n}, {0}});
}

/* In its cache and beyond. */
static Bench *copying_bench(Arena *a, const Machine *m)
{
    Bench *b = bench_new(a, m, DT_f32, 0, 0);
    double most = fmin(fmax(8 * (double)m->cache, 256e6), (double)m->memory / 4);
    for (double bytes = most / (1 << 2 * (MOST_COPIES_OF - 1)); b->nitem < MOST_COPIES_OF; bytes *= 4)
        add_copy(b, bytes);
    return b;
}

/* What the host looks at: a piece of memory, as large as any that it asks for at once. */
typedef struct Piece { Bench *bench; const void *at; int64_t bytes; } Piece;

static double time_looks(void *ctx, int64_t times)
{
    const Piece *p = ctx;
    Bench *b = p->bench;
    const void *out;
    double start = seconds_now();
    for (; times > 0 && b->failed == OK; times--)
        b->failed = b->executor->look(&b->rank, p->at, p->bytes, &out);
    return seconds_now() - start;
}

static Status look_at(Bench *b, double seconds, double *bandwidth, Spread *spread)
{
    TensorId largest = bench_instr(b, b->nitem - 1)->arg[0];
    int64_t all = tensor_bytes(&b->program->tensor[largest.i]);
    Piece piece = {b, rank_at(&b->rank, largest, 0, 0), all < RANK_WINDOW ? all : RANK_WINDOW};
    Probe p = {.time = time_looks, .ctx = &piece};
    rounds_run(&p, 1, seconds, 0);
    *bandwidth = (double)piece.bytes / p.seconds;
    *spread = rounds_spread(&p, 1);
    return b->failed;
}

static Status run_copies(Bench *b, double seconds, Copies *c, Spread *spread, Spread *host)
{
    TRY(bench_run(b, (1 - PART_HOST) * seconds, 0));
    *spread = rounds_spread(b->probe, b->nitem);
    *c = (Copies){.n = b->nitem};
    for (uint32_t i = 0; i < c->n; i++) {
        c->bytes[i] = bench_work(b, i);
        c->bandwidth[i] = c->bytes[i] / b->probe[i].seconds;
    }
    return look_at(b, PART_HOST * seconds, &c->host, host);
}

Status device_copying(Arena *a, const MeasureOptions *o, double seconds, Copies *c, Spread *spread)
{
    Bench *b = copying_bench(a, &o->machine);
    Spread host;
    if (o->say)
        o->say("bandwidth of the memory");
    TRY(bench_open(b));
    Status s = run_copies(b, seconds, c, spread, &host);
    bench_close(b);
    TRY(s);
    TRY(spread_judge("copies in memory", *spread));
    return spread_judge("copies to the host", host);
}
