/* Element types. */
#include "ir/dtype.h"

#include <string.h>

typedef struct Row { const char *name; int bytes, is_float; } Row;

static const Row rows[DTYPES] = {
#define X(name, bytes, is_float) {#name, bytes, is_float},
    DTYPE_LIST(X)
#undef X
};

const char *dtype_name(DType t)
{
    return rows[t].name;
}

int dtype_bytes(DType t)
{
    return rows[t].bytes;
}

int dtype_is_float(DType t)
{
    return rows[t].is_float;
}

DType dtype_find(const char *name, int n)
{
    int t = 0;
    while (t < DTYPES && ((int)strlen(rows[t].name) != n || strncmp(rows[t].name, name, (size_t)n) != 0))
        t++;
    return (DType)t;
}
