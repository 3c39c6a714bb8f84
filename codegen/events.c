/* Events: lanes followed from one end of a node to the next.  What runs keeps its rate
 * until something beside it starts or ends; a time is settled when the rate changes. */
#include "codegen/events.h"

#include <assert.h>

enum { NOTHING = UINT32_MAX };

/* ---- nodes of a queue ---- */

static uint32_t nodes_here(const Lane *l, uint32_t q, uint32_t call)
{
    return l->recipe[call]->nin_queue[q];
}

/* Move on to a call that has a node in this queue, or behind the last call. */
static void settle(const Lane *l, uint32_t q, Queue *at)
{
    while (at->call < l->p->ncall && at->at >= nodes_here(l, q, at->call)) {
        at->call++;
        at->at = 0;
    }
}

static bool is_over(const Lane *l, const Queue *at)
{
    return at->call >= l->p->ncall;
}

static uint32_t node_index(const Lane *l, uint32_t q)
{
    return l->recipe[l->queue[q].call]->in_queue[q][l->queue[q].at];
}

static Node *node_of(const Lane *l, uint32_t q)
{
    return &l->recipe[l->queue[q].call]->node[node_index(l, q)];
}

/* ---- waits ---- */

/* The node that runs instruction `on` in a call; NOTHING when the call does not run it. */
static uint32_t runs_in(const Lane *l, uint32_t call, uint32_t on)
{
    const Proc *p = &l->p->proc[l->p->call[call].proc];
    return on >= p->first && on < p->end ? l->recipe[call]->node_of[on - p->first] : NOTHING;
}

/* Whether the latest `on` before instruction `instr` of this call has ended; true when there is none. */
static bool is_met(const Lane *l, uint32_t call, const NodeWait *w)
{
    const uint32_t *latest = w->same_slot ? l->latest_slot : l->latest;
    uint32_t proc = l->proc_of[w->on], node = w->on < w->instr ? runs_in(l, call, w->on) : NOTHING;
    while (node == NOTHING) {
        call = latest[call * l->p->nproc + proc];
        if (call == NOTHING)
            return true;
        node = runs_in(l, call, w->on);
    }
    return l->done[l->base[call] + node] >= 0;
}

/* What was sent from this call's buffers before has arrived. */
static bool is_emptied(const Events *e, const Recipe *r)
{
    for (uint32_t i = 0; i < r->nposts; i++)
        if (e->channel[r->posts[i]].received < e->channel[r->posts[i]].sent)
            return false;
    return true;
}

static bool is_ready(const Events *e, const Lane *l, uint32_t q)
{
    const Queue *at = &l->queue[q];
    if (at->running || is_over(l, at))
        return false;
    const Node *n = node_of(l, q);
    if (q == 0 && at->at == 0 && !e->alone && !is_emptied(e, l->recipe[at->call]))
        return false;
    for (uint32_t i = 0; i < n->nwait; i++)
        if (!is_met(l, at->call, &n->wait[i]))
            return false;
    return true;
}

/* ---- rates ---- */

static void set_next(Lane *l)
{
    l->next = INT64_MAX;
    for (uint32_t q = 0; q < STREAMS; q++)
        if (l->queue[q].running && l->queue[q].finish < l->next)
            l->next = l->queue[q].finish;
}

static void set_rate(const Events *e, Queue *at, double rate)
{
    if (!at->running || at->rate == rate)
        return;
    at->left -= (double)(e->now - at->since) * at->rate;
    at->left = at->left > 0 ? at->left : 0;
    at->since = e->now;
    at->rate = rate;
    at->finish = e->now + (int64_t)(at->left / rate + 0.5);
}

static int64_t shared_ns(const Events *e, const Lane *l, Node *n, double processor, double memory)
{
    for (uint32_t i = 0; i < n->nshare; i++)
        if (n->share[i].processor == processor && n->share[i].memory == memory)
            return n->share[i].ns;
    Share s = {processor, memory, 0};
    for (uint32_t i = n->first; i < n->end; i++)
        s.ns += cost_shared_ns(&l->cost[i], processor, memory);
    if (!n->share)
        n->share = NEWN(e->arena, Share, SHARES);
    if (n->nshare < SHARES)
        n->share[n->nshare++] = s;
    return s.ns;
}

static bool computes(const Lane *l)
{
    return l->queue[0].running && node_of(l, 0)->kind == NODE_RUN;
}

/* With n ranks computing on k processors each runs at k / n, and at no more of the memory. */
static double share_rate(const Events *e, const Lane *l)
{
    const Domain *d = &e->domain[l->domain];
    double threads = 0, bytes = 0;
    for (uint32_t i = 0; i < e->nlane; i++)
        if (computes(&e->lane[i])) {
            threads += d->threads[i];
            bytes += d->bytes[i];
        }
    double processor = d->cores > 0 && threads > d->cores ? d->cores / threads : 1;
    double memory = d->bandwidth > 0 && bytes > d->bandwidth ? d->bandwidth / bytes : 1;
    Node *n = node_of(l, 0);
    memory = memory < processor ? memory : processor;
    return n->ns > 0 ? (double)n->ns / (double)shared_ns(e, l, n, processor, memory) : 1;
}

/* Collectives beside compute slow each other down. */
static void set_rates(const Events *e, Lane *l)
{
    bool beside = false, busy = computes(l);
    for (uint32_t q = 1; q < STREAMS; q++)
        if (l->queue[q].running && node_of(l, q)->kind == NODE_COLLECTIVE) {
            beside = true;
            set_rate(e, &l->queue[q], busy ? 1 / e->slow_link : 1);
        }
    if (busy)
        set_rate(e, &l->queue[0], (beside ? 1 / e->slow_compute : 1) * (l->domain != NOTHING ? share_rate(e, l) : 1));
    set_next(l);
}

/* After a lane started or ended a run: those that share with it. */
static void set_domain_rates(const Events *e, const Lane *of)
{
    for (uint32_t i = 0; i < e->nlane && of->domain != NOTHING; i++)
        if (&e->lane[i] != of && e->lane[i].domain != NOTHING)
            set_rates(e, &e->lane[i]);
}

/* ---- accounts ---- */

/* The time since the last change goes to what was going on; a run on queue 0 is
 * accounted for when it ends. */
static void account(const Events *e, Lane *l)
{
    int64_t ns = e->now - l->since;
    l->since = e->now;
    if (ns == 0 || computes(l))
        return;
    for (uint32_t q = 0; q < STREAMS; q++) {
        if (!l->queue[q].running)
            continue;
        const Node *n = node_of(l, q);
        if (n->kind == NODE_RUN)
            l->spent.ns[l->cost[n->first].cls] += ns;
        else
            l->spent.ns[SPENT_EXPOSED + n->axis] += ns;
        return;
    }
    l->bubble += ns;
    if (!is_over(l, &l->queue[0]) && l->time[l->queue[0].call].start >= 0)
        l->time[l->queue[0].call].idle += ns;
}

static void account_run(const Events *e, Lane *l)
{
    const Node *n = node_of(l, 0);
    for (int i = 0; i < SPENT_PARTS; i++)
        l->spent.ns[i] += n->spent.ns[i];
    l->spent.ns[SPENT_SLOWED] += e->now - l->queue[0].start - n->ns;
}

/* ---- starting and ending ---- */

static void start(Events *e, Lane *l, uint32_t q, int64_t ns)
{
    Queue *at = &l->queue[q];
    account(e, l);
    if (l->time[at->call].start < 0)
        l->time[at->call].start = e->now;
    if (l->begun)
        l->begun[l->base[at->call] + node_index(l, q)] = e->now;
    at->armed = false;
    at->running = true;
    at->start = at->since = e->now;
    at->left = (double)ns;
    at->rate = 1;
    at->finish = e->now + ns;
    set_rates(e, l);
    if (q == 0)
        set_domain_rates(e, l);
}

static void end(Events *e, Lane *l, uint32_t q)
{
    Queue *at = &l->queue[q];
    account(e, l);
    if (q == 0 && node_of(l, q)->kind == NODE_RUN)
        account_run(e, l);
    l->done[l->base[at->call] + node_index(l, q)] = e->now;
    l->time[at->call].end = e->now > l->time[at->call].end ? e->now : l->time[at->call].end;
    at->running = false;
    at->at++;
    settle(l, q, at);
    set_rates(e, l);
    if (q == 0)
        set_domain_rates(e, l);
}

/* ---- with other lanes ---- */

/* The queue of a lane whose head is the other side of a message on this channel, and waits for it. */
static uint32_t armed_queue(const Lane *l, NodeKind kind, uint32_t channel)
{
    for (uint32_t q = 0; q < STREAMS; q++)
        if (l->queue[q].armed && node_of(l, q)->kind == kind && node_of(l, q)->link == channel)
            return q;
    return NOTHING;
}

/* A sender that waits meets the receiver; one that does not only leaves word. */
static void try_send(Events *e, Lane *l, uint32_t q)
{
    const Node *n = node_of(l, q);
    Channel *c = &e->channel[n->link];
    Lane *to = &e->lane[c->to];
    uint32_t other = armed_queue(to, NODE_RECV, n->link);
    if (c->posts) {
        c->sent++;
        start(e, l, q, 0);
        if (other != NOTHING)
            start(e, to, other, node_of(to, other)->ns);
    } else if (other == NOTHING) {
        l->queue[q].armed = true;
    } else {
        int64_t ns = node_of(to, other)->ns;
        start(e, l, q, ns);
        start(e, to, other, ns);
    }
}

static void try_recv(Events *e, Lane *l, uint32_t q)
{
    const Node *n = node_of(l, q);
    Channel *c = &e->channel[n->link];
    Lane *from = &e->lane[c->from];
    uint32_t other = c->posts ? NOTHING : armed_queue(from, NODE_SEND, n->link);
    if (other != NOTHING)
        start(e, from, other, n->ns);
    if (other != NOTHING || (c->posts && c->sent > c->received))
        start(e, l, q, n->ns);
    else
        l->queue[q].armed = true;
}

/* Whether all lanes of a meeting have come to it; *ns: the time of the slowest. */
static bool all_came(const Events *e, uint32_t meeting, int64_t *ns)
{
    const Meeting *m = &e->meeting[meeting];
    *ns = 0;
    for (uint32_t i = 0; i < m->nlane; i++) {
        uint32_t q = armed_queue(&e->lane[m->lane[i]], NODE_MEETING, meeting);
        if (q == NOTHING)
            return false;
        m->queue[i] = q;
        int64_t own = node_of(&e->lane[m->lane[i]], q)->ns;
        *ns = own > *ns ? own : *ns;
    }
    return true;
}

static void try_meeting(Events *e, Lane *l, uint32_t q)
{
    uint32_t meeting = node_of(l, q)->link;
    const Meeting *m = &e->meeting[meeting];
    int64_t ns;
    l->queue[q].armed = true;
    if (!all_came(e, meeting, &ns))
        return;
    for (uint32_t i = 0; i < m->nlane; i++)
        start(e, &e->lane[m->lane[i]], m->queue[i], ns);
}

static void try_start(Events *e, Lane *l, uint32_t q)
{
    if (l->queue[q].armed || !is_ready(e, l, q))
        return;
    const Node *n = node_of(l, q);
    bool own = n->kind == NODE_RUN || n->kind == NODE_COLLECTIVE;
    if (own || e->alone)
        start(e, l, q, own ? n->ns : 0);
    else if (n->kind == NODE_SEND)
        try_send(e, l, q);
    else if (n->kind == NODE_RECV)
        try_recv(e, l, q);
    else
        try_meeting(e, l, q);
}

static void try_all(Events *e, Lane *l)
{
    for (uint32_t q = 0; q < STREAMS; q++)
        try_start(e, l, q);
}

/* The end of a node lets others start: of its lane, and where a message was taken, of its sender. */
static void end_and_go_on(Events *e, Lane *l, uint32_t q)
{
    const Node *n = node_of(l, q);
    Channel *taken = n->kind == NODE_RECV && !e->alone ? &e->channel[n->link] : NULL;
    if (taken && taken->posts)
        taken->received++;
    end(e, l, q);
    try_all(e, l);
    if (taken && taken->posts)
        try_all(e, &e->lane[taken->from]);
}

/* ---- the whole ---- */

static Lane *first_to_end(const Events *e)
{
    Lane *first = NULL;
    for (uint32_t i = 0; i < e->nlane; i++)
        if (!first || e->lane[i].next < first->next)
            first = &e->lane[i];
    return first && first->next < INT64_MAX ? first : NULL;
}

static void begin(const Events *e, Lane *l)
{
    for (uint32_t q = 0; q < STREAMS; q++)
        settle(l, q, &l->queue[q]);
    for (uint32_t c = 0; c < l->p->ncall; c++)
        l->time[c] = (CallTime){.start = -1, .end = -1};
    l->next = INT64_MAX;
    l->since = e->now;
}

int64_t events_run(Events *e)
{
    e->now = 0;
    for (uint32_t i = 0; i < e->nlane; i++)
        begin(e, &e->lane[i]);
    for (uint32_t i = 0; i < e->nlane; i++)
        try_all(e, &e->lane[i]);
    for (Lane *l = first_to_end(e); l; l = first_to_end(e)) {
        e->now = l->next;
        for (uint32_t q = 0; q < STREAMS; q++)
            if (l->queue[q].running && l->queue[q].finish <= e->now)
                end_and_go_on(e, l, q);
        set_next(l);
    }
    for (uint32_t i = 0; i < e->nlane; i++) {
        for (uint32_t q = 0; q < STREAMS; q++)
            assert(is_over(&e->lane[i], &e->lane[i].queue[q]) && "the lanes wait for each other");
        account(e, &e->lane[i]);
    }
    return e->now;
}
