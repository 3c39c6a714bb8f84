/* Recipes: a procedure as nodes.  The full one has a node for every run of instructions
 * that nothing waits within; the short one of a call that is repeated joins what happens
 * between two messages, as long as it takes when the call runs alone. */
#include "codegen/events.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { NOTHING = UINT32_MAX };

/* ---- instructions ---- */

/* A courier does not send: that only leaves word, and is done by who computes. */
static uint32_t queue_of(const Making *m, const Instr *in)
{
    static const OverlapKind kind[STREAMS] = {[STREAM_collective] = OVERLAP_collective, [STREAM_gradient] = OVERLAP_gradient,
                                              [STREAM_send] = OVERLAP_send, [STREAM_recv] = OVERLAP_recv};
    bool scatters = in->stream == STREAM_gradient && in->op == OP_reduce_scatter;
    bool own = in->stream != STREAM_compute && device_overlaps(m->device) && m->profile->overlap[scatters ? OVERLAP_scatter : kind[in->stream]];
    if (!own || (m->device->backend == BACKEND_CPU && in->stream == STREAM_send))
        return 0;
    return m->device->backend == BACKEND_CPU ? (uint32_t)QUEUE_COURIER : in->stream;
}

static bool is_message(const Instr *in)
{
    return in->op == OP_send || in->op == OP_recv;
}

static uint32_t stage_ranks(const Making *m)
{
    return m->plan->ndevices / (uint32_t)m->plan->mesh[AXIS_pp];
}

/* The outermost mesh axis on which ranks of a group differ: then the least and the greatest do. */
MeshAxis group_axis(const Plan *plan, const RankGroup *g)
{
    uint32_t each = plan->ndevices;
    for (int x = 0; x < MESH_AXES; x++) {
        each /= (uint32_t)plan->mesh[x];
        if (g->rank[g->n - 1] / each != g->rank[0] / each)
            return (MeshAxis)x;
    }
    return AXIS_tp;
}

/* Of two ranks that differ on pp the outermost axis of their group is pp. */
static NodeKind kind_of(const Making *m, const Instr *in)
{
    if (!(op_info[in->op].flags & OPF_COMM))
        return NODE_RUN;
    if (is_message(in))
        return in->op == OP_send ? NODE_SEND : NODE_RECV;
    return m->axis[in->group] == AXIS_pp ? NODE_MEETING : NODE_COLLECTIVE;
}

/* ---- channels and meetings ---- */

static uint32_t channel_of(Making *m, const Instr *in)
{
    Events *e = m->events;
    const RankGroup *g = &m->p->group[in->group];
    uint32_t from = g->rank[0] / stage_ranks(m), to = g->rank[1] / stage_ranks(m), i = 0;
    while (i < e->nchannel && (e->channel[i].from != from || e->channel[i].to != to))
        i++;
    if (i == e->nchannel)
        PUSH(m->arena, e->channel, e->nchannel, ((Channel){.from = from, .to = to}));
    if (in->op == OP_send)
        e->channel[i].posts = queue_of(m, in) == 0;
    return i;
}

static bool same_group(const RankGroup *a, const RankGroup *b)
{
    return a->n == b->n && memcmp(a->rank, b->rank, a->n * sizeof *a->rank) == 0;
}

static uint32_t meeting_of(Making *m, const Instr *in)
{
    Events *e = m->events;
    const RankGroup *g = &m->p->group[in->group];
    uint32_t i = 0;
    while (i < e->nmeeting && !same_group(e->meeting[i].group, g))
        i++;
    if (i < e->nmeeting)
        return i;
    Meeting new = {.group = g};
    for (uint32_t k = 0; k < g->n; k++)
        if (new.nlane == 0 || new.lane[new.nlane - 1] != g->rank[k] / stage_ranks(m))
            PUSH(m->arena, new.lane, new.nlane, g->rank[k] / stage_ranks(m));
    new.queue = NEWN(m->arena, uint32_t, new.nlane);
    PUSH(m->arena, e->meeting, e->nmeeting, new);
    return i;
}

/* ---- the full recipe ---- */

Making making_new(Arena *a, const Program *p, const Cost *cost, const Plan *plan, const Profile *profile, const Device *device, Events *e, uint32_t lane)
{
    Making m = {.arena = a, .p = p, .cost = cost, .plan = plan, .profile = profile, .device = device, .events = e, .lane = lane};
    m.proc_of = NEWN(a, uint32_t, p->ninstr + 1);
    m.recorded = NEWN(a, bool, p->ninstr + 1);
    m.sent = program_sent_before(p, a);
    m.queue = NEWN(a, uint32_t, p->ninstr + 1);
    m.kind = NEWN(a, NodeKind, p->ninstr + 1);
    m.axis = NEWN(a, MeshAxis, p->ngroup + 1);
    for (uint32_t g = 0; g < p->ngroup; g++)
        m.axis[g] = group_axis(m.plan, &p->group[g]);
    for (uint32_t i = 0; i < p->ninstr; i++) {
        m.queue[i] = queue_of(&m, &p->instr[i]);
        m.kind[i] = kind_of(&m, &p->instr[i]);
    }
    for (uint32_t k = 0; k < p->nproc; k++)
        for (uint32_t i = p->proc[k].first; i < p->proc[k].end; i++)
            m.proc_of[i] = k;
    for (uint32_t w = 0; w < p->nwait; w++)
        m.recorded[p->wait[w].on] |= m.queue[p->wait[w].instr] != m.queue[p->wait[w].on];
    return m;
}

static Recipe *recipe_new(Making *m, uint32_t proc)
{
    Recipe *r = NEW(m->arena, Recipe);
    const Proc *p = &m->p->proc[proc];
    r->proc = proc;
    r->node_of = NEWN(m->arena, uint32_t, p->end - p->first + 1);
    memset(r->node_of, 0xFF, (p->end - p->first) * sizeof *r->node_of);
    for (uint32_t i = m->sent.first[proc]; i < m->sent.first[proc + 1]; i++)
        if (m->queue[m->sent.instr[i]] == 0)
            PUSH(m->arena, r->posts, r->nposts, channel_of(m, &m->p->instr[m->sent.instr[i]]));
    return r;
}

static uint32_t add_node(const Making *m, Recipe *r, Node n)
{
    PUSH(m->arena, r->in_queue[n.queue], r->nin_queue[n.queue], r->nnode);
    PUSH(m->arena, r->node, r->nnode, n);
    return r->nnode - 1;
}

static Node node_new(Making *m, uint32_t i)
{
    const Instr *in = &m->p->instr[i];
    Node n = {.kind = m->kind[i], .queue = m->queue[i], .first = i, .end = i};
    if (n.kind != NODE_RUN)
        n.axis = m->axis[in->group];
    if (is_message(in))
        n.link = channel_of(m, in);
    if (n.kind == NODE_MEETING)
        n.link = meeting_of(m, in);
    return n;
}

/* The waits of instruction i for other queues; `at`: where those from i on begin. */
static void add_waits(const Making *m, Node *n, uint32_t i, uint32_t *at)
{
    const Program *p = m->p;
    for (; *at < p->nwait && p->wait[*at].instr <= i; ++*at) {
        const Wait *w = &p->wait[*at];
        if (w->instr == i && m->queue[w->on] != n->queue)
            PUSH(m->arena, n->wait, n->nwait, ((NodeWait){w->instr, w->on, w->same_slot}));
    }
}

/* Whether instruction i goes into the node before it in its queue: it computes, waits for nothing, and nothing
 * waits for what is before it. */
static bool continues(const Making *m, const Recipe *r, uint32_t i, uint32_t at)
{
    uint32_t q = m->queue[i], before = r->nin_queue[q];
    if (before == 0 || m->kind[i] != NODE_RUN)
        return false;
    for (; at < m->p->nwait && m->p->wait[at].instr <= i; at++)
        if (m->p->wait[at].instr == i && m->queue[m->p->wait[at].on] != q)
            return false;
    const Node *last = &r->node[r->in_queue[q][before - 1]];
    return last->kind == NODE_RUN && last->end == i && !m->recorded[i - 1];
}

static uint32_t add_instr(Making *m, Recipe *r, uint32_t i, uint32_t *at)
{
    if (continues(m, r, i, *at))
        return r->in_queue[m->queue[i]][r->nin_queue[m->queue[i]] - 1];
    Node new = node_new(m, i);
    add_waits(m, &new, i, at);
    return add_node(m, r, new);
}

Recipe *recipe_full(Making *m, const Call *call)
{
    const Proc *proc = &m->p->proc[call->proc];
    Recipe *r = recipe_new(m, call->proc);
    uint32_t at = 0;
    for (uint32_t i = proc->first; i < proc->end; i++) {
        if (!instr_runs(&m->p->instr[i], m->p, call))
            continue;
        uint32_t k = add_instr(m, r, i, &at);
        Node *n = &r->node[k];
        n->end = i + 1;
        n->ns += m->cost[i].ns;
        n->spent.ns[m->cost[i].cls] += n->kind == NODE_RUN ? m->cost[i].ns : 0;
        r->node_of[i - proc->first] = k;
    }
    return r;
}

/* ---- a call alone ---- */

void recipe_alone(Making *m, Recipe *r, int64_t *start, int64_t *end, Lane *out)
{
    Program one = *m->p;
    Call call = {.proc = r->proc};
    uint32_t base = 0;
    uint32_t *none = NEWN(m->arena, uint32_t, one.nproc);
    memset(none, 0xFF, one.nproc * sizeof *none);
    one.call = &call;
    one.ncall = 1;
    *out = (Lane){.p = &one, .cost = m->cost, .recipe = &r, .base = &base, .done = end, .begun = start, .latest = none, .latest_slot = none,
                  .proc_of = m->proc_of, .time = NEW(m->arena, CallTime), .domain = NOTHING};
    memset(end, 0xFF, r->nnode * sizeof *end);
    Events e = {.arena = m->arena, .lane = out, .nlane = 1, .slow_compute = m->profile->slow_compute, .slow_link = m->profile->slow_link, .alone = true};
    events_run(&e);
    out->p = m->p;
}

/* ---- the short recipe ---- */

/* What takes part in more than this call, or goes on beside it: not to be joined. */
static bool is_outside(const Making *m, uint32_t i)
{
    return (m->queue[i] != 0 && m->queue[i] != STREAM_collective) || (m->kind[i] != NODE_RUN && m->kind[i] != NODE_COLLECTIVE);
}

typedef struct Cutting {
    Making       *m;
    const Recipe *full;
    Recipe       *r;
    int64_t      *start, *end;        /* per node of the full recipe */
    int64_t      *cut; uint32_t ncut; /* times, ascending, each once, from 0 to the whole */
    uint32_t     *piece;              /* per piece between two cuts: its node; NOTHING while it has none */
    Lane          alone;
} Cutting;

static void add_cut(Cutting *c, int64_t at)
{
    uint32_t i = 0;
    while (i < c->ncut && c->cut[i] < at)
        i++;
    if (i < c->ncut && c->cut[i] == at)
        return;
    PUSH(c->m->arena, c->cut, c->ncut, at);
    for (uint32_t k = c->ncut - 1; k > i; k--)
        c->cut[k] = c->cut[k - 1];
    c->cut[i] = at;
}

static bool waits_outside(const Cutting *c, const Node *n)
{
    for (uint32_t i = 0; i < n->nwait; i++)
        if (is_outside(c->m, n->wait[i].on))
            return true;
    return false;
}

/* Per instruction: one that is not joined waits for it. */
static bool *awaited_outside(const Making *m)
{
    const Program *p = m->p;
    bool *awaited = NEWN(m->arena, bool, p->ninstr + 1);
    for (uint32_t w = 0; w < p->nwait; w++)
        awaited[p->wait[w].on] |= is_outside(m, p->wait[w].instr);
    return awaited;
}

static void find_cuts(Cutting *c)
{
    int64_t whole = 0;
    const bool *awaited = awaited_outside(c->m);
    for (uint32_t i = 0; i < c->full->nnode; i++) {
        const Node *n = &c->full->node[i];
        bool outside = is_outside(c->m, n->first);
        if (!outside || n->queue == 0)
            whole = c->end[i] > whole ? c->end[i] : whole;
        if (outside ? n->queue == 0 : waits_outside(c, n))
            add_cut(c, c->start[i]);
        if (!outside && awaited[n->end - 1])
            add_cut(c, c->end[i]);
    }
    add_cut(c, 0);
    add_cut(c, whole);
}

/* Part k of a time that is cut with the whole: what is left over of rounding goes to the largest. */
static Spent part_of(const Spent *all, int64_t from, int64_t to, int64_t whole)
{
    Spent s = {0};
    int64_t left = to - from, *largest = &s.ns[0];
    for (int i = 0; i < SPENT_PARTS; i++) {
        s.ns[i] = (int64_t)((double)all->ns[i] * ((double)(to - from) / (double)whole));
        left -= s.ns[i];
        largest = s.ns[i] > *largest ? &s.ns[i] : largest;
    }
    *largest += left;
    for (int x = 0; x < MESH_AXES; x++)
        s.hidden[x] = (int64_t)((double)all->hidden[x] * ((double)(to - from) / (double)whole));
    return s;
}

/* The piece from cut k to the next as a node. */
static void add_piece(Cutting *c, uint32_t k)
{
    int64_t whole = c->cut[c->ncut - 1], to = k + 1 < c->ncut ? c->cut[k + 1] : whole;
    const Proc *proc = &c->m->p->proc[c->r->proc];
    Node n = {.kind = NODE_RUN, .first = proc->first, .end = proc->end, .ns = to - c->cut[k]};
    if (whole > 0)
        n.spent = part_of(&c->alone.spent, c->cut[k], to, whole);
    for (uint32_t i = 0; i < c->full->nnode; i++) {
        const Node *of = &c->full->node[i];
        for (uint32_t w = 0; w < of->nwait && c->start[i] == c->cut[k] && !is_outside(c->m, of->first); w++)
            if (is_outside(c->m, of->wait[w].on))
                PUSH(c->m->arena, n.wait, n.nwait, of->wait[w]);
    }
    if (n.ns > 0 || n.nwait > 0)
        c->piece[k] = add_node(c->m, c->r, n);
}

/* Nodes of queue 0 that stay what they are, at a cut. */
static void add_kept(Cutting *c, uint32_t k)
{
    for (uint32_t i = 0; i < c->full->nnode; i++) {
        const Node *n = &c->full->node[i];
        if (n->queue == 0 && c->start[i] == c->cut[k] && is_outside(c->m, n->first))
            c->r->node_of[n->first - c->m->p->proc[c->r->proc].first] = add_node(c->m, c->r, *n);
    }
}

static void add_others(Cutting *c)
{
    for (uint32_t i = 0; i < c->full->nnode; i++) {
        const Node *n = &c->full->node[i];
        if (n->queue == 0 || !is_outside(c->m, n->first))
            continue;
        uint32_t node = add_node(c->m, c->r, *n), from = c->m->p->proc[c->r->proc].first;
        for (uint32_t k = n->first; k < n->end; k++)
            if (c->full->node_of[k - from] == i)
                c->r->node_of[k - from] = node;
    }
}

/* What was joined ends with the piece that its end lies in. */
static void map_joined(Cutting *c)
{
    const Proc *proc = &c->m->p->proc[c->r->proc];
    for (uint32_t i = proc->first; i < proc->end; i++) {
        uint32_t node = c->full->node_of[i - proc->first], k = 0;
        if (node == NOTHING || is_outside(c->m, i))
            continue;
        while (k + 2 < c->ncut && c->cut[k + 1] < c->end[node])
            k++;
        while (k > 0 && c->piece[k] == NOTHING)
            k--;
        c->r->node_of[i - proc->first] = c->piece[k];
    }
}

Recipe *recipe_short(Making *m, const Recipe *full)
{
    Cutting c = {.m = m, .full = full, .r = recipe_new(m, full->proc)};
    Recipe whole = *full;
    c.start = NEWN(m->arena, int64_t, full->nnode + 1);
    c.end = NEWN(m->arena, int64_t, full->nnode + 1);
    recipe_alone(m, &whole, c.start, c.end, &c.alone);
    find_cuts(&c);
    c.piece = NEWN(m->arena, uint32_t, c.ncut);
    memset(c.piece, 0xFF, c.ncut * sizeof *c.piece);
    for (uint32_t k = 0; k < c.ncut; k++) {
        add_kept(&c, k);
        add_piece(&c, k);
    }
    add_others(&c);
    map_joined(&c);
    return c.r;
}
