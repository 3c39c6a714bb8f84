/* The simulator, against timelines worked out by hand. */
#include "tests/unit/layouts.h"
#include "tests/unit/pipes.h"

/* ---- pipelines ---- */

/* Equal stages, messages that take no time: (p - 1)(F + B) on every stage, for few and many micro-batches. */
static void bubbles_of_equal_stages(void **state)
{
    (void)state;
    for (uint32_t p = 1; p <= 6; p++)
        for (uint32_t m = 1; m <= 9; m += 2)
            for (int gpipe = 0; gpipe < 2; gpipe++) {
                Pipe of = {.stages = p, .m = m, .forward = 1000, .backward = 2500, .update = 700, .gpipe = gpipe};
                Timing t = pipe_new(BACKEND_CPU, &of, 1e18, 0, false);
                Simulation sim = timing_simulate(&t);
                assert_int_equal(sim.ns, (m + p - 1) * 3500 + 700);
                for (uint32_t s = 0; s < p; s++) {
                    assert_int_equal(sim.stage[s].bubble, (p - 1) * 3500);
                    assert_int_equal(sim.stage[s].by_class[COST_memory], m * 3500 + 700);
                    assert_int_equal(sim.stage[s].update, 700);
                    assert_int_equal(parts_of(&sim.stage[s]), sim.ns);
                }
                timing_free(&t);
            }
}

/* The rule of prun: what was sent must have been taken before its procedure begins again.
 *   stage 0  F0 0-1000, F1 1100-2100, B0 5100-7100, B1 9100-11100
 *   stage 1  F0 1100-2100, B0 2100-5000, F1 5100-6100, B1 6100-9000     (a message: 10 + 90)
 * A call begins with what it receives. */
static void a_timeline_of_two_stages(void **state)
{
    (void)state;
    Pipe of = {.stages = 2, .m = 2, .forward = 1000, .backward = 2000, .bytes = 90};
    Timing t = pipe_new(BACKEND_CPU, &of, 1e9, 10e-9, false);
    t.rank[1]->instr[t.rank[1]->proc[1].first].bytes = 2900;
    Simulation sim = timing_simulate(&t);
    const CallTime want[2][4] = {{{0, 1000, 0}, {1100, 2100, 0}, {5000, 7100, 0}, {9000, 11100, 0}}, {{1000, 2100, 0}, {2100, 5000, 0}, {5000, 6100, 0}, {6100, 9000, 0}}};
    for (int s = 0; s < 2; s++)
        for (int c = 0; c < 4; c++) {
            assert_int_equal(sim.stage[s].call[c].start, want[s][c].start);
            assert_int_equal(sim.stage[s].call[c].end, want[s][c].end);
            assert_int_equal(sim.stage[s].call[c].idle, want[s][c].idle);
        }
    assert_int_equal(sim.ns, 11100);
    assert_int_equal(sim.stage[0].exposed[AXIS_pp], 200);
    assert_int_equal(sim.stage[0].bubble, 11100 - 6000 - 200);
    assert_int_equal(sim.stage[1].exposed[AXIS_pp], 200);
    t.profile.step = 5e-6;
    assert_int_equal(timing_simulate(&t).ns, 16100);
    timing_free(&t);
}

/* A receiver that is ready ahead of time hides messages behind what it computes: only the way
 * down and back is seen, a message for each of 2 (p - 1). */
static void messages_on_streams_are_hidden(void **state)
{
    (void)state;
    Pipe of = {.stages = 3, .m = 12, .forward = 100000, .backward = 200000, .bytes = 9000, .gpipe = true};
    Timing t = pipe_new(BACKEND_CUDA, &of, 1e9, 0, true);
    Simulation sim = timing_simulate(&t);
    int64_t message = sim.stage[1].cost[0].ns;
    assert_true(message > 9000 && message < 30000);
    assert_int_equal(sim.ns, 14 * 300000 + 4 * message);
    memset(t.profile.overlap, 0, sizeof t.profile.overlap);
    assert_true(timing_simulate(&t).ns > sim.ns);
    timing_free(&t);
}

/* A recipe of few nodes takes what the full one takes. */
static void joined_nodes_take_as_long(void **state)
{
    (void)state;
    for (uint32_t m = 2; m < 8; m++) {
        Pipe of = {.stages = 1, .m = m, .forward = 1000, .backward = 2000};
        Timing t = pipe_new(BACKEND_CUDA, &of, 1e9, 0, true);
        Program *p = t.rank[0];
        timing_levels(&t, LEVELS({2, 1e9, 0}));
        timing_mesh(&t, 1, 1, 2);
        t.rank[0] = p;
        Program *q = timing_program(&t, 0);
        uint32_t pair = timing_group(q, 2, 0, 1);
        uint32_t a = timing_run(q, 100000), c = timing_comm(q, OP_all_reduce, STREAM_collective, pair, 50000);
        uint32_t b = timing_run(q, 30000), d = timing_run(q, 4000);
        timing_proc(q, PROC_forward, 0);
        timing_wait(q, c, a, false);
        timing_wait(q, d, c, false);
        for (uint32_t i = 0; i < m; i++)
            timing_call(q, 0, i, 0);
        t.profile.slow_compute = 1.5;
        t.profile.slow_link = 1.25;
        Simulation sim = timing_simulate(&t);
        int64_t comm = sim.stage[0].cost[c].ns, beside = 45000;              /* b takes 45000 beside it, in which 36000 of the sum are done */
        assert_true(comm > 36000);
        assert_int_equal(sim.ns, m * (100000 + beside + (comm - 36000) + 4000));
        assert_int_equal(sim.stage[0].exposed[AXIS_tp], m * (comm - 36000));
        assert_int_equal(sim.stage[0].slowed, m * 15000);
        assert_int_equal(sim.stage[0].by_class[COST_memory], m * 134000);
        assert_int_equal(parts_of(&sim.stage[0]), sim.ns);
        (void)b;
        timing_free(&t);
    }
}

/* ---- gradients beside backward ---- */

/* Backward of two layers, whose gradients are summed over dp as soon as they are complete; the last
 * micro-batch alone does. */
static Timing ddp(uint32_t m, int64_t layer, int64_t bytes)
{
    Timing t = timing_new(BACKEND_CUDA, LEVELS({2, 1e9, 0}));
    t.plan.microbatches = m;
    timing_mesh(&t, 1, 2, 1);
    Program *p = timing_program(&t, 0);
    uint32_t pair = timing_group(p, 2, 0, 1), at[4];
    for (int k = 0; k < 2; k++) {
        at[2 * k] = timing_run(p, layer);
        at[2 * k + 1] = timing_comm(p, OP_all_reduce, STREAM_gradient, pair, bytes);
        p->instr[at[2 * k + 1]].when = WHEN_LAST;
    }
    timing_proc(p, PROC_backward, 0);
    uint32_t update = timing_run(p, 1000);
    timing_proc(p, PROC_update, update);
    timing_wait(p, at[1], at[0], false);
    timing_wait(p, at[3], at[2], false);
    timing_wait(p, update, at[3], false);
    for (uint32_t i = 0; i < m; i++)
        timing_call(p, 0, i, 0);
    timing_call(p, 1, 0, 0);
    return t;
}

static void sums_hide_behind_the_last_backward(void **state)
{
    (void)state;
    for (uint32_t m = 1; m < 6; m += 2) {
        Timing t = ddp(m, 200000, 50000);
        int64_t sum = timing_simulate(&t).stage[0].cost[1].ns;
        assert_true(sum > 50000 && sum < 200000);
        assert_int_equal(timing_simulate(&t).ns, m * 400000 + sum + 1000);
        assert_int_equal(timing_simulate(&t).stage[0].exposed[AXIS_dp], sum);
        t.profile.slow_compute = 1.25;                                       /* the second layer runs at 0.8 for as long as the first sum takes */
        t.profile.slow_link = 1;
        assert_in_range(timing_simulate(&t).ns, m * 400000 + sum + sum / 5 + 1000 - 1, m * 400000 + sum + sum / 5 + 1000 + 1);
        t.profile.slow_link = 2;                                             /* twice as long, at half the speed */
        assert_in_range(timing_simulate(&t).ns, m * 400000 + sum + 2 * sum / 5 + 1000 - 1, m * 400000 + sum + 2 * sum / 5 + 1000 + 1);
        t.profile.overlap[OVERLAP_gradient] = false;
        assert_int_equal(timing_simulate(&t).ns, m * 400000 + 2 * sum + 1000);
        t.profile.overlap[OVERLAP_gradient] = true;
        t.profile.overlap[OVERLAP_scatter] = false;                          /* of these there is none yet */
        assert_true(timing_simulate(&t).ns < m * 400000 + 2 * sum + 1000);
        t.rank[0]->instr[1].op = t.rank[0]->instr[3].op = OP_reduce_scatter;
        sum = timing_simulate(&t).stage[0].cost[1].ns;
        assert_int_equal(timing_simulate(&t).ns, m * 400000 + 2 * sum + 1000);
        timing_free(&t);
    }
}

/* Sums longer than a layer: the link is never idle once the first is ready. */
static void sums_longer_than_backward_show(void **state)
{
    (void)state;
    Timing t = ddp(1, 50000, 500000);
    Simulation sim = timing_simulate(&t);
    int64_t sum = sim.stage[0].cost[1].ns;
    assert_int_equal(sim.ns, 50000 + 2 * sum + 1000);
    assert_int_equal(sim.stage[0].exposed[AXIS_dp], 2 * sum - 50000);
    assert_int_equal(parts_of(&sim.stage[0]), sim.ns);
    t.cl.device->backend = BACKEND_CPU;                                      /* one order of execution: nothing overlaps */
    t.cl.device->threads = 1;
    int64_t plain = timing_simulate(&t).stage[0].cost[1].ns;
    assert_int_equal(timing_simulate(&t).ns, 100000 + 2 * plain + 1000);
    timing_free(&t);
}

/* ---- a thread that communicates ---- */

static void courier(Timing *t)
{
    t->cl.device->backend = BACKEND_CPU;
    t->cl.device->threads = t->cl.device->comm_threads = 1;
}

static void a_courier_hides_sums(void **state)
{
    (void)state;
    for (uint32_t m = 1; m < 6; m += 2) {
        Timing t = ddp(m, 200000, 50000);
        courier(&t);
        Simulation sim = timing_simulate(&t);
        int64_t sum = sim.stage[0].cost[1].ns;
        assert_in_range(sum, 50000, 200000);
        assert_int_equal(sim.ns, m * 400000 + sum + 1000);
        assert_int_equal(sim.stage[0].exposed[AXIS_dp], sum);
        assert_int_equal(sim.stage[0].hidden[AXIS_dp], sum);
        assert_int_equal(parts_of(&sim.stage[0]), sim.ns);
        t.cl.device->comm_threads = 0;
        sim = timing_simulate(&t);
        assert_int_equal(sim.ns, m * 400000 + 2 * sum + 1000);
        assert_int_equal(sim.stage[0].hidden[AXIS_dp], 0);
        timing_free(&t);
    }
}

/* It needs a core: where each of two has a rank that computes, as much is lost as is hidden. */
static void a_courier_needs_a_core(void **state)
{
    (void)state;
    Timing t = ddp(1, 200000, 50000);
    courier(&t);
    int64_t sum = timing_simulate(&t).stage[0].cost[1].ns, alone = 400000 + sum + 1000;
    t.cl.level[0].cores = 4;
    assert_int_equal(timing_simulate(&t).ns, alone);
    t.cl.level[0].cores = 2;
    Simulation sim = timing_simulate(&t);
    assert_in_range(sim.ns, alone + sum - 2, alone + sum + 2);
    assert_in_range(sim.stage[0].hidden[AXIS_dp], 2 * sum - 2, 2 * sum + 2);
    assert_int_equal(parts_of(&sim.stage[0]), sim.ns);
    t.cl.level[0].cores = 0;
    t.cl.level[0].bandwidth = 2e9;                                           /* of 4e9 */
    assert_in_range(timing_simulate(&t).ns, alone + sum - 2, alone + sum + 2);
    timing_free(&t);
}

/* It has one order: what computing is about to need stands behind a sum of gradients. */
static void a_courier_has_one_order(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CUDA, LEVELS({2, 1e9, 0}));
    timing_mesh(&t, 1, 2, 1);
    Program *p = timing_program(&t, 0);
    uint32_t pair = timing_group(p, 2, 0, 1), a = timing_run(p, 1000);
    uint32_t g = timing_comm(p, OP_all_reduce, STREAM_gradient, pair, 50000), c = timing_comm(p, OP_all_reduce, STREAM_collective, pair, 2000);
    uint32_t b = timing_run(p, 1000);
    timing_proc(p, PROC_forward, 0);
    timing_call(p, 0, 0, 0);
    timing_wait(p, g, a, false);
    timing_wait(p, c, a, false);
    timing_wait(p, b, c, false);
    Simulation sim = timing_simulate(&t);
    assert_int_equal(sim.ns, 1000 + sim.stage[0].cost[g].ns);
    courier(&t);
    sim = timing_simulate(&t);
    assert_int_equal(sim.ns, 2000 + sim.stage[0].cost[g].ns + sim.stage[0].cost[c].ns);
    timing_free(&t);
}

/* Messages are left for the receiver, whose courier takes them while it computes; what was sent is not
 * written before it was taken. */
static void couriers_carry_messages(void **state)
{
    (void)state;
    for (int gpipe = 0; gpipe < 2; gpipe++) {
        Pipe of = {.stages = 3, .m = 12, .forward = 100000, .backward = 200000, .bytes = 9000, .gpipe = gpipe};
        Timing t = pipe_new(BACKEND_CPU, &of, 1e9, 0, true);
        int64_t in_order = timing_simulate(&t).ns;
        courier(&t);
        Simulation sim = timing_simulate(&t);
        int64_t message = sim.stage[1].cost[0].ns;
        assert_in_range(message, 9000, 30000);
        assert_true(sim.ns < in_order);
        assert_true(sim.ns >= 14 * 300000 + 4 * message);
        int64_t hidden = 0;
        for (int s = 0; s < 3; s++) {
            assert_int_equal(parts_of(&sim.stage[s]), sim.ns);
            hidden += sim.stage[s].hidden[AXIS_pp];
        }
        assert_true(gpipe || hidden > 0);            /* with gpipe a stage sends as the next one ends: it just waits less */
        timing_free(&t);
    }
}

/* ---- shared processors ---- */

static void four_ranks_on_two_cores(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CPU, LEVELS({4, 1e9, 0}));
    timing_mesh(&t, 1, 4, 1);
    Program *p = timing_program(&t, 0);
    uint32_t all = timing_group(p, 4, 0, 1);
    timing_run(p, 10000);
    timing_comm(p, OP_all_gather, STREAM_collective, all, 4000);
    timing_run(p, 500);
    timing_proc(p, PROC_forward, 0);
    timing_call(p, 0, 0, 0);
    assert_int_equal(timing_simulate(&t).ns, 13500);
    t.cl.level[0].cores = 4;
    assert_int_equal(timing_simulate(&t).ns, 13500);
    t.cl.level[0].cores = 2;
    Simulation sim = timing_simulate(&t);
    assert_int_equal(sim.ns, 24000);                                         /* the sum takes what it takes */
    assert_int_equal(sim.stage[0].slowed, 10500);
    t.cl.level[0].cores = 0;
    t.cl.level[0].bandwidth = 1e9;                                           /* of 4e9 */
    assert_int_equal(timing_simulate(&t).ns, 45000);
    t.cl.level[0].bandwidth = 8e9;
    assert_int_equal(timing_simulate(&t).ns, 13500);
    timing_free(&t);
}

/* Two stages of one rank on one core: alone each runs at full speed, together at half.
 *   stage 0  F0 0-1000; F1 1000 on, with F0 of stage 1: both end at 3000; then waits
 *   stage 1  F0 1000-3000; F1 3000-4000 */
static void stages_share_while_both_compute(void **state)
{
    (void)state;
    Pipe of = {.stages = 2, .m = 2, .forward = 1000};
    Timing t = pipe_new(BACKEND_CPU, &of, 1e18, 0, false);
    for (int s = 0; s < 2; s++) {                                            /* forward alone */
        t.rank[s]->ncall = 0;
        timing_call(t.rank[s], 0, 0, 0);
        timing_call(t.rank[s], 0, 1, 1);
    }
    assert_int_equal(timing_simulate(&t).ns, 3000);
    t.cl.level[0].cores = 1;
    Simulation sim = timing_simulate(&t);
    assert_int_equal(sim.stage[0].call[1].start, 1000);
    assert_int_equal(sim.stage[0].call[1].end, 3000);
    assert_int_equal(sim.stage[1].call[0].end, 3000);
    assert_int_equal(sim.ns, 4000);
    timing_free(&t);
}

/* ---- meetings ---- */

/* A sum over both stages starts when the later one has come. */
static void sums_over_stages_meet(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CPU, LEVELS({2, 1e9, 0}));
    timing_mesh(&t, 2, 1, 1);
    for (uint32_t s = 0; s < 2; s++) {
        Program *p = timing_program(&t, s);
        timing_run(p, s ? 5000 : 2000);
        timing_comm(p, OP_all_reduce, STREAM_gradient, timing_group(p, 2, 0, 1), 1000);
        timing_run(p, 300);
        timing_proc(p, PROC_update, 0);
        timing_call(p, 0, 0, 0);
    }
    Simulation sim = timing_simulate(&t);
    assert_int_equal(sim.ns, 5000 + 1000 + 300);
    assert_int_equal(sim.stage[0].bubble, 3000);
    assert_int_equal(sim.stage[0].exposed[AXIS_pp], 1000);
    assert_int_equal(sim.stage[1].bubble, 0);
    timing_free(&t);
}

/* ---- programs that codegen makes ---- */

static void number_devices(Plan *plan)
{
    for (uint32_t i = 0; i < plan->ndevices; i++)
        plan->devices[i] = i;
}

static const Profile everything = {.name = "all", .overlap = {true, true, true, true, true}, .slow_compute = 1.1, .slow_link = 1.1, .fuses_sums = true, .packs = true, .slow_matmul = 1, .slow_attention = 1, .slow_memory = 1, .pad = 1};

/* Most micro-batches that are on a stage at a time: begun forward, not ended backward. */
static uint32_t most_in_flight(const Program *p, const StageTimes *s)
{
    uint32_t now = 0, most = 0;
    for (uint32_t c = 0; c < p->ncall; c++) {
        ProcKind kind = p->proc[p->call[c].proc].kind;
        assert_true(s->call[c].end >= s->call[c].start && (c == 0 || s->call[c].start >= s->call[c - 1].start));
        now += kind == PROC_forward;
        most = now > most ? now : most;
        now -= kind == PROC_backward;
    }
    return most;
}

static void schedules_of_codegen(void **state)
{
    (void)state;
    static const char *const rules[] = {"schedule = \"1f1b\"", "schedule = \"gpipe\""};
    for (int gpipe = 0; gpipe < 2; gpipe++) {
        Model m = model_load((Setting){.model = "tiny_llama", .defines = "batch=6"});
        Plan plan = plan_of(&m, (Pin){4, 1, 1, 1, 6, arena_printf(m.a, "stage every 1 in layer; %s", rules[gpipe])});
        number_devices(&plan);
        Program **p = lower_programs(&m, &plan);
        Simulation sim = simulate(m.a, m.cl, &plan, &everything, p);
        assert_int_equal(sim.nstage, 4);
        for (uint32_t s = 0; s < 4; s++) {
            uint32_t want = gpipe ? 6 : 4 - s;
            assert_int_equal(most_in_flight(p[s], &sim.stage[s]), want);
            assert_int_equal(parts_of(&sim.stage[s]), sim.ns);
        }
        assert_true(sim.mfu > 0 && sim.mfu < 1 && sim.mfu_causal < sim.mfu && sim.hfu == sim.mfu);
        arena_free(m.a);
    }
}

/* On a machine of two equal nodes it does not matter which is which, nor which of a node's devices are. */
static void equal_nodes_are_equal(void **state)
{
    (void)state;
    static const uint32_t order[][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {4, 5, 6, 7, 0, 1, 2, 3}, {7, 6, 5, 4, 3, 2, 1, 0}};
    Model m = model_load((Setting){.model = "tiny_llama", .defines = "batch=4"});
    Plan plan = plan_of(&m, (Pin){2, 2, 1, 2, 2, "stage every 2 in layer; split heads, ffn, vocab by tp; split seq by tp"});
    Timing t = timing_new(BACKEND_CUDA, LEVELS({4, 100e9, 2e-6}, {2, 10e9, 8e-6}));
    t.cl.device->peak[DT_f64] = 1e13;
    t.cl.device->bandwidth = 1e12;
    int64_t first = 0, crossed;
    m.cl = &t.cl;
    number_devices(&plan);
    Program **p = lower_programs(&m, &plan);
    for (int i = 0; i < 3; i++) {
        memcpy(plan.devices, order[i], sizeof order[i]);
        int64_t ns = simulate(m.a, &t.cl, &plan, &everything, p).ns;
        first = i ? first : ns;
        assert_int_equal(ns, first);
    }
    memcpy(plan.devices, (uint32_t[]){0, 4, 1, 5, 2, 6, 3, 7}, 8 * sizeof(uint32_t));
    crossed = simulate(m.a, &t.cl, &plan, &everything, p).ns;
    assert_true(crossed > first);                    /* tp between the nodes */
    timing_free(&t);
    arena_free(m.a);
}

/* A model with more of everything never takes longer, where nothing slows down what runs beside it. */
static void better_machines_are_never_slower(void **state)
{
    (void)state;
    Profile even = everything;
    even.slow_compute = even.slow_link = 1;
    Model m = model_load((Setting){.model = "tiny_gpt2", .defines = "batch=8"});
    Plan plan = plan_of(&m, (Pin){2, 2, 1, 2, 4, "stage before h[2]; split heads, ffn, vocab by tp"});
    Timing t = timing_new(BACKEND_CUDA, LEVELS({4, 1e9, 2e-6}, {2, 1e8, 8e-6}));
    *t.cl.device = (Device){.name = "gpu", .backend = BACKEND_CUDA, .memory = 1LL << 34, .bandwidth = 1e9, .launch = 2e-6};
    t.cl.device->peak[DT_f64] = 1e9;
    m.cl = &t.cl;
    number_devices(&plan);
    Program **p = lower_programs(&m, &plan);
    int64_t before = simulate(m.a, &t.cl, &plan, &even, p).ns;
    double *better[] = {&t.cl.device->peak[DT_f64], &t.cl.device->bandwidth, &t.cl.level[0].link, &t.cl.level[1].link,
                        &t.cl.level[0].latency, &t.cl.level[1].latency, &t.cl.device->launch};
    for (int round = 0; round < 6; round++)
        for (size_t i = 0; i < sizeof better / sizeof *better; i++) {
            *better[i] *= i < 4 ? 1.7 : 0.6;
            int64_t now = simulate(m.a, &t.cl, &plan, &even, p).ns;
            assert_true(now <= before);
            before = now;
        }
    timing_free(&t);
    arena_free(m.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles_of_equal_stages),
        cmocka_unit_test(a_timeline_of_two_stages),
        cmocka_unit_test(messages_on_streams_are_hidden),
        cmocka_unit_test(joined_nodes_take_as_long),
        cmocka_unit_test(sums_hide_behind_the_last_backward),
        cmocka_unit_test(sums_longer_than_backward_show),
        cmocka_unit_test(four_ranks_on_two_cores),
        cmocka_unit_test(stages_share_while_both_compute),
        cmocka_unit_test(a_courier_hides_sums),
        cmocka_unit_test(a_courier_needs_a_core),
        cmocka_unit_test(a_courier_has_one_order),
        cmocka_unit_test(couriers_carry_messages),
        cmocka_unit_test(sums_over_stages_meet),
        cmocka_unit_test(schedules_of_codegen),
        cmocka_unit_test(equal_nodes_are_equal),
        cmocka_unit_test(better_machines_are_never_slower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
