#ifndef TESTS_FUZZ_MUTATE_H
#define TESTS_FUZZ_MUTATE_H
/* A seeded mutator for text formats, and the loop that runs it.
 *
 * Round r of seed s is the same text on every machine: one of the given files
 * with a few edits of bytes and tokens.  A reader survives a round when its
 * callback returns NULL; a crash, a sanitizer's report, a case that computes or
 * waits too long or a message ends the run with the seed and round that repeat
 * it.  Leaks are found when the program ends. */
#include <stddef.h>
#include <stdint.h>

enum {
    CASE_SECONDS = 30,                /* of computing: a thousand layers take five here */
    WAIT_SECONDS = 120,               /* of the clock, on a machine that may be busy */
    MUTANT_BYTES = 1 << 16
};

/* One case: `text` ends with a NUL behind its bytes.  Returns what is wrong, or NULL. */
typedef const char *FuzzCase(const char *text, size_t bytes);

typedef struct FuzzText {
    const char *s;
    size_t      n;
} FuzzText;

typedef struct FuzzSeeds {
    FuzzText *file;                   /* malloc'ed, each at most MUTANT_BYTES */
    size_t    n;
} FuzzSeeds;
/* Add a seed; what exceeds MUTANT_BYTES is cut. */
void fuzz_seed(FuzzSeeds *, const void *bytes, size_t n);

/* Count this case as one whose text was accepted. */
void fuzz_accept(void);

typedef struct Fuzz {
    FuzzCase          *run;
    const char *const *word;          /* tokens of the format, spliced in; NULL-terminated */
    const char *const *files;         /* glob patterns of seed files; NULL-terminated */
    void             (*start)(FuzzSeeds *);          /* before the first round: make what cases need, and seeds; or NULL */
    void             (*end)(void);                   /* after the last; or NULL */
} Fuzz;

/* PROGRAM [-t SECONDS | -c SECONDS] [-s SEED] [-r ROUND] [FILE..]: run rounds for
 * SECONDS (-t: of the clock, default 15; -c: of computing, and then no case waits
 * too long, so that the program may be stopped), or only ROUND, whose text is then written to standard output and
 * its messages to stderr; files replace the patterns.  Returns the exit status: 0
 * when every round passed. */
int fuzz_main(int argc, char **argv, const Fuzz *);

/* Make the mutant of this round in `out` (MUTANT_BYTES + 1); returns its bytes. */
size_t mutate(uint64_t seed, uint64_t round, const FuzzText *file, size_t nfile, const char *const *word, char *out);

#endif
