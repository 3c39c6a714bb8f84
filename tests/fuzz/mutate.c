/* The mutator: seeded edits of bytes and tokens, and the loop around a reader. */
#include "tests/fuzz/mutate.h"

#include <ctype.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* ---- random numbers: splitmix64 (Steele, Lea, Flood 2014) ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n)
{
    return n ? (size_t)(next_random(state) % n) : 0;
}

/* ---- a mutant being edited ---- */

typedef struct Mutant {
    char    *s;
    size_t   n;
    uint64_t random;
} Mutant;

typedef struct Range {
    size_t start, end;
} Range;

/* Replace a range by n bytes that are no part of the mutant, if they fit. */
static void replace(Mutant *m, Range r, const char *with, size_t n)
{
    size_t tail = m->n - r.end;
    if (r.start + n + tail > MUTANT_BYTES)
        return;
    memmove(m->s + r.start + n, m->s + r.end, tail);
    if (n)
        memcpy(m->s + r.start, with, n);
    m->n = r.start + n + tail;
}

/* The same with bytes of the mutant itself. */
static void replace_by_own(Mutant *m, Range r, Range own)
{
    char copy[MUTANT_BYTES];
    memcpy(copy, m->s + own.start, own.end - own.start);
    replace(m, r, copy, own.end - own.start);
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The token, or run of blanks, around an offset. */
static Range token_at(const char *s, size_t n, size_t at)
{
    Range r = {at, at + (at < n)};
    bool blank = at < n && s[at] == ' ';
    if (at >= n || !(blank || in_word(s[at])))
        return r;
    while (r.start > 0 && (blank ? s[r.start - 1] == ' ' : in_word(s[r.start - 1])))
        r.start--;
    while (r.end < n && (blank ? s[r.end] == ' ' : in_word(s[r.end])))
        r.end++;
    return r;
}

static Range some_token(Mutant *m)
{
    return token_at(m->s, m->n, below(&m->random, m->n));
}

/* A stretch of up to 64 bytes, sometimes of any length. */
static Range some_bytes(Mutant *m)
{
    size_t start = below(&m->random, m->n + 1), left = m->n - start;
    size_t most = below(&m->random, 8) == 0 ? left : left < 64 ? left : 64;
    return (Range){start, start + below(&m->random, most + 1)};
}

/* A line with its newline. */
static Range line_at(const char *s, size_t n, size_t at)
{
    Range r = {at, at};
    while (r.start > 0 && s[r.start - 1] != '\n')
        r.start--;
    while (r.end < n && s[r.end] != '\n')
        r.end++;
    r.end += r.end < n;
    return r;
}

static Range some_line(Mutant *m)
{
    return line_at(m->s, m->n, below(&m->random, m->n));
}

/* ---- edits ---- */

static void insert_at_some_place(Mutant *m, const char *s, size_t n)
{
    size_t at = below(&m->random, m->n + 1);
    if (below(&m->random, 2))
        at = token_at(m->s, m->n, at).start;
    replace(m, (Range){at, at}, s, n);
}

/* Swap two stretches that do not overlap. */
static void swap(Mutant *m, Range a, Range b)
{
    if (a.start > b.start) {
        Range t = a;
        a = b;
        b = t;
    }
    if (a.end > b.start)
        return;
    char copy[MUTANT_BYTES];
    size_t na = a.end - a.start, nb = b.end - b.start, between = b.start - a.end;
    memcpy(copy, m->s + b.start, nb);
    memcpy(copy + nb, m->s + a.end, between);
    memcpy(copy + nb + between, m->s + a.start, na);
    memcpy(m->s + a.start, copy, na + between + nb);
}

/* One token many times: what finds limits. */
static void repeat_token(Mutant *m)
{
    static const char *const gap[] = {"", " ", "\n"};
    Range r = some_token(m);
    char unit[64], many[MUTANT_BYTES];
    size_t n = 0, times = (size_t)1 << below(&m->random, 14);
    int len = snprintf(unit, sizeof unit, "%.*s%s", (int)(r.end - r.start > 40 ? 40 : r.end - r.start), m->s + r.start,
                       gap[below(&m->random, 3)]);
    for (size_t i = 0; len > 0 && i < times && n + (size_t)len <= sizeof many; i++, n += (size_t)len)
        memcpy(many + n, unit, (size_t)len);
    replace(m, (Range){r.start, r.start}, many, n);
}

static void insert_odd_bytes(Mutant *m)
{
    static const struct { const char *s; size_t n; } odd[] = {
        {"\0", 1}, {"\xff", 1}, {"\r\n", 2}, {"\r", 1}, {"\xef\xbb\xbf", 3}, {"\xe2\x82\xac", 3}, {"\"", 1}, {"#", 1},
        {"99999999999999999999", 20}, {"1e999", 5}, {"-1", 2}, {"0", 1}, {"4294967296", 10}, {"\x1b[31m", 5}, {"\\", 1},
        {"0.000000000000000000001", 23}, {"nan", 3}, {"%s%n", 4}, {"../", 3},
    };
    size_t k = below(&m->random, sizeof odd / sizeof *odd);
    insert_at_some_place(m, odd[k].s, odd[k].n);
}

/* The number at or after some place becomes another: what finds bounds. */
static void change_number(Mutant *m)
{
    static const char *const number[] = {"0", "1", "2", "3", "5", "8", "17", "64", "255", "256", "1000", "65536", "99999", "1000001",
                                         "2147483648", "4294967295", "4294967297", "1099511627776", "72057594037927936",
                                         "9223372036854775807", "0.5", "1e-9", "1e30"};
    size_t at = below(&m->random, m->n), k = below(&m->random, 2 * sizeof number / sizeof *number);
    while (at < m->n && !isdigit((unsigned char)m->s[at]))
        at++;
    Range r = {at, at};
    while (r.end < m->n && isdigit((unsigned char)m->s[r.end]))
        r.end++;
    if (r.start == r.end)
        return;
    char small[24];
    int n = snprintf(small, sizeof small, "%zu", below(&m->random, 16));
    if (k < sizeof number / sizeof *number)
        replace(m, r, number[k], strlen(number[k]));
    else
        replace(m, r, small, (size_t)n);
}

static void splice_line(Mutant *m, const FuzzText *file, size_t nfile)
{
    const FuzzText *from = &file[below(&m->random, nfile)];
    Range line = line_at(from->s, from->n, below(&m->random, from->n));
    size_t at = some_line(m).start;
    replace(m, (Range){at, at}, from->s + line.start, line.end - line.start);
}

static void splice(Mutant *m, const FuzzText *file, size_t nfile)
{
    const FuzzText *from = &file[below(&m->random, nfile)];
    if (!from->n)
        return;
    Range start = token_at(from->s, from->n, below(&m->random, from->n));
    size_t n = 1 + below(&m->random, below(&m->random, 4) ? 32 : 512);
    insert_at_some_place(m, from->s + start.start, n < from->n - start.start ? n : from->n - start.start);
}

static void insert_word(Mutant *m, const char *const *word, size_t nword, bool over)
{
    if (!nword)
        return;
    const char *w = word[below(&m->random, nword)];
    if (over)
        replace(m, some_token(m), w, strlen(w));
    else
        insert_at_some_place(m, w, strlen(w));
}

static void edit(Mutant *m, const FuzzText *file, size_t nfile, const char *const *word, size_t nword)
{
    char byte = (char)next_random(&m->random);
    size_t at = below(&m->random, m->n);
    switch (below(&m->random, 20)) {
    case 0: replace(m, some_bytes(m), "", 0); break;
    case 1: replace(m, some_token(m), "", 0); break;
    case 2: { Range r = some_bytes(m); replace_by_own(m, (Range){r.end, r.end}, r); break; }
    case 3: { Range r = some_token(m); replace_by_own(m, (Range){r.end, r.end}, r); break; }
    case 4: swap(m, some_bytes(m), some_bytes(m)); break;
    case 5: swap(m, some_token(m), some_token(m)); break;
    case 6: replace_by_own(m, some_token(m), some_token(m)); break;
    case 7: insert_word(m, word, nword, false); break;
    case 8: insert_word(m, word, nword, true); break;
    case 9: splice(m, file, nfile); break;
    case 10: if (m->n) m->s[at] = (char)(m->s[at] ^ 1 << below(&m->random, 8)); break;
    case 11: if (m->n) m->s[at] = byte; break;
    case 12: insert_odd_bytes(m); break;
    case 13: replace(m, some_line(m), "", 0); break;
    case 14: swap(m, some_line(m), some_line(m)); break;
    case 15: splice_line(m, file, nfile); break;
    case 16: case 17: case 18: change_number(m); break;
    default: if (below(&m->random, 4)) repeat_token(m); else m->n = below(&m->random, m->n + 1); break;
    }
}

size_t mutate(uint64_t seed, uint64_t round, const FuzzText *file, size_t nfile, const char *const *word, char *out)
{
    Mutant m = {.s = out, .random = seed * 0x100000001B3u + round};
    size_t nword = 0;
    while (word && word[nword])
        nword++;
    const FuzzText *base = &file[below(&m.random, nfile)];
    m.n = base->n < MUTANT_BYTES ? base->n : MUTANT_BYTES;
    memcpy(out, base->s, m.n);
    size_t edits = 1 + below(&m.random, below(&m.random, 4) ? 4 : 16);
    for (size_t i = 0; i < edits; i++)
        edit(&m, file, nfile, word, nword);
    out[m.n] = 0;
    return m.n;
}

/* ---- the loop ---- */

/* What a signal handler or a sanitizer's last words can say; the only state a
 * handler can reach. */
static struct {
    const char *program;
    unsigned long long seed, round, accepted;
} now;

/* Given by the sanitizers' runtime where there is one, */
extern void __sanitizer_set_death_callback(void (*)(void)) __attribute__((weak));
/* and what it asks for its settings: a case that holds a gigabyte is a mistake. */
const char *__asan_default_options(void);
/* What the other one finds shall end by a signal, as it does not ask for last words. */
const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
    return "hard_rss_limit_mb=1024:quarantine_size_mb=16";
}

const char *__ubsan_default_options(void)
{
    return "abort_on_error=1";
}

static void last_words(void)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%s: repeat with: -s %llu -r %llu\n", now.program, now.seed, now.round);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
        return;
}

static void on_signal(int number)
{
    static const char slow[] = "the case took too long\n", aborted[] = "the case failed an assertion\n";
    const char *text = number == SIGABRT ? aborted : slow;
    if (write(STDERR_FILENO, text, strlen(text)) >= 0)
        last_words();
    _exit(1);
}

static void set_limits(int computing, int waiting)
{
    struct itimerval limit = {.it_value = {.tv_sec = computing}};
    setitimer(ITIMER_PROF, &limit, NULL);
    alarm((unsigned)waiting);
}

/* Room for a mutant that ends where the allocation ends: reading on is caught. */
static int run_round(const Fuzz *f, const FuzzSeeds *seeds, char *room, int waiting)
{
    size_t n = mutate(now.seed, now.round, seeds->file, seeds->n, f->word, room);
    char *text = malloc(n + 1);
    if (!text)
        return 3;
    memcpy(text, room, n + 1);
    set_limits(CASE_SECONDS, waiting);
    const char *wrong = f->run(text, n);
    set_limits(0, 0);
    free(text);
    if (!wrong)
        return 0;
    dprintf(STDERR_FILENO, "%s\n", wrong);
    last_words();
    return 1;
}

void fuzz_accept(void)
{
    now.accepted++;
}

void fuzz_seed(FuzzSeeds *seeds, const void *bytes, size_t n)
{
    n = n < MUTANT_BYTES ? n : MUTANT_BYTES;
    FuzzText *more = realloc(seeds->file, (seeds->n + 1) * sizeof *more);
    char *copy = malloc(n + 1);
    if (!more || !copy)
        abort();
    memcpy(copy, bytes, n);
    seeds->file = more;
    seeds->file[seeds->n++] = (FuzzText){copy, n};
}

static void read_seed(FuzzSeeds *seeds, const char *path)
{
    char text[MUTANT_BYTES];
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "cannot read '%s'\n", path);
        return;
    }
    fuzz_seed(seeds, text, fread(text, 1, sizeof text, f));
    fclose(f);
}

/* The files of all patterns, in order. */
static void read_seeds(FuzzSeeds *seeds, char *const *pattern)
{
    for (; *pattern; pattern++) {
        glob_t found;
        if (glob(*pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t i = 0; i < found.gl_pathc; i++)
            read_seed(seeds, found.gl_pathv[i]);
        globfree(&found);
    }
}

static void free_seeds(FuzzSeeds *seeds)
{
    for (size_t i = 0; i < seeds->n; i++)
        free((char *)(uintptr_t)seeds->file[i].s);
    free(seeds->file);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_computed(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* How long to run: by the clock, or by what is computed, where the machine is busy
 * with other things or the program is stopped now and then. */
typedef struct Duration {
    double seconds;
    bool   computing;
} Duration;

static double passed(const Duration *d)
{
    return d->computing ? seconds_computed() : seconds_now();
}

static int run_rounds(const Fuzz *f, const FuzzSeeds *seeds, const Duration *d)
{
    char *room = malloc(MUTANT_BYTES + 1);
    int status = room ? 0 : 3;
    double slowest = 0;
    unsigned long long slow_round = 0;
    for (double end = passed(d) + d->seconds; status == 0 && passed(d) < end; now.round++) {
        double start = seconds_computed();
        status = run_round(f, seeds, room, d->computing ? 0 : WAIT_SECONDS);
        double took = seconds_computed() - start;
        if (took > slowest) {
            slowest = took;
            slow_round = now.round;
        }
    }
    if (status == 0 && now.accepted == 0) {
        printf("of %llu rounds on %zu seeds none was accepted: what they lead to was not tried\n", now.round, seeds->n);
        status = 1;
    } else if (status == 0)
        printf("%llu rounds on %zu seeds, %llu accepted; the slowest, %llu, took %.2f s\n", now.round, seeds->n, now.accepted,
               slow_round, slowest);
    free(room);
    return status;
}

/* One round, with what it says. */
static int show_round(const Fuzz *f, const FuzzSeeds *seeds)
{
    char *room = malloc(MUTANT_BYTES + 1);
    if (!room)
        return 3;
    fwrite(room, 1, mutate(now.seed, now.round, seeds->file, seeds->n, f->word, room), stdout);
    fflush(stdout);
    int status = run_round(f, seeds, room, WAIT_SECONDS);
    free(room);
    return status;
}

/* Rejected texts are reported on stderr, thousands a second; nobody wants to read
 * them.  Sanitizers write to its descriptor. */
static int run_quietly(const Fuzz *f, const FuzzSeeds *seeds, const Duration *d)
{
    FILE *saved = stderr, *nowhere = fopen("/dev/null", "w");
    if (!nowhere)
        return 3;
    stderr = nowhere;
    int status = run_rounds(f, seeds, d);
    stderr = saved;
    fclose(nowhere);
    return status;
}

static void catch_failures(void)
{
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(last_words);
    signal(SIGALRM, on_signal);
    signal(SIGPROF, on_signal);
    signal(SIGABRT, on_signal);
}

int fuzz_main(int argc, char **argv, const Fuzz *f)
{
    Duration d = {.seconds = 15};
    bool once = false;
    int option, status = 2;
    now.program = argv[0];
    now.seed = 1;
    while ((option = getopt(argc, argv, "t:c:s:r:")) != -1) {
        switch (option) {
        case 't': case 'c': d = (Duration){atof(optarg), option == 'c'}; break;
        case 's': now.seed = strtoull(optarg, NULL, 10); break;
        case 'r': now.round = strtoull(optarg, NULL, 10); once = true; break;
        default: fprintf(stderr, "usage: %s [-t SECONDS | -c SECONDS] [-s SEED] [-r ROUND] [FILE..]\n", argv[0]); return 2;
        }
    }
    FuzzSeeds seeds = {0};
    read_seeds(&seeds, optind < argc ? argv + optind : (char *const *)(uintptr_t)f->files);
    if (f->start)
        f->start(&seeds);
    catch_failures();
    if (!seeds.n)
        fprintf(stderr, "%s: no seed file\n", argv[0]);
    else
        status = once ? show_round(f, &seeds) : run_quietly(f, &seeds, &d);
    if (f->end)
        f->end();
    free_seeds(&seeds);
    return status;
}
