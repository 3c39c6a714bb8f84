/* Steps: see steps.h. */
#include "runtime/steps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"

const char *const checkpoint_file[NFILES] = {"weights.safetensors", "moments.safetensors", "state.json"};

/* ---- names ---- */

int64_t steps_number(const char *name, const char *suffix)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    int64_t step = strtoll(name + 5, &end, 10);
    return strcmp(end, suffix) == 0 ? step : -1;
}

const char *steps_folder(Arena *a, const char *dir, int64_t step, const char *suffix)
{
    return arena_printf(a, "%s/step-%08" PRId64 "%s", dir, step, suffix);
}

static int newest_first(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a < b) - (a > b);
}

int64_t *steps_list(Arena *a, const char *dir, const char *suffix, uint32_t *n)
{
    int64_t *step = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (steps_number(e->d_name, suffix) >= 0)
            PUSH(a, step, *n, steps_number(e->d_name, suffix));
    if (d)
        closedir(d);
    if (*n)
        qsort(step, *n, sizeof *step, newest_first);
    return step;
}

/* ---- removing ---- */

/* What killed runs left beside a file they were writing. */
static void remove_left(Arena *a, const char *dir, const char *of)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (writer_left(e->d_name, of))
            unlink(arena_printf(a, "%s/%s", dir, e->d_name));
    if (d)
        closedir(d);
}

void steps_remove(Arena *a, const char *folder)
{
    for (int i = NFILES - 1; i >= 0; i--) {
        unlink(arena_printf(a, "%s/%s", folder, checkpoint_file[i]));
        remove_left(a, folder, checkpoint_file[i]);
    }
    rmdir(folder);
}

void steps_prune(Arena *a, const char *dir, int64_t latest, int keep)
{
    uint32_t n;
    int64_t *step = steps_list(a, dir, "", &n);
    for (uint32_t i = 0, kept = 0; i < n; i++)
        if (step[i] <= latest && ++kept > (uint32_t)keep)
            steps_remove(a, steps_folder(a, dir, step[i], ""));
    step = steps_list(a, dir, BEING_WRITTEN, &n);
    for (uint32_t i = 0; i < n; i++)
        steps_remove(a, steps_folder(a, dir, step[i], BEING_WRITTEN));
    remove_left(a, dir, "latest");
}

/* ---- whose folder it is ---- */

Status checkpoint_lock(Arena *a, const char *dir, SaveLock *l)
{
    struct stat st;
    const char *path = arena_printf(a, "%s/lock", dir);
    l->made = access(dir, F_OK) != 0;
    for (;;) {
        TRY(folder_make(a, dir));
        l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (l->fd < 0) {
            fprintf(stderr, "error: cannot create '%s': %s\n", path, strerror(errno));
            return ERR_IO;
        }
        bool mine = flock(l->fd, LOCK_EX | LOCK_NB) == 0;
        if (mine && (fstat(l->fd, &st) != 0 || st.st_nlink > 0))
            return OK;
        close(l->fd);
        l->fd = -1;
        if (mine)                                    /* who had it took it away in between */
            continue;
        fprintf(stderr, "error: another run is saving into '%s'\n", dir);
        return ERR_REJECT;
    }
}

/* A network's file system may show another machine's new file a little later. */
void checkpoint_mark(Arena *a, const char *dir, int64_t mark[2])
{
    enum { LOOKS = 30 };
    const char *path = arena_printf(a, "%s/lock", dir);
    struct stat st;
    int looks = 0;
    while (stat(path, &st) != 0 && ++looks < LOOKS)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    mark[0] = looks < LOOKS ? (int64_t)st.st_ino : 0;
    mark[1] = looks < LOOKS ? (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec : 0;
}

static bool is_empty_but_lock(const char *dir)
{
    bool empty = true;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        empty &= strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || strcmp(e->d_name, "lock") == 0;
    if (d)
        closedir(d);
    return d && empty;
}

void checkpoint_unlock(Arena *a, const char *dir, SaveLock *l)
{
    if (l->made && is_empty_but_lock(dir) && unlink(arena_printf(a, "%s/lock", dir)) == 0)
        rmdir(dir);
    close(l->fd);
    l->fd = -1;
}

bool checkpoint_any(Arena *a, const char *dir)
{
    return access(arena_printf(a, "%s/latest", dir), F_OK) == 0;
}

void checkpoint_left_behind(Arena *a, const char *dir, int64_t from)
{
    uint32_t n;
    int64_t *step = steps_list(a, dir, "", &n);
    if (n > 0 && step[0] > from)
        fprintf(stderr, "note: '%s' has checkpoints of later steps, up to %" PRId64 "; this run goes on from step %" PRId64 ", and 'latest' will name what "
                "it saves: to keep both, save into another folder\n", dir, step[0], from);
}

/* Whether a path has or will have a name of DIR's checkpoints. */
static bool is_step_of(Arena *a, const char *path, const char *dir)
{
    const char *place = file_target(a, path), *name = basename(arena_strdup(a, place));
    bool step = steps_number(name, "") >= 0 || steps_number(name, BEING_WRITTEN) >= 0;
    return step && strcmp(dirname(arena_strdup(a, place)), file_target(a, dir)) == 0;
}

Status checkpoint_claim(Arena *a, const char *dir, const char *resume)
{
    uint32_t n;
    int64_t *step = steps_list(a, dir, "", &n);
    const char *marker = arena_printf(a, "%s/latest", dir);
    if (resume && (file_same(resume, dir) || is_step_of(a, resume, dir)))
        return OK;
    if (n > 0)
        fprintf(stderr, "error: --save '%s': it holds checkpoints of another run, the newest of step %" PRId64 "; go on from there with "
                "--resume %s, or save into another folder\n", dir, step[0], dir);
    else if (access(marker, F_OK) == 0)
        fprintf(stderr, "error: --save '%s': it has a file 'latest', which a save would replace; save into another folder\n", dir);
    else
        return OK;
    return ERR_REJECT;
}

/* ---- its files among those of a run ---- */

static void use_files(FileUses *u, FileUseKind kind, const char *folder)
{
    for (int i = 0; i < NFILES; i++)
        file_uses_add(u, kind, "checkpoint file", arena_printf(u->arena, "%s/%s", folder, checkpoint_file[i]));
}

void checkpoint_uses(FileUses *u, FileUseKind kind, const char *dir)
{
    uint32_t n;
    int64_t *step = steps_list(u->arena, dir, "", &n);
    for (uint32_t i = 0; i < n; i++)
        use_files(u, kind, steps_folder(u->arena, dir, step[i], ""));
    use_files(u, kind, dir);
    file_uses_add(u, kind, "checkpoint file", arena_printf(u->arena, "%s/latest", dir));
    file_uses_add(u, kind, "checkpoint file", arena_printf(u->arena, "%s/lock", dir));
}

Status checkpoint_refuse_inside(Arena *a, const char *dir, const char *what, const char *path)
{
    if (strcmp(path, "-") == 0)
        return OK;
    if (!is_step_of(a, path, dir) && !is_step_of(a, dirname(arena_strdup(a, path)), dir))
        return OK;
    fprintf(stderr, "error: %s '%s': this name belongs to the checkpoints in '%s': give it another name\n", what, path, dir);
    return ERR_USAGE;
}
