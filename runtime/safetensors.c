/* safetensors: 8 bytes of header length (little-endian), a JSON header of names,
 * dtypes, shapes and offsets, then the bytes (huggingface/safetensors, format
 * description).  Reading trusts nothing; writing leaves the old file until the new
 * one is durable. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/text.h"
#include "runtime/json.h"
#include "runtime/safetensors.h"

enum { HEADER_LIMIT = 100 << 20, ALIGN = 8 };

typedef struct DTypeName { DType dtype; const char *name; } DTypeName;
static const DTypeName dtype_names[] = {
    {DT_f64, "F64"}, {DT_f32, "F32"}, {DT_f16, "F16"}, {DT_bf16, "BF16"}, {DT_i64, "I64"}, {DT_i32, "I32"},
    {DT_i16, "I16"}, {DT_i8, "I8"},   {DT_u8, "U8"},   {DT_bool, "BOOL"}, {DT_f8e4m3, "F8_E4M3"}, {DT_f8e5m2, "F8_E5M2"},
};
enum { NDTYPE_NAMES = sizeof dtype_names / sizeof *dtype_names };

/* ---- reading ---- */

static Status reject(const char *path, const char *what, const char *name)
{
    fprintf(stderr, "error: %s: %s%s%s\n", path, what, name ? " in tensor " : "", name ? name : "");
    return ERR_REJECT;
}

static bool read_dtype(const json_t *j, DType *out)
{
    const char *name = json_string_value(j);
    for (int i = 0; name && i < NDTYPE_NAMES; i++)
        if (strcmp(dtype_names[i].name, name) == 0) {
            *out = dtype_names[i].dtype;
            return true;
        }
    return false;
}

/* Shape and its element count; false when it is no list of sizes that fit 2^56. */
static bool read_shape(const json_t *j, STensor *t, int64_t *elements)
{
    if (!json_is_array(j) || json_array_size(j) > MAX_RANK)
        return false;
    t->rank = (uint8_t)json_array_size(j);
    *elements = 1;
    for (size_t i = 0; i < t->rank; i++) {
        const json_t *e = json_array_get(j, i);
        int64_t n = json_integer_value(e);
        if (!json_is_integer(e) || n < 0 || (n > 0 && *elements > ((int64_t)1 << 56) / n))
            return false;
        t->extent[i] = n;
        *elements *= n;
    }
    return true;
}

static Status read_tensor(Arena *a, SFile *f, const char *name, const json_t *j, int64_t data_at)
{
    STensor t = {.name = arena_strdup(a, name)};
    int64_t elements;
    if (!read_dtype(json_object_get(j, "dtype"), &t.dtype))
        return reject(f->path, "unknown dtype", name);
    if (!read_shape(json_object_get(j, "shape"), &t, &elements))
        return reject(f->path, "bad shape", name);
    const json_t *at = json_object_get(j, "data_offsets");
    int64_t from = json_integer_value(json_array_get(at, 0)), to = json_integer_value(json_array_get(at, 1));
    if (json_array_size(at) != 2 || from < 0 || to < from)
        return reject(f->path, "no place in the file", name);
    t.bytes = to - from;
    if (t.bytes != elements * dtype_bytes(t.dtype))
        return reject(f->path, "size and shape disagree", name);
    t.data = (const char *)f->map + data_at + from;
    PUSH(a, f->tensor, f->ntensor, t);
    return OK;
}

static int by_offset(const void *x, const void *y)
{
    const STensor *a = x, *b = y;
    if (a->data != b->data)
        return a->data < b->data ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The tensors lie end to end and fill the file, as the reference implementation asks
 * (huggingface/safetensors, Metadata::validate): nothing hides between or behind them. */
static Status check_layout(SFile *f, const char *data)
{
    const char *at = data, *end = (const char *)f->map + f->map_bytes;
    if (f->ntensor)
        qsort(f->tensor, f->ntensor, sizeof *f->tensor, by_offset);
    for (uint32_t i = 0; i < f->ntensor; i++) {
        const STensor *t = &f->tensor[i];
        long long from = (const char *)t->data - data, want = at - data;
        if (from != want) {
            fprintf(stderr, "error: %s: tensor %s begins at byte %lld of the data, but the one before ends at %lld: %s\n", f->path, t->name,
                    from, want, from < want ? "they overlap" : "there is a gap");
            return ERR_REJECT;
        }
        at += t->bytes;
    }
    if (at == end)
        return OK;
    fprintf(stderr, "error: %s: its tensors have %lld bytes, but the file has %lld behind its header\n", f->path, (long long)(at - data),
            (long long)(end - data));
    return ERR_REJECT;
}

/* To where the header says that the data of its tensors go. */
static int64_t promised(const json_t *root)
{
    const char *name;
    json_t *value;
    int64_t most = 0;
    json_object_foreach((json_t *)(uintptr_t)root, name, value) {
        int64_t to = json_integer_value(json_array_get(json_object_get(value, "data_offsets"), 1));
        most = to > most ? to : most;
    }
    return most;
}

static Status check_length(const SFile *f, const json_t *root, size_t head)
{
    uint64_t want = head + (uint64_t)promised(root);
    if (want <= f->map_bytes)
        return OK;
    fprintf(stderr, "error: %s: it was cut short: its header promises a file of %llu bytes, but it has %zu\n", f->path, (unsigned long long)want,
            f->map_bytes);
    return ERR_REJECT;
}

static Status read_header(Arena *a, SFile *f)
{
    uint64_t n = 0;
    for (int i = 7; f->map_bytes >= 8 && i >= 0; i--)
        n = n << 8 | ((const unsigned char *)f->map)[i];
    if (f->map_bytes < 8 || n > HEADER_LIMIT || n > f->map_bytes - 8)
        return reject(f->path, "not a safetensors file: its header is longer than the file", NULL);
    json_error_t why;
    json_begin_reading();
    json_t *root = json_loadb((const char *)f->map + 8, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        json_decref(root);
        return reject(f->path, "not a safetensors file: its header is not a JSON object", NULL);
    }
    const char *name;
    json_t *value;
    Status s = check_length(f, root, 8 + (size_t)n);
    json_object_foreach(root, name, value)
        if (s == OK && strcmp(name, "__metadata__") != 0)
            s = read_tensor(a, f, name, value, 8 + (int64_t)n);
    json_decref(root);
    return s == OK ? check_layout(f, (const char *)f->map + 8 + n) : s;
}

Status sfile_open(Arena *a, const char *path, SFile *out)
{
    *out = (SFile){.path = path};
    const void *map;
    TRY(file_map(path, &map, &out->map_bytes));
    out->map = (void *)(uintptr_t)map;
    Status s = read_header(a, out);
    if (s != OK)
        sfile_close(out);
    return s;
}

void sfile_close(SFile *f)
{
    file_unmap(f->map, f->map_bytes);
    *f = (SFile){0};
}

const STensor *sfile_find(const SFile *f, const char *name)
{
    for (uint32_t i = 0; i < f->ntensor; i++)
        if (strcmp(f->tensor[i].name, name) == 0)
            return &f->tensor[i];
    return NULL;
}

/* ---- writing ---- */

static char *header_text(const STensor *tensor, uint32_t n)
{
    json_t *root = json_object();
    int64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        json_t *shape = json_array();
        for (uint32_t k = 0; k < tensor[i].rank; k++)
            json_array_append_new(shape, json_integer(tensor[i].extent[k]));
        const char *dtype = "";
        for (int k = 0; k < NDTYPE_NAMES; k++)
            if (dtype_names[k].dtype == tensor[i].dtype)
                dtype = dtype_names[k].name;
        json_object_set_new(root, tensor[i].name, json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape,
                            "data_offsets", (json_int_t)at, (json_int_t)(at + tensor[i].bytes)));
        at += tensor[i].bytes;
    }
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

Status sfile_head(Arena *a, const STensor *tensor, uint32_t n, SFileHead *out)
{
    json_begin_writing();
    char *text = header_text(tensor, n);
    Status s = json_written("the header of a safetensors file");
    if (s != OK) {
        free(text);
        return s;
    }
    size_t length = strlen(text), padded = (length + ALIGN - 1) / ALIGN * ALIGN;
    char *head = arena_alloc(a, 8 + padded);
    for (int i = 0; i < 8; i++)
        head[i] = (char)(unsigned char)((uint64_t)padded >> (8 * i));
    memset(head + 8, ' ', padded);
    memcpy(head + 8, text, length);
    free(text);
    *out = (SFileHead){head, 8 + padded};
    return OK;
}

Status sfile_write(Arena *a, const char *path, const STensor *tensor, uint32_t n)
{
    SFileHead head;
    Writer w;
    TRY(sfile_head(a, tensor, n, &head));
    TRY(writer_open(a, &w, path));
    writer_put(&w, head.data, head.bytes);
    for (uint32_t i = 0; i < n; i++)
        writer_put(&w, tensor[i].data, (size_t)tensor[i].bytes);
    return writer_close(&w);
}
