/* Outputs: where a run writes, against all that it reads. */
#include <string.h>
#include <unistd.h>

#include "runtime/run.h"

static void use_data(Run *r, const char *what, const char *const *spec, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *file = data_spec_file(r->arena, r->program, spec[i]);
        if (file)
            file_uses_add(r->o->uses, USE_READ, what, file);
    }
}

static Status add_output(Run *r, const char *what, const char *path)
{
    if (r->o->save)
        TRY(checkpoint_refuse_inside(r->arena, r->o->save, what, path));
    file_uses_add(r->o->uses, USE_WRITE, what, path);
    return OK;
}

static Status add_dump(Run *r, const DumpSpec *d)
{
    const char *what = arena_printf(r->arena, "--dump %s@%lld", d->kind, (long long)d->step);
    if (strcmp(d->path, "-") == 0 && isatty(STDOUT_FILENO)) {
        fprintf(stderr, "error: %s '-': standard output is a terminal, and a dump is no text: send it to a file or a pipe\n", what);
        return ERR_USAGE;
    }
    return add_output(r, what, d->path);
}

Status run_check_files(Run *r)
{
    const RunOptions *o = r->o;
    use_data(r, "--data", o->data, o->ndata);
    use_data(r, "--eval", o->eval, o->neval);
    if (o->resume)
        checkpoint_uses(o->uses, o->save ? USE_KEEP : USE_READ, o->resume);
    if (o->save)
        checkpoint_uses(o->uses, USE_KEEP, o->save);
    if (o->log)
        TRY(add_output(r, "--log", o->log));
    if (o->trace)
        TRY(add_output(r, "--trace", o->trace));
    for (uint32_t i = 0; i < o->ndump; i++)
        TRY(add_dump(r, &o->dump[i]));
    return file_uses_check(o->uses);
}
