/* The dump form of a Graph: every field, one record a line. */
#include <string.h>

#include "ir/check.h"
#include "ir/record.h"

enum { GRAPH_VERSION = 2, PHASES = PHASE_UPDATE + 1 };

static const char *phase_name(unsigned i)
{
    static const char *const name[PHASES] = {"begin", "forward", "backward", "update"};
    return name[i];
}

/* ---- printing ---- */

static void put_values(FILE *f, const char *key, int n, const ValueId *v)
{
    fprintf(f, " %s=[", key);
    for (int i = 0; i < n; i++) {
        if (i)
            fputc(',', f);
        put_index(f, v[i].i);
    }
    fputc(']', f);
}

static void print_model(FILE *f, const Graph *g)
{
    fputs("model", f);
    if (g->name)
        record_put_string(f, "name", g->name);
    if (g->doc)
        record_put_string(f, "doc", g->doc);
    fputs(" batch=", f);
    put_index(f, g->batch.i);
    fputs(" loss=", f);
    put_index(f, g->loss.i);
    fputc('\n', f);
    record_put_precision(f, &g->precision);
    record_put_optimizer(f, &g->optimizer);
    for (uint32_t i = 0; i < g->noverride; i++) {
        fputs("override", f);
        record_put_string(f, "name", g->override[i].name);
        record_put_string(f, "text", g->override[i].text);
        fputc('\n', f);
    }
}

static void print_value(FILE *f, const Graph *g, uint32_t i)
{
    const Value *v = &g->value[i];
    fprintf(f, "value id=%u", i);
    record_put_string(f, "path", v->path);
    fprintf(f, " role=%s dtype=%s axes=[", value_role_name(v->role), dtype_name(v->dtype));
    for (int x = 0; x < v->rank; x++)
        fprintf(f, x ? ",%u" : "%u", v->axis[x].i);
    fputs("]\n", f);
}

static void print_op(FILE *f, const Graph *g, uint32_t i)
{
    const Op *op = &g->op[i];
    fprintf(f, "op id=%u kind=%s phase=%s", i, op_info[op->kind].name, phase_name(op->phase));
    record_put_string(f, "path", op->path);
    record_put_string(f, "key", op->key);
    fputs(" forward=", f);
    put_index(f, op->forward.i);
    if (has_value(op->sum_of))
        fprintf(f, " sum_of=%u", op->sum_of.i);
    put_values(f, "args", op->narg, op->arg);
    put_values(f, "outs", op->nout, op->out);
    fputs(" factors=[", f);
    for (int k = 0; k < op->nfactor; k++) {
        fprintf(f, k ? ",%u:%c" : "%u:%c", op->factor[k].dim.i, op->factor[k].role);
        if (op->forward_factor[k] != NO_FACTOR)
            fprintf(f, ":%u", op->forward_factor[k]);
    }
    fputc(']', f);
    record_put_factors(f, "arg_factors", op->narg, op->arg_factor);
    record_put_factors(f, "out_factors", op->nout, op->out_factor);
    record_put_attrs(f, op->kind, op->attr);
    fputc('\n', f);
}

static void print_weight(FILE *f, const Weight *w)
{
    fprintf(f, "weight value=%u gradient=", w->value.i);
    put_index(f, w->gradient.i);
    record_put_init(f, &w->init);
    fprintf(f, " frozen=%s decays=%s\n", w->frozen ? "true" : "false", w->decays ? "true" : "false");
}

void graph_print(FILE *f, const Graph *g)
{
    fprintf(f, "graph %d\n", GRAPH_VERSION);
    print_model(f, g);
    for (uint32_t i = 0; i < g->ndim; i++) {
        fprintf(f, "dim id=%u", i);
        record_put_string(f, "name", g->dim[i].name);
        fprintf(f, " extent=%lld\n", (long long)g->dim[i].extent);
    }
    for (uint32_t i = 0; i < g->nvalue; i++)
        print_value(f, g, i);
    for (uint32_t i = 0; i < g->nop; i++)
        print_op(f, g, i);
    for (uint32_t i = 0; i < g->nweight; i++)
        print_weight(f, &g->weight[i]);
    for (uint32_t i = 0; i < g->noutput; i++) {
        fprintf(f, "output value=%u", g->output[i].value.i);
        record_put_string(f, "name", g->output[i].name);
        fputc('\n', f);
    }
}

/* ---- reading ---- */

enum { MAX_INDEX = INT32_MAX };       /* references are checked at the end: they may point forward */

static void read_model(Records *r, Graph *g)
{
    g->name = record_maybe_string(r, "name");
    g->doc = record_maybe_string(r, "doc");
    g->batch.i = record_index(r, "batch", MAX_INDEX);
    g->loss.i = record_index(r, "loss", MAX_INDEX);
}

static void read_override(Records *r, Graph *g)
{
    Override o = {record_string(r, "name"), record_string(r, "text")};
    PUSH(g->arena, g->override, g->noverride, o);
}

/* Records have numbers only so that people find them; they must be in order. */
static void expect_id(Records *r, uint32_t n)
{
    if (record_int(r, "id", 0, MAX_INDEX) != (int64_t)n)
        record_fail(r, "%s: expected id=%u", r->tag, n);
}

static void read_dim(Records *r, Graph *g)
{
    expect_id(r, g->ndim);
    Dim d = {record_string(r, "name"), record_int(r, "extent", 1, INT64_MAX), NOWHERE};
    PUSH(g->arena, g->dim, g->ndim, d);
}

static void read_value(Records *r, Graph *g)
{
    expect_id(r, g->nvalue);
    Value v = {.path = record_string(r, "path"), .maker = NO_OP, .gradient = NO_VALUE};
    v.role = (ValueRole)record_word(r, "role", VALUE_ROLES, value_role_name);
    v.dtype = (DType)record_word(r, "dtype", DTYPES, dtype_name_at);
    char *item[MAX_RANK];
    v.rank = (uint8_t)record_list(r, "axes", item, MAX_RANK);
    int64_t elements = 1;
    for (int x = 0; x < v.rank && !r->failed; x++) {
        v.axis[x].i = (uint32_t)record_item_int(r, "axes", item[x], 0, (int64_t)g->ndim - 1);
        if (!r->failed && __builtin_mul_overflow(elements, g->dim[v.axis[x].i].extent, &elements))
            record_fail(r, "value: '%s' has more elements than a 64-bit number holds", v.path);
    }
    PUSH(g->arena, g->value, g->nvalue, v);
}

static uint8_t read_values(Records *r, const Graph *g, const char *key, ValueId *v, int max)
{
    char *item[MAX_ARGS];
    int n = record_list(r, key, item, max);
    for (int i = 0; i < n; i++)
        v[i].i = record_item_index(r, key, item[i], g->nvalue);
    return (uint8_t)n;
}

/* "DIM:ROLE", and ":FACTOR" of the forward op in a backward one */
static void read_op_factor(Records *r, const Graph *g, Op *op, int i, char *item)
{
    char *colon = strchr(item, ':');
    if (!colon || !colon[1] || (colon[2] && colon[2] != ':')) {
        record_fail(r, "op: expected DIM:ROLE in 'factors', found '%.30s'", item);
        return;
    }
    op->factor[i].role = colon[1];
    op->forward_factor[i] = colon[2] ? (uint8_t)record_item_int(r, "factors", colon + 3, 0, MAX_FACTORS - 1) : NO_FACTOR;
    *colon = 0;
    op->factor[i].dim.i = (uint32_t)record_item_int(r, "factors", item, 0, (int64_t)g->ndim - 1);
}

static void read_op_factors(Records *r, const Graph *g, Op *op)
{
    char *item[MAX_FACTORS];
    memset(op->forward_factor, NO_FACTOR, sizeof op->forward_factor);
    op->nfactor = (uint8_t)record_list(r, "factors", item, MAX_FACTORS);
    for (int i = 0; i < op->nfactor && !r->failed; i++)
        read_op_factor(r, g, op, i, item[i]);
    record_get_factors(r, "arg_factors", op->narg, op->nfactor, op->arg_factor);
    record_get_factors(r, "out_factors", op->nout, op->nfactor, op->out_factor);
}

static void set_makers(Records *r, Graph *g, const Op *op)
{
    for (int o = 0; o < op->nout && !r->failed; o++) {
        if (!has_value(op->out[o]) || has_op(value_of(g, op->out[o])->maker))
            record_fail(r, "op: result %d of '%s' is %s", o, op->path,
                        has_value(op->out[o]) ? "made twice" : "missing");
        else
            value_of(g, op->out[o])->maker.i = g->nop;
    }
}

static void read_op(Records *r, Graph *g)
{
    expect_id(r, g->nop);
    Op op = {.kind = (OpKind)record_word(r, "kind", OP_KINDS, op_name_at)};
    op.phase = (Phase)record_word(r, "phase", PHASES, phase_name);
    op.path = record_string(r, "path");
    op.key = record_string(r, "key");
    op.forward.i = record_index(r, "forward", g->nop);
    op.sum_of.i = record_has(r, "sum_of") ? record_index(r, "sum_of", g->nvalue) : UINT32_MAX;
    memset(op.arg, 0xFF, sizeof op.arg);
    memset(op.out, 0xFF, sizeof op.out);
    memset(op.give, 0xFF, sizeof op.give);
    memset(op.arg_factor, NO_FACTOR, sizeof op.arg_factor);
    memset(op.out_factor, NO_FACTOR, sizeof op.out_factor);
    op.narg = read_values(r, g, "args", op.arg, MAX_ARGS);
    op.nout = read_values(r, g, "outs", op.out, MAX_OUTS);
    read_op_factors(r, g, &op);
    record_get_attrs(r, op.kind, op.attr);
    set_makers(r, g, &op);
    PUSH(g->arena, g->op, g->nop, op);
}

static void read_weight(Records *r, Graph *g)
{
    Weight w = {.value = {(uint32_t)record_int(r, "value", 0, (int64_t)g->nvalue - 1)}};
    w.gradient.i = record_index(r, "gradient", g->nvalue);
    record_get_init(r, &w.init);
    w.frozen = record_bool(r, "frozen");
    w.decays = record_bool(r, "decays");
    PUSH(g->arena, g->weight, g->nweight, w);
}

static void read_output(Records *r, Graph *g)
{
    ValueId v = {(uint32_t)record_int(r, "value", 0, (int64_t)g->nvalue - 1)};
    PUSH(g->arena, g->output, g->noutput, ((NamedValue){record_string(r, "name"), v}));
}

static void read_precision(Records *r, Graph *g)
{
    record_get_precision(r, &g->precision);
}

static void read_optimizer(Records *r, Graph *g)
{
    record_get_optimizer(r, &g->optimizer);
}

/* As in program_text.c: one loop for both would have to forget what the readers fill. */
static const struct { const char *tag; void (*read)(Records *, Graph *); } readers[] = {
    {"model", read_model}, {"precision", read_precision}, {"optimizer", read_optimizer},
    {"override", read_override}, {"dim", read_dim}, {"value", read_value}, {"op", read_op}, {"weight", read_weight},
    {"output", read_output},
};

Status graph_read(Arena *a, FILE *in, const char *name, FILE *err, Graph **out)
{
    Records r;
    *out = NULL;
    TRY(records_open(&r, a, in, name, err, "graph", GRAPH_VERSION));
    Graph *g = graph_new(a);
    while (record_next(&r)) {
        size_t i = 0, n = sizeof readers / sizeof *readers;
        while (i < n && strcmp(readers[i].tag, r.tag) != 0)
            i++;
        if (i == n)
            record_fail(&r, "a graph has no '%.30s'", r.tag);
        else
            readers[i].read(&r, g);
    }
    if (r.failed || graph_check(g, err) != 0)
        return ERR_REJECT;
    *out = g;
    return OK;
}
