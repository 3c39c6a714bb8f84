/* refit: the fit's rows, its folds and its report. */
#include "bench/accuracy/refit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/accuracy/fit_memory.h"
#include "bench/accuracy/report.h"
#include "bench/accuracy/stats.h"

/* Rows for a fit of times, or of memory. */
static bool is_open(const Row *r, bool memory)
{
    bool measured = memory ? r->peak_gib > 0 && row_is_used(r) : r->seconds > 0 && r->quality == 'A';
    return !r->refused && measured && !row_is_reserved(r);
}

/* Lower all open rows; what the compiler refuses is left out, as in the report. */
static Case **lowered(Arena *a, Rows *rows, const char *models, const char *only, bool memory, uint32_t *n)
{
    Case **cases = NEWN(a, Case *, rows->nrow + 1);
    *n = 0;
    for (uint32_t i = 0; i < rows->nrow; i++) {
        Case *c = NEW(a, Case);
        if (is_open(&rows->row[i], memory) && (!only || strstr(only, rows->row[i].runtime->profile)) && case_new(a, &rows->row[i], models, c, &rows->row[i].refused) == OK)
            cases[(*n)++] = c;
    }
    return cases;
}

/* ---- errors ---- */

/* Of the cases of a profile (NULL: of all), with the seconds given. */
static void print_errors(const Fit *f, const double *seconds, const char *title, const char *profile)
{
    double *error = NEWN(f->arena, double, f->n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (!profile || strcmp(f->cases[i]->row->runtime->profile, profile) == 0)
            error[n++] = fabs(seconds[i] / f->cases[i]->row->seconds - 1);
    Summary s = summary_of(error, n);
    printf("  %-12s %-10s %5u rows   median %5.1f   mean %5.1f   p95 %5.1f   most %5.1f\n", title, profile ? profile : "all", s.n, s.median * 100,
           s.mean * 100, s.p95 * 100, s.most * 100);
}

static void print_all_errors(const Fit *f, const double *seconds, const char *title)
{
    print_errors(f, seconds, title, NULL);
    for (uint32_t i = 0; i < f->n; i++) {
        const char *profile = f->cases[i]->row->runtime->profile;
        bool before = false;
        for (uint32_t k = 0; k < i; k++)
            before |= strcmp(f->cases[k]->row->runtime->profile, profile) == 0;
        if (!before)
            print_errors(f, seconds, title, profile);
    }
    fflush(stdout);
}

static void print_constants(const Fit *f)
{
    printf("%-36s %10s   %s\n", "constant", "fitted", "physical range");
    for (uint32_t i = 0; i < f->constants.n; i++) {
        const Constant *k = &f->constants.constant[i];
        printf("%-36s %10.4g   %.4g to %.4g%s\n", constant_name(f->arena, k), k->value, constant_least(k), constant_most(k),
               k->value <= constant_least(k) || k->value >= constant_most(k) ? "  (at its end)" : "");
    }
}

/* ---- cross-validation ---- */

/* Each fold is predicted with constants fitted to the others, from the same start. */
static void cross_validate(Fit *f)
{
    double *seconds = NEWN(f->arena, double, f->n + 1);
    for (uint32_t fold = 0; fold < FOLDS; fold++) {
        for (uint32_t i = 0; i < f->n; i++)
            f->in[i] = fit_fold(f->cases[i]->row) != fold;
        fit_run(f, CROSS_ROUNDS);
        for (uint32_t i = 0; i < f->n; i++)
            if (!f->in[i])
                seconds[i] = fit_predict(f, i);
    }
    print_all_errors(f, seconds, "unseen");
}

Status refit(Arena *a, Rows *rows, const RefitOptions *o)
{
    uint32_t n;
    Case **cases = lowered(a, rows, o->models, o->only, false, &n);
    Fit f = fit_new(a, cases, n);
    printf("fitted to %u rows of class A; rows of Korthikanti et al. are in no fit\n\n", n);
    fit_run(&f, ROUNDS);
    print_constants(&f);
    printf("\nerror of step time in %%, after %llu predictions\n", (unsigned long long)f.tried);
    print_all_errors(&f, f.seconds, "fitted");
    Status s = OK;
    for (uint32_t i = 0; i < f.constants.n && o->write && s == OK; i++)
        s = constant_write(a, &f.constants.constant[i], o->bundled);
    fflush(stdout);
    if (o->cross)
        cross_validate(&f);
    for (uint32_t i = 0; i < n; i++)
        case_free(cases[i]);
    arena_free(f.scratch);
    return s;
}

Status refit_memory(Arena *a, Rows *rows, const RefitOptions *o)
{
    uint32_t n;
    Case **cases = lowered(a, rows, o->models, o->only, true, &n);
    Fit f = fit_new(a, cases, n);
    printf("memory fitted to %u rows\n", n);
    fit_memory(&f);
    for (uint32_t i = 0; i < n; i++)
        case_free(cases[i]);
    arena_free(f.scratch);
    return OK;
}
