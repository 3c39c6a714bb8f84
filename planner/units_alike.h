#ifndef PLANNER_UNITS_ALIKE_H
#define PLANNER_UNITS_ALIKE_H
/* Units that are alike.  The key of a unit has strides in device numbers, but times follow from how
 * ranks lie in the levels of the machine: a pair in one node takes as long as any other such pair. */
#include "planner/units.h"

/* Where the ranks of a unit lie, for Unit.lies.  A machine with devices of several kinds is not looked at, nor
 * a plan with rules, which may say one thing on one mesh and another on the next. */
uint32_t   *units_lies(const UnitTable *, const UnitKey *, const Mesh *, uint32_t stage);
/* Take over the least times of a unit that has the same; false: there is none. */
bool        units_take_least(const UnitTable *, Unit *);
/* The same for options, which the goal has a say in. */
bool        units_take_options(const UnitTable *, Unit *);

/* What the options of a unit that is alike are judged by; NULL: nothing yet. */
const Goal *units_goal(const UnitTable *, const Unit *);

#endif
