/* Device: see device.h. */
#include "cli/device.h"

#include <string.h>

#include "runtime/plugin.h"

/* Executors that are plug-ins, and the one for plans of GPUs. */
static const char *const plugins[] = {"cuda", "cudaemu"};
enum { NPLUGINS = sizeof plugins / sizeof *plugins };

/* An executor that has a device; NULL: there is none, and why. */
static const Executor *find(Arena *a, const char *name, const char **why)
{
    const Executor *e = strcmp(name, executor_cpu.name) == 0 ? &executor_cpu : plugin_find(a, name, why);
    const char *absent = e ? e->absent() : NULL;
    *why = absent ? absent : *why;
    return absent ? NULL : e;
}

static bool is_known(const char *name)
{
    bool known = strcmp(name, executor_cpu.name) == 0;
    for (int i = 0; i < NPLUGINS; i++)
        known = known || strcmp(name, plugins[i]) == 0;
    return known;
}

/* That of the plan's own kind, or else the cpu, which executes all plans. */
static const Executor *choose_itself(Arena *a, const Device *d, bool note)
{
    const char *why = NULL;
    const Executor *e = d->backend == BACKEND_CPU ? &executor_cpu : find(a, plugins[0], &why);
    if (!e && note)
        fprintf(stderr, "note: the plan is for device '%s', but there is no GPU to be had (%s): it runs on the cpu\n", d->name, why);
    return e ? e : &executor_cpu;
}

Status device_named(Arena *a, const char *asked, const Executor **out)
{
    const char *why = NULL;
    if (!is_known(asked)) {
        fprintf(stderr, "error: --device '%s': expected 'auto', 'cpu', 'cuda' or 'cudaemu'\n", asked);
        return ERR_USAGE;
    }
    *out = find(a, asked, &why);
    if (!*out)
        fprintf(stderr, "error: --device %s: %s\n", asked, why);
    return *out ? OK : ERR_DEVICE;
}

Status device_choose(Arena *a, const Args *args, const Device *d, bool note, const Executor **out)
{
    const char *asked = args_value(args, OPT_device);
    if (!asked || strcmp(asked, "auto") == 0) {
        *out = choose_itself(a, d, note);
        return OK;
    }
    TRY(device_named(a, asked, out));
    if (note && (*out == &executor_cpu) != (d->backend == BACKEND_CPU))
        fprintf(stderr, "note: the plan is for device '%s', and what it predicts of time and memory too; it runs on device %s\n", d->name, asked);
    return OK;
}

void device_print_all(void)
{
    Arena *a = arena_new("version");
    const char *why;
    printf("%s: %s\n", executor_cpu.name, executor_cpu.about(a));
    for (int i = 0; i < NPLUGINS; i++) {
        const Executor *e = plugin_find(a, plugins[i], &why);
        if (e)
            printf("%s: %s\n", e->name, e->about(a));
    }
    arena_free(a);
}
