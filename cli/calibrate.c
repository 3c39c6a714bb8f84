/* Calibrate: measure, have the frontend read what was measured, format and write it. */
#include "cli/calibrate.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
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

/* Whoever reads the file must not meet a message: that would be our mistake. */
static void check_clusters(Arena *a, const char *name, const char *text)
{
    static const char *const clusters[] = {"this1", "crowd", "this"};
    Diags *ds = diags_new(sources_new(a));
    Units units = {0};
    Cluster *cluster;
    Status s = parse_text(ds, name, text, strlen(text), (IncludePath){0}, &units);
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters && s == OK; i++)
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

static Status check_device(const Args *args)
{
    const char *device = args_value(args, OPT_device);
    if (!device || strcmp(device, "cpu") == 0 || strcmp(device, "auto") == 0)
        return OK;
    fprintf(stderr, "error: --device '%s': this version measures 'cpu' (and 'auto', which takes it)\n", device);
    return ERR_USAGE;
}

static Status measure_to(Arena *a, const char *path, const char *version)
{
    Measured m;
    bool terminal = isatty(STDERR_FILENO);
    const MeasureOptions o = {.machine = machine_read(a), .seconds = SECONDS, .say = terminal ? say : NULL};
    if (strcmp(path, "-") != 0)
        TRY(folder_writable(a, path));
    Status s = measure_machine(a, &o, &m);
    if (terminal)
        clear_line();
    TRY(s);
    const char *text = formatted(a, path, measure_text(a, &m, version));
    check_clusters(a, path, text);
    return write_text(a, path, text);
}

Status calibrate(const Args *args, const char *version)
{
    TRY(check_device(args));
    const char *given = args_value(args, OPT_output);
    Arena *a = arena_new("calibrate");
    Status s = measure_to(a, given ? given : "-", version);
    arena_free(a);
    return s;
}
