/* Predictions against published measurements.
 *
 *     accuracy [--rows] [--commands] TABLE.csv ...
 *     accuracy --fit [--only PROFILES] [--write] [--cross] TABLE.csv
 *     accuracy --memory [--only PROFILES] TABLE.csv
 *
 * For each table: rows used, rows refused and why, errors of step time and of peak memory.  --rows prints each
 * row, --commands the command line of pplan that predicts it.  --fit refits constants to step times, and prints
 * them; --write puts them into the bundled files, --cross predicts rows with constants fitted to others. */
#include <malloc.h>
#include <string.h>
#include <unistd.h>

#include "bench/accuracy/case.h"
#include "bench/accuracy/layout.h"
#include "bench/accuracy/refit.h"
#include "bench/accuracy/report.h"

typedef struct Options { bool rows, commands, fit, memory, cross, write; const char *home, *only; } Options;

static bool is_wanted(const Row *r)
{
    return row_is_used(r) && !r->refused;
}

/* A row that cannot be lowered is refused with what the compiler says. */
static bool predict(Arena *a, Row *r, const Options *o, Result *out)
{
    const char *why, *models = arena_printf(a, "%s/models", o->home);
    Case c;
    if (o->commands) {
        Args args = layout_args(a, r, models);
        printf("%s: %s\n", r->id, layout_command(a, &args));
        fflush(stdout);
    }
    if (case_new(a, r, models, &c, &why) != OK) {
        r->refused = why;
        return false;
    }
    Arena *scratch = arena_new("scratch");
    Simulation sim;
    Prediction p = case_predict(&c, &sim, scratch);
    *out = (Result){r, p.seconds, (double)p.measured / (1 << 30), !p.fits};
    arena_free(scratch);
    case_free(&c);
    return true;
}

static Status table(const char *path, const Options *o)
{
    Arena *a = arena_new("accuracy");
    Rows rows;
    Status s = rows_read(a, path, arena_printf(a, "%s/runtimes.csv", o->home), &rows);
    if (s == OK && o->fit) {
        RefitOptions ro = {arena_printf(a, "%s/models", o->home), "models", o->only, o->cross, o->write, o->rows};
        s = o->memory ? refit_memory(a, &rows, &ro) : refit(a, &rows, &ro);
    } else if (s == OK) {
        Results rs = {.rows = &rows, .result = NEWN(a, Result, rows.nrow + 1)};
        for (uint32_t i = 0; i < rows.nrow; i++)
            if (is_wanted(&rows.row[i]))
                rs.n += predict(a, &rows.row[i], o, &rs.result[rs.n]);
        report_print(stdout, a, &rs, o->rows);
    }
    arena_free(a);
    return s;
}

/* An option, with its effect on the tables after it. */
static Status take_option(Options *o, char **argv, int argc, int *i)
{
    const struct { const char *name; bool *set; } switches[] = {{"--rows", &o->rows}, {"--commands", &o->commands}, {"--fit", &o->fit},
                                                                {"--memory", &o->memory}, {"--cross", &o->cross}, {"--write", &o->write}};
    for (size_t k = 0; k < sizeof switches / sizeof *switches; k++)
        if (strcmp(argv[*i], switches[k].name) == 0) {
            *switches[k].set = true;
            return OK;
        }
    if (strcmp(argv[*i], "--only") == 0 && *i + 1 < argc) {
        o->only = argv[++*i];
        return OK;
    }
    fprintf(stderr, "error: unknown option '%s'\nhelp: the options are --rows, --commands, --fit, --memory, --cross, --write, --only PROFILES\n", argv[*i]);
    return ERR_USAGE;
}

int main(int argc, char **argv)
{
    Options o = {.home = "bench/accuracy"};
    Status s = OK;
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    for (int i = 1; i < argc && s == OK; i++)
        s = argv[i][0] == '-' ? take_option(&o, argv, argc, &i) : table(argv[i], &o);
    return status_exit(s);
}
