#ifndef ACCURACY_REPORT_H
#define ACCURACY_REPORT_H
/* Report: how far predictions are from what was measured. */
#include <stdio.h>

#include "bench/accuracy/rows.h"

/* A row that was predicted. */
typedef struct Result {
    const Row *row;
    double     seconds;
    double     gib;                   /* what its source would have measured */
    bool       too_big;               /* more than its device has, though it ran */
} Result;

typedef struct Results { const Rows *rows; Result *result; uint32_t n; } Results;

/* |predicted - measured| / measured. */
double result_time_error(const Result *);
double result_memory_error(const Result *);
/* Rows of the paper of Korthikanti et al. 2022: never in a fit. */
bool   row_is_reserved(const Row *);

void report_print(FILE *, Arena *, const Results *, bool each_row);

#endif
