#ifndef TESTS_UNIT_RANDOM_MODEL_H
#define TESTS_UNIT_RANDOM_MODEL_H
/* Random texts for tests: tiny models, machines for them, and rules that pin a layout or
 * parts of it.  The same seed gives the same text everywhere.
 *
 * Models are texts of their own, without includes.  They are small enough for layouts to be
 * executed or enumerated by the hundred: up to 12 samples, 6 rounds, 8 devices. */
#include <stdbool.h>

#include "base/arena.h"

/* ---- numbers ---- */

typedef struct Draw { uint64_t state; } Draw;

/* `purpose`: draws for different things from one seed know nothing of each other. */
Draw     draw_from(uint64_t seed, const char *purpose);
uint32_t draw_below(Draw *, uint32_t n);             /* 0 .. n - 1 */
bool     draw_one_in(Draw *, uint32_t n);
int64_t  draw_of(Draw *, const int64_t *list, uint32_t n);
#define DRAW_OF(d, ...) draw_of((d), (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* ---- models (random_model.c) ---- */

typedef enum RandomFamily { RANDOM_GPT, RANDOM_LLAMA, RANDOM_ENCODER, RANDOM_MLP, RANDOM_FAMILIES } RandomFamily;

/* The ops of round i have paths below `h[i]`; a round of two halves has an op `h[i].norm2` in
 * its second; after the last round comes `last`.  Axes have the names of the fields. */
typedef struct RandomModel {
    const char  *text;
    RandomFamily family;
    int64_t      batch, seq, vocab, hidden, ffn;     /* vocab: classes; seq 0: there is no such axis */
    int64_t      heads, kv_heads, width;             /* 0: no attention; width: of a head */
    int64_t      layers;                             /* rounds */
    bool         halves;                             /* a round has two: attention and what follows */
    bool         moments;                            /* its optimizer has them */
    int64_t      weights;                            /* elements, about */
} RandomModel;

/* dtype: what it computes in. */
RandomModel random_model(Arena *, uint64_t seed, const char *dtype);

/* ---- machines and rules (random_plan.c) ---- */

typedef struct RandomCluster { const char *text; int64_t devices; } RandomCluster;

/* Devices of a CPU, or GPUs in one or two levels; their memory may be too small for some
 * layouts of the model, or for all. */
RandomCluster random_cluster(Arena *, uint64_t seed, const RandomModel *);
/* So many devices of a CPU, with room for any of these models. */
const char   *random_cores(Arena *, int64_t devices);

/* Rules that pin some of what is open on so many devices, or nothing: "". */
const char   *random_pins(Arena *, uint64_t seed, const RandomModel *, int64_t devices);

/* Rules that leave nothing open but, at times, what tp splits. */
typedef struct RandomLayout {
    const char *rules;
    int64_t     pp, dp, cp, tp, microbatches;
} RandomLayout;
RandomLayout  random_layout(Arena *, uint64_t seed, const RandomModel *);

#endif
