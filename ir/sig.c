/* Reading signatures:
 *
 *   signature = [ formal { "," formal } ] "->" result { "," result } [ "owns" owned { "," owned } ]
 *   formal    = tensor | "dim" NAME | NAME [ "=" literal ]
 *   tensor    = NAME axes [ "?" ]        result = [ NAME ] axes [ "?" ]       owned = tensor
 *   axes      = "[" [ axis { "," axis } ] "]"          axis = ".." | NAME [ "!" ]
 *
 * The text comes from the op table, so a failure is our own bug; it is returned as
 * a message because a test reads every row. */
#include "ir/sig.h"

#include <ctype.h>
#include <string.h>

typedef struct Reader { const char *p; SigPool *pool; const char *error; } Reader;

static void fail(Reader *r, const char *expected)
{
    if (!r->error)
        r->error = expected;
}

static void skip_space(Reader *r)
{
    while (*r->p == ' ')
        r->p++;
}

/* Step over `token` if it comes next. */
static bool take(Reader *r, const char *token)
{
    skip_space(r);
    size_t n = strlen(token);
    if (strncmp(r->p, token, n) != 0)
        return false;
    r->p += n;
    return true;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The same for a word, which must not go on after `word`. */
static bool take_word(Reader *r, const char *word)
{
    skip_space(r);
    size_t n = strlen(word);
    if (strncmp(r->p, word, n) != 0 || is_word(r->p[n]))
        return false;
    r->p += n;
    return true;
}

static const char *keep(Reader *r, const char *s, size_t n)
{
    SigPool *pool = r->pool;
    if (pool->cap - pool->n <= n) {
        fail(r, "room for names");
        return "";
    }
    char *copy = memcpy(pool->text + pool->n, s, n);
    copy[n] = 0;
    pool->n += n + 1;
    return copy;
}

/* A name, or NULL with nothing read. */
static const char *take_name(Reader *r)
{
    skip_space(r);
    const char *start = r->p;
    if (!isalpha((unsigned char)*start) && *start != '_')
        return NULL;
    while (is_word(*r->p))
        r->p++;
    return keep(r, start, (size_t)(r->p - start));
}

static char role_of(Reader *r, const char *name)
{
#define X(word, letter) if (strcmp(name, #word) == 0) return letter;
    SIG_ROLE_LIST(X)
#undef X
    if (name[1] != 0)
        fail(r, "an axis of one letter, or of SIG_ROLE_LIST");
    return name[0];
}

static void read_axis(Reader *r, SigAxis *a)
{
    if (take(r, "..")) {
        *a = (SigAxis){.name = "..", .role = '.', .dots = true};
        return;
    }
    a->name = take_name(r);
    if (!a->name) {
        fail(r, "an axis");
        return;
    }
    a->role = role_of(r, a->name);
    a->whole = take(r, "!");
}

/* "[a, b!]?" after the name of a tensor. */
static void read_axes(Reader *r, SigFormal *f)
{
    if (!take(r, "["))
        fail(r, "'['");
    f->naxis = 0;
    while (!r->error && !take(r, "]")) {
        if (f->naxis == SIG_AXES || (f->naxis && !take(r, ",")))
            fail(r, "',' or ']'");
        else
            read_axis(r, &f->axis[f->naxis++]);
    }
    f->optional = take(r, "?");
}

/* A default: up to the ',' or '->' after it. */
static const char *read_literal(Reader *r)
{
    skip_space(r);
    const char *start = r->p;
    while (*r->p && *r->p != ',' && *r->p != ' ')
        r->p++;
    if (r->p == start)
        fail(r, "a default");
    return keep(r, start, (size_t)(r->p - start));
}

static void read_formal(Reader *r, SigFormal *f)
{
    f->kind = take_word(r, "dim") ? SIG_DIM : SIG_SCALAR;
    f->name = take_name(r);
    if (!f->name) {
        fail(r, "a name");
        return;
    }
    if (f->kind == SIG_DIM)
        return;
    if (*r->p == '[') {
        f->kind = SIG_TENSOR;
        read_axes(r, f);
    } else if (take(r, "=")) {
        f->fallback = read_literal(r);
    }
}

static void read_formals(Reader *r, OpSig *sig)
{
    while (!r->error && !take(r, "->")) {
        if (sig->nformal == SIG_FORMALS || (sig->nformal && !take(r, ",")))
            fail(r, "',' or '->'");
        else
            read_formal(r, &sig->formal[sig->nformal++]);
    }
}

static void read_owned(Reader *r, OpSig *sig)
{
    do {
        if (sig->nformal == SIG_FORMALS) {
            fail(r, "fewer arguments");
            return;
        }
        SigFormal *f = &sig->formal[sig->nformal++];
        f->kind = SIG_OWNED;
        f->name = take_name(r);
        if (!f->name)
            fail(r, "the name of an owned weight");
        read_axes(r, f);
    } while (!r->error && take(r, ","));
}

/* Results, appended after the `at` there are; returns how many. */
static uint8_t read_results(Reader *r, OpSig *sig, uint8_t at)
{
    uint8_t n = 0;
    do {
        if ((size_t)(at + n) == sizeof sig->result / sizeof *sig->result) {
            fail(r, "fewer results");
            return n;
        }
        SigFormal *f = &sig->result[at + n++];
        f->kind = SIG_TENSOR;
        f->name = take_name(r);
        read_axes(r, f);
    } while (!r->error && take(r, ","));
    return n;
}

static void read_end(Reader *r)
{
    skip_space(r);
    if (*r->p)
        fail(r, "the end");
}

const char *sig_read(const char *signature, const char *saves, SigPool *pool, OpSig *sig)
{
    *sig = (OpSig){0};
    Reader r = {signature, pool, NULL};
    read_formals(&r, sig);
    if (!r.error)
        sig->nresult = read_results(&r, sig, 0);
    if (take_word(&r, "owns"))
        read_owned(&r, sig);
    read_end(&r);
    if (!r.error && *saves) {
        r.p = saves;
        sig->nsaved = read_results(&r, sig, sig->nresult);
        read_end(&r);
    }
    return r.error;
}

const char *sig_read_tensor(const char *text, SigPool *pool, SigFormal *out)
{
    Reader r = {text, pool, NULL};
    out->name = take_name(&r);
    if (!out->name)
        fail(&r, "a name");
    read_axes(&r, out);
    read_end(&r);
    return r.error;
}
