#ifndef ACCURACY_LAYOUT_H
#define ACCURACY_LAYOUT_H
/* Layout: a measured row as the command line of `pplan estimate` that predicts it. */
#include "bench/accuracy/rows.h"
#include "cli/options.h"

/* Where the models of rows are, and the clusters that are not bundled. */
Args layout_args(Arena *, const Row *, const char *models);
/* The same as a line to be typed. */
const char *layout_command(Arena *, const Args *);

#endif
