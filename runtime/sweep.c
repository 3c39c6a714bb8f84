/* Sweep: forward passes over data, for the held-out loss and for models without one. */
#include <math.h>

#include "runtime/run.h"
#include "runtime/stop.h"

static uint32_t find_proc(const Program *p, ProcKind kind)
{
    uint32_t i = 0;
    while (i < p->nproc && p->proc[i].kind != kind)
        i++;
    return i;
}

/* The procedure that only goes forward. */
static uint32_t forward_proc(const Program *p)
{
    uint32_t i = find_proc(p, PROC_evaluate);
    return i < p->nproc ? i : find_proc(p, PROC_forward);
}

static int64_t micro_rows(const Program *p)
{
    return p->batch / p->microbatches;
}

/* ---- one window of micro-batches ---- */

/* Run one procedure over samples first..first+n of the stream, through the slot of
 * micro-batch 0 or, `apart`, each through its own. */
static Status sweep(Run *r, const Data *data, uint32_t proc, int64_t first, int64_t n, bool apart)
{
    int64_t rows = micro_rows(r->program);
    r->rank.step.samples = n;
    for (int64_t done = 0; done < n; done += rows) {
        int64_t here = n - done < rows ? n - done : rows, row = apart ? done : 0;
        TRY(data_fill(data, &r->rank, first + done, here, row, false));
        if (here < rows)
            data_pad(data, &r->rank, rows - here, row + here);
        r->rank.step.first = done == 0;
        TRY(rank_call(&r->rank, &(Call){.proc = proc, .micro = (uint32_t)(row / rows)}));
    }
    return OK;
}

/* After they were counted, over all ranks. */
static Status check_labels(Run *r, const Data *data, int64_t first, int64_t n)
{
    const char *input;
    TRY(rank_unlabelled(&r->rank, &input));
    if (!input)
        return OK;
    r->alike = true;
    if (*input && data == r->eval)
        fprintf(stderr, "error: step %lld: no valid label in all %lld samples of the held-out data: input '%s'\n",
                (long long)r->rank.step.step, (long long)n, input);
    else if (*input)
        fprintf(stderr, "error: no valid label in the %lld samples from sample %lld on: input '%s'\n", (long long)n, (long long)first, input);
    return ERR_REJECT;
}

/* A procedure that sums over ranks what micro-batches made, where there is one. */
static Status sum_over_ranks(Run *r, ProcKind kind)
{
    uint32_t proc = find_proc(r->program, kind);
    return proc < r->program->nproc ? rank_call(&r->rank, &(Call){.proc = proc}) : OK;
}

/* Labels are counted first, then all samples go forward. */
static Status forward(Run *r, const Data *data, int64_t first, int64_t n, bool apart)
{
    uint32_t begin = find_proc(r->program, PROC_begin);
    if (begin < r->program->nproc)
        TRY(sweep(r, data, begin, first, n, apart));
    TRY(sum_over_ranks(r, PROC_agree));
    TRY(check_labels(r, data, first, n));
    TRY(sweep(r, data, forward_proc(r->program), first, n, apart));
    return sum_over_ranks(r, PROC_total);
}

/* ---- evaluation: one accumulation window over the whole held-out set ---- */

Status run_plan_evaluation(Run *r)
{
    const Program *p = r->program;
    int64_t n = data_samples(r->eval), rows = micro_rows(p);
    r->eval_samples = n < 0 ? p->batch : p->full_only ? n - n % rows : n;
    if (r->eval_samples == 0) {
        fprintf(stderr, "error: the held-out data have %lld samples, fewer than the %lld of a micro-batch, and this model mixes the samples "
                "of one\n", (long long)n, (long long)rows);
        return ERR_REJECT;
    }
    if (n > r->eval_samples)
        run_note(r, "note: the held-out loss covers %lld of %lld samples: this model mixes the samples of a micro-batch of %lld",
                 (long long)r->eval_samples, (long long)n, (long long)rows);
    return OK;
}

Status run_evaluate(Run *r, int64_t step)
{
    const Program *p = r->program;
    r->rank.evaluates = true;
    Status s = forward(r, r->eval, 0, r->eval_samples, false);
    r->rank.evaluates = false;
    TRY(s);
    TRY(rank_settle(&r->rank));
    double loss = has_tensor(p->loss) ? rank_scalar(&r->rank, p->loss) : 0;
    TRY(losses_read(&r->rank, r->eval_part));
    LossParts parts = run_parts(r, r->eval_part);
    int64_t astray = !isfinite(loss);
    TRY(rank_agree(&r->rank, &astray, 1, REDUCE_MAX));
    if (!astray)
        return log_eval(&r->log, step, loss, &parts);
    OneLossText one;
    LossText text;
    r->alike = true;
    run_note(r, "error: step %lld: held-out loss %s%s over %lld samples: not a number: the weights went astray", (long long)step, loss_text(&one, loss),
             losses_text(&text, &parts), (long long)r->eval_samples);
    return ERR_REJECT;
}

/* ---- a model without a loss ---- */

/* When ranks agree on whether to stop.  They wait for each other then, which empties a
 * pipeline, so it is after as many batches as the slowest of them does in `between`; that
 * number they agree on, too. */
typedef struct Beat { int64_t last, next; double began; } Beat;   /* batches; seconds */
static const double between = 0.5;    /* seconds */

static Status agree(Run *r, int64_t done, Beat *b, bool *stop)
{
    if (done < b->next && done < r->steps)
        return OK;
    TRY(rank_settle(&r->rank));
    int64_t n = done - b->last;
    double seconds = (seconds_now() - b->began) / (double)n;
    int64_t said[] = {stop_asked(), exchange_slowest(&r->rank), 1 + (int64_t)(1e9 * seconds)};
    TRY(rank_agree(&r->rank, said, 3, REDUCE_MAX));
    exchange_pace(&r->rank, said[1]);
    *stop = said[0];
    int64_t next = (int64_t)(1e9 * between) / said[2];
    next = next < 1 ? 1 : next < 2 * n ? next : 2 * n;
    *b = (Beat){.last = done, .next = done + next, .began = seconds_now()};
    return OK;
}

static void say_what_was_done(const Run *r, int64_t done, double seconds)
{
    int64_t left = data_samples(r->train) - r->samples;
    char unused[40] = "";
    if (left > 0)
        snprintf(unused, sizeof unused, "; %lld samples not used", (long long)left);
    run_note(r, "forward: %lld samples in %lld batch%s, %.3g s%s", (long long)r->samples, (long long)done, done == 1 ? "" : "es", seconds, unused);
    if (done < r->steps)
        run_note(r, "stopped as asked after batch %lld of %lld%s", (long long)done, (long long)r->steps, run_left_undone(r, done));
}

static Status forward_batch(Run *r, int64_t step)
{
    int64_t batch = r->program->batch, left = data_samples(r->train) - r->samples, n = left >= 0 && left < batch ? left : batch;
    TRY(forward(r, r->train, r->samples, n, true));
    TRY(run_dump(r, step, r->samples, n));
    r->samples += n;
    return OK;
}

Status run_forward(Run *r)
{
    double start = seconds_now();
    Beat beat = {.next = 1, .began = start};
    int64_t done = 0;
    bool stop = false;
    TRY(run_dump(r, 0, 0, r->program->batch));
    while (done < r->steps && !stop) {
        TRY(forward_batch(r, ++done));
        TRY(agree(r, done, &beat, &stop));
    }
    say_what_was_done(r, done, seconds_now() - start);
    return OK;
}

/* Batches of a forward run: all of the data, the last one short unless the model
 * mixes its rows. */
static Status decide_batches(Run *r)
{
    int64_t n = data_samples(r->train), batch = r->program->batch;
    int64_t most = r->program->full_only ? n / batch : (n + batch - 1) / batch;
    r->steps = r->o->steps > 0 || n < 0 ? r->o->steps : most;
    if (n >= 0 && r->steps > most) {
        fprintf(stderr, "error: --steps %lld, but the data hold %lld batches of %lld\n", (long long)r->steps, (long long)most, (long long)batch);
        return ERR_USAGE;
    }
    return OK;
}

/* Steps after the end of the decay: they keep its last rate, unless it is none. */
static Status check_decay(const Run *r)
{
    const Optimizer *o = &r->optimizer;
    if (o->decay != DECAY_NONE && o->warmup >= o->steps)
        run_note(r, "note: the rate never decays: the optimizer's 'warmup' is %lld and its 'steps' %lld", (long long)o->warmup,
                 (long long)o->steps);
    if (o->decay == DECAY_NONE || o->warmup >= o->steps || r->steps <= o->steps)
        return OK;
    bool stands = o->min_lr == 0;
    run_note(r, "%s: the run has %lld steps, but the optimizer's decay ends at its 'steps', %lld: those after it have a rate of %g (min_lr)",
             stands ? "error" : "note", (long long)r->steps, (long long)o->steps, o->min_lr);
    if (!stands)
        return OK;
    run_note(r, "help: '--set steps=%lld' decays over the whole run", (long long)r->steps);
    return ERR_USAGE;
}

Status run_decide_steps(Run *r)
{
    int64_t n = r->train ? data_samples(r->train) : -1, batch = r->program->batch;
    bool trains = run_trains(r->program);
    if (n >= 0 && n < batch && (trains || r->program->full_only)) {
        fprintf(stderr, "error: the data have %lld samples, but a step takes a batch of %lld\n", (long long)n, (long long)batch);
        return ERR_REJECT;
    }
    if (n < 0 && r->train && r->o->steps == 0 && (!trains || r->optimizer.steps == 0)) {
        fprintf(stderr, "error: random data have no end: give --steps\n");
        return ERR_USAGE;
    }
    if (!trains)
        return decide_batches(r);
    if (!r->train && !run_updates(r->program))       /* held-out samples alone */
        return OK;
    r->steps = run_length(r);
    if (r->steps == 0) {
        r->steps = n / batch;
        run_note(r, "one epoch: %lld samples, %lld steps of %lld; %lld left over", (long long)n, (long long)r->steps,
                 (long long)batch, (long long)(n % batch));
    }
    if (r->optimizer.steps == 0)
        r->optimizer.steps = r->steps;
    return check_decay(r);
}
