/* Device: what one device of so many threads does. */
#include "runtime/measure/device.h"

#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "runtime/measure/curve.h"

/* Products that differ by less in FLOP are a point of the curve together; a run leaves out
 * what takes longer than this many seconds. */
static const double LIKE = 3, MOST_SECONDS = 0.15;

/* Parts of a device's time: f32; a dtype of fewer bits; the peak of another one.  A device that is not the processor has as many sizes
 * of fewer bits as of f32, but for a few products, and no other one. */
typedef struct Parts { double ops, narrow, peak; } Parts;
static const Parts of_processor = {0.64, 0.29, 0.07}, of_another = {0.56, 0.44, 0};

/* Times a core's own cache: how much is read between two uses of a copy's arguments. */
enum { APART = 16 };

/* The smallest instruction that is none of a scalar: what it costs is the launch. */
enum { TINY = 16 };

static uint32_t add_tiny(Bench *b)
{
    return bench_add(b, OP_add, NULL, (Extent[]){{"..", TINY}, {0}});
}

static bool is_product(const Bench *b, uint32_t i)
{
    return bench_instr(b, i)->op == OP_contract;
}

static double best_product(const Bench *b)
{
    double best = 0;
    for (uint32_t i = 0; i < b->nitem; i++)
        if (is_product(b, i) && b->probe[i].seconds > 0)
            best = fmax(best, bench_work(b, i) / b->probe[i].seconds);
    return best;
}

/* Timings of an op with an option, less the launch. */
static uint32_t timings_of(const Bench *b, OpKind op, uint8_t with, double launch, Timing *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->nitem; i++)
        if (bench_instr(b, i)->op == op && b->item[i].with == with && b->probe[i].seconds > 0)
            out[n++] = (Timing){bench_work(b, i), fmax(b->probe[i].seconds - launch, 0)};
    return n;
}

/* What an op bound by memory reaches that has no curve: the median of those that have. */
static Curve usual_memory_curve(Arena *a, const Bench *b, double launch, double bandwidth)
{
    enum { MOST = 2048 };
    Timing *t = NEWN(a, Timing, MOST);
    uint32_t n = 0;
    for (uint32_t i = 1; i < b->nitem && n < MOST; i++)
        if (!op_computes(bench_instr(b, i)->op) && !b->item[i].with && b->probe[i].seconds > 0)
            t[n++] = (Timing){bench_work(b, i), fmax(b->probe[i].seconds - launch, 0)};
    return curve_fit(a, t, n, bandwidth, CURVE_MOST_MEMORY, LIKE);
}

static double intensity(const Instr *in)
{
    return in->flops / (double)in->bytes;
}

/* FLOP a byte of products that are not held up by caches either, however fast the memory is: those of
 * few rows, which use a matrix that is as large as others too little, have less. */
static const double REUSED = 16;

static double peak_of(const Bench *b, const Device *d)
{
    return d->peak[b->program->precision.compute];
}

/* Timings of the products that do so many FLOP for each byte that memory lets them reach the
 * peak: what the others lack is no matter of their FLOP, and is read off their bytes.  All
 * those of the most FLOP a byte where the memory is too slow for any. */
static uint32_t bound_by_peak(const Bench *b, const Device *d, Timing *t)
{
    uint32_t n = 0;
    double most = 0, least = fmax(peak_of(b, d) / d->bandwidth, REUSED);
    for (uint32_t i = 0; i < b->nitem; i++)
        if (is_product(b, i))
            most = fmax(most, intensity(bench_instr(b, i)));
    for (uint32_t i = 0; i < b->nitem; i++) {
        const Instr *in = bench_instr(b, i);
        if (is_product(b, i) && b->probe[i].seconds > 0 && intensity(in) >= fmin(least, most / 4))
            t[n++] = (Timing){in->flops, fmax(b->probe[i].seconds - d->launch, 0)};
    }
    return n;
}

static Curve curve_of_products(Arena *a, const Bench *b, const Device *d, Timing *t)
{
    uint32_t n = bound_by_peak(b, d, t);
    return curve_fit(a, t, n, peak_of(b, d), 1, LIKE);
}

/* The curves of an op, one for each option that was timed; `typed`: see OpCurve. */
static void add_curves(Arena *a, const Bench *b, OpKind op, uint8_t typed, MeasuredDevice *m, Timing *t)
{
    Device *d = &m->of;
    for (uint8_t with = 0; with <= op_sig(op)->nformal; with++) {
        uint32_t n = timings_of(b, op, with, d->launch, t);
        if (n == 0)
            continue;
        OpCurve c = {.op = op, .with = with, .typed = typed};
        c.curve = op_computes(op) ? curve_fit(a, t, n, peak_of(b, d), 1, 1) : curve_fit(a, t, n, d->bandwidth, CURVE_MOST_MEMORY, 1);
        PUSH(a, d->of_op, d->nof_op, c);
        m->ops += n;
    }
}

static void fit_curves(Arena *a, const Bench *b, MeasuredDevice *m)
{
    Device *d = &m->of;
    Timing *t = NEWN(a, Timing, b->nitem);
    for (OpKind op = 0; op < OP_KINDS; op++)
        if (op == OP_contract)
            m->products = timings_of(b, op, 0, d->launch, t);
        else
            add_curves(a, b, op, 0, m, t);
    d->efficiency = curve_of_products(a, b, d, t);
    d->memory_efficiency = usual_memory_curve(a, b, d->launch, d->bandwidth);
}

static int by_order(const void *x, const void *y)
{
    return op_curve_order(x, y);
}

/* Curves of another dtype than the one that all others are of. */
static void fit_typed_curves(Arena *a, const Bench *b, MeasuredDevice *m)
{
    Device *d = &m->of;
    Timing *t = NEWN(a, Timing, b->nitem);
    uint8_t typed = (uint8_t)(1 + b->program->precision.compute);
    for (OpKind op = 0; op < OP_KINDS; op++) {
        bool product = op == OP_contract || op == OP_linear;
        if (product)
            PUSH(a, d->of_op, d->nof_op, ((OpCurve){op, curve_of_products(a, b, d, t), 0, typed}));
        else
            add_curves(a, b, op, typed, m, t);
    }
    qsort(d->of_op, d->nof_op, sizeof *d->of_op, by_order);
}

/* ---- timing ---- */

static Spread spread_of(const Bench *b, bool products)
{
    Arena *scratch = arena_new("spread");
    Probe *p = NEWN(scratch, Probe, b->nitem);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->nitem; i++)
        if (is_product(b, i) == products)
            p[n++] = b->probe[i];
    Spread s = rounds_spread(p, n);
    arena_free(scratch);
    return s;
}

static void read_bench(Arena *a, const Bench *b, uint32_t tiny, MeasuredDevice *m)
{
    m->of.peak[DT_f32] = best_product(b);
    m->of.launch = b->probe[tiny].seconds;
    m->matmul = spread_of(b, true);
    m->op = spread_of(b, false);
    fit_curves(a, b, m);
}

/* What copies of an instruction read goes through the caches that cores have of their own; of a device, which has one for
 * all, through that, as weights of a model do that is worth a device. */
static int64_t apart_of(const Machine *m, int threads)
{
    int64_t device = m->memory / 16 < 2 * m->cache ? m->memory / 16 : 2 * m->cache;
    return m->devices > 0 ? device : APART * m->own_cache * threads;
}

static Bench *new_bench(Arena *a, const MeasureOptions *o, DType t, const MeasuredDevice *m)
{
    return bench_new(a, &o->machine, t, m->of.threads, apart_of(&o->machine, m->of.threads));
}

Status beside_map(Arena *a, const Machine *machine, const Program *p, int64_t *most)
{
    DeviceFacts f;
    if (machine->devices == 0)
        return OK;
    TRY(machine->executor->devices(a, &f));
    int64_t beside = f.memory - f.free - program_map_bytes(p);
    *most = beside > *most ? beside : *most;
    return OK;
}

static Status run_bench(Arena *a, const MeasureOptions *o, Bench *b, double seconds, double most, MeasuredDevice *m)
{
    TRY(bench_open(b));
    Status s = bench_run(b, seconds, most);
    if (s == OK)                                     /* kernels are loaded when they are first called */
        s = beside_map(a, &o->machine, b->program, &m->of.reserve);
    if (s != OK)
        bench_close(b);
    return s;
}

/* The dtype whose figures the curves are of that name none. */
static Status measure_ops(Arena *a, const MeasureOptions *o, double seconds, MeasuredDevice *m)
{
    Bench *b = new_bench(a, o, DT_f32, m);
    uint32_t tiny = add_tiny(b);
    products_add(b, PRODUCTS_ALL, &o->machine);
    ops_add(b, &o->machine);
    TRY(run_bench(a, o, b, seconds, MOST_SECONDS, m));
    read_bench(a, b, tiny, m);
    bench_close(b);
    return OK;
}

/* A dtype of fewer bits: ops have other kernels, whose times are not those of as many bytes in f32. */
static Status measure_narrow(Arena *a, const MeasureOptions *o, DType dtype, double seconds, MeasuredDevice *m)
{
    Bench *b = new_bench(a, o, dtype, m);
    products_add(b, PRODUCTS_REUSING, &o->machine);
    ops_add_narrow(b, &o->machine);
    TRY(run_bench(a, o, b, seconds, MOST_SECONDS, m));
    m->of.peak[dtype] = best_product(b);
    fit_typed_curves(a, b, m);
    bench_close(b);
    return OK;
}

static Status measure_peak(Arena *a, const MeasureOptions *o, DType dtype, double seconds, MeasuredDevice *m)
{
    Bench *b = new_bench(a, o, dtype, m);
    products_add(b, PRODUCTS_BEST, &o->machine);
    TRY(run_bench(a, o, b, seconds, 0, m));
    m->of.peak[dtype] = best_product(b);
    bench_close(b);
    return OK;
}

static const char *who(Arena *a, int threads)
{
    return threads == 0 ? "a device" : arena_printf(a, "%d thread%s", threads, threads == 1 ? "" : "s");
}

static void say(const MeasureOptions *o, Arena *a, const char *what, int threads)
{
    if (o->say)
        o->say(arena_printf(a, "%s, %s", what, who(a, threads)));
}

static bool computes_products(const Machine *m, DType t)
{
    Arena *scratch = arena_new("bench");
    Bench *b = bench_new(scratch, m, t, 1, 0);
    uint32_t item = bench_add(b, OP_contract, "x[m, k], w[k, n] -> [m, n]", (Extent[]){{"m", TINY}, {"k", TINY}, {"n", TINY}, {0}});
    bool computes = m->executor->form(bench_instr(b, item), b->program, m->isa) != KERNEL_NONE;
    arena_free(scratch);
    return computes;
}

static const Parts *parts_of(const Machine *m)
{
    return m->devices > 0 ? &of_another : &of_processor;
}

static Status measure_dtype(Arena *a, const MeasureOptions *o, DType t, double seconds, MeasuredDevice *m)
{
    if (t == DT_f32 || !dtype_is_float(t) || !computes_products(&o->machine, t))
        return OK;
    bool narrow = dtype_bytes(t) < dtype_bytes(DT_f32);
    say(o, a, arena_printf(a, "matmuls%s, %s", narrow ? " and other ops" : "", dtype_name(t)), m->of.threads);
    const Parts *part = parts_of(&o->machine);
    return narrow ? measure_narrow(a, o, t, part->narrow * seconds, m) : measure_peak(a, o, t, part->peak * seconds, m);
}

Status device_measure(Arena *a, const MeasureOptions *o, int threads, double bandwidth, double seconds, MeasuredDevice *m)
{
    *m = (MeasuredDevice){.of = {.backend = threads > 0 ? BACKEND_CPU : BACKEND_CUDA, .threads = threads, .bandwidth = bandwidth}};
    say(o, a, "matmuls and other ops, f32", threads);
    TRY(measure_ops(a, o, parts_of(&o->machine)->ops * seconds, m));
    for (DType t = 0; t < DTYPES; t++)
        TRY(measure_dtype(a, o, t, seconds, m));
    TRY(spread_judge(arena_printf(a, "matmuls of %s", who(a, threads)), m->matmul));
    return spread_judge(arena_printf(a, "ops of %s", who(a, threads)), m->op);
}
