#ifndef RUNTIME_MEASURE_DEVICE_H
#define RUNTIME_MEASURE_DEVICE_H
/* What a device's figures are measured with; private to this folder. */
#include "runtime/measure/bench.h"

/* Matmuls of the shapes that training makes: all; without those of few rows, which are bound by memory; only
 * those that come near the peak. */
typedef enum Products { PRODUCTS_ALL, PRODUCTS_REUSING, PRODUCTS_BEST } Products;
void products_add(Bench *, Products, const Machine *);
/* All other ops: in the caches, and beyond them, and with options that make them slower. */
void ops_add(Bench *, const Machine *);
/* Those that a model of fewer bits computes in these; on a processor, in the caches. */
void ops_add_narrow(Bench *, const Machine *);
/* Whether an op is among them: not scalars, what moves nothing, and products, which are
 * measured in more shapes. */
bool ops_timed(const Machine *, OpKind, DType compute);
/* One of them, with so many rows, and positions where its signature has any. */
uint32_t ops_add_one(Bench *, OpKind, int64_t rows, int64_t positions);

/* All of a device of so many threads but its bandwidth, which is given; threads = 0: of one that is not the processor. */
Status device_measure(Arena *, const MeasureOptions *, int threads, double bandwidth, double seconds, MeasuredDevice *);

/* Bytes/s that threads copy together, in memory beyond the caches, for each of n numbers of
 * threads, ascending. */
Status copying_measure(Arena *, const MeasureOptions *, double seconds, const int *threads, uint32_t n, double *bandwidth, Spread *);

/* The same of a device: an op that reads as much as it writes, by n numbers of bytes, ascending. */
Status device_copying(Arena *, const MeasureOptions *, double seconds, Copies *, Spread *);

/* What ranks say to each other, in one or two numbers of ranks. */
Status link_measure(Arena *, const MeasureOptions *, const int *ranks, uint32_t n, double seconds, MeasuredLink *);

/* Raise *most to what a device that runs a rank has beside its map, or others have of it; nothing of a processor. */
Status beside_map(Arena *, const Machine *, const Program *, int64_t *most);

/* The reason is printed where times of `what` differ too much to mean anything. */
Status spread_judge(const char *what, Spread);
/* Says that the machine is too busy, and why; ERR_DEVICE. */
Status measure_refuse(const char *why);

#endif
