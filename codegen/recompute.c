/* Recompute: which forward ops run again in backward, instead of keeping what they
 * made (Chen et al. 2016; DESIGN 5 names the policies).
 *
 * A rule's path names blocks, one per round of a repeat.  A block keeps its inputs;
 * of its other values those that its backward ops read are made again, when the
 * first of these ops comes.  A policy may keep more:
 *   full        nothing else
 *   attention   what attention reads and makes
 *   cheap       all but results of ops flagged CHEAP
 * What closes the batch (losses, means over it) adds up, so it never runs twice. */
#include "codegen/pass.h"

#include <string.h>

/* ---- which rule an op is under ---- */

static const Rule *rule_of(const Plan *plan, const Op *op)
{
    const Rule *found = NULL;
    for (uint32_t i = 0; i < plan->nrule; i++) {
        const Rule *r = &plan->rule[i];
        if ((r->kind == RULE_RECOMPUTE || r->kind == RULE_SAVE) && path_matches(&r->path, op->path))
            found = r;
    }
    return found && found->kind == RULE_RECOMPUTE && found->policy != RECOMPUTE_NONE ? found : NULL;
}

static bool feeds_attention(const bool *attended, const Op *op)
{
    for (int k = 0; k < op->nout; k++)
        if (has_value(op->out[k]) && attended[op->out[k].i])
            return true;
    return op->kind == OP_attention;
}

static bool runs_again(const Lowering *lw, const bool *attended, const Rule *r, OpId o)
{
    const Op *op = op_of(lw->g, o);
    if (!r || micro_closes(lw->g, &lw->micro, o))
        return false;
    if (r->policy == RECOMPUTE_CHEAP)
        return op_info[op->kind].flags & OPF_CHEAP;
    return r->policy == RECOMPUTE_FULL || !feeds_attention(attended, op);
}

static bool *read_attended(const Lowering *lw)
{
    bool *attended = NEWN(lw->scratch, bool, lw->g->nvalue + 1);
    for (uint32_t o = 0; o < lw->g->nop; o++)
        for (int a = 0; lw->g->op[o].kind == OP_attention && a < lw->g->op[o].narg; a++)
            if (has_value(lw->g->op[o].arg[a]))
                attended[lw->g->op[o].arg[a].i] = true;
    return attended;
}

/* ---- blocks ---- */

/* Consecutive ops under one rule and in one round are a block. */
static void number_blocks(Lowering *lw, Recompute *rc, const bool *attended, bool *candidate)
{
    const Rule *last = NULL;
    int64_t last_round = -1;
    for (uint32_t o = 0; o < lw->g->nop; o++) {
        const Op *op = &lw->g->op[o];
        const Rule *r = op->phase == PHASE_FORWARD ? rule_of(lw->plan, op) : NULL;
        int64_t round = r ? path_round(&r->path, op->path) : -1;
        if (r && (r != last || round != last_round))
            rc->nblock++;
        rc->block[o] = r ? rc->nblock : 0;
        candidate[o] = runs_again(lw, attended, r, (OpId){o});
        last = r;
        last_round = round;
    }
}

static uint32_t block_of_value(const Lowering *lw, const Recompute *rc, const bool *candidate, ValueId v)
{
    OpId maker = has_value(v) ? value_of(lw->g, v)->maker : NO_OP;
    return has_op(maker) && candidate[maker.i] ? rc->block[maker.i] : 0;
}

/* From the backward ops of a block to what they read of it, and on to what that is made from. */
static void find_needed(const Lowering *lw, Recompute *rc, const bool *candidate)
{
    const Graph *g = lw->g;
    for (uint32_t o = g->nop; o-- > 0;) {
        const Op *op = &g->op[o];
        bool backward = op->phase == PHASE_BACKWARD && has_op(op->forward);
        uint32_t block = backward ? rc->block[op->forward.i] : rc->again[o] ? rc->block[o] : 0;
        for (int a = 0; block && a < op->narg; a++)
            if (block_of_value(lw, rc, candidate, op->arg[a]) == block)
                rc->again[value_of(g, op->arg[a])->maker.i] = true;
    }
}

Recompute recompute_read(Lowering *lw)
{
    Recompute rc = {.block = NEWN(lw->scratch, uint32_t, lw->g->nop + 1), .again = NEWN(lw->scratch, bool, lw->g->nop + 1)};
    bool *candidate = NEWN(lw->scratch, bool, lw->g->nop + 1);
    number_blocks(lw, &rc, read_attended(lw), candidate);
    find_needed(lw, &rc, candidate);
    return rc;
}
