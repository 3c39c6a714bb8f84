/* Link: what ranks of one machine say to each other, as a run has them say it, and the three figures that say it best.
 *
 * Ranks are threads of this process, each bound to a Program whose procedures are a collective or a message each. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "codegen/cost.h"
#include "runtime/measure/device.h"
#include "runtime/ranks.h"

typedef enum Talk { TALK_ALL_REDUCE, TALK_REDUCE_SCATTER, TALK_ALL_GATHER, TALK_SEND, TALKS } Talk;

static const OpKind talk_op[TALKS] = {OP_all_reduce, OP_reduce_scatter, OP_all_gather, OP_send};

/* Bytes of the larger buffer of a member, or of the message; the last two between devices only. */
static const int64_t sizes[] = {8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, SIZES_HERE = SIZES - 2, TURN_CALLS = 24, LEAST_CALLS = 2, SYNC_FROM = 64 << 10, SLACK = 4096 };

/* Calls that are executed behind the host are handed over so many at once, as in a step; their mean is one sample. */
enum { AHEAD = 12, TURN_LISTS = 4 };

/* From here on a message's time is its bytes'; below the second, its latency. */
static const int64_t LARGE = 256 << 10, SMALL = 1 << 10;

static const double LEAST_LATENCY = 1e-9, GUESS = 1e-6;          /* seconds, of devices */

typedef struct Parley {
    const Machine *machine;
    World   *world;
    int      ranks, nsize;
    double   seconds;                 /* for all of it */
    uint32_t rounds;                  /* done */
    double (*sample)[TALKS][SIZES];   /* by round: seconds of a call, as the slowest rank saw it */
    Status  *status;                  /* by rank */
    int64_t  beside;                  /* bytes of device 0 beside a map */
} Parley;

/* One rank of it.  Procedure talk * nsize + size is a call of that size. */
typedef struct Talker {
    Parley  *parley;
    Rank     rank;
    TensorId send;                    /* of the largest size */
    double  *heard;                   /* room for what all ranks' clocks said */
} Talker;

/* ---- what a rank says, as a program ---- */

enum { GROUP_ALL, GROUP_NEXT, GROUP_PREVIOUS, GROUPS };

static int64_t elements_of(int64_t bytes, int ranks)
{
    int64_t unit = ranks * (int64_t)sizeof(float);
    return (bytes + unit - 1) / unit * ranks;
}

static RankGroup pair_of(Arena *a, int from, int to)
{
    RankGroup g = {NEWN(a, uint32_t, 2), 2};
    g.rank[0] = (uint32_t)from;
    g.rank[1] = (uint32_t)to;
    return g;
}

static void add_groups(Program *p)
{
    int n = (int)p->nranks, me = (int)p->rank;
    p->group = NEWN(p->arena, RankGroup, GROUPS);
    p->ngroup = GROUPS;
    p->group[GROUP_ALL] = (RankGroup){NEWN(p->arena, uint32_t, n), p->nranks};
    for (int i = 0; i < n; i++)
        p->group[GROUP_ALL].rank[i] = (uint32_t)i;
    p->group[GROUP_NEXT] = pair_of(p->arena, me, (me + 1) % n);
    p->group[GROUP_PREVIOUS] = pair_of(p->arena, (me + n - 1) % n, me);
}

static BufferId add_buffer(Program *p, const char *name, int64_t bytes)
{
    BufferId b = program_add_buffer(p, (Buffer){.name = name, .cls = CLASS_working, .part = PART_SHARED, .bytes = bytes, .slots = 1, .first = -1, .last = -1,
                                                 .offset = p->map_bytes[PART_SHARED]});
    p->map_bytes[PART_SHARED] += bytes;
    return b;
}

/* Elements first..first+n of a buffer. */
static TensorId add_tensor(Program *p, BufferId b, int64_t first, int64_t n)
{
    return program_add_tensor(p, (Tensor){.path = p->buffer[b.i].name, .buffer = b, .at = first * (int64_t)sizeof(float), .dtype = DT_f32, .rank = 1,
                                          .axis = {{.local = n, .global = n}}, .role = ROLE_ACTIVATION});
}

static void add_instr(Program *p, OpKind op, Stream stream, uint32_t group, TensorId arg, TensorId out)
{
    Instr in = {.op = op, .stream = stream, .path = op_info[op].name, .key = op_info[op].name, .group = group, .workspace = NO_TENSOR,
                .narg = has_tensor(arg), .nout = has_tensor(out)};
    for (int i = 0; i < MAX_ARGS; i++)
        in.arg[i] = i == 0 ? arg : NO_TENSOR;
    for (int i = 0; i < MAX_OUTS; i++)
        in.out[i] = i == 0 ? out : NO_TENSOR;
    (void)program_add_instr(p, in);
}

/* A sum goes where its summands are, and parts are gathered around one's own. */
static void add_talk(Program *p, Talk talk, int64_t n, BufferId send, BufferId recv)
{
    int64_t part = n / p->nranks;
    TensorId all = add_tensor(p, send, 0, n), own = add_tensor(p, send, part * p->rank, part);
    uint32_t first = p->ninstr;
    switch (talk) {
    case TALK_ALL_REDUCE:     add_instr(p, OP_all_reduce, STREAM_collective, GROUP_ALL, all, all); break;
    case TALK_REDUCE_SCATTER: add_instr(p, OP_reduce_scatter, STREAM_collective, GROUP_ALL, all, add_tensor(p, recv, 0, part)); break;
    case TALK_ALL_GATHER:     add_instr(p, OP_all_gather, STREAM_collective, GROUP_ALL, own, all); break;
    default:
        add_instr(p, OP_send, STREAM_send, GROUP_NEXT, all, NO_TENSOR);
        add_instr(p, OP_recv, STREAM_recv, GROUP_PREVIOUS, NO_TENSOR, add_tensor(p, recv, 0, n));
    }
    PUSH(p->arena, p->proc, p->nproc, ((Proc){.kind = PROC_forward, .first = first, .end = p->ninstr}));
}

static Program *program_of(Arena *a, const Parley *parley, int rank, TensorId *largest)
{
    Program *p = program_new(a);
    int64_t room = sizes[parley->nsize - 1] + SLACK;
    p->model = "parley";
    p->rank = (uint32_t)rank;
    p->nranks = (uint32_t)parley->ranks;
    p->threads = parley->machine->devices > 0 ? 0 : 1;
    p->batch = 1;
    add_groups(p);
    BufferId send = add_buffer(p, "send", room), recv = add_buffer(p, "recv", room);
    for (int talk = 0; talk < TALKS; talk++)
        for (int i = 0; i < parley->nsize; i++)
            add_talk(p, (Talk)talk, elements_of(sizes[i], parley->ranks), send, recv);
    *largest = add_tensor(p, send, 0, elements_of(sizes[parley->nsize - 1], parley->ranks));
    return p;
}

/* ---- one call ---- */

/* What is sent was just computed, and lies in this rank's cache. */
static void write_message(const Talker *t, int64_t count)
{
    float *at = t->rank.executor->edit(&t->rank, rank_at(&t->rank, t->send, 0, 0), count * (int64_t)sizeof(float));
    for (int64_t i = 0; i < count; i++)
        at[i] = 1;
}

/* Until what was sent is taken, too. */
static Status call(Talker *t, uint32_t proc, uint32_t times)
{
    Call list[AHEAD];
    for (uint32_t i = 0; i < times; i++)
        list[i] = (Call){.proc = proc};
    TRY(rank_calls(&t->rank, &(CallList){.call = list, .n = times}));
    TRY(rank_settle(&t->rank));
    return t->rank.end->comm->flush(t->rank.end, COMM_ANY);
}

static Status timed_call(Talker *t, uint32_t proc, int64_t count, double *seconds)
{
    const Comm *c = t->rank.end->comm;
    bool ahead = t->rank.executor->ahead, together = ahead || count * (int64_t)sizeof(float) >= SYNC_FROM;
    uint32_t times = ahead ? AHEAD : 1;
    if (t->rank.executor->peers_read)
        write_message(t, count);
    if (together)
        TRY(c->barrier(t->rank.all));
    double start = seconds_now();
    TRY(call(t, proc, times));
    *seconds = (seconds_now() - start) / times;
    return together ? c->barrier(t->rank.all) : OK;
}

static int calls_in_turn(const Talker *t, int64_t bytes)
{
    int64_t calls = (8 << 20) / bytes, most = t->rank.executor->ahead ? TURN_LISTS : TURN_CALLS;
    return (int)(calls < LEAST_CALLS ? LEAST_CALLS : calls > most ? most : calls);
}

/* The median over some calls, each as long as its slowest rank. */
static Status turn(Talker *t, Talk talk, int size, double *out)
{
    const Parley *p = t->parley;
    int calls = calls_in_turn(t, sizes[size]);
    for (int i = 0; i < calls; i++)
        TRY(timed_call(t, (uint32_t)talk * (uint32_t)p->nsize + (uint32_t)size, elements_of(sizes[size], p->ranks), &t->heard[i]));
    TRY(t->rank.end->comm->all_reduce(t->rank.all, t->heard, t->heard, calls, DT_f64, REDUCE_MAX));
    *out = median_of(t->heard, (uint32_t)calls);
    return OK;
}

/* ---- a rank ---- */

static Status one_round(Talker *t, uint32_t round)
{
    Parley *p = t->parley;
    for (int talk = 0; talk < TALKS; talk++)
        for (int i = 0; i < p->nsize; i++) {
            double seconds;
            TRY(turn(t, (Talk)talk, i, &seconds));
            if (t->rank.program->rank == 0)
                p->sample[round][talk][i] = seconds;
        }
    return OK;
}

/* The first round warms up.  All agree on when time is up. */
static Status talk(Talker *t)
{
    Parley *p = t->parley;
    double start = seconds_now();
    TRY(one_round(t, 0));
    for (uint32_t round = 0; round < MOST_ROUNDS; round++) {
        TRY(one_round(t, round));
        int64_t up = seconds_now() - start > p->seconds && round + 1 >= LEAST_ROUNDS;
        TRY(rank_agree(&t->rank, &up, 1, REDUCE_MAX));
        if (t->rank.program->rank == 0)
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
    Talker t = {.parley = p, .heard = NEWN(a, double, TURN_CALLS)};
    const Peers peers = {.world = p->world, .executor = p->machine->executor};
    (void)ranks;
    p->status[rank] = rank_join(&t.rank, a, program_of(a, p, rank, &t.send), p->machine->isa, &peers);
    if (p->status[rank] == OK)
        p->status[rank] = t.rank.executor->ready(&t.rank);
    if (p->status[rank] == OK && rank == 0)
        p->status[rank] = beside_map(a, p->machine, t.rank.program, &p->beside);
    if (p->status[rank] == OK)
        p->status[rank] = talk(&t);
    if (p->status[rank] != OK && p->status[rank] != ERR_COMM)
        world_abort(p->world, rank, "ended");        /* it has said why */
    rank_close(&t.rank);
    arena_free(a);
}

/* ---- what was heard ---- */

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
typedef struct Heard { int ranks, nsize; int64_t beside; double seconds[TALKS][SIZES], spread[TALKS][SIZES]; } Heard;

static void settle(const Parley *p, Heard *h)
{
    double v[MOST_ROUNDS];
    h->ranks = p->ranks;
    h->nsize = p->nsize;
    h->beside = p->beside;
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

/* ---- what a planner makes of figures ---- */

/* Seconds of all calls of n parleys, as it has them for so many ranks on a level with such a link. */
static void say(const Machine *machine, const Heard *h, const Level *l, double said[TALKS][SIZES])
{
    Arena *scratch = arena_new("link");
    uint32_t n = (uint32_t)h->ranks, one;
    Device kind = {.backend = machine->devices > 0 ? BACKEND_CUDA : BACKEND_CPU};
    Level level = *l;
    level.group = &(Group){.count = h->ranks, .level = -1};
    level.ngroup = 1;
    const Cluster cl = {.arena = scratch, .device = &kind, .ndevice = 1, .level = &level, .nlevel = 1, .ndevices = n, .kind = NEWN(scratch, uint32_t, n)};
    Plan plan = {.devices = NEWN(scratch, uint32_t, n), .ndevices = n, .mesh = {[AXIS_pp] = 1}};
    for (uint32_t i = 0; i < n; i++)
        plan.devices[i] = i;
    Links links = links_read(scratch, &cl, &plan);
    const Pattern *p = links_patterns(&links, &(RankGroup){plan.devices, n}, &one);
    for (int talk = 0; talk < TALKS; talk++)
        for (int i = 0; i < h->nsize; i++)
            said[talk][i] = links_seconds(p, talk_op[talk], (double)sizes[i]);
    arena_free(scratch);
}

/* Factors between what was measured and what figures say: their median, and the mean of their logarithms. */
static double apart_of(const Machine *machine, const Heard *h, uint32_t n, const Level *l, double *mean)
{
    Numbers x = {.n = 0};
    double said[TALKS][SIZES], sum = 0;
    for (uint32_t k = 0; k < n; k++) {
        say(machine, &h[k], l, said);
        for (int talk = 0; talk < TALKS; talk++)
            for (int i = 0; i < h[k].nsize; i++) {
                double off = fabs(log(said[talk][i] / h[k].seconds[talk][i]));
                sum += off;
                keep_number(&x, exp(off));
            }
    }
    *mean = sum / x.n;
    return median_of(x.v, x.n);
}

/* Of devices a planner adds what NCCL takes whatever the link: from a guess, the figures are moved by ever smaller
 * factors for as long as they come closer to what was measured. */
static void fit(const Machine *machine, const Heard *h, uint32_t n, Level *l)
{
    static const double factors[] = {2, 1.25, 1.05};
    double best;
    (void)apart_of(machine, h, n, l, &best);
    for (size_t k = 0; k < sizeof factors / sizeof *factors; k++)
        for (bool moved = true; moved;) {
            moved = false;
            for (int move = 0; move < 4; move++) {
                Level other = *l;
                double mean, by = move % 2 ? 1 / factors[k] : factors[k];
                *(move < 2 ? &other.latency : &other.link) *= by;
                (void)apart_of(machine, h, n, &other, &mean);
                if (mean >= best * 0.999 || other.latency < LEAST_LATENCY)
                    continue;
                *l = other;
                best = mean;
                moved = true;
            }
        }
}

/* ---- the figures ---- */

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

static Status read_figures(const Machine *machine, const Heard *h, uint32_t n, MeasuredLink *m)
{
    double latency = machine->devices > 0 ? GUESS : latency_of(h, n), messages = rate_of(h, n, true, latency), collectives = rate_of(h, n, false, latency), mean;
    double link = fmax(messages, collectives);       /* what one of them reaches, the link has */
    m->spread = spread_of(h, n);
    TRY(spread_judge("collectives", m->spread));
    if (link <= 0)
        return measure_refuse("the largest collectives took no longer than the smallest");
    m->of = (Level){.link = link, .latency = latency, .efficiency = fmax(0.001, collectives / link), .topology = TOPO_FULL};
    if (machine->devices > 0)
        fit(machine, h, n, &m->of);
    m->ranks = h[n - 1].ranks;
    m->largest = sizes[h[n - 1].nsize - 1];
    m->beside = h[n - 1].beside;
    m->apart = apart_of(machine, h, n, &m->of, &mean);
    return OK;
}

/* ---- a parley ---- */

/* Three of the largest messages a rank, of all that is free; each device has its own. */
static int sizes_within(int ranks, const Machine *m)
{
    int n = m->devices > 0 ? SIZES : SIZES_HERE, sharing = m->devices > 0 ? 1 : ranks;
    while (n > 4 && 3 * sizes[n - 1] * sharing > m->memory / 4)
        n--;
    return n;
}

static Status open_world(Arena *a, Parley *p)
{
    const Program **program = NEWN(a, const Program *, p->ranks);
    int64_t *part = NEWN(a, int64_t, p->ranks);
    TensorId largest;
    WorldFiles files;
    for (int i = 0; i < p->ranks; i++) {
        program[i] = program_of(a, p, i, &largest);
        part[i] = p->machine->executor->peers_read ? program[i]->map_bytes[PART_SHARED] : 1;
    }
    TRY(world_create(&files, p->ranks, part, ranks_groups(program, (uint32_t)p->ranks)));
    Status s = world_map(a, &files, 0, &p->world);
    world_discard(&files);
    return s;
}

/* The first failure that is not another rank's. */
static Status outcome(const Parley *p)
{
    Status first = OK;
    for (int i = 0; i < p->ranks; i++)
        if (p->status[i] != OK && (first == OK || first == ERR_COMM))
            first = p->status[i];
    return first;
}

static Status listen(Arena *a, const MeasureOptions *o, int ranks, double seconds, Heard *h)
{
    Parley p = {.machine = &o->machine, .ranks = ranks, .nsize = sizes_within(ranks, &o->machine), .seconds = seconds,
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
    TRY(team ? outcome(&p) : ERR_DEVICE);
    settle(&p, h);
    return OK;
}

Status link_measure(Arena *a, const MeasureOptions *o, const int *ranks, uint32_t n, double seconds, MeasuredLink *m)
{
    Heard h[2] = {{.ranks = 0}};
    for (uint32_t i = 0; i < n; i++)
        TRY(listen(a, o, ranks[i], seconds / n, &h[i]));
    return read_figures(&o->machine, h, n, m);
}
