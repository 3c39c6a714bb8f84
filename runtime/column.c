/* Column: the samples of one input, read and converted. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/text.h"
#include "runtime/data.h"

enum { CHUNK = 1 << 16 };                            /* bytes read at once when a file is checked */

/* ---- numbers of files ---- */

static int64_t form_at(Form f, const void *p, int64_t i)
{
    switch (f) {
#define X(name, type) case FORM_##name: return ((const type *)p)[i];
    INT_FORM_LIST(X)
#undef X
    default: return 0;
    }
}

static bool is_integers(Form f)
{
    return f < FORM_copy;
}

/* Whether the file's numbers are all allowed because its type can hold no other. */
static bool cannot_be_wrong(const Column *c)
{
    switch (c->form) {
    case FORM_u8:  return c->least <= 0 && c->most >= UINT8_MAX;
    case FORM_u16: return c->least <= 0 && c->most >= UINT16_MAX;
    default:       return !is_integers(c->form);
    }
}

static bool allowed(const Column *c, int64_t v)
{
    return (v >= c->least && v <= c->most) || (c->input->limit.ignores && v == c->input->limit.ignore);
}

static Status bad_number(const Column *c, int64_t element, int64_t v)
{
    const InputLimit *l = &c->input->limit;
    fprintf(stderr, "error: data file '%s', byte %lld (sample %lld): %lld cannot be %s '%s': ", c->path,
            (long long)(c->at + element * c->width), (long long)(element / c->stride), (long long)v,
            l->label ? "a label in" : "a number of", c->input->name);
    if (l->of)
        fprintf(stderr, "'%s' has %lld %s, so it is 0..%lld", l->of, (long long)l->below, l->label ? "classes" : "rows",
                (long long)l->below - 1);
    else
        fprintf(stderr, "its type %s holds %lld..%lld", dtype_name(c->input->dtype), (long long)c->least, (long long)c->most);
    if (l->label && l->ignores && (l->ignore < c->least || l->ignore > c->most))
        fprintf(stderr, " or %lld, which is ignored", (long long)l->ignore);
    fputc('\n', stderr);
    return ERR_REJECT;
}

/* ---- files ---- */

Status column_open(Arena *a, Column *c, int64_t samples)
{
    c->fd = open(c->path, O_RDONLY | O_CLOEXEC);
    if (c->fd < 0)
        return file_unopened("open", c->path, errno);
    struct stat st;
    c->bytes = fstat(c->fd, &st) == 0 ? st.st_size : 0;
    c->buffer = arena_alloc(a, (size_t)(c->length * c->width));
    return column_check(c, samples);
}

void column_close(Column *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static Status read_bytes(const Column *c, int64_t at, void *to, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pread(c->fd, (char *)to + done, (size_t)(bytes - done), at + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            fprintf(stderr, "error: cannot read %lld bytes at byte %lld of '%s': %s\n", (long long)bytes, (long long)at, c->path,
                    n < 0 ? strerror(errno) : "the file became shorter while it was in use");
            return ERR_IO;
        }
        done += n;
    }
    return OK;
}

Status column_check(const Column *c, int64_t samples)
{
    if (c->fd < 0 || samples <= 0 || cannot_be_wrong(c))
        return OK;
    _Alignas(8) char chunk[CHUNK];
    int64_t n = (samples - 1) * c->stride + c->length, step = CHUNK / c->width;
    for (int64_t first = 0; first < n; first += step) {
        int64_t count = n - first < step ? n - first : step;
        TRY(read_bytes(c, c->at + first * c->width, chunk, count * c->width));
        for (int64_t i = 0; i < count; i++) {
            int64_t v = form_at(c->form, chunk, i);
            if (!allowed(c, v))
                return bad_number(c, first + i, v);
        }
    }
    return OK;
}

/* ---- samples ---- */

static void store(DType dtype, void *to, int64_t i, int64_t v)
{
    switch (dtype) {
    case DT_i64: ((int64_t *)to)[i] = v; return;
    case DT_i32: ((int32_t *)to)[i] = (int32_t)v; return;
    case DT_i16: ((int16_t *)to)[i] = (int16_t)v; return;
    case DT_i8:  ((int8_t *)to)[i] = (int8_t)v; return;
    default:     ((uint8_t *)to)[i] = (uint8_t)v; return;
    }
}

/* Checked again as they are read: the file may have changed since it was opened. */
static Status read_integers(const Column *c, int64_t sample, void *to)
{
    for (int64_t i = 0; i < c->length; i++) {
        int64_t v = form_at(c->form, c->buffer, i);
        if (!allowed(c, v))
            return bad_number(c, sample * c->stride + i, v);
        store(c->input->dtype, to, i, v);
    }
    return OK;
}

/* Element i of the stream of samples laid end to end is a function of the seed, the
 * input's name and i: the same under every layout. */
static void make_sample(const Column *c, uint64_t seed, int64_t sample, void *to)
{
    static const Init normal = {.kind = INIT_normal, .a = 1};
    int64_t first = sample * c->length;
    if (dtype_is_float(c->input->dtype)) {
        init_fill(&normal, c->key, seed, first, c->length, (Reals){c->input->dtype, to});
        return;
    }
    uint64_t range = (uint64_t)c->most + 1;
    for (int64_t i = 0; i < c->length; i++) {
        uint64_t at = (uint64_t)(first + i);
        uint64_t word = philox4(seed, fnv1a(c->key), at / 4, 0).word[at % 4];
        store(c->input->dtype, to, i, (int64_t)(word * range >> 32));
    }
}

static Status read_whole(const Column *c, uint64_t seed, int64_t sample, void *to)
{
    if (c->fd < 0) {
        make_sample(c, seed, sample, to);
        return OK;
    }
    int64_t at = c->at + sample * c->stride * c->width;
    if (c->form == FORM_copy)
        return read_bytes(c, at, to, c->length * c->width);
    TRY(read_bytes(c, at, c->buffer, c->length * c->width));
    if (c->form != FORM_widen)
        return read_integers(c, sample, to);
    const float *from = (const float *)(const void *)c->buffer;
    for (int64_t i = 0; i < c->length; i++)
        ((double *)to)[i] = from[i];
    return OK;
}

/* Rows that are cut out of the whole sample; padding is zero. */
static void take_part(const Column *c, char *to)
{
    int64_t all = tensor_elements(&c->part), length = c->part.rank ? c->part.axis[c->part.rank - 1].local : 1;
    int64_t bytes = dtype_bytes(c->input->dtype);
    for (int64_t row = 0; row < all / length; row++, to += length * bytes) {
        int64_t first = place_row(&c->part, row, 0), n = place_row_valid(&c->part, row);
        memcpy(to, c->whole + first * bytes, (size_t)(n * bytes));
        memset(to + n * bytes, 0, (size_t)((length - n) * bytes));
    }
}

Status column_read(const Column *c, uint64_t seed, int64_t sample, void *to)
{
    TRY(read_whole(c, seed, sample, c->whole ? c->whole : to));
    if (c->whole)
        take_part(c, to);
    return OK;
}
