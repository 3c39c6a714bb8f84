/* compare_files GOT WANT OWN ALL -- whether two files of tensors are near to each other, see
 * near_files(); prints what is not. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/near.h"

int main(int argc, char **argv)
{
    SFile got, want;
    Arena *a = arena_new("files");
    if (argc != 5 || sfile_open(a, argv[1], &got) != OK || sfile_open(a, argv[2], &want) != OK)
        return 2;
    const char *bad = near_files(a, &got, &want, strtod(argv[3], NULL), strtod(argv[4], NULL));
    if (bad)
        printf("%s: %s\n", argv[1], bad);
    sfile_close(&got);
    sfile_close(&want);
    arena_free(a);
    return bad != NULL;
}
