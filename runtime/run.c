/* Run: what prun does with a program: data in, steps, evaluation, checkpoints. */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime.h"

/* Set by SIGTERM and SIGINT: finish the step, save, leave with status 0. */
static volatile sig_atomic_t stop_wanted;

static void want_stop(int signal)
{
    (void)signal;
    stop_wanted = 1;
}

typedef struct Run {
    Arena            *arena;
    const Program    *program;
    const RunOptions *o;
    Rank              rank;
    Data             *train, *eval;   /* NULL: none */
    Log               log;
    int64_t           steps;          /* optimizer steps in all */
    int64_t           samples;        /* of the training stream consumed */
    uint64_t          seed;
    int               lock;           /* of the save folder; -1: none */
} Run;

static uint32_t find_proc(const Program *p, ProcKind kind)
{
    uint32_t i = 0;
    while (i < p->nproc && p->proc[i].kind != kind)
        i++;
    return i;
}

/* ---- evaluation: one accumulation window over the whole held-out set ---- */

/* A mean over batch needs whole micro-batches; label counts do not. */
static bool counts_rows(const Program *p)
{
    const Proc *e = &p->proc[find_proc(p, PROC_evaluate)];
    for (uint32_t i = e->first; i < e->end; i++)
        if (p->instr[i].op == OP_reduce && instr_attr(&p->instr[i], "mean")->i)
            return false;
    return true;
}

/* Run one procedure over every micro-batch of the set. */
static void sweep(Run *r, const Data *data, uint32_t proc, int64_t samples)
{
    const Program *p = r->program;
    int64_t rows = p->batch / p->microbatches;
    r->rank.step.samples = samples;
    for (int64_t first = 0; first < samples; first += rows) {
        int64_t n = samples - first < rows ? samples - first : rows;
        data_fill(data, &r->rank, first, n, 0, false);
        if (n < rows)
            data_pad(data, &r->rank, rows - n, n);
        r->rank.step.first = first == 0;
        rank_call(&r->rank, &(Call){.proc = proc});
    }
}

static Status evaluate(Run *r, int64_t step)
{
    const Program *p = r->program;
    int64_t rows = p->batch / p->microbatches, samples = data_samples(r->eval);
    if (samples < 0)
        samples = p->batch;
    if (!counts_rows(p))
        samples -= samples % rows;
    if (find_proc(p, PROC_begin) < p->nproc)
        sweep(r, r->eval, find_proc(p, PROC_begin), samples);
    sweep(r, r->eval, find_proc(p, PROC_evaluate), samples);
    return log_eval(&r->log, step, rank_scalar(&r->rank, p->loss));
}

/* ---- training ---- */

static Status save(Run *r)
{
    Progress at = {.step = r->rank.step.step, .samples = r->samples, .seed = r->seed, .model = r->program->model};
    return checkpoint_save(&r->rank, r->o->save, (int)r->o->keep, &at);
}

static Status not_finite(const Run *r, double loss, double norm)
{
    fprintf(stderr, "error: step %lld: loss %g, gradient norm %g: not a number to go on with; the step changed nothing%s\n",
            (long long)r->rank.step.step, loss, norm, r->o->save ? ", and the last checkpoint stands" : "");
    return ERR_REJECT;
}

static Status train_step(Run *r)
{
    const Program *p = r->program;
    double start = seconds_now();
    data_fill(r->train, &r->rank, r->samples, p->batch, 0, true);
    rank_train(&r->rank);
    double seconds = seconds_now() - start;
    double loss = rank_scalar(&r->rank, p->loss), norm = sqrt(rank_scalar(&r->rank, p->norm));
    if (!isfinite(loss) || !isfinite(norm))
        return not_finite(r, loss, norm);
    TRY(dump_write(r->arena, &r->rank, r->train, r->o->dump, r->o->ndump, r->samples));
    r->samples += p->batch;
    StepReport report = {.step = r->rank.step.step, .loss = loss, .norm = norm, .lr = r->rank.step.lr, .seconds = seconds,
                         .tokens = p->tokens, .mfu = p->peak > 0 ? p->model_flops / (seconds * p->peak) : 0};
    return log_step(&r->log, &report);
}

static bool due(int64_t step, int64_t every, int64_t last)
{
    return step == last || (every > 0 && step % every == 0);
}

static Status train(Run *r)
{
    TRY(dump_write(r->arena, &r->rank, r->train, r->o->dump, r->o->ndump, r->samples));
    while (r->rank.step.step < r->steps) {
        TRY(train_step(r));
        int64_t step = r->rank.step.step, last = stop_wanted ? step : r->steps;
        if (r->eval && due(step, r->o->eval_every, r->steps))
            TRY(evaluate(r, step));
        if (r->o->save && due(step, r->o->save_every, last))
            TRY(save(r));
        if (stop_wanted) {
            fprintf(stderr, "stopped after step %lld as asked%s\n", (long long)step, r->o->save ? "; saved" : "");
            break;
        }
    }
    return OK;
}

/* ---- start ---- */

/* Steps in all: --steps, else the optimizer's, else one epoch. */
static Status decide_steps(Run *r)
{
    int64_t n = data_samples(r->train), batch = r->program->batch;
    r->steps = r->o->steps > 0 ? r->o->steps : r->rank.optimizer.steps;
    if (r->steps == 0 && n < 0) {
        fprintf(stderr, "error: random data have no end: give --steps\n");
        return ERR_USAGE;
    }
    if (r->steps == 0) {
        r->steps = n / batch;
        fprintf(stderr, "one epoch: %lld samples, %lld steps of %lld; %lld left over\n", (long long)n, (long long)r->steps,
                (long long)batch, (long long)(n % batch));
    }
    if (r->rank.optimizer.steps == 0)
        r->rank.optimizer.steps = r->steps;
    return OK;
}

/* A resumed run goes on with its own seed. */
static Status find_resume(Run *r, Progress *at, const char **folder)
{
    const RunOptions *o = r->o;
    r->seed = o->seed;
    *folder = NULL;
    if (!o->resume)
        return OK;
    TRY(checkpoint_find(r->arena, o->resume, at, folder));
    if (o->seed_given && o->seed != at->seed) {
        fprintf(stderr, "error: --seed %llu, but the run to resume has seed %llu\n", (unsigned long long)o->seed,
                (unsigned long long)at->seed);
        return ERR_REJECT;
    }
    r->seed = at->seed;
    return OK;
}

static Status load_resume(Run *r, const Progress *at, const char *folder)
{
    if (!folder)
        return OK;
    TRY(checkpoint_load(r->arena, &r->rank, folder));
    r->rank.step.step = at->step;
    r->samples = at->samples;
    fprintf(stderr, "resumed from '%s' after step %lld\n", folder, (long long)at->step);
    return OK;
}

static Status start(Run *r)
{
    const RunOptions *o = r->o;
    const Program *p = r->program;
    Optimizer optimizer = p->optimizer;
    Progress at;
    const char *folder;
    TRY(settings_apply(&optimizer, o->set, o->nset));
    TRY(find_resume(r, &at, &folder));
    if (o->save)
        TRY(checkpoint_lock(r->arena, o->save, &r->lock));
    TRY(data_open(r->arena, p, o->data, o->ndata, r->seed, &r->train));
    if (o->neval)
        TRY(data_open(r->arena, p, o->eval, o->neval, r->seed, &r->eval));
    TRY(rank_open(&r->rank, r->arena, p, o->isa));
    r->rank.optimizer = optimizer;
    TRY(decide_steps(r));
    TRY(dump_prepare(r->arena, &r->rank, o->dump, o->ndump));
    rank_init(&r->rank, r->seed);
    r->rank.step.step = 0;
    TRY(load_resume(r, &at, folder));
    return log_open(&r->log, o->log, r->steps);
}

Status run(Arena *a, const Program *p, const RunOptions *o)
{
    Run r = {.arena = a, .program = p, .o = o, .lock = -1};
    struct sigaction act = {.sa_handler = want_stop};
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
    Status s = start(&r);
    if (s == OK)
        s = has_tensor(p->loss) && o->ndata ? train(&r) : OK;
    Status closed = log_close(&r.log);
    if (s == OK)
        s = closed;
    data_close(r.train);
    data_close(r.eval);
    rank_close(&r.rank);
    if (r.lock >= 0)
        close(r.lock);
    return s;
}
