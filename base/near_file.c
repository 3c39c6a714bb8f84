/* What is meant by a path that leads nowhere: one name of it misspelt. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/files.h"

/* Bytes before a name's ending, which is not what is misspelt. */
static size_t stem(const char *name)
{
    const char *point = strrchr(name, '.');
    return point ? (size_t)(point - name) : strlen(name);
}

static int by_name(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* The names in a folder, in order, without those that begin with a point. */
static const char **entries(Arena *a, const char *folder, uint32_t *n)
{
    const char **name = NULL;
    *n = 0;
    DIR *dir = opendir(*folder ? folder : ".");
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (d->d_name[0] != '.')
            PUSH(a, name, *n, arena_strdup(a, d->d_name));
    if (dir)
        closedir(dir);
    if (*n > 1)
        qsort(name, *n, sizeof *name, by_name);
    return name;
}

/* The entry nearest to a name: of the same ending, or of any where the name has none; else the same but
 * for its ending.  Of two that are as near, the first. */
static const char *near_entry(Arena *a, const char *folder, const char *name)
{
    uint32_t n, npool = 0;
    const char **all = entries(a, folder, &n), **pool = NEWN(a, const char *, n + 1), **of = NEWN(a, const char *, n + 1), *other = NULL;
    const char *ending = name + stem(name);
    for (uint32_t i = 0; i < n; i++) {
        size_t length = stem(all[i]);
        if (!*ending || strcmp(all[i] + length, ending) == 0) {
            of[npool] = all[i];
            pool[npool++] = arena_strndup(a, all[i], length);
        }
        if (!other && length == stem(name) && strncmp(all[i], name, length) == 0)
            other = all[i];
    }
    const char *near = nearest_name(arena_strndup(a, name, stem(name)), pool, npool);
    for (uint32_t i = 0; near && i < npool; i++)
        if (pool[i] == near)
            return of[i];
    return other;
}

/* The path with the first of its names that is not below `folder` replaced. */
static const char *near_below(Arena *a, const char *folder, const char *path)
{
    for (const char *name = path + strspn(path, "/"); *name;) {
        size_t n = strcspn(name, "/");
        const char *end = name + n;
        if (access(file_join(a, folder, arena_strndup(a, path, (size_t)(end - path))), F_OK) == 0) {
            name = end + strspn(end, "/");
            continue;
        }
        const char *above = arena_strndup(a, path, (size_t)(name - path));
        const char *near = near_entry(a, file_join(a, folder, above), arena_strndup(a, name, n));
        const char *whole = near ? arena_printf(a, "%s%s%s", above, near, end) : NULL;
        return whole && access(file_join(a, folder, whole), F_OK) == 0 ? whole : NULL;
    }
    return NULL;
}

const char *file_near(Arena *a, const char *path, const char *const *dir, uint32_t ndir)
{
    const char *near = NULL;
    if (path[0] == '/' || ndir == 0)
        return near_below(a, "", path);
    for (uint32_t i = 0; !near && i < ndir; i++)
        near = near_below(a, dir[i], path);
    return near;
}

const char *file_hint(Arena *a, const char *path, const char *const *dir, uint32_t ndir)
{
    const char *near = file_near(a, path, dir, ndir);
    return near ? arena_printf(a, "; did you mean '%s'?", near) : "";
}
