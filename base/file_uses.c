/* File uses: see file_uses.h. */
#include "base/file_uses.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

/* What a path stands for: a file, or a place where none is yet. */
typedef struct Identity {
    bool        known;                /* false: nothing that could be destroyed */
    dev_t       device;
    ino_t       inode;
    const char *place;                /* NULL: the file exists */
} Identity;

void file_uses_add(FileUses *u, FileUseKind kind, const char *what, const char *path)
{
    PUSH(u->arena, u->use, u->nuse, ((FileUse){kind, what, path}));
}

/* Standard output takes one thing, whatever it is; what else is a character device
 * may be used twice, such as a terminal that is standard input too. */
static Identity identity_of(Arena *a, const FileUse *u)
{
    struct stat st;
    bool standard = strcmp(u->path, "-") == 0, written = u->kind == USE_WRITE;
    if ((standard ? fstat(written ? STDOUT_FILENO : STDIN_FILENO, &st) : stat(u->path, &st)) == 0)
        return (Identity){.known = (standard && written) || !S_ISCHR(st.st_mode), .device = st.st_dev, .inode = st.st_ino};
    return (Identity){.known = true, .place = file_target(a, u->path)};
}

static bool same(const Identity *x, const Identity *y)
{
    if (!x->known || !y->known || !x->place != !y->place)
        return false;
    return x->place ? strcmp(x->place, y->place) == 0 : x->device == y->device && x->inode == y->inode;
}

static Status refuse(const FileUse *x, const FileUse *y)
{
    const FileUse *out = x->kind > y->kind ? x : y, *other = out == x ? y : x;
    if (other->kind == USE_WRITE)
        fprintf(stderr, "error: %s '%s' and %s '%s' are one file: give each its own\n", x->what, x->path, y->what, y->path);
    else
        fprintf(stderr, "error: %s '%s' would overwrite %s '%s': give it another name\n", out->what, out->path, other->what, other->path);
    return ERR_USAGE;
}

Status file_uses_check(const FileUses *u)
{
    Identity *id = NEWN(u->arena, Identity, u->nuse);
    for (uint32_t i = 0; i < u->nuse; i++) {
        id[i] = identity_of(u->arena, &u->use[i]);
        for (uint32_t k = 0; k < i; k++)
            if (same(&id[i], &id[k]) && (u->use[i].kind != u->use[k].kind || u->use[i].kind == USE_WRITE))
                return refuse(&u->use[k], &u->use[i]);
    }
    return OK;
}
