/* Relax: what would make a plan fit that does not. */
#include <string.h>

#include "base/text.h"
#include "planner/changes.h"

enum { MOST_CHANGES = 3 };

const char *fit_text(Arena *a, const Figures *f)
{
    return arena_printf(a, "%s of %s, %s a step", text_bytes(a, f->map), text_bytes(a, f->memory - f->reserve), text_ns(a, f->ns));
}

/* Rules that may be left out: the layout is then still whole, or what they leave open is searched. */
static bool may_drop(const Rule *r, bool searched)
{
    if (searched)
        return !r->soft && r->kind != RULE_SET;
    bool setting = r->kind == RULE_SETTING && strcmp(r->name, "devices") != 0;
    return !r->soft && (setting || r->kind == RULE_KEEP || r->kind == RULE_SAVE || r->kind == RULE_PAD);
}

static Rules *without(Arena *a, const Rules *rules, uint32_t dropped)
{
    Rules *out = NEW(a, Rules);
    *out = (Rules){.model = rules->model, .cluster = rules->cluster, .at = rules->at};
    for (uint32_t i = 0; i < rules->nrule; i++)
        if (i != dropped && !rules->rule[i].soft)
            PUSH(a, out->rule, out->nrule, rules->rule[i]);
    return out;
}

/* The rules without one of which it fits. */
static void drop_rules(const Weigher *w, bool searched, Diags *ds, Diag *error)
{
    const Rules *rules = w->request->rules;
    for (uint32_t i = 0; i < rules->nrule; i++) {
        if (!may_drop(&rules->rule[i], searched))
            continue;
        Weighed x = weigh(w, without(w->arena, rules, i), w->request->use);
        if (weighed_fits(&x))
            diag_note(ds, error, rules->rule[i].at, "without this rule it fits: %s", fit_text(w->arena, &x.figures));
    }
}

Diag *relax_take_help(Diag *error)
{
    Diag **p = &error->note, *help;
    while (*p && (*p)->severity != SEV_HELP)
        p = &(*p)->next;
    help = *p;
    if (help) {
        *p = help->next;
        help->next = NULL;
    }
    return help;
}

void relax_put_last(Diag *error, Diag *help)
{
    Diag **p = &error->note;
    while (*p)
        p = &(*p)->next;
    *p = help;
}

/* ---- what a whole search found too big ---- */

static bool gives(const Plan *p, RuleKind kind)
{
    for (uint32_t i = 0; i < p->nrule; i++)
        if (p->rule[i].kind == kind)
            return true;
    return false;
}

/* The machine with k times as many of what its outermost level joins. */
static Cluster *larger_cluster(Arena *a, const Cluster *cl, int64_t k)
{
    Cluster *c = NEW(a, Cluster);
    *c = *cl;
    c->ndevices = (uint32_t)(cl->ndevices * k);
    c->kind = NEWN(a, uint32_t, c->ndevices + 1);
    for (uint32_t i = 0; i < c->ndevices; i++)
        c->kind[i] = cl->kind[i % cl->ndevices];
    c->level = NEWN(a, Level, c->nlevel);
    memcpy(c->level, cl->level, c->nlevel * sizeof *c->level);
    Level *last = &c->level[c->nlevel - 1];
    last->group = NEW(a, Group);
    *last->group = *cl->level[c->nlevel - 1].group;
    last->group->count *= k;
    return c;
}

enum { MOST_DEVICES = 4096, SIZES_TRIED = 3 };

/* The fewest devices, doubled again and again, among which states and the batch could be shared out; 0: more than are
 * tried.  Fewer would be searched for nothing. */
static int64_t least_times(const Weigher *w, const Figures *f)
{
    int64_t k = 2, usable = f->memory - f->reserve, devices = w->request->cluster->ndevices;
    int64_t shared = figures_states(f) + f->by_class[CLASS_inputs];
    while (k * devices <= MOST_DEVICES && shared / k > usable)
        k *= 2;
    return k * devices <= MOST_DEVICES ? k : 0;
}

static bool names_devices(const Rules *r)
{
    for (uint32_t i = 0; i < r->nrule; i++)
        if (r->rule[i].kind == RULE_SETTING && strcmp(r->rule[i].name, "devices") == 0)
            return true;
    return false;
}

static void add_devices(const Weigher *w, const Figures *f, Diags *ds, Diag *error)
{
    const Cluster *cl = w->request->cluster;
    const Level *last = &cl->level[cl->nlevel - 1];
    int64_t k = least_times(w, f);
    bool joins = last->link > 0 && last->ngroup == 1;          /* what more of them would be joined by is known */
    if (k == 0 || !joins || names_devices(w->request->rules))
        return;
    for (int i = 0; i < SIZES_TRIED && k * cl->ndevices <= MOST_DEVICES; i++, k *= 2) {
        PlanRequest q = *w->request;
        Weigher larger = {w->arena, w->sources, &q};
        q.cluster = larger_cluster(w->arena, cl, k);
        Weighed x = weigh(&larger, without(w->arena, q.rules, UINT32_MAX), q.use);
        if (!weighed_fits(&x))
            continue;
        diag_note(ds, error, NOWHERE, "with %u such devices instead of %u it fits: %s", q.cluster->ndevices, cl->ndevices, fit_text(w->arena, &x.figures));
        return;
    }
}

static void relax_search(const Weigher *w, const Plan *p, Diags *ds, Diag *error)
{
    Weighed least = weigh(w, pins_of(w->arena, w->request->graph, p), USE_ESTIMATE);
    if (!least.legal)
        return;
    Text mesh = text_new(w->arena);
    for (int x = 0; x < MESH_AXES; x++)
        if (p->mesh[x] > 1)
            text_add(&mesh, "%s%s = %lld", mesh.n ? ", " : "", mesh_axis_name((MeshAxis)x), (long long)p->mesh[x]);
    bool again = gives(p, RULE_RECOMPUTE);
    if (mesh.n || again)
        diag_note(ds, error, NOWHERE, "of all plans that were lowered this needs the least: %s%s", mesh.n ? mesh.s : "one device", again ? ", with recomputation" : "");
    add_devices(w, &least.figures, ds, error);
}

/* ---- both ---- */

/* The change as rules that leave nothing open but splits by tp, which 'pplan plan' searches. */
static const char *change_as_rules(Arena *a, const Change *c)
{
    const char *number = arena_printf(a, "microbatches = %lld", (long long)c->weighed.figures.microbatches);
    if (c->decision == DECIDE_micro)
        return number;
    bool counts = c->decision == DECIDE_stages;          /* more of them fill the pipeline */
    return arena_printf(a, "%s%s%s%s%s", c->text, *c->assumed ? "; " : "", c->assumed, counts ? "; " : "", counts ? number : "");
}

static const char *who_splits(const Weigher *w, const Change *c)
{
    return c->use == USE_PLAN && w->request->use != USE_PLAN ? " and the splits by tp that 'pplan plan' finds" : "";
}

static void relax_layout(const Weigher *w, const Plan *p, int64_t needed, bool searched, Diags *ds, Diag *error)
{
    Change change[MOST_CHANGES], nearest;
    uint32_t n = remedies(w, p, needed, MOST_CHANGES, change, &nearest);
    for (uint32_t i = 0; i < n; i++)
        diag_note(ds, error, NOWHERE, "with '%s'%s it fits: %s", change_as_rules(w->arena, &change[i]), who_splits(w, &change[i]),
                  fit_text(w->arena, &change[i].weighed.figures));
    if (n == 0 && nearest.weighed.legal)
        diag_note(ds, error, NOWHERE, "%s; '%s' comes nearest, with it a device with %s bytes would do",
                  searched ? "no layout near it fits either" : "nothing that was tried fits", nearest.text, text_count(w->arena, change_needs(&nearest)));
}

void relax(const Weigher *w, const Plan *p, int64_t needed, bool searched, Diags *ds, Diag *error)
{
    drop_rules(w, searched, ds, error);
    if (searched)
        relax_search(w, p, ds, error);
    relax_layout(w, p, needed, searched, ds, error);           /* a search that was cut short may have missed what is near */
}
