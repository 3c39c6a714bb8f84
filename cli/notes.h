#ifndef CLI_NOTES_H
#define CLI_NOTES_H
#include "cli/load.h"

/* Say what the predicted times of a plan take for granted, where that is more than a machine does. */
void note_assumptions(Loaded *, const Plan *, const Programs *);

#endif
