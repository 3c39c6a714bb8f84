#ifndef RUNTIME_GUARD_H
#define RUNTIME_GUARD_H
/* Guard: in sanitizer builds, every buffer is poisoned outside its lifetime and
 * padded bytes are red zones; a buffer starts its life filled with NaN.  In other
 * builds these functions are empty. */
#include "runtime/runtime.h"

void guard_open(const Rank *);                        /* poison all but what is always live */
/* Whether a lifetime in memory that several threads use begins or ends with an instruction: it must follow
 * all that the program has before it, as lifetimes are those of the program's order. */
bool guard_orders(const Rank *, uint32_t instr);
void guard_before(const Rank *, uint32_t instr, const Call *);
void guard_after(const Rank *, uint32_t instr, const Call *);
void guard_close(const Rank *);

#endif
