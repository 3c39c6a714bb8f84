/* Cluster: printing and checking. */
#include "ir/cluster.h"

#include <string.h>

#include "base/text.h"
#include "ir/check.h"
#include "ir/quantity.h"

bool device_overlaps(const Device *d)
{
    return d->backend == BACKEND_CUDA || d->comm_threads > 0;
}

/* ---- printing, in the layout of `pplan fmt` ---- */

static int wider(int width, const char *key)
{
    int n = (int)strlen(key);
    return n > width ? n : width;
}

/* Keys of one device share a column for their '='. */
static int key_width(const Device *d)
{
    int w = wider((int)strlen("bandwidth"), d->efficiency.npoint ? "efficiency" : "");
    w = wider(w, d->memory_efficiency.npoint ? "efficiency.memory" : "");
    w = wider(w, d->comm_threads > 0 ? "comm_threads" : "");
    w = wider(w, d->attention_depth > 0 ? "depth.attention" : "");
    for (uint32_t i = 0; i < d->nof_op; i++) {
        char name[OP_CURVE_NAME];
        int n = (int)(strlen("efficiency.") + strlen(op_curve_name(&d->of_op[i], name, sizeof name)));
        w = n > w ? n : w;
    }
    for (int t = 0; t < DTYPES; t++) {
        int n = (int)(strlen("peak.") + strlen(dtype_name((DType)t)));
        w = d->peak[t] > 0 && n > w ? n : w;
    }
    return w;
}

static void put_key(FILE *f, int width, const char *key)
{
    fprintf(f, "  %-*s = ", width, key);
}

static void put_doc(FILE *f, const char *doc)
{
    if (doc)
        fprintf(f, " \"%s\"", doc);
    fputs(" {\n", f);
}

void curve_print(FILE *f, const Curve *c, QuantityKind at)
{
    fputc('[', f);
    for (uint32_t i = 0; i < c->npoint; i++) {
        fputs(i ? ", [" : "[", f);
        if (c->point[i].at == 0)
            fputc('0', f);
        else
            quantity_put(f, c->point[i].at, at);
        fputs(", ", f);
        real_print(f, c->point[i].fraction);
        fputc(']', f);
    }
    fputc(']', f);
}

static void put_curve(FILE *f, int width, const char *key, const Curve *c, QuantityKind at)
{
    if (c->npoint == 0)
        return;
    put_key(f, width, key);
    curve_print(f, c, at);
    fputc('\n', f);
}

static void put_curves(FILE *f, int width, const Device *d)
{
    put_curve(f, width, "efficiency", &d->efficiency, QUANTITY_FLOP);
    put_curve(f, width, "efficiency.memory", &d->memory_efficiency, QUANTITY_BYTES);
    for (uint32_t i = 0; i < d->nof_op; i++) {
        char key[OP_CURVE_NAME + 16], name[OP_CURVE_NAME];
        snprintf(key, sizeof key, "efficiency.%s", op_curve_name(&d->of_op[i], name, sizeof name));
        put_curve(f, width, key, &d->of_op[i].curve, op_computes(d->of_op[i].op) ? QUANTITY_FLOP : QUANTITY_BYTES);
    }
}

static void put_real_key(FILE *f, int width, const char *key, double value)
{
    if (!(value > 0))
        return;
    put_key(f, width, key);
    real_print(f, value);
    fputc('\n', f);
}

static void put_quantity_key(FILE *f, int width, const char *key, double value, QuantityKind kind)
{
    put_key(f, width, key);
    quantity_put(f, value, kind);
    fputc('\n', f);
}

static void print_device(FILE *f, const Device *d)
{
    int w = key_width(d);
    fprintf(f, "device %s", d->name);
    put_doc(f, d->doc);
    put_key(f, w, "backend");
    fprintf(f, "%s\n", d->backend == BACKEND_CPU ? "cpu" : "cuda");
    if (d->threads > 0) {
        put_key(f, w, "threads");
        fprintf(f, "%d\n", d->threads);
    }
    if (d->comm_threads > 0) {
        put_key(f, w, "comm_threads");
        fprintf(f, "%d\n", d->comm_threads);
    }
    put_quantity_key(f, w, "memory", (double)d->memory, QUANTITY_BYTES);
    if (d->reserve > 0)
        put_quantity_key(f, w, "reserve", (double)d->reserve, QUANTITY_BYTES);
    put_quantity_key(f, w, "bandwidth", d->bandwidth, QUANTITY_BYTES_PER_S);
    for (int t = 0; t < DTYPES; t++)
        if (d->peak[t] > 0) {
            char key[32];
            snprintf(key, sizeof key, "peak.%s", dtype_name((DType)t));
            put_quantity_key(f, w, key, d->peak[t], QUANTITY_FLOP_PER_S);
        }
    put_curves(f, w, d);
    if (d->sms > 0) {
        put_key(f, w, "sms");
        fprintf(f, "%lld\n", (long long)d->sms);
    }
    put_real_key(f, w, "tile", d->tile);
    put_real_key(f, w, "depth", d->depth);
    put_real_key(f, w, "unaligned", d->unaligned);
    put_real_key(f, w, "depth.attention", d->attention_depth);
    if (d->launch > 0)
        put_quantity_key(f, w, "launch", d->launch, QUANTITY_SECONDS);
    fputs("}\n", f);
}

static const char *topology_name(Topology t)
{
    static const char *const name[] = {"switch", "ring", "full", "mesh"};
    return name[t];
}

/* "8 * h100 + 2 * node" */
static void members_text(Text *t, const Cluster *c, const Level *l)
{
    for (uint32_t i = 0; i < l->ngroup; i++) {
        const Group *g = &l->group[i];
        const char *of = g->device >= 0 ? c->device[g->device].name : c->level[g->level].name;
        text_add(t, "%s%lld * %s", i ? " + " : "", (long long)g->count, of);
    }
}

static void print_level(FILE *f, const Level *l, int name_width, int member_width, const char *members)
{
    fprintf(f, "  level %-*s = %-*s { ", name_width, l->name, member_width, members);
    if (l->link > 0) {
        fputs("link = ", f);
        quantity_put(f, l->link, QUANTITY_BYTES_PER_S);
        fputs(", latency = ", f);
        quantity_put(f, l->latency, QUANTITY_SECONDS);
        fputs(", ", f);
    }
    fprintf(f, "topology = %s, efficiency = ", topology_name(l->topology));
    real_print(f, l->efficiency);
    if (l->cores > 0)
        fprintf(f, ", cores = %d", l->cores);
    if (l->bandwidth > 0) {
        fputs(", bandwidth = ", f);
        quantity_put(f, l->bandwidth, QUANTITY_BYTES_PER_S);
    }
    fputs(" }\n", f);
}

/* Levels share columns for '=' and '{'. */
static void print_levels(FILE *f, const Cluster *c)
{
    Arena *scratch = arena_new("scratch");
    Text *members = NEWN(scratch, Text, c->nlevel ? c->nlevel : 1);
    int name_width = 0, member_width = 0;
    for (uint32_t i = 0; i < c->nlevel; i++) {
        members[i] = text_new(scratch);
        members_text(&members[i], c, &c->level[i]);
        int n = (int)strlen(c->level[i].name), m = (int)members[i].n;
        name_width = n > name_width ? n : name_width;
        member_width = m > member_width ? m : member_width;
    }
    for (uint32_t i = 0; i < c->nlevel; i++)
        print_level(f, &c->level[i], name_width, member_width, members[i].s);
    arena_free(scratch);
}

const Curve *device_curve(const Device *d, OpKind op)
{
    for (uint32_t i = 0; i < d->nof_op; i++)
        if (d->of_op[i].op == op && !d->of_op[i].with && !d->of_op[i].typed)
            return &d->of_op[i].curve;
    return op_computes(op) ? &d->efficiency : &d->memory_efficiency;
}

int op_curve_order(const OpCurve *a, const OpCurve *b)
{
    return a->op != b->op ? (int)a->op - (int)b->op : a->with != b->with ? a->with - b->with : a->typed - b->typed;
}

uint8_t op_option(OpKind op, const char *name)
{
    const OpSig *sig = op_sig(op);
    for (int i = 0; i < sig->nformal; i++) {
        const SigFormal *f = &sig->formal[i];
        bool chosen = f->kind == SIG_SCALAR && f->fallback && (f->tensor || strcmp(f->fallback, "false") == 0);
        if (f->name && strcmp(f->name, name) == 0 && (chosen || f->optional))
            return (uint8_t)(i + 1);
    }
    return 0;
}

const char *op_curve_name(const OpCurve *c, char *text, size_t room)
{
    snprintf(text, room, "%s%s%s%s%s", op_info[c->op].name, c->with ? "." : "", c->with ? op_sig(c->op)->formal[c->with - 1].name : "", c->typed ? "." : "",
             c->typed ? dtype_name((DType)(c->typed - 1)) : "");
    return text;
}

void cluster_print(FILE *f, const Cluster *c)
{
    for (uint32_t i = 0; i < c->ndevice; i++) {
        print_device(f, &c->device[i]);
        fputc('\n', f);
    }
    fprintf(f, "cluster %s", c->name);
    put_doc(f, c->doc);
    print_levels(f, c);
    int w = c->host_memory > 0 && c->host_link > 0 ? (int)strlen("host.memory") : 0;
    if (c->host_memory > 0)
        put_quantity_key(f, w, "host.memory", c->host_memory, QUANTITY_BYTES);
    if (c->host_link > 0)
        put_quantity_key(f, w, "host.link", c->host_link, QUANTITY_BYTES_PER_S);
    fputs("}\n", f);
}

/* ---- checking ---- */

static void check_curve(Checker *k, const Device *d, const Curve *c, double most)
{
    for (uint32_t i = 0; i < c->npoint; i++) {
        const CurvePoint *p = &c->point[i];
        if (!(p->fraction > 0 && p->fraction <= most) || (i && !(p->at > p[-1].at)))
            broken(k, "device '%s': point %u of an efficiency (%g, %g) is out of order or range", d->name, i, p->at, p->fraction);
    }
}

static void check_device(Checker *k, const Device *d)
{
    bool cpu = d->backend == BACKEND_CPU;
    if (d->memory <= 0 || d->reserve < 0 || d->reserve >= d->memory)
        broken(k, "device '%s' has %lld bytes of which %lld are reserved", d->name, (long long)d->memory,
               (long long)d->reserve);
    if (!(d->bandwidth > 0) || d->launch < 0)
        broken(k, "device '%s' has a bandwidth of %g bytes/s and a launch of %g s", d->name, d->bandwidth, d->launch);
    if (cpu != (d->threads > 0))
        broken(k, "device '%s' has %d threads", d->name, d->threads);
    if (d->comm_threads < 0 || d->comm_threads > (cpu ? MOST_COMM_THREADS : 0))
        broken(k, "device '%s' has %d threads that communicate", d->name, d->comm_threads);
    if (d->sms < 0 || (cpu && d->sms) || !(d->tile >= 0 && d->tile <= 1) || (d->tile > 0 && !d->sms) || !(d->depth >= 0) ||
        !(d->attention_depth >= 0) || !(d->unaligned >= 0 && d->unaligned <= 1))
        broken(k, "device '%s' has %lld multiprocessors, a tile of %g, depths of %g and %g, and %g where unaligned", d->name, (long long)d->sms, d->tile, d->depth,
               d->attention_depth, d->unaligned);
    check_curve(k, d, &d->efficiency, 1);
    check_curve(k, d, &d->memory_efficiency, CURVE_MOST_MEMORY);
    for (uint32_t i = 0; i < d->nof_op; i++) {
        check_curve(k, d, &d->of_op[i].curve, op_computes(d->of_op[i].op) ? 1 : CURVE_MOST_MEMORY);
        if (d->of_op[i].op >= OP_KINDS || (i && op_curve_order(&d->of_op[i - 1], &d->of_op[i]) >= 0))
            broken(k, "device '%s': curve %u is of no op, or out of order", d->name, i);
    }
}

/* Devices of a level, counted; 0 when a group is broken or joins a level outside it. */
static int64_t level_devices(Checker *k, const Cluster *c, uint32_t level)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < c->level[level].ngroup; i++) {
        const Group *g = &c->level[level].group[i];
        bool one = (g->device >= 0) != (g->level >= 0);
        if (g->count < 1 || !one || g->device >= (int32_t)c->ndevice || g->level >= (int32_t)level) {
            broken(k, "level '%s': member %u is neither a device nor an inner level", c->level[level].name, i);
            return 0;
        }
        n += g->count * (g->device >= 0 ? 1 : level_devices(k, c, (uint32_t)g->level));
    }
    return n;
}

int cluster_check(const Cluster *c, FILE *err)
{
    Checker k = {err, "cluster", 0};
    for (uint32_t i = 0; i < c->ndevice; i++)
        check_device(&k, &c->device[i]);
    for (uint32_t i = 0; i < c->nlevel; i++) {
        const Level *l = &c->level[i];
        if (!(l->efficiency > 0 && l->efficiency <= 1) || l->latency < 0 || l->link < 0 || l->cores < 0 || l->bandwidth < 0)
            broken(&k, "level '%s' has a link of %g bytes/s at %g, a latency of %g s, %d cores and a bandwidth of %g bytes/s", l->name, l->link,
                   l->efficiency, l->latency, l->cores, l->bandwidth);
    }
    int64_t devices = c->nlevel ? level_devices(&k, c, c->nlevel - 1) : 0;
    if (devices < 1 || devices != (int64_t)c->ndevices)
        broken(&k, "its levels join %lld devices, but it has %u", (long long)devices, c->ndevices);
    for (uint32_t i = 0; i < c->ndevices && !k.broken; i++)
        if (c->kind[i] >= c->ndevice)
            broken(&k, "device %u is of no kind", i);
    return k.broken;
}
