/* Splits: see splits.h. */
#include "planner/splits.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* "h[3].attn.q" as steps: h, rounds 3 to 3, attn, q. */
Path path_parse(Arena *a, const char *path)
{
    Path p = {.at = NOWHERE};
    while (*path) {
        size_t n = strcspn(path, ".[");
        if (n > 0)
            PUSH(a, p.step, p.nstep, ((PathStep){.name = arena_strndup(a, path, n)}));
        path += n;
        if (*path == '[') {
            char *end;
            int64_t round = strtoll(path + 1, &end, 10);
            PUSH(a, p.step, p.nstep, ((PathStep){.first = round, .last = round}));
            path = end + 1;
        }
        path += *path == '.';
    }
    return p;
}

Path splits_path(Arena *a, const Chain *c, OpId o)
{
    const Segment *part = &c->part[c->part_of[o.i]];
    Path p = path_parse(a, op_of(c->g, o)->path);
    if (part->rounds > 1)
        p.step[1].last = p.step[1].first + part->rounds - 1;
    return p;
}

static bool lies_under(const char *path, const char *scope)
{
    size_t n = strlen(scope);
    return strncmp(path, scope, n) == 0 && (path[n] == '.' || path[n] == '[');
}

static Rule rule_at(Arena *a, const Chain *c, RuleKind kind, OpId o, const char *name)
{
    Rule r = {.kind = kind, .at = NOWHERE, .path = splits_path(a, c, o), .nnames = 1};
    r.names = NEWN(a, const char *, 1);
    r.name_at = NEWN(a, Span, 1);
    r.names[0] = name;
    r.by = (MeshRef){.axis = {AXIS_tp}, .n = 1};
    return r;
}

/* Ops of the chain in the order of a Way's choices. */
static OpId *ops_of(Arena *a, const Chain *c, uint32_t *n)
{
    OpId *op = NULL;
    *n = 0;
    for (uint32_t i = 0; i < c->npart; i++)
        for (uint32_t k = 0; k < c->part[i].nop; k++)
            PUSH(a, op, *n, c->part[i].op[k]);
    return op;
}

static const char *name_of(const Intra *in, const Way *w, uint32_t i)
{
    return w->choice[i] ? in->cut[i][w->choice[i] - 1].name : NULL;
}

/* A pattern also names what lies under it: ops there that are not cut so are kept whole. */
static void keep_others(Arena *a, const Intra *in, const Way *w, const OpId *op, uint32_t n, uint32_t i, Rule **rule, uint32_t *nrule)
{
    const Graph *g = in->chain->g;
    for (uint32_t k = 0; k < n; k++) {
        bool could = false;
        for (uint32_t c = 0; c < in->ncut[k]; c++)
            could |= strcmp(in->cut[k][c].name, name_of(in, w, i)) == 0;
        if (could && !w->choice[k] && lies_under(op_of(g, op[k])->path, op_of(g, op[i])->path))
            PUSH(a, *rule, *nrule, rule_at(a, in->chain, RULE_KEEP, op[k], name_of(in, w, i)));
    }
}

uint32_t splits_of(Arena *a, const Intra *in, const Way *w, Rule **out)
{
    uint32_t n, nrule = 0;
    OpId *op = ops_of(a, in->chain, &n);
    size_t longest = 0;
    *out = NULL;
    for (uint32_t i = 0; i < n; i++)
        longest = strlen(op_of(in->chain->g, op[i])->path) > longest ? strlen(op_of(in->chain->g, op[i])->path) : longest;
    for (size_t len = longest + 1; len-- > 0;)           /* the longest first, so that it is found first */
        for (uint32_t i = 0; i < n; i++)
            if (strlen(op_of(in->chain->g, op[i])->path) == len && w->choice[i]) {
                PUSH(a, *out, nrule, rule_at(a, in->chain, RULE_SPLIT, op[i], name_of(in, w, i)));
                keep_others(a, in, w, op, n, i, out, &nrule);
            }
    return nrule;
}

/* Whether a rule keeps ops there whole along the axis. */
static bool is_kept(const Plan *plan, const char *path, const char *axis)
{
    for (uint32_t i = 0; i < plan->nrule; i++) {
        const Rule *r = &plan->rule[i];
        for (uint32_t k = 0; r->kind == RULE_KEEP && k < r->nnames; k++)
            if (strcmp(r->names[k], axis) == 0 && (r->path.nstep == 0 || path_matches(&r->path, path)))
                return true;
    }
    return false;
}

uint32_t splits_choices(Arena *a, const Layout *l, const Plan *plan, OpId o, CutChoice **out)
{
    uint32_t n = layout_choices(a, l, o, AXIS_tp, out), left = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!is_kept(plan, op_of(l->g, o)->path, (*out)[i].name))
            (*out)[left++] = (*out)[i];
    return left;
}

bool splits_given(Arena *a, Diags *ds, const Plan *plan, Layout *l)
{
    Layout given;
    if (plan->nrule == 0 || l->grid.n == 0)
        return true;
    if (layout_read(a, ds, l->g, plan, &given) != OK)
        return false;
    for (uint32_t o = 0; o < l->g->nop; o++)
        for (uint32_t d = 0; l->g->op[o].phase == PHASE_FORWARD && d < l->grid.n; d++)
            if (l->grid.axis[d].axis != AXIS_tp)
                l->cut[o][d] = given.cut[o][d];
    return true;
}
