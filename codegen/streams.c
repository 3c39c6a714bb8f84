/* Streams: what may run beside computing, and the waits that keep it right.
 *
 * Kernels are on one stream, communication is on four by what it is for, so that sums of
 * gradients never hold up a conversion that computing is about to need.  Waits follow
 * from the map alone: where bytes are used by instructions of two streams, one of them
 * writing, the later one waits.  So a plan that saves memory by putting values in one
 * place pays for it here, and nothing else needs to know. */
#include "codegen/pass.h"

#include <stdlib.h>

#include "ir/stream_order.h"

static bool is_update(const Program *p, uint32_t i)
{
    return proc_has(proc_find(p, PROC_update), i);
}

static Stream stream_of(const Program *p, uint32_t i)
{
    const Instr *in = &p->instr[i];
    if (!(op_info[in->op].flags & OPF_COMM))
        return STREAM_compute;
    if (in->op == OP_send || in->op == OP_recv)
        return in->op == OP_send ? STREAM_send : STREAM_recv;
    return is_update(p, i) || sums_gradients(p, i) ? STREAM_gradient : STREAM_collective;
}

static int by_instruction(const void *x, const void *y)
{
    const Wait *a = x, *b = y;
    if (a->instr != b->instr)
        return a->instr < b->instr ? -1 : 1;
    if (a->on != b->on)
        return a->on < b->on ? -1 : 1;
    return a->same_slot - b->same_slot;
}

void streams(Program *p, Arena *scratch)
{
    for (uint32_t i = 0; i < p->ninstr; i++)
        p->instr[i].stream = stream_of(p, i);
    StreamOrder order = stream_order(p, scratch);
    for (uint32_t i = 0; i < order.nmissing; i++)
        PUSH(p->arena, p->wait, p->nwait, order.missing[i].wait);
    if (p->nwait > 0)
        qsort(p->wait, p->nwait, sizeof *p->wait, by_instruction);
}
