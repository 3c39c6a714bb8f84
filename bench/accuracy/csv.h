#ifndef ACCURACY_CSV_H
#define ACCURACY_CSV_H
/* Csv: a table of text cells under a line of column names.  Cells with commas are
 * quoted, a quote within them is doubled. */
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct CsvRow { char **cell; uint32_t ncell, line; } CsvRow;   /* line: in the file, from 1 */

typedef struct Csv {
    const char *path;
    CsvRow      head;
    CsvRow     *row; uint32_t nrow;
} Csv;

/* ERR_IO or ERR_REJECT, the reason printed.  Rows may have too few or too many cells. */
Status csv_read(Arena *, const char *path, Csv *out);
/* The cell of a row under a name; "" where the table or the row has none. */
const char *csv_cell(const Csv *, const CsvRow *, const char *column);
/* ERR_REJECT, naming what is missing, unless the table has all these columns. */
Status csv_needs(const Csv *, const char *const *column, uint32_t ncolumn);

#endif
