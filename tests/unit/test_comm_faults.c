/* Ranks that die, stop, or wait for each other: everyone's waits end in bounded time,
 * and one message says who is to blame, what it did and what the others waited for. */
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/comm/world.h"
#include "tests/unit/ranks.h"

enum { WORDS = 10000 };               /* of a message that is not small */

/* Seconds: longer than a loaded machine keeps a thread from running; and than all of a
 * test takes on one. */
#define PATIENCE 1.0
#define BOUND 30

typedef struct Fault {
    double      timeout;
    atomic_int  stop;                 /* the rank that is stuck may go */
    bool        second;               /* others wait at a second end */
    atomic_int  ended;                /* ranks whose wait ended with ERR_COMM */
} Fault;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static CommGroup *everybody(Arena *a, Endpoint *e)
{
    int all[MOST_RANKS];
    for (int i = 0; i < e->nrank; i++)
        all[i] = i;
    return e->comm->group(e, a, 0, all, e->nrank);
}

static Status all_reduce(Ranks *r, CommGroup *g)
{
    float *x = world_part(r->world, g->end->rank);
    return g->end->comm->all_reduce(g, x, x, WORDS, DT_f32, REDUCE_SUM);
}

/* ---- what was printed ---- */

static int   real_stderr;
static FILE *printed;

static void catch_stderr(void)
{
    fflush(stderr);
    real_stderr = dup(2);
    printed = tmpfile();
    dup2(fileno(printed), 2);
}

static const char *caught(void)
{
    static char text[4096];
    fflush(stderr);
    dup2(real_stderr, 2);
    close(real_stderr);
    rewind(printed);
    text[fread(text, 1, sizeof text - 1, printed)] = 0;
    fclose(printed);
    return text;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)); p++)
        n++;
    return n;
}

static void assert_says(const char *text, const char *word)
{
    if (!strstr(text, word))
        fail_msg("expected '%s' in:\n%s", word, text);
}

/* ---- stuck ranks ---- */

/* The last rank computes for ever; each other waits for the next one, rank 0 not directly. */
static int chain(Ranks *r, Arena *a, Endpoint *e)
{
    Fault *f = r->ctx;
    endpoint_timeout(e, f->timeout);
    endpoint_progress(e, 40 + e->rank);
    if (f->second && e->rank < e->nrank - 1) {
        e = e->comm->second(a, e);
        endpoint_beside(e, 60 + e->rank);
    }
    if (e->rank == e->nrank - 1) {
        while (!atomic_load(&f->stop))
            usleep(1000);
        return 0;
    }
    Status status = e->comm->recv(e, e->rank + 1, world_part(r->world, e->rank), WORDS);
    if (atomic_fetch_add(&f->ended, 1) == e->nrank - 2)
        atomic_store(&f->stop, 1);
    return status == ERR_COMM && world_aborted(r->world) == e->nrank - 1 ? 0 : 1;
}

static void stuck_rank_is_blamed(void **state)
{
    (void)state;
    Fault f = {.timeout = PATIENCE};
    Ranks r = {.n = 4, .part = 1 << 16, .ngroup = 1, .fn = chain, .ctx = &f};
    catch_stderr();
    double start = seconds();
    int failed = run_threads(&r);
    double took = seconds() - start;
    const char *text = caught();
    assert_int_equal(failed, 0);
    assert_true(took >= PATIENCE && took < BOUND);
    assert_int_equal(count(text, "error:"), 1);
    assert_says(text, "error: rank 3 made no progress for ");
    assert_says(text, "while others waited for it, at instruction 43\n");
    assert_says(text, "note: rank 1, at instruction 41, waits for rank 2 in receive\n");
}

/* The others wait at second ends: what they began last at the first is not what they wait in. */
static void second_ends_wait_too(void **state)
{
    (void)state;
    Fault f = {.timeout = PATIENCE, .second = true};
    Ranks r = {.n = 4, .part = 1 << 16, .ngroup = 1, .fn = chain, .ctx = &f};
    catch_stderr();
    int failed = run_threads(&r);
    const char *text = caught();
    assert_int_equal(failed, 0);
    assert_int_equal(count(text, "error:"), 1);
    assert_says(text, "error: rank 3 made no progress for ");
    assert_says(text, "while others waited for it, at instruction 43\n");
    assert_says(text, "note: rank 1, at instruction 61, waits for rank 2 in receive\n");
}

/* Two ranks receive from each other. */
static int circle(Ranks *r, Arena *a, Endpoint *e)
{
    (void)a;
    endpoint_timeout(e, ((Fault *)r->ctx)->timeout);
    return e->comm->recv(e, 1 - e->rank, world_part(r->world, e->rank), WORDS) != ERR_COMM;
}

static void circle_is_found(void **state)
{
    (void)state;
    Fault f = {.timeout = PATIENCE};
    Ranks r = {.n = 2, .part = 1 << 16, .ngroup = 1, .fn = circle, .ctx = &f};
    catch_stderr();
    int failed = run_threads(&r);
    const char *text = caught();
    assert_int_equal(failed, 0);
    assert_int_equal(count(text, "error:"), 1);
    assert_says(text, "waits for ranks that wait for it");
}

/* Rank 1 is slow, but begins an instruction now and then. */
static int slow(Ranks *r, Arena *a, Endpoint *e)
{
    Fault *f = r->ctx;
    endpoint_timeout(e, f->timeout);
    for (int i = 0; e->rank == 1 && i < 25; i++) {
        endpoint_progress(e, i);
        usleep(100000);
    }
    return all_reduce(r, everybody(a, e)) != OK;
}

static void slow_rank_is_waited_for(void **state)
{
    (void)state;
    Fault f = {.timeout = 2};
    Ranks r = {.n = 3, .part = 1 << 16, .ngroup = 1, .fn = slow, .ctx = &f};
    assert_int_equal(run_threads(&r), 0);
}

/* Pages of a large part take longer to make than a rank is given for an instruction. */
static void mapping_counts_as_progress(void **state)
{
    (void)state;
    enum { PART = 5 << 20 };
    Ranks r = {.n = 2, .part = PART, .ngroup = 1};
    assert_int_equal(ranks_open(&r), OK);
    assert_int_equal(world_map(r.arena, &r.files, 1, &r.world), OK);
    assert_int_equal(atomic_load(&world_progress(r.world, 0)->begun), 0);
    assert_true(atomic_load(&world_progress(r.world, 1)->begun) >= 2 * PART / (2 << 20));
    assert_int_equal(world_instr(r.world, 1), -1);
    ranks_close(&r);
}

/* ---- lost ranks ---- */

/* The last rank gives up while the others wait, some of them long enough to sleep. */
static int gives_up(Ranks *r, Arena *a, Endpoint *e)
{
    CommGroup *g = everybody(a, e);
    endpoint_progress(e, 7);
    if (e->rank == e->nrank - 1) {
        for (int rank = 0; rank < e->nrank - 1; rank++)
            while (atomic_load(&world_progress(r->world, rank)->wait[0].rank) != e->rank)
                usleep(1000);
        usleep(200000);
        world_abort(r->world, e->rank, "cannot go on");
        world_abort(r->world, 0, "is not to blame");
        return 0;
    }
    return all_reduce(r, g) != ERR_COMM || all_reduce(r, g) != ERR_COMM;
}

static void abort_ends_all_waits(void **state)
{
    (void)state;
    Ranks r = {.n = 4, .part = 1 << 16, .ngroup = 1, .fn = gives_up};
    catch_stderr();
    double start = seconds();
    int failed = run_threads(&r);
    double took = seconds() - start;
    const char *text = caught();
    assert_int_equal(failed, 0);
    assert_true(took < BOUND);
    assert_int_equal(count(text, "error:"), 1);
    assert_says(text, "error: rank 3 cannot go on, at instruction 7\n");
    assert_int_equal(count(text, "waits for rank 3 in all-reduce of group 0\n"), 3);
}

static int dies(Ranks *r, Arena *a, Endpoint *e)
{
    CommGroup *g = everybody(a, e);
    endpoint_progress(e, 12);
    for (int i = 0; i < 3; i++) {
        if (e->rank == 1 && i == 2)
            raise(SIGKILL);
        Status s = all_reduce(r, g);
        if (s != OK)
            return s == ERR_COMM && i == 2 ? 0 : 1;
    }
    return 1;
}

static void launcher(Ranks *r, int rank, int status)
{
    char why[64];
    snprintf(why, sizeof why, "was killed by signal %d", WTERMSIG(status));
    if (WIFSIGNALED(status))
        world_abort(r->world, rank, why);
}

static void dead_process_ends_the_run(void **state)
{
    (void)state;
    Ranks r = {.n = 3, .part = 1 << 16, .ngroup = 1, .fn = dies};
    catch_stderr();
    double start = seconds();
    int failed = run_processes(&r, launcher);
    double took = seconds() - start;
    const char *text = caught();
    assert_int_equal(failed, 1);
    assert_int_equal(r.result[1], 128);
    assert_true(took < BOUND);
    assert_int_equal(count(text, "error:"), 1);
    assert_says(text, "error: rank 1 was killed by signal 9, at instruction 12\n");
}

/* ---- worlds that cannot be ---- */

static void impossible_worlds_are_refused(void **state)
{
    (void)state;
    int64_t part[WORLD_RANKS + 1] = {0};
    WorldFiles f;
    catch_stderr();
    Status none = world_create(&f, 0, part, 1), many = world_create(&f, WORLD_RANKS + 1, part, 1);
    const char *text = caught();
    assert_int_equal(none, ERR_REJECT);
    assert_int_equal(many, ERR_REJECT);
    assert_says(text, "error: 257 ranks, expected 1 to 256");
}

static void worlds_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    int64_t part = INT64_C(1) << 60;
    WorldFiles f;
    World *w;
    Arena *a = arena_new("test");
    catch_stderr();
    Status s = world_create(&f, 1, &part, 1);
    if (s == OK)
        s = world_map(a, &f, 0, &w);
    const char *text = caught();
    world_discard(&f);
    arena_free(a);
    assert_int_equal(s, ERR_NOMEM);
    assert_says(text, "1152921504606846976 bytes of shared memory: ");
}

static void other_files_are_refused(void **state)
{
    (void)state;
    FILE *empty = tmpfile();
    WorldFiles f = {fileno(empty), fileno(empty)};
    Arena *a = arena_new("test");
    World *w;
    catch_stderr();
    Status s = world_map(a, &f, 0, &w);
    const char *text = caught();
    arena_free(a);
    fclose(empty);
    assert_int_equal(s, ERR_COMM);
    assert_says(text, "is not the control block of a world of this program");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stuck_rank_is_blamed), cmocka_unit_test(second_ends_wait_too),          cmocka_unit_test(circle_is_found),
        cmocka_unit_test(slow_rank_is_waited_for),       cmocka_unit_test(mapping_counts_as_progress),
        cmocka_unit_test(abort_ends_all_waits),
        cmocka_unit_test(dead_process_ends_the_run),     cmocka_unit_test(impossible_worlds_are_refused),
        cmocka_unit_test(worlds_that_do_not_fit_are_refused), cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
