/* stats: medians, percentiles, orders. */
#include "bench/accuracy/stats.h"

#include <stdlib.h>

static int ascending(const void *x, const void *y)
{
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

double percentile(const double *sorted, uint32_t n, double part)
{
    if (n == 0)
        return 0;
    double at = part * (double)(n - 1);
    uint32_t below = (uint32_t)at;
    if (below + 1 >= n)
        return sorted[n - 1];
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

Summary summary_of(double *error, uint32_t n)
{
    Summary s = {.n = n};
    double sum = 0;
    if (n == 0)
        return s;
    qsort(error, n, sizeof *error, ascending);
    for (uint32_t i = 0; i < n; i++)
        sum += error[i];
    s.median = percentile(error, n, 0.5);
    s.mean = sum / (double)n;
    s.p95 = percentile(error, n, 0.95);
    s.most = error[n - 1];
    return s;
}

double kendall_tau(const double *x, const double *y, uint32_t n, uint64_t *pairs)
{
    int64_t order = 0;
    *pairs = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++) {
            int of_x = (x[i] > x[j]) - (x[i] < x[j]), of_y = (y[i] > y[j]) - (y[i] < y[j]);
            order += of_x * of_y;
            *pairs += of_x != 0 && of_y != 0;
        }
    return *pairs ? (double)order / (double)*pairs : 0;
}
