/* The verifier: each kind of damage to a sound program is found. */
#include "tests/unit/lowering.h"

/* A lowered GPT-2 to be damaged. */
static Program *sound(Build *b)
{
    *b = build_new(4);
    gpt2(b, tiny);
    return lowered(b, 2);
}

/* The verifier's first line; empty when it finds nothing. */
static const char *complaint(Build *b, const Program *p)
{
    char *said = NULL;
    size_t n = 0;
    FILE *err = open_memstream(&said, &n);
    int broken = program_check(p, err);
    fclose(err);
    assert_true((broken > 0) == (n > 0));
    said[strcspn(said, "\n")] = 0;
    const char *line = arena_strdup(b->a, said);
    free(said);
    return line;
}

static void expect(Build *b, const Program *p, const char *part)
{
    const char *line = complaint(b, p);
    if (!strstr(line, part))
        fail_msg("expected '%s' in '%s'", part, line);
    build_free(b);
}

static Instr *first_of(Program *p, ProcKind kind, OpKind op)
{
    for (uint32_t i = proc(p, kind)->first; i < proc(p, kind)->end; i++)
        if (p->instr[i].op == op)
            return &p->instr[i];
    fail_msg("no %s", op_info[op].name);
    return NULL;
}

static void a_sound_program_passes(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    expect(&b, p, "");
}

static void extents_that_disagree(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    first_of(p, PROC_forward, OP_attention)->extent[0]++;
    expect(&b, p, "axis 0 of argument 0 has 2 elements, expected 3");
}

static void a_missing_argument(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    first_of(p, PROC_forward, OP_attention)->arg[1] = NO_TENSOR;
    expect(&b, p, "argument 'k' is absent");
}

static void a_tensor_past_its_buffer(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    p->tensor[first_of(p, PROC_forward, OP_attention)->out[0].i].at += BUFFER_ALIGN;
    expect(&b, p, "in a buffer of");
}

static void a_buffer_past_the_map(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    p->map_bytes[PART_PRIVATE] -= BUFFER_ALIGN;
    expect(&b, p, "outside the map");
}

static void buffers_that_overlap(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    const Instr *in = first_of(p, PROC_forward, OP_attention);
    p->buffer[on(p, in->out[0]).i].offset = p->buffer[on(p, in->arg[0]).i].offset;
    expect(&b, p, "overlap while both live");
}

/* A lifetime that ends too early lets another buffer take the place. */
static void a_life_that_is_too_short(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    p->buffer[on(p, first_of(p, PROC_backward, OP_attention_grad)->arg[1]).i].last--;
    expect(&b, p, "outside its life");
}

static void a_read_before_any_write(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    Instr *in = first_of(p, PROC_forward, OP_attention);
    TensorId q = program_add_tensor(p, p->tensor[in->arg[0].i]);
    Buffer fresh = p->buffer[p->tensor[q.i].buffer.i];
    fresh.offset = p->map_bytes[PART_PRIVATE];
    p->map_bytes[PART_PRIVATE] += fresh.bytes;
    p->tensor[q.i].buffer = program_add_buffer(p, fresh);
    in->arg[0] = q;
    expect(&b, p, "which nothing wrote or something overwrote");
}

static uint32_t first_call(const Program *p, ProcKind kind)
{
    uint32_t i = 0;
    while (p->proc[p->call[i].proc].kind != kind)
        i++;
    return i;
}

static void swap_calls(Program *p, uint32_t i, uint32_t j)
{
    Call x = p->call[i];
    p->call[i] = p->call[j];
    p->call[j] = x;
}

static void a_backward_pass_that_comes_first(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    swap_calls(p, first_call(p, PROC_forward), first_call(p, PROC_backward));
    expect(&b, p, "which nothing wrote or something overwrote");
}

/* Two forward passes, then two backward passes, with room for one micro-batch.
 * Without a map no buffer lies on another, so only the missing slots can be at fault. */
static void more_micro_batches_in_flight_than_slots(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    uint32_t i = first_call(p, PROC_backward);
    assert_int_equal(p->proc[p->call[i + 1].proc].kind, PROC_forward);
    swap_calls(p, i, i + 1);
    p->map_bytes[PART_PRIVATE] = 0;
    expect(&b, p, "which nothing wrote or something overwrote");
}

/* An evaluation between a forward and its backward pass: it has buffers of its own,
 * but on the same bytes. */
static void an_evaluation_that_overwrites_what_was_saved(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    uint32_t i = first_call(p, PROC_backward), evaluate = 0;
    while (p->proc[evaluate].kind != PROC_evaluate)
        evaluate++;
    Call *call = NEWN(b.a, Call, p->ncall + 1);
    memcpy(call, p->call, sizeof *call * i);
    call[i] = (Call){evaluate, 0, 0};
    memcpy(call + i + 1, p->call + i, sizeof *call * (p->ncall - i));
    p->call = call;
    p->ncall++;
    expect(&b, p, "which nothing wrote or something overwrote");
}

static void a_gradient_that_is_not_written(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    Program cut = *p;
    uint32_t back = 0;
    while (p->proc[back].kind != PROC_backward)
        back++;
    cut.proc = memcpy(NEWN(b.a, Proc, p->nproc), p->proc, sizeof *p->proc * p->nproc);
    cut.proc[back].end = cut.proc[back].first + 1;
    expect(&b, &cut, "is not written in micro-batch 0");
}

static void accumulation_the_op_cannot_do(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    Instr *in = first_of(p, PROC_forward, OP_attention);
    in->acc = ACC_YES;
    in->acc_out = 1;
    expect(&b, p, "attention cannot accumulate");
}

static void a_workspace_that_is_too_small(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    p->tensor[first_of(p, PROC_forward, OP_attention)->workspace.i].axis[0].local -= 1;
    expect(&b, p, "needs a workspace of");
}

/* ---- gradients by place ---- */

static bool share_bytes(const Tensor *a, const Tensor *b)
{
    return a->buffer.i == b->buffer.i && a->at < b->at + tensor_bytes(b) && b->at < a->at + tensor_bytes(a);
}

static void check_places(const Program *p, const GradientPlaces *g, const Tensor *t, bool *found)
{
    memset(found, 0, p->nstate);
    for (uint32_t i = gradients_first(g, t); i < g->n; i = gradients_next(g, t, i)) {
        assert_false(found[g->place[i].state]);
        found[g->place[i].state] = true;
    }
    for (uint32_t s = 0; s < p->nstate; s++)
        assert_int_equal(found[s], has_tensor(p->state[s].gradient) && share_bytes(&p->tensor[p->state[s].gradient.i], t));
}

/* Of every tensor, the states whose gradients share its bytes; with some
 * gradients grown over their neighbours too. */
static void gradients_are_found_by_place(void **state)
{
    (void)state;
    Build b;
    Program *p = sound(&b);
    bool *found = NEWN(b.a, bool, p->nstate + 1);
    for (int grown = 0; grown < 2; grown++) {
        GradientPlaces g = gradient_places(p, b.a);
        for (uint32_t t = 0; t < p->ntensor; t++)
            check_places(p, &g, &p->tensor[t], found);
        for (uint32_t s = 0; s < p->nstate; s += 3)
            p->tensor[p->state[s].gradient.i].axis[0].local *= 40;
    }
    build_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_program_passes),
        cmocka_unit_test(extents_that_disagree),
        cmocka_unit_test(a_missing_argument),
        cmocka_unit_test(a_tensor_past_its_buffer),
        cmocka_unit_test(a_buffer_past_the_map),
        cmocka_unit_test(buffers_that_overlap),
        cmocka_unit_test(a_life_that_is_too_short),
        cmocka_unit_test(a_read_before_any_write),
        cmocka_unit_test(a_backward_pass_that_comes_first),
        cmocka_unit_test(more_micro_batches_in_flight_than_slots),
        cmocka_unit_test(an_evaluation_that_overwrites_what_was_saved),
        cmocka_unit_test(a_gradient_that_is_not_written),
        cmocka_unit_test(accumulation_the_op_cannot_do),
        cmocka_unit_test(a_workspace_that_is_too_small),
        cmocka_unit_test(gradients_are_found_by_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
