#ifndef TESTS_FUZZ_FORMS_H
#define TESTS_FUZZ_FORMS_H
/* Text forms in memory, and whether they read back; files of one run. */
#include "frontend/frontend.h"
#include "ir/program.h"

/* What the printers write, in the arena. */
const char *graph_form(Arena *, const Graph *);
const char *program_form(Arena *, const Program *);
const char *cluster_form(Arena *, const Cluster *);
const char *profile_form(Arena *, const Profile *);
const char *plan_form(Arena *, const Plan *, const Graph *);

/* Print, read, print again: what is wrong, or NULL. */
const char *check_graph_form(Arena *, const Graph *);
const char *check_program_form(Arena *, const Program *);

/* Parse a mutant; `check` what is right so far, in an arena for what comes of it. */
const char *read_mutant(const char *text, size_t bytes, IncludePath, const char *(*check)(Arena *, Diags *, const Units *));

/* A folder below $TMP or /tmp for the files of one run; aborts when there is none. */
const char *scratch_open(Arena *);
void        scratch_write(const char *path, const void *bytes, size_t n);
void        scratch_close(const char *folder);

#endif
