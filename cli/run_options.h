#ifndef CLI_RUN_OPTIONS_H
#define CLI_RUN_OPTIONS_H
/* Run options: from prun's command line to what runtime/ is asked to do. */
#include "cli/options.h"
#include "runtime/runtime.h"

/* The texts stay argv's; dumps and lists go to the arena. */
Status run_options_read(Arena *, const Args *, RunOptions *out);

#endif
