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
    {OWNER_device, NULL, "efficiency", FORM_curve, offsetof(Device, efficiency), 0.55, 0.75, 0.87},
    {OWNER_device, NULL, "efficiency.memory", FORM_curve, offsetof(Device, memory_efficiency), 0.5, 0.8, 0.95},
    {OWNER_device, NULL, "depth", FORM_number, offsetof(Device, depth), 64, 128, 256},
    {OWNER_device, NULL, "unaligned", FORM_number, offsetof(Device, unaligned), 0.05, 0.5, 1},
    {OWNER_level, "node", "efficiency", FORM_part, offsetof(Level, efficiency), 0.3, 0.75, 0.95},
    {OWNER_level, "pod", "efficiency", FORM_part, offsetof(Level, efficiency), 0.3, 0.75, 0.95},
    {OWNER_level, "pod", "latency", FORM_us, offsetof(Level, latency), 4e-6, 2e-5, 4e-4},
    {OWNER_profile, NULL, "slowdown.matmul", FORM_number, offsetof(Profile, slow_matmul), 1, 1.1, 1.5},
    {OWNER_profile, NULL, "slowdown.memory", FORM_number, offsetof(Profile, slow_memory), 1, 1.5, 4},
    {OWNER_profile, NULL, "issue", FORM_us, offsetof(Profile, issue), 5e-6, 1e-4, 3e-4},
    {OWNER_profile, NULL, "issue.rank", FORM_us, offsetof(Profile, issue_rank), 1e-6, 2e-4, 1e-3},
    {OWNER_profile, NULL, "message", FORM_us, offsetof(Profile, message), 1e-6, 1e-4, 2e-3},
    {OWNER_profile, NULL, "stall", FORM_us, offsetof(Profile, stall), 1e-6, 0.3, 2},
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

/* Rows of few say little: then only how fast its matmuls are is fitted.  Links of NVIDIA's own machines
 * are measured; those stay.  Rows tell but the product of what a GPU reaches and what a runtime makes of it: the
 * runtime with the fastest matmuls on a GPU is the measure of the others there, and its slowdown stays as it is, 1. */
enum { FEW = 10 };

static bool is_measure(const char *profile)
{
    return strcmp(profile, "deepspeed") == 0 || strcmp(profile, "nemo") == 0;
}

static bool is_fitted(const Key *k, const char *of, Case *const *cases, uint32_t n)
{
    uint32_t rows = 0;
    if (k->owner == OWNER_level && strncmp(of, "dgx_", 4) == 0)
        return false;
    if (strcmp(k->name, "slowdown.matmul") == 0 && is_measure(of))
        return false;
    for (uint32_t i = 0; i < n; i++)
        rows += base_of(cases[i], k) && strcmp(owner_of(cases[i], k), of) == 0;
    return rows >= FEW || (k->owner == OWNER_device && strcmp(k->name, "efficiency") == 0);
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
            const Profile *p = cases[i]->loaded.profile;
            bool moot = (strcmp(keys[k].name, "stall") == 0 && p->stall_above == 0) || (strncmp(keys[k].name, "issue", 5) == 0 && p->issue_rank == 0);
            if (!base_of(cases[i], &keys[k]) || moot || is_known(&out, k, of) || !is_fitted(&keys[k], of, cases, n))
                continue;
            Constant new = {k, of, value_in(cases[i], &keys[k])};
            PUSH(a, out.constant, out.n, new);
        }
    return out;
}

double constant_least(const Constant *k) { return keys[k->key].least; }

/* What a GPU's largest matmul was measured to reach (compute/accelerator/README.md of stas00/ml-engineering): 794.5 of an H100's
 * 989 TFLOP/s; an A100's 271 of 312 is the most in the table. */
double constant_most(const Constant *k)
{
    bool hopper = strcmp(keys[k->key].name, "efficiency") == 0 && keys[k->key].owner == OWNER_device && strcmp(k->of, "h100") == 0;
    return hopper ? 0.80 : keys[k->key].most;
}

double constant_start(const Constant *k) { return keys[k->key].start; }

const char *constant_name(Arena *a, const Constant *k)
{
    const Key *key = &keys[k->key];
    return arena_printf(a, "%s %s%s%s", k->of, key->level ? key->level : "", key->level ? "." : "", key->name);
}

/* ---- files ---- */

/* The value as it stands in a file: three digits, in the form of its key. */
static const char *value_text(Arena *a, const Constant *k)
{
    Form form = keys[k->key].form;
    if (form == FORM_us)
        return k->value < 1e-3 ? arena_printf(a, "%.3g us", k->value * 1e6) : arena_printf(a, "%.3g ms", k->value * 1e3);
    return arena_printf(a, k->value < 100 ? "%.3g" : "%.0f", k->value);
}

/* Where "NAME" followed by blanks and "=" begins in a line; NULL: nowhere. */
static char *find_setting(char *line, char *end, const char *name)
{
    size_t n = strlen(name);
    for (char *at = line; at + n < end; at++) {
        bool begins = at == line || strchr(" {,", at[-1]);
        if (begins && strncmp(at, name, n) == 0 && at[n + strspn(at + n, " ")] == '=')
            return at + n + strspn(at + n, " ") + 1 + strspn(at + n + strspn(at + n, " ") + 1, " ");
    }
    return NULL;
}

/* The number a value begins with, and its unit where it has one. */
static size_t value_length(const char *value)
{
    size_t n = strspn(value, "0123456789.e+-");
    for (const char *unit = "us\0ms\0s\0"; *unit; unit += strlen(unit) + 1)
        if (value[n] == ' ' && strncmp(value + n + 1, unit, strlen(unit)) == 0 && strchr(" ,}\n", value[n + 1 + strlen(unit)]))
            return n + 1 + strlen(unit);
    return n;
}

/* A curve's last fraction, all others in proportion. */
static void put_curve(Text *t, const char **from, double last)
{
    const char *end = strchr(*from, '\n'), *at = *from;
    double was = 1;
    for (const char *c = at; (c = strchr(c, ']')) && c < end; c++) {
        const char *number = c;
        while (number > at && strchr("0123456789.", number[-1]))
            number--;
        was = number < c ? strtod(number, NULL) : was;
    }
    while (at < end) {
        const char *close = strchr(at, ']'), *number = close;
        if (!close || close > end)
            break;
        while (number > at && strchr("0123456789.", number[-1]))
            number--;
        text_puts(t, at, (size_t)(number - at));
        if (number < close)
            text_add(t, "%.3g", strtod(number, NULL) * last / was);
        text_add(t, "]");
        at = close + 1;
    }
    *from = at;
}

static bool starts_item(const char *line, const Key *key, const char *of)
{
    static const char *const word[] = {[OWNER_device] = "device", [OWNER_level] = "cluster", [OWNER_profile] = "profile"};
    size_t n = strlen(word[key->owner]), m = strlen(of);
    return strncmp(line, word[key->owner], n) == 0 && line[n] == ' ' && strncmp(line + n + 1, of, m) == 0 && line[n + 1 + m] == ' ';
}

/* The file with its one value replaced; NULL: it has no such setting. */
static const char *replaced(Arena *a, const Constant *k, char *file)
{
    const Key *key = &keys[k->key];
    bool inside = false;
    for (char *line = file, *end; *line; line = end + 1) {
        end = line + strcspn(line, "\n");
        inside |= starts_item(line, key, k->of);
        bool here = inside && (key->owner != OWNER_level || strncmp(line + strspn(line, " "), arena_printf(a, "level %s ", key->level), strlen(key->level) + 7) == 0);
        char *value = here && line[0] != '#' ? find_setting(line, end, key->name) : NULL;
        if (inside && *line == '}')
            return NULL;
        if (!value && *end)
            continue;
        if (!value)
            return NULL;
        Text t = text_new(a);
        const char *rest = value;
        text_puts(&t, file, (size_t)(value - file));
        if (key->form == FORM_curve)
            put_curve(&t, &rest, k->value);
        else
            text_add(&t, "%s", value_text(a, k));
        text_add(&t, "%s", key->form == FORM_curve ? rest : rest + value_length(rest));
        return t.s;
    }
    return NULL;
}

/* The bundled file that declares a device, a cluster or a profile. */
static const char *file_of(Arena *a, const Constant *k, const char *models)
{
    static const char *const in[] = {"dgx_h100", "dgx_a100", "dgx_a100_40gb", "dgx1_v100", "dgx_h200", "dgx_b200", "gb200_nvl72"};
    if (keys[k->key].owner == OWNER_profile)
        return arena_printf(a, "%s/profiles/%s.pprofile", models, k->of);
    if (keys[k->key].owner == OWNER_level)
        return arena_printf(a, "%s/clusters/%s.pcluster", models, k->of);
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        const char *path = arena_printf(a, "%s/clusters/%s.pcluster", models, in[i]);
        size_t n;
        char *text = read_file(a, path, &n);
        if (text && strstr(text, arena_printf(a, "\ndevice %s ", k->of)))
            return path;
    }
    return NULL;
}

Status constant_write(Arena *a, const Constant *k, const char *models)
{
    const char *path = file_of(a, k, models), *new = NULL;
    size_t n;
    char *text = path ? read_file(a, path, &n) : NULL;
    if (text)
        new = replaced(a, k, text);
    if (!new) {
        fprintf(stderr, "error: cannot find '%s' in '%s'\n", constant_name(a, k), path ? path : models);
        return ERR_REJECT;
    }
    FILE *f = fopen(path, "w");
    bool written = f && fputs(new, f) >= 0;
    if (f && fclose(f) == 0 && written)
        return OK;
    fprintf(stderr, "error: cannot write '%s': %s\n", path, strerror(errno));
    return ERR_IO;
}
