/* Kept: whether a plan is as some rules say already. */
#include <string.h>

#include "planner/changes.h"

static bool leaves_open(const Rule *r)
{
    bool lists = r->kind == RULE_SETTING && strcmp(r->name, "devices") == 0;
    return r->choice.any || (r->choice.nvalue > 1 && !lists);
}

static bool same_figures(const Figures *x, const Figures *y)
{
    return x->ns == y->ns && x->map == y->map && memcmp(x->part, y->part, sizeof x->part) == 0 && memcmp(x->by_class, y->by_class, sizeof x->by_class) == 0;
}

static bool names_all(const Rule *x, const Rule *r)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < r->nnames; i++)
        for (uint32_t k = 0; k < x->nnames; k++)
            found += strcmp(r->names[i], x->names[k]) == 0;
    return found >= r->nnames;
}

/* Whether a rule of the plan says it: the same one, or one that names more axes. */
static bool is_said(Arena *a, const Rules *plan, const Rule *r)
{
    for (uint32_t i = 0; i < plan->nrule; i++) {
        const Rule *x = &plan->rule[i];
        Rule same = *r;
        same.names = x->names;
        same.nnames = x->nnames;
        if (x->kind == r->kind && names_all(x, r) && strcmp(rule_text(a, x), rule_text(a, &same)) == 0)
            return true;
    }
    return false;
}

/* A rule that was decided on is no longer to be seen in a layout; one that the plan carries stands behind its own. */
bool keeps(const Weigher *w, const Plan *p, const Weighed *plan, const Rules *given)
{
    Rules *both = pins_of(w->arena, w->request->graph, p);
    for (uint32_t i = 0; i < given->nrule; i++) {
        if (leaves_open(&given->rule[i]))
            return false;
        if (!is_said(w->arena, both, &given->rule[i]))
            PUSH(w->arena, both->rule, both->nrule, given->rule[i]);
    }
    Weighed x = weigh(w, both, USE_ESTIMATE);
    return x.legal && strncmp(x.layout, plan->layout, strlen(plan->layout)) == 0 && same_figures(&x.figures, &plan->figures);
}
