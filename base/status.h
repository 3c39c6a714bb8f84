#ifndef BASE_STATUS_H
#define BASE_STATUS_H
/* Status: how the world's failures travel.  Whoever sees a failure first prints
 * it, with the path, the call and the system's reason; callers pass it on.
 * A user's mistake is a diagnostic (diag.h), our own a failed assert. */
#define STATUS_LIST(X)                                     \
    X(OK,         0, "ok")                                 \
    X(ERR_REJECT, 1, "the input was rejected")             \
    X(ERR_USAGE,  2, "the command line was wrong")         \
    X(ERR_IO,     3, "a file could not be read or written")\
    X(ERR_NOMEM,  3, "memory could not be had")            \
    X(ERR_DEVICE, 3, "a device call failed")               \
    X(ERR_COMM,   3, "a rank was lost")
typedef enum Status {
#define X(name, exit_status, text) name,
    STATUS_LIST(X)
#undef X
} Status;

int         status_exit(Status);      /* the process's exit status */
/* What it means that a file or folder the user named could not be opened, by errno: a
 * mistake in the input (it is not there, it is a folder, it may not be read), unless the
 * machine ran out of something or a device failed. */
Status      status_unopened(int reason);
const char *status_text(Status);

/* Pass a failure up; the callee has already said what happened. */
#define TRY(call)                  \
    do {                           \
        Status try_ = (call);      \
        if (try_ != OK)            \
            return try_;           \
    } while (0)

/* The same where resources are held: jump to the one clean-up label. */
#define TRY_OR(status, call, label)      \
    do {                                 \
        (status) = (call);               \
        if ((status) != OK)              \
            goto label;                  \
    } while (0)

#endif
