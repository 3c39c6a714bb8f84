/* report: tables of errors. */
#include "bench/accuracy/report.h"

#include <math.h>
#include <string.h>

#include "bench/accuracy/stats.h"

bool row_is_reserved(const Row *r)
{
    return strncmp(r->source, "Korthikanti", strlen("Korthikanti")) == 0;
}

double result_time_error(const Result *r)
{
    return fabs(r->seconds - r->row->seconds) / r->row->seconds;
}

double result_memory_error(const Result *r)
{
    return fabs(r->gib - r->row->peak_gib) / r->row->peak_gib;
}

/* ---- groups ---- */

/* Whether a result is in a group; `name` NULL: all but the reserved. */
typedef bool InGroup(const Result *, const char *name);

static bool of_profile(const Result *r, const char *name)
{
    return !row_is_reserved(r->row) && strcmp(r->row->runtime->profile, name) == 0;
}

static bool of_gpu(const Result *r, const char *name)
{
    return !row_is_reserved(r->row) && strcmp(r->row->gpu, name) == 0;
}

static bool of_all(const Result *r, const char *name)
{
    (void)name;
    return !row_is_reserved(r->row);
}

static bool of_reserved(const Result *r, const char *name)
{
    (void)name;
    return row_is_reserved(r->row);
}

static bool same_model(const Row *a, const Row *b)
{
    return strcmp(a->runtime->profile, b->runtime->profile) == 0 && strcmp(a->model, b->model) == 0 && a->seq == b->seq && a->batch == b->batch;
}

/* Tau of the pairs within one runtime, model, sequence and batch. */
static double tau_within(Arena *a, const Result *const *r, uint32_t n, uint64_t *pairs)
{
    bool *seen = NEWN(a, bool, n + 1);
    double *x = NEWN(a, double, n + 1), *y = NEWN(a, double, n + 1), order = 0;
    *pairs = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;
        uint64_t here;
        for (uint32_t j = i; j < n && !seen[i]; j++)
            if (same_model(r[i]->row, r[j]->row)) {
                seen[j] = j != i;
                x[k] = r[j]->seconds;
                y[k++] = r[j]->row->seconds;
            }
        double tau = kendall_tau(x, y, k, &here);
        order += tau * (double)here;
        *pairs += here;
    }
    return *pairs ? order / (double)*pairs : 0;
}

static void print_time(FILE *f, Arena *a, const Results *rs, const char *title, InGroup *in, const char *name)
{
    const Result **r = NEWN(a, const Result *, rs->n + 1);
    double *error = NEWN(a, double, rs->n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < rs->n; i++)
        if (rs->result[i].row->seconds > 0 && rs->result[i].row->quality == 'A' && in(&rs->result[i], name)) {
            error[n] = result_time_error(&rs->result[i]);
            r[n++] = &rs->result[i];
        }
    if (n == 0)
        return;
    uint64_t pairs;
    double tau = tau_within(a, r, n, &pairs);
    Summary s = summary_of(error, n);
    fprintf(f, "%-28s %6u %8.1f %8.1f %8.1f %8.1f", title, s.n, s.median * 100, s.mean * 100, s.p95 * 100, s.most * 100);
    if (pairs)
        fprintf(f, " %8.3f (%llu pairs)\n", tau, (unsigned long long)pairs);
    else
        fprintf(f, "        -\n");
}

static void print_memory(FILE *f, Arena *a, const Results *rs, const char *title, InGroup *in, const char *name)
{
    double *error = NEWN(a, double, rs->n + 1);
    uint32_t n = 0, big = 0, ran = 0;
    for (uint32_t i = 0; i < rs->n; i++) {
        const Result *r = &rs->result[i];
        if (!row_is_used(r->row) || !in(r, name))
            continue;
        ran++;
        big += r->too_big;
        if (r->row->peak_gib > 0)
            error[n++] = result_memory_error(r);
    }
    if (ran == 0)
        return;
    Summary s = summary_of(error, n);
    fprintf(f, "%-28s %6u", title, n);
    if (n)
        fprintf(f, " %8.1f %8.1f %8.1f %8.1f", s.median * 100, s.mean * 100, s.p95 * 100, s.most * 100);
    else
        fprintf(f, " %8s %8s %8s %8s", "-", "-", "-", "-");
    fprintf(f, "   %u of %u (%.1f %%)\n", big, ran, 100.0 * big / ran);
}

typedef void PrintGroup(FILE *, Arena *, const Results *, const char *title, InGroup *, const char *name);

/* One line for each name that the results have, in the order they come. */
static void each_name(FILE *f, Arena *a, const Results *rs, PrintGroup *print, InGroup *in, bool gpu)
{
    for (uint32_t i = 0; i < rs->n; i++) {
        const char *name = gpu ? rs->result[i].row->gpu : rs->result[i].row->runtime->profile;
        bool before = row_is_reserved(rs->result[i].row);
        for (uint32_t k = 0; k < i && !before; k++)
            before = in(&rs->result[k], name);
        if (!before)
            print(f, a, rs, name, in, name);
    }
}

/* ---- what was refused ---- */

static void print_classes(FILE *f, const Rows *rows)
{
    static const char classes[] = "ABCM";
    uint32_t unknown = 0;
    fprintf(f, "%s: %u rows", rows->path, rows->nrow);
    for (uint32_t i = 0; i < rows->nrow; i++)
        unknown += !rows->row[i].quality;
    for (size_t k = 0; k + 1 < sizeof classes && rows->has_quality; k++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < rows->nrow; i++)
            n += rows->row[i].quality == classes[k];
        fprintf(f, ", class %c %u", classes[k], n);
    }
    if (rows->has_quality)
        fprintf(f, ", without a class %u; used: class A, and the memory of those without\n", unknown);
    else
        fprintf(f, "; no quality.csv knows them, all are used\n");
}

static void print_refused(FILE *f, const Rows *rows)
{
    uint32_t refused = 0, of = 0;
    for (uint32_t i = 0; i < rows->nrow; i++) {
        of += row_is_used(&rows->row[i]);
        refused += row_is_used(&rows->row[i]) && rows->row[i].refused;
    }
    fprintf(f, "refused %u of %u, used %u\n", refused, of, of - refused);
    for (uint32_t i = 0; i < rows->nrow; i++) {
        const Row *r = &rows->row[i];
        uint32_t n = 0, before = 0;
        for (uint32_t k = 0; k < rows->nrow && row_is_used(r) && r->refused; k++) {
            bool same = row_is_used(&rows->row[k]) && rows->row[k].refused && strcmp(rows->row[k].refused, r->refused) == 0;
            n += same;
            before += same && k < i;
        }
        if (n && !before)
            fprintf(f, "  %5u  %s\n", n, r->refused);
    }
}

/* ---- the whole ---- */

static void print_rows(FILE *f, const Results *rs)
{
    fprintf(f, "\nid,profile,gpu,gpus,dp,tp,pp,micro_batch,seconds,predicted,error_pct,gib,predicted_gib,error_pct\n");
    for (uint32_t i = 0; i < rs->n; i++) {
        const Result *r = &rs->result[i];
        const Row *w = r->row;
        fprintf(f, "%s,%s,%s,%lld,%lld,%lld,%lld,%lld,%.4g,%.4g,%.1f,", w->id, w->runtime->profile, w->gpu, (long long)w->gpus, (long long)w->dp,
                (long long)w->tp, (long long)w->pp, (long long)w->micro, w->seconds, r->seconds,
                w->seconds > 0 ? 100 * (r->seconds / w->seconds - 1) : 0);
        fprintf(f, "%.4g,%.4g,%.1f%s\n", w->peak_gib, r->gib, w->peak_gib > 0 ? 100 * (r->gib / w->peak_gib - 1) : 0,
                r->too_big ? ",too big" : "");
    }
}

void report_print(FILE *f, Arena *a, const Results *rs, bool each_row)
{
    print_classes(f, rs->rows);
    print_refused(f, rs->rows);
    fprintf(f, "\n%-28s %6s %8s %8s %8s %8s %8s\n", "step time, error in %", "rows", "median", "mean", "p95", "most", "tau");
    print_time(f, a, rs, "all", of_all, NULL);
    each_name(f, a, rs, print_time, of_profile, false);
    each_name(f, a, rs, print_time, of_gpu, true);
    print_time(f, a, rs, "Korthikanti, in no fit", of_reserved, NULL);
    fprintf(f, "\n%-28s %6s %8s %8s %8s %8s   %s\n", "peak memory, error in %", "rows", "median", "mean", "p95", "most", "ran, predicted too big");
    print_memory(f, a, rs, "all", of_all, NULL);
    each_name(f, a, rs, print_memory, of_profile, false);
    print_memory(f, a, rs, "Korthikanti, in no fit", of_reserved, NULL);
    if (each_row)
        print_rows(f, rs);
}
