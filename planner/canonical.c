/* Canonical splits: see canonical.h. */
#include "planner/canonical.h"

#include <string.h>

typedef struct Reading {
    const Chain *chain;
    CutChoice *const *cut;
    const uint32_t *ncut;
    uint32_t nop;
} Reading;

static bool has_axis(const Chain *c, ValueId v, const char *name)
{
    for (int x = 0; x < value_of(c->g, v)->rank; x++)
        if (strcmp(dim_of(c->g, value_of(c->g, v)->axis[x])->name, name) == 0)
            return true;
    return false;
}

static bool is_handed_on(const Chain *c, const char *name)
{
    for (uint32_t i = 0; i < c->npart; i++)
        for (uint32_t k = 0; k < c->part[i].ncarried; k++)
            if (has_axis(c, c->part[i].out[k], name))
                return true;
    return false;
}

/* Of what a repeat hands on, the first axis that is neither the batch nor the last one; NULL: there is none. */
static const char *positions_of(const Chain *c)
{
    for (uint32_t i = 0; i < c->npart; i++) {
        const Segment *p = &c->part[i];
        for (uint32_t k = 0; k < p->ncarried; k++) {
            const Value *v = value_of(c->g, p->out[k]);
            for (int x = 0; x + 1 < v->rank; x++)
                if (!same_dim(v->axis[x], c->g->batch))
                    return dim_of(c->g, v->axis[x])->name;
        }
    }
    return NULL;
}

/* Ops that have the axis. */
static uint32_t ops_with(const Reading *r, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nop; i++)
        for (uint32_t k = 0; k < r->ncut[i]; k++)
            n += strcmp(r->cut[i][k].name, name) == 0;
    return n;
}

static uint8_t inner_choice(const Reading *r, uint32_t i)
{
    uint32_t most = 0;
    uint8_t choice = 0;
    for (uint32_t k = 0; k < r->ncut[i]; k++) {
        uint32_t n = is_handed_on(r->chain, r->cut[i][k].name) ? 0 : ops_with(r, r->cut[i][k].name);
        if (n > most) {
            most = n;
            choice = (uint8_t)(k + 1);
        }
    }
    return choice;
}

static uint8_t choice_named(const Reading *r, uint32_t i, const char *name)
{
    for (uint32_t k = 0; k < r->ncut[i]; k++)
        if (strcmp(r->cut[i][k].name, name) == 0)
            return (uint8_t)(k + 1);
    return 0;
}

uint32_t canonical_choices(Arena *a, const Chain *c, CutChoice *const *cut, const uint32_t *ncut, const uint8_t *out[MOST_SEEDS])
{
    Reading r = {.chain = c, .cut = cut, .ncut = ncut};
    const char *positions = positions_of(c);
    for (uint32_t i = 0; i < c->npart; i++)
        r.nop += c->part[i].nop;
    if (!positions)
        return 0;
    uint8_t *whole = NEWN(a, uint8_t, r.nop + 1), *split = NEWN(a, uint8_t, r.nop + 1);
    for (uint32_t i = 0; i < r.nop; i++) {
        whole[i] = split[i] = inner_choice(&r, i);
        if (!whole[i])
            split[i] = choice_named(&r, i, positions);
    }
    out[0] = whole;
    out[1] = split;
    return MOST_SEEDS;
}
