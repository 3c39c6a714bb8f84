/* Data: the stream of samples a run trains on, and the batches it is cut into. */
#include <ctype.h>
#include <libgen.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/text.h"
#include "runtime/executor.h"
#include "runtime/data.h"
#include "runtime/ranks.h"

/* ---- what the program asks for ---- */

static const char *input_text(Arena *a, const Input *in)
{
    Text s = text_new(a);
    text_add(&s, "%s[", in->name);
    for (uint32_t i = 0; i < in->rank; i++)
        text_add(&s, "%s%lld", i ? ", " : "", (long long)in->extent[i]);
    text_add(&s, "] : %s", dtype_name(in->dtype));
    return s.s;
}

static const char *inputs_text(Arena *a, const Program *p)
{
    Text s = text_new(a);
    for (uint32_t i = 0; i < p->ninput; i++)
        text_add(&s, "%s%s", i ? ", " : "", input_text(a, &p->input[i]));
    return s.s;
}

/* What a rank holds of one sample: the tensor without its batch axis. */
static Tensor part_of_sample(const Tensor *t)
{
    Tensor part = *t;
    part.rank--;
    memmove(&part.axis[0], &t->axis[1], sizeof *t->axis * part.rank);
    return part;
}

static void dtype_range(DType t, int64_t *least, int64_t *most)
{
    int bits = 8 * dtype_bytes(t);
    bool is_signed = t != DT_u8 && t != DT_bool;
    *most = t == DT_bool ? 1 : bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - is_signed)) - 1;
    *least = is_signed ? -*most - 1 : 0;
}

static void set_range(Column *c)
{
    const InputLimit *l = &c->input->limit;
    dtype_range(c->input->dtype, &c->least, &c->most);
    if (l->of) {
        c->least = 0;
        c->most = l->below - 1 < c->most ? l->below - 1 : c->most;
    }
}

/* A column without its source.  Inputs hold samples along their first axis. */
static Status make_column(Arena *a, const Program *p, const Input *in, Column *c)
{
    *c = (Column){.input = in, .fd = -1, .length = 1, .key = arena_printf(a, "data:%s", in->name)};
    if (in->rank == 0 || in->extent[0] != p->batch) {
        fprintf(stderr, "error: input '%s': its first axis must be the batch of %lld samples\n", input_text(a, in), (long long)p->batch);
        return ERR_REJECT;
    }
    for (uint32_t i = 1; i < in->rank; i++)
        c->length *= in->extent[i];
    c->stride = c->length;
    if (has_tensor(in->tensor)) {
        c->tensor = &p->tensor[in->tensor.i];
        c->part = part_of_sample(c->tensor);
        if (tensor_elements(&c->part) != c->length)
            c->whole = arena_alloc(a, (size_t)(c->length * dtype_bytes(in->dtype)));
    }
    set_range(c);
    if (in->limit.label && dtype_bytes(in->dtype) < 4) {
        fprintf(stderr, "error: labels '%s': they must be i32 or i64, to mark rows that are absent\n", input_text(a, in));
        return ERR_REJECT;
    }
    return OK;
}

/* ---- SPECs ---- */

static bool is_integer(DType t)
{
    return t == DT_i32 || t == DT_i64 || t == DT_i16 || t == DT_i8 || t == DT_u8;
}

static bool is_token_model(const Program *p)
{
    if (p->ninput != 2)
        return false;
    const Input *x = &p->input[0], *y = &p->input[1];
    return is_integer(x->dtype) && is_integer(y->dtype) && x->rank == 2 && y->rank == 2 && x->extent[1] == y->extent[1];
}

/* FILE: sample i is tokens i*seq .. i*seq+seq, its labels the tokens after them. */
static Status open_tokens(Arena *a, Data *d, const char *spec)
{
    Tokens t;
    if (!is_token_model(d->program)) {
        fprintf(stderr, "error: data '%s': a file of tokens serves a model with two integer inputs [batch, seq]; this one has %s. "
                "Give each input a safetensors file, as INPUT=FILE\n", spec, inputs_text(a, d->program));
        return ERR_USAGE;
    }
    TRY(tokens_open(a, spec, &t));
    int64_t seq = d->column[0].length;
    d->samples = t.count > 0 ? (t.count - 1) / seq : 0;
    if (d->samples == 0) {
        fprintf(stderr, "error: data file '%s': it has %lld token%s, but one sample of %lld needs %lld: itself and the one after\n",
                t.path, (long long)t.count, t.count == 1 ? "" : "s", (long long)seq, (long long)seq + 1);
        return ERR_REJECT;
    }
    for (uint32_t i = 0; i < 2; i++) {
        Column *c = &d->column[i];
        c->path = t.path;
        c->form = t.form;
        c->width = t.width;
        c->at = t.at + (int64_t)i * t.width;
        TRY(column_open(a, c, d->samples));
    }
    return OK;
}

/* Whether a SPEC begins with a name and '=': an input's, well spelt or not, unless there is a file called so. */
static bool names_input(const char *spec)
{
    size_t n = 0;
    while (isalnum((unsigned char)spec[n]) || spec[n] == '_')
        n++;
    return n > 0 && spec[n] == '=' && access(spec, F_OK) != 0;
}

static Status unknown_input(Arena *a, const Data *d, const char *spec)
{
    const char **pool = NEWN(a, const char *, d->ncolumn + 1), *name = arena_strndup(a, spec, strcspn(spec, "="));
    for (uint32_t i = 0; i < d->ncolumn; i++)
        pool[i] = d->column[i].input->name;
    const char *near = nearest_name(name, pool, d->ncolumn);
    fprintf(stderr, "error: data '%s': the model has no input '%s', it has %s%s\n", spec, name, inputs_text(a, d->program),
            near ? arena_printf(a, "; did you mean '%s'?", near) : "");
    return ERR_USAGE;
}

static Status open_random(Data *d)
{
    for (uint32_t i = 0; i < d->ncolumn; i++) {
        Column *c = &d->column[i];
        const Input *in = c->input;
        bool any = in->dtype == DT_u8 || in->dtype == DT_bool || dtype_is_float(in->dtype);
        if (!any && !in->limit.of) {
            fprintf(stderr, "error: random data for input '%s' of %s: nothing in the model says which values it may have\n", in->name,
                    dtype_name(in->dtype));
            return ERR_REJECT;
        }
    }
    d->samples = -1;
    return OK;
}

static Column *find_column(const Data *d, const char *name, size_t n)
{
    for (uint32_t i = 0; i < d->ncolumn; i++)
        if (strlen(d->column[i].input->name) == n && strncmp(d->column[i].input->name, name, n) == 0)
            return &d->column[i];
    return NULL;
}

/* How a file's elements become the input's; false when they cannot. */
static bool choose_form(DType file, DType input, Form *form)
{
    static const DType dtype_of[] = {DT_u8, DTYPES, DTYPES, DT_i8, DT_i16, DT_i32, DT_i64};
    if (dtype_is_float(file) != dtype_is_float(input))
        return false;
    *form = file == input ? FORM_copy : FORM_widen;
    if (dtype_is_float(file))
        return file == input || (file == DT_f32 && input == DT_f64);
    for (int i = 0; i < FORM_copy; i++)
        if (dtype_of[i] == (file == DT_bool ? DT_u8 : file))
            *form = (Form)i;
    return true;
}

static Status reject_tensor(Arena *a, const Column *c, const STensor *t)
{
    Text s = text_new(a);
    for (uint32_t i = 0; i < t->rank; i++)
        text_add(&s, "%s%lld", i ? ", " : "", (long long)t->extent[i]);
    DType want = c->input->dtype;
    Form form;
    const char *types = dtype_is_float(want) ? "float" : "whole-number";
    fprintf(stderr, "error: data file '%s': tensor '%s'[%s] : %s does not fit input '%s': expected samples first, the other axes and "
            "a %s type alike\n", c->path, t->name, s.s, dtype_name(t->dtype), input_text(a, c->input), types);
    if (!choose_form(t->dtype, want, &form))
        fprintf(stderr, "help: convert it to %s before it is saved%s\n", dtype_name(want), want == DT_f64 ? ", or to f32" : "");
    return ERR_REJECT;
}

static Status no_tensor(Arena *a, const Column *c, const SFile *f)
{
    enum { SHOWN = 8 };
    Text list = text_new(a);
    for (uint32_t i = 0; i < f->ntensor && i < SHOWN; i++)
        text_add(&list, "%s%s", i ? ", " : ": ", f->tensor[i].name);
    fprintf(stderr, "error: data file '%s': none of its %u tensors is named '%s'%s%s\n", c->path, f->ntensor, c->input->name, f->ntensor ? list.s : "",
            f->ntensor > SHOWN ? ", .." : "");
    return ERR_REJECT;
}

/* The column's tensor: that of its name.  Another one is not taken for it, even when
 * it is alone: a file given for the wrong input would train without a word. */
static Status bind_tensor(Arena *a, Column *c, const SFile *f, int64_t *samples)
{
    const STensor *t = sfile_find(f, c->input->name);
    if (!t && f->ntensor == 1) {
        fprintf(stderr, "error: data file '%s': its tensor is named '%s', but the input is '%s': name it so\n", c->path, f->tensor[0].name,
                c->input->name);
        return ERR_REJECT;
    }
    if (!t) {
        return no_tensor(a, c, f);
    }
    bool fits = t->rank == c->input->rank && choose_form(t->dtype, c->input->dtype, &c->form);
    for (uint32_t i = 1; fits && i < t->rank; i++)
        fits = t->extent[i] == c->input->extent[i];
    if (!fits)
        return reject_tensor(a, c, t);
    c->width = dtype_bytes(t->dtype);
    c->at = (const char *)t->data - (const char *)f->map;
    *samples = t->extent[0];
    return OK;
}

/* All inputs have the same samples: a column that was opened before has others than this one. */
static Status unequal(const Data *d, const Column *c, int64_t samples)
{
    const Column *other = d->column;
    while (other == c || !other->path)
        other++;
    bool is_short = samples < d->samples;
    const Column *few = is_short ? c : other, *many = is_short ? other : c;
    fprintf(stderr, "error: data file '%s' has only %lld samples of '%s': there are %lld of '%s' in '%s'\n", few->path,
            (long long)(is_short ? samples : d->samples), few->input->name, (long long)(is_short ? d->samples : samples), many->input->name, many->path);
    return ERR_REJECT;
}

static Status open_tensor(Arena *a, Data *d, Column *c, const char *path)
{
    SFile f;
    int64_t samples = 0;
    c->path = path;
    Status s = sfile_open(a, path, &f);
    if (s == ERR_REJECT && access(path, R_OK) == 0 && is_token_model(d->program))
        fprintf(stderr, "help: a text or a file of tokens stands without the name of an input: --data %s\n", path);
    TRY(s);
    s = bind_tensor(a, c, &f, &samples);
    sfile_close(&f);
    TRY(s);
    if (samples == 0) {
        fprintf(stderr, "error: data file '%s' has no samples of '%s'\n", path, c->input->name);
        return ERR_REJECT;
    }
    if (d->samples > 0 && samples != d->samples)
        return unequal(d, c, samples);
    d->samples = samples;
    return column_open(a, c, samples);
}

/* INPUT=FILE for every input. */
static Status open_tensors(Arena *a, Data *d, const char *const *spec, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t name = strcspn(spec[i], "=");
        Column *c = find_column(d, spec[i], name);
        if (!c && names_input(spec[i]))
            return unknown_input(a, d, spec[i]);
        if (!spec[i][name] || !c) {
            fprintf(stderr, "error: data '%s': expected INPUT=FILE for each input; the model has %s\n", spec[i],
                    inputs_text(a, d->program));
            return ERR_USAGE;
        }
        if (c->path) {
            fprintf(stderr, "error: data for input '%s' is given twice\n", c->input->name);
            return ERR_USAGE;
        }
        TRY(open_tensor(a, d, c, spec[i] + name + 1));
    }
    for (uint32_t i = 0; i < d->ncolumn; i++)
        if (!d->column[i].path) {
            fprintf(stderr, "error: no data for input '%s' beside '%s': give it as '%s=FILE'\n", d->column[i].input->name, spec[0], d->column[i].input->name);
            return ERR_USAGE;
        }
    return OK;
}

/* The plan is what may come from standard input. */
static Status refuse_standard_input(const char *spec)
{
    const char *path = strrchr(spec, '=') ? strrchr(spec, '=') + 1 : spec;
    if (strcmp(path, "-") != 0 || access(path, F_OK) == 0 || access(spec, F_OK) == 0)
        return OK;
    fprintf(stderr, "error: data '%s': samples are read in any order, so they cannot come from standard input: give a file\n", spec);
    return ERR_USAGE;
}

static Status open_specs(Arena *a, Data *d, const char *const *spec, uint32_t n)
{
    if (n == 1 && strcmp(spec[0], "random") == 0)
        return open_random(d);
    size_t name = strcspn(spec[0], "=");
    if (n == 1 && !(spec[0][name] && find_column(d, spec[0], name)) && !names_input(spec[0]))
        return open_tokens(a, d, spec[0]);
    return open_tensors(a, d, spec, n);
}

Status data_open(Arena *a, const Program *p, const char *const *spec, uint32_t n, uint64_t seed, Data **out)
{
    Data *d = *out = NEW(a, Data);
    *d = (Data){.program = p, .ncolumn = p->ninput, .seed = seed};
    d->column = NEWN(a, Column, p->ninput);
    for (uint32_t i = 0; i < p->ninput; i++)
        d->column[i].fd = -1;
    for (uint32_t i = 0; i < p->ninput; i++)
        TRY(make_column(a, p, &p->input[i], &d->column[i]));
    for (uint32_t i = 0; i < n; i++)
        TRY(refuse_standard_input(spec[i]));
    return open_specs(a, d, spec, n);
}

const char *data_spec_file(Arena *a, const Program *p, const char *spec)
{
    if (strcmp(spec, "random") == 0)
        return NULL;
    for (uint32_t i = 0; i < p->ninput; i++) {
        size_t n = strlen(p->input[i].name);
        if (strncmp(spec, p->input[i].name, n) == 0 && spec[n] == '=')
            return spec + n + 1;
    }
    return tokens_path(a, spec);
}

/* Names without folders: data may be moved as a whole. */
static const char *files_text(Arena *a, const Data *d)
{
    Text s = text_new(a);
    for (uint32_t i = 0; i < d->ncolumn; i++) {
        const Column *c = &d->column[i];
        if (c->path && (i == 0 || strcmp(c->path, d->column[i - 1].path) != 0))
            text_add(&s, "%s%s of %lld bytes", s.n ? ", " : "", basename(arena_strdup(a, c->path)), (long long)c->bytes);
    }
    return s.n ? s.s : "random";
}

const DataFact *data_facts(Arena *a, const Data *d, uint32_t *n)
{
    DataFact *fact = NULL;
    *n = 0;
    PUSH(a, fact, *n, ((DataFact){"batch", arena_printf(a, "%lld", (long long)d->program->batch)}));
    PUSH(a, fact, *n, ((DataFact){"files", files_text(a, d)}));
    PUSH(a, fact, *n, ((DataFact){"samples", d->samples < 0 ? "endless" : arena_printf(a, "%lld", (long long)d->samples)}));
    for (uint32_t i = 0; i < d->ncolumn; i++) {
        const Input *in = d->column[i].input;
        Text shape = text_new(a);
        for (uint32_t k = 1; k < in->rank; k++)
            text_add(&shape, "%s%lld", k > 1 ? ", " : "", (long long)in->extent[k]);
        DataFact f = {arena_printf(a, "sample of %s", in->name), arena_printf(a, "[%s]", shape.s)};
        PUSH(a, fact, *n, f);
    }
    return fact;
}

void data_close(Data *d)
{
    for (uint32_t i = 0; d && i < d->ncolumn; i++)
        column_close(&d->column[i]);
}

int64_t data_samples(const Data *d)
{
    return d->samples;
}

/* ---- order ---- */

/* A permutation of 0..n-1 without a table: a Feistel network whose round function
 * is Philox, on the smallest even number of bits that holds n, walked until it
 * comes back inside (Black and Rogaway, Ciphers with arbitrary finite domains,
 * 2002). */
static int64_t permuted(int64_t i, int64_t n, uint64_t seed, int64_t epoch)
{
    enum { ROUNDS = 6 };
    uint32_t key = fnv1a("data order");
    int half = 1;
    while ((uint64_t)1 << (2 * half) < (uint64_t)n)
        half++;
    uint64_t x = (uint64_t)i, mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t mixed = left ^ (philox4(seed, key, round << 32 | right, (uint64_t)epoch).word[0] & mask);
            left = right;
            right = mixed;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t data_sample_number(const Data *d, int64_t k, bool shuffled)
{
    if (d->samples < 0)
        return k;
    return shuffled ? permuted(k % d->samples, d->samples, d->seed, k / d->samples) : k % d->samples;
}

/* ---- batches ---- */

/* Where to write row `row` of the global batch for this rank; NULL: it has none of it.  Inputs have a
 * slot per micro-batch, and of each the rank has its part. */
static char *lend_row(const Column *c, const Rank *r, int64_t row)
{
    if (!c->tensor)
        return NULL;
    const AxisPlace *batch = &c->tensor->axis[0];
    int64_t micro = batch->per_micro > 0 ? row / batch->per_micro : 0, local = row - place_global(batch, 0, micro);
    if (local < 0 || local >= batch->local)
        return NULL;
    char *slot = rank_at(r, c->input->tensor, 0, (uint32_t)micro);
    int64_t bytes = tensor_elements(&c->part) * dtype_bytes(c->input->dtype);
    return r->executor->edit(r, slot + local * bytes, bytes);
}

Status data_fill(const Data *d, const Rank *r, int64_t first, int64_t n, int64_t row, bool shuffled)
{
    for (uint32_t i = 0; i < d->ncolumn; i++)        /* what lies together is written together */
        for (int64_t k = 0; k < n; k++) {
            exchange_begin(r, -1);
            char *to = lend_row(&d->column[i], r, row + k);
            if (to)
                TRY(column_read(&d->column[i], d->seed, data_sample_number(d, first + k, shuffled), to));
        }
    return OK;
}

static void pad_row(const Column *c, char *to)
{
    int64_t n = tensor_elements(&c->part);
    memset(to, 0, (size_t)(n * dtype_bytes(c->input->dtype)));
    for (int64_t e = 0; c->input->limit.label && e < n; e++)
        if (c->input->dtype == DT_i64)
            ((int64_t *)(void *)to)[e] = LABEL_PAD;
        else
            ((int32_t *)(void *)to)[e] = LABEL_PAD;
}

void data_pad(const Data *d, const Rank *r, int64_t n, int64_t row)
{
    for (uint32_t i = 0; i < d->ncolumn; i++)
        for (int64_t k = 0; k < n; k++) {
            char *to = lend_row(&d->column[i], r, row + k);
            if (to)
                pad_row(&d->column[i], to);
        }
}
