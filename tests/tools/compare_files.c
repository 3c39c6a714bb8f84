/* compare_files GOT WANT OWN ALL -- the same f64 tensors in two safetensors files, near to
 * each other: the norm of a tensor's difference is at most OWN of its norm and ALL of the
 * norm of all tensors of WANT.  Prints what is not, and at the end how many tensors there are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/safetensors.h"

static double square(const STensor *x, const STensor *minus)
{
    const double *a = x->data, *b = minus ? minus->data : NULL;
    double sum = 0;
    for (int64_t i = 0; i < x->bytes / 8; i++)
        sum += pow(a[i] - (b ? b[i] : 0), 2);
    return sum;
}

static bool same_shape(const STensor *x, const STensor *y)
{
    return strcmp(x->name, y->name) == 0 && x->dtype == DT_f64 && y->dtype == DT_f64 && x->rank == y->rank &&
           memcmp(x->extent, y->extent, sizeof *x->extent * x->rank) == 0;
}

static int compare(const SFile *got, const SFile *want, double own, double all)
{
    int bad = got->ntensor != want->ntensor || want->ntensor == 0;
    double total = 0;
    for (uint32_t i = 0; i < want->ntensor; i++)
        total += square(&want->tensor[i], NULL);
    for (uint32_t i = 0; i < want->ntensor && !bad; i++) {
        const STensor *x = &got->tensor[i], *y = &want->tensor[i];
        if (!same_shape(x, y)) {
            printf("'%s' in '%s' is not '%s'\n", x->name, got->path, y->name);
            return 1;
        }
        double off = sqrt(square(x, y)), norm = sqrt(square(y, NULL));
        if (off <= own * norm + all * sqrt(total))
            continue;
        printf("'%s' is off by %g of a norm of %g\n", y->name, off, norm);
        bad = 1;
    }
    printf("%u tensors\n", want->ntensor);
    return bad;
}

int main(int argc, char **argv)
{
    SFile got, want;
    Arena *a = arena_new("files");
    if (argc != 5 || sfile_open(a, argv[1], &got) != OK || sfile_open(a, argv[2], &want) != OK)
        return 2;
    int bad = compare(&got, &want, strtod(argv[3], NULL), strtod(argv[4], NULL));
    sfile_close(&got);
    sfile_close(&want);
    arena_free(a);
    return bad;
}
