/* Status: texts and exit statuses. */
#include "base/status.h"

#include <errno.h>
#include <stdbool.h>

int status_exit(Status s)
{
    static const int exits[] = {
#define X(name, exit_status, text) exit_status,
        STATUS_LIST(X)
#undef X
    };
    return exits[s];
}

Status status_unopened(int reason)
{
    bool machine = reason == EIO || reason == EMFILE || reason == ENFILE || reason == ENOMEM;
    return machine ? ERR_IO : ERR_REJECT;
}

const char *status_text(Status s)
{
    static const char *const texts[] = {
#define X(name, exit_status, text) text,
        STATUS_LIST(X)
#undef X
    };
    return texts[s];
}
