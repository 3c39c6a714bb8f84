/* entropy FILE: how predictable a text is to a model that knows only its
 * statistics, in nats per byte.
 *
 *   unigram   H(X)      = -sum p(b) ln p(b)
 *   bigram    H(X | Y)  = -sum p(a, b) ln p(b | a)      (Shannon 1951, F1 and F2)
 *
 * The probabilities are the file's own relative frequencies.  No order-1 model
 * can do better on this very text, even one fitted to it; so a language model
 * below the bigram line on held-out text has learned more than pairs. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct Counts {
    uint64_t pair[256][256];         /* pair[a][b]: how often b follows a */
    uint64_t byte[256];
    uint64_t bytes;
} Counts;

static void count_file(Counts *c, FILE *f)
{
    int last = EOF;
    for (int now = getc(f); now != EOF; now = getc(f)) {
        c->byte[now]++;
        c->bytes++;
        if (last != EOF)
            c->pair[last][now]++;
        last = now;
    }
}

/* Sum of n * ln(n / total) over the 256 counts: minus the nats of that distribution. */
static double weighted_log(const uint64_t *n, uint64_t total)
{
    double sum = 0;
    for (int i = 0; i < 256; i++)
        if (n[i])
            sum += (double)n[i] * log((double)n[i] / (double)total);
    return sum;
}

static double unigram(const Counts *c)
{
    return 0 - weighted_log(c->byte, c->bytes) / (double)c->bytes;
}

static double bigram(const Counts *c)
{
    double sum = 0;
    for (int a = 0; a < 256; a++) {
        uint64_t total = 0;
        for (int b = 0; b < 256; b++)
            total += c->pair[a][b];
        if (total)
            sum += weighted_log(c->pair[a], total);
    }
    return 0 - sum / (double)(c->bytes - 1);     /* 0 - 0 is 0, where -0.0 would print a sign */
}

int main(int argc, char **argv)
{
    Counts counts = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: entropy FILE\n");
        return 2;
    }
    FILE *f = fopen(argv[1], "rb");
    if (!f) {
        fprintf(stderr, "error: cannot read '%s': %s\n", argv[1], strerror(errno));
        return 3;
    }
    count_file(&counts, f);
    int failed = ferror(f);
    fclose(f);
    if (failed || counts.bytes < 2) {
        fprintf(stderr, "error: '%s' has %s\n", argv[1], failed ? "a read error" : "fewer than two bytes");
        return failed ? 3 : 1;
    }
    printf("bytes %llu\n", (unsigned long long)counts.bytes);
    printf("unigram %.4f\n", unigram(&counts));
    printf("bigram %.4f\n", bigram(&counts));
    return 0;
}
