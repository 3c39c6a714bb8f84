/* Report: measured figures as the text of a .pcluster, with what they are of. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "ir/quantity.h"
#include "runtime/measure/measure.h"

/* Of the free memory, what a plan may use: the rest is for who else runs. */
static const double USABLE = 0.9;

/* Bytes of a device outside its map: the process, libraries, their short-lived buffers. */
static const double RESERVE = 256 << 20;

static const double MIB = 1 << 20;

/* Three digits: more than was measured. */
static double rounded(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.3g", x);
    return strtod(text, NULL);
}

static void put_key(FILE *f, const char *key, double value, QuantityKind kind)
{
    fprintf(f, "%s = ", key);
    quantity_put(f, rounded(value), kind);
}

static double usable(const Measured *m)
{
    return floor(USABLE * (double)m->machine.memory / MIB) * MIB;
}

/* Ranks of one thread that each have another to communicate on, where there is a core for every thread;
 * below 2 there is nobody to communicate with. */
static int pairs_of(const Measured *m)
{
    int pairs = m->machine.cores / (1 + MOST_COMM_THREADS);
    return pairs >= 2 ? pairs : 0;
}

/* ---- the head ---- */

static void put_spread(FILE *f, const char *what, Spread s)
{
    fprintf(f, "#   %-28s %4.1f %% (worst %.0f %%)\n", what, 100 * s.usual, 100 * s.worst);
}

static void put_copies(FILE *f, const Measured *m)
{
    fprintf(f, "# Memory copied by 1");
    for (uint32_t i = 1; i < m->ncopying; i++)
        fprintf(f, ", %d", m->threads[i]);
    fprintf(f, " thread%s:", m->machine.cores > 1 ? "s" : "");
    for (uint32_t i = 0; i < m->ncopying; i++) {
        fputs(i ? ", " : " ", f);
        quantity_put(f, rounded(m->bandwidth[i]), QUANTITY_BYTES_PER_S);
    }
    fprintf(f, ", read and written counted.\n");
}

static void put_head(FILE *f, const Measured *m, const char *version)
{
    const Machine *c = &m->machine;
    fprintf(f, "# This machine, as `prun calibrate` (prun %s) measured it: %s,\n", version, c->cpu);
    fprintf(f, "# %d core%s, kernels for %s, %s,\n# ", c->cores, c->cores == 1 ? "" : "s", isa_name(c->isa), gemm_providers());
    quantity_put(f, rounded((double)c->memory), QUANTITY_BYTES);
    fprintf(f, " of memory free.\n#\n");
    fprintf(f, "#   -c FILE:this    one thread a device, a device a core; -D devices=N for fewer\n");
    if (pairs_of(m) > 0)
        fprintf(f, "#   -c FILE:pairs   two cores a device: it communicates on one while it computes on the other; -D devices=N for fewer\n");
    fprintf(f, "#   -c FILE:crowd   more devices than cores, which take turns; -D devices=N\n");
    fprintf(f, "#   -c FILE:this1   one device of all cores\n#\n");
}

static void put_how(FILE *f, const Measured *m)
{
    fprintf(f, "# A figure is the median over rounds in which all figures took turns.  Half of a\n");
    fprintf(f, "# figure's samples lay within this part of it, for the median figure:\n");
    put_spread(f, "matmuls, one thread", m->one.matmul);
    put_spread(f, "other ops, one thread", m->one.op);
    if (m->machine.cores > 1) {
        put_spread(f, "matmuls, all threads", m->all.matmul);
        put_spread(f, "other ops, all threads", m->all.op);
    }
    put_spread(f, "copies in memory", m->copying);
    put_spread(f, "collectives", m->link.spread);
    put_spread(f, "collectives of a crowd", m->crowd.spread);
    fprintf(f, "# Ops and copies are timed by the processor time of the busiest thread, collectives by the clock.\n");
    put_copies(f, m);
}

/* ---- devices ---- */

/* `of`: the end of the key. */
static void put_curve(FILE *f, const char *of, const Curve *c, QuantityKind at)
{
    if (c->npoint == 0)
        return;
    fprintf(f, "  efficiency%s%s = ", of[0] ? "." : "", of);
    curve_print(f, c, at);
    fputc('\n', f);
}

static void put_curves(FILE *f, const Device *d)
{
    fprintf(f, "  # matmuls: fraction of peak.f32 by FLOP\n");
    put_curve(f, "", &d->efficiency, QUANTITY_FLOP);
    fprintf(f, "  # other ops: of peak.f32 by FLOP, or of bandwidth by bytes; the first is for ops without one\n");
    put_curve(f, "memory", &d->memory_efficiency, QUANTITY_BYTES);
    char name[OP_CURVE_NAME];
    for (uint32_t i = 0; i < d->nof_op; i++)
        put_curve(f, op_curve_name(&d->of_op[i], name, sizeof name), &d->of_op[i].curve, op_computes(d->of_op[i].op) ? QUANTITY_FLOP : QUANTITY_BYTES);
}

/* `share`: what the device's part of the memory is divided by, as text. */
static void put_device(FILE *f, const char *name, const char *doc, const Measured *m, const MeasuredDevice *d, int comm_threads, const char *share)
{
    fprintf(f, "\n# %u matmuls and %u other instructions of several sizes\n", d->products, d->ops);
    fprintf(f, "device %s \"%s\" {\n  backend = cpu\n  threads = %d\n", name, doc, d->of.threads);
    if (comm_threads > 0)
        fprintf(f, "  comm_threads = %d\n", comm_threads);
    fprintf(f, "  memory = ");
    quantity_put(f, usable(m), QUANTITY_BYTES);
    fprintf(f, "%s # %.0f %% of what was free\n  ", share, 100 * USABLE);
    put_key(f, "reserve", RESERVE, QUANTITY_BYTES);
    fprintf(f, " # the process itself, libraries and their short-lived buffers\n  ");
    put_key(f, "bandwidth", d->of.bandwidth, QUANTITY_BYTES_PER_S);
    fputc('\n', f);
    for (DType t = 0; t < DTYPES; t++)
        if (d->of.peak[t] > 0) {
            fprintf(f, "  peak.%s = ", dtype_name(t));
            quantity_put(f, rounded(d->of.peak[t]), QUANTITY_FLOP_PER_S);
            fprintf(f, " # the fastest matmul\n");
        }
    put_curves(f, &d->of);
    fputs("  ", f);
    put_key(f, "launch", d->of.launch, QUANTITY_SECONDS);
    fprintf(f, " # an addition of a few numbers\n}\n");
}

/* ---- clusters ---- */

static void put_level(FILE *f, const Measured *m, const MeasuredLink *l, const char *members)
{
    fprintf(f, "  # collectives and messages of up to %d ranks, 8 B to 16 MiB; these figures say them within a factor\n", l->ranks);
    fprintf(f, "  # of %.1f or less for half of them\n", l->apart);
    fprintf(f, "  level socket = %s { ", members);
    put_key(f, "link", l->of.link, QUANTITY_BYTES_PER_S);
    fputs(", ", f);
    put_key(f, "latency", l->of.latency, QUANTITY_SECONDS);
    fputs(", topology = full, efficiency = ", f);
    real_print(f, rounded(l->of.efficiency));
    fprintf(f, ", cores = %d, ", m->machine.cores);
    put_key(f, "bandwidth", m->bandwidth[m->ncopying - 1], QUANTITY_BYTES_PER_S);
    fprintf(f, " }\n}\n");
}

static void put_clusters(FILE *f, const Measured *m)
{
    int cores = m->machine.cores;
    fprintf(f, "\ncluster this1 \"this machine as one device\" {\n");
    put_level(f, m, &m->link, "1 * cores");
    fprintf(f, "\ncluster crowd \"this machine as more devices than it has cores\" {\n  param devices = %d\n", 2 * cores);
    put_level(f, m, &m->crowd, "devices * core");
    if (pairs_of(m) > 0) {
        fprintf(f, "\ncluster pairs \"this machine, two cores a device\" {\n  param devices = %d\n", pairs_of(m));
        put_level(f, m, &m->link, "devices * pair");
    }
    fprintf(f, "\ncluster this \"this machine, a device a core\" {\n  param devices = %d\n", cores);
    put_level(f, m, &m->link, "devices * core");
}

const char *measure_text(Arena *a, const Measured *m, const char *version)
{
    TextStream s;
    text_stream_open(&s);
    FILE *f = s.f;
    put_head(f, m, version);
    put_how(f, m);
    put_device(f, "core", "one core", m, &m->one, 0, " / devices");
    if (pairs_of(m) > 0)
        put_device(f, "pair", "two cores, one of which communicates", m, &m->one, MOST_COMM_THREADS, " / devices");
    put_device(f, "cores", "all cores together", m, &m->all, 0, "");
    put_clusters(f, m);
    return text_stream_take(&s, a, NULL);
}
