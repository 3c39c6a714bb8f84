/* Prepare: options, data and files of a run, before anything is mapped or written. */
#include <assert.h>
#include <errno.h>
#include <libgen.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "runtime/executor.h"
#include "runtime/run.h"

void run_note(const Run *r, const char *fmt, ...)
{
    va_list ap;
    if (!r->speaks)
        return;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

/* ---- options ---- */

static Status no_effect(const char *option, const char *why)
{
    fprintf(stderr, "error: %s has no effect: %s\n", option, why);
    return ERR_USAGE;
}

/* Steps without an optimizer change nothing: they are worth what is told of them. */
static Status check_without_optimizer(const RunOptions *o)
{
    static const char why[] = "the model has no optimizer, so prun trains nothing";
    if (o->save)
        return no_effect("--save", why);
    if (o->nset)
        return no_effect("--set", why);
    if (o->neval || o->ndump || o->log)
        return OK;
    no_effect("training", "the model has no optimizer; give it one, such as 'optimizer adamw { lr = 1e-3 }'");
    fprintf(stderr, "help: '--eval SPEC' tells the held-out loss of the weights, '--dump grads@1=FILE' has the gradients of a batch\n");
    return ERR_USAGE;
}

/* A device's graphs are of kernels that are captured once and launched many times. */
static Status check_graphs(const Program *p, const RunOptions *o)
{
    const Executor *e = executor_or_cpu(o->executor);
    if (!o->graphs)
        return OK;
    if (!run_trains(p))
        return no_effect("--graphs", "it is for the steps of a training, and the model minimizes nothing");
    if (o->trace)
        return no_effect("--graphs", "--trace times each instruction, so all of them are issued one by one");
    if (e->graphs)
        return OK;
    fprintf(stderr, "error: --graphs: device '%s' has none; '--device cuda' does\n", e->name);
    return ERR_USAGE;
}

static Status check_options(const Program *p, const RunOptions *o)
{
    static const char why[] = "the model minimizes nothing, so prun only runs it forward";
    if (p->precision.compute == DT_f16) {
        fprintf(stderr, "error: the plan computes in f16, which needs its losses scaled, and prun cannot do that yet: plan with '-D dtype=bf16'\n");
        return ERR_REJECT;
    }
    TRY(check_graphs(p, o));
    assert((!has_tensor(p->loss) || has_tensor(p->norm)) && "models that train nothing are refused where they are read");
    if (run_trains(p))
        return run_updates(p) ? OK : check_without_optimizer(o);
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

int64_t run_length(const Run *r)
{
    return r->o->steps > 0 ? r->o->steps : r->optimizer.steps;
}

/* ---- data and files ---- */

/* A resumed run goes on with its own seed. */
static Status find_resume(Run *r)
{
    const RunOptions *o = r->o;
    Progress *at = &r->from;
    r->seed = o->seed;
    if (!o->resume)
        return OK;
    TRY(checkpoint_find(r->arena, o->resume, at, &r->folder));
    if (r->speaks && r->folder != o->resume)
        checkpoint_ignored(r->arena, o->resume, at->step);
    if (!run_updates(r->program)) {            /* the weights alone are wanted */
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

/* Whether a dump is of what a batch makes, or of its samples. */
static bool dumps_a_batch(const Run *r)
{
    uint32_t i = 0;
    while (i < r->o->ndump && r->o->dump[i].step <= r->from.step && strcmp(r->o->dump[i].kind, "samples") != 0)
        i++;
    return i < r->o->ndump;
}

/* A resumed run whose steps are done reads no sample but the held-out ones, nor does one
 * without an optimizer that is asked for nothing else. */
static bool reads_samples(const Run *r)
{
    int64_t steps = run_length(r);
    bool ended = run_updates(r->program) ? r->folder && steps > 0 && steps <= r->from.step : r->o->neval > 0 && steps == 0;
    return !run_trains(r->program) || !ended || dumps_a_batch(r);
}

/* A model without inputs needs no word on where they come from. */
static Status open_train(Run *r)
{
    static const char *const none[] = {"random"};
    const RunOptions *o = r->o;
    bool given = o->ndata > 0;
    if (given || r->program->ninput == 0)
        return data_open(r->arena, r->program, given ? o->data : none, given ? o->ndata : 1, r->seed, &r->train);
    if (!reads_samples(r))
        return OK;
    fprintf(stderr, "error: no data: name a file with --data, or '--data random'\n");
    return ERR_USAGE;
}

static Status open_data(Run *r)
{
    const RunOptions *o = r->o;
    TRY(open_train(r));
    if (o->neval == 0)
        return OK;
    TRY(data_open(r->arena, r->program, o->eval, o->neval, r->seed, &r->eval));
    return run_plan_evaluation(r);
}

/* One rank holds the lock for all; what it locks may have been another run's until then. */
static Status lock_folder(Run *r)
{
    const RunOptions *o = r->o;
    if (!o->save)
        return OK;
    if (r->program->rank == 0)
        TRY(checkpoint_lock(r->arena, o->save, &r->lock));
    TRY(checkpoint_claim(r->arena, o->save, o->resume));
    if (r->speaks && r->folder && r->folder == o->resume)
        checkpoint_left_behind(r->arena, o->save, r->from.step);
    return OK;
}

/* Asked before ranks start: the one that writes the log would be missed by the others.  Its folder may be that of
 * checkpoints, which `is_made` then. */
static Status check_log(const Run *r, bool is_made)
{
    const char *path = r->o->log;
    struct stat st;
    if (!path || strcmp(path, "-") == 0)
        return OK;
    bool there = stat(path, &st) == 0;
    int reason = there && S_ISDIR(st.st_mode) ? EISDIR : access(there ? path : dirname(arena_strdup(r->arena, path)), W_OK) != 0 ? errno : 0;
    if (reason == 0 || (reason == ENOENT && r->o->save && !is_made))
        return OK;
    fprintf(stderr, "error: cannot write the log '%s': %s\n", path, strerror(reason));
    return ERR_IO;
}

Status run_prepare(Run *r)
{
    const RunOptions *o = r->o;
    TRY(check_options(r->program, o));
    TRY(apply_settings(r->program, o, &r->optimizer));
    TRY(check_log(r, false));
    if (o->trace)
        TRY(folder_writable(r->arena, o->trace));
    if (r->speaks)                                   /* where there are many ranks: before they start */
        TRY(run_check_files(r));
    if (o->save)
        TRY(checkpoint_claim(r->arena, o->save, o->resume));
    TRY(find_resume(r));
    TRY(open_data(r));
    TRY(run_decide_steps(r));
    TRY(lock_folder(r));                             /* the first thing that is written, once all is accepted */
    return check_log(r, true);
}

void run_close(Run *r)
{
    data_close(r->train);
    data_close(r->eval);
    if (r->lock.fd >= 0)
        checkpoint_unlock(r->arena, r->o->save, &r->lock);
}
