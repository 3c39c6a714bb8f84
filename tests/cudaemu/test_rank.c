/* Ranks on the emulator of GPUs: what the host says of streams that stand still, and, for the thread sanitizer, steps of a
 * program that has its waits (`right`), issued one by one and as graphs, and of one that lacks some (`missing`). */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/plugin.h"
#include "runtime/ranks.h"
#include "tests/unit/layouts.h"

enum { RANKS = 2, TRAINED = 2 };

typedef struct Run {
    Model     m;
    Program **program;
    World    *world;
    double    timeout;                /* seconds; 0: as usual */
    bool      graphs;                 /* kernels are replayed */
    Status    status[RANKS];
    double    loss[RANKS];
} Run;

typedef struct Worker { Run *run; uint32_t rank; pthread_t thread; } Worker;

static const Executor *emulator(Arena *a)
{
    const char *why = "";
    const Executor *e = plugin_find(a, "cudaemu", &why);
    if (!e)
        fail_msg("%s", why);
    return e;
}

/* ---- running ---- */

static Status train(const Run *run, Rank *r, double *loss)
{
    LockRank view = {.p = r->program, .map = {[PART_PRIVATE] = rank_part(r, PART_PRIVATE), [PART_SHARED] = rank_part(r, PART_SHARED)}};
    r->graphs = run->graphs;
    TRY(r->executor->ready(r));
    rank_init(r, LOCK_SEED);
    r->step.step = 0;
    TRY(rank_settle(r));
    lock_fill_inputs(&view, classes_of(run->m.g));
    for (int s = 0; s < TRAINED; s++)
        TRY(rank_train(r));
    *loss = rank_scalar(r, r->program->loss);
    return OK;
}

static void *work(void *ctx)
{
    Worker *w = ctx;
    Run *run = w->run;
    Arena *a = arena_new("rank");
    Peers peers = {.world = run->world, .executor = emulator(a), .hash = 1, .timeout = run->timeout};
    Rank r;
    Status s = rank_join(&r, a, run->program[w->rank], isa_best(), &peers);
    if (s == OK)
        s = train(run, &r, &run->loss[w->rank]);
    if (s != OK && s != ERR_COMM)
        world_abort(run->world, (int)w->rank, "ended");
    run->status[w->rank] = s;
    rank_close(&r);
    arena_free(a);
    return NULL;
}

static void run_all(Run *run)
{
    Worker w[RANKS];
    const int64_t part[RANKS] = {1, 1};
    WorldFiles files;
    Arena *a = arena_new("world");
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

/* What a run says on stderr. */
static char *said_by(Run *run)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(f), STDERR_FILENO);
    run_all(run);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    char *text = arena_alloc(run->m.a, 1 << 16);
    rewind(f);
    text[fread(text, 1, (1 << 16) - 1, f)] = 0;
    fclose(f);
    return text;
}

/* dp = 2: gradients are summed while the last micro-batch goes backward. */
static Run open_run(void)
{
    Run run = {.m = model_load((Setting){"tiny_gpt2", "batch=4 seq=12 layers=2 hidden=48 heads=4 vocab=60 dtype=f32", NULL})};
    const Plan plan = plan_of(&run.m, (Pin){1, RANKS, 1, 1, 2, "bucket = 40 kB"});
    run.program = lower_programs(&run.m, &plan);
    return run;
}

static void assert_says(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("'%s' is not in:\n%s", what, text);
}

/* ---- tests ---- */

/* Rank 1 leaves out the last call of the step, and with it a sum that rank 0 waits for. */
static void a_stuck_sum_ends_the_run(void **unused)
{
    (void)unused;
    Run run = open_run();
    run.timeout = 2;
    run.program[1]->ncall--;
    double start = seconds_now();
    const char *text = said_by(&run);
    assert_true(seconds_now() - start < 10);
    assert_true(run.status[0] != OK && run.status[1] != OK);
    assert_says(text, "error: rank 0, cudaemu 0: stuck: no instruction was completed for 2 s");
    assert_says(text, "stream 'gradient' has done");
    arena_free(run.m.a);
}

static void both_ranks_have_one_loss(void **unused)
{
    (void)unused;
    Run run = open_run();
    run.timeout = 60;
    run_all(&run);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(run.status[i], OK);
    assert_true(run.loss[0] == run.loss[1] && isfinite(run.loss[0]));
    arena_free(run.m.a);
}

enum { LEFT = 256 << 20, APART = 16 << 10 };         /* bytes */

/* Unmapped as the C library does it with stacks, so that the sanitizer does not see it. */
static void *leave_traces(void *done)
{
    char *at = mmap(NULL, LEFT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int64_t i = 0; at != MAP_FAILED && i < LEFT; i += APART)
        at[i] = 1;
    syscall(SYS_munmap, at, (size_t)LEFT);
    atomic_store_explicit((atomic_bool *)done, true, memory_order_relaxed);
    return NULL;
}

/* What a thread that nothing is ordered behind did at addresses that then become a device's. */
static void memory_of_others_is_no_race(void **unused)
{
    static atomic_bool done;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, leave_traces, &done), 0);
    pthread_detach(thread);
    while (!atomic_load_explicit(&done, memory_order_relaxed))
        usleep(1000);
    both_ranks_have_one_loss(unused);
}

static bool waits(const Program *p, uint32_t instr)
{
    for (uint32_t k = 0; k < p->nwait; k++)
        if (p->wait[k].instr == instr)
            return true;
    return false;
}

static int by_instr(const void *x, const void *y)
{
    const Wait *a = x, *b = y;
    return (a->instr > b->instr) - (a->instr < b->instr);
}

static void swap_with_next(Program *p, uint32_t i)
{
    const Instr first = p->instr[i];
    p->instr[i] = p->instr[i + 1];
    p->instr[i + 1] = first;
    for (uint32_t k = 0; k < p->nwait; k++) {
        uint32_t *const at[] = {&p->wait[k].instr, &p->wait[k].on};
        for (int e = 0; e < 2; e++)
            *at[e] = *at[e] == i ? i + 1 : *at[e] == i + 1 ? i : *at[e];
    }
    qsort(p->wait, p->nwait, sizeof *p->wait, by_instr);
}

/* Each sum of gradients behind a kernel more, so that what it waits for is in the middle of kernels.  How many. */
static int delay_sums(Program *p)
{
    int n = 0;
    for (uint32_t k = 0; k < p->nproc; k++)
        for (uint32_t i = p->proc[k].first; p->proc[k].kind == PROC_backward && i + 1 < p->proc[k].end; i++)
            if (p->instr[i].stream == STREAM_gradient && p->instr[i + 1].stream == STREAM_compute && !waits(p, i + 1)) {
                swap_with_next(p, i++);
                n++;
            }
    return n;
}

static void graphs_have_that_loss(void **unused)
{
    (void)unused;
    Run plain = open_run(), graphs = open_run();
    plain.timeout = graphs.timeout = 60;
    graphs.graphs = true;
    for (int i = 0; i < RANKS; i++)
        assert_true(delay_sums(plain.program[i]) > 2 && delay_sums(graphs.program[i]) > 2);
    run_all(&plain);
    run_all(&graphs);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(graphs.status[i], OK);
    assert_true(graphs.loss[0] == plain.loss[0] && graphs.loss[1] == plain.loss[1]);
    arena_free(plain.m.a);
    arena_free(graphs.m.a);
}

/* No kernel waits for sums of gradients any more. */
static void without_its_waits(void **unused)
{
    (void)unused;
    Run run = open_run();
    run.timeout = 60;
    for (int i = 0; i < RANKS; i++) {
        Program *p = run.program[i];
        uint32_t n = 0;
        for (uint32_t k = 0; k < p->nwait; k++)
            if (p->instr[p->wait[k].on].stream != STREAM_gradient || p->instr[p->wait[k].instr].stream != STREAM_compute)
                p->wait[n++] = p->wait[k];
        assert_true(n < p->nwait);
        p->nwait = n;
    }
    run_all(&run);
    arena_free(run.m.a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest usual[] = {cmocka_unit_test(a_stuck_sum_ends_the_run), cmocka_unit_test(both_ranks_have_one_loss), cmocka_unit_test(graphs_have_that_loss)};
    const struct CMUnitTest right[] = {cmocka_unit_test(memory_of_others_is_no_race), cmocka_unit_test(graphs_have_that_loss)};
    const struct CMUnitTest missing[] = {cmocka_unit_test(without_its_waits)};
    if (argc > 1)
        return strcmp(argv[1], "right") == 0 ? cmocka_run_group_tests(right, NULL, NULL) : cmocka_run_group_tests(missing, NULL, NULL);
    return cmocka_run_group_tests(usual, NULL, NULL);
}
