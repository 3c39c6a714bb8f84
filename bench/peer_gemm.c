/* Our matrix multiplication and the installed ones on the shapes of a GPT-2 124M training step.
 *
 *     peer_gemm [--rows N] [--threads N] [--rounds N] [--ms N]
 *
 * Prints a JSON line {"op","m","n","k","rows","threads","provider","gflops"} per shape and provider.
 * Rows is the number of tokens a step (batch * seq). Providers take turns within a
 * round, and the median of the rounds is printed, so that a change of the clock or
 * a neighbour on the machine meets all of them alike. With several threads, OpenMP's
 * are told to sleep when they wait: they would keep the cores busy while another
 * provider has its turn. With one thread the time is
 * that of the thread, else that of the wall. Exit status 1 when two providers
 * disagree on a product: a fast wrong answer is no figure. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>

#include "kernels/kernel.h"

/* C[m, n] = op(A) * op(B), row-major; the letters say which operand is stored transposed. */
typedef struct Shape {
    const char *role;       /* what the product is in the training step */
    char        ta, tb;     /* 'N' or 'T' */
    int64_t     m, n, k;    /* 0 stands for the number of tokens */
} Shape;

/* x[rows, in] * w[in, out] forward is NN, its input gradient NT, its weight gradient TN;
 * the head multiplies by the transposed token table w[vocab, hidden]. */
static const Shape shapes[] = {
    {"attn.q forward",  'N', 'N', 0, 768, 768},    {"mlp.up forward",  'N', 'N', 0, 3072, 768},
    {"mlp.down forward", 'N', 'N', 0, 768, 3072},  {"attn.q dx",       'N', 'T', 0, 768, 768},
    {"mlp.up dx",       'N', 'T', 0, 768, 3072},   {"mlp.down dx",     'N', 'T', 0, 3072, 768},
    {"attn.q dw",       'T', 'N', 768, 768, 0},    {"mlp.up dw",       'T', 'N', 768, 3072, 0},
    {"mlp.down dw",     'T', 'N', 3072, 768, 0},   {"head forward",    'N', 'T', 0, 50257, 768},
    {"head dx",         'N', 'N', 0, 768, 50257},  {"head dw",         'T', 'N', 50257, 768, 0},
};
enum { NSHAPE = sizeof shapes / sizeof shapes[0], MAX_ROUNDS = 99 };

typedef struct Options {
    int rows, threads, rounds, ms;      /* ms: least time of one sample */
} Options;

/* One product, ready to be run by any provider. */
typedef struct Job {
    Shape            s;                 /* with the number of tokens filled in */
    Team            *team;              /* of our own product */
    const float     *a, *b;
    float           *c;
    dnnl_primitive_t matmul;            /* made once: creation is not timed, as in a training step */
    dnnl_stream_t    stream;
    dnnl_exec_arg_t  args[3];
} Job;

static int64_t lda(const Job *j) { return j->s.ta == 'N' ? j->s.k : j->s.m; }
static int64_t ldb(const Job *j) { return j->s.tb == 'N' ? j->s.n : j->s.k; }

static void check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "peer_gemm: %s failed with oneDNN status %d\n", what, (int)status);
    exit(3);
}

static void run_ours(const Job *j)
{
    const Gemm g = {.ta = j->s.ta == 'T', .tb = j->s.tb == 'T', .m = j->s.m, .n = j->s.n, .k = j->s.k,
                    .lda = lda(j), .ldb = ldb(j), .ldc = j->s.n, .alpha = 1.0, .beta = 0.0};
    gemm_f32(j->team, &g, j->a, j->b, j->c);
}

/* Our own product tells OpenMP that each thread of the team works alone; undo that for the others. */
static void use_openmp(int threads)
{
    union { void *object; void (*fn)(int); } set = {dlsym(RTLD_DEFAULT, "omp_set_num_threads")};
    if (set.object)
        set.fn(threads);
}

static void run_sgemm(const Job *j)
{
    check(dnnl_sgemm(j->s.ta, j->s.tb, j->s.m, j->s.n, j->s.k, 1.0F, j->a, lda(j), j->b, ldb(j), 0.0F, j->c, j->s.n), "dnnl_sgemm");
}

static void run_matmul(const Job *j)
{
    check(dnnl_primitive_execute(j->matmul, j->stream, 3, j->args), "matmul");
    check(dnnl_stream_wait(j->stream), "matmul");
}

static void run_openblas(const Job *j)
{
    cblas_sgemm(CblasRowMajor, j->s.ta == 'N' ? CblasNoTrans : CblasTrans, j->s.tb == 'N' ? CblasNoTrans : CblasTrans,
                (int)j->s.m, (int)j->s.n, (int)j->s.k, 1.0F, j->a, (int)lda(j), j->b, (int)ldb(j), 0.0F, j->c, (int)j->s.n);
}

typedef struct Provider {
    const char *name;
    void (*run)(const Job *);
    bool threaded;                      /* the serial OpenBLAS has one thread only */
} Provider;

static const Provider providers[] = {
    {"prun", run_ours, true},
    {"dnnl_sgemm", run_sgemm, true},
    {"dnnl_matmul", run_matmul, true},
    {"openblas", run_openblas, false},
};
enum { NPROVIDER = sizeof providers / sizeof providers[0] };

static void describe(dnnl_memory_desc_t *d, int64_t rows, int64_t cols, char stored)
{
    dnnl_dims_t dims = {rows, cols};
    check(dnnl_memory_desc_init_by_tag(d, 2, dims, dnnl_f32, stored == 'N' ? dnnl_ab : dnnl_ba), "memory descriptor");
}

static void make_matmul(Job *j, dnnl_engine_t engine)
{
    dnnl_memory_desc_t d[3];
    describe(&d[0], j->s.m, j->s.k, j->s.ta);
    describe(&d[1], j->s.k, j->s.n, j->s.tb);
    describe(&d[2], j->s.m, j->s.n, 'N');
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    check(dnnl_matmul_desc_init(&desc, &d[0], &d[1], NULL, &d[2]), "matmul descriptor");
    check(dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL), "matmul primitive descriptor");
    check(dnnl_primitive_create(&j->matmul, pd), "matmul primitive");
    check(dnnl_primitive_desc_destroy(pd), "matmul primitive descriptor");
    check(dnnl_stream_create(&j->stream, engine, dnnl_stream_default_flags), "stream");
    const int role[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    void *data[3] = {(void *)(uintptr_t)j->a, (void *)(uintptr_t)j->b, j->c};
    for (int i = 0; i < 3; i++) {
        j->args[i].arg = role[i];
        check(dnnl_memory_create(&j->args[i].memory, &d[i], engine, data[i]), "memory");
    }
}

static void free_matmul(Job *j)
{
    for (int i = 0; i < 3; i++)
        dnnl_memory_destroy(j->args[i].memory);
    dnnl_stream_destroy(j->stream);
    dnnl_primitive_destroy(j->matmul);
}

static double now(bool thread_time)
{
    struct timespec t;
    clock_gettime(thread_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double gflops_once(const Provider *p, const Job *j, const Options *o)
{
    const bool thread_time = o->threads == 1;
    use_openmp(p->run == run_ours ? 1 : o->threads);
    double start = now(thread_time), seconds = 0;
    int calls = 0;
    while (seconds < 1e-3 * o->ms) {
        p->run(j);
        calls++;
        seconds = now(thread_time) - start;
    }
    return 2e-9 * (double)j->s.m * (double)j->s.n * (double)j->s.k * calls / seconds;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof v[0], ascending);
    return 0.5 * (v[(n - 1) / 2] + v[n / 2]);
}

/* Two orders of summation differ by about eps * sqrt(k) times the sum's own size, sqrt(k / 9);
 * 16 times that leaves room for the largest of millions. A wrong element is off by the size itself. */
static bool agree(const float *x, const float *y, size_t n, int64_t k)
{
    const double allowed = 16.0 * 0x1p-24 * sqrt((double)k) * sqrt((double)k / 9.0);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - (double)y[i]) <= allowed))
            return false;
    return true;
}

/* Warms every provider (code is generated at the first call) and compares their results. */
static bool warm_and_compare(const Job *j, bool usable[NPROVIDER], int threads)
{
    const size_t n = (size_t)j->s.m * (size_t)j->s.n;
    float *first = malloc(n * sizeof *first);
    if (!first) {
        fprintf(stderr, "peer_gemm: out of memory\n");
        exit(3);
    }
    bool same = true;
    for (int p = 0; p < NPROVIDER; p++) {
        usable[p] = threads == 1 || providers[p].threaded;
        memset(j->c, 0xff, n * sizeof *first);      /* NaN: a provider that writes nothing is seen */
        use_openmp(providers[p].run == run_ours ? 1 : threads);
        if (usable[p])
            providers[p].run(j);
        if (p == 0)
            memcpy(first, j->c, n * sizeof *first);
        else if (usable[p] && !agree(first, j->c, n, j->s.k)) {
            fprintf(stderr, "peer_gemm: %s and %s disagree on %c%c %ldx%ldx%ld\n", providers[0].name, providers[p].name,
                    j->s.ta, j->s.tb, (long)j->s.m, (long)j->s.n, (long)j->s.k);
            same = false;
        }
    }
    free(first);
    return same;
}

static bool measure(Shape s, const Options *o, Team *team, dnnl_engine_t engine, float *pool[3])
{
    Job j = {.s = s, .team = team, .a = pool[0], .b = pool[1], .c = pool[2]};
    j.s.m = s.m ? s.m : o->rows;
    j.s.k = s.k ? s.k : o->rows;
    make_matmul(&j, engine);
    bool usable[NPROVIDER];
    const bool same = warm_and_compare(&j, usable, o->threads);
    double rate[NPROVIDER][MAX_ROUNDS];
    for (int r = 0; r < o->rounds; r++)
        for (int p = 0; p < NPROVIDER; p++)
            if (usable[p])
                rate[p][r] = gflops_once(&providers[p], &j, o);
    for (int p = 0; p < NPROVIDER; p++)
        if (usable[p])
            printf("{\"op\":\"%c%c\",\"m\":%ld,\"n\":%ld,\"k\":%ld,\"role\":\"%s\",\"rows\":%d,\"threads\":%d,\"provider\":\"%s\",\"gflops\":%.1f}\n",
                   s.ta, s.tb, (long)j.s.m, (long)j.s.n, (long)j.s.k, s.role, o->rows, o->threads, providers[p].name, median(rate[p], o->rounds));
    fflush(stdout);
    free_matmul(&j);
    return same;
}

static int usage(void)
{
    fprintf(stderr, "usage: peer_gemm [--rows N] [--threads N] [--rounds 1..%d] [--ms N]\n", MAX_ROUNDS);
    return 2;
}

static bool read_options(int argc, char **argv, Options *o)
{
    const struct { const char *name; int *value; int most; } known[] = {
        {"--rows", &o->rows, 65536}, {"--threads", &o->threads, 256}, {"--rounds", &o->rounds, MAX_ROUNDS}, {"--ms", &o->ms, 60000}};
    for (int i = 1; i < argc; i += 2) {
        int found = -1;
        for (int k = 0; k < 4; k++)
            if (!strcmp(argv[i], known[k].name))
                found = k;
        char *end = NULL;
        const long v = found >= 0 && i + 1 < argc ? strtol(argv[i + 1], &end, 10) : 0;
        if (!end || *end || v < 1 || v > known[found].most)
            return false;
        *known[found].value = (int)v;
    }
    return true;
}

/* Uniform in [-1, 1): the mean square of a product's term is 1/9, which `agree` uses,
 * if the operands are independent: each has a stream of its own. */
static float *random_floats(size_t n, uint64_t stream)
{
    float *v = malloc(n * sizeof *v);
    for (size_t i = 0; v && i < n; i++) {
        uint64_t z = (i + 1 + (stream << 48)) * 0x9E3779B97F4A7C15U;     /* splitmix64: rows must not resemble each other */
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
        v[i] = (float)(z >> 40) / 8388608.0F - 1.0F;
    }
    return v;
}

/* oneDNN takes its number of threads from OpenMP, which reads it at start. */
static void restart_with_threads(char **argv, int threads)
{
    char text[16];
    snprintf(text, sizeof text, "%d", threads);
    const char *now_set = getenv("OMP_NUM_THREADS");
    if (now_set && !strcmp(now_set, text) && !getenv("OPENBLAS_CORETYPE"))
        return;
    setenv("OMP_NUM_THREADS", text, 1);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    unsetenv("OPENBLAS_CORETYPE");      /* a host may set it to an older kind of core than it has */
    unsetenv("OPENBLAS_L2_SIZE");
    execv("/proc/self/exe", argv);
    perror("peer_gemm: restart");
    exit(3);
}

/* Operands for the largest shape; each shape uses their beginnings. */
static bool make_operands(const Options *o, float *pool[3])
{
    size_t most[3] = {0, 0, 0};
    for (int i = 0; i < NSHAPE; i++) {
        const size_t m = (size_t)(shapes[i].m ? shapes[i].m : o->rows), n = (size_t)shapes[i].n;
        const size_t k = (size_t)(shapes[i].k ? shapes[i].k : o->rows), need[3] = {m * k, k * n, m * n};
        for (int p = 0; p < 3; p++)
            most[p] = need[p] > most[p] ? need[p] : most[p];
    }
    for (int p = 0; p < 3; p++)
        if (!(pool[p] = random_floats(most[p], (uint64_t)p)))
            return false;
    return true;
}

int main(int argc, char **argv)
{
    Options o = {.rows = 256, .threads = 1, .rounds = 5, .ms = 60};
    if (!read_options(argc, argv, &o))
        return usage();
    restart_with_threads(argv, o.threads);
    float *pool[3];
    Team *team = team_new(o.threads);
    if (!team || !make_operands(&o, pool)) {
        fprintf(stderr, "peer_gemm: out of memory\n");
        return 3;
    }
    dnnl_engine_t engine;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    const dnnl_version_t *v = dnnl_version();
    printf("{\"providers\":\"oneDNN %d.%d.%d, %s\"}\n", v->major, v->minor, v->patch, openblas_get_config());
    bool same = true;
    for (int i = 0; i < NSHAPE; i++)
        same &= measure(shapes[i], &o, team, engine, pool);
    dnnl_engine_destroy(engine);
    team_free(team);
    for (int p = 0; p < 3; p++)
        free(pool[p]);
    return same ? 0 : 1;
}
