/* Checkpoints and dumps of many ranks: files do not depend on the layout, and a run
 * goes on under any layout from a checkpoint of any other as if it had never stopped. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/files.h"
#include "runtime/steps.h"
#include "tests/near.h"
#include "tests/unit/subject.h"

enum { HALF = 5, ALL = 2 * HALF };

/* ---- one rank ---- */

/* What all ranks of a run do: load, train, save. */
typedef struct Job {
    const char *from, *to;            /* folders of checkpoints; NULL: none */
    int64_t     steps;                /* in all, when done */
    const char *dump, *path;          /* kind and file of a dump after the last step; NULL: none */
} Job;

typedef struct Worker {
    const Program *p;
    const Job     *job;
    Peers    peers;
    Status   status;
    double   loss[ALL];
} Worker;

static Status load(Arena *a, const Job *job, Rank *r, const Data *d)
{
    Progress at = {.samples = 0};
    const char *folder;
    if (!job->from)
        return OK;
    TRY(checkpoint_find(a, job->from, &at, &folder));
    r->step.step = at.step;
    return checkpoint_load(a, r, folder, d);
}

static Status train(Worker *w, Rank *r, const Data *d)
{
    for (int64_t i = r->step.step; i < w->job->steps; i++) {
        TRY(data_fill(d, r, i * w->p->batch, w->p->batch, 0, true));
        TRY(rank_train(r));
        w->loss[i] = has_tensor(w->p->loss) ? rank_scalar(r, w->p->loss) : 0;
    }
    return OK;
}

static Status do_job(Arena *a, Worker *w, Rank *r, const Data *d)
{
    const Job *job = w->job;
    DumpSpec dump = {.kind = job->dump, .path = job->path, .step = job->steps};
    uint32_t dumps = job->dump != NULL;
    rank_init(r, 1);
    r->step.step = 0;
    TRY(dump_prepare(a, r, &dump, dumps, 0, job->steps));
    TRY(load(a, job, r, d));
    TRY(train(w, r, d));
    TRY(dump_write(a, r, d, &dump, dumps, job->steps, (job->steps - 1) * w->p->batch, w->p->batch));
    Progress at = {.step = job->steps, .samples = job->steps * w->p->batch, .seed = 1, .model = w->p->model, .data = d};
    return job->to ? checkpoint_save(a, r, job->to, 1, &at) : OK;
}

static void *worker_main(void *ctx)
{
    Worker *w = ctx;
    Rank r = {0};
    Data *d = NULL;
    const char *spec[] = {"random"};
    Arena *a = arena_new("rank");
    w->status = data_open(a, w->p, spec, 1, 1, &d);
    if (w->status == OK)
        w->status = w->peers.world ? rank_join(&r, a, w->p, isa_best(), &w->peers) : rank_open(&r, a, w->p, isa_best());
    if (w->status == OK) {
        w->status = do_job(a, w, &r, d);
        rank_close(&r);
    }
    data_close(d);
    arena_free(a);
    return NULL;
}

/* ---- all of them ---- */

static const char sequence[] = "split heads, ffn, vocab by tp; split seq by tp";

typedef struct Named { const char *name; Way way; } Named;

static const Named layouts[] = {
    {"one", {1, 1, 1, 1, NULL}},
    {"dp", {1, 2, 1, 1, NULL}},
    {"dp micro", {1, 2, 1, 2, NULL}},
    {"tp", {1, 1, 2, 1, sequence}},
    {"dp tp", {1, 2, 2, 2, sequence}},
    {"pp", {2, 1, 1, 2, "stage before h[1]"}},
    {"pp tp", {2, 1, 2, 2, "split heads, ffn, vocab by tp; split seq by tp; stage before h[1]"}},
    {"zero", {1, 2, 1, 2, "shard optimizer by dp"}},
    {"zero tp", {1, 2, 2, 1, "split heads, ffn, vocab by tp; split seq by tp; shard optimizer by dp"}},
    {"zero pp", {2, 2, 1, 2, "stage before h[1]; shard optimizer by dp"}},
    {"server", {1, 2, 1, 1, "sync = \"server\""}},
    {"pad", {1, 1, 2, 1, "split heads, ffn, vocab by tp; pad vocab to 20"}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* What the ranks came to, the same for all; *loss: of the rank that has it. */
static Status run_job(const Way *way, const Job *job, double loss[ALL])
{
    Subject s;
    Arena *a = arena_new("world");
    int64_t part[MOST];
    WorldFiles files;
    World *world = NULL;
    pthread_t thread[MOST];
    Worker w[MOST];
    open_subject(&s, "tiny_gpt2", "f64", *way);
    for (uint32_t i = 0; i < s.n; i++)
        part[i] = s.program[i]->map_bytes[PART_SHARED];
    assert_int_equal(world_create(&files, (int)s.n, part, ranks_groups((const Program *const *)s.program, s.n)), OK);
    assert_int_equal(world_map(a, &files, 0, &world), OK);
    for (uint32_t i = 0; i < s.n; i++) {
        w[i] = (Worker){.p = s.program[i], .job = job, .peers = {.world = s.n > 1 ? world : NULL, .hash = 7}};
        assert_int_equal(pthread_create(&thread[i], NULL, worker_main, &w[i]), 0);
    }
    for (uint32_t i = 0; i < s.n; i++)
        pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < s.n; i++)
        assert_int_equal(w[i].status, w[0].status);
    memcpy(loss, w[s.n - 1].loss, sizeof w->loss);
    world_unmap(world);
    world_discard(&files);
    arena_free(a);
    close_subject(&s);
    return w[0].status;
}

/* ---- files ---- */

typedef struct Place { Arena *a; char *dir; } Place;

static int open_place(void **state)
{
    Arena *a = arena_new("test");
    Place *p = *state = NEW(a, Place);
    p->a = a;
    p->dir = mkdtemp(arena_strdup(a, "/tmp/prun-stored-XXXXXX"));
    return p->dir ? 0 : -1;
}

static int close_place(void **state)
{
    Place *p = *state;
    int bad = system(arena_printf(p->a, "rm -rf %s", p->dir));
    arena_free(p->a);
    return bad;
}

static const char *in(const Place *p, const char *name)
{
    return arena_printf(p->a, "%s/%s", p->dir, name);
}

static const char *file_of(const Place *p, const char *dir, int64_t step, int file)
{
    return arena_printf(p->a, "%s/%s", steps_folder(p->a, dir, step, ""), checkpoint_file[file]);
}

static bool same_bytes(const char *x, const char *y)
{
    const void *a, *b;
    size_t n, m;
    assert_int_equal(file_map(x, &a, &n), OK);
    assert_int_equal(file_map(y, &b, &m), OK);
    bool same = n == m && memcmp(a, b, n) == 0;
    file_unmap(a, n);
    file_unmap(b, m);
    return same;
}

static void near_to(Arena *a, const char *what, const char *x, const char *y, double own, double all)
{
    SFile f, g;
    assert_int_equal(sfile_open(a, x, &f), OK);
    assert_int_equal(sfile_open(a, y, &g), OK);
    const char *bad = near_files(a, &f, &g, own, all);
    if (bad)
        fail_msg("%s: %s", what, bad);
    sfile_close(&f);
    sfile_close(&g);
}

/* ---- tests ---- */

/* Ten steps on one rank, and five under each layout. */
static void train_halves(const Place *p, double whole[ALL])
{
    double loss[ALL];
    assert_int_equal(run_job(&layouts[0].way, &(Job){.to = in(p, "whole"), .steps = ALL}, whole), OK);
    for (int x = 0; x < LAYOUTS; x++)
        assert_int_equal(run_job(&layouts[x].way, &(Job){.to = in(p, layouts[x].name), .steps = HALF}, loss), OK);
}

static void goes_on(const Place *p, const Named *x, const Named *y, const double whole[ALL])
{
    const char *what = arena_printf(p->a, "from '%s' to '%s'", x->name, y->name), *to = in(p, arena_printf(p->a, "%s-%s", x->name, y->name));
    double loss[ALL];
    assert_int_equal(run_job(&y->way, &(Job){.from = in(p, x->name), .to = to, .steps = ALL}, loss), OK);
    for (int i = HALF; i < ALL; i++)
        if (!(fabs(loss[i] - whole[i]) <= 1e-10 * fabs(whole[i])))
            fail_msg("%s: loss of step %d is %.17g, expected %.17g", what, i + 1, loss[i], whole[i]);
    near_to(p->a, what, file_of(p, to, ALL, FILE_WEIGHTS), file_of(p, in(p, "whole"), ALL, FILE_WEIGHTS), 1e-10, 1e-11);
    near_to(p->a, what, file_of(p, to, ALL, FILE_MOMENTS), file_of(p, in(p, "whole"), ALL, FILE_MOMENTS), 1e-10, 1e-15);
}

static void any_layout_goes_on_from_any(void **state)
{
    const Place *p = *state;
    double whole[ALL];
    train_halves(p, whole);
    for (int x = 0; x < LAYOUTS; x++)
        for (int y = 0; y < LAYOUTS; y++)
            goes_on(p, &layouts[x], &layouts[y], whole);
}

static void the_same_numbers_are_the_same_files(void **state)
{
    const Place *p = *state;
    double loss[ALL];
    assert_int_equal(run_job(&layouts[0].way, &(Job){.to = in(p, "first"), .steps = HALF}, loss), OK);
    for (int x = 1; x < LAYOUTS; x++) {
        const char *to = in(p, layouts[x].name);
        assert_int_equal(run_job(&layouts[x].way, &(Job){.from = in(p, "first"), .to = to, .steps = HALF}, loss), OK);
        for (int f = 0; f < NFILES; f++)
            if (!same_bytes(file_of(p, to, HALF, f), file_of(p, in(p, "first"), HALF, f)))
                fail_msg("'%s' writes another %s", layouts[x].name, checkpoint_file[f]);
    }
}

/* Micro-batches follow the samples of the batch under every layout. */
static void dumps_do_not_depend_on_the_layout(void **state)
{
    const Place *p = *state;
    static const char *const kind[] = {"weights", "moments", "grads", "grad:wte", "wpe", "logits", "h[0].attn.q", "h[1].ln2", "h[0].attn.out", "h[1].mlp.down", "embed[0]", "cross_entropy", "grad:h[1].mlp.gelu"};
    double loss[ALL];
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (int x = 0; x < LAYOUTS; x++) {
            const Job job = {.steps = 2, .dump = kind[k], .path = in(p, x ? "other" : "one")};
            assert_int_equal(run_job(&layouts[x].way, &job, loss), OK);
            near_to(p->a, arena_printf(p->a, "'%s' of '%s'", kind[k], layouts[x].name), job.path, in(p, "one"), 1e-10, 1e-12);
        }
}

static void inputs_are_dumped_as_they_are(void **state)
{
    const Place *p = *state;
    static const char *const kind[] = {"ids", "labels", "samples"};
    double loss[ALL];
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (int x = 0; x < LAYOUTS; x++) {
            const Job job = {.steps = 2, .dump = kind[k], .path = in(p, x ? "other" : "one")};
            assert_int_equal(run_job(&layouts[x].way, &job, loss), OK);
            if (!same_bytes(job.path, in(p, "one")))
                fail_msg("'%s' writes another '%s'", layouts[x].name, kind[k]);
        }
}

/* Between products that are split, summands are added to summands before they are summed up. */
static void summands_are_refused(void **state)
{
    const Place *p = *state;
    double loss[ALL];
    const Job job = {.steps = 1, .dump = "grad:h[1].ln2", .path = in(p, "f")};
    assert_int_equal(run_job(&layouts[0].way, &job, loss), OK);
    assert_int_equal(unlink(job.path), 0);
    assert_int_equal(run_job(&layouts[LAYOUTS - 1].way, &job, loss), ERR_USAGE);
    assert_int_not_equal(access(job.path, F_OK), 0);
}

static void what_does_not_match_is_refused_by_all(void **state)
{
    const Place *p = *state;
    double loss[ALL];
    assert_int_equal(run_job(&layouts[0].way, &(Job){.to = in(p, "d"), .steps = 1}, loss), OK);
    assert_int_equal(truncate(file_of(p, in(p, "d"), 1, FILE_MOMENTS), 1000), 0);
    for (int x = 0; x < LAYOUTS; x++)
        assert_int_equal(run_job(&layouts[x].way, &(Job){.from = in(p, "d"), .steps = 2}, loss), ERR_REJECT);
    for (int x = 0; x < LAYOUTS; x++)
        assert_int_equal(run_job(&layouts[x].way, &(Job){.dump = "h[0].atn", .path = in(p, "f"), .steps = 1}, loss), ERR_USAGE);
    assert_int_not_equal(access(in(p, "f"), F_OK), 0);
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, open_place, close_place)
    char pairs[100];
    snprintf(pairs, sizeof pairs, "%d pairs of layouts: %d steps in one and %d in the other are %d in one", LAYOUTS * LAYOUTS, HALF, ALL - HALF, ALL);
    const struct CMUnitTest tests[] = {
        {pairs, any_layout_goes_on_from_any, open_place, close_place, NULL}, IN_PLACE(the_same_numbers_are_the_same_files), IN_PLACE(dumps_do_not_depend_on_the_layout),
        IN_PLACE(inputs_are_dumped_as_they_are), IN_PLACE(summands_are_refused),
        IN_PLACE(what_does_not_match_is_refused_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
