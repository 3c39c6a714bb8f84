/* What must hold of the programs of all ranks together, beyond what program_check() and
 * verify() prove of each: the ranks of a stage do the same, every op of the model is
 * executed on one stage, sums over ranks are over those that hold summands, and what
 * counts once counts once.  Who holds what is the Layout's to say. */
#include "codegen/verify.h"

#include <stdlib.h>
#include <string.h>

/* ---- things by path ---- */

static int by_path(const void *x, const void *y)
{
    const Named *a = x, *b = y;
    int c = strcmp(a->path, b->path);
    return c ? c : (a->i > b->i) - (a->i < b->i);
}

void names_sort(Names *n)
{
    qsort(n->of, n->n, sizeof *n->of, by_path);
}

static int compare_path(const char *a, const char *b, size_t bytes)
{
    int c = strncmp(a, b, bytes);
    return c ? c : a[bytes] != 0;
}

uint32_t names_find(const Names *n, const char *path, size_t bytes)
{
    uint32_t lo = 0, hi = n->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (compare_path(n->of[mid].path, path, bytes) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n->n && compare_path(n->of[lo].path, path, bytes) == 0 ? lo : n->n;
}

static Names ops_by_path(const Graph *g, Arena *a)
{
    Names n = {NEWN(a, Named, g->nop + 1), g->nop};
    for (uint32_t o = 0; o < g->nop; o++)
        n.of[o] = (Named){g->op[o].path, o};
    names_sort(&n);
    return n;
}

static const Program *first_of_stage(const RanksCheck *c, uint32_t stage)
{
    return c->rank[stage * c->per_stage];
}

/* ---- the ranks of a stage do the same ---- */

static bool same_instr(const Instr *a, const Instr *b)
{
    return a->op == b->op && a->stream == b->stream && a->when == b->when && strcmp(a->path, b->path) == 0 && a->nfactor == b->nfactor && a->acc == b->acc && a->acc_out == b->acc_out &&
           a->narg == b->narg && a->nout == b->nout && memcmp(a->extent, b->extent, sizeof *a->extent * a->nfactor) == 0;
}

/* The first difference; the update differs in who counts what for the norm. */
static void check_proc_alike(RanksCheck *c, const Program *p, const Program *q, ProcKind kind)
{
    const Proc *a = proc_find(p, kind), *b = proc_find(q, kind);
    uint32_t na = a ? a->end - a->first : 0, nb = b ? b->end - b->first : 0;
    if (na != nb) {
        broken(&c->k, "procedure %d has %u instructions on rank %u and %u on rank %u of its stage", (int)kind, na, p->rank, nb, q->rank);
        return;
    }
    for (uint32_t i = 0; i < na; i++) {
        const Instr *x = &p->instr[a->first + i], *y = &q->instr[b->first + i];
        if (same_instr(x, y))
            continue;
        broken(&c->k, "instruction %u is %s of '%s' on rank %u, and another or of other extents on rank %u of its stage: %s of '%s'", a->first + i,
               op_info[x->op].name, x->path, p->rank, q->rank, op_info[y->op].name, y->path);
        return;
    }
}

static void check_alike(RanksCheck *c)
{
    for (uint32_t r = 0; r < c->n; r++)
        for (int kind = 0; kind < PROCS && r % c->per_stage > 0; kind++)
            if (kind != PROC_update)
                check_proc_alike(c, first_of_stage(c, r / c->per_stage), c->rank[r], (ProcKind)kind);
}

/* ---- every op on one stage ---- */

/* Conversions go by the path of the op that made the value, and stand where it is read. */
static bool moves(OpKind k)
{
    return op_info[k].flags & OPF_COMM || k == OP_transpose || k == OP_slice;
}

/* A fused instruction has the paths of its ops, "a+b". */
static void mark_ops(const RanksCheck *c, const Names *ops, const Instr *in, uint32_t stage, StageSet *at)
{
    bool joined = strchr(in->path, '+') || in->op == OP_cross_entropy_merge;
    for (const char *s = in->path; s; s = strchr(s, '+') ? strchr(s, '+') + 1 : NULL) {
        size_t bytes = strcspn(s, "+");
        for (uint32_t i = names_find(ops, s, bytes); i < ops->n && compare_path(ops->of[i].path, s, bytes) == 0; i++) {
            const Op *op = &c->g->op[ops->of[i].i];
            if (op->phase == PHASE_FORWARD && !moves(in->op) && (joined || op->kind == in->op))
                at[ops->of[i].i] |= (StageSet)1 << stage;
        }
    }
}

/* Ops that depend on weights alone are repeated on every stage that reads them. */
static bool *free_ops(const RanksCheck *c)
{
    bool *free_op = NEWN(c->scratch, bool, c->g->nop + 1);
    for (uint32_t o = 0; o < c->g->nop; o++) {
        const Op *op = &c->g->op[o];
        free_op[o] = true;
        for (int a = 0; a < op->narg; a++) {
            const Value *v = has_value(op->arg[a]) ? value_of(c->g, op->arg[a]) : NULL;
            free_op[o] &= !v || (has_op(v->maker) ? free_op[v->maker.i] : v->role == ROLE_WEIGHT);
        }
    }
    return free_op;
}

/* Ops that the loss needs, but for those that may be no instruction: views, what changes
 * nothing, and additions, which what is added may do itself. */
static bool *needed_ops(const RanksCheck *c)
{
    const Graph *g = c->g;
    bool *needed = NEWN(c->scratch, bool, g->nop + 1);
    OpId last = value_of(g, g->loss)->maker;
    needed[last.i] = true;
    for (uint32_t o = last.i + 1; o-- > 0;)
        for (int a = 0; needed[o] && a < g->op[o].narg; a++)
            if (has_value(g->op[o].arg[a]) && has_op(value_of(g, g->op[o].arg[a])->maker))
                needed[value_of(g, g->op[o].arg[a])->maker.i] = true;
    for (uint32_t o = 0; o < g->nop; o++) {
        OpKind k = g->op[o].kind;
        needed[o] &= g->op[o].phase == PHASE_FORWARD && !(op_info[k].flags & OPF_VIEW) && k != OP_dropout && k != OP_cast && k != OP_add && !moves(k);
    }
    return needed;
}

static void check_ops(RanksCheck *c, const Names *ops)
{
    StageSet *at = NEWN(c->scratch, StageSet, c->g->nop + 1);
    for (uint32_t s = 0; s < c->layout.nstages; s++) {
        const Program *p = first_of_stage(c, s);
        const Proc *forward = proc_find(p, PROC_forward);
        for (uint32_t i = forward ? forward->first : 0; forward && i < forward->end; i++)
            mark_ops(c, ops, &p->instr[i], s, at);
    }
    const bool *free_op = free_ops(c), *needed = needed_ops(c);
    for (uint32_t o = 0; o < c->g->nop; o++) {
        if (!free_op[o] && (at[o] & (at[o] - 1)))
            broken(&c->k, "op '%s' is executed on %d stages", c->g->op[o].path, __builtin_popcountll(at[o]));
        if (needed[o] && !at[o])
            broken(&c->k, "op '%s' is executed on no stage", c->g->op[o].path);
    }
}

/* ---- sums of scalars: label counts, losses ---- */

static bool is_group(const RanksCheck *c, const Program *p, const Instr *in, GridSet set)
{
    RankGroup want = grid_group(c->scratch, &c->layout.grid, p->rank % c->per_stage, set);
    const RankGroup *have = &p->group[in->group];
    bool same = have->n == want.n;
    for (uint32_t i = 0; same && i < want.n; i++)
        same &= have->rank[i] == want.rank[i] + p->rank / c->per_stage * c->per_stage;
    return same;
}

/* On a rank that has the value, it is summed once over those that hold summands. */
static void check_sum(RanksCheck *c, const Program *p, ProcKind kind, const char *path, GridSet set)
{
    const Proc *proc = proc_find(p, kind);
    uint32_t sums = 0;
    for (uint32_t i = proc ? proc->first : 0; proc && i < proc->end; i++) {
        const Instr *in = &p->instr[i];
        if (in->op != OP_all_reduce || strcmp(in->path, path) != 0)
            continue;
        sums++;
        if (!is_group(c, p, in, set))
            broken(&c->k, "rank %u sums '%s' over %u ranks that are not those with a summand", p->rank, path, p->group[in->group].n);
    }
    if (sums != (set ? 1 : 0))
        broken(&c->k, "rank %u sums '%s' over ranks %u times, expected %d", p->rank, path, sums, set ? 1 : 0);
}

static void check_loss(RanksCheck *c, const Program *p, ValueId loss, TensorId t)
{
    if (has_tensor(t))
        check_sum(c, p, PROC_total, value_of(c->g, loss)->path, placement_on(&c->layout.grid, c->layout.value[loss.i], PLACE_PARTIAL));
}

static void check_scalars(RanksCheck *c)
{
    const Graph *g = c->g;
    Losses losses = graph_losses(g, c->scratch);
    for (uint32_t r = 0; r < c->n; r++) {
        const Program *p = c->rank[r];
        for (uint32_t v = 0; v < g->nvalue; v++)
            if (c->layout.agree[v] && layout_has(&c->layout, (ValueId){v}, r / c->per_stage))
                check_sum(c, p, PROC_agree, g->value[v].path, c->layout.agree[v]);
        check_loss(c, p, g->loss, p->loss);
        for (uint32_t i = 0; i < losses.n; i++)
            check_loss(c, p, losses.of[i].value, p->term[i].tensor);
    }
}

/* ---- what counts once ---- */

static double factor_at(const RanksCheck *c, uint32_t rank, ProcKind kind, uint32_t i)
{
    const Program *p = c->rank[rank];
    return instr_attr(&p->instr[proc_find(p, kind)->first + i], "by")->f;
}

/* Whether ops of that path have an argument that counts on coordinate 0 of `set` alone;
 * what counts on all ranks does so in parts, one a micro-batch. */
static bool counts_on(const RanksCheck *c, const Names *ops, const char *path, GridSet set, double by)
{
    size_t bytes = strlen(path);
    if (set == 0)
        return c->rank[0]->microbatches > 1 && by == 1.0 / (double)c->rank[0]->microbatches;
    for (uint32_t i = names_find(ops, path, bytes); i < ops->n && strcmp(ops->of[i].path, path) == 0; i++) {
        const Op *op = &c->g->op[ops->of[i].i];
        for (int a = 0; a < op->narg; a++)
            if (has_value(op->arg[a]) && layout_once(&c->layout, (OpId){ops->of[i].i}, a) == set)
                return true;
    }
    return false;
}

/* A summand in parts: the ranks of a stage where it counts must be those with coordinate
 * 0 on grid axes, and on axes on which the op has one summand too many. */
static void check_owner(RanksCheck *c, const Names *ops, uint32_t stage, ProcKind kind, uint32_t i, const char *path)
{
    const Grid *g = &c->layout.grid;
    uint32_t base = stage * c->per_stage, owners = 0;
    GridSet set = (GridSet)((1u << g->n) - 1);
    double by = 0;
    for (uint32_t r = 0; r < c->per_stage; r++) {
        double x = factor_at(c, base + r, kind, i);
        owners += x != 0;
        by = x != 0 ? x : by;
        for (uint32_t d = 0; x != 0 && d < g->n; d++)
            if (grid_coordinate(g, r, d) > 0)
                set &= (GridSet)~(1u << d);
    }
    bool sound = owners > 0 && counts_on(c, ops, path, set, by);
    for (uint32_t r = 0; r < c->per_stage; r++) {
        bool owns = true;
        for (uint32_t d = 0; d < g->n; d++)
            owns &= !(set >> d & 1) || grid_coordinate(g, r, d) == 0;
        sound &= factor_at(c, base + r, kind, i) == (owns ? by : 0);
    }
    if (!sound)
        broken(&c->k, "what '%s' counts once counts on %u of %u ranks of stage %u", path, owners, c->per_stage, stage);
}

/* Such a part is made by a scale that goes by the path of the op that takes it. */
static bool is_part(const RanksCheck *c, const Names *ops, const Instr *in)
{
    uint32_t i = names_find(ops, in->path, strlen(in->path));
    return in->op == OP_scale && i < ops->n && c->g->op[ops->of[i].i].kind != OP_scale;
}

static void check_owners(RanksCheck *c, const Names *ops)
{
    static const ProcKind kinds[] = {PROC_forward, PROC_backward, PROC_evaluate};
    for (uint32_t s = 0; s < c->layout.nstages; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const Program *p = first_of_stage(c, s);
            const Proc *proc = proc_find(p, kinds[k]);
            for (uint32_t i = proc ? proc->first : 0; proc && i < proc->end; i++)
                if (is_part(c, ops, &p->instr[i]))
                    check_owner(c, ops, s, kinds[k], i - proc->first, p->instr[i].path);
        }
}

/* ---- all ---- */

int verify_ranks(const Graph *g, const Plan *plan, const Program *const *rank, FILE *err)
{
    Arena *scratch = arena_new("scratch");
    RanksCheck c = {.g = g, .rank = rank, .n = plan->ndevices, .scratch = scratch, .k = {err, "programs", 0}};
    if (layout_read(scratch, diags_new(sources_new(scratch)), g, plan, &c.layout) != OK)
        broken(&c.k, "they are of a plan that cannot be lowered");
    c.per_stage = c.layout.grid.nranks;
    if (c.k.broken == 0)
        check_alike(&c);
    if (c.k.broken == 0 && has_value(g->loss)) {
        Names ops = ops_by_path(g, scratch);
        check_ops(&c, &ops);
        check_scalars(&c);
        check_owners(&c, &ops);
        verify_weights(&c);
    }
    verify_step(&c);
    arena_free(scratch);
    return c.k.broken;
}
