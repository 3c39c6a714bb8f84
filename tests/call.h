#ifndef TESTS_CALL_H
#define TESTS_CALL_H
/* Kernel calls made from a line of text, without a model or a program around them:
 * for the tests of kernels and for their benchmark. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/operand.h"

enum { LETTERS = 128, MOST_TEXT = 192, WORK_BYTES = 1 << 22 };

/* A call described by a line: "op: arguments -> results | attributes".  A tensor is
 * its axes, a letter each; "." is a scalar, "-" an absent one; "#" before it makes
 * it i32, "@" f64, "+" a tensor of positive numbers; others have the type of the
 * call, but for those with "~" first, which are f32.  Letters stand for factors,
 * whose extents are given apart. */
typedef struct Case {
    const char *call;
    const char *extents;              /* "b=3 s=5" */
    double      span;                 /* arguments lie in +-span */
    int64_t     labels;               /* i32 tensors hold 0 .. labels - 1 */
} Case;

typedef struct Made {
    Instr   in;
    Tensor  tensor[MAX_ARGS + MAX_OUTS];
    KCall   call;
    DType   real;                     /* of its tensors: f32 or bf16 */
    void   *start[MAX_OUTS];          /* what results hold before the call */
    KStep   step;
    Optimizer optimizer;
    uint64_t  random;                 /* state of the generator of its numbers */
} Made;

static inline double uniform(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static inline void fill(Made *m, const Tensor *t, void *p, const Case *k, bool positive)
{
    for (int64_t i = 0; i < tensor_elements(t); i++) {
        double u = uniform(&m->random);
        if (t->dtype == DT_i32)
            int_put(t, p, i, (int64_t)(u * (double)k->labels));
        else
            real_put(t, p, i, positive ? 0.05 + u * k->span : (2 * u - 1) * k->span);
    }
}

static inline void *room(const Tensor *t)
{
    size_t bytes = (size_t)tensor_bytes(t);
    void *p = calloc(1, bytes + 64);
    assert(p && "out of memory, or a malformed line");
    return p;
}

/* Factor of a letter in a call. */
static inline uint8_t factor(Made *m, const int64_t *extent, char letter)
{
    for (uint8_t f = 0; f < m->in.nfactor; f++)
        if (m->in.role[f] == letter)
            return f;
    m->in.role[m->in.nfactor] = letter;
    m->in.extent[m->in.nfactor] = extent[(int)letter];
    return m->in.nfactor++;
}

/* One tensor from its text; its memory, filled, or NULL when absent. */
static inline void *tensor(Made *m, const Case *k, const int64_t *extent, const char *text, Tensor *t, uint8_t *factors)
{
    if (*text == '-')
        return NULL;
    DType real = *text == '~' ? DT_f32 : m->real;
    text += *text == '~';
    *t = (Tensor){.dtype = *text == '#' ? DT_i32 : *text == '@' ? DT_f64 : real};
    bool positive = *text == '+' || *text == '@';
    for (text += strcspn(text, "abcdefghijklmnopqrstuvwxyz."); *text && *text != '.'; text++) {
        factors[t->rank] = factor(m, extent, *text);
        int64_t n = extent[(int)*text];
        t->axis[t->rank++] = (AxisPlace){.local = n, .global = n};
    }
    void *p = room(t);
    fill(m, t, p, k, positive);
    return p;
}

static inline void attribute(Made *m, char *text)
{
    char *value = strchr(text, '=');
    assert(value && "out of memory, or a malformed line");
    *value++ = 0;
    int i = op_attr_index(m->in.op, text);
    assert(i >= 0);
    bool real = strchr(value, '.') != NULL;
    Attr a = real ? ATTR_F(atof(value)) : ATTR_I(atoll(value));
    m->in.attr[i] = !strcmp(value, "true") || !strcmp(value, "false") ? ATTR_B(*value == 't') : a;
}

static inline void read_extents(const char *text, int64_t *extent)
{
    for (; *text; text += strcspn(text, " "), text += *text == ' ')
        extent[(int)*text] = atoll(text + 2);
}

static inline void read_tensors(Made *m, const Case *k, const int64_t *extent, char *arguments, char *results)
{
    char *save;
    for (char *t = strtok_r(arguments, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
        int i = m->in.narg++;
        m->call.arg[i] = tensor(m, k, extent, t, &m->tensor[i], m->in.arg_factor[i]);
        m->call.argt[i] = m->call.arg[i] ? &m->tensor[i] : NULL;
    }
    for (char *t = strtok_r(results, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
        int i = m->in.nout++;
        Tensor *x = &m->tensor[MAX_ARGS + i];
        m->start[i] = tensor(m, k, extent, t, x, m->in.out_factor[i]);
        m->call.outt[i] = m->start[i] ? x : NULL;
        m->call.out[i] = m->start[i] ? room(x) : NULL;
    }
}

static inline void make_call_in(Made *m, const Case *k, DType real, uint64_t seed)
{
    char text[MOST_TEXT], *save, *start;
    int64_t extent[LETTERS] = {0};
    snprintf(text, sizeof text, "%s", k->call);
    read_extents(k->extents, extent);
    *m = (Made){.in = {.key = "h[1].drop", .acc = ACC_YES}, .real = real, .random = seed};
    memset(m->in.arg_factor, NO_FACTOR, sizeof m->in.arg_factor);
    memset(m->in.out_factor, NO_FACTOR, sizeof m->in.out_factor);
    char *name = strtok_r(text, ":", &save), *rest = save;
    m->in.op = op_find(name);
    assert(m->in.op != OP_KINDS);
    char *attributes = strchr(rest, '|');
    if (attributes)
        *attributes++ = 0;
    char *results = strstr(rest, "->");
    assert(results && "out of memory, or a malformed line");
    *results = 0;
    read_tensors(m, k, extent, rest, results + 2);
    for (start = attributes; start && (start = strtok_r(start, " ", &save)); start = save)
        attribute(m, start);
    m->optimizer = (Optimizer){.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.9, .clip = 1};
    m->step = (KStep){.seed = 0x1234567890ABCDEF, .step = 7, .samples = 5, .lr = 1e-2, .correction1 = 0.3, .correction2 = 0.2, .optimizer = &m->optimizer};
    m->call.in = &m->in;
    m->call.step = &m->step;
    m->call.work = calloc(1, WORK_BYTES);
    assert(m->call.work && "out of memory, or a malformed line");
}

static inline void make_call(Made *m, const Case *k, uint64_t seed)
{
    make_call_in(m, k, DT_f32, seed);
}

static inline void free_call(Made *m)
{
    for (int i = 0; i < MAX_ARGS; i++)
        free(m->call.arg[i]);
    for (int i = 0; i < MAX_OUTS; i++) {
        free(m->call.out[i]);
        free(m->start[i]);
    }
    free(m->call.work);
}

#endif
