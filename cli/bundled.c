/* Bundled: see bundled.h. */
#include "cli/bundled.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

const BundledKind bundled_models = {"", ".pmodel", true};
const BundledKind bundled_clusters = {"clusters", ".pcluster", false};
const BundledKind bundled_profiles = {"profiles", ".pprofile", false};

typedef struct Names { Arena *arena; const BundledKind *kind; const char **name; uint32_t n; } Names;

/* Names of folders have no point.  std/ has what models include, and no model. */
static bool is_below(const Names *x, const struct dirent *d)
{
    return x->kind->whole && !strchr(d->d_name, '.') && strcmp(d->d_name, "std") != 0;
}

/* below: the folders on the way, each with its '/'. */
static void add_folder(Names *x, const char *dir, const char *below)
{
    DIR *all = opendir(dir);
    size_t ending = strlen(x->kind->ending);
    for (struct dirent *d; all && (d = readdir(all));) {
        size_t n = strlen(d->d_name);
        if (is_below(x, d))
            add_folder(x, arena_printf(x->arena, "%s/%s", dir, d->d_name), arena_printf(x->arena, "%s%s/", below, d->d_name));
        else if (n > ending && strcmp(d->d_name + n - ending, x->kind->ending) == 0)
            PUSH(x->arena, x->name, x->n, arena_printf(x->arena, "%s%.*s", below, (int)(x->kind->whole ? n : n - ending), d->d_name));
    }
    if (all)
        closedir(all);
}

static int by_name(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

uint32_t bundled_names(Arena *a, const char *dir, const BundledKind *kind, const char ***out)
{
    Names x = {.arena = a, .kind = kind};
    add_folder(&x, arena_printf(a, "%s/%s", dir, kind->folder), "");
    if (x.n > 1)
        qsort(x.name, x.n, sizeof *x.name, by_name);
    *out = x.name;
    return x.n;
}
