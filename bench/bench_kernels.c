/* The kernels of a GPT-2 124M training step, one by one, at their shapes.
 *
 *     bench_kernels [--seq N] [--threads N] [--rounds N]
 *
 * Prints per kernel: calls a step, milliseconds a call, GFLOP/s and GB/s, and, for
 * those that move memory, the part of the bandwidth that a plain copy by the same
 * team reaches in the same round (more than 1: it found its data in the cache).
 * The last line adds up a step.  Kernels take turns within a round and the median
 * of the rounds is printed, so that a neighbour on the machine meets all alike. */
#include <stdbool.h>
#include <time.h>

#include "tests/call.h"

enum { BATCH = 4, MOST_ROUNDS = 31, COPY = 1 << 25 };    /* COPY: floats copied to know the bandwidth */

/* A kernel of the step; flops: of one token, for attention also of one key. The
 * optimizer runs on STATES elements, which stand for all 124.4 million. */
typedef struct Step { const char *call, *extents; double calls, flops; } Step;

#define STATES 16000000
#define ALL    (124439808.0 / STATES)

static const Step steps[] = {
    {"embed: #bs vd -> bsd", "v=50257 d=768", 1, 0},
    {"add: bsd sd -> bsd", "d=768", 1, 0},
    {"add_layernorm: bsd bsd d d -> bsd bsd bs bs | eps=0.00001", "d=768", 25, 0},
    {"linear: bsk khe he -> bshe", "k=768 h=12 e=64", 36, 2.0 * 768 * 768},
    {"attention: bshe bthe bthe - - - -> bshe bsh | causal=true dropout=0.0", "h=12 e=64", 12, 2.0 * 768},
    {"linear: bshe hek k -> bsk", "k=768 h=12 e=64", 12, 2.0 * 768 * 768},
    {"linear_gelu: bsk kn n -> bsn bsn | exact=false", "k=768 n=3072", 12, 2.0 * 768 * 3072},
    {"linear: bsk kn n -> bsn", "k=3072 n=768", 12, 2.0 * 768 * 3072},
    {"contract: bsk vk -> bsv", "k=768 v=50257", 1, 2.0 * 768 * 50257},
    {"cross_entropy_both: bsv #bs +. - -> . bsv | smooth=0.0 seed=1.0", "v=50257", 1, 0},
    {"contract: bsv vk -> bsk", "k=768 v=50257", 1, 2.0 * 768 * 50257},
    {"contract: bsv bsk -> vk", "k=768 v=50257", 1, 2.0 * 768 * 50257},
    {"layernorm_grad: bsd bsd d bs +bs -> bsd d d", "d=768", 25, 0},
    {"contract: bsn kn -> bsk", "k=3072 n=768", 12, 2.0 * 768 * 3072},
    {"contract: bsk bsn -> kn", "k=3072 n=768", 12, 2.0 * 768 * 3072},
    {"gelu_grad: bsn bsn -> bsn | exact=false", "n=3072", 12, 0},
    {"contract: bsn kn -> bsk", "k=768 n=3072", 12, 2.0 * 768 * 3072},
    {"contract: bsk bsn -> kn", "k=768 n=3072", 12, 2.0 * 768 * 3072},
    {"reduce: bsn -> n | mean=false", "n=3072", 12, 0},
    {"attention_grad: bshe bshe bthe bthe bshe +bsh - - - -> bshe bthe bthe - | causal=true dropout=0.0", "h=12 e=64", 12, 5.0 * 768},
    {"contract: bshe khe -> bsk", "k=768 h=12 e=64", 48, 2.0 * 768 * 768},
    {"contract: bsk bshe -> khe", "k=768 h=12 e=64", 48, 2.0 * 768 * 768},
    {"reduce: bsn -> n | mean=false", "n=768", 60, 0},
    {"embed_grad: #bs bsd -> vd", "v=50257 d=768", 1, 0},
    {"reduce: bsd -> sd | mean=false", "d=768", 1, 0},
    {"sum_squares: n -> @.", "n=16000000", ALL, 0},
    {"adamw: n n n +n +. -> n n n | decays=true", "n=16000000", ALL, 0},
};
enum { NSTEP = sizeof steps / sizeof *steps };

typedef struct Options { int seq, threads, rounds; } Options;

/* With one thread the time is that of the thread: others on the machine do not count. */
static double now(const Team *team)
{
    struct timespec t;
    clock_gettime(team_size(team) == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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

/* One call of the step, in place where codegen would put it in place. */
static void make_step(Made *m, const Step *s, const Options *o, char *extents, size_t room)
{
    snprintf(extents, room, "b=%d s=%d t=%d %s", BATCH, o->seq, o->seq, s->extents);
    make_call(m, &(Case){s->call, extents, 1, 50257}, 1);
    if (m->in.op == OP_embed_grad)    /* into the gradient of the tied table, which the head has written */
        m->in.acc_out = 1;
    for (int i = 0; i < MAX_OUTS; i++) {
        free(m->start[i]);
        m->start[i] = NULL;
    }
    if (m->in.op != OP_adamw)
        return;
    const int from[3] = {0, 2, 3};
    for (int i = 0; i < 3; i++) {
        free(m->call.out[i]);
        m->call.out[i] = m->call.arg[from[i]];
    }
}

static void free_step(Made *m)
{
    for (int i = 0; m->in.op == OP_adamw && i < 3; i++)
        m->call.out[i] = NULL;
    free_call(m);
}

static double call_bytes(const Made *m)
{
    double bytes = 0;
    for (int i = 0; i < m->in.narg; i++)
        if (m->call.argt[i] && !(m->in.op == OP_embed && i == 1))
            bytes += (double)tensor_bytes(m->call.argt[i]);
    for (int i = 0; i < m->in.nout; i++)
        if (m->call.outt[i])
            bytes += (double)tensor_bytes(m->call.outt[i]);
    return bytes;
}

/* Seconds of one call: as many calls as take 20 ms, at least one. */
static double time_call(const Made *m, Kernel f)
{
    double start = now(m->call.team), seconds = 0;
    int calls = 0;
    while (seconds < 0.02) {
        f(&m->call);
        calls++;
        seconds = now(m->call.team) - start;
    }
    return seconds / calls;
}

typedef struct Copy { const float *from; float *to; } Copy;

static void copy_some(void *ctx, int worker, int nworker)
{
    const Copy *c = ctx;
    int64_t first, end;
    team_part(COPY, 64, worker, nworker, &first, &end);
    memcpy(c->to + first, c->from + first, sizeof *c->to * (size_t)(end - first));
}

static double copy_bandwidth(Team *team, Copy *c)
{
    double start = now(team);
    team_run(team, copy_some, c);
    return 2.0 * sizeof(float) * COPY / (now(team) - start);
}

static void *filled(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p) {
        fprintf(stderr, "bench_kernels: out of memory\n");
        exit(3);
    }
    return memset(p, 1, bytes);
}

/* Seconds of a step spent in this kernel. */
static double measure(const Step *s, const Options *o, Team *team, Copy *copy)
{
    char extents[128];
    double seconds[MOST_ROUNDS], part[MOST_ROUNDS];
    Made m;
    make_step(&m, s, o, extents, sizeof extents);
    m.call.team = team;
    Kernel f = kernel_find(m.in.op, DT_f32, isa_best());
    double bytes = call_bytes(&m), flops = s->flops * BATCH * o->seq;
    if (m.in.op == OP_attention || m.in.op == OP_attention_grad)
        flops *= o->seq;
    f(&m.call);
    for (int r = 0; r < o->rounds; r++) {
        double bandwidth = copy_bandwidth(team, copy);
        seconds[r] = time_call(&m, f);
        part[r] = bytes / seconds[r] / bandwidth;
    }
    double each = median(seconds, o->rounds);
    printf("%-19s %-28s %5.1f %9.3f %8.2f ", op_info[m.in.op].name, s->extents, s->calls, 1e3 * each, s->calls * 1e3 * each);
    if (flops > 0)
        printf("%7.1f GFLOP/s\n", flops / each * 1e-9);
    else
        printf("%7.1f GB/s, %4.2f of a copy\n", bytes / each * 1e-9, median(part, o->rounds));
    fflush(stdout);
    free_step(&m);
    return each * s->calls;
}

static bool read_options(int argc, char **argv, Options *o)
{
    const struct { const char *name; int *value; int most; } known[] = {
        {"--seq", &o->seq, 4096}, {"--threads", &o->threads, 256}, {"--rounds", &o->rounds, MOST_ROUNDS}};
    for (int i = 1; i < argc; i += 2) {
        int *value = NULL, most = 0;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (!strcmp(argv[i], known[k].name)) {
                value = known[k].value;
                most = known[k].most;
            }
        char *end = NULL;
        long v = value && i + 1 < argc ? strtol(argv[i + 1], &end, 10) : 0;
        if (!end || *end || v < 1 || v > most)
            return false;
        *value = (int)v;
    }
    return true;
}

int main(int argc, char **argv)
{
    Options o = {.seq = 64, .threads = 1, .rounds = 5};
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "usage: bench_kernels [--seq N] [--threads N] [--rounds 1..%d]\n", MOST_ROUNDS);
        return 2;
    }
    Team *team = team_new(o.threads);
    if (!team) {
        fprintf(stderr, "bench_kernels: cannot start %d threads\n", o.threads);
        return 3;
    }
    Copy copy = {filled(sizeof(float) * COPY), filled(sizeof(float) * COPY)};
    printf("batch %d, sequence %d, threads %d, %s; %s\n", BATCH, o.seq, o.threads, isa_name(isa_best()), gemm_providers());
    printf("%-19s %-28s %5s %9s %8s\n", "kernel", "extents", "calls", "ms/call", "ms/step");
    double step = 0, products = 0;
    for (int i = 0; i < NSTEP; i++) {
        double t = measure(&steps[i], &o, team, &copy);
        step += t;
        products += steps[i].flops > 1e5 ? t : 0;
    }
    printf("step: %.0f ms, of it %.0f ms matrix products\n", 1e3 * step, 1e3 * products);
    team_free(team);
    free((void *)(uintptr_t)copy.from);
    free(copy.to);
    return 0;
}
