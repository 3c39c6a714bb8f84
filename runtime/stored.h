#ifndef RUNTIME_STORED_H
#define RUNTIME_STORED_H
/* Stored tensors: global tensors as checkpoints and dumps hold them, and what a rank
 * has of them.
 *
 * A file is the same under every layout: whole tensors, without padding, in the natural
 * order of their names (h[2] before h[10]).  A rank has a *part* of a tensor, the same
 * part as others, or none; each tells all others what it has, so all ranks know one
 * list.  Of equal parts that of the lowest rank is written. */
#include "runtime/safetensors.h"

/* Elements first..end of a local tensor, in this rank's memory. */
typedef struct Part {
    TensorId tensor;                  /* says where they lie in the global tensor; NO_TENSOR: the rank has none */
    int64_t  first, end;
    char    *data;                    /* of element `first` in micro-batch 0: in the rank's memory or, */
    bool     copied;                  /* a copy of a value, in the host's */
    int64_t  stride;                  /* bytes from there to the next micro-batch, */
    uint32_t micros;                  /* and how many there are */
    bool     writes;                  /* no lower rank has the same */
} Part;

typedef struct Stored {
    STensor shape;                    /* of the global tensor; without data */
    int     batch;                    /* its axis that micro-batches cut; -1: none */
    Part    part;
} Stored;

typedef struct StoredList { Stored *tensor; uint32_t n; } StoredList;

struct Rank;

/* A tensor under a name, all of it in one place or in one place per micro-batch. */
Stored stored_whole(const struct Rank *, TensorId, const char *name, char *data, int64_t stride);
/* Those of its elements that lie in first..end, the tensor's own beginning at `at`; false: none. */
bool   stored_cut(Stored *, int64_t at, int64_t first, int64_t end);

/* The lists of all ranks as one.  Called by all ranks at once. */
Status stored_share(const struct Rank *, Arena *, const StoredList *mine, StoredList *all);

/* Go over what is contiguous both in a part and in its global tensor, to read or to write it all: bytes
 * at..at+bytes of that are those at `data`, where the host has them. */
typedef enum StoredUse { STORED_READ, STORED_WRITE } StoredUse;
typedef void (*StoredFn)(void *ctx, char *data, int64_t at, int64_t bytes);
Status stored_walk(const struct Rank *, const Stored *, StoredUse, StoredFn, void *ctx);

/* ---- stored_file.c ---- */

/* What a file can be known by. */
typedef struct SFileSum { uint64_t bytes, xxh3; } SFileSum;

/* Write a file together, or none: every rank its parts.  Called by all ranks at once, and
 * it comes to the same for all.  The sum is known to the rank that reports.  The arena is for scratch. */
Status stored_write(Arena *, const struct Rank *, const char *path, const StoredList *, SFileSum *);
/* Copy what this rank has of the tensors from a file that holds them all, rounded where it
 * has them in another type. */
Status stored_read(Arena *, const struct Rank *, const char *path, const StoredList *);

#endif
