#ifndef CLI_CALIBRATE_H
#define CLI_CALIBRATE_H
/* `prun calibrate`. */
#include "cli/options.h"

/* Measure this machine and write a .pcluster.  `version`: of prun. */
Status calibrate(const Args *, const char *version);

#endif
