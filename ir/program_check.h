#ifndef IR_PROGRAM_CHECK_H
#define IR_PROGRAM_CHECK_H
/* Private to the verifier's two halves. */
#include "ir/bytemap.h"
#include "ir/check.h"
#include "ir/program.h"

/* Whether buffers have places yet. */
bool program_is_mapped(const Program *);
/* Where a buffer lies when the shared part of the map follows the private one. */
int64_t map_address(const Program *, const Buffer *);
/* By buffer: where it lies, or, as long as there is no map, one after the other.  False:
 * that is more than 64 bits count. */
bool program_addresses(const Program *, int64_t *address);
/* Follow the calls of a step, and an evaluation, keeping for every byte whether
 * what was written there is still there. */
void program_replay(const Program *, Checker *);

#endif
