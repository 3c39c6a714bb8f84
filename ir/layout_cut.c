/* From a plan's rules to the grid and the cuts of forward ops.
 *
 * dp splits the batch of every op that has one.  The other mesh axes split what
 * `split` rules name: for each op the rules with a path before those without, then
 * in the order written; the first axis that the op's signature allows takes the
 * mesh axis there, unless a `keep` rule holds it whole.  Rules are seen through Want
 * rows, one per axis name. */
#include "ir/layout_cut.h"

#include <string.h>

#include "base/text.h"
#include "ir/split.h"

/* ---- query heads and the kv heads they read ---- */

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

static uint8_t factor_of_role(const Op *op, char role)
{
    for (uint8_t f = 0; f < op->nfactor; f++)
        if (op->factor[f].role == role)
            return f;
    return NO_FACTOR;
}

/* Per dim: the dim of the query heads that read kv heads of it, NO_DIM: it is none. */
static DimId *query_heads(Arena *a, const Graph *g)
{
    DimId *heads = NEWN(a, DimId, g->ndim + 1);
    for (uint32_t d = 0; d < g->ndim; d++)
        heads[d] = NO_DIM;
    for (uint32_t o = 0; o < g->nop; o++) {
        const Op *op = &g->op[o];
        uint8_t kv = op->kind == OP_attention ? factor_of_role(op, 'g') : NO_FACTOR;
        if (kv != NO_FACTOR)
            heads[op->factor[kv].dim.i] = op->factor[factor_of_role(op, 'h')].dim;
    }
    return heads;
}

/* Kv heads of which there may be fewer than parts: those that have query heads of another dim. */
static bool may_be_few(const DimId *heads, DimId d)
{
    return !same_dim(heads[d.i], NO_DIM) && !same_dim(heads[d.i], d);
}

/* ---- the grid ---- */

uint32_t grid_coordinate(const Grid *g, uint32_t rank, uint32_t axis)
{
    return rank / g->axis[axis].stride % g->axis[axis].size;
}

/* Counts through the coordinates on the set's axes, the last one fastest: the numbers of
 * the ranks ascend. */
RankGroup grid_group(Arena *a, const Grid *g, uint32_t rank, GridSet set)
{
    RankGroup out = {.n = 1};
    uint32_t first = rank;
    for (uint32_t d = 0; d < g->n; d++) {
        out.n *= set >> d & 1 ? g->axis[d].size : 1;
        first -= set >> d & 1 ? grid_coordinate(g, rank, d) * g->axis[d].stride : 0;
    }
    out.rank = NEWN(a, uint32_t, out.n);
    for (uint32_t i = 0; i < out.n; i++) {
        uint32_t left = i;
        out.rank[i] = first;
        for (uint32_t d = g->n; d-- > 0;)
            if (set >> d & 1) {
                out.rank[i] += left % g->axis[d].size * g->axis[d].stride;
                left /= g->axis[d].size;
            }
    }
    return out;
}

const char *grid_names(Arena *a, const Grid *g, GridSet set)
{
    static const char *const part[] = {"", ".outer", ".inner"};
    Text t = text_new(a);
    for (uint32_t d = 0; d < g->n; d++)
        if (set >> d & 1 && !(d > 0 && set >> (d - 1) & 1 && g->axis[d].axis == g->axis[d - 1].axis && g->axis[d].part == g->axis[d - 1].part))
            text_add(&t, "%s%s%s", t.n ? " and " : "", mesh_axis_name(g->axis[d].axis), part[g->axis[d].part]);
    return t.s;
}

static void add_part(Grid *g, MeshAxis axis, MeshPart part, int64_t size)
{
    if (size > 1)
        g->axis[g->n++] = (GridAxis){.axis = axis, .part = part, .size = (uint32_t)size};
}

/* Leading parts of a mesh axis of n ranks that some kv heads divide by: a chain of
 * divisors, in growing order. */
static uint32_t kv_chain(Arena *a, const Graph *g, int64_t n, int64_t chain[MAX_GRID])
{
    uint32_t len = 0;
    const DimId *heads = query_heads(a, g);
    for (uint32_t d = 0; d < g->ndim; d++) {
        int64_t common = gcd(g->dim[d].extent, n);
        if (same_dim(heads[d], NO_DIM) || common == 1 || common == n)
            continue;
        uint32_t at = 0;
        while (at < len && chain[at] < common)
            at++;
        if (at < len && chain[at] == common)
            continue;
        memmove(&chain[at + 1], &chain[at], sizeof *chain * (len - at));
        chain[at] = common;
        if (++len == MAX_GRID / 2)
            break;
    }
    return len;
}

static Status add_mesh_axis(Diags *ds, const Graph *g, const Plan *plan, MeshAxis axis, Grid *out)
{
    int64_t n = plan->mesh[axis], chain[MAX_GRID + 1], done = 1;
    uint32_t len = axis == AXIS_tp ? kv_chain(ds->arena, g, n, chain) : 0;
    if (plan->outer[axis]) {
        add_part(out, axis, PART_OUTER, plan->outer[axis]);
        add_part(out, axis, PART_INNER, n / plan->outer[axis]);
        return OK;
    }
    for (uint32_t i = 0; i < len; i++) {
        if (chain[i] % done) {
            diag_error(ds, NOWHERE, "models whose kv heads share %lld and %lld parts with 'tp = %lld' are not split by it in this version", (long long)done,
                       (long long)chain[i], (long long)n);
            return ERR_REJECT;
        }
        add_part(out, axis, PART_WHOLE, chain[i] / done);
        done = chain[i];
    }
    add_part(out, axis, PART_WHOLE, n / done);
    return OK;
}

Status layout_grid(Diags *ds, const Graph *g, const Plan *plan, Grid *out)
{
    *out = (Grid){.nranks = 1};
    for (int a = AXIS_pp + 1; a < MESH_AXES; a++)
        TRY(add_mesh_axis(ds, g, plan, (MeshAxis)a, out));
    for (uint32_t d = out->n; d-- > 0;) {
        out->axis[d].stride = out->nranks;
        out->nranks *= out->axis[d].size;
    }
    return OK;
}

/* ---- padding ---- */

static void pad_dim(Diags *ds, const Graph *g, const Rule *r, Layout *l, DimId d)
{
    int64_t n = dim_of(g, d)->extent, over = n % r->number;
    OpId obstacle = over ? padding_obstacle(g, d) : NO_OP;
    if (has_op(obstacle)) {
        const Op *op = op_of(g, obstacle);
        Diag *e = diag_error(ds, r->at, "'%s' (%lld) cannot be padded: op '%s' (%s) would see the padding", r->name, (long long)n, op->path, op_info[op->kind].name);
        diag_note(ds, e, op->at, "the op is here");
    } else if (over) {
        l->pad[d.i] = r->number - over;
    }
}

Status layout_pads(Diags *ds, const Graph *g, const Plan *plan, Layout *l)
{
    int errors = ds->errors;
    for (uint32_t i = 0; i < plan->nrule; i++)
        for (uint32_t d = 0; plan->rule[i].kind == RULE_PAD && d < g->ndim; d++)
            if (strcmp(g->dim[d].name, plan->rule[i].name) == 0)
                pad_dim(ds, g, &plan->rule[i], l, (DimId){d});
    return ds->errors == errors ? OK : ERR_REJECT;
}

/* ---- what rules want ---- */

typedef struct Want {
    const char *name;                 /* of the axis */
    const Rule *rule;                 /* NULL: dp's own */
    MeshAxis    axis;
    MeshPart    part;
    bool        used, complained;
    const Rule *kept;                 /* a `keep` that took an op from it */
    const Op   *whole;                /* the first op of those it names that needs the axis whole; NULL: none does */
} Want;

typedef struct Wants { Want *want; uint32_t n; const Plan *plan; Diags *ds; Layout *l; DimId *heads; } Wants;

static void add_wants(Arena *a, Wants *w, const Rule *r)
{
    for (uint8_t k = 0; k < r->by.n; k++)
        for (uint32_t i = 0; i < r->nnames; i++)
            PUSH(a, w->want, w->n, ((Want){.name = r->names[i], .rule = r, .axis = r->by.axis[k], .part = r->by.part[k]}));
}

static Wants read_wants(Arena *a, Diags *ds, const Plan *plan, Layout *l)
{
    Wants w = {.plan = plan, .ds = ds, .l = l, .heads = query_heads(a, l->g)};
    PUSH(a, w.want, w.n, ((Want){.name = "batch", .axis = AXIS_dp, .used = true}));
    for (int with_path = 1; with_path >= 0; with_path--)
        for (uint32_t i = 0; i < plan->nrule; i++)
            if (plan->rule[i].kind == RULE_SPLIT && (plan->rule[i].path.nstep > 0) == with_path)
                add_wants(a, &w, &plan->rule[i]);
    return w;
}

/* ---- cutting one op ---- */

static bool in_want(const GridAxis *x, const Want *w)
{
    return x->axis == w->axis && (w->part == PART_WHOLE || x->part == w->part);
}

/* Kv heads go by the name of the query heads too. */
static bool is_named(const Wants *w, DimId d, const char *name)
{
    const Graph *g = w->l->g;
    DimId heads = w->heads[d.i];
    return strcmp(dim_of(g, d)->name, name) == 0 || (!same_dim(heads, NO_DIM) && strcmp(dim_of(g, heads)->name, name) == 0);
}

/* Ways the factor is cut already. */
static int64_t ways_of(const Layout *l, OpId o, uint8_t f)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < l->grid.n; d++)
        n *= l->cut[o.i][d] >> f & 1 ? l->grid.axis[d].size : 1;
    return n;
}

static int64_t want_size(const Layout *l, const Want *w)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < l->grid.n; d++)
        n *= in_want(&l->grid.axis[d], w) ? l->grid.axis[d].size : 1;
    return n;
}

static void does_not_divide(Wants *w, Want *want, DimId d, int64_t done)
{
    if (want->complained)
        return;
    want->complained = true;
    const Dim *dim = dim_of(w->l->g, d);
    int64_t n = dim->extent + w->l->pad[d.i], size = want_size(w->l, want);
    Diag *e = diag_error(w->ds, want->rule ? want->rule->at : NOWHERE, "cannot split '%s' (%lld) by %s = %lld%s: the parts would be unequal", dim->name, (long long)n,
                         mesh_axis_name(want->axis), (long long)size, done > 1 ? arena_printf(w->ds->arena, ", beside a split into %lld", (long long)done) : "");
    if (span_known(dim->at))
        diag_note(w->ds, e, dim->at, "'%s' is declared here", dim->name);
    diag_help(w->ds, e, "%s", text_divisors(w->ds->arena, n / done));
}

/* Cut the factor along every grid axis of the want; kv heads along the leading ones
 * that they divide by. */
static void cut_factor(Wants *w, Want *want, OpId o, uint8_t f, bool leading)
{
    Layout *l = w->l;
    DimId dim = op_of(l->g, o)->factor[f].dim;
    int64_t n = dim_of(l->g, dim)->extent + l->pad[dim.i], ways = ways_of(l, o, f);
    if (!leading && n % (ways * want_size(l, want))) {
        does_not_divide(w, want, dim, ways);
        return;
    }
    for (uint32_t d = 0; d < l->grid.n; d++) {
        if (!in_want(&l->grid.axis[d], want))
            continue;
        ways *= l->grid.axis[d].size;
        if (n % ways)
            return;
        l->cut[o.i][d] |= (uint16_t)(1u << f);
    }
}

static bool taken(const Layout *l, OpId o, const Want *w)
{
    for (uint32_t d = 0; d < l->grid.n; d++)
        if (in_want(&l->grid.axis[d], w) && l->cut[o.i][d])
            return true;
    return false;
}

/* The `keep .. whole` rule that exempts the op from being cut along a dim, or NULL. */
static const Rule *keeps(const Wants *w, const Op *op, DimId d)
{
    for (uint32_t i = 0; i < w->plan->nrule; i++) {
        const Rule *r = &w->plan->rule[i];
        for (uint32_t k = 0; r->kind == RULE_KEEP && k < r->nnames; k++)
            if (is_named(w, d, r->names[k]) && path_matches(&r->path, op->path))
                return r;
    }
    return NULL;
}

static bool try_want(Wants *w, Want *want, OpId o)
{
    const Graph *g = w->l->g;
    const Op *op = op_of(g, o);
    if (want->rule && want->rule->path.nstep > 0 && !path_matches(&want->rule->path, op->path))
        return false;
    for (uint8_t f = 0; f < op->nfactor; f++) {
        if (!is_named(w, op->factor[f].dim, want->name))
            continue;
        if (!op_may_split(g, op, f)) {
            want->whole = want->whole ? want->whole : op;
            continue;
        }
        const Rule *kept = keeps(w, op, op->factor[f].dim);
        want->kept = kept ? kept : want->kept;
        if (kept)
            continue;
        want->used = true;
        cut_factor(w, want, o, f, may_be_few(w->heads, op->factor[f].dim));
        uint8_t kv = op->kind == OP_attention && op->factor[f].role == 'h' ? factor_of_role(op, 'g') : NO_FACTOR;
        if (kv != NO_FACTOR)
            cut_factor(w, want, o, kv, true);
        return true;
    }
    return false;
}

static void cut_op(Wants *w, OpId o)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (want_size(w->l, &w->want[i]) > 1 && !taken(w->l, o, &w->want[i]))
            try_want(w, &w->want[i], o);
}

/* The query heads that a dim called `name` is split with; NULL: it is none of kv heads. */
static const Dim *queries_of(const Wants *w, const char *name)
{
    const Graph *g = w->l->g;
    for (uint32_t d = 0; d < g->ndim; d++)
        if (strcmp(g->dim[d].name, name) == 0 && !same_dim(w->heads[d], NO_DIM) && !same_dim(w->heads[d], (DimId){d}))
            return dim_of(g, w->heads[d]);
    return NULL;
}

static void check_used(const Wants *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const Want *x = &w->want[i];
        if (x->used || want_size(w->l, x) == 1)
            continue;
        Diag *e = diag_error(w->ds, x->rule->at, "no op is split: none that the rule names can be cut along '%s', or rules before it take %s there", x->name,
                             mesh_axis_name(x->axis));
        const Dim *heads = queries_of(w, x->name);
        if (x->axis == AXIS_dp && !same_dim(w->l->g->batch, NO_DIM))
            diag_help(w->ds, e, "dp splits '%s' by itself, everywhere: leave this rule out", dim_of(w->l->g, w->l->g->batch)->name);
        else if (heads)
            diag_help(w->ds, e, "'%s' takes '%s' along: 'split %s by %s' is enough", heads->name, x->name, heads->name, mesh_axis_name(x->axis));
        else if (x->kept)
            diag_note(w->ds, e, x->kept->at, "this rule keeps it whole");
        else if (x->whole)
            diag_note(w->ds, e, x->whole->at, "'%s' (%s) needs '%s' whole", x->whole->path, op_info[x->whole->kind].name, x->name);
    }
}

/* The first forward op that reads a value, and as which argument. */
static const Op *first_reader(const Graph *g, ValueId v, int *arg)
{
    for (uint32_t o = 0; o < g->nop; o++)
        for (*arg = 0; g->op[o].phase == PHASE_FORWARD && *arg < g->op[o].narg; ++*arg)
            if (g->op[o].arg[*arg].i == v.i)
                return &g->op[o];
    return NULL;
}

/* What is made of inputs once a step, such as counts of labels, is cut as the first op that
 * reads the same input, so that it lies in one way. */
static void follow_reader(Layout *l, OpId o)
{
    const Graph *g = l->g;
    const Op *op = op_of(g, o);
    for (int b = 0; b < op->narg; b++) {
        int a;
        const Op *reader = has_value(op->arg[b]) ? first_reader(g, op->arg[b], &a) : NULL;
        for (int x = 0; reader && x < value_of(g, op->arg[b])->rank; x++)
            for (uint32_t d = 0; d < l->grid.n; d++)
                if (l->cut[reader - g->op][d] >> reader->arg_factor[a][x] & 1 && !l->cut[o.i][d] && op_may_split(g, op, op->arg_factor[b][x]))
                    l->cut[o.i][d] |= (uint16_t)(1u << op->arg_factor[b][x]);
    }
}

Status layout_cuts(Arena *a, Diags *ds, const Graph *g, const Plan *plan, Layout *l)
{
    int errors = ds->errors;
    Wants w = read_wants(a, ds, plan, l);
    for (uint32_t o = 0; o < g->nop; o++)
        if (g->op[o].phase == PHASE_FORWARD)
            cut_op(&w, (OpId){o});
    for (uint32_t o = 0; o < g->nop; o++)
        if (g->op[o].phase == PHASE_BEGIN)
            follow_reader(l, (OpId){o});
    check_used(&w);
    return ds->errors == errors ? OK : ERR_REJECT;
}

/* ---- choices ---- */

/* The cut of a factor along all grid axes of a mesh axis, or along the leading ones that
 * it divides by, beside the cuts along other axes that are there; false: it does not divide. */
static bool cut_along(const Layout *l, const Op *op, MeshAxis axis, uint8_t f, bool leading, uint16_t cut[MAX_GRID])
{
    DimId dim = op->factor[f].dim;
    int64_t n = dim_of(l->g, dim)->extent + l->pad[dim.i], ways = 1;
    for (uint32_t d = 0; d < l->grid.n; d++)
        if (l->grid.axis[d].axis != axis && l->cut[op - l->g->op][d] >> f & 1)
            ways *= l->grid.axis[d].size;
    for (uint32_t d = 0; d < l->grid.n; d++) {
        if (l->grid.axis[d].axis != axis)
            continue;
        ways *= l->grid.axis[d].size;
        if (n % ways)
            return leading;
        cut[d] |= (uint16_t)(1u << f);
    }
    return true;
}

static bool cuts_nothing(const CutChoice *c)
{
    uint16_t any = 0;
    for (int d = 0; d < MAX_GRID; d++)
        any |= c->cut[d];
    return !any;
}

static bool has_choice(const CutChoice *c, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(c[i].name, name) == 0)
            return true;
    return false;
}

uint32_t layout_choices(Arena *a, const Layout *l, OpId o, MeshAxis axis, CutChoice **out)
{
    const Graph *g = l->g;
    const Op *op = op_of(g, o);
    const DimId *heads = query_heads(a, g);
    uint32_t n = 0;
    *out = NULL;
    for (uint8_t f = 0; f < op->nfactor; f++) {
        DimId dim = op->factor[f].dim;
        bool kv = !same_dim(heads[dim.i], NO_DIM);
        CutChoice c = {.name = dim_of(g, kv ? heads[dim.i] : dim)->name};
        if (same_dim(dim, g->batch) || has_choice(*out, n, c.name) || !op_may_split(g, op, f) || !cut_along(l, op, axis, f, may_be_few(heads, dim), c.cut))
            continue;
        uint8_t read = op->kind == OP_attention && op->factor[f].role == 'h' ? factor_of_role(op, 'g') : NO_FACTOR;
        if (read != NO_FACTOR)
            (void)cut_along(l, op, axis, read, true, c.cut);
        if (!cuts_nothing(&c))
            PUSH(a, *out, n, c);
    }
    return n;
}
