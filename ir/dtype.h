#ifndef IR_DTYPE_H
#define IR_DTYPE_H
/* Element types: the words of the language and their sizes. */
#include <stdint.h>

#define DTYPE_LIST(X)                                                    \
    X(f64, 8, 1) X(f32, 4, 1) X(f16, 2, 1) X(bf16, 2, 1) X(f8e4m3, 1, 1) \
    X(f8e5m2, 1, 1) X(i64, 8, 0) X(i32, 4, 0) X(i16, 2, 0) X(i8, 1, 0)   \
    X(u8, 1, 0) X(bool, 1, 0)

/* DT_f64, DT_f32, ... */
typedef enum DType {
#define X(name, bytes, is_float) DT_##name,
    DTYPE_LIST(X)
#undef X
    DTYPES
} DType;

const char *dtype_name(DType);
int         dtype_bytes(DType);
int         dtype_is_float(DType);
/* The type called `name` (n bytes), or DTYPES when there is none. */
DType       dtype_find(const char *name, int n);

#endif
