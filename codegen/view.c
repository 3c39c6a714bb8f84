/* Views: rename, merge and unmerge move no bytes when the axes they join or part
 * are neighbours in memory; else a transpose makes them so.
 *
 * Orders are compared by the view op's factors.  The axes that only the merged
 * side lacks form the group; on the merged side one axis stands for it. */
#include "codegen/pass.h"

#include <assert.h>
#include <string.h>

typedef struct Order { uint8_t n, axis[MAX_RANK]; } Order;      /* axes of one tensor, in another order */

static int position(const uint8_t *label, int rank, uint8_t f)
{
    for (int i = 0; i < rank; i++)
        if (label[i] == f)
            return i;
    return -1;
}

/* The wide side's axes in the order of the narrow side: each shared factor where
 * it stands there, the group in its own order in place of the narrow side's own axis. */
static Order order_like(const uint8_t *wide, int nwide, const uint8_t *narrow, int nnarrow)
{
    Order o = {0};
    for (int i = 0; i < nnarrow; i++) {
        int at = position(wide, nwide, narrow[i]);
        if (at >= 0)
            o.axis[o.n++] = (uint8_t)at;
        for (int k = 0; at < 0 && k < nwide; k++)
            if (position(narrow, nnarrow, wide[k]) < 0)
                o.axis[o.n++] = (uint8_t)k;
    }
    assert(o.n == nwide && "a view keeps every axis");
    return o;
}

static bool in_order(Order o)
{
    for (int i = 0; i < o.n; i++)
        if (o.axis[i] != i)
            return false;
    return true;
}

static Tensor permuted(const Tensor *t, Order o)
{
    Tensor r = *t;
    for (int i = 0; i < o.n; i++)
        r.axis[i] = t->axis[o.axis[i]];
    return r;
}

static void emit_transpose(Lowering *lw, const Op *op, TensorId in, TensorId out, Order o)
{
    Instr t = instr_transpose(lw->p, op->path, in, out, o.axis);
    t.key = op->key;
    program_add_instr(lw->p, t);
}

/* `shape` on the bytes of x; into `bound` by a copy when the result already has a place. */
static TensorId on_bytes(Lowering *lw, const Op *op, TensorId x, Tensor shape, TensorId bound)
{
    shape.buffer = buffer_of(lw->p, x);
    shape.at = lw->p->tensor[x.i].at;
    TensorId t = program_add_tensor(lw->p, shape);
    if (!has_tensor(bound))
        return t;
    Instr copy = instr_copy(lw->p, t, bound);
    copy.path = op->path;
    copy.key = op->key;
    program_add_instr(lw->p, copy);
    return bound;
}

static TensorId place_merge(Lowering *lw, const Op *op, TensorId x, Tensor shape, TensorId bound)
{
    Tensor in = lw->p->tensor[x.i];
    Order o = order_like(op->arg_factor[0], in.rank, op->out_factor[0], shape.rank);
    if (!in_order(o)) {
        TensorId moved = code_own(lw->p, permuted(&in, o), CLASS_working);
        emit_transpose(lw, op, x, moved, o);
        x = moved;
    }
    return on_bytes(lw, op, x, shape, bound);
}

static TensorId place_unmerge(Lowering *lw, const Op *op, TensorId x, Tensor shape, TensorId bound)
{
    Order o = order_like(op->out_factor[0], shape.rank, op->arg_factor[0], lw->p->tensor[x.i].rank);
    if (in_order(o))
        return on_bytes(lw, op, x, shape, bound);
    TensorId parted = on_bytes(lw, op, x, permuted(&shape, o), NO_TENSOR);
    TensorId out = has_tensor(bound) ? bound : code_own(lw->p, shape, CLASS_working);
    Order back = {.n = o.n};
    for (int i = 0; i < o.n; i++)
        back.axis[o.axis[i]] = (uint8_t)i;
    emit_transpose(lw, op, parted, out, back);
    return out;
}

TensorId view_place(Lowering *lw, const Op *op, TensorId x, Tensor shape, TensorId bound)
{
    if (op->kind == OP_merge)
        return place_merge(lw, op, x, shape, bound);
    if (op->kind == OP_unmerge)
        return place_unmerge(lw, op, x, shape, bound);
    return on_bytes(lw, op, x, shape, bound);
}
