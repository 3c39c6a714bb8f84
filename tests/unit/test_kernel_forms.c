/* Every fast kernel against the plain form of its op, on every op of every case of
 * tests/ops, at small and at odd larger extents, by teams of one to three; adding to
 * results and in place where the op table allows it.  A new row of cpu.def is tested
 * without a change here. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ops/cases.h"

enum { TEAMS = 3 };

/* Distance over the largest number of the result; f32 sums of a few hundred terms
 * and short polynomials stay well within.  In bf16 one form may round up what the other
 * rounds down, 2^-7 of a number. */
static double tolerance(DType t)
{
    return t == DT_f64 ? 1e-12 : t == DT_bf16 ? 0x1.02p-7 : 1e-5;
}

/* How a trial differs from a plain call. */
typedef enum Manner { OVERWRITE, ADD, IN_PLACE, MANNERS } Manner;
static const char *const manner_name[] = {"overwriting", "adding", "in place"};

typedef struct Run {
    Eval       *e;
    const Case *of;
    OpId        id;
    Manner      manner;
    void       *out[MAX_OUTS];        /* fresh arrays */
    int         wrong;
} Run;

static const Op *op_run(const Run *r)
{
    return op_of(r->e->g, r->id);
}

/* Which results a trial adds to: the loss of a cross entropy, else all. */
static uint8_t added(const Run *r)
{
    const Op *op = op_run(r);
    if (r->manner != ADD)
        return 0;
    bool loss = op->kind == OP_cross_entropy || op->kind == OP_cross_entropy_both || op->kind == OP_cross_entropy_merge;
    return (uint8_t)(loss ? 1 : (1 << op->nout) - 1);
}

static bool can(const Run *r, Manner manner)
{
    const Op *op = op_run(r);
    unsigned flags = op_info[op->kind].flags;
    if (manner == ADD)
        return flags & OPF_ACCUM;
    if (manner == IN_PLACE)
        return flags & OPF_INPLACE && op->narg && eval_bytes(r->e, op->arg[0]) == eval_bytes(r->e, op->out[0]) &&
               memcmp(op->arg_factor[0], op->out_factor[0], MAX_RANK) == 0;
    return true;
}

/* Argument that shares memory with a result in place, or -1: an optimizer updates
 * all its states. */
static int shared_arg(OpKind k, int out)
{
    if (out == 0)
        return 0;
    return k == OP_adamw || k == OP_sgd ? out + 1 : -1;
}

static void prepare(Run *r, Trial *t)
{
    const Op *op = op_run(r);
    for (int o = 0; o < op->nout; o++) {
        t->out[o] = r->out[o] = eval_array(eval_bytes(r->e, op->out[o]));
        if (added(r) >> o & 1)
            memset(r->out[o], 0x3f, eval_bytes(r->e, op->out[o]));   /* 0.747, in f64 0.00047 */
        int a = shared_arg(op->kind, o);
        if (r->manner == IN_PLACE && a >= 0) {
            memcpy(r->out[o], r->e->data[op->arg[a].i], eval_bytes(r->e, op->out[o]));
            t->arg[a] = r->out[o];
        }
    }
}

static void release(Run *r)
{
    for (int o = 0; o < op_run(r)->nout; o++)
        free(r->out[o]);
}

/* What an element must be: the plain form's, plus what was there. */
static double expected(const Run *r, int o, int64_t i)
{
    ValueId v = op_run(r)->out[o];
    double start = 0;
    unsigned char bytes[8];
    memset(bytes, 0x3f, sizeof bytes);
    if (added(r) >> o & 1)
        start = eval_get_from(r->e, v, bytes, 0);
    return eval_get(r->e, v, i) + start;
}

static double distance(const Run *r, int o)
{
    ValueId v = op_run(r)->out[o];
    double worst = 0, largest = eval_usual_size(r->e, r->id);
    for (int64_t i = 0; i < value_elements(r->e->g, v); i++) {
        double want = expected(r, o, i), d = fabs(eval_get_from(r->e, v, r->out[o], i) - want);
        if (!isfinite(want) && isnan(d))
            d = 0;                                   /* the same infinity */
        worst = d > worst || isnan(d) ? d : worst;
        largest = fabs(want) > largest && isfinite(want) ? fabs(want) : largest;
    }
    return worst / (largest > 0 ? largest : 1);
}

static void judge(Run *r, const Trial *t)
{
    const Op *op = op_run(r);
    for (int o = 0; o < op->nout; o++) {
        double d = distance(r, o);
        if (d <= tolerance(value_of(r->e->g, op->out[o])->dtype) || (r->e->compute == DT_f32 && d <= tolerance(DT_f32)))
            continue;
        print_message("%s: %s by %s, team of %d, %s: result %d is off by %.2g\n", r->of->name, op_info[op->kind].name, isa_name(t->isa),
                      team_size(t->team), manner_name[r->manner], o, d);
        r->wrong++;
    }
}

/* The same call again gives the same bits. */
static void judge_again(Run *r, Trial *t)
{
    const Op *op = op_run(r);
    void *before[MAX_OUTS];
    memcpy(before, r->out, sizeof before);
    prepare(r, t);
    eval_trial(r->e, r->id, t);
    for (int o = 0; o < op->nout; o++) {
        if (memcmp(before[o], r->out[o], eval_bytes(r->e, op->out[o])) != 0) {
            print_message("%s: %s by %s, team of %d: the bits change\n", r->of->name, op_info[op->kind].name, isa_name(t->isa), team_size(t->team));
            r->wrong++;
        }
        free(before[o]);
    }
}

static void try_one(Run *r, Isa isa, Team *team)
{
    Trial t = {.isa = isa, .team = team};
    prepare(r, &t);
    t.acc = r->manner == ADD ? ACC_YES : ACC_NO;
    t.acc_out = added(r);
    eval_trial(r->e, r->id, &t);
    judge(r, &t);
    if (r->manner == OVERWRITE)
        judge_again(r, &t);
    release(r);
}

/* All ways to run one op whose arguments are there, after its plain form has run. */
static void try_op(Run *r, Team *const team[TEAMS])
{
    OpKind kind = op_run(r)->kind;
    for (r->manner = OVERWRITE; r->manner < MANNERS; r->manner++) {
        if (!can(r, r->manner))
            continue;
        if (r->manner != OVERWRITE)
            try_one(r, ISA_REF, team[1]);
        for (Isa isa = ISA_V2; isa <= isa_best(); isa++)
            for (int n = 0; n < TEAMS && kernel_find(kind, r->e->compute, isa) != kernel_ref(kind); n++)
                try_one(r, isa, team[n]);
    }
}

static int try_case(const Case *c, int scale, DType compute, Team *const team[TEAMS])
{
    Arena *a = arena_new("case");
    Maker m = case_make(a, c, scale, compute, !c->forward_only);
    if (!c->forward_only)
        graph_differentiate(m.g);
    Eval *e = eval_new(m.g, compute, ISA_REF, team[0]);
    e->step.correction1 = 0.19;
    e->step.correction2 = 0.0199;
    case_fill(&m, e);
    Run r = {.e = e, .of = c};
    for (int phase = PHASE_BEGIN; phase <= PHASE_BACKWARD; phase++)
        for (uint32_t i = 0; i < m.g->nop; i++) {
            if ((int)m.g->op[i].phase != phase)
                continue;
            r.id = (OpId){i};
            eval_op(e, r.id);
            if (!(op_info[m.g->op[i].kind].flags & OPF_VIEW))
                try_op(&r, team);
        }
    eval_free(e);
    arena_free(a);
    return r.wrong;
}

static void forms_agree(void **state, int scale, DType compute)
{
    int wrong = 0;
    const Case *c;
    for (int i = 0; (c = case_at(i)); i++)
        wrong += try_case(c, scale, compute, *state);
    assert_int_equal(wrong, 0);
}

static void fast_f32_small(void **state)
{
    forms_agree(state, 0, DT_f32);
}

static void fast_f32_large(void **state)
{
    forms_agree(state, 1, DT_f32);
}

static void fast_f64_small(void **state)
{
    forms_agree(state, 0, DT_f64);
}

static void fast_bf16_small(void **state)
{
    forms_agree(state, 0, DT_bf16);
}

static void fast_bf16_large(void **state)
{
    forms_agree(state, 1, DT_bf16);
}

static void every_op_has_a_plain_form(void **state)
{
    (void)state;
    for (int k = 0; k < OP_KINDS; k++) {
        bool executed = op_info[k].use != OP_SYNTAX && !(op_info[k].flags & (OPF_VIEW | OPF_COMM));
        assert_int_equal(kernel_ref((OpKind)k) != NULL, executed);
    }
}

static int setup(void **state)
{
    static Team *team[TEAMS];
    for (int n = 0; n < TEAMS; n++) {
        team[n] = team_new(n + 1);
        if (!team[n])
            return -1;
    }
    *state = team;
    return 0;
}

static int teardown(void **state)
{
    Team **team = *state;
    for (int n = 0; n < TEAMS; n++)
        team_free(team[n]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_plain_form),
        cmocka_unit_test(fast_f32_small),
        cmocka_unit_test(fast_f64_small),
        cmocka_unit_test(fast_f32_large),
        cmocka_unit_test(fast_bf16_small),
        cmocka_unit_test(fast_bf16_large),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
