#ifndef TESTS_UNIT_PIPES_H
#define TESTS_UNIT_PIPES_H
/* Pipelines of stages that take given times, and the parts of a stage's time. */
#include "tests/unit/timing.h"

typedef struct Pipe { uint32_t stages, m; int64_t forward, backward, update, bytes; bool gpipe; } Pipe;

/* The calls of a stage: `ahead` forwards, one of each in turn, the backwards that are left. */
static inline void pipe_calls(Program *p, const Pipe *of, uint32_t stage)
{
    uint32_t after = of->stages - 1 - stage, ahead = of->gpipe || after > of->m - 1 ? of->m - 1 : after;
    for (uint32_t i = 0; i < of->m + ahead; i++) {
        if (i < of->m)
            timing_call(p, 0, i, i % (ahead + 1));
        if (i >= ahead)
            timing_call(p, 1, i - ahead, (i - ahead) % (ahead + 1));
    }
    if (of->update)
        timing_call(p, 2, 0, 0);
}

/* A stage that receives, computes and sends, both ways; `streams`: messages on streams of their own,
 * with the waits of buffers that each slot has one of. */
static inline void pipe_stage(Timing *t, const Pipe *of, uint32_t stage, bool streams)
{
    Program *p = timing_program(t, stage);
    Stream send = streams ? STREAM_send : STREAM_compute, recv = streams ? STREAM_recv : STREAM_compute;
    bool first = stage == 0, last = stage + 1 == of->stages;
    int32_t ranks = (int32_t)(t->plan.ndevices / of->stages), at = (int32_t)stage * ranks;
    uint32_t ends[2];
    for (int back = 0; back < 2; back++) {
        uint32_t from = p->ninstr;
        bool takes = back ? !last : !first, gives = back ? !first : !last;
        int32_t before = back ? at + ranks : at - ranks, after = back ? at - ranks : at + ranks;
        if (takes)
            timing_comm(p, OP_recv, recv, timing_group(p, 2, before, at - before), of->bytes);
        ends[back] = timing_run(p, back ? of->backward : of->forward);
        if (gives)
            timing_comm(p, OP_send, send, timing_group(p, 2, at, after - at), of->bytes);
        timing_proc(p, back ? PROC_backward : PROC_forward, from);
        if (streams && takes) {
            timing_wait(p, from, ends[back], true);
            timing_wait(p, ends[back], from, false);
        }
        if (streams && gives) {
            timing_wait(p, ends[back], ends[back] + 1, true);
            timing_wait(p, ends[back] + 1, ends[back], false);
        }
    }
    if (of->update) {
        timing_run(p, of->update);
        timing_proc(p, PROC_update, p->ninstr - 1);
    }
    pipe_calls(p, of, stage);
}

static inline Timing pipe_new(Backend backend, const Pipe *of, double link, double latency, bool streams)
{
    Timing t = timing_new(backend, LEVELS({of->stages > 1 ? of->stages : 2, link, latency}));
    t.plan.microbatches = of->m;
    timing_mesh(&t, of->stages, 1, 1);
    for (uint32_t s = 0; s < of->stages; s++)
        pipe_stage(&t, of, s, streams);
    return t;
}

static inline int64_t parts_of(const StageTimes *s)
{
    int64_t sum = s->slowed + s->bubble + s->extra;
    for (int c = 0; c < COST_CLASSES; c++)
        sum += s->by_class[c];
    for (int x = 0; x < MESH_AXES; x++)
        sum += s->exposed[x];
    return sum;
}

#endif
