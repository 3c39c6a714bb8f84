#ifndef IR_RECORD_H
#define IR_RECORD_H
/* Records: the lines of a dump.  A line is a tag and key=value fields; a value is
 * a number or word, a "string" (with \" \\ \n), or a [list].  Line 1 is the kind
 * of dump and its version.  '#' at the start of a line makes it a comment. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"
#include "ir/graph.h"

/* ---- writing ---- */

void record_put_string(FILE *, const char *key, const char *value);
/* The shortest text that reads back to the same number. */
void record_put_real(FILE *, const char *key, double value);
void put_real(FILE *, double value);
/* An index, or '-' for none. */
void put_index(FILE *, uint32_t i);

/* ---- reading ---- */

enum { RECORD_FIELDS = 40 };

typedef struct Field { const char *key; char *value; bool string, used; } Field;

/* The first mistake is printed ("name:line: error: ..."); after it every call
 * answers with its `lo`, an empty string or an empty list, so callers check once. */
typedef struct Records {
    Arena      *arena;
    const char *name;                 /* of the file, for messages */
    FILE       *err;
    char       *next;                 /* text not read yet */
    char       *end;
    uint32_t    line;                 /* 1-based, of the record */
    bool        failed;
    const char *tag;
    Field       field[RECORD_FIELDS];
    uint32_t    nfield;
} Records;

/* Take in the whole stream and check line 1: "KIND VERSION". */
Status records_open(Records *, Arena *, FILE *in, const char *name, FILE *err, const char *kind, int version);
/* Go to the next record; false at the end or after a mistake.  Complains about
 * fields of the record before that nobody asked for. */
bool   record_next(Records *);
void   record_fail(Records *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *record_string(Records *, const char *key);
/* A string that may be left out: NULL then. */
const char *record_maybe_string(Records *, const char *key);
bool        record_has(const Records *, const char *key);
int64_t     record_int(Records *, const char *key, int64_t lo, int64_t hi);
double      record_real(Records *, const char *key);
bool        record_bool(Records *, const char *key);
/* An index below `n`, or UINT32_MAX for '-'. */
uint32_t    record_index(Records *, const char *key, uint32_t n);
/* A word: its number among `n` names given by name_of(i). */
unsigned    record_word(Records *, const char *key, unsigned n, const char *(*name_of)(unsigned));
/* A list of at most `max` items, as texts; nested lists stay whole. */
int         record_list(Records *, const char *key, char **item, int max);
/* The same for the text of an item. */
int         record_items(Records *, const char *key, char *text, char **item, int max);
/* An item as a number or index. */
int64_t     record_item_int(Records *, const char *key, const char *item, int64_t lo, int64_t hi);
uint32_t    record_item_index(Records *, const char *key, const char *item, uint32_t n);

/* ---- what both dumps have ---- */

void record_put_precision(FILE *, const Precision *);
void record_put_optimizer(FILE *, const Optimizer *);
void record_put_init(FILE *, const Init *);
void record_put_attrs(FILE *, OpKind, const Attr *);
void record_put_factors(FILE *, const char *key, int n, const uint8_t (*factor)[MAX_RANK]);
void record_get_precision(Records *, Precision *);
void record_get_optimizer(Records *, Optimizer *);
void record_get_init(Records *, Init *);
void record_get_attrs(Records *, OpKind, Attr *);
void record_get_factors(Records *, const char *key, int n, int nfactor, uint8_t (*factor)[MAX_RANK]);
const char *dtype_name_at(unsigned);
const char *op_name_at(unsigned);
const char *value_role_name(unsigned);

enum { VALUE_ROLES = ROLE_STEP + 1 };

#endif
