/* Plug-ins: where they are looked for, and whether they fit. */
#include "runtime/plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#ifndef PPLAN_VERSION
#define PPLAN_VERSION "unknown"
#endif

/* The folder of this program; "." when the system does not tell. */
static const char *own_folder(Arena *a)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return ".";
    path[n] = 0;
    *strrchr(path, '/') = 0;
    return arena_strdup(a, path);
}

/* Folders in which a plug-in may lie: the one that was named, or else the two where an installation has it. */
static uint32_t folders(Arena *a, const char *folder[2])
{
    const char *named = getenv("PRUN_PLUGINS"), *own = own_folder(a);
    folder[0] = named ? named : own;
    folder[1] = arena_printf(a, "%s/../lib/prun", own);
    return named ? 1 : 2;
}

static const Plugin *fits(Arena *a, void *library, const char *path, const char **why)
{
    const Plugin *p = dlsym(library, "prun_plugin");
    if (p && p->abi == PLUGIN_ABI && strcmp(p->version, PPLAN_VERSION) == 0)
        return p;
    *why = arena_printf(a, "'%s' is not of this version of prun", path);
    return NULL;
}

const Plugin *plugin_load(Arena *a, const char *name, const char **why)
{
    const char *folder[2];
    uint32_t n = folders(a, folder);
    for (uint32_t i = 0; i < n; i++) {
        const char *path = arena_printf(a, "%s/libprun_%s.so", folder[i], name);
        if (access(path, F_OK) != 0)
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return fits(a, library, path, why);
        *why = arena_printf(a, "%s", dlerror());
        return NULL;
    }
    *why = arena_printf(a, "this prun came without libprun_%s.so", name);
    return NULL;
}

const Executor *plugin_find(Arena *a, const char *name, const char **why)
{
    const Plugin *p = plugin_load(a, name, why);
    return p ? p->executor : NULL;
}
