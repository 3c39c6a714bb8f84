/* Run: what prun does with a program: data in, steps, evaluation, checkpoints. */
#include <assert.h>
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "runtime/executor.h"
#include "runtime/run.h"
#include "runtime/stop.h"

void run_hold_signals(void)
{
    stop_hold();
    signal(SIGXFSZ, SIG_IGN);                        /* a file too large, a pipe nobody reads: */
    signal(SIGPIPE, SIG_IGN);                        /* the write fails, and says so */
}

/* A library that generates code without looking whether it got the memory ends so (oneDNN
 * does), or a file that was cut off while it was read.  The default action follows. */
static void on_crash(int signal)
{
    static const char text[] =
        "error: prun crashed: a library found no memory (look at 'ulimit -v' and free memory), a file was cut off while it was read, or prun has a bug; "
        "checkpoints that were saved stand\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)signal, (void)written;
}

/* Sanitizers have handlers of their own. */
static void catch_crashes(void)
{
    static const int crash[] = {SIGSEGV, SIGBUS};
    for (size_t i = 0; i < sizeof crash / sizeof *crash; i++) {
        struct sigaction before, act = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};
        if (sigaction(crash[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(crash[i], &act, NULL);
    }
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
    enum { BASE = 128 << 10, PER_TENSOR = 2 << 10 };
    arena_reset(r->scratch, BASE + (size_t)(r->rank.weights.n + r->rank.moments.n) * PER_TENSOR);
}

static Status save(Run *r)
{
    Progress at = {.step = r->rank.step.step, .samples = r->samples, .seed = r->seed, .model = r->program->model,
                   .data = r->train};
    Status s = checkpoint_save(r->scratch, &r->rank, r->o->save, (int)r->o->keep, &at);
    r->alike = s != OK;
    reset_scratch(r);
    return s;
}

Status run_dump(Run *r, int64_t step, int64_t first, int64_t rows)
{
    if (r->o->ndump == 0)
        return OK;
    Status s = dump_write(r->scratch, &r->rank, r->train, r->dump, r->o->ndump, step, first, rows);
    r->alike = s != OK;
    reset_scratch(r);
    return s;
}

const char *run_left_undone(const Run *r, int64_t step)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->o->ndump; i++)
        n += r->dump[i].step > step;
    return n == 0 ? "" : arena_printf(r->arena, "; %u dump%s of later steps not made", n, n == 1 ? "" : "s");
}

/* ---- training ---- */

/* What all ranks go by after a step: whether one of them has a number that is none, or
 * was asked to stop. */
typedef struct Verdict { bool finite, stop; } Verdict;

static Status agree(Run *r, bool finite, Verdict *v)
{
    int64_t said[] = {!finite, stop_asked(), exchange_slowest(&r->rank)};
    TRY(rank_agree(&r->rank, said, 3, REDUCE_MAX));
    exchange_pace(&r->rank, said[2]);
    *v = (Verdict){.finite = !said[0], .stop = said[1]};
    return OK;
}

static Status not_finite(Run *r, double loss, double norm)
{
    const char *save = r->o->save;
    OneLossText one;
    LossText text;
    LossParts parts = run_parts(r, r->part);
    r->alike = true;
    run_note(r, "error: step %lld: loss %s%s, gradient norm %g: not a number to go on with%s%s", (long long)r->rank.step.step, loss_text(&one, loss),
             losses_text(&text, &parts), plain(norm),
             run_updates(r->program) ? "; the step is not saved" : "", !save ? "" : checkpoint_any(r->arena, save) ? ", and the last checkpoint stands" : ", and no checkpoint was saved yet");
    if (run_updates(r->program))
        run_note(r, "help: a smaller rate ('--set lr=%g'), a clipped gradient ('--set clip=1'), or a look at the data for what is out of range",
                 r->rank.step.lr > 0 ? r->rank.step.lr / 10 : r->optimizer.lr / 10);
    return ERR_REJECT;
}

/* Models with a label a sample have no tokens. */
static const char *unit_of(const Program *p)
{
    return p->tokens == p->batch ? "samples" : "tokens";
}

static Status report_step(Run *r, double loss, double norm, double seconds)
{
    const Program *p = r->program;
    r->samples += p->batch;
    r->trained++;
    r->seconds += seconds;
    r->loss = loss;
    StepReport report = {.step = r->rank.step.step, .unit = unit_of(p), .loss = loss, .norm = norm, .lr = r->rank.step.lr, .seconds = seconds,
                         .tokens = p->tokens, .parts = run_parts(r, r->part), .mfu = p->peak > 0 ? p->model_flops / (seconds * p->peak * p->nranks) : 0};
    return log_step(&r->log, &report);
}

enum { MEASURED_FIRST = 5 };

/* The first few, which a short run has as well, then one of so many: a device's clocks take time of their own. */
static bool is_measured(const Run *r)
{
    return r->tally && (r->trained < MEASURED_FIRST || r->trained % r->rank.executor->measures_every == 0);
}

/* A step that began at `start`; evaluation between steps is not tallied. */
static Status take_step(Run *r, double start)
{
    if (!is_measured(r))
        return rank_train(&r->rank);
    tally_begin(r->tally);
    r->rank.tally = r->tally;
    Status s = rank_train(&r->rank);
    r->rank.tally = NULL;
    tally_end(r->tally, seconds_now() - start);
    return s;
}

static Status train_step(Run *r, bool *stop)
{
    const Program *p = r->program;
    double start = seconds_now();
    TRY(data_fill(r->train, &r->rank, r->samples, p->batch, 0, true));
    Status s = take_step(r, start);
    r->alike = s == ERR_REJECT;                      /* labels are counted over all ranks */
    TRY(s);
    double seconds = seconds_now() - start;
    double loss = has_tensor(p->loss) ? rank_scalar(&r->rank, p->loss) : 0, norm = sqrt(rank_scalar(&r->rank, p->norm));
    TRY(losses_read(&r->rank, r->part));
    Verdict v;
    TRY(agree(r, isfinite(loss) && isfinite(norm), &v));
    if (!v.finite)
        return not_finite(r, loss, norm);
    TRY(run_dump(r, r->rank.step.step, r->samples, p->batch));
    *stop = v.stop;
    return report_step(r, loss, norm, seconds);
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
    char text[160 + sizeof(LossText)];
    OneLossText loss;
    LossText parts;
    LossParts of = run_parts(r, r->part);
    if (r->trained == 0)
        return;
    double rate = (double)(r->trained * r->program->tokens) / r->seconds;
    snprintf(text, sizeof text, "%s: step %lld of %lld, loss %s%s, %.*f %s/s", run_updates(r->program) ? "trained" : "computed",
             (long long)r->rank.step.step, (long long)r->steps, loss_text(&loss, r->loss), losses_text(&parts, &of), rate < 10 ? 2 : 0, rate, unit_of(r->program));
    log_note(&r->log, text);
}

/* Where the time went, in the words of one rank: a stage that waits says little of it, so it
 * is the one that computes most. */
static Status tell_times(const Run *r)
{
    const Program *p = r->program;
    if (!r->tally || r->trained == 0)
        return OK;
    int64_t busy = (int64_t)(1e9 * tally_busy(r->tally)), mine = r->tally->parts->tells ? (busy + 1) * p->nranks - p->rank : 0, most = mine;
    TRY(rank_agree(&r->rank, &most, 1, REDUCE_MAX));
    const char *times = mine == most ? tally_text(r->arena, r->tally, isatty(STDERR_FILENO)) : NULL;
    if (times)
        fprintf(stderr, "%s\n", times);
    return OK;
}

static Status train(Run *r)
{
    int64_t from = r->rank.step.step;
    bool stop = false, ended = from >= r->steps;
    if (ended && run_updates(r->program))
        run_note(r, "note: nothing to %s: %lld steps are done, and the run has %lld", r->eval ? "train" : "do", (long long)from, (long long)r->steps);
    TRY(run_dump(r, from, r->samples, r->program->batch));
    if (ended && r->eval)                            /* the weights as they are */
        TRY(run_evaluate(r, from));
    while (r->rank.step.step < r->steps && !stop) {
        mark(r);
        TRY(train_step(r, &stop));
        int64_t step = r->rank.step.step;
        if (r->eval && due(step, r->o->eval_every, step == r->steps))
            TRY(run_evaluate(r, step));
        if (r->o->save && due(step, r->o->save_every, stop || step == r->steps))
            TRY(save(r));
    }
    mark(r);
    say_what_was_done(r);
    if (stop)
        log_note(&r->log, arena_printf(r->arena, "stopped as asked; %s%s", r->o->save ? "saved" : "nothing saved, as there is no --save",
                                       run_left_undone(r, r->rank.step.step)));
    return tell_times(r);
}

/* ---- start ---- */

static Status load_resume(Run *r)
{
    if (!r->folder)
        return OK;
    Status s = checkpoint_load(r->arena, &r->rank, r->folder, r->train);
    r->alike = s != OK;
    TRY(s);
    r->rank.step.step = r->from.step;
    r->samples = r->from.samples;
    if (run_updates(r->program))
        run_note(r, "resumed from '%s' after step %lld", r->folder, (long long)r->from.step);
    else
        run_note(r, "weights from '%s'", r->folder);
    return OK;
}

static Status open_log(Run *r)
{
    const RunOptions *o = r->o;
    r->log.silent = !r->speaks;
    return r->speaks ? log_open(r->arena, &r->log, o->log, o->resume != NULL, r->from.step, r->steps) : OK;
}

/* The options are those of all ranks; what is found for them is each one's. */
static Status prepare_dumps(Run *r)
{
    const RunOptions *o = r->o;
    r->dump = NEWN(r->arena, DumpSpec, o->ndump + 1);
    for (uint32_t i = 0; i < o->ndump; i++)
        r->dump[i] = o->dump[i];
    Status s = dump_prepare(r->arena, &r->rank, r->dump, o->ndump, r->from.step, r->steps);
    r->alike = s != OK;
    return s;
}

/* Ranks of several machines write one checkpoint together. */
static Status check_save_folder(Run *r)
{
    int64_t of[2] = {0, 0};
    if (!r->o->save)
        return OK;
    checkpoint_mark(r->arena, r->o->save, of);
    int64_t seen[] = {of[0], -of[0], of[1], -of[1]};
    TRY(rank_agree(&r->rank, seen, 4, REDUCE_MAX));
    if (seen[0] == -seen[1] && seen[2] == -seen[3])
        return OK;
    r->alike = true;
    run_note(r, "error: --save '%s': it is not the same folder for all ranks; what ranks of several machines save must lie on a file system that they share",
             r->o->save);
    return ERR_REJECT;
}

/* Memory, start values, the log: what a rank has for itself. */
static Status open_rank(Run *r)
{
    const RunOptions *o = r->o;
    memory_settle();
    Status s = rank_join(&r->rank, r->arena, r->program, o->isa, r->peers);
    r->alike = r->rank.differs;
    TRY(s);
    r->rank.optimizer = r->optimizer;
    r->rank.trace = r->peers->trace;                 /* from here on: the first calls only warm up */
    r->rank.graphs = o->graphs;
    r->tally = r->peers->parts ? tally_new(r->arena, r->peers->parts) : NULL;
    r->speaks = rank_reports(&r->rank);
    r->part = NEWN(r->arena, double, r->program->nterm + 1);
    r->eval_part = NEWN(r->arena, double, r->program->nterm + 1);
    const char *forms = r->rank.executor->forms_note(r->arena, &r->rank);
    if (forms)
        run_note(r, "note: %s", forms);
    TRY(check_save_folder(r));
    TRY(prepare_dumps(r));
    TRY(r->rank.executor->ready(&r->rank));
    rank_init(&r->rank, r->seed);
    r->rank.step.step = 0;
    TRY(load_resume(r));
    reset_scratch(r);
    TRY(open_log(r));
    memory_fill_caches(r->rank.team);
    memory_leave_room();
    return OK;
}

/* What people may have forgotten to say. */
static void note_omissions(const Run *r)
{
    const RunOptions *o = r->o;
    bool updates = run_updates(r->program);
    if (run_trains(r->program) && !updates && r->steps > 0)
        run_note(r, "note: the model has no optimizer: a step computes the loss and gradients, and trains nothing");
    if (o->graphs && r->tally)
        run_note(r, "note: --graphs: the steps of which the time is told, the first %d and then one in %u, are issued without graphs", MEASURED_FIRST,
                 r->rank.executor->measures_every);
    if (!updates && !o->resume && r->program->nstate > 0)
        run_note(r, "note: the weights are random, from the seed: '--resume DIR' takes trained ones");
    if (!run_trains(r->program) && o->ndump == 0 && r->program->noutput > 0)
        run_note(r, "note: nothing of what the model gives is kept: '--dump %s@1=FILE' has output '%s' of the first batch", r->program->output[0].name,
                 r->program->output[0].name);
    if (updates && !o->save && o->ndump == 0 && r->from.step < r->steps)
        run_note(r, "note: what is trained is not kept: '--save DIR' keeps it");
}

static Status execute(Run *r)
{
    Seat seat;
    TRY(run_prepare(r));
    seat_take(&seat, r->program->rank, r->peers->world ? (uint32_t)world_near(r->peers->world) : 1, r->program->threads + r->program->comm_threads);
    Status s = open_rank(r);
    seat_leave(&seat);
    TRY(s);
    note_omissions(r);
    return run_trains(r->program) ? train(r) : run_forward(r);
}

Status run_rank(Arena *a, const Program *p, const RunOptions *o, const Peers *peers)
{
    Run r = {.arena = a, .scratch = arena_new("save"), .program = p, .o = o, .peers = peers, .speaks = !peers->world, .lock = {.fd = -1}, .mark = find_mark()};
    run_hold_signals();
    if (!peers->world)                               /* of a rank the launcher says how it ended */
        catch_crashes();
    Status s = execute(&r);
    Status closed = log_close(&r.log);
    if (s == OK)
        s = closed;
    if (s == OK)
        s = memory_report(&r);
    if (peers->world && s != OK && s != ERR_COMM && !r.alike)
        world_abort(peers->world, (int)p->rank, arena_printf(a, "ended: %s", status_text(s)));
    rank_close(&r.rank);
    run_close(&r);
    arena_free(r.scratch);
    return s;
}

Status run(Arena *a, const Program *p, const TallyParts *parts, const RunOptions *o)
{
    Traces t;
    TRY(traces_open(&t, o->trace, 1));
    Status s = run_rank(a, p, o, &(Peers){.executor = o->executor, .trace = trace_of(&t, 0), .parts = parts});
    Status written = traces_write(a, &t, &p, o->trace);
    traces_close(&t);
    return s == OK ? written : s;
}

Status run_check(Arena *a, const Program *p, const RunOptions *o)
{
    Run r = {.arena = a, .program = p, .o = o, .speaks = true, .lock = {.fd = -1}};
    Status s = run_prepare(&r);
    run_close(&r);
    return s;
}
