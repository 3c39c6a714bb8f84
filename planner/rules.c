/* rules: what each rule does in this version.  The table below has a row per kind
 * of rule: it is decided on, refused by name, or has nothing to do in this model or
 * in this plan, which is said.  No rule is dropped silently. */
#include "planner/rules.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"

bool choice_allows(const Choice *c, int64_t n)
{
    if (c->any)
        return true;
    for (uint32_t i = 0; i < c->nvalue; i++)
        if (c->value[i] == n)
            return true;
    return false;
}

/* ---- rules that decide ---- */

static void decide_mesh(Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    (void)q;
    (void)d;
    if (!choice_allows(&r->choice, 1) || r->outer * r->inner > 1)
        diag_error(ds, r->at, "mesh axis '%s' needs more than one device, but this version plans one device",
                   mesh_axis_name(r->axis));
}

static void decide_microbatches(Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    (void)ds;
    (void)q;
    d->microbatches = r->choice;
    d->microbatches_at = r->at;
}

static void decide_schedule(Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    (void)ds;
    (void)q;
    d->schedule = r->text;
}

static void decide_bucket(Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    (void)ds;
    (void)q;
    d->bucket = r->choice.value[0];
}

static void decide_chunks(Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    (void)q;
    (void)d;
    if (!choice_allows(&r->choice, 1))
        diag_error(ds, r->at, "chunks belong to a pipeline of several stages, but this version plans one device");
}

static void decide_devices(Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    if (r->choice.nvalue != 1)
        diag_error(ds, r->at, "more than one device is named, but this version plans one device");
    else if (r->choice.value[0] < 0 || r->choice.value[0] >= q->cluster->ndevices)
        diag_error(ds, r->at, "no device %lld: cluster '%s' has %u device%s, numbered from 0", (long long)r->choice.value[0],
                   q->cluster->name, q->cluster->ndevices, q->cluster->ndevices == 1 ? "" : "s");
    else
        d->device = (uint32_t)r->choice.value[0];
}

/* ---- why a model gives a rule nothing to do ---- */

static const char *moot_backward(Arena *a, const Graph *g, const Rule *r)
{
    (void)r;
    return has_value(g->loss) ? NULL : arena_printf(a, "model '%s' minimizes nothing, so it has no backward pass", g->name);
}

/* States that the model has none of. */
static const char *moot_state(Arena *a, const Graph *g, const Rule *r)
{
    if (g->nweight == 0)
        return arena_printf(a, "model '%s' has no weights", g->name);
    if (r->state == STATE_WEIGHTS)
        return NULL;
    if (has_value(g->loss) && r->state == STATE_OPTIMIZER && g->optimizer.kind == OPTIMIZER_NONE)
        return arena_printf(a, "model '%s' has no optimizer", g->name);
    return moot_backward(a, g, r);
}

/* Axes that are multiples already. */
static const char *moot_pad(Arena *a, const Graph *g, const Rule *r)
{
    int64_t extent = 0;
    for (uint32_t i = 0; i < g->ndim; i++) {
        if (strcmp(g->dim[i].name, r->name) != 0)
            continue;
        extent = g->dim[i].extent;
        if (extent % r->number != 0)
            return NULL;
    }
    return arena_printf(a, "'%s' (%lld) is a multiple of %lld already", r->name, (long long)extent, (long long)r->number);
}

/* ---- why a plan leaves a rule nothing to do ---- */

/* "mesh axes 'dp' and 'tp' have size 1"; NULL when one of them is larger. */
static const char *size_one(Arena *a, const Plan *p, const MeshRef *by)
{
    static const char *const part[] = {[PART_WHOLE] = "", [PART_OUTER] = ".outer", [PART_INNER] = ".inner"};
    Text t = text_new(a);
    text_add(&t, by->n == 1 ? "mesh axis" : "mesh axes");
    for (int i = 0; i < by->n; i++) {
        if (p->mesh[by->axis[i]] > 1)
            return NULL;
        text_add(&t, "%s'%s%s'", i == 0 ? " " : i + 1 == by->n ? " and " : ", ", mesh_axis_name(by->axis[i]), part[by->part[i]]);
    }
    text_add(&t, by->n == 1 ? " has size 1" : " have size 1");
    return t.s;
}

static const char *idle_split(Arena *a, const Plan *p, const Rule *r)
{
    const char *one = size_one(a, p, &r->by);
    return one ? arena_printf(a, "%s, so this split cuts nothing", one) : NULL;
}

static const char *idle_shard(Arena *a, const Plan *p, const Rule *r)
{
    const char *one = size_one(a, p, &r->by);
    return one ? arena_printf(a, "%s, so nothing is sharded", one) : NULL;
}

static const char *idle_keep(Arena *a, const Plan *p, const Rule *r)
{
    (void)a;
    (void)r;
    for (int x = 0; x < MESH_AXES; x++)
        if (p->mesh[x] > 1)
            return NULL;
    return "no mesh axis is larger than 1, so everything stays whole";
}

static const char *idle_pipeline(Arena *a, const Plan *p, const Rule *r)
{
    return p->mesh[AXIS_pp] > 1 ? NULL : arena_printf(a, "mesh axis 'pp' has size 1, and a single stage has no %s", r->name);
}

static const char *idle_save(Arena *a, const Plan *p, const Rule *r)
{
    (void)a;
    (void)p;
    (void)r;
    return "this version recomputes nothing, so everything that backward reads is kept";
}

/* ---- the table ---- */

typedef struct Row {
    RuleKind    kind;
    const char *setting;              /* of RULE_SETTING: its name */
    const char *refused;              /* why this version has it not, and what it does instead */
    const char *preferred;            /* why `prefer` is in vain; NULL: as on any one device */
    void        (*decide)(Diags *, const PlanRequest *, const Rule *, Decisions *);
    const char *(*moot)(Arena *, const Graph *, const Rule *);       /* why the model leaves it nothing to do, or NULL */
    const char *(*idle)(Arena *, const Plan *, const Rule *);        /* why the chosen plan does, or NULL */
} Row;

static const char one_stage[] = "a pipeline stage needs a device of its own, but this version plans one device, which runs the whole model";
static const char one_padding[] = "padding serves splits over devices, but this version plans one device and stores every axis as long as it is";
static const char one_recompute[] = "recomputation is not available in this version; more micro-batches save memory too";
static const char one_offload[] = "offloading is not available in this version; every state stays on the device";
static const char one_sync[] = "a server updates weights for several ranks, but this version plans one device, which updates its own";

static const Row rows[] = {
    {.kind = RULE_MESH,         .decide = decide_mesh},
    {.kind = RULE_SPLIT,        .idle = idle_split},
    {.kind = RULE_KEEP,         .idle = idle_keep},
    {.kind = RULE_PAD,          .refused = one_padding, .moot = moot_pad},
    {.kind = RULE_STAGE_BEFORE, .refused = one_stage},
    {.kind = RULE_STAGE_AFTER,  .refused = one_stage},
    {.kind = RULE_STAGE_EVERY,  .refused = one_stage},
    {.kind = RULE_STAGE_MESH,   .refused = one_stage},
    {.kind = RULE_RECOMPUTE,    .refused = one_recompute, .moot = moot_backward},
    {.kind = RULE_SAVE,         .moot = moot_backward, .idle = idle_save},
    {.kind = RULE_SHARD,        .moot = moot_state, .idle = idle_shard},
    {.kind = RULE_OFFLOAD,      .refused = one_offload, .moot = moot_state},
    {.kind = RULE_SET},                              /* the frontend has given it to the model */
    {.kind = RULE_SETTING, .setting = "microbatches", .decide = decide_microbatches,
     .preferred = "the fewest micro-batches that the rules allow and that fit are taken; without 'prefer' this rule holds"},
    {.kind = RULE_SETTING, .setting = "schedule", .decide = decide_schedule, .idle = idle_pipeline},
    {.kind = RULE_SETTING, .setting = "chunks", .decide = decide_chunks, .idle = idle_pipeline},
    {.kind = RULE_SETTING, .setting = "bucket", .decide = decide_bucket, .moot = moot_backward,
     .preferred = "no plan chooses the size of its buckets; without 'prefer' this rule holds"},
    {.kind = RULE_SETTING, .setting = "devices", .decide = decide_devices,
     .preferred = "this version does not choose devices; without 'prefer' this rule holds"},
    {.kind = RULE_SETTING, .setting = "sync", .refused = one_sync, .moot = moot_backward},
};

static const Row *row_of(const Rule *r)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].kind == r->kind && (!rows[i].setting || strcmp(rows[i].setting, r->name) == 0))
            return &rows[i];
    assert(false && "a rule without a row");
    return NULL;
}

static const char *moot(Arena *a, const Graph *g, const Rule *r)
{
    const Row *row = row_of(r);
    return row->moot ? row->moot(a, g, r) : NULL;
}

static void decide(Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    const Row *row = row_of(r);
    if (row->refused && !moot(ds->arena, q->graph, r))
        diag_error(ds, r->at, "%s", row->refused);
    else if (row->decide)
        row->decide(ds, q, r, d);
}

/* ---- rules that leave nothing to do ---- */

static const char *in_vain(const Rule *r)
{
    const Row *row = row_of(r);
    return row->preferred ? row->preferred : row->refused ? row->refused : "one device leaves nothing to prefer";
}

/* A .plan states all settings, also those of which its plan makes nothing. */
static const char *idle(Arena *a, const PlanRequest *q, const Plan *p, const Rule *r)
{
    const char *why = moot(a, q->graph, r);
    if (r->resolved && r->kind == RULE_SETTING)
        return NULL;
    return why || !row_of(r)->idle ? why : row_of(r)->idle(a, p, r);
}

void rules_warn(Diags *ds, const PlanRequest *q, const Plan *p)
{
    for (uint32_t i = 0; i < q->rules->nrule; i++) {
        const Rule *r = &q->rules->rule[i];
        const char *why = r->soft ? in_vain(r) : idle(ds->arena, q, p, r);
        if (why)
            diag_warn(ds, r->at, "this %s has no effect: %s", r->soft ? "preference" : "rule", why);
    }
}

/* ---- all rules together ---- */

static bool same_choice(const Choice *x, const Choice *y)
{
    bool same = x->any == y->any && x->nvalue == y->nvalue;
    for (uint32_t i = 0; same && i < x->nvalue; i++)
        same = x->value[i] == y->value[i];
    return same;
}

static bool same_value(const Rule *x, const Rule *y)
{
    return same_choice(&x->choice, &y->choice) && x->outer == y->outer && x->inner == y->inner &&
           (!x->text || strcmp(x->text, y->text) == 0);
}

/* What a rule gives a value to; NULL: it is no such rule. */
static const char *given(const Rule *r)
{
    return r->kind == RULE_MESH ? mesh_axis_name(r->axis) : r->kind == RULE_SETTING || r->kind == RULE_SET ? r->name : NULL;
}

/* Two rules that give one thing two values: the second is refused, none wins silently. */
static void check_once(Diags *ds, const Rules *rules, uint32_t i)
{
    const Rule *r = &rules->rule[i];
    for (uint32_t k = 0; k < i && given(r); k++) {
        const Rule *x = &rules->rule[k];
        if (x->soft || x->kind != r->kind || strcmp(given(x), given(r)) != 0 || same_value(x, r))
            continue;
        Diag *e = diag_error(ds, r->at, "'%s' has another value here", given(r));
        diag_note(ds, e, x->at, "than here");
        return;
    }
}

/* More devices than one are left idle only when the rules name the one to use. */
static void check_idle(Diags *ds, const PlanRequest *q)
{
    if (q->cluster->ndevices == 1)
        return;
    for (uint32_t i = 0; i < q->rules->nrule; i++) {
        const Rule *r = &q->rules->rule[i];
        if (!r->soft && r->kind == RULE_SETTING && strcmp(r->name, "devices") == 0)
            return;
    }
    Diag *e = diag_error(ds, NOWHERE, "cluster '%s' has %u devices, but this version plans one device", q->cluster->name,
                         q->cluster->ndevices);
    diag_help(ds, e, "the rule 'devices = [0]' uses the first and leaves the others idle");
}

static void check_open(Diags *ds, const PlanRequest *q, const Decisions *d)
{
    if (!q->closed || d->microbatches.nvalue == 1)
        return;
    Diag *e = diag_error(ds, q->rules->at, "the rules leave 'microbatches' open");
    diag_help(ds, e, "'pplan plan' chooses it and writes a .plan that prun executes");
}

Status rules_decide(Diags *ds, const PlanRequest *q, Decisions *out)
{
    *out = (Decisions){.schedule = "1f1b", .bucket = DEFAULT_BUCKET, .microbatches.any = true};
    for (uint32_t i = 0; i < q->rules->nrule; i++) {
        if (q->rules->rule[i].soft)
            continue;
        check_once(ds, q->rules, i);
        decide(ds, q, &q->rules->rule[i], out);
    }
    check_idle(ds, q);
    check_open(ds, q, out);
    return diags_status(ds);
}
