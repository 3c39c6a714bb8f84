#ifndef RUNTIME_JSON_H
#define RUNTIME_JSON_H
/* JSON: what comes of a block that there is no memory for.  The library (jansson) leaves things
 * out without a word, even keys of a text that it prints.
 *
 * Who reads could not tell the text from a damaged one, and has nothing to lose: the program
 * ends, as when an arena cannot grow.  Who writes has half a checkpoint to remove: it goes on,
 * and asks at the end.  Each holds for the process until the next of them. */
#include <jansson.h>

#include "base/status.h"

void   json_begin_reading(void);
void   json_begin_writing(void);
/* Whether all that was made since is whole; else ERR_NOMEM, said. */
Status json_written(const char *what);

#endif
