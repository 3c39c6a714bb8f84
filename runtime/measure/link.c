/* Link: what ranks of one machine say to each other, through the communicator that a run
 * has, and the three figures that say it best. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "runtime/comm/comm.h"
#include "runtime/measure/device.h"

typedef enum Talk { TALK_ALL_REDUCE, TALK_REDUCE_SCATTER, TALK_ALL_GATHER, TALK_SEND, TALKS } Talk;

/* Bytes of the larger buffer of a member, or of the message. */
static const int64_t sizes[] = {8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, TURN_CALLS = 24, LEAST_CALLS = 2, SYNC_FROM = 64 << 10, SLACK = 4096 };

/* From here on a message's time is its bytes'; below the second, its latency. */
static const int64_t LARGE = 256 << 10, SMALL = 1 << 10;

/* Ranks that are threads of this process. */
typedef struct Parley {
    World   *world;
    int      ranks, nsize;
    Isa      isa;
    double   seconds;                 /* for all of it */
    uint32_t rounds;                  /* done */
    double (*sample)[TALKS][SIZES];   /* by round: seconds of a call, as the slowest rank saw it */
    Status  *status;                  /* by rank */
} Parley;

/* One rank of it. */
typedef struct Talker {
    Parley    *parley;
    Endpoint  *end;
    CommGroup *all;
    float     *send, *recv;
} Talker;

/* ---- one call ---- */

static Status call(const Talker *t, Talk talk, int64_t count)
{
    const Comm *c = t->end->comm;
    int n = t->end->nrank, me = t->end->rank, next = (me + 1) % n, previous = (me + n - 1) % n;
    switch (talk) {
    case TALK_ALL_REDUCE:     return c->all_reduce(t->all, t->send, t->send, count, DT_f32, REDUCE_SUM);
    case TALK_REDUCE_SCATTER: return c->reduce_scatter(t->all, t->send, t->recv, count, DT_f32, REDUCE_SUM);
    case TALK_ALL_GATHER:     return c->all_gather(t->all, t->send + count / n * me, t->send, count, DT_f32);
    case TALK_SEND:
        TRY(c->send(t->end, next, t->send, count * (int64_t)sizeof *t->send));
        TRY(c->recv(t->end, previous, t->recv, count * (int64_t)sizeof *t->send));
        return c->flush(t->end, COMM_ANY);
    case TALKS: break;
    }
    return OK;
}

/* What is sent was just computed, and lies in this rank's cache. */
static void write_message(const Talker *t, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        t->send[i] = 1;
}

static Status timed_call(const Talker *t, Talk talk, int64_t count, double *seconds)
{
    bool large = count * (int64_t)sizeof *t->send >= SYNC_FROM;
    write_message(t, count);
    if (large)
        TRY(t->end->comm->barrier(t->all));
    double start = seconds_now();
    TRY(call(t, talk, count));
    *seconds = seconds_now() - start;
    return large ? t->end->comm->barrier(t->all) : OK;
}

/* The median over some calls, each as long as its slowest rank. */
static Status turn(const Talker *t, Talk talk, int64_t bytes, double *out)
{
    double seconds[TURN_CALLS] = {0};
    int64_t n = t->end->nrank, unit = n * (int64_t)sizeof *t->send, count = (bytes + unit - 1) / unit * n;
    int calls = (int)((8 << 20) / bytes);
    calls = calls < LEAST_CALLS ? LEAST_CALLS : calls > TURN_CALLS ? TURN_CALLS : calls;
    for (int i = 0; i < calls; i++)
        TRY(timed_call(t, talk, count, &seconds[i]));
    memcpy(t->recv, seconds, sizeof seconds);
    TRY(t->end->comm->all_reduce(t->all, t->recv, t->recv, calls, DT_f64, REDUCE_MAX));
    memcpy(seconds, t->recv, sizeof seconds);
    *out = median_of(seconds, (uint32_t)calls);
    return OK;
}

/* ---- a rank ---- */

static Status one_round(const Talker *t, uint32_t round)
{
    Parley *p = t->parley;
    for (int talk = 0; talk < TALKS; talk++)
        for (int i = 0; i < p->nsize; i++) {
            double seconds;
            TRY(turn(t, (Talk)talk, sizes[i], &seconds));
            if (t->end->rank == 0)
                p->sample[round][talk][i] = seconds;
        }
    return OK;
}

/* The first round warms up.  All agree on when time is up. */
static Status talk(const Talker *t)
{
    Parley *p = t->parley;
    double start = seconds_now();
    TRY(one_round(t, 0));
    for (uint32_t round = 0; round < MOST_ROUNDS; round++) {
        TRY(one_round(t, round));
        int64_t up = seconds_now() - start > p->seconds && round + 1 >= LEAST_ROUNDS;
        TRY(t->end->comm->all_reduce(t->all, &up, &up, 1, DT_i64, REDUCE_MAX));
        if (t->end->rank == 0)
            p->rounds = round + 1;
        if (up)
            break;
    }
    return OK;
}

static void be_rank(void *ctx, int rank, int ranks)
{
    Parley *p = ctx;
    Arena *a = arena_new("rank");
    int *member = NEWN(a, int, ranks);
    for (int i = 0; i < ranks; i++)
        member[i] = i;
    char *part = world_part(p->world, rank);
    Talker t = {.parley = p, .end = endpoint_open(a, p->world, rank, NULL, p->isa), .send = (float *)(void *)part};
    t.recv = (float *)(void *)(part + sizes[p->nsize - 1] + SLACK);
    t.all = t.end->comm->group(t.end, a, 0, member, ranks);
    p->status[rank] = talk(&t);
    t.end->comm->close(t.end);
    arena_free(a);
}

/* ---- the figures ---- */

/* Of p ranks: hops of a call one after the other, and bytes that pass a rank's link. */
static double hops_of(Talk talk, int p)
{
    return talk == TALK_ALL_REDUCE ? 2.0 * (p - 1) : talk == TALK_SEND ? 1 : p - 1;
}

static double passed_of(Talk talk, int p, double bytes)
{
    return talk == TALK_ALL_REDUCE ? 2.0 * (p - 1) / p * bytes : talk == TALK_SEND ? bytes : (p - 1.0) / p * bytes;
}

/* The medians over rounds of one parley. */
typedef struct Heard { int ranks, nsize; double seconds[TALKS][SIZES], spread[TALKS][SIZES]; } Heard;

static void settle(const Parley *p, Heard *h)
{
    double v[MOST_ROUNDS];
    h->ranks = p->ranks;
    h->nsize = p->nsize;
    for (int talk = 0; talk < TALKS; talk++)
        for (int i = 0; i < p->nsize; i++) {
            for (uint32_t r = 0; r < p->rounds; r++)
                v[r] = p->sample[r][talk][i];
            h->seconds[talk][i] = median_of(v, p->rounds);
            h->spread[talk][i] = middle_half(v, p->rounds);
        }
}

typedef struct Numbers { double v[2 * TALKS * SIZES]; uint32_t n; } Numbers;

static void keep_number(Numbers *x, double v)
{
    x->v[x->n++] = v;
}

static double latency_of(const Heard *h, uint32_t n)
{
    Numbers x = {.n = 0};
    for (uint32_t k = 0; k < n; k++)
        for (int talk = 0; talk < TALKS; talk++)
            for (int i = 0; i < h[k].nsize && sizes[i] <= SMALL; i++)
                keep_number(&x, h[k].seconds[talk][i] / hops_of((Talk)talk, h[k].ranks));
    return median_of(x.v, x.n);
}

/* Bytes/s of large messages, or of large collectives, less their latency. */
static double rate_of(const Heard *h, uint32_t n, bool messages, double latency)
{
    Numbers x = {.n = 0};
    for (uint32_t k = 0; k < n; k++)
        for (int talk = 0; talk < TALKS; talk++)
            for (int i = 0; i < h[k].nsize && (talk == TALK_SEND) == messages; i++) {
                double left = h[k].seconds[talk][i] - latency * hops_of((Talk)talk, h[k].ranks);
                if (sizes[i] >= LARGE && left > 0)
                    keep_number(&x, passed_of((Talk)talk, h[k].ranks, (double)sizes[i]) / left);
            }
    return x.n ? median_of(x.v, x.n) : 0;
}

static double apart_of(const Heard *h, uint32_t n, const Level *l)
{
    Numbers x = {.n = 0};
    for (uint32_t k = 0; k < n; k++)
        for (int talk = 0; talk < TALKS; talk++)
            for (int i = 0; i < h[k].nsize; i++) {
                double link = l->link * (talk == TALK_SEND ? 1 : l->efficiency);
                double said = l->latency * hops_of((Talk)talk, h[k].ranks) + passed_of((Talk)talk, h[k].ranks, (double)sizes[i]) / link;
                keep_number(&x, exp(fabs(log(said / h[k].seconds[talk][i]))));
            }
    return median_of(x.v, x.n);
}

static Spread spread_of(const Heard *h, uint32_t n)
{
    Numbers x = {.n = 0};
    for (uint32_t k = 0; k < n; k++)
        for (int talk = 0; talk < TALKS; talk++)
            for (int i = 0; i < h[k].nsize; i++)
                keep_number(&x, h[k].spread[talk][i]);
    double usual = median_of(x.v, x.n);
    return (Spread){usual, x.v[x.n - 1]};
}

static void read_figures(const Heard *h, uint32_t n, MeasuredLink *m)
{
    double latency = latency_of(h, n), messages = rate_of(h, n, true, latency), collectives = rate_of(h, n, false, latency);
    double link = fmax(messages, collectives);       /* what one of them reaches, the link has */
    m->of = (Level){.link = link, .latency = latency, .efficiency = fmax(0.001, collectives / link), .topology = TOPO_FULL};
    m->ranks = h[n - 1].ranks;
    m->apart = apart_of(h, n, &m->of);
    m->spread = spread_of(h, n);
}

/* ---- a parley ---- */

/* Three of the largest messages a rank, of all that is free. */
static int sizes_within(int ranks, int64_t memory)
{
    int n = SIZES;
    while (n > 4 && 3 * sizes[n - 1] * ranks > memory / 4)
        n--;
    return n;
}

static Status open_world(Arena *a, Parley *p)
{
    int64_t *part = NEWN(a, int64_t, p->ranks);
    WorldFiles files;
    for (int i = 0; i < p->ranks; i++)
        part[i] = 2 * (sizes[p->nsize - 1] + SLACK);
    TRY(world_create(&files, p->ranks, part, 1));
    Status s = world_map(a, &files, 0, &p->world);
    world_discard(&files);
    return s;
}

static Status listen(Arena *a, const MeasureOptions *o, int ranks, double seconds, Heard *h)
{
    Parley p = {.ranks = ranks, .nsize = sizes_within(ranks, o->machine.memory), .isa = o->machine.isa, .seconds = seconds,
                .sample = arena_alloc(a, MOST_ROUNDS * sizeof *p.sample), .status = NEWN(a, Status, ranks)};
    if (o->say)
        o->say(arena_printf(a, "collectives of %d ranks", ranks));
    TRY(open_world(a, &p));
    Team *team = team_new(ranks);
    if (team)
        team_run(team, be_rank, &p);
    else
        fprintf(stderr, "error: cannot start %d threads\n", ranks);
    team_free(team);
    world_unmap(p.world);
    for (int i = 0; i < ranks; i++)
        TRY(p.status[i]);
    if (team)
        settle(&p, h);
    return team ? OK : ERR_DEVICE;
}

Status link_measure(Arena *a, const MeasureOptions *o, const int *ranks, uint32_t n, double seconds, MeasuredLink *m)
{
    Heard h[2];
    for (uint32_t i = 0; i < n; i++)
        TRY(listen(a, o, ranks[i], seconds / n, &h[i]));
    read_figures(h, n, m);
    return spread_judge("collectives", m->spread);
}
