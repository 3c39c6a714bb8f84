#ifndef PLANNER_PIECES_H
#define PLANNER_PIECES_H
/* Pieces: what stages are made of.  A stage is a run of pieces; a cut lies before one.  A piece
 * is a round of a repeat, a block, or an op outside of both; what depends on weights alone is
 * executed where it is used, so it belongs to the piece after it. */
#include "planner/chain.h"

typedef struct Piece {
    OpId        first; uint32_t nop;  /* ops of the graph, of which the forward ones count */
    uint32_t    part;                 /* of the chain */
    bool        round;                /* it is one of a repeat: it can be recomputed by a rule */
    const char *path;                 /* that a rule names it by */
} Piece;

typedef struct Pieces { Piece *piece; uint32_t n; } Pieces;

Pieces pieces_read(Arena *, const Chain *);

#endif
