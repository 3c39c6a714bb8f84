/* Which states' gradients lie on the bytes of a tensor: a bucket's accumulators lie
 * on one buffer, so they are found by place. */
#include "ir/program.h"

#include <stdlib.h>

static int by_place(const void *x, const void *y)
{
    const GradientPlace *a = x, *b = y;
    if (a->buffer.i != b->buffer.i)
        return a->buffer.i < b->buffer.i ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return (a->state > b->state) - (a->state < b->state);
}

GradientPlaces gradient_places(const Program *p, Arena *a)
{
    GradientPlaces g = {NEWN(a, GradientPlace, p->nstate + 1), 0};
    for (uint32_t s = 0; s < p->nstate; s++) {
        if (!has_tensor(p->state[s].gradient))
            continue;
        const Tensor *t = &p->tensor[p->state[s].gradient.i];
        int64_t to = t->at + tensor_bytes(t);
        g.place[g.n++] = (GradientPlace){t->buffer, t->at, to, to, s};
    }
    qsort(g.place, g.n, sizeof *g.place, by_place);
    for (uint32_t i = 1; i < g.n; i++)
        if (g.place[i - 1].buffer.i == g.place[i].buffer.i && g.place[i - 1].reach > g.place[i].reach)
            g.place[i].reach = g.place[i - 1].reach;
    return g;
}

/* Whether place x, and all before it, end before tensor t begins. */
static bool ends_before(const GradientPlace *x, const Tensor *t)
{
    return x->buffer.i < t->buffer.i || (x->buffer.i == t->buffer.i && x->reach <= t->at);
}

static uint32_t next_meeting(const GradientPlaces *g, const Tensor *t, uint32_t i)
{
    int64_t end = t->at + tensor_bytes(t);
    for (; i < g->n && g->place[i].buffer.i == t->buffer.i && g->place[i].from < end; i++)
        if (g->place[i].to > t->at)
            return i;
    return g->n;
}

uint32_t gradients_first(const GradientPlaces *g, const Tensor *t)
{
    uint32_t lo = 0, hi = g->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (ends_before(&g->place[mid], t))
            lo = mid + 1;
        else
            hi = mid;
    }
    return next_meeting(g, t, lo);
}

uint32_t gradients_next(const GradientPlaces *g, const Tensor *t, uint32_t i)
{
    return next_meeting(g, t, i + 1);
}
