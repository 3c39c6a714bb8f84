#ifndef IR_BYTEMAP_H
#define IR_BYTEMAP_H
/* Byte map: who holds which bytes of a memory map, for the verifier.
 *
 * All ranges that will be asked about are given first.  Their ends cut the map
 * into cells, and a tree over the cells keeps the holder where a whole subtree has
 * one: taking a range and looking at it cost a logarithm, however many ranges
 * share its bytes. */
#include "base/arena.h"

typedef struct ByteRange { int64_t from, to; } ByteRange;
typedef struct CellRange { uint32_t from, to; } CellRange;   /* of one ByteRange, in its place */

enum { NOBODY = 0 };                  /* the holder of every byte at first */

typedef struct ByteMap {
    CellRange *range;                 /* per range given */
    uint32_t  *node, ncell;           /* node 1 is the root, 2n and 2n + 1 the halves of n; ncell is a power of two */
} ByteMap;

ByteMap  bytemap_new(Arena *, const ByteRange *, uint32_t n);
/* All bytes of range `r` now have the holder `who`. */
void     bytemap_take(ByteMap *, uint32_t r, uint32_t who);
/* A holder of bytes of range `r` that is not `who`; `who` itself when it holds all. */
uint32_t bytemap_other(const ByteMap *, uint32_t r, uint32_t who);

#endif
