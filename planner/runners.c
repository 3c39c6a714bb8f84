/* Runners-up: the other plans that a search found, as changes of the one that was chosen. */
#include <string.h>

#include "base/text.h"
#include "planner/changes.h"

/* Rules that are named of a difference; of more, their number is. */
enum { NAMED = 4 };

static bool has_rule(Arena *a, const Rules *rules, const char *text)
{
    for (uint32_t i = 0; i < rules->nrule; i++)
        if (strcmp(rule_text(a, &rules->rule[i]), text) == 0)
            return true;
    return false;
}

/* A rule that the other layout replaces by its own needs no word. */
static bool is_replaced(const Rule *r)
{
    return r->kind == RULE_MESH || r->kind == RULE_SETTING || rule_cuts(r);
}

typedef struct Difference { Arena *arena; Text text; uint32_t n, unnamed; } Difference;

static void differs_in(Difference *d, const char *word, const Rule *r)
{
    bool order = r->kind == RULE_SETTING && strcmp(r->name, "devices") == 0;
    if (d->n++ < NAMED)
        text_add(&d->text, "%s%s%s", d->n > 1 ? "; " : "", word, order ? "the devices in another order" : rule_text(d->arena, r));
    else
        d->unnamed++;
}

const char *difference_of(Arena *a, const Rules *plan, const Rules *other)
{
    Difference d = {.arena = a, .text = text_new(a)};
    for (uint32_t i = 0; i < other->nrule; i++)
        if (!has_rule(a, plan, rule_text(a, &other->rule[i])))
            differs_in(&d, "", &other->rule[i]);
    for (uint32_t i = 0; i < plan->nrule; i++)
        if (!is_replaced(&plan->rule[i]) && !has_rule(a, other, rule_text(a, &plan->rule[i])))
            differs_in(&d, "without ", &plan->rule[i]);
    return d.unnamed ? arena_printf(a, "%s; %u more rules", d.text.s, d.unnamed) : d.n ? d.text.s : "";
}

const char *plans_differ(Arena *a, const Graph *g, const Plan *plan, const Plan *other)
{
    return difference_of(a, pins_of(a, g, plan), pins_of(a, g, other));
}

uint32_t runners_up(const Weigher *w, const Plan *p, const Search *s, Change **out)
{
    const Rules *own = pins_of(w->arena, w->request->graph, p);
    uint32_t n = 0;
    *out = NULL;
    for (uint32_t i = 0; i < s->nbest; i++) {
        Change c = {.rules = pins_of(w->arena, w->request->graph, s->best[i].plan), .use = USE_ESTIMATE};
        c.text = difference_of(w->arena, own, c.rules);
        if (!*c.text)
            continue;
        c.weighed = weigh(w, c.rules, c.use);
        PUSH(w->arena, *out, n, c);
    }
    return n;
}
