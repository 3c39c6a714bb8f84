/* Show: the tables of pplan. */
#include "cli/show.h"

#include <string.h>

#include "base/text.h"

static const char *optimizer_text(Arena *a, const Optimizer *o)
{
    switch (o->kind) {
    case OPTIMIZER_ADAMW:
        return arena_printf(a, "adamw, lr %g, betas %g %g, weight decay %g, clip %g", o->lr, o->beta1, o->beta2,
                            o->weight_decay, o->clip);
    case OPTIMIZER_SGD:
        return arena_printf(a, "sgd, lr %g, momentum %g, weight decay %g, clip %g", o->lr, o->momentum, o->weight_decay,
                            o->clip);
    case OPTIMIZER_NONE:
        break;
    }
    return "none";
}

void show_flops(const Report *r, Table *t, const Graph *g)
{
    double full = graph_model_flops(g, false), causal = graph_model_flops(g, true);
    int64_t tokens = graph_tokens(g);
    const char *unit = tokens == graph_samples(g) ? "sample" : "token";
    const char *what = has_value(g->loss) ? "step" : "pass";
    table_line(r, t, arena_printf(r->arena, "FLOPs a %s", what),
         arena_printf(r->arena, "%s (mfu), %s (mfu-causal)", text_si(r->arena, full, "FLOP"), text_si(r->arena, causal, "FLOP")));
    table_line(r, t, arena_printf(r->arena, "FLOPs a %s", unit),
         arena_printf(r->arena, "%s; %s %s%s a %s", text_si(r->arena, full / (double)tokens, "FLOP"), text_count(r->arena, tokens),
                      unit, tokens == 1 ? "" : "s", what));
    table_fact(r, t, "flops", CELL_NUMBER(full));
    table_fact(r, t, "flops_causal", CELL_NUMBER(causal));
    table_fact(r, t, "tokens", CELL_NUMBER(tokens));
}

static void precision_facts(const Report *r, Table *t, const Precision *p)
{
    table_fact(r, t, "compute", CELL_TEXT(dtype_name(p->compute)));
    table_fact(r, t, "weights_dtype", CELL_TEXT(dtype_name(p->weights)));
    table_fact(r, t, "master", CELL_TEXT(dtype_name(p->master)));
    table_fact(r, t, "grads", CELL_TEXT(dtype_name(p->grads)));
    table_fact(r, t, "reduce", CELL_TEXT(dtype_name(p->reduce)));
}

static void model_facts(const Report *r, Table *t, const Graph *g, int64_t frozen)
{
    table_fact(r, t, "name", CELL_TEXT(g->name));
    for (uint32_t i = 0; i < g->noverride; i++)
        table_fact(r, t, arena_printf(r->arena, "set.%s", g->override[i].name), CELL_TEXT(g->override[i].text));
    table_fact(r, t, "parameters", CELL_NUMBER(graph_parameters(g)));
    table_fact(r, t, "weights", CELL_NUMBER(g->nweight));
    table_fact(r, t, "frozen", CELL_NUMBER(frozen));
    precision_facts(r, t, &g->precision);
    table_fact(r, t, "optimizer", CELL_TEXT(optimizer_text(r->arena, &g->optimizer)));
}

void show_model(Report *r, const Graph *g)
{
    Table *t = report_lines(r, "model");
    Arena *a = r->arena;
    int64_t frozen = 0;
    for (uint32_t i = 0; i < g->nweight; i++)
        if (g->weight[i].frozen)
            frozen += value_elements(g, g->weight[i].value);
    table_line(r, t, "model", g->doc ? arena_printf(a, "%s, %s", g->name, g->doc) : g->name);
    for (uint32_t i = 0; i < g->noverride; i++)
        table_line(r, t, "set", arena_printf(a, "%s = %s", g->override[i].name, g->override[i].text));
    table_line(r, t, "parameters", arena_printf(a, "%s in %u weights", text_count(a, graph_parameters(g)), g->nweight));
    if (frozen)
        table_line(r, t, "frozen", text_count(a, frozen));
    table_line(r, t, "precision", arena_printf(a, "compute %s, weights %s, master %s, gradients %s, reduce %s",
         dtype_name(g->precision.compute), dtype_name(g->precision.weights), dtype_name(g->precision.master),
         dtype_name(g->precision.grads), dtype_name(g->precision.reduce)));
    bool idle = has_value(g->loss) && g->optimizer.kind == OPTIMIZER_NONE;
    table_line(r, t, "optimizer", idle ? "none: it cannot be trained; 'optimizer adamw { lr = 1e-3 }' would do" : optimizer_text(a, &g->optimizer));
    model_facts(r, t, g, frozen);
    show_flops(r, t, g);
}

/* ---- ops ---- */

static const char *shape_text(Arena *a, const Graph *g, ValueId v)
{
    Text t = text_new(a);
    text_add(&t, "[");
    for (uint32_t i = 0; i < value_of(g, v)->rank; i++) {
        const Dim *d = dim_of(g, value_of(g, v)->axis[i]);
        text_add(&t, "%s%s %lld", i ? ", " : "", d->name, (long long)d->extent);
    }
    text_add(&t, "] %s", dtype_name(value_of(g, v)->dtype));
    return t.s;
}

/* FLOPs a byte above which a device's matmuls, not its memory, are the limit. */
static double ridge_point(const Device *d, DType compute)
{
    return d->bandwidth > 0 ? d->peak[compute] / d->bandwidth : 0;
}

/* An op at the full rates of a device. */
typedef struct Roofline { double flops, bytes, intensity, part, seconds; bool friendly; const char *bound; } Roofline;

/* Friendly to MFU: its FLOPs count, and the peak is what bounds it.  Views take no time. */
static Roofline roofline(const Graph *g, OpId o, const Device *d)
{
    const Op *op = op_of(g, o);
    Roofline r = {.flops = op_flops(g, o), .bytes = op_bytes(g, o), .bound = ""};
    r.intensity = r.bytes > 0 ? r.flops / r.bytes : 0;
    if (!d || op_info[op->kind].flags & OPF_VIEW)
        return r;
    double peak = d->peak[g->precision.compute], compute = r.flops / peak, memory = d->bandwidth > 0 ? r.bytes / d->bandwidth : 0;
    r.seconds = compute > memory ? compute : memory;
    r.part = r.seconds > 0 ? compute / r.seconds : 0;
    r.bound = r.intensity >= ridge_point(d, g->precision.compute) ? "compute" : "memory";
    r.friendly = op_computes(op->kind) && r.bound[0] == 'c';
    return r;
}

/* What the forward pass has of friendly ops. */
static void show_ridge(Report *r, const Graph *g, const Device *d)
{
    double ridge = ridge_point(d, g->precision.compute), flops = 0, seconds = 0, friendly_flops = 0, friendly_seconds = 0;
    int64_t n = 0, friendly = 0;
    for (uint32_t i = 0; i < g->nop; i++) {
        Roofline x = roofline(g, (OpId){i}, d);
        if (g->op[i].phase != PHASE_FORWARD)
            continue;
        n++;
        friendly += x.friendly;
        flops += x.flops;
        seconds += x.seconds;
        friendly_flops += x.friendly ? x.flops : 0;
        friendly_seconds += x.friendly ? x.seconds : 0;
    }
    Table *t = report_lines(r, "ridge");
    table_line(r, t, "ridge point", arena_printf(r->arena, "%.1f FLOPs a byte on '%s' in %s: below it memory bounds an op, above it compute", ridge, d->name,
               dtype_name(g->precision.compute)));
    table_line(r, t, "friendly to MFU", arena_printf(r->arena, "%lld of %lld ops, with %.1f %% of the FLOPs and %.1f %% of the forward pass at full rates",
               (long long)friendly, (long long)n, flops > 0 ? friendly_flops * 100 / flops : 0, seconds > 0 ? friendly_seconds * 100 / seconds : 0));
    table_fact(r, t, "device", CELL_TEXT(d->name));
    table_fact(r, t, "flops_per_byte", CELL_NUMBER(ridge));
    table_fact(r, t, "friendly_ops", CELL_NUMBER(friendly));
    table_fact(r, t, "friendly_flops", CELL_NUMBER(flops > 0 ? friendly_flops / flops : 0));
    table_fact(r, t, "friendly_time", CELL_NUMBER(seconds > 0 ? friendly_seconds / seconds : 0));
}

void show_ops(Report *r, const Graph *g, const Cluster *cl)
{
    static const Column columns[] = {{"path", "op", SHOW_TEXT},      {"kind", "kind", SHOW_TEXT},
                                     {"shape", "result", SHOW_TEXT}, {"flops", "FLOPs", SHOW_FLOPS},
                                     {"bytes", "bytes", SHOW_BYTES}, {"intensity", "FLOPs/B", SHOW_RATIO},
                                     {"bound", "bound by", SHOW_TEXT}, {"peak", "of the peak", SHOW_PART}, {"mfu", "to MFU", SHOW_TEXT}};
    const Device *d = cl ? &cl->device[0] : NULL;
    if (d)
        show_ridge(r, g, d);
    Table *t = report_table(r, "ops", columns, d ? 9 : 6);
    for (uint32_t i = 0; i < g->nop; i++) {
        const Op *op = &g->op[i];
        if (op->phase != PHASE_FORWARD)
            continue;
        Roofline x = roofline(g, (OpId){i}, d);
        Cell row[] = {CELL_TEXT(op->path), CELL_TEXT(op_info[op->kind].name), CELL_TEXT(shape_text(r->arena, g, op->out[0])),
                      CELL_NUMBER(x.flops), CELL_NUMBER(x.bytes), CELL_NUMBER(x.intensity), CELL_TEXT(x.bound), CELL_NUMBER(x.part),
                      CELL_TEXT(x.friendly ? "friendly" : *x.bound ? "unfriendly" : "")};
        table_row(r, t, row);
    }
}

/* ---- graphs ---- */

/* A text inside a DOT string: quotes and backslashes are escaped. */
static void dot_string(FILE *f, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fputc('\\', f);
        fputc(*s, f);
    }
}

static void dot_node(FILE *f, char letter, uint32_t i, const char *path, const char *second, const char *shape)
{
    fprintf(f, "  %c%u [shape=%s, label=\"", letter, i, shape);
    dot_string(f, path);
    fprintf(f, "\\n%s\"];\n", second);
}

void show_dot(FILE *f, const Graph *g)
{
    fprintf(f, "digraph \"%s\" {\n  rankdir=TB;\n  node [fontname=\"sans-serif\"];\n", g->name);
    for (uint32_t i = 0; i < g->nvalue; i++)
        if (!has_op(g->value[i].maker))
            dot_node(f, 'v', i, g->value[i].path, shape_text(g->arena, g, (ValueId){i}),
                     g->value[i].role == ROLE_INPUT ? "invhouse" : "cylinder");
    for (uint32_t i = 0; i < g->nop; i++)
        dot_node(f, 'o', i, g->op[i].path, op_info[g->op[i].kind].name, "box");
    for (uint32_t i = 0; i < g->nop; i++)
        for (uint32_t k = 0; k < g->op[i].narg; k++) {
            ValueId v = g->op[i].arg[k];
            if (!has_value(v))
                continue;
            OpId maker = value_of(g, v)->maker;
            fprintf(f, "  %c%u -> o%u [label=\"", has_op(maker) ? 'o' : 'v', has_op(maker) ? maker.i : v.i, i);
            dot_string(f, shape_text(g->arena, g, v));
            fprintf(f, "\"];\n");
        }
    fprintf(f, "}\n");
}
