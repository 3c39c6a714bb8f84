#ifndef KERNELS_CUDA_CUDNN_H
#define KERNELS_CUDA_CUDNN_H
/* cuDNN: the library, opened while prun runs, and graphs of its operations; private to this folder.
 *
 * Nothing of it is needed to build: its numbers are in cudnn.def, and its functions are looked up in the library.  A Dnn is a
 * graph in the making, op by op over tensors of four axes: batch, head, row, column.  What fails makes all that follows do
 * nothing, and dnn_plan() tells. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
#define CUDNN(name, value) name = value,
#include "kernels/cuda/cudnn.def"
#undef CUDNN
};

struct cudnnContext;
struct CUstream_st;

/* The functions that are called.  Types, names and modes are numbers, descriptors are addresses. */
#define CUDNN_FUNCTIONS(F)                                                                                         \
    F(size_t, cudnnGetVersion, (void))                                                                             \
    F(int, cudnnCreate, (struct cudnnContext **))                                                                  \
    F(int, cudnnSetStream, (struct cudnnContext *, struct CUstream_st *))                                          \
    F(void, cudnnGetLastErrorString, (char *text, size_t room))                                                    \
    F(int, cudnnBackendCreateDescriptor, (int type, void **))                                                      \
    F(int, cudnnBackendDestroyDescriptor, (void *))                                                                \
    F(int, cudnnBackendSetAttribute, (void *, int name, int type, int64_t n, const void *values))                  \
    F(int, cudnnBackendGetAttribute, (void *, int name, int type, int64_t room, int64_t *n, void *values))         \
    F(int, cudnnBackendFinalize, (void *))                                                                         \
    F(int, cudnnBackendExecute, (struct cudnnContext *, void *plan, void *operands))

typedef struct Cudnn {
#define FUNCTION(result, name, arguments) result (*name) arguments;
    CUDNN_FUNCTIONS(FUNCTION)
#undef FUNCTION
} Cudnn;

/* The library, opened when it is first asked for; NULL: there is none that will do, and *why says it. */
const Cudnn *cudnn_library(const char **why);

/* ---- graphs ---- */

typedef struct DnnTensor {
    void   *is;                       /* its descriptor; NULL: there is none */
    int     type;
    int64_t dim[4], stride[4];        /* in elements */
} DnnTensor;

enum { DNN_MOST = 160, DNN_MOST_OPS = 32 };
typedef struct Dnn {
    const Cudnn *lib;
    int          status;              /* of the first call that failed, and what the library said of it */
    char         said[200];
    int64_t      inner;               /* number of the latest tensor within the graph */
    void        *made[DNN_MOST], *op[DNN_MOST_OPS];
    int          nmade, nop;
} Dnn;

/* A graph whose tensors in memory have numbers up to `outer`. */
Dnn  dnn_new(const Cudnn *, int64_t outer);
/* Descriptors of a graph that is not wanted. */
void dnn_free(Dnn *);

enum { CUDNN_ALIGNMENT = 16 };        /* bytes, of tensors in memory */

/* A tensor in memory; a number of f32, given with the call; a tensor within the graph, row-major. */
DnnTensor dnn_tensor(Dnn *, int64_t number, int type, const int64_t dim[4], const int64_t stride[4]);
DnnTensor dnn_number(Dnn *, int64_t number);
DnnTensor dnn_inner(Dnn *, int type, const int64_t dim[4]);
/* A tensor within the graph that has rows for columns. */
DnnTensor dnn_turned(Dnn *, int type, const DnnTensor *);

/* y = mode(x, b), of x's axes and those of b that are longer than 1; b without a descriptor: of x alone. */
void dnn_pointwise(Dnn *, int mode, DnnTensor x, DnnTensor b, DnnTensor y);
/* Index along an axis, at each place of x. */
void dnn_index(Dnn *, int64_t axis, DnnTensor x, DnnTensor y);
/* y = chosen ? x : b */
void dnn_select(Dnn *, DnnTensor x, DnnTensor b, DnnTensor chosen, DnnTensor y);
void dnn_matmul(Dnn *, DnnTensor a, DnnTensor b, DnnTensor c);
/* Over the axes that y has shorter. */
void dnn_reduce(Dnn *, int mode, DnnTensor x, DnnTensor y);
/* The same elements with the axes of y. */
void dnn_reshape(Dnn *, DnnTensor x, DnnTensor y);

/* The plan of the first engine that is proposed for a device (a descriptor of its properties), sums in the same order each time and
 * wants no more than `most` bytes of scratch; *bytes is what it wants.  NULL: there is none, which is `said`. */
void *dnn_plan(Dnn *, void *device, int64_t most, int64_t *bytes);

/* Put a plan on the handle's stream: tensor `number[i]` lies at `at[i]`.  A status. */
int dnn_execute(const Cudnn *, struct cudnnContext *, void *plan, int64_t n, const int64_t *number, void *const *at, void *scratch);

#endif
