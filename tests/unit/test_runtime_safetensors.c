/* safetensors: what is written reads back; whatever is wrong with a file is refused. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime.h"

static char path[64];

static void reads_back(void **state)
{
    (void)state;
    Arena *a = arena_new("test");
    double x[6] = {1, 2, 3, 4, 5, 6};
    int8_t y[3] = {-1, 0, 1};
    STensor t[3] = {{"a/\"quoted\"", DT_f64, 2, {2, 3}, x, 48}, {"b", DT_i8, 1, {3}, y, 3}, {"scalar", DT_f64, 0, {0}, x, 8}};
    assert_int_equal(sfile_write(a, path, t, 3), OK);
    SFile f;
    assert_int_equal(sfile_open(a, path, &f), OK);
    assert_int_equal(f.ntensor, 3);
    for (int i = 0; i < 3; i++) {
        const STensor *got = sfile_find(&f, t[i].name);
        assert_non_null(got);
        assert_int_equal(got->dtype, t[i].dtype);
        assert_int_equal(got->rank, t[i].rank);
        assert_int_equal(got->bytes, t[i].bytes);
        assert_memory_equal(got->data, t[i].data, (size_t)t[i].bytes);
    }
    assert_null(sfile_find(&f, "c"));
    sfile_close(&f);
    unlink(path);
    arena_free(a);
}

static Status open_text(Arena *a, const char *header, uint64_t length, size_t data)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(&length, 8, 1, file);
    fputs(header, file);
    for (size_t i = 0; i < data; i++)
        fputc(0, file);
    fclose(file);
    SFile f;
    Status s = sfile_open(a, path, &f);
    if (s == OK)
        sfile_close(&f);
    unlink(path);
    return s;
}

#define HALF(name, from, to) "\"" name "\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [" #from ", " #to "]}"

static void wrong_files(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "[]", "{", "{\"x\": 1}", "{\"x\": {}}",
        "{\"x\": {\"dtype\": \"F99\", \"shape\": [2], \"data_offsets\": [0, 8]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [3], \"data_offsets\": [0, 8]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [-2], \"data_offsets\": [0, 8]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [2.0], \"data_offsets\": [0, 8]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [4, 12]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [8, 0]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [-8, 0]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [4294967296, 4294967296, 4294967296], \"data_offsets\": [0, 0]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [1, 1, 1, 1, 1, 1, 1, 1, 2], \"data_offsets\": [0, 8]}}",
        /* Two tensors that overlap, leave a gap, are one, or do not fill the file. */
        "{" HALF("x", 0, 4) ", " HALF("y", 0, 4) "}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, " HALF("y", 4, 8) "}",
        "{" HALF("x", 4, 8) "}",
        "{" HALF("x", 0, 4) "}",
        "{}",
        "{" HALF("x", 0, 4) ", \"y\": {\"dtype\": \"I8\", \"shape\": [2], \"data_offsets\": [6, 8]}}",
        "{\"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, \"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}",
    };
    Arena *a = arena_new("test");
    FILE *sink = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(sink), STDERR_FILENO);
    Status got[sizeof bad / sizeof *bad];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        got[i] = open_text(a, bad[i], strlen(bad[i]), 8);
    const char *good = "{\"__metadata__\": {\"k\": \"v\"}, \"x\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}";
    Status fine = open_text(a, good, strlen(good), 8), longer = open_text(a, good, strlen(good) + 100, 8), huge = open_text(a, good, UINT64_MAX, 8);
    Status cut = open_text(a, good, strlen(good), 7);
    dup2(saved, STDERR_FILENO);
    close(saved);
    fclose(sink);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (got[i] != ERR_REJECT)
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(fine, OK);
    assert_int_equal(longer, ERR_REJECT);
    assert_int_equal(huge, ERR_REJECT);
    assert_int_equal(cut, ERR_REJECT);
    arena_free(a);
}

/* Any order of names will do, and tensors without bytes lie anywhere between. */
static void other_orders(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{" HALF("x", 4, 8) ", " HALF("y", 0, 4) "}",
        "{\"e\": {\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [4, 4]}, " HALF("x", 4, 8) ", " HALF("y", 0, 4) "}",
        "{\"e\": {\"dtype\": \"F32\", \"shape\": [3, 0], \"data_offsets\": [8, 8]}, " HALF("x", 4, 8) ", " HALF("y", 0, 4) "}   ",
    };
    Arena *a = arena_new("test");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(open_text(a, good[i], strlen(good[i]), 8), OK);
    assert_int_equal(open_text(a, "{}", 2, 0), OK);
    arena_free(a);
}

/* A file of this program's own. */
static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMP");
    snprintf(path, sizeof path, "%.40s/safetensors.XXXXXX", tmp ? tmp : "/tmp");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_back), cmocka_unit_test(wrong_files), cmocka_unit_test(other_orders)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
