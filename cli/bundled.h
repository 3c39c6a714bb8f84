#ifndef CLI_BUNDLED_H
#define CLI_BUNDLED_H
/* Bundled: the models, clusters and profiles that come with the programs, by the names that users give them. */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct BundledKind {
    const char *folder;               /* of that of all bundled files; "": that one */
    const char *ending;               /* of its files */
    bool        whole;                /* a name keeps the ending, and the folders below */
} BundledKind;

extern const BundledKind bundled_models, bundled_clusters, bundled_profiles;

/* Their names in alphabetical order; how many there are.  dir: the folder of all bundled files. */
uint32_t bundled_names(Arena *, const char *dir, const BundledKind *, const char ***out);

#endif
