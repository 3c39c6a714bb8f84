#ifndef ACCURACY_REPORT_H
#define ACCURACY_REPORT_H
/* Report: how far predictions are from what was measured. */
#include <stdio.h>

#include "bench/accuracy/rows.h"

/* A row that was predicted. */
typedef struct Result {
    const Row *row;
    double     seconds;
    double     peak_gib, last_gib;    /* of the fullest rank; of the last stage's */
    bool       too_big;               /* more than its device has, though it ran */
} Result;

typedef struct Results { const Rows *rows; Result *result; uint32_t n; } Results;

/* |predicted - measured| / measured. */
double result_time_error(const Result *);
/* The memory that the source measured, GiB, and what stands against it; 0: it measured none. */
double result_measured_gib(const Result *);
double result_memory_error(const Result *);
/* Rows of the paper of Korthikanti et al. 2022: never in a fit. */
bool   row_is_reserved(const Row *);

void report_print(FILE *, Arena *, const Results *, bool each_row);

#endif
