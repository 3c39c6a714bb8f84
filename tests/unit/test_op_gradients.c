/* The gradient of every op against central differences, both in f64 by the plain
 * forms: d(loss)/d(x) = (loss(x + h) - loss(x - h)) / 2h to 1e-6 of its norm. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "tests/ops/cases.h"
#include "tests/unit/team.h"

static const double step = 1e-5, tolerance = 1e-6;

static double loss_at(Eval *e, ValueId x, int64_t i, double value)
{
    eval_set(e, x, i, value);
    eval_phase(e, PHASE_FORWARD);
    return eval_get(e, e->g->loss, 0);
}

/* Distance of a weight's gradient from the differences, over the norm of these. */
static double gradient_error(Eval *e, const Weight *w)
{
    double distance = 0, norm = 0;
    for (int64_t i = 0; i < value_elements(e->g, w->value); i++) {
        double x = eval_get(e, w->value, i);
        double expected = (loss_at(e, w->value, i, x + step) - loss_at(e, w->value, i, x - step)) / (2 * step);
        double got = has_value(w->gradient) ? eval_get(e, w->gradient, i) : 0;
        eval_set(e, w->value, i, x);
        distance += (got - expected) * (got - expected);
        norm += expected * expected;
    }
    return sqrt(distance) / (norm > 0 ? sqrt(norm) : 1);
}

static int check_case(const Case *c, Team *team)
{
    Arena *a = arena_new("case");
    Maker m = case_make(a, c, 0, DT_f64, true);
    int wrong = 0;
    graph_differentiate(m.g);
    assert_int_equal(graph_check(m.g, stderr), 0);
    Eval *e = eval_new(m.g, DT_f64, ISA_REF, team);
    case_fill(&m, e);
    eval_phase(e, PHASE_BEGIN);
    eval_phase(e, PHASE_FORWARD);
    eval_phase(e, PHASE_BACKWARD);
    for (uint32_t i = 0; i < m.g->nweight; i++) {
        double error = gradient_error(e, &m.g->weight[i]);
        if (!(error <= tolerance)) {
            print_message("%s: gradient of %s is off by %.2g of its norm\n", c->name, value_of(m.g, m.g->weight[i].value)->path, error);
            wrong++;
        }
    }
    eval_free(e);
    arena_free(a);
    return wrong;
}

static void gradients_are_slopes(void **state)
{
    int wrong = 0;
    const Case *c;
    for (int i = 0; (c = case_at(i)); i++)
        if (!c->forward_only)
            wrong += check_case(c, *state);
    assert_int_equal(wrong, 0);
}

/* Every op that gradients flow through, or that makes gradients, is in some case. */
static void every_differentiable_op_has_a_case(void **state)
{
    (void)state;
    bool seen[OP_KINDS] = {false};
    const Case *c;
    for (int i = 0; (c = case_at(i)); i++) {
        if (c->forward_only)
            continue;
        Arena *a = arena_new("case");
        Maker m = case_make(a, c, 0, DT_f64, true);
        graph_differentiate(m.g);
        for (uint32_t o = 0; o < m.g->nop; o++)
            seen[m.g->op[o].kind] = true;
        arena_free(a);
    }
    int missing = 0;
    for (int k = 0; k < OP_KINDS; k++)
        if (!seen[k] && !(op_info[k].flags & OPF_NOGRAD) && op_info[k].use != OP_SYNTAX) {
            print_message("no case differentiates %s\n", op_info[k].name);
            missing++;
        }
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_differentiable_op_has_a_case),
        cmocka_unit_test(gradients_are_slopes),
    };
    return cmocka_run_group_tests(tests, team_of_one, team_ends);
}
