/* The IR's own tests: signatures, attributes, factors and their roles. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"
#include "ir/sig.h"

static void every_signature_reads(void **state)
{
    (void)state;
    static char names[64 * 1024];
    SigPool pool = {names, 0, sizeof names};
    for (int k = 0; k < OP_KINDS; k++) {
        OpSig sig;
        const char *error = sig_read(op_info[k].signature, op_info[k].saves, &pool, &sig);
        if (error)
            fail_msg("signature of %s: expected %s", op_info[k].name, error);
        assert_true(sig.nresult >= 1);
        assert_true(op_narg((OpKind)k) <= MAX_ARGS);
        assert_true(sig.nresult + sig.nsaved <= MAX_OUTS);
        assert_int_equal((int)strlen(op_info[k].linear), op_narg((OpKind)k));
        assert_int_equal(op_find(op_info[k].name), k);
    }
    assert_int_equal(op_find("no_such_op"), OP_KINDS);
}

static void malformed_signatures_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "x[..]", "x[.. -> []", "x[..] -> ", "x[long_name] -> []", "x[..], -> []", "x[..] y[..] -> []", "p = -> []",
        "x[..] -> [] owns", "x[..] -> [] rest", "dim -> []", "x[a b] -> []",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static char names[256];
        SigPool pool = {names, 0, sizeof names};
        OpSig sig;
        assert_non_null(sig_read(bad[i], "", &pool, &sig));
    }
}

static void a_signature_in_parts(void **state)
{
    (void)state;
    const OpSig *s = op_sig(OP_linear);
    assert_int_equal(s->formal[0].kind, SIG_TENSOR);
    assert_true(s->formal[0].axis[0].dots);
    assert_int_equal(s->formal[0].axis[1].role, 'k');
    assert_int_equal(s->formal[1].kind, SIG_DIM);
    assert_string_equal(s->formal[2].fallback, "auto");
    assert_int_equal(op_narg(OP_linear), 3);
    assert_string_equal(op_arg(OP_linear, 2)->name, "b");
    assert_true(op_arg(OP_linear, 2)->optional);
    assert_int_equal(op_arg_index(OP_attention, "bias"), 4);
    assert_int_equal(op_arg_index(OP_attention, "causal"), -1);
    assert_int_equal(op_sig(OP_layernorm)->nresult, 1);
    assert_int_equal(op_sig(OP_layernorm)->nsaved, 2);
    assert_string_equal(op_sig(OP_layernorm)->result[2].name, "rstd");
    assert_true(op_sig(OP_softmax)->result[0].axis[1].whole);
}

static Attr default_of(OpKind k, const char *name)
{
    OpSpec s = op_spec(k, PHASE_FORWARD, "p", NOWHERE);
    assert_true(op_attr_index(k, name) >= 0);
    return s.attr[op_attr_index(k, name)];
}

static void attribute_defaults(void **state)
{
    (void)state;
    assert_int_equal(default_of(OP_linear, "over").kind, ATTR_AUTO);
    assert_int_equal(default_of(OP_linear, "per").kind, ATTR_NONE);
    assert_int_equal(default_of(OP_linear, "bias").kind, ATTR_BOOL);
    assert_int_equal(default_of(OP_linear, "bias").i, 1);
    assert_int_equal(default_of(OP_gelu, "exact").i, 0);
    assert_int_equal(default_of(OP_router, "top").kind, ATTR_INT);
    assert_int_equal(default_of(OP_router, "top").i, 2);
    assert_true(default_of(OP_router, "top").f == 2.0);
    assert_int_equal(default_of(OP_layernorm, "eps").kind, ATTR_REAL);
    assert_true(default_of(OP_layernorm, "eps").f == 1e-5);
    assert_int_equal(default_of(OP_cast, "to").kind, ATTR_DTYPE);
    assert_int_equal(default_of(OP_cast, "to").i, DT_f32);
    assert_int_equal(default_of(OP_conv2d, "kernel").kind, ATTR_NONE);
    assert_int_equal(op_attr_index(OP_gelu, "exakt"), -1);
}

/* ---- factors ---- */

typedef struct Small { Arena *arena; Graph *g; DimId batch, seq, hidden, heads, head_dim; } Small;

static Small small_new(void)
{
    Small s = {.arena = arena_new("graph")};
    s.g = graph_new(s.arena);
    s.batch = graph_add_dim(s.g, "batch", 2, NOWHERE);
    s.seq = graph_add_dim(s.g, "seq", 5, NOWHERE);
    s.hidden = graph_add_dim(s.g, "hidden", 12, NOWHERE);
    s.heads = graph_add_dim(s.g, "heads", 3, NOWHERE);
    s.head_dim = graph_add_dim(s.g, "head_dim", 4, NOWHERE);
    return s;
}

static ValueId tensor(Graph *g, const char *path, ValueRole role, uint8_t rank, const DimId *axis)
{
    return graph_add_value(g, path, role, DT_f32, rank, axis, NOWHERE);
}

static char role_of_dim(const Graph *g, const Op *op, DimId d, int copy)
{
    for (int f = 0; f < op->nfactor; f++)
        if (same_dim(op->factor[f].dim, d) && copy-- == 0)
            return op->factor[f].role;
    (void)g;
    return '?';
}

/* BERT's pooler: w[hidden, hidden]; its axes are told apart by their role. */
static void roles_of_a_square_linear(void **state)
{
    (void)state;
    Small s = small_new();
    ValueId x = tensor(s.g, "x", ROLE_INPUT, 2, (DimId[]){s.batch, s.hidden});
    ValueId w = tensor(s.g, "fc.w", ROLE_WEIGHT, 2, (DimId[]){s.hidden, s.hidden});
    ValueId b = tensor(s.g, "fc.b", ROLE_WEIGHT, 1, (DimId[]){s.hidden});
    OpSpec spec = op_spec(OP_linear, PHASE_FORWARD, "fc", NOWHERE);
    spec.by_dim = false;
    spec.narg = 3;
    spec.arg[0] = x, spec.arg[1] = w, spec.arg[2] = b;
    spec.label[0][1] = 1;
    spec.label[1][0] = 1, spec.label[1][1] = 2;
    spec.label[2][0] = 2;
    spec.nout = 1;
    spec.out[0] = (OutSpec){NULL, DT_f32, 2, {s.batch, s.hidden}, {0, 2}};
    const Op *op = op_of(s.g, graph_add_op(s.g, &spec));
    assert_int_equal(op->nfactor, 3);
    assert_int_equal(role_of_dim(s.g, op, s.batch, 0), '.');
    assert_int_equal(op->factor[op->arg_factor[1][0]].role, 'k');
    assert_int_equal(op->factor[op->arg_factor[1][1]].role, 'n');
    assert_int_equal(op->out_factor[0][1], op->arg_factor[2][0]);
    assert_string_equal(value_of(s.g, op->out[0])->path, "fc");
    arena_free(s.arena);
}

/* Several axes under one letter: over = [heads, head_dim]. */
static void roles_of_a_list(void **state)
{
    (void)state;
    Small s = small_new();
    OpSpec spec = op_spec(OP_linear, PHASE_FORWARD, "out", NOWHERE);
    spec.narg = 2;
    spec.arg[0] = tensor(s.g, "a", ROLE_INPUT, 4, (DimId[]){s.batch, s.seq, s.heads, s.head_dim});
    spec.arg[1] = tensor(s.g, "out.w", ROLE_WEIGHT, 3, (DimId[]){s.heads, s.head_dim, s.hidden});
    spec.nout = 1;
    spec.out[0] = (OutSpec){.dtype = DT_f32, .rank = 3, .axis = {s.batch, s.seq, s.hidden}};
    const Op *op = op_of(s.g, graph_add_op(s.g, &spec));
    assert_int_equal(role_of_dim(s.g, op, s.seq, 0), '.');
    assert_int_equal(role_of_dim(s.g, op, s.heads, 0), 'k');
    assert_int_equal(role_of_dim(s.g, op, s.head_dim, 0), 'k');
    assert_int_equal(role_of_dim(s.g, op, s.hidden, 0), 'n');
    arena_free(s.arena);
}

/* Self-attention: the key positions are a factor of their own. */
static void roles_of_attention(void **state)
{
    (void)state;
    Small s = small_new();
    OpSpec spec = op_spec(OP_attention, PHASE_FORWARD, "a", NOWHERE);
    DimId shape[4] = {s.batch, s.seq, s.heads, s.head_dim};
    spec.narg = 3;
    for (int i = 0; i < 3; i++)
        spec.arg[i] = tensor(s.g, i == 0 ? "q" : i == 1 ? "k" : "v", ROLE_INPUT, 4, shape);
    spec.nout = 2;
    spec.out[0] = (OutSpec){.dtype = DT_f32, .rank = 4, .axis = {s.batch, s.seq, s.heads, s.head_dim}};
    spec.out[1] = (OutSpec){.suffix = "lse", .dtype = DT_f32, .rank = 3, .axis = {s.batch, s.seq, s.heads}};
    const Op *op = op_of(s.g, graph_add_op(s.g, &spec));
    assert_int_equal(op->nfactor, 5);
    assert_int_equal(role_of_dim(s.g, op, s.seq, 0), 's');
    assert_int_equal(role_of_dim(s.g, op, s.seq, 1), 't');
    assert_int_equal(role_of_dim(s.g, op, s.heads, 0), 'h');
    assert_string_equal(value_of(s.g, op->out[1])->path, "a:lse");
    arena_free(s.arena);
}

/* A slice names an axis that may stand anywhere. */
static void roles_of_a_slice(void **state)
{
    (void)state;
    Small s = small_new();
    DimId part = graph_add_dim(s.g, "seq", 2, NOWHERE);
    OpSpec spec = op_spec(OP_slice, PHASE_FORWARD, "part", NOWHERE);
    spec.narg = 1;
    spec.arg[0] = tensor(s.g, "x", ROLE_INPUT, 3, (DimId[]){s.batch, s.seq, s.hidden});
    spec.nout = 1;
    spec.out[0] = (OutSpec){.dtype = DT_f32, .rank = 3, .axis = {s.batch, part, s.hidden}};
    const Op *op = op_of(s.g, graph_add_op(s.g, &spec));
    assert_int_equal(role_of_dim(s.g, op, s.seq, 0), 's');
    assert_int_equal(role_of_dim(s.g, op, part, 0), 't');
    assert_int_equal(role_of_dim(s.g, op, s.hidden, 0), '.');
    arena_free(s.arena);
}

/* ---- FLOPs and bytes ---- */

static const Op *attention_of(Small *s, bool causal, int64_t window)
{
    OpSpec spec = op_spec(OP_attention, PHASE_FORWARD, "a", NOWHERE);
    DimId shape[4] = {s->batch, s->seq, s->heads, s->head_dim};
    spec.narg = 3;
    for (int i = 0; i < 3; i++)
        spec.arg[i] = tensor(s->g, i == 0 ? "q" : i == 1 ? "k" : "v", ROLE_INPUT, 4, shape);
    spec.attr[op_attr_index(OP_attention, "causal")] = ATTR_B(causal);
    if (window)
        spec.attr[op_attr_index(OP_attention, "window")] = ATTR_I(window);
    spec.nout = 1;
    spec.out[0] = (OutSpec){.dtype = DT_f32, .rank = 4, .axis = {s->batch, s->seq, s->heads, s->head_dim}};
    return op_of(s->g, graph_add_op(s->g, &spec));
}

/* 2 x 3 x 4 x 5 rows and columns, 4 FLOPs for each attended (query, key) pair and element. */
static void model_flops_of_attention(void **state)
{
    (void)state;
    static const struct { bool causal; int64_t window; double pairs; } cases[] = {
        {false, 0, 25}, {true, 0, 15}, {true, 2, 9}, {false, 2, 13}, {true, 1, 5}, {true, 9, 15}, {false, 9, 25},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Small s = small_new();
        attention_of(&s, cases[i].causal, cases[i].window);
        assert_true(graph_model_flops(s.g, false) == 4.0 * 2 * 3 * 4 * 25);
        assert_true(graph_model_flops(s.g, true) == 4.0 * 2 * 3 * 4 * cases[i].pairs);
        assert_true(op_bytes(s.g, (OpId){0}) == 4.0 * (4 * 2 * 5 * 12));
        arena_free(s.arena);
    }
}

static void model_flops_of_a_linear(void **state)
{
    (void)state;
    Small s = small_new();
    OpSpec spec = op_spec(OP_linear, PHASE_FORWARD, "fc", NOWHERE);
    spec.narg = 2;
    spec.arg[0] = tensor(s.g, "x", ROLE_INPUT, 3, (DimId[]){s.batch, s.seq, s.hidden});
    spec.arg[1] = tensor(s.g, "fc.w", ROLE_WEIGHT, 3, (DimId[]){s.hidden, s.heads, s.head_dim});
    spec.nout = 1;
    spec.out[0] = (OutSpec){.dtype = DT_f32, .rank = 4, .axis = {s.batch, s.seq, s.heads, s.head_dim}};
    OpId id = graph_add_op(s.g, &spec);
    assert_true(op_flops(s.g, id) == 2.0 * 2 * 5 * 12 * 12);
    assert_true(graph_model_flops(s.g, false) == op_flops(s.g, id));
    s.g->loss = graph_add_value(s.g, "loss", ROLE_ACTIVATION, DT_f32, 0, NULL, NOWHERE);
    assert_true(graph_model_flops(s.g, false) == 3 * op_flops(s.g, id));
    arena_free(s.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_signature_reads),
        cmocka_unit_test(malformed_signatures_are_refused),
        cmocka_unit_test(a_signature_in_parts),
        cmocka_unit_test(attribute_defaults),
        cmocka_unit_test(roles_of_a_square_linear),
        cmocka_unit_test(roles_of_a_list),
        cmocka_unit_test(roles_of_attention),
        cmocka_unit_test(roles_of_a_slice),
        cmocka_unit_test(model_flops_of_attention),
        cmocka_unit_test(model_flops_of_a_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
