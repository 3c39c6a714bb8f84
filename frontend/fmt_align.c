/* Formatting, second half: how deep lines stand and what they line up.
 *
 * Neighbours of one form (dims, inputs, weights, assignments, ...) have their
 * '=', ':' or '~' in one column, declarations their documentation, all lines
 * their comments.  Where widths differ too much a new column begins. */
#include <string.h>

#include "frontend/fmt.h"
#include "frontend/parse.tab.h"

enum {
    INDENT      = 2,                  /* of a block */
    CONTINUED   = 4,                  /* of a statement's further lines */
    FAR         = 100,                /* a bracket further right is not lined up with */
    SPREAD      = 8,                  /* what stands before a sign may differ by so much */
    WIDE_SPREAD = 24                  /* the same for documentation and comments */
};

uint32_t fmt_column(const Fmt *f, uint32_t piece)
{
    const Line *l = &f->line[f->piece[piece].line];
    uint32_t column = l->indent;
    for (uint32_t i = l->first; i < piece; i++) {
        bool counts = !f->piece[i].dropped;
        column += counts ? f->piece[i].width + (i > l->first ? f->piece[i].gap : 0) : 0;
    }
    return piece > l->first ? column + f->piece[piece].gap : column;
}

/* ---- forms ---- */

/* The first piece of this kind in the statement, outside brackets, or NO_PIECE. */
static uint32_t find_in_statement(const Fmt *f, uint32_t first, int kind)
{
    for (uint32_t i = first; i < f->npiece && (i == first || !fmt_at_boundary(f, i)); i++) {
        if (f->piece[i].kind == kind && !f->piece[i].dropped)
            return i;
        if (f->piece[i].kind == '(' || f->piece[i].kind == '[')
            i = f->piece[i].match;
        if (f->piece[i].kind == '{')
            return NO_PIECE;
    }
    return NO_PIECE;
}

static uint32_t on_line(const Line *l, uint32_t piece)
{
    return piece < l->end ? piece : NO_PIECE;
}

static bool declares(int kind)
{
    return kind == T_DIM || kind == T_PARAM || kind == T_LET;
}

/* The sign that divides a line of this form, or NO_PIECE. */
static uint32_t sign_of(const Fmt *f, const Line *l)
{
    int first = f->piece[l->first].kind;
    uint32_t colon = find_in_statement(f, l->first, ':'), sign = find_in_statement(f, l->first, '=');
    if (first == T_INPUT)
        return colon;
    if (first == T_WEIGHT)
        return colon != NO_PIECE ? colon : find_in_statement(f, l->first, '~');
    return first == T_NAME || first == T_LEVEL || first == T_SET || declares(first) ? sign : NO_PIECE;
}

/* Lines of one form differ from others in their first word, or in what divides them. */
static int form_of(const Fmt *f, const Line *l, uint32_t sign)
{
    int first = f->piece[l->first].kind;
    bool names_axes = first == T_NAME && l->first + 1 < l->end && f->piece[l->first + 1].kind == '[';
    if (first == T_DEFAULTS || first == T_PRECISION)
        return T_DEFAULTS;
    if (sign == NO_PIECE)
        return 0;
    return first * 4 + (names_axes ? 1 : 0) + (f->piece[sign].kind == '~' ? 2 : 0);
}

/* Documentation: a string that follows an expression. */
static uint32_t doc_of(const Fmt *f, const Line *l)
{
    uint32_t last = l->end - 1;
    if (f->piece[last].kind == COMMENT && last > l->first)
        last--;
    if (!declares(f->piece[l->first].kind) || f->piece[last].kind != T_STRING)
        return NO_PIECE;
    int left = f->piece[last - 1].kind;
    bool operand = left == '=' || left == ',';
    return operand ? NO_PIECE : last;
}

static void find_stops(const Fmt *f, Line *l)
{
    uint32_t last = l->end - 1;
    if (f->piece[last].kind == COMMENT && last > l->first)
        l->stop[STOP_COMMENT] = last;
    if (l->continued || f->piece[l->first].kind == COMMENT || f->piece[l->first].kind == '}')
        return;
    uint32_t sign = on_line(l, sign_of(f, l)), brace = NO_PIECE;
    for (uint32_t i = l->first; i < l->end; i++)
        if (f->piece[i].kind == '{' && !f->piece[i].broken)
            brace = i;
    l->form = form_of(f, l, sign);
    l->lists = sign != NO_PIECE && find_in_statement(f, sign, ',') != NO_PIECE;
    l->stop[STOP_SIGN] = sign;
    l->stop[STOP_BRACE] = l->form ? brace : NO_PIECE;
    l->stop[STOP_DOC] = doc_of(f, l);
}

/* ---- indents ---- */

/* Where a further line of a statement stands; `open` is the innermost bracket. */
static uint32_t continued_indent(const Fmt *f, const Line *l, uint32_t statement, uint32_t open)
{
    const Line *start = &f->line[statement];
    int keyword = f->piece[start->first].kind;
    if (open != NO_PIECE) {
        const Line *around = &f->line[f->piece[open].line];
        bool closes = f->piece[open].match == l->first;
        bool hangs = open + 1 == around->end || f->piece[open + 1].kind == COMMENT;
        if (hangs || f->piece[open].column > FAR)
            return closes ? around->indent : around->indent + CONTINUED;
        return f->piece[open].column + !closes;
    }
    bool lists = f->piece[l->first - 1].kind == ',' && keyword != T_NAME;
    return start->indent + (lists ? f->piece[start->first].width + 1 : CONTINUED);
}

static void set_indents(Fmt *f)
{
    uint32_t open[NEST_LIMIT], nopen = 0, statement = 0;
    for (uint32_t i = 0; i < f->nline; i++) {
        Line *l = &f->line[i];
        if (l->continued)
            l->indent = continued_indent(f, l, statement, nopen ? open[nopen - 1] : NO_PIECE);
        else
            l->indent = INDENT * l->depth;
        if (!l->continued)
            statement = i;
        uint32_t column = l->indent;
        for (uint32_t k = l->first; k < l->end; k++) {
            Piece *p = &f->piece[k];
            p->column = column + (k > l->first && !p->dropped ? p->gap : 0);
            column = p->column + (p->dropped ? 0 : p->width);
            if (p->kind == '(' || p->kind == '[')
                open[nopen++] = k;
            else if (p->kind == ')' || p->kind == ']')
                nopen--;
        }
    }
}

/* ---- columns ---- */

static bool only_comment(const Fmt *f, const Line *l)
{
    return f->piece[l->first].kind == COMMENT && !l->continued;
}

/* Whether a line can share a column with the statement before it. */
static bool joins(const Fmt *f, Stop stop, const Line *before, const Line *l)
{
    if (l->blank || l->depth != before->depth)
        return false;
    if (stop == STOP_COMMENT)
        return l->stop[stop] != NO_PIECE;
    if (l->continued)
        return false;
    if (stop == STOP_DOC)
        return declares(f->piece[l->first].kind);
    return l->form == before->form && l->stop[stop] != NO_PIECE;
}

/* Lines [first, end) share the column of `stop`.  Lists follow a column but make none. */
static void align_run(Fmt *f, Stop stop, uint32_t first, uint32_t end, uint32_t widest)
{
    uint32_t single = 0;
    for (uint32_t i = first; i < end; i++)
        single += f->line[i].stop[stop] != NO_PIECE && !(stop == STOP_SIGN && f->line[i].lists);
    if (single < 2)
        return;
    for (uint32_t i = first; i < end; i++) {
        uint32_t p = f->line[i].stop[stop];
        if (p != NO_PIECE)
            f->piece[p].gap += widest - fmt_column(f, p);
    }
}

static void align(Fmt *f, Stop stop, uint32_t spread)
{
    uint32_t first = 0, before = 0, least = UINT32_MAX, widest = 0;
    for (uint32_t i = 0; i < f->nline; i++) {
        const Line *l = &f->line[i];
        bool has = l->stop[stop] != NO_PIECE;
        uint32_t column = has ? fmt_column(f, l->stop[stop]) : 0;
        if (stop != STOP_COMMENT && only_comment(f, l) && !l->blank)
            continue;
        bool fits = !has || widest == 0 || ((column > widest ? column : widest) -
                                            (column < least ? column : least)) <= spread;
        if (!fits || !joins(f, stop, &f->line[before], l)) {
            align_run(f, stop, first, i, widest);
            first = i;
            least = UINT32_MAX;
            widest = 0;
        }
        before = i;
        if (has) {
            least = column < least ? column : least;
            widest = column > widest ? column : widest;
        }
    }
    align_run(f, stop, first, f->nline, widest);
}

void fmt_align(Fmt *f)
{
    for (uint32_t i = 0; i < f->nline; i++) {
        Line *l = &f->line[i];
        find_stops(f, l);
        l->indent = INDENT * l->depth;
        if (l->stop[STOP_DOC] != NO_PIECE)
            f->piece[l->stop[STOP_DOC]].gap = 2;
    }
    align(f, STOP_SIGN, SPREAD);
    align(f, STOP_BRACE, SPREAD);
    align(f, STOP_DOC, WIDE_SPREAD);
    set_indents(f);
    align(f, STOP_COMMENT, WIDE_SPREAD);
}
