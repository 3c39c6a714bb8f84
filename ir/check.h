#ifndef IR_CHECK_H
#define IR_CHECK_H
/* How checkers report: each broken invariant is a line, and they are counted. */
#include "ir/graph.h"

typedef struct Checker {
    FILE       *err;
    const char *what;                 /* "graph", "program", ... */
    int         broken;
} Checker;

/* One broken invariant: "graph: " and the message. */
void broken(Checker *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The invariants of one op; what graph_check() checks for each. */
int graph_check_op(const Graph *, OpId, FILE *err);

/* Whether a set of names has duplicates; the first one found, or NULL. */
const char *duplicate_name(const char *const *name, uint32_t n);

#endif
