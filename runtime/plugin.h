#ifndef RUNTIME_PLUGIN_H
#define RUNTIME_PLUGIN_H
/* Plug-ins: executors, and what carries messages between machines, in libraries of their own, so that prun needs
 * none of a vendor's.
 *
 * A plug-in is built with prun, from the same version, and uses prun's own functions; it exports one thing, named below. */
#include "runtime/executor.h"

typedef struct Plugin {
    uint64_t        abi;              /* PLUGIN_ABI when it was built */
    const char     *version;
    const Executor *executor;         /* NULL: it has none, */
    const struct Net *net;            /* but this */
} Plugin;

/* Differs where the structs that both sides use do: a Plugin is looked at no further then. */
#define PLUGIN_ABI ((((uint64_t)sizeof(Rank) * 1009 + sizeof(Program)) * 1009 + sizeof(Instr)) * 1009 + sizeof(Executor))

extern const Plugin prun_plugin;

/* What libprun_NAME.so, in PRUN_PLUGINS, beside the program or in ../lib/prun of that, exports; NULL: why there is none, in *why. */
const Plugin *plugin_load(Arena *, const char *name, const char **why);
/* The executor called `name` in there. */
const Executor *plugin_find(Arena *, const char *name, const char **why);

#endif
