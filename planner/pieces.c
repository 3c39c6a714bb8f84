/* Pieces: see pieces.h. */
#include "planner/pieces.h"

#include <string.h>

/* Bytes of the first step of a path, "h[3]" of "h[3].attn.q"; of one op all of it. */
static size_t head_of(const char *path)
{
    return strcspn(path, ".");
}

static bool same_head(const char *x, const char *y)
{
    size_t n = head_of(x);
    return x[n] == '.' && head_of(y) == n && y[n] == '.' && strncmp(x, y, n) == 0;
}

/* Whether an op reads, directly or not, an input of the model. */
static bool *read_dependent(Arena *a, const Graph *g)
{
    bool *depends = NEWN(a, bool, g->nop + 1);
    for (uint32_t o = 0; o < g->nop; o++)
        for (int k = 0; k < g->op[o].narg; k++) {
            if (!has_value(g->op[o].arg[k]))
                continue;
            const Value *v = value_of(g, g->op[o].arg[k]);
            depends[o] |= has_op(v->maker) ? depends[v->maker.i] : v->role == ROLE_INPUT;
        }
    return depends;
}

/* Whether an op goes on with the last piece: with the same round or block. */
static bool goes_on(const Pieces *p, const Chain *c, uint32_t o)
{
    const Piece *last = p->n ? &p->piece[p->n - 1] : NULL;
    return last && last->part == c->part_of[o] && same_head(c->g->op[last->first.i + last->nop - 1].path, c->g->op[o].path);
}

static Piece piece_at(Arena *a, const Chain *c, uint32_t first, uint32_t o)
{
    const char *path = c->g->op[o].path;
    size_t n = head_of(path);
    bool round = path[n] == '.' && n > 0 && path[n - 1] == ']';
    return (Piece){.first = {first}, .nop = o + 1 - first, .part = c->part_of[o], .round = round, .path = arena_strndup(a, path, n)};
}

Pieces pieces_read(Arena *a, const Chain *c)
{
    const Graph *g = c->g;
    Pieces p = {0};
    uint32_t end = 0, forward = 0;                       /* after the last piece; after the last forward op */
    bool *depends = read_dependent(a, g);
    for (uint32_t o = 0; o < g->nop; o++) {
        if (g->op[o].phase != PHASE_FORWARD)
            continue;
        forward = o + 1;
        if (goes_on(&p, c, o))
            p.piece[p.n - 1].nop = o + 1 - p.piece[p.n - 1].first.i;
        else if (depends[o])
            PUSH(a, p.piece, p.n, piece_at(a, c, end, o));
        else
            continue;
        end = o + 1;
    }
    if (p.n == 0)                                        /* nothing depends on an input: all is one piece */
        PUSH(a, p.piece, p.n, ((Piece){.path = ""}));
    p.piece[p.n - 1].nop = forward - p.piece[p.n - 1].first.i;
    return p;
}
