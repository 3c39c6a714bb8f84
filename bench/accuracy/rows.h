#ifndef ACCURACY_ROWS_H
#define ACCURACY_ROWS_H
/* Rows: measured training runs, with how each was laid out, and why some cannot be predicted. */
#include <stdbool.h>

#include "bench/accuracy/csv.h"

/* How rows of a source are executed: a line of runtimes.csv. */
typedef struct Runtime {
    const char *source, *gpu;         /* what a row's columns of these names begin with */
    const char *profile, *cluster;    /* names of bundled files */
    enum { SUMS_f32, SUMS_half, SUMS_as_f16 } sums;              /* gradients are summed in f32, in the type that is computed in, or so in f16 alone */
    bool        of_allocator;         /* memory figures are what the allocator handed out; else of the device, its reserve included */
    enum { RANK_fullest, RANK_first, RANK_last } of_rank;        /* whose they are, by its stage */
    int64_t     per_node;             /* GPUs for one of the cluster's `nodes` */
    bool        by_cost;              /* stages are cut by the cost of layers and head, not by the number of layers */
    int64_t     bucket_mb;            /* gradients that are summed together, at least */
    int64_t     bucket_each_mb;       /* and for each of the ranks that sum them: Megatron-Core's buckets grow with these */
    int64_t     bucket_sharded_mb;    /* in place of bucket_mb where the optimizer is sharded */
    int64_t     quantum;              /* the vocabulary is padded to a multiple of this times tp */
} Runtime;

typedef struct Row {
    const char *id, *source, *model, *gpu, *precision, *zero, *recompute, *attention, *flags;
    uint32_t    line;                 /* in its file */
    char        quality;              /* 'A', 'B', 'C', 'M' of quality.csv; 0: it does not know the row, whose memory alone is used */
    int64_t     layers, hidden, ffn, heads, kv_heads, vocab, seq, experts;
    int64_t     gpus, dp, tp, pp, vpp, cp, ep, micro, batch;     /* micro: sequences of a micro-batch; batch: of a step */
    bool        sequence_parallel;
    double      seconds, peak_gib, allocated_gib;                /* measured; 0: not */
    double      params_b;             /* 10^9 parameters by the source's own count; 0: not said */
    const Runtime *runtime;           /* NULL: none known */
    const char *refused;              /* why it cannot be predicted; NULL: it can */
} Row;

typedef struct Rows {
    Arena   *arena;
    const char *path;
    Row     *row; uint32_t nrow;
    Runtime *runtime; uint32_t nruntime;
    bool     has_quality;             /* a quality.csv lies beside the file and knows its rows */
} Rows;

/* Of class A, or of none. */
bool   row_is_used(const Row *);

/* Read a table, quality.csv beside it where there is one, and runtimes.csv.  The reason
 * is printed when this fails; rows that are wrong are refused one by one. */
Status rows_read(Arena *, const char *path, const char *runtimes, Rows *out);

#endif
