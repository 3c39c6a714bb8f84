/* Losses: what the number that is minimized is a sum of, for those who watch a run.
 *
 * From the minimized number on, sums, differences, factors and casts are gone through, down to what the model's text has a
 * name for, or to another op: these are the losses, each as it is before its weight.  A sum that is written in
 * several assignments to one name, or grows in the rounds of a repeat, is one sum. */
#include <string.h>

#include "ir/graph.h"

typedef struct Walk {
    const Graph *g;
    Arena       *a;
    bool        *seen;                /* per value */
    Losses       list;
} Walk;

static const Op *maker_of(const Walk *w, ValueId v)
{
    OpId maker = value_of(w->g, v)->maker;
    return has_op(maker) ? op_of(w->g, maker) : NULL;
}

/* What a number is called: its variable, else the last word of its path without an index: a label, or the name of the op. */
typedef struct Word { const char *at; size_t n; bool given; } Word;

static Word name_of(const Walk *w, ValueId v)
{
    const Value *val = value_of(w->g, v);
    const char *dot = strrchr(val->path, '.'), *at = dot ? dot + 1 : val->path;
    if (val->variable)
        return (Word){val->variable, strlen(val->variable), true};
    size_t n = strcspn(at, "[");
    const char *op = has_op(val->maker) ? op_info[op_of(w->g, val->maker)->kind].name : "";
    return (Word){at, n, strlen(op) != n || memcmp(at, op, n) != 0};
}

static bool same_word(Word a, Word b)
{
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

/* How many arguments an op adds up, as they are or times a number; 0: it makes something else. */
static int summands(const Op *op)
{
    switch (op ? op->kind : OP_zeros) {
    case OP_add: case OP_sub: return 2;
    case OP_scale: case OP_shift: case OP_cast: return 1;
    default: return 0;
    }
}

static bool is_constant(const Op *op)
{
    return op && (op->kind == OP_zeros || op->kind == OP_constant);
}

/* `sum`: what the sum is called that v is part of, as far as it has a name. */
static void gather(Walk *w, ValueId v, Word sum, bool first)
{
    const Op *op = maker_of(w, v);
    Word name = name_of(w, v);
    int n = summands(op);
    if (w->seen[v.i] || is_constant(op))
        return;
    w->seen[v.i] = true;
    if (n == 0 || (name.given && !first && !(sum.given && same_word(name, sum)))) {
        PUSH(w->a, w->list.of, w->list.n, ((NamedValue){NULL, v}));
        return;
    }
    for (int i = 0; i < n; i++)
        gather(w, op->arg[i], name.given ? name : sum, false);
}

/* A number of which the sum is a multiple is what it consists of. */
static void gather_all(Walk *w)
{
    ValueId top, next = w->g->loss;
    do {
        top = next;
        memset(w->seen, 0, w->g->nvalue);
        w->list.n = 0;
        gather(w, top, (Word){0}, true);
        next = w->list.n == 1 ? w->list.of[0].value : top;
    } while (next.i != top.i);
}

/* By its name, where no other loss has the same; else by its path. */
static void name_all(Walk *w)
{
    for (uint32_t i = 0; i < w->list.n; i++) {
        Word name = name_of(w, w->list.of[i].value);
        bool alone = true;
        for (uint32_t k = 0; k < w->list.n; k++)
            alone &= k == i || !same_word(name, name_of(w, w->list.of[k].value));
        w->list.of[i].name = alone ? arena_strndup(w->a, name.at, name.n) : value_of(w->g, w->list.of[i].value)->path;
    }
}

Losses graph_losses(const Graph *g, Arena *a)
{
    Walk w = {.g = g, .a = a, .seen = NEWN(a, bool, g->nvalue + 1)};
    if (!has_value(g->loss))
        return w.list;
    gather_all(&w);
    if (w.list.n < 2)
        return (Losses){0};
    name_all(&w);
    return w.list;
}
