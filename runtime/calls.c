/* Calls: the execution of a program's calls, in the order of the program, or on two threads. */
#include <string.h>

#include "runtime/courier.h"
#include "runtime/guard.h"

static void move(const Rank *r, TensorId id, const Call *call, void **at)
{
    if (has_tensor(id))
        *at = rank_at(r, id, call->slot, call->micro);
}

/* The prepared call, moved to this slot and micro-batch. */
static KCall call_on(const Rank *r, uint32_t i, const Call *call)
{
    KCall c = r->call[i];
    for (uint32_t k = 0; k < c.in->narg; k++)
        move(r, c.in->arg[k], call, &c.arg[k]);
    for (uint32_t k = 0; k < c.in->nout; k++)
        move(r, c.in->out[k], call, &c.out[k]);
    return c;
}

/* Copy what was just made and is watched. */
static void copy_watched(const Rank *r, const KCall *c, uint32_t micro)
{
    for (uint32_t k = 0; k < c->in->nout; k++)
        for (uint32_t w = 0; w < r->nwatch; w++) {
            char *to = watch_place(&r->watch[w], c, k, micro);
            if (to)
                memcpy(to, c->out[k], (size_t)tensor_bytes(c->outt[k]));
        }
}

/* ---- one instruction ---- */

/* What an instruction took, and how much of that it waited.  How long peers may wait for one
 * is measured at those that do not wait. */
static void measure(Rank *r, uint32_t i, const Call *call, double begin, double end, double waited)
{
    const Instr *in = &r->program->instr[i];
    bool beside = r->courier && side_of(in) == SIDE_COMM;
    if (r->tally)
        tally_add(r->tally, i, beside, end - begin, waited, beside ? courier_exposed(r, begin, end) : end - begin);
    if (!communicates(in) && end - begin > r->slowest)
        r->slowest = end - begin;
    if (r->trace)
        trace_add(r->trace, &(TraceEvent){.begin = (int64_t)(1e9 * begin), .end = (int64_t)(1e9 * end), .step = r->step.step + !r->evaluates,
                                          .evaluates = r->evaluates, .instr = i, .micro = call->micro, .slot = call->slot});
}

static Status communicate(Rank *r, uint32_t i, const KCall *c, const Call *call)
{
    double begin = seconds_now(), waited = exchange_waited(r, c->in);
    if (!r->courier || side_of(c->in) == SIDE_COMPUTE)
        exchange_begin(r, i);
    TRY(exchange(r, c));
    measure(r, i, call, begin, seconds_now(), exchange_waited(r, c->in) - waited);
    return OK;
}

static void compute(Rank *r, uint32_t i, const KCall *c, const Call *call)
{
    bool measured = r->end || r->trace || r->tally;
    double begin = measured ? seconds_now() : 0;
    exchange_begin(r, i);
    r->kernel[i](c);
    if (measured)
        measure(r, i, call, begin, seconds_now(), 0);
}

static Status run_instr(Rank *r, uint32_t i, const Call *call)
{
    KCall c = call_on(r, i, call);
    guard_before(r, i, call);
    if (communicates(c.in))
        TRY(communicate(r, i, &c, call));
    else
        compute(r, i, &c, call);
    if (r->nwatch)
        copy_watched(r, &c, call->micro);
    guard_after(r, i, call);
    return OK;
}

/* ---- calls ---- */

/* What kernels read of a call beside its tensors. */
static void begin_call(Rank *r, const CallList *calls, const Call *call)
{
    r->step.micro = call->micro;
    if (calls->opens)
        r->step.first = call->micro == 0;
}

static Status run_in_order(Rank *r, const Call *call)
{
    const Proc *proc = &r->program->proc[call->proc];
    TRY(exchange_settle(r, call->proc));
    for (uint32_t i = proc->first; i < proc->end; i++)
        if (instr_runs(&r->program->instr[i], r->program, call))
            TRY(run_instr(r, i, call));
    return OK;
}

static Status run_side(Rank *r, Side side, const Call *call)
{
    const Program *p = r->program;
    const Proc *proc = &p->proc[call->proc];
    TRY(courier_enter(r, side, call));
    for (uint32_t i = proc->first; i < proc->end; i++) {
        if (side_of(&p->instr[i]) != side || !instr_runs(&p->instr[i], p, call))
            continue;
        TRY(courier_pass(r, side, i));
        TRY(run_instr(r, i, call));
    }
    courier_leave(r, side);
    return OK;
}

Status calls_run_side(Rank *r, Side side, const CallList *calls)
{
    for (uint32_t k = 0; k < calls->n; k++) {
        if (side == SIDE_COMPUTE)
            begin_call(r, calls, &calls->call[k]);
        TRY(run_side(r, side, &calls->call[k]));
    }
    return OK;
}

Status calls_run(Rank *r, const CallList *calls)
{
    if (r->courier)
        return courier_run(r, calls);
    for (uint32_t k = 0; k < calls->n; k++) {
        begin_call(r, calls, &calls->call[k]);
        TRY(run_in_order(r, &calls->call[k]));
    }
    return OK;
}
