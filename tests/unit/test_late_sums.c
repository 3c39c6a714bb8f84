/* Sums of gradients in the last micro-batch's backward: each bucket as soon as it is
 * complete, once, and what the verifier says of programs where that is not so. */
#include "codegen/pass.h"
#include "tests/unit/layouts.h"

/* Two stages of two, tables on both, small buckets, three micro-batches. */
typedef struct Sound { Model m; Plan plan; Program **p; } Sound;

static Sound sound(int64_t microbatches)
{
    Sound s = {.m = model_load((Setting){"tiny_gpt2", "batch=12 seq=12 vocab=60 hidden=48 heads=12 ffn=120 layers=2 context=12", NULL})};
    s.plan = plan_of(&s.m, (Pin){2, 2, 1, 1, microbatches, "stage before h[1]"});
    s.p = lower_programs(&s.m, &s.plan);
    return s;
}

/* The k-th sum of backward. */
static uint32_t sum_at(const Program *p, uint32_t k)
{
    const Proc *back = proc_find(p, PROC_backward);
    uint32_t i = back->first;
    while (!sums_gradients(p, i) || k-- > 0)
        i++;
    assert_true(i < back->end);
    return i;
}

static bool share_bytes(const Tensor *a, const Tensor *b)
{
    return a->buffer.i == b->buffer.i && a->at < b->at + tensor_bytes(b) && b->at < a->at + tensor_bytes(a);
}

/* The last instruction before i that writes what i sums. */
static uint32_t completed_by(const Program *p, uint32_t i)
{
    const Tensor *t = &p->tensor[p->instr[i].arg[0].i];
    while (i-- > 0)
        for (int k = 0; k < p->instr[i].nout; k++)
            if (has_tensor(p->instr[i].out[k]) && share_bytes(&p->tensor[p->instr[i].out[k].i], t))
                return i;
    fail_msg("nothing makes what is summed");
    return 0;
}

/* Between a sum and what completes it stand only sums that became ready there too. */
static void check_rank(const Program *p, uint32_t *late, uint32_t *tied)
{
    const Proc *back = proc_find(p, PROC_backward), *update = proc_find(p, PROC_update);
    for (uint32_t i = 0; i < p->ninstr; i++) {
        if (!sums_gradients(p, i))
            continue;
        *late += proc_has(back, i);
        *tied += proc_has(update, i);
        assert_int_equal(p->instr[i].when, proc_has(back, i) ? WHEN_LAST : WHEN_ALWAYS);
        for (uint32_t k = completed_by(p, i) + 1; proc_has(back, i) && k < i; k++)
            assert_true(sums_gradients(p, k));
    }
}

static void sums_follow_what_completes_them(void **state)
{
    (void)state;
    Sound s = sound(3);
    for (uint32_t r = 0; r < 4; r++) {
        uint32_t late = 0, tied = 0;
        check_rank(s.p[r], &late, &tied);
        assert_true(late >= 4);
        assert_int_equal(tied, 1);                   /* the table */
    }
    arena_free(s.m.a);
}

/* ---- faults ---- */

static void expect(Sound *s, int (*verifier)(const Program *, FILE *), const char *part)
{
    char *said = NULL;
    size_t n = 0;
    FILE *err = open_memstream(&said, &n);
    int broken = verifier(s->p[0], err);
    fclose(err);
    if (part ? broken == 0 || !strstr(said, part) : broken != 0)
        fail_msg("expected '%s' in '%s'", part ? part : "", said);
    free(said);
    arena_free(s->m.a);
}

/* Instruction `from` moves to before `to` of the same procedure. */
static void move_to(Program *p, uint32_t from, uint32_t to)
{
    Instr in = p->instr[from];
    if (from < to)
        memmove(&p->instr[from], &p->instr[from + 1], sizeof in * (to - from - 1));
    else
        memmove(&p->instr[to + 1], &p->instr[to], sizeof in * (from - to));
    p->instr[from < to ? to - 1 : to] = in;
}

static void a_sum_before_the_last_accumulation(void **state)
{
    (void)state;
    Sound s = sound(3);
    uint32_t i = sum_at(s.p[0], 0), made = completed_by(s.p[0], i);
    move_to(s.p[0], i, made);
    expect(&s, verify, arena_printf(s.m.a, "instruction %u adds to it after instruction %u has summed it over ranks", made + 1, made));
}

static void a_sum_in_every_micro_batch(void **state)
{
    (void)state;
    Sound s = sound(3);
    uint32_t i = sum_at(s.p[0], 1);
    s.p[0]->instr[i].when = WHEN_ALWAYS;
    expect(&s, verify, arena_printf(s.m.a, "instruction %u sums '%s' over ranks in each of 3 micro-batches", i, s.p[0]->instr[i].path));
}

static void one_micro_batch_needs_no_guard(void **state)
{
    (void)state;
    Sound s = sound(1);
    s.p[0]->instr[sum_at(s.p[0], 1)].when = WHEN_ALWAYS;
    expect(&s, verify, NULL);
}

static void a_sum_twice(void **state)
{
    (void)state;
    Sound s = sound(3);
    uint32_t i = sum_at(s.p[0], 1), again = sum_at(s.p[0], 2);
    s.p[0]->instr[again] = s.p[0]->instr[i];
    expect(&s, verify_update, arena_printf(s.m.a, "is summed over ranks twice, again by instruction %u", again));
}

static void a_sum_after_the_norm(void **state)
{
    (void)state;
    Sound s = sound(3);
    Program *p = s.p[0];
    uint32_t i = proc_find(p, PROC_update)->first, norm = i;
    while (p->instr[norm].op != OP_sum_squares || !share_bytes(&p->tensor[p->instr[norm].arg[0].i], &p->tensor[p->instr[i].arg[0].i]))
        norm++;
    move_to(p, i, norm + 1);
    expect(&s, verify_update, arena_printf(s.m.a, "instruction %u sums '%s' over ranks after instruction %u has read it", norm, p->instr[norm].path, norm - 1));
}

static void an_accumulator_of_the_last_micro_batch_alone(void **state)
{
    (void)state;
    Sound s = sound(3);
    s.p[0]->instr[completed_by(s.p[0], sum_at(s.p[0], 0))].when = WHEN_LAST;
    expect(&s, program_check, "is not written in micro-batch 0");
}

static void a_guard_outside_backward(void **state)
{
    (void)state;
    Sound s = sound(3);
    s.p[0]->instr[0].when = WHEN_LAST;
    expect(&s, program_check, "is of the last micro-batch, but not of backward");
}

/* The last two backward calls the other way round: the sums come too early. */
static void another_micro_batch_is_the_last(void **state)
{
    (void)state;
    Sound s = sound(3);
    Program *p = s.p[0];
    uint32_t i = p->ncall, k;
    while (p->proc[p->call[--i].proc].kind != PROC_backward)
        ;
    for (k = i - 1; p->proc[p->call[k].proc].kind != PROC_backward; k--)
        ;
    Call x = p->call[i];
    p->call[i] = p->call[k];
    p->call[k] = x;
    expect(&s, verify, "micro-batch 1 of 3 is the last to go backward");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_follow_what_completes_them),
        cmocka_unit_test(a_sum_before_the_last_accumulation),
        cmocka_unit_test(a_sum_in_every_micro_batch),
        cmocka_unit_test(one_micro_batch_needs_no_guard),
        cmocka_unit_test(a_sum_twice),
        cmocka_unit_test(a_sum_after_the_norm),
        cmocka_unit_test(an_accumulator_of_the_last_micro_batch_alone),
        cmocka_unit_test(a_guard_outside_backward),
        cmocka_unit_test(another_micro_batch_is_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
