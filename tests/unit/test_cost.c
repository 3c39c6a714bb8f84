/* Costs of instructions, against figures worked out by hand. */
#include "tests/unit/timing.h"

/* ---- collectives ---- */

static int64_t comm_ns(Timing *t, Program *p, OpKind op, uint32_t group, int64_t bytes)
{
    uint32_t i = timing_comm(p, op, STREAM_compute, group, bytes);
    CostModel *cm = cost_model(t->a, &t->cl, &t->plan, &t->profile);
    return cost_ns(cm, p, cost_groups(cm, p), &p->instr[i]);
}

/* 2 (n-1) hops and 2 (n-1)/n of the bytes, or once each: at 2 bytes/ns and 30 ns a hop. */
static void a_ring_on_one_level(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CPU, LEVELS({4, 2e9, 30e-9}));
    timing_mesh(&t, 1, 4, 1);
    Program *p = timing_program(&t, 0);
    uint32_t all = timing_group(p, 4, 0, 1), two = timing_group(p, 2, 0, 1);
    assert_int_equal(comm_ns(&t, p, OP_all_reduce, all, 8000), 6 * 30 + 6000);
    assert_int_equal(comm_ns(&t, p, OP_all_gather, all, 8000), 3 * 30 + 3000);
    assert_int_equal(comm_ns(&t, p, OP_reduce_scatter, all, 8000), 3 * 30 + 3000);
    assert_int_equal(comm_ns(&t, p, OP_all_to_all, all, 8000), 3 * 30 + 3000);
    assert_int_equal(comm_ns(&t, p, OP_reduce_to, all, 8000), 3 * 30 + 4000);
    assert_int_equal(comm_ns(&t, p, OP_broadcast, all, 8000), 3 * 30 + 4000);
    assert_int_equal(comm_ns(&t, p, OP_send, two, 8000), 30 + 4000);
    assert_int_equal(comm_ns(&t, p, OP_recv, two, 8000), 30 + 4000);
    assert_int_equal(comm_ns(&t, p, OP_all_reduce, two, 8000), 2 * 30 + 4000);
    timing_levels(&t, LEVELS({16, 2e9, 0}));
    timing_mesh(&t, 1, 16, 1);
    all = timing_group(p, 16, 0, 1);
    assert_int_equal(comm_ns(&t, p, OP_all_to_all, all, 16000), 7500);
    t.cl.level[0].topology = TOPO_MESH;                                      /* two links on the way, on a ring four */
    assert_int_equal(comm_ns(&t, p, OP_all_to_all, all, 16000), 15000);
    t.cl.level[0].topology = TOPO_RING;
    assert_int_equal(comm_ns(&t, p, OP_all_to_all, all, 16000), 30000);
    assert_int_equal(comm_ns(&t, p, OP_all_gather, all, 16000), 7500);
    timing_free(&t);
}

/* Two nodes of four: of a ring's eight hops two are between; the last piece misses one of the others.  Four ranks of a node drive four
 * adapters of 0.5 bytes/ns, which then carry as much as the link inside; two ranks a node half of that,
 * one rank a quarter. */
static void ranks_of_a_node_share_its_adapters(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CPU, LEVELS({4, 2e9, 30e-9}, {2, 0.5e9, 100e-9}));
    timing_mesh(&t, 1, 2, 4);
    Program *p = timing_program(&t, 0);
    uint32_t all = timing_group(p, 8, 0, 1), one_a_node = timing_group(p, 2, 0, 4);
    int64_t hops = 5 * 30 + 2 * 100;
    assert_int_equal(comm_ns(&t, p, OP_all_gather, all, 8000), hops + 8000 * 7 / 8 / 2);
    assert_int_equal(comm_ns(&t, p, OP_all_reduce, all, 8000), 2 * hops + 2 * 8000 * 7 / 8 / 2);
    assert_int_equal(comm_ns(&t, p, OP_all_gather, one_a_node, 8000), 100 + 8000);
    assert_int_equal(comm_ns(&t, p, OP_all_to_all, all, 8000), 7 * 100 + 8000);   /* half of it over adapters of half a byte */
    t.plan.mesh[AXIS_dp] = 4;
    t.plan.mesh[AXIS_tp] = 2;
    uint32_t two_a_node = timing_group(p, 4, 0, 2);
    assert_int_equal(comm_ns(&t, p, OP_all_gather, two_a_node, 8000), 30 + 2 * 100 + 8000 * 3 / 4);
    timing_free(&t);
}

/* tp = 4 on nodes of three: the group that is cut by a border is the slowest, wherever it is. */
static void the_slowest_of_like_groups_counts(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CPU, LEVELS({4, 2e9, 30e-9}, {2, 0.5e9, 100e-9}));
    timing_mesh(&t, 1, 4, 2);
    Program *p = timing_program(&t, 0);
    uint32_t pair = timing_group(p, 2, 0, 1);
    assert_int_equal(comm_ns(&t, p, OP_all_gather, pair, 8000), 30 + 2000);
    uint32_t crossed[] = {0, 1, 2, 4, 3, 5, 6, 7};
    memcpy(t.plan.devices, crossed, sizeof crossed);
    assert_int_equal(comm_ns(&t, p, OP_all_gather, pair, 8000), 100 + 8000);
    timing_free(&t);
}

static double seconds_of(const Timing *t, const Program *p, uint32_t group, OpKind op, double bytes)
{
    Links ln = links_read(t->a, &t->cl, &t->plan);
    uint32_t n;
    Pattern *pattern = links_patterns(&ln, &p->group[group], &n);
    assert_int_equal(n, 1);
    return links_seconds(&pattern[0], op, bytes);
}

/* NCCL's protocols: small messages by the base latency and hops of LL, large ones by bandwidth. */
static void cuda_takes_the_fastest_protocol(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CUDA, LEVELS({8, 450e9, 1.9e-6}));
    timing_mesh(&t, 1, 8, 1);
    Program *p = timing_program(&t, 0);
    uint32_t all = timing_group(p, 8, 0, 1);
    double small = seconds_of(&t, p, all, OP_all_gather, 8), large = seconds_of(&t, p, all, OP_all_gather, 8e9);
    assert_true(small > 6.6e-6 + 7 * 0.6e-6 && small < 6.6e-6 + 7 * 0.62e-6);
    assert_true(large > 7e9 / 450e9 && large < 7e9 / 450e9 + 40e-6);
    double before = 0;
    for (double bytes = 1; bytes < 1e10; bytes *= 1.7) {
        double now = seconds_of(&t, p, all, OP_all_reduce, bytes);
        assert_true(now > before);
        before = now;
    }
    timing_free(&t);
}

/* Across nodes a tree is one of nodes, however many ranks each has: twelve hops of 1 ms for 64 nodes of one, where a ring has 63. */
static void trees_halve_nodes(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CUDA, LEVELS({2, 450e9, 1e-6}, {64, 50e9, 1e-3}));
    timing_mesh(&t, 1, 64, 2);
    Program *p = timing_program(&t, 0);
    uint32_t one_a_node = timing_group(p, 64, 0, 2);
    double sum = seconds_of(&t, p, one_a_node, OP_all_reduce, 8), gathered = seconds_of(&t, p, one_a_node, OP_all_gather, 8);
    assert_true(sum > 12e-3 && sum < 12.1e-3);
    assert_true(gathered > 63e-3 && gathered < 63.1e-3);
    timing_free(&t);
}

/* ---- what computes ---- */

static Cost cost_alone(Timing *t, Program *p, Instr in)
{
    uint32_t i = program_add_instr(p, in);
    CostModel *cm = cost_model(t->a, &t->cl, &t->plan, &t->profile);
    return cost_of(cm, p, cost_groups(cm, p), &p->instr[i]);
}

static Timing one_device(Backend backend)
{
    Timing t = timing_new(backend, LEVELS({1, 0, 0}));
    timing_mesh(&t, 1, 1, 1);
    timing_program(&t, 0);
    return t;
}

/* x[m, k] * w[k, n] with nothing to read. */
static Instr matmul(int64_t m, int64_t n, int64_t k)
{
    Instr in = {.op = OP_contract, .path = "matmul", .nfactor = 3, .extent = {m, n, k}, .role = "...", .flops = 2.0 * (double)(m * n * k)};
    memset(in.arg_factor, NO_FACTOR, sizeof in.arg_factor);
    memset(in.out_factor, NO_FACTOR, sizeof in.out_factor);
    in.arg_factor[0][0] = 0;
    in.arg_factor[0][1] = in.arg_factor[1][0] = 2;
    in.arg_factor[1][1] = in.out_factor[0][1] = 1;
    in.out_factor[0][0] = 0;
    return in;
}

static void compute_memory_and_launch_bound(void **state)
{
    (void)state;
    Timing t = one_device(BACKEND_CPU);
    Instr in = matmul(10, 10, 10);
    in.bytes = 1500;
    Cost c = cost_alone(&t, t.rank[0], in);
    assert_int_equal(c.ns, 2000);
    assert_int_equal(c.bound, BOUND_COMPUTE);
    assert_int_equal(c.cls, COST_matmul);
    in.bytes = 3000;
    assert_int_equal(cost_alone(&t, t.rank[0], in).ns, 3000);
    assert_int_equal(cost_alone(&t, t.rank[0], in).bound, BOUND_MEMORY);
    t.cl.device->launch = 5e-6;
    assert_int_equal(cost_alone(&t, t.rank[0], in).ns, 8000);
    assert_int_equal(cost_alone(&t, t.rank[0], in).bound, BOUND_LAUNCH);
    timing_free(&t);
}

/* Halfway between 1 and 100 on the logarithm is 10; below the first point above 0 the curve is straight. */
static void curves_are_interpolated(void **state)
{
    (void)state;
    Timing t = one_device(BACKEND_CPU);
    CurvePoint point[] = {{0, 0.2}, {2000, 0.4}, {200000, 0.8}};
    t.cl.device->efficiency = (Curve){point, 3};
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(10, 10, 5)).ns, 3333);          /* 1000 at 0.3 */
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(10, 10, 10)).ns, 5000);         /* 2000 at 0.4 */
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(10, 10, 100)).ns, 33333);       /* 20000 at 0.6 */
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(100, 100, 100)).ns, 2500000);   /* 0.8 from there on */
    CurvePoint half = {0, 0.5};
    OpCurve own[] = {{.op = OP_contract, .curve = {&half, 1}}};
    t.cl.device->of_op = own;
    t.cl.device->nof_op = 1;
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(10, 10, 10)).ns, 4000);
    Instr in = {.op = OP_gelu, .path = "gelu", .bytes = 1000};
    assert_int_equal(cost_alone(&t, t.rank[0], in).ns, 1000);
    t.cl.device->memory_efficiency = (Curve){&half, 1};
    assert_int_equal(cost_alone(&t, t.rank[0], in).ns, 2000);
    timing_free(&t);
}

/* Curves of an op as such, of a switch and of a dtype: the switch counts before the dtype, wherever either is. */
static void the_closest_curve_counts(void **state)
{
    (void)state;
    Timing t = one_device(BACKEND_CPU);
    Program *p = t.rank[0];
    CurvePoint part[] = {{0, 0.5}, {0, 0.25}, {0, 0.2}};
    OpCurve own[] = {{.op = OP_gelu, .curve = {&part[0], 1}},
                     {.op = OP_gelu, .curve = {&part[2], 1}, .typed = 1 + DT_bf16},
                     {.op = OP_gelu, .curve = {&part[1], 1}, .with = op_option(OP_gelu, "exact")}};
    t.cl.device->of_op = own;
    t.cl.device->nof_op = 3;
    assert_int_equal(cluster_check(&t.cl, stderr), 0);
    Instr in = {.op = OP_gelu, .path = "gelu", .bytes = 1000, .narg = 1, .arg = {timing_tensor(p, 1000)}};
    int exact = op_attr_index(OP_gelu, "exact");
    assert_int_equal(cost_alone(&t, p, in).ns, 2000);
    in.attr[exact] = ATTR_B(true);
    assert_int_equal(cost_alone(&t, p, in).ns, 4000);
    p->tensor[in.arg[0].i].dtype = DT_bf16;
    assert_int_equal(cost_alone(&t, p, in).ns, 4000);
    in.attr[exact] = ATTR_B(false);
    assert_int_equal(cost_alone(&t, p, in).ns, 5000);
    timing_free(&t);
}

/* Four multiprocessors of 0.25 FLOP/ns, whole tiles only: 512 x 256 is four of 256 x 128, all busy
 * at once; one row more makes two tiles more, and a second wave that is half empty. */
static void tiles_waves_and_depth(void **state)
{
    (void)state;
    Timing t = one_device(BACKEND_CUDA);
    t.cl.device->sms = 4;
    t.cl.device->tile = 0.5;
    t.cl.device->bandwidth = 1e6;                    /* sums in parts cost too much */
    int64_t full = 2LL * 512 * 256 * 64;
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(512, 256, 64)).ns, full);
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(513, 256, 64)).ns, 2 * full);
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(1024, 256, 64)).ns, 2 * full);
    t.cl.device->depth = 64;
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(512, 256, 64)).ns, 2 * full);
    t.cl.device->depth = 0;
    t.cl.device->bandwidth = 1e9;
    /* One tile cannot be shared out by four, its sum can: in quarters, which are written and
     * read as f32 four times.  Smaller tiles would run at half the speed for each halving. */
    int64_t one = 2LL * 256 * 128 * 4096;
    assert_int_equal(cost_alone(&t, t.rank[0], matmul(256, 128, 4096)).ns, one + 8 * 4 * 256 * 128);
    timing_free(&t);
}

static Instr attention(int64_t s, int64_t t, bool causal, int64_t window)
{
    Instr in = {.op = OP_attention, .path = "attention", .nfactor = 4, .extent = {s, t, 1, 16}, .role = "sthe", .flops = 4.0 * (double)(s * t * 16)};
    for (int i = 0; i < MAX_ATTRS; i++)
        in.attr[i] = (Attr){.kind = ATTR_NONE};
    *(Attr *)(uintptr_t)instr_attr(&in, "causal") = (Attr){.kind = ATTR_BOOL, .i = causal};
    if (window)
        *(Attr *)(uintptr_t)instr_attr(&in, "window") = (Attr){.kind = ATTR_INT, .i = window};
    return in;
}

static void attention_skips_what_is_masked(void **state)
{
    (void)state;
    Timing t = one_device(BACKEND_CPU);
    Program *p = t.rank[0];
    assert_int_equal(cost_alone(&t, p, attention(100, 100, false, 0)).ns, 640000);
    assert_int_equal(cost_alone(&t, p, attention(100, 100, true, 0)).ns, 323200);     /* 5050 of 10,000 pairs */
    assert_int_equal(cost_alone(&t, p, attention(50, 100, true, 0)).ns, 241600);      /* the later half: 3775 of 5000 */
    assert_int_equal(cost_alone(&t, p, attention(100, 100, true, 10)).ns, 61120);     /* 10 keys each but for the first nine rows */
    assert_int_equal(cost_alone(&t, p, attention(100, 100, true, 0)).cls, COST_attention);
    t.cl.device->attention_depth = 100;
    assert_int_equal(cost_alone(&t, p, attention(100, 100, false, 0)).ns, 1280000);
    Instr back = attention(100, 100, false, 0);
    back.op = OP_attention_grad;
    memcpy(back.attr, (Attr[MAX_ATTRS]){{.kind = ATTR_BOOL}, {.kind = ATTR_NONE}}, sizeof back.attr);
    back.flops *= 2.5;
    assert_int_equal(cost_alone(&t, p, back).ns, 3764706);                            /* 0.85 of the forward speed */
    timing_free(&t);
}

/* Of 16 causal positions in contiguous parts, ranks attend 10, 26, 42 and 58 pairs: the last of them
 * is waited for, so its 58 of 64 pairs are what the split costs. */
static void E03_contiguous_positions_cost_what_the_last_rank_does(void **state)
{
    (void)state;
    Timing t = one_device(BACKEND_CPU);
    Program *p = t.rank[0];
    int64_t whole = cost_alone(&t, p, attention(4, 16, false, 0)).ns;
    assert_int_equal(whole, 4096);
    assert_int_equal(cost_alone(&t, p, attention(4, 16, true, 0)).ns, whole * 58 / 64);
    assert_int_equal(cost_alone(&t, p, attention(16, 16, true, 0)).ns, whole * (10 + 26 + 42 + 58) / 64);
    timing_free(&t);
}

/* A table is not read whole, and what is added to is read too. */
static void bytes_that_move(void **state)
{
    (void)state;
    Timing t = one_device(BACKEND_CPU);
    Program *p = t.rank[0];
    TensorId ids = timing_tensor(p, 40), table = timing_tensor(p, 100000), rows = timing_tensor(p, 400);
    Instr look = {.op = OP_embed, .path = "embed", .narg = 2, .nout = 1, .arg = {ids, table}, .out = {rows}, .bytes = 100440};
    assert_int_equal(cost_alone(&t, p, look).ns, 840);
    Instr add = {.op = OP_reduce, .path = "reduce", .narg = 1, .nout = 1, .arg = {rows}, .out = {ids}, .bytes = 440};
    assert_int_equal(cost_alone(&t, p, add).ns, 440);
    add.acc = ACC_YES;
    add.acc_out = 1;
    assert_int_equal(cost_alone(&t, p, add).ns, 480);
    timing_free(&t);
}

/* What a profile says of kernels: how much slower than on the device's curves, and what is left out. */
static void a_runtime_slows_kinds_of_ops(void **state)
{
    (void)state;
    Timing t = one_device(BACKEND_CPU);
    Program *p = t.rank[0];
    TensorId some = timing_tensor(p, 400);
    Instr add = {.op = OP_reduce, .path = "reduce", .bytes = 440}, pack = {.op = OP_transpose, .path = "pack", .bytes = 500};
    t.profile.slow_matmul = 1.5;
    t.profile.slow_attention = 2;
    t.profile.slow_memory = 3;
    assert_int_equal(cost_alone(&t, p, matmul(10, 10, 10)).ns, 3000);
    assert_int_equal(cost_alone(&t, p, attention(100, 100, false, 0)).ns, 1280000);
    assert_int_equal(cost_alone(&t, p, add).ns, 1320);
    assert_int_equal(cost_alone(&t, p, pack).ns, 1500);
    t.profile.packs = false;
    assert_int_equal(cost_alone(&t, p, pack).ns, 0);
    t.profile.slow_matmul = 1;
    Instr in = matmul(16, 16, 10);
    in.narg = in.nout = 1;
    in.arg[0] = in.out[0] = some;
    in.acc = ACC_YES;
    in.acc_out = 1;
    assert_int_equal(cost_alone(&t, p, in).ns, 5120);
    t.profile.fuses_sums = false;                    /* written and read, and the sum too */
    assert_int_equal(cost_alone(&t, p, in).ns, 5120 + 4 * 400);
    timing_free(&t);
}

/* Rows of 10 bytes do not begin at multiples of 16. */
static void rows_that_are_not_aligned(void **state)
{
    (void)state;
    Timing t = one_device(BACKEND_CPU);
    Program *p = t.rank[0];
    Instr in = matmul(16, 16, 10), even = matmul(10, 16, 16), wide = matmul(16, 10, 16);
    in.narg = even.narg = wide.narg = 1;
    in.arg[0] = even.arg[0] = wide.arg[0] = timing_tensor(p, 160);
    assert_int_equal(cost_alone(&t, p, in).ns, 5120);
    t.cl.device->unaligned = 0.5;
    assert_int_equal(cost_alone(&t, p, in).ns, 10240);
    assert_int_equal(cost_alone(&t, p, wide).ns, 10240);
    assert_int_equal(cost_alone(&t, p, even).ns, 5120);
    timing_free(&t);
}

static void a_message_costs_its_host(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CPU, LEVELS({4, 2e9, 30e-9}));
    timing_mesh(&t, 1, 4, 1);
    Program *p = timing_program(&t, 0);
    uint32_t all = timing_group(p, 4, 0, 1), two = timing_group(p, 2, 0, 1);
    t.profile.message = 1e-6;
    assert_int_equal(comm_ns(&t, p, OP_recv, two, 8000), 30 + 4000 + 1000);
    assert_int_equal(comm_ns(&t, p, OP_all_gather, all, 8000), 3 * 30 + 3000);
    timing_free(&t);
}

/* ---- never slower ---- */

typedef enum Better { PEAK, BANDWIDTH, LINK, LATENCY, LAUNCH, BETTER } Better;

static void improve(Timing *t, Better what)
{
    Device *d = t->cl.device;
    d->peak[DT_f32] *= what == PEAK ? 1.3 : 1;
    d->bandwidth *= what == BANDWIDTH ? 1.3 : 1;
    d->launch *= what == LAUNCH ? 0.7 : 1;
    t->cl.level[0].link *= what == LINK ? 1.3 : 1;
    t->cl.level[0].latency *= what == LATENCY ? 0.7 : 1;
}

static void better_machines_are_never_slower(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CUDA, LEVELS({8, 450e9, 1.9e-6}));
    timing_mesh(&t, 1, 8, 1);
    *t.cl.device = (Device){.name = "gpu", .backend = BACKEND_CUDA, .bandwidth = 3e12, .sms = 132, .tile = 0.9, .depth = 200, .launch = 4e-6};
    t.cl.device->peak[DT_f32] = 9e14;
    Program *p = timing_program(&t, 0);
    uint32_t group = timing_group(p, 8, 0, 1);
    for (int64_t m = 1; m < 20000; m = m * 3 + 7)
        for (int64_t k = 1; k < 20000; k = k * 5 + 3)
            for (int what = 0; what < BETTER; what++) {
                Instr in = matmul(m, 4096, k);
                in.bytes = 2 * (m + 4096) * k;
                Timing better = t;
                Device d = *t.cl.device;
                Level l = t.cl.level[0];
                better.cl.device = &d;
                better.cl.level = &l;
                improve(&better, (Better)what);
                assert_true(cost_alone(&better, p, in).ns <= cost_alone(&t, p, in).ns);
                assert_true(comm_ns(&better, p, OP_all_reduce, group, m * k) <= comm_ns(&t, p, OP_all_reduce, group, m * k));
            }
    timing_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_on_one_level),
        cmocka_unit_test(ranks_of_a_node_share_its_adapters),
        cmocka_unit_test(the_slowest_of_like_groups_counts),
        cmocka_unit_test(cuda_takes_the_fastest_protocol),
        cmocka_unit_test(trees_halve_nodes),
        cmocka_unit_test(compute_memory_and_launch_bound),
        cmocka_unit_test(curves_are_interpolated),
        cmocka_unit_test(the_closest_curve_counts),
        cmocka_unit_test(tiles_waves_and_depth),
        cmocka_unit_test(attention_skips_what_is_masked),
        cmocka_unit_test(E03_contiguous_positions_cost_what_the_last_rank_does),
        cmocka_unit_test(bytes_that_move),
        cmocka_unit_test(a_runtime_slows_kinds_of_ops),
        cmocka_unit_test(rows_that_are_not_aligned),
        cmocka_unit_test(a_message_costs_its_host),
        cmocka_unit_test(better_machines_are_never_slower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
