#ifndef ACCURACY_STATS_H
#define ACCURACY_STATS_H
/* Stats: what a list of errors comes to. */
#include <stdint.h>

typedef struct Summary { uint32_t n; double median, mean, p95, most; } Summary;

/* Of errors in any order, which are sorted in place. */
Summary summary_of(double *error, uint32_t n);
/* A part of 0..1 of a sorted list, between two of its members where it falls between. */
double  percentile(const double *sorted, uint32_t n, double part);
/* Pairs in the same order less pairs in the other, over all pairs that are not ties in either
 * (Kendall's tau-a where there are none); *pairs: how many.  0 without pairs. */
double  kendall_tau(const double *x, const double *y, uint32_t n, uint64_t *pairs);

#endif
