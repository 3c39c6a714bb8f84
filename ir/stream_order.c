/* Stream order: vector clocks over the calls of a step.
 *
 * The ends of all ranges of bytes cut the map into cells.  Those that one stream alone
 * uses cannot be at fault and are left out.  Each of the others knows who wrote it last
 * and, stream by stream, who read it last since then.
 *
 * Micro-batches repeat each other, so a few are followed: the first two, the two that come
 * into their slots again, and the last two.  Among them every kind of call follows every
 * other that it ever follows, in the same slot and in another.  The cost does not grow with
 * their number. */
#include "ir/stream_order.h"

#include <stdlib.h>
#include <string.h>

#include "ir/program_check.h"

/* What is known to be done: of each stream, its first so many instructions. */
typedef struct Clock { uint32_t done[STREAMS]; } Clock;

/* An instruction in one call.  Number 0 is nobody. */
typedef struct Run {
    uint32_t instr, call;
    Clock    clock;                   /* when it is done; of its own stream, itself included */
} Run;

/* The last runs that used the bytes of a cell. */
typedef struct Cell { uint32_t writer, reader[STREAMS]; } Cell;

/* A range of tracked cells: of a tensor in one slot. */
typedef struct Range { uint32_t from, to; } Range;

/* A run that is not known to be done, and by which tensor it is met. */
typedef struct Need { uint32_t run; TensorId tensor; bool writes, on_writes; } Need;

typedef struct Walk {
    const Program *p;
    Arena    *arena;
    StreamOrder *found;
    /* what is followed */
    Call     *call; uint32_t ncall;
    uint32_t *slot; uint32_t nslot;   /* the slots of those calls */
    uint32_t *place; uint32_t nplace; /* by call: of its slot among those */
    /* bytes */
    uint32_t *range0;                 /* by tensor, and one more: its first range, one a slot */
    Range    *range;
    Cell     *cell; uint32_t ncell;
    bool      used[2];                /* by MapPart: several streams use it */
    /* runs */
    Run      *run; uint32_t nrun;
    uint32_t *latest;                 /* by instruction, then by place in `slot`: its last run in such a call */
    Clock     stream[STREAMS];        /* after the last run of each */
    uint32_t *wait0;                  /* by instruction, and one more: its first wait of the program */
    uint32_t *missing0;               /* by instruction: the last of its missing waits + 1; 0: none */
    uint32_t *missing_next;           /* by missing wait: the one before it + 1 */
    uint32_t  nnext;
} Walk;

/* ---- what is followed ---- */

static uint32_t slots_of_calls(const Program *p)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < p->ncall; i++)
        n = p->call[i].slot >= n ? p->call[i].slot + 1 : n;
    return n;
}

static bool is_followed(const Program *p, int64_t micro, int64_t slots)
{
    return micro < 2 || micro == slots || micro == slots + 1 || micro + 2 >= p->microbatches;
}

static void follow(Walk *w, Call c)
{
    uint32_t k = 0;
    PUSH(w->arena, w->call, w->ncall, c);
    while (k < w->nslot && w->slot[k] != c.slot)
        k++;
    if (k == w->nslot)
        PUSH(w->arena, w->slot, w->nslot, c.slot);
    PUSH(w->arena, w->place, w->nplace, k);
}

static void follow_step(Walk *w)
{
    const Program *p = w->p;
    uint32_t slots = slots_of_calls(p);
    for (uint32_t i = 0; i < p->ncall; i++)
        if (is_followed(p, p->call[i].micro, slots))
            follow(w, p->call[i]);
}

/* As a run evaluates: counting labels, then two micro-batches, as the second is the first
 * after another. */
static void follow_evaluation(Walk *w)
{
    static const ProcKind kinds[] = {PROC_begin, PROC_begin, PROC_agree, PROC_evaluate, PROC_evaluate, PROC_total};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint32_t i = 0; i < w->p->nproc; i++)
            if (w->p->proc[i].kind == kinds[k])
                follow(w, (Call){.proc = i});
}

/* ---- bytes ---- */

/* Each instruction's tensors: arguments, results, workspace. */
enum { MOST_TENSORS = MAX_ARGS + MAX_OUTS + 1 };
typedef struct Use { TensorId tensor; bool writes; } Use;

static int uses_of(const Instr *in, Use *use)
{
    int n = 0;
    for (int a = 0; a < in->narg; a++)
        if (has_tensor(in->arg[a]))
            use[n++] = (Use){in->arg[a], false};
    for (int k = 0; k < in->nout; k++)
        if (has_tensor(in->out[k]))
            use[n++] = (Use){in->out[k], true};
    if (has_tensor(in->workspace))
        use[n++] = (Use){in->workspace, true};
    return n;
}

static MapPart part_of(const Program *p, TensorId t)
{
    return p->buffer[p->tensor[t.i].buffer.i].part;
}

/* By tensor: bit per stream that uses it.  Whether any part of the map is used by several. */
static bool read_streams(Walk *w, uint8_t *streams)
{
    uint8_t part[2] = {0};
    for (uint32_t i = 0; i < w->p->ninstr; i++) {
        const Instr *in = &w->p->instr[i];
        Use use[MOST_TENSORS];
        for (int k = 0, n = uses_of(in, use); k < n; k++) {
            streams[use[k].tensor.i] |= (uint8_t)(1u << in->stream);
            part[part_of(w->p, use[k].tensor)] |= (uint8_t)(1u << in->stream);
        }
    }
    for (int k = 0; k < 2; k++)
        w->used[k] = part[k] & (part[k] - 1);
    return w->used[0] || w->used[1];
}

/* Slots of inputs count as one place: nothing writes them. */
static uint32_t ranges_of(const Walk *w, const Buffer *b)
{
    return b->slots > 1 && !b->by_micro ? w->nslot : 1;
}

typedef struct End { int64_t at; uint32_t range; bool is_end; uint8_t streams; } End;

static int by_place(const void *x, const void *y)
{
    const End *a = x, *b = y;
    return (a->at > b->at) - (a->at < b->at);
}

static End *read_ends(Walk *w, const uint8_t *streams, const int64_t *address, uint32_t *nend)
{
    const Program *p = w->p;
    uint32_t nrange = 0, n = 0;
    w->range0 = NEWN(w->arena, uint32_t, p->ntensor + 1);
    for (uint32_t t = 0; t < p->ntensor; t++) {
        w->range0[t] = nrange;
        nrange += streams[t] && w->used[part_of(p, (TensorId){t})] ? ranges_of(w, &p->buffer[p->tensor[t].buffer.i]) : 0;
    }
    w->range0[p->ntensor] = nrange;
    w->range = NEWN(w->arena, Range, nrange + 1);
    End *end = NEWN(w->arena, End, 2 * (size_t)nrange + 1);
    for (uint32_t t = 0; t < p->ntensor; t++)
        for (uint32_t r = w->range0[t]; r < w->range0[t + 1]; r++) {
            const Buffer *b = &p->buffer[p->tensor[t].buffer.i];
            uint32_t slot = ranges_of(w, b) > 1 ? w->slot[r - w->range0[t]] : 0;
            int64_t from = address[p->tensor[t].buffer.i] + p->tensor[t].at + b->bytes * (slot < b->slots ? slot : 0);
            end[n++] = (End){from, r, false, streams[t]};
            end[n++] = (End){from + tensor_bytes(&p->tensor[t]), r, true, streams[t]};
        }
    *nend = n;
    return end;
}

/* `open`: by stream, the ranges it uses that have begun and not ended. */
static void pass_end(Walk *w, const End *e, uint32_t *open)
{
    Range *r = &w->range[e->range];
    *(e->is_end ? &r->to : &r->from) = w->ncell;
    for (uint32_t s = 0; s < STREAMS; s++)
        if (e->streams >> s & 1u)
            open[s] += e->is_end ? UINT32_MAX : 1;
}

/* From the lowest address on: a cell begins where a range begins or ends, and is
 * tracked where ranges of several streams lie on it. */
static void make_cells(Walk *w, End *end, uint32_t n)
{
    uint32_t open[STREAMS] = {0};
    qsort(end, n, sizeof *end, by_place);
    for (uint32_t i = 0; i < n;) {
        int64_t at = end[i].at;
        for (; i < n && end[i].at == at; i++)
            pass_end(w, &end[i], open);
        int streams = 0;
        for (int s = 0; s < STREAMS; s++)
            streams += open[s] > 0;
        w->ncell += streams > 1;
    }
    w->cell = NEWN(w->arena, Cell, w->ncell + 1);
}

/* ---- runs ---- */

static bool is_done(const Walk *w, uint32_t run, const Clock *now)
{
    const Run *r = &w->run[run];
    Stream s = w->p->instr[r->instr].stream;
    return r->clock.done[s] <= now->done[s];
}

static void learn(const Walk *w, uint32_t run, Clock *now)
{
    for (int s = 0; s < STREAMS; s++)
        if (w->run[run].clock.done[s] > now->done[s])
            now->done[s] = w->run[run].clock.done[s];
}

static uint32_t latest_in_slot(const Walk *w, uint32_t instr, uint32_t call)
{
    return w->latest[instr * w->nslot + w->place[call]];
}

static uint32_t latest_of_all(const Walk *w, uint32_t instr)
{
    uint32_t run = 0;
    for (uint32_t k = 0; k < w->nslot; k++)
        run = w->latest[instr * w->nslot + k] > run ? w->latest[instr * w->nslot + k] : run;
    return run;
}

static uint32_t waited_for(const Walk *w, const Wait *x, uint32_t call)
{
    return x->same_slot ? latest_in_slot(w, x->on, call) : latest_of_all(w, x->on);
}

/* What the program says, and what was found missing before. */
static void wait_for_others(const Walk *w, uint32_t instr, uint32_t call, Clock *now)
{
    for (uint32_t k = w->wait0[instr]; k < w->wait0[instr + 1]; k++)
        learn(w, waited_for(w, &w->p->wait[k], call), now);
    for (uint32_t k = w->missing0[instr]; k > 0; k = w->missing_next[k - 1])
        learn(w, waited_for(w, &w->found->missing[k - 1].wait, call), now);
}

/* ---- conflicts ---- */

static void meet(const Walk *w, uint32_t run, const Clock *now, Need *need, Use use, bool on_writes)
{
    if (run == 0 || is_done(w, run, now))
        return;
    Need *n = &need[w->p->instr[w->run[run].instr].stream];
    if (run > n->run)
        *n = (Need){run, use.tensor, use.writes, on_writes};
}

static Range range_at(const Walk *w, TensorId t, uint32_t call)
{
    uint32_t first = w->range0[t.i], n = w->range0[t.i + 1] - first;
    return n == 0 ? (Range){0, 0} : w->range[first + (n > 1 ? w->place[call] : 0)];
}

static void look(const Walk *w, Use use, uint32_t call, const Clock *now, Need *need)
{
    Range r = range_at(w, use.tensor, call);
    for (uint32_t c = r.from; c < r.to; c++) {
        meet(w, w->cell[c].writer, now, need, use, true);
        for (int s = 0; s < STREAMS && use.writes; s++)
            meet(w, w->cell[c].reader[s], now, need, use, false);
    }
}

static void take(Walk *w, Use use, uint32_t call, uint32_t run)
{
    Range r = range_at(w, use.tensor, call);
    Stream s = w->p->instr[w->run[run].instr].stream;
    for (uint32_t c = r.from; c < r.to; c++) {
        if (use.writes)
            w->cell[c] = (Cell){.writer = run};
        else
            w->cell[c].reader[s] = run;
    }
}

/* An event of this very call is that of its slot; of another call, the latest where
 * that is enough. */
static void lack(Walk *w, uint32_t instr, uint32_t call, const Need *n)
{
    const Run *on = &w->run[n->run];
    bool in_slot = latest_in_slot(w, on->instr, call) == n->run;
    bool same_slot = in_slot && (on->call == call || latest_of_all(w, on->instr) != n->run);
    MissingWait m = {{instr, on->instr, same_slot}, n->tensor, n->writes, n->on_writes};
    PUSH(w->arena, w->found->missing, w->found->nmissing, m);
    PUSH(w->arena, w->missing_next, w->nnext, w->missing0[instr]);
    w->missing0[instr] = w->found->nmissing;
}

/* The latest first: it may be known to come after the others. */
static void resolve(Walk *w, uint32_t instr, uint32_t call, Need *need, Clock *now)
{
    for (;;) {
        const Need *last = &need[0];
        for (int s = 1; s < STREAMS; s++)
            last = need[s].run > last->run ? &need[s] : last;
        if (last->run == 0)
            return;
        if (!is_done(w, last->run, now)) {
            lack(w, instr, call, last);
            learn(w, last->run, now);
        }
        need[last - need].run = 0;
    }
}

static void run_instr(Walk *w, uint32_t i, uint32_t call)
{
    const Instr *in = &w->p->instr[i];
    Clock now = w->stream[in->stream];
    Need need[STREAMS] = {0};
    Use use[MOST_TENSORS];
    int n = uses_of(in, use);
    wait_for_others(w, i, call, &now);
    for (int k = 0; k < n; k++)
        look(w, use[k], call, &now, need);
    resolve(w, i, call, need, &now);
    now.done[in->stream]++;
    uint32_t run = w->nrun++;
    w->run[run] = (Run){i, call, now};
    for (int k = 0; k < n; k++)
        take(w, use[k], call, run);
    w->stream[in->stream] = now;
    w->latest[i * w->nslot + w->place[call]] = run;
}

/* ---- all ---- */

static void index_waits(Walk *w)
{
    const Program *p = w->p;
    w->wait0 = NEWN(w->arena, uint32_t, p->ninstr + 2);
    for (uint32_t i = 0, k = 0; i <= p->ninstr; i++) {
        w->wait0[i] = k;
        while (k < p->nwait && p->wait[k].instr == i)
            k++;
    }
    w->missing0 = NEWN(w->arena, uint32_t, p->ninstr + 1);
}

static uint64_t count_runs(const Walk *w)
{
    uint64_t n = 1;
    for (uint32_t c = 0; c < w->ncall; c++)
        n += w->p->proc[w->call[c].proc].end - w->p->proc[w->call[c].proc].first;
    return n;
}

static void run_calls(Walk *w, uint64_t most)
{
    const Program *p = w->p;
    w->run = arena_alloc(w->arena, sizeof *w->run * most);
    w->run[0] = (Run){0};
    w->nrun = 1;
    w->latest = NEWN(w->arena, uint32_t, (size_t)p->ninstr * w->nslot + 1);
    memset(w->stream, 0, sizeof w->stream);
    for (uint32_t c = 0; c < w->ncall; c++)
        for (uint32_t i = p->proc[w->call[c].proc].first; i < p->proc[w->call[c].proc].end; i++)
            if (instr_runs(&p->instr[i], p, &w->call[c]))
                run_instr(w, i, c);
}

/* More than any program has; a damaged dump may say otherwise. */
enum { MOST_RUNS = 1 << 22, MOST_SLOTS = 8 };

static void walk(Walk *w, void (*calls)(Walk *), const uint8_t *streams, const int64_t *address)
{
    uint32_t n;
    w->ncall = w->nslot = w->nplace = w->ncell = 0;
    w->call = NULL;
    w->slot = w->place = NULL;
    calls(w);
    uint64_t runs = count_runs(w);
    w->found->too_long |= runs > MOST_RUNS || w->nslot > MOST_SLOTS;
    if (w->ncall == 0 || w->found->too_long)
        return;
    End *end = read_ends(w, streams, address, &n);
    make_cells(w, end, n);
    run_calls(w, runs);
}

StreamOrder stream_order(const Program *p, Arena *a)
{
    StreamOrder found = {0};
    Walk w = {.p = p, .arena = a, .found = &found};
    uint8_t *streams = NEWN(a, uint8_t, p->ntensor + 1);
    int64_t *address = NEWN(a, int64_t, p->nbuffer + 1);
    if (!read_streams(&w, streams) || !program_addresses(p, address))
        return found;
    index_waits(&w);
    walk(&w, follow_step, streams, address);
    walk(&w, follow_evaluation, streams, address);
    return found;
}
