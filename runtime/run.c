/* Run: what prun does with a program: data in, steps, evaluation, checkpoints. */
#include <assert.h>
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "runtime/run.h"

/* Set by SIGTERM and SIGINT: finish the step, save, leave with status 0. */
static volatile sig_atomic_t stop_wanted;

static void want_stop(int signal)
{
    (void)signal;
    stop_wanted = 1;
}

static void catch_signals(void)
{
    struct sigaction act = {.sa_handler = want_stop, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
    signal(SIGXFSZ, SIG_IGN);                        /* a file too large, a pipe nobody reads: */
    signal(SIGPIPE, SIG_IGN);                        /* the write fails, and says so */
}

/* A test that watches the run preloads a library with this function. */
static void (*find_mark(void))(int64_t)
{
    void *symbol = dlsym(RTLD_DEFAULT, "run_step_mark");
    void (*mark)(int64_t);
    memcpy(&mark, &symbol, sizeof mark);
    return mark;
}

/* ---- saving and dumping ---- */

/* Room for the names, headers and lists of one save. */
static void reset_scratch(Run *r)
{
    enum { BASE = 64 << 10, PER_STATE = 4 << 10 };
    arena_reset(r->scratch, BASE + (size_t)r->program->nstate * PER_STATE);
}

static Status save(Run *r)
{
    Progress at = {.step = r->rank.step.step, .samples = r->samples, .seed = r->seed, .model = r->program->model,
                   .data = r->train};
    Status s = checkpoint_save(r->scratch, &r->rank, r->o->save, (int)r->o->keep, &at);
    reset_scratch(r);
    return s;
}

Status run_dump(Run *r, int64_t step, int64_t first, int64_t rows)
{
    if (r->o->ndump == 0)
        return OK;
    Status s = dump_write(r->scratch, &r->rank, r->train, r->o->dump, r->o->ndump, step, first, rows);
    reset_scratch(r);
    return s;
}

/* ---- training ---- */

static Status not_finite(const Run *r, double loss, double norm)
{
    fprintf(stderr, "error: step %lld: loss %g, gradient norm %g: not a number to go on with; the step is not saved%s\n",
            (long long)r->rank.step.step, loss, norm, r->o->save ? ", and the last checkpoint stands" : "");
    return ERR_REJECT;
}

/* Models with a label a sample have no tokens. */
static const char *unit_of(const Program *p)
{
    return p->tokens == p->batch ? "samples" : "tokens";
}

static Status train_step(Run *r)
{
    const Program *p = r->program;
    double start = seconds_now();
    TRY(data_fill(r->train, &r->rank, r->samples, p->batch, 0, true));
    TRY(rank_train(&r->rank));
    double seconds = seconds_now() - start;
    double loss = rank_scalar(&r->rank, p->loss), norm = sqrt(rank_scalar(&r->rank, p->norm));
    if (!isfinite(loss) || !isfinite(norm))
        return not_finite(r, loss, norm);
    TRY(run_dump(r, r->rank.step.step, r->samples, p->batch));
    r->samples += p->batch;
    r->trained++;
    r->seconds += seconds;
    r->loss = loss;
    StepReport report = {.step = r->rank.step.step, .unit = unit_of(p), .loss = loss, .norm = norm, .lr = r->rank.step.lr, .seconds = seconds,
                         .tokens = p->tokens, .mfu = p->peak > 0 ? p->model_flops / (seconds * p->peak) : 0};
    return log_step(&r->log, &report);
}

static bool due(int64_t step, int64_t every, bool last)
{
    return last || (every > 0 && step % every == 0);
}

static void mark(const Run *r)
{
    if (r->mark)
        r->mark(r->rank.step.step);
}

/* The line a run without a terminal and without a log still ends with. */
static void say_what_was_done(Run *r)
{
    char text[160];
    if (r->trained == 0)
        return;
    double rate = (double)(r->trained * r->program->tokens) / r->seconds;
    snprintf(text, sizeof text, "trained: step %lld of %lld, loss %.4f, %.*f %s/s", (long long)r->rank.step.step, (long long)r->steps, r->loss,
             rate < 10 ? 2 : 0, rate, unit_of(r->program));
    log_note(&r->log, text);
}

static Status train(Run *r)
{
    if (r->rank.step.step >= r->steps)
        fprintf(stderr, "note: nothing to do: %lld steps are done, and the run has %lld\n", (long long)r->rank.step.step, (long long)r->steps);
    TRY(run_dump(r, r->rank.step.step, r->samples, r->program->batch));
    bool stop = false;
    while (r->rank.step.step < r->steps && !stop) {
        mark(r);
        TRY(train_step(r));
        int64_t step = r->rank.step.step;
        stop = stop_wanted;
        if (r->eval && due(step, r->o->eval_every, step == r->steps))
            TRY(run_evaluate(r, step));
        if (r->o->save && due(step, r->o->save_every, stop || step == r->steps))
            TRY(save(r));
    }
    mark(r);
    say_what_was_done(r);
    if (stop)
        log_note(&r->log, r->o->save ? "stopped as asked; saved" : "stopped as asked; nothing saved, as there is no --save");
    return OK;
}

/* ---- start ---- */

static Status no_effect(const char *option, const char *why)
{
    fprintf(stderr, "error: %s has no effect: %s\n", option, why);
    return ERR_USAGE;
}

static Status check_options(const Program *p, const RunOptions *o)
{
    static const char why[] = "the model minimizes nothing, so prun only runs it forward";
    if (has_tensor(p->loss) && p->optimizer.kind == OPTIMIZER_NONE)
        return no_effect("training", "the model has no optimizer; give it one, such as 'optimizer adamw { lr = 1e-3 }'");
    assert((!has_tensor(p->loss) || has_tensor(p->norm)) && "models that train nothing are refused where they are read");
    if (has_tensor(p->loss))
        return OK;
    if (o->neval)
        return no_effect("--eval", why);
    if (o->save)
        return no_effect("--save", why);
    if (o->nset)
        return no_effect("--set", why);
    return o->log ? no_effect("--log", why) : OK;
}

static Status apply_settings(const Program *p, const RunOptions *o, Optimizer *out)
{
    *out = p->optimizer;
    TRY(settings_apply(out, o->set, o->nset, o->steps > 0));
    if (out->momentum == 0 || p->optimizer.momentum != 0)
        return OK;
    fprintf(stderr, "error: --set momentum=%g: the plan has no memory for it; give the model a momentum and plan again\n", out->momentum);
    return ERR_REJECT;
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
    if (!has_tensor(r->program->loss)) {             /* the weights alone are wanted */
        at->step = at->samples = 0;
        return OK;
    }
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
    TRY(checkpoint_load(r->arena, &r->rank, folder, r->train));
    r->rank.step.step = at->step;
    r->samples = at->samples;
    fprintf(stderr, has_tensor(r->program->loss) ? "resumed from '%s' after step %lld\n" : "weights from '%s'\n", folder, (long long)at->step);
    return OK;
}

static Status open_data(Run *r)
{
    const RunOptions *o = r->o;
    TRY(data_open(r->arena, r->program, o->data, o->ndata, r->seed, &r->train));
    if (o->neval == 0)
        return OK;
    TRY(data_open(r->arena, r->program, o->eval, o->neval, r->seed, &r->eval));
    return run_plan_evaluation(r);
}

static Status start(Run *r)
{
    const RunOptions *o = r->o;
    const Program *p = r->program;
    Optimizer optimizer;
    Progress at = {0};
    const char *folder;
    TRY(check_options(p, o));
    TRY(apply_settings(p, o, &optimizer));
    TRY(run_check_files(r));
    if (o->save) {
        TRY(checkpoint_lock(r->arena, o->save, &r->lock));
        TRY(checkpoint_claim(r->arena, o->save, o->resume));
    }
    TRY(find_resume(r, &at, &folder));
    TRY(open_data(r));
    memory_settle();
    TRY(rank_open(&r->rank, r->arena, p, o->isa));
    r->rank.optimizer = optimizer;
    TRY(run_decide_steps(r));
    TRY(dump_prepare(r->arena, &r->rank, o->dump, o->ndump, at.step, r->steps));
    rank_init(&r->rank, r->seed);
    r->rank.step.step = 0;
    TRY(load_resume(r, &at, folder));
    reset_scratch(r);
    return log_open(r->arena, &r->log, o->log, o->resume != NULL, at.step, r->steps);
}

Status run(Arena *a, const Program *p, const RunOptions *o)
{
    Run r = {.arena = a, .scratch = arena_new("save"), .program = p, .o = o, .lock = -1, .mark = find_mark()};
    catch_signals();
    Status s = start(&r);
    if (s == OK)
        s = has_tensor(p->loss) ? train(&r) : run_forward(&r);
    Status closed = log_close(&r.log);
    if (s == OK)
        s = closed;
    if (s == OK)
        memory_report(&r.rank);
    data_close(r.train);
    data_close(r.eval);
    rank_close(&r.rank);
    arena_free(r.scratch);
    if (r.lock >= 0)
        close(r.lock);
    return s;
}
