/* Settings: the optimizer's numbers that a run may replace. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/runtime.h"

typedef enum SettingType { SET_REAL, SET_COUNT, SET_DECAY } SettingType;
/* `kinds`: a bit per OptimizerKind that has it. */
typedef struct Setting { const char *name; unsigned kinds; SettingType type; size_t at; double least, below; } Setting;

/* Below, it would be zero in f32, and a weight without gradient would become 0 / 0. */
#define LEAST_EPS 1e-30
#define FIELD(f) offsetof(Optimizer, f)
enum { SGD = 1 << OPTIMIZER_SGD, ADAMW = 1 << OPTIMIZER_ADAMW, BOTH = SGD | ADAMW };
static const Setting settings[] = {
    {"lr", BOTH, SET_REAL, FIELD(lr), 0, 1e9},           {"beta1", ADAMW, SET_REAL, FIELD(beta1), 0, 1},
    {"beta2", ADAMW, SET_REAL, FIELD(beta2), 0, 1},      {"eps", ADAMW, SET_REAL, FIELD(eps), LEAST_EPS, 1e9},
    {"clip", BOTH, SET_REAL, FIELD(clip), 0, 1e300},     {"weight_decay", BOTH, SET_REAL, FIELD(weight_decay), 0, 1e9},
    {"min_lr", BOTH, SET_REAL, FIELD(min_lr), 0, 1e9},   {"momentum", SGD, SET_REAL, FIELD(momentum), 0, 1},
    {"warmup", BOTH, SET_COUNT, FIELD(warmup), 0, 1e15}, {"steps", BOTH, SET_COUNT, FIELD(steps), 0, 1e15},
    {"decay", BOTH, SET_DECAY, FIELD(decay), 0, 0},
};
enum { NSETTINGS = sizeof settings / sizeof *settings };

static Status bad(const char *text, const char *expected)
{
    fprintf(stderr, "error: --set '%s': expected %s\n", text, expected);
    return ERR_USAGE;
}

static Status unknown(const Optimizer *o, const char *text, size_t n)
{
    const char *pool[NSETTINGS];
    size_t npool = 0;
    for (size_t i = 0; i < NSETTINGS; i++)
        if (settings[i].kinds >> o->kind & 1)
            pool[npool++] = settings[i].name;
    char name[64] = "";
    memcpy(name, text, n < sizeof name ? n : sizeof name - 1);
    const char *near = nearest_name(name, pool, npool);
    fprintf(stderr, "error: --set '%s': optimizer %s has no setting '%s'%s%s%s\n", text,
            o->kind == OPTIMIZER_SGD ? "sgd" : "adamw", name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    fprintf(stderr, "note: its settings are ");
    for (size_t i = 0; i < npool; i++)
        fprintf(stderr, "%s%s", i ? ", " : "", pool[i]);
    fputc('\n', stderr);
    return ERR_USAGE;
}

static Status set_decay(Optimizer *o, const char *text, const char *value)
{
    static const char *const names[] = {"none", "cosine", "linear"};
    for (int i = 0; i < 3; i++)
        if (strcmp(value, names[i]) == 0) {
            o->decay = (DecayKind)i;
            return OK;
        }
    return bad(text, "'cosine', 'linear' or 'none'");
}

/* A decimal number: strtod() also reads other bases and names, and a number too
 * small to hold becomes zero. */
static bool read_decimal(const char *text, double *out)
{
    char *end;
    bool decimal = text[strspn(text, "0123456789.eE+-")] == 0;
    errno = 0;
    *out = strtod(text, &end);
    return decimal && *end == 0 && end != text && !(errno == ERANGE && fabs(*out) < 1);
}

static Status set_number(Optimizer *o, const Setting *s, const char *text, const char *value)
{
    double v;
    if (!read_decimal(value, &v) || !(v >= s->least && v < s->below) || (s->type == SET_COUNT && v != (double)(int64_t)v)) {
        char range[96];
        snprintf(range, sizeof range, "a %s of at least %g and below %g, in decimal", s->type == SET_COUNT ? "whole number" : "number",
                 s->least, s->below);
        return bad(text, range);
    }
    if (s->type == SET_COUNT)
        *(int64_t *)(void *)((char *)o + s->at) = (int64_t)v;
    else
        *(double *)(void *)((char *)o + s->at) = v;
    return OK;
}

static Status set_one(Optimizer *o, const char *text)
{
    size_t n = strcspn(text, "=");
    if (!text[n] || !n || !text[n + 1])
        return bad(text, "KEY=VALUE");
    for (size_t i = 0; i < NSETTINGS; i++) {
        const Setting *s = &settings[i];
        if (!(s->kinds >> o->kind & 1) || strlen(s->name) != n || strncmp(s->name, text, n) != 0)
            continue;
        return s->type == SET_DECAY ? set_decay(o, text, text + n + 1) : set_number(o, s, text, text + n + 1);
    }
    return unknown(o, text, n);
}

/* ---- settings that need one another ---- */

static const char *given(const char *const *set, uint32_t n, const char *name)
{
    size_t length = strlen(name);
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(set[i], name, length) == 0 && set[i][length] == '=')
            return set[i];
    return NULL;
}

static Status no_effect(const char *set, const char *why)
{
    fprintf(stderr, "error: --set '%s' has no effect: %s\n", set, why);
    return ERR_USAGE;
}

/* Without a decay, min_lr is no rate of the run, and `steps` only its length. */
static Status check_without_decay(const char *const *set, uint32_t n, bool steps_given)
{
    if (given(set, n, "min_lr"))
        return no_effect(given(set, n, "min_lr"), "the rate does not decay; set decay=cosine or decay=linear too");
    if (given(set, n, "steps") && steps_given)
        return no_effect(given(set, n, "steps"), "--steps has the length of the run, and the rate does not decay");
    return OK;
}

static Status check_decay(const Optimizer *o)
{
    if (o->min_lr <= o->lr)
        return OK;
    fprintf(stderr, "error: --set: min_lr (%g) is larger than lr (%g), so the rate would rise; set both\n", o->min_lr, o->lr);
    return ERR_USAGE;
}

Status settings_apply(Optimizer *o, const char *const *set, uint32_t n, bool steps_given)
{
    for (uint32_t i = 0; i < n; i++)
        TRY(set_one(o, set[i]));
    if (n == 0)
        return OK;
    return o->decay == DECAY_NONE ? check_without_decay(set, n, steps_given) : check_decay(o);
}
