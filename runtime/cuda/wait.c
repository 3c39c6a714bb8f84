/* Waiting for streams: the host looks at events and never sleeps in a call of CUDA, so that it sees a lost rank,
 * an error of a communicator, and streams that stand still. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "runtime/cuda/device.h"

enum { LOOKS = 200, NAP = 20000 };                   /* before naps, and how long one is, in nanoseconds */

/* ---- how far streams have come ---- */

static void note_progress(DeviceRank *d)
{
    d->slowest = d->idle > d->slowest ? d->idle : d->slowest;
    d->idle = 0;
}

/* Time since the last look, but for what the whole job was stopped in between. */
static void note_time(DeviceRank *d)
{
    static const double most = 0.5;   /* seconds from one look to the next */
    double now = seconds_now(), gap = now - d->looked;
    d->idle += gap < most ? gap : most;
    d->looked = now;
}

/* The event that tells when a mark is reached. */
static cudaEvent_t event_of(const Mark *mark)
{
    return mark->timed ? mark->ends : mark->event;
}

/* Streams go from mark to mark; each that is reached is a sign of life. */
static Status follow(const Rank *r, Stream s)
{
    DeviceRank *d = r->device;
    Marks *m = &d->marks;
    while (m->first[s] >= 0) {
        const Mark *mark = &m->mark[m->first[s] % MARKS];
        cudaError_t e = cudaEventQuery(event_of(mark));
        if (e == cudaErrorNotReady)
            return OK;
        if (e != cudaSuccess)
            return cuda_failed(r, "cudaEventQuery", e);
        m->instr[s] = mark->instr;
        m->call[s] = mark->call;
        m->first[s] = mark->next;
        note_progress(d);
        exchange_begin(r, mark->instr);
        if (mark->timed)
            TRY(times_take(r, mark));
    }
    return OK;
}

/* ---- streams that stand still ---- */

static void name_stream(Text *t, const Rank *r, Stream s)
{
    const Marks *m = &r->device->marks;
    const Program *p = r->program;
    const Mark *next = &m->mark[m->first[s] % MARKS];
    text_add(t, "%sstream '%s' ", t->n ? "; " : "", stream_name(s));
    if (m->instr[s] >= 0)
        text_add(t, "has done instruction %lld (%s '%s', micro-batch %u)", (long long)m->instr[s], op_info[p->instr[m->instr[s]].op].name, p->instr[m->instr[s]].path, m->call[s].micro);
    else
        text_add(t, "has done nothing");
    text_add(t, " and not %lld (%s '%s', micro-batch %u)", (long long)next->instr, op_info[p->instr[next->instr].op].name, p->instr[next->instr].path, next->call.micro);
}

const char *streams_text(Arena *a, const Rank *r)
{
    Text t = text_new(a);
    for (int s = 0; s < STREAMS; s++)
        if (r->device->marks.first[s] >= 0)
            name_stream(&t, r, (Stream)s);
    const int64_t now = r->device->instr;
    if (!t.n && now >= 0)
        text_add(&t, "all before instruction %lld (%s '%s') was done", (long long)now, op_info[r->program->instr[now].op].name, r->program->instr[now].path);
    return t.n ? t.s : "the streams are empty";
}

/* The run is over: nothing was done on any stream for so long. */
static Status stands_still(const Rank *r)
{
    DeviceRank *d = r->device;
    Arena *a = arena_new("message");
    const char *what = d->asked ? arena_printf(a, "%.*s is at work", (int)strcspn(d->asked, "("), d->asked) : "no instruction was completed";
    d->instr = -1;
    Status status = device_failed(r, "stuck", arena_printf(a, "%s for %.3g s; %s", what, d->limit, streams_text(a, r)));
    arena_free(a);
    return status;
}

/* ---- waiting ---- */

void await_begin(const Rank *r)
{
    r->device->idle = 0;
    r->device->looked = seconds_now();
}

Status await_more(const Rank *r)
{
    DeviceRank *d = r->device;
    if (d->failed != OK)
        return d->failed;
    if (r->world && world_aborted(r->world) >= 0)
        return d->failed = ERR_COMM;                 /* who ended the run has said why */
    note_time(d);
    TRY(comms_check(r));
    for (int s = 0; s < STREAMS; s++)
        TRY(follow(r, (Stream)s));
    return d->idle > d->limit ? stands_still(r) : OK;
}

void await_nap(int looks)
{
    if (looks < LOOKS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
}

Status await_event(const Rank *r, cudaEvent_t event)
{
    cudaError_t e = cudaEventQuery(event);
    await_begin(r);
    for (int i = 0; e == cudaErrorNotReady; e = cudaEventQuery(event), i++) {
        TRY(await_more(r));
        await_nap(i);
    }
    return e == cudaSuccess ? await_more(r) : cuda_failed(r, "cudaEventQuery", e);
}

Status await_side(const Rank *r)
{
    cudaError_t e = cudaStreamQuery(r->device->side);
    await_begin(r);
    for (int i = 0; e == cudaErrorNotReady; e = cudaStreamQuery(r->device->side), i++) {
        TRY(await_more(r));
        await_nap(i);
    }
    return e == cudaSuccess ? OK : cuda_failed(r, "cudaStreamQuery", e);
}

/* ---- marks ---- */

/* All that communicates or is timed has one, of all else each so many-th. */
static bool is_due(DeviceRank *d, Stream s)
{
    if (s != STREAM_compute || d->times.on)
        return true;
    d->marks.skipped = (d->marks.skipped + 1) % MARK_EVERY;
    return d->marks.skipped == 0;
}

static Status room_for_mark(const Rank *r)
{
    Marks *m = &r->device->marks;
    return m->made < MARKS ? OK : await_event(r, event_of(&m->mark[m->made % MARKS]));
}

Status mark_begin(const Rank *r, uint32_t instr, const Call *call, Mark **out)
{
    DeviceRank *d = r->device;
    Marks *m = &d->marks;
    Stream s = r->program->instr[instr].stream;
    *out = NULL;
    if (!is_due(d, s))
        return OK;
    TRY(room_for_mark(r));
    Mark *mark = &m->mark[m->made % MARKS];
    *mark = (Mark){.event = mark->event, .begins = mark->begins, .ends = mark->ends, .number = m->made++, .instr = instr, .step = r->step.step + !r->evaluates,
                   .call = *call, .stream = s, .timed = d->times.on, .tallied = r->tally != NULL, .evaluates = r->evaluates, .next = -1};
    if (mark->timed)
        CUDA_TRY(r, cudaEventRecord(mark->begins, d->stream[s]));
    *out = mark;
    return OK;
}

Status mark_end(const Rank *r, Mark *mark)
{
    if (!mark)
        return OK;
    Marks *m = &r->device->marks;
    Stream s = mark->stream;
    CUDA_TRY(r, cudaEventRecord(event_of(mark), r->device->stream[s]));
    if (m->first[s] < 0)
        m->first[s] = mark->number;
    else
        m->mark[m->last[s] % MARKS].next = mark->number;
    m->last[s] = mark->number;
    return OK;
}
