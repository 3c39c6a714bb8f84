/* Changes: see changes.h. */
#include "planner/changes.h"

#include <string.h>

#include "base/text.h"
#include "planner/chain.h"

/* ---- rules in place of others ---- */

static bool gives(const Rules *r, RuleKind kind)
{
    for (uint32_t i = 0; i < r->nrule; i++)
        if (r->rule[i].kind == kind)
            return true;
    return false;
}

static bool gives_setting(const Rules *r, const char *name)
{
    for (uint32_t i = 0; i < r->nrule; i++)
        if (r->rule[i].kind == RULE_SETTING && strcmp(r->rule[i].name, name) == 0)
            return true;
    return false;
}

static bool gives_stages(const Rules *r)
{
    for (uint32_t i = 0; i < r->nrule; i++)
        if (rule_cuts(&r->rule[i]))
            return true;
    return false;
}

static bool gives_size(const Rules *r, MeshAxis axis)
{
    for (uint32_t i = 0; i < r->nrule; i++)
        if (r->rule[i].kind == RULE_MESH && r->rule[i].axis == axis)
            return true;
    return false;
}

/* The sizes that rules give, what they leave out being 1 and dp the rest; false: they leave a choice. */
static bool given_mesh(const Plan *p, const Rules *r, int64_t mesh[MESH_AXES])
{
    int64_t product = 1;
    bool dp = false;
    memcpy(mesh, p->mesh, sizeof p->mesh);
    for (int x = 0; x < MESH_AXES && gives(r, RULE_MESH); x++)
        mesh[x] = 1;
    for (uint32_t i = 0; i < r->nrule; i++) {
        const Rule *m = &r->rule[i];
        if (m->kind != RULE_MESH)
            continue;
        if (m->choice.any || m->choice.nvalue != 1)
            return false;
        mesh[m->axis] = m->choice.value[0];
        dp |= m->axis == AXIS_dp;
        if (__builtin_mul_overflow(product, mesh[m->axis], &product))
            return true;
    }
    if (gives(r, RULE_MESH) && !dp && p->ndevices % product == 0)
        mesh[AXIS_dp] = p->ndevices / product;
    return true;
}

/* Whether a mesh takes the plan's devices. */
static bool same_devices(const Plan *p, const Rules *given, const int64_t mesh[MESH_AXES])
{
    int64_t product = 1;
    for (int x = 0; x < MESH_AXES; x++)
        if (mesh[x] < 1 || __builtin_mul_overflow(product, mesh[x], &product))
            return false;
    return product == p->ndevices && !gives_setting(given, "devices");
}

/* Whether the given rules leave another one alone. */
static bool stands(const Plan *p, const Rules *given, const int64_t mesh[MESH_AXES], const Rule *r)
{
    switch (r->kind) {
    case RULE_MESH:
        return !gives(given, RULE_MESH);
    case RULE_SETTING:
        return strcmp(r->name, "devices") == 0 ? same_devices(p, given, mesh) : !gives_setting(given, r->name);
    case RULE_SPLIT: case RULE_KEEP:
        return !gives(given, RULE_MESH) || !gives(given, RULE_SPLIT);
    case RULE_PAD:
        return !gives(given, RULE_PAD);
    case RULE_STAGE_BEFORE: case RULE_STAGE_AFTER: case RULE_STAGE_EVERY:
        return !gives_stages(given);
    case RULE_SHARD:
        return !gives(given, RULE_SHARD);
    default:
        return !gives(given, RULE_RECOMPUTE) && !gives(given, RULE_SAVE);
    }
}

/* Whether a decision of the plan was for a mesh that changes. */
static bool followed(const Plan *p, const Rules *given, const int64_t mesh[MESH_AXES], const Rule *r)
{
    if (r->kind == RULE_SETTING)
        return strcmp(r->name, "microbatches") == 0 ? gives(given, RULE_MESH) : strcmp(r->name, "schedule") == 0 && mesh[AXIS_pp] == 1;
    return rule_cuts(r) && mesh[AXIS_pp] != p->mesh[AXIS_pp];
}

static const Segment *longest_repeat(const Chain *c)
{
    const Segment *best = NULL;
    for (uint32_t i = 0; i < c->npart; i++)
        if (c->part[i].rounds > 1 && (!best || c->part[i].rounds > best->rounds))
            best = &c->part[i];
    return best;
}

/* Stages of as equal numbers of rounds of the longest repeat as there can be. */
static void add_stages(Arena *a, const Graph *g, int64_t pp, Rules *to)
{
    Chain c = chain_read(a, g);
    const Segment *s = longest_repeat(&c);
    for (int64_t k = 1; s && k < pp && pp <= s->rounds; k++)
        PUSH(a, to->rule, to->nrule, pin_stage(a, s->scope, s->first + k * s->rounds / pp));
}

/* Sizes that follow from those given. */
static void add_sizes(Arena *a, const Rules *given, const int64_t mesh[MESH_AXES], Rules *to)
{
    for (int x = 0; x < MESH_AXES; x++)
        if (!gives_size(given, (MeshAxis)x))
            PUSH(a, to->rule, to->nrule, pin_mesh(a, (MeshAxis)x, mesh[x]));
}

/* What a mesh needs that nobody said: stages, and positions over cp. */
static void add_assumed(Arena *a, const Graph *g, const int64_t mesh[MESH_AXES], Rules *to)
{
    if (mesh[AXIS_pp] > 1 && !gives_stages(to))
        add_stages(a, g, mesh[AXIS_pp], to);
    if (mesh[AXIS_cp] > 1 && !splits_by(to, AXIS_cp) && pins_positions(g))
        PUSH(a, to->rule, to->nrule, pin_split(a, pins_positions(g), AXIS_cp));
}

Rules *changed_by(const Weigher *w, const Plan *p, const Rules *given, PlanUse *use, const char **assumed)
{
    Arena *a = w->arena;
    const Graph *g = w->request->graph;
    Rules *out = NEW(a, Rules), *own = pins_of(a, g, p);
    int64_t mesh[MESH_AXES];
    bool known = given_mesh(p, given, mesh);
    out->at = given->at;
    for (uint32_t i = 0; i < own->nrule; i++) {
        Rule kept = own->rule[i];
        kept.resolved = false;                       /* beside others it leaves open what they need */
        if (stands(p, given, mesh, &kept) && !followed(p, given, mesh, &kept))
            PUSH(a, out->rule, out->nrule, kept);
    }
    for (uint32_t i = 0; i < given->nrule; i++)
        PUSH(a, out->rule, out->nrule, given->rule[i]);
    if (known && gives(given, RULE_MESH) && same_devices(p, given, mesh))
        add_sizes(a, given, mesh, out);
    uint32_t first = out->nrule;
    if (known)
        add_assumed(a, g, mesh, out);
    *assumed = pins_text(a, &(Rules){.rule = out->rule + first, .nrule = out->nrule - first});
    *use = mesh[AXIS_tp] > 1 && !splits_by(out, AXIS_tp) ? USE_PLAN : USE_ESTIMATE;
    return out;
}

/* ---- what is asked about ---- */

/* What a search decides anew where a .plan wrote it out; devices are, where all are used. */
static bool is_searched(const Weigher *w, const Plan *p, const Rule *r)
{
    if (r->kind == RULE_SETTING)
        return strcmp(r->name, "microbatches") == 0 || strcmp(r->name, "schedule") == 0 ||
               (strcmp(r->name, "devices") == 0 && p->ndevices == w->request->cluster->ndevices);
    return r->kind == RULE_MESH || r->kind == RULE_SHARD || r->kind == RULE_RECOMPUTE || r->kind == RULE_SAVE || rule_cuts(r) ||
           rule_splits_by(r, AXIS_tp) || rule_splits_by(r, AXIS_cp);
}

/* Whether a rule of the user's is part of a question about another mesh. */
static bool is_asked_with(const Weigher *w, const Plan *p, const Rules *given, const int64_t mesh[MESH_AXES], const Rule *r)
{
    bool other_stages = gives_size(given, AXIS_pp) && mesh[AXIS_pp] != p->mesh[AXIS_pp];
    if (!stands(p, given, mesh, r) || (other_stages && rule_cuts(r)))
        return false;
    return !r->resolved || !is_searched(w, p, r);
}

Rules *asked_about(const Weigher *w, const Plan *p, const Rules *given, PlanUse *use)
{
    const Rules *own = w->request->rules;
    Rules *out = NEW(w->arena, Rules);
    int64_t mesh[MESH_AXES];
    const char *assumed;
    if (!gives(given, RULE_MESH) && !gives_stages(given))
        return changed_by(w, p, given, use, &assumed);
    if (!given_mesh(p, given, mesh))
        memcpy(mesh, p->mesh, sizeof mesh);
    out->at = given->at;
    for (uint32_t i = 0; i < own->nrule; i++) {
        Rule kept = own->rule[i];
        kept.resolved = false;                       /* beside others it leaves open what they need */
        if (is_asked_with(w, p, given, mesh, &own->rule[i]))
            PUSH(w->arena, out->rule, out->nrule, kept);
    }
    for (uint32_t i = 0; i < given->nrule; i++)
        PUSH(w->arena, out->rule, out->nrule, given->rule[i]);
    *use = USE_PLAN;
    return out;
}

/* ---- single changes ---- */

typedef struct Changes { const Weigher *w; Arena *arena; const Graph *g; const Plan *p; Change *change; uint32_t n; } Changes;

static Changes no_changes(const Weigher *w, const Plan *p)
{
    return (Changes){.w = w, .arena = w->arena, .g = w->request->graph, .p = p};
}

static void add(Changes *x, Decision d, const char *text, const Rules *given)
{
    Change c = {.decision = d, .text = text};
    c.rules = changed_by(x->w, x->p, given, &c.use, &c.assumed);
    PUSH(x->arena, x->change, x->n, c);
}

/* Programs grow with the number of micro-batches, and so does what is simulated of them. */
enum { MICROBATCHES_WEIGHED = 1 << 12 };

/* The most micro-batches that so many samples are weighed in. */
static int64_t most_microbatches(int64_t samples)
{
    int64_t m = samples < MICROBATCHES_WEIGHED ? samples : MICROBATCHES_WEIGHED;
    while (m > 1 && samples % m)
        m--;
    return m > 0 ? m : 1;
}

/* All numbers from `least` on that `samples` divide by; the largest where none is so large. */
static Rule microbatches_from(Arena *a, int64_t samples, int64_t least)
{
    Rule r = {.kind = RULE_SETTING, .name = "microbatches"};
    int64_t most = most_microbatches(samples);
    for (int64_t m = least < most ? least : most; m <= most; m++)
        if (samples % m == 0)
            PUSH(a, r.choice.value, r.choice.nvalue, m);
    return r;
}

/* Samples that a part of the batch has, where dp is so much smaller than the plan's. */
static int64_t samples_of(const Graph *g, const Plan *p, int64_t smaller)
{
    return graph_samples(g) / (p->mesh[AXIS_dp] / smaller * p->mesh[AXIS_ep]);
}

static Rules *recomputing(Arena *a, const Graph *g, RecomputePolicy policy)
{
    Rules *r = NEW(a, Rules);
    Chain c = chain_read(a, g);
    for (uint32_t i = 0; has_value(g->loss) && i < c.npart; i++)
        if (c.part[i].rounds > 1)
            PUSH(a, r->rule, r->nrule, pin_recompute(a, c.part[i].scope, policy));
    return r;
}

static bool has_op_kind(const Graph *g, OpKind kind)
{
    for (uint32_t o = 0; o < g->nop; o++)
        if (g->op[o].kind == kind)
            return true;
    return false;
}

static void add_recompute(Changes *x)
{
    bool attention = has_op_kind(x->g, OP_attention);
    for (int policy = attention ? RECOMPUTE_ATTENTION : RECOMPUTE_FULL; policy <= RECOMPUTE_FULL; policy++) {
        Rules *r = recomputing(x->arena, x->g, (RecomputePolicy)policy);
        if (r->nrule > 0)
            add(x, DECIDE_recompute, pins_text(x->arena, r), r);
    }
}

/* A mesh axis k times as large, dp so much smaller. */
static Rules *larger_axis(Arena *a, const Plan *p, MeshAxis axis, int64_t k)
{
    Rules *r = NEW(a, Rules);
    for (int x = 0; x < MESH_AXES; x++)
        PUSH(a, r->rule, r->nrule, pin_mesh(a, (MeshAxis)x, x == AXIS_dp ? p->mesh[x] / k : x == (int)axis ? p->mesh[x] * k : p->mesh[x]));
    return r;
}

/* The most that a mesh axis can have: stages are rounds of a repeat. */
static int64_t most_of(const Changes *x, MeshAxis axis)
{
    if (axis != AXIS_pp)
        return INT64_MAX;
    Chain c = chain_read(x->arena, x->g);
    const Segment *s = longest_repeat(&c);
    return s ? s->rounds : 1;
}

/* Micro-batches a stage, with which few of them wait for the others. */
enum { BATCHES_A_STAGE = 4 };

static void add_axis(Changes *x, Decision d, MeshAxis axis)
{
    int64_t dp = x->p->mesh[AXIS_dp], most = most_of(x, axis);
    for (int64_t k = 2; k <= dp; k++) {
        int64_t size = x->p->mesh[axis] * k;
        if (dp % k || size > most)
            continue;
        Rules *r = larger_axis(x->arena, x->p, axis, k);
        if (axis == AXIS_pp)
            PUSH(x->arena, r->rule, r->nrule, microbatches_from(x->arena, samples_of(x->g, x->p, k), BATCHES_A_STAGE * size));
        add(x, d, arena_printf(x->arena, "mesh %s = %lld, dp = %lld", mesh_axis_name(axis), (long long)size, (long long)(dp / k)), r);
    }
}

/* Whether other sizes of tp are weighed: splits are there, or can be chosen in seconds, which takes
 * minutes for experts. */
static bool may_split(const Graph *g, const Plan *p)
{
    return p->mesh[AXIS_tp] > 1 || !has_op_kind(g, OP_dispatch);
}

static bool has_rule(const Plan *p, RuleKind kind)
{
    return gives(&(Rules){.rule = p->rule, .nrule = p->nrule}, kind);
}

uint32_t changes_of(const Weigher *w, const Plan *p, Change **out)
{
    Arena *a = w->arena;
    const Graph *g = w->request->graph;
    Changes x = no_changes(w, p);
    Rule more = microbatches_from(a, samples_of(g, p, 1), p->microbatches + 1), shard = pin_shard(AXIS_dp);
    if (p->microbatches < most_microbatches(samples_of(g, p, 1)))
        add(&x, DECIDE_micro, "more micro-batches", &(Rules){.rule = &more, .nrule = 1});
    if (p->mesh[AXIS_dp] > 1 && has_value(g->loss) && optimizer_moments(&g->optimizer) > 0 && !has_rule(p, RULE_SHARD) && !p->server)
        add(&x, DECIDE_shard, rule_text(a, &shard), &(Rules){.rule = &shard, .nrule = 1});
    if (p->mesh[AXIS_tp] > 1 && pins_positions(g) && !*pins_decision(a, g, p, DECIDE_sequence)) {
        Rule seq = pin_split(a, pins_positions(g), AXIS_tp);
        add(&x, DECIDE_sequence, rule_text(a, &seq), &(Rules){.rule = &seq, .nrule = 1});
    }
    if (!has_rule(p, RULE_RECOMPUTE))
        add_recompute(&x);
    if (may_split(g, p))
        add_axis(&x, DECIDE_tensor, AXIS_tp);
    add_axis(&x, DECIDE_stages, AXIS_pp);
    if (pins_positions(g))
        add_axis(&x, DECIDE_context, AXIS_cp);
    *out = x.change;
    return x.n;
}

/* ---- neighbours ---- */

/* The plan without one of its decisions; without a part of its mesh the number of micro-batches, which
 * was for that, is chosen anew. */
static void add_without(Changes *x, Decision d)
{
    const char *adds = pins_decision(x->arena, x->g, x->p, d);
    unsigned others = ALL_DECISIONS & ~(1u << d);
    if (d < DECIDE_micro)
        others &= ~(1u << DECIDE_micro);
    if (*adds && d != DECIDE_data)
        PUSH(x->arena, x->change, x->n, ((Change){.decision = d, .without = true, .text = arena_printf(x->arena, "without %s", adds), .use = USE_ESTIMATE,
             .rules = pins_some(x->arena, x->g, x->p, others)}));
}

uint32_t neighbours(const Weigher *w, const Plan *p, Change **out)
{
    Changes x = no_changes(w, p);
    Change *more;
    uint32_t n = changes_of(w, p, &more);
    for (int d = 0; d < DECISIONS; d++)
        add_without(&x, (Decision)d);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || more[i].decision != more[i - 1].decision || more[i].decision == DECIDE_recompute)
            PUSH(w->arena, x.change, x.n, more[i]);
    for (uint32_t i = 0; i < x.n; i++)
        x.change[i].weighed = weigh(w, x.change[i].rules, x.change[i].use);
    *out = x.change;
    return x.n;
}

/* ---- what makes it fit ---- */

/* Where no rule gives their number, all were tried. */
static bool was_tried(const Weigher *w, const Change *c)
{
    return c->decision == DECIDE_micro && !gives_setting(w->request->rules, "microbatches");
}

int64_t change_needs(const Change *c)
{
    return c->weighed.figures.map + c->weighed.figures.reserve;
}

static int64_t size_of(const Rules *r, MeshAxis axis)
{
    for (uint32_t i = 0; i < r->nrule; i++)
        if (r->rule[i].kind == RULE_MESH && r->rule[i].axis == axis && r->rule[i].choice.nvalue == 1)
            return r->rule[i].choice.value[0];
    return 1;
}

/* The same rules with as many micro-batches as there can be, which need the least memory. */
static Rules *smallest_batches(const Weigher *w, const Rules *r)
{
    int64_t parts = size_of(r, AXIS_dp) * size_of(r, AXIS_ep), samples = graph_samples(w->request->graph) / parts;
    Rules *out = NEW(w->arena, Rules);
    for (uint32_t i = 0; i < r->nrule; i++)
        PUSH(w->arena, out->rule, out->nrule, r->rule[i]);
    PUSH(w->arena, out->rule, out->nrule, pin_number(w->arena, "microbatches", most_microbatches(samples)));
    return out;
}

/* Whether it fits; else it may be the nearest so far.  Where the number of micro-batches is open, the
 * largest comes first: what does not fit with that is not tried with all others. */
static bool try_change(const Weigher *w, Change *c, int64_t needed, Change *nearest)
{
    bool open = !gives_setting(c->rules, "microbatches");
    c->weighed = weigh(w, open ? smallest_batches(w, c->rules) : c->rules, c->use);
    if (open && weighed_fits(&c->weighed))
        c->weighed = weigh(w, c->rules, c->use);
    if (weighed_fits(&c->weighed))
        return true;
    if (c->weighed.legal && change_needs(c) < (nearest->weighed.legal ? change_needs(nearest) : needed))
        *nearest = *c;
    return false;
}

/* What may be done without other devices, and tp k times as large; false: nothing. */
static bool all_together(const Weigher *w, const Plan *p, int64_t k, Change *out)
{
    Arena *a = w->arena;
    const Graph *g = w->request->graph;
    Rules *given = recomputing(a, g, RECOMPUTE_FULL), *mesh = larger_axis(a, p, AXIS_tp, k);
    if (p->mesh[AXIS_dp] / k > 1 && has_value(g->loss) && optimizer_moments(&g->optimizer) > 0 && !p->server)
        PUSH(a, given->rule, given->nrule, pin_shard(AXIS_dp));
    const char *text = pins_text(a, given);
    if (k > 1)
        text = arena_printf(a, "%s%smesh tp = %lld, dp = %lld", text, *text ? "; " : "", (long long)(p->mesh[AXIS_tp] * k), (long long)(p->mesh[AXIS_dp] / k));
    for (uint32_t i = 0; i < mesh->nrule; i++)
        PUSH(a, given->rule, given->nrule, mesh->rule[i]);
    Changes x = no_changes(w, p);
    add(&x, DECIDE_data, text, given);
    *out = x.change[0];
    return *text;
}

uint32_t remedies(const Weigher *w, const Plan *p, int64_t needed, uint32_t most, Change *out, Change *nearest)
{
    Change *all;
    uint32_t n = changes_of(w, p, &all), found = 0;
    int64_t dp = p->mesh[AXIS_dp];
    *nearest = (Change){0};
    for (uint32_t i = 0; i < n && found < most; i++) {
        bool again = found > 0 && out[found - 1].decision == all[i].decision;
        if (!again && !was_tried(w, &all[i]) && try_change(w, &all[i], needed, nearest))
            out[found++] = all[i];
    }
    for (int64_t k = 1; k <= dp && found == 0; k++) {
        Change c;
        if (dp % k == 0 && (k == 1 || may_split(w->request->graph, p)) && all_together(w, p, k, &c) && try_change(w, &c, needed, nearest))
            out[found++] = c;
    }
    return found;
}
