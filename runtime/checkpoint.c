/* Checkpoints: global tensors, and what a run must remember beside them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY       /* states that need no heap */
#include <xxhash.h>

#include "base/files.h"
#include "base/text.h"
#include "runtime/json.h"
#include "runtime/ranks.h"
#include "runtime/states.h"
#include "runtime/steps.h"

enum { VERSION = 1 };

/* What a file holds. */
static const StoredList *tensors_of(const Rank *r, int file)
{
    return file == FILE_WEIGHTS ? &r->weights : &r->moments;
}

/* ---- state.json ---- */

static uint64_t json_hash(const json_t *j)
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t h = text ? XXH3_64bits(text, strlen(text)) : 0;
    free(text);
    return h;
}

static json_t *hex(uint64_t v)
{
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, v);
    return json_string(text);
}

static json_t *optimizer_json(const Optimizer *o)
{
    static const char *const kind[] = {"none", "sgd", "adamw"}, *const decay[] = {"none", "cosine", "linear"};
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:s}", "kind", kind[o->kind], "lr", o->lr, "beta1",
                     o->beta1, "beta2", o->beta2, "eps", o->eps, "weight_decay", o->weight_decay, "momentum", o->momentum,
                     "clip", o->clip, "min_lr", o->min_lr, "warmup", (json_int_t)o->warmup, "steps", (json_int_t)o->steps,
                     "decay", decay[o->decay]);
}

/* What the run trains on, by name. */
static json_t *data_json(Arena *a, const Data *d)
{
    uint32_t n;
    const DataFact *fact = data_facts(a, d, &n);
    json_t *root = json_object();
    for (uint32_t i = 0; i < n; i++)
        json_object_set_new(root, fact[i].name, json_string(fact[i].text));
    return root;
}

/* The whole text, with a hash of all else in it. */
static char *state_text(Arena *a, const Rank *r, const Progress *at, const SFileSum *sum)
{
    json_t *files = json_object();
    for (int i = 0; i < FILE_STATE; i++)
        json_object_set_new(files, checkpoint_file[i], json_pack("{s:I, s:o}", "bytes", (json_int_t)sum[i].bytes, "xxh3", hex(sum[i].xxh3)));
    json_t *root = json_pack("{s:i, s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "version", VERSION, "model", at->model, "step", (json_int_t)at->step,
                             "samples", (json_int_t)at->samples, "seed", hex(at->seed), "optimizer",
                             optimizer_json(&r->optimizer), "data", data_json(a, at->data), "files", files);
    json_object_set_new(root, "check", hex(json_hash(root)));
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_decref(root);
    return text;
}

static Status write_state(Arena *a, const Rank *r, const char *folder, const Progress *at, const SFileSum *sum)
{
    json_begin_writing();
    char *text = state_text(a, r, at, sum);
    Writer w;
    Status s = json_written(checkpoint_file[FILE_STATE]);
    if (s == OK)
        s = writer_open(a, &w, arena_printf(a, "%s/%s", folder, checkpoint_file[FILE_STATE]));
    if (s == OK) {
        writer_put(&w, text, strlen(text));
        writer_put(&w, "\n", 1);
        s = writer_close(&w);
    }
    free(text);
    return s;
}

/* ---- saving ---- */

/* Give a complete folder its name in one move; a checkpoint of the same step, from a
 * run that was resumed before it, takes the temporary name and goes. */
static Status publish_folder(Arena *a, const char *temporary, const char *folder, const char *dir)
{
    int bad = rename(temporary, folder);
    if (bad && (errno == EEXIST || errno == ENOTEMPTY))
        bad = renameat2(AT_FDCWD, temporary, AT_FDCWD, folder, RENAME_EXCHANGE);
    if (bad) {
        fprintf(stderr, "error: cannot rename '%s' to '%s': %s\n", temporary, folder, strerror(errno));
        return ERR_IO;
    }
    TRY(folder_sync(dir));
    steps_remove(a, temporary);
    return OK;
}

static Status write_marker(Arena *a, const char *dir, int64_t step)
{
    Writer w;
    const char *text = arena_printf(a, "step-%08" PRId64 "\n", step);
    TRY(writer_open(a, &w, arena_printf(a, "%s/latest", dir)));
    writer_put(&w, text, strlen(text));
    return writer_close(&w);
}

/* All that one rank does alone, once the tensors are written. */
static Status publish(Arena *a, const Rank *r, const char *dir, const char *temporary, const Progress *at, const SFileSum *sum)
{
    TRY(write_state(a, r, temporary, at, sum));
    TRY(publish_folder(a, temporary, steps_folder(a, dir, at->step, ""), dir));
    return write_marker(a, dir, at->step);
}

/* What a killed run left under this name does not get into the checkpoint. */
static Status make_folder(Arena *a, const char *temporary)
{
    steps_remove(a, temporary);
    return folder_make(a, temporary);
}

/* `stands`: the checkpoint is there to be resumed, even if a rank was lost while the others
 * waited for it. */
static Status save_together(Arena *a, const Rank *r, const char *dir, const char *temporary, const Progress *at, bool *stands)
{
    SFileSum sum[FILE_STATE] = {0};
    TRY(rank_outcome(r, rank_reports(r) ? make_folder(a, temporary) : OK));
    for (int i = 0; i < FILE_STATE; i++)
        TRY(stored_write(a, r, arena_printf(a, "%s/%s", temporary, checkpoint_file[i]), tensors_of(r, i), &sum[i]));
    Status s = rank_reports(r) ? publish(a, r, dir, temporary, at, sum) : OK;
    *stands = s == OK;
    return rank_outcome(r, s);
}

Status checkpoint_save(Arena *a, const Rank *r, const char *dir, int keep, const Progress *at)
{
    const char *temporary = steps_folder(a, dir, at->step, BEING_WRITTEN);
    bool stands = false;
    Status s = save_together(a, r, dir, temporary, at, &stands);
    if (!rank_reports(r))
        return s;
    if (stands) {
        steps_prune(a, dir, at->step, keep);
    } else {
        steps_remove(a, temporary);
        fprintf(stderr, "error: the checkpoint of step %" PRId64 " was not saved; %s '%s'%s\n", at->step,
                checkpoint_any(a, dir) ? "earlier ones in" : "there is none yet in", dir, checkpoint_any(a, dir) ? " stand" : "");
    }
    return s;
}

/* ---- loading ---- */

static Status damaged(const char *path, const char *what)
{
    fprintf(stderr, "error: checkpoint file '%s': %s\n", path, what);
    return ERR_REJECT;
}

/* What is wrong with a state.json by itself; NULL: nothing, and *out is to be freed
 * by json_decref. */
static const char *state_fault(const char *path, json_t **out)
{
    json_error_t why;
    json_begin_reading();
    *out = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!*out)
        return access(path, F_OK) == 0 ? "it is damaged: not JSON" : "it is missing: the checkpoint is incomplete";
    json_t *check = json_object_get(*out, "check");
    const char *text = json_string_value(check);
    uint64_t want = text ? strtoull(text, NULL, 16) : 0;
    json_object_del(*out, "check");
    if (text && json_hash(*out) == want)
        return NULL;
    json_decref(*out);
    *out = NULL;
    return "it is damaged: its check sum does not match";
}

/* Piece by piece: who is busy with a large file is alive. */
static uint64_t hash_of(const Rank *r, const char *data, size_t bytes)
{
    enum { PIECE = 32 << 20 };
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    for (size_t n; bytes > 0; data += n, bytes -= n) {
        n = bytes < PIECE ? bytes : PIECE;
        if (r)
            exchange_begin(r, -1);
        XXH3_64bits_update(&hash, data, n);
    }
    return XXH3_64bits_digest(&hash);
}

/* Nothing is known against the file: the machine had no memory for it, and said so. */
static const char not_mapped[] = "it cannot be read";

/* What is wrong with a file against the length and hash that state.json recorded.  The
 * rank is NULL before it joined the others. */
static const char *file_fault(Arena *a, const Rank *r, const char *path, const json_t *recorded)
{
    const char *want = NULL;
    json_int_t bytes = -1;
    const void *map;
    size_t n;
    if (json_unpack((json_t *)(uintptr_t)recorded, "{s:I, s:s}", "bytes", &bytes, "xxh3", &want) != 0)
        return "state.json does not list it";
    if (access(path, F_OK) != 0)
        return "it is missing: the checkpoint is incomplete";
    if (file_map(path, &map, &n) != OK)
        return not_mapped;
    bool same = (json_int_t)n == bytes && hash_of(r, map, n) == strtoull(want, NULL, 16);
    file_unmap(map, n);
    if (same)
        return NULL;
    if ((json_int_t)n != bytes)
        return arena_printf(a, "it has %zu bytes, state.json says %lld", n, (long long)bytes);
    return "it is damaged: its check sum does not match";
}

static bool is_complete(Arena *a, const Rank *r, const char *folder)
{
    json_t *root;
    if (state_fault(arena_printf(a, "%s/%s", folder, checkpoint_file[FILE_STATE]), &root))
        return false;
    bool complete = true;
    for (int i = 0; complete && i < FILE_STATE; i++)
        complete = !file_fault(a, r, arena_printf(a, "%s/%s", folder, checkpoint_file[i]),
                               json_object_get(json_object_get(root, "files"), checkpoint_file[i]));
    json_decref(root);
    return complete;
}

/* A checkpoint that cannot be resumed is not passed over silently: an older one would
 * repeat steps, which is for the user to decide.  Here is what there is. */
static void name_complete(Arena *a, const Rank *r, const char *folder)
{
    bool step_folder = steps_number(basename(arena_strdup(a, folder)), "") >= 0;
    const char *dir = step_folder ? dirname(arena_strdup(a, folder)) : folder;
    uint32_t n, found = 0;
    int64_t *step = steps_list(a, dir, "", &n);
    for (uint32_t i = 0; i < n; i++)
        if (is_complete(a, r, steps_folder(a, dir, step[i], "")))
            step[found++] = step[i];
    if (found == 0) {
        fprintf(stderr, "note: no checkpoint in '%s' is complete\n", dir);
        return;
    }
    fprintf(stderr, "help: complete in '%s':", dir);
    for (uint32_t i = 0; i < found; i++)
        fprintf(stderr, "%s step %" PRId64, i ? "," : "", step[i]);
    fprintf(stderr, "; go on from the newest with --resume %s\n", steps_folder(a, dir, step[0], ""));
}

static Status read_state(Arena *a, const Rank *r, const char *folder, json_t **out)
{
    const char *path = arena_printf(a, "%s/%s", folder, checkpoint_file[FILE_STATE]), *fault = state_fault(path, out);
    if (!fault)
        return OK;
    damaged(path, fault);
    name_complete(a, r, folder);
    return ERR_REJECT;
}

static Status read_progress(Arena *a, const char *folder, Progress *at)
{
    json_t *root;
    TRY(read_state(a, NULL, folder, &root));
    const char *model = NULL, *seed = NULL;
    const json_int_t most = (json_int_t)1 << 53;     /* what every reader of JSON holds exactly, and a run can count on from */
    json_int_t step = 0, samples = 0;
    int version = 0, bad = json_unpack(root, "{s:i, s:s, s:I, s:I, s:s}", "version", &version, "model", &model, "step", &step,
                                       "samples", &samples, "seed", &seed);
    if (!bad)
        *at = (Progress){.step = step, .samples = samples, .seed = strtoull(seed, NULL, 16), .model = arena_strdup(a, model)};
    json_decref(root);
    if (bad || version != VERSION)
        return damaged(folder, "its state.json is of another version");
    if (step < 0 || step > most || samples < 0 || samples > most)
        return damaged(folder, "its state.json counts steps or samples that no run has done");
    return OK;
}

void checkpoint_ignored(Arena *a, const char *dir, int64_t latest)
{
    uint32_t n;
    int64_t *step = steps_list(a, dir, BEING_WRITTEN, &n);
    for (uint32_t i = 0; i < n; i++)
        fprintf(stderr, "note: ignoring '%s', which was never completed\n", steps_folder(a, dir, step[i], BEING_WRITTEN));
    step = steps_list(a, dir, "", &n);
    for (uint32_t i = 0; i < n; i++)
        if (step[i] > latest)
            fprintf(stderr, "note: ignoring '%s': '%s/latest' names step %" PRId64 "\n", steps_folder(a, dir, step[i], ""), dir, latest);
}

/* One of the files of a folder, given in its place. */
static Status refuse_file(Arena *a, const char *dir)
{
    struct stat st;
    if (stat(dir, &st) != 0 || S_ISDIR(st.st_mode))
        return OK;
    fprintf(stderr, "error: --resume '%s': that is a file, but checkpoints are folders\nhelp: '--resume %s' has the folder that it is in\n", dir,
            dirname(arena_strdup(a, dir)));
    return ERR_REJECT;
}

Status checkpoint_find(Arena *a, const char *dir, Progress *at, const char **folder)
{
    *folder = dir;
    TRY(refuse_file(a, dir));
    if (access(arena_printf(a, "%s/state.json", dir), F_OK) == 0)
        return read_progress(a, dir, at);
    char name[64] = "";
    const char *marker = arena_printf(a, "%s/latest", dir);
    FILE *f = fopen(marker, "r");
    if (!f) {
        fprintf(stderr, "error: no complete checkpoint in '%s': cannot open '%s': %s%s\n", dir, marker, strerror(errno), file_hint(a, dir, NULL, 0));
        name_complete(a, NULL, dir);
        return ERR_REJECT;
    }
    bool got = fgets(name, sizeof name, f) != NULL;
    fclose(f);
    name[strcspn(name, "\n")] = 0;
    if (!got || steps_number(name, "") < 0) {
        damaged(marker, "it names no step");
        name_complete(a, NULL, dir);
        return ERR_REJECT;
    }
    *folder = arena_printf(a, "%s/%s", dir, name);
    return read_progress(a, *folder, at);
}

static Status verify_file(Arena *a, const Rank *r, const char *folder, const json_t *files, int file)
{
    const char *path = arena_printf(a, "%s/%s", folder, checkpoint_file[file]);
    const char *fault = file_fault(a, r, path, json_object_get(files, checkpoint_file[file]));
    if (!fault || fault == not_mapped)
        return fault ? ERR_IO : OK;
    damaged(path, fault);
    name_complete(a, r, folder);
    return ERR_REJECT;
}

static const char *shape_text(Arena *a, const STensor *t)
{
    Text s = text_new(a);
    text_add(&s, "%s [", dtype_name(t->dtype));
    for (uint32_t i = 0; i < t->rank; i++)
        text_add(&s, "%s%lld", i ? ", " : "", (long long)t->extent[i]);
    text_add(&s, "]");
    return s.s;
}

static bool same_extents(const STensor *x, const STensor *y)
{
    bool same = x->rank == y->rank;
    for (uint32_t i = 0; same && i < x->rank; i++)
        same = x->extent[i] == y->extent[i];
    return same;
}

/* To run forward, or backward without an optimizer, the weights do. */
static bool trains(const Rank *r)
{
    return r->program->optimizer.kind != OPTIMIZER_NONE;
}

/* Whether a tensor of a file can be what the rank has.  Training goes on with the very
 * numbers; to run forward in bf16, the f32 ones it was trained with do. */
static bool serves(const Rank *r, const STensor *have, const STensor *want)
{
    bool rounds = !trains(r) && have->dtype == DT_f32 && want->dtype == DT_bf16;
    return (have->dtype == want->dtype || rounds) && same_extents(have, want);
}

/* Where a model was made with other sizes, all of its tensors may differ: what was which comes first, in one sentence,
 * and a few of them after it. */
enum { SIZES = 4, ROWS = 3 };
typedef struct Resized { int64_t was[SIZES], is[SIZES]; uint32_t n, tensors; } Resized;

static void note_sizes(Resized *z, const STensor *have, const STensor *want)
{
    z->tensors++;
    for (uint32_t i = 0; have->rank == want->rank && i < have->rank; i++) {
        uint32_t k = 0;
        while (k < z->n && (z->was[k] != have->extent[i] || z->is[k] != want->extent[i]))
            k++;
        if (have->extent[i] == want->extent[i] || k < z->n || k == SIZES)
            continue;
        z->was[k] = have->extent[i];
        z->is[k] = want->extent[i];
        z->n++;
    }
}

static void say_sizes(const StoredList *list, const Resized *z)
{
    if (z->tensors < 2 || z->n == 0)
        return;
    fprintf(stderr, "error: the checkpoint was made with other sizes:");
    for (uint32_t i = 0; i < z->n; i++)
        fprintf(stderr, "%s %lld where the plan has %lld", i ? "," : "", (long long)z->was[i], (long long)z->is[i]);
    fprintf(stderr, "; %u of %u tensors differ, such as\n", z->tensors, list->n);
}

static Resized resized(const Rank *r, const SFile *f, const StoredList *list)
{
    Resized z = {.n = 0};
    for (uint32_t i = 0; i < list->n; i++) {
        const STensor *have = sfile_find(f, list->tensor[i].shape.name);
        if (have && !serves(r, have, &list->tensor[i].shape))
            note_sizes(&z, have, &list->tensor[i].shape);
    }
    return z;
}

/* Where both have a tensor it must serve. */
static Status match_shapes(Arena *a, const Rank *r, const SFile *f, const StoredList *list)
{
    Status s = OK;
    bool rounds = false;
    const Resized z = resized(r, f, list);
    uint32_t rows = 0;
    say_sizes(list, &z);
    for (uint32_t i = 0; i < list->n; i++) {
        const STensor *want = &list->tensor[i].shape, *have = sfile_find(f, want->name);
        if (!have)
            continue;
        if (serves(r, have, want))
            rounds |= have->dtype != want->dtype;
        else if (rows++ >= ROWS)
            s = ERR_REJECT;
        else
            s = damaged(f->path, arena_printf(a, "tensor '%s' is %s, but the plan has %s", want->name, shape_text(a, have), shape_text(a, want)));
    }
    if (s == OK && rounds)
        fprintf(stderr, "note: weights are rounded from f32 to bf16\n");
    return s;
}

/* Tensors that the plan alone has, or the file, in the order of their names. */
typedef struct Lone { const char **name; uint32_t n; } Lone;

static Lone missing_of(Arena *a, const SFile *f, const StoredList *list)
{
    Lone l = {0};
    for (uint32_t i = 0; i < list->n; i++)
        if (!sfile_find(f, list->tensor[i].shape.name))
            PUSH(a, l.name, l.n, list->tensor[i].shape.name);
    return l;
}

static Lone extra_of(Arena *a, const SFile *f, const StoredList *list)
{
    Lone l = {0};
    for (uint32_t i = 0; i < f->ntensor; i++) {
        uint32_t k = 0;
        while (k < list->n && strcmp(list->tensor[k].shape.name, f->tensor[i].name) != 0)
            k++;
        if (k == list->n)
            PUSH(a, l.name, l.n, f->tensor[i].name);
    }
    return l;
}

/* How many from tensor `first` on begin with the same part of a path, "dec[2].". */
static uint32_t same_part(const Lone *l, uint32_t first)
{
    size_t part = strcspn(l->name[first], ".") + 1;
    uint32_t n = 1;
    while (first + n < l->n && strncmp(l->name[first + n], l->name[first], part) == 0)
        n++;
    return n;
}

/* Where a layer is too many, all of its tensors are: the parts that they are of, the first few. */
static const char *lone_text(Arena *a, const Lone *l)
{
    enum { PARTS = 4 };
    Text s = text_new(a);
    for (uint32_t i = 0, n, parts = 0; i < l->n; i += n, parts++) {
        const char *name = l->name[i];
        n = parts < PARTS ? same_part(l, i) : l->n - i;
        text_puts(&s, ", ", parts ? 2 : 0);
        if (parts == PARTS)
            text_add(&s, ".. (%u more)", n);
        else if (n == 1)
            text_add(&s, "'%s'", name);
        else
            text_add(&s, "%.*s* (%u tensors)", (int)strcspn(name, ".") + 1, name, n);
    }
    return s.s;
}

/* Every tensor wanted is there with its shape, and no other is. */
static Status match_tensors(Arena *a, const Rank *r, const SFile *f, const StoredList *list)
{
    Status s = match_shapes(a, r, f, list);
    const Lone missing = missing_of(a, f, list), extra = extra_of(a, f, list);
    if (missing.n > 0)
        s = damaged(f->path, arena_printf(a, "%u of the plan's %u tensors are not in it: %s", missing.n, list->n, lone_text(a, &missing)));
    if (extra.n > 0)
        s = damaged(f->path, arena_printf(a, "%u of its %u tensors are not in the plan: %s", extra.n, f->ntensor, lone_text(a, &extra)));
    return s;
}

static Status match_file(Arena *a, const Rank *r, const char *folder, int file)
{
    SFile f;
    TRY(sfile_open(a, arena_printf(a, "%s/%s", folder, checkpoint_file[file]), &f));
    Status s = match_tensors(a, r, &f, tensors_of(r, file));
    sfile_close(&f);
    return s;
}

static void print_value(const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    fputs(text ? text : "nothing", stderr);
    free(text);
}

/* What is not as it was is said: nobody should find out by the loss. */
static void name_changes(const char *whose, const json_t *saved, json_t *now)
{
    json_t *value;
    const char *name;
    json_object_foreach(now, name, value) {
        const json_t *before = json_object_get(saved, name);
        if (json_equal(before, value))
            continue;
        fprintf(stderr, "note: the %s '%s' was ", whose, name);
        print_value(before);
        fputs(" and is now ", stderr);
        print_value(value);
        fputc('\n', stderr);
    }
    json_decref(now);
}

static Status check_model(const Rank *r, const char *folder, const json_t *root)
{
    const char *model = json_string_value(json_object_get(root, "model"));
    if (model && strcmp(model, r->program->model) == 0)
        return OK;
    fprintf(stderr, "error: checkpoint '%s' is of model '%s', but the plan is for '%s'\n", folder, model ? model : "", r->program->model);
    return ERR_REJECT;
}

/* One rank looks for all at what a checkpoint holds. */
static Status check_folder(Arena *a, const Rank *r, const char *folder, int nfile, const Data *data)
{
    json_t *root;
    TRY(read_state(a, r, folder, &root));
    Status s = check_model(r, folder, root);
    for (int i = 0; s == OK && i < nfile; i++)
        s = verify_file(a, r, folder, json_object_get(root, "files"), i);
    for (int i = 0; s == OK && i < nfile; i++)
        s = match_file(a, r, folder, i);
    if (s == OK && nfile == FILE_STATE) {
        name_changes("optimizer's", json_object_get(root, "optimizer"), optimizer_json(&r->optimizer));
        if (data)
            name_changes("data's", json_object_get(root, "data"), data_json(a, data));
    }
    json_decref(root);
    return s;
}

Status checkpoint_load(Arena *a, Rank *r, const char *folder, const Data *data)
{
    int nfile = trains(r) ? FILE_STATE : FILE_MOMENTS;
    Status s = OK;
    TRY(rank_outcome(r, rank_reports(r) ? check_folder(a, r, folder, nfile, data) : OK));
    for (int i = 0; s == OK && i < nfile; i++)
        s = stored_read(a, r, arena_printf(a, "%s/%s", folder, checkpoint_file[i]), tensors_of(r, i));
    if (s == OK && trains(r)) {                       /* from the same file, whoever has the master copy */
        StoredList rounded = states_list(a, r, STATES_ROUNDED, NULL);
        s = stored_read(a, r, arena_printf(a, "%s/%s", folder, checkpoint_file[FILE_WEIGHTS]), &rounded);
    }
    return rank_outcome(r, s);
}
