/* cluster: the elaboration of `device` and `cluster` items. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"

typedef struct Machine {
    Elab    *e;
    Scope   *scope;
    Cluster *cl;
} Machine;

/* ---- devices ---- */

/* [[size, fraction], ...] with growing sizes, of the unit `size`, and fractions of a peak up to 1,
 * of a memory up to what caches may make of it. */
static void read_curve(Machine *m, const Node *pair, UnitKind size, Curve *out)
{
    const char *of = size == UNIT_FLOP ? "FLOP" : "bytes";
    double most = size == UNIT_FLOP ? 1 : CURVE_MOST_MEMORY;
    Term list = eval(m->e, m->scope, pair->kid[1]);
    if (list.kind == TERM_POISON)
        return;
    double before = -1;
    for (uint32_t i = 0; list.kind == TERM_LIST && i < list.nitem; i++) {
        Term p = list.item[i];
        double at = p.nitem == 2 ? p.item[0].f : -1, fraction = p.nitem == 2 ? p.item[1].f : -1;
        bool sized = p.nitem == 2 && (p.item[0].kind == TERM_INT || (p.item[0].kind == TERM_QUANTITY && p.item[0].i == (int64_t)size));
        if (p.kind != TERM_LIST || !sized || at <= before || !(fraction > 0 && fraction <= most)) {
            fail(m->e, pair->kid[1]->at, "expected points [%s, fraction] with growing sizes and fractions above 0 and up to %g, "
                 "but point %u is not one", of, most, i + 1);
            return;
        }
        CurvePoint c = {at, fraction};
        PUSH(m->cl->arena, out->point, out->npoint, c);
        before = at;
    }
    if (out->npoint == 0)
        fail(m->e, pair->kid[1]->at, "expected a list of points [%s, fraction], such as [[0, 0.1], [1 %s, 0.6]]", of,
             size == UNIT_FLOP ? "GFLOP" : "MB");
}

/* An op that a device computes, by its name in a key; OP_KINDS with a message when there is none. */
static OpKind curve_op(Machine *m, const Node *key)
{
    OpKind op = op_find(key->kid[1]->text);
    if (op < OP_KINDS && !(op_info[op].flags & OPF_COMM))
        return op;
    const char **pool = NEWN(m->e->arena, const char *, OP_KINDS + 1);
    uint32_t n = 0;
    pool[n++] = "memory";
    for (int k = 0; k < OP_KINDS; k++)
        if (!(op_info[k].flags & OPF_COMM))
            pool[n++] = op_info[k].name;
    Diag *d = fail(m->e, key->at, "there is no op '%s' that a device computes%s", key->kid[1]->text, did_you_mean(m->e, key->kid[1]->text, pool, n));
    diag_help(m->e->ds, d, "'pplan check MODEL --ops' lists ops by name; 'efficiency.memory' is for all that are bound by memory");
    return OP_KINDS;
}

/* What follows the op in `efficiency.OP.OPTION.DTYPE`, of which either may be left out. */
static bool read_curve_kind(Machine *m, const Node *key, OpCurve *c)
{
    for (uint32_t i = 2; i < key->nkid; i++) {
        const char *name = key->kid[i]->text;
        uint8_t option = op_option(c->op, name);
        DType type = dtype_find(name, (int)strlen(name));
        if (option && !c->with && !c->typed) {
            c->with = option;
        } else if (type < DTYPES && !c->typed) {
            c->typed = (uint8_t)(type + 1);
        } else {
            Diag *d = fail(m->e, key->kid[i]->at, "'%s' is neither an option of %s nor, after that, a dtype", name, op_info[c->op].name);
            diag_help(m->e->ds, d, "an option is an optional tensor or a switch, as in 'efficiency.attention.bias' or 'efficiency.gelu.exact.bf16'");
            return false;
        }
    }
    return true;
}

/* Keep the curves in their order. */
static void add_op_curve(Machine *m, Device *d, const Node *pair, OpKind op)
{
    OpCurve c = {.op = op}, last = c;
    if (!read_curve_kind(m, pair->kid[0], &c))
        return;
    for (uint32_t i = 0; i < d->nof_op; i++)
        if (op_curve_order(&d->of_op[i], &c) == 0) {
            char name[OP_CURVE_NAME];
            fail(m->e, pair->at, "'efficiency.%s' is set twice", op_curve_name(&c, name, sizeof name));
            return;
        }
    read_curve(m, pair, op_computes(op) ? UNIT_FLOP : UNIT_BYTES, &c.curve);
    PUSH(m->cl->arena, d->of_op, d->nof_op, last);
    uint32_t i = d->nof_op - 1;
    for (; i > 0 && op_curve_order(&d->of_op[i - 1], &c) > 0; i--)
        d->of_op[i] = d->of_op[i - 1];
    d->of_op[i] = c;
}

static bool is_op_curve(const Node *pair)
{
    const Node *key = pair->kid[0];
    return key->nkid >= 2 && strcmp(key->kid[0]->text, "efficiency") == 0 && strcmp(key->kid[1]->text, "memory") != 0;
}

/* The pairs of a device: those with the name of an op are in no table. */
static void read_device_pairs(Machine *m, const Node *settings, Device *d, Key *key, size_t nkey)
{
    const char *what = arena_printf(m->e->arena, "device '%s'", d->name);
    for (uint32_t i = 0; i < settings->nkid && !m->e->stopped; i++) {
        const Node *pair = settings->kid[i];
        OpKind op = is_op_curve(pair) ? curve_op(m, pair->kid[0]) : OP_KINDS;
        if (op < OP_KINDS)
            add_op_curve(m, d, pair, op);
        else if (!is_op_curve(pair))
            settings_pair(m->e, m->scope, pair, what, key, nkey);
    }
}

static void need(Machine *m, const Node *item, const Key *k)
{
    if (!k->at)
        fail(m->e, item->kid[0]->at, "device '%s' has no '%s'", item->kid[0]->text, k->name);
}

/* What only one of the two backends has. */
static void check_backend(Machine *m, const Device *d, const Key *threads, const Key *comm_threads, const Key *sms, const Key *tile)
{
    if (d->backend == BACKEND_CUDA && threads->at)
        fail(m->e, threads->at->at, "device '%s' computes with CUDA: only a cpu device has 'threads'", d->name);
    if (d->backend == BACKEND_CUDA && comm_threads->at)
        fail(m->e, comm_threads->at->at, "device '%s' computes with CUDA: only a cpu device has 'comm_threads'; streams of a GPU overlap as the profile says", d->name);
    if (d->backend == BACKEND_CPU && sms->at)
        fail(m->e, sms->at->at, "device '%s' is a cpu: only a cuda device has 'sms'", d->name);
    else if (tile->at && !sms->at)
        fail(m->e, tile->at->at, "device '%s' has a 'tile', but no 'sms' to count tiles by", d->name);
}

enum { DEVICE_KEYS = 14, PEAK_KEYS = DTYPES };

static Device read_device(Machine *m, const Node *item)
{
    static const char *const backends[] = {"cpu", "cuda", NULL};
    Device d = {.name = item->kid[0]->text, .doc = node_absent(item->kid[1]) ? NULL : item->kid[1]->text, .at = item->kid[0]->at};
    int backend = BACKEND_CPU;
    int64_t threads = 0, comm_threads = 0;
    double memory = 0, reserve = 0, unused = 0;
    Key key[DEVICE_KEYS + PEAK_KEYS + 1] = {
        {.name = "backend", .type = KEY_WORD, .out = &backend, .words = backends},
        {.name = "memory", .type = KEY_QUANTITY, .out = &memory, .unit = UNIT_BYTES, .lo = 1},
        {.name = "bandwidth", .type = KEY_QUANTITY, .out = &d.bandwidth, .unit = UNIT_BYTES_PER_S, .lo = 1},
        {.name = "reserve", .type = KEY_QUANTITY, .out = &reserve, .unit = UNIT_BYTES},
        {.name = "launch", .type = KEY_QUANTITY, .out = &d.launch, .unit = UNIT_SECONDS},
        {.name = "threads", .type = KEY_WHOLE, .out = &threads, .lo = 1, .hi = 4096},
        {.name = "efficiency", .type = KEY_OTHER, .out = &unused},
        {.name = "efficiency.memory", .type = KEY_OTHER, .out = &unused},
        {.name = "sms", .type = KEY_WHOLE, .out = &d.sms, .lo = 1, .hi = 1 << 20},
        {.name = "tile", .type = KEY_REAL, .out = &d.tile, .lo = 0.001, .hi = 1},
        {.name = "depth", .type = KEY_REAL, .out = &d.depth, .lo = 0, .hi = 1 << 20},
        {.name = "unaligned", .type = KEY_REAL, .out = &d.unaligned, .lo = 0.01, .hi = 1},
        {.name = "depth.attention", .type = KEY_REAL, .out = &d.attention_depth, .lo = 0, .hi = 1 << 20},
        {.name = "comm_threads", .type = KEY_WHOLE, .out = &comm_threads, .lo = 0, .hi = MOST_COMM_THREADS},
    };
    for (int t = 0; t < PEAK_KEYS; t++)
        key[DEVICE_KEYS + t] = (Key){.name = arena_printf(m->e->arena, "peak.%s", dtype_name((DType)t)), .type = KEY_QUANTITY,
                                     .out = &d.peak[t], .unit = UNIT_FLOP_PER_S};
    read_device_pairs(m, item->kid[2], &d, key, DEVICE_KEYS + PEAK_KEYS);
    for (int i = 0; i < 3; i++)
        need(m, item, &key[i]);
    if (key[6].at)
        read_curve(m, key[6].at, UNIT_FLOP, &d.efficiency);
    if (key[7].at)
        read_curve(m, key[7].at, UNIT_BYTES, &d.memory_efficiency);
    d.backend = backend == 1 ? BACKEND_CUDA : BACKEND_CPU;
    d.memory = (int64_t)memory;
    d.reserve = (int64_t)reserve;
    d.threads = d.backend == BACKEND_CPU && !threads ? 1 : (int)threads;
    d.comm_threads = (int)comm_threads;
    check_backend(m, &d, &key[5], &key[13], &key[8], &key[9]);
    if (d.memory > 0 && d.reserve >= d.memory && key[3].at)
        fail(m->e, key[3].at->at, "the reserve leaves nothing: %s of %s", text_bytes(m->e->arena, d.reserve),
             text_bytes(m->e->arena, d.memory));
    return d;
}

static int32_t find_device(Machine *m, const char *name)
{
    for (uint32_t i = 0; i < m->cl->ndevice; i++)
        if (strcmp(m->cl->device[i].name, name) == 0)
            return (int32_t)i;
    const Node *item = item_find(m->e->units, N_DEVICE, name);
    if (!item)
        return -1;
    Device d = read_device(m, item);
    PUSH(m->cl->arena, m->cl->device, m->cl->ndevice, d);
    return (int32_t)m->cl->ndevice - 1;
}

/* ---- levels ---- */

static int32_t find_level(const Cluster *cl, const char *name)
{
    for (uint32_t i = 0; i < cl->nlevel; i++)
        if (strcmp(cl->level[i].name, name) == 0)
            return (int32_t)i;
    return -1;
}

static void unknown_member(Machine *m, const Node *name)
{
    const char **pool = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->cl->nlevel; i++)
        PUSH(m->e->arena, pool, n, m->cl->level[i].name);
    for (uint32_t u = 0; u < m->e->units->nunit; u++)
        for (uint32_t i = 0; i < m->e->units->unit[u].root->nkid; i++) {
            const Node *item = m->e->units->unit[u].root->kid[i];
            if (item->kind == N_DEVICE)
                PUSH(m->e->arena, pool, n, item->kid[0]->text);
        }
    fail(m->e, name->at, "no device or level named '%s'%s", name->text, did_you_mean(m->e, name->text, pool, n));
}

static void read_group(Machine *m, const Node *node, Level *level)
{
    Group g = {.device = -1, .level = find_level(m->cl, node->kid[1]->text)};
    if (g.level < 0)
        g.device = find_device(m, node->kid[1]->text);
    if (g.level < 0 && g.device < 0)
        unknown_member(m, node->kid[1]);
    Term count;
    if (!eval_whole(m->e, m->scope, node->kid[0], "the count", 1, 1 << 20, &count))
        return;
    g.count = count.i;
    PUSH(m->cl->arena, level->group, level->ngroup, g);
}

static void read_level(Machine *m, const Node *node)
{
    static const char *const topologies[] = {"switch", "ring", "full", "mesh", NULL};
    Level l = {.name = node->kid[0]->text, .efficiency = 1, .at = node->kid[0]->at};
    int topology = TOPO_SWITCH;
    int64_t cores = 0;
    if (find_level(m->cl, l.name) >= 0)
        fail(m->e, l.at, "level '%s' is declared twice", l.name);
    for (uint32_t i = 1; i + 1 < node->nkid; i++)
        read_group(m, node->kid[i], &l);
    Key key[] = {
        {.name = "link", .type = KEY_QUANTITY, .out = &l.link, .unit = UNIT_BYTES_PER_S, .lo = 1},
        {.name = "latency", .type = KEY_QUANTITY, .out = &l.latency, .unit = UNIT_SECONDS},
        {.name = "topology", .type = KEY_WORD, .out = &topology, .words = topologies},
        {.name = "efficiency", .type = KEY_REAL, .out = &l.efficiency, .lo = 0.001, .hi = 1},
        {.name = "cores", .type = KEY_WHOLE, .out = &cores, .lo = 1, .hi = 1 << 20},
        {.name = "bandwidth", .type = KEY_QUANTITY, .out = &l.bandwidth, .unit = UNIT_BYTES_PER_S, .lo = 1},
    };
    const Node *settings = node->kid[node->nkid - 1];
    if (!node_absent(settings))
        settings_read(m->e, m->scope, settings, arena_printf(m->e->arena, "level '%s'", l.name), key, sizeof key / sizeof *key);
    l.topology = (Topology)topology;
    l.cores = (int)cores;
    int64_t members = 0;
    for (uint32_t i = 0; i < l.ngroup; i++)
        members += l.group[i].count;
    if (members > 1 && !key[0].at)
        fail(m->e, l.at, "level '%s' joins %lld members, but has no 'link'", l.name, (long long)members);
    PUSH(m->cl->arena, m->cl->level, m->cl->nlevel, l);
}

/* ---- the whole ---- */

enum { DEVICES_LIMIT = 1 << 20 };

/* Number the devices of a level, in the order written; false past the limit. */
static bool number_devices(Cluster *cl, uint32_t level)
{
    for (uint32_t i = 0; i < cl->level[level].ngroup; i++) {
        const Group *g = &cl->level[level].group[i];
        for (int64_t k = 0; k < g->count; k++) {
            if (cl->ndevices >= DEVICES_LIMIT)
                return false;
            if (g->level >= 0 && !number_devices(cl, (uint32_t)g->level))
                return false;
            if (g->device >= 0)
                PUSH(cl->arena, cl->kind, cl->ndevices, (uint32_t)g->device);
        }
    }
    return true;
}

static void read_params(Machine *m, const Node *params)
{
    for (uint32_t i = 0; i < params->nkid; i++) {
        Term t;
        if (!define_take(m->e, m->scope, params->kid[i], false, &t))
            t = eval(m->e, m->scope, params->kid[i]->kid[1]);
        scope_declare(m->e, m->scope, params->kid[i]->kid[0], SYM_PARAM, t);
    }
}

static void read_cluster(Machine *m, const Node *item)
{
    Cluster *cl = m->cl;
    Key key[] = {
        {.name = "host.memory", .type = KEY_QUANTITY, .out = &cl->host_memory, .unit = UNIT_BYTES},
        {.name = "host.link", .type = KEY_QUANTITY, .out = &cl->host_link, .unit = UNIT_BYTES_PER_S},
    };
    const char *what = arena_printf(m->e->arena, "cluster '%s'", cl->name);
    for (uint32_t i = 2; i < item->nkid; i++) {
        const Node *n = item->kid[i];
        if (n->kind == N_PARAMS)
            read_params(m, n);
        else if (n->kind == N_LEVEL)
            read_level(m, n);
        else
            settings_pair(m->e, m->scope, n, what, key, sizeof key / sizeof *key);
    }
    if (cl->nlevel == 0)
        fail(m->e, item->kid[0]->at, "cluster '%s' has no level, so no device", cl->name);
    else if (diags_status(m->e->ds) == OK && !number_devices(cl, cl->nlevel - 1))
        fail(m->e, item->kid[0]->at, "cluster '%s' has more than %d devices", cl->name, DEVICES_LIMIT);
}

static void no_cluster(Elab *e, const char *name)
{
    fail(e, NOWHERE, "no cluster '%s' in '%s'%s", name, e->units->unit[e->units->nunit - 1].source->path, item_near(e, N_CLUSTER, name));
    fail_settle(e);
}

static const char *cluster_text(Arena *a, const Cluster *cl)
{
    TextStream s;
    text_stream_open(&s);
    cluster_print(s.f, cl);
    return text_stream_take(&s, a, NULL);
}

Status elaborate_cluster(Diags *ds, const Units *units, const char *name, Define *define, uint32_t ndefine, Arena *a, Cluster **out)
{
    *out = NULL;
    const Node *item = item_chosen(units, N_CLUSTER, name);
    if (!item && !name)
        return OK;
    Elab e = {.ds = ds, .arena = ds->arena, .units = units, .define = define, .ndefine = ndefine};
    if (!item) {
        no_cluster(&e, name);
        return ERR_REJECT;
    }
    Machine m = {.e = &e, .cl = NEW(a, Cluster)};
    m.scope = scope_new(&e, SCOPE_CLUSTER, "");
    *m.cl = (Cluster){.arena = a, .name = item->kid[0]->text, .at = item->kid[0]->at,
                      .doc = node_absent(item->kid[1]) ? NULL : item->kid[1]->text};
    read_cluster(&m, item);
    fail_settle(&e);
    TRY(diags_status(ds));
    m.cl->text = cluster_text(a, m.cl);
    *out = m.cl;
    return OK;
}
