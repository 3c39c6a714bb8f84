/* Mutated files of a run: safetensors, a checkpoint's state.json and marker, and
 * files of tokens.  Check sums are made to fit, so that what lies behind them is
 * reached; each text is tried as every kind of file. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cli/load.h"
#include "runtime/runtime.h"
#include "tests/fuzz/forms.h"
#include "tests/fuzz/mutate.h"

#define WEIGHTS "weights.safetensors"

static const char *const words[] = {
    "{", "}", "[", "]", ":", ",", "\"", "null", "true", "0", "1", "-1", "4", "8", "1e3", "18446744073709551615", "9223372036854775807",
    "72057594037927936", "[0,8]", "[8,0]", "[]", "[0,0,0,0,0,0,0,0,0]", "\"F32\"", "\"F64\"", "\"I64\"", "\"BOOL\"", "\"shape\"", "\"dtype\"",
    "\"data_offsets\"", "\"__metadata__\"", "\"version\"", "\"model\"", "\"step\"", "\"samples\"", "\"seed\"", "\"files\"", "\"bytes\"", "\"xxh3\"",
    "\"" WEIGHTS "\"", "\"moments.safetensors\"", "\"check\"", "step-", "step-00000003", ".tmp", "/", "..", NULL,
};
static const char *const files[] = {NULL};

static const char model_text[] =
    "model m {\n  dim batch = 2, seq = 4, hidden = 16, vocab = 64\n  input ids[batch, seq] : i32\n  input labels[batch, seq] : i32\n"
    "  weight w[vocab, hidden]\n  x = embed(ids, w)\n  optimizer adamw { lr = 0.1 }\n"
    "  minimize cross_entropy(fc: linear(x, vocab), labels)\n}\nplan { microbatches = 1 }\n";

static struct {
    Arena      *a;
    Loaded      l;
    Program    *p;
    Rank        rank;
    Data       *data;
    const char *dir, *folder;         /* of checkpoints; the one in it that mutants replace files of */
    const char *bin, *any, *image;    /* mutants as data */
    json_t     *state;                /* of the sound checkpoint */
    FuzzText    weights;
} world;

static const char *path_of(const char *folder, const char *name)
{
    return arena_printf(world.a, "%s/%s", folder, name);
}

static void need(bool right, const char *what)
{
    if (right)
        return;
    printf("not ok fuzz_state cannot begin: %s\n", what);
    exit(1);
}

/* ---- before the first round ---- */

static void open_program(void)
{
    const char *path = path_of(world.dir, "m.pmodel");
    char *argv[] = {"prun", (char *)(uintptr_t)path, "-c", "laptop1"};
    Args args;
    Plan *plan;
    Programs programs;
    scratch_write(path, model_text, strlen(model_text));
    need(args_read(world.a, PRUN, 4, argv, &args) == OK && load_model(&world.l, &args) == OK &&
         load_plan(&world.l, true, &plan, &programs) == OK, "its model has mistakes");
    world.p = programs.rank[0];
    need(rank_open(&world.rank, world.a, world.p, isa_best()) == OK, "its rank does not open");
    rank_init(&world.rank, 1);
}

static FuzzText add_file(FuzzSeeds *seeds, const char *path)
{
    char text[MUTANT_BYTES];
    FILE *f = fopen(path, "rb");
    need(f != NULL, path);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    fuzz_seed(seeds, text, n);
    return seeds->file[seeds->n - 1];
}

/* Files of tokens as llm.c writes them, and raw ones. */
static void add_tokens(FuzzSeeds *seeds)
{
    static const uint32_t magic[2][2] = {{20240520, 1}, {20240801, 7}};
    uint32_t word[256 + 20] = {0};
    for (uint32_t i = 0; i < 20; i++)
        word[256 + i] = i % 8;
    for (uint32_t k = 0; k < 2; k++) {
        word[0] = magic[k][0];
        word[1] = magic[k][1];
        word[2] = k ? 20 : 40;
        fuzz_seed(seeds, word, sizeof word);
    }
    fuzz_seed(seeds, word + 256, 80);
}

/* A safetensors file that serves as data of one input. */
static void add_samples(FuzzSeeds *seeds)
{
    int32_t ids[6][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
    STensor t[] = {{.name = "ids", .dtype = DT_i32, .rank = 2, .extent = {6, 4}, .data = ids, .bytes = sizeof ids}};
    need(sfile_write(world.a, world.image, t, 1) == OK, world.image);
    add_file(seeds, world.image);
}

static void start(FuzzSeeds *seeds)
{
    static const char *const random[] = {"random"};
    world.a = arena_new("world");
    world.dir = scratch_open(world.a);
    open_program();
    need(data_open(world.a, world.p, random, 1, 1, &world.data) == OK, "it has no data");
    Progress at = {.step = 3, .samples = 6, .seed = 1, .model = "m", .data = world.data};
    need(checkpoint_save(world.a, &world.rank, world.dir, 1, &at) == OK, "its checkpoint is not saved");
    world.folder = path_of(world.dir, "step-00000003");
    world.bin = path_of(world.dir, "mutant.bin");
    world.any = path_of(world.dir, "mutant.txt");
    world.image = path_of(world.dir, "mutant.safetensors");
    world.state = json_load_file(path_of(world.folder, "state.json"), 0, NULL);
    need(world.state != NULL, "state.json does not read");
    add_file(seeds, path_of(world.folder, "state.json"));
    add_file(seeds, path_of(world.dir, "latest"));
    FuzzText weights = add_file(seeds, path_of(world.folder, WEIGHTS));
    world.weights = (FuzzText){arena_strndup(world.a, weights.s, weights.n), weights.n};
    memcpy((char *)(uintptr_t)world.weights.s, weights.s, weights.n);
    add_samples(seeds);
    add_tokens(seeds);
}

static void end(void)
{
    json_decref(world.state);
    data_close(world.data);
    rank_close(&world.rank);
    load_free(&world.l);
    scratch_close(world.dir);
    arena_free(world.a);
}

/* ---- checkpoints ---- */

static json_t *hex(uint64_t v)
{
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, v);
    return json_string(text);
}

/* Write a state.json whose check sum fits. */
static void write_state(json_t *state)
{
    json_object_del(state, "check");
    char *text = json_dumps(state, JSON_COMPACT | JSON_SORT_KEYS);
    json_object_set_new(state, "check", hex(XXH3_64bits(text, strlen(text))));
    free(text);
    text = json_dumps(state, 0);
    scratch_write(path_of(world.folder, "state.json"), text, strlen(text));
    free(text);
}

static bool can_be(int64_t n)
{
    return n >= 0 && n <= (int64_t)1 << 53;
}

/* Find and load; what is found sound must be of this model. */
static const char *load(Arena *a)
{
    Progress at;
    const char *folder;
    if (checkpoint_find(a, world.dir, &at, &folder) != OK || checkpoint_load(a, &world.rank, folder, world.data) != OK)
        return NULL;
    fuzz_accept();
    return strcmp(at.model, "m") == 0 && can_be(at.step) && can_be(at.samples) ? NULL : "a checkpoint with impossible progress";
}

/* Numbers that no run has come to, in states that are sound otherwise. */
static void need_refused(void)
{
    static const char *const names[] = {"step", "samples"};
    static const json_int_t numbers[] = {-1, INT64_MIN, INT64_MAX, ((json_int_t)1 << 53) + 1};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            Progress at;
            const char *folder;
            json_t *state = json_deep_copy(world.state);
            json_object_set_new(state, names[i], json_integer(numbers[k]));
            write_state(state);
            json_decref(state);
            need(checkpoint_find(world.a, world.dir, &at, &folder) != OK, "a run that did what none can do was found");
        }
}

static const char *try_state(Arena *a, const char *text, size_t n)
{
    json_t *state = json_loadb(text, n, 0, NULL);
    const char *wrong = NULL;
    scratch_write(path_of(world.folder, WEIGHTS), world.weights.s, world.weights.n);
    if (json_is_object(state)) {
        write_state(state);
        wrong = load(a);
    } else {
        scratch_write(path_of(world.folder, "state.json"), text, n);
        if (load(a) != NULL)
            wrong = "a state.json that is no object was taken";
    }
    json_decref(state);
    return wrong;
}

static const char *try_weights(Arena *a, const char *text, size_t n)
{
    json_t *state = json_deep_copy(world.state);
    json_t *file = json_object_get(json_object_get(state, "files"), WEIGHTS);
    json_object_set_new(file, "bytes", json_integer((json_int_t)n));
    json_object_set_new(file, "xxh3", hex(XXH3_64bits(text, n)));
    scratch_write(path_of(world.folder, WEIGHTS), text, n);
    write_state(state);
    json_decref(state);
    return load(a);
}

static const char *try_marker(Arena *a, const char *text, size_t n)
{
    Progress at;
    const char *folder, *path = path_of(world.dir, "latest");
    scratch_write(path, text, n);
    checkpoint_find(a, world.dir, &at, &folder);
    scratch_write(path, "step-00000003\n", 14);
    return NULL;
}

/* ---- data ---- */

static void open_data(Arena *a, const char *const *spec, uint32_t n)
{
    Data *d;
    if (data_open(a, world.p, spec, n, 1, &d) == OK) {
        fuzz_accept();
        data_fill(d, &world.rank, data_samples(d), 2, 0, true);
    }
    data_close(d);
}

static void try_data(Arena *a, const char *text, size_t n)
{
    static const char *const suffix[] = {"", ":u16", ":u32", ":bytes"};
    scratch_write(world.bin, text, n);
    scratch_write(world.any, text, n);
    scratch_write(world.image, text, n);
    for (size_t i = 0; i < sizeof suffix / sizeof *suffix; i++) {
        const char *spec = arena_printf(a, "%s%s", world.bin, suffix[i]);
        open_data(a, &spec, 1);
    }
    open_data(a, &world.any, 1);
    const char *pair[] = {arena_printf(a, "ids=%s", world.image), arena_printf(a, "labels=%s", world.image)};
    open_data(a, pair, 2);
}

/* Tensors lie in the file: what lies behind it may be mapped too, so that reading
 * it need not fault. */
static const char *try_tensors(Arena *a)
{
    SFile f;
    if (sfile_open(a, world.image, &f) != OK)
        return NULL;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < f.ntensor; i++) {
        int64_t at = (const char *)f.tensor[i].data - (const char *)f.map;
        if (at < 0 || f.tensor[i].bytes < 0 || at + f.tensor[i].bytes > (int64_t)f.map_bytes)
            wrong = "a tensor lies outside its file";
    }
    sfile_close(&f);
    return wrong;
}

static const char *one_case(const char *text, size_t bytes)
{
    Arena *a = arena_new("case");
    try_data(a, text, bytes);
    const char *wrong = try_tensors(a);
    if (!wrong)
        wrong = try_state(a, text, bytes);
    if (!wrong)
        wrong = try_weights(a, text, bytes);
    if (!wrong)
        wrong = try_marker(a, text, bytes);
    arena_free(a);
    return wrong;
}

static void begin(FuzzSeeds *seeds)
{
    start(seeds);
    need_refused();
}

int main(int argc, char **argv)
{
    const Fuzz fuzz = {.run = one_case, .word = words, .files = files, .start = begin, .end = end};
    return fuzz_main(argc, argv, &fuzz);
}
