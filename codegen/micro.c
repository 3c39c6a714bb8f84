/* Micro-batches: what cutting the batch does to every value, read off the factors
 * of the ops (DESIGN 3, "Micro-batches and loss").
 *
 * Inputs are cut along their batch axis.  Going through the ops in order, the
 * factor of that axis decides: in an argument and a result, the result is cut;
 * only in arguments, the result is a summand; only in the result, it is cut from
 * birth (iota over the batch, a gradient spread over it).  A summand may only
 * meet what is linear in it.  The first op that breaks a rule is the obstacle. */
#include "codegen/pass.h"

#include "base/text.h"
#include "ir/split.h"

#include <string.h>

/* ---- the walk ---- */

static void block(Micro *mi, OpId o, const char *why)
{
    if (has_op(mi->obstacle))
        return;
    mi->obstacle = o;
    mi->why = why;
}

/* The factor that is cut in op o: of its cut arguments, or of a batch axis it makes. */
static uint8_t cut_factor(Micro *mi, const Graph *g, OpId o)
{
    const Op *op = op_of(g, o);
    uint8_t cut = NO_FACTOR;
    for (int a = 0; a < op->narg; a++) {
        if (!has_value(op->arg[a]) || mi->value[op->arg[a].i].kind != MICRO_CUT)
            continue;
        uint8_t f = op->arg_factor[a][mi->value[op->arg[a].i].axis];
        if (cut != NO_FACTOR && cut != f)
            block(mi, o, "pairs each sample with all samples of the batch");
        else
            cut = f;
    }
    for (int k = 0; k < op->nout && cut == NO_FACTOR; k++)
        for (int x = 0; has_value(op->out[k]) && x < value_of(g, op->out[k])->rank; x++) {
            uint8_t f = op->out_factor[k][x];
            if (same_dim(value_of(g, op->out[k])->axis[x], g->batch) && !op_args_have(g, op, f))
                cut = f;
        }
    return cut;
}

static void check_cut(Micro *mi, const Graph *g, OpId o, uint8_t cut)
{
    const Op *op = op_of(g, o);
    if (op_needs_whole(op->kind, op->factor[cut].role))
        block(mi, o, "needs the whole batch at once");
    for (int a = 0; a < op->narg; a++) {
        if (!has_value(op->arg[a]))
            continue;
        MicroKind kind = mi->value[op->arg[a].i].kind;
        if (kind == MICRO_PARTIAL)
            block(mi, o, "meets a sum over the batch that is not complete yet");
        else if (kind == MICRO_WHOLE && op_arg_has(g, op, a, cut))
            block(mi, o, "reads the whole batch axis of a value that is not given per sample");
    }
}

/* Summands among the arguments: each must stand where the op is linear. */
static bool check_partial(Micro *mi, const Graph *g, OpId o)
{
    const Op *op = op_of(g, o);
    int partial = 0, joint_whole = 0;
    for (int a = 0; a < op->narg; a++) {
        if (!has_value(op->arg[a]))
            continue;
        char letter = op_linear(g, op, a);
        if (mi->value[op->arg[a].i].kind != MICRO_PARTIAL) {
            joint_whole |= letter == 'j' ? 1 << a : 0;
            continue;
        }
        OpId maker = value_of(g, op->arg[a])->maker;
        if (letter == '-' || (letter == 'l' && partial > 0))
            block(mi, o, "is not linear in a sum over the batch");
        if (op->phase == PHASE_BACKWARD && has_op(maker) && op_of(g, maker)->phase == PHASE_FORWARD)
            block(mi, o, "reads in backward a sum over the batch of the forward pass");
        partial++;
    }
    /* In forward the summand is the sum so far, so the whole operand counts once by itself. */
    if (partial > 0 && op->phase == PHASE_BACKWARD)
        mi->once[o.i] = (uint8_t)joint_whole;
    return partial > 0;
}

static void set_result(Micro *mi, const Graph *g, OpId o, int k, uint8_t cut, bool partial)
{
    const Op *op = op_of(g, o);
    MicroValue *v = &mi->value[op->out[k].i];
    if (cut != NO_FACTOR && op_out_has(g, op, k, cut)) {
        const uint8_t *label = op->out_factor[k];
        *v = (MicroValue){MICRO_CUT, (uint32_t)((const uint8_t *)memchr(label, cut, MAX_RANK) - label)};
    } else if (cut != NO_FACTOR) {
        if (!op_sums_over(g, op, cut))
            block(mi, o, "mixes the samples of the batch");
        else if (op->phase != PHASE_BACKWARD && (k > 0 || !(op_info[op->kind].flags & OPF_ACCUM)))
            block(mi, o, "sums over the batch and cannot continue a sum");
        v->kind = op->phase == PHASE_BEGIN ? MICRO_WHOLE : MICRO_PARTIAL;
    } else {
        v->kind = partial ? MICRO_PARTIAL : MICRO_WHOLE;
    }
}

static void read_op(Micro *mi, const Graph *g, OpId o)
{
    const Op *op = op_of(g, o);
    uint8_t cut = cut_factor(mi, g, o);
    mi->cut[o.i] = cut;
    if (cut != NO_FACTOR)
        check_cut(mi, g, o, cut);
    bool partial = check_partial(mi, g, o);
    for (int k = 0; k < op->nout; k++)
        if (has_value(op->out[k]))
            set_result(mi, g, o, k, cut, partial);
}

static void read_inputs(Micro *mi, const Graph *g)
{
    for (uint32_t v = 0; v < g->nvalue; v++)
        for (uint32_t x = 0; g->value[v].role == ROLE_INPUT && x < g->value[v].rank; x++)
            if (same_dim(g->value[v].axis[x], g->batch) && mi->value[v].kind == MICRO_WHOLE)
                mi->value[v] = (MicroValue){MICRO_CUT, x};
}

/* A model whose batch cannot be cut sees it whole, in one micro-batch. */
static void uncut(Micro *mi, const Graph *g)
{
    for (uint32_t v = 0; v < g->nvalue; v++)
        mi->value[v] = (MicroValue){MICRO_WHOLE, 0};
    memset(mi->cut, NO_FACTOR, g->nop);
    memset(mi->once, 0, g->nop);
}

Micro micro_read(Arena *a, const Graph *g, int64_t count)
{
    Micro mi = {.count = count, .obstacle = NO_OP};
    mi.value = NEWN(a, MicroValue, g->nvalue + 1);
    mi.cut = NEWN(a, uint8_t, g->nop + 1);
    mi.once = NEWN(a, uint8_t, g->nop + 1);
    memset(mi.cut, NO_FACTOR, g->nop);
    if (g->batch.i == NO_DIM.i)
        return mi;
    read_inputs(&mi, g);
    for (uint32_t o = 0; o < g->nop; o++)
        if (g->op[o].phase != PHASE_UPDATE)
            read_op(&mi, g, (OpId){o});
    if (has_op(mi.obstacle))
        uncut(&mi, g);
    return mi;
}

bool micro_closes(const Graph *g, const Micro *mi, OpId o)
{
    const Op *op = op_of(g, o);
    uint8_t cut = mi->cut[o.i];
    return op->phase <= PHASE_FORWARD && cut != NO_FACTOR && op->nout > 0 && !op_out_has(g, op, 0, cut);
}

/* Cross entropy and its count leave out rows marked absent; other sums over the batch
 * cannot tell them from samples. */
bool micro_needs_full(const Graph *g, const Micro *mi)
{
    if (has_op(mi->obstacle) || g->batch.i == NO_DIM.i)
        return true;
    for (uint32_t o = 0; o < g->nop; o++)
        if (micro_closes(g, mi, (OpId){o}) && g->op[o].kind != OP_cross_entropy && g->op[o].kind != OP_count_labels)
            return true;
    return false;
}

/* ---- diagnostics ---- */

/* The divisors of n next to m, as help. */
static const char *nearest_divisors(Arena *a, int64_t n, int64_t m)
{
    int64_t below = m < n ? m : n, above = m;
    while (n % below)
        below--;
    while (above < n && n % above)
        above++;
    if (above >= n || above == below)
        return arena_printf(a, "%lld", (long long)(m > n ? n : below));
    return arena_printf(a, "%lld and %lld", (long long)below, (long long)above);
}

void micro_check(Diags *ds, Arena *a, const Graph *g, const Micro *mi)
{
    long long m = mi->count;
    if (m == 1)
        return;
    if (g->batch.i == NO_DIM.i) {
        Diag *d = diag_error(ds, NOWHERE, "%lld micro-batches were asked for, but the model has no dim 'batch'", m);
        diag_help(ds, d, "write 'microbatches = 1'");
        return;
    }
    const Dim *batch = dim_of(g, g->batch);
    if (m < 1 || batch->extent % m) {
        Diag *d = diag_error(ds, batch->at, "'batch = %lld' cannot be cut into %lld micro-batches of equal size", (long long)batch->extent, m);
        diag_help(ds, d, "the nearest numbers that divide it: %s", nearest_divisors(a, batch->extent, m < 1 ? 1 : m));
    } else if (has_op(mi->obstacle)) {
        const Op *op = op_of(g, mi->obstacle);
        Diag *d = diag_error(ds, op->at, "the batch cannot be cut into %lld micro-batches: op '%s' (%s) %s", m, op->path, op_info[op->kind].name, mi->why);
        diag_help(ds, d, "write 'microbatches = 1'");
    }
}

OpId graph_batch_obstacle(Arena *a, const Graph *g, const char **why)
{
    Micro mi = micro_read(a, g, 1);
    *why = mi.why;
    return mi.obstacle;
}
