/* The whole path, from a model file to trained weights, against PyTorch in f64:
 * losses and norms of ten steps, every gradient of the first step, weights at the
 * end.  The numbers come from tests/reference/make_reference.py and make_models.py. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "cli/load.h"
#include "kernels/operand.h"
#include "runtime/runtime.h"
#include "runtime/safetensors.h"

static const char *top(void)
{
    return getenv("TOP") ? getenv("TOP") : ".";
}

/* ---- the reference file: one record a line, key=value ---- */

typedef struct Reference {
    Arena *a;
    char **line; uint32_t nline;
} Reference;

static Reference read_reference(Arena *a, const char *name)
{
    Reference r = {.a = a};
    size_t n;
    char *text = read_file(a, arena_printf(a, "%s/tests/reference/%s.txt", top(), name), &n);
    assert_non_null(text);
    for (char *at = strtok(text, "\n"); at; at = strtok(NULL, "\n"))
        PUSH(a, r.line, r.nline, at);
    return r;
}

/* The text after " key=" in a record. */
static const char *field(const char *line, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = line; (p = strchr(p, ' ')); p++)
        if (strncmp(p + 1, key, n) == 0 && p[1 + n] == '=')
            return p + n + 2;
    return NULL;
}

static const char *word(Arena *a, const char *line, const char *key)
{
    const char *text = field(line, key);
    assert_non_null(text);
    return arena_strndup(a, text, strcspn(text, " "));
}

/* The n-th of the words with commas between them; `-`: there are none; NULL: so many there are not. */
static const char *part(Arena *a, const char *line, const char *key, int n)
{
    const char *at = field(line, key);
    for (; at && n > 0 && at[strcspn(at, ", ")] == ','; n--)
        at += strcspn(at, ",") + 1;
    return !at || n > 0 || *at == '-' ? NULL : arena_strndup(a, at, strcspn(at, ", "));
}

static double number(const char *line, const char *key)
{
    const char *text = field(line, key);
    assert_non_null(text);
    return strtod(text, NULL);
}

static bool is_record(const char *line, const char *kind, int step)
{
    size_t n = strlen(kind);
    return strncmp(line, kind, n) == 0 && line[n] == ' ' && (step < 0 || (int)number(line, "step") == step);
}

static bool has_record(const Reference *r, const char *kind)
{
    for (uint32_t i = 0; i < r->nline; i++)
        if (is_record(r->line[i], kind, -1))
            return true;
    return false;
}

static const char *record(const Reference *r, const char *kind, int step)
{
    for (uint32_t i = 0; i < r->nline; i++)
        if (is_record(r->line[i], kind, step))
            return r->line[i];
    fail_msg("no record '%s' of step %d", kind, step);
    return NULL;
}

/* ---- what is under test ---- */

typedef struct Subject {
    Arena   *a;
    Loaded   l;
    Program *p;
    Rank     rank;
    Data    *data;
} Subject;

enum { MOST_INPUTS = 8 };

static const char *temporary(Arena *a)
{
    char *path = arena_strdup(a, "/tmp/pplan-data-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

static const char *write_tokens(Arena *a, const Reference *r)
{
    const char *path = temporary(a);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (const char *at = field(record(r, "tokens", -1), "values"); at && *at;) {
        char *end;
        uint16_t token = (uint16_t)strtol(at, &end, 10);
        assert_int_equal(fwrite(&token, 2, 1, f), 1);
        at = *end == ',' ? end + 1 : NULL;
    }
    assert_int_equal(fclose(f), 0);
    return path;
}

/* Of an `input` record: the samples of all steps. */
static STensor read_input(Arena *a, const char *line)
{
    const char *type = word(a, line, "type");
    STensor t = {.name = word(a, line, "name"), .dtype = dtype_find(type, (int)strlen(type))};
    int64_t n = 1;
    for (const char *extent; (extent = part(a, line, "shape", t.rank)); n *= t.extent[t.rank++])
        t.extent[t.rank] = strtol(extent, NULL, 10);
    t.bytes = n * dtype_bytes(t.dtype);
    char *data = arena_alloc(a, (size_t)t.bytes);
    const Tensor shape = {.dtype = t.dtype};
    const char *at = field(line, "values");
    for (int64_t i = 0; i < n; i++) {
        char *end;
        real_put(&shape, data, i, strtod(at, &end));
        at = end + 1;
    }
    t.data = data;
    return t;
}

static const char *write_inputs(Arena *a, const Reference *r)
{
    const char *path = temporary(a);
    STensor t[MOST_INPUTS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nline; i++)
        if (is_record(r->line[i], "input", -1)) {
            assert_true(n < MOST_INPUTS);
            t[n++] = read_input(a, r->line[i]);
        }
    assert_int_equal(sfile_write(a, path, t, n), OK);
    return path;
}

static void open_data(Subject *s, const Reference *r)
{
    bool tokens = has_record(r, "tokens");
    const char *file = tokens ? write_tokens(s->a, r) : write_inputs(s->a, r), *spec[MOST_INPUTS];
    for (uint32_t i = 0; !tokens && i < s->p->ninput; i++)
        spec[i] = arena_printf(s->a, "%s=%s", s->p->input[i].name, file);
    if (tokens)
        spec[0] = arena_printf(s->a, "%s:u16", file);
    assert_int_equal(data_open(s->a, s->p, spec, tokens ? 1 : s->p->ninput, 1, &s->data), OK);
    unlink(file);
}

/* The words of `pplan MODEL`, with a plan of one device. */
static void load_subject(Subject *s, const Reference *r, const char *name, const char *dtype, int microbatches)
{
    const char *line = record(r, "model", -1), *define, **argv = NULL;
    const char *source = field(line, "source") ? word(s->a, line, "source") : arena_printf(s->a, "tests/reference/%s.pmodel", name);
    const char *const fixed[] = {"pplan", arena_printf(s->a, "%s/%s", top(), source), "-c", "laptop1", arena_printf(s->a, "-Ddtype=%s", dtype),
                                 "--with", arena_printf(s->a, "microbatches = %d", microbatches)};
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        PUSH(s->a, argv, n, fixed[i]);
    for (int i = 0; (define = part(s->a, line, "defines", i)); i++)
        PUSH(s->a, argv, n, arena_printf(s->a, "-D%s", define));
    Args args;
    assert_int_equal(args_read(s->a, PPLAN, (int)n, (char **)argv, &args), OK);
    assert_int_equal(load_model(&s->l, &args), OK);
}

static void set_optimizer(Subject *s, const Reference *r)
{
    const char *line = has_record(r, "set") ? record(r, "set", -1) : NULL, **set = NULL, *one;
    uint32_t n = 0;
    for (int i = 0; line && (one = part(s->a, line, "values", i)); i++)
        PUSH(s->a, set, n, one);
    assert_int_equal(settings_apply(&s->rank.optimizer, set, n, false), OK);
}

static void open_subject(Subject *s, const Reference *r, const char *name, const char *dtype, int microbatches)
{
    *s = (Subject){.a = arena_new("test")};
    Plan *plan;
    Programs programs;
    load_subject(s, r, name, dtype, microbatches);
    assert_int_equal(load_plan(&s->l, false, &plan, &programs), OK);
    s->p = programs.rank[0];
    assert_int_equal(s->p->microbatches, microbatches);
    open_data(s, r);
    assert_int_equal(rank_open(&s->rank, s->a, s->p, isa_best()), OK);
    rank_init(&s->rank, 1);
    set_optimizer(s, r);
    s->rank.step.step = 0;
}

static void close_subject(Subject *s)
{
    rank_close(&s->rank);
    data_close(s->data);
    load_free(&s->l);
    arena_free(s->a);
}

static double element(const Rank *r, TensorId id, int64_t i)
{
    const void *at = rank_at(r, id, 0, 0);
    return r->program->tensor[id.i].dtype == DT_f64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

static double norm_of(const Rank *r, TensorId id)
{
    double sum = 0;
    for (int64_t i = 0; i < tensor_elements(&r->program->tensor[id.i]); i++)
        sum += element(r, id, i) * element(r, id, i);
    return sqrt(sum);
}

static const State *state_of(const Program *p, const char *path)
{
    size_t n = strcspn(path, " ");
    for (uint32_t i = 0; i < p->nstate; i++)
        if (strlen(p->state[i].path) == n && strncmp(p->state[i].path, path, n) == 0)
            return &p->state[i];
    fail_msg("no weight '%.*s'", (int)n, path);
    return NULL;
}

/* ---- comparisons ---- */

/* Relative, but for start and weight; gradients against their own and the global norm. */
typedef struct Tolerance { double start, loss, norm, gradient, global, weight; } Tolerance;

static void near_to(const char *what, double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed))
        fail_msg("%s: %.17g, expected %.17g (off by %.3g, allowed %.3g)", what, got, want, fabs(got - want), allowed);
}

/* The L2 distance of a gradient from the reference, against its own norm. */
static void check_gradient(const Subject *s, const char *line, double global, const Tolerance *t)
{
    TensorId id = state_of(s->p, field(line, "path"))->gradient;
    double off = 0, own = number(line, "norm");
    const char *at = field(line, "values");
    for (int64_t i = 0; i < tensor_elements(&s->p->tensor[id.i]); i++) {
        char *end;
        double d = element(&s->rank, id, i) - strtod(at, &end);
        off += d * d;
        at = end + 1;
    }
    double allowed = t->gradient * own + t->global * global;
    if (!(sqrt(off) <= allowed))
        fail_msg("gradient of %.*s: off by %.3g, its norm is %.3g", (int)strcspn(field(line, "path"), " "), field(line, "path"),
                 sqrt(off), own);
}

static void check_weights(const Subject *s, const Reference *r, int step, double allowed)
{
    for (uint32_t i = 0; i < r->nline; i++) {
        const char *line = r->line[i];
        if (!is_record(line, "weight", step) || (field(line, "vanishes") && number(line, "vanishes") != 0))
            continue;
        TensorId id = state_of(s->p, field(line, "path"))->weight;
        near_to(field(line, "path"), norm_of(&s->rank, id), number(line, "norm"), allowed * (1 + number(line, "norm")));
        const char *at = field(line, "first");
        for (int64_t k = 0; at && k < 4; k++) {
            char *end;
            near_to(field(line, "path"), element(&s->rank, id, k), strtod(at, &end), allowed);
            at = *end == ',' ? end + 1 : NULL;
        }
    }
}

static void compare(const char *name, const char *dtype, int microbatches, Tolerance t)
{
    Arena *a = arena_new("reference");
    Reference r = read_reference(a, name);
    Subject s;
    open_subject(&s, &r, name, dtype, microbatches);
    check_weights(&s, &r, 0, t.start);
    for (int step = 1; step <= 10; step++) {
        double loss = number(record(&r, "loss", step), "value"), norm = number(record(&r, "norm", step), "value");
        data_fill(s.data, &s.rank, (step - 1) * s.p->batch, s.p->batch, 0, false);
        rank_train(&s.rank);
        near_to(arena_printf(a, "loss of step %d", step), rank_scalar(&s.rank, s.p->loss), loss, t.loss * loss);
        for (uint32_t i = 0; step == 1 && i < r.nline; i++)
            if (is_record(r.line[i], "grad", 1))
                check_gradient(&s, r.line[i], norm, &t);
        near_to(arena_printf(a, "norm of step %d", step), sqrt(rank_scalar(&s.rank, s.p->norm)), norm, t.norm * norm);
    }
    check_weights(&s, &r, 10, t.weight);
    close_subject(&s);
    arena_free(a);
}

/* Some gradients are zero in exact arithmetic (a key bias under softmax): they are
 * measured against the global norm.  The f32 figures are those of BUG-CASES. */
static const Tolerance exact = {1e-15, 1e-12, 1e-12, 1e-10, 1e-14, 1e-9};
static const Tolerance single = {1e-6, 1e-5, 1e-5, 1e-5, 1e-7, 1e-2};

/* For as many micro-batches as the model allows. */
static void run_model(const char *name, const char *dtype, Tolerance t)
{
    Arena *a = arena_new("reference");
    const Reference r = read_reference(a, name);
    const char *whole = field(record(&r, "model", -1), "whole");
    for (int m = 1; m <= (whole && *whole == '1' ? 1 : 4); m *= 2)
        compare(name, dtype, m, t);
    arena_free(a);
}

static void in_f64(void **state)
{
    run_model(*state, "f64", exact);
}

static void in_f32(void **state)
{
    run_model(*state, "f32", single);
}

#define MODEL(name) {name " in f64", in_f64, NULL, NULL, (void *)name}, {name " in f32", in_f32, NULL, NULL, (void *)name}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL("tiny_gpt2"), MODEL("tiny_llama"), MODEL("bert_base"), MODEL("t5_small"),
                                       MODEL("vit_b16"), MODEL("mlp"), MODEL("two_tower"), MODEL("packed")};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
