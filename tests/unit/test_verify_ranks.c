/* The verifier of all ranks: each kind of fault, planted in the sound programs of a
 * plan, is found and named. */
#include "codegen/pass.h"
#include "tests/unit/layouts.h"

/* ---- programs to be damaged ---- */

typedef struct Sound { Model m; Plan plan; Program **p; } Sound;

/* Tied tables on two stages, heads, ffn and vocabulary over tp, in half also the
 * sequence, two micro-batches: eight ranks, of which 0..3 are the first stage. */
static Sound sound(void)
{
    Sound s = {.m = model_load((Setting){"tiny_gpt2", "batch=8 seq=12 vocab=60 hidden=48 heads=12 ffn=120 layers=2 context=12", NULL})};
    s.plan = plan_of(&s.m, (Pin){2, 2, 1, 2, 2, "split heads, ffn, vocab by tp; stage before h[1]"});
    s.p = lower_programs(&s.m, &s.plan);
    return s;
}

/* What the verifier prints holds `part`. */
static void expect(Sound *s, const char *part)
{
    char *said = NULL;
    size_t n = 0;
    FILE *err = open_memstream(&said, &n);
    int broken = verify_ranks(s->m.g, &s->plan, (const Program *const *)s->p, err);
    fclose(err);
    if (broken == 0 || !strstr(said, part))
        fail_msg("expected '%s' in '%s'", part, said);
    free(said);
    arena_free(s->m.a);
}

static uint32_t find(const Program *p, ProcKind kind, OpKind op)
{
    const Proc *proc = proc_find(p, kind);
    for (uint32_t i = proc->first; i < proc->end; i++)
        if (p->instr[i].op == op)
            return i;
    fail_msg("no %s", op_info[op].name);
    return 0;
}

/* The first sum of a bucket's gradients. */
static uint32_t first_sum(const Program *p)
{
    uint32_t i = 0;
    while (!sums_gradients(p, i))
        i++;
    return i;
}

static void move_procs(Program *p, uint32_t after, int by)
{
    for (uint32_t k = 0; k < p->nproc; k++) {
        p->proc[k].first = (uint32_t)((int)p->proc[k].first + (p->proc[k].first > after ? by : 0));
        p->proc[k].end = (uint32_t)((int)p->proc[k].end + (p->proc[k].end > after ? by : 0));
    }
    p->ninstr = (uint32_t)((int)p->ninstr + by);
}

static void drop(Program *p, uint32_t i)
{
    memmove(&p->instr[i], &p->instr[i + 1], sizeof *p->instr * (p->ninstr - i - 1));
    move_procs(p, i, -1);
}

/* Again, right after itself. */
static void repeat(Program *p, uint32_t i, Instr in)
{
    Instr *more = NEWN(p->arena, Instr, p->ninstr + 1);
    memcpy(more, p->instr, sizeof *more * (i + 1));
    more[i + 1] = in;
    memcpy(more + i + 2, p->instr + i + 1, sizeof *more * (p->ninstr - i - 1));
    p->instr = more;
    move_procs(p, i, 1);
}

/* ---- collectives and messages ---- */

/* The next instruction after i that meets in the same group. */
static uint32_t next_meeting(const Program *p, uint32_t i)
{
    for (uint32_t k = i + 1; k < p->ninstr; k++)
        if (op_info[p->instr[k].op].flags & OPF_COMM && p->instr[k].group == p->instr[i].group)
            return k;
    fail_msg("one meeting only");
    return 0;
}

static void exchange(Program *p, uint32_t i, uint32_t k)
{
    Instr x = p->instr[i];
    p->instr[i] = p->instr[k];
    p->instr[k] = x;
}

static void collectives_in_another_order(void **state)
{
    (void)state;
    Sound s = sound();
    uint32_t i = find(s.p[1], PROC_forward, OP_all_reduce);
    exchange(s.p[1], i, next_meeting(s.p[1], i));
    expect(&s, " where rank ");
}

static void gradients_summed_in_another_order(void **state)
{
    (void)state;
    Sound s = sound();
    uint32_t i = first_sum(s.p[2]);
    exchange(s.p[2], i, next_meeting(s.p[2], i));
    expect(&s, "rank 2 comes to all_reduce of 'bucket[2].gradients'");
}

static void a_collective_of_another_size(void **state)
{
    (void)state;
    Sound s = sound();
    Program *p = s.p[3];
    p->tensor[p->instr[first_sum(p)].arg[0].i].axis[0].local -= 64;
    expect(&s, "rank 3 comes to all_reduce of ");
}

static void another_collective(void **state)
{
    (void)state;
    Sound s = sound();
    Program *p = s.p[0];
    p->instr[first_sum(p)].op = OP_broadcast;
    expect(&s, "broadcast of ");
}

static void a_collective_that_one_rank_leaves_out(void **state)
{
    (void)state;
    Sound s = sound();
    drop(s.p[5], find(s.p[5], PROC_agree, OP_all_reduce));
    expect(&s, "waits for ever at instruction ");
}

static void a_message_that_nobody_receives(void **state)
{
    (void)state;
    Sound s = sound();
    drop(s.p[4], find(s.p[4], PROC_forward, OP_recv));
    expect(&s, "rank 4 never receives send of ");
}

static void a_message_of_another_size(void **state)
{
    (void)state;
    Sound s = sound();
    Program *p = s.p[4];
    p->tensor[p->instr[find(p, PROC_forward, OP_recv)].out[0].i].axis[0].local /= 2;
    expect(&s, "rank 4 expects recv of ");
}

static void a_message_of_another_value(void **state)
{
    (void)state;
    Sound s = sound();
    s.p[0]->instr[find(s.p[0], PROC_forward, OP_send)].path = "another";
    expect(&s, "which sends send of 'another'");
}

/* The first stage wants a gradient back before it sends what the last stage waits for. */
static void stages_that_wait_for_each_other(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 0; r < 8; r++) {
        Call *c = s.p[r]->call;
        while (s.p[r]->proc[c->proc].kind != PROC_forward)
            c++;
        Call x = c[1];
        c[1] = c[2];
        c[2] = x;
    }
    expect(&s, "rank 0 waits for ever at instruction ");
}

/* ---- gradients and the norm ---- */

static void a_gradient_that_is_not_summed(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 0; r < 8; r++)
        drop(s.p[r], first_sum(s.p[r]));
    expect(&s, "over 1 ranks, and 2 hold summands");
}

static void a_gradient_that_is_summed_twice(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 0; r < 8; r++) {
        uint32_t i = first_sum(s.p[r]);
        repeat(s.p[r], i, s.p[r]->instr[i]);
    }
    expect(&s, "over 4 ranks, and 2 hold summands");
}

static bool spans_stages(const RankGroup *g)
{
    return g->rank[0] < 4 && g->rank[g->n - 1] >= 4;
}

/* The sum of the tied table, over both stages. */
static void a_tied_gradient_that_stages_keep_to_themselves(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 0; r < 8; r++) {
        Program *p = s.p[r];
        uint32_t first = first_sum(p), i = find(p, PROC_update, OP_all_reduce);
        while (!spans_stages(&p->group[p->instr[i].group]))
            i++;
        p->instr[i].group = p->instr[first].group;
    }
    expect(&s, "sums the gradient of 'wte' over 2 ranks, and 4 hold summands");
}

static void a_sum_over_ranks_without_a_summand(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 0; r < 8; r++) {
        Program *p = s.p[r];
        p->instr[first_sum(p)].group = p->instr[find(p, PROC_forward, OP_all_reduce)].group;
    }
    expect(&s, "over ranks without a summand");
}

static void a_norm_that_counts_twice(void **state)
{
    (void)state;
    Sound s = sound();
    uint32_t i = find(s.p[0], PROC_update, OP_sum_squares);
    repeat(s.p[0], i, s.p[0]->instr[i]);
    expect(&s, " of them again");
}

static void a_norm_that_leaves_out(void **state)
{
    (void)state;
    Sound s = sound();
    drop(s.p[0], find(s.p[0], PROC_update, OP_sum_squares));
    expect(&s, "the norm counts 2880 of 5760 elements of 'h[0].mlp.down.w'");
}

static void a_norm_of_one_stage(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 0; r < 8; r++) {
        Program *p = s.p[r];
        for (uint32_t i = 0; i < p->ninstr; i++)
            if (p->instr[i].op == OP_all_reduce && strcmp(p->instr[i].path, "norm") == 0)
                p->instr[i].group = p->instr[first_sum(p)].group;
    }
    expect(&s, "sums the norm over 2 of 8 ranks");
}

/* ---- what counts once ---- */

/* The bias after a product whose summed axis is split. */
static Attr *owned(Program *p)
{
    return instr_set(&p->instr[find(p, PROC_forward, OP_scale)], "by");
}

static void two_owners(void **state)
{
    (void)state;
    Sound s = sound();
    assert_true(owned(s.p[0])->f == 1 && owned(s.p[1])->f == 0);
    *owned(s.p[1]) = ATTR_F(1);
    expect(&s, "counts once counts on 3 of 4 ranks of stage 0");
}

static void every_rank_an_owner(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 0; r < 4; r++)
        *owned(s.p[r]) = ATTR_F(1);
    expect(&s, "counts once counts on 4 of 4 ranks of stage 0");
}

static void no_owner(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 4; r < 8; r++)
        *owned(s.p[r]) = ATTR_F(0);
    expect(&s, "counts once counts on 0 of 4 ranks of stage 1");
}

/* ---- layers, weights, scalars ---- */

static void a_layer_on_two_stages(void **state)
{
    (void)state;
    Sound s = sound();
    Instr in = s.p[0]->instr[find(s.p[0], PROC_forward, OP_layernorm)];
    for (uint32_t r = 4; r < 8; r++)
        repeat(s.p[r], find(s.p[r], PROC_forward, OP_attention), in);
    expect(&s, "op 'h[0].ln1' is executed on 2 stages");
}

static void a_layer_on_no_stage(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 0; r < 4; r++)
        drop(s.p[r], find(s.p[r], PROC_forward, OP_attention));
    expect(&s, "op 'h[0].attn.a' is executed on no stage");
}

static void ranks_of_a_stage_that_differ(void **state)
{
    (void)state;
    Sound s = sound();
    s.p[6]->instr[find(s.p[6], PROC_backward, OP_layernorm_grad)].extent[0]++;
    expect(&s, "of other extents on rank 6 of its stage");
}

static void a_part_of_a_weight_that_nobody_holds(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 0; r < 8; r++)
        s.p[r]->tensor[state_of(s.p[r], "wte")->weight.i].axis[0].origin = 0;
    expect(&s, "ranks hold 1440 of 2880 elements of 'wte'");
}

static void a_loss_that_is_not_summed(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 4; r < 8; r++)
        drop(s.p[r], find(s.p[r], PROC_total, OP_all_reduce));
    expect(&s, "over ranks 0 times, expected 1");
}

static void counts_summed_over_other_ranks(void **state)
{
    (void)state;
    Sound s = sound();
    for (uint32_t r = 4; r < 8; r++)
        s.p[r]->instr[find(s.p[r], PROC_agree, OP_all_reduce)].group = s.p[r]->instr[find(s.p[r], PROC_forward, OP_all_reduce)].group;
    expect(&s, "that are not those with a summand");
}

/* ---- one program ---- */

static char *complaint(Program *p, int (*check)(const Program *, FILE *))
{
    char *said = NULL;
    size_t n = 0;
    FILE *err = open_memstream(&said, &n);
    check(p, err);
    fclose(err);
    return said;
}

/* What one rank of several says; `check` looks at its program alone. */
static void expect_alone(Sound *s, Program *p, int (*check)(const Program *, FILE *), const char *part)
{
    char *said = complaint(p, check);
    if (!strstr(said, part))
        fail_msg("expected '%s' in '%s'", part, said);
    free(said);
    arena_free(s->m.a);
}

static void operands_of_different_parts(void **state)
{
    (void)state;
    Sound s = sound();
    Program *p = s.p[1];
    Tensor *t = &p->tensor[p->instr[find(p, PROC_forward, OP_attention)].arg[0].i];
    int axis = 0;
    while (t->axis[axis].origin == 0)
        axis++;
    t->axis[axis].origin = 0;
    expect_alone(&s, p, verify, "that of another operand at ");
}

static void buffers_that_overlap(void **state)
{
    (void)state;
    Sound s = sound();
    Program *p = s.p[7];
    const Instr *in = &p->instr[find(p, PROC_forward, OP_attention)];
    const Buffer *q = &p->buffer[p->tensor[in->arg[0].i].buffer.i];
    Buffer *y = &p->buffer[p->tensor[in->out[0].i].buffer.i];
    y->part = q->part;
    y->offset = q->offset;
    expect_alone(&s, p, program_check, "overlap while both live");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_in_another_order),
        cmocka_unit_test(gradients_summed_in_another_order),
        cmocka_unit_test(a_collective_of_another_size),
        cmocka_unit_test(another_collective),
        cmocka_unit_test(a_collective_that_one_rank_leaves_out),
        cmocka_unit_test(a_message_that_nobody_receives),
        cmocka_unit_test(a_message_of_another_size),
        cmocka_unit_test(a_message_of_another_value),
        cmocka_unit_test(stages_that_wait_for_each_other),
        cmocka_unit_test(a_gradient_that_is_not_summed),
        cmocka_unit_test(a_gradient_that_is_summed_twice),
        cmocka_unit_test(a_tied_gradient_that_stages_keep_to_themselves),
        cmocka_unit_test(a_sum_over_ranks_without_a_summand),
        cmocka_unit_test(a_norm_that_counts_twice),
        cmocka_unit_test(a_norm_that_leaves_out),
        cmocka_unit_test(a_norm_of_one_stage),
        cmocka_unit_test(two_owners),
        cmocka_unit_test(every_rank_an_owner),
        cmocka_unit_test(no_owner),
        cmocka_unit_test(a_layer_on_two_stages),
        cmocka_unit_test(a_layer_on_no_stage),
        cmocka_unit_test(ranks_of_a_stage_that_differ),
        cmocka_unit_test(a_part_of_a_weight_that_nobody_holds),
        cmocka_unit_test(a_loss_that_is_not_summed),
        cmocka_unit_test(counts_summed_over_other_ranks),
        cmocka_unit_test(operands_of_different_parts),
        cmocka_unit_test(buffers_that_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
