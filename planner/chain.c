/* Chain: see chain.h. */
#include "planner/chain.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* ---- scopes ---- */

/* Bytes of "NAME[i]" at the head of a path, where NAME is the first step; 0: none. */
static size_t round_length(const char *path, size_t *name, int64_t *round)
{
    *name = strcspn(path, ".[");
    if (path[*name] != '[')
        return 0;
    char *end;
    *round = strtoll(path + *name + 1, &end, 10);
    return *end == ']' ? (size_t)(end + 1 - path) : 0;
}

/* Ops [first, end) of the graph that are one round, or one op. */
typedef struct Run { uint32_t first, end; size_t name; int64_t round; bool repeats; } Run;

static bool is_forward(const Graph *g, uint32_t o)
{
    return g->op[o].phase == PHASE_FORWARD;
}

static Run next_run(const Graph *g, uint32_t at)
{
    Run r = {.first = at, .end = at + 1};
    const char *path = g->op[at].path;
    size_t n = round_length(path, &r.name, &r.round);
    r.repeats = n > 0 && path[n] == '.';
    while (r.repeats && r.end < g->nop && is_forward(g, r.end) && strncmp(g->op[r.end].path, path, n + 1) == 0)
        r.end++;
    return r;
}

static bool follows(const Graph *g, const Run *a, const Run *b)
{
    return a->repeats && b->repeats && a->name == b->name && b->round == a->round + 1 && b->first == a->end &&
           strncmp(g->op[a->first].path, g->op[b->first].path, a->name) == 0;
}

/* ---- alike ---- */

static bool same_axes(const Graph *g, ValueId a, ValueId b)
{
    const Value *x = value_of(g, a), *y = value_of(g, b);
    bool same = x->role == y->role && x->dtype == y->dtype && x->rank == y->rank;
    for (int i = 0; same && i < x->rank; i++)
        same = dim_of(g, x->axis[i])->extent == dim_of(g, y->axis[i])->extent && strcmp(dim_of(g, x->axis[i])->name, dim_of(g, y->axis[i])->name) == 0;
    return same;
}

static bool made_in(const Graph *g, const Run *r, ValueId v)
{
    OpId maker = value_of(g, v)->maker;
    return has_op(maker) && maker.i >= r->first && maker.i < r->end;
}

static uint32_t result_of(const Graph *g, ValueId v)
{
    const Op *op = op_of(g, value_of(g, v)->maker);
    uint32_t k = 0;
    while (op->out[k].i != v.i)
        k++;
    return k;
}

/* Both are made in their rounds by ops of one place, or both come from outside. */
static bool same_source(const Graph *g, const Run *a, const Run *b, ValueId x, ValueId y)
{
    if (!has_value(x) || !has_value(y))
        return has_value(x) == has_value(y);
    if (!same_axes(g, x, y) || made_in(g, a, x) != made_in(g, b, y))
        return false;
    if (!made_in(g, a, x))
        return true;
    return value_of(g, x)->maker.i - a->first == value_of(g, y)->maker.i - b->first && result_of(g, x) == result_of(g, y);
}

static bool same_op(const Graph *g, const Run *a, const Run *b, uint32_t i)
{
    const Op *x = &g->op[a->first + i], *y = &g->op[b->first + i];
    bool same = x->kind == y->kind && x->narg == y->narg && x->nout == y->nout && x->nfactor == y->nfactor && op_same_attrs(x, y) &&
                memcmp(x->arg_factor, y->arg_factor, sizeof x->arg_factor) == 0 && memcmp(x->out_factor, y->out_factor, sizeof x->out_factor) == 0;
    for (int a1 = 0; same && a1 < x->narg; a1++)
        same = same_source(g, a, b, x->arg[a1], y->arg[a1]);
    for (int f = 0; same && f < x->nfactor; f++)
        same = x->factor[f].role == y->factor[f].role && dim_of(g, x->factor[f].dim)->extent == dim_of(g, y->factor[f].dim)->extent;
    return same;
}

/* Activations that ops of a run read from before it, as they come. */
typedef struct Entries { ValueId v[MOST_CARRIED]; uint32_t n; bool many; } Entries;

static Entries entries_of(const Graph *g, const Run *r)
{
    Entries e = {0};
    for (uint32_t o = r->first; o < r->end; o++)
        for (int a = 0; a < g->op[o].narg; a++) {
            ValueId v = g->op[o].arg[a];
            if (!has_value(v) || !has_op(value_of(g, v)->maker) || op_of(g, value_of(g, v)->maker)->phase != PHASE_FORWARD || made_in(g, r, v))
                continue;
            bool known = false;
            for (uint32_t k = 0; k < e.n; k++)
                known |= e.v[k].i == v.i;
            e.many |= !known && e.n == MOST_CARRIED;
            if (!known && !e.many)
                e.v[e.n++] = v;
        }
    return e;
}

/* Round b does what round a does, on what a made. */
static bool alike(const Graph *g, const Run *a, const Run *b)
{
    Entries before = entries_of(g, a), own = entries_of(g, b);
    if (a->end - a->first != b->end - b->first || before.n == 0 || before.n != own.n || before.many || own.many)
        return false;
    for (uint32_t k = 0; k < own.n; k++)
        if (!made_in(g, a, own.v[k]))
            return false;
    for (uint32_t i = 0; i < a->end - a->first; i++)
        if (!same_op(g, a, b, i))
            return false;
    return true;
}

/* ---- parts ---- */

static void add_ops(Arena *a, Chain *c, Segment *p, const Run *r)
{
    for (uint32_t o = r->first; o < r->end; o++) {
        c->part_of[o] = (uint32_t)(p - c->part);
        PUSH(a, p->op, p->nop, ((OpId){o}));
    }
}

/* The places in a round where what the next one reads is made. */
static Entries places_of(const Graph *g, const Run *r, const Run *next)
{
    Entries e = entries_of(g, next);
    for (uint32_t k = 0; k < e.n; k++)
        e.v[k].i = value_of(g, e.v[k])->maker.i - r->first;
    return e;
}

/* The rounds from `r` on that are alike; *last: the last of them. */
static uint32_t count_rounds(const Graph *g, const Run *r, Run *last)
{
    uint32_t n = 1;
    Entries out = {0};
    *last = *r;
    while (r->repeats && last->end < g->nop && is_forward(g, last->end)) {
        Run next = next_run(g, last->end);
        if (!follows(g, last, &next) || !alike(g, last, &next))
            break;
        Entries places = places_of(g, last, &next);
        if (n > 1 && memcmp(out.v, places.v, places.n * sizeof *places.v) != 0)
            break;
        out = places;
        *last = next;
        n++;
    }
    return n;
}

static void add_repeat(Arena *a, Chain *c, const Run *r, const Run *last, uint32_t rounds)
{
    const Graph *g = c->g;
    PUSH(a, c->part, c->npart, ((Segment){.rounds = rounds, .first = r->round, .scope = arena_strndup(a, g->op[r->first].path, r->name)}));
    Segment *p = &c->part[c->npart - 1];
    add_ops(a, c, p, r);
    Run second = next_run(g, r->end);
    Entries in = entries_of(g, r), out = entries_of(g, &second);
    p->ncarried = in.n;
    memcpy(p->in, in.v, sizeof p->in);
    memcpy(p->out, out.v, sizeof p->out);
    for (uint32_t o = r->first; o < last->end; o++) {
        c->part_of[o] = c->npart - 1;
        c->like[o] = (OpId){r->first + (o - r->first) % (r->end - r->first)};
    }
}

static void add_plain(Arena *a, Chain *c, const Run *r)
{
    if (c->npart == 0 || c->part[c->npart - 1].rounds > 1)
        PUSH(a, c->part, c->npart, ((Segment){.rounds = 1}));
    add_ops(a, c, &c->part[c->npart - 1], r);
}

Chain chain_read(Arena *a, const Graph *g)
{
    Chain c = {.g = g, .part_of = NEWN(a, uint32_t, g->nop + 1), .like = NEWN(a, OpId, g->nop + 1)};
    memset(c.part_of, 0xFF, sizeof *c.part_of * (g->nop + 1));
    for (uint32_t o = 0; o < g->nop; o++)
        c.like[o] = (OpId){o};
    for (uint32_t o = 0; o < g->nop;) {
        if (!is_forward(g, o)) {
            o++;
            continue;
        }
        Run r = next_run(g, o), last;
        uint32_t rounds = count_rounds(g, &r, &last);
        if (rounds > 1)
            add_repeat(a, &c, &r, &last, rounds);
        else
            add_plain(a, &c, &r);
        o = last.end;
    }
    return c;
}

uint32_t chain_entry(const Segment *p, ValueId v)
{
    uint32_t k = 0;
    while (k < p->ncarried && p->in[k].i != v.i)
        k++;
    return k;
}

uint32_t chain_handed_on(const Segment *p, ValueId v)
{
    uint32_t k = 0;
    while (k < p->ncarried && p->out[k].i != v.i)
        k++;
    return k;
}

bool chain_same_round(const Chain *c, OpId a, OpId b)
{
    uint32_t part = c->part_of[a.i];
    if (part != c->part_of[b.i] || part == UINT32_MAX)
        return false;
    const Segment *p = &c->part[part];
    return p->rounds == 1 || (a.i - p->op[0].i) / p->nop == (b.i - p->op[0].i) / p->nop;
}

/* As in codegen's recompute pass, under the policy `full`. */
bool *chain_again(Arena *a, const Chain *c)
{
    const Graph *g = c->g;
    bool *again = NEWN(a, bool, g->nop + 1);
    for (uint32_t o = g->nop; o-- > 0;) {
        const Op *op = &g->op[o];
        OpId of = op->phase == PHASE_BACKWARD ? op->forward : again[o] ? (OpId){o} : NO_OP;
        if (!has_op(of) || op_of(g, of)->phase != PHASE_FORWARD)
            continue;
        for (int k = 0; c->part[c->part_of[of.i]].rounds > 1 && k < op->narg; k++) {
            OpId maker = has_value(op->arg[k]) ? value_of(g, op->arg[k])->maker : NO_OP;
            if (has_op(maker) && op_of(g, maker)->phase == PHASE_FORWARD && chain_same_round(c, maker, of))
                again[maker.i] = true;
        }
    }
    return again;
}
