#ifndef ACCURACY_FIT_H
#define ACCURACY_FIT_H
/* Fit: constants for which predictions of step times come nearest to what was measured. */
#include "bench/accuracy/constants.h"

/* Parts for cross-validation, and the most rounds of a fit, and of one without a part. */
enum { FOLDS = 3, ROUNDS = 10, CROSS_ROUNDS = 10 };

typedef struct Fit {
    Arena     *arena, *scratch, *scratch_fit;           /* of the fit, of a prediction, of a run of it */
    Case     **cases; uint32_t n;
    double    *seconds;               /* per case, under the constants as they are */
    bool      *in;                    /* per case: takes part in the fit */
    Constants  constants;
    double     tail;                  /* where a miss begins to count less than its size, for now */
    uint64_t   tried;                 /* predictions so far */
} Fit;

Fit    fit_new(Arena *, Case **cases, uint32_t n);
/* From the start of each range to where no step makes the cost of |ln(predicted / measured)| (fit.c) less. */
void   fit_run(Fit *, int rounds);
/* Seconds of a case under the constants as they are. */
double fit_predict(Fit *, uint32_t i);
/* Which of FOLDS parts a row is in, by its configuration: runs of the same one are in the same. */
uint32_t fit_fold(const Row *);

#endif
