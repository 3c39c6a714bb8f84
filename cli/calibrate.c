/* Calibrate: measure, have the frontend read what was measured, format and write it. */
#include "cli/calibrate.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "cli/device.h"
#include "frontend/frontend.h"
#include "runtime/measure/measure.h"
#include "runtime/runtime.h"

/* What all of it may take; the rounds of each part stop in time. */
static const double SECONDS = 46;

static void say(const char *what)
{
    fprintf(stderr, "\r\033[Kmeasuring: %s", what);
}

static void clear_line(void)
{
    fprintf(stderr, "\r\033[K");
}

/* Whoever reads the file must not meet a message: that would be our mistake.  Of devices it has one cluster. */
static void check_clusters(Arena *a, const char *name, const char *text, bool devices)
{
    static const char *const clusters[] = {NULL, "this1", "crowd", "this"};
    size_t n = devices ? 1 : sizeof clusters / sizeof *clusters;
    Diags *ds = diags_new(sources_new(a));
    Units units = {0};
    Cluster *cluster;
    Status s = parse_text(ds, name, text, strlen(text), (IncludePath){0}, &units);
    for (size_t i = 0; i < n && s == OK; i++)
        s = elaborate_cluster(ds, &units, clusters[i], NULL, 0, a, &cluster);
    bool silent = !ds->first;
    diags_flush(ds, stderr);
    assert(s == OK && silent && "the frontend objects to a file of ours");
    (void)silent;
}

static const char *formatted(Arena *a, const char *name, const char *text)
{
    Diags *ds = diags_new(sources_new(a));
    const char *out = format_source(a, ds, sources_add(ds->sources, name, text, strlen(text)));
    diags_flush(ds, stderr);
    assert(out && "a file of ours that cannot be formatted");
    return out;
}

/* Nobody who ends this process leaves a temporary file behind. */
static Status write_text(Arena *a, const char *path, const char *text)
{
    Writer w;
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    Status s = writer_open(a, &w, path);
    if (s == OK) {
        writer_put(&w, text, strlen(text));
        s = writer_close(&w);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return s;
}

/* No plan says what is wanted: 'auto' is the processor, which every machine has. */
static Status choose_device(Arena *a, const Args *args, const Executor **out)
{
    const char *asked = args_value(args, OPT_device);
    *out = &executor_cpu;
    return asked && strcmp(asked, "auto") != 0 ? device_named(a, asked, out) : OK;
}

static Status measure_to(Arena *a, const Executor *executor, const char *path, const char *version)
{
    Measured m;
    bool terminal = isatty(STDERR_FILENO);
    MeasureOptions o = {.seconds = SECONDS, .say = terminal ? say : NULL};
    if (strcmp(path, "-") != 0)
        TRY(folder_writable(a, path));
    TRY(machine_read(a, executor, &o.machine));
    Status s = measure_machine(a, &o, &m);
    if (terminal)
        clear_line();
    TRY(s);
    const char *text = formatted(a, path, measure_text(a, &m, version));
    check_clusters(a, path, text, o.machine.devices > 0);
    return write_text(a, path, text);
}

Status calibrate(const Args *args, const char *version)
{
    const char *given = args_value(args, OPT_output);
    const Executor *executor;
    Arena *a = arena_new("calibrate");
    Status s = choose_device(a, args, &executor);
    if (s == OK)
        s = measure_to(a, executor, given ? given : "-", version);
    arena_free(a);
    return s;
}
