/* Pins: see pins.h. */
#include "planner/pins.h"

#include <string.h>

#include "base/text.h"

static const struct { const char *key, *text; } words[DECISIONS] = {
#define X(name, text) {#name, text},
    DECISION_LIST(X)
#undef X
};

const char *decision_text(Decision d)
{
    return words[d].text;
}

const char *decision_key(Decision d)
{
    return words[d].key;
}

/* ---- rules ---- */

static Choice one_value(Arena *a, int64_t v)
{
    Choice c = {.value = NEWN(a, int64_t, 1), .nvalue = 1};
    c.value[0] = v;
    return c;
}

Rule pin_mesh(Arena *a, MeshAxis axis, int64_t size)
{
    return (Rule){.kind = RULE_MESH, .axis = axis, .choice = one_value(a, size)};
}

Rule pin_number(Arena *a, const char *setting, int64_t value)
{
    return (Rule){.kind = RULE_SETTING, .name = setting, .choice = one_value(a, value)};
}

Rule pin_word(const char *setting, const char *value)
{
    return (Rule){.kind = RULE_SETTING, .name = setting, .text = value};
}

Rule pin_shard(MeshAxis axis)
{
    return (Rule){.kind = RULE_SHARD, .state = STATE_OPTIMIZER, .by = {.axis = {axis}, .n = 1}};
}

static Path path_of(Arena *a, const char *repeat, int64_t round)
{
    Path p = {.at = NOWHERE};
    PUSH(a, p.step, p.nstep, (PathStep){.name = repeat});
    if (round >= 0)
        PUSH(a, p.step, p.nstep, ((PathStep){.first = round, .last = round}));
    return p;
}

Rule pin_recompute(Arena *a, const char *repeat, RecomputePolicy policy)
{
    return (Rule){.kind = RULE_RECOMPUTE, .path = path_of(a, repeat, -1), .policy = policy};
}

Rule pin_stage(Arena *a, const char *repeat, int64_t round)
{
    return (Rule){.kind = RULE_STAGE_BEFORE, .path = path_of(a, repeat, round)};
}

Rule pin_split(Arena *a, const char *name, MeshAxis axis)
{
    Rule r = {.kind = RULE_SPLIT, .nnames = 1, .by = {.axis = {axis}, .n = 1}};
    r.names = NEWN(a, const char *, 1);
    r.name_at = NEWN(a, Span, 1);
    r.names[0] = name;
    return r;
}

/* ---- which decision a rule belongs to ---- */

static bool is_position(const Graph *g, const char *name)
{
    for (uint32_t v = 0; v < g->nvalue; v++)
        for (uint8_t x = 0; g->value[v].role == ROLE_INPUT && x < g->value[v].rank; x++) {
            DimId d = g->value[v].axis[x];
            if (!same_dim(d, g->batch) && strcmp(dim_of(g, d)->name, name) == 0)
                return true;
        }
    return false;
}

static bool by_axis(const Plan *p, const Rule *r, MeshAxis axis)
{
    for (int i = 0; i < r->by.n; i++)
        if (r->by.axis[i] == axis && p->mesh[axis] > 1)
            return true;
    return false;
}

static bool splits_positions(const Graph *g, const Rule *r)
{
    for (uint32_t k = 0; k < r->nnames; k++)
        if (!is_position(g, r->names[k]))
            return false;
    return true;
}

/* Whether something but positions is split by tp. */
static bool splits_ops_by_tp(const Graph *g, const Plan *p)
{
    for (uint32_t i = 0; i < p->nrule; i++)
        if (p->rule[i].kind == RULE_SPLIT && by_axis(p, &p->rule[i], AXIS_tp) && !splits_positions(g, &p->rule[i]))
            return true;
    return false;
}

/* When a mesh axis is given its size. */
static Decision axis_decision(const Graph *g, const Plan *p, MeshAxis axis)
{
    return axis == AXIS_pp ? DECIDE_stages : axis == AXIS_cp ? DECIDE_context : axis == AXIS_ep ? DECIDE_expert
         : axis == AXIS_dp ? DECIDE_data : splits_ops_by_tp(g, p) ? DECIDE_tensor : DECIDE_sequence;
}

static Decision split_decision(const Graph *g, const Plan *p, const Rule *r)
{
    if (by_axis(p, r, AXIS_tp))
        return splits_positions(g, r) ? DECIDE_sequence : DECIDE_tensor;
    return by_axis(p, r, AXIS_cp) ? DECIDE_context : by_axis(p, r, AXIS_ep) ? DECIDE_expert : DECIDE_splits;
}

/* The first decision that splits something, for what is said about splits. */
static Decision first_split(const Graph *g, const Plan *p)
{
    Decision first = DECIDE_splits;
    for (uint32_t i = 0; i < p->nrule; i++) {
        Decision d = p->rule[i].kind == RULE_SPLIT ? split_decision(g, p, &p->rule[i]) : first;
        first = d < first ? d : first;
    }
    return first;
}

static Decision rule_decision(const Graph *g, const Plan *p, const Rule *r)
{
    switch (r->kind) {
    case RULE_STAGE_BEFORE: case RULE_STAGE_AFTER: case RULE_STAGE_EVERY:
        return DECIDE_stages;
    case RULE_SPLIT:
        return split_decision(g, p, r);
    case RULE_KEEP: case RULE_PAD:
        return first_split(g, p);
    case RULE_SHARD:
        return DECIDE_shard;
    default:
        return DECIDE_recompute;
    }
}

/* ---- the rules ---- */

typedef struct Pins { Arena *arena; const Graph *g; const Plan *p; unsigned decisions; Rules *rules; } Pins;

static bool taken(const Pins *x, Decision d)
{
    return x->decisions >> d & 1;
}

static void add(Pins *x, Rule r)
{
    PUSH(x->arena, x->rules->rule, x->rules->nrule, r);
}

/* Axes that have no size yet are left to dp. */
static void add_mesh(Pins *x)
{
    int64_t rest = x->p->ndevices;
    bool all = true;
    for (int k = 0; k < MESH_AXES; k++) {
        bool given = k != AXIS_dp && taken(x, axis_decision(x->g, x->p, (MeshAxis)k));
        all &= given || k == AXIS_dp || x->p->mesh[k] == 1;
        rest /= given ? x->p->mesh[k] : 1;
    }
    for (int k = 0; k < MESH_AXES; k++) {
        bool given = taken(x, axis_decision(x->g, x->p, (MeshAxis)k));
        Rule r = pin_mesh(x->arena, (MeshAxis)k, k == AXIS_dp ? rest : given ? x->p->mesh[k] : 1);
        if (x->p->outer[k] && given && (k != AXIS_dp || all)) {
            r.outer = x->p->outer[k];
            r.inner = x->p->mesh[k] / r.outer;
        }
        add(x, r);
    }
}

static bool is_ascending(const Plan *p)
{
    for (uint32_t i = 1; i < p->ndevices; i++)
        if (p->devices[i] < p->devices[i - 1])
            return false;
    return true;
}

/* In ascending order before the order is decided on. */
static void add_devices(Pins *x)
{
    Rule r = {.kind = RULE_SETTING, .name = "devices"};
    for (uint32_t i = 0; i < x->p->ndevices; i++) {
        PUSH(x->arena, r.choice.value, r.choice.nvalue, x->p->devices[i]);
        for (uint32_t k = i; !taken(x, DECIDE_order) && k > 0 && r.choice.value[k - 1] > r.choice.value[k]; k--) {
            int64_t v = r.choice.value[k];
            r.choice.value[k] = r.choice.value[k - 1];
            r.choice.value[k - 1] = v;
        }
    }
    add(x, r);
}

static void add_settings(Pins *x)
{
    if (taken(x, DECIDE_micro))
        add(x, pin_number(x->arena, "microbatches", x->p->microbatches));
    if (taken(x, DECIDE_schedule) && x->p->mesh[AXIS_pp] > 1)
        add(x, pin_word("schedule", x->p->schedule));
    if (taken(x, DECIDE_bucket) && has_value(x->g->loss))
        add(x, pin_number(x->arena, "bucket", x->p->bucket));
    if (taken(x, DECIDE_server) && x->p->server)
        add(x, pin_word("sync", "server"));
}

Rules *pins_some(Arena *a, const Graph *g, const Plan *p, unsigned decisions)
{
    Pins x = {a, g, p, decisions, NEW(a, Rules)};
    add_mesh(&x);
    add_devices(&x);
    add_settings(&x);
    for (uint32_t i = 0; i < p->nrule; i++)
        if (taken(&x, rule_decision(g, p, &p->rule[i])))
            add(&x, p->rule[i]);
    return x.rules;
}

Rules *pins_of(Arena *a, const Graph *g, const Plan *p)
{
    return pins_some(a, g, p, ALL_DECISIONS);
}

const char *pins_text(Arena *a, const Rules *r)
{
    Text t = text_new(a);
    for (uint32_t i = 0; i < r->nrule; i++)
        text_add(&t, "%s%s", i ? "; " : "", rule_text(a, &r->rule[i]));
    return t.s;
}

const char *pins_brief(Arena *a, const Rules *r)
{
    enum { NAMED = 4 };
    Text t = text_new(a);
    uint32_t splits = 0;
    for (uint32_t i = 0; i < r->nrule; i++)
        if (r->rule[i].kind != RULE_SPLIT || ++splits <= NAMED)
            text_add(&t, "%s%s", t.n ? "; " : "", rule_text(a, &r->rule[i]));
    return splits > NAMED ? arena_printf(a, "%s; %u more splits", t.s, splits - NAMED) : t.s;
}

const char *pins_positions(const Graph *g)
{
    for (uint32_t v = 0; v < g->nvalue; v++)
        if (g->value[v].role == ROLE_INPUT && g->value[v].rank > 1 && g->value[v].dtype == DT_i32)
            return dim_of(g, g->value[v].axis[1])->name;
    return NULL;
}

bool rule_splits_by(const Rule *r, MeshAxis axis)
{
    for (int k = 0; r->kind == RULE_SPLIT && k < r->by.n; k++)
        if (r->by.axis[k] == axis)
            return true;
    return false;
}

bool splits_by(const Rules *r, MeshAxis axis)
{
    for (uint32_t i = 0; i < r->nrule; i++)
        if (rule_splits_by(&r->rule[i], axis))
            return true;
    return false;
}

/* ---- in a few words ---- */

/* Each axis name that the decision's splits name, once. */
static const char *split_names(Arena *a, const Graph *g, const Plan *p, Decision d)
{
    Text t = text_new(a);
    const char **seen = NULL;
    uint32_t nseen = 0;
    for (uint32_t i = 0; i < p->nrule; i++) {
        const Rule *r = &p->rule[i];
        for (uint32_t k = 0; r->kind == RULE_SPLIT && split_decision(g, p, r) == d && k < r->nnames; k++) {
            bool have = false;
            for (uint32_t s = 0; s < nseen; s++)
                have |= strcmp(seen[s], r->names[k]) == 0;
            if (have)
                continue;
            PUSH(a, seen, nseen, r->names[k]);
            text_add(&t, "%s%s", t.n ? ", " : "", r->names[k]);
        }
    }
    return t.s;
}

static const char *over_names(Arena *a, const Graph *g, const Plan *p, Decision d, MeshAxis axis)
{
    const char *names = split_names(a, g, p, d);
    bool sized = axis_decision(g, p, axis) == d;
    if (p->mesh[axis] == 1 || (!sized && !*names))
        return "";
    return sized ? arena_printf(a, "%s = %lld over %s", mesh_axis_name(axis), (long long)p->mesh[axis], names)
                 : arena_printf(a, "%s over %s too", mesh_axis_name(axis), names);
}

/* The plan's own rules of a decision: "recompute h full; save h.mlp.up". */
static const char *rules_text(Arena *a, const Graph *g, const Plan *p, Decision d)
{
    Text t = text_new(a);
    for (uint32_t i = 0; i < p->nrule; i++)
        if (rule_decision(g, p, &p->rule[i]) == d)
            text_add(&t, "%s%s", t.n ? "; " : "", rule_text(a, &p->rule[i]));
    return t.s;
}

static const char *setting_text(Arena *a, const Graph *g, const Plan *p, Decision d)
{
    bool used = d == DECIDE_micro    ? p->microbatches > 1
              : d == DECIDE_schedule ? p->mesh[AXIS_pp] > 1 && strcmp(p->schedule, "1f1b") != 0
              : d == DECIDE_bucket   ? p->bucket != DEFAULT_BUCKET && has_value(g->loss)
              : d == DECIDE_server   ? p->server : !is_ascending(p);
    if (!used)
        return "";
    return d == DECIDE_micro    ? arena_printf(a, "microbatches = %lld", (long long)p->microbatches)
         : d == DECIDE_schedule ? arena_printf(a, "schedule = \"%s\"", p->schedule)
         : d == DECIDE_bucket   ? arena_printf(a, "bucket = %s", text_bytes(a, p->bucket))
         : d == DECIDE_server   ? "sync = \"server\"" : "the devices in another order";
}

const char *pins_decision(Arena *a, const Graph *g, const Plan *p, Decision d)
{
    switch (d) {
    case DECIDE_data:
        return p->ndevices > 1 ? arena_printf(a, "dp = %u", p->ndevices) : "one device";
    case DECIDE_stages:
        return p->mesh[AXIS_pp] > 1 ? arena_printf(a, "pp = %lld", (long long)p->mesh[AXIS_pp]) : "";
    case DECIDE_tensor: case DECIDE_sequence:
        return over_names(a, g, p, d, AXIS_tp);
    case DECIDE_context:
        return over_names(a, g, p, d, AXIS_cp);
    case DECIDE_expert:
        return over_names(a, g, p, d, AXIS_ep);
    case DECIDE_splits: case DECIDE_shard: case DECIDE_recompute:
        return rules_text(a, g, p, d);
    default:
        return setting_text(a, g, p, d);
    }
}
