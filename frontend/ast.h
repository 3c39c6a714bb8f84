#ifndef FRONTEND_AST_H
#define FRONTEND_AST_H
/* The syntax tree: one node type, its kinds listed in ast.def with what their
 * children are.  Made by parse.y, read by the elaborators and the formatter;
 * lives in the sources' arena.  Children are never NULL: what the user left out
 * is a node of kind NONE_NODE. */
#include "base/diag.h"
#include "base/text.h"

typedef enum NodeKind {
#define X(kind, children) N_##kind,
#include "frontend/ast.def"
#undef X
    NODE_KINDS
} NodeKind;

typedef enum BinaryOp { B_OR, B_AND, B_EQ, B_NE, B_LT, B_GT, B_LE, B_GE, B_ADD, B_SUB, B_MUL, B_DIV, B_MOD } BinaryOp;

/* What a quantity measures; bits are converted to bytes. */
typedef enum UnitKind { UNIT_NUMBER, UNIT_BYTES, UNIT_BYTES_PER_S, UNIT_FLOP, UNIT_FLOP_PER_S, UNIT_SECONDS, UNIT_FRACTION } UnitKind;

typedef struct Node Node;
struct Node {
    NodeKind    kind;
    Span        at;                   /* all of it */
    Span        op;                   /* binary nodes: the operator */
    const char *text;                 /* leaves */
    int64_t     ival;
    double      fval;
    uint32_t    nkid;
    uint32_t    height;               /* 1 for a leaf, at most HEIGHT_LIMIT: readers may recurse */
    Node      **kid;
};

/* Trees are never higher than this; what would be is reported. */
enum { HEIGHT_LIMIT = 1000 };

const char *node_kind_name(NodeKind);
/* The tree as one line of text, for tests and dumps: (ASSIGN (TARGETS x) (+ a 1)). */
void node_print(Text *, const Node *);
/* Whether two trees say the same; places are not compared. */
bool nodes_equal(const Node *, const Node *);
static inline bool node_absent(const Node *n) { return n->kind == N_NONE_NODE; }

/* One parsed file. */
typedef struct Unit {
    Source *source;
    Node   *root;                     /* N_FILE_ */
} Unit;

/* All files of a run: the one on the command line last, its includes before it,
 * each once. */
typedef struct Units {
    Unit    *unit;
    uint32_t nunit;
} Units;

/* Where includes are looked for after the including file's own folder. */
typedef struct IncludePath {
    const char *const *dir;
    uint32_t ndir;
} IncludePath;

/* Parse a file and everything it includes.  "-" is standard input.  Mistakes
 * go to ds and the status is still OK; the tree holds what could be read.  A file
 * that cannot be opened is a diagnostic when it was included and status_unopened(), with
 * the message printed, when it is `path` itself. */
Status parse_file(Diags *ds, const char *path, IncludePath, Units *out);
/* Read a file as a source without parsing it; "-" is standard input. */
Status read_source(Diags *ds, const char *path, IncludePath, Source **out);
/* The same as parse_file() for text already in memory, shown as `name`. */
Status parse_text(Diags *ds, const char *name, const char *text, size_t bytes, IncludePath, Units *out);

/* One expression, such as the value behind -D NAME=; `text` runs to the end of its
 * source.  NULL when it has mistakes; they are in ds. */
Node *parse_expression(Diags *, Span text);

/* The canonical form of a file: `pplan fmt`.  Comments are kept.  Formatting
 * the result again gives the same bytes, and it parses to the same tree.  NULL
 * when the text has mistakes; they are in ds. */
const char *format_source(Arena *, Diags *ds, const Source *);

#endif
