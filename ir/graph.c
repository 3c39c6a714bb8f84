/* Building a Graph: dims, values and ops, with factors and their roles. */
#include "ir/graph.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ir/check.h"

Graph *graph_new(Arena *a)
{
    Graph *g = NEW(a, Graph);
    g->arena = a;
    g->loss = NO_VALUE;
    g->batch = NO_DIM;
    g->precision = (Precision){DT_f32, DT_f32, DT_f32, DT_f32, DT_f32};
    return g;
}

DimId graph_add_dim(Graph *g, const char *name, int64_t extent, Span at)
{
    assert(extent > 0);
    Dim d = {arena_strdup(g->arena, name), extent, at};
    PUSH(g->arena, g->dim, g->ndim, d);
    return (DimId){g->ndim - 1};
}

ValueId graph_add_value(Graph *g, const char *path, ValueRole role, DType dtype, uint8_t rank, const DimId *axis,
                        Span at)
{
    assert(rank <= MAX_RANK);
    Value v = {.path = arena_strdup(g->arena, path), .role = role, .dtype = dtype, .rank = rank, .maker = NO_OP, .gradient = NO_VALUE,
               .at = at};
    for (int i = 0; i < rank; i++)
        v.axis[i] = axis[i];
    PUSH(g->arena, g->value, g->nvalue, v);
    return (ValueId){g->nvalue - 1};
}

Weight *weight_of(const Graph *g, ValueId v)
{
    for (uint32_t i = 0; i < g->nweight; i++)
        if (g->weight[i].value.i == v.i)
            return &g->weight[i];
    return NULL;
}

int64_t value_elements(const Graph *g, ValueId v)
{
    const Value *val = value_of(g, v);
    int64_t n = 1;
    for (int i = 0; i < val->rank; i++)
        n *= dim_of(g, val->axis[i])->extent;
    return n;
}

bool value_has_dim(const Graph *g, ValueId v, DimId d)
{
    const Value *val = value_of(g, v);
    for (int i = 0; i < val->rank; i++)
        if (same_dim(val->axis[i], d))
            return true;
    return false;
}

int optimizer_moments(const Optimizer *o)
{
    return o->kind == OPTIMIZER_ADAMW ? 2 : o->kind == OPTIMIZER_SGD && o->momentum != 0 ? 1 : 0;
}

int64_t graph_parameters(const Graph *g)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < g->nweight; i++)
        n += value_elements(g, g->weight[i].value);
    return n;
}

/* ---- attributes ---- */

bool attr_word(const char *text, Attr *out)
{
    DType t = dtype_find(text, (int)strlen(text));
    if (strcmp(text, "none") == 0)
        *out = (Attr){ATTR_NONE, 0, 0};
    else if (strcmp(text, "auto") == 0)
        *out = (Attr){ATTR_AUTO, 0, 0};
    else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        *out = ATTR_B(*text == 't');
    else if (t != DTYPES)
        *out = ATTR_T(t);
    else
        return false;
    return true;
}

/* A default of a signature: a word of the language or a number. */
static Attr parse_attr(const char *text)
{
    Attr a;
    if (attr_word(text ? text : "none", &a))
        return a;
    char *end;
    if (!strpbrk(text, ".eE"))
        return ATTR_I(strtoll(text, &end, 10));
    return ATTR_F(strtod(text, &end));
}

OpSpec op_spec(OpKind kind, Phase phase, const char *path, Span at)
{
    OpSpec s = {.kind = kind, .phase = phase, .path = path, .forward = NO_OP, .by_dim = true, .at = at};
    const OpSig *sig = op_sig(kind);
    int n = 0;
    for (int i = 0; i < sig->nformal; i++) {
        if (sig->formal[i].kind != SIG_SCALAR)
            continue;
        assert(n < MAX_ATTRS);
        s.attr[n++] = parse_attr(sig->formal[i].fallback);
    }
    for (int i = 0; i < MAX_ARGS; i++)
        s.arg[i] = NO_VALUE;
    return s;
}

int op_attr_index(OpKind kind, const char *name)
{
    const OpSig *sig = op_sig(kind);
    int n = 0;
    for (int i = 0; i < sig->nformal; i++) {
        if (sig->formal[i].kind != SIG_SCALAR)
            continue;
        if (strcmp(sig->formal[i].name, name) == 0)
            return n;
        n++;
    }
    return -1;
}

const Attr *op_attr(const Op *op, const char *name)
{
    int i = op_attr_index(op->kind, name);
    assert(i >= 0);
    return &op->attr[i];
}

/* Member by member: what lies between them is anything. */
bool op_same_attrs(const Op *x, const Op *y)
{
    for (int i = 0; i < MAX_ATTRS; i++)
        if (x->attr[i].kind != y->attr[i].kind || x->attr[i].i != y->attr[i].i || memcmp(&x->attr[i].f, &y->attr[i].f, sizeof x->attr[i].f) != 0)
            return false;
    return true;
}

/* ---- factors ---- */

/* Labels of a spec as they stand, or derived by dim: the label of the j-th axis
 * of one dim in a value is j * (number of dims) + dim.  The key positions of
 * attention (t) stay apart from the query positions, which may be the same dim. */
typedef struct Labels { uint32_t arg[MAX_ARGS][MAX_RANK], out[MAX_OUTS][MAX_RANK]; } Labels;

static void label_by_dim(const Graph *g, const DimId *axis, int rank, uint32_t *label)
{
    for (int i = 0; i < rank; i++) {
        uint32_t seen = 0;
        for (int j = 0; j < i; j++)
            seen += same_dim(axis[i], axis[j]);
        label[i] = seen * g->ndim + axis[i].i;
    }
}

enum { KEY_COPY = MAX_RANK };                        /* copy number of key positions */

static void keep_keys_apart(const Graph *g, OpKind kind, const SigFormal *f, int rank, uint32_t *label)
{
    if (kind != OP_attention && kind != OP_attention_grad)
        return;
    for (int i = f->naxis - 1, x = rank - 1; i >= 0 && x >= 0 && !f->axis[i].dots; i--, x--)
        if (f->axis[i].role == 't')
            label[x] = KEY_COPY * g->ndim + label[x] % g->ndim;
}

static void make_labels(const Graph *g, const OpSpec *s, Labels *l)
{
    for (int i = 0; i < s->narg; i++) {
        if (!has_value(s->arg[i]))
            continue;
        const Value *v = value_of(g, s->arg[i]);
        for (int x = 0; x < v->rank; x++)
            l->arg[i][x] = s->label[i][x];
        if (s->by_dim) {
            label_by_dim(g, v->axis, v->rank, l->arg[i]);
            keep_keys_apart(g, s->kind, op_arg(s->kind, i), v->rank, l->arg[i]);
        }
    }
    for (int o = 0; o < s->nout; o++) {
        for (int x = 0; x < s->out[o].rank; x++)
            l->out[o][x] = s->out[o].label[x];
        if (s->by_dim) {
            label_by_dim(g, s->out[o].axis, s->out[o].rank, l->out[o]);
            keep_keys_apart(g, s->kind, &op_sig(s->kind)->result[o], s->out[o].rank, l->out[o]);
        }
    }
}

/* Factors get numbers in the order in which their labels are first met. */
typedef struct Numbering { uint32_t label[MAX_FACTORS]; } Numbering;

static uint8_t factor_number(const Graph *g, Op *op, Numbering *n, uint32_t label, DimId dim)
{
    for (uint8_t f = 0; f < op->nfactor; f++)
        if (n->label[f] == label) {
            assert(dim_of(g, op->factor[f].dim)->extent == dim_of(g, dim)->extent);
            return f;
        }
    assert(op->nfactor < MAX_FACTORS);
    n->label[op->nfactor] = label;
    op->factor[op->nfactor] = (Factor){dim, '.'};
    return op->nfactor++;
}

static void number_axes(const Graph *g, Op *op, Numbering *n, const DimId *axis, int rank, const uint32_t *label,
                        uint8_t *factor)
{
    for (int i = 0; i < MAX_RANK; i++)
        factor[i] = i < rank ? factor_number(g, op, n, label[i], axis[i]) : NO_FACTOR;
}

/* ---- roles ----
 *
 * Most ops: the named axes of a pattern match a tensor's last axes, '..' takes the
 * rest; where a factor meets several letters the first one holds (query heads that
 * are the key heads too: h).  A few ops name axes that stand anywhere or stand for several: for these a
 * factor that no result has takes the letter of the first tensor, and a factor of
 * result 0 that no tensor has (owned weights aside) takes the letter of result 0. */
static bool roles_by_side(OpKind k)
{
    return k == OP_linear || k == OP_merge || k == OP_concat || k == OP_select || k == OP_slice || k == OP_place;
}

static void set_roles(Op *op, const SigFormal *f, const uint8_t *factor, int rank)
{
    for (int i = f->naxis - 1, x = rank - 1; i >= 0 && x >= 0 && !f->axis[i].dots; i--, x--)
        if (op->factor[factor[x]].role == '.')
            op->factor[factor[x]].role = f->axis[i].role;
}

static void roles_by_pattern(const Graph *g, Op *op)
{
    const OpSig *sig = op_sig(op->kind);
    for (int i = 0; i < op->narg; i++)
        if (has_value(op->arg[i]))
            set_roles(op, op_arg(op->kind, i), op->arg_factor[i], value_of(g, op->arg[i])->rank);
    for (int o = 0; o < op->nout; o++)
        set_roles(op, &sig->result[o], op->out_factor[o], value_of(g, op->out[o])->rank);
}

static bool has_factor(const uint8_t *factor, uint8_t f)
{
    return memchr(factor, f, MAX_RANK) != NULL;
}

static char last_role(const SigFormal *f)
{
    return f->naxis ? f->axis[f->naxis - 1].role : '.';
}

static void roles_from_sides(Op *op)
{
    const OpSig *sig = op_sig(op->kind);
    for (uint8_t f = 0; f < op->nfactor; f++) {
        bool in_tensor = false, in_result = has_factor(op->out_factor[0], f);
        for (int i = 0; i < op->narg; i++)
            in_tensor |= op_arg(op->kind, i)->kind != SIG_OWNED && has_factor(op->arg_factor[i], f);
        if (!in_result)
            op->factor[f].role = last_role(op_arg(op->kind, 0));
        else if (!in_tensor)
            op->factor[f].role = last_role(&sig->result[0]);
    }
}

/* ---- ops ---- */

static ValueRole result_role(Phase phase)
{
    static const ValueRole role[] = {
        [PHASE_BEGIN] = ROLE_STEP, [PHASE_FORWARD] = ROLE_ACTIVATION, [PHASE_BACKWARD] = ROLE_GRADIENT,
        [PHASE_UPDATE] = ROLE_STEP,
    };
    return role[phase];
}

/* The labels of a backward op are the forward op's factors, unless they come from dims. */
static void set_forward_factors(const OpSpec *s, const Numbering *n, Op *op)
{
    memset(op->forward_factor, NO_FACTOR, sizeof op->forward_factor);
    for (uint8_t f = 0; has_op(s->forward) && !s->by_dim && f < op->nfactor; f++)
        op->forward_factor[f] = (uint8_t)n->label[f];
}

static void add_results(Graph *g, const OpSpec *s, OpId id, Op *op)
{
    for (int o = 0; o < s->nout; o++) {
        const OutSpec *out = &s->out[o];
        const char *path = out->suffix ? arena_printf(g->arena, "%s:%s", s->path, out->suffix) : s->path;
        op->out[o] = graph_add_value(g, path, result_role(s->phase), out->dtype, out->rank, out->axis, s->at);
        value_of(g, op->out[o])->maker = id;
    }
}

OpId graph_add_op(Graph *g, const OpSpec *s)
{
    const OpSig *sig = op_sig(s->kind);
    assert(s->narg <= op_narg(s->kind) && s->nout <= sig->nresult + sig->nsaved && s->nout <= MAX_OUTS);
    Op op = {.kind = s->kind, .phase = s->phase, .path = arena_strdup(g->arena, s->path), .forward = s->forward, .sum_of = NO_VALUE,
             .narg = s->narg, .nout = s->nout, .at = s->at};
    op.key = s->key ? arena_strdup(g->arena, s->key) : op.path;
    memset(op.arg_factor, NO_FACTOR, sizeof op.arg_factor);
    memset(op.out_factor, NO_FACTOR, sizeof op.out_factor);
    memcpy(op.attr, s->attr, sizeof op.attr);
    for (int i = 0; i < MAX_ARGS; i++) {
        op.arg[i] = i < s->narg ? s->arg[i] : NO_VALUE;
        op.give[i] = NO_VALUE;
    }
    for (int o = 0; o < MAX_OUTS; o++)
        op.out[o] = NO_VALUE;
    Labels labels = {0};
    Numbering numbering = {{0}};
    make_labels(g, s, &labels);
    for (int i = 0; i < s->narg; i++)
        if (has_value(s->arg[i]))
            number_axes(g, &op, &numbering, value_of(g, s->arg[i])->axis, value_of(g, s->arg[i])->rank, labels.arg[i],
                        op.arg_factor[i]);
    for (int o = 0; o < s->nout; o++)
        number_axes(g, &op, &numbering, s->out[o].axis, s->out[o].rank, labels.out[o], op.out_factor[o]);
    set_forward_factors(s, &numbering, &op);
    OpId id = {g->nop};
    add_results(g, s, id, &op);
    if (roles_by_side(op.kind))
        roles_from_sides(&op);
    else
        roles_by_pattern(g, &op);
    PUSH(g->arena, g->op, g->nop, op);
    assert(graph_check_op(g, id, stderr) == 0);
    return id;
}
