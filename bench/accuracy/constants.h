#ifndef ACCURACY_CONSTANTS_H
#define ACCURACY_CONSTANTS_H
/* Constants: what is fitted, by name: figures of devices, of levels of clusters, of profiles.  Each has a
 * physical range, that of the table in constants.c. */
#include "bench/accuracy/case.h"

typedef enum Owner { OWNER_device, OWNER_level, OWNER_profile } Owner;

typedef struct Constant {
    uint32_t    key;                  /* row of the table */
    const char *of;                   /* name of the device, the cluster or the profile */
    double      value;
} Constant;

typedef struct Constants { Constant *constant; uint32_t n; } Constants;

/* Those that the cases have, with the values they have there. */
Constants   constants_of(Arena *, Case *const *cases, uint32_t n);
/* Whether a case's time depends on a constant. */
bool        constant_concerns(const Constant *, const Case *);
void        constant_apply(const Constant *, Case *);
double      constant_least(const Constant *);
double      constant_most(const Constant *);
double      constant_start(const Constant *);        /* where every fit begins, whatever the files say */
const char *constant_name(Arena *, const Constant *);    /* "h100 depth", "aws_p5 pod.latency" */
/* Write the value into the bundled file below `models`, in place of the one that is there. */
Status      constant_write(Arena *, const Constant *, const char *models);

#endif
