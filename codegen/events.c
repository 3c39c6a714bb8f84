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
    at->node = NULL;
    at->nmet = 0;
    at->awaits = NULL;
    if (at->call == l->p->ncall)
        return;
    Recipe *r = l->recipe[at->call];
    uint32_t node = r->in_queue[q][at->at];
    at->node = &r->node[node];
    at->index = l->base[at->call] + node;
}

/* ---- waits ---- */

/* The node that runs instruction `on` in a call; NOTHING when the call does not run it. */
static uint32_t runs_in(const Lane *l, uint32_t call, uint32_t on)
{
    const Proc *p = &l->p->proc[l->p->call[call].proc];
    return on >= p->first && on < p->end ? l->recipe[call]->node_of[on - p->first] : NOTHING;
}

/* When the latest `on` before instruction `instr` of this call ended; when the lane began where there is none. */
static const int64_t *awaited(const Lane *l, uint32_t call, const NodeWait *w)
{
    static const int64_t over = 0;
    const uint32_t *latest = w->same_slot ? l->latest_slot : l->latest;
    uint32_t proc = l->proc_of[w->on], node = w->on < w->instr ? runs_in(l, call, w->on) : NOTHING;
    while (node == NOTHING) {
        call = latest[call * l->p->nproc + proc];
        if (call == NOTHING)
            return &over;
        node = runs_in(l, call, w->on);
    }
    return &l->done[l->base[call] + node];
}

/* Whether all waits of a queue's node are over.  What is over stays so, and what is not is looked up
 * once: the queue is asked after every event of its lane. */
static bool is_free(const Lane *l, Queue *at)
{
    for (; at->nmet < at->node->nwait; at->nmet++) {
        if (!at->awaits)
            at->awaits = awaited(l, at->call, &at->node->wait[at->nmet]);
        if (*at->awaits < 0)
            return false;
        at->awaits = NULL;
    }
    return true;
}

/* What was sent from this call's buffers before has arrived. */
static bool is_emptied(const Events *e, const Recipe *r)
{
    for (uint32_t i = 0; i < r->nposts; i++)
        if (e->channel[r->posts[i]].received < e->channel[r->posts[i]].sent)
            return false;
    return true;
}

static bool is_ready(const Events *e, const Lane *l, uint32_t q, Queue *at)
{
    if (q == 0 && at->at == 0 && !e->alone && !is_emptied(e, l->recipe[at->call]))
        return false;
    return is_free(l, at);
}

/* ---- the first to end ---- */

/* A tournament of all lanes: whose next node ends first, of equals the lower one, wins a match and goes on
 * to the next.  So a change costs as many matches as the logarithm of the lanes. */
static void open_tournament(Events *e)
{
    for (e->leaves = 1; e->leaves < e->nlane;)
        e->leaves *= 2;
    e->next = NEWN(e->arena, int64_t, e->leaves);
    e->first = NEWN(e->arena, uint32_t, 2 * e->leaves);
    for (uint32_t i = 0; i < e->leaves; i++)
        e->next[i] = INT64_MAX;
    for (uint32_t i = 0; i < e->leaves; i++)
        e->first[e->leaves + i] = i;
    for (uint32_t at = e->leaves; at-- > 1;)
        e->first[at] = e->first[2 * at];
}

/* The lane that is next, or NULL. */
static Lane *first_to_end(const Events *e)
{
    uint32_t first = e->first[1];
    return e->next[first] < INT64_MAX ? &e->lane[first] : NULL;
}

static void set_next(const Events *e, const Lane *l)
{
    int64_t next = INT64_MAX;
    for (uint32_t q = 0; q < STREAMS; q++)
        if (l->queue[q].running && l->queue[q].finish < next)
            next = l->queue[q].finish;
    uint32_t own = (uint32_t)(l - e->lane);
    if (e->next[own] == next)
        return;
    e->next[own] = next;
    for (uint32_t at = (e->leaves + own) / 2; at > 0; at /= 2) {
        uint32_t low = e->first[2 * at], high = e->first[2 * at + 1];
        e->first[at] = e->next[high] < e->next[low] ? high : low;
    }
}

/* ---- rates ---- */

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
    return l->queue[0].running && l->queue[0].node->kind == NODE_RUN;
}

/* What a lane's courier does that takes a processor's time. */
static bool communicates(const Lane *l)
{
    const Queue *q = &l->queue[QUEUE_COURIER];
    return l->courier && q->running;
}

/* With n threads at work on k processors each runs at k / n, and at no more of the memory; or, so would they be if
 * nobody computed. */
static Share shares(const Events *e, const Domain *d, bool couriers_alone)
{
    double threads = 0, bytes = 0;
    for (uint32_t i = 0; i < e->nlane; i++) {
        if (!couriers_alone && computes(&e->lane[i])) {
            threads += d->threads[i];
            bytes += d->bytes[i];
        }
        if (communicates(&e->lane[i])) {
            threads += d->comm_threads[i];
            bytes += d->comm_bytes[i];
        }
    }
    Share s = {.processor = d->cores > 0 && threads > d->cores ? d->cores / threads : 1};
    double memory = d->bandwidth > 0 && bytes > d->bandwidth ? d->bandwidth / bytes : 1;
    s.memory = memory < s.processor ? memory : s.processor;
    return s;
}

static double share_rate(const Events *e, const Lane *l)
{
    Share s = shares(e, &e->domain[l->domain], false);
    Node *n = l->queue[0].node;
    return n->ns > 0 ? (double)n->ns / (double)shared_ns(e, l, n, s.processor, s.memory) : 1;
}

/* A courier copies and adds, as fast as its share of either.  What couriers lose to each other is in the figures of links,
 * which are measured where all ranks communicate at once. */
static void set_shared_rates(const Events *e, Lane *l)
{
    const Domain *d = &e->domain[l->domain];
    if (communicates(l))
        set_rate(e, &l->queue[QUEUE_COURIER], shares(e, d, false).memory / shares(e, d, true).memory);
    if (computes(l))
        set_rate(e, &l->queue[0], share_rate(e, l));
}

/* Collectives beside compute slow each other down: by the profile's figures, or, where a courier
 * shares processors and memory, by that. */
static void set_rates(const Events *e, Lane *l)
{
    bool beside = false, busy = computes(l);
    if (l->courier && l->domain != NOTHING) {
        set_shared_rates(e, l);
        return;
    }
    for (uint32_t q = 1; q < STREAMS; q++)
        if (l->queue[q].running && l->queue[q].node->kind == NODE_COLLECTIVE) {
            beside = true;
            set_rate(e, &l->queue[q], busy ? 1 / e->slow_link : 1);
        }
    if (busy)
        set_rate(e, &l->queue[0], (beside ? 1 / e->slow_compute : 1) * (l->domain != NOTHING ? share_rate(e, l) : 1));
}

/* After a lane started or ended a node: the rates of what it runs, and of the runs that share with it.
 * Messages and meetings leave them as they are, but for those of a courier. */
static void change_rates(const Events *e, Lane *l, const Node *n)
{
    if (n->kind != NODE_RUN && n->kind != NODE_COLLECTIVE && !l->courier)
        return;
    set_rates(e, l);
    for (uint32_t i = 0; i < e->nlane && (n->queue == 0 || l->courier) && l->domain != NOTHING; i++)
        if (&e->lane[i] != l && e->lane[i].domain != NOTHING) {
            set_rates(e, &e->lane[i]);
            set_next(e, &e->lane[i]);
        }
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
        const Node *n = l->queue[q].node;
        if (n->kind == NODE_RUN) {
            l->spent.ns[l->cost[n->first].cls] += ns;
        } else {
            l->spent.ns[SPENT_EXPOSED + n->axis] += ns;
            l->spent.hidden[n->axis] -= ns;          /* all that the node takes is added when it ends */
        }
        return;
    }
    l->bubble += ns;
    if (l->queue[0].node && l->time[l->queue[0].call].start >= 0)
        l->time[l->queue[0].call].idle += ns;
}

static void account_run(const Events *e, Lane *l)
{
    const Node *n = l->queue[0].node;
    for (int i = 0; i < SPENT_PARTS; i++)
        l->spent.ns[i] += n->spent.ns[i];
    for (int x = 0; x < MESH_AXES; x++)
        l->spent.hidden[x] += n->spent.hidden[x];
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
        l->begun[at->index] = e->now;
    at->armed = false;
    at->running = true;
    at->start = at->since = e->now;
    at->left = (double)ns;
    at->rate = 1;
    at->finish = e->now + ns;
    change_rates(e, l, at->node);
    set_next(e, l);
}

/* The caller sets the lane's next end, when it knows what follows. */
static void end(Events *e, Lane *l, uint32_t q)
{
    Queue *at = &l->queue[q];
    const Node *n = at->node;
    account(e, l);
    if (q == 0 && n->kind == NODE_RUN)
        account_run(e, l);
    if (n->kind != NODE_RUN)
        l->spent.hidden[n->axis] += e->now - at->start;
    l->done[at->index] = e->now;
    l->time[at->call].end = e->now > l->time[at->call].end ? e->now : l->time[at->call].end;
    at->running = false;
    at->at++;
    settle(l, q, at);
    change_rates(e, l, n);
}

/* ---- with other lanes ---- */

/* The queue of a lane whose head is the other side of a message on this channel, and waits for it. */
static uint32_t armed_queue(const Lane *l, NodeKind kind, uint32_t channel)
{
    for (uint32_t q = 0; q < STREAMS; q++)
        if (l->queue[q].armed && l->queue[q].node->kind == kind && l->queue[q].node->link == channel)
            return q;
    return NOTHING;
}

/* A sender that waits meets the receiver; one that does not only leaves word. */
static void try_send(Events *e, Lane *l, uint32_t q)
{
    const Node *n = l->queue[q].node;
    Channel *c = &e->channel[n->link];
    Lane *to = &e->lane[c->to];
    uint32_t other = armed_queue(to, NODE_RECV, n->link);
    if (c->posts) {
        c->sent++;
        start(e, l, q, 0);
        if (other != NOTHING)
            start(e, to, other, to->queue[other].node->ns);
    } else if (other == NOTHING) {
        l->queue[q].armed = true;
    } else {
        int64_t ns = to->queue[other].node->ns;
        start(e, l, q, ns);
        start(e, to, other, ns);
    }
}

static void try_recv(Events *e, Lane *l, uint32_t q)
{
    const Node *n = l->queue[q].node;
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
        int64_t own = e->lane[m->lane[i]].queue[q].node->ns;
        *ns = own > *ns ? own : *ns;
    }
    return true;
}

static void try_meeting(Events *e, Lane *l, uint32_t q)
{
    uint32_t meeting = l->queue[q].node->link;
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
    Queue *at = &l->queue[q];
    const Node *n = at->node;
    if (!n || at->running || at->armed || !is_ready(e, l, q, at))
        return;
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
    const Node *n = l->queue[q].node;
    Channel *taken = n->kind == NODE_RECV && !e->alone ? &e->channel[n->link] : NULL;
    if (taken && taken->posts)
        taken->received++;
    end(e, l, q);
    try_all(e, l);
    set_next(e, l);
    if (taken && taken->posts)
        try_all(e, &e->lane[taken->from]);
}

/* ---- the whole ---- */

static void begin(const Events *e, Lane *l)
{
    for (uint32_t q = 0; q < STREAMS; q++)
        settle(l, q, &l->queue[q]);
    for (uint32_t c = 0; c < l->p->ncall; c++)
        l->time[c] = (CallTime){.start = -1, .end = -1};
    l->since = e->now;
}

int64_t events_run(Events *e)
{
    e->now = 0;
    open_tournament(e);
    for (uint32_t i = 0; i < e->nlane; i++)
        begin(e, &e->lane[i]);
    for (uint32_t i = 0; i < e->nlane; i++)
        try_all(e, &e->lane[i]);
    for (Lane *l = first_to_end(e); l; l = first_to_end(e)) {
        e->now = e->next[l - e->lane];
        for (uint32_t q = 0; q < STREAMS; q++)
            if (l->queue[q].running && l->queue[q].finish <= e->now)
                end_and_go_on(e, l, q);
    }
    for (uint32_t i = 0; i < e->nlane; i++) {
        for (uint32_t q = 0; q < STREAMS; q++)
            assert(!e->lane[i].queue[q].node && "the lanes wait for each other");
        account(e, &e->lane[i]);
    }
    return e->now;
}
