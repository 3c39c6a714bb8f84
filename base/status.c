/* Status: texts and exit statuses. */
#include "base/status.h"

int status_exit(Status s)
{
    static const int exits[] = {
#define X(name, exit_status, text) exit_status,
        STATUS_LIST(X)
#undef X
    };
    return exits[s];
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
