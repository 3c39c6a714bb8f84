/* Program: from argv to the exit status. */
#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

Status cannot_write(const char *path)
{
    fprintf(stderr, "error: cannot write '%s': %s\n", path, strerror(errno));
    return ERR_IO;
}

/* Who reads a pipe may have seen enough of it, `head` say: the program ends as others do then. */
static void leave_if_unread(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 1 && out.revents & POLLERR) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
}

/* A standard stream that was closed would become the next file that is opened, and have messages in it: what is
 * written to it, or read from it, shall fail instead. */
static void hold_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return;
}

int program_main(ProgramName p, int argc, char **argv, Status (*command)(const Args *), void (*version)(void))
{
    Arena *a = arena_new("arguments");
    Args args;
    hold_closed_streams();
    signal(SIGPIPE, SIG_IGN);            /* a closed pipe is a failed write: what is under way ends in order; */
    signal(SIGXFSZ, SIG_IGN);            /* so is a file too large */
    Status s = args_read(a, p, argc, argv, &args);
    if (s == OK && args.help)
        args_help(p, stdout);
    else if (s == OK && args.version)
        version();
    else if (s == OK)
        s = command(&args);
    if (s == OK && (fflush(stdout) != 0 || ferror(stdout))) {
        leave_if_unread();
        s = cannot_write("standard output");
    }
    arena_free(a);
    return status_exit(s);
}
