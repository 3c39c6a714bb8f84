/* Single ops and start values against tests/reference: results and gradients of
 * PyTorch in f64, and random numbers and start values written a second time. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "tests/ops/eval.h"
#include "tests/unit/team.h"

static const double tolerance = 1e-12;               /* of a tensor's norm */

/* ---- the text: one record a line, key=value ---- */

typedef struct Lines { Arena *a; char **line; uint32_t n; } Lines;

static Lines read_lines(Arena *a, const char *name)
{
    Lines l = {.a = a};
    size_t bytes;
    const char *top = getenv("TOP") ? getenv("TOP") : ".";
    char *text = read_file(a, arena_printf(a, "%s/tests/reference/%s", top, name), &bytes);
    if (!text)
        fail_msg("cannot read tests/reference/%s", name);
    for (char *at = strtok(text, "\n"); at; at = strtok(NULL, "\n"))
        PUSH(a, l.line, l.n, at);
    return l;
}

/* The value of a key in a line, or NULL. */
static const char *field(Arena *a, const char *line, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = line; (p = strchr(p, ' ')); p++)
        if (strncmp(p + 1, key, n) == 0 && p[1 + n] == '=')
            return arena_strndup(a, p + n + 2, strcspn(p + n + 2, " "));
    return NULL;
}

typedef struct Numbers { double *v; uint32_t n; } Numbers;

static Numbers numbers(Arena *a, const char *line, const char *key)
{
    Numbers x = {NULL, 0};
    const char *text = field(a, line, key);
    assert_non_null(text);
    if (strcmp(text, "-") == 0)
        return x;
    for (char *end; *text; text = *end ? end + 1 : end)
        PUSH(a, x.v, x.n, strtod(text, &end));
    return x;
}

static bool is_record(const char *line, const char *kind)
{
    size_t n = strlen(kind);
    return strncmp(line, kind, n) == 0 && line[n] == ' ';
}

/* ---- an op with its axes: a letter per axis, one dim per letter ---- */

typedef struct Pattern { OpKind op; const char *arg[5], *result, *saved[2]; } Pattern;

static const Pattern patterns[] = {
    {OP_attention, {"q:bshe", "k:btge", "v:btge", "mask:bt", "bias:hst"}, "bshe", {"lse:bsh"}},
    {OP_cross_entropy, {"logits:bsc", "labels:bs"}, "", {"lse:bs"}},
    {OP_conv2d, {"x:bchw", "w:ncpq", "b:n"}, "bnij", {0}},
    {OP_relative_bias, {"w:bh"}, "hst", {0}},
    {OP_rope, {"x:bshe"}, "bshe", {0}},
    {OP_layernorm, {"x:abd", "w:d", "b:d"}, "abd", {"mean:ab", "rstd:ab"}},
    {OP_rmsnorm, {"x:abd", "w:d"}, "abd", {"rstd:ab"}},
    {OP_softmax, {"x:abd"}, "abd", {0}},
    {OP_gelu, {"x:abd"}, "abd", {0}},
    {OP_silu, {"x:abd"}, "abd", {0}},
};

typedef struct Build {
    Graph     *g;
    Arena     *a;
    const Pattern *pattern;
    OpSpec     spec;
    bool       has_dim[128];
    DimId      dim[128];              /* by letter */
    ValueId    dout;                  /* weights of the result in the loss */
} Build;

static const Pattern *pattern_of(OpKind k)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (patterns[i].op == k)
            return &patterns[i];
    fail_msg("no pattern for %s", op_info[k].name);
    return NULL;
}

static void axes(Build *b, const char *letters, const Numbers *shape, DimId *out)
{
    for (uint32_t i = 0; letters[i]; i++) {
        int l = letters[i];
        if (!b->has_dim[l]) {
            assert_non_null(shape);
            assert_true(i < shape->n);
            b->dim[l] = graph_add_dim(b->g, arena_strndup(b->a, letters + i, 1), (int64_t)shape->v[i], NOWHERE);
            b->has_dim[l] = true;
        }
        out[i] = b->dim[l];
    }
}

static const char *letters_of(const Pattern *p, const char *name)
{
    for (int i = 0; i < 5 && p->arg[i]; i++)
        if (strncmp(p->arg[i], name, strlen(name)) == 0 && p->arg[i][strlen(name)] == ':')
            return strchr(p->arg[i], ':') + 1;
    fail_msg("%s has no argument %s", op_info[p->op].name, name);
    return NULL;
}

static void add_input(Build *b, const char *line)
{
    const char *name = field(b->a, line, "name"), *letters = letters_of(b->pattern, name);
    Numbers shape = numbers(b->a, line, "shape");
    DType t = strcmp(name, "labels") == 0 ? DT_i32 : strcmp(name, "mask") == 0 ? DT_bool : DT_f64;
    DimId axis[MAX_RANK];
    axes(b, letters, &shape, axis);
    ValueId v = graph_add_value(b->g, name, t == DT_f64 ? ROLE_WEIGHT : ROLE_INPUT, t, (uint8_t)strlen(letters), axis, NOWHERE);
    if (t == DT_f64)
        PUSH(b->g->arena, b->g->weight, b->g->nweight, ((Weight){.value = v, .gradient = NO_VALUE}));
    int arg = op_arg_index(b->pattern->op, name);
    b->spec.arg[arg] = v;
    b->spec.narg = (uint8_t)(arg + 1 > b->spec.narg ? arg + 1 : b->spec.narg);
}

static Attr attr_of(const char *text)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return ATTR_B(*text == 't');
    return strpbrk(text, ".e") ? ATTR_F(strtod(text, NULL)) : ATTR_I(strtoll(text, NULL, 10));
}

static void set_attributes(Build *b, const char *line)
{
    const OpSig *sig = op_sig(b->pattern->op);
    for (int i = 0; i < sig->nformal; i++) {
        const char *text = field(b->a, line, sig->formal[i].name);
        if (text && sig->formal[i].kind == SIG_SCALAR)
            b->spec.attr[op_attr_index(b->pattern->op, sig->formal[i].name)] = attr_of(text);
    }
}

static void add_result(Build *b, const char *suffix, const char *letters, const Numbers *shape)
{
    OutSpec *o = &b->spec.out[b->spec.nout++];
    *o = (OutSpec){.suffix = suffix, .dtype = DT_f64, .rank = (uint8_t)strlen(letters)};
    axes(b, letters, shape, o->axis);
}

/* The op, and a loss whose gradient at the result is `dout`. */
static void add_op_and_loss(Build *b, const Numbers *shape)
{
    add_result(b, NULL, b->pattern->result, shape);
    for (int i = 0; i < 2 && b->pattern->saved[i]; i++) {
        const char *colon = strchr(b->pattern->saved[i], ':');
        add_result(b, arena_strndup(b->a, b->pattern->saved[i], (size_t)(colon - b->pattern->saved[i])), colon + 1, NULL);
    }
    ValueId y = op_of(b->g, graph_add_op(b->g, &b->spec))->out[0];
    Value v = *value_of(b->g, y);
    b->dout = graph_add_value(b->g, "dout", ROLE_INPUT, DT_f64, v.rank, v.axis, NOWHERE);
    OpSpec s = op_spec(v.rank ? OP_contract : OP_mul, PHASE_FORWARD, "loss", NOWHERE);
    s.narg = 2;
    s.arg[0] = y;
    s.arg[1] = b->dout;
    s.nout = 1;
    s.out[0].dtype = DT_f64;
    b->g->loss = op_of(b->g, graph_add_op(b->g, &s))->out[0];
}

/* ---- running a case ---- */

static ValueId value_called(const Graph *g, const char *path)
{
    for (uint32_t i = 0; i < g->nvalue; i++)
        if (strcmp(g->value[i].path, path) == 0)
            return (ValueId){i};
    fail_msg("no value %s", path);
    return NO_VALUE;
}

static void fill(Build *b, Eval *e, const char *line, ValueId v)
{
    Numbers x = numbers(b->a, line, "values");
    assert_int_equal(x.n, value_elements(b->g, v));
    for (uint32_t i = 0; i < x.n; i++)
        eval_set(e, v, i, x.v[i]);
}

static void compare(Build *b, const Eval *e, const char *of, const char *line, ValueId v)
{
    Numbers want = numbers(b->a, line, "values");
    double norm = strtod(field(b->a, line, "norm"), NULL), distance = 0;
    assert_true(has_value(v));
    assert_int_equal(want.n, value_elements(b->g, v));
    for (uint32_t i = 0; i < want.n; i++)
        distance += (eval_get(e, v, i) - want.v[i]) * (eval_get(e, v, i) - want.v[i]);
    if (!(sqrt(distance) <= tolerance * norm))
        fail_msg("%s: %.60s is off by %g of its norm", of, line, sqrt(distance) / norm);
}

/* Lines of a case: from its `case` line to the next one. */
static void run_case(const Lines *l, uint32_t first, uint32_t end, Team *team)
{
    Arena *a = arena_new("case");
    const char *name = field(a, l->line[first], "name");
    OpKind kind = op_find(field(a, l->line[first], "op"));
    Build b = {.g = graph_new(a), .a = a, .pattern = pattern_of(kind), .spec = op_spec(kind, PHASE_FORWARD, "y", NOWHERE)};
    b.g->precision = (Precision){DT_f64, DT_f64, DT_f64, DT_f64, DT_f64};
    set_attributes(&b, l->line[first]);
    for (uint32_t i = first; i < end; i++)
        if (is_record(l->line[i], "in"))
            add_input(&b, l->line[i]);
    for (uint32_t i = first; i < end; i++)
        if (is_record(l->line[i], "out")) {
            Numbers shape = numbers(a, l->line[i], "shape");
            add_op_and_loss(&b, &shape);
        }
    graph_differentiate(b.g);
    Eval *e = eval_new(b.g, DT_f64, ISA_REF, team);
    for (uint32_t i = first; i < end; i++)
        if (is_record(l->line[i], "in"))
            fill(&b, e, l->line[i], value_called(b.g, field(a, l->line[i], "name")));
        else if (is_record(l->line[i], "dout"))
            fill(&b, e, l->line[i], b.dout);
    for (int phase = PHASE_BEGIN; phase <= PHASE_BACKWARD; phase++)
        eval_phase(e, (Phase)phase);
    for (uint32_t i = first; i < end; i++)
        if (is_record(l->line[i], "out"))
            compare(&b, e, name, l->line[i], value_called(b.g, "y"));
        else if (is_record(l->line[i], "grad"))
            compare(&b, e, name, l->line[i], weight_of(b.g, value_called(b.g, field(a, l->line[i], "name")))->gradient);
    eval_free(e);
    arena_free(a);
}

static void ops_equal_the_reference(void **state)
{
    Arena *a = arena_new("reference");
    Lines l = read_lines(a, "ops.txt");
    int ncase = 0;
    for (uint32_t i = 0; i < l.n; i++) {
        if (!is_record(l.line[i], "case"))
            continue;
        uint32_t end = i + 1;
        while (end < l.n && !is_record(l.line[end], "case") && !is_record(l.line[end], "buckets"))
            end++;
        run_case(&l, i, end, *state);
        ncase++;
    }
    assert_true(ncase >= 20);
    arena_free(a);
}

/* ---- buckets of distances: the bias of a table that holds its own row numbers ---- */

static void check_buckets(Arena *a, const char *line, Team *team)
{
    Numbers want = numbers(a, line, "values");
    int64_t first = (int64_t)strtod(field(a, line, "first"), NULL), n = (int64_t)strtod(field(a, line, "buckets"), NULL);
    Graph *g = graph_new(a);
    DimId b = graph_add_dim(g, "b", n, NOWHERE), h = graph_add_dim(g, "h", 1, NOWHERE);
    DimId s = graph_add_dim(g, "s", 1 - first, NOWHERE), t = graph_add_dim(g, "t", want.n, NOWHERE);
    ValueId w = graph_add_value(g, "w", ROLE_WEIGHT, DT_f64, 2, (DimId[]){b, h}, NOWHERE);
    OpSpec o = op_spec(OP_relative_bias, PHASE_FORWARD, "y", NOWHERE);
    o.narg = 1;
    o.arg[0] = w;
    o.attr[op_attr_index(o.kind, "buckets")] = ATTR_I(n);
    o.attr[op_attr_index(o.kind, "reach")] = attr_of(field(a, line, "reach"));
    o.attr[op_attr_index(o.kind, "two_way")] = attr_of(field(a, line, "two_way"));
    o.nout = 1;
    o.out[0] = (OutSpec){.dtype = DT_f64, .rank = 3, .axis = {h, s, t}};
    ValueId y = op_of(g, graph_add_op(g, &o))->out[0];
    Eval *e = eval_new(g, DT_f64, ISA_REF, team);
    for (int64_t i = 0; i < n; i++)
        eval_set(e, w, i, (double)i);
    eval_phase(e, PHASE_FORWARD);
    for (uint32_t j = 0; j < want.n; j++)            /* the last query sees distances from `first` on */
        assert_true(eval_get(e, y, -first * want.n + j) == want.v[j]);
    eval_free(e);
}

static void buckets_equal_the_reference(void **state)
{
    Arena *a = arena_new("reference");
    Lines l = read_lines(a, "ops.txt");
    int n = 0;
    for (uint32_t i = 0; i < l.n; i++)
        if (is_record(l.line[i], "buckets")) {
            check_buckets(a, l.line[i], *state);
            n++;
        }
    assert_true(n >= 2);
    arena_free(a);
}

/* ---- random words and start values ---- */

static InitKind init_kind(const char *name)
{
    static const char *const names[] = {
#define X(kind, nparam) #kind,
        INIT_LIST(X)
#undef X
    };
    if (strcmp(name, "auto") == 0)
        return INIT_fan_in;
    for (int i = 0; i < INITS; i++)
        if (strcmp(names[i], name) == 0)
            return (InitKind)i;
    fail_msg("no initialiser %s", name);
    return INITS;
}

static void check_init(Arena *a, const char *line)
{
    Numbers want = numbers(a, line, "values"), args = numbers(a, line, "args");
    Init init = {.kind = init_kind(field(a, line, "kind")), .a = args.n > 0 ? args.v[0] : 0, .b = args.n > 1 ? args.v[1] : 0,
                 .fan_in = (int64_t)numbers(a, line, "fan_in").v[0], .fan_out = (int64_t)numbers(a, line, "fan_out").v[0]};
    double *got = NEWN(a, double, want.n);
    init_fill(&init, field(a, line, "path"), strtoull(field(a, line, "seed"), NULL, 10), 0, want.n, (Reals){DT_f64, got});
    for (uint32_t i = 0; i < want.n; i++)
        if (!(fabs(got[i] - want.v[i]) <= 1e-14 * fmax(1, fabs(want.v[i]))))
            fail_msg("%.50s: element %u is %.17g, not %.17g", line, i, got[i], want.v[i]);
}

static void check_words(Arena *a, const char *line)
{
    Numbers want = numbers(a, line, "values");
    for (uint32_t i = 0; i < want.n; i++) {
        Philox p = philox4(strtoull(field(a, line, "seed"), NULL, 10), fnv1a(field(a, line, "path")), i / 4, 0);
        assert_true((double)p.word[i % 4] == want.v[i]);
    }
}

static void start_values_equal_the_reference(void **state)
{
    (void)state;
    Arena *a = arena_new("reference");
    Lines l = read_lines(a, "init.txt");
    int n = 0;
    for (uint32_t i = 0; i < l.n; i++)
        if (is_record(l.line[i], "words")) {
            check_words(a, l.line[i]);
        } else if (is_record(l.line[i], "init")) {
            check_init(a, l.line[i]);
            n++;
        }
    assert_true(n >= 6);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_equal_the_reference),
        cmocka_unit_test(buckets_equal_the_reference),
        cmocka_unit_test(start_values_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, team_of_one, team_ends);
}
