/* What a kernel does must not depend on where its part of a tensor lies: micro-batches
 * and origins.  Also the rules of losses and of the optimizer at their edges. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ops/eval.h"
#include "tests/unit/team.h"

enum { MICRO = 3, RANKS = 2, PART = 2, BATCH = MICRO * RANKS * PART };

/* ---- one op whose tensors are a micro-batch, or the whole batch ---- */

typedef struct Single { Arena *a; Graph *g; DimId batch; OpSpec spec; Eval *e; } Single;

static Single single_new(OpKind kind, int64_t batch)
{
    Single s = {.a = arena_new("single")};
    s.g = graph_new(s.a);
    s.batch = graph_add_dim(s.g, "batch", batch, NOWHERE);
    s.spec = op_spec(kind, PHASE_FORWARD, "op", NOWHERE);
    return s;
}

static DimId single_dim(Single *s, const char *name, int64_t extent)
{
    return graph_add_dim(s->g, name, extent, NOWHERE);
}

static void single_arg(Single *s, const char *name, DType t, int rank, const DimId *axis)
{
    s->spec.arg[s->spec.narg++] = graph_add_value(s->g, name, ROLE_INPUT, t, (uint8_t)rank, axis, NOWHERE);
}

static void single_out(Single *s, const char *suffix, DType t, int rank, const DimId *axis)
{
    OutSpec *o = &s->spec.out[s->spec.nout++];
    *o = (OutSpec){.suffix = suffix, .dtype = t, .rank = (uint8_t)rank};
    memcpy(o->axis, axis, sizeof *axis * (size_t)rank);
}

static void single_set(Single *s, const char *name, Attr a)
{
    s->spec.attr[op_attr_index(s->spec.kind, name)] = a;
}

/* The part of a rank in every micro-batch. */
static void single_rank(Single *s, int64_t rank)
{
    for (uint32_t v = 0; v < s->g->nvalue; v++)
        for (int i = 0; i < s->g->value[v].rank; i++)
            if (s->e->program->tensor[v].axis[i].per_micro)
                s->e->program->tensor[v].axis[i].origin = rank * PART;
}

/* Ready to run: tensors know that the batch axis is cut, if it is. */
static void single_ready(Single *s, Isa isa, Team *team)
{
    graph_add_op(s->g, &s->spec);
    s->e = eval_new(s->g, DT_f32, isa, team);
    s->e->step.samples = BATCH;
    bool cut = dim_of(s->g, s->batch)->extent == PART;
    for (uint32_t v = 0; v < s->g->nvalue; v++)
        for (int i = 0; i < s->g->value[v].rank; i++)
            if (cut && same_dim(s->g->value[v].axis[i], s->batch)) {
                s->e->program->tensor[v].axis[i] = (AxisPlace){.local = PART, .global = BATCH, .per_micro = RANKS * PART};
            }
}

static void single_free(Single *s)
{
    eval_free(s->e);
    arena_free(s->a);
}

static ValueId arg(const Single *s, int i)
{
    return s->g->op[0].arg[i];
}

static ValueId out(const Single *s, int i)
{
    return s->g->op[0].out[i];
}

/* Elements of the tensors' part number `part` of the batch. */
static void fill(Single *s, int64_t part)
{
    for (int a = 0; a < s->spec.narg; a++) {
        int64_t n = value_elements(s->g, arg(s, a));
        for (int64_t i = 0; i < n; i++)
            eval_set(s->e, arg(s, a), i, philox4(3, (uint32_t)a, (uint64_t)(part * n + i), 0).word[0] * 0x1p-32 + 0.25);
    }
}

typedef Single (*MakeSingle)(int64_t batch);

static Single make_dropout(int64_t batch)
{
    Single s = single_new(OP_dropout, batch);
    DimId axis[] = {s.batch, single_dim(&s, "seq", 3), single_dim(&s, "width", 5)};
    single_arg(&s, "x", DT_f32, 3, axis);
    single_set(&s, "p", ATTR_F(0.4));
    single_out(&s, NULL, DT_f32, 3, axis);
    return s;
}

static Single make_attention(int64_t batch)
{
    Single s = single_new(OP_attention, batch);
    DimId axis[] = {s.batch, single_dim(&s, "seq", 6), single_dim(&s, "heads", 2), single_dim(&s, "width", 4)};
    single_arg(&s, "q", DT_f32, 4, axis);
    single_arg(&s, "k", DT_f32, 4, axis);
    single_arg(&s, "v", DT_f32, 4, axis);
    single_set(&s, "dropout", ATTR_F(0.3));
    single_set(&s, "causal", ATTR_B(true));
    single_out(&s, NULL, DT_f32, 4, axis);
    single_out(&s, "lse", DT_f32, 3, axis);
    return s;
}

/* Rows of the ranks in each micro-batch, one after the other, are the rows of the whole batch. */
static void cut_equals_whole(MakeSingle make, Isa isa, Team *team)
{
    Single whole = make(BATCH), part = make(PART);
    single_ready(&whole, isa, team);
    single_ready(&part, isa, team);
    fill(&whole, 0);
    eval_op(whole.e, (OpId){0});
    int64_t n = value_elements(part.g, out(&part, 0));
    for (int64_t at = 0; at < MICRO * RANKS; at++) {
        fill(&part, at);
        part.e->step.micro = at / RANKS;
        single_rank(&part, at % RANKS);
        eval_op(part.e, (OpId){0});
        for (int64_t i = 0; i < n; i++)
            assert_true(fabs(eval_get(part.e, out(&part, 0), i) - eval_get(whole.e, out(&whole, 0), at * n + i)) < 1e-6);
    }
    single_free(&whole);
    single_free(&part);
}

static void random_numbers_ignore_micro_batches_and_ranks(void **state)
{
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++) {
        cut_equals_whole(make_dropout, isa, *state);
        cut_equals_whole(make_attention, isa, *state);
    }
}

/* About p of all elements are dropped, and other ones in another step. */
static void dropout_drops_its_share(void **state)
{
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++) {
        Single s = single_new(OP_dropout, 64);
        DimId axis[] = {s.batch, single_dim(&s, "width", 333)};
        single_arg(&s, "x", DT_f32, 2, axis);
        single_set(&s, "p", ATTR_F(0.25));
        single_out(&s, NULL, DT_f32, 2, axis);
        single_ready(&s, isa, *state);
        fill(&s, 0);
        int64_t dropped = 0, changed = 0, n = 64 * 333;
        eval_op(s.e, (OpId){0});
        float *before = malloc(sizeof *before * (size_t)n);
        memcpy(before, s.e->data[out(&s, 0).i], sizeof *before * (size_t)n);
        s.e->step.step++;
        eval_op(s.e, (OpId){0});
        for (int64_t i = 0; i < n; i++) {
            double y = eval_get(s.e, out(&s, 0), i);
            dropped += y == 0;
            changed += (y == 0) != (before[i] == 0);
            assert_true(y == 0 || fabs(y * 0.75 - eval_get(s.e, arg(&s, 0), i)) < 1e-6);
        }
        assert_true(fabs((double)dropped / (double)n - 0.25) < 0.015);
        assert_true(fabs((double)changed / (double)n - 2 * 0.25 * 0.75) < 0.02);
        free(before);
        single_free(&s);
    }
}

/* The means of micro-batches, divided by the samples of the whole window, add up. */
static void means_of_micro_batches_add_up(void **state)
{
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++) {
        Single s = single_new(OP_reduce, PART);
        DimId axis[] = {s.batch, single_dim(&s, "width", 5)};
        single_arg(&s, "x", DT_f32, 2, axis);
        single_set(&s, "mean", ATTR_B(true));
        single_out(&s, NULL, DT_f32, 0, axis);
        single_ready(&s, isa, *state);
        double sum = 0, want = 0;
        for (int64_t at = 0; at < MICRO * RANKS; at++) {
            fill(&s, at);
            eval_op(s.e, (OpId){0});
            sum += eval_get(s.e, out(&s, 0), 0);
            for (int64_t i = 0; i < PART * 5; i++)
                want += eval_get(s.e, arg(&s, 0), i) / (BATCH * 5);
        }
        assert_true(fabs(sum - want) < 1e-6);
        single_free(&s);
    }
}

/* ---- origins ---- */

static void positions_start_at_the_origin(void **state)
{
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++) {
        Single whole = single_new(OP_rope, 1), part = single_new(OP_rope, 1);
        Single *both[] = {&whole, &part};
        for (int i = 0; i < 2; i++) {
            Single *s = both[i];
            DimId axis[] = {s->batch, single_dim(s, "seq", i ? 3 : 8), single_dim(s, "heads", 1), single_dim(s, "width", 6)};
            single_arg(s, "x", DT_f32, 4, axis);
            single_out(s, NULL, DT_f32, 4, axis);
            single_ready(s, isa, *state);
        }
        fill(&whole, 0);
        for (uint32_t v = 0; v < 2; v++)
            part.e->program->tensor[v].axis[1] = (AxisPlace){.local = 3, .global = 8, .origin = 5};
        for (int64_t i = 0; i < 18; i++)
            eval_set(part.e, arg(&part, 0), i, eval_get(whole.e, arg(&whole, 0), 5 * 6 + i));
        eval_op(whole.e, (OpId){0});
        eval_op(part.e, (OpId){0});
        for (int64_t i = 0; i < 18; i++)
            assert_true(fabs(eval_get(part.e, out(&part, 0), i) - eval_get(whole.e, out(&whole, 0), 5 * 6 + i)) < 1e-6);
        single_free(&whole);
        single_free(&part);
    }
}

static void iota_counts_from_the_origin(void **state)
{
    Single s = single_new(OP_iota, 4);
    single_out(&s, NULL, DT_i64, 1, &s.batch);
    single_ready(&s, ISA_REF, *state);
    s.e->program->tensor[0].axis[0].origin = 12;
    eval_op(s.e, (OpId){0});
    for (int64_t i = 0; i < 4; i++)
        assert_true(eval_get(s.e, out(&s, 0), i) == (double)(12 + i));
    single_free(&s);
}

/* ---- losses ---- */

/* Logits (ln 5, 0, 0, 0): label 0 costs ln 1.6, the others ln 8. */
static double loss_of(Isa isa, Team *team, OpKind kind, const int32_t label[4], double count, double *gradient)
{
    Single s = single_new(kind, 4);
    DimId axis[] = {s.batch, single_dim(&s, "class", 4)};
    single_arg(&s, "logits", DT_f32, 2, axis);
    single_arg(&s, "labels", DT_i32, 1, axis);
    single_arg(&s, "count", DT_f64, 0, axis);
    single_set(&s, "ignore", ATTR_I(-100));
    single_out(&s, NULL, DT_f32, 0, axis);
    bool both = kind == OP_cross_entropy_both;
    single_out(&s, both ? "dlogits" : "lse", DT_f32, both ? 2 : 1, axis);
    single_ready(&s, isa, team);
    for (int i = 0; i < 4; i++) {
        eval_set(s.e, arg(&s, 1), i, label[i]);
        for (int k = 0; k < 4; k++)
            eval_set(s.e, arg(&s, 0), 4 * i + k, k ? 0 : log(5));
    }
    eval_set(s.e, arg(&s, 2), 0, count);
    eval_op(s.e, (OpId){0});
    double loss = eval_get(s.e, out(&s, 0), 0);
    for (int i = 0; both && gradient && i < 16; i++)
        gradient[i] = eval_get(s.e, out(&s, 1), i);
    single_free(&s);
    return loss;
}

/* BUG-CASES C01: the average is over tokens, not over averages of micro-batches. */
static void c01_losses_divide_by_the_labels_of_the_whole_batch(void **state)
{
    static const int32_t first[4] = {0, 0, 0, -100}, second[4] = {1, -100, -100, LABEL_PAD};
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++)
        for (int both = 0; both < 2; both++) {
            OpKind kind = both ? OP_cross_entropy_both : OP_cross_entropy;
            double loss = loss_of(isa, *state, kind, first, 4, NULL) + loss_of(isa, *state, kind, second, 4, NULL);
            assert_true(fabs(loss - 0.872363) < 1e-6);
        }
}

static void no_valid_label_costs_nothing(void **state)
{
    static const int32_t none[4] = {-100, LABEL_PAD, -100, -100};
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++) {
        double gradient[16];
        assert_true(loss_of(isa, *state, OP_cross_entropy, none, 0, NULL) == 0);
        assert_true(loss_of(isa, *state, OP_cross_entropy_both, none, 0, gradient) == 0);
        for (int i = 0; i < 16; i++)
            assert_true(gradient[i] == 0);
    }
}

static void labels_are_counted(void **state)
{
    static const int32_t label[6] = {0, 3, -100, LABEL_PAD, 2, -100};
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++)
        for (int ignore = 0; ignore < 2; ignore++) {
            Single s = single_new(OP_count_labels, 6);
            single_arg(&s, "labels", DT_i32, 1, &s.batch);
            if (ignore)
                single_set(&s, "ignore", ATTR_I(-100));
            single_out(&s, NULL, DT_f64, 0, &s.batch);
            single_ready(&s, isa, *state);
            for (int i = 0; i < 6; i++)
                eval_set(s.e, arg(&s, 0), i, label[i]);
            eval_op(s.e, (OpId){0});
            assert_true(eval_get(s.e, out(&s, 0), 0) == (ignore ? 3 : 5));
            single_free(&s);
        }
}

/* ---- the optimizer ---- */

static const double start[5] = {0.5, 0.25, 0.1, 0.2, 0};   /* weight, gradient, moments, sum of squares */

static void optimizer_step(Isa isa, Team *team, bool decays, double squares, double got[3])
{
    Single s = single_new(OP_adamw, 1);
    static const char *const name[] = {"w", "g", "m", "v"};
    for (int i = 0; i < 4; i++)
        single_arg(&s, name[i], DT_f32, 1, &s.batch);
    single_arg(&s, "norm", DT_f64, 0, &s.batch);
    single_set(&s, "decays", ATTR_B(decays));
    for (int i = 0; i < 3; i++)
        single_out(&s, i ? name[i + 1] : NULL, DT_f32, 1, &s.batch);
    s.g->optimizer = (Optimizer){.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.5, .clip = 2};
    single_ready(&s, isa, team);
    s.e->step.lr = 0.1;
    s.e->step.correction1 = 0.19;
    s.e->step.correction2 = 0.0199;
    for (int i = 0; i < 4; i++)
        eval_set(s.e, arg(&s, i), 0, start[i]);
    eval_set(s.e, arg(&s, 4), 0, squares);
    eval_op(s.e, (OpId){0});
    for (int i = 0; i < 3; i++)
        got[i] = eval_get(s.e, out(&s, i), 0);
    single_free(&s);
}

/* By hand, as PyTorch's AdamW writes it; a norm of 4 with clip 2 halves the gradient. */
static void adamw_by_hand(void **state)
{
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++)
        for (int decays = 0; decays < 2; decays++)
            for (int clipped = 0; clipped < 2; clipped++) {
                double got[3], g = clipped ? start[1] / 2 : start[1];
                optimizer_step(isa, *state, decays, clipped ? 16 : 1, got);
                double m = 0.9 * start[2] + 0.1 * g, v = 0.99 * start[3] + 0.01 * g * g;
                double w = start[0] * (decays ? 1 - 0.1 * 0.5 : 1);
                w -= 0.1 / 0.19 * m / (sqrt(v) / sqrt(0.0199) + 1e-3);
                assert_true(fabs(got[0] - w) < 1e-6 && fabs(got[1] - m) < 1e-6 && fabs(got[2] - v) < 1e-6);
            }
}

/* BUG-CASES D04: a step with a gradient that is not finite changes nothing. */
static void d04_a_norm_that_is_not_finite_changes_nothing(void **state)
{
    for (Isa isa = ISA_REF; isa <= isa_best(); isa++)
        for (int i = 0; i < 2; i++) {
            double got[3];
            optimizer_step(isa, *state, true, i ? (double)NAN : (double)INFINITY, got);
            assert_true(got[0] == (double)(float)start[0] && got[1] == (double)(float)start[2] && got[2] == (double)(float)start[3]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_numbers_ignore_micro_batches_and_ranks),
        cmocka_unit_test(dropout_drops_its_share),
        cmocka_unit_test(means_of_micro_batches_add_up),
        cmocka_unit_test(positions_start_at_the_origin),
        cmocka_unit_test(iota_counts_from_the_origin),
        cmocka_unit_test(c01_losses_divide_by_the_labels_of_the_whole_batch),
        cmocka_unit_test(no_valid_label_costs_nothing),
        cmocka_unit_test(labels_are_counted),
        cmocka_unit_test(adamw_by_hand),
        cmocka_unit_test(d04_a_norm_that_is_not_finite_changes_nothing),
    };
    return cmocka_run_group_tests(tests, team_of_two, team_ends);
}
