#ifndef FRONTEND_SYNTAX_H
#define FRONTEND_SYNTAX_H
/* What lexer, parser and formatter share; private to frontend/.
 *
 * The way of a token: the flex scanner (lex.l) cuts text into raw tokens,
 * the Lexer (lexer.c) decides which newlines count, which words are words here
 * and which brackets are open, the bison parser (parse.y) builds nodes. */
#include "frontend/ast.h"

/* Limits that keep every input, however strange, within the stack.  The parser
 * needs at most a handful of stack entries for one level of nesting. */
enum { NEST_LIMIT = 256, PARSER_STACK_LIMIT = 12000 };

typedef struct Token {
    int   kind;                       /* of yytoken_kind_t, or a character */
    Span  at;
    Node *value;                      /* leaf of names and literals, else NULL */
} Token;

/* A bracket that has not been closed yet: '(', '[' or '{'. */
typedef struct Open {
    char what;
    Span at;
} Open;

typedef struct Lexer {
    Diags        *ds;
    Arena        *arena;
    const Source *source;
    void         *scanner;            /* flex's state */
    uint32_t      pos;                /* the next byte to scan */
    int           errors;             /* reported before this text was read */
    int           first;              /* says what is to be read; handed out first */
    Open          open[NEST_LIMIT];
    uint32_t      nopen, nbrace;      /* nbrace of them are '{' */
    int           last;               /* the token handed out before */
    int           item;               /* first word of the item being read (AN_EXPR: there is none), or 0 */
    int           statement;          /* first token of the statement being read */
    Token         held;               /* scanned, but a newline goes out before it */
    bool          has_held;
    Span          newline;            /* a newline that counts, seen before `held` */
    bool          recovering;         /* from an error to the end of its statement */
    bool          in_bad_block;       /* the token that was wrong opened a block */
    bool          closing;            /* supplying the braces an item left open */
    bool          stopped;            /* nested too deeply, or too many errors: no more is read */
    bool          too_high;           /* reported that the tree would be too deep */
    Span         *comment;            /* in order; what the formatter puts back */
    uint32_t      ncomment;
} Lexer;

/* ---- lexer.c ---- */

/* Read `text`, which runs to the end of its source; `first` is A_FILE or AN_EXPR. */
void lexer_start(Lexer *, Diags *, const Source *, Span text, int first);
void lexer_end(Lexer *);
/* The next token with everything decided; after the end always the end. */
Token lexer_next(Lexer *);

/* For the scanner: */
void  lexer_newline(Lexer *, Span);
void  lexer_comment(Lexer *, Span);
Token lexer_word(Lexer *, Span, const char *text, int n);
/* Text that is no token: reports `msg`, unless the statement is spoiled already,
 * and returns the token that makes the parser skip the statement. */
int   lexer_bad(Lexer *, Span, const char *msg);

/* For the parser: the token handed out last cannot stand here, any of `want` could. */
void  lexer_unexpected(Lexer *, Span at, const char **want, int nwant, bool want_name);

/* ---- number.c: literals ---- */

Node *number_int(Lexer *, Span);
Node *number_real(Lexer *, Span);
/* A number, blanks and a unit; a word that is no unit is reported. */
Node *number_quantity(Lexer *, Span);

/* ---- ast.c: building ---- */

Node *node_leaf(Lexer *, NodeKind, Span);            /* text is the source's */
Node *node_make(Lexer *, NodeKind, Span, Node *const *kid, uint32_t nkid);
Node *node_add(Lexer *, Node *list, Node *kid);
Node *node_binary(Lexer *, BinaryOp, Node *left, Span op, Node *right);
Node *node_pipe(Lexer *, Node *value, Span op, Node *call);
/* A mesh size: an expression, a range (last is not absent) or a product of two. */
Node *node_mesh_size(Lexer *, Node *first, Node *last, Span);

/* ---- parse.y ---- */

/* What could be read, or NULL when nothing could. */
Node *syntax_file(Diags *, const Source *);
Node *syntax_expression(Diags *, const Source *, Span text);

/* ---- include.c ---- */

/* The tree of one source, without its includes: a FILE_ node. */
Node *source_tree(Diags *, const Source *);

#endif
