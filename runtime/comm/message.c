/* Point to point.  A letter names a buffer of the sender, or holds the message if it
 * is short; the receiver copies it and says so. */
#include "runtime/comm/world.h"

#include <assert.h>
#include <string.h>

Status cpu_send(Endpoint *end, int to, const void *buffer, int64_t bytes)
{
    CpuEndpoint *e = (CpuEndpoint *)end;
    Channel *c = world_channel(e->end.world, end->rank, to);
    uint32_t k = ++e->sent[to];
    Letter *l = &c->letter[k % COMM_DEPTH];
    const Awaited place = {.flag = &c->received, .value = k - COMM_DEPTH, .rank = to, .kind = WAIT_send};
    TRY(flag_await(&e->end, &place));
    l->bytes = bytes;
    if (bytes <= COMM_SMALL) {
        memcpy(l->data, buffer, (size_t)bytes);
    } else {
        l->at = endpoint_offset(&e->end, buffer, bytes);
        e->lent[to] = k;
    }
    flag_raise(&l->flag, k);
    return OK;
}

Status cpu_recv(Endpoint *end, int from, void *buffer, int64_t bytes)
{
    CpuEndpoint *e = (CpuEndpoint *)end;
    Channel *c = world_channel(e->end.world, from, end->rank);
    uint32_t k = ++e->received[from];
    Letter *l = &c->letter[k % COMM_DEPTH];
    const Awaited letter = {.flag = &l->flag, .value = k, .rank = from, .kind = WAIT_recv};
    TRY(flag_await(&e->end, &letter));
    assert(l->bytes == bytes && "sender and receiver agree on the size of a message");
    if (bytes <= COMM_SMALL)
        memcpy(buffer, l->data, (size_t)bytes);
    else
        endpoint_copy(&e->end, buffer, endpoint_at(&e->end, from, l->at), bytes, bytes);
    flag_raise(&c->received, k);
    return OK;
}

static Status flush_to(CpuEndpoint *e, int to)
{
    const Awaited read = {.flag = &world_channel(e->end.world, e->end.base.rank, to)->received, .value = e->lent[to], .rank = to, .kind = WAIT_send};
    if (e->lent[to] > 0)
        TRY(flag_await(&e->end, &read));
    e->lent[to] = 0;
    return OK;
}

Status cpu_flush(Endpoint *end, int to)
{
    CpuEndpoint *e = (CpuEndpoint *)end;
    if (to != COMM_ANY)
        return flush_to(e, to);
    for (int i = 0; i < end->nrank; i++)
        TRY(flush_to(e, i));
    return OK;
}
