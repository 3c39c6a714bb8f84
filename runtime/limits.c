/* Limits: which integers an input may hold, read off the instructions it reaches. */
#include <string.h>

#include "runtime/data.h"

/* A reader: argument `arg` picks along the axis of role `role` of argument `of`. */
typedef struct Reader { OpKind op; int arg, of; char role; bool label; } Reader;
static const Reader readers[] = {
    {OP_embed, 0, 1, 'v', false},
    {OP_cross_entropy, 1, 0, 'c', true},
    {OP_cross_entropy_both, 1, 0, 'c', true},
    {OP_cross_entropy_stats, 1, 0, 'c', true},
    {OP_count_labels, 0, -1, 0, true},
};
enum { NREADERS = sizeof readers / sizeof *readers };

static int64_t extent_of(const Program *p, const Instr *in, int arg, char role)
{
    const Tensor *t = &p->tensor[in->arg[arg].i];
    for (uint32_t i = 0; i < t->rank; i++)
        if (in->role[in->arg_factor[arg][i]] == role)
            return t->axis[i].global;
    return INT64_MAX;
}

static void add_reader(const Program *p, const Instr *in, const Reader *r, Limit *l, uint32_t nth)
{
    const Attr *ignore = r->label ? instr_attr(in, "ignore") : NULL;
    bool ignores = ignore && ignore->kind == ATTR_INT;
    l->label = l->label || r->label;
    if (nth > 0 && (!ignores || ignore->i != l->ignore))
        l->ignores = false;
    if (nth == 0 && ignores) {
        l->ignores = true;
        l->ignore = ignore->i;
    }
    int64_t below = r->of < 0 ? INT64_MAX : extent_of(p, in, r->of, r->role);
    if (below < l->below) {
        l->indexes = true;
        l->below = below;
        l->of = p->tensor[in->arg[r->of].i].path;
    }
}

/* Buffers that hold the input's numbers: its own, and those of integers moved out of
 * them (a slice, a transpose). */
static bool *buffers_of(Arena *a, const Program *p, TensorId input)
{
    bool *held = NEWN(a, bool, p->nbuffer);
    held[p->tensor[input.i].buffer.i] = true;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        if (in->nout == 0 || !has_tensor(in->out[0]) || dtype_is_float(p->tensor[in->out[0].i].dtype))
            continue;
        for (uint32_t k = 0; k < in->narg; k++)
            if (has_tensor(in->arg[k]) && held[p->tensor[in->arg[k].i].buffer.i])
                held[p->tensor[in->out[0].i].buffer.i] = true;
    }
    return held;
}

static void dtype_range(DType t, int64_t *least, int64_t *most)
{
    int bits = 8 * dtype_bytes(t);
    bool is_signed = t != DT_u8 && t != DT_bool;
    *most = t == DT_bool ? 1 : bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - is_signed)) - 1;
    *least = is_signed ? -*most - 1 : 0;
}

Limit limit_of(Arena *a, const Program *p, TensorId input)
{
    Limit l = {.below = INT64_MAX};
    DType dtype = p->tensor[input.i].dtype;
    if (dtype_is_float(dtype))
        return l;
    const bool *held = buffers_of(a, p, input);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->ninstr; i++)
        for (int k = 0; k < NREADERS; k++) {
            const Instr *in = &p->instr[i];
            if (in->op == readers[k].op && held[p->tensor[in->arg[readers[k].arg].i].buffer.i])
                add_reader(p, in, &readers[k], &l, n++);
        }
    dtype_range(dtype, &l.least, &l.most);
    if (l.indexes) {
        l.least = 0;
        l.most = l.below - 1 < l.most ? l.below - 1 : l.most;
    }
    return l;
}
