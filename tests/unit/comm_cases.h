#ifndef TESTS_UNIT_COMM_CASES_H
#define TESTS_UNIT_COMM_CASES_H
/* What ranks say to each other in the tests of communication, whatever carries it: every
 * collective and message, bit for bit against a plain loop over the members. */
#include "tests/unit/ranks.h"

/* The world that the cases need; the huge ones have larger parts. */
enum { COMM_PART = 1 << 20, COMM_HUGE_PART = 100 << 20, COMM_GROUPS = 5 };

/* All types, sizes, in place and not. */
int comm_everything(Ranks *, Arena *, Endpoint *);
/* Messages that teams share, written around the caches where that is worth it. */
int comm_huge_ones(Ranks *, Arena *, Endpoint *);
/* Groups overlap; all ranks draw the same steps and leave out those of others' groups. */
int comm_at_random(Ranks *, Arena *, Endpoint *);
/* More letters than a channel holds, short ones and long ones, received late and in order. */
int comm_many_letters(Ranks *, Arena *, Endpoint *);
/* Each rank sends all its peers a message before it receives any. */
int comm_all_send_first(Ranks *, Arena *, Endpoint *);

#endif
