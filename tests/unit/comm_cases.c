/* Cases of communication: see comm_cases.h. */
#include "tests/unit/comm_cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum Kind { ALL_REDUCE, REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, RING, BARRIER, KINDS } Kind;
static const char *const kind_name[] = {"all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "ring", "barrier"};

/* One call of one group, as every member knows it. */
typedef struct Step {
    uint32_t seed;
    Kind     kind;
    DType    dtype;
    ReduceOp op;
    bool     in_place;
    int64_t  count;
    int      root;
} Step;

enum { LARGE = 20011, RANDOM_STEPS = 2000, HUGE = 6000011 };           /* huge: of 8 bytes each, more than caches hold */

typedef union Number { float f32; double f64; int32_t i32; int64_t i64; unsigned char byte[8]; } Number;

static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Element i of what member m sends: sums of these depend on their order. */
static Number number(const Step *s, int m, int64_t i)
{
    uint32_t h = mix(s->seed * 31 + mix((uint32_t)m * 7919 + mix((uint32_t)i)));
    double x = ((double)h / 4294967296.0 - 0.5) * (h & 1 ? 1000 : 1);
    if (s->op == REDUCE_MAX && h % 61 == 0)
        x = NAN;
    Number n = {.i64 = 0};
    switch ((int)s->dtype) {
    case DT_f32: n.f32 = (float)x; break;
    case DT_f64: n.f64 = x; break;
    case DT_i32: n.i32 = (int32_t)h; break;
    case DT_i64: n.i64 = (int64_t)h << 31; break;
    }
    return n;
}

#define BOTH(field, sum) n.field = s->op == REDUCE_SUM ? (sum) : a.field > b.field || a.field != a.field ? a.field : b.field

static Number both(const Step *s, Number a, Number b)
{
    Number n = {.i64 = 0};
    switch ((int)s->dtype) {
    case DT_f32: BOTH(f32, a.f32 + b.f32); break;
    case DT_f64: BOTH(f64, a.f64 + b.f64); break;
    case DT_i32: BOTH(i32, (int32_t)((uint32_t)a.i32 + (uint32_t)b.i32)); break;
    case DT_i64: BOTH(i64, (int64_t)((uint64_t)a.i64 + (uint64_t)b.i64)); break;
    }
    return n;
}

static Number all_members(const Step *s, int n, int64_t i)
{
    Number x = number(s, 0, i);
    for (int m = 1; m < n; m++)
        x = both(s, x, number(s, m, i));
    return x;
}

/* ---- one step ---- */

/* Where a member has its buffers, and how large they are. */
typedef struct Places { char *send, *recv; int64_t nsend, nrecv, at; } Places;

/* Elements sent and received; at: where the smaller buffer lies in the larger when in place. */
static Places sizes_of(const Step *s, const CommGroup *g)
{
    int64_t first, end;
    comm_part(s->count, g->me, g->n, &first, &end);
    switch (s->kind) {
    case REDUCE_SCATTER: return (Places){.nsend = s->count, .nrecv = end - first, .at = first};
    case ALL_GATHER:     return (Places){.nsend = end - first, .nrecv = s->count, .at = first};
    case REDUCE:         return (Places){.nsend = s->count, .nrecv = g->me == s->root ? s->count : 0};
    case BROADCAST:      return (Places){.nsend = g->me == s->root ? s->count : 0, .nrecv = s->count};
    case BARRIER:        return (Places){.nsend = 0};
    default:             return (Places){.nsend = s->count, .nrecv = s->count};
    }
}

/* Buffers lie elsewhere at each rank and in each step. */
static Places places_of(const Ranks *r, const Step *s, const CommGroup *g)
{
    char *part = world_part(r->world, g->end->rank);
    Places p = sizes_of(s, g);
    int64_t size = dtype_bytes(s->dtype);
    p.send = part + (64 + (int64_t)(mix(s->seed) % 5) + g->end->rank * 3) * size;
    p.recv = part + r->part / 2 + (64 + (int64_t)(mix(s->seed + 1) % 5) + g->end->rank) * size;
    if (s->seed % 3 == 0)             /* up to the end of the part, but for the edge */
        p.recv = part + r->part - (p.nrecv + 1) * size;
    if (s->in_place && s->kind == ALL_GATHER)
        p.send = p.recv + p.at * size;
    else if (s->in_place)
        p.recv = p.send + p.at * size;
    return p;
}

static Status call(const Step *s, CommGroup *g, const Places *p)
{
    const Comm *c = g->end->comm;
    int64_t bytes = s->count * dtype_bytes(s->dtype);
    switch (s->kind) {
    case ALL_REDUCE:     return c->all_reduce(g, p->send, p->recv, s->count, s->dtype, s->op);
    case REDUCE:         return c->reduce(g, p->send, p->recv, s->count, s->dtype, s->op, s->root);
    case BROADCAST:      return c->broadcast(g, p->send, p->recv, s->count, s->dtype, s->root);
    case REDUCE_SCATTER: return c->reduce_scatter(g, p->send, p->recv, s->count, s->dtype, s->op);
    case ALL_GATHER:     return c->all_gather(g, p->send, p->recv, s->count, s->dtype);
    case ALL_TO_ALL:     return c->all_to_all(g, p->send, p->recv, s->count, s->dtype);
    case BARRIER:        return c->barrier(g);
    default:
        TRY(c->send(g->end, g->rank[(g->me + 1) % g->n], p->send, bytes));
        TRY(c->recv(g->end, g->rank[(g->me + g->n - 1) % g->n], p->recv, bytes));
        return c->flush(g->end, COMM_ANY);
    }
}

/* Element i of what this member must have received. */
static Number expected(const Step *s, const CommGroup *g, const Places *p, int64_t i)
{
    int64_t first, end, block = s->count / g->n, size = (s->count + g->n - 1) / g->n;
    switch (s->kind) {
    case BROADCAST:      return number(s, s->root, i);
    case REDUCE_SCATTER: return all_members(s, g->n, p->at + i);
    case ALL_GATHER:
        comm_part(s->count, (int)(i / size), g->n, &first, &end);
        return number(s, (int)(i / size), i - first);
    case ALL_TO_ALL:     return number(s, (int)(i / block), g->me * block + i % block);
    case RING:           return number(s, (g->me + g->n - 1) % g->n, i);
    default:             return all_members(s, g->n, i);
    }
}

static int wrong(const Step *s, const CommGroup *g, const char *what, int64_t i)
{
    fprintf(stderr, "%s of %ld %s, op %d, %s, group %u of %d, member %d: %s %ld is wrong\n", kind_name[s->kind], (long)s->count,
            dtype_name(s->dtype), (int)s->op, s->in_place ? "in place" : "apart", g->id, g->n, g->me, what, (long)i);
    return 1;
}

static int do_step(const Ranks *r, const Step *s, CommGroup *g)
{
    Places p = places_of(r, s, g);
    int64_t size = dtype_bytes(s->dtype);
    const unsigned char edge[8] = {0xa5, 0x5a, 0xa5, 0x5a, 0xa5, 0x5a, 0xa5, 0x5a};
    memcpy(p.recv - size, edge, (size_t)size);
    memcpy(p.recv + p.nrecv * size, edge, (size_t)size);
    for (int64_t i = 0; i < p.nsend; i++)
        memcpy(p.send + i * size, number(s, g->me, i).byte, (size_t)size);
    bool apart = p.nrecv > 0 && !s->in_place;
    if (call(s, g, &p) != OK)
        return wrong(s, g, "status", 0);
    for (int64_t i = 0; i < p.nrecv; i++)
        if (memcmp(p.recv + i * size, expected(s, g, &p, i).byte, (size_t)size) != 0)
            return wrong(s, g, "element", i);
    if (apart && (memcmp(p.recv - size, edge, (size_t)size) != 0 || memcmp(p.recv + p.nrecv * size, edge, (size_t)size) != 0))
        return wrong(s, g, "edge", 0);
    for (int64_t i = 0; apart && i < p.nsend; i++)
        if (memcmp(p.send + i * size, number(s, g->me, i).byte, (size_t)size) != 0)
            return wrong(s, g, "sent element", i);
    return 0;
}

/* ---- what ranks do ---- */

static CommGroup *everybody(Arena *a, Endpoint *e)
{
    int all[MOST_RANKS];
    for (int i = 0; i < e->nrank; i++)
        all[i] = i;
    return e->comm->group(e, a, 0, all, e->nrank);
}

static bool makes_sense(const Step *s, int n)
{
    return !(s->kind == ALL_TO_ALL && s->count % n != 0);
}

static int each_size(const Ranks *r, Step s, CommGroup *g)
{
    const int64_t count[] = {0, 1, 2, 7, 255, 256, 257, 511, 512, 513, 4 * 1260, LARGE};
    for (size_t i = 0; i < sizeof count / sizeof *count; i++) {
        s.count = count[i];
        s.seed = mix(s.seed + 1);
        s.root = (int)(s.seed % (uint32_t)g->n);
        if (makes_sense(&s, g->n) && do_step(r, &s, g) != 0)
            return 1;
    }
    return 0;
}

int comm_everything(Ranks *r, Arena *a, Endpoint *e)
{
    const DType dtype[] = {DT_f32, DT_f64, DT_i32, DT_i64};
    CommGroup *g = everybody(a, e);
    for (int k = 0; k < KINDS; k++)
        for (int d = 0; d < 4; d++)
            for (int how = 0; how < 4; how++) {
                Step s = {.seed = (uint32_t)(k * 100 + d * 10 + how), .kind = (Kind)k, .dtype = dtype[d],
                          .op = how & 1 ? REDUCE_MAX : REDUCE_SUM, .in_place = how & 2 && k != RING};
                if ((!(how & 1) || k == ALL_REDUCE || k == REDUCE_SCATTER || k == REDUCE) && each_size(r, s, g) != 0)
                    return 1;
            }
    return 0;
}

int comm_huge_ones(Ranks *r, Arena *a, Endpoint *e)
{
    CommGroup *g = everybody(a, e);
    const Kind kind[] = {ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, RING};
    for (int i = 0; i < 8; i++) {
        Step s = {.seed = (uint32_t)i, .kind = kind[i / 2], .dtype = DT_f64, .in_place = i % 2 && i < 6, .count = HUGE};
        if (do_step(r, &s, g) != 0)
            return 1;
    }
    return 0;
}

/* The groups with id i in which a rank is: all, two halves, odd and even, all but one, one pair. */
static bool together(uint32_t id, int a, int b, int n)
{
    switch (id) {
    case 0:  return true;
    case 1:  return (a < n / 2) == (b < n / 2);
    case 2:  return a % 2 == b % 2;
    case 3:  return (a == 1 % n) == (b == 1 % n);
    default: return a == b || a + b == n - 1;
    }
}

static CommGroup *group_of(Arena *a, Endpoint *e, uint32_t id)
{
    int member[MOST_RANKS], n = 0;
    for (int i = 0; i < e->nrank; i++)
        if (together(id, e->rank, i, e->nrank))
            member[n++] = i;
    return e->comm->group(e, a, id, member, n);
}

static Step random_step(uint32_t *seed)
{
    const DType dtype[] = {DT_f32, DT_f64, DT_i32, DT_i64};
    uint32_t h = *seed = mix(*seed + 1);
    int64_t most = h % 16 == 0 ? LARGE : h % 4 == 0 ? 3000 : 40;
    Step s = {.seed = h, .kind = (Kind)(mix(h) % KINDS), .dtype = dtype[mix(h + 1) % 4], .op = mix(h + 2) % 2 ? REDUCE_MAX : REDUCE_SUM,
              .in_place = mix(h + 3) % 2, .count = mix(h + 4) % most};
    s.in_place = s.in_place && s.kind != RING;
    return s;
}

int comm_at_random(Ranks *r, Arena *a, Endpoint *e)
{
    CommGroup *group[COMM_GROUPS];
    for (uint32_t id = 0; id < COMM_GROUPS; id++)
        group[id] = group_of(a, e, id);
    uint32_t seed = (uint32_t)e->nrank;
    for (int i = 0; i < RANDOM_STEPS; i++) {
        Step s = random_step(&seed);
        CommGroup *g = group[mix(seed) % COMM_GROUPS];
        s.root = (int)(mix(seed + 5) % (uint32_t)g->n);
        if (s.kind == ALL_TO_ALL)
            s.count -= s.count % g->n;
        if (do_step(r, &s, g) != 0)
            return 1;
    }
    return 0;
}

int comm_many_letters(Ranks *r, Arena *a, Endpoint *e)
{
    (void)a;
    enum { LETTERS = 50, WORDS = 100 };
    int32_t *part = world_part(r->world, e->rank), bad = 0;
    for (int32_t i = 0; i < LETTERS; i++) {
        int64_t n = i % 3 == 0 ? WORDS : 1 + i % 3;
        int32_t *words = part + i * WORDS;
        for (int64_t k = 0; k < n; k++)
            words[k] = e->rank == 0 ? i + (int32_t)k : -1;
        if (e->rank == 1 && i % 10 == 0)
            usleep(2000);
        if ((e->rank == 0 ? e->comm->send(e, 1, words, n * 4) : e->comm->recv(e, 0, words, n * 4)) != OK)
            return 1;
        for (int64_t k = 0; k < n; k++)
            bad += words[k] != i + (int32_t)k;
    }
    return e->comm->flush(e, COMM_ANY) != OK || bad > 0;
}

int comm_all_send_first(Ranks *r, Arena *a, Endpoint *e)
{
    (void)a;
    char *part = world_part(r->world, e->rank);
    int bad = 0;
    memset(part, 'a' + e->rank, 4096);
    for (int to = 0; to < e->nrank; to++)
        bad += to != e->rank && e->comm->send(e, to, part, 4096) != OK;
    for (int from = 0; from < e->nrank; from++) {
        char *got = part + 4096 * (1 + from);
        if (from != e->rank)
            bad += e->comm->recv(e, from, got, 4096) != OK || got[0] != 'a' + from || got[4095] != 'a' + from;
    }
    return bad + (e->comm->flush(e, COMM_ANY) != OK);
}
