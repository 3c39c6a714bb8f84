#ifndef PLANNER_POLISH_H
#define PLANNER_POLISH_H
/* Polish: what is close to the best plan of a large space, and what estimates said too little of. */
#include "planner/looking.h"

/* At the end of a search in the order of estimates. */
void polish(Looking *);

#endif
