/* Layout: the walk over the ops.  See layout.h; the grid and the cuts are made in
 * layout_cut.c. */
#include <string.h>

#include "ir/layout_cut.h"
#include "ir/split.h"

/* ---- placements ---- */

Placement placement_whole(void)
{
    Placement p;
    memset(p.on, PLACE_WHOLE, sizeof p.on);
    return p;
}

GridSet placement_on(const Grid *g, Placement p, int kind)
{
    GridSet s = 0;
    for (uint32_t d = 0; d < g->n; d++)
        s = (GridSet)(s | (p.on[d] == kind) << d);
    return s;
}

static bool any_cut(uint16_t cut, const uint8_t *factor, int rank)
{
    for (int x = 0; x < rank; x++)
        if (cut >> factor[x] & 1)
            return true;
    return false;
}

/* The axis that a cut falls on, or PLACE_WHOLE. */
static int8_t cut_axis(uint16_t cut, const uint8_t *factor, int rank)
{
    for (int x = 0; x < rank; x++)
        if (cut >> factor[x] & 1)
            return (int8_t)x;
    return PLACE_WHOLE;
}

/* ---- one op on one grid axis ---- */

/* Whether an op reads a value that another stage made: it arrives complete.  What
 * several stages execute reads what each of them has. */
static bool arrives(const Layout *l, const Op *op, ValueId v)
{
    OpId maker = value_of(l->g, v)->maker;
    StageSet at = l->stages[op - l->g->op];
    return has_op(maker) && (at & (at - 1)) == 0 && (at & ~l->stages[maker.i]) != 0;
}

static bool partial_on(const Layout *l, const Op *op, ValueId v, uint32_t d)
{
    return has_value(v) && l->value[v.i].on[d] == PLACE_PARTIAL && !arrives(l, op, v);
}

/* Whether an op that is not cut takes summands and makes one: a single linear
 * argument, or all of those that it is jointly linear in. */
static bool passes_partial(const Layout *l, const Op *op, uint32_t d)
{
    int single = 0, joint = 0, joint_whole = 0;
    for (int a = 0; a < op->narg; a++) {
        if (!has_value(op->arg[a]))
            continue;
        char letter = op_linear(l->g, op, a);
        bool partial = partial_on(l, op, op->arg[a], d);
        if (partial && letter == '-')
            return false;
        single += partial && letter == 'l';
        joint += partial && letter == 'j';
        joint_whole += !partial && letter == 'j';
    }
    return single + joint > 0 && (single == 0 || (single == 1 && joint == 0)) && joint_whole == 0;
}

/* Whether a result is a sum over what is cut. */
static bool sums_cut(const Layout *l, const Op *op, uint16_t cut, int out)
{
    for (uint8_t f = 0; f < op->nfactor; f++)
        if (cut >> f & 1 && op_args_have(l->g, op, f) && !op_out_has(l->g, op, out, f) && !op_distributes(op, f))
            return true;
    return false;
}

/* Whether a result is what an op saves beside the one that it is linear in: attention's lse is whole where its
 * values are summands. */
static bool is_saved(const Op *op, int out)
{
    return out > 0 && op_info[op->kind].saves[0];
}

static int8_t result_on(const Layout *l, const Op *op, uint16_t cut, int out, uint32_t d)
{
    if (!cut)
        return passes_partial(l, op, d) && !is_saved(op, out) ? PLACE_PARTIAL : PLACE_WHOLE;
    int rank = value_of(l->g, op->out[out])->rank;
    if (any_cut(cut, op->out_factor[out], rank))
        return cut_axis(cut, op->out_factor[out], rank);
    return sums_cut(l, op, cut, out) ? PLACE_PARTIAL : PLACE_WHOLE;
}

Placement layout_need(const Layout *l, OpId o, int arg)
{
    const Op *op = op_of(l->g, o);
    Placement p = placement_whole();
    for (uint32_t d = 0; d < l->grid.n; d++) {
        uint16_t cut = l->cut[o.i][d];
        if (cut)
            p.on[d] = cut_axis(cut, op->arg_factor[arg], value_of(l->g, op->arg[arg])->rank);
        else if (partial_on(l, op, op->arg[arg], d) && passes_partial(l, op, d))
            p.on[d] = PLACE_PARTIAL;
    }
    return p;
}

GridSet layout_once(const Layout *l, OpId o, int arg)
{
    const Op *op = op_of(l->g, o);
    GridSet s = 0;
    for (uint32_t d = 0; d < l->grid.n && op_linear(l->g, op, arg) == 'j'; d++) {
        uint16_t cut = l->cut[o.i][d];
        bool whole = !any_cut(cut, op->arg_factor[arg], value_of(l->g, op->arg[arg])->rank);
        if (cut && whole && has_value(op->out[0]) && result_on(l, op, cut, 0, d) == PLACE_PARTIAL)
            s |= (GridSet)(1u << d);
    }
    return s;
}

/* ---- backward ops ---- */

/* Sums of gradients have no factors of a forward op: they take their arguments as
 * they come, split where one of them is. */
static uint16_t follow(const Layout *l, const Op *op, uint32_t d)
{
    for (int a = 0; a < op->narg; a++) {
        int8_t on = has_value(op->arg[a]) ? l->value[op->arg[a].i].on[d] : PLACE_WHOLE;
        if (on >= 0 && op_may_split(l->g, op, op->arg_factor[a][on]))
            return (uint16_t)(1u << op->arg_factor[a][on]);
    }
    return 0;
}

/* Kv heads are cut where the query heads that read them are, in backward as in forward. */
static bool is_kv_heads(const Op *op, uint8_t f)
{
    return op->kind == OP_attention_grad && op->factor[f].role == 'g';
}

/* A backward op is cut as its forward op is. */
static uint16_t cut_as_forward(const Layout *l, const Op *op, uint32_t d)
{
    uint16_t forward = l->cut[op->forward.i][d], cut = 0;
    for (uint8_t f = 0; f < op->nfactor; f++)
        if (op->forward_factor[f] != NO_FACTOR && forward >> op->forward_factor[f] & 1 && (op_may_split(l->g, op, f) || is_kv_heads(op, f)))
            cut |= (uint16_t)(1u << f);
    return cut;
}

static bool has_forward_factors(const Op *op)
{
    for (uint8_t f = 0; f < op->nfactor; f++)
        if (op->forward_factor[f] == NO_FACTOR)
            return false;
    return has_op(op->forward);
}

/* ---- the walk ---- */

/* One use of a value given from outside: it lies as all its uses want it, else whole. */
static void use_given(Layout *l, OpId o, int a, bool *seen)
{
    const Op *op = op_of(l->g, o);
    ValueId v = op->arg[a];
    Placement *p = &l->value[v.i];
    for (uint32_t d = 0; d < l->grid.n; d++) {
        int8_t want = cut_axis(l->cut[o.i][d], op->arg_factor[a], value_of(l->g, v)->rank);
        p->on[d] = !seen[v.i] || p->on[d] == want ? want : PLACE_WHOLE;
    }
    seen[v.i] = true;
}

static void place_given(Arena *a, Layout *l)
{
    bool *seen = NEWN(a, bool, l->g->nvalue + 1);
    for (uint32_t v = 0; v < l->g->nvalue; v++)
        l->value[v] = placement_whole();
    for (uint32_t o = 0; o < l->g->nop; o++)
        for (int k = 0; l->g->op[o].phase <= PHASE_FORWARD && k < l->g->op[o].narg; k++)
            if (has_value(l->g->op[o].arg[k]) && !has_op(value_of(l->g, l->g->op[o].arg[k])->maker))
                use_given(l, (OpId){o}, k, seen);
}

void layout_cut_backward(Layout *l, OpId o)
{
    const Op *op = op_of(l->g, o);
    bool own = has_forward_factors(op);
    for (uint32_t d = 0; d < l->grid.n; d++)
        l->cut[o.i][d] = own ? cut_as_forward(l, op, d) : follow(l, op, d);
}

Placement layout_made(const Layout *l, OpId o, int k)
{
    Placement p = placement_whole();
    for (uint32_t d = 0; d < l->grid.n; d++)
        p.on[d] = result_on(l, op_of(l->g, o), l->cut[o.i][d], k, d);
    return p;
}

static void walk_op(Layout *l, OpId o)
{
    const Op *op = op_of(l->g, o);
    if (op->phase == PHASE_BACKWARD)
        layout_cut_backward(l, o);
    for (int k = 0; k < op->nout; k++)
        if (has_value(op->out[k]))
            l->value[op->out[k].i] = layout_made(l, o, k);
}

/* What is made once a step is summed over ranks before the first forward op. */
static void agree(Layout *l, const Op *op)
{
    for (int k = 0; k < op->nout; k++) {
        Placement *p = &l->value[op->out[k].i];
        l->agree[op->out[k].i] = placement_on(&l->grid, *p, PLACE_PARTIAL);
        for (uint32_t d = 0; d < l->grid.n; d++)
            p->on[d] = p->on[d] == PLACE_PARTIAL ? PLACE_WHOLE : p->on[d];
    }
}

/* A gradient ends as its weight lies, but for sums that buckets complete. */
static void read_reductions(Layout *l)
{
    for (uint32_t i = 0; i < l->g->nweight; i++) {
        const Weight *w = &l->g->weight[i];
        for (uint32_t d = 0; has_value(w->gradient) && d < l->grid.n; d++)
            if (l->value[w->gradient.i].on[d] == PLACE_PARTIAL && l->value[w->value.i].on[d] == PLACE_WHOLE)
                l->reduce[i] |= (GridSet)(1u << d);
    }
}

/* ---- states that are shared out ---- */

/* The grid axes that a rule names. */
static GridSet named_axes(const Grid *g, const MeshRef *by)
{
    GridSet set = 0;
    for (int i = 0; i < by->n; i++)
        for (uint32_t d = 0; d < g->n; d++)
            if (g->axis[d].axis == by->axis[i] && (by->part[i] == PART_WHOLE || by->part[i] == g->axis[d].part))
                set |= (GridSet)(1u << d);
    return set;
}

/* Ranks share out what they hold copies of and sum the gradients of. */
static Status share_out(Diags *ds, const Rule *r, Layout *l)
{
    GridSet axes = named_axes(&l->grid, &r->by), any = 0;
    for (uint32_t i = 0; i < l->g->nweight; i++) {
        l->shard[i] |= l->reduce[i] & axes;
        any |= l->shard[i];
    }
    if (any || !axes)
        return OK;
    const char *names = grid_names(ds->arena, &l->grid, axes);
    Diag *e = diag_error(ds, r->at, "nothing can be sharded by %s: no gradient of a weight is summed over it", names);
    diag_help(ds, e, "leave the rule out, or shard by the mesh axis that splits the batch: 'shard optimizer by dp'");
    return ERR_REJECT;
}

static Status read_shards(Diags *ds, const Plan *plan, Layout *l)
{
    for (uint32_t i = 0; i < plan->nrule; i++)
        if (plan->rule[i].kind == RULE_SHARD && l->g->optimizer.kind != OPTIMIZER_NONE)
            TRY(share_out(ds, &plan->rule[i], l));
    return OK;
}

static Status begin(Arena *a, Diags *ds, const Graph *g, const Plan *plan, Layout *l)
{
    *l = (Layout){.g = g};
    l->cut = arena_alloc(a, sizeof *l->cut * (g->nop + 1));
    l->value = NEWN(a, Placement, g->nvalue + 1);
    l->agree = NEWN(a, GridSet, g->nvalue + 1);
    l->pad = NEWN(a, int64_t, g->ndim + 1);
    l->reduce = NEWN(a, GridSet, g->nweight + 1);
    l->shard = NEWN(a, GridSet, g->nweight + 1);
    TRY(layout_grid(ds, g, plan, &l->grid));
    return layout_pads(ds, g, plan, l);
}

Status layout_open(Arena *a, Diags *ds, const Graph *g, const Plan *plan, Layout *l)
{
    Plan one = *plan;
    one.nrule = 0;
    one.mesh[AXIS_pp] = 1;
    TRY(begin(a, ds, g, plan, l));
    TRY(layout_cuts(a, ds, g, &one, l));
    TRY(layout_stages(a, ds, g, &one, l));
    for (uint32_t v = 0; v < g->nvalue; v++)
        l->value[v] = placement_whole();
    return OK;
}

Status layout_read(Arena *a, Diags *ds, const Graph *g, const Plan *plan, Layout *l)
{
    TRY(begin(a, ds, g, plan, l));
    TRY(layout_cuts(a, ds, g, plan, l));
    TRY(layout_stages(a, ds, g, plan, l));
    place_given(a, l);
    for (uint32_t o = 0; o < g->nop; o++) {
        walk_op(l, (OpId){o});
        if (g->op[o].phase == PHASE_BEGIN)
            agree(l, &g->op[o]);
    }
    read_reductions(l);
    return read_shards(ds, plan, l);
}

/* ---- tensors ---- */

int64_t layout_extent(const Layout *l, OpId o, uint8_t f)
{
    DimId d = op_of(l->g, o)->factor[f].dim;
    int64_t n = dim_of(l->g, d)->extent + l->pad[d.i];
    for (uint32_t k = 0; k < l->grid.n; k++)
        n /= l->cut[o.i][k] >> f & 1 ? l->grid.axis[k].size : 1;
    return n;
}

/* Parts an axis is cut into, and the number of this rank's. */
static int64_t part_of(const Grid *g, Placement p, int axis, uint32_t rank, int64_t *ways)
{
    int64_t index = 0;
    *ways = 1;
    for (uint32_t d = 0; d < g->n; d++)
        if (p.on[d] == axis) {
            index = index * g->axis[d].size + grid_coordinate(g, rank, d);
            *ways *= g->axis[d].size;
        }
    return index;
}

Tensor layout_tensor(const Layout *l, ValueId v, Placement p, uint32_t rank, int micro, int64_t count)
{
    const Value *val = value_of(l->g, v);
    Tensor t = {.path = val->path, .buffer = NO_BUFFER, .dtype = val->dtype == DT_bool ? DT_u8 : val->dtype, .rank = val->rank, .role = val->role,
                .partial = placement_on(&l->grid, p, PLACE_PARTIAL) != 0};
    for (int x = 0; x < val->rank; x++) {
        int64_t n = dim_of(l->g, val->axis[x])->extent, pad = l->pad[val->axis[x].i], ways;
        int64_t index = part_of(&l->grid, p, x, rank, &ways);
        int64_t whole = x == micro ? (n + pad) / count : n + pad;
        t.axis[x] = (AxisPlace){.local = whole / ways, .global = n, .origin = index * (whole / ways), .per_micro = x == micro ? whole : 0, .pad = pad};
    }
    return t;
}
