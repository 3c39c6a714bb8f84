/* An op on parts of its tensors: every op of every case of tests/ops is cut along
 * every factor that its signature lets be cut, and each part runs alone, told where
 * it lies.  What has the factor must be a slice of the whole result, and what lacks it
 * a summand. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/split.h"
#include "kernels/operand.h"
#include "tests/ops/cases.h"

/* One way to cut an op that has run as a whole. */
typedef struct Cut {
    Eval       *e;
    const Case *of;
    OpId        id;
    Isa         isa;
    uint8_t     factor, heads;        /* heads: the key heads, cut as the query heads that read them; or NO_FACTOR */
    int         parts;
    bool        padded;               /* equal parts, which reach beyond the end */
    double     *sum[MAX_OUTS];        /* the results of all parts, joined */
    double      largest[MAX_OUTS];    /* number of any part */
    int         wrong;
} Cut;

/* A part as a kernel sees it. */
typedef struct Part { Instr in; Tensor argt[MAX_ARGS], outt[MAX_OUTS]; void *arg[MAX_ARGS], *out[MAX_OUTS]; } Part;

static int done[OP_KINDS];            /* cuts of each op */

static const Op *op_cut(const Cut *c)
{
    return op_of(c->e->g, c->id);
}

static int64_t extent(const Cut *c, uint8_t f)
{
    return dim_of(c->e->g, op_cut(c)->factor[f].dim)->extent;
}

/* ---- where a part lies ---- */

static AxisPlace share(const Cut *c, uint8_t f, int k)
{
    int64_t n = extent(c, f);
    if (f == c->heads) {
        AxisPlace query = share(c, c->factor, k);
        int64_t readers = query.global / n, first = query.origin / readers, end = (query.origin + query.local - 1) / readers + 1;
        return (AxisPlace){.local = end - first, .global = n, .origin = first};
    }
    if (f != c->factor)
        return (AxisPlace){.local = n, .global = n};
    if (c->padded) {
        int64_t each = n / c->parts + 1;
        return (AxisPlace){.local = each, .global = n, .origin = k * each, .pad = each * c->parts - n};
    }
    int64_t first = n * k / c->parts;
    return (AxisPlace){.local = n * (k + 1) / c->parts - first, .global = n, .origin = first};
}

static Tensor part_of(const Cut *c, ValueId v, const uint8_t *factor, int k)
{
    Tensor t = c->e->program->tensor[v.i];
    for (int x = 0; x < t.rank; x++)
        t.axis[x] = share(c, factor[x], k);
    return t;
}

static int64_t row_of(const Tensor *t)
{
    return t->rank ? t->axis[t->rank - 1].local : 1;
}

/* The part of a value; its padding holds large numbers. */
static void *load(const Cut *c, ValueId v, const Tensor *t)
{
    int64_t length = row_of(t), all = tensor_elements(t);
    void *data = eval_array((size_t)tensor_bytes(t));
    for (int64_t r = 0; r < all / length; r++)
        for (int64_t i = 0; i < place_row_valid(t, r); i++)
            real_put(t, data, r * length + i, eval_get(c->e, v, place_row(t, r, 0) + i));
    return data;
}

/* ---- running it ---- */

/* An argument that is added to the result, not multiplied, counts in one summand. */
static bool counts_once(const Cut *c, int arg)
{
    const Op *op = op_cut(c);
    return op_linear(c->e->g, op, arg) == 'j' && !op_arg_has(c->e->g, op, arg, c->factor) && !op_out_has(c->e->g, op, 0, c->factor);
}

static Part part_new(const Cut *c, int k)
{
    const Op *op = op_cut(c);
    Part p = {.in = eval_instr(c->e, c->id)};
    for (uint8_t f = 0; f < op->nfactor; f++)
        p.in.extent[f] = share(c, f, k).local;
    for (int a = 0; a < op->narg; a++) {
        if (!has_value(op->arg[a]))
            continue;
        p.argt[a] = part_of(c, op->arg[a], op->arg_factor[a], k);
        p.arg[a] = load(c, op->arg[a], &p.argt[a]);
        if (k > 0 && counts_once(c, a))
            memset(p.arg[a], 0, (size_t)tensor_bytes(&p.argt[a]));
    }
    for (int o = 0; o < op->nout; o++) {
        p.outt[o] = part_of(c, op->out[o], op->out_factor[o], k);
        p.out[o] = eval_array((size_t)tensor_bytes(&p.outt[o]));
    }
    return p;
}

static void part_free(Part *p)
{
    for (int a = 0; a < MAX_ARGS; a++)
        free(p->arg[a]);
    for (int o = 0; o < MAX_OUTS; o++)
        free(p->out[o]);
}

static void part_run(const Cut *c, Part *p)
{
    KCall call = {.in = &p->in, .step = &c->e->step, .team = c->e->team};
    for (int a = 0; a < p->in.narg; a++) {
        call.argt[a] = p->arg[a] ? &p->argt[a] : NULL;
        call.arg[a] = p->arg[a];
    }
    for (int o = 0; o < p->in.nout; o++) {
        call.outt[o] = &p->outt[o];
        call.out[o] = p->out[o];
    }
    c->e->program->threads = team_size(c->e->team);
    call.work = eval_array((size_t)instr_workspace(&p->in, c->e->program));
    kernel_find(p->in.op, c->e->compute, c->isa)(&call);
    free(call.work);
}

/* ---- judging it ---- */

static void wrong(Cut *c, int k, int out, const char *what, double by)
{
    const Op *op = op_cut(c);
    if (c->wrong++ == 0)
        print_message("%s: %s by %s, '%c' in %d%s parts%s: result %d of part %d %s (%.2g)\n", c->of->name, op_info[op->kind].name,
                      isa_name(c->isa), op->factor[c->factor].role, c->parts, c->padded ? " padded" : "",
                      c->heads != NO_FACTOR ? " with key heads" : "", out, k, what, by);
}

/* Reals add up, whether they are slices or summands; integers that lack the factor
 * are the same in all parts. */
static void join(Cut *c, const Part *p, int k)
{
    const Op *op = op_cut(c);
    for (int o = 0; o < op->nout; o++) {
        const Tensor *t = &p->outt[o];
        bool adds = dtype_is_float(t->dtype) || op_out_has(c->e->g, op, o, c->factor) || k == 0;
        int64_t length = row_of(t), all = tensor_elements(t);
        for (int64_t i = 0; i < all; i++) {
            double x = real_at(t, p->out[o], i), *to = &c->sum[o][place_row(t, i / length, 0) + i % length];
            bool padding = i % length >= place_row_valid(t, i / length);
            if (padding ? x != 0 : !adds && x != *to)
                wrong(c, k, o, padding ? "has numbers in its padding" : "differs from the first one's", x);
            *(padding ? &(double){0} : to) += adds ? x : 0;
            c->largest[o] = !padding && isfinite(x) && fabs(x) > c->largest[o] ? fabs(x) : c->largest[o];
        }
    }
}

static void judge(Cut *c, int out, double tolerance)
{
    ValueId v = op_cut(c)->out[out];
    double worst = 0, size = fmax(c->largest[out], eval_usual_size(c->e, c->id));
    for (int64_t i = 0; i < value_elements(c->e->g, v); i++) {
        double want = eval_get(c->e, v, i), d = fabs(c->sum[out][i] - want);
        worst = c->sum[out][i] == want || d <= worst ? worst : d;
    }
    if (!(worst <= tolerance * (size > 0 ? size : 1)))
        wrong(c, c->parts, out, "is not the whole one", worst / (size > 0 ? size : 1));
}

static void sums_new(Cut *c)
{
    for (int o = 0; o < op_cut(c)->nout; o++)
        c->sum[o] = calloc((size_t)value_elements(c->e->g, op_cut(c)->out[o]) + 1, sizeof *c->sum[o]);
}

static int sums_judge(Cut *c, double tolerance)
{
    for (int o = 0; o < op_cut(c)->nout; o++) {
        judge(c, o, tolerance);
        free(c->sum[o]);
    }
    done[op_cut(c)->kind]++;
    return c->wrong;
}

static int try_cut(Cut c)
{
    sums_new(&c);
    for (int k = 0; k < c.parts; k++) {
        Part p = part_new(&c, k);
        part_run(&c, &p);
        join(&c, &p, k);
        part_free(&p);
    }
    return sums_judge(&c, c.e->compute == DT_f64 ? 1e-12 : 1e-5);
}

/* ---- cross entropy over a split class axis: numbers of each part, then the loss ---- */

/* An axis of `n`, made factor `f` of the instruction. */
static void add_factor(Part *p, char role, int64_t n)
{
    p->in.extent[p->in.nfactor] = n;
    p->in.role[p->in.nfactor++] = role;
}

/* Of part k, into its place in `stats`. */
static void give_stats(const Cut *c, int k, const Tensor *rows, char *stats)
{
    Part p = part_new(c, k);
    int rank = rows->rank;
    Tensor *t = &p.outt[0];
    free(p.out[1]);
    p.out[1] = NULL;
    p.in.op = OP_cross_entropy_stats;
    p.in.nout = 1;
    add_factor(&p, 'e', 4);
    *t = *rows;
    t->axis[t->rank++] = (AxisPlace){.local = 4, .global = 4};
    memcpy(p.in.out_factor[0], p.in.arg_factor[1], MAX_RANK);
    p.in.out_factor[0][rank] = (uint8_t)(p.in.nfactor - 1);
    free(p.out[0]);
    p.out[0] = eval_array((size_t)tensor_bytes(t));
    part_run(c, &p);
    memcpy(stats + k * tensor_bytes(t), p.out[0], (size_t)tensor_bytes(t));
    part_free(&p);
}

static Part merge_new(const Cut *c, const Tensor *rows, void *stats)
{
    const Op *op = op_cut(c);
    Part p = part_new(&(Cut){.e = c->e, .id = c->id, .factor = NO_FACTOR, .heads = NO_FACTOR}, 0);
    add_factor(&p, 'p', c->parts);
    add_factor(&p, 'e', 4);
    free(p.arg[0]);
    p.arg[0] = stats;
    p.argt[0] = (Tensor){.dtype = rows->dtype, .rank = (uint8_t)(rows->rank + 2)};
    p.argt[0].axis[0] = (AxisPlace){.local = c->parts, .global = c->parts};
    p.argt[0].axis[rows->rank + 1] = (AxisPlace){.local = 4, .global = 4};
    p.in.arg_factor[0][0] = (uint8_t)(p.in.nfactor - 2);
    p.in.arg_factor[0][rows->rank + 1] = (uint8_t)(p.in.nfactor - 1);
    for (int x = 0; x < rows->rank; x++) {
        p.argt[0].axis[x + 1] = rows->axis[x];
        p.in.arg_factor[0][x + 1] = p.in.arg_factor[1][x];
    }
    p.in.op = OP_cross_entropy_merge;
    p.in.attr[op_attr_index(OP_cross_entropy_merge, "ignore")] = *op_attr(op, "ignore");
    p.in.attr[op_attr_index(OP_cross_entropy_merge, "smooth")] = *op_attr(op, "smooth");
    p.in.attr[op_attr_index(OP_cross_entropy_merge, "classes")] = ATTR_I(extent(c, c->factor));
    return p;
}

static int try_merge(Cut c)
{
    Tensor rows = c.e->program->tensor[op_cut(&c)->out[1].i];
    char *stats = eval_array((size_t)(tensor_bytes(&rows) * 4 * c.parts));
    sums_new(&c);
    for (int k = 0; k < c.parts; k++)
        give_stats(&c, k, &rows, stats);
    Part p = merge_new(&c, &rows, stats);
    part_run(&c, &p);
    join(&c, &p, 0);
    part_free(&p);
    return sums_judge(&c, c.e->compute == DT_f64 ? 1e-14 : 1e-5);
}

/* ---- all cuts of an op ---- */

static uint8_t factor_with(const Op *op, char role)
{
    for (uint8_t f = 0; f < op->nfactor; f++)
        if (op->factor[f].role == role)
            return f;
    return NO_FACTOR;
}

static bool is_attention(const Op *op)
{
    return op->kind == OP_attention || op->kind == OP_attention_grad;
}

/* Key heads are cut with the query heads, and what is merged is cut by its maker. */
static bool may_cut(const Cut *c)
{
    const Op *op = op_cut(c);
    if (is_attention(op) && op->factor[c->factor].role == 'g')
        return false;
    if (op->kind == OP_cross_entropy_merge && !op_arg_has(c->e->g, op, 1, c->factor))
        return false;
    return op_may_split(c->e->g, op, c->factor) && extent(c, c->factor) >= c->parts;
}

/* Rows of tables and classes: what a plan may pad, and what no kernel may read there. */
static bool may_pad(const Op *op, char role)
{
    return role == 'v' || (role == 'c' && (op->kind == OP_cross_entropy || op->kind == OP_cross_entropy_grad || op->kind == OP_cross_entropy_both));
}

/* One part that is padded is whole otherwise. */
static int try_padded(Cut c)
{
    const Op *op = op_cut(&c);
    if (!may_pad(op, op->factor[c.factor].role) || (c.parts > 1 && !may_cut(&c)))
        return 0;
    c.padded = true;
    return c.parts > 1 && op_distributes(op, c.factor) ? try_merge(c) : try_cut(c);
}

static int try_factor(Cut c)
{
    const Op *op = op_cut(&c);
    int bad = try_padded(c);
    if (!may_cut(&c))
        return bad;
    if (op_distributes(op, c.factor))
        return bad + try_merge(c);
    if (c.parts == 1)
        return bad;
    bad += try_cut(c);
    if (is_attention(op) && op->factor[c.factor].role == 'h' && factor_with(op, 'g') != NO_FACTOR) {
        c.heads = factor_with(op, 'g');
        bad += try_cut(c);
    }
    return bad;
}

static int try_op(Cut c, int most)
{
    const Op *op = op_cut(&c);
    int bad = 0;
    for (c.factor = 0; c.factor < op->nfactor; c.factor++)
        for (c.parts = 1; c.parts <= most; c.parts++)
            bad += try_factor(c);
    return bad;
}

static int try_case(const Case *of, int scale, DType compute, Isa isa, int most, Team *team)
{
    Arena *a = arena_new("case");
    Maker m = case_make(a, of, scale, compute, !of->forward_only);
    if (!of->forward_only)
        graph_differentiate(m.g);
    Eval *e = eval_new(m.g, compute, ISA_REF, team);
    e->step.correction1 = 0.19;
    e->step.correction2 = 0.0199;
    case_fill(&m, e);
    int bad = 0;
    for (int phase = PHASE_BEGIN; phase <= PHASE_BACKWARD; phase++)
        for (uint32_t i = 0; i < m.g->nop; i++) {
            if ((int)m.g->op[i].phase != phase)
                continue;
            OpKind kind = m.g->op[i].kind;
            eval_op(e, (OpId){i});
            bool other = kernel_find(kind, compute, isa) != kernel_ref(kind);
            if (!(op_info[kind].flags & OPF_VIEW) && (isa == ISA_REF || other))
                bad += try_op((Cut){.e = e, .of = of, .id = {i}, .isa = isa, .heads = NO_FACTOR}, most);
        }
    eval_free(e);
    arena_free(a);
    return bad;
}

static int try_all(int scale, DType compute, Isa isa, int most, Team *team)
{
    int bad = 0;
    const Case *c;
    for (int i = 0; (c = case_at(i)); i++)
        bad += try_case(c, scale, compute, isa, most, team);
    return bad;
}

static void plain_forms(void **state)
{
    memset(done, 0, sizeof done);
    assert_int_equal(try_all(0, DT_f64, ISA_REF, 4, *state), 0);
    for (int k = 0; k < OP_KINDS; k++)
        if (kernel_ref((OpKind)k) && done[k] == 0 && k != OP_constant && k != OP_zeros)
            fail_msg("%s was never cut", op_info[k].name);
}

static void fast_forms_small(void **state)
{
    for (Isa isa = ISA_V2; isa <= isa_best(); isa++)
        assert_int_equal(try_all(0, DT_f32, isa, 3, *state), 0);
}

static void fast_forms_large(void **state)
{
    if (isa_best() == ISA_REF) {
        printf("skip fast kernels of parts: this processor has none\n");
        return;
    }
    assert_int_equal(try_all(1, DT_f32, isa_best(), 2, *state), 0);
}

static int setup(void **state)
{
    *state = team_new(2);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    team_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_forms),
        cmocka_unit_test(fast_forms_small),
        cmocka_unit_test(fast_forms_large),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
