/* A segment tree over the cells between the ends of ranges. */
#include "ir/bytemap.h"

#include <stdbool.h>
#include <stdlib.h>

enum { MIXED = UINT32_MAX };          /* of a node: its halves tell */

/* ---- cells ---- */

typedef struct End { int64_t at; uint32_t *cell; } End;      /* `cell`: where the number of the cell that starts here goes */

static int by_place(const void *x, const void *y)
{
    const End *a = x, *b = y;
    return (a->at > b->at) - (a->at < b->at);
}

ByteMap bytemap_new(Arena *a, const ByteRange *range, uint32_t n)
{
    ByteMap m = {.range = NEWN(a, CellRange, n + 1), .ncell = 1};
    End *end = NEWN(a, End, 2 * (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++) {
        end[2 * i] = (End){range[i].from, &m.range[i].from};
        end[2 * i + 1] = (End){range[i].to, &m.range[i].to};
    }
    qsort(end, 2 * (size_t)n, sizeof *end, by_place);
    uint32_t cell = 0;
    for (uint32_t i = 0; i < 2 * n; i++) {
        cell += i > 0 && end[i].at > end[i - 1].at;
        *end[i].cell = cell;
    }
    while (m.ncell < cell)
        m.ncell *= 2;
    m.node = NEWN(a, uint32_t, 2 * (size_t)m.ncell);
    return m;
}

/* ---- holders ---- */

/* A node and the cells [from, to) below it. */
typedef struct Subtree { uint32_t node, from, to; } Subtree;

static Subtree half(Subtree t, uint32_t which)
{
    uint32_t middle = t.from + (t.to - t.from) / 2;
    return (Subtree){2 * t.node + which, which ? middle : t.from, which ? t.to : middle};
}

static void take(ByteMap *m, Subtree t, CellRange r, uint32_t who)
{
    uint32_t *node = &m->node[t.node];
    if (r.to <= t.from || t.to <= r.from || *node == who)
        return;
    if (r.from <= t.from && t.to <= r.to) {
        *node = who;
        return;
    }
    uint32_t *below = &m->node[2 * t.node];
    if (*node != MIXED)
        below[0] = below[1] = *node;
    take(m, half(t, 0), r, who);
    take(m, half(t, 1), r, who);
    *node = below[0] == below[1] ? below[0] : MIXED;
}

static uint32_t other(const ByteMap *m, Subtree t, CellRange r, uint32_t who)
{
    if (r.to <= t.from || t.to <= r.from)
        return who;
    if (m->node[t.node] != MIXED)
        return m->node[t.node];
    uint32_t left = other(m, half(t, 0), r, who);
    return left != who ? left : other(m, half(t, 1), r, who);
}

void bytemap_take(ByteMap *m, uint32_t r, uint32_t who)
{
    if (m->range[r].from < m->range[r].to)
        take(m, (Subtree){1, 0, m->ncell}, m->range[r], who);
}

uint32_t bytemap_other(const ByteMap *m, uint32_t r, uint32_t who)
{
    bool empty = m->range[r].from == m->range[r].to;
    return empty ? who : other(m, (Subtree){1, 0, m->ncell}, m->range[r], who);
}
