/* Ops with a distributed form: cut along an axis that they need as a whole, because
 * the ranks exchange a few numbers.
 *
 * cross_entropy over a split class axis (Megatron-LM's vocabulary-parallel loss):
 * each rank makes four numbers a row of its classes, they are gathered, and merged
 * everywhere alike; no rank sees the logits of another. */
#include "codegen/pass.h"

#include <string.h>

#include "base/text.h"
#include "ir/split.h"

enum { STATS = 4 };

static GridSet distributed_cuts(const Lowering *lw, OpId o)
{
    const Op *op = op_of(lw->g, o);
    GridSet set = 0;
    for (uint32_t d = 0; d < lw->layout.grid.n; d++)
        for (uint8_t f = 0; f < op->nfactor; f++)
            if (lw->layout.cut[o.i][d] >> f & 1 && op_distributes(op, f))
                set |= (GridSet)(1u << d);
    return set;
}

static void give(Instr *in, TensorId t, const uint8_t *factor)
{
    memcpy(in->arg_factor[in->narg], factor, MAX_RANK);
    in->arg[in->narg++] = t;
}

static void make(Instr *in, TensorId t, const uint8_t *factor)
{
    memcpy(in->out_factor[in->nout], factor, MAX_RANK);
    in->out[in->nout++] = t;
}

/* The factors of `whole`, with one more of n elements: its number. */
static uint8_t take_factors(Instr *in, const Instr *whole, char role, int64_t n)
{
    if (in->nfactor == 0) {
        memcpy(in->extent, whole->extent, sizeof in->extent);
        memcpy(in->role, whole->role, sizeof in->role);
        in->nfactor = whole->nfactor;
    }
    in->extent[in->nfactor] = n;
    in->role[in->nfactor] = role;
    return in->nfactor++;
}

/* stats[rows.., 4], by the labels' factors. */
static Instr make_stats(const Instr *whole, const Program *p, TensorId stats)
{
    Instr in = instr_new(OP_cross_entropy_stats, whole->path);
    uint8_t factor[MAX_RANK];
    memcpy(factor, whole->arg_factor[1], sizeof factor);
    factor[p->tensor[whole->arg[1].i].rank] = take_factors(&in, whole, 'e', STATS);
    give(&in, whole->arg[0], whole->arg_factor[0]);
    give(&in, whole->arg[1], whole->arg_factor[1]);
    make(&in, stats, factor);
    *instr_set(&in, "ignore") = *instr_attr(whole, "ignore");
    return in;
}

/* From all[parts, rows.., 4]. */
static Instr make_merge(const Instr *whole, const Program *p, TensorId all, int64_t classes)
{
    Instr in = instr_new(OP_cross_entropy_merge, whole->path);
    int rows = p->tensor[whole->arg[1].i].rank;
    uint8_t factor[MAX_RANK];
    memset(factor, NO_FACTOR, sizeof factor);
    factor[0] = take_factors(&in, whole, 'p', p->tensor[all.i].axis[0].local);
    memcpy(factor + 1, whole->arg_factor[1], (size_t)rows);
    factor[rows + 1] = take_factors(&in, whole, 'e', STATS);
    give(&in, all, factor);
    give(&in, whole->arg[1], whole->arg_factor[1]);
    give(&in, whole->arg[2], whole->arg_factor[2]);
    for (int k = 0; k < whole->nout; k++)
        make(&in, whole->out[k], whole->out_factor[k]);
    in.acc = whole->acc;
    in.acc_out = whole->acc_out;
    *instr_set(&in, "ignore") = *instr_attr(whole, "ignore");
    *instr_set(&in, "smooth") = *instr_attr(whole, "smooth");
    *instr_set(&in, "classes") = ATTR_I(classes);
    return in;
}

bool place_distributed(Lowering *lw, OpId o, const Instr *whole)
{
    Program *p = lw->p;
    GridSet set = distributed_cuts(lw, o);
    if (!set)
        return false;
    const Tensor *logits = &p->tensor[whole->arg[0].i];
    int64_t classes = logits->axis[logits->rank - 1].global;
    Tensor t = p->tensor[whole->arg[1].i];
    t.dtype = lw->g->precision.reduce;
    t.role = ROLE_ACTIVATION;
    t.path = arena_printf(p->arena, "%s:stats", whole->path);
    t.axis[t.rank++] = (AxisPlace){.local = STATS, .global = STATS};
    TensorId mine = code_own(p, t, CLASS_working);
    uint32_t group = group_index(lw, set);           /* may move p->group */
    int64_t parts = p->group[group].n;
    memmove(&t.axis[1], &t.axis[0], sizeof *t.axis * t.rank++);
    t.axis[0] = (AxisPlace){.local = parts, .global = parts};
    t.path = arena_printf(p->arena, "%s@%s", t.path, grid_names(lw->scratch, &lw->layout.grid, set));
    TensorId all = code_own(p, t, CLASS_working);
    program_add_instr(p, make_stats(whole, p, mine));
    collective(lw, OP_all_gather, set, whole->path, mine, all);
    program_add_instr(p, make_merge(whole, p, all, classes));
    return true;
}
