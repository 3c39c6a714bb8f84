/* constants: the table, and where a case has each. */
#include "bench/accuracy/constants.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* How a value stands in its file. */
typedef enum Form { FORM_part, FORM_number, FORM_us, FORM_curve } Form;

typedef struct Key {
    Owner       owner;
    const char *level;                /* of a level */
    const char *name;                 /* as in the file */
    Form        form;
    size_t      offset;               /* of the double, or of the curve, in Device, Level or Profile */
    double      least, start, most;
} Key;

/* At most 8 of a GPU type with its links, at most 6 of a profile. */
static const Key keys[] = {
    {OWNER_device, NULL, "efficiency", FORM_curve, offsetof(Device, efficiency), 0.55, 0.75, 0.92},
    {OWNER_device, NULL, "efficiency.memory", FORM_curve, offsetof(Device, memory_efficiency), 0.5, 0.8, 0.95},
    {OWNER_device, NULL, "depth", FORM_number, offsetof(Device, depth), 64, 256, 1024},
    {OWNER_device, NULL, "launch", FORM_us, offsetof(Device, launch), 1e-6, 4e-6, 8e-6},
    {OWNER_level, "node", "efficiency", FORM_part, offsetof(Level, efficiency), 0.4, 0.75, 0.95},
    {OWNER_level, "pod", "efficiency", FORM_part, offsetof(Level, efficiency), 0.3, 0.75, 0.95},
    {OWNER_level, "pod", "latency", FORM_us, offsetof(Level, latency), 4e-6, 2e-5, 4e-4},
    {OWNER_profile, NULL, "slowdown.attention", FORM_number, offsetof(Profile, slow_attention), 1, 1.4, 2.5},
    {OWNER_profile, NULL, "slowdown.memory", FORM_number, offsetof(Profile, slow_memory), 1, 1.5, 4},
    {OWNER_profile, NULL, "issue", FORM_us, offsetof(Profile, issue), 1e-6, 1e-5, 1e-4},
    {OWNER_profile, NULL, "message", FORM_us, offsetof(Profile, message), 1e-6, 1e-4, 2e-3},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* ---- cases ---- */

static const char *owner_of(const Case *c, const Key *k)
{
    return k->owner == OWNER_device ? c->loaded.cluster->device[0].name : k->owner == OWNER_level ? c->loaded.cluster->name : c->loaded.profile->name;
}

static Level *level_of(const Case *c, const Key *k)
{
    for (uint32_t i = 0; i < c->loaded.cluster->nlevel; i++)
        if (strcmp(c->loaded.cluster->level[i].name, k->level) == 0)
            return &c->loaded.cluster->level[i];
    return NULL;
}

/* The struct a key lies in; NULL: the cluster has no such level. */
static char *base_of(const Case *c, const Key *k)
{
    if (k->owner == OWNER_device)
        return (char *)&c->loaded.cluster->device[0];
    return k->owner == OWNER_level ? (char *)level_of(c, k) : (char *)c->loaded.profile;
}

static double *double_at(char *base, const Key *k)
{
    return (double *)(void *)(base + k->offset);
}

static Curve *curve_at(char *base, const Key *k)
{
    return (Curve *)(void *)(base + k->offset);
}

static double value_in(const Case *c, const Key *k)
{
    char *base = base_of(c, k);
    if (k->form != FORM_curve)
        return *double_at(base, k);
    const Curve *curve = curve_at(base, k);
    return curve->npoint ? curve->point[curve->npoint - 1].fraction : 1;
}

bool constant_concerns(const Constant *k, const Case *c)
{
    return strcmp(owner_of(c, &keys[k->key]), k->of) == 0 && base_of(c, &keys[k->key]);
}

/* A curve keeps its form: all points go with the last. */
void constant_apply(const Constant *k, Case *c)
{
    const Key *key = &keys[k->key];
    char *base = base_of(c, key);
    if (key->form != FORM_curve) {
        *double_at(base, key) = k->value;
        return;
    }
    Curve *curve = curve_at(base, key);
    double part = k->value / value_in(c, key);
    for (uint32_t i = 0; i < curve->npoint; i++)
        curve->point[i].fraction *= part;
}

static bool is_known(const Constants *cs, uint32_t key, const char *of)
{
    for (uint32_t i = 0; i < cs->n; i++)
        if (cs->constant[i].key == key && strcmp(cs->constant[i].of, of) == 0)
            return true;
    return false;
}

Constants constants_of(Arena *a, Case *const *cases, uint32_t n)
{
    Constants out = {0};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < KEYS; k++) {
            const char *of = owner_of(cases[i], &keys[k]);
            if (!base_of(cases[i], &keys[k]) || is_known(&out, k, of))
                continue;
            Constant new = {k, of, value_in(cases[i], &keys[k])};
            PUSH(a, out.constant, out.n, new);
        }
    return out;
}

double constant_least(const Constant *k) { return keys[k->key].least; }
double constant_most(const Constant *k) { return keys[k->key].most; }
double constant_start(const Constant *k) { return keys[k->key].start; }

const char *constant_name(Arena *a, const Constant *k)
{
    const Key *key = &keys[k->key];
    return arena_printf(a, "%s %s%s%s", k->of, key->level ? key->level : "", key->level ? "." : "", key->name);
}

/* ---- files ---- */

Status constant_write(Arena *a, const Constant *k, const char *models)
{
    (void)a; (void)k; (void)models;
    return OK;
}
