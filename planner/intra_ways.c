/* Intra-op: the states, and the ways between them.  See intra.h. */
#include "planner/intra_step.h"

#include <stdlib.h>
#include <string.h>

#include "planner/canonical.h"

/* ---- states ---- */

enum { MOST_STATES = 1 << 14 };

/* The best way so far to a state. */
typedef struct Label {
    double      ns;                   /* of a step, by the goal, and what its memory is worth */
    const struct Label *from;
    const Move *move;                 /* NULL: where records begin by a guess */
    const Rec  *guessed;
    uint8_t     choice;
} Label;

typedef struct Standing { Rec *rec; uint64_t hash; Label *label; } Standing;
typedef struct Front { Standing *state; uint32_t nstate; uint32_t *table, mask; } Front;   /* table: 1 + number of a state */

/* A record is a whole number of words. */
static uint64_t hash_of(const Rec *rec, uint32_t n)
{
    const uint8_t *p = (const uint8_t *)rec;
    uint64_t h = 0xcbf29ce484222325;
    _Static_assert(sizeof *rec % sizeof h == 0, "words");
    for (size_t i = 0; i < n * sizeof *rec; i += sizeof h) {
        uint64_t word;
        memcpy(&word, p + i, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15;
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
    uint64_t h = hash_of(rec, n);
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

/* Equal ones leave the first. */
static void add_label(Solver *s, Standing *x, const Label *l)
{
    if (!x->label)
        x->label = NEW(s->arena, Label);
    else if (x->label->ns <= l->ns)
        return;
    *x->label = *l;
}

/* ---- moves, each computed once ---- */

typedef struct Known { uint64_t hash; struct Known *next; uint32_t choice, guess; Rec in[MOST_IN]; Move move; } Known;

static const Move *move_of(Solver *s, const Step *step, uint32_t choice, uint32_t guess, const Rec *in)
{
    uint64_t h = hash_of(in, step->nin) * 31 + choice * 64 + guess;
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

typedef struct Stepping { Solver *s; uint32_t at; const Step *step; Front *from, *to; Rec rec[MOST_LIVE]; } Stepping;   /* rec: of the state that is gone to */

static void reads_of(const Stepping *st, const Standing *x, Rec *in)
{
    for (uint32_t i = 0; i < st->step->nin; i++)
        in[i] = x->rec[st->step->read[i]];
}

/* The records after the step, in the order of its live slots. */
static void after_move(const Step *step, const Standing *x, const Rec *in, const Rec *out, Rec *rec)
{
    for (uint32_t i = 0; i < step->nlive; i++) {
        uint32_t from = step->source[i];
        rec[i] = from < MOST_IN ? in[from] : from < MOST_IN + MOST_OUT ? out[from - MOST_IN] : x->rec[from - MOST_IN - MOST_OUT];
    }
}

/* ns of a step, by the goal; with `again`, of one whose rounds are all recomputed. */
static double step_of(const Solver *s, uint32_t rounds, const Move *m)
{
    const Goal *g = &s->goal;
    double micro = (double)(rounds * (m->cost.forward + m->cost.backward) + m->before.forward + m->before.backward);
    double again = s->asked.again && rounds > 1 ? (double)(rounds * m->cost.again + m->before.again) : 0;
    return (double)g->micro * (micro + again) + rounds * (g->param_ns * (double)m->cost.params + g->shared_ns * (double)m->cost.shared);
}

/* What backward keeps of a round that is recomputed is what enters it. */
static double bytes_of(const Solver *s, uint32_t rounds, const Move *m)
{
    double kept = s->asked.again && rounds > 1 ? 0 : (double)m->cost.saved;
    return rounds * (s->goal.param_bytes * (double)m->cost.params + s->goal.flight * kept);
}

/* Of what enters a round, as it was guessed. */
static int64_t entry_of(const Solver *s, const Segment *p, const Rec *guessed)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k < p->ncarried; k++)
        bytes += price_bytes(s->pricer, p->in[k], s->code[guessed[2 * k].made]);
    return bytes;
}

static double entry_bytes(const Solver *s, const Segment *p, const Rec *guessed)
{
    return s->asked.again ? s->goal.flight * p->rounds * (double)entry_of(s, p, guessed) : 0;
}

static void go(Stepping *st, const Standing *x, const Rec *in, const Rec *out, const Move *m, uint8_t choice)
{
    Solver *s = st->s;
    const Segment *part = &s->chain->part[st->step->part];
    double ns = m ? step_of(s, part->rounds, m) : 0, bytes = m ? bytes_of(s, part->rounds, m) : st->step->kind == STEP_ENTER ? entry_bytes(s, part, out) : 0;
    after_move(st->step, x, in, out, st->rec);
    Standing *to = state_of(s, st->to, st->rec, st->step->nlive);
    Label next = {.ns = x->label->ns + ns + s->asked.byte_ns * bytes, .from = x->label, .move = m, .choice = choice, .guessed = m ? NULL : out};
    if (to)
        add_label(s, to, &next);
}

/* Whether rules leave the choice to the op. */
static bool is_free(const Solver *s, const Step *step, uint32_t choice)
{
    bool cut = false, same = true;
    if (step->kind == STEP_OP && s->asked.only && s->asked.only[step->index] != choice)
        return false;
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
    uint32_t values = (st->step->nout + 1) / 2;          /* of which a slot each, or two, begin */
    for (uint32_t i = 0; i < st->s->guesses[st->at][0]; i++) {
        Rec *out = NEWN(st->s->arena, Rec, 2 * values);
        for (uint32_t k = 0; k < values; k++)
            out[2 * k] = out[2 * k + 1] = st->s->guess[st->at][i * values + k];
        go(st, x, in, out, NULL, 0);
    }
}

/* A state in the order of what it took. */
typedef struct Ranked { double ns; uint32_t state; } Ranked;

static int by_ns(const void *x, const void *y)
{
    const Ranked *a = x, *b = y;
    return a->ns != b->ns ? (a->ns > b->ns) - (a->ns < b->ns) : (a->state > b->state) - (a->state < b->state);
}

/* What is guessed and shows later, at the end of a round or where the last reader has spoken: promises, and where given
 * values lie.  As one number; 0: nothing is. */
static uint64_t guessed_in(const Solver *s, const Step *step, const Rec *rec)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < step->nlive; i++) {
        SlotKind kind = s->slot[step->live[i]].kind;
        if (kind == SLOT_PROMISE || kind == SLOT_GIVEN)
            h = (h ^ ((uint64_t)rec[i].made << 16 | (uint64_t)rec[i].needs << 8 | (kind == SLOT_PROMISE ? rec[i].expect : 0)) ^ (uint64_t)1 << 32) * 0x9e3779b97f4a7c15;
    }
    return h;
}

enum { MOST_GUESSES = 256, GUESS_SHARE = 8 };

/* The number of a guess among those seen; a new one is added. */
static uint32_t number_of(uint64_t guess, uint64_t *seen, uint32_t *nseen)
{
    uint32_t k = 0;
    while (k < *nseen && seen[k] != guess)
        k++;
    if (k == *nseen && k < MOST_GUESSES)
        seen[(*nseen)++] = guess;
    return k;
}

/* Only the best so far, when no more than a good way is looked for; where something is guessed, the best of each
 * guess: what it costs shows later, so until then one must not oust another. */
static void narrow(Solver *s, const Step *step, Front *f, uint32_t width)
{
    uint32_t kept = 0, nseen = 0, count[MOST_GUESSES] = {0};
    uint64_t seen[MOST_GUESSES];
    if (f->nstate <= width)
        return;
    Ranked *ranked = arena_alloc(s->arena, sizeof *ranked * f->nstate);
    Standing *best = arena_alloc(s->arena, sizeof *best * f->nstate);
    for (uint32_t i = 0; i < f->nstate; i++)
        ranked[i] = (Ranked){f->state[i].label->ns, i};
    qsort(ranked, f->nstate, sizeof *ranked, by_ns);
    for (uint32_t i = 0; i < f->nstate; i++) {
        const Standing *x = &f->state[ranked[i].state];
        uint64_t guess = guessed_in(s, step, x->rec);
        uint32_t k = number_of(guess, seen, &nseen);
        if (k < MOST_GUESSES && count[k]++ < (guess ? width / GUESS_SHARE : width))
            best[kept++] = *x;
    }
    f->state = best;
    f->nstate = kept;
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
        narrow(s, st.step, &to, width);
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
    const Goal *g = &s->goal;
    Way w = {.choice = NEWN(a, uint8_t, s->nstep + 1), .op = NEWN(a, PartCost, s->nstep + 1)};
    for (uint32_t i = s->nstep; i-- > 0; l = l->from) {
        const Step *step = &s->step[i];
        if (step->kind == STEP_OP)
            w.choice[step->index] = l->choice;
        if (step->kind == STEP_ENTER)
            w.part[step->part].entry = entry_of(s, &s->chain->part[step->part], l->guessed);
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
        w.again += n > 1 ? n * c->again : 0;
        w.kept += n * (n > 1 ? c->entry : c->saved);
    }
    w.step = (double)g->micro * (double)w.ns + g->param_ns * (double)w.params + g->shared_ns * (double)w.shared;
    return w;
}

static bool no_worse(const Way *a, const Way *b)
{
    return a->step <= b->step && a->params <= b->params && a->saved <= b->saved && a->ns + a->again <= b->ns + b->again && a->kept <= b->kept;
}

/* Of the ways none beats another, but for seeds, which prices before fusion are not to oust; the best step first. */
static void add_way(Arena *a, Intra *out, const Way *w)
{
    uint32_t n = 0, nop = 0;
    for (uint32_t i = 0; i < out->chain->npart; i++)
        nop += out->chain->part[i].nop;
    for (uint32_t i = 0; i < out->nway; i++)
        if (w->seed ? memcmp(out->way[i].choice, w->choice, nop) == 0 : no_worse(&out->way[i], w))
            return;
    for (uint32_t i = 0; i < out->nway; i++)
        if (out->way[i].seed || !no_worse(w, &out->way[i]))
            out->way[n++] = out->way[i];
    out->nway = n;
    PUSH(a, out->way, out->nway, *w);
    for (n = out->nway - 1; n > 0 && out->way[n - 1].step > w->step; n--)
        out->way[n] = out->way[n - 1];
    out->way[n] = *w;
}

enum { MOST_WIDTH = 24 << 8 };        /* states a step among which a way is looked for, at most */

/* Few states may all have guessed wrong: then more are followed. */
static void find_way(Arena *a, Solver *s)
{
    Front end;
    for (uint32_t width = s->width;; width *= 4) {
        end = run(s, width);
        if (end.nstate > 0 && !s->asked.only)
            s->width = width;                            /* fewer would not do for other prices either */
        if (end.nstate > 0 || s->goal.width == 0 || width > MOST_WIDTH / 4)
            break;
    }
    s->out->cut_short |= s->goal.width > 0;
    if (end.nstate > 0) {
        Way w = way_of(a, s, end.state[0].label);
        w.seed = s->asked.only != NULL;
        add_way(a, s->out, &w);
    }
}

/* What ways are looked for: a byte is worth so many times the goal's, from nothing to all that counts. */
static const Asked ASKED[] = {{0}, {.byte_ns = 0.5}, {.byte_ns = 32, .again = true}};

static void seed_ways(Arena *a, Solver *s)
{
    const uint8_t *seed[MOST_SEEDS];
    uint32_t n = canonical_choices(s->arena, s->chain, s->out->cut, s->out->ncut, seed);
    for (uint32_t i = 0; i < n; i++) {
        s->asked = (Asked){.only = seed[i]};
        find_way(a, s);
    }
}

void ways_solve(Arena *a, Solver *s)
{
    s->width = s->goal.width ? s->goal.width : UINT32_MAX;
    for (size_t i = 0; i < sizeof ASKED / sizeof *ASKED && (i == 0 || s->goal.byte_ns > 0); i++) {
        s->asked = (Asked){.byte_ns = ASKED[i].byte_ns * s->goal.byte_ns, .again = ASKED[i].again};
        if (!s->asked.again || s->goal.recomputes)
            find_way(a, s);
    }
    if (!s->given)
        seed_ways(a, s);
}
