#ifndef TESTS_NEAR_H
#define TESTS_NEAR_H
/* Two safetensors files with the same tensors of f64 or f32, near to each other. */
#include <math.h>
#include <string.h>

#include "runtime/safetensors.h"

static inline double near_value(const STensor *x, int64_t i)
{
    return x->dtype == DT_f64 ? ((const double *)x->data)[i] : (double)((const float *)x->data)[i];
}

/* Sum of squares of a tensor, or of its difference to another. */
static inline double near_square(const STensor *x, const STensor *minus)
{
    double sum = 0;
    for (int64_t i = 0; i < x->bytes / dtype_bytes(x->dtype); i++)
        sum += pow(near_value(x, i) - (minus ? near_value(minus, i) : 0), 2);
    return sum;
}

static inline bool near_alike(const STensor *x, const STensor *y)
{
    return strcmp(x->name, y->name) == 0 && x->dtype == y->dtype && (x->dtype == DT_f64 || x->dtype == DT_f32) && x->rank == y->rank &&
           memcmp(x->extent, y->extent, sizeof *x->extent * x->rank) == 0;
}

/* Names, order and shapes must be the same, and the norm of a tensor's difference at most
 * `own` of its norm and `all` of the norm of all tensors: some are zero but for rounding.
 * What is wrong, or NULL. */
static inline const char *near_files(Arena *a, const SFile *got, const SFile *want, double own, double all)
{
    double total = 0;
    if (got->ntensor != want->ntensor || want->ntensor == 0)
        return arena_printf(a, "'%s' has %u tensors, expected %u", got->path, got->ntensor, want->ntensor);
    for (uint32_t i = 0; i < want->ntensor; i++)
        total += near_square(&want->tensor[i], NULL);
    for (uint32_t i = 0; i < want->ntensor; i++) {
        const STensor *x = &got->tensor[i], *y = &want->tensor[i];
        if (!near_alike(x, y))
            return arena_printf(a, "'%s' is not like '%s'", x->name, y->name);
        double off = sqrt(near_square(x, y)), norm = sqrt(near_square(y, NULL));
        if (!(off <= own * norm + all * sqrt(total)))
            return arena_printf(a, "'%s' is off by %g of a norm of %g", y->name, off, norm);
    }
    return NULL;
}

#endif
