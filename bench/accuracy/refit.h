#ifndef ACCURACY_REFIT_H
#define ACCURACY_REFIT_H
/* Refit: constants fitted to the rows that may be, cross-validated, and what is printed of it. */
#include "bench/accuracy/fit.h"

typedef struct RefitOptions { const char *models, *bundled, *only; bool cross, write, rows; } RefitOptions;

/* `write`: into the files below `bundled`. */
Status refit_memory(Arena *, Rows *, const RefitOptions *);
Status refit(Arena *, Rows *, const RefitOptions *);

#endif
