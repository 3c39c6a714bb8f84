/* Operands: strides by factor, walks, and elements of any dtype. */
#include "kernels/operand.h"

#include <assert.h>

static FactorSet factors_in(const Tensor *t, const uint8_t *factor)
{
    FactorSet set = 0;
    for (int i = 0; t && i < t->rank; i++) {
        assert(factor[i] < MAX_FACTORS);
        set |= 1u << factor[i];
    }
    return set;
}

FactorSet arg_factors(const KCall *c, int arg)
{
    return arg < c->in->narg ? factors_in(c->argt[arg], c->in->arg_factor[arg]) : 0;
}

FactorSet out_factors(const KCall *c, int out)
{
    return out < c->in->nout ? factors_in(c->outt[out], c->in->out_factor[out]) : 0;
}

int factor_of(FactorSet set)
{
    assert(set && (set & (set - 1)) == 0 && "one factor expected");
    return __builtin_ctz(set);
}

int64_t set_extent(const KCall *c, FactorSet set)
{
    int64_t n = 1;
    for (int f = 0; f < c->in->nfactor; f++)
        if (set >> f & 1)
            n *= c->in->extent[f];
    return n;
}

static int64_t stride_of(const Tensor *t, const uint8_t *axis_factor, int factor)
{
    int64_t stride = 0, step = 1;
    for (int i = t ? t->rank - 1 : -1; i >= 0; i--) {
        if (axis_factor[i] == factor)
            stride += step;
        step *= t->axis[i].local;
    }
    return stride;
}

int64_t arg_stride(const KCall *c, int arg, int factor)
{
    return arg < c->in->narg ? stride_of(c->argt[arg], c->in->arg_factor[arg], factor) : 0;
}

int64_t out_stride(const KCall *c, int out, int factor)
{
    return out < c->in->nout ? stride_of(c->outt[out], c->in->out_factor[out], factor) : 0;
}

static const AxisPlace *place_in(const Tensor *t, const uint8_t *axis_factor, int factor)
{
    for (int i = 0; t && i < t->rank; i++)
        if (axis_factor[i] == factor)
            return &t->axis[i];
    return NULL;
}

const AxisPlace *factor_place(const KCall *c, int factor)
{
    const AxisPlace *p = NULL;
    for (int i = 0; !p && i < c->in->narg; i++)
        p = place_in(c->argt[i], c->in->arg_factor[i], factor);
    for (int i = 0; !p && i < c->in->nout; i++)
        p = place_in(c->outt[i], c->in->out_factor[i], factor);
    assert(p && "a factor that no operand has");
    return p;
}

double mean_count(const KCall *c, FactorSet set)
{
    double n = 1;
    for (int f = 0; f < c->in->nfactor; f++) {
        if (!(set >> f & 1))
            continue;
        const AxisPlace *p = factor_place(c, f);
        n *= (double)(p->per_micro ? c->step->samples : p->global);
    }
    return n;
}

Walk walk_over(const KCall *c, FactorSet set)
{
    Walk w = {.more = true};
    for (uint8_t i = 0; i < OPERANDS; i++)
        if (i < MAX_ARGS ? i < c->in->narg : i < MAX_ARGS + c->in->nout)
            w.present[w.npresent++] = i;
    for (int f = 0; f < c->in->nfactor; f++) {
        if (!(set >> f & 1))
            continue;
        w.factor[w.depth] = f;
        w.extent[w.depth] = c->in->extent[f];
        w.more = w.more && c->in->extent[f] > 0;
        for (int i = 0; i < c->in->narg; i++)
            w.stride[w.depth][i] = arg_stride(c, i, f);
        for (int i = 0; i < c->in->nout; i++)
            w.stride[w.depth][MAX_ARGS + i] = out_stride(c, i, f);
        w.depth++;
    }
    return w;
}

void walk_next(Walk *w)
{
    for (int d = w->depth - 1; d >= 0; d--) {
        int64_t back = ++w->index[d] < w->extent[d] ? 0 : w->extent[d];
        for (int k = 0; k < w->npresent; k++)
            w->at[w->present[k]] += (1 - back) * w->stride[d][w->present[k]];
        if (!back)
            return;
        w->index[d] = 0;
    }
    w->more = false;
}

void walk_from(Walk *inner, const Walk *outer)
{
    inner->more = true;
    for (int d = 0; d < inner->depth; d++) {
        inner->index[d] = 0;
        inner->more = inner->more && inner->extent[d] > 0;
    }
    for (int i = 0; i < OPERANDS; i++)
        inner->at[i] = outer->at[i];
}

void walk_seek(Walk *w, int64_t i)
{
    for (int d = w->depth - 1; d >= 0; d--) {
        int64_t move = i % w->extent[d] - w->index[d];
        for (int o = 0; o < OPERANDS; o++)
            w->at[o] += move * w->stride[d][o];
        w->index[d] += move;
        i /= w->extent[d];
    }
    w->more = i == 0;
}

int64_t walk_index(const Walk *w, int factor)
{
    for (int d = 0; d < w->depth; d++)
        if (w->factor[d] == factor)
            return w->index[d];
    assert(0 && "the walk does not run over this factor");
    return 0;
}

int64_t int_at(const Tensor *t, const void *p, int64_t i)
{
    switch (t->dtype) {
    case DT_i64:  return ((const int64_t *)p)[i];
    case DT_i32:  return ((const int32_t *)p)[i];
    case DT_i16:  return ((const int16_t *)p)[i];
    case DT_i8:   return ((const int8_t *)p)[i];
    case DT_u8:
    case DT_bool: return ((const uint8_t *)p)[i];
    default:      assert(0 && "an integer tensor expected"); return 0;
    }
}

void int_put(const Tensor *t, void *p, int64_t i, int64_t value)
{
    switch (t->dtype) {
    case DT_i64:  ((int64_t *)p)[i] = value; return;
    case DT_i32:  ((int32_t *)p)[i] = (int32_t)value; return;
    case DT_i16:  ((int16_t *)p)[i] = (int16_t)value; return;
    case DT_i8:   ((int8_t *)p)[i] = (int8_t)value; return;
    case DT_u8:   ((uint8_t *)p)[i] = (uint8_t)value; return;
    case DT_bool: ((uint8_t *)p)[i] = value != 0; return;
    default:      assert(0 && "an integer tensor expected");
    }
}

double real_at(const Tensor *t, const void *p, int64_t i)
{
    switch ((int)t->dtype) {
    case DT_f64:
    case DT_f32:
    case DT_bf16: return get((Reals){t->dtype, (void *)(uintptr_t)p}, i);
    default:      return (double)int_at(t, p, i);
    }
}

void real_put(const Tensor *t, void *p, int64_t i, double value)
{
    switch ((int)t->dtype) {
    case DT_f64:
    case DT_f32:
    case DT_bf16: put((Reals){t->dtype, p}, i, value); return;
    default:      int_put(t, p, i, (int64_t)value);
    }
}

double attr_real(const KCall *c, const char *name)
{
    const Attr *a = instr_attr(c->in, name);
    assert(a->kind == ATTR_REAL || a->kind == ATTR_INT);
    return a->f;
}

int64_t attr_int(const KCall *c, const char *name)
{
    const Attr *a = instr_attr(c->in, name);
    assert(a->kind == ATTR_INT);
    return a->i;
}

bool attr_bool(const KCall *c, const char *name)
{
    const Attr *a = instr_attr(c->in, name);
    assert(a->kind == ATTR_BOOL || a->kind == ATTR_INT);
    return a->i != 0;
}

bool attr_given(const KCall *c, const char *name)
{
    const Attr *a = instr_attr(c->in, name);
    return a->kind != ATTR_NONE && a->kind != ATTR_AUTO;
}
