/* Units that are alike: see units_alike.h. */
#include "planner/units_alike.h"

#include <string.h>

uint32_t *units_lies(const UnitTable *t, const UnitKey *k, const Mesh *m, uint32_t stage)
{
    const Cluster *cl = t->q->cluster;
    uint32_t n = (uint32_t)(k->tp * k->cp), first = stage * (t->d->ndevices / (uint32_t)m->size[AXIS_pp]);
    if (cl->ndevice > 1 || m->d->nrule > 0)
        return NULL;
    uint32_t *lies = NEWN(t->arena, uint32_t, (size_t)cl->nlevel * n + 1);
    Arena *scratch = arena_new("lies");
    for (uint32_t l = 0; l < cl->nlevel; l++) {
        uint32_t *number = NEWN(scratch, uint32_t, t->links.nunit), units = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t *at = &number[links_unit(&t->links, l, m->device[first + i])];
            if (*at == 0)
                *at = ++units;
            lies[l * n + i] = *at;
        }
    }
    arena_free(scratch);
    return lies;
}

static bool same_work(const Unit *x, const Unit *y)
{
    return x->lies && y->lies && x->key.tp == y->key.tp && x->key.cp == y->key.cp && x->key.micro == y->key.micro && x->key.kind == y->key.kind;
}

/* Whether all groups of ranks lie alike, so that whatever they do takes as long. */
static bool same_lies(const UnitTable *t, const Unit *x, const Unit *y)
{
    size_t n = (size_t)(x->key.tp * x->key.cp) * t->q->cluster->nlevel;
    return memcmp(x->lies, y->lies, n * sizeof *x->lies) == 0;
}

/* Without communication it does not matter where ranks lie. */
bool units_take_least(const UnitTable *t, Unit *u)
{
    bool beside = device_overlaps(&t->q->cluster->device[u->key.kind]);
    for (uint32_t i = 0; i < t->nunit; i++) {
        const Unit *x = t->unit[i];
        if (x == u || !x->legal || !same_work(x, u) || (!beside && !same_lies(t, x, u)))
            continue;
        u->legal = true;
        u->least = x->least;
        u->sum = x->sum;
        u->again = x->again;
        u->choices = x->choices;
        u->priced = x->priced;
        return true;
    }
    return false;
}

const Goal *units_goal(const UnitTable *t, const Unit *u)
{
    for (uint32_t i = 0; i < t->nunit; i++) {
        const Unit *x = t->unit[i];
        if (x != u && x->legal && x->goal.micro > 0 && same_work(x, u) && same_lies(t, x, u))
            return &x->goal;
    }
    return NULL;
}

bool units_take_options(const UnitTable *t, Unit *u)
{
    for (uint32_t i = 0; i < t->nunit; i++) {
        const Unit *x = t->unit[i];
        if (x == u || !x->solved || !x->legal || !same_work(x, u) || !same_lies(t, x, u))
            continue;
        u->option = x->option;
        u->noption = x->noption;
        u->every = x->every;
        return true;
    }
    return false;
}
