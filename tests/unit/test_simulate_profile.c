/* What a runtime's profile adds to times and memory, against timelines and sums worked out by hand. */
#include "tests/unit/pipes.h"

/* ---- memory under a profile ---- */

/* 1000 bytes of states; two slots of 64 saved bytes that prun keeps, and working ones. */
static void memory_of_other_runtimes(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CPU, LEVELS({1, 0, 0}));
    timing_mesh(&t, 1, 1, 1);
    Program *p = timing_program(&t, 0);
    TensorId saved = timing_tensor(p, 64), working = timing_tensor(p, 100);
    p->buffer[p->tensor[saved.i].buffer.i].cls = CLASS_saved;
    p->buffer[p->tensor[saved.i].buffer.i].slots = 2;
    program_add_buffer(p, (Buffer){.name = "w", .cls = CLASS_weights, .bytes = 1000, .slots = 1});
    program_add_instr(p, (Instr){.op = OP_gelu, .path = "a", .nout = 1, .out = {saved}});
    program_add_instr(p, (Instr){.op = OP_add, .path = "b", .nout = 1, .out = {working}});
    timing_proc(p, PROC_forward, 0);
    timing_call(p, 0, 0, 0);
    timing_call(p, 0, 1, 1);
    p->map_bytes[PART_PRIVATE] = 1228;
    assert_int_equal(profile_bytes(p, &t.profile), 1228);
    t.profile.pad = 1.5;
    t.profile.reserve = 10;
    assert_int_equal(profile_bytes(p, &t.profile), 1000 + 228 * 3 / 2 + 10);
    Keep keep[] = {{OP_gelu, 0}, {OP_add, 2}};
    t.profile = (Profile){.name = "keeps", .pad = 1, .keep = keep, .nkeep = 1};
    assert_int_equal(profile_bytes(p, &t.profile), 1228 - 128);
    t.profile.keep = &keep[1];
    assert_int_equal(profile_bytes(p, &t.profile), 1228 + 2 * 2 * 100);
    timing_free(&t);
}

/* A procedure takes no less than its host needs to issue what is in it; a step may stall on many devices. */
static void hosts_and_stalls(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CUDA, LEVELS({1, 0, 0}));
    t.plan.microbatches = 2;
    timing_mesh(&t, 1, 1, 1);
    Program *p = timing_program(&t, 0);
    timing_run(p, 3000);
    timing_run(p, 1000);
    timing_proc(p, PROC_forward, 0);
    timing_call(p, 0, 0, 0);
    timing_call(p, 0, 1, 0);
    assert_int_equal(timing_simulate(&t).ns, 8000);
    t.profile.issue = 1.5e-6;                        /* more than the short one takes, but not than both */
    assert_int_equal(timing_simulate(&t).ns, 8000);
    t.profile.issue = 2.5e-6;
    assert_int_equal(timing_simulate(&t).ns, 10000);
    t.profile.stall = 1e-3;
    t.profile.stall_above = 1;
    assert_int_equal(timing_simulate(&t).ns, 10000);
    t.profile.stall_above = 0;
    assert_int_equal(timing_simulate(&t).ns, 1010000);
    timing_free(&t);
}

/* What the host lacks in forward it makes up for in a backward that is long. */
static void a_host_goes_on_to_backward(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CUDA, LEVELS({1, 0, 0}));
    timing_mesh(&t, 1, 1, 1);
    Program *p = timing_program(&t, 0);
    timing_run(p, 1000);
    timing_proc(p, PROC_forward, 0);
    timing_run(p, 3000);
    timing_proc(p, PROC_backward, 1);
    timing_call(p, 0, 0, 0);
    timing_call(p, 1, 0, 0);
    t.profile.issue = 2e-6;
    assert_int_equal(timing_simulate(&t).ns, 4000);
    t.profile.issue = 3e-6;
    assert_int_equal(timing_simulate(&t).ns, 6000);
    timing_free(&t);
}

/* Where there are stages, each rank of a collective costs the host of all. */
static void hosts_of_stages_meet(void **state)
{
    (void)state;
    for (uint32_t stages = 1; stages <= 2; stages++) {
        Timing t = timing_new(BACKEND_CUDA, LEVELS({4, 1e9, 0}));
        timing_mesh(&t, stages, 1, 4 / stages);
        for (uint32_t s = 0; s < stages; s++) {
            Program *p = timing_program(&t, s);
            timing_comm(p, OP_all_reduce, STREAM_collective, timing_group(p, 2, (int32_t)(2 * s), 1), 1000);
            timing_proc(p, PROC_forward, 0);
            timing_call(p, 0, 0, 0);
        }
        int64_t before = timing_simulate(&t).ns;
        t.profile.issue_rank = 1e-3;
        assert_int_equal(timing_simulate(&t).ns, stages == 1 ? before : 2000000);
        timing_free(&t);
    }
}

/* A micro-batch through two stages: a message each way, and the step itself. */
static void messages_stall(void **state)
{
    (void)state;
    Pipe of = {.stages = 2, .m = 1, .forward = 100000, .backward = 200000, .bytes = 9000};
    Timing t = pipe_new(BACKEND_CUDA, &of, 1e9, 0, false);
    int64_t before = timing_simulate(&t).ns;
    t.profile.stall = 1e-3;
    t.profile.stall_above = 1;
    assert_int_equal(timing_simulate(&t).ns, before + 3000000);
    t.profile.stall_above = 2;
    assert_int_equal(timing_simulate(&t).ns, before);
    timing_free(&t);
}

/* What a forward pass gathers is freed late, of each micro-batch in flight; with stages in small groups alone, and in none where hosts stall. */
static void gathers_freed_late(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CUDA, LEVELS({1, 0, 0}));
    timing_mesh(&t, 1, 2, 4);
    Program *p = timing_program(&t, 0);
    uint32_t four = timing_group(p, 4, 0, 1), all = timing_group(p, 8, 0, 1);
    timing_comm(p, OP_all_gather, STREAM_collective, four, 400);
    timing_comm(p, OP_all_gather, STREAM_collective, all, 8000);
    timing_comm(p, OP_reduce_scatter, STREAM_collective, four, 800);
    timing_proc(p, PROC_forward, 0);
    timing_comm(p, OP_all_gather, STREAM_collective, four, 1600);
    timing_proc(p, PROC_backward, 3);
    timing_call(p, 0, 0, 0);
    timing_call(p, 0, 1, 1);
    timing_call(p, 0, 2, 2);
    p->map_bytes[PART_PRIVATE] = 10000;
    assert_int_equal(profile_allocated(p, &t.profile), 10000);
    t.profile.late_gathers = 0.75;
    assert_int_equal(profile_allocated(p, &t.profile), 10000 + 3 * (300 + 6000));
    timing_comm(p, OP_recv, STREAM_recv, timing_group(p, 2, 0, 1), 100);
    timing_proc(p, PROC_backward, 4);
    assert_int_equal(profile_allocated(p, &t.profile), 10000);   /* a stage: in groups of no device */
    t.profile.late_within = 4;
    assert_int_equal(profile_allocated(p, &t.profile), 10000 + 3 * 300);
    t.profile.late_within = 8;
    assert_int_equal(profile_allocated(p, &t.profile), 10000 + 3 * (300 + 6000));
    assert_int_equal(profile_bytes(p, &t.profile), 10000);       /* none that it must have */
    t.profile.stall = 0.1;
    t.profile.stall_above = 8;
    assert_int_equal(profile_allocated(p, &t.profile), 10000 + 3 * (300 + 6000));
    t.profile.stall_above = 7;
    assert_int_equal(profile_allocated(p, &t.profile), 10000);
    timing_free(&t);
}

/* Gradients in the weights' type are held beside sums of another; an allocator's padding is not handed out. */
static void held_gradients(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CPU, LEVELS({1, 0, 0}));
    timing_mesh(&t, 1, 1, 1);
    Program *p = timing_program(&t, 0);
    TensorId w = timing_tensor(p, 64), sum = timing_tensor(p, 256), same = timing_tensor(p, 64);
    p->tensor[sum.i].dtype = DT_f32;
    State held = {.weight = w, .gradient = sum}, other = {.weight = w, .gradient = same};
    PUSH(p->arena, p->state, p->nstate, held);
    PUSH(p->arena, p->state, p->nstate, other);
    p->map_bytes[PART_PRIVATE] = 1000;
    t.profile.pad = 2;
    t.profile.reserve = 10;
    assert_int_equal(profile_bytes(p, &t.profile), 2010);
    assert_int_equal(profile_allocated(p, &t.profile), 1010);
    t.profile.holds_gradients = true;
    assert_int_equal(profile_allocated(p, &t.profile), 1010 + 64);
    timing_free(&t);
}

/* 800 bytes of states, 200 that forward and backward need, which a step's f32 copies of its gradients of 16 bits share: of
 * a whole weight of 30 elements and of 12 to 32 of another's. */
static void converted_gradients(void **state)
{
    (void)state;
    Timing t = timing_new(BACKEND_CPU, LEVELS({1, 0, 0}));
    timing_mesh(&t, 1, 1, 1);
    Program *p = timing_program(&t, 0);
    TensorId whole = timing_tensor(p, 30), part = timing_tensor(p, 64);
    p->tensor[whole.i].dtype = p->tensor[part.i].dtype = DT_f16;
    program_add_buffer(p, (Buffer){.name = "w", .cls = CLASS_weights, .bytes = 800, .slots = 1});
    State first = {.weight = whole, .gradient = whole}, second = {.weight = part, .gradient = part, .sharded = true, .shard = {.first = 12, .end = 32}};
    PUSH(p->arena, p->state, p->nstate, first);
    PUSH(p->arena, p->state, p->nstate, second);
    p->map_bytes[PART_PRIVATE] = 1000;
    t.profile.converts_gradients = true;
    assert_int_equal(profile_bytes(p, &t.profile), 1000);
    p->state[1].shard.end = 33;
    assert_int_equal(profile_bytes(p, &t.profile), 800 + 4 * (30 + 21));
    t.profile.pad = 1.5;
    assert_int_equal(profile_bytes(p, &t.profile), 800 + 300);
    t.profile.pad = 1;
    p->tensor[whole.i].dtype = p->tensor[part.i].dtype = DT_f32;
    assert_int_equal(profile_bytes(p, &t.profile), 1000);
    timing_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_other_runtimes),
        cmocka_unit_test(hosts_and_stalls),
        cmocka_unit_test(a_host_goes_on_to_backward),
        cmocka_unit_test(hosts_of_stages_meet),
        cmocka_unit_test(messages_stall),
        cmocka_unit_test(gathers_freed_late),
        cmocka_unit_test(held_gradients),
        cmocka_unit_test(converted_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
