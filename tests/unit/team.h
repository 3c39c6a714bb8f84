#ifndef TESTS_UNIT_TEAM_H
#define TESTS_UNIT_TEAM_H
/* Group fixtures: the tests of a program share one team of workers, their state. */
#include "kernels/team.h"

static inline int team_of(void **state, int workers)
{
    *state = team_new(workers);
    return *state ? 0 : -1;
}

static inline int team_of_one(void **state) { return team_of(state, 1); }
static inline int team_of_two(void **state) { return team_of(state, 2); }

static inline int team_ends(void **state)
{
    team_free(*state);
    return 0;
}

#endif
