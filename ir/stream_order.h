#ifndef IR_STREAM_ORDER_H
#define IR_STREAM_ORDER_H
/* Stream order: which waits a program lacks.
 *
 * Two instructions that use the same bytes of the map, one of them writing, must follow
 * each other as they do in the order of the calls; that they are of different micro-batches
 * or name different buffers changes nothing.  The calls of a step, and of an evaluation, are
 * followed with a vector clock: what is known to be done, stream by stream, when an
 * instruction begins.  A step or an evaluation begins when all streams are through.
 *
 * codegen asks this of a program without waits, the checker of one that has them. */
#include "ir/program.h"

/* Instruction wait.instr uses bytes of `tensor`, which wait.on may still be using. */
typedef struct MissingWait {
    Wait     wait;
    TensorId tensor;                  /* of wait.instr */
    bool     writes, on_writes;
} MissingWait;

typedef struct StreamOrder {
    MissingWait *missing; uint32_t nmissing;
    bool     too_long;               /* calls that no program has: not followed */
} StreamOrder;

StreamOrder stream_order(const Program *, Arena *);

#endif
