#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H
/* Program: what the main() of pplan and of prun have in common. */
#include "cli/options.h"

/* Read the command line, then print the help or the version, or do the command.
 * The exit status: 3 also when standard output could not be written; where nobody reads it any more, SIGPIPE. */
int    program_main(ProgramName, int argc, char **argv, Status (*command)(const Args *), void (*version)(void));
/* ERR_IO, with errno's reason printed. */
Status cannot_write(const char *path);

#endif
