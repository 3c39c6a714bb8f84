#ifndef RUNTIME_STEPS_H
#define RUNTIME_STEPS_H
/* Steps: what lies in a folder of checkpoints.  DIR/step-NNNNNNNN/ holds one; while it
 * is written it is called step-NNNNNNNN.tmp; DIR/latest names the one to resume;
 * DIR/lock is held by the run that saves. */
#include "runtime/runtime.h"

enum { FILE_WEIGHTS, FILE_MOMENTS, FILE_STATE, NFILES };   /* written in this order */
extern const char *const checkpoint_file[NFILES];

#define BEING_WRITTEN ".tmp"

/* Step of a checkpoint's folder name with that suffix; -1: no such name. */
int64_t steps_number(const char *name, const char *suffix);
const char *steps_folder(Arena *, const char *dir, int64_t step, const char *suffix);
/* Steps that have a folder in DIR, newest first. */
int64_t *steps_list(Arena *, const char *dir, const char *suffix, uint32_t *n);
/* Remove a checkpoint: its state first, so that what is left of it is incomplete. */
void steps_remove(Arena *, const char *folder);
/* Keep the newest `keep` up to `latest`.  Only for who holds the lock: what is half
 * written is a leftover then, and goes too. */
void steps_prune(Arena *, const char *dir, int64_t latest, int keep);

#endif
