/* From raw tokens to the tokens of the grammar: which newlines end a statement,
 * which words are words here, which brackets are open, and how much of the text
 * a syntax error spoils. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "frontend/syntax.h"
#include "frontend/elsewhere.h"
#include "frontend/parse.tab.h"
#include "frontend/lex.yy.h"
#include "ir/dtype.h"

/* lex.l: the next raw token. */
Token scan_token(void *scanner);

void lexer_start(Lexer *lx, Diags *ds, const Source *source, Span text, int first)
{
    assert(text.end == source->start + source->bytes);
    *lx = (Lexer){.ds = ds, .arena = ds->arena, .source = source, .pos = text.start, .first = first,
                  .last = T_NL, .errors = ds->errors};
    yylex_init_extra(lx, &lx->scanner);
    /* The final newline is part of what is scanned: units look one character ahead. */
    yy_scan_bytes(source->text + (text.start - source->start), (int)(text.end - text.start) + 1, lx->scanner);
}

void lexer_end(Lexer *lx)
{
    yylex_destroy(lx->scanner);
}

/* ---- words ---- */

typedef enum Where { ALWAYS = 1, HEAD = 2, RULES = 4, MACHINE = 8, OWNER = 16, ITEM = 32 } Where;

typedef struct Word {
    const char *text;
    int         token;
    Where       where;
} Word;

static const Word words[] = {
#define X(token, text, where) {text, T_##token, where},
#include "frontend/words.def"
#undef X
};

static bool in_brackets(const Lexer *lx)
{
    return lx->nopen > 0 && lx->open[lx->nopen - 1].what != '{';
}

/* Which sets of words are reserved at this place. */
static unsigned words_here(const Lexer *lx)
{
    unsigned here = ALWAYS;
    if (lx->last == '.')                             /* part of a path or key */
        return here;
    if (!lx->nopen && lx->item != T_AN_EXPR && (lx->last == T_NL || lx->last == '}' || span_known(lx->newline)))
        here |= ITEM;
    if (lx->item == T_PLAN)
        here |= lx->nbrace ? RULES : HEAD;
    if ((lx->item == T_DEVICE || lx->item == T_CLUSTER) && lx->nbrace)
        here |= MACHINE;
    bool in_weight = lx->statement == T_WEIGHT && lx->last != T_NL && !span_known(lx->newline);
    if (in_weight && lx->last != T_WEIGHT && !in_brackets(lx))
        here |= OWNER;
    return here;
}

static bool is_word(const char *text, int n, const char *word)
{
    return strncmp(text, word, (size_t)n) == 0 && word[n] == 0;
}

static Token leaf_token(Lexer *lx, int token, NodeKind kind, Span at)
{
    return (Token){token, at, node_leaf(lx, kind, at)};
}

static Token word_token(Lexer *lx, int token, Span at)
{
    switch (token) {
    case T_TRUE:  return leaf_token(lx, token, N_TRUE_, at);
    case T_FALSE: return leaf_token(lx, token, N_FALSE_, at);
    case T_NONE:  return leaf_token(lx, token, N_NONE, at);
    case T_AUTO:  return leaf_token(lx, token, N_AUTO, at);
    default:      return (Token){token, at, NULL};
    }
}

Token lexer_word(Lexer *lx, Span at, const char *text, int n)
{
    unsigned here = words_here(lx);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((words[i].where & here) && is_word(text, n, words[i].text))
            return word_token(lx, words[i].token, at);
    DType dtype = dtype_find(text, n);
    Token t = leaf_token(lx, dtype < DTYPES ? T_DTYPE : T_NAME, dtype < DTYPES ? N_DTYPE : N_NAME, at);
    t.value->ival = dtype < DTYPES ? (int64_t)dtype : 0;
    return t;
}

/* ---- brackets ---- */

static void forget_brackets(Lexer *lx)
{
    while (in_brackets(lx))
        lx->nopen--;
}

static void open_bracket(Lexer *lx, char what, Span at)
{
    if (lx->nopen == NEST_LIMIT) {
        Diag *d = diag_error(lx->ds, at, "nested too deeply: at most %d brackets may be open", NEST_LIMIT);
        diag_note(lx->ds, d, lx->open[0].at, "the outermost is this '%c'", lx->open[0].what);
        lx->stopped = true;
        return;
    }
    lx->open[lx->nopen++] = (Open){what, at};
    lx->nbrace += what == '{';
}

static void close_bracket(Lexer *lx, char what)
{
    if (lx->nopen && lx->open[lx->nopen - 1].what == what)
        lx->nopen--;
}

static void close_brace(Lexer *lx)
{
    forget_brackets(lx);
    if (!lx->nbrace)
        return;
    lx->nopen--;
    if (--lx->nbrace == 0)
        lx->item = 0;
}

/* ---- newlines ---- */

static bool ends_statement(int token)
{
    switch (token) {
    case T_NAME: case T_INT: case T_REAL: case T_QUANTITY: case T_STRING: case T_DTYPE:
    case T_TRUE: case T_FALSE: case T_NONE: case T_AUTO:
    case T_RETURN: case T_WHOLE: case T_FROZEN: case ')': case ']':
        return true;
    default:
        return false;
    }
}

/* Whether the next token is the first of a statement. */
static bool begins_statement(const Lexer *lx)
{
    return lx->last == T_NL || lx->last == '{' || lx->last == '}';
}

void lexer_newline(Lexer *lx, Span at)
{
    bool counts = lx->recovering || (!in_brackets(lx) && ends_statement(lx->last));
    if (counts && !span_known(lx->newline))
        lx->newline = at;
}

void lexer_comment(Lexer *lx, Span at)
{
    PUSH(lx->arena, lx->comment, lx->ncomment, at);
}

/* ---- errors ---- */

/* The statement being read is spoiled: the next newline ends it. */
static void begin_recovery(Lexer *lx)
{
    forget_brackets(lx);
    lx->recovering = true;
}

int lexer_bad(Lexer *lx, Span at, const char *msg)
{
    if (!lx->recovering)
        diag_error(lx->ds, at, "%s", msg);
    begin_recovery(lx);
    return T_YYerror;
}

/* The text at a span in quotes, cut when it is long. */
static const char *quote(const Lexer *lx, Span at)
{
    enum { SHOWN = 40 };
    int n = (int)(at.end - at.start);
    return arena_printf(lx->arena, "'%.*s%s'", n > SHOWN ? SHOWN : n,
                        lx->source->text + (at.start - lx->source->start), n > SHOWN ? ".." : "");
}

/* How a message calls the token handed out last. */
static const char *describe_last(const Lexer *lx, Span at)
{
    const char *text = lx->source->text + (at.start - lx->source->start);
    if (lx->last == T_END)
        return lx->item != T_AN_EXPR ? "end of file" : "end of expression";
    if (lx->last == T_NL)
        return *text == ';' ? "';'" : *text == '}' ? "'}'" : "end of line";
    return quote(lx, at);
}

/* The bracket that explains the error at `at`, or NULL: one still open though its
 * line or what it stands in has ended. */
static const Open *left_open(const Lexer *lx, Span at)
{
    const Open *open = lx->nopen ? &lx->open[lx->nopen - 1] : NULL;
    if (lx->last == '(' || lx->last == '[' || lx->last == '{')
        open = lx->nopen > 1 ? open - 1 : NULL;      /* the bad token opened one itself */
    if (!open)
        return NULL;
    if (open->what == '{')
        return lx->last == T_END ? open : NULL;
    bool closes = lx->last == T_NL || lx->last == T_END || lx->last == ')' || lx->last == ']' || lx->last == '}';
    bool later = sources_line(lx->ds->sources, open->at.start) < sources_line(lx->ds->sources, at.start);
    return closes || later ? open : NULL;
}

static const char *expected_list(Arena *a, const char *const *want, int n)
{
    Text t = text_new(a);
    for (int i = 0; i < n; i++) {
        bool plain = want[i][0] == '\'' || strncmp(want[i], "a ", 2) == 0 || strncmp(want[i], "an ", 3) == 0 ||
                     strncmp(want[i], "end ", 4) == 0;
        const char *quote = plain ? "" : "'";
        text_add(&t, "%s%s%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ", quote, want[i], quote);
    }
    return t.s;
}

static bool is_reserved(int token)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].token == token)
            return true;
    return token == T_DTYPE;
}

static const char *dtype_words(void)
{
    return ""
#define X(name, bytes, is_float) " " #name
        DTYPE_LIST(X)
#undef X
        ;
}

static char closer(char open)
{
    return open == '(' ? ')' : open == '[' ? ']' : '}';
}

static void report_open(Lexer *lx, Span at, const Open *open, const char *before)
{
    Diag *d = diag_error(lx->ds, at, "expected '%c' before %s", closer(open->what), before);
    diag_note(lx->ds, d, open->at, "to match this '%c'", open->what);
}

static bool in_name(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* The first word of the statement that goes on at `at`; *next: nothing stands between them. */
static const char *first_word(const Lexer *lx, Span at, bool *next)
{
    const char *text = lx->source->text, *here = text + (at.start - lx->source->start), *s = here;
    while (s > text && !strchr("\n{};", s[-1]))
        s--;
    while (*s == ' ')
        s++;
    const char *end = s;
    while (end < here && in_name(*end))
        end++;
    const char *after = end;
    while (*after == ' ')
        after++;
    *next = after == here;
    return arena_strndup(lx->arena, s, (size_t)(end - s));
}

/* The word that a statement of this item begins with which is nearest to one that none does; NULL: none. */
static const char *near_statement(const Lexer *lx, const char *word)
{
    static const char *const model[] = {"dim", "param", "let", "require", "input", "weight", "output", "minimize", "return", "repeat", "precision", "defaults", "optimizer"};
    static const char *const plan[] = {"mesh", "split", "keep", "pad", "stage", "recompute", "save", "shard", "offload", "set", "prefer"};
    bool rules = lx->item == T_PLAN;
    const char *const *pool = rules ? plan : model;
    size_t n = rules ? sizeof plan / sizeof *plan : lx->item == T_MODEL || lx->item == T_BLOCK ? sizeof model / sizeof *model : 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(pool[i], word) == 0)
            return NULL;
    return *word ? nearest_name(word, pool, n) : NULL;
}

/* What a statement that is not understood may be meant as. */
static void add_meant(Lexer *lx, Diag *d, Span at)
{
    bool next;
    const char *word = first_word(lx, at, &next), *help = elsewhere_statement(word, lx->source->text + (at.start - lx->source->start));
    const char *near = next && !help ? near_statement(lx, word) : NULL;
    if (help)
        diag_help(lx->ds, d, "%s", help);
    else if (near)
        diag_help(lx->ds, d, "did you mean '%s'?", near);
}

static void report_unexpected(Lexer *lx, Span at, const char *got, const char *const *want, int nwant, bool want_name)
{
    enum { SHOWN = 4 };
    bool few = nwant > 0 && nwant <= SHOWN;
    Diag *d = few ? diag_error(lx->ds, at, "expected %s before %s", expected_list(lx->arena, want, nwant), got)
                  : diag_error(lx->ds, at, "unexpected %s", got);
    if (nwant == 1 && strcmp(want[0], "a dtype") == 0)
        diag_help(lx->ds, d, "the dtypes are%s", dtype_words());
    if (few && want_name && is_reserved(lx->last))
        diag_help(lx->ds, d, "%s is a word of the language; choose another name", got);
    add_meant(lx, d, at);
}

void lexer_unexpected(Lexer *lx, Span at, const char **want, int nwant, bool want_name)
{
    if (lx->stopped)
        return;
    /* The grammar takes a '!' behind any axis, to say more than "unexpected" there. */
    int n = 0;
    for (int i = 0; i < nwant; i++)
        if (lx->item == T_OP || strcmp(want[i], "'!'") != 0)
            want[n++] = want[i];
    const char *got = describe_last(lx, at);
    const Open *open = left_open(lx, at);
    if (open)
        report_open(lx, at, open, got);
    else
        report_unexpected(lx, at, got, want, n, want_name);
    lx->in_bad_block = lx->last == '{';
    if (lx->in_bad_block)
        close_brace(lx);
    if (lx->last == T_NL)
        forget_brackets(lx);
    else
        begin_recovery(lx);
}

/* ---- handing out ---- */

static bool is_item_word(int token)
{
    return token == T_MODEL || token == T_BLOCK || token == T_OP || token == T_PLAN || token == T_DEVICE ||
           token == T_CLUSTER || token == T_PROFILE || token == T_INCLUDE;
}

/* An item's first word at the left margin: whatever is open before it was left open. */
static bool starts_item(const Lexer *lx, const Token *t)
{
    const char *text = lx->source->text + (t->at.start - lx->source->start);
    return is_item_word(t->kind) && (text == lx->source->text || text[-1] == '\n');
}

/* The end of the file is shown behind its last character that is not blank. */
static Span end_span(const Lexer *lx)
{
    uint32_t n = lx->source->bytes;
    while (n > 0 && strchr(" \t\r\n", lx->source->text[n - 1]))
        n--;
    return (Span){lx->source->start + n, lx->source->start + n + 1};
}

static Token scan(Lexer *lx)
{
    /* More errors than are shown would only cost time. */
    if (lx->ds->errors - lx->errors > DIAG_LIMIT)
        lx->stopped = true;
    Token t = lx->stopped ? (Token){.kind = T_END} : scan_token(lx->scanner);
    if (t.kind == T_END)
        t.at = end_span(lx);
    return t;
}

/* Scan over a block whose beginning was wrong, up to behind its '}'; what stands
 * in it could only be misunderstood. */
static Token skip_block(Lexer *lx)
{
    for (int depth = 1;;) {
        Token t = scan(lx);
        if (t.kind == T_END || starts_item(lx, &t))
            return t;
        depth += t.kind == '{' ? 1 : t.kind == '}' ? -1 : 0;
        if (depth == 0) {
            lx->newline = NOWHERE;
            return scan(lx);
        }
    }
}

static Token scan_past_damage(Lexer *lx)
{
    Token t = lx->in_bad_block ? skip_block(lx) : scan(lx);
    lx->in_bad_block = false;
    while (lx->recovering && !span_known(lx->newline) && t.kind == '{')
        t = skip_block(lx);
    return t;
}

/* Whether a newline goes out before the held token; a '}' supplies its own. */
static bool newline_is_due(Lexer *lx, Span *at)
{
    const Token *t = &lx->held;
    bool due = span_known(lx->newline) && t->kind != T_PIPE;
    *at = lx->newline;
    lx->newline = NOWHERE;
    if (due || !(t->kind == '}' || lx->closing) || begins_statement(lx))
        return due;
    *at = (Span){t->at.start, t->at.start};
    return true;
}

/* Where an item begins inside another, the missing braces are reported and supplied. */
static void check_braces(Lexer *lx)
{
    bool closing = lx->nbrace > 0 && starts_item(lx, &lx->held);
    if (closing && !lx->closing) {
        forget_brackets(lx);
        report_open(lx, lx->held.at, &lx->open[lx->nopen - 1], quote(lx, lx->held.at));
    }
    lx->closing = closing;
}

static Token choose(Lexer *lx)
{
    Span at;
    if (!lx->has_held)
        lx->held = scan_past_damage(lx);
    lx->has_held = true;
    check_braces(lx);
    if (newline_is_due(lx, &at))
        return (Token){T_NL, at, NULL};
    if (lx->closing)
        return (Token){'}', {lx->held.at.start, lx->held.at.start}, NULL};
    lx->has_held = false;
    return lx->held;
}

/* What handing out a token changes for those that follow. */
static void note_token(Lexer *lx, const Token *t)
{
    if (begins_statement(lx))
        lx->statement = t->kind;
    if (lx->nbrace == 0 && is_item_word(t->kind))
        lx->item = t->kind;
    switch (t->kind) {
    case '(': case '[': case '{': open_bracket(lx, (char)t->kind, t->at); break;
    case ')': close_bracket(lx, '('); break;
    case ']': close_bracket(lx, '['); break;
    case '}': close_brace(lx); break;
    case T_NL: lx->recovering = false; break;
    default: break;
    }
    lx->last = t->kind;
}

Token lexer_next(Lexer *lx)
{
    if (lx->first) {
        Token first = {lx->first, {lx->pos, lx->pos}, NULL};
        lx->item = lx->first;
        lx->first = 0;
        return first;
    }
    Token t = choose(lx);
    note_token(lx, &t);
    if (lx->stopped)
        t = (Token){T_END, end_span(lx), NULL};
    return t;
}
