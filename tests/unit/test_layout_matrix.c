/* No layout changes the numbers: models under plans of up to eight ranks in all their
 * dimensions, against one device.
 *
 * Rows in which every pair of values of two dimensions comes together (a pairwise covering
 * array), and dozens of them, are run in several ways: in lockstep, or by the runtime with
 * ranks as threads or as processes.  The argument is the name of such a group; without one it
 * is what needs the address sanitizer.  With the name of a model the program runs every
 * layout of that: tests/slow/layouts.sh.  `write DIR GROUP` prepares rows that prun runs.
 *
 * Of a row: losses and norms of its steps, the gradients of the first and the weights at
 * the end; copies of a weight bit by bit after every step; whether the plan split what it
 * says; the same bits when it is run again. */
#include "tests/unit/layout_rows.h"
#include "tests/unit/same_numbers.h"

/* How rows are run. */
typedef struct RowGroup {
    const char *name;
    int         family;
    Start       start;
    const char *how;                  /* in words */
    int         dozen;                /* of rows of many ranks; -1: all rows */
    bool        single, large;        /* in f32; sequences of 60, which attention of f64, in its plain form, takes a dozen times as long for */
    int         steps, twice;         /* every how many-th row is run twice; 0: none */
    bool        beside;               /* ranks communicate beside computing; the second time they do not, and must come to the same bits */
    const char *device;               /* of a plug-in; NULL: the cpu */
    int         third;                /* of a dozen: its rows 1, 4, 7, 10 or those after them; 0: all */
    bool        four;                 /* instead, two of the rows of four ranks */
} RowGroup;

enum { GROUP_lockstep, GROUP_threads, GROUP_f32, GROUP_processes, GROUP_races, GROUP_lifetimes, GROUP_bundled, GROUP_bundled_threads, GROUP_bundled_f32, GROUP_bundled_processes, GROUP_beside, GROUP_beside_processes, GROUP_beside_races, GROUP_beside_lifetimes,
       GROUP_gpu_1, GROUP_gpu_2, GROUP_gpu_3, GROUP_gpu_bundled, GROUP_gpu_races, GROUPS };

#define ON_EMULATOR "as threads on the emulator of GPUs"

static const RowGroup groups[GROUPS] = {
    [GROUP_lockstep] = {"lockstep", FAMILY_decoders, START_lockstep, "in lockstep", -1, false, false, 2, 8},
    [GROUP_threads] = {"threads", FAMILY_decoders, START_threads, "as threads", -1, false, false, 2, 1},
    [GROUP_f32] = {"f32", FAMILY_decoders, START_threads, "as threads", -1, true, true, 2, 8},
    [GROUP_processes] = {"processes", FAMILY_decoders, START_processes, "as processes", 0, false, true, 3, 1},
    [GROUP_races] = {"races", FAMILY_decoders, START_threads, "as threads under ThreadSanitizer", 1, false, false, 3, 12},
    [GROUP_lifetimes] = {"lifetimes", FAMILY_decoders, START_threads, "as threads under AddressSanitizer", 2, false, false, 3, 12},
    [GROUP_bundled] = {"bundled", FAMILY_bundled, START_lockstep, "in lockstep", -1, false, false, 2, 8},
    [GROUP_bundled_threads] = {"bundled_threads", FAMILY_bundled, START_threads, "as threads", -1, false, false, 2, 8},
    [GROUP_bundled_f32] = {"bundled_f32", FAMILY_bundled, START_threads, "as threads", -1, true, false, 2, 8},
    [GROUP_bundled_processes] = {"bundled_processes", FAMILY_bundled, START_processes, "as processes", 0, false, false, 3, 1},
    [GROUP_beside] = {"beside", FAMILY_decoders, START_threads, "as threads with a courier each", -1, false, false, 2, 1, true},
    [GROUP_beside_processes] = {"beside_processes", FAMILY_bundled, START_processes, "as processes with a courier each", 0, false, false, 3, 1, true},
    [GROUP_beside_races] = {"beside_races", FAMILY_decoders, START_threads, "as threads with a courier each under ThreadSanitizer", 1, false, false, 3, 12, true},
    [GROUP_beside_lifetimes] = {"beside_lifetimes", FAMILY_decoders, START_threads, "as threads with a courier each under AddressSanitizer", 2, false, false, 3, 4, true},
    [GROUP_gpu_1] = {"gpu_1", FAMILY_decoders, START_threads, ON_EMULATOR, 0, true, false, 2, 4, .device = "cudaemu", .third = 1},
    [GROUP_gpu_2] = {"gpu_2", FAMILY_decoders, START_threads, ON_EMULATOR, 0, true, false, 2, 4, .device = "cudaemu", .third = 2},
    [GROUP_gpu_3] = {"gpu_3", FAMILY_decoders, START_threads, ON_EMULATOR, 0, true, false, 2, 4, .device = "cudaemu", .third = 3},
    [GROUP_gpu_bundled] = {"gpu_bundled", FAMILY_bundled, START_processes, "as processes on the emulator of GPUs", 0, true, false, 2, 4, .device = "cudaemu", .third = 1},
    [GROUP_gpu_races] = {"gpu_races", FAMILY_decoders, START_threads, ON_EMULATOR ", four ranks under ThreadSanitizer", 0, true, false, 1, 0, .device = "cudaemu", .four = true},
};

/* ---- what a plan split ---- */

static bool any_extent(const Program *p, const char *dim, const Graph *g, int64_t local)
{
    for (uint32_t v = 0; v < g->nvalue; v++)
        for (int x = 0; x < g->value[v].rank; x++)
            for (uint32_t t = 0; strcmp(dim_of(g, g->value[v].axis[x])->name, dim) == 0 && t < p->ntensor; t++)
                if (p->tensor[t].rank == g->value[v].rank && strcmp(p->tensor[t].path, g->value[v].path) == 0 && p->tensor[t].axis[x].local == local)
                    return true;
    return false;
}

/* Some rank has a part of the axis, of the size it must have. */
static void assert_split(const Model *m, const History *h, const char *dim, int64_t extent, int64_t tp, const char *what)
{
    for (uint32_t r = 0; r < h->n; r++)
        if (any_extent(h->program[r], dim, m->g, extent / tp))
            return;
    fail_msg("%s: '%s' is not split", what, dim);
}

/* By degree of tp: rows in which it split what it must, heads, and the sequence. */
typedef struct Splits { int must[7], heads[7], seq[7]; } Splits;

static int64_t extent_of(const Graph *g, const char *dim)
{
    for (uint32_t d = 0; d < g->ndim; d++)
        if (strcmp(g->dim[d].name, dim) == 0)
            return g->dim[d].extent;
    fail_msg("no axis '%s'", dim);
    return 0;
}

static void check_split(const Model *m, const Row *r, const History *h, Splits *s, const char *what)
{
    const Fixture *f = fixture_of(r);
    int64_t tp = r->at[TP] + 1, parts = (r->at[SEQ] ? tp : 1) * (r->at[CP] + 1);
    for (int i = 0; i < MOST_POSITIONS && f->position[i]; i++)
        assert_split(m, h, f->position[i], extent_of(m->g, f->position[i]), parts, what);
    s->seq[tp] += r->at[SEQ];
    if (tp == 1)
        return;
    for (int i = 0; i < MOST_SPLITS; i++)
        assert_split(m, h, f->split[i].name, f->split[i].extent, tp, what);
    s->must[tp]++;
    if (f->heads && tp != 5) {
        assert_split(m, h, "heads", 12, tp, what);
        s->heads[tp]++;
    }
}

/* A plan executed twice: losses and norms of all steps, weights at the end. */
static void same_bits(const History *x, const History *y, const char *what)
{
    for (int s = 0; s < x->steps; s++)
        for (uint32_t r = 0; r < x->n; r++) {
            const LockRank *a = &x->after[s].rank[r], *b = &y->after[s].rank[r];
            same_scalar(b, b->p->norm, scalar(a, a->p->norm), 0, "norm of the second run", what);
            if (has_tensor(a->p->loss))
                same_scalar(b, b->p->loss, scalar(a, a->p->loss), 0, "loss of the second run", what);
            for (uint32_t i = 0; s == x->steps - 1 && i < a->p->nstate; i++) {
                TensorId w = a->p->state[i].weight;
                if (memcmp(lock_at(a, w, 0, 0), lock_at(b, w, 0, 0), (size_t)tensor_bytes(&a->p->tensor[w.i])) != 0)
                    fail_msg("%s: rank %u: '%s' is not the same the second time", what, r, a->p->state[i].path);
            }
        }
}

/* ---- one row ---- */

/* A row's model on one device. */
typedef struct Reference { Arena *a; const char *key; Model m; History one; } Reference;

/* What rows came to, and the last reference: the next row may have the same. */
typedef struct Done { int plans; Splits split; Reference ref; } Done;

static const char *row_text(Arena *a, const Row *r, const RowGroup *g)
{
    const Setting s = setting_of(a, r, g->large);
    const Pin pin = pin_of(a, r);
    return arena_printf(a, "%s %s: pp=%lld dp=%lld cp=%lld tp=%lld m=%lld clip %d eps %d '%s' %s %s", s.model, s.defines, (long long)pin.pp, (long long)pin.dp, (long long)pin.cp, (long long)pin.tp,
                        (long long)pin.microbatches, r->at[CLIP], r->at[EPS], pin.rules, g->single ? "f32" : "f64", g->how);
}

static Model model_of_row(Arena *a, const Row *r, const RowGroup *g)
{
    Setting s = setting_of(a, r, g->large);
    s.defines = arena_printf(a, "dtype=%s %s", g->single ? "f32" : "f64", s.defines);
    Model m = model_load(s);
    m.g->optimizer.warmup = 0;        /* lockstep has one rate */
    m.g->optimizer.decay = DECAY_NONE;
    if (r->family->values[CLIP] > 1)
        m.g->optimizer.clip = r->at[CLIP] ? CLIPPED : 0;
    if (r->family->values[EPS] > 1)
        m.g->optimizer.eps = r->at[EPS] ? 1 : 1e-8;
    return m;
}

static void run_pin(History *h, Model *m, const Row *r, Pin pin, const RowGroup *g, Start start, bool beside, const char *what)
{
    const Begun begun = {fixture_of(r), classes_of(m->g)};
    const Executor *executor = executor_named(m->a, start == START_lockstep ? NULL : g->device);
    const Plan plan = plan_of(m, pin);
    Program *const *p = lower_programs(m, &plan);
    for (uint32_t i = 0; i < plan.ndevices; i++)
        p[i]->comm_threads = beside;
    history_run(h, m->a, p, plan.ndevices, g->steps, start, &(Beginning){fill_fixture, &begun, executor, executor != &executor_cpu}, what);
}

/* What is known of a model on one device: the cost of a head of zeros, and that its norm is
 * large enough to be clipped. */
static void check_one(const Row *r, const History *one, const Limits *limits, const char *what)
{
    const LockRank *x = &one->after[0].rank[0];
    double loss = scalar(x, x->p->loss), norm = scalar(x, x->p->norm);
    if (fixture_of(r)->zeroed && fabs(loss - log(VOCAB)) > limits->loss)
        fail_msg("%s: a head of zeros costs %.17g, not ln %d", what, loss, VOCAB);
    if (r->at[CLIP] && norm <= CLIPPED)
        fail_msg("%s: a norm of %g is not clipped", what, norm);
}

static void close_reference(Reference *ref)
{
    if (!ref->a)
        return;
    history_close(&ref->one);
    arena_free(ref->m.a);
    arena_free(ref->a);
}

static const History *reference_of(Reference *ref, const Row *r, const RowGroup *g, const char *what)
{
    Arena *a = arena_new("reference");
    const char *key = arena_printf(a, "%d %s clip %d eps %d", r->at[MODEL], setting_of(a, r, g->large).defines, r->at[CLIP], r->at[EPS]);
    if (ref->a && strcmp(key, ref->key) == 0) {
        arena_free(a);
        return &ref->one;
    }
    close_reference(ref);
    *ref = (Reference){.a = a, .key = key, .m = model_of_row(a, r, g)};
    run_pin(&ref->one, &ref->m, r, (Pin){1, 1, 1, 1, 1, ""}, g, START_lockstep, false, what);
    check_one(r, &ref->one, g->single ? &in_f32 : &in_f64, what);
    return &ref->one;
}

static void check_row(const Row *r, const RowGroup *g, bool twice, Done *done)
{
    Arena *a = arena_new("row");
    const char *what = row_text(a, r, g);
    const Limits *limits = g->single ? &in_f32 : &in_f64;
    Model m = model_of_row(a, r, g);
    History all, again;
    const History *one = reference_of(&done->ref, r, g, what);
    run_pin(&all, &m, r, pin_of(a, r), g, g->start, g->beside, what);
    check_split(&m, r, &all, &done->split, what);
    same_history(one, &all, limits, what);
    if (twice) {
        run_pin(&again, &m, r, pin_of(a, r), g, g->start, false, what);
        same_bits(&all, &again, what);
        history_close(&again);
    }
    history_close(&all);
    arena_free(m.a);
    arena_free(a);
    done->plans++;
}

/* ---- groups ---- */

static Rows two_of_four(const Rows *all)
{
    Rows four = {.n = 0};
    for (int i = 0; i < all->n; i++)
        if (ranks_of(&all->row[i]) == 4)
            four.row[four.n++] = all->row[i];
    assert_true(four.n >= 2);
    return (Rows){.n = 2, .row = {four.row[0], four.row[four.n / 2]}};
}

static Rows rows_of(const RowGroup *g)
{
    const Rows all = rows_of_all_pairs(&families[g->family]);
    if (g->four)
        return two_of_four(&all);
    if (g->dozen < 0)
        return all;
    Rows dozen = dozen_of(&all, g->dozen), third = {.n = 0};
    for (int i = g->third - 1; g->third && i < dozen.n; i += 3)
        third.row[third.n++] = dozen.row[i];
    return g->third ? third : dozen;
}

static const char *group_title(Arena *a, const RowGroup *g)
{
    const Rows rows = rows_of(g);
    return arena_printf(a, "%d plans of %s %s in %s, seq %s, %d steps; %d of them twice", rows.n, g->family == FAMILY_bundled ? "bundled models" : "decoders", g->how, g->single ? "f32" : "f64", g->large ? "60" : "12 to 24", g->steps,
                        g->twice ? (rows.n + g->twice - 1) / g->twice : 0);
}

/* Each degree of tp split what it must, and the sequence; those that divide them, heads. */
static void assert_all_split(const Fixture *f, const Family *family, const Splits *s)
{
    for (int tp = 2; tp <= family->values[TP]; tp++)
        if (s->must[tp] == 0 || (s->seq[tp] == 0) == (f->position[0] != NULL) || (s->heads[tp] == 0) == (f->heads && tp != 5))
            fail_msg("tp = %d split what it must in %d rows, the sequence in %d, heads in %d", tp, s->must[tp], s->seq[tp], s->heads[tp]);
}

static void run_group(void **state)
{
    const RowGroup *g = *state;
    const Rows rows = rows_of(g);
    Done done = {.plans = 0};
    for (int i = 0; i < rows.n; i++)
        check_row(&rows.row[i], g, g->twice && i % g->twice == 0, &done);
    close_reference(&done.ref);
    if (g->dozen < 0)
        assert_all_split(&families[g->family].fixture[0], &families[g->family], &done.split);
}

/* ---- all rows ---- */

/* To the next row that is a plan, of the same model; false: there is none.  The fastest
 * dimensions are those that do not change the reference. */
static bool next_plan(Row *r)
{
    static const Dimension order[] = {SEQ, SCHEDULE, RECOMPUTED, SHARDED, PP, TP, CP, EPS, CLIP, MICRO, DP};
    const uint8_t *values = r->family->values;
    size_t k = 0, n = sizeof order / sizeof *order;
    do {
        for (k = 0; k < n && ++r->at[order[k]] == values[order[k]]; k++)
            r->at[order[k]] = 0;
    } while (k < n && !is_plan(r));
    return k < n;
}

static int count_plans(Row r)
{
    int n = 1;
    while (next_plan(&r))
        n++;
    return n;
}

/* In lockstep and as threads by turns. */
static void every_plan(void **state)
{
    static const RowGroup by_turns[] = {{.start = START_lockstep, .how = "in lockstep", .steps = 2}, {.start = START_threads, .how = "as threads", .steps = 2}};
    Row r = *(const Row *)*state;
    Done done = {.plans = 0};
    do
        check_row(&r, &by_turns[done.plans % 2], done.plans % 8 == 7, &done);
    while (next_plan(&r));
    close_reference(&done.ref);
    assert_all_split(fixture_of(&r), r.family, &done.split);
    assert_int_equal(done.plans, count_plans(*(const Row *)*state));
}

/* ---- what is refused ---- */

static void heads_that_do_not_divide(void **unused)
{
    (void)unused;
    Model m = model_load((Setting){"tiny_llama", "vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120 seq=12", NULL});
    Plan plan = plan_of(&m, (Pin){1, 1, 1, 5, 1, "split heads, ffn, vocab by tp"});
    Program *p;
    assert_int_equal(codegen(m.a, m.ds, m.g, &plan, m.cl, 0, NULL, &p), ERR_REJECT);
    assert_int_equal(m.ds->errors, 1);
    assert_non_null(strstr(m.ds->first->text, "cannot split 'heads' (12) by tp = 5"));
    arena_free(m.a);
}

/* ---- rows for prun ---- */

/* An input of all steps, as fill_fixture() makes that of one. */
static STensor samples_of(Arena *a, const Input *in, const Fixture *f, int64_t classes, int64_t steps)
{
    STensor t = {.name = in->name, .dtype = in->dtype == DT_f64 ? DT_f32 : in->dtype, .rank = in->rank};
    int64_t n = 1;
    for (uint8_t x = 0; x < in->rank; x++)
        n *= t.extent[x] = in->extent[x] * (x == 0 ? steps : 1);
    t.bytes = n * dtype_bytes(t.dtype);
    char *data = arena_alloc(a, (size_t)t.bytes);
    const Tensor shape = {.dtype = t.dtype};
    for (int64_t i = 0; i < n; i++)
        if (dtype_is_float(t.dtype))
            real_put(&shape, data, i, lock_noise(in->name, i));
        else
            int_put(&shape, data, i, integer_of(f, in, classes, i));
    t.data = data;
    return t;
}

/* The words after --data. */
static const char *write_data(Arena *a, const char *path, Model *m, const Row *r, const RowGroup *g)
{
    enum { MOST_INPUTS = 8 };
    const Plan one = plan_of(m, (Pin){1, 1, 1, 1, 1, ""});
    const Program *p = lower_programs(m, &one)[0];
    STensor t[MOST_INPUTS];
    Text words = text_new(a);
    assert_in_range(p->ninput, 1, MOST_INPUTS);
    for (uint32_t k = 0; k < p->ninput; k++) {
        t[k] = samples_of(a, &p->input[k], fixture_of(r), classes_of(m->g), g->steps);
        text_add(&words, "%s%s=%s", k ? " " : "", p->input[k].name, path);
    }
    assert_int_equal(sfile_write(a, path, t, p->ninput), OK);
    return words.s;
}

static const char *write_model(Arena *a, const char *dir, const Fixture *f)
{
    if (!f->of.text)
        return model_file(a, f->of.model);
    const char *path = arena_printf(a, "%s/%s.pmodel", dir, f->name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(f->of.text, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* What the family varies of the optimizer; else its own, but for a warm-up that ends. */
static const char *settings_of(Arena *a, const Row *r, const Model *m)
{
    if (r->family->values[CLIP] == 1)
        return "warmup=1";
    return arena_printf(a, "clip=%g eps=%s", m->g->optimizer.clip, r->at[EPS] ? "1" : "1e-8");
}

/* What the rows of a group are made of, with '|' between, a line each: ranks, the model's
 * file, its defines, the rules of the plan, settings of the optimizer, steps, data. */
static void write_rows(const char *dir, const RowGroup *g)
{
    const Rows rows = rows_of(g);
    for (int i = 0; i < rows.n; i++) {
        const Row *r = &rows.row[i];
        Arena *a = arena_new("row");
        const Pin pin = pin_of(a, r);
        Model m = model_of_row(a, r, g);
        printf("%lld|%s|%s|mesh pp = %lld, dp = %lld, cp = %lld, tp = %lld; microbatches = %lld; bucket = 20 kB; %s|%s|%d|%s\n", (long long)ranks_of(r),
               write_model(a, dir, fixture_of(r)), setting_of(a, r, g->large).defines, (long long)pin.pp, (long long)pin.dp, (long long)pin.cp, (long long)pin.tp,
               (long long)pin.microbatches, pin.rules, settings_of(a, r, &m), g->steps,
               write_data(a, arena_printf(a, "%s/%s.%d.data", dir, g->name, i), &m, r, g));
        arena_free(m.a);
        arena_free(a);
    }
}

/* ---- what is asked for ---- */

/* Its title says what it runs. */
static struct CMUnitTest group_test(Arena *a, RowGroup *g)
{
    return (struct CMUnitTest){group_title(a, g), run_group, NULL, NULL, g};
}

static int run_one_group(RowGroup g)
{
    Arena *a = arena_new("titles");
    const struct CMUnitTest tests[] = {group_test(a, &g)};
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(a);
    return bad;
}

static int run_usual(void)
{
    Arena *a = arena_new("titles");
    RowGroup lockstep = groups[GROUP_lockstep], lifetimes = groups[GROUP_lifetimes], beside = groups[GROUP_beside_lifetimes], models = groups[GROUP_bundled];
    const struct CMUnitTest tests[] = {group_test(a, &lockstep), group_test(a, &lifetimes), group_test(a, &beside), group_test(a, &models), cmocka_unit_test(heads_that_do_not_divide)};
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(a);
    return bad;
}

/* The first of a model's rows, each value 0. */
static int run_model(Row first)
{
    Arena *a = arena_new("titles");
    const char *title = arena_printf(a, "all %d plans of %s, in lockstep and as threads by turns, f64, seq 12 to 24", count_plans(first), fixture_of(&first)->name);
    const struct CMUnitTest tests[] = {{title, every_plan, NULL, NULL, &first}};
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(a);
    return bad;
}

static const RowGroup *group_named(const char *name)
{
    for (int i = 0; i < GROUPS; i++)
        if (strcmp(groups[i].name, name) == 0)
            return &groups[i];
    return NULL;
}

/* Of a model, a group, or the names of all models. */
static int run_named(const char *name)
{
    bool list = strcmp(name, "models") == 0;
    for (int f = 0; f < FAMILIES; f++)
        for (uint8_t i = 0; i < families[f].values[MODEL]; i++)
            if (list)
                puts(families[f].fixture[i].name);
            else if (strcmp(families[f].fixture[i].name, name) == 0)
                return run_model((Row){&families[f], {[MODEL] = i}});
    const RowGroup *g = group_named(name);
    return g ? run_one_group(*g) : !list;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "write") == 0) {
        const RowGroup *g = group_named(argv[3]);
        if (g)
            write_rows(argv[2], g);
        return g == NULL;
    }
    return argc > 1 ? run_named(argv[1]) : run_usual();
}
