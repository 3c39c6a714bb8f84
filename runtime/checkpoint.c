/* Checkpoints: global tensors, and what a run must remember beside them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/text.h"
#include "runtime/files.h"
#include "runtime/runtime.h"
#include "runtime/states.h"

enum { VERSION = 1 };
static const char *const file_names[] = {"weights.safetensors", "moments.safetensors"};
enum { FILE_WEIGHTS, FILE_MOMENTS, NFILES };         /* in this order: the second needs a trainer */

/* The tensors of one file, their data in the rank's memory. */
static STensor *list_tensors(Arena *a, const Rank *r, int file, uint32_t *n)
{
    NamedTensor *state = states_list(a, r, file == FILE_WEIGHTS ? STATES_WEIGHTS : STATES_MOMENTS, n);
    STensor *list = NEWN(a, STensor, *n);
    for (uint32_t i = 0; i < *n; i++)
        list[i] = states_tensor(r, state[i].tensor, state[i].name, rank_at(r, state[i].tensor, 0, 0));
    return list;
}

/* ---- state.json ---- */

static uint64_t json_hash(const json_t *j)
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t h = XXH3_64bits(text, strlen(text));
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

static Status write_state(Arena *a, const Rank *r, const char *folder, const Progress *at, const Writer *file)
{
    json_t *files = json_object();
    for (int i = 0; i < NFILES; i++)
        json_object_set_new(files, file_names[i], json_pack("{s:I, s:o}", "bytes", (json_int_t)file[i].bytes, "xxh3", hex(file[i].hash)));
    json_t *root = json_pack("{s:i, s:s, s:I, s:I, s:o, s:o, s:o}", "version", VERSION, "model", at->model, "step", (json_int_t)at->step,
                             "samples", (json_int_t)at->samples, "seed", hex(at->seed), "optimizer",
                             optimizer_json(&r->optimizer), "files", files);
    json_object_set_new(root, "check", hex(json_hash(root)));
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_decref(root);
    Writer w;
    Status s = writer_open(a, &w, arena_printf(a, "%s/state.json", folder));
    if (s == OK) {
        writer_put(&w, text, strlen(text));
        writer_put(&w, "\n", 1);
        s = writer_close(&w);
    }
    free(text);
    return s;
}

/* ---- saving ---- */

Status checkpoint_lock(Arena *a, const char *dir, int *fd)
{
    TRY(folder_make(a, dir));
    const char *path = arena_printf(a, "%s/lock", dir);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0) {
        fprintf(stderr, "error: cannot create '%s': %s\n", path, strerror(errno));
        return ERR_IO;
    }
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return OK;
    fprintf(stderr, "error: another run is saving into '%s'\n", dir);
    close(*fd);
    *fd = -1;
    return ERR_REJECT;
}

/* Step of a checkpoint's name, step-N; -1: no such name.  Being written, it is
 * called step-N.tmp. */
static int64_t step_of(const char *name, const char *suffix)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    int64_t step = strtoll(name + 5, &end, 10);
    return strcmp(end, suffix) == 0 ? step : -1;
}

static const char *folder_of(Arena *a, const char *dir, int64_t step, const char *suffix)
{
    return arena_printf(a, "%s/step-%08" PRId64 "%s", dir, step, suffix);
}

static void remove_folder(Arena *a, const char *folder)
{
    static const char *const suffix[] = {"", ".tmp"};
    for (int k = 0; k < 2; k++) {
        unlink(arena_printf(a, "%s/state.json%s", folder, suffix[k]));
        for (int i = 0; i < NFILES; i++)
            unlink(arena_printf(a, "%s/%s%s", folder, file_names[i], suffix[k]));
    }
    rmdir(folder);
}

static int newest_first(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a < b) - (a > b);
}

/* Steps that have a folder in DIR, newest first. */
static int64_t *list_steps(Arena *a, const char *dir, const char *suffix, uint32_t *n)
{
    int64_t *step = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (step_of(e->d_name, suffix) >= 0)
            PUSH(a, step, *n, step_of(e->d_name, suffix));
    if (d)
        closedir(d);
    if (*n)
        qsort(step, *n, sizeof *step, newest_first);
    return step;
}

static Status save_file(Arena *a, const Rank *r, const char *folder, int file, Writer *w)
{
    uint32_t n;
    STensor *list = list_tensors(a, r, file, &n);
    return sfile_write_hashed(a, arena_printf(a, "%s/%s", folder, file_names[file]), list, n, &w->bytes, &w->hash);
}

static Status write_folder(Arena *a, const Rank *r, const char *folder, const Progress *at)
{
    Writer file[NFILES] = {0};
    TRY(folder_make(a, folder));
    for (int i = 0; i < NFILES; i++)
        TRY(save_file(a, r, folder, i, &file[i]));
    return write_state(a, r, folder, at, file);
}

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
    remove_folder(a, temporary);
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

/* Keep the newest; nobody else writes here, so what is half written is a leftover. */
static void prune(Arena *a, const char *dir, int64_t latest, int keep)
{
    uint32_t n;
    int64_t *step = list_steps(a, dir, "", &n);
    for (uint32_t i = 0, kept = 0; i < n; i++)
        if (step[i] <= latest && ++kept > (uint32_t)keep)
            remove_folder(a, folder_of(a, dir, step[i], ""));
    step = list_steps(a, dir, ".tmp", &n);
    for (uint32_t i = 0; i < n; i++)
        remove_folder(a, folder_of(a, dir, step[i], ".tmp"));
}

Status checkpoint_save(Arena *a, const Rank *r, const char *dir, int keep, const Progress *at)
{
    const char *temporary = folder_of(a, dir, at->step, ".tmp"), *folder = folder_of(a, dir, at->step, "");
    Status s = write_folder(a, r, temporary, at);
    if (s == OK)
        s = publish_folder(a, temporary, folder, dir);
    if (s == OK)
        s = write_marker(a, dir, at->step);
    if (s == OK) {
        prune(a, dir, at->step, keep);
    } else {
        remove_folder(a, temporary);
        fprintf(stderr, "error: the checkpoint of step %" PRId64 " was not saved; earlier ones in '%s' stand\n", at->step, dir);
    }
    return s;
}

/* ---- loading ---- */

static Status damaged(const char *path, const char *what)
{
    fprintf(stderr, "error: checkpoint file '%s': %s\n", path, what);
    return ERR_REJECT;
}

/* state.json, its own check sum verified; freed by json_decref. */
static Status read_state(Arena *a, const char *folder, json_t **out)
{
    const char *path = arena_printf(a, "%s/state.json", folder);
    json_error_t why;
    *out = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!*out)
        return damaged(path, access(path, F_OK) == 0 ? "it is damaged: not JSON" : "it is missing: the checkpoint is incomplete");
    json_t *check = json_object_get(*out, "check");
    const char *text = json_string_value(check);
    uint64_t want = text ? strtoull(text, NULL, 16) : 0;
    json_object_del(*out, "check");
    if (!text || json_hash(*out) != want) {
        json_decref(*out);
        *out = NULL;
        return damaged(path, "it is damaged: its check sum does not match");
    }
    return OK;
}

static Status read_progress(Arena *a, const char *folder, Progress *at)
{
    json_t *root;
    TRY(read_state(a, folder, &root));
    const char *model = NULL, *seed = NULL;
    json_int_t step, samples;
    int version = 0, bad = json_unpack(root, "{s:i, s:s, s:I, s:I, s:s}", "version", &version, "model", &model, "step", &step,
                                       "samples", &samples, "seed", &seed);
    if (!bad)
        *at = (Progress){.step = step, .samples = samples, .seed = strtoull(seed, NULL, 16), .model = arena_strdup(a, model)};
    json_decref(root);
    if (bad || version != VERSION)
        return damaged(folder, "its state.json is of another version");
    return OK;
}

static void name_leftovers(Arena *a, const char *dir, int64_t latest)
{
    uint32_t n;
    int64_t *step = list_steps(a, dir, ".tmp", &n);
    for (uint32_t i = 0; i < n; i++)
        fprintf(stderr, "note: ignoring '%s', which was never completed\n", folder_of(a, dir, step[i], ".tmp"));
    step = list_steps(a, dir, "", &n);
    for (uint32_t i = 0; i < n; i++)
        if (step[i] > latest)
            fprintf(stderr, "note: ignoring '%s': '%s/latest' names step %" PRId64 "\n", folder_of(a, dir, step[i], ""), dir, latest);
}

Status checkpoint_find(Arena *a, const char *dir, Progress *at, const char **folder)
{
    *folder = dir;
    if (access(arena_printf(a, "%s/state.json", dir), F_OK) == 0)
        return read_progress(a, dir, at);
    char name[64] = "";
    const char *marker = arena_printf(a, "%s/latest", dir);
    FILE *f = fopen(marker, "r");
    if (!f) {
        fprintf(stderr, "error: no complete checkpoint in '%s': cannot open '%s': %s\n", dir, marker, strerror(errno));
        return ERR_REJECT;
    }
    bool got = fgets(name, sizeof name, f) != NULL;
    fclose(f);
    name[strcspn(name, "\n")] = 0;
    if (!got || step_of(name, "") < 0)
        return damaged(marker, "it names no step");
    name_leftovers(a, dir, step_of(name, ""));
    *folder = arena_printf(a, "%s/%s", dir, name);
    return read_progress(a, *folder, at);
}

/* Length and hash of a file against what state.json recorded. */
static Status verify_file(Arena *a, const char *folder, const json_t *files, int file)
{
    const char *path = arena_printf(a, "%s/%s", folder, file_names[file]), *want = NULL;
    json_int_t bytes = -1;
    const void *map;
    size_t n;
    if (json_unpack(json_object_get(files, file_names[file]), "{s:I, s:s}", "bytes", &bytes, "xxh3", &want) != 0)
        return damaged(path, "state.json does not list it");
    TRY(file_map(path, &map, &n));
    bool same = (json_int_t)n == bytes && XXH3_64bits(map, n) == strtoull(want, NULL, 16);
    file_unmap(map, n);
    if (same)
        return OK;
    if ((json_int_t)n != bytes)
        return damaged(path, arena_printf(a, "it has %zu bytes, state.json says %lld", n, (long long)bytes));
    return damaged(path, "it is damaged: its check sum does not match");
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

static bool same_shape(const STensor *x, const STensor *y)
{
    bool same = x->dtype == y->dtype && x->rank == y->rank;
    for (uint32_t i = 0; same && i < x->rank; i++)
        same = x->extent[i] == y->extent[i];
    return same;
}

/* Every tensor wanted is there with its shape, and no other is. */
static Status match_tensors(Arena *a, const SFile *f, const STensor *want, uint32_t n)
{
    Status s = OK;
    for (uint32_t i = 0; i < n; i++) {
        const STensor *have = sfile_find(f, want[i].name);
        if (!have)
            s = damaged(f->path, arena_printf(a, "tensor '%s' is missing", want[i].name));
        else if (!same_shape(have, &want[i]))
            s = damaged(f->path, arena_printf(a, "tensor '%s' is %s, but the plan has %s", want[i].name, shape_text(a, have),
                                              shape_text(a, &want[i])));
    }
    for (uint32_t i = 0; i < f->ntensor; i++) {
        bool wanted = false;
        for (uint32_t k = 0; k < n && !wanted; k++)
            wanted = strcmp(want[k].name, f->tensor[i].name) == 0;
        if (!wanted)
            s = damaged(f->path, arena_printf(a, "the plan has no tensor '%s'", f->tensor[i].name));
    }
    return s;
}

static Status load_file(Arena *a, const Rank *r, const char *folder, int file)
{
    uint32_t n;
    STensor *want = list_tensors(a, r, file, &n);
    SFile f;
    TRY(sfile_open(a, arena_printf(a, "%s/%s", folder, file_names[file]), &f));
    Status s = match_tensors(a, &f, want, n);
    for (uint32_t i = 0; s == OK && i < n; i++)
        memcpy((void *)(uintptr_t)want[i].data, sfile_find(&f, want[i].name)->data, (size_t)want[i].bytes);
    sfile_close(&f);
    return s;
}

/* Compute copies follow their masters. */
static void copy_masters(const Rank *r)
{
    for (uint32_t i = 0; i < r->program->nstate; i++) {
        const State *s = &r->program->state[i];
        if (has_tensor(s->master) && s->master.i != s->weight.i)
            memcpy(rank_at(r, s->weight, 0, 0), rank_at(r, s->master, 0, 0), (size_t)tensor_bytes(&r->program->tensor[s->weight.i]));
    }
}

static void print_value(const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    fputs(text ? text : "nothing", stderr);
    free(text);
}

/* A setting that is not what it was is said: nobody should find out by the loss. */
static void name_changed_settings(const json_t *saved, const Optimizer *o)
{
    json_t *now = optimizer_json(o), *value;
    const char *name;
    json_object_foreach(now, name, value) {
        const json_t *before = json_object_get(saved, name);
        if (json_equal(before, value))
            continue;
        fprintf(stderr, "note: the optimizer's '%s' was ", name);
        print_value(before);
        fputs(" and is now ", stderr);
        print_value(value);
        fputc('\n', stderr);
    }
    json_decref(now);
}

Status checkpoint_load(Arena *a, Rank *r, const char *folder)
{
    json_t *root;
    const char *model = NULL;
    TRY(read_state(a, folder, &root));
    Status s = json_unpack(root, "{s:s}", "model", &model) == 0 && strcmp(model, r->program->model) == 0 ? OK : ERR_REJECT;
    if (s != OK)
        fprintf(stderr, "error: checkpoint '%s' is of model '%s', but the plan is for '%s'\n", folder, model ? model : "", r->program->model);
    int nfile = has_tensor(r->program->loss) ? NFILES : FILE_MOMENTS;    /* to run forward, weights do */
    for (int i = 0; s == OK && i < nfile; i++)
        s = verify_file(a, folder, json_object_get(root, "files"), i);
    for (int i = 0; s == OK && i < nfile; i++)
        s = load_file(a, r, folder, i);
    if (s == OK && has_tensor(r->program->loss))
        name_changed_settings(json_object_get(root, "optimizer"), &r->optimizer);
    json_decref(root);
    if (s == OK)
        copy_masters(r);
    return s;
}
