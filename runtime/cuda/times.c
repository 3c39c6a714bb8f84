/* Times: when instructions ran, by events around them, and which part of a step each took.
 *
 * At every moment a step is one thing: it computes; or else it communicates, on the first of the streams that do; or
 * nothing is done.  So what a communication takes is exposed where neither a kernel nor a communication of an
 * earlier stream runs beside it, and all exposed times and those of kernels sum up to less than the step. */
#include <math.h>

#include "runtime/cuda/device.h"
#include "runtime/trace.h"

/* ---- opening ---- */

static uint32_t runs_on(const Program *p, Stream s)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->ncall; k++)
        for (uint32_t i = p->proc[p->call[k].proc].first; i < p->proc[p->call[k].proc].end; i++)
            n += p->instr[i].stream == s && instr_runs(&p->instr[i], p, &p->call[k]);
    return n;
}

void times_open(Rank *r)
{
    Timing *t = &r->device->times;
    uint32_t all = 0;
    for (int s = 0; s < STREAMS; s++) {
        uint32_t n = runs_on(r->program, (Stream)s);
        t->stretch[s] = NEWN(r->arena, Stretch, n + 1);
        all += n;
    }
    for (int k = 0; k < 2; k++)
        t->busy[k].stretch = NEWN(r->arena, Stretch, all + 1);
    t->least = NEWN(r->arena, double, r->program->ninstr + 1);
}

/* ---- while streams run ---- */

/* Behind a list that is done the zero is passed at once, so the host's clock says when.  Lists that are issued one behind the other
 * have one zero. */
Status times_begin(Rank *r)
{
    DeviceRank *d = r->device;
    Timing *t = &d->times;
    t->on = r->trace || r->tally;
    for (int s = 0; s < STREAMS && r->tally; s++)
        t->n[s] = 0;
    if (!t->on || (t->began > 0 && cudaEventQuery(d->done) == cudaErrorNotReady))
        return OK;
    TRY(await_event(r, d->done));                    /* marks of the lists before have been looked at, too */
    t->began = seconds_now();
    CUDA_TRY(r, cudaEventRecord(t->zero, d->stream[STREAM_compute]));
    CUDA_TRY(r, cudaStreamWaitEvent(d->side, t->zero, 0));           /* and behind that all streams */
    return OK;
}

static Status time_of(const Rank *r, cudaEvent_t event, double *seconds)
{
    float ms;
    CUDA_TRY(r, cudaEventElapsedTime(&ms, r->device->times.zero, event));
    *seconds = 1e-3 * (double)ms;
    return OK;
}

static int64_t clock_of(const Timing *t, double seconds)
{
    return (int64_t)(1e9 * (t->began + seconds));
}

Status times_take(const Rank *r, const Mark *mark)
{
    Timing *t = &r->device->times;
    Stretch x = {.instr = (uint32_t)mark->instr};
    TRY(time_of(r, mark->begins, &x.begin));
    TRY(time_of(r, mark->ends, &x.end));
    if (r->trace)
        trace_add(r->trace, &(TraceEvent){.begin = clock_of(t, x.begin), .end = clock_of(t, x.end), .step = mark->step, .evaluates = mark->evaluates,
                                          .instr = x.instr, .micro = mark->call.micro, .slot = mark->call.slot});
    if (mark->tallied && !mark->along)
        t->stretch[mark->stream][t->n[mark->stream]++] = x;
    return OK;
}

/* ---- which part of a step each took ---- */

/* Seconds of a stretch in which nothing is busy; *k: the first that may meet it, and from there the next stretch. */
static double exposed(const Stretch *x, const Busy *busy, uint32_t *k)
{
    double left = x->end - x->begin;
    while (*k < busy->n && busy->stretch[*k].end <= x->begin)
        ++*k;
    for (uint32_t i = *k; i < busy->n && busy->stretch[i].begin < x->end; i++)
        left -= fmin(x->end, busy->stretch[i].end) - fmax(x->begin, busy->stretch[i].begin);
    return fmax(left, 0);
}

static void extend(Busy *b, const Stretch *x)
{
    if (b->n > 0 && x->begin <= b->stretch[b->n - 1].end)
        b->stretch[b->n - 1].end = fmax(x->end, b->stretch[b->n - 1].end);
    else
        b->stretch[b->n++] = *x;
}

/* What is busy, and these. */
static void join(Timing *t, const Stretch *stretch, uint32_t n)
{
    const Busy old = t->busy[0];
    Busy *out = &t->busy[1];
    out->n = 0;
    for (uint32_t i = 0, k = 0; i < n || k < old.n;)
        extend(out, k == old.n || (i < n && stretch[i].begin < old.stretch[k].begin) ? &stretch[i++] : &old.stretch[k++]);
    t->busy[0] = *out;
    t->busy[1] = old;
}

/* How long others are waited for is not to be seen; but the quickest so far of the same waited least. */
static void note_quickest(Timing *t, const Stretch *stretch, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double took = stretch[i].end - stretch[i].begin, *known = &t->least[stretch[i].instr];
        *known = *known > 0 ? fmin(*known, took) : took;
    }
}

static void tell_stream(const Rank *r, Timing *t, Stream s)
{
    const Stretch *stretch = t->stretch[s];
    uint32_t n = t->n[s], k = 0;
    bool computes = s == STREAM_compute;
    if (!computes)
        note_quickest(t, stretch, n);
    for (uint32_t i = 0; i < n; i++) {
        double took = stretch[i].end - stretch[i].begin, waited = computes ? 0 : fmax(took - t->least[stretch[i].instr], 0);
        tally_add(r->tally, stretch[i].instr, !computes, took, waited, exposed(&stretch[i], &t->busy[0], &k));
    }
    join(t, stretch, n);
}

void times_tell(const Rank *r)
{
    Timing *t = &r->device->times;
    if (!r->tally)
        return;
    t->busy[0].n = 0;
    for (int s = 0; s < STREAMS; s++) {
        tell_stream(r, t, (Stream)s);
        t->n[s] = 0;
    }
}
