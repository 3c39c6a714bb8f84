/* Matrices.  f32: the team cuts C into a grid of parts, and every worker calls the
 * provider on its part.  oneDNN would start an OpenMP team of its own, so each
 * thread that calls it first asks OpenMP for one thread; OpenBLAS is the serial
 * build, or, where the OpenMP build is installed, obeys the same request. */
#include <assert.h>
#include <cblas.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/status.h"
#include "kernels/cpu/cpu.h"
#include "kernels/gemm.h"

/* Parts are multiples of the providers' register tiles (AVX2: 4 x 24 in rows and
 * columns, ours 6 x 16, AVX-512: 8 x 48), so no worker but the last has a ragged edge. */
enum { ROW_GRAIN = 24, COLUMN_GRAIN = 48 };

/* Rows and depths worth the copies of multiply.c, and rows from which oneDNN does better. */
enum { OWN_ROWS = 48, OWN_END = 512, OWN_DEPTH = 32 };

/* Tell the OpenMP runtime that the calling thread works alone.  The runtime is
 * the provider's, not ours: it is looked up, and where there is none (a provider
 * without threads) there is nothing to tell. */
void work_alone(void)
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
    DType       type;                 /* of C, where it is not that of the product */
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

/* Where oneDNN is slow and ours is not: AVX2, up to a few hundred rows, and a matrix of
 * weights wider than it is deep (GPT-2 at 256 tokens, mlp.up forward and mlp.down's
 * input gradient: 1.2 to 1.4 times; bench/peer_gemm).  OpenBLAS would do as well, but
 * its serial build cannot be called by two threads at once. */
static bool own_wins(const Gemm *g)
{
    static _Thread_local Isa isa = ISA_REF;
    if (isa == ISA_REF)
        isa = isa_best();
    return isa == ISA_V3 && !g->ta && g->m >= OWN_ROWS && g->m < OWN_END && g->n > g->k && g->k >= OWN_DEPTH;
}

/* A product that was not made leaves old numbers in its place.  Its thread is not the only
 * one at work, so nothing is cleaned up. */
void gemm_made(dnnl_status_t s, const Gemm *g)
{
    if (s == dnnl_success)
        return;
    fprintf(stderr, "error: oneDNN cannot multiply [%lld, %lld] by [%lld, %lld]: %s\n", (long long)g->m, (long long)g->k, (long long)g->k,
            (long long)g->n, s == dnnl_out_of_memory ? "out of memory" : "it refuses");
    _exit(status_exit(ERR_DEVICE));
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
    if (own_wins(g)) {
        multiply_f32_v3(g, a, b, c);
        return;
    }
    work_alone();
    dnnl_status_t s = dnnl_sgemm(g->ta ? 'T' : 'N', g->tb ? 'T' : 'N', g->m, g->n, g->k, (float)g->alpha,
                                 a, g->lda, b, g->ldb, (float)g->beta, c, g->ldc);
    gemm_made(s, g);
}

static void part_bf16(void *ctx, int worker, int nworker)
{
    (void)nworker;
    const Job *j = ctx;
    Part p = part_of(j, worker);
    Reals c = reals_from((Reals){j->type, j->c}, p.c);
    if (p.g.m == 0 || p.g.n == 0)
        return;
    if (p.g.k > 0) {
        multiply_bf16(&p.g, (const Bf16 *)j->a + p.a, (const Bf16 *)j->b + p.b, c);
        return;
    }
    for (int64_t i = 0; i < p.g.m; i++)
        for (int64_t k = 0; k < p.g.n; k++)
            put(c, i * p.g.ldc + k, p.g.beta == 0 ? 0 : p.g.beta * get(c, i * p.g.ldc + k));
}

/* Debian's serial OpenBLAS has one packing buffer for the whole process and no lock
 * around it: two threads in dgemm at once get wrong numbers.  f64 serves tests, so
 * one thread at a time is fast enough. */
static pthread_mutex_t blas_lock = PTHREAD_MUTEX_INITIALIZER;

static void call_dgemm(const Gemm *g, const double *a, const double *b, double *c)
{
    assert(g->m <= INT_MAX && g->n <= INT_MAX && g->k <= INT_MAX && g->lda <= INT_MAX && g->ldb <= INT_MAX && g->ldc <= INT_MAX);
    work_alone();
    pthread_mutex_lock(&blas_lock);
    cblas_dgemm(CblasRowMajor, g->ta ? CblasTrans : CblasNoTrans, g->tb ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n,
                (int)g->k, g->alpha, a, (int)g->lda, b, (int)g->ldb, g->beta, c, (int)g->ldc);
    pthread_mutex_unlock(&blas_lock);
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

void gemm_bf16(Team *team, const Gemm *g, const Bf16 *a, const Bf16 *b, void *c, DType type)
{
    check(g);
    assert(g->alpha == 1 && (type == DT_bf16 || type == DT_f32));
    Job j = {.g = g, .a = a, .b = b, .c = c, .type = type, .rows = 1, .columns = 1};
    run(team, &j, part_bf16);
}

void gemm_f64(Team *team, const Gemm *g, const double *a, const double *b, double *c)
{
    (void)team;
    check(g);
    if (g->m == 0 || g->n == 0)
        return;
    if (g->k == 0)
        scale_f64(g, c);
    else
        call_dgemm(g, a, b, c);
}

const char *gemm_providers(void)
{
    static _Thread_local char text[96];
    const dnnl_version_t *d = dnnl_version();
    char blas[32] = "?";
    sscanf(openblas_get_config(), "OpenBLAS %31s", blas);
    snprintf(text, sizeof text, "oneDNN %d.%d.%d (f32, bf16), OpenBLAS %s (f64)", d->major, d->minor, d->patch, blas);
    return text;
}
