/* Report: measured figures as the text of a .pcluster, with what they are of. */
#include <ctype.h>
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

static double usable(int64_t memory)
{
    return floor(USABLE * (double)memory / MIB) * MIB;
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
    fprintf(f, "# This machine, as `prun calibrate` (prun %s) measured it: %s,\n", version, c->name);
    fprintf(f, "# %d core%s, kernels for %s, %s,\n# ", c->cores, c->cores == 1 ? "" : "s", isa_name(c->isa), gemm_providers());
    quantity_put(f, rounded((double)c->memory), QUANTITY_BYTES);
    fprintf(f, " of memory free.\n#\n");
    fprintf(f, "#   -c FILE:this    one thread a device, a device a core; -D devices=N for fewer\n");
    if (pairs_of(m) > 0)
        fprintf(f, "#   -c FILE:pairs   two cores a device: it communicates on one while it computes on the other; -D devices=N for fewer\n");
    fprintf(f, "#   -c FILE:crowd   more devices than cores, which take turns; -D devices=N\n");
    fprintf(f, "#   -c FILE:this1   one device of all cores\n#\n");
}

/* Before the spreads. */
static void put_what_figures_are(FILE *f)
{
    fprintf(f, "# A figure is the median over rounds in which all figures took turns.  Half of a\n");
    fprintf(f, "# figure's samples lay within this part of it, for the median figure:\n");
}

static void put_how(FILE *f, const Measured *m)
{
    put_what_figures_are(f);
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

static void put_doc(FILE *f, const MeasuredDevice *d, const char *name, const char *doc, const char *backend)
{
    fprintf(f, "\n# %u matmuls and %u other instructions of several sizes\n", d->products, d->ops);
    fprintf(f, "device %s \"%s\" {\n  backend = %s\n", name, doc, backend);
}

static void put_figures(FILE *f, const MeasuredDevice *d)
{
    fputs("  ", f);
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

/* `share`: what the device's part of the memory is divided by, as text. */
static void put_device(FILE *f, const char *name, const char *doc, const Measured *m, const MeasuredDevice *d, int comm_threads, const char *share)
{
    put_doc(f, d, name, doc, "cpu");
    fprintf(f, "  threads = %d\n", d->of.threads);
    if (comm_threads > 0)
        fprintf(f, "  comm_threads = %d\n", comm_threads);
    fprintf(f, "  memory = ");
    quantity_put(f, usable(m->machine.memory), QUANTITY_BYTES);
    fprintf(f, "%s # %.0f %% of what was free\n  ", share, 100 * USABLE);
    put_key(f, "reserve", RESERVE, QUANTITY_BYTES);
    fprintf(f, " # the process itself, libraries and their short-lived buffers\n");
    put_figures(f, d);
}

/* ---- clusters ---- */

static void put_talk(FILE *f, const MeasuredLink *l)
{
    fprintf(f, "  # collectives and messages of up to %d ranks, 8 B to ", l->ranks);
    quantity_put(f, (double)l->largest, QUANTITY_BYTES);
    fprintf(f, "; these figures say them within a factor\n");
    fprintf(f, "  # of %.1f or less for half of them\n", l->apart);
}

static void put_link(FILE *f, const MeasuredLink *l)
{
    put_key(f, "link", l->of.link, QUANTITY_BYTES_PER_S);
    fputs(", ", f);
    put_key(f, "latency", l->of.latency, QUANTITY_SECONDS);
    fputs(", topology = full, efficiency = ", f);
    real_print(f, rounded(l->of.efficiency));
}

static void put_level(FILE *f, const Measured *m, const MeasuredLink *l, const char *members)
{
    put_talk(f, l);
    fprintf(f, "  level socket = %s { ", members);
    put_link(f, l);
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

/* ---- devices that are not the processor ---- */

/* A driver's name as one of the language. */
static const char *identifier(Arena *a, const char *name)
{
    Text t = text_new(a);
    bool apart = false;
    for (const char *c = name; *c; c++) {
        bool letter = isascii(*c) && isalnum((unsigned char)*c);
        if (letter)
            text_add(&t, "%s%c", apart ? "_" : "", tolower((unsigned char)*c));
        apart = !letter && t.n > 0;
    }
    bool fits = t.n > 0 && isalpha((unsigned char)t.s[0]);
    return fits ? t.s : arena_printf(a, "gpu_%s", t.n > 0 ? t.s : "of_no_name");
}

/* No '"' ends the text that it stands in. */
static const char *quotable(Arena *a, const char *name)
{
    char *text = arena_strdup(a, name);
    for (char *c = text; *c; c++)
        if (*c == '"' || *c == '\\' || iscntrl((unsigned char)*c))
            *c = ' ';
    return text;
}

static void put_device_head(FILE *f, Arena *a, const Measured *m, const char *version)
{
    const Machine *c = &m->machine;
    fprintf(f, "# This machine, as `prun calibrate --device %s` (prun %s) measured it: %d x %s,\n", c->executor->name, version, c->devices, quotable(a, c->name));
    fprintf(f, "# %s,\n# ", c->executor->about(a));
    quantity_put(f, rounded((double)c->memory), QUANTITY_BYTES);
    fprintf(f, " of memory free on the first.\n#\n");
    fprintf(f, "#   -c FILE   a device of each; -D devices=N for fewer\n#\n");
}

static void put_device_how(FILE *f, const Measured *m)
{
    put_what_figures_are(f);
    put_spread(f, "matmuls", m->one.matmul);
    put_spread(f, "other ops", m->one.op);
    put_spread(f, "copies in memory", m->copying);
    if (m->link.ranks > 0)
        put_spread(f, "collectives", m->link.spread);
    fprintf(f, "# Ops are timed by the clock of the host, around many calls that it is ahead of.\n# Memory copied in pieces of ");
    for (uint32_t i = 0; i < m->copies.n; i++) {
        quantity_put(f, rounded(m->copies.bytes[i]), QUANTITY_BYTES);
        fputs(i + 1 < m->copies.n ? ", " : ": ", f);
    }
    for (uint32_t i = 0; i < m->copies.n; i++) {
        quantity_put(f, rounded(m->copies.bandwidth[i]), QUANTITY_BYTES_PER_S);
        fputs(i + 1 < m->copies.n ? ", " : ", read and written counted.\n", f);
    }
}

static void put_device_of_its_own(FILE *f, Arena *a, const Measured *m, const char *name)
{
    put_doc(f, &m->one, name, quotable(a, m->machine.name), "cuda");
    fprintf(f, "  memory = ");
    quantity_put(f, floor((double)m->machine.device_memory / MIB) * MIB, QUANTITY_BYTES);
    fprintf(f, "\n  reserve = ");
    quantity_put(f, measure_reserve(m), QUANTITY_BYTES);
    fprintf(f, " # what lay beside the map of a rank, and %.0f %% of the memory\n", 100.0 / DEVICE_SLACK);
    put_figures(f, &m->one);
}

/* One device has nobody to talk to. */
static void put_device_cluster(FILE *f, Arena *a, const Measured *m, const char *name)
{
    int n = m->machine.devices;
    fprintf(f, "\ncluster %s_x%d \"%d x %s\" {\n  param devices = %d\n  host.memory = ", name, n, n, quotable(a, m->machine.name), n);
    quantity_put(f, usable(m->machine.host_memory), QUANTITY_BYTES);
    fprintf(f, " # %.0f %% of what was free\n  ", 100 * USABLE);
    put_key(f, "host.link", m->copies.host, QUANTITY_BYTES_PER_S);
    fprintf(f, " # from one device\n");
    if (m->link.ranks == 0) {
        fprintf(f, "  level node = devices * %s\n}\n", name);
        return;
    }
    put_talk(f, &m->link);
    fprintf(f, "  level node = devices * %s { ", name);
    put_link(f, &m->link);
    fprintf(f, " }\n}\n");
}

static void put_devices(FILE *f, Arena *a, const Measured *m, const char *version)
{
    const char *name = identifier(a, m->machine.name);
    put_device_head(f, a, m, version);
    put_device_how(f, m);
    put_device_of_its_own(f, a, m, name);
    put_device_cluster(f, a, m, name);
}

double measure_reserve(const Measured *m)
{
    double beside = fmax((double)m->one.of.reserve, (double)m->link.beside) + (double)m->machine.device_memory / DEVICE_SLACK;
    return ceil(beside / MIB) * MIB;
}

static void put_processor(FILE *f, const Measured *m, const char *version)
{
    put_head(f, m, version);
    put_how(f, m);
    put_device(f, "core", "one core", m, &m->one, 0, " / devices");
    if (pairs_of(m) > 0)
        put_device(f, "pair", "two cores, one of which communicates", m, &m->one, MOST_COMM_THREADS, " / devices");
    put_device(f, "cores", "all cores together", m, &m->all, 0, "");
    put_clusters(f, m);
}

const char *measure_text(Arena *a, const Measured *m, const char *version)
{
    TextStream s;
    text_stream_open(&s);
    if (m->machine.devices > 0)
        put_devices(s.f, a, m, version);
    else
        put_processor(s.f, m, version);
    return text_stream_take(&s, a, NULL);
}
