/* Relax: what would make a plan fit that does not. */
#include <string.h>

#include "base/text.h"
#include "planner/changes.h"

enum { MOST_CHANGES = 3 };

const char *fit_text(Arena *a, const Figures *f)
{
    return arena_printf(a, "%s of %s, %s a step", text_bytes(a, f->map), text_bytes(a, f->memory - f->reserve), text_ns(a, f->ns));
}

/* Rules that may be left out: the layout is then still whole. */
static bool may_drop(const Rule *r)
{
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
static void drop_rules(const Weigher *w, Diags *ds, Diag *error)
{
    const Rules *rules = w->request->rules;
    for (uint32_t i = 0; i < rules->nrule; i++) {
        if (!may_drop(&rules->rule[i]))
            continue;
        Weighed x = weigh(w, without(w->arena, rules, i), w->request->use);
        if (weighed_fits(&x))
            diag_note(ds, error, rules->rule[i].at, "without this rule it fits: %s", fit_text(w->arena, &x.figures));
    }
}

/* The help of an error, taken away; NULL: it has none. */
static Diag *take_help(Diag *error)
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

static void put_last(Diag *error, Diag *help)
{
    Diag **p = &error->note;
    while (*p)
        p = &(*p)->next;
    *p = help;
}

void relax(const Weigher *w, const Plan *p, int64_t needed, Diags *ds, Diag *error)
{
    Change change[MOST_CHANGES], nearest;
    Diag *help = take_help(error);                   /* it is said last */
    drop_rules(w, ds, error);
    uint32_t n = remedies(w, p, needed, MOST_CHANGES, change, &nearest);
    for (uint32_t i = 0; i < n; i++)
        diag_note(ds, error, NOWHERE, "with '%s' it fits: %s", change[i].text, fit_text(w->arena, &change[i].weighed.figures));
    if (n == 0 && nearest.weighed.legal)
        diag_note(ds, error, NOWHERE, "nothing that was tried fits; '%s' comes nearest, with it a device with %s bytes would do", nearest.text,
                  text_count(w->arena, change_needs(&nearest)));
    put_last(error, help);
}
