/* rules: each rule takes effect or is refused by name.  On one device a split, a
 * shard or a stage by an axis of size 1 changes nothing and is allowed; what would
 * need a second device is not. */
#include "planner/rules.h"

#include <string.h>

bool choice_allows(const Choice *c, int64_t n)
{
    if (c->any)
        return true;
    for (uint32_t i = 0; i < c->nvalue; i++)
        if (c->value[i] == n)
            return true;
    return false;
}

static void refuse(Diags *ds, const Rule *r, const char *what)
{
    diag_error(ds, r->at, "%s, but this version plans one device", what);
}

static void decide_mesh(Diags *ds, const Rule *r)
{
    if (!choice_allows(&r->choice, 1) || r->outer * r->inner > 1)
        diag_error(ds, r->at, "mesh axis '%s' needs more than one device, but this version plans one device",
                   mesh_axis_name(r->axis));
}

static void decide_setting(Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    if (strcmp(r->name, "microbatches") == 0) {
        d->microbatches = r->choice;
        d->microbatches_at = r->at;
    } else if (strcmp(r->name, "schedule") == 0) {
        d->schedule = r->text;
    } else if (strcmp(r->name, "bucket") == 0) {
        d->bucket = r->choice.value[0];
    } else if (strcmp(r->name, "devices") == 0) {
        if (r->choice.nvalue != 1)
            refuse(ds, r, "more than one device is named");
        else if (r->choice.value[0] < 0 || r->choice.value[0] >= q->cluster->ndevices)
            diag_error(ds, r->at, "no device %lld: cluster '%s' has %u device%s, numbered from 0", (long long)r->choice.value[0],
                       q->cluster->name, q->cluster->ndevices, q->cluster->ndevices == 1 ? "" : "s");
        else
            d->device = (uint32_t)r->choice.value[0];
    } else if (strcmp(r->name, "chunks") == 0) {
        if (!choice_allows(&r->choice, 1))
            refuse(ds, r, "chunks belong to a pipeline of several stages");
    }
}

static void decide(Diags *ds, const PlanRequest *q, const Rule *r, Decisions *d)
{
    switch (r->kind) {
    case RULE_MESH:
        decide_mesh(ds, r);
        break;
    case RULE_SETTING:
        decide_setting(ds, q, r, d);
        break;
    case RULE_STAGE_BEFORE: case RULE_STAGE_AFTER: case RULE_STAGE_EVERY: case RULE_STAGE_MESH:
        refuse(ds, r, "a pipeline stage needs a device of its own");
        break;
    case RULE_PAD:
        diag_error(ds, r->at, "padding '%s' serves splits over devices, but this version plans one device", r->name);
        break;
    case RULE_RECOMPUTE:
        diag_error(ds, r->at, "recomputation is not available in this version; more micro-batches save memory too");
        break;
    case RULE_OFFLOAD:
        diag_error(ds, r->at, "offloading to the host is not available in this version");
        break;
    case RULE_SPLIT: case RULE_KEEP: case RULE_SHARD: case RULE_SAVE: case RULE_SET: case RULE_KINDS:
        break;
    }
}

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

/* Two rules that give one thing two values: the second is refused, none wins silently. */
static void check_once(Diags *ds, const Rules *rules, uint32_t i)
{
    const Rule *r = &rules->rule[i];
    for (uint32_t k = 0; k < i && (r->kind == RULE_SETTING || r->kind == RULE_MESH); k++) {
        const Rule *x = &rules->rule[k];
        if (x->soft || x->kind != r->kind || same_value(x, r))
            continue;
        if (r->kind == RULE_MESH ? x->axis != r->axis : strcmp(x->name, r->name) != 0)
            continue;
        Diag *e = diag_error(ds, r->at, "'%s' has another value here", r->kind == RULE_MESH ? mesh_axis_name(r->axis) : r->name);
        diag_note(ds, e, x->at, "than here");
        return;
    }
}

/* More devices than one are left idle only when the rules name the one to use. */
static void check_idle(Diags *ds, const PlanRequest *q)
{
    if (q->cluster->ndevices == 1)
        return;
    for (uint32_t i = 0; i < q->rules->nrule; i++)
        if (q->rules->rule[i].kind == RULE_SETTING && strcmp(q->rules->rule[i].name, "devices") == 0)
            return;
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
