#ifndef TESTS_UNIT_INSTANCES_H
#define TESTS_UNIT_INSTANCES_H
/* Instances of the search: small random models and machines of which every layout that rules can say is
 * estimated by itself. */
#include "tests/unit/planning.h"

#include "tests/unit/random_model.h"

enum { MOST_PIECES = 12, MOST_WAYS = 7, ROOM = 4000 };

/* What an instance leaves open, beside the sizes of the mesh; what it does not is given by a rule. */
typedef enum Open { OPEN_micro, OPEN_schedule, OPEN_cuts, OPEN_again, OPEN_splits, OPEN_pp, OPENS } Open;

/* What rounds are: of a residual perceptron; of attention over tokens, with a table of its own for the head or
 * the same one; first of the one, then of the other. */
typedef enum Kind { PERCEPTRON, ATTENTION, BOTH, KINDS } Kind;

typedef struct TestPiece { const char *path; bool round; } TestPiece;

/* `first`, rounds `h` (and `g`), `head` and the loss. */
typedef struct Instance {
    Case        c;
    Draw        draw;
    Kind        kind;
    int64_t     batch, rounds, more, hidden, ffn, class, devices, nodes, memory;     /* more: rounds of g */
    int64_t     seq, heads, kv_heads;
    bool        cuda, courier, adamw, tied, open[OPENS];
    TestPiece   piece[MOST_PIECES]; uint32_t npiece;
    const char *given;                /* its rules */
    /* what enumeration has found */
    uint64_t    most, plans, fit;     /* it stops at `most` */
    int64_t     best;                 /* ns */
    int64_t     leanest;              /* bytes that the layout needs that needs the least, fits or not */
    uint64_t    configs, tight;       /* configurations of which some layout fits; those whose bound is within 10 % of the best */
    bool        by_config;            /* each of them is held to its bound */
} Instance;

void   instance_draw(Instance *, uint64_t seed);
/* Rounds that need most of the memory, for weights and for what they keep. */
void   instance_draw_deep(Instance *, uint64_t seed);
/* Plan it under rules. */
Status instance_ask(Instance *, PlanUse, const char *rules, SearchLimits, Search *found);
/* Bytes of the device that would do for what was planned last. */
int64_t instance_needs(const Instance *);
/* Estimate all layouts: best, plans, fit, and what bounds are held to. */
void   instance_enumerate(Instance *);

#endif
