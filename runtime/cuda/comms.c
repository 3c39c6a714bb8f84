/* Communicators: NCCL between ranks that have met in a world of the cpu.
 *
 * All are split from one, in an order that all ranks know.  Calls do not block: what NCCL has not yet taken is
 * asked for again, so that a lost rank ends the wait.  Who waits for whom, and when a run is over, the world knows. */
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/device.h"
#include "runtime/groups.h"

static Status nccl_failed(const Rank *r, const char *call, ncclResult_t e)
{
    return device_failed(r, call, ncclGetErrorString(e));
}

/* Until NCCL has taken a call on a communicator. */
static Status taken(const Rank *r, ncclComm_t comm, const char *call, ncclResult_t e)
{
    Status s = OK;
    r->device->asked = call;
    await_begin(r);
    for (int looks = 0; e == ncclInProgress && s == OK; looks++) {
        ncclResult_t asked = ncclCommGetAsyncError(comm, &e);
        e = asked == ncclSuccess ? e : asked;
        if (e == ncclInProgress) {
            s = await_more(r);
            await_nap(looks);
        }
    }
    r->device->asked = NULL;
    return s != OK || e == ncclSuccess ? s : nccl_failed(r, call, e);
}

#define NCCL_TRY(rank, comm, call) TRY(taken((rank), (comm), #call, (call)))

/* ---- which there are ---- */

static GroupName channel_name(const Channel *c)
{
    return group_name(&c->ranks, c->use);
}

/* Messages between two ranks have one for both directions: what each of them sends in return for what it gets can be one
 * launch, and no order of theirs can differ from that of another communicator. */
static Channel channel_for(Rank *r, const Instr *in)
{
    const RankGroup *g = &r->program->group[in->group];
    if (!is_message(in))
        return (Channel){.ranks = *g, .use = 1 + (uint32_t)in->stream};
    RankGroup pair = {NEWN(r->arena, uint32_t, 2), 2};
    pair.rank[0] = g->rank[0] < g->rank[1] ? g->rank[0] : g->rank[1];
    pair.rank[1] = g->rank[0] + g->rank[1] - pair.rank[0];
    return (Channel){.ranks = pair, .use = 1 + STREAM_send};
}

static uint32_t find_channel(const DeviceRank *d, GroupName name)
{
    uint32_t i = 0;
    while (i < d->nchannel && !group_same(channel_name(&d->channel[i]), name))
        i++;
    return i;
}

/* NCCL knows equal parts only, as all are that placements and buckets make. */
static Status check_parts(const Program *p, const Instr *in)
{
    int64_t parts = p->group[in->group].n, n = has_tensor(in->arg[0]) ? tensor_elements(&p->tensor[in->arg[0].i]) : 0;
    bool equal = in->op == OP_all_gather ? n * parts == tensor_elements(&p->tensor[in->out[0].i]) : n % parts == 0;
    if (equal || (in->op != OP_all_gather && in->op != OP_reduce_scatter && in->op != OP_all_to_all))
        return OK;
    fprintf(stderr, "error: %s: %s of %lld elements over %lld ranks: NCCL needs equal parts\n", in->path, op_info[in->op].name, (long long)n, (long long)parts);
    return ERR_REJECT;
}

static Status find_channels(Rank *r, GroupNames *names)
{
    const Program *p = r->program;
    DeviceRank *d = r->device;
    uint32_t n = 0;
    *names = (GroupNames){0};
    d->via = NEWN(r->arena, uint32_t, p->ninstr);
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        if (!communicates(in))
            continue;
        TRY(check_parts(p, in));
        Channel c = channel_for(r, in);
        d->via[i] = find_channel(d, channel_name(&c));
        if (d->via[i] < d->nchannel)
            continue;
        PUSH(r->arena, d->channel, d->nchannel, c);
        group_add(names, &n, channel_name(&c));
    }
    return OK;
}

/* ---- making them ---- */

static const ncclConfig_t unblocked = NCCL_CONFIG_INITIALIZER;

static Status make_world(Rank *r)
{
    DeviceRank *d = r->device;
    ncclConfig_t config = unblocked;
    ncclUniqueId id;
    ncclResult_t e = ncclSuccess;
    memset(&id, 0, sizeof id);
    config.blocking = 0;
    if (r->program->rank == 0)
        e = ncclGetUniqueId(&id);
    TRY(rank_outcome(r, e == ncclSuccess ? OK : nccl_failed(r, "ncclGetUniqueId", e)));
    TRY(r->end->comm->broadcast(r->all, &id, &id, sizeof id, DT_u8, 0));
    e = ncclCommInitRankConfig(&d->world, (int)r->program->nranks, id, (int)r->program->rank, &config);
    d->world_stands = d->world != NULL;
    return taken(r, d->world, "ncclCommInitRankConfig", e);
}

static int place_in_channel(const Channel *c, uint32_t rank)
{
    uint32_t i = 0;
    while (i < c->ranks.n && c->ranks.rank[i] != rank)
        i++;
    return (int)i;
}

/* This rank's channel among those with an id, which are disjoint; NULL: it has none. */
static Channel *channel_of(const Rank *r, const GroupIds *ids, uint32_t id)
{
    DeviceRank *d = r->device;
    for (uint32_t i = 0; i < d->nchannel; i++)
        if (ids->id[group_place(ids, channel_name(&d->channel[i]))] == id)
            return &d->channel[i];
    return NULL;
}

static Status split(Rank *r, const GroupIds *ids, uint32_t id)
{
    DeviceRank *d = r->device;
    Channel *c = channel_of(r, ids, id);
    ncclComm_t *comm = c ? &c->comm : NEW(r->arena, ncclComm_t);     /* NCCL writes there when it gets to it */
    ncclConfig_t config = unblocked;
    config.blocking = 0;
    int color = c ? (int)group_place(ids, channel_name(c)) : NCCL_SPLIT_NOCOLOR;
    int key = c ? place_in_channel(c, r->program->rank) : 0;
    Status s = taken(r, d->world, "ncclCommSplit", ncclCommSplit(d->world, color, key, comm, &config));
    if (c) {
        c->stands = c->comm != NULL;
        c->id = id;
    }
    TRY(s);
    return c ? taken(r, c->comm, "ncclCommSplit", ncclInProgress) : OK;
}

Status comms_open(Rank *r)
{
    GroupNames mine;
    uint32_t n = r->program->nranks;
    GroupNames *all = NEWN(r->arena, GroupNames, n);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);    /* kernels of several communicators start in the order of their calls */
    TRY(rank_outcome(r, find_channels(r, &mine)));
    TRY(r->end->comm->all_gather(r->all, &mine, all, (int64_t)n * (int64_t)(sizeof mine / sizeof(int64_t)), DT_i64));
    const GroupIds ids = group_ids(r->arena, all, n);
    TRY(make_world(r));
    r->device->nid = ids.nid;
    for (uint32_t id = 0; id < ids.nid; id++)
        TRY(split(r, &ids, id));
    return OK;
}

/* Of a run that failed nothing can be waited for.  An abort waits for the device once its own kernel has ended, and so for
 * those of other communicators, unless all are told in one group, as NCCL 2.22 lets them be. */
static void abort_all(const DeviceRank *d)
{
    int version = 0;
    bool grouped = ncclGetVersion(&version) == ncclSuccess && version >= NCCL_VERSION(2, 22, 0);
    if (grouped)
        (void)ncclGroupStart();
    for (uint32_t i = 0; i < d->nchannel; i++)
        if (d->channel[i].stands)
            (void)ncclCommAbort(d->channel[i].comm);
    if (d->world_stands)
        (void)ncclCommAbort(d->world);
    if (grouped)
        (void)ncclGroupEnd();
}

/* NCCL ends what it has going on beside. */
static void end_comm(Rank *r, ncclComm_t *comm, bool *stands)
{
    if (!*stands || taken(r, *comm, "ncclCommFinalize", ncclCommFinalize(*comm)) != OK)
        return;
    *stands = false;
    (void)ncclCommDestroy(*comm);
}

/* In the order in which they were made, as members may wait for each other. */
void comms_close(Rank *r)
{
    DeviceRank *d = r->device;
    for (uint32_t id = 0; id < d->nid; id++)
        for (uint32_t i = 0; i < d->nchannel && d->failed == OK; i++)
            if (d->channel[i].id == id)
                end_comm(r, &d->channel[i].comm, &d->channel[i].stands);
    if (d->failed == OK)
        end_comm(r, &d->world, &d->world_stands);
    if (d->failed != OK)
        abort_all(d);
}

Status comms_check(const Rank *r)
{
    const DeviceRank *d = r->device;
    for (uint32_t i = 0; i < d->nchannel; i++) {
        ncclResult_t e = ncclSuccess;
        if (!d->channel[i].stands)
            continue;
        ncclResult_t asked = ncclCommGetAsyncError(d->channel[i].comm, &e);
        e = asked == ncclSuccess ? e : asked;
        if (e != ncclSuccess && e != ncclInProgress)
            return nccl_failed(r, "a communicator", e);
    }
    return OK;
}

/* ---- instructions ---- */

/* For what is summed up; all else is moved as bytes. */
static ncclDataType_t sum_type(DType t)
{
    switch ((int)t) {
    case DT_bf16: return ncclBfloat16;
    case DT_f64:  return ncclFloat64;
    case DT_i32:  return ncclInt32;
    case DT_i64:  return ncclInt64;
    default:      return ncclFloat32;
    }
}

static ncclResult_t enqueue(const Rank *r, const KCall *c, const Channel *channel)
{
    ncclComm_t comm = channel->comm;
    int peer = 1 - place_in_channel(channel, r->program->rank);      /* of a message */
    const Instr *in = c->in;
    const Tensor *from = c->argt[0], *to = c->outt[0];
    size_t parts = r->program->group[in->group].n, sent = from ? (size_t)tensor_bytes(from) : 0, got = to ? (size_t)tensor_bytes(to) : 0;
    size_t n = from ? (size_t)tensor_elements(from) : 0;
    ncclDataType_t type = from ? sum_type(from->dtype) : ncclUint8;
    cudaStream_t s = r->device->stream[in->stream];
    switch ((int)in->op) {
    case OP_all_reduce:     return ncclAllReduce(c->arg[0], c->out[0], n, type, ncclSum, comm, s);
    case OP_reduce_scatter: return ncclReduceScatter(c->arg[0], c->out[0], n / parts, type, ncclSum, comm, s);
    case OP_reduce_to:      return ncclReduce(c->arg[0], c->out[0], n, type, ncclSum, 0, comm, s);
    case OP_all_gather:     return ncclAllGather(c->arg[0], c->out[0], sent, ncclUint8, comm, s);
    case OP_broadcast:      return ncclBroadcast(c->arg[0], c->out[0], sent, ncclUint8, 0, comm, s);
    case OP_all_to_all:     return ncclAlltoAll(c->arg[0], c->out[0], sent / parts, ncclUint8, comm, s);
    case OP_send:           return ncclSend(c->arg[0], sent, ncclUint8, peer, comm, s);
    default:                return ncclRecv(c->out[0], got, ncclUint8, peer, comm, s);
    }
}

/* A group that was begun is ended, whatever came of its calls. */
static ncclResult_t enqueue_all(const Rank *r, const Message *m, uint32_t n, const Channel *channel)
{
    ncclResult_t e = ncclGroupStart();
    if (e != ncclSuccess)
        return e;
    for (uint32_t i = 0; i < n && (e == ncclSuccess || e == ncclInProgress); i++)
        e = enqueue(r, &m[i].call, channel);
    ncclResult_t ended = ncclGroupEnd();
    return e == ncclSuccess || e == ncclInProgress ? ended : e;
}

Status comms_issue(Rank *r, const Message *m, uint32_t n)
{
    const Instr *first = m->call.in;
    const Channel *channel = &r->device->channel[r->device->via[first - r->program->instr]];
    return taken(r, channel->comm, op_info[first->op].name, n == 1 ? enqueue(r, &m->call, channel) : enqueue_all(r, m, n, channel));
}
