/* `pplan fmt`: the canonical layout of a file.
 *
 * The formatter works on tokens, so what a text means cannot change: it decides
 * only where lines begin, how deep they stand and how wide the gaps are.  One
 * statement a line; a pair of braces stays on one line if it was, holds no more
 * than one statement and fits; breaks inside a statement stay where the writer
 * put them.  All of it is decided from the tokens and the writer's line breaks,
 * never from the widths of old gaps: so formatting twice changes nothing. */
#include "frontend/fmt.h"

#include <string.h>

#include "frontend/parse.tab.h"

enum { WIDTH = 110, INDENT = 2 };     /* a longer '{ .. }' is broken; indent of a block */

/* ---- collecting ---- */

static uint32_t columns(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* One blank between number and unit, none before '%'. */
static const char *quantity_text(Arena *a, const char *text)
{
    size_t unit = strlen(text);
    if (text[unit - 1] == '%')
        return text;
    while (!strchr("0123456789 \t", text[unit - 1]))
        unit--;
    size_t number = unit;
    while (strchr(" \t", text[number - 1]))
        number--;
    return arena_printf(a, "%.*s %s", (int)number, text, text + unit);
}

static Piece *add_piece(Fmt *f, int kind, Span at)
{
    uint32_t start = at.start - f->source->start, n = at.end - at.start;
    for (; f->scanned < start; f->scanned++)
        f->row += f->source->text[f->scanned] == '\n';
    while (kind == COMMENT && strchr(" \t\r", f->source->text[start + n - 1]))
        n--;
    Piece p = {.kind = kind, .text = arena_strndup(f->arena, f->source->text + start, n), .row = f->row,
               .match = NO_PIECE};
    if (kind == T_QUANTITY)
        p.text = quantity_text(f->arena, p.text);
    p.width = columns(p.text);
    PUSH(f->arena, f->piece, f->npiece, p);
    return &f->piece[f->npiece - 1];
}

static bool has_settings(int statement)
{
    return statement == T_PRECISION || statement == T_OPTIMIZER || statement == T_DEFAULTS || statement == T_DEVICE ||
           statement == T_PROFILE || statement == T_LEVEL;
}

/* Read the file once more, for its tokens and comments. */
static void collect(Fmt *f, Diags *ds)
{
    Lexer *lx = NEW(f->arena, Lexer);
    uint32_t comment = 0;
    int last = T_NL;
    lexer_start(lx, ds, f->source, (Span){f->source->start, f->source->start + f->source->bytes}, T_A_FILE);
    lexer_next(lx);
    for (Token t = lexer_next(lx); ; t = lexer_next(lx)) {
        for (; comment < lx->ncomment && (lx->comment[comment].start < t.at.start || t.kind == T_END); comment++)
            add_piece(f, COMMENT, lx->comment[comment]);
        if (t.kind == T_END)
            break;
        if (t.kind != T_NL) {
            Piece *p = add_piece(f, t.kind, t.at);
            p->begins = (last == T_NL || last == '{' || last == '}') && t.kind != '}' && t.kind != T_ELSE;
            p->settings = t.kind == '{' && has_settings(lx->statement);
        }
        last = t.kind;
    }
    lexer_end(lx);
}

static void link_tokens(Fmt *f)
{
    uint32_t before = NO_PIECE, next = f->npiece;
    for (uint32_t i = 0; i < f->npiece; i++) {
        f->piece[i].before = before;
        before = f->piece[i].kind == COMMENT ? before : i;
    }
    for (uint32_t i = f->npiece; i-- > 0;) {
        f->piece[i].next = next;
        next = f->piece[i].kind == COMMENT ? next : i;
    }
}

static void match_brackets(Fmt *f)
{
    uint32_t open[NEST_LIMIT], nopen = 0;
    for (uint32_t i = 0; i < f->npiece; i++) {
        int kind = f->piece[i].kind;
        if (kind == '(' || kind == '[' || kind == '{') {
            open[nopen++] = i;
        } else if (kind == ')' || kind == ']' || kind == '}') {
            f->piece[i].match = open[--nopen];
            f->piece[open[nopen]].match = i;
        }
    }
}

/* ---- gaps ---- */

static bool ends_operand(int kind)
{
    switch (kind) {
    case T_NAME: case T_INT: case T_REAL: case T_QUANTITY: case T_STRING: case T_DTYPE:
    case T_TRUE: case T_FALSE: case T_NONE: case T_AUTO: case ')': case ']':
        return true;
    default:
        return false;
    }
}

/* Whether the piece before `i` is a '-' that negates. */
static bool follows_sign(const Fmt *f, uint32_t i)
{
    return f->piece[i - 1].kind == '-' && (i < 2 || !ends_operand(f->piece[i - 2].kind));
}

static uint32_t gap_before(const Fmt *f, uint32_t i)
{
    int left = f->piece[i - 1].kind, kind = f->piece[i].kind;
    if (kind == COMMENT)
        return 2;
    if (left == '(' || left == '[' || left == '.' || (left == T_DOTS && kind != '{') || follows_sign(f, i))
        return 0;
    switch (kind) {
    case ')': case ']': case ',': case '.': case '!':
        return 0;
    case '(':
        return left != T_NAME;
    case '[':
        return left != T_NAME && left != ')' && left != ']';
    case ':':
        return left != T_NAME;        /* a label, not a dtype */
    case T_DOTS:
        return left == ',';
    default:
        return 1;
    }
}

static void set_gaps(Fmt *f)
{
    for (uint32_t i = 1; i < f->npiece; i++)
        f->piece[i].gap = gap_before(f, i);
}

/* ---- braces ---- */

/* Whether more than one statement stands directly between the braces. */
static bool holds_several(const Fmt *f, uint32_t open)
{
    uint32_t n = 0;
    for (uint32_t i = open + 1; i < f->piece[open].match; i++) {
        n += f->piece[i].begins;
        if (f->piece[i].kind == '{')
            i = f->piece[i].match;
    }
    return n > 1;
}

/* The '{' of the else that follows the brace at `open`, or NO_PIECE. */
static uint32_t else_brace(const Fmt *f, uint32_t open)
{
    uint32_t word = f->piece[f->piece[open].match].next;
    if (word >= f->npiece || f->piece[word].kind != T_ELSE)
        return NO_PIECE;
    uint32_t brace = f->piece[word].next;
    return brace < f->npiece && f->piece[brace].kind == '{' ? brace : NO_PIECE;
}

/* The width of the line from where the statement begins to its last closing brace. */
static uint32_t width_to_close(const Fmt *f, uint32_t open)
{
    uint32_t first = open, width = 0, otherwise = else_brace(f, open);
    uint32_t last = f->piece[otherwise != NO_PIECE ? otherwise : open].match;
    while (first > 0 && !f->piece[first].begins && !(f->piece[first].kind == '}' && f->piece[first].broken))
        first--;
    for (uint32_t i = first; i <= last; i++)
        width += f->piece[i].width + (i > first ? f->piece[i].gap : 0);
    return width;
}

/* The two arms of an if are alike: both broken or neither. */
static void match_arms(Fmt *f, uint32_t open)
{
    uint32_t brace = else_brace(f, open);
    if (brace == NO_PIECE)
        return;
    bool broken = f->piece[open].broken || f->piece[brace].broken;
    f->piece[open].broken = broken && f->piece[open].match > open + 1;
    f->piece[brace].broken = broken && f->piece[brace].match > brace + 1;
}

/* What must be broken whatever its width; from inner to outer, since a brace is
 * broken when one inside it is. */
static void break_outer(Fmt *f)
{
    for (uint32_t i = f->npiece; i-- > 0;) {
        Piece *p = &f->piece[i];
        if (p->kind != '{')
            continue;
        p->broken = p->match > i + 1 && (f->piece[p->match].row != p->row || holds_several(f, i));
        for (uint32_t k = i + 1; k < p->match && !p->broken; k++)
            p->broken = f->piece[k].kind == '{' && f->piece[k].broken;
        match_arms(f, i);
    }
}

static void decide_braces(Fmt *f)
{
    uint32_t depth = 0;
    break_outer(f);
    for (uint32_t i = 0; i < f->npiece; i++) {
        Piece *p = &f->piece[i];
        if (p->kind == '}' && p->broken)
            depth--;
        if (p->kind != '{')
            continue;
        if (p->match > i + 1 && INDENT * depth + width_to_close(f, i) > WIDTH)
            p->broken = true;
        match_arms(f, i);
        f->piece[p->match].broken = p->broken;
        depth += p->broken;
    }
}

/* ---- lines ---- */

/* Commas of settings where a line ends, and commas before a closing bracket. */
static void drop_commas(Fmt *f)
{
    uint32_t open[NEST_LIMIT], nopen = 0;
    for (uint32_t i = 0; i < f->npiece; i++) {
        Piece *p = &f->piece[i];
        if (p->kind == '(' || p->kind == '[' || p->kind == '{')
            open[nopen++] = i;
        else if (p->kind == ')' || p->kind == ']' || p->kind == '}')
            nopen--;
        if (p->kind != ',' || nopen == 0)
            continue;
        const Piece *around = &f->piece[open[nopen - 1]];
        uint32_t next = p->next;
        if (!around->settings) {
            p->dropped = next == around->match && f->piece[next].row == p->row;
            continue;
        }
        bool one_row = f->piece[around->match].row == around->row;
        p->dropped = next == around->match || (around->broken && (one_row || f->piece[next].row != p->row || f->piece[next].begins));
        if (p->dropped && next != around->match)
            f->piece[next].begins = true;
    }
}

bool fmt_at_boundary(const Fmt *f, uint32_t i)
{
    if (i < f->npiece && f->piece[i].kind == COMMENT)
        i = f->piece[i].next;
    if (i == f->npiece || f->piece[i].begins || f->piece[i].kind == '{')
        return true;
    const Piece *p = &f->piece[i];
    bool closes = p->kind == '}' && p->broken;
    return closes || (p->kind == T_ELSE && f->piece[p->before].kind == '}');
}

/* `before` is the last piece of the line so far, `brace` the innermost '{' or NO_PIECE. */
static bool begins_line(const Fmt *f, uint32_t i, uint32_t before, uint32_t brace)
{
    const Piece *p = &f->piece[i], *left = &f->piece[before];
    bool moved = p->row != left->row;
    if (p->kind == COMMENT)
        return moved;
    if (left->kind == COMMENT || (p->kind == '}' && p->broken))
        return true;
    if (p->begins)
        return brace == NO_PIECE || f->piece[brace].broken;
    if (p->kind == '{' || p->kind == '}' || (p->kind == T_ELSE && left->kind == '}'))
        return false;
    return moved;
}

static void break_lines(Fmt *f)
{
    uint32_t open[NEST_LIMIT], nopen = 0, before = 0;
    for (uint32_t i = 0; i < f->npiece; i++) {
        Piece *p = &f->piece[i];
        if (p->dropped)
            continue;
        if (p->kind == '}')
            nopen--;
        p->new_line = i == 0 || begins_line(f, i, before, nopen ? open[nopen - 1] : NO_PIECE);
        if (p->kind == '{')
            open[nopen++] = i;
        before = i;
    }
}

static void add_line(Fmt *f, uint32_t first, uint32_t depth, bool blank)
{
    Line l = {.first = first, .end = first + 1, .depth = depth, .blank = blank,
              .continued = !fmt_at_boundary(f, first)};
    for (int s = 0; s < STOPS; s++)
        l.stop[s] = NO_PIECE;
    PUSH(f->arena, f->line, f->nline, l);
}

static void make_lines(Fmt *f)
{
    uint32_t depth = 0;
    for (uint32_t i = 0; i < f->npiece; i++) {
        Piece *p = &f->piece[i];
        bool opened = i > 0 && f->piece[i - 1].kind == '{', closes = p->kind == '}' && p->broken;
        depth -= closes;
        if (p->new_line)
            add_line(f, i, depth, i > 0 && !opened && !closes && p->row > f->piece[i - 1].row + 1);
        depth += p->kind == '{' && p->broken;
        p->line = f->nline - 1;
        f->line[p->line].end = i + 1;
    }
}

/* ---- writing ---- */

static const char *write_lines(const Fmt *f)
{
    Text t = text_new(f->arena);
    for (uint32_t i = 0; i < f->nline; i++) {
        const Line *l = &f->line[i];
        text_add(&t, "%s%*s", l->blank ? "\n" : "", (int)l->indent, "");
        for (uint32_t k = l->first; k < l->end; k++)
            if (!f->piece[k].dropped)
                text_add(&t, "%*s%s", k > l->first ? (int)f->piece[k].gap : 0, "", f->piece[k].text);
        text_puts(&t, "\n", 1);
    }
    return t.s;
}

const char *format_source(Arena *a, Diags *ds, const Source *source)
{
    int errors = ds->errors;
    source_tree(ds, source);
    if (ds->errors != errors)
        return NULL;
    Fmt *f = NEW(a, Fmt);
    *f = (Fmt){.arena = a, .source = source};
    collect(f, ds);
    link_tokens(f);
    match_brackets(f);
    set_gaps(f);
    decide_braces(f);
    drop_commas(f);
    break_lines(f);
    make_lines(f);
    fmt_align(f);
    return write_lines(f);
}
