#ifndef PLANNER_INTRA_VALUES_H
#define PLANNER_INTRA_VALUES_H
/* Private to intra: what one choice at one step does to each of the values that it reads,
 * forward and backward, and what that costs. */
#include "planner/intra_step.h"

/* Of an op that is not cut: its gradient may lie anywhere but as summands, which it would
 * pass on. */
enum { CODE_COMPLETE = 0xFE };

typedef struct Moving {
    Solver     *s;
    const Step *step;
    const Op   *op;
    Move       *m;
    bool        first_rounds;         /* the part is a repeat */
    bool        later;                /* followed is a round after the first */
    bool        extra;                /* the first round is followed after the others: what differs is its own */
} Moving;

uint8_t code_of(Solver *s, Placement p);
uint8_t needs_of(Solver *s, Needs n);
void add_need(Solver *s, Needs *n, uint8_t code);
Rec no_record(void);
void spend(Moving *mv, const Slot *slot, int64_t forward, int64_t backward, int64_t link);
const Slot *slot_in(const Moving *mv, uint32_t i);
void place_arguments(Moving *mv, bool later);
void read_forward(Moving *mv, OpId o, int a, bool backward);
bool is_slot(const Moving *mv, ValueId v);
void place_given(Moving *mv, OpId o);
void count_weights(Moving *mv);
bool is_gradient_of(const Solver *s, const Op *op, ValueId v);
void bring(Moving *mv, const Slot *slot, ValueId d, uint8_t to);
bool finish(Moving *mv, uint32_t i, Needs *of_result);
bool take_gifts(Moving *mv);

#endif
