#ifndef TESTS_UNIT_EXECUTE_H
#define TESTS_UNIT_EXECUTE_H
/* Run a Program with the plain kernels in one thread, on a map that starts as
 * zeros, and spoil every buffer as soon as its lifetime ends: a wrong lifetime or
 * offset shows up as NaN in the loss. */
#include "base/text.h"
#include "kernels/kernel.h"
#include "tests/unit/lowering.h"

typedef struct Run {
    const Program *p;
    Arena  *a;
    char   *map;
    Team   *team;
    KStep   step;
    uint32_t micro;
} Run;

static inline char *slot(const Run *r, BufferId b)
{
    const Buffer *x = &r->p->buffer[b.i];
    return r->map + x->offset + (x->by_micro ? r->micro : 0) * x->bytes;
}

static inline void *data(const Run *r, TensorId t)
{
    return has_tensor(t) ? slot(r, r->p->tensor[t.i].buffer) + r->p->tensor[t.i].at : NULL;
}

/* A number in (-1, 1) from a path and an index. */
static inline double noise(const char *path, int64_t i)
{
    Philox x = philox4(7, fnv1a(path), (uint64_t)(i / 4), 0);
    return (double)x.word[i % 4] / 2147483648.0 - 1;
}

static inline void fill_weights(Run *r)
{
    for (uint32_t s = 0; s < r->p->nstate; s++) {
        const State *st = &r->p->state[s];
        double *w = data(r, st->weight);
        for (int64_t i = 0; i < tensor_elements(&r->p->tensor[st->weight.i]); i++)
            w[i] = 0.3 * noise(st->path, i) + (strstr(st->path, "ln") || strstr(st->path, "norm") ? 1 : 0);
    }
}

/* Integers below `classes`, or f64; sample i is the same in any number of micro-batches. */
static inline void fill_inputs(Run *r, int64_t classes)
{
    for (uint32_t k = 0; k < r->p->ninput; k++) {
        const Input *in = &r->p->input[k];
        if (!has_tensor(in->tensor))
            continue;
        const Tensor *t = &r->p->tensor[in->tensor.i];
        int64_t n = tensor_elements(t);
        for (r->micro = 0; r->micro < r->p->buffer[t->buffer.i].slots; r->micro++)
            for (int64_t i = 0; i < n; i++) {
                double x = noise(in->name, r->micro * n + i);
                if (t->dtype == DT_i32)
                    ((int32_t *)data(r, in->tensor))[i] = (int32_t)((x + 1) / 2 * (double)classes);
                else
                    ((double *)data(r, in->tensor))[i] = x;
            }
    }
    r->micro = 0;
}

static inline Run run_new(Build *b, const Program *p, int64_t classes)
{
    Run r = {.p = p, .a = b->a, .team = team_new(1)};
    r.map = arena_alloc(b->a, (size_t)p->map_bytes[0]);
    r.step = (KStep){.seed = 3, .samples = p->batch, .lr = 1e-3, .correction1 = 0.1, .correction2 = 0.001, .optimizer = &p->optimizer};
    fill_weights(&r);
    fill_inputs(&r, classes);
    return r;
}

static inline void spoil(Run *r, uint32_t i)
{
    for (uint32_t b = 0; b < r->p->nbuffer; b++)
        if (r->p->buffer[b].last == (int32_t)i)
            memset(r->map + r->p->buffer[b].offset, 0xFF, (size_t)(r->p->buffer[b].bytes * r->p->buffer[b].slots));
}

static inline void run_instr(Run *r, uint32_t i)
{
    const Instr *in = &r->p->instr[i];
    KCall c = {.in = in, .work = data(r, in->workspace), .step = &r->step, .team = r->team};
    for (int a = 0; a < in->narg; a++)
        if (has_tensor(in->arg[a])) {
            c.argt[a] = &r->p->tensor[in->arg[a].i];
            c.arg[a] = data(r, in->arg[a]);
        }
    for (int k = 0; k < in->nout; k++)
        if (has_tensor(in->out[k])) {
            c.outt[k] = &r->p->tensor[in->out[k].i];
            c.out[k] = data(r, in->out[k]);
        }
    Kernel kernel = kernel_ref(in->op);
    assert_non_null(kernel);
    kernel(&c);
    spoil(r, i);
}

static inline void run_proc(Run *r, ProcKind kind, uint32_t micro)
{
    const Proc *pr = proc(r->p, kind);
    r->micro = micro;
    r->step.micro = micro;
    r->step.first = micro == 0;
    for (uint32_t i = pr ? pr->first : 0; pr && i < pr->end; i++)
        run_instr(r, i);
    r->micro = 0;
}

/* The scheduled calls but the update. */
static inline void run_gradients(Run *r)
{
    for (uint32_t i = 0; i < r->p->ncall; i++)
        if (r->p->proc[r->p->call[i].proc].kind != PROC_update)
            run_proc(r, r->p->proc[r->p->call[i].proc].kind, r->p->call[i].micro);
}

static inline double loss_of(const Run *r)
{
    return *(const double *)data(r, r->p->loss);
}

static inline double evaluate(Run *r)
{
    for (uint32_t m = 0; m < (uint32_t)r->p->microbatches; m++)
        run_proc(r, PROC_begin, m);
    for (uint32_t m = 0; m < (uint32_t)r->p->microbatches; m++)
        run_proc(r, PROC_evaluate, m);
    return loss_of(r);
}

static inline void run_free(Run *r)
{
    team_free(r->team);
}

#endif
