#ifndef CODEGEN_VERIFY_H
#define CODEGEN_VERIFY_H
/* Private to the verifier of all ranks (verify_ranks() in codegen.h): what its parts
 * look at, and where they report. */
#include "codegen/pass.h"
#include "ir/check.h"

typedef struct RanksCheck {
    const Graph   *g;
    const Program *const *rank; uint32_t n;
    uint32_t       per_stage;         /* ranks of a stage */
    Layout         layout;
    Arena         *scratch;
    Checker        k;
} RanksCheck;

/* Things by path: sorted, several of one path next to each other. */
typedef struct Named { const char *path; uint32_t i; } Named;
typedef struct Names { Named *of; uint32_t n; } Names;

void     names_sort(Names *);
/* The first of that path (of `bytes` characters); n: there is none. */
uint32_t names_find(const Names *, const char *path, size_t bytes);

/* The calls of a step and of an evaluation, followed without numbers: collectives meet,
 * messages arrive, nobody waits for ever (verify_step.c). */
void verify_step(RanksCheck *);
/* Weights, their gradients and the norm (verify_weights.c). */
void verify_weights(RanksCheck *);

#endif
