/* Conversions: a value in one placement becomes the same value in another.
 *
 *   partial -> whole      all_reduce
 *   partial -> split      reduce_scatter
 *   split(a) -> split(b)  all_to_all
 *   split -> whole        all_gather
 *   whole -> split        a slice of one's own
 *
 * Collectives see a tensor as parts end to end, one per rank.  Where the axis that is
 * cut or joined is not the outermost in memory, a transpose packs or unpacks it.
 *
 * Cuts of one axis by several grid axes are nested, so only the innermost can come
 * or go; where another one must, the axis is made whole first. */
#include "codegen/pass.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"

typedef struct Converting {
    Lowering *lw;
    ValueId   v;
    TensorId  t;                      /* the value as it is now, */
    Placement now;                    /* and where it lies */
    const char *path;
} Converting;

/* ---- groups ---- */

static bool same_group(const RankGroup *a, const RankGroup *b)
{
    return a->n == b->n && memcmp(a->rank, b->rank, sizeof *a->rank * a->n) == 0;
}

static RankGroup all_ranks(const Program *p)
{
    RankGroup g = {NEWN(p->arena, uint32_t, p->nranks), p->nranks};
    for (uint32_t i = 0; i < g.n; i++)
        g.rank[i] = i;
    return g;
}

static uint32_t add_group(Program *p, RankGroup g)
{
    for (uint32_t i = 0; i < p->ngroup; i++)
        if (same_group(&p->group[i], &g))
            return i;
    PUSH(p->arena, p->group, p->ngroup, g);
    return p->ngroup - 1;
}

uint32_t group_index(Lowering *lw, GridSet set)
{
    Program *p = lw->p;
    RankGroup g = set == ALL_RANKS ? all_ranks(p) : grid_group(p->arena, &lw->layout.grid, lw->place, set);
    for (uint32_t i = 0; i < g.n && set != ALL_RANKS; i++)
        g.rank[i] += lw->stage * lw->layout.grid.nranks;
    return add_group(p, g);
}

/* Ranks of several stages: those of one stage, in each of these. */
static uint32_t group_over(Lowering *lw, GridSet set, StageSet stages)
{
    const Grid *grid = &lw->layout.grid;
    RankGroup one = grid_group(lw->scratch, grid, lw->place, set), all = {0};
    for (uint32_t s = 0; s < lw->layout.nstages; s++)
        for (uint32_t i = 0; stages >> s & 1 && i < one.n; i++)
            PUSH(lw->p->arena, all.rank, all.n, s * grid->nranks + one.rank[i]);
    return add_group(lw->p, all);
}

/* Members of a group know it by one number, which they agree on without a word: groups
 * of several stages come first, on all stages alike, and the others belong to one. */
void number_groups(Lowering *lw)
{
    const Layout *l = &lw->layout;
    for (uint32_t i = 0; i < lw->g->nweight; i++) {
        StageSet used = l->used[lw->g->weight[i].value.i];
        if (used & (used - 1))
            (void)group_over(lw, l->reduce[i] & (GridSet)~(lw->plan->server ? 0 : l->shard[i]), used);
    }
}

/* ---- views and instructions ---- */

/* The bytes of a tensor under other extents, in order. */
static TensorId view(Program *p, TensorId of, int rank, const int64_t *extent)
{
    Tensor t = p->tensor[of.i];
    t.rank = (uint8_t)rank;
    for (int x = 0; x < rank; x++)
        t.axis[x] = (AxisPlace){.local = extent[x], .global = extent[x]};
    return program_add_tensor(p, t);
}

static TensorId own(Program *p, const char *path, TensorId like, int rank, const int64_t *extent)
{
    Tensor t = p->tensor[like.i];
    t.path = path;
    t.rank = (uint8_t)rank;
    for (int x = 0; x < rank; x++)
        t.axis[x] = (AxisPlace){.local = extent[x], .global = extent[x]};
    return code_own(p, t, CLASS_working);
}

/* [a, b, c] becomes [b, a, c]. */
static void swap_parts(Program *p, const char *path, TensorId src, TensorId dst)
{
    program_add_instr(p, instr_transpose(p, path, src, dst, (const uint8_t[]){1, 0, 2}));
}

/* Parts end to end: rank 2 where `parts` says so, else rank 1. */
static void give_parts(Program *p, TensorId t, bool parts, int64_t n, TensorId *slot, uint8_t *factor)
{
    int64_t all = tensor_elements(&p->tensor[t.i]);
    int64_t extent[2] = {n, all / n};
    *slot = parts ? view(p, t, 2, extent) : view(p, t, 1, &all);
    factor[0] = parts ? 0 : 1;
    if (parts)
        factor[1] = 1;
}

static void emit(Lowering *lw, OpKind op, uint32_t group, const char *path, TensorId src, TensorId dst)
{
    Program *p = lw->p;
    Instr in = instr_new(op, path);
    in.group = group;
    int64_t n = p->group[in.group].n;
    bool cut = op == OP_reduce_scatter || op == OP_all_to_all, joined = op == OP_all_gather || op == OP_all_to_all;
    in.narg = in.nout = 1;
    give_parts(p, src, cut, n, &in.arg[0], in.arg_factor[0]);
    give_parts(p, dst, joined, n, &in.out[0], in.out_factor[0]);
    int64_t bytes = tensor_elements(&p->tensor[src.i]);
    in.nfactor = 2;
    in.role[0] = cut || joined ? 'p' : '.';
    in.extent[0] = cut || joined ? n : 1;
    in.role[1] = 'n';
    in.extent[1] = cut ? bytes / n : bytes;
    program_add_instr(p, in);
}

void collective(Lowering *lw, OpKind op, GridSet set, const char *path, TensorId src, TensorId dst)
{
    emit(lw, op, group_index(lw, set), path, src, dst);
}

void collective_over(Lowering *lw, OpKind op, GridSet set, StageSet stages, const char *path, TensorId src, TensorId dst)
{
    emit(lw, op, group_over(lw, set, stages), path, src, dst);
}

void message(Lowering *lw, OpKind op, const Crossing *c, TensorId t)
{
    Program *p = lw->p;
    Instr in = instr_new(op, value_of(lw->g, c->value)->path);
    RankGroup pair = {NEWN(p->arena, uint32_t, 2), 2};
    pair.rank[0] = c->from * lw->layout.grid.nranks + lw->place;
    pair.rank[1] = c->to * lw->layout.grid.nranks + lw->place;
    in.group = add_group(p, pair);
    int64_t n = tensor_elements(&p->tensor[t.i]);
    in.nfactor = 1;
    in.extent[0] = n;
    in.role[0] = 'n';
    TensorId flat = view(p, t, 1, &n);
    in.narg = op == OP_send;
    in.nout = op == OP_recv;
    *(op == OP_send ? &in.arg[0] : &in.out[0]) = flat;
    (op == OP_send ? in.arg_factor : in.out_factor)[0][0] = 0;
    program_add_instr(p, in);
}

/* ---- extents around an axis ---- */

static int64_t before(const Tensor *t, int axis)
{
    int64_t n = 1;
    for (int x = 0; x < axis; x++)
        n *= t->axis[x].local;
    return n;
}

static int64_t after(const Tensor *t, int axis)
{
    int64_t n = 1;
    for (int x = axis + 1; x < t->rank; x++)
        n *= t->axis[x].local;
    return n;
}

/* ---- steps: each changes `now` and makes the tensor that lies so ---- */

static TensorId arrive(Converting *c, GridSet set, int8_t on)
{
    for (uint32_t d = 0; d < c->lw->layout.grid.n; d++)
        if (set >> d & 1)
            c->now.on[d] = on;
    Tensor t = value_tensor(c->lw, c->v, c->now);
    t.dtype = c->lw->p->tensor[c->t.i].dtype;
    t.path = arena_printf(c->lw->p->arena, "%s@%s", c->path, grid_names(c->lw->scratch, &c->lw->layout.grid, set));
    return code_own(c->lw->p, t, CLASS_working);
}

static void step_all_reduce(Converting *c, GridSet set)
{
    TensorId src = c->t, dst = arrive(c, set, PLACE_WHOLE);
    collective(c->lw, OP_all_reduce, set, c->path, src, dst);
    c->t = dst;
}

/* [A, P, n C] is packed as [P, A, n C], of which each rank gets its [A, n C]. */
static void step_reduce_scatter(Converting *c, GridSet set, int8_t axis)
{
    Program *p = c->lw->p;
    TensorId src = c->t, dst = arrive(c, set, axis);
    int64_t a = before(&p->tensor[src.i], axis), all = tensor_elements(&p->tensor[src.i]);
    int64_t parts = all / tensor_elements(&p->tensor[dst.i]);
    if (a > 1) {
        int64_t from[] = {a, parts, all / a / parts}, to[] = {parts, a, all / a / parts};
        TensorId packed = own(p, arena_printf(p->arena, "%s:pack", p->tensor[dst.i].path), src, 3, to);
        swap_parts(p, c->path, view(p, src, 3, from), packed);
        src = packed;
    }
    collective(c->lw, OP_reduce_scatter, set, c->path, src, dst);
    c->t = dst;
}

static void step_all_gather(Converting *c, GridSet set, int8_t axis)
{
    Program *p = c->lw->p;
    TensorId src = c->t, dst = arrive(c, set, PLACE_WHOLE), raw = dst;
    int64_t a = before(&p->tensor[src.i], axis), all = tensor_elements(&p->tensor[dst.i]);
    int64_t parts = all / tensor_elements(&p->tensor[src.i]);
    int64_t from[] = {parts, a, all / a / parts}, to[] = {a, parts, all / a / parts};
    if (a > 1)
        raw = own(p, arena_printf(p->arena, "%s:unpack", p->tensor[dst.i].path), src, 3, from);
    collective(c->lw, OP_all_gather, set, c->path, src, raw);
    if (a > 1)
        swap_parts(p, c->path, raw, view(p, dst, 3, to));
    c->t = dst;
}

/* Axis `to` is cut into P parts that go to the front; what comes are P parts of axis
 * `from`, which go where they belong. */
static void step_all_to_all(Converting *c, GridSet set, int8_t from, int8_t to)
{
    Program *p = c->lw->p;
    TensorId src = c->t;
    Tensor t = p->tensor[src.i];
    TensorId dst = arrive(c, set, to);
    int64_t parts = t.axis[to].local / p->tensor[dst.i].axis[to].local, all = tensor_elements(&t);
    int64_t a = before(&t, to), part = all / a / parts, cut[] = {a, parts, part}, packed[] = {parts, a, part};
    TensorId out = own(p, arena_printf(p->arena, "%s:pack", p->tensor[dst.i].path), src, 3, packed);
    swap_parts(p, c->path, view(p, src, 3, cut), out);
    int64_t b = before(&p->tensor[dst.i], from), rest = all / b / parts, came[] = {parts, b, rest}, joined[] = {b, parts, rest};
    TensorId in = own(p, arena_printf(p->arena, "%s:unpack", p->tensor[dst.i].path), src, 3, came);
    collective(c->lw, OP_all_to_all, set, c->path, out, in);
    swap_parts(p, c->path, in, view(p, dst, 3, joined));
    c->t = dst;
}

static void step_slice(Converting *c, GridSet set, int8_t axis)
{
    Program *p = c->lw->p;
    TensorId src = c->t;
    Tensor t = p->tensor[src.i];
    TensorId dst = arrive(c, set, axis);
    int64_t a = before(&t, axis), rest = after(&t, axis), local = p->tensor[dst.i].axis[axis].local;
    int64_t from[] = {a, t.axis[axis].local, rest}, to[] = {a, local, rest};
    Instr in = instr_new(OP_slice, c->path);
    in.narg = in.nout = 1;
    in.arg[0] = view(p, src, 3, from);
    in.out[0] = view(p, dst, 3, to);
    in.nfactor = 4;
    const int64_t extent[] = {a, from[1], rest, local};
    const uint8_t arg[] = {0, 1, 2}, out[] = {0, 3, 2};
    memcpy(in.extent, extent, sizeof extent);
    memcpy(in.role, ".s.t", 4);
    memcpy(in.arg_factor[0], arg, sizeof arg);
    memcpy(in.out_factor[0], out, sizeof out);
    *instr_set(&in, "first") = ATTR_I(p->tensor[dst.i].axis[axis].origin - t.axis[axis].origin);
    program_add_instr(p, in);
    c->t = dst;
}

/* ---- which steps ---- */

static GridSet going(const Converting *c, Placement to, int from_kind, int to_kind)
{
    const Grid *g = &c->lw->layout.grid;
    return placement_on(g, c->now, from_kind) & placement_on(g, to, to_kind);
}

/* Whether the grid axes of `set` are the innermost cuts of `axis` in a placement. */
static bool innermost(const Converting *c, Placement p, int axis, GridSet set)
{
    GridSet cuts = placement_on(&c->lw->layout.grid, p, axis);
    GridSet others = cuts & (GridSet)~set;
    return set == 0 || others == 0 || (others >> __builtin_ctz(set)) == 0;
}

/* Axes whose cuts come or go from between others are made whole first. */
static void untangle(Converting *c, Placement to)
{
    const Grid *g = &c->lw->layout.grid;
    for (int8_t x = 0; x < value_of(c->lw->g, c->v)->rank; x++) {
        GridSet have = placement_on(g, c->now, x), want = placement_on(g, to, x);
        if (have && (!innermost(c, c->now, x, have & (GridSet)~want) || !innermost(c, to, x, want & (GridSet)~have)))
            step_all_gather(c, have, x);
    }
}

/* Whether cuts by `set` may come to an axis now: inside of the cuts that it has, which all
 * stay, and outside of those that are still to come. */
static bool may_come(const Converting *c, Placement to, int axis, GridSet set)
{
    const Grid *g = &c->lw->layout.grid;
    GridSet have = placement_on(g, c->now, axis), want = placement_on(g, to, axis), later = want & (GridSet)~(have | set);
    return (have & ~want) == 0 && have >> __builtin_ctz(set) == 0 && (later == 0 || set >> __builtin_ctz(later) == 0);
}

static void reduce_partials(Converting *c, Placement to)
{
    const Grid *g = &c->lw->layout.grid;
    for (int8_t x = 0; x < value_of(c->lw->g, c->v)->rank; x++) {
        GridSet set = going(c, to, PLACE_PARTIAL, x);
        if (set && may_come(c, to, x, set))
            step_reduce_scatter(c, set, x);
    }
    GridSet rest = placement_on(g, c->now, PLACE_PARTIAL) & (GridSet)~placement_on(g, to, PLACE_PARTIAL);
    if (rest)
        step_all_reduce(c, rest);
}

/* Cuts that move from one axis to another, all that do at once. */
static bool exchange_one(Converting *c, Placement to, int8_t from)
{
    for (int8_t x = 0; x < value_of(c->lw->g, c->v)->rank; x++) {
        GridSet set = x == from ? 0 : going(c, to, from, x);
        if (!set || !innermost(c, c->now, from, set) || !may_come(c, to, x, set))
            continue;
        step_all_to_all(c, set, from, x);
        return true;
    }
    return false;
}

/* One may make room for another. */
static void exchange(Converting *c, Placement to)
{
    for (int8_t from = 0; from < value_of(c->lw->g, c->v)->rank;)
        from = exchange_one(c, to, from) ? 0 : (int8_t)(from + 1);
}

TensorId convert(Lowering *lw, ValueId v, TensorId t, Placement from, Placement to)
{
    const Grid *g = &lw->layout.grid;
    Converting c = {.lw = lw, .v = v, .t = t, .now = from, .path = value_of(lw->g, v)->path};
    untangle(&c, to);
    reduce_partials(&c, to);
    exchange(&c, to);
    for (int8_t x = 0; x < value_of(lw->g, v)->rank; x++) {
        GridSet set = placement_on(g, c.now, x) & (GridSet)~placement_on(g, to, x);
        if (set)
            step_all_gather(&c, set, x);
    }
    for (int8_t x = 0; x < value_of(lw->g, v)->rank; x++) {
        GridSet set = placement_on(g, to, x) & (GridSet)~placement_on(g, c.now, x);
        if (set)
            step_slice(&c, set, x);
    }
    assert(placement_equal(g, c.now, to) && "a conversion arrives");
    return c.t;
}
