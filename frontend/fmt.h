#ifndef FRONTEND_FMT_H
#define FRONTEND_FMT_H
/* The formatter's two halves: fmt.c cuts a file into lines, fmt_align.c decides
 * how deep each line stands and which columns neighbours share. */
#include "frontend/syntax.h"

enum { COMMENT = -1 };                /* a kind beside the tokens' */
enum { NO_PIECE = UINT32_MAX };

/* Columns that neighbouring lines share, from left to right. */
typedef enum Stop { STOP_SIGN, STOP_BRACE, STOP_DOC, STOP_COMMENT, STOPS } Stop;

/* A token or a comment. */
typedef struct Piece {
    int         kind;                 /* token kind, or COMMENT */
    const char *text;
    uint32_t    width;                /* columns */
    uint32_t    row;                  /* source line, from 0 */
    uint32_t    gap;                  /* blanks before it where it does not begin a line */
    uint32_t    match;                /* the partner of a bracket, or NO_PIECE */
    uint32_t    before, next;         /* the nearest tokens, comments aside; NO_PIECE and npiece at the ends */
    uint32_t    line;                 /* the Line it is part of */
    uint32_t    column;               /* of '(' and '[', once indents are set */
    bool        begins;               /* begins a statement */
    bool        dropped;              /* a comma not needed where it stands */
    bool        broken;               /* '{' and '}': what is between them has lines of its own */
    bool        settings;             /* '{': settings follow */
    bool        new_line;             /* begins a line */
} Piece;

typedef struct Line {
    uint32_t first, end;              /* its pieces */
    uint32_t indent;                  /* columns */
    uint32_t depth;                   /* broken braces around it */
    bool     blank;                   /* a blank line before it */
    bool     continued;               /* not the first line of its statement */
    int      form;                    /* neighbours of one form are aligned; 0: not aligned */
    bool     lists;                   /* holds several 'NAME = value', of which the first has the stop */
    uint32_t stop[STOPS];             /* pieces at the shared columns, or NO_PIECE */
} Line;

typedef struct Fmt {
    Arena        *arena;
    const Source *source;
    uint32_t      scanned, row;       /* rows are counted up to this offset of the text */
    Piece        *piece;
    uint32_t      npiece;
    Line         *line;
    uint32_t      nline;
} Fmt;

/* Whether a piece begins a statement, or opens or closes a block, comments aside. */
bool fmt_at_boundary(const Fmt *, uint32_t piece);
/* The column of a piece on its line, from the gaps as they are now. */
uint32_t fmt_column(const Fmt *, uint32_t piece);
/* Decide indents and the gaps that align lines. */
void fmt_align(Fmt *);

#endif
