/* rules: the elaboration of `plan` items.  A rule is checked here as far as model
 * and rules alone can tell: that its axes, paths and settings exist, and that what
 * is pinned divides.  Whether it can be met is the planner's to say. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"
#include "frontend/elsewhere.h"
#include "ir/split.h"

typedef struct Reader {
    Elab        *e;
    Scope       *scope;               /* empty: rules know numbers, not the model's names */
    const Graph *g;
    Arena       *arena;
    Rules       *out;
    bool         resolved;            /* in a `plan NAME on CLUSTER` */
} Reader;

/* ---- names of the model ---- */

static const Dim *find_axis(const Graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->ndim; i++)
        if (strcmp(g->dim[i].name, name) == 0)
            return &g->dim[i];
    return NULL;
}

static void check_axis(Reader *r, const Node *name)
{
    if (find_axis(r->g, name->text))
        return;
    const char **pool = NULL;
    uint32_t n = 0;
    Text all = text_new(r->arena);
    for (uint32_t i = 0; i < r->g->ndim; i++) {
        PUSH(r->arena, pool, n, r->g->dim[i].name);
        if (find_axis(r->g, pool[i]) == &r->g->dim[i])       /* blocks may have one of the same name */
            text_add(&all, "%s%s", i ? ", " : "", pool[i]);
    }
    Diag *e = fail(r->e, name->at, "no axis named '%s' in model '%s'%s", name->text, r->g->name, did_you_mean(r->e, name->text, pool, n));
    diag_help(r->e->ds, e, "its axes are %s", all.s);
}

static bool any_path(const Reader *r, const Path *p)
{
    for (uint32_t i = 0; i < r->g->nop; i++)
        if (path_matches(p, r->g->op[i].path))
            return true;
    for (uint32_t i = 0; i < r->g->nweight; i++)
        if (path_matches(p, value_of(r->g, r->g->weight[i].value)->path))
            return true;
    return false;
}

/* Rounds of the repeat that the first `n` steps name; 0 when it is none. */
static int64_t count_rounds(const Reader *r, Path p, uint32_t n)
{
    PathStep *step = NEWN(r->arena, PathStep, n + 1);
    memcpy(step, p.step, sizeof *step * n);
    int64_t rounds = 0;
    for (;; rounds++) {
        step[n] = (PathStep){.first = rounds, .last = rounds};
        if (!any_path(r, &(Path){.step = step, .nstep = n + 1}))
            return rounds;
    }
}

static const char *path_text(Reader *r, const Path *p, uint32_t n)
{
    Span at = p->at;
    const char *text = sources_text(r->e->ds->sources, at);
    uint32_t steps = 0, end = 0;
    while (text[end] && steps <= n) {
        if (text[end] == '.' || text[end] == '[')
            steps++;
        if (steps < n)
            end++;
        else
            break;
    }
    return arena_strndup(r->arena, text, n >= p->nstep ? strlen(text) : end);
}

/* A path must name something, and so must every round of its ranges; where a round
 * is out of range, say which exist. */
static void check_path(Reader *r, const Path *p)
{
    for (uint32_t i = 1; i < p->nstep; i++) {
        if (p->step[i].name)
            continue;
        int64_t n = count_rounds(r, *p, i);
        if (n > 0 && p->step[i].last >= n) {
            fail(r->e, p->at, "nothing at '%s': %s", path_text(r, p, p->nstep), rounds_text(r->e->arena, path_text(r, p, i), n));
            return;
        }
    }
    if (p->nstep && !any_path(r, p))
        fail(r->e, p->at, "nothing at '%s' in model '%s'%s", path_text(r, p, p->nstep), r->g->name, near_step(r->e, r->g, p));
}

/* Kv heads are split with the query heads that read them, so they go by their name too. */
static bool serves(const Graph *g, DimId kv, const char *heads)
{
    for (uint32_t o = 0; o < g->nop; o++) {
        const Op *op = &g->op[o];
        bool here = false, named = false;
        for (uint32_t k = 0; op->kind == OP_attention && k < op->nfactor; k++) {
            here |= op->factor[k].role == 'g' && same_dim(op->factor[k].dim, kv);
            named |= op->factor[k].role == 'h' && strcmp(dim_of(g, op->factor[k].dim)->name, heads) == 0;
        }
        if (here && named)
            return true;
    }
    return false;
}

static bool op_has_axis(const Reader *r, const Op *op, const char *axis)
{
    for (uint32_t k = 0; k < op->nfactor; k++)
        if (strcmp(dim_of(r->g, op->factor[k].dim)->name, axis) == 0 || serves(r->g, op->factor[k].dim, axis))
            return true;
    return false;
}

/* A rule on axes must take at least one op; without a path any axis has one. */
static void check_taken(Reader *r, const Rule *rule)
{
    for (uint32_t k = 0; k < rule->nnames; k++)
        if (!find_axis(r->g, rule->names[k]))
            return;                      /* reported already */
    for (uint32_t i = 0; i < r->g->nop; i++)
        for (uint32_t k = 0; k < rule->nnames && path_matches(&rule->path, r->g->op[i].path); k++)
            if (op_has_axis(r, &r->g->op[i], rule->names[k]))
                return;
    if (rule->path.nstep && any_path(r, &rule->path))
        fail(r->e, rule->name_at[0], "nothing at '%s' has an axis '%s'%s", path_text(r, &rule->path, rule->path.nstep),
             rule->names[0], rule->nnames > 1 ? " or any other named here" : "");
}

/* ---- pieces of rules ---- */

static Path read_path(Reader *r, const Node *n)
{
    Path p = {.at = n->at};
    if (node_absent(n))
        return p;
    for (uint32_t i = 0; i < n->nkid; i++) {
        const Node *k = n->kid[i];
        PathStep s = {.name = k->kind == N_NAME ? k->text : NULL};
        if (k->kind != N_NAME) {
            s.first = k->kid[0]->ival;
            s.last = k->kind == N_INDICES ? k->kid[1]->ival : s.first;
            if (s.last < s.first) {
                fail(r->e, k->at, "rounds %lld..%lld: the last is before the first", (long long)s.first, (long long)s.last);
                s.last = s.first;
            }
        }
        PUSH(r->arena, p.step, p.nstep, s);
    }
    check_path(r, &p);
    return p;
}

static MeshAxis read_axis(Reader *r, const Node *name)
{
    MeshAxis a = mesh_axis_find(name->text);
    if (a == MESH_AXES)
        fail(r->e, name->at, "no mesh axis named '%s'; the mesh axes are pp, dp, cp, ep and tp", name->text);
    return a;
}

static MeshRef read_mref(Reader *r, const Node *n)
{
    MeshRef ref = {0};
    for (uint32_t i = 0; i < n->nkid; i++) {
        const Node *part = n->kid[i]->kid[1];
        MeshPart p = node_absent(part) ? PART_WHOLE : strcmp(part->text, "outer") == 0 ? PART_OUTER : PART_INNER;
        if (!node_absent(part) && strcmp(part->text, "outer") != 0 && strcmp(part->text, "inner") != 0)
            fail(r->e, part->at, "a mesh axis has the parts 'outer' and 'inner', not '%s'", part->text);
        MeshAxis a = read_axis(r, n->kid[i]->kid[0]);
        if (a == MESH_AXES)
            continue;
        if (ref.n == sizeof ref.axis / sizeof *ref.axis) {
            fail(r->e, n->at, "more than %zu mesh axes", sizeof ref.axis / sizeof *ref.axis);
            return ref;
        }
        ref.axis[ref.n] = a;
        ref.part[ref.n++] = p;
    }
    return ref;
}

static void add_choice(Reader *r, Choice *c, int64_t v)
{
    PUSH(r->arena, c->value, c->nvalue, v);
}

enum { SIZE_LIMIT = 1 << 20 };

/* Numbers of a list, lists inside it included. */
static void read_list(Reader *r, const Node *n, const char *what, int64_t least, Choice *c)
{
    Term t;
    if (n->kind == N_LIST) {
        for (uint32_t i = 0; i < n->nkid; i++)
            read_list(r, n->kid[i], what, least, c);
        return;
    }
    if (eval_whole(r->e, r->scope, n, what, least, SIZE_LIMIT, &t))
        add_choice(r, c, t.i);
}

/* Whether lists that stand beside each other are alike. */
static bool is_even(const Node *n)
{
    for (uint32_t i = 0; n->kind == N_LIST && i < n->nkid; i++)
        if (n->kid[i]->kind != n->kid[0]->kind || (n->kid[i]->kind == N_LIST && n->kid[i]->nkid != n->kid[0]->nkid) || !is_even(n->kid[i]))
            return false;
    return true;
}

/* A number, a list, a range, or auto. */
static Choice read_choice(Reader *r, const Node *n, const char *what, int64_t least)
{
    Choice c = {0};
    if (n->kind == N_AUTO) {
        c.any = true;
        return c;
    }
    if (n->kind != N_RANGE) {
        read_list(r, n, what, least, &c);
        return c;
    }
    Term lo, hi;
    if (!eval_whole(r->e, r->scope, n->kid[0], what, least, SIZE_LIMIT, &lo) ||
        !eval_whole(r->e, r->scope, n->kid[1], what, least, SIZE_LIMIT, &hi))
        return c;
    if (hi.i < lo.i)
        fail(r->e, n->at, "%s: the range %lld..%lld is empty", what, (long long)lo.i, (long long)hi.i);
    for (int64_t v = lo.i; v <= hi.i; v++)
        add_choice(r, &c, v);
    return c;
}

static void read_names(Reader *r, const Node *n, Rule *rule)
{
    for (uint32_t i = 0; i < n->nkid; i++) {
        uint32_t at = rule->nnames;
        check_axis(r, n->kid[i]);
        PUSH(r->arena, rule->name_at, at, n->kid[i]->at);
        PUSH(r->arena, rule->names, rule->nnames, n->kid[i]->text);
    }
}

/* ---- rules with a vocabulary of their own ---- */

typedef struct Word { const char *name; int value; } Word;

static int read_word(Reader *r, const Node *n, const char *what, const Word *word, uint32_t nword)
{
    const char *pool[8];
    for (uint32_t i = 0; i < nword; i++) {
        if (strcmp(word[i].name, n->text) == 0)
            return word[i].value;
        pool[i] = word[i].name;
    }
    Text all = text_new(r->arena);
    for (uint32_t i = 0; i < nword; i++)
        text_add(&all, "%s'%s'", i == 0 ? "" : i + 1 == nword ? " or " : ", ", word[i].name);
    fail(r->e, n->at, "%s is %s, not '%s'%s", what, all.s, n->text, did_you_mean(r->e, n->text, pool, nword));
    return word[0].value;
}

static const Word state_words[] = {{"optimizer", STATE_OPTIMIZER}, {"gradients", STATE_GRADIENTS}, {"weights", STATE_WEIGHTS}};
static const Word policy_words[] = {{"full", RECOMPUTE_FULL}, {"attention", RECOMPUTE_ATTENTION}, {"cheap", RECOMPUTE_CHEAP}};
static const Word host_words[] = {{"host", 0}};
#define WORDS(w) (w), sizeof(w) / sizeof *(w)

static void unknown_setting(Reader *r, const Node *name, const char *const *known, size_t nknown)
{
    const char *help = elsewhere_setting(name->text);
    Diag *d = fail(r->e, name->at, "plans have no setting '%s'%s", name->text, help ? "" : did_you_mean(r->e, name->text, known, nknown));
    if (help)
        diag_help(r->e->ds, d, "%s", help);
}

/* A string; "": it is none, or a name, which is none of a model's. */
static const char *read_text(Reader *r, const Node *value)
{
    Term t = value->kind == N_NAME ? POISON : eval(r->e, r->scope, value);
    return t.kind == TERM_STRING ? t.s : "";
}

static void read_setting(Reader *r, const Node *body, Rule *rule)
{
    static const char *const names[] = {"microbatches", "schedule", "chunks", "bucket", "devices", "sync"};
    const Node *name = body->kid[0], *value = body->kid[1];
    rule->name = name->text;
    if (strcmp(name->text, "microbatches") == 0 || strcmp(name->text, "chunks") == 0) {
        rule->choice = read_choice(r, value, name->text, 1);
    } else if (strcmp(name->text, "devices") == 0) {
        rule->choice = read_choice(r, value, "a device", 0);
        if (!is_even(value))
            fail(r->e, value->at, "lists of devices beside each other differ in length, but every place of a mesh has one device");
    } else if (strcmp(name->text, "bucket") == 0) {
        double bytes;
        if (!eval_quantity(r->e, r->scope, value, "bucket", UNIT_BYTES, 1, &bytes))
            return;
        if (bytes > floor(bytes))
            fail(r->e, value->at, "bucket must be a whole number of bytes, but it is %g B", bytes);
        add_choice(r, &rule->choice, (int64_t)bytes);
    } else if (strcmp(name->text, "schedule") == 0) {
        rule->text = read_text(r, value);
        if (strcmp(rule->text, "1f1b") != 0 && strcmp(rule->text, "gpipe") != 0)
            fail(r->e, value->at, "the schedule is \"1f1b\" or \"gpipe\", not %s", sources_text(r->e->ds->sources, value->at));
    } else if (strcmp(name->text, "sync") == 0) {
        rule->text = read_text(r, value);
        if (strcmp(rule->text, "server") != 0)
            fail(r->e, value->at, "sync is \"server\" where it is given, not %s", sources_text(r->e->ds->sources, value->at));
    } else {
        unknown_setting(r, name, names, sizeof names / sizeof *names);
    }
}

static void read_mesh_axis(Reader *r, const Node *n, Rule *rule)
{
    const Node *value = n->kid[1];
    rule->kind = RULE_MESH;
    rule->at = n->at;
    rule->axis = read_axis(r, n->kid[0]);
    if (value->kind != N_FACTORED) {
        rule->choice = read_choice(r, value, n->kid[0]->text, 1);
        return;
    }
    Term outer, inner;
    if (!eval_whole(r->e, r->scope, value->kid[0], n->kid[0]->text, 1, SIZE_LIMIT, &outer) ||
        !eval_whole(r->e, r->scope, value->kid[1], n->kid[0]->text, 1, SIZE_LIMIT, &inner))
        return;
    rule->outer = outer.i;
    rule->inner = inner.i;
    add_choice(r, &rule->choice, outer.i * inner.i);
}

/* ---- one rule ---- */

static void add_rule(Reader *r, Rule rule)
{
    rule.resolved = r->resolved;
    PUSH(r->arena, r->out->rule, r->out->nrule, rule);
}

static void read_meshes(Reader *r, const Node *mesh, bool soft, int64_t stage)
{
    for (uint32_t i = 0; i < mesh->nkid; i++) {
        Rule rule = {.soft = soft};
        read_mesh_axis(r, mesh->kid[i], &rule);
        if (stage >= 0)
            rule.kind = RULE_STAGE_MESH;
        rule.number = stage;
        if (rule.axis != MESH_AXES)
            add_rule(r, rule);
    }
}

/* Parts of a split are contiguous, which may be said. */
static void check_order(Reader *r, const Node *n)
{
    if (node_absent(n) || strcmp(n->text, "contiguous") == 0)
        return;
    if (strcmp(n->text, "zigzag") == 0)
        fail(r->e, n->at, "the zigzag order of a split is not available in this version: its parts are contiguous");
    else
        fail(r->e, n->at, "expected the end of the rule before '%s'", n->text);
}

static void read_body(Reader *r, const Node *b, Rule rule)
{
    switch (b->kind) {
    case N_SPLIT:
        rule.kind = RULE_SPLIT;
        read_names(r, b->kid[0], &rule);
        rule.path = read_path(r, b->kid[1]);
        rule.by = read_mref(r, b->kid[2]);
        check_order(r, b->kid[3]);
        check_taken(r, &rule);
        break;
    case N_KEEP:
        rule.kind = RULE_KEEP;
        read_names(r, b->kid[0], &rule);
        rule.path = read_path(r, b->kid[1]);
        check_taken(r, &rule);
        break;
    case N_PAD:
        rule.kind = RULE_PAD;
        rule.name = b->kid[0]->text;
        rule.number = b->kid[1]->ival;
        check_axis(r, b->kid[0]);
        if (rule.number < 1)
            fail(r->e, b->kid[1]->at, "expected a multiple of at least 1, not %lld", (long long)rule.number);
        break;
    case N_STAGEBEFORE: case N_STAGEAFTER:
        rule.kind = b->kind == N_STAGEBEFORE ? RULE_STAGE_BEFORE : RULE_STAGE_AFTER;
        rule.path = read_path(r, b->kid[0]);
        break;
    case N_STAGEEVERY:
        rule.kind = RULE_STAGE_EVERY;
        rule.number = b->kid[0]->ival;
        rule.path = read_path(r, b->kid[1]);
        if (rule.number < 1)
            fail(r->e, b->kid[0]->at, "expected at least 1 round a stage, not %lld", (long long)rule.number);
        break;
    case N_RECOMPUTE:
        rule.kind = RULE_RECOMPUTE;
        rule.path = read_path(r, b->kid[0]);
        rule.policy = node_absent(b->kid[1]) ? RECOMPUTE_FULL
                    : (RecomputePolicy)read_word(r, b->kid[1], "a recompute policy", WORDS(policy_words));
        break;
    case N_SAVE:
        rule.kind = RULE_SAVE;
        rule.path = read_path(r, b->kid[0]);
        break;
    case N_SHARD:
        rule.kind = RULE_SHARD;
        rule.state = (StateClass)read_word(r, b->kid[0], "what is sharded", WORDS(state_words));
        rule.by = read_mref(r, b->kid[1]);
        break;
    case N_OFFLOAD:
        rule.kind = RULE_OFFLOAD;
        rule.state = (StateClass)read_word(r, b->kid[0], "what is offloaded", WORDS(state_words));
        read_word(r, b->kid[1], "the place to offload to", WORDS(host_words));
        break;
    case N_SET:
        rule.kind = RULE_SET;
        rule.name = b->kid[0]->text;
        rule.text = sources_text(r->e->ds->sources, b->kid[1]->at);
        break;
    case N_SETTING:
        rule.kind = RULE_SETTING;
        read_setting(r, b, &rule);
        break;
    default:
        assert(false && "a rule of a kind the parser does not make");
    }
    add_rule(r, rule);
}

static void read_rule(Reader *r, const Node *n)
{
    const Node *body = n->kid[1];
    bool soft = !node_absent(n->kid[0]);
    if (body->kind == N_MESH) {
        read_meshes(r, body, soft, -1);
    } else if (body->kind == N_STAGEMESH) {
        for (uint32_t i = 1; i < body->nkid; i++)
            read_meshes(r, body->kid[i], soft, body->kid[0]->ival);
    } else {
        if (soft && body->kind == N_SET)
            fail(r->e, body->at, "the model's own numbers are not the planner's to choose; write this without 'prefer'");
        read_body(r, body, (Rule){.soft = soft, .at = body->at});
    }
}

/* ---- checks between rules ---- */

/* The one size a mesh axis is pinned to, or 0; *where is the rule. */
static int64_t pinned_size(const Rules *rules, MeshAxis a, const Rule **where)
{
    for (uint32_t i = 0; i < rules->nrule; i++) {
        const Rule *x = &rules->rule[i];
        if (x->kind == RULE_MESH && !x->soft && x->axis == a && x->choice.nvalue == 1) {
            *where = x;
            return x->choice.value[0];
        }
    }
    return 0;
}

static int64_t pad_of(const Rules *rules, const char *axis)
{
    for (uint32_t i = 0; i < rules->nrule; i++)
        if (rules->rule[i].kind == RULE_PAD && strcmp(rules->rule[i].name, axis) == 0)
            return rules->rule[i].number;
    return 1;
}

/* Kv heads may be fewer than the ranks that split them: they are split over a
 * factor and whole over the rest, if the query heads divide (DESIGN 3). */
static bool is_kv_heads(const Graph *g, const Dim *d, int64_t size)
{
    for (uint32_t i = 0; i < g->nop; i++) {
        const Op *op = &g->op[i];
        bool kv = false, divides = false;
        for (uint32_t k = 0; op->kind == OP_attention && k < op->nfactor; k++) {
            kv |= op->factor[k].role == 'g' && dim_of(g, op->factor[k].dim) == d;
            divides |= op->factor[k].role == 'h' && dim_of(g, op->factor[k].dim)->extent % size == 0;
        }
        if (kv && divides)
            return true;
    }
    return false;
}

static void check_division(Reader *r, const Rule *rule, uint32_t k)
{
    const Rule *mesh = NULL;
    int64_t size = rule->by.n == 1 && rule->by.part[0] == PART_WHOLE ? pinned_size(r->out, rule->by.axis[0], &mesh) : 0;
    const Dim *d = find_axis(r->g, rule->names[k]);
    if (size <= 1 || !d || is_kv_heads(r->g, d, size))
        return;
    int64_t pad = pad_of(r->out, d->name), stored = (d->extent + pad - 1) / pad * pad, unit = padding_for(d->extent, pad, size);
    if (stored % size == 0)
        return;
    const char *by = mesh_axis_name(rule->by.axis[0]);
    Diag *e = fail(r->e, rule->name_at[k], "cannot split '%s' (%lld) evenly by %s (%lld)", d->name, (long long)stored, by, (long long)size);
    if (!e)
        return;
    diag_note(r->e->ds, e, mesh->at, "%s is %lld here", by, (long long)size);
    if (span_known(d->at))
        diag_note(r->e->ds, e, d->at, "'%s' is declared here", d->name);
    if (has_op(padding_obstacle(r->g, (DimId){(uint32_t)(d - r->g->dim)})))
        diag_help(r->e->ds, e, "%s", text_divisors(r->arena, d->extent));
    else
        diag_help(r->e->ds, e, "%s 'pad %s to %lld' to round it up to %lld; the padding never reaches the loss", pad > 1 ? "make it" : "add", d->name,
                  (long long)unit, (long long)((d->extent + unit - 1) / unit * unit));
}

static void check_rules(Reader *r)
{
    for (uint32_t i = 0; i < r->out->nrule; i++) {
        const Rule *rule = &r->out->rule[i];
        for (uint32_t k = 0; rule->kind == RULE_SPLIT && !rule->soft && k < rule->nnames; k++)
            check_division(r, rule, k);
    }
}

/* ---- plan items ---- */

static const Node *rules_of(const Node *item)
{
    return item->kid[item->kind == N_PLAN ? 1 : 2];
}

static void read_plan(Reader *r, const Node *item)
{
    const Node *model = item->kid[0], *rules = rules_of(item);
    if (!node_absent(model) && strcmp(model->text, r->g->name) != 0) {
        fail(r->e, model->at, "this plan is for model '%s', but the model is '%s'", model->text, r->g->name);
        return;
    }
    r->out->model = node_absent(model) ? NULL : model->text;
    r->out->at = item->at;
    r->resolved = item->kind == N_PLANON;
    if (r->resolved)
        r->out->cluster = item->kid[1]->text;
    for (uint32_t i = 0; i < rules->nkid; i++)
        read_rule(r, rules->kid[i]);
}

static bool is_plan(const Node *item)
{
    return item->kind == N_PLAN || item->kind == N_PLANON;
}

Status elaborate_rules(Diags *ds, const Units *units, const Graph *g, Arena *a, Rules **out)
{
    Elab e = {.ds = ds, .arena = ds->arena, .units = units};
    Reader r = {.e = &e, .g = g, .arena = a, .out = NEW(a, Rules)};
    r.scope = scope_new(&e, SCOPE_CLUSTER, "");
    const Node *file = units->unit[units->nunit - 1].root;
    for (uint32_t i = 0; i < file->nkid; i++)
        if (is_plan(file->kid[i]))
            read_plan(&r, file->kid[i]);
    check_rules(&r);
    fail_settle(&e);
    *out = r.out;
    return diags_status(ds);
}

void plan_sets(Diags *ds, const Units *units, Define **out, uint32_t *n)
{
    const Node *file = units->unit[units->nunit - 1].root;
    for (uint32_t i = 0; i < file->nkid; i++) {
        const Node *rules = is_plan(file->kid[i]) ? rules_of(file->kid[i]) : NULL;
        for (uint32_t k = 0; rules && k < rules->nkid; k++) {
            const Node *b = rules->kid[k]->kid[1];
            if (b->kind != N_SET)
                continue;
            Define d = {.name = b->kid[0]->text, .value = sources_text(ds->sources, b->kid[1]->at), .named = b->kid[0]->at,
                        .at = b->kid[1]->at, .node = b->kid[1]};
            PUSH(ds->arena, *out, *n, d);
        }
    }
}
