#ifndef IR_QUANTITY_H
#define IR_QUANTITY_H
/* Quantities as the language writes them: "80 GB", "2 GiB", "1.9 us". */
#include <stdio.h>

typedef enum QuantityKind {
    QUANTITY_BYTES, QUANTITY_BYTES_PER_S, QUANTITY_FLOP, QUANTITY_FLOP_PER_S, QUANTITY_SECONDS
} QuantityKind;

/* The shortest text that the frontend reads as exactly this number. */
void quantity_put(FILE *, double, QuantityKind);
/* The shortest number without a unit that reads back, as "0.85" or "1e-05". */
void real_print(FILE *, double);

#endif
