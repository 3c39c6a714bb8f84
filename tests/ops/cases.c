/* What cases are written with, the list of them, and the graph of one. */
#include <math.h>

#include "base/text.h"
#include "tests/ops/maker.h"

/* ---- words ---- */

DimId dim(Maker *m, const char *name, int64_t small, int64_t large)
{
    return graph_add_dim(m->g, name, m->scale ? large : small, NOWHERE);
}

ValueId value(Maker *m, const char *name, ValueRole role, DType dtype, Fill fill, int rank, const DimId *axis)
{
    ValueId v = graph_add_value(m->g, name, role, dtype, (uint8_t)rank, axis, NOWHERE);
    m->fill[v.i] = fill;
    if (role == ROLE_WEIGHT)
        PUSH(m->g->arena, m->g->weight, m->g->nweight, ((Weight){.value = v, .gradient = NO_VALUE, .decays = true}));
    return v;
}

ValueId reals_in(Maker *m, const char *name, double lo, double hi, int rank, const DimId *axis)
{
    return value(m, name, ROLE_WEIGHT, m->real, (Fill){lo, hi}, rank, axis);
}

ValueId reals(Maker *m, const char *name, int rank, const DimId *axis)
{
    return reals_in(m, name, -1.5, 1.5, rank, axis);
}

ValueId integers(Maker *m, const char *name, DType t, double lo, double hi, int rank, const DimId *axis)
{
    return value(m, name, ROLE_INPUT, t, (Fill){lo, hi}, rank, axis);
}

double extent(const Maker *m, DimId d)
{
    return (double)dim_of(m->g, d)->extent;
}

OpSpec start(Maker *m, OpKind kind, int narg, const ValueId *arg)
{
    const char *path = arena_printf(m->g->arena, "%s[%u]", op_info[kind].name, m->g->nop);
    OpSpec s = op_spec(kind, PHASE_FORWARD, path, NOWHERE);
    s.narg = (uint8_t)narg;
    for (int i = 0; i < narg; i++)
        s.arg[i] = arg[i];
    return s;
}

void set(OpSpec *s, const char *name, Attr a)
{
    s->attr[op_attr_index(s->kind, name)] = a;
}

void result(OpSpec *s, const char *suffix, DType t, int rank, const DimId *axis)
{
    OutSpec *o = &s->out[s->nout++];
    *o = (OutSpec){.suffix = suffix, .dtype = t, .rank = (uint8_t)rank};
    for (int i = 0; i < rank; i++)
        o->axis[i] = axis[i];
}

ValueId finish(Maker *m, const OpSpec *s)
{
    return op_of(m->g, graph_add_op(m->g, s))->out[0];
}

ValueId simple(Maker *m, OpKind kind, int narg, const ValueId *arg, int rank, const DimId *axis)
{
    OpSpec s = start(m, kind, narg, arg);
    result(&s, NULL, m->real, rank, axis);
    return finish(m, &s);
}

/* ---- the list ---- */

const Case *case_at(int i)
{
    return i < nbasic_cases ? &basic_cases[i] : i - nbasic_cases < nlayer_cases ? &layer_cases[i - nbasic_cases] : NULL;
}

/* ---- the graph of a case ---- */

/* A scalar that depends on every element of y differently. */
static ValueId weighted_sum(Maker *m, ValueId y)
{
    Value v = *value_of(m->g, y);
    if (v.rank == 0) {
        OpSpec s = start(m, OP_scale, ARGS(y));
        set(&s, "by", ATTR_F(0.7));
        result(&s, NULL, m->real, SCALAR);
        return finish(m, &s);
    }
    ValueId weights = value(m, "weights of the sum", ROLE_INPUT, m->real, (Fill){-1, 1}, v.rank, v.axis);
    return simple(m, OP_contract, ARGS(y, weights), SCALAR);
}

Maker case_make(Arena *a, const Case *of, int scale, DType real, bool loss)
{
    Maker m = {.g = graph_new(a), .fill = NEWN(a, Fill, 64), .scale = scale, .real = real, .of = of};
    m.g->name = of->name;
    DType sums = real == DT_bf16 ? DT_f32 : real;
    m.g->precision = (Precision){real, real, sums, sums, sums};
    ValueId y = of->make(&m);
    if (loss)
        m.g->loss = weighted_sum(&m, y);
    return m;
}

/* Uniform in [lo, hi), the same for the same value's name and element. */
static double random_element(const Graph *g, ValueId v, Fill fill, int64_t i)
{
    Philox p = philox4(7, fnv1a(value_of(g, v)->path), (uint64_t)i, 0);
    double x = fill.lo + (fill.hi - fill.lo) * p.word[0] * 0x1p-32;
    return dtype_is_float(value_of(g, v)->dtype) ? x : floor(x);
}

void case_fill(const Maker *m, Eval *e)
{
    for (uint32_t v = 0; v < e->g->nvalue; v++) {
        ValueRole role = e->g->value[v].role;
        if (role != ROLE_INPUT && role != ROLE_WEIGHT)
            continue;
        for (int64_t i = 0; i < value_elements(e->g, (ValueId){v}); i++)
            eval_set(e, (ValueId){v}, i, random_element(e->g, (ValueId){v}, m->fill[v], i));
    }
}
