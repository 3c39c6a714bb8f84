/* Program: from argv to the exit status. */
#include "cli/program.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

Status cannot_write(const char *path)
{
    fprintf(stderr, "error: cannot write '%s': %s\n", path, strerror(errno));
    return ERR_IO;
}

int program_main(ProgramName p, int argc, char **argv, Status (*command)(const Args *), void (*version)(void))
{
    Arena *a = arena_new("arguments");
    Args args;
    signal(SIGPIPE, SIG_IGN);            /* a closed pipe is a failed write, with its message; */
    signal(SIGXFSZ, SIG_IGN);            /* so is a file too large */
    Status s = args_read(a, p, argc, argv, &args);
    if (s == OK && args.help)
        args_help(p, stdout);
    else if (s == OK && args.version)
        version();
    else if (s == OK)
        s = command(&args);
    if (s == OK && (fflush(stdout) != 0 || ferror(stdout)))
        s = cannot_write("standard output");
    arena_free(a);
    return status_exit(s);
}
