#ifndef RUNTIME_SAFETENSORS_H
#define RUNTIME_SAFETENSORS_H
/* safetensors: the format of checkpoints, dumps and data. */
#include "base/arena.h"
#include "base/status.h"
#include "ir/program.h"

typedef struct STensor { const char *name; DType dtype; uint8_t rank; int64_t extent[MAX_RANK]; const void *data; int64_t bytes; } STensor;
typedef struct SFile { STensor *tensor; uint32_t ntensor; void *map; size_t map_bytes; const char *path; } SFile;
/* Map a file; every size and offset is checked, and that the tensors lie end to end.
 * Tensor data point into the map; tensors are in the order of their data. */
Status sfile_open(Arena *, const char *path, SFile *out);
void   sfile_close(SFile *);
const STensor *sfile_find(const SFile *, const char *name);
/* What a file begins with: its length and the header.  The data of the tensors follow
 * end to end, in order. */
typedef struct SFileHead { const char *data; size_t bytes; } SFileHead;
Status sfile_head(Arena *, const STensor *, uint32_t n, SFileHead *);
/* Write through a temporary name, fsync, rename; '-' is standard output. */
Status sfile_write(Arena *, const char *path, const STensor *, uint32_t n);

#endif
