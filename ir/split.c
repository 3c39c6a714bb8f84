/* Splits: see split.h. */
#include "ir/split.h"

#include <string.h>

char op_linear(const Graph *g, const Op *op, int arg)
{
    const char *l = op_info[op->kind].linear;
    if (op->kind == OP_cast && dtype_bytes(value_of(g, op->out[0])->dtype) >= dtype_bytes(value_of(g, op->arg[0])->dtype))
        return 'l';
    return arg < (int)strlen(l) ? l[arg] : '-';
}

static bool has_factor(const uint8_t *label, uint8_t rank, uint8_t f)
{
    return memchr(label, f, rank) != NULL;
}

bool op_arg_has(const Graph *g, const Op *op, int a, uint8_t f)
{
    return has_value(op->arg[a]) && has_factor(op->arg_factor[a], value_of(g, op->arg[a])->rank, f);
}

bool op_args_have(const Graph *g, const Op *op, uint8_t f)
{
    for (int a = 0; a < op->narg; a++)
        if (op_arg_has(g, op, a, f))
            return true;
    return false;
}

bool op_out_has(const Graph *g, const Op *op, int k, uint8_t f)
{
    return has_value(op->out[k]) && has_factor(op->out_factor[k], value_of(g, op->out[k])->rank, f);
}

bool op_needs_whole(OpKind k, char role)
{
    const OpSig *s = op_sig(k);
    for (int i = 0; i < s->nformal + s->nresult + s->nsaved; i++) {
        const SigFormal *f = i < s->nformal ? &s->formal[i] : &s->result[i - s->nformal];
        for (int x = 0; x < f->naxis; x++)
            if (!f->axis[x].dots && f->axis[x].role == role && f->axis[x].whole)
                return true;
    }
    return false;
}

/* Ops in which an axis that the result lacks is moved or cut, not summed. */
static bool moves_axes(OpKind k)
{
    return op_info[k].flags & OPF_VIEW || k == OP_select || k == OP_slice || k == OP_place || k == OP_concat;
}

bool op_sums_over(const Graph *g, const Op *op, uint8_t f)
{
    bool kv_heads = op->kind == OP_attention && op->factor[f].role == 'g';    /* each is for query heads of its own */
    if (moves_axes(op->kind) || kv_heads)
        return false;
    if (op->factor[f].role == '.')
        return true;
    for (int a = 0; a < op->narg; a++)
        if (op_linear(g, op, a) == 'l' && op_arg_has(g, op, a, f))
            return true;
    return false;
}

/* The classes of a cross entropy: three sums a row are exchanged (Megatron-LM,
 * vocabulary-parallel cross entropy). */
bool op_distributes(const Op *op, uint8_t f)
{
    return op->kind == OP_cross_entropy && op->factor[f].role == 'c';
}

/* An axis that merge and unmerge have on one side only: the other side's axes, which are
 * parts of it or have it as a part, would have to be cut at the same elements. */
static bool joins_or_parts(const Graph *g, const Op *op, uint8_t f)
{
    return (op->kind == OP_merge || op->kind == OP_unmerge) && op_arg_has(g, op, 0, f) != op_out_has(g, op, 0, f);
}

bool op_may_split(const Graph *g, const Op *op, uint8_t f)
{
    if (op_needs_whole(op->kind, op->factor[f].role) || joins_or_parts(g, op, f))
        return false;
    for (int k = 0; k < op->nout; k++) {
        if (!has_value(op->out[k]) || op_out_has(g, op, k, f))
            continue;
        if (!op_args_have(g, op, f) || (!op_sums_over(g, op, f) && !op_distributes(op, f)))
            return false;
    }
    return true;
}

/* Zeros of padding stay zeros through these ops along a factor, or are not looked at.  An id of zero names a row of a table as any
 * other does, and a label of zero a class: rows of both would count. */
static bool bears_padding(const Op *op, uint8_t f)
{
    switch (op->kind) {
    case OP_embed: case OP_cross_entropy:
        return op->factor[f].role != '.';
    case OP_linear: case OP_contract: case OP_gelu: case OP_relu: case OP_silu: case OP_tanh:
    case OP_dropout: case OP_mul: case OP_add: case OP_scale: case OP_cast: case OP_rename:
        return true;
    default:
        return false;
    }
}

OpId padding_obstacle(const Graph *g, DimId d)
{
    for (uint32_t o = 0; o < g->nop; o++)
        for (uint8_t f = 0; g->op[o].phase == PHASE_FORWARD && f < g->op[o].nfactor; f++)
            if (same_dim(g->op[o].factor[f].dim, d) && !bears_padding(&g->op[o], f))
                return (OpId){o};
    return NO_OP;
}

/* As little as does; on a large axis a multiple of 64 a rank, as matrix units like it, where less than 1 % is wasted. */
int64_t padding_for(int64_t extent, int64_t pad, int64_t size)
{
    int64_t both = pad, wide = size * 64, padded = (extent + wide - 1) / wide * wide;
    while (both % size)
        both += pad;
    return padded % pad == 0 && 100 * (padded - extent) < extent ? wide : both;
}
