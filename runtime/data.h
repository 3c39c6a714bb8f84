#ifndef RUNTIME_DATA_H
#define RUNTIME_DATA_H
/* Data, inside: a column is where one input's samples come from.  Samples lie in a
 * file at equal distances, so that reading one is a pread() into a buffer made at
 * the start: nothing of the file stays in our memory, and a file that changes under
 * the run is an error, not a signal.  Little-endian files on a little-endian
 * machine. */
#include "runtime/runtime.h"

/* Integers of files; floats are taken over as they are, or widened f32 -> f64. */
#define INT_FORM_LIST(X) \
    X(u8, uint8_t) X(u16, uint16_t) X(u32, uint32_t) X(i8, int8_t) X(i16, int16_t) X(i32, int32_t) X(i64, int64_t)
typedef enum Form {
#define X(name, type) FORM_##name,
    INT_FORM_LIST(X)
#undef X
    FORM_copy, FORM_widen
} Form;

typedef struct Column {
    const Input  *input;
    int64_t       least, most;        /* of its whole numbers, by limit and dtype; the ignored label excepted */
    int64_t       length;             /* elements of a sample */
    const Tensor *tensor;             /* the rank's part of the batch; NULL: other stages read this input, or none does */
    Tensor        part;               /* the rank's part of one sample: without the batch axis */
    char         *whole;              /* one sample, where the part is less than that; else NULL */
    /* where samples come from: a file, or random numbers (fd < 0) */
    const char   *path;
    int           fd;
    int64_t       bytes;              /* of the file, when it was opened */
    Form          form;
    int           width;              /* bytes of an element in the file */
    int64_t       at;                 /* byte of sample 0 */
    int64_t       stride;             /* elements from a sample to the next */
    char         *buffer;             /* one sample, as the file has it */
    const char   *key;                /* of its random numbers */
} Column;

struct Data {
    const Program *program;
    Column        *column; uint32_t ncolumn;
    int64_t        samples;           /* in the files; -1: random */
    uint64_t       seed;
};

/* ---- column.c ---- */

/* Open the file of a column whose other fields stand. */
Status column_open(Arena *, Column *, int64_t samples);
void   column_close(Column *);
/* Stream over all samples: every number must be allowed. */
Status column_check(const Column *, int64_t samples);
/* Write the rank's part of one sample, in the tensor's dtype. */
Status column_read(const Column *, uint64_t seed, int64_t sample, void *to);

/* ---- tokens.c ---- */

/* A file of tokens: llm.c's .bin, nanoGPT's .bin, raw tokens, or bytes. */
typedef struct Tokens { const char *path; Form form; int width; int64_t at, count; } Tokens;
/* FILE, or FILE:u16, FILE:u32, FILE:bytes; every size is checked. */
Status tokens_open(Arena *, const char *spec, Tokens *out);
/* The file of such a SPEC. */
const char *tokens_path(Arena *, const char *spec);

#endif
