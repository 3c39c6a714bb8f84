#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H
/* What `--device` says: who executes a plan. */
#include "cli/options.h"
#include "ir/cluster.h"
#include "runtime/executor.h"

/* The executor for a plan that was made for `device`; `note`: say so where it is another kind of device. */
Status device_choose(Arena *, const Args *, const Device *device, bool note, const Executor **out);
/* The one that `asked` names, which is not 'auto'.  Where there is no such device, ERR_DEVICE, said in a line. */
Status device_named(Arena *, const char *asked, const Executor **out);
/* A line for each executor that this prun has. */
void   device_print_all(void);

#endif
