/* Messages of the elaborator: errors with their chain of uses, and terms in words. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"

/* ---- errors ---- */

void fail_settle(Elab *e)
{
    if (!e->open)
        return;
    for (const Use *u = e->open_use; u; u = u->up)
        diag_note(e->ds, e->open, u->at, "in '%s' for '%s', used here", u->block->kid[0]->text, u->path);
    e->open = NULL;
}

static Diag *reported(const Diags *ds, Span at, const char *text)
{
    for (Diag *d = ds->first; d; d = d->next)
        if (d->at.start == at.start && d->at.end == at.end && strcmp(d->text, text) == 0)
            return d;
    return NULL;
}

static Diag *fail_text(Elab *e, Span at, const char *text)
{
    fail_settle(e);
    if (reported(e->ds, at, text))
        return NEW(e->arena, Diag);                  /* takes notes, is never shown */
    e->open = diag_error(e->ds, at, "%s", text);
    e->open_use = e->use;
    if (e->ds->errors > DIAG_LIMIT)
        e->stopped = true;
    return e->open;
}

Diag *fail(Elab *e, Span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(e->arena, fmt, ap);
    va_end(ap);
    return fail_text(e, at, text);
}

Diag *fail_stop(Elab *e, Span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(e->arena, fmt, ap);
    va_end(ap);
    Diag *d = fail_text(e, at, text);
    e->stopped = true;
    return d;
}

/* One letter is near to every other letter: no help. */
const char *near_name(const char *word, const char *const *pool, size_t npool)
{
    return word[0] && word[1] ? nearest_name(word, pool, npool) : NULL;
}

const char *did_you_mean(Elab *e, const char *word, const char *const *pool, size_t npool)
{
    const char *near = near_name(word, pool, npool);
    return near ? arena_printf(e->arena, "; did you mean '%s'?", near) : "";
}

void note_overrides(Elab *e, Diag *d, uint64_t from)
{
    for (uint32_t i = 0; i < e->noverride && i < 64; i++)
        if (from >> i & 1)
            diag_note(e->ds, d, e->override_at[i], "%s", e->override_note[i]);
}

/* ---- terms in words ---- */

const char *axes_text(Elab *e, const DimId *axis, int rank)
{
    Text t = text_new(e->arena);
    text_add(&t, "[");
    for (int i = 0; i < rank; i++)
        text_add(&t, "%s%s", i ? ", " : "", dim_of(e->g, axis[i])->name);
    text_add(&t, "]");
    return t.s;
}

const char *value_text(Elab *e, ValueId v)
{
    const Value *val = value_of(e->g, v);
    return axes_text(e, val->axis, val->rank);
}

uint64_t value_from(Elab *e, ValueId v)
{
    const Value *val = value_of(e->g, v);
    uint64_t from = 0;
    for (int i = 0; i < val->rank; i++)
        from |= e->dim_from[val->axis[i].i];
    return from;
}

static const char *list_text(Elab *e, Term t)
{
    Text s = text_new(e->arena);
    for (uint32_t i = 0; i < t.nitem; i++)
        text_add(&s, "%s%s", i ? ", " : "", term_text(e, t.item[i]));
    return arena_printf(e->arena, "[%s]", s.s);
}

/* The shortest decimal form that reads back to the same number, with a point or exponent. */
static const char *real_text(Elab *e, double f)
{
    char s[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, f);
        double back = 0;
        if (sscanf(s, "%lf", &back) == 1 && back >= f && back <= f)
            break;
    }
    return arena_printf(e->arena, "%s%s", s, strpbrk(s, ".en") ? "" : ".0");
}

const char *unit_text(UnitKind unit)
{
    static const char *const text[] = {[UNIT_BYTES] = " B", [UNIT_BYTES_PER_S] = " B/s", [UNIT_FLOP] = " FLOP",
                                       [UNIT_FLOP_PER_S] = " FLOP/s", [UNIT_SECONDS] = " s", [UNIT_FRACTION] = "", [UNIT_NUMBER] = ""};
    return text[unit];
}

const char *term_text(Elab *e, Term t)
{
    switch (t.kind) {
    case TERM_INT:      return arena_printf(e->arena, "%" PRId64, t.i);
    case TERM_REAL:     return real_text(e, t.f);
    case TERM_QUANTITY: return arena_printf(e->arena, "%s%s", real_text(e, t.f), unit_text((UnitKind)t.i));
    case TERM_BOOL:     return t.i ? "true" : "false";
    case TERM_STRING:   return arena_printf(e->arena, "\"%s\"", t.s);
    case TERM_DTYPE:    return dtype_name((DType)t.i);
    case TERM_NONE:     return "none";
    case TERM_AUTO:     return "auto";
    case TERM_DIM:      return arena_printf(e->arena, "%" PRId64, dim_of(e->g, t.dim)->extent);
    case TERM_TENSOR:
    case TERM_ROUTE:    return value_text(e, t.value);
    case TERM_LIST:
    case TERM_TUPLE:    return list_text(e, t);
    case TERM_INIT:     return "an initialiser";
    case TERM_POISON:
    case TERM_KINDS:    break;
    }
    return "nothing";
}

const char *term_describe(Elab *e, Term t)
{
    static const char *const form[TERM_KINDS] = {
        [TERM_INT] = "the number %s", [TERM_REAL] = "the number %s", [TERM_BOOL] = "the word %s",
        [TERM_STRING] = "the string %s", [TERM_DTYPE] = "the dtype %s", [TERM_NONE] = "the word %s",
        [TERM_AUTO] = "the word %s", [TERM_QUANTITY] = "the quantity %s", [TERM_TENSOR] = "a tensor %s",
        [TERM_ROUTE] = "a route %s", [TERM_LIST] = "a list of %s", [TERM_TUPLE] = "%s values", [TERM_INIT] = "%s",
    };
    if (t.kind == TERM_DIM)
        return arena_printf(e->arena, "the dim '%s' (%" PRId64 ")", dim_of(e->g, t.dim)->name, dim_of(e->g, t.dim)->extent);
    if (t.kind == TERM_LIST || t.kind == TERM_TUPLE)
        return arena_printf(e->arena, t.kind == TERM_LIST ? "a list of %u" : "%u values", t.nitem);
    const char *f = form[t.kind] ? form[t.kind] : "%s";
    const char *hole = strstr(f, "%s");
    return arena_printf(e->arena, "%.*s%s%s", (int)(hole - f), f, term_text(e, t), hole + 2);
}
