/* Data: files of tokens and tensors, random numbers, order, batches. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/executor.h"

/* ---- a program with inputs, and memory for it ---- */

enum { SEQ = 4, VOCAB = 10, CLASSES_ = 7 };

typedef struct World {
    Arena  *a;
    Program p;
    Rank    rank;
    char    folder[64];
    char   *memory;
    FILE   *err;                      /* what was printed to stderr */
    int     saved_stderr;
} World;

static void add_input(World *w, const char *name, DType dtype, uint8_t rank, const int64_t *extent)
{
    Input in = {.name = name, .tensor = {w->p.ntensor - 1}, .dtype = dtype, .rank = rank};
    memcpy(in.extent, extent, sizeof *extent * rank);
    PUSH(w->a, w->p.input, w->p.ninput, in);
}

static TensorId add_tensor(World *w, const char *path, DType dtype, ValueRole role, uint8_t rank, const int64_t *extent)
{
    Program *p = &w->p;
    Tensor t = {.path = path, .buffer = {p->nbuffer}, .dtype = dtype, .rank = rank, .role = role};
    int64_t bytes = dtype_bytes(dtype);
    for (int i = 0; i < rank; i++) {
        bool cut = role == ROLE_INPUT && i == 0;
        t.axis[i] = (AxisPlace){.local = cut ? extent[i] / p->microbatches : extent[i], .global = extent[i], .per_micro = cut ? extent[i] / p->microbatches : 0};
        bytes *= t.axis[i].local;
    }
    bool input = role == ROLE_INPUT;
    Buffer b = {.name = path, .cls = input ? CLASS_inputs : CLASS_weights, .bytes = (bytes + 63) / 64 * 64, .slots = 1,
                .by_micro = input, .first = -1, .last = -1, .offset = p->map_bytes[0]};
    b.slots = input ? (uint32_t)p->microbatches : 1;
    p->map_bytes[0] += b.bytes * b.slots;
    PUSH(w->a, p->buffer, p->nbuffer, b);
    PUSH(w->a, p->tensor, p->ntensor, t);
    if (input)
        add_input(w, path, dtype, rank, extent);
    return (TensorId){p->ntensor - 1};
}

/* A language model: ids[batch, SEQ] into a table of VOCAB, labels into as many classes. */
static World *world_new(int64_t batch, int64_t micro, int64_t classes, bool ignore)
{
    World *w = calloc(1, sizeof *w);
    w->a = arena_new("test");
    w->p = (Program){.batch = batch, .microbatches = micro, .model = "m"};
    add_tensor(w, "ids", DT_i32, ROLE_INPUT, 2, (int64_t[]){batch, SEQ});
    add_tensor(w, "labels", DT_i32, ROLE_INPUT, 2, (int64_t[]){batch, SEQ});
    w->p.input[0].limit = (InputLimit){.of = "wte", .below = VOCAB};
    w->p.input[1].limit = (InputLimit){.label = true, .of = "logits", .below = classes, .ignores = ignore, .ignore = -100};
    return w;
}

static void world_ready(World *w)
{
    w->memory = calloc(1, (size_t)w->p.map_bytes[0]);
    w->rank = (Rank){.program = &w->p, .executor = &executor_cpu, .map = {.base = w->memory, .bytes = w->p.map_bytes[0]}};
    strcpy(w->folder, "/tmp/test_data.XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    w->err = tmpfile();
    fflush(stderr);
    w->saved_stderr = dup(STDERR_FILENO);
    dup2(fileno(w->err), STDERR_FILENO);
}

static void world_free(World *w)
{
    fflush(stderr);
    dup2(w->saved_stderr, STDERR_FILENO);
    close(w->saved_stderr);
    fclose(w->err);
    if (system(arena_printf(w->a, "rm -r %s", w->folder)) != 0)
        fail_msg("cannot remove %s", w->folder);
    free(w->memory);
    arena_free(w->a);
    free(w);
}

static void expect_said(World *w, const char *want)
{
    char said[2048];
    rewind(w->err);
    size_t n = fread(said, 1, sizeof said - 1, w->err);
    said[n] = 0;
    if (!strstr(said, want)) {
        dup2(w->saved_stderr, STDERR_FILENO);
        fail_msg("expected '%s' in '%s'", want, said);
    }
    rewind(w->err);
    if (ftruncate(fileno(w->err), 0) != 0)
        fail();
}

/* ---- files ---- */

static const char *write_file(World *w, const char *name, const void *data, size_t bytes)
{
    const char *path = arena_printf(w->a, "%s/%s", w->folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
    return path;
}

/* An llm.c file of 16- or 32-bit tokens. */
static size_t llmc(unsigned char *out, uint32_t magic, uint32_t version, uint32_t count, int width, int ntoken)
{
    uint32_t head[256] = {magic, version, count};
    memcpy(out, head, sizeof head);
    for (int i = 0; i < ntoken; i++) {
        uint32_t t = (uint32_t)i % VOCAB;
        memcpy(out + sizeof head + i * width, &t, (size_t)width);
    }
    return sizeof head + (size_t)(ntoken * width);
}

static Status open_one(World *w, const char *spec, Data **d)
{
    const char *list[1] = {spec};
    return data_open(w->a, &w->p, list, 1, 1, d);
}

static void refuse(World *w, const char *spec, const char *why)
{
    Data *d;
    assert_int_not_equal(open_one(w, spec, &d), OK);
    data_close(d);
    expect_said(w, why);
}

static int32_t *row_of(World *w, uint32_t input, int64_t row)
{
    int64_t rows = w->p.batch / w->p.microbatches;
    char *slot = rank_at(&w->rank, w->p.input[input].tensor, 0, (uint32_t)(row / rows));
    return (int32_t *)(void *)(slot + row % rows * SEQ * 4);
}

/* ---- tests ---- */

static void tokens_become_samples_and_labels(void **state)
{
    (void)state;
    static const char *const names[] = {"a.bin", "b.bin", "c.bin", "d.dat:u32", "e.txt"};
    unsigned char bytes[4096];
    for (int form = 0; form < 5; form++) {
        World *w = world_new(2, 1, VOCAB, false);
        world_ready(w);
        size_t n = 0;
        if (form == 0)
            n = llmc(bytes, 20240520, 1, 13, 2, 13);
        else if (form == 1)
            n = llmc(bytes, 20240801, 7, 13, 4, 13);
        else
            for (uint32_t i = 0; i < 13; i++, n += form == 2 ? 2 : form == 3 ? 4 : 1)
                memcpy(bytes + n, &(uint32_t){i % VOCAB}, 4);
        char *name = arena_strdup(w->a, names[form]);
        char *colon = strchr(name, ':');
        if (colon)
            *colon = 0;
        const char *path = write_file(w, name, bytes, n);
        Data *d;
        assert_int_equal(open_one(w, colon ? arena_printf(w->a, "%s:u32", path) : path, &d), OK);
        assert_int_equal(data_samples(d), 3);
        assert_int_equal(data_fill(d, &w->rank, 1, 2, 0, false), OK);
        for (int row = 0; row < 2; row++)
            for (int i = 0; i < SEQ; i++) {
                assert_int_equal(row_of(w, 0, row)[i], ((row + 1) * SEQ + i) % VOCAB);
                assert_int_equal(row_of(w, 1, row)[i], ((row + 1) * SEQ + i + 1) % VOCAB);
            }
        data_close(d);
        world_free(w);
    }
}

/* floor((T - 1) / S) samples of T tokens. */
static void K04_sample_counts(void **state)
{
    (void)state;
    static const struct { int tokens, samples; } cases[] = {{0, 0}, {1, 0}, {SEQ, 0}, {SEQ + 1, 1}, {2 * SEQ, 1}, {2 * SEQ + 1, 2}};
    static const char text[2 * SEQ + 1] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        World *w = world_new(2, 1, VOCAB, false);
        world_ready(w);
        const char *path = write_file(w, "x.txt", text, (size_t)cases[i].tokens);
        Data *d;
        Status s = open_one(w, path, &d);
        assert_int_equal(s, cases[i].samples ? OK : ERR_REJECT);
        if (s == OK)
            assert_int_equal(data_samples(d), cases[i].samples);
        else
            expect_said(w, arena_printf(w->a, "it has %d token%s, but one sample of 4 needs 5", cases[i].tokens, cases[i].tokens == 1 ? "" : "s"));
        data_close(d);
        world_free(w);
    }
}

static void K03_damaged_files(void **state)
{
    (void)state;
    World *w = world_new(2, 1, VOCAB, false);
    world_ready(w);
    unsigned char b[4096];
    size_t n = llmc(b, 20240520, 1, 13, 2, 13);
    refuse(w, write_file(w, "a.bin", b, n - 1), "so 1050 bytes in all, but it has 1049");
    refuse(w, write_file(w, "a.bin", b, n - 2), "so 1050 bytes in all, but it has 1048");
    refuse(w, write_file(w, "a.bin", b, n + 1), "so 1050 bytes in all, but it has 1051");
    refuse(w, write_file(w, "a.bin", b, 1024), "so 1050 bytes in all, but it has 1024");
    refuse(w, write_file(w, "a.bin", b, 600), "cut short in its header, bytes: found 600, expected 1024");
    refuse(w, write_file(w, "a.bin", b, 0), "it has 0 tokens");
    refuse(w, write_file(w, "a.bin", b + 1024, 25), "tokens of 2 bytes, but it has 25 bytes");
    refuse(w, arena_printf(w->a, "%s:u32", write_file(w, "a.raw", b + 1024, 26)), "tokens of 4 bytes, but it has 26 bytes");
    refuse(w, arena_printf(w->a, "%s:u16", write_file(w, "a.bin", b, n)), "leave away ':u16'");
    llmc(b, 20240520, 2, 13, 2, 13);
    refuse(w, write_file(w, "a.bin", b, n), "another version: found 2, expected 1");
    llmc(b, 20240519, 1, 13, 2, 13);
    refuse(w, write_file(w, "a.bin", b, n), "unknown magic: found 20240519, expected 20240520");
    llmc(b, __builtin_bswap32(20240520), 1, 13, 2, 13);
    refuse(w, write_file(w, "a.bin", b, n), "other byte order");
    refuse(w, "/tmp/no such file.bin", "cannot open '/tmp/no such file.bin': No such file");
    refuse(w, "/tmp", "not a regular file");
    world_free(w);
}

static void K01_ids_outside(void **state)
{
    (void)state;
    World *w = world_new(2, 1, CLASSES_, false);
    world_ready(w);
    unsigned char b[4096];
    size_t n = llmc(b, 20240520, 1, 13, 2, 6);
    for (int i = 6; i < 13; i++)
        memcpy(b + 1024 + 2 * i, &(uint16_t){1}, 2);
    n = 1024 + 26;
    memcpy(b + 1024 + 2 * 9, &(uint16_t){VOCAB}, 2);
    refuse(w, write_file(w, "a.bin", b, n), "byte 1042 (sample 2): 10 cannot be a number of 'ids': 'wte' has 10 rows, so it is 0..9");
    memcpy(b + 1024 + 2 * 9, &(uint16_t){CLASSES_}, 2);
    refuse(w, write_file(w, "a.bin", b, n), "byte 1042 (sample 2): 7 cannot be a label in 'labels': 'logits' has 7 classes, so it is 0..6");
    world_free(w);
}

static const char *write_tensor(World *w, const char *file, const char *name, DType dtype, const void *data, int64_t n, uint8_t rank)
{
    const char *path = arena_printf(w->a, "%s/%s", w->folder, file);
    STensor t = {.name = name, .dtype = dtype, .rank = rank, .extent = {n, SEQ}, .data = data,
                 .bytes = n * (rank > 1 ? SEQ : 1) * dtype_bytes(dtype)};
    assert_int_equal(sfile_write(w->a, path, &t, 1), OK);
    return path;
}

static Status open_two(World *w, const char *ids, const char *labels, Data **d)
{
    const char *list[2] = {arena_printf(w->a, "ids=%s", ids), arena_printf(w->a, "labels=%s", labels)};
    return data_open(w->a, &w->p, list, 2, 1, d);
}

/* The ignore label is accepted only as label. */
static void K01_ignored_labels(void **state)
{
    (void)state;
    World *w = world_new(2, 1, VOCAB, true);
    world_ready(w);
    int64_t plain[2 * SEQ] = {1, 2, 3, 4, 5, 6, 7, 8}, ignoring[2 * SEQ] = {1, -100, 3, 4, 5, 6, 7, -100};
    const char *good = write_tensor(w, "good.st", "ids", DT_i64, plain, 2, 2);
    const char *with = write_tensor(w, "with.st", "labels", DT_i64, ignoring, 2, 2);
    Data *d;
    assert_int_equal(open_two(w, good, with, &d), OK);
    assert_int_equal(data_fill(d, &w->rank, 0, 2, 0, false), OK);
    assert_int_equal(row_of(w, 1, 0)[1], -100);
    assert_int_equal(row_of(w, 0, 1)[3], 8);
    data_close(d);
    assert_int_equal(open_two(w, write_tensor(w, "ids.st", "ids", DT_i64, ignoring, 2, 2), with, &d), ERR_REJECT);
    data_close(d);
    expect_said(w, "(sample 0): -100 cannot be a number of 'ids'");
    ignoring[2] = -1;
    assert_int_equal(open_two(w, good, write_tensor(w, "bad.st", "labels", DT_i64, ignoring, 2, 2), &d), ERR_REJECT);
    data_close(d);
    expect_said(w, "-1 cannot be a label in 'labels': 'logits' has 10 classes, so it is 0..9 or -100, which is ignored");
    world_free(w);
}

static void tensors_must_fit(void **state)
{
    (void)state;
    World *w = world_new(2, 1, VOCAB, false);
    world_ready(w);
    int32_t v[3 * SEQ] = {0};
    const char *two = write_tensor(w, "two.st", "ids", DT_i32, v, 2, 2), *three = write_tensor(w, "three.st", "labels", DT_i32, v, 3, 2);
    Data *d;
    assert_int_equal(open_two(w, two, three, &d), ERR_REJECT);
    data_close(d);
    expect_said(w, arena_printf(w->a, "data file '%s' has only 2 samples of 'ids': there are 3 of 'labels' in '%s'", two, three));
    const char *one = write_tensor(w, "one.st", "labels", DT_i32, v, 1, 2);
    assert_int_equal(open_two(w, two, one, &d), ERR_REJECT);
    data_close(d);
    expect_said(w, arena_printf(w->a, "data file '%s' has only 1 samples of 'labels': there are 2 of 'ids' in '%s'", one, two));
    assert_int_equal(open_two(w, two, two, &d), ERR_REJECT);
    data_close(d);
    expect_said(w, "its tensor is named 'ids', but the input is 'labels': name it so");
    refuse(w, arena_printf(w->a, "ids=%s", two), "no data for input 'labels' beside 'ids=");
    refuse(w, arena_printf(w->a, "ids=%s", write_tensor(w, "f.st", "ids", DT_f32, v, 2, 2)), "tensor 'ids'[2, 4] : f32 does not fit input 'ids[2, 4] : i32'");
    refuse(w, arena_printf(w->a, "ids=%s", write_tensor(w, "r.st", "ids", DT_i32, v, 2, 1)), "does not fit input");
    const char *list[2] = {arena_printf(w->a, "ids=%s", two), arena_printf(w->a, "id=%s", two)};
    assert_int_equal(data_open(w->a, &w->p, list, 2, 1, &d), ERR_USAGE);
    data_close(d);
    expect_said(w, "the model has no input 'id', it has ids[2, 4] : i32, labels[2, 4] : i32; did you mean 'ids'?");
    list[1] = list[0];
    assert_int_equal(data_open(w->a, &w->p, list, 2, 1, &d), ERR_USAGE);
    data_close(d);
    expect_said(w, "given twice");
    world_free(w);
}

/* A file cut short under the run is an error, not a signal. */
static void a_file_may_change(void **state)
{
    (void)state;
    World *w = world_new(2, 1, VOCAB, false);
    world_ready(w);
    static const char text[41] = {1, 2, 3};
    const char *path = write_file(w, "x.txt", text, sizeof text);
    Data *d;
    assert_int_equal(open_one(w, path, &d), OK);
    assert_int_equal(truncate(path, 10), 0);
    assert_int_equal(data_fill(d, &w->rank, 8, 2, 0, false), ERR_IO);
    expect_said(w, "the file became shorter");
    write_file(w, "x.txt", "\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f\x0f", 9);
    assert_int_equal(data_fill(d, &w->rank, 0, 1, 0, false), ERR_REJECT);
    expect_said(w, "15 cannot be a number of 'ids'");
    data_close(d);
    world_free(w);
}

/* Every epoch is a permutation, epochs and seeds differ, and the order is a function
 * of the position alone. */
static void epochs_are_permutations(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 10, 64, 1000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        World *w = world_new(2, 1, VOCAB, false);
        world_ready(w);
        int n = sizes[k], moved = 0, differ = 0;
        char *text = arena_alloc(w->a, (size_t)(n * SEQ + 1));
        const char *path = write_file(w, "x.txt", text, (size_t)(n * SEQ + 1));
        Data *d, *other;
        assert_int_equal(open_one(w, path, &d), OK);
        const char *list[1] = {path};
        assert_int_equal(data_open(w->a, &w->p, list, 1, 2, &other), OK);
        for (int epoch = 0; epoch < 3; epoch++) {
            char *seen = arena_alloc(w->a, (size_t)n);
            for (int i = 0; i < n; i++) {
                int64_t s = data_sample_number(d, epoch * n + i, true);
                assert_in_range(s, 0, n - 1);
                assert_false(seen[s]++);
                moved += s != i;
                differ += s != data_sample_number(d, (epoch + 1) * n + i, true);
                differ += s != data_sample_number(other, epoch * n + i, true);
                assert_int_equal(data_sample_number(d, epoch * n + i, false), i);
            }
        }
        if (n >= 10) {
            assert_true(moved > 2 * n);
            assert_true(differ > 4 * n);
        }
        data_close(d);
        data_close(other);
        world_free(w);
    }
}

/* The same rows whatever the number of micro-batches, each in its slot. */
static void K06_batches_do_not_depend_on_micro_batches(void **state)
{
    (void)state;
    static char text[33 * SEQ + 1];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7 % VOCAB);
    int32_t want[8][2][SEQ];
    for (int64_t micro = 1; micro <= 8; micro *= 2) {
        World *w = world_new(8, micro, VOCAB, false);
        world_ready(w);
        Data *d;
        assert_int_equal(open_one(w, write_file(w, "x.txt", text, sizeof text), &d), OK);
        assert_int_equal(data_fill(d, &w->rank, 30, 8, 0, true), OK);
        for (int row = 0; row < 8; row++)
            for (uint32_t in = 0; in < 2; in++) {
                if (micro == 1)
                    memcpy(want[row][in], row_of(w, in, row), sizeof want[row][in]);
                assert_memory_equal(want[row][in], row_of(w, in, row), sizeof want[row][in]);
            }
        data_close(d);
        assert_int_equal(open_one(w, "random", &d), OK);
        assert_int_equal(data_samples(d), -1);
        assert_int_equal(data_fill(d, &w->rank, 5, 8, 0, true), OK);
        for (int i = 0; i < SEQ; i++)
            assert_in_range(row_of(w, 0, 7)[i], 0, VOCAB - 1);
        data_close(d);
        world_free(w);
    }
}

static void random_samples_are_functions_of_their_number(void **state)
{
    (void)state;
    World *w = world_new(8, 1, VOCAB, false);
    world_ready(w);
    Data *d;
    assert_int_equal(open_one(w, "random", &d), OK);
    assert_int_equal(data_fill(d, &w->rank, 100, 8, 0, true), OK);
    int32_t third[SEQ];
    memcpy(third, row_of(w, 0, 3), sizeof third);
    int same = 0, seen[VOCAB] = {0};
    for (int row = 0; row < 8; row++)
        same += memcmp(third, row_of(w, 0, row), sizeof third) == 0;
    assert_int_equal(same, 1);
    assert_int_equal(data_fill(d, &w->rank, 103, 1, 6, true), OK);
    assert_memory_equal(third, row_of(w, 0, 6), sizeof third);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(data_fill(d, &w->rank, i, 1, 0, true), OK);
        for (int e = 0; e < SEQ; e++)
            seen[row_of(w, 0, 0)[e]]++;
    }
    for (int v = 0; v < VOCAB; v++)
        assert_in_range(seen[v], 40, 120);           /* 80 expected, standard deviation 8.5 */
    data_close(d);
    world_free(w);
}

static void absent_rows_are_marked(void **state)
{
    (void)state;
    World *w = world_new(4, 2, VOCAB, false);
    world_ready(w);
    Data *d;
    assert_int_equal(open_one(w, "random", &d), OK);
    assert_int_equal(data_fill(d, &w->rank, 0, 4, 0, true), OK);
    int32_t before[SEQ];
    memcpy(before, row_of(w, 1, 0), sizeof before);
    data_pad(d, &w->rank, 3, 1);
    assert_memory_equal(before, row_of(w, 1, 0), sizeof before);
    for (int row = 1; row < 4; row++)
        for (int i = 0; i < SEQ; i++) {
            assert_int_equal(row_of(w, 0, row)[i], 0);
            assert_int_equal(row_of(w, 1, row)[i], LABEL_PAD);
        }
    data_close(d);
    world_free(w);
}

/* A model of images: floats widen, whole numbers of other widths are checked. */
static void floats_and_narrow_integers(void **state)
{
    (void)state;
    World *w = calloc(1, sizeof *w);
    w->a = arena_new("test");
    w->p = (Program){.batch = 2, .microbatches = 1, .model = "m"};
    add_tensor(w, "x", DT_f64, ROLE_INPUT, 2, (int64_t[]){2, SEQ});
    TensorId label = add_tensor(w, "label", DT_i64, ROLE_INPUT, 1, (int64_t[]){2});
    w->p.input[1].limit = (InputLimit){.label = true, .of = "logits", .below = 3};
    world_ready(w);
    float x[3 * SEQ];
    for (int i = 0; i < 3 * SEQ; i++)
        x[i] = (float)i + 0.1f;
    uint8_t y[3] = {2, 0, 1};
    const char *list[2] = {arena_printf(w->a, "x=%s", write_tensor(w, "x.st", "x", DT_f32, x, 3, 2)),
                           arena_printf(w->a, "label=%s", write_tensor(w, "y.st", "label", DT_u8, y, 3, 1))};
    Data *d;
    assert_int_equal(data_open(w->a, &w->p, list, 2, 1, &d), OK);
    assert_int_equal(data_fill(d, &w->rank, 1, 2, 0, false), OK);
    const double *got = rank_at(&w->rank, w->p.input[0].tensor, 0, 0);
    for (int i = 0; i < 2 * SEQ; i++)
        assert_true(got[i] == (double)x[SEQ + i]);
    const int64_t *labels = rank_at(&w->rank, label, 0, 0);
    assert_int_equal(labels[0], 0);
    assert_int_equal(labels[1], 1);
    data_close(d);
    y[1] = 3;
    write_tensor(w, "y.st", "label", DT_u8, y, 3, 1);
    assert_int_equal(data_open(w->a, &w->p, list, 2, 1, &d), ERR_REJECT);
    data_close(d);
    expect_said(w, "(sample 1): 3 cannot be a label in 'label'");
    refuse(w, write_file(w, "x.txt", "abc", 3), "serves a model with two integer inputs [batch, seq]; this one has x[2, 4] : f64, label[2] : i64");
    assert_int_equal(open_one(w, "random", &d), OK);
    assert_int_equal(data_fill(d, &w->rank, 0, 2, 0, false), OK);
    assert_true(got[0] != got[1]);
    data_close(d);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_become_samples_and_labels),
        cmocka_unit_test(K04_sample_counts),
        cmocka_unit_test(K03_damaged_files),
        cmocka_unit_test(K01_ids_outside),
        cmocka_unit_test(K01_ignored_labels),
        cmocka_unit_test(tensors_must_fit),
        cmocka_unit_test(a_file_may_change),
        cmocka_unit_test(epochs_are_permutations),
        cmocka_unit_test(K06_batches_do_not_depend_on_micro_batches),
        cmocka_unit_test(random_samples_are_functions_of_their_number),
        cmocka_unit_test(absent_rows_are_marked),
        cmocka_unit_test(floats_and_narrow_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
