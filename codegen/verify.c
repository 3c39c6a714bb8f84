/* Verify: what must hold of lowered programs beyond program_check(), which looks at
 * shapes and memory and replays a step: procedures, how gradients are accumulated,
 * and the schedule. */
#include "codegen/pass.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct Verify { const Program *p; FILE *err; int broken; } Verify;

__attribute__((format(printf, 2, 3))) static void broken(Verify *v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(v->err, fmt, ap);
    va_end(ap);
    fputc('\n', v->err);
    v->broken++;
}

/* ---- procedures ---- */

static void check_procs(Verify *v)
{
    const Program *p = v->p;
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->nproc; i++) {
        if (p->proc[i].first != at || p->proc[i].end < at)
            broken(v, "procedure %u covers [%u, %u), expected it to start at %u", i, p->proc[i].first, p->proc[i].end, at);
        if (i > 0 && p->proc[i].kind <= p->proc[i - 1].kind)
            broken(v, "procedure %u stands out of order", i);
        at = p->proc[i].end;
    }
    if (at != p->ninstr)
        broken(v, "procedures cover %u of %u instructions", at, p->ninstr);
}

/* ---- placements ---- */

/* Conversions and what moves elements along axes: their factors are of bytes, not of
 * axes of values. */
static bool moves_elements(OpKind k)
{
    return op_info[k].flags & OPF_COMM || k == OP_transpose || k == OP_slice || k == OP_place || k == OP_select || k == OP_concat;
}

static bool same_place(const AxisPlace *a, const AxisPlace *b)
{
    return a->origin == b->origin && a->global == b->global && a->per_micro == b->per_micro;
}

static void check_operand(Verify *v, uint32_t i, TensorId id, const uint8_t *factor, const AxisPlace **seen)
{
    const Tensor *t = has_tensor(id) ? &v->p->tensor[id.i] : NULL;
    for (int x = 0; t && x < t->rank && factor[x] < MAX_FACTORS; x++) {
        const AxisPlace **s = &seen[factor[x]];
        if (*s && !same_place(*s, &t->axis[x]))
            broken(v, "instruction %u (%s): axis %d of '%s' begins at %lld of %lld, that of another operand at %lld of %lld", i, v->p->instr[i].path, x,
                   t->path, (long long)t->axis[x].origin, (long long)t->axis[x].global, (long long)(*s)->origin, (long long)(*s)->global);
        *s = &t->axis[x];
    }
}

/* What an instruction takes as one axis is the same part of one axis in all operands. */
static void check_places(Verify *v)
{
    for (uint32_t i = 0; i < v->p->ninstr; i++) {
        const Instr *in = &v->p->instr[i];
        const AxisPlace *seen[MAX_FACTORS] = {0};
        if (moves_elements(in->op))
            continue;
        for (int a = 0; a < in->narg; a++)
            check_operand(v, i, in->arg[a], in->arg_factor[a], seen);
        for (int k = 0; k < in->nout; k++)
            check_operand(v, i, in->out[k], in->out_factor[k], seen);
    }
}

/* ---- gradients ---- */

static Accumulate accumulation(const Instr *in, int k)
{
    return in->acc_out >> k & 1 ? in->acc : ACC_NO;
}

/* What was done so far to a weight's accumulator, in the order of instructions. */
typedef struct Gradient { uint32_t writers, summed; } Gradient;   /* summed: by which instruction, over ranks; NOTHING: not yet */

/* The first writer of an accumulator starts it anew in the first micro-batch, the
 * others add, all in backward, and nothing reads it there. */
static void check_write(Verify *v, uint32_t i, const State *st, bool backward, Accumulate acc, Gradient *g)
{
    if (!backward || acc != (g->writers == 0 ? ACC_AFTER_FIRST : ACC_YES))
        broken(v, "gradient of '%s': instruction %u writes it out of turn", st->path, i);
    if (g->summed != NOTHING)
        broken(v, "gradient of '%s': instruction %u adds to it after instruction %u has summed it over ranks", st->path, i, g->summed);
    g->writers++;
}

/* `acc`: of a write. */
static void check_access(Verify *v, const GradientPlaces *g, uint32_t i, TensorId t, bool writes, Accumulate acc, Gradient *of)
{
    const Program *p = v->p;
    if (!has_tensor(t) || p->buffer[buffer_of(p, t).i].cls != CLASS_gradients)
        return;
    bool backward = proc_has(proc_find(p, PROC_backward), i);
    if (!writes && !backward)
        return;
    const Tensor *x = &p->tensor[t.i];
    for (uint32_t k = gradients_first(g, x); k < g->n; k = gradients_next(g, x, k)) {
        uint32_t s = g->place[k].state;
        if (writes)
            check_write(v, i, &p->state[s], backward, acc, &of[s]);
        else
            broken(v, "gradient of '%s' is read by instruction %u before it is complete", p->state[s].path, i);
    }
}

/* A sum over ranks, in place: which ranks, and that there is one, is seen elsewhere
 * (verify_update.c, verify_weights.c).  What it sums is complete in the last micro-batch. */
static void check_sum(Verify *v, const GradientPlaces *g, uint32_t i, Gradient *of)
{
    const Program *p = v->p;
    const Instr *in = &p->instr[i];
    const Tensor *x = &p->tensor[in->arg[0].i];
    if (proc_has(proc_find(p, PROC_backward), i) && in->when != WHEN_LAST && p->microbatches > 1)
        broken(v, "instruction %u sums '%s' over ranks in each of %lld micro-batches, expected in the last alone", i, in->path, (long long)p->microbatches);
    for (uint32_t k = gradients_first(g, x); k < g->n; k = gradients_next(g, x, k))
        of[g->place[k].state].summed = i;
}

static void check_gradients(Verify *v)
{
    const Program *p = v->p;
    Arena *scratch = arena_new("scratch");
    Gradient *of = NEWN(scratch, Gradient, p->nstate + 1);
    GradientPlaces g = gradient_places(p, scratch);
    for (uint32_t s = 0; s < p->nstate; s++)
        of[s].summed = NOTHING;
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const Instr *in = &p->instr[i];
        if (sums_gradients(p, i)) {
            check_sum(v, &g, i, of);
            continue;
        }
        for (int a = 0; a < in->narg; a++)
            check_access(v, &g, i, in->arg[a], false, ACC_NO, of);
        for (int k = 0; k < in->nout; k++)
            check_access(v, &g, i, in->out[k], true, accumulation(in, k), of);
    }
    for (uint32_t s = 0; s < p->nstate; s++)
        if (has_tensor(p->state[s].gradient) && of[s].writers == 0)
            broken(v, "gradient of '%s' is never written", p->state[s].path);
    arena_free(scratch);
}

/* ---- the step ---- */

/* A procedure of every micro-batch is called once; one pass, as there may be many. */
static void check_calls(Verify *v, ProcKind kind, Arena *scratch)
{
    const Program *p = v->p;
    uint32_t *calls = NEWN(scratch, uint32_t, p->microbatches);
    for (uint32_t i = 0; i < p->ncall; i++)
        if (p->proc[p->call[i].proc].kind == kind && p->call[i].micro < p->microbatches)
            calls[p->call[i].micro]++;
    for (int64_t m = 0; m < p->microbatches; m++)
        if (calls[m] != 1)
            broken(v, "procedure %d of micro-batch %lld is not called once", (int)kind, (long long)m);
}

/* What the last micro-batch alone does is done when all others are through. */
static void check_last(Verify *v)
{
    const Program *p = v->p;
    const Call *last = NULL;
    for (uint32_t i = 0; i < p->ncall; i++)
        if (p->proc[p->call[i].proc].kind == PROC_backward)
            last = &p->call[i];
    if (last && last->micro + (int64_t)1 != p->microbatches)
        broken(v, "micro-batch %u of %lld is the last to go backward", last->micro, (long long)p->microbatches);
}

static void check_schedule(Verify *v)
{
    const Program *p = v->p;
    Arena *scratch = arena_new("scratch");
    for (int kind = PROC_begin; kind <= PROC_backward; kind++)
        if (p->ncall > 0 && kind != PROC_agree && proc_find(p, (ProcKind)kind))
            check_calls(v, (ProcKind)kind, scratch);
    arena_free(scratch);
    check_last(v);
    for (uint32_t i = 0; i + 1 < p->ncall; i++)
        if (p->proc[p->call[i].proc].kind == PROC_update)
            broken(v, "weights are updated before the end of the step");
}

int verify(const Program *p, FILE *err)
{
    Verify v = {.p = p, .err = err};
    check_procs(&v);
    check_places(&v);
    if (has_tensor(p->norm))                          /* accumulators are there once buckets are */
        check_gradients(&v);
    check_schedule(&v);
    return v.broken;
}
