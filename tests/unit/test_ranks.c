/* Ranks as threads of one process: the same model, data and seed give the same losses
 * under every layout as on one rank, the same plan gives the same bits twice, and what
 * ranks hold copies of stays bit-identical. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "tests/unit/subject.h"

enum { STEPS = 5 };

/* ---- one rank ---- */

typedef struct Worker {
    const Program *p;                 /* gone when the run is over */
    uint32_t rank;
    Peers    peers;
    Status   status;
    double   loss[STEPS], norm[STEPS];
    Arena   *a;
    char   **piece; uint32_t npiece;  /* what it holds of each weight and moment that is not sharded: its name and place, then its bytes */
} Worker;

static Status train(Worker *m, Rank *r, const Data *d)
{
    for (int i = 0; i < STEPS; i++) {
        TRY(data_fill(d, r, i * m->p->batch, m->p->batch, 0, true));
        TRY(rank_train(r));
        m->loss[i] = has_tensor(m->p->loss) ? rank_scalar(r, m->p->loss) : NAN;
        m->norm[i] = rank_scalar(r, m->p->norm);
    }
    return OK;
}

/* "PATH:kind:origin,origin.. BYTES" of each tensor. */
static void keep_states(Worker *m, const Rank *r)
{
    for (uint32_t i = 0; i < m->p->nstate; i++) {
        const State *s = &m->p->state[i];
        const TensorId id[] = {s->weight, s->moment[0], s->moment[1]};
        for (int k = 0; k < 3; k++) {
            if (!has_tensor(id[k]))
                continue;
            const Tensor *t = &m->p->tensor[id[k].i];
            Text x = text_new(m->a);
            text_add(&x, "%s:%d:", s->path, k);
            for (int e = 0; e < t->rank; e++)
                text_add(&x, "%lld,", (long long)t->axis[e].origin);
            const unsigned char *at = rank_at(r, id[k], 0, 0);
            for (int64_t b = 0; b < tensor_bytes(t); b++)
                text_add(&x, "%02x", at[b]);
            PUSH(m->a, m->piece, m->npiece, arena_strdup(m->a, x.s));
        }
    }
}

static void *worker_main(void *ctx)
{
    Worker *m = ctx;
    Rank r;
    Data *d = NULL;
    const char *spec[] = {"random"};
    m->a = arena_new("rank");
    m->status = data_open(m->a, m->p, spec, 1, 1, &d);
    if (m->status == OK)
        m->status = m->peers.world ? rank_join(&r, m->a, m->p, isa_best(), &m->peers) : rank_open(&r, m->a, m->p, isa_best());
    if (m->status != OK)
        return NULL;
    rank_init(&r, 1);
    r.step.step = 0;
    m->status = train(m, &r, d);
    keep_states(m, &r);
    rank_close(&r);
    data_close(d);
    return NULL;
}

/* ---- all of them ---- */

typedef struct Outcome { Worker m[MOST]; uint32_t n; } Outcome;

/* Rank `other` (-1: none) has another hash. */
static void run_subject(const Subject *s, int other, Outcome *o)
{
    Arena *a = arena_new("world");
    int64_t part[MOST];
    WorldFiles files;
    World *world = NULL;
    pthread_t thread[MOST];
    *o = (Outcome){.n = s->n};
    for (uint32_t i = 0; i < s->n; i++)
        part[i] = s->program[i]->map_bytes[PART_SHARED];
    const Program *const *programs = (const Program *const *)s->program;
    assert_int_equal(world_create(&files, (int)s->n, part, ranks_groups(programs, s->n)), OK);
    assert_int_equal(world_map(a, &files, 0, &world), OK);
    for (uint32_t i = 0; i < s->n; i++) {
        o->m[i] = (Worker){.p = s->program[i], .rank = i, .peers = {.world = s->n > 1 ? world : NULL, .hash = (int)i == other ? 8 : 7}};
        assert_int_equal(pthread_create(&thread[i], NULL, worker_main, &o->m[i]), 0);
    }
    for (uint32_t i = 0; i < s->n; i++)
        pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < s->n; i++)
        assert_int_equal(o->m[i].status, other < 0 ? OK : ERR_REJECT);
    world_unmap(world);
    world_discard(&files);
    arena_free(a);
}

static void free_outcome(Outcome *o)
{
    for (uint32_t i = 0; i < o->n; i++)
        arena_free(o->m[i].a);
}

static void run_way(const char *name, const char *dtype, Way w, Outcome *o)
{
    Subject s;
    open_subject(&s, name, dtype, w);
    run_subject(&s, -1, o);
    close_subject(&s);
}

/* ---- comparisons ---- */

static void near_to(const char *what, int step, double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed * fabs(want)))
        fail_msg("%s of step %d: %.17g, expected %.17g", what, step, got, want);
}

/* Norms are held to as many times what losses are. */
enum { TIMES = 100, TIMES_IN_BF16 = 32 };

static void same_numbers(const Outcome *o, const Outcome *one, double allowed, int times)
{
    for (int i = 0; i < STEPS; i++) {
        for (uint32_t k = 0; k < o->n; k++) {
            if (!isnan(o->m[k].loss[i]))
                near_to("loss", i + 1, o->m[k].loss[i], one->m[one->n - 1].loss[i], allowed);
            assert_true(o->m[k].norm[i] == o->m[0].norm[i]);
            near_to("norm", i + 1, o->m[k].norm[i], one->m[0].norm[i], times * allowed);
        }
    }
}

static size_t name_length(const char *piece)
{
    const char *end = strrchr(piece, ',');
    return (size_t)((end ? end : strrchr(piece, ':')) - piece) + 1;
}

/* How many pieces of two workers have one name; they must be equal. */
static int equal_pieces(const Worker *x, const Worker *y)
{
    int n = 0;
    for (uint32_t i = 0; i < x->npiece; i++)
        for (uint32_t k = 0; k < y->npiece; k++) {
            const char *a = x->piece[i], *b = y->piece[k];
            if (strncmp(a, b, name_length(a)) != 0)
                continue;
            if (strcmp(a, b) != 0)
                fail_msg("ranks %u and %u differ in '%.*s'", x->rank, y->rank, (int)name_length(a), a);
            n++;
        }
    return n;
}

/* How many of a run are copies. */
static int copies(const Outcome *o)
{
    int n = 0;
    for (uint32_t k = 0; k < o->n; k++)
        for (uint32_t l = 0; l < k; l++)
            n += equal_pieces(&o->m[k], &o->m[l]);
    return n;
}

static void same_states(const Outcome *x, const Outcome *y)
{
    for (uint32_t k = 0; k < x->n; k++)
        assert_int_equal(equal_pieces(&x->m[k], &y->m[k]), x->m[k].npiece);
}

static const char megatron[] = "split heads, ffn, vocab by tp", sequence[] = "split heads, ffn, vocab by tp; split seq by tp";

static void layout(const char *name, const char *dtype, double allowed, Way w)
{
    Outcome one, x, y;
    run_way(name, dtype, (Way){1, 1, 1, w.microbatches, NULL}, &one);
    run_way(name, dtype, w, &x);
    run_way(name, dtype, w, &y);
    same_numbers(&x, &one, allowed, strcmp(dtype, "bf16") == 0 ? TIMES_IN_BF16 : TIMES);
    same_numbers(&x, &y, 0, 0);
    assert_true(copies(&x) > 0 || w.dp * w.tp == 1);
    same_states(&x, &y);
    free_outcome(&one);
    free_outcome(&x);
    free_outcome(&y);
}

/* `every`: of the ways, each that many. */
static void layouts(const char *name, const char *cut, const char *dtype, double allowed, size_t every)
{
    char two[40], both[100];
    snprintf(two, sizeof two, "stage before %s", cut);
    snprintf(both, sizeof both, "%s; %s", sequence, two);
    const Way way[] = {
        {1, 2, 1, 1, NULL},     {1, 2, 1, 2, NULL},     {1, 4, 1, 1, NULL},     {1, 1, 2, 1, megatron}, {1, 1, 2, 1, sequence},
        {1, 1, 2, 2, sequence}, {1, 2, 2, 2, sequence}, {2, 1, 1, 1, two},      {2, 1, 1, 2, two},      {2, 1, 1, 4, two},
        {2, 2, 1, 2, two},      {2, 2, 2, 2, both},     {1, 1, 2, 2, "split seq by tp"},
    };
    for (size_t i = every - 1; i < sizeof way / sizeof *way; i += every)
        layout(name, dtype, allowed, way[i]);
}

static void gpt2_in_f64(void **state)
{
    (void)state;
    layouts("tiny_gpt2", "h[1]", "f64", 1e-12, 1);
}

static void llama_in_f64(void **state)
{
    (void)state;
    layouts("tiny_llama", "layer[1]", "f64", 1e-12, 1);
}

/* Moments in parts, and at a server. */
static void states_elsewhere(void **unused)
{
    (void)unused;
    layout("tiny_gpt2", "f64", 1e-12, (Way){1, 4, 1, 1, "shard optimizer by dp"});
    layout("tiny_gpt2", "f64", 1e-12, (Way){2, 2, 2, 2, "split heads, ffn, vocab by tp; split seq by tp; stage before h[1]; shard optimizer by dp"});
    layout("tiny_llama", "f32", 1e-5, (Way){1, 2, 2, 2, "split heads, ffn, vocab by tp; split seq by tp; shard optimizer by dp"});
    layout("tiny_gpt2", "f64", 1e-12, (Way){2, 2, 1, 2, "stage before h[1]; sync = \"server\""});
    layout("tiny_llama", "f32", 1e-5, (Way){1, 4, 1, 1, "sync = \"server\""});
}

/* Of three stages, the one in the middle has no inputs. */
static void three_stages(void **unused)
{
    (void)unused;
    layout("tiny_gpt2", "f64", 1e-12, (Way){3, 1, 1, 4, "stage before h[0].ln2; stage before h[1].ln2"});
    layout("tiny_llama", "f64", 1e-12, (Way){3, 2, 1, 2, "stage before layer[0].mlp; stage before layer[1].mlp"});
}

static void both_in_f32(void **state)
{
    (void)state;
    layouts("tiny_gpt2", "h[1]", "f32", 1e-5, 3);
    layouts("tiny_llama", "layer[1]", "f32", 1e-5, 3);
}

/* A layout changes which sums of activations are rounded to bf16, each by 2^-8 of it at
 * most.  A loss is the mean over a few tens of labels of what comes out of a few such
 * values, as often too large as too small: it stays within 2^-9.  Norms are held to 2^-4:
 * AdamW's first steps are as long for a gradient that is rounding alone, a key bias's, as
 * for any other, so weights drift apart.  What is equal in other types is equal here:
 * copies, norms of all ranks, and a run again, bit for bit. */
static void both_in_bf16(void **state)
{
    (void)state;
    const double allowed = 0x1p-9;
    layouts("tiny_gpt2", "h[1]", "bf16", allowed, 2);
    layouts("tiny_llama", "layer[1]", "bf16", allowed, 3);
    layout("tiny_gpt2", "bf16", allowed, (Way){1, 4, 1, 1, "shard optimizer by dp"});
    layout("tiny_llama", "bf16", allowed, (Way){2, 2, 2, 2, "split heads, ffn, vocab by tp; split seq by tp; stage before layer[1]; shard optimizer by dp"});
    layout("tiny_gpt2", "bf16", allowed, (Way){2, 2, 1, 2, "stage before h[1]; sync = \"server\""});
}

static void another_plan_is_refused(void **state)
{
    (void)state;
    Subject s;
    Outcome o;
    open_subject(&s, "tiny_gpt2", "f32", (Way){1, 4, 1, 1, NULL});
    FILE *said = tmpfile();
    int kept = dup(STDERR_FILENO);
    dup2(fileno(said), STDERR_FILENO);
    run_subject(&s, 2, &o);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(said);
    char line[200] = "", second[200] = "";
    assert_non_null(fgets(line, sizeof line, said));
    assert_non_null(strstr(line, "error: rank 2 has another plan"));
    assert_null(fgets(second, sizeof second, said));
    fclose(said);
    close_subject(&s);
    free_outcome(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_in_f64), cmocka_unit_test(llama_in_f64), cmocka_unit_test(both_in_f32), cmocka_unit_test(both_in_bf16), cmocka_unit_test(states_elsewhere), cmocka_unit_test(three_stages),
                                       cmocka_unit_test(another_plan_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
