#ifndef BASE_FILE_USES_H
#define BASE_FILE_USES_H
/* File uses: which files a command reads and writes.  All are known before anything is
 * written, so that no output can destroy an input or another output. */
#include "base/arena.h"
#include "base/status.h"

typedef enum FileUseKind {
    USE_READ,
    USE_KEEP,                         /* read and written by the run itself: its checkpoints */
    USE_WRITE
} FileUseKind;

/* `what` is what messages call it: an option, or "the input". */
typedef struct FileUse { FileUseKind kind; const char *what, *path; } FileUse;
typedef struct FileUses { Arena *arena; FileUse *use; uint32_t nuse; } FileUses;

void   file_uses_add(FileUses *, FileUseKind, const char *what, const char *path);
/* ERR_USAGE, both named, when something that is written is the same file as something
 * else: by device and inode, or for what is not there yet by its path; links
 * are followed, '-' is standard input or output.  Several may write to a character
 * device such as /dev/null, which keeps nothing. */
Status file_uses_check(const FileUses *);

#endif
