/* rules: what each rule does in this version.  The table below has a row per kind
 * of rule: it is decided on, refused by name, or has nothing to do in this model or
 * in this plan, which is said.  No rule is dropped silently. */
#include "planner/rules.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "ir/layout.h"
#include "planner/context.h"
#include "planner/pins.h"

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

static void decide_mesh(const Rule *r, Decisions *d)
{
    d->mesh_rule[r->axis] = r;
}

static void decide_devices(const Rule *r, Decisions *d)
{
    d->devices_rule = r;
}

static void decide_microbatches(const Rule *r, Decisions *d)
{
    d->microbatches = r->choice;
    d->microbatches_at = r->at;
}

static void decide_schedule(const Rule *r, Decisions *d)
{
    d->schedule = r->text;
    d->schedule_given = true;
}

static void decide_bucket(const Rule *r, Decisions *d)
{
    d->bucket = r->choice.value[0];
}

static void decide_sync(const Rule *r, Decisions *d)
{
    d->server_rule = r;
}

/* ---- rules that can be wrong for the mesh ---- */

static void check_chunks(Diags *ds, const Rule *r, const Decisions *d)
{
    (void)d;
    if (!choice_allows(&r->choice, 1))
        diag_error(ds, r->at, "a stage in several chunks is not available in this version: 'chunks' is 1");
}

/* Mesh axes that a rule divides something by: parts exist where the mesh has them. */
static void check_by(Diags *ds, const Rule *r, const Decisions *d)
{
    for (int i = 0; i < r->by.n; i++) {
        MeshAxis x = r->by.axis[i];
        const char *name = mesh_axis_name(x);
        if (d->mesh[x] == 1)
            continue;
        if (x == AXIS_pp)
            diag_error(ds, r->at, "'pp' makes stages and divides nothing else; the other mesh axes do");
        else if (r->by.part[i] != PART_WHOLE && !d->outer[x]) {
            Diag *e = diag_error(ds, r->at, "mesh axis '%s' has no parts: it was not given as a product", name);
            diag_help(ds, e, "write 'mesh %s = A * B', which makes %s.outer (A) and %s.inner (B)", name, name, name);
        }
    }
}

/* Moments are shared out between ranks with copies of a weight. */
static void check_shard(Diags *ds, const Rule *r, const Decisions *d)
{
    static const char *const zero[] = {[STATE_GRADIENTS] = "gradients (ZeRO 2)", [STATE_WEIGHTS] = "weights (ZeRO 3)"};
    int errors = ds->errors;
    if (r->state != STATE_OPTIMIZER) {
        Diag *e = diag_error(ds, r->at, "sharded %s are not available in this version", zero[r->state]);
        diag_help(ds, e, "'shard optimizer by dp' (ZeRO 1) shares out the optimizer's moments");
        return;
    }
    check_by(ds, r, d);
    for (int i = 0; i < r->by.n && ds->errors == errors; i++)
        if (r->by.axis[i] == AXIS_tp && d->mesh[AXIS_tp] > 1)
            diag_error(ds, r->at, "'tp' splits the weights themselves, and their moments with them: shard by 'dp' or 'cp', whose ranks hold copies");
    if (d->server_rule && ds->errors == errors) {
        Diag *e = diag_error(ds, r->at, "a server holds all moments, so none are sharded");
        diag_note(ds, e, d->server_rule->at, "the server is asked for here");
    }
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
    if (has_value(g->loss) && r->state == STATE_OPTIMIZER && g->optimizer.kind == OPTIMIZER_SGD && g->optimizer.momentum == 0)
        return "sgd without 'momentum' has no moments";
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

static int64_t part_size(const Plan *p, MeshAxis x, MeshPart part)
{
    if (part == PART_WHOLE || !p->outer[x])
        return p->mesh[x];
    return part == PART_OUTER ? p->outer[x] : p->mesh[x] / p->outer[x];
}

/* "mesh axes 'dp' and 'tp' have size 1"; NULL when one of them is larger. */
static const char *size_one(Arena *a, const Plan *p, const MeshRef *by)
{
    static const char *const part[] = {[PART_WHOLE] = "", [PART_OUTER] = ".outer", [PART_INNER] = ".inner"};
    Text t = text_new(a);
    text_add(&t, by->n == 1 ? "mesh axis" : "mesh axes");
    for (int i = 0; i < by->n; i++) {
        if (part_size(p, by->axis[i], by->part[i]) > 1)
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

static const char *idle_chunks(Arena *a, const Plan *p, const Rule *r)
{
    return choice_allows(&r->choice, 1) ? idle_pipeline(a, p, r) : NULL;
}

static const char *idle_sync(Arena *a, const Plan *p, const Rule *r)
{
    (void)a;
    (void)r;
    return p->ndevices > 1 ? NULL : "one device updates its own weights";
}

static const char *idle_save(Arena *a, const Plan *p, const Rule *r)
{
    (void)a;
    (void)r;
    for (uint32_t i = 0; i < p->nrule; i++)
        if (p->rule[i].kind == RULE_RECOMPUTE && !p->rule[i].soft)
            return NULL;
    return "nothing is recomputed, so everything that backward reads is kept";
}

/* ---- the table ---- */

typedef struct Row {
    RuleKind    kind;
    const char *setting;              /* of RULE_SETTING: its name */
    const char *refused;              /* why this version has it not, and what it does instead */
    const char *alone;                /* why one device has it not */
    bool        carried;              /* the plan holds it, as long as it has something to do */
    void        (*decide)(const Rule *, Decisions *);                /* before the mesh is known */
    void        (*check)(Diags *, const Rule *, const Decisions *);  /* after */
    const char *(*moot)(Arena *, const Graph *, const Rule *);       /* why the model leaves it nothing to do, or NULL */
    const char *(*idle)(Arena *, const Plan *, const Rule *);        /* why the chosen plan does, or NULL */
} Row;

static const char no_stage_mesh[] = "a mesh of its own for a stage is not available in this version: 'mesh' sets that of all stages";
static const char one_stage[] = "a pipeline stage needs a device of its own, and this plan has one device, which runs the whole model";
static const char no_offload[] = "offloading is not available in this version; every state stays on the device";

static const Row rows[] = {
    {.kind = RULE_MESH,         .decide = decide_mesh},
    {.kind = RULE_SPLIT,        .carried = true, .check = check_by, .idle = idle_split},
    {.kind = RULE_KEEP,         .carried = true, .idle = idle_keep},
    {.kind = RULE_PAD,          .carried = true, .moot = moot_pad},
    {.kind = RULE_STAGE_BEFORE, .carried = true, .alone = one_stage},
    {.kind = RULE_STAGE_AFTER,  .carried = true, .alone = one_stage},
    {.kind = RULE_STAGE_EVERY,  .carried = true, .alone = one_stage},
    {.kind = RULE_STAGE_MESH,   .refused = no_stage_mesh},
    {.kind = RULE_RECOMPUTE,    .carried = true, .moot = moot_backward},
    {.kind = RULE_SAVE,         .carried = true, .moot = moot_backward, .idle = idle_save},
    {.kind = RULE_SHARD,        .carried = true, .check = check_shard, .moot = moot_state, .idle = idle_shard},
    {.kind = RULE_OFFLOAD,      .refused = no_offload, .moot = moot_state},
    {.kind = RULE_SET},                              /* the frontend has given it to the model */
    {.kind = RULE_SETTING, .setting = "microbatches", .decide = decide_microbatches},
    {.kind = RULE_SETTING, .setting = "schedule", .decide = decide_schedule, .idle = idle_pipeline},
    {.kind = RULE_SETTING, .setting = "chunks", .check = check_chunks, .idle = idle_chunks},
    {.kind = RULE_SETTING, .setting = "bucket", .decide = decide_bucket, .moot = moot_backward},
    {.kind = RULE_SETTING, .setting = "devices", .decide = decide_devices},
    {.kind = RULE_SETTING, .setting = "sync", .decide = decide_sync, .moot = moot_backward, .idle = idle_sync},
};

/* Mesh axes whose size must be 1 so far. */
static const char *const refused_axis[MESH_AXES] = {
    [AXIS_ep] = "splitting by 'ep' is not available in this version: 'ep' is 1",
};

static const Row *row_of(const Rule *r)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].kind == r->kind && (!rows[i].setting || strcmp(rows[i].setting, r->name) == 0))
            return &rows[i];
    assert(false && "a rule without a row");
    return NULL;
}

/* ---- rules that leave nothing to do ---- */

const char *rules_idle(Arena *a, const PlanRequest *q, const Plan *p, const Rule *r)
{
    const Row *row = row_of(r);
    const char *why = row->moot ? row->moot(a, q->graph, r) : NULL;
    return why || !row->idle ? why : row->idle(a, p, r);
}

/* A .plan states all settings, also those of which its plan makes nothing. */
void rules_warn(Diags *ds, const PlanRequest *q, const Plan *p)
{
    for (uint32_t i = 0; i < q->rules->nrule; i++) {
        const Rule *r = &q->rules->rule[i];
        bool stated = r->resolved && r->kind == RULE_SETTING;
        const char *why = r->soft || stated ? NULL : rules_idle(ds->arena, q, p, r);
        if (why)
            diag_warn(ds, r->at, "this rule has no effect: %s", why);
    }
}

/* ---- one rule, once the mesh is known ---- */

/* As much of the plan as tells which rules have something to do. */
static Plan plan_of(const PlanRequest *q, const Decisions *d)
{
    Plan p = {.ndevices = d->ndevices, .rule = q->rules->rule, .nrule = q->rules->nrule};
    memcpy(p.mesh, d->mesh, sizeof p.mesh);
    memcpy(p.outer, d->outer, sizeof p.outer);
    return p;
}

static void settle(Arena *a, Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    const Row *row = row_of(r);
    Plan p = plan_of(q, d);
    if (rules_idle(ds->arena, q, &p, r))
        return;
    if (row->refused)
        diag_error(ds, r->at, "%s", row->refused);
    else if (row->alone && d->ndevices == 1)
        diag_error(ds, r->at, "%s", row->alone);
    else if (row->check)
        row->check(ds, r, d);
    if (row->carried)
        PUSH(a, d->rule, d->nrule, *r);
}

/* ---- mesh axes that split nothing ---- */

static bool is_split_by(const Decisions *d, MeshAxis axis)
{
    return splits_by(&(Rules){.rule = d->rule, .nrule = d->nrule}, axis);
}

static void splits_nothing(Diags *ds, const Decisions *d, MeshAxis axis, const char *why, const char *help)
{
    const Rule *r = d->mesh_rule[axis];
    Diag *e = diag_error(ds, r ? r->at : NOWHERE, "mesh axis '%s' (%lld) splits nothing: %s", mesh_axis_name(axis), (long long)d->mesh[axis], why);
    diag_help(ds, e, "%s", help);
}

static bool has_dim(const Graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->ndim; i++)
        if (strcmp(g->dim[i].name, name) == 0)
            return true;
    return false;
}

/* What to do: split an axis that the model has, where it has one of a usual name. */
static const char *help_split(Arena *a, const Graph *g, MeshAxis axis)
{
    const char *name = axis == AXIS_cp ? pins_positions(g) : has_dim(g, "heads") && has_dim(g, "ffn") ? "heads, ffn" : NULL;
    if (name)
        return arena_printf(a, "add a rule, for instance 'split %s by %s'", name, mesh_axis_name(axis));
    return axis == AXIS_cp ? "choose sizes of the mesh with 'cp = 1': the model has no axis of positions" : "name an axis of the model, 'split AXIS by tp'";
}

static void check_axes(Arena *a, Diags *ds, const PlanRequest *q, Decisions *d)
{
    const Graph *g = q->graph;
    for (int x = 0; x < MESH_AXES; x++) {
        const Rule *r = d->mesh_rule[x];
        if (d->mesh[x] > 1 && refused_axis[x])
            diag_error(ds, r ? r->at : NOWHERE, "%s", refused_axis[x]);
    }
    if (d->mesh[AXIS_pp] > MAX_STAGES)
        diag_error(ds, d->mesh_rule[AXIS_pp] ? d->mesh_rule[AXIS_pp]->at : NOWHERE, "%lld stages, but there are at most %d", (long long)d->mesh[AXIS_pp],
                   MAX_STAGES);
    if (d->mesh[AXIS_dp] > 1 && same_dim(g->batch, NO_DIM))
        splits_nothing(ds, d, AXIS_dp, "the model has no dim 'batch'", "other mesh axes split the axes that rules name, for instance 'split AXIS by tp'");
    if (d->mesh[AXIS_cp] > 1 && d->context)
        PUSH(a, d->rule, d->nrule, pin_split(a, d->context, AXIS_cp));
    if (d->mesh[AXIS_cp] > 1 && !is_split_by(d, AXIS_cp))
        splits_nothing(ds, d, AXIS_cp, "no rule splits an axis by it", help_split(a, g, AXIS_cp));
    d->tp_open = d->mesh[AXIS_tp] > 1 && !is_split_by(d, AXIS_tp);
    if (d->tp_open && !d->searched)
        splits_nothing(ds, d, AXIS_tp, "no rule splits an axis by it", help_split(a, g, AXIS_tp));
}

/* ---- all rules together ---- */

static bool same_choice(const Choice *x, const Choice *y)
{
    bool same = x->any == y->any && x->nvalue == y->nvalue;
    for (uint32_t i = 0; same && i < x->nvalue; i++)
        same = x->value[i] == y->value[i];
    return same;
}

static bool same_by(const MeshRef *x, const MeshRef *y)
{
    bool same = x->n == y->n;
    for (int i = 0; same && i < x->n; i++)
        same = x->axis[i] == y->axis[i] && x->part[i] == y->part[i];
    return same;
}

static bool same_value(const Rule *x, const Rule *y)
{
    return same_choice(&x->choice, &y->choice) && x->outer == y->outer && x->inner == y->inner && same_by(&x->by, &y->by) &&
           (!x->text || strcmp(x->text, y->text) == 0);
}

/* What a rule gives a value to; NULL: it is no such rule. */
static const char *given(const Rule *r)
{
    static const char *const shard[] = {[STATE_OPTIMIZER] = "shard optimizer", [STATE_GRADIENTS] = "shard gradients", [STATE_WEIGHTS] = "shard weights"};
    return r->kind == RULE_MESH ? mesh_axis_name(r->axis) : r->kind == RULE_SHARD ? shard[r->state]
         : r->kind == RULE_SETTING || r->kind == RULE_SET ? r->name : NULL;
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

/* One message for all that is open and cannot be chosen: prun chooses nothing. */
static void check_open(Diags *ds, const PlanRequest *q, const Decisions *d, const char *sizes)
{
    bool micro = q->use == USE_RUN && d->microbatches.nvalue != 1;
    Span at = q->use == USE_RUN || q->rules->nrule ? q->rules->at : NOWHERE;
    if (!micro && !*sizes)
        return;
    Diag *e = diag_error(ds, at, "the rules leave open: %s%s%s", sizes, micro && *sizes ? "; " : "",
                         micro ? "the number of micro-batches (for instance 'microbatches = 1')" : "");
    if (*sizes)
        diag_help(ds, e, "%s; or pin the mesh, or name one device with 'devices = [0]'",
                  q->use == USE_RUN ? "'pplan plan' chooses them and writes a .plan that prun executes" : "'pplan plan' chooses them, 'pplan estimate' the number of micro-batches alone");
    else
        diag_help(ds, e, "'pplan plan' chooses it and writes a .plan that prun executes");
}

static Status settle_all(Arena *a, Diags *ds, const PlanRequest *q, Decisions *out)
{
    for (uint32_t i = 0; i < q->rules->nrule; i++)
        if (!q->rules->rule[i].soft)
            settle(a, ds, q, &q->rules->rule[i], out);
    check_axes(a, ds, q, out);
    return diags_status(ds);
}

bool rules_resolved(const Rules *rules)
{
    for (uint32_t i = 0; i < rules->nrule; i++)
        if (rules->rule[i].resolved)
            return true;
    return false;
}

/* States that cannot be shared out are refused where the axis may be larger than 1: otherwise the search would only
 * leave the axis at 1, and the rule without effect. */
static void check_states(Arena *a, Diags *ds, const PlanRequest *q, const Decisions *d)
{
    for (uint32_t i = 0; i < q->rules->nrule; i++) {
        const Rule *r = &q->rules->rule[i];
        bool may = false;
        if (r->soft || r->kind != RULE_SHARD || r->state == STATE_OPTIMIZER || row_of(r)->moot(a, q->graph, r))
            continue;
        for (int k = 0; k < r->by.n; k++) {
            const Rule *mesh = d->mesh_rule[r->by.axis[k]];
            may |= !mesh || mesh->choice.any;
            for (uint32_t n = 0; mesh && n < mesh->choice.nvalue; n++)
                may |= mesh->choice.value[n] > 1;
        }
        if (may && d->ndevices > 1)
            check_shard(ds, r, d);
    }
}

Status rules_decide(Arena *a, Diags *ds, const PlanRequest *q, Decisions *out)
{
    const char *open;
    *out = (Decisions){.schedule = "1f1b", .bucket = DEFAULT_BUCKET, .microbatches.any = true};
    out->searched = q->use == USE_PLAN && q->profile && !rules_resolved(q->rules);
    for (uint32_t i = 0; i < q->rules->nrule; i++) {
        const Rule *r = &q->rules->rule[i];
        if (r->soft)
            continue;
        check_once(ds, q->rules, i);
        if (row_of(r)->decide)
            row_of(r)->decide(r, out);
    }
    TRY(diags_status(ds));
    TRY(mesh_decide(a, ds, q, out, &open));
    if (out->searched && !splits_by(q->rules, AXIS_cp))
        out->context = context_axis(q, ds->sources);
    check_open(ds, q, out, out->searched ? "" : open);
    if (out->searched && *open)
        check_states(a, ds, q, out);
    TRY(diags_status(ds));
    return out->searched && *open ? OK : settle_all(a, ds, q, out);
}

Status rules_on_mesh(Arena *a, Diags *ds, const PlanRequest *q, const Decisions *base, const int64_t size[MESH_AXES], Decisions *out)
{
    *out = *base;
    memcpy(out->mesh, size, sizeof out->mesh);
    out->rule = NULL;
    out->nrule = 0;
    return settle_all(a, ds, q, out);
}

bool rules_have(const Decisions *d, RuleKind kind)
{
    for (uint32_t i = 0; i < d->nrule; i++)
        if (d->rule[i].kind == kind)
            return true;
    return false;
}

bool rules_cut(const Decisions *d)
{
    for (uint32_t i = 0; i < d->nrule; i++)
        if (rule_cuts(&d->rule[i]))
            return true;
    return false;
}
