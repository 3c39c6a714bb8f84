/* The step of all ranks, followed without numbers: only instructions of communication
 * are looked at, each once per call, so the cost is linear in what is communicated.
 *
 * A collective holds its rank until all of its group have come, and those must have
 * come to the same one.  A message waits where it was sent until it is fetched; messages
 * of a pair are fetched in order.  A procedure begins when all that was sent where it will
 * write (program_sent_before()) was received, because it is read where it lies.  When no rank
 * can go on and not all are done, they wait for each other for ever. */
#include "codegen/verify.h"

#include <string.h>

#include "base/text.h"

typedef struct Message { struct Message *next; uint32_t from, instr; } Message;

/* All members of a group, who come to one collective after the other. */
typedef struct Meeting { uint32_t came, first; } Meeting;          /* first: the rank that came first */

typedef struct Walker {
    const Program *p;
    const Call    *call; uint32_t ncall;
    uint32_t      *event;             /* instructions that communicate, */
    uint32_t      *event0;            /* by procedure, and one more: its first of those */
    SentBefore     sent;
    uint32_t      *about;             /* by event: a hash of what is communicated */
    Meeting      **meeting;           /* by group of the program */
    uint32_t       at, next;          /* the call, and the event that comes next in it */
    bool           arrived, queued;   /* arrived: it waits in a meeting */
    Message       *inbox;             /* what was sent to it, in order, and not fetched yet */
} Walker;

typedef struct Step {
    RanksCheck *c;
    Walker     *rank;
    uint32_t   *queue, nqueue;        /* ranks that may be able to go on */
} Step;

enum { REPORTS = 20 };                /* more say nothing new */

/* ---- what is communicated ---- */

/* Buckets have other numbers on other stages, so gradients are known by their weights. */
static uint32_t about(const Program *p, const GradientPlaces *g, const Instr *in)
{
    TensorId t = in->narg ? in->arg[0] : in->out[0];
    const Tensor *x = &p->tensor[t.i];
    if (p->buffer[x->buffer.i].cls != CLASS_gradients)
        return fnv1a(in->path);
    uint32_t hash = 0;
    for (uint32_t k = gradients_first(g, x); k < g->n; k = gradients_next(g, x, k))
        hash = hash * 31 + fnv1a(p->state[g->place[k].state].path) + (uint32_t)(g->place[k].from - x->at);
    return hash;
}

static int64_t count_of(const Program *p, TensorId t)
{
    return tensor_elements(&p->tensor[t.i]);
}

static const Tensor *operand(const Program *p, const Instr *in)
{
    return &p->tensor[(in->narg ? in->arg[0] : in->out[0]).i];
}

static const char *describe(const Step *s, uint32_t rank, uint32_t i)
{
    const Program *p = s->rank[rank].p;
    const Instr *in = &p->instr[i];
    return arena_printf(s->c->scratch, "%s of '%s' (%lld %s)", op_info[in->op].name, in->path, (long long)tensor_elements(operand(p, in)),
                        dtype_name(operand(p, in)->dtype));
}

static uint32_t instr_now(const Walker *w)
{
    return w->event[w->next];
}

static bool same_type(const Walker *a, uint32_t i, const Walker *b, uint32_t j)
{
    return operand(a->p, &a->p->instr[i])->dtype == operand(b->p, &b->p->instr[j])->dtype;
}

/* Whether two ranks that stand in one meeting came to the same collective. */
static bool same_collective(const Walker *a, const Walker *b)
{
    const Instr *x = &a->p->instr[instr_now(a)], *y = &b->p->instr[instr_now(b)];
    return x->op == y->op && a->about[a->next] == b->about[b->next] && same_type(a, instr_now(a), b, instr_now(b)) &&
           count_of(a->p, x->arg[0]) == count_of(b->p, y->arg[0]) && count_of(a->p, x->out[0]) == count_of(b->p, y->out[0]);
}

/* ---- going on ---- */

static void wake(Step *s, uint32_t rank)
{
    if (!s->rank[rank].queued)
        s->queue[s->nqueue++] = rank;
    s->rank[rank].queued = true;
}

static void enter(Walker *w)
{
    w->next = w->at < w->ncall ? w->event0[w->call[w->at].proc] : 0;
}

static bool send(Step *s, uint32_t me)
{
    Walker *w = &s->rank[me];
    uint32_t to = w->p->group[w->p->instr[instr_now(w)].group].rank[1];
    Message *m = NEW(s->c->scratch, Message), **end = &s->rank[to].inbox;
    *m = (Message){.from = me, .instr = instr_now(w)};
    while (*end)
        end = &(*end)->next;
    *end = m;
    w->next++;
    wake(s, to);
    return true;
}

static bool receive(Step *s, uint32_t me)
{
    Walker *w = &s->rank[me];
    uint32_t i = instr_now(w), from = w->p->group[w->p->instr[i].group].rank[0];
    Message **m = &w->inbox;
    while (*m && (*m)->from != from)
        m = &(*m)->next;
    if (!*m)
        return false;
    Walker *sender = &s->rank[from];
    const Instr *sent = &sender->p->instr[(*m)->instr], *in = &w->p->instr[i];
    bool same = count_of(sender->p, sent->arg[0]) == count_of(w->p, in->out[0]) && same_type(sender, (*m)->instr, w, i);
    if (!same || strcmp(sent->path, in->path) != 0)
        broken(&s->c->k, "rank %u expects %s from rank %u, which sends %s", me, describe(s, me, i), from, describe(s, from, (*m)->instr));
    *m = (*m)->next;
    w->next++;
    wake(s, from);
    return true;
}

/* The last of a group to come lets all go on. */
static bool meet(Step *s, uint32_t me)
{
    Walker *w = &s->rank[me];
    uint32_t group = w->p->instr[instr_now(w)].group;
    const RankGroup *g = &w->p->group[group];
    Meeting *m = w->meeting[group];
    if (w->arrived)
        return false;
    w->arrived = true;
    m->first = m->came == 0 ? me : m->first;
    if (!same_collective(&s->rank[m->first], w))
        broken(&s->c->k, "rank %u comes to %s where rank %u comes to %s", me, describe(s, me, instr_now(w)), m->first,
               describe(s, m->first, instr_now(&s->rank[m->first])));
    if (++m->came < g->n)
        return false;
    m->came = 0;
    for (uint32_t k = 0; k < g->n; k++) {
        s->rank[g->rank[k]].arrived = false;
        s->rank[g->rank[k]].next++;
        wake(s, g->rank[k]);
    }
    return true;
}

/* Whether all was received that lies where a procedure will write. */
static bool may_begin(const Step *s, uint32_t me, uint32_t proc)
{
    const Walker *w = &s->rank[me];
    for (uint32_t k = w->sent.first[proc]; k < w->sent.first[proc + 1]; k++) {
        const RankGroup *g = &w->p->group[w->p->instr[w->sent.instr[k]].group];
        for (const Message *m = s->rank[g->rank[1]].inbox; m; m = m->next)
            if (m->from == me)
                return false;
    }
    return true;
}

static bool is_skipped(const Walker *w)
{
    return !instr_runs(&w->p->instr[instr_now(w)], w->p, &w->call[w->at]);
}

/* One event, or the end of a call; false: the rank must wait. */
static bool go_on(Step *s, uint32_t me)
{
    Walker *w = &s->rank[me];
    uint32_t proc = w->call[w->at].proc;
    if (w->next == w->event0[proc] && !may_begin(s, me, proc))
        return false;
    while (w->next < w->event0[proc + 1] && is_skipped(w))
        w->next++;
    if (w->next == w->event0[proc + 1]) {
        w->at++;
        enter(w);
        return true;
    }
    OpKind op = w->p->instr[instr_now(w)].op;
    return op == OP_send ? send(s, me) : op == OP_recv ? receive(s, me) : meet(s, me);
}

static void report_end(Step *s)
{
    for (uint32_t r = 0; r < s->c->n; r++) {
        const Walker *w = &s->rank[r];
        if (w->at < w->ncall)
            broken(&s->c->k, "rank %u waits for ever at instruction %u, %s", r, instr_now(w), describe(s, r, instr_now(w)));
        for (const Message *m = w->inbox; m; m = m->next)
            broken(&s->c->k, "rank %u never receives %s of rank %u", r, describe(s, m->from, m->instr), m->from);
    }
}

static void follow(Step *s)
{
    for (uint32_t r = 0; r < s->c->n; r++) {
        s->rank[r].at = 0;
        enter(&s->rank[r]);
        wake(s, r);
    }
    while (s->nqueue > 0 && s->c->k.broken < REPORTS) {
        uint32_t me = s->queue[--s->nqueue];
        Walker *w = &s->rank[me];
        w->queued = false;
        while (w->at < w->ncall && go_on(s, me))
            ;
    }
    if (s->c->k.broken < REPORTS)
        report_end(s);
}

/* ---- reading the programs ---- */

static void read_events(Step *s, Walker *w)
{
    const Program *p = w->p;
    Arena *a = s->c->scratch;
    GradientPlaces g = gradient_places(p, a);
    uint32_t nevent = 0, nabout = 0;
    w->event0 = NEWN(a, uint32_t, p->nproc + 1);
    w->sent = program_sent_before(p, a);
    for (uint32_t k = 0; k < p->nproc; k++) {
        for (uint32_t i = p->proc[k].first; i < p->proc[k].end; i++) {
            if (!(op_info[p->instr[i].op].flags & OPF_COMM))
                continue;
            PUSH(a, w->event, nevent, i);
            PUSH(a, w->about, nabout, about(p, &g, &p->instr[i]));
        }
        w->event0[k + 1] = nevent;
    }
}

/* The number of a group in the program of its first member; UINT32_MAX: that one has no
 * such group. */
static uint32_t number_at_first(const RanksCheck *c, const RankGroup *g)
{
    const Program *p = c->rank[g->rank[0]];
    for (uint32_t i = 0; i < p->ngroup; i++)
        if (p->group[i].n == g->n && memcmp(p->group[i].rank, g->rank, sizeof *g->rank * g->n) == 0)
            return i;
    return UINT32_MAX;
}

/* All members of a group share the meeting of its first one. */
static void read_meetings(Step *s, uint32_t r)
{
    Walker *w = &s->rank[r];
    w->meeting = arena_alloc(s->c->scratch, sizeof *w->meeting * (w->p->ngroup + 1));
    for (uint32_t i = 0; i < w->p->ngroup; i++) {
        const RankGroup *g = &w->p->group[i];
        uint32_t at = number_at_first(s->c, g), first = g->rank[0];
        if (first >= r || at == UINT32_MAX)
            w->meeting[i] = NEW(s->c->scratch, Meeting);
        else
            w->meeting[i] = s->rank[first].meeting[at];
    }
}

static void add_call(Step *s, Call **list, uint32_t *n, const Program *p, ProcKind kind, uint32_t micro)
{
    const Proc *proc = proc_find(p, kind);
    if (proc)
        PUSH(s->c->scratch, *list, *n, ((Call){.proc = (uint32_t)(proc - p->proc), .micro = micro}));
}

/* As a run evaluates; two micro-batches, as the second is the first after another. */
static void call_evaluation(Step *s, Walker *w)
{
    Call *list = NULL;
    uint32_t n = 0;
    for (uint32_t m = 0; m < 2; m++)
        add_call(s, &list, &n, w->p, PROC_begin, m);
    add_call(s, &list, &n, w->p, PROC_agree, 0);
    for (uint32_t m = 0; m < 2; m++)
        add_call(s, &list, &n, w->p, PROC_evaluate, m);
    add_call(s, &list, &n, w->p, PROC_total, 0);
    w->call = list;
    w->ncall = n;
}

void verify_step(RanksCheck *c)
{
    Step s = {.c = c, .rank = NEWN(c->scratch, Walker, c->n), .queue = NEWN(c->scratch, uint32_t, c->n)};
    for (uint32_t r = 0; r < c->n; r++) {
        s.rank[r] = (Walker){.p = c->rank[r], .call = c->rank[r]->call, .ncall = c->rank[r]->ncall};
        read_events(&s, &s.rank[r]);
        read_meetings(&s, r);
    }
    follow(&s);
    for (uint32_t r = 0; r < c->n; r++)
        call_evaluation(&s, &s.rank[r]);
    if (c->k.broken == 0)
        follow(&s);
}
