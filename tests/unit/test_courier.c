/* Ranks that communicate beside computing: what takes time is hidden, is told where it went, and
 * shows in the trace; a wait that the program lacks is seen; a lost peer ends both threads.
 *
 * Kernels and sums of gradients are made to take a known time by sleeping, which needs no core, so
 * that what is shown does not depend on how many there are.  `test_courier missing` runs the program
 * that lacks its waits alone and `right` the others, for the thread sanitizer; `measure` prints what real computing hides. */
#include <pthread.h>
#include <time.h>

#include "runtime/courier.h"
#include "tests/unit/layouts.h"

enum { RANKS = 2, TRAINED = 5, MOST_INSTRS = 4096 };

/* What a run is made slow by, in microseconds. */
typedef struct Delays { int kernel, sum; } Delays;

typedef struct Run {
    Program *const *program;
    int64_t  classes;                 /* numbers below are inputs */
    Delays   delays;
    int      steps;
    bool     leaves;                  /* rank 1 ends the run after its first step */
    World   *world;
    Trace   *trace;                   /* of rank 0; NULL: none */
    Tally   *tally;                   /* of rank 0 */
    double   loss[RANKS][TRAINED], seconds;            /* seconds: of a step of rank 0, the shortest */
    Status   status[RANKS];
} Run;

typedef struct Worker { Run *run; uint32_t rank; pthread_t thread; } Worker;

/* ---- what takes time ---- */

static _Thread_local const Kernel *real_kernel;
static _Thread_local const Instr *first_instr;
static _Thread_local int kernel_delay;
static int sum_delay;                 /* of all ranks: set before they start */

static void sleep_for(int us)
{
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    while (us > 0 && nanosleep(&t, &t) != 0)
        ;
}

static void slow_kernel(const KCall *c)
{
    sleep_for(kernel_delay);
    real_kernel[c->in - first_instr](c);
}

/* Small messages are as fast as ever: counts, losses, what ranks agree on. */
static Status slow_all_reduce(CommGroup *g, const void *send, void *recv, int64_t count, DType dtype, ReduceOp op)
{
    sleep_for(count * dtype_bytes(dtype) > COMM_SMALL ? sum_delay : 0);
    return comm_cpu.all_reduce(g, send, recv, count, dtype, op);
}

/* Matmuls alone sleep: their number is known. */
static void slow_down(const Run *run, Rank *r, Comm *comm)
{
    const Program *p = r->program;
    Kernel *real = NEWN(r->arena, Kernel, p->ninstr);
    memcpy(real, r->kernel, sizeof *real * p->ninstr);
    for (uint32_t i = 0; i < p->ninstr; i++)
        if (run->delays.kernel > 0 && op_info[p->instr[i].op].flags & OPF_MATMUL)
            r->kernel[i] = slow_kernel;
    real_kernel = real;
    first_instr = p->instr;
    kernel_delay = run->delays.kernel;
    *comm = comm_cpu;
    comm->all_reduce = slow_all_reduce;
    r->end->comm = comm;
}

/* ---- running ---- */

static Status train(Run *run, Rank *r)
{
    for (int s = 0; s < run->steps; s++) {
        double start = seconds_now();
        if (r->tally)
            tally_begin(r->tally);
        TRY(rank_train(r));
        double seconds = seconds_now() - start;
        if (r->tally)
            tally_end(r->tally, seconds);
        if (r->program->rank == 0)
            run->seconds = s == 0 || seconds < run->seconds ? seconds : run->seconds;
        run->loss[r->program->rank][s] = rank_scalar(r, r->program->loss);
        if (run->leaves && r->program->rank == 1) {
            world_abort(run->world, 1, "leaves, as the test wants");
            return OK;
        }
    }
    return OK;
}

static void *work(void *ctx)
{
    Worker *w = ctx;
    Run *run = w->run;
    Arena *a = arena_new("rank");
    Peers peers = {.world = run->world, .hash = 1};
    Rank r;
    Comm comm;
    run->status[w->rank] = rank_join(&r, a, run->program[w->rank], isa_best(), &peers);
    if (run->status[w->rank] == OK) {
        LockRank view = {.p = r.program, .map = {[PART_PRIVATE] = rank_part(&r, PART_PRIVATE), [PART_SHARED] = rank_part(&r, PART_SHARED)}};
        rank_init(&r, LOCK_SEED);
        r.step.step = 0;
        lock_fill_inputs(&view, run->classes);
        slow_down(run, &r, &comm);
        r.trace = w->rank == 0 ? run->trace : NULL;
        r.tally = w->rank == 0 ? run->tally : NULL;
        run->status[w->rank] = train(run, &r);
        r.end->comm = &comm_cpu;
        rank_close(&r);
    }
    arena_free(a);
    return NULL;
}

static void run_all(Run *run)
{
    Worker w[RANKS];
    int64_t part[RANKS];
    WorldFiles files;
    Arena *a = arena_new("world");
    sum_delay = run->delays.sum;
    for (uint32_t i = 0; i < RANKS; i++)
        part[i] = run->program[i]->map_bytes[PART_SHARED];
    assert_int_equal(world_create(&files, RANKS, part, ranks_groups((const Program *const *)run->program, RANKS)), OK);
    assert_int_equal(world_map(a, &files, 0, &run->world), OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        w[i] = (Worker){.run = run, .rank = i};
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        pthread_join(w[i].thread, NULL);
    world_unmap(run->world);
    world_discard(&files);
    arena_free(a);
}

/* ---- programs ---- */

typedef struct Subject { Model m; Run run; } Subject;

/* dp = 2: gradients are summed while the last micro-batch goes backward. */
static Subject open_subject(const char *defines, const char *rules, bool beside)
{
    Subject s = {.m = model_load((Setting){"tiny_gpt2", defines, NULL})};
    const Plan plan = plan_of(&s.m, (Pin){1, RANKS, 1, 1, 2, rules});
    Program **p = lower_programs(&s.m, &plan);
    for (int i = 0; i < RANKS; i++)
        p[i]->comm_threads = beside;
    s.run = (Run){.program = p, .classes = classes_of(s.m.g), .steps = TRAINED};
    assert_in_range(p[0]->ninstr, 1, MOST_INSTRS);
    return s;
}

static void close_subject(Subject *s)
{
    arena_free(s->m.a);
}

static const char small[] = "batch=4 seq=12 layers=2 hidden=48 heads=4 vocab=60";
static const char buckets[] = "bucket = 40 kB";

static bool is_late_sum(const Program *p, uint32_t i)
{
    return p->instr[i].op == OP_all_reduce && p->instr[i].when == WHEN_LAST && tensor_bytes(&p->tensor[p->instr[i].arg[0].i]) > COMM_SMALL;
}

static int late_sums(const Program *p)
{
    int n = 0;
    for (uint32_t i = 0; i < p->ninstr; i++)
        n += is_late_sum(p, i);
    return n;
}

/* A part of each instruction: computing, sums of gradients, the rest of communication. */
enum { PART_KERNEL, PART_SUM, PART_OTHER, PART_WAITS, PART_REST, PARTS };

static Tally *tally_sums(Arena *a, const Program *p)
{
    TallyParts *parts = NEW(a, TallyParts);
    uint8_t *of = NEWN(a, uint8_t, p->ninstr);
    *parts = (TallyParts){.name = {"kernels", "exposed", "other", "waiting", "rest"}, .n = PARTS, .of_instr = of, .waiting = PART_WAITS, .rest = PART_REST};
    parts->beside[PART_SUM] = "hidden";
    for (uint32_t i = 0; i < p->ninstr; i++)
        of[i] = is_late_sum(p, i) ? PART_SUM : communicates(&p->instr[i]) ? PART_OTHER : PART_KERNEL;
    return tally_new(a, parts);
}

static void assert_all_ok(const Run *run)
{
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(run->status[i], OK);
}

static void same_losses(const Run *x, const Run *y)
{
    for (int i = 0; i < RANKS; i++)
        for (int k = 0; k < TRAINED; k++)
            assert_true(x->loss[i][k] == y->loss[i][k]);
}

/* ---- what is hidden ---- */

/* What the tests below slow a run by: the matmuls of the last backward take longer than the sums beside them. */
static const Delays slow = {.kernel = 3000, .sum = 6000};

/* Both ways once: the same bits, and parts that sum up.  Whether what the sums take was hidden, and the step shorter by it. */
static bool hides(void)
{
    Subject one = open_subject(small, buckets, false), two = open_subject(small, buckets, true);
    int sums = late_sums(two.run.program[0]);
    assert_true(sums >= 3);
    one.run.delays = two.run.delays = slow;
    one.run.tally = tally_sums(one.m.a, one.run.program[0]);
    two.run.tally = tally_sums(two.m.a, two.run.program[0]);
    run_all(&one.run);
    run_all(&two.run);
    assert_all_ok(&one.run);
    assert_all_ok(&two.run);
    same_losses(&one.run, &two.run);
    const Times *in_order = &one.run.tally->step[TRAINED - 1], *beside = &two.run.tally->step[TRAINED - 1];
    double all = 1e-6 * slow.sum * sums;
    print_message("# %d sums of 6 ms: a step of %.0f ms in order, %.0f ms beside; hidden %.0f ms, exposed %.0f ms\n", sums, 1e3 * one.run.seconds,
                  1e3 * two.run.seconds, 1e3 * beside->beside[PART_SUM], 1e3 * beside->part[PART_SUM]);
    assert_true(in_order->beside[PART_SUM] == 0 && in_order->part[PART_SUM] + in_order->part[PART_WAITS] >= all);
    assert_true(fabs(beside->all - beside->part[PART_KERNEL] - beside->part[PART_SUM] - beside->part[PART_OTHER] - beside->part[PART_WAITS] - beside->part[PART_REST]) < 1e-6);
    bool hidden = beside->beside[PART_SUM] >= all / 2 && two.run.seconds <= one.run.seconds - all / 3;
    close_subject(&one);
    close_subject(&two);
    return hidden;
}

/* Where both go on at once, a step is shorter by most of what the sums take, and comes to the same bits.  Other programs
 * may hold up any one step for longer than that, but not every time. */
static void sums_hide_behind_matmuls(void **unused)
{
    enum { TRIES = 6 };
    int n = 1;
    (void)unused;
    while (!hides())
        assert_true(n++ < TRIES);
}

static bool meets(const TraceEvent *x, const TraceEvent *y)
{
    return x->begin < y->end && y->begin < x->end;
}

/* Sums that went on while some matmul did. */
static int sums_beside(const Program *p, const Trace *t)
{
    int n = 0;
    for (uint64_t i = 0; i < t->n; i++) {
        bool found = false;
        for (uint64_t k = 0; is_late_sum(p, t->event[i].instr) && k < t->n && !found; k++)
            found = op_info[p->instr[t->event[k].instr].op].flags & OPF_MATMUL && meets(&t->event[i], &t->event[k]);
        n += found;
    }
    return n;
}

static void the_trace_shows_both_at_once(void **unused)
{
    (void)unused;
    for (int beside = 0; beside < 2; beside++) {
        Subject s = open_subject(small, buckets, beside);
        s.run.delays = slow;
        s.run.trace = calloc(1, sizeof *s.run.trace);
        assert_non_null(s.run.trace);
        run_all(&s.run);
        assert_all_ok(&s.run);
        int n = sums_beside(s.run.program[0], s.run.trace), sums = late_sums(s.run.program[0]) * TRAINED;
        assert_in_range(n, beside ? sums / 2 : 0, beside ? sums : 0);
        free(s.run.trace);
        close_subject(&s);
    }
}

/* ---- what goes wrong ---- */

/* No kernel waits for sums of gradients any more. */
static void drop_waits(Program *p)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->nwait; k++)
        if (p->instr[p->wait[k].on].stream != STREAM_gradient || p->instr[p->wait[k].instr].stream != STREAM_compute)
            p->wait[n++] = p->wait[k];
    assert_true(n < p->nwait);
    p->nwait = n;
}

static void a_missing_wait_changes_the_numbers(void **unused)
{
    (void)unused;
    Subject right = open_subject(small, buckets, true), wrong = open_subject(small, buckets, true);
    for (int i = 0; i < RANKS; i++)
        drop_waits(wrong.run.program[i]);
    right.run.delays = wrong.run.delays = (Delays){0, 20000};
    run_all(&right.run);
    run_all(&wrong.run);
    assert_all_ok(&right.run);
    assert_all_ok(&wrong.run);
    assert_true(right.run.loss[0][0] == wrong.run.loss[0][0]);                   /* before the first update */
    assert_true(right.run.loss[0][TRAINED - 1] != wrong.run.loss[0][TRAINED - 1]);
    close_subject(&right);
    close_subject(&wrong);
}

static void a_lost_peer_ends_both_threads(void **unused)
{
    (void)unused;
    Subject s = open_subject(small, buckets, true);
    s.run.leaves = true;
    double start = seconds_now();
    run_all(&s.run);
    assert_int_equal(s.run.status[0], ERR_COMM);
    assert_true(seconds_now() - start < 10);
    close_subject(&s);
}

/* ---- by hand ---- */

/* What real kernels hide of sums over a slow link, on however many cores there are. */
static void measure(void **unused)
{
    (void)unused;
    static const int delays[] = {0, 1000, 5000, 20000};
    for (size_t d = 0; d < sizeof delays / sizeof *delays; d++)
        for (int beside = 0; beside < 2; beside++) {
            Subject s = open_subject("batch=16 seq=128 context=128 layers=4 hidden=192 heads=4 vocab=256 dtype=f32", "bucket = 1 MB", beside);
            s.run.delays = (Delays){0, delays[d]};
            s.run.tally = tally_sums(s.m.a, s.run.program[0]);
            run_all(&s.run);
            assert_all_ok(&s.run);
            const Times *t = &s.run.tally->step[TRAINED - 1];
            print_message("%d sums, each %d us longer, %s: a step %.1f ms; sums exposed %.1f ms, hidden %.1f ms, waiting %.1f ms\n", late_sums(s.run.program[0]), delays[d],
                          beside ? "beside" : "in order", 1e3 * s.run.seconds, 1e3 * t->part[PART_SUM], 1e3 * t->beside[PART_SUM], 1e3 * t->part[PART_WAITS]);
            close_subject(&s);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest usual[] = {cmocka_unit_test(sums_hide_behind_matmuls), cmocka_unit_test(the_trace_shows_both_at_once),
                                       cmocka_unit_test(a_missing_wait_changes_the_numbers), cmocka_unit_test(a_lost_peer_ends_both_threads)};
    const struct CMUnitTest missing[] = {cmocka_unit_test(a_missing_wait_changes_the_numbers)};
    const struct CMUnitTest right[] = {cmocka_unit_test(the_trace_shows_both_at_once), cmocka_unit_test(a_lost_peer_ends_both_threads)};
    const struct CMUnitTest figures[] = {cmocka_unit_test(measure)};
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "missing") == 0)
        return cmocka_run_group_tests(missing, NULL, NULL);
    if (strcmp(what, "right") == 0)
        return cmocka_run_group_tests(right, NULL, NULL);
    if (strcmp(what, "measure") == 0)
        return cmocka_run_group_tests(figures, NULL, NULL);
    return cmocka_run_group_tests(usual, NULL, NULL);
}
