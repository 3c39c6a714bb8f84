#ifndef ACCURACY_FIT_MEMORY_H
#define ACCURACY_FIT_MEMORY_H
/* Fit of memory: what an allocator pads and what a runtime reserves, of each profile by itself. */
#include "bench/accuracy/fit.h"

/* Of the cases with a measured peak that take part. */
void fit_memory(Fit *);

#endif
