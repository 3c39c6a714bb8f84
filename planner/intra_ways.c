/* Intra-op: the states, and the ways between them.  See intra.h. */
#include "planner/intra_step.h"

#include <stdlib.h>
#include <string.h>

/* ---- states ---- */

enum { MOST_LABELS = 8, MOST_STATES = 1 << 14 };

/* A way so far. */
typedef struct Label {
    double      step;                 /* ns of a step, by the goal */
    int64_t     params, saved;
    const struct Label *from;
    const Move *move;                 /* NULL: where records begin by a guess */
    const Rec  *guessed;
    uint8_t     choice;
} Label;

typedef struct Standing { Rec *rec; uint64_t hash; Label *label; uint32_t nlabel; } Standing;
typedef struct Front { Standing *state; uint32_t nstate; uint32_t *table, mask; } Front;   /* table: 1 + number of a state */

static uint64_t hash_of(const void *at, size_t bytes)
{
    const uint8_t *p = at;
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, p + i, sizeof word);
        h = (h ^ word) * 0x100000001b3;
        h ^= h >> 29;
    }
    return h;
}

static void grow_table(Arena *a, Front *f)
{
    f->mask = f->mask ? 2 * f->mask + 1 : 255;
    f->table = NEWN(a, uint32_t, f->mask + 1);
    for (uint32_t i = 0; i < f->nstate; i++) {
        uint32_t at = (uint32_t)f->state[i].hash & f->mask;
        while (f->table[at])
            at = (at + 1) & f->mask;
        f->table[at] = i + 1;
    }
}

static Standing *state_of(Solver *s, Front *f, const Rec *rec, uint32_t n)
{
    uint64_t h = hash_of(rec, sizeof *rec * n);
    if (2 * f->nstate >= f->mask)
        grow_table(s->arena, f);
    uint32_t at = (uint32_t)h & f->mask;
    for (; f->table[at]; at = (at + 1) & f->mask) {
        Standing *x = &f->state[f->table[at] - 1];
        if (x->hash == h && memcmp(x->rec, rec, sizeof *rec * n) == 0)
            return x;
    }
    if (f->nstate == MOST_STATES) {
        s->out->cut_short = true;
        return NULL;
    }
    Rec *copy = NEWN(s->arena, Rec, n + 1);
    memcpy(copy, rec, sizeof *rec * n);
    PUSH(s->arena, f->state, f->nstate, ((Standing){.rec = copy, .hash = h}));
    f->table[at] = f->nstate;
    return &f->state[f->nstate - 1];
}

static bool no_worse(const Label *a, const Label *b)
{
    return a->step <= b->step && a->params <= b->params && a->saved <= b->saved;
}

/* Of a list that is too long, the one that lies closest behind its neighbour goes; never the
 * best step. */
static void drop_one(Solver *s, Standing *x)
{
    uint32_t out = 1;
    for (uint32_t i = 2; i < x->nlabel; i++)
        if (x->label[i].step - x->label[i - 1].step < x->label[out].step - x->label[out - 1].step)
            out = i;
    memmove(&x->label[out], &x->label[out + 1], sizeof *x->label * (x->nlabel - out - 1));
    x->nlabel--;
    s->out->cut_short = true;
}

/* Keeps labels sorted by step; those that another one beats go. */
static void add_label(Solver *s, Standing *x, const Label *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->nlabel; i++)
        if (no_worse(&x->label[i], l))
            return;
    for (uint32_t i = 0; i < x->nlabel; i++)
        if (!no_worse(l, &x->label[i]))
            x->label[n++] = x->label[i];
    if (!x->label)
        x->label = NEWN(s->arena, Label, MOST_LABELS + 1);
    uint32_t at = n;
    for (; at > 0 && x->label[at - 1].step > l->step; at--)
        x->label[at] = x->label[at - 1];
    x->label[at] = *l;
    x->nlabel = n + 1;
    if (x->nlabel > MOST_LABELS)
        drop_one(s, x);
}

/* ---- moves, each computed once ---- */

typedef struct Known { uint64_t hash; struct Known *next; uint32_t choice, guess; Rec in[MOST_IN]; Move move; } Known;

static const Move *move_of(Solver *s, const Step *step, uint32_t choice, uint32_t guess, const Rec *in)
{
    uint64_t h = hash_of(in, sizeof *in * step->nin) * 31 + choice * 64 + guess;
    Known **slot = &s->known[step - s->step][(h ^ h >> 32) % KNOWN_LISTS];
    for (Known *k = *slot; k; k = k->next)
        if (k->hash == h && k->choice == choice && k->guess == guess && memcmp(k->in, in, sizeof *in * step->nin) == 0)
            return &k->move;
    Known *k = NEW(s->arena, Known);
    k->hash = h;
    k->choice = choice;
    k->guess = guess;
    k->next = *slot;
    memcpy(k->in, in, sizeof *in * step->nin);
    step_move(s, step, choice, guess, in, &k->move);
    *slot = k;
    return &k->move;
}

/* ---- one step ---- */

typedef struct Stepping { Solver *s; uint32_t at; const Step *step; Front *from, *to; } Stepping;

static uint32_t place_in(const uint32_t *list, uint32_t n, uint32_t slot)
{
    uint32_t i = 0;
    while (i < n && list[i] != slot)
        i++;
    return i;
}

static void reads_of(const Stepping *st, const Standing *x, Rec *in)
{
    const Step *before = st->at > 0 ? st->step - 1 : NULL;
    for (uint32_t i = 0; i < st->step->nin; i++)
        in[i] = x->rec[place_in(before->live, before->nlive, st->step->in[i])];
}

/* The records after the step, in the order of its live slots. */
static void after_move(const Stepping *st, const Standing *x, const Rec *in, const Rec *out, Rec *rec)
{
    const Step *step = st->step, *before = st->at > 0 ? step - 1 : NULL;
    for (uint32_t i = 0; i < step->nlive; i++) {
        uint32_t slot = step->live[i], k = place_in(step->in, step->nin, slot), made = place_in(step->out, step->nout, slot);
        rec[i] = k < step->nin ? in[k] : made < step->nout ? out[made] : x->rec[place_in(before->live, before->nlive, slot)];
    }
}

static double step_of(const Solver *s, uint32_t rounds, const Move *m)
{
    const Goal *g = &s->goal;
    double micro = (double)(rounds * (m->cost.forward + m->cost.backward) + m->before.forward + m->before.backward);
    return (double)g->micro * micro + rounds * (g->param_ns * (double)m->cost.params + g->shared_ns * (double)m->cost.shared);
}

static void go(Stepping *st, const Standing *x, const Rec *in, const Rec *out, const Move *m, uint8_t choice)
{
    Solver *s = st->s;
    uint32_t rounds = s->chain->part[st->step->part].rounds;
    double more = m ? step_of(s, rounds, m) : 0;
    Rec rec[MOST_LIVE];
    memset(rec, 0, sizeof rec);
    after_move(st, x, in, out, rec);
    Standing *to = state_of(s, st->to, rec, st->step->nlive);
    for (uint32_t i = 0; to && i < x->nlabel; i++) {
        const Label *l = &x->label[i];
        Label next = {.step = l->step + more, .params = l->params, .saved = l->saved, .from = l, .move = m, .choice = choice, .guessed = m ? NULL : out};
        if (m) {
            next.params += rounds * m->cost.params;
            next.saved += rounds * m->cost.saved;
        }
        add_label(s, to, &next);
    }
}

/* Whether rules leave the choice to the op. */
static bool is_free(const Solver *s, const Step *step, uint32_t choice)
{
    bool cut = false, same = true;
    for (uint32_t d = 0; step->kind == STEP_OP && s->given && d < s->l->grid.n; d++) {
        uint16_t given = s->given->cut[step->op.i][d], here = s->fixed[step->op.i][d];
        here |= choice ? s->out->cut[step->index][choice - 1].cut[d] : 0;
        cut |= given != 0;
        same &= given == here;
    }
    return cut || s->goal.closed ? same : true;
}

static void go_all(Stepping *st, const Standing *x)
{
    Solver *s = st->s;
    Rec in[MOST_IN];
    memset(in, 0, sizeof in);
    reads_of(st, x, in);
    uint32_t choices = st->step->kind == STEP_OP ? s->out->ncut[st->step->index] + 1 : 1;
    for (uint32_t c = 0; c < choices; c++)
        for (uint32_t guess = 0; is_free(s, st->step, c) && guess < s->guesses[st->at][c]; guess++) {
            const Move *m = move_of(s, st->step, c, guess, in);
            if (m->legal)
                go(st, x, m->in, m->out, m, (uint8_t)c);
        }
}

/* Records that nothing has made yet. */
static void guess_all(Stepping *st, const Standing *x)
{
    Rec in[MOST_IN];
    reads_of(st, x, in);
    for (uint32_t i = 0; i < st->s->guesses[st->at][0]; i++) {
        Rec *out = NEWN(st->s->arena, Rec, 2);
        out[0] = out[1] = st->s->guess[st->at][i];
        go(st, x, in, out, NULL, 0);
    }
}

static int by_step(const void *x, const void *y)
{
    double a = ((const Standing *)x)->label[0].step, b = ((const Standing *)y)->label[0].step;
    return (a > b) - (a < b);
}

/* Only the best so far, when no more than a good way is looked for. */
static void narrow(Front *f, uint32_t width)
{
    if (f->nstate <= width)
        return;
    qsort(f->state, f->nstate, sizeof *f->state, by_step);
    f->nstate = width;
}

static Front run(Solver *s, uint32_t width)
{
    Front from = {0};
    Label start = {0};
    Rec nothing = {0};
    add_label(s, state_of(s, &from, &nothing, 0), &start);
    for (uint32_t i = 0; i < s->nstep; i++) {
        Front to = {0};
        Stepping st = {.s = s, .at = i, .step = &s->step[i], .from = &from, .to = &to};
        bool guess = s->step[i].kind == STEP_ENTER || s->step[i].kind == STEP_GIVE;
        for (uint32_t k = 0; k < from.nstate; k++)
            if (guess)
                guess_all(&st, &from.state[k]);
            else
                go_all(&st, &from.state[k]);
        narrow(&to, width);
        from = to;
    }
    return from;
}

/* ---- ways ---- */

static void add_cost(PartCost *to, const PartCost *c)
{
    to->forward += c->forward;
    to->backward += c->backward;
    to->again += c->again;
    to->link += c->link;
    to->link_again += c->link_again;
    to->saved += c->saved;
    to->entry += c->entry;
    to->params += c->params;
    to->shared += c->shared;
}

static Way way_of(Arena *a, const Solver *s, const Label *l)
{
    Way w = {.step = l->step, .choice = NEWN(a, uint8_t, s->nstep + 1), .op = NEWN(a, PartCost, s->nstep + 1)};
    for (uint32_t i = s->nstep; i-- > 0; l = l->from) {
        const Step *step = &s->step[i];
        if (step->kind == STEP_OP)
            w.choice[step->index] = l->choice;
        if (step->kind == STEP_ENTER)
            w.part[step->part].entry = price_bytes(s->pricer, s->chain->part[step->part].in, s->code[l->guessed->made]);
        if (!l->move)
            continue;
        add_cost(&w.part[step->part], &l->move->cost);
        if (step->kind == STEP_OP)
            add_cost(&w.op[step->index], &l->move->cost);
        if (step->part > 0)
            add_cost(&w.part[step->part - 1], &l->move->before);
    }
    for (uint32_t i = 0; i < s->chain->npart; i++) {
        const PartCost *c = &w.part[i];
        uint32_t n = s->chain->part[i].rounds;
        w.ns += n * (c->forward + c->backward);
        w.link += n * c->link;
        w.params += n * c->params;
        w.shared += n * c->shared;
        w.saved += n * c->saved;
    }
    return w;
}

/* Of the ways to the end none beats another; the best step first. */
static void collect(Arena *a, Solver *s, const Front *f)
{
    Standing end = {0};
    for (uint32_t i = 0; i < f->nstate; i++)
        for (uint32_t k = 0; k < f->state[i].nlabel; k++)
            add_label(s, &end, &f->state[i].label[k]);
    for (uint32_t k = 0; k < end.nlabel; k++)
        PUSH(a, s->out->way, s->out->nway, way_of(a, s, &end.label[k]));
}

enum { MOST_WIDTH = 24 << 8 };        /* states a step among which ways are looked for, at most */

/* Few states may all have guessed wrong: then more are followed. */
void ways_solve(Arena *a, Solver *s)
{
    uint32_t width = s->goal.width ? s->goal.width : UINT32_MAX;
    do {
        Front good = run(s, width);
        collect(a, s, &good);
        s->out->cut_short |= width < UINT32_MAX;
        width *= 4;
    } while (s->goal.width > 0 && s->out->nway == 0 && width <= MOST_WIDTH);
}
