/* Text forms of the IRs: what prints reads back, and damaged text is refused
 * with its line, never a crash. */
#include "tests/unit/lowering.h"

#include "ir/place.h"
#include "ir/profile.h"
#include "ir/quantity.h"

/* ---- streams in memory ---- */

typedef void (*Printer)(FILE *, const void *);

static void print_graph(FILE *f, const void *g)
{
    graph_print(f, g);
}

static void print_program(FILE *f, const void *p)
{
    program_print(f, p);
}

static char *text_of(Printer print, const void *what)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    print(f, what);
    fclose(f);
    return text;
}

static Status read_graph(Arena *a, char *text, size_t n, FILE *err, Graph **out)
{
    FILE *in = fmemopen(text, n ? n : 1, "r");
    Status s = graph_read(a, in, "dump", err, out);
    fclose(in);
    return s;
}

static Status read_program(Arena *a, char *text, size_t n, FILE *err, Program **out)
{
    FILE *in = fmemopen(text, n ? n : 1, "r");
    Status s = program_read(a, in, "dump", err, out);
    fclose(in);
    return s;
}

/* ---- round trips ---- */

static void add_extras(Graph *g)
{
    g->doc = "a \"quoted\" doc \\ with\na line end";
    PUSH(g->arena, g->override, g->noverride, ((Override){"dtype", "bf16"}));
    g->optimizer.lr = 0.1;
    g->optimizer.decay = DECAY_COSINE;
    g->weight[0].init = (Init){INIT_uniform, -1.0 / 3, 1e300, 768, 3072};
}

static void a_graph_reads_back(void **state)
{
    (void)state;
    for (int model = 0; model < 2; model++) {
        Build b = build_new(4);
        if (model)
            llama(&b, tiny);
        else
            gpt2(&b, tiny);
        add_extras(b.g);
        assert_int_equal(graph_check(b.g, stderr), 0);
        char *once = text_of(print_graph, b.g);
        Graph *again = NULL;
        assert_int_equal(read_graph(b.a, once, strlen(once), stderr, &again), OK);
        char *twice = text_of(print_graph, again);
        assert_string_equal(once, twice);
        assert_int_equal(graph_parameters(again), graph_parameters(b.g));
        assert_true(again->weight[0].init.a == -1.0 / 3);
        assert_string_equal(again->doc, b.g->doc);
        free(once);
        free(twice);
        build_free(&b);
    }
}

static void a_program_reads_back(void **state)
{
    (void)state;
    for (int model = 0; model < 2; model++) {
        Build b = build_new(4);
        if (model)
            llama(&b, tiny);
        else
            gpt2(&b, tiny);
        Program *p = lowered(&b, 2), *again = NULL;
        char *once = text_of(print_program, p);
        assert_int_equal(read_program(b.a, once, strlen(once), stderr, &again), OK);
        char *twice = text_of(print_program, again);
        assert_string_equal(once, twice);
        assert_true(program_hash(p) == program_hash(again));
        again->instr[0].flops += 1;
        assert_true(program_hash(p) != program_hash(again));
        free(once);
        free(twice);
        build_free(&b);
    }
}

/* The update on a stream of its own, which waits for all of backward. */
static void streams_and_waits_read_back(void **state)
{
    (void)state;
    Build b = build_new(4);
    gpt2(&b, tiny);
    Program *p = lowered(&b, 2), *again = NULL;
    const Proc *update = proc(p, PROC_update), *backward = proc(p, PROC_backward);
    for (uint32_t i = update->first; i < update->end; i++)
        p->instr[i].stream = STREAM_gradient;
    PUSH(b.a, p->wait, p->nwait, ((Wait){.instr = update->first, .on = backward->end - 2, .same_slot = true}));
    PUSH(b.a, p->wait, p->nwait, ((Wait){.instr = update->first, .on = backward->end - 1}));
    p->comm_threads = 1;
    char *once = text_of(print_program, p);
    assert_int_equal(read_program(b.a, once, strlen(once), stderr, &again), OK);
    assert_int_equal(again->comm_threads, 1);
    assert_int_equal(again->instr[update->first].stream, STREAM_gradient);
    assert_int_equal(again->nwait, 2);
    assert_true(again->wait[0].same_slot && !again->wait[1].same_slot);
    assert_true(program_hash(p) == program_hash(again));
    again->wait[1].on--;
    assert_true(program_hash(p) != program_hash(again));
    free(once);
    build_free(&b);
}

/* ---- damaged text ---- */

static void refusals_name_the_line(void **state)
{
    (void)state;
    static const struct { const char *text, *message; } cases[] = {
        {"\n", "dump:1: error: expected 'graph 2' in line 1, found ''"},
        {"graph 3\n", "dump:1: error: expected 'graph 2' in line 1, found 'graph 3'"},
        {"graph 2\nthing id=0\n", "dump:2: error: a graph has no 'thing'"},
        {"graph 2\n# a comment\n\ndim id=0 name=\"a\" extent=0\n",
         "dump:4: error: dim: 'extent' must be an integer from 1 to 9223372036854775807, found '0'"},
        {"graph 2\ndim id=0 name=\"a\"\n", "dump:2: error: dim: expected extent"},
        {"graph 2\ndim id=0 name=\"a\" extent=3 colour=4\n", "dump:2: error: a dim has no 'colour'"},
        {"graph 2\ndim id=1 name=\"a\" extent=3\n", "dump:2: error: dim: expected id=0"},
        {"graph 2\ndim id=0 name=\"a extent=3\n", "dump:2: error: expected a blank after the value of 'name'"},
        {"graph 2\ndim id=0 name=\"a\" extent=3\nvalue id=0 path=\"x\" role=input dtype=f31 axes=[0]\n",
         "dump:3: error: value: 'dtype' cannot be 'f31'"},
        {"graph 2\ndim id=0 name=\"a\" extent=3\nvalue id=0 path=\"x\" role=input dtype=f32 axes=[1]\n",
         "dump:3: error: value: 'axes' must be an integer from 0 to 0, found '1'"},
        {"graph 2\nvalue id=0 path=\"x\" role=activation dtype=f32 axes=[]\n",
         "graph: value 'x' is neither given nor made"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *a = arena_new("test");
        char *said = NULL, *text = arena_strdup(a, cases[i].text);
        size_t n = 0;
        FILE *err = open_memstream(&said, &n);
        Graph *g = NULL;
        assert_int_equal(read_graph(a, text, strlen(text), err, &g), ERR_REJECT);
        fclose(err);
        assert_null(g);
        said[strcspn(said, "\n")] = 0;
        assert_string_equal(said, cases[i].message);
        free(said);
        arena_free(a);
    }
}

static uint32_t random_next(uint32_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 17;
    return *s ^= *s << 5;
}

/* One to eight changes: bytes replaced, dropped, or copied from elsewhere. */
static size_t mutate(char *text, size_t n, uint32_t *seed)
{
    static const char spice[] = "0123456789-[],=\"\\ \n:.m";
    for (uint32_t k = 1 + random_next(seed) % 8; k > 0 && n > 1; k--) {
        size_t at = random_next(seed) % n, from = random_next(seed) % n, len = random_next(seed) % 24;
        switch (random_next(seed) % 4) {
        case 0: text[at] = spice[random_next(seed) % (sizeof spice - 1)]; break;
        case 1: text[at] = (char)random_next(seed); break;
        case 2:
            len = at + len > n ? n - at : len;
            memmove(text + at, text + at + len, n - at - len);
            n -= len;
            break;
        default:
            len = at + len > n ? n - at : len;
            len = from + len > n ? n - from : len;
            memmove(text + at, text + from, len);
            break;
        }
    }
    return n;
}

enum { MUTATIONS = 300 };

static void damaged_dumps_are_refused_or_sound(void **state)
{
    (void)state;
    Build b = build_new(4);
    Sizes small = tiny;
    gpt2(&b, small);
    Program *p = lowered(&b, 2);
    char *texts[2] = {text_of(print_graph, b.g), text_of(print_program, p)};
    FILE *err = fopen("/dev/null", "w");
    uint32_t seed = 20240229;
    int read = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        Arena *a = arena_new("test");
        size_t n = strlen(texts[i % 2]);
        char *text = memcpy(malloc(n + 1), texts[i % 2], n + 1);
        n = mutate(text, n, &seed);
        Graph *g = NULL;
        Program *q = NULL;
        Status s = i % 2 ? read_program(a, text, n, err, &q) : read_graph(a, text, n, err, &g);
        assert_true(s == OK || s == ERR_REJECT);
        read += s == OK;
        free(text);
        arena_free(a);
    }
    assert_true(read < MUTATIONS);
    fclose(err);
    free(texts[0]);
    free(texts[1]);
    build_free(&b);
}

/* ---- quantities, clusters, plans ---- */

static void quantities_are_short_and_exact(void **state)
{
    (void)state;
    static const struct { double value; QuantityKind kind; const char *text; } cases[] = {
        {80e9, QUANTITY_BYTES, "80 GB"}, {8589934592.0, QUANTITY_BYTES, "8 GiB"},
        {268435456.0, QUANTITY_BYTES, "256 MiB"},
        {25e6, QUANTITY_BYTES, "25 MB"}, {1, QUANTITY_BYTES, "1 B"}, {123457, QUANTITY_BYTES, "123457 B"},
        {3.35e12, QUANTITY_BYTES_PER_S, "3.35 TB/s"}, {50e9, QUANTITY_BYTES_PER_S, "50 GB/s"},
        {989e12, QUANTITY_FLOP_PER_S, "989 TFLOP/s"},
        {1979e12, QUANTITY_FLOP_PER_S, "1979 TFLOP/s"}, {1e9, QUANTITY_FLOP, "1 GFLOP"},
        {1.9e-6, QUANTITY_SECONDS, "1.9 us"},
        {4e-6, QUANTITY_SECONDS, "4 us"}, {2, QUANTITY_SECONDS, "2 s"}, {0, QUANTITY_SECONDS, "0 s"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        FILE *f = fmemopen(text, sizeof text, "w");
        quantity_put(f, cases[i].value, cases[i].kind);
        fclose(f);
        assert_string_equal(text, cases[i].text);
    }
}

static Cluster laptop(void)
{
    static CurvePoint curve[] = {{0, 0.2}, {1e9, 0.85}};
    static Device cpu = {.name = "cpu2", .doc = "two cores", .backend = BACKEND_CPU, .memory = 8LL << 30,
                         .reserve = 1LL << 28, .bandwidth = 25e9,
                         .efficiency = {curve, 2}, .launch = 5e-6, .threads = 2};
    static Group groups[] = {{1, 0, -1}, {2, -1, 0}};
    static Level levels[] = {
        {.name = "socket", .group = &groups[0], .ngroup = 1, .link = 6e9, .latency = 3e-6, .efficiency = 1,
         .topology = TOPO_FULL, .cores = 2},
        {.name = "rack", .group = &groups[1], .ngroup = 1, .link = 1e9, .latency = 2e-5, .efficiency = 0.8},
    };
    static uint32_t kind[2];
    cpu.peak[DT_f32] = 200e9;
    return (Cluster){.name = "two", .device = &cpu, .ndevice = 1, .level = levels, .nlevel = 2, .ndevices = 2,
                     .kind = kind, .host_link = 55e9};
}

static void a_cluster_prints_in_the_language(void **state)
{
    (void)state;
    Cluster c = laptop();
    char text[2048];
    FILE *f = fmemopen(text, sizeof text, "w");
    cluster_print(f, &c);
    fclose(f);
    assert_string_equal(text,
        "device cpu2 \"two cores\" {\n  backend    = cpu\n  threads    = 2\n  memory     = 8 GiB\n  reserve    = 256 MiB\n"
        "  bandwidth  = 25 GB/s\n  peak.f32   = 200 GFLOP/s\n  efficiency = [[0, 0.2], [1 GFLOP, 0.85]]\n  launch     = 5 us\n}\n\n"
        "cluster two {\n"
        "  level socket = 1 * cpu2   { link = 6 GB/s, latency = 3 us, topology = full, efficiency = 1, cores = 2 }\n"
        "  level rack   = 2 * socket { link = 1 GB/s, latency = 20 us, topology = switch, efficiency = 0.8 }\n"
        "  host.link = 55 GB/s\n}\n");
    assert_int_equal(cluster_check(&c, stderr), 0);
}

static void threads_that_communicate_print_in_the_language(void **state)
{
    (void)state;
    Cluster c = laptop();
    Device d = *c.device;
    FILE *f, *err = fopen("/dev/null", "w");
    char text[2048];
    assert_false(device_overlaps(&d));
    d.comm_threads = 1;
    c.device = &d;
    f = fmemopen(text, sizeof text, "w");
    cluster_print(f, &c);
    fclose(f);
    assert_non_null(strstr(text, "  backend      = cpu\n  threads      = 2\n  comm_threads = 1\n  memory       = 8 GiB\n"));
    assert_true(device_overlaps(&d));
    assert_int_equal(cluster_check(&c, stderr), 0);
    d.comm_threads = 2;
    assert_int_equal(cluster_check(&c, err), 1);
    d = (Device){.name = "gpu", .backend = BACKEND_CUDA, .memory = 1 << 30, .bandwidth = 1e9, .comm_threads = 1};
    assert_int_equal(cluster_check(&c, err), 1);
    fclose(err);
}

static void curves_of_ops_print_in_the_language(void **state)
{
    (void)state;
    static CurvePoint one[] = {{0, 0.8}}, bytes[] = {{1e6, 0.3}, {1e8, 0.9}};
    OpCurve ops[] = {{.op = OP_linear, .curve = {one, 1}}, {.op = OP_gelu, .curve = {bytes, 2}},
                     {.op = OP_gelu, .curve = {bytes, 2}, .with = op_option(OP_gelu, "exact"), .typed = 1 + DT_bf16}};
    Cluster c = laptop();
    Device d = *c.device;
    d.backend = BACKEND_CUDA;
    d.threads = 0;
    d.memory_efficiency = (Curve){bytes, 2};
    d.of_op = ops;
    d.nof_op = 3;
    d.sms = 108;
    d.tile = 0.9;
    d.depth = 256;
    d.attention_depth = 512;
    c.device = &d;
    c.level[0].bandwidth = 20e9;
    char text[2048];
    FILE *f = fmemopen(text, sizeof text, "w");
    cluster_print(f, &c);
    fclose(f);
    c.level[0].bandwidth = 0;
    assert_non_null(strstr(text, "  efficiency                 = [[0, 0.2], [1 GFLOP, 0.85]]\n  efficiency.memory          = [[1 MB, 0.3], [100 MB, 0.9]]\n"
                                 "  efficiency.linear          = [[0, 0.8]]\n  efficiency.gelu            = [[1 MB, 0.3], [100 MB, 0.9]]\n"
                                 "  efficiency.gelu.exact.bf16 = [[1 MB, 0.3], [100 MB, 0.9]]\n"
                                 "  sms                        = 108\n  tile                       = 0.9\n  depth                      = 256\n"
                                 "  depth.attention            = 512\n"));
    assert_non_null(strstr(text, "cores = 2, bandwidth = 20 GB/s }"));
    assert_int_equal(cluster_check(&c, stderr), 0);
    assert_ptr_equal(device_curve(&d, OP_gelu), &ops[1].curve);
    assert_ptr_equal(device_curve(&d, OP_add), &d.memory_efficiency);
    assert_ptr_equal(device_curve(&d, OP_attention_grad), &d.efficiency);
}

static void a_profile_prints_in_the_language(void **state)
{
    (void)state;
    Keep keep[] = {{OP_gelu, 2}, {OP_softmax, 0}};
    Profile p = {.name = "eager", .doc = "a runtime", .overlap = {[OVERLAP_gradient] = true}, .slow_compute = 1.1, .slow_link = 1, .slow_matmul = 1, .slow_attention = 1,
                 .slow_memory = 1.5, .step = 0.01, .issue = 7e-6, .issue_rank = 3e-4, .message = 2e-4, .stall = 0.5, .stall_above = 256,
                 .holds_gradients = true, .converts_gradients = true, .late_gathers = 0.5, .late_within = 8, .keep = keep, .nkeep = 1, .pad = 1.05, .reserve = 1000000000};
    char text[1024];
    FILE *f = fmemopen(text, sizeof text, "w"), *err = fopen("/dev/null", "w");
    profile_print(f, &p);
    fclose(f);
    assert_string_equal(text,
        "profile eager \"a runtime\" {\n  overlap.collective = false\n  overlap.gradient   = true\n  overlap.scatter    = false\n  overlap.send       = false\n"
        "  overlap.recv       = false\n  fuses.sums         = false\n  holds.gradients    = true\n  converts.gradients = true\n  packs              = false\n"
        "  slowdown.compute   = 1.1\n  slowdown.link      = 1\n  slowdown.matmul    = 1\n  slowdown.attention = 1\n  slowdown.memory    = 1.5\n"
        "  step               = 10 ms\n  issue              = 7 us\n  issue.rank         = 300 us\n  message            = 200 us\n  stall              = 500 ms\n"
        "  stall.above        = 256\n  keeps.gelu         = 2\n  late.gathers       = 0.5\n  late.within        = 8\n"
        "  pad                = 1.05\n  reserve            = 1 GB\n}\n");
    assert_int_equal(profile_check(&p, stderr), 0);
    p.nkeep = 2;                                     /* softmax stands before gelu */
    assert_int_equal(profile_check(&p, err), 1);
    p.slow_link = 0.5;
    assert_int_equal(profile_check(&p, err), 2);
    p.slow_memory = 0.9;
    assert_int_equal(profile_check(&p, err), 3);
    p.late_gathers = -0.1;
    assert_int_equal(profile_check(&p, err), 4);
    p.message = -1;
    assert_int_equal(profile_check(&p, err), 5);
    p.stall = -1;
    assert_int_equal(profile_check(&p, err), 6);
    fclose(err);
}

static void a_broken_cluster_is_found(void **state)
{
    (void)state;
    FILE *err = fopen("/dev/null", "w");
    Cluster c = laptop();
    c.ndevices = 3;
    assert_true(cluster_check(&c, err) > 0);
    c = laptop();
    Device d = *c.device;
    d.reserve = d.memory;
    c.device = &d;
    assert_int_equal(cluster_check(&c, err), 1);
    c = laptop();
    Level levels[2] = {c.level[0], c.level[1]};
    Group self = {1, -1, 1};
    levels[1].group = &self;
    c.level = levels;
    assert_true(cluster_check(&c, err) > 0);
    fclose(err);
}

static void a_plan_prints_its_rules(void **state)
{
    (void)state;
    Build b = build_new(8);
    PUSH(b.a, b.g->override, b.g->noverride, ((Override){"seq", "64"}));
    PUSH(b.a, b.g->override, b.g->noverride, ((Override){"layers", "2"}));
    Cluster c = laptop();
    uint32_t device = 1;
    Plan p = {.model = "test", .cluster = "two", .model_text = "model test {\n}\n\n",
              .cluster_text = "cluster two {\n}", .devices = &device,
              .ndevices = 1, .microbatches = 4, .schedule = "1f1b", .bucket = 25000000, .why_microbatches = "given",
              .mesh = {1, 1, 1, 1, 1}};
    char text[1024];
    FILE *f = fmemopen(text, sizeof text, "w");
    plan_print(f, &p, b.g);
    fclose(f);
    assert_string_equal(text,
        "model test {\n}\n\ncluster two {\n}\n\nplan test on two {\n  set seq    = 64\n  set layers = 2\n"
        "  mesh pp = 1, dp = 1, cp = 1, ep = 1, tp = 1  # one device\n  devices      = [1]\n  microbatches = 4  # given\n"
        "  schedule     = \"1f1b\"\n  bucket       = 25 MB\n}\n");
    assert_int_equal(plan_check(&p, b.g, &c, stderr), 0);
    FILE *err = fopen("/dev/null", "w");
    p.microbatches = 3;
    assert_int_equal(plan_check(&p, b.g, &c, err), 1);
    p.microbatches = 4;
    p.mesh[AXIS_tp] = 2;
    assert_int_equal(plan_check(&p, b.g, &c, err), 1);
    fclose(err);
    build_free(&b);
}

/* Names and paths of the rules below. */
static const char *ffn_vocab[] = {"ffn", "vocab"};
static PathStep in_rounds[] = {{.name = "h"}, {.first = 0, .last = 2}, {.name = "mlp"}}, at_round[] = {{.name = "h"}, {.first = 2, .last = 2}};

static void a_plan_prints_what_it_carries(void **state)
{
    (void)state;
    Build b = build_new(8);
    Path rounds = {.step = in_rounds, .nstep = 3}, round = {.step = at_round, .nstep = 2};
    Rule rule[] = {
        {.kind = RULE_RECOMPUTE, .path = rounds, .policy = RECOMPUTE_ATTENTION},
        {.kind = RULE_STAGE_BEFORE, .path = round},
        {.kind = RULE_SPLIT, .names = ffn_vocab, .nnames = 2, .by = {.axis = {AXIS_tp}, .n = 1}},
        {.kind = RULE_SPLIT, .names = ffn_vocab, .nnames = 1, .path = rounds, .by = {{AXIS_dp, AXIS_tp}, {PART_INNER, PART_WHOLE}, 2}},
        {.kind = RULE_KEEP, .names = ffn_vocab, .nnames = 2, .path = round},
        {.kind = RULE_PAD, .name = "vocab", .number = 128},
        {.kind = RULE_SHARD, .state = STATE_OPTIMIZER, .by = {.axis = {AXIS_dp}, .part = {PART_OUTER}, .n = 1}},
        {.kind = RULE_STAGE_EVERY, .path = round, .number = 4},
        {.kind = RULE_STAGE_AFTER, .path = round},
        {.kind = RULE_SAVE, .path = round},
    };
    uint32_t devices[16];
    for (uint32_t i = 0; i < 16; i++)
        devices[i] = 15 - i;
    Plan p = {.model = "test", .cluster = "many", .devices = devices, .ndevices = 16, .microbatches = 1, .schedule = "gpipe", .bucket = 1000,
              .mesh = {2, 4, 1, 1, 2}, .outer = {[AXIS_dp] = 2}, .rule = rule, .nrule = sizeof rule / sizeof *rule};
    char text[1024];
    FILE *f = fmemopen(text, sizeof text, "w");
    plan_print(f, &p, b.g);
    fclose(f);
    assert_string_equal(text,
        "plan test on many {\n  mesh pp = 2, dp = 2 * 2, cp = 1, ep = 1, tp = 2\n"
        "  devices      = [[[15, 14], [13, 12], [11, 10], [9, 8]], [[7, 6], [5, 4], [3, 2], [1, 0]]]\n"
        "  microbatches = 1\n  schedule     = \"gpipe\"\n  bucket       = 1 kB\n"
        "  pad vocab to 128\n  split ffn, vocab by tp\n  split ffn in h[0..2].mlp by (dp.inner, tp)\n  keep ffn, vocab whole in h[2]\n"
        "  shard optimizer by dp.outer\n  stage before h[2]\n  stage after h[2]\n  stage every 4 in h[2]\n"
        "  recompute h[0..2].mlp attention\n  save h[2]\n}\n");
    build_free(&b);
}

static void mesh_axes_have_names(void **state)
{
    (void)state;
    for (int a = 0; a < MESH_AXES; a++)
        assert_int_equal(mesh_axis_find(mesh_axis_name((MeshAxis)a)), a);
    assert_int_equal(mesh_axis_find("xp"), MESH_AXES);
}

static void paths_match_at_or_under(void **state)
{
    (void)state;
    PathStep attn[] = {{"h", 0, 0}, {"attn", 0, 0}}, rounds[] = {{"h", 0, 0}, {NULL, 1, 3}},
        both[] = {{"h", 0, 0}, {NULL, 2, 2}, {"mlp", 0, 0}};
    Path every = {.step = attn, .nstep = 2}, some = {.step = rounds, .nstep = 2}, one = {.step = both, .nstep = 3},
        all = {0};
    assert_true(path_matches(&every, "h[3].attn.q.w"));
    assert_true(path_matches(&every, "h[3].attn"));
    assert_true(path_matches(&every, "h.attn:lse"));
    assert_false(path_matches(&every, "h[3].attn2"));
    assert_false(path_matches(&every, "h[3].at"));
    assert_false(path_matches(&every, "h[3]"));
    assert_false(path_matches(&every, "x.h[3].attn"));
    assert_true(path_matches(&some, "h[1].ln1"));
    assert_true(path_matches(&some, "h[3]"));
    assert_int_equal(path_round(&some, "h[3].ln1"), 3);  /* rounds that are named are rounds all the same */
    assert_false(path_matches(&some, "h[4].ln1"));
    assert_false(path_matches(&some, "h"));
    assert_true(path_matches(&one, "h[2].mlp.up"));
    assert_false(path_matches(&one, "h[1].mlp.up"));
    assert_true(path_matches(&all, "anything"));
}

/* Rows of a tensor cut along batch: x[2 of 8 from 2, 3, 4 of 6 from 2], second micro-batch. */
static void rows_know_their_global_place(void **state)
{
    (void)state;
    Tensor t = {.rank = 3, .axis = {{2, 8, 2, 2, 0}, {3, 3, 0, 0, 0}, {4, 6, 2, 0, 0}}};
    assert_int_equal(place_row(&t, 0, 0), (2 * 3 + 0) * 6 + 2);
    assert_int_equal(place_row(&t, 4, 0), (3 * 3 + 1) * 6 + 2);
    assert_int_equal(place_row(&t, 4, 1), (5 * 3 + 1) * 6 + 2);
    Tensor scalar = {.rank = 0};
    assert_int_equal(place_row(&scalar, 0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_reads_back),
        cmocka_unit_test(a_program_reads_back),
        cmocka_unit_test(streams_and_waits_read_back),
        cmocka_unit_test(refusals_name_the_line),
        cmocka_unit_test(damaged_dumps_are_refused_or_sound),
        cmocka_unit_test(quantities_are_short_and_exact),
        cmocka_unit_test(a_cluster_prints_in_the_language),
        cmocka_unit_test(threads_that_communicate_print_in_the_language), cmocka_unit_test(curves_of_ops_print_in_the_language),
        cmocka_unit_test(a_profile_prints_in_the_language),
        cmocka_unit_test(a_broken_cluster_is_found),
        cmocka_unit_test(a_plan_prints_its_rules),
        cmocka_unit_test(a_plan_prints_what_it_carries),
        cmocka_unit_test(mesh_axes_have_names),
        cmocka_unit_test(paths_match_at_or_under),
        cmocka_unit_test(rows_know_their_global_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
