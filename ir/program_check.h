#ifndef IR_PROGRAM_CHECK_H
#define IR_PROGRAM_CHECK_H
/* Private to the verifier's two halves. */
#include "ir/check.h"
#include "ir/program.h"

/* Whether buffers have places yet. */
bool program_is_mapped(const Program *);
/* Whether two buffers share bytes of the map. */
bool buffers_meet(const Buffer *, const Buffer *);
/* Follow the calls of a step, and an evaluation, keeping for every byte whether
 * what was written there is still there. */
void program_replay(const Program *, Checker *);

#endif
