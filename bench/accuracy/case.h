#ifndef ACCURACY_CASE_H
#define ACCURACY_CASE_H
/* Case: a row, lowered: the programs that `pplan estimate` would make for it, and what is
 * predicted from them under the constants its cluster and profile have now. */
#include "bench/accuracy/rows.h"
#include "cli/load.h"
#include "codegen/simulate.h"

typedef struct Case {
    const Row *row;
    Loaded     loaded;
    Plan      *plan;
    Programs   programs;
    int64_t    memory;                /* bytes of its device, which lowering did not judge by */
} Case;

typedef struct Prediction {
    double  seconds;                  /* of a step */
    int64_t bytes;                    /* of the fullest rank, the device's reserve included */
    int64_t measured;                 /* what the row's source would have measured: of which rank and what, its runtime says */
    bool    fits;
} Prediction;

/* Lower a row; on failure *why is the first line of the message. */
Status     case_new(Arena *, const Row *, const char *models, Case *out, const char **why);
void       case_free(Case *);
Prediction case_predict(const Case *, Simulation *sim, Arena *scratch);
/* Bytes as the row's source would have measured them. */
int64_t    case_measured_bytes(const Case *);
/* Seconds alone. */
double     case_seconds(const Case *, Arena *scratch);

#endif
