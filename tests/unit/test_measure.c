/* What `prun calibrate` measures with: shapes of instructions, rounds, curves, and the text
 * of a cluster; every part of it with a small budget. */
#include <math.h>

#include "runtime/measure/curve.h"
#include "runtime/measure/device.h"
#include "tests/unit/syntax.h"

#include "frontend/frontend.h"

static const Machine *here(void)
{
    static Machine m;
    m = (Machine){.executor = &executor_cpu, .memory = (int64_t)1 << 30, .isa = isa_best()};
    return &m;
}

/* ---- instructions ---- */

/* Every op that a device is measured by runs on memory of its own, in one thread and in
 * two: the sanitizer sees what is read or written beside it. */
static void test_ops(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        Arena *a = arena_new("bench");
        Bench *b = bench_new(a, here(), DT_f32, threads, 100000);
        uint32_t n = 0;
        for (OpKind op = 0; op < OP_KINDS; op++)
            if (ops_timed(here(), op, DT_f32))
                n += ops_add_one(b, op, 3, 40) == n;
        assert_true(n > 50);
        assert_int_equal(n, b->nitem);
        assert_int_equal(bench_open(b), OK);
        assert_int_equal(bench_run(b, 0.01, 0), OK);
        for (uint32_t i = 0; i < n; i++)
            assert_true(b->probe[i].seconds > 0);
        bench_close(b);
        arena_free(a);
    }
}

/* Peaks are measured of every type that has a kernel for products: a bench runs it. */
static void test_types(void **state)
{
    (void)state;
    int n = 0;
    for (DType t = 0; t < DTYPES; t++) {
        if (!kernel_find(OP_contract, t, isa_best()))
            continue;
        Arena *a = arena_new("bench");
        Bench *b = bench_new(a, here(), t, 1, 1000);
        bench_add(b, OP_contract, "x[m, k], w[k, n] -> [m, n]", (Extent[]){{"m", 3}, {"k", 5}, {"n", 7}, {0}});
        assert_int_equal(bench_open(b), OK);
        assert_int_equal(bench_run(b, 0.001, 0), OK);
        assert_true(b->probe[0].seconds > 0);
        bench_close(b);
        arena_free(a);
        n++;
    }
    assert_int_equal(n, 3);
}

static double work_of(OpKind op, const char *signature, const Extent *extent)
{
    Arena *a = arena_new("bench");
    Bench *b = bench_new(a, here(), DT_f32, 1, 0);
    double work = bench_work(b, bench_add(b, op, signature, extent));
    arena_free(a);
    return work;
}

static void test_work(void **state)
{
    (void)state;
    assert_true(work_of(OP_contract, "x[m, k], dy[m, n] -> [k, n]", (Extent[]){{"m", 3}, {"k", 5}, {"n", 7}, {0}}) == 2 * 3 * 5 * 7);
    assert_true(work_of(OP_add, NULL, (Extent[]){{"..", 3}, {"..", 5}, {0}}) == 3 * 3 * 5 * 4);
    /* in place: four are read and three written */
    assert_true(work_of(OP_adamw, NULL, (Extent[]){{"..", 100}, {0}}) == 7 * 400 + 4);
    /* a bias is there, a mask is not */
    assert_true(work_of(OP_layernorm, NULL, (Extent[]){{"..", 3}, {"d", 8}, {0}}) == 4 * (2 * 24 + 2 * 8 + 2 * 3));
    assert_true(work_of(OP_softmax, NULL, (Extent[]){{"..", 3}, {"d", 8}, {0}}) == 4 * 2 * 24);
}

static void test_updates_in_place(void **state)
{
    (void)state;
    Arena *a = arena_new("bench");
    Bench *b = bench_new(a, here(), DT_f32, 1, 0);
    bench_add(b, OP_adamw, NULL, (Extent[]){{"..", 100}, {0}});
    const Instr *in = &b->program->instr[0];
    assert_int_equal(in->out[0].i, in->arg[0].i);
    assert_int_equal(in->out[1].i, in->arg[2].i);
    assert_int_equal(in->out[2].i, in->arg[3].i);
    arena_free(a);
}

static int64_t place_of(const Bench *b, TensorId t)
{
    return b->program->tensor[t.i].at;
}

/* Copies read elsewhere but for what was just made, and update what they read. */
static void test_copies(void **state)
{
    (void)state;
    Arena *a = arena_new("bench");
    Bench *b = bench_new(a, here(), DT_f32, 1, 100000);
    uint32_t mul = bench_add(b, OP_mul, NULL, (Extent[]){{"..", 1000}, {0}}), adamw = bench_add(b, OP_adamw, NULL, (Extent[]){{"..", 1000}, {0}});
    assert_true(b->item[mul].copies >= 100000 / 12000 && b->item[mul].copies <= 100000 / 12000 + 1);
    for (uint32_t k = 1; k < b->item[mul].copies; k++) {
        const Instr *first = bench_instr(b, mul), *in = &b->program->instr[b->item[mul].first + k];
        assert_int_equal(in->arg[0].i, first->arg[0].i);
        assert_true(place_of(b, in->arg[1]) - place_of(b, first->arg[1]) >= 8000 * (int64_t)k);
        assert_true(place_of(b, in->out[0]) - place_of(b, first->out[0]) >= 4000 * (int64_t)k);
    }
    const Instr *in = &b->program->instr[b->item[adamw].first + 1];
    assert_true(place_of(b, in->arg[0]) > place_of(b, bench_instr(b, adamw)->arg[0]));
    assert_int_equal(in->out[0].i, in->arg[0].i);
    assert_int_equal(in->out[2].i, in->arg[3].i);
    arena_free(a);
}

/* On a GPU, of its reserve, half of which cuDNN may have as scratch: for the gradient of an attention that is 2 bytes for each
 * query, head and key, and where it is too much another kernel is timed than a plan will run. */
static void test_reserve(void **state)
{
    (void)state;
    Arena *a = arena_new("bench");
    const Machine gpu = {.executor = &executor_cpu, .devices = 1, .memory = (int64_t)139 << 30, .device_memory = (int64_t)140 << 30, .isa = isa_best()};
    assert_int_equal(bench_new(a, here(), DT_bf16, 1, 0)->program->reserve, 0);
    Bench *b = bench_new(a, &gpu, DT_bf16, 0, 0);
    const Instr *in = bench_instr(b, ops_add_one(b, OP_attention_grad, 8, 2048));
    const Tensor *dy = &b->program->tensor[in->arg[0].i];
    assert_int_equal(tensor_elements(dy), 8 * 2048 * 12 * 64);
    assert_in_range(b->program->reserve / 2, 2 * (uint64_t)tensor_elements(dy) / 64 * 2048, gpu.device_memory / 32);
    const Measured least = {.machine = gpu, .one = {.of = {.reserve = gpu.device_memory - gpu.memory}}};
    assert_true(measure_reserve(&least) >= (double)b->program->reserve);
    arena_free(a);
}

/* ---- rounds ---- */

typedef struct Script { double each; int64_t calls; double noise[3]; } Script;

/* A clock of its own: every third turn is disturbed. */
static double scripted(void *ctx, int64_t times)
{
    Script *s = ctx;
    return s->each * (double)times * (1 + s->noise[s->calls++ % 3]);
}

static void test_rounds(void **state)
{
    (void)state;
    Script s[] = {{.each = 1e-3}, {.each = 2e-5, .noise = {0, 9, 0}}, {.each = 5}, {.each = 1e-4, .noise = {-0.3, 0, 0.3}}};
    Probe p[4];
    for (int i = 0; i < 4; i++)
        p[i] = (Probe){.time = scripted, .ctx = &s[i]};
    rounds_run(p, 4, 0.05, 1);
    assert_true(fabs(p[0].seconds - 1e-3) < 1e-9 && p[0].spread < 1e-9);
    assert_true(fabs(p[1].seconds - 2e-5) < 1e-9);   /* the median knows nothing of a neighbour */
    assert_true(p[2].seconds == 0 && s[2].calls <= 2);           /* too slow */
    assert_true(fabs(p[3].seconds - 1e-4) < 1e-9 && p[3].spread > 0.2);
    assert_true(rounds_spread(p, 4).worst >= p[3].spread);
}

/* Sizes of a slow kind and of a fast one, the largest first: called are those that are worth it by the pace of smaller ones. */
static void test_sizes(void **state)
{
    (void)state;
    enum { SIZES = 4, N = 2 * SIZES };
    static const struct { double seconds, most; int slow, fast; } cases[] = {   /* how many sizes of each kind are called */
        {100, 0.15, 3, 4},            /* of 1 ms, 10 ms, 0.1 s and 1 s */
        {100, 0.26, 4, 4},            /* what may take less than four times as long as it should is called to see, */
        {100, 0, 4, 4},
        {0.2, 0.15, 2, 4},            /* a tenth of a second five times is too much */
        {0, 0.15, 1, 1},              /* the smallest are called however little time there is */
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Script s[N] = {{0}};
        Probe p[N];
        int slow = 0, fast = 0;
        for (int i = 0; i < N; i++) {
            double work = pow(10, 6 - i / 2);
            s[i].each = work * (i % 2 ? 1e-9 : 1e-6);
            p[i] = (Probe){.time = scripted, .ctx = &s[i], .like = (uint32_t)i % 2, .work = work};
        }
        rounds_run(p, N, cases[k].seconds, cases[k].most);
        for (int i = 0; i < N; i++)
            *(i % 2 ? &fast : &slow) += s[i].calls > 0;
        assert_int_equal(slow, cases[k].slow);
        assert_int_equal(fast, cases[k].fast);
    }
}

static void test_judge(void **state)
{
    (void)state;
    assert_int_equal(spread_judge("figures", (Spread){0.1, 3}), OK);
    assert_int_equal(spread_judge("figures", (Spread){0.9, 3}), ERR_DEVICE);
    assert_int_equal(spread_judge("figures", (Spread){INFINITY, INFINITY}), ERR_DEVICE);
}

/* ---- curves ---- */

static double fraction_at(const Curve *c, double at)
{
    uint32_t i = 0;
    while (i < c->npoint && c->point[i].at <= at)
        i++;
    if (i == 0 || i == c->npoint)
        return c->point[i ? i - 1 : 0].fraction;
    const CurvePoint *x = &c->point[i - 1], *y = &c->point[i];
    return x->fraction + (y->fraction - x->fraction) * log(at / x->at) / log(y->at / x->at);
}

static void check_curve(const Curve *c, double most)
{
    double before = 0;
    for (uint32_t i = 0; i < c->npoint; i++) {
        assert_true(c->point[i].fraction > 0 && c->point[i].fraction <= most);
        assert_true(i == 0 || c->point[i].at > c->point[i - 1].at);
    }
    for (double at = 1; at < 1e12; at *= 1.03) {
        assert_true(at / fraction_at(c, at) >= before);
        before = at / fraction_at(c, at);
    }
}

static void test_curve(void **state)
{
    (void)state;
    Arena *a = arena_new("curve");
    Timing even[] = {{1e6, 1e-5}, {1e7, 2e-5}, {1e8, 1e-4}};
    Curve c = curve_fit(a, even, 3, 1e12, 1, 1);
    assert_int_equal(c.npoint, 3);
    assert_true(c.point[1].fraction == 0.5 && c.point[2].at == 1e8);
    check_curve(&c, 1);
    Timing like[] = {{1e6, 2e-6}, {1.1e6, 1.1e-6}, {1.2e6, 1.2e-5}};
    c = curve_fit(a, like, 3, 1e12, 1, 2);
    assert_true(c.npoint == 1 && c.point[0].fraction == 0.5);
    /* noise that has a larger one take less: both take their mean */
    Timing falling[] = {{1e6, 2e-6}, {8e6, 1.1e-5}, {1e7, 0.9e-5}};
    c = curve_fit(a, falling, 3, 2e12, 1, 1);
    assert_true(c.npoint == 3 && c.point[2].fraction == 0.5);
    c = curve_fit(a, like, 0, 1e12, 1, 2);
    assert_int_equal(c.npoint, 0);
    arena_free(a);
}

/* Times with noise of a factor of up to 16 make curves under which time still grows. */
static void test_noisy_curves(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 300; seed++) {
        Arena *a = arena_new("curve");
        Timing t[24];
        for (uint32_t i = 0; i < 24; i++) {
            Philox x = philox4(seed, 1, i, 0);
            double work = pow(10, 3 + 9 * x.word[0] * 0x1p-32);
            t[i] = (Timing){work, i % 7 == 0 ? 0 : work / 1e11 * pow(16, x.word[1] * 0x1p-32)};
        }
        double most = seed % 2 ? 1 : CURVE_MOST_MEMORY;
        Curve c = curve_fit(a, t, 24, 1e11, most, seed % 3 ? 1 : 3);
        assert_true(c.npoint > 0);
        check_curve(&c, most);
        arena_free(a);
    }
}

/* ---- the machine ---- */

static MeasureOptions small(void)
{
    Arena *a = arena_new("machine");
    Machine m;
    assert_int_equal(machine_read(a, &executor_cpu, &m), OK);
    assert_true(m.cores > 0 && m.memory > 0);
    m.name = "a processor";
    m.memory = 8 << 20;
    m.cache = 1 << 20;
    arena_free(a);
    return (MeasureOptions){.machine = m};
}

/* Where others have the cores, times may differ too much for figures: then it is tried again, and skipped where that is of no use. */
static void test_link(void **state)
{
    (void)state;
    Arena *a = arena_new("link");
    MeasureOptions o = small();
    MeasuredLink m = {.ranks = 0};
    Status s = ERR_DEVICE;
    for (int tries = 0; tries < 5 && s == ERR_DEVICE; tries++)
        s = link_measure(a, &o, (int[]){2, 3}, 2, 0.02, &m);
    arena_free(a);
    if (s == ERR_DEVICE) {
        printf("skip figures of a link: the machine is too busy\n");
        return;
    }
    assert_int_equal(s, OK);
    assert_int_equal(m.ranks, 3);
    assert_true(m.of.link > 0 && m.of.latency > 0 && m.of.efficiency > 0 && m.of.efficiency <= 1 && m.apart >= 1);
}

static void test_copying(void **state)
{
    (void)state;
    Arena *a = arena_new("copying");
    MeasureOptions o = small();
    double bandwidth[2];
    Spread spread;
    Status s = copying_measure(a, &o, 0.02, (int[]){1, 2}, 2, bandwidth, &spread);
    assert_true(s == OK || s == ERR_DEVICE);
    assert_true(bandwidth[0] > 0 && bandwidth[1] > 0);
    arena_free(a);
}

/* ---- the text ---- */

static CurvePoint matmul_points[] = {{1e6, 0.4}, {1e9, 0.95}}, memory_points[] = {{6e4, 3.25}, {1.28e8, 0.9}};

static MeasuredDevice a_device(Arena *a, int threads)
{
    MeasuredDevice d = {.of = {.backend = BACKEND_CPU, .threads = threads, .bandwidth = 1.2345e10, .launch = 1.5e-7}, .products = 96, .ops = 200};
    d.of.peak[DT_f32] = 1.1111e11;
    d.of.peak[DT_f64] = 5e10;
    d.of.efficiency = (Curve){matmul_points, 2};
    d.of.memory_efficiency = (Curve){memory_points, 2};
    for (OpKind op = 0; op < OP_KINDS; op++)
        if (ops_timed(here(), op, DT_f32)) {
            OpCurve c = {.op = op, .curve = op_computes(op) ? d.of.efficiency : d.of.memory_efficiency};
            PUSH(a, d.of.of_op, d.of.nof_op, c);
            c.typed = 1 + DT_bf16;
            PUSH(a, d.of.of_op, d.of.nof_op, c);
            c.with = op_option(op, "bias");
            if (op == OP_attention)
                PUSH(a, d.of.of_op, d.of.nof_op, c);
        }
    return d;
}

static Measured made_up(Arena *a)
{
    static const int threads[] = {1, 2};
    static double bandwidth[] = {1.2345e10, 2e10};
    MeasureOptions o = small();
    MeasuredLink l = {.ranks = 2, .of = {.link = 9e9, .latency = 4e-7, .efficiency = 0.75}, .apart = 1.25};
    o.machine.cores = 2;
    o.machine.memory = (int64_t)16 << 30;
    return (Measured){.machine = o.machine, .one = a_device(a, 1), .all = a_device(a, 2), .threads = threads, .bandwidth = bandwidth,
                      .ncopying = 2, .link = l, .crowd = l};
}

/* Cluster `name` of a text, of so many devices (0: as it says). */
static const Cluster *cluster_of(Run *r, const char *name, const char *devices)
{
    Cluster *cl = NULL;
    Define d = {.name = "devices", .value = devices};
    if (devices) {
        Source *s = sources_add(r->ds->sources, "d", devices, strlen(devices));
        d.at = (Span){s->start, s->start + s->bytes};
    }
    assert_int_equal(elaborate_cluster(r->ds, &r->units, name, &d, devices ? 1 : 0, r->arena, &cl), OK);
    assert_null(r->ds->first);
    assert_int_equal(cluster_check(cl, stderr), 0);
    return cl;
}

/* A thread that communicates has a core, or there is none. */
static void test_pairs(void **state)
{
    (void)state;
    for (int cores = 1; cores < 9; cores++) {
        Arena *a = arena_new("text");
        Measured m = made_up(a);
        m.machine.cores = cores;
        const char *text = measure_text(a, &m, "0");
        assert_true((strstr(text, "comm_threads") != NULL) == (cores >= 4));
        Run r = run_text(text);
        assert_int_equal(cluster_of(&r, NULL, NULL)->device[0].comm_threads, 0);
        if (cores >= 4) {
            const Cluster *pairs = cluster_of(&r, "pairs", NULL);
            const Device *d = &pairs->device[0];
            assert_true(d->threads == 1 && d->comm_threads == 1 && pairs->ndevices >= 2);
            assert_in_range(pairs->ndevices * 2, cores - 1, cores);
            assert_true(pairs->ndevices * d->memory <= m.machine.memory);
        }
        arena_free(r.arena);
        arena_free(a);
    }
}

static void test_text(void **state)
{
    (void)state;
    Arena *a = arena_new("text");
    Measured m = made_up(a);
    Run r = run_text(measure_text(a, &m, "0"));
    const Cluster *one = cluster_of(&r, "this1", NULL), *usual = cluster_of(&r, NULL, NULL), *four = cluster_of(&r, "crowd", NULL);
    assert_int_equal(one->ndevices, 1);
    assert_int_equal(one->device[0].threads, 2);
    assert_string_equal(usual->name, "this");
    assert_int_equal(usual->ndevices, 2);
    assert_int_equal(four->ndevices, 4);
    assert_int_equal(cluster_of(&r, "crowd", "8")->ndevices, 8);
    const Device *d = &usual->device[0];
    assert_true(d->bandwidth == 1.23e10 && d->peak[DT_f32] == 1.11e11 && d->launch == 1.5e-7);
    assert_int_equal(d->nof_op, m.one.of.nof_op);
    assert_true(device_curve(d, OP_adamw)->point[0].fraction == 3.25);
    for (uint32_t i = 0; i < d->nof_op; i++)
        assert_int_equal(op_curve_order(&d->of_op[i], &m.one.of.of_op[i]), 0);
    assert_true(usual->level[0].link == 9e9 && usual->level[0].cores == 2 && usual->level[0].bandwidth == 2e10);
    /* no devices together have more than was free */
    assert_true(2 * d->memory <= m.machine.memory && 4 * four->device[0].memory <= m.machine.memory);
    arena_free(r.arena);
    arena_free(a);
}

/* ---- devices that are not the processor ---- */

/* Two of them, or one, which has no link. */
static Measured made_up_devices(Arena *a, int devices, const char *name)
{
    MeasureOptions o = small();
    MeasuredDevice d = a_device(a, 0);
    d.of.reserve = (int64_t)600 << 20;
    Measured m = {.machine = o.machine, .one = d, .all = d, .copies = {{1e6, 64e6}, {2e12, 3.3e12}, 2, 5.5e10}};
    m.machine.name = name;
    m.machine.devices = devices;
    m.machine.device_memory = (int64_t)64 << 30;
    m.machine.host_memory = (int64_t)100 << 30;
    if (devices > 1)
        m.link = (MeasuredLink){.ranks = devices, .largest = 1 << 24, .beside = (int64_t)900 << 20, .of = {.link = 9e10, .latency = 1e-6, .efficiency = 1}, .apart = 1.25};
    return m;
}

static void test_devices(void **state)
{
    (void)state;
    for (int devices = 1; devices <= 2; devices++) {
        Arena *a = arena_new("text");
        Measured m = made_up_devices(a, devices, "NVIDIA H200");
        Run r = run_text(measure_text(a, &m, "0"));
        const Cluster *c = cluster_of(&r, NULL, NULL);
        const Device *d = &c->device[0];
        assert_string_equal(c->name, devices == 1 ? "nvidia_h200_x1" : "nvidia_h200_x2");
        assert_string_equal(d->name, "nvidia_h200");
        assert_string_equal(d->doc, "NVIDIA H200");
        assert_int_equal(c->ndevices, devices);
        assert_true(d->backend == BACKEND_CUDA && d->threads == 0);
        assert_true(d->memory == (int64_t)64 << 30 && d->reserve == ((int64_t)(devices == 1 ? 600 : 900) + 2048) << 20);
        assert_true(d->bandwidth == 1.23e10 && d->peak[DT_f32] == 1.11e11 && d->nof_op == m.one.of.nof_op);
        assert_true(c->host_link == 5.5e10 && c->host_memory == (double)((int64_t)90 << 30));
        assert_true(c->level[0].link == (devices == 1 ? 0 : 9e10));
        arena_free(r.arena);
        arena_free(a);
    }
}

/* Whatever a driver calls a device, it has a name. */
static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"", "8 \"x\" \\ y", "--", "GeForce RTX 4090 Ti (TM)", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Arena *a = arena_new("text");
        Measured m = made_up_devices(a, 1, names[i]);
        Run r = run_text(measure_text(a, &m, "0"));
        assert_int_equal(cluster_of(&r, NULL, NULL)->ndevices, 1);
        arena_free(r.arena);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops), cmocka_unit_test(test_types), cmocka_unit_test(test_work), cmocka_unit_test(test_updates_in_place), cmocka_unit_test(test_copies), cmocka_unit_test(test_reserve), cmocka_unit_test(test_rounds), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_judge), cmocka_unit_test(test_curve), cmocka_unit_test(test_noisy_curves), cmocka_unit_test(test_link),
        cmocka_unit_test(test_copying), cmocka_unit_test(test_text), cmocka_unit_test(test_pairs), cmocka_unit_test(test_devices), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
