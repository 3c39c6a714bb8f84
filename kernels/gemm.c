/* Matrices: the team cuts C into a grid of parts, and every worker calls the
 * provider on its part.  oneDNN would start an OpenMP team of its own, so each
 * thread that calls it first asks OpenMP for one thread; OpenBLAS is the serial
 * build, or, where the OpenMP build is installed, obeys the same request. */
#include <assert.h>
#include <cblas.h>
#include <dlfcn.h>
#include <limits.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

#include "kernels/kernel.h"

/* Parts are multiples of the providers' register tiles (AVX2: 4 x 24 in rows and
 * columns, AVX-512: 8 x 48), so no worker but the last has a ragged edge. */
enum { ROW_GRAIN = 8, COLUMN_GRAIN = 48 };

enum { BLAS_ROWS = 512 };             /* from here on oneDNN has enough rows */

/* BLAS counts in int. */
static bool fits_blas(const Gemm *g)
{
    return g->m <= INT_MAX && g->n <= INT_MAX && g->k <= INT_MAX && g->lda <= INT_MAX && g->ldb <= INT_MAX && g->ldc <= INT_MAX;
}

/* Tell the OpenMP runtime that the calling thread works alone.  The runtime is
 * the provider's, not ours: it is looked up, and where there is none (a provider
 * without threads) there is nothing to tell. */
static void work_alone(void)
{
    static _Thread_local bool told;
    if (told)
        return;
    told = true;
    union { void *object; void (*fn)(int); } set = {dlsym(RTLD_DEFAULT, "omp_set_num_threads")};
    if (set.object)
        set.fn(1);
}

typedef struct Job {
    const Gemm *g;
    const void *a, *b;
    void       *c;
    int         rows, columns;        /* of the grid of workers */
} Job;

/* A worker's part of C, as a gemm of its own on shifted operands. */
typedef struct Part { Gemm g; int64_t a, b, c; } Part;    /* offsets in elements */

static Part part_of(const Job *j, int worker)
{
    Part p = {.g = *j->g};
    int64_t i0, i1, j0, j1;
    team_part(j->g->m, ROW_GRAIN, worker / j->columns, j->rows, &i0, &i1);
    team_part(j->g->n, COLUMN_GRAIN, worker % j->columns, j->columns, &j0, &j1);
    p.g.m = i1 - i0;
    p.g.n = j1 - j0;
    p.a = j->g->ta ? i0 : i0 * j->g->lda;
    p.b = j->g->tb ? j0 * j->g->ldb : j0;
    p.c = i0 * j->g->ldc + j0;
    return p;
}

static int64_t part_size(int64_t n, int64_t grain, int parts)
{
    int64_t units = (n + grain - 1) / grain;
    return (units + parts - 1) / parts * grain;
}

/* The grid whose largest part is smallest; among equals, the one whose parts
 * read fewest rows of A and columns of B. */
static void choose_grid(Job *j, int nworker)
{
    double best = 0;
    for (int r = 1; r <= nworker; r++) {
        if (nworker % r != 0)
            continue;
        double m = (double)part_size(j->g->m, ROW_GRAIN, r);
        double n = (double)part_size(j->g->n, COLUMN_GRAIN, nworker / r);
        double cost = m * n * (double)j->g->k + (m + n) * (double)j->g->k;
        if (r == 1 || cost < best) {
            best = cost;
            j->rows = r;
            j->columns = nworker / r;
        }
    }
}

static void scale_f32(const Gemm *g, float *c)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            c[i * g->ldc + j] = g->beta == 0 ? 0 : (float)g->beta * c[i * g->ldc + j];
}

static void scale_f64(const Gemm *g, double *c)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            c[i * g->ldc + j] = g->beta == 0 ? 0 : g->beta * c[i * g->ldc + j];
}

/* With AVX2, oneDNN is slow where few rows meet a matrix of weights and OpenBLAS is
 * not (bench/peer_gemm, GPT-2 at 256 tokens: 1.0 to 1.4 times); at products of A
 * transposed, at many rows and with AVX-512 oneDNN is the faster one. */
static bool blas_wins(const Gemm *g)
{
    static _Thread_local Isa isa = ISA_REF;
    if (isa == ISA_REF)
        isa = isa_best();
    return isa == ISA_V3 && !g->ta && g->m < BLAS_ROWS && fits_blas(g);
}

static void part_f32(void *ctx, int worker, int nworker)
{
    (void)nworker;
    const Job *j = ctx;
    Part p = part_of(j, worker);
    const Gemm *g = &p.g;
    if (g->m == 0 || g->n == 0)
        return;
    float *c = (float *)j->c + p.c;
    if (g->k == 0) {
        scale_f32(g, c);
        return;
    }
    const float *a = (const float *)j->a + p.a, *b = (const float *)j->b + p.b;
    work_alone();
    if (blas_wins(g)) {
        cblas_sgemm(CblasRowMajor, g->ta ? CblasTrans : CblasNoTrans, g->tb ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n,
                    (int)g->k, (float)g->alpha, a, (int)g->lda, b, (int)g->ldb, (float)g->beta, c, (int)g->ldc);
        return;
    }
    dnnl_status_t s = dnnl_sgemm(g->ta ? 'T' : 'N', g->tb ? 'T' : 'N', g->m, g->n, g->k, (float)g->alpha,
                                 a, g->lda, b, g->ldb, (float)g->beta, c, g->ldc);
    assert(s == dnnl_success && "dnnl_sgemm rejected its arguments");
    (void)s;
}

static void part_f64(void *ctx, int worker, int nworker)
{
    (void)nworker;
    const Job *j = ctx;
    Part p = part_of(j, worker);
    const Gemm *g = &p.g;
    if (g->m == 0 || g->n == 0)
        return;
    double *c = (double *)j->c + p.c;
    if (g->k == 0) {
        scale_f64(g, c);
        return;
    }
    work_alone();
    assert(fits_blas(g));
    cblas_dgemm(CblasRowMajor, g->ta ? CblasTrans : CblasNoTrans, g->tb ? CblasTrans : CblasNoTrans,
                (int)g->m, (int)g->n, (int)g->k, g->alpha, (const double *)j->a + p.a, (int)g->lda,
                (const double *)j->b + p.b, (int)g->ldb, g->beta, c, (int)g->ldc);
}

static void run(Team *team, Job *j, TeamFn part)
{
    if (!team) {
        part(j, 0, 1);
        return;
    }
    choose_grid(j, team_size(team));
    team_run(team, part, j);
}

static void check(const Gemm *g)
{
    assert(g->m >= 0 && g->n >= 0 && g->k >= 0);
    assert(g->lda >= (g->ta ? g->m : g->k) && g->ldb >= (g->tb ? g->k : g->n) && g->ldc >= g->n);
    (void)g;
}

void gemm_f32(Team *team, const Gemm *g, const float *a, const float *b, float *c)
{
    check(g);
    Job j = {.g = g, .a = a, .b = b, .c = c, .rows = 1, .columns = 1};
    run(team, &j, part_f32);
}

void gemm_f64(Team *team, const Gemm *g, const double *a, const double *b, double *c)
{
    check(g);
    Job j = {.g = g, .a = a, .b = b, .c = c, .rows = 1, .columns = 1};
    run(team, &j, part_f64);
}

const char *gemm_providers(void)
{
    static _Thread_local char text[96];
    const dnnl_version_t *d = dnnl_version();
    char blas[32] = "?";
    sscanf(openblas_get_config(), "OpenBLAS %31s", blas);
    snprintf(text, sizeof text, "oneDNN %d.%d.%d (f32), OpenBLAS %s (f32, f64)", d->major, d->minor, d->patch, blas);
    return text;
}
