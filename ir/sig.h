#ifndef IR_SIG_H
#define IR_SIG_H
/* The reader of signatures (ops.def explains the notation). */
#include <stddef.h>

#include "ir/ops.h"

/* Where the names of signatures are kept: `text` has room for `cap` bytes. */
typedef struct SigPool { char *text; size_t n, cap; } SigPool;

/* Read a signature and the further results that are saved for backward (""  for
 * none).  NULL when both are well formed, else what was expected. */
const char *sig_read(const char *signature, const char *saves, SigPool *, OpSig *);
/* Read one tensor pattern with its name, as "mask[.., t!]", into `out`, keeping
 * its kind and default.  The same answer as sig_read(). */
const char *sig_read_tensor(const char *text, SigPool *, SigFormal *out);

#endif
