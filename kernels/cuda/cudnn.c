/* cuDNN: see cudnn.h. */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cudnn.h"

/* ---- the library ---- */

static const char *const name = "libcudnn.so.9";
enum { OLDEST = 91600 };              /* before 9.16 gradients of attention were wrong at some lengths */

#ifdef CUDAEMU
/* The emulator's own functions, or NULL where it is to have none. */
void *cudaemu_cudnn(const char *function);
static void *open_library(void) { return cudaemu_cudnn("cudnnGetVersion") ? &open_library : NULL; }
static void *function_of(void *library, const char *function) { return library ? cudaemu_cudnn(function) : NULL; }
static const char *open_error(void) { return "the emulator has none"; }
#else
static void *open_library(void) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
static void *function_of(void *library, const char *function) { return dlsym(library, function); }
static const char *open_error(void) { return dlerror(); }
#endif

static Cudnn found;
static char missing[256];             /* why it is not there; empty: it is */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Object pointers and pointers to functions are of one size where dlsym() is. */
static void look_up(void)
{
    void *library = open_library(), *at;
    if (!library) {
        snprintf(missing, sizeof missing, "%s", open_error());
        return;
    }
#define FUNCTION(result, function, arguments)                                                        \
    if (!(at = function_of(library, #function)))                                                     \
        snprintf(missing, sizeof missing, "%s has no " #function, name);                             \
    memcpy(&found.function, &at, sizeof at);
    CUDNN_FUNCTIONS(FUNCTION)
#undef FUNCTION
    size_t version = missing[0] ? OLDEST : found.cudnnGetVersion();
    if (version < OLDEST)
        snprintf(missing, sizeof missing, "%s is of cuDNN %zu.%zu, and 9.16 is needed", name, version / 10000, version / 100 % 100);
}

const Cudnn *cudnn_library(const char **why)
{
    pthread_once(&once, look_up);
    *why = missing;
    return missing[0] ? NULL : &found;
}

/* ---- descriptors ---- */

Dnn dnn_new(const Cudnn *lib, int64_t outer)
{
    return (Dnn){.lib = lib, .inner = outer};
}

void dnn_free(Dnn *g)
{
    while (g->nmade > 0)
        g->lib->cudnnBackendDestroyDescriptor(g->made[--g->nmade]);
}

static bool is_well(const Dnn *g)
{
    return g->status == CUDNN_STATUS_SUCCESS;
}

/* The status of a call, and whether it went well. */
static bool went(Dnn *g, int status)
{
    g->status = status;
    if (status != CUDNN_STATUS_SUCCESS)
        g->lib->cudnnGetLastErrorString(g->said, sizeof g->said);
    return status == CUDNN_STATUS_SUCCESS;
}

static void *make(Dnn *g, int type)
{
    void *d = NULL;
    assert(g->nmade < DNN_MOST && "more descriptors than a graph has");
    if (is_well(g) && went(g, g->lib->cudnnBackendCreateDescriptor(type, &d)))
        g->made[g->nmade++] = d;
    return d;
}

static void set(Dnn *g, void *d, int attribute, int type, int64_t n, const void *values)
{
    if (is_well(g))
        went(g, g->lib->cudnnBackendSetAttribute(d, attribute, type, n, values));
}

/* As many values as there are, at most `room`. */
static int64_t get(Dnn *g, void *d, int attribute, int type, int64_t room, void *values)
{
    int64_t n = 0;
    if (is_well(g))
        went(g, g->lib->cudnnBackendGetAttribute(d, attribute, type, room, &n, values));
    return !is_well(g) ? 0 : n < room ? n : room;
}

static void set_number(Dnn *g, void *d, int attribute, int type, int value)
{
    set(g, d, attribute, type, 1, &value);
}

static void set_part(Dnn *g, void *d, int attribute, void *part)
{
    set(g, d, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void finish(Dnn *g, void *d)
{
    if (is_well(g))
        went(g, g->lib->cudnnBackendFinalize(d));
}

/* ---- tensors ---- */

static DnnTensor tensor(Dnn *g, int64_t number, int type, const int64_t dim[4], const int64_t stride[4], bool is_inner, bool by_value)
{
    static const int64_t alignment = CUDNN_ALIGNMENT;
    DnnTensor t = {.is = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR), .type = type};
    memcpy(t.dim, dim, sizeof t.dim);
    memcpy(t.stride, stride, sizeof t.stride);
    set(g, t.is, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    set_number(g, t.is, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    set(g, t.is, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(g, t.is, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(g, t.is, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, t.is, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inner);
    set(g, t.is, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finish(g, t.is);
    return t;
}

DnnTensor dnn_tensor(Dnn *g, int64_t number, int type, const int64_t dim[4], const int64_t stride[4])
{
    return tensor(g, number, type, dim, stride, false, false);
}

DnnTensor dnn_number(Dnn *g, int64_t number)
{
    static const int64_t one[4] = {1, 1, 1, 1};
    return tensor(g, number, CUDNN_DATA_FLOAT, one, one, false, true);
}

DnnTensor dnn_inner(Dnn *g, int type, const int64_t dim[4])
{
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
    return tensor(g, ++g->inner, type, dim, stride, true, false);
}

DnnTensor dnn_turned(Dnn *g, int type, const DnnTensor *of)
{
    const int64_t dim[4] = {of->dim[0], of->dim[1], of->dim[3], of->dim[2]}, stride[4] = {of->stride[0], of->stride[1], of->stride[3], of->stride[2]};
    return tensor(g, ++g->inner, type, dim, stride, true, false);
}

/* ---- ops ---- */

static void end_op(Dnn *g, void *op)
{
    finish(g, op);
    assert(g->nop < DNN_MOST_OPS && "more ops than a graph has");
    g->op[g->nop++] = op;
}

/* Comparisons are computed in what they result in, all else in f32. */
static void pointwise(Dnn *g, int mode, int64_t axis, const DnnTensor *x, const DnnTensor *b, const DnnTensor *chosen, const DnnTensor *y)
{
    void *how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set_number(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    set_number(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, y->type == CUDNN_DATA_BOOLEAN ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
    if (axis >= 0)
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, how);
    void *op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->is);
    if (b && b->is)
        set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->is);
    if (chosen)
        set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, chosen->is);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y->is);
    end_op(g, op);
}

void dnn_pointwise(Dnn *g, int mode, DnnTensor x, DnnTensor b, DnnTensor y) { pointwise(g, mode, -1, &x, &b, NULL, &y); }
void dnn_index(Dnn *g, int64_t axis, DnnTensor x, DnnTensor y) { pointwise(g, CUDNN_POINTWISE_GEN_INDEX, axis, &x, NULL, NULL, &y); }
void dnn_select(Dnn *g, DnnTensor x, DnnTensor b, DnnTensor chosen, DnnTensor y) { pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, -1, &x, &b, &chosen, &y); }

void dnn_matmul(Dnn *g, DnnTensor a, DnnTensor b, DnnTensor c)
{
    void *how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_number(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    finish(g, how);
    void *op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.is);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.is);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.is);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    end_op(g, op);
}

void dnn_reduce(Dnn *g, int mode, DnnTensor x, DnnTensor y)
{
    void *how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set_number(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode);
    set_number(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    finish(g, how);
    void *op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.is);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.is);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    end_op(g, op);
}

void dnn_reshape(Dnn *g, DnnTensor x, DnnTensor y)
{
    void *op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.is);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.is);
    end_op(g, op);
}

/* ---- plans ---- */

enum { MOST_ENGINES = 16 };

/* What the heuristics propose, the best first. */
static int64_t propose(Dnn *g, void *device, void *config[MOST_ENGINES])
{
    void *graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->nop, g->op);
    finish(g, graph);
    void *heuristics = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_part(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set_number(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    set_part(g, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    finish(g, heuristics);
    for (int i = 0; i < MOST_ENGINES; i++)
        config[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    return get(g, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_ENGINES, config);
}

/* Whether an engine sums in the same order each time. */
static bool is_deterministic(Dnn *g, void *config)
{
    int note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    void *engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    get(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    int64_t n = get(g, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, note);
    bool is = is_well(g);
    for (int64_t i = 0; i < n; i++)
        is = is && note[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return is;
}

/* NULL: this engine does not do. */
static void *compile(Dnn *g, void *config, void *device, int64_t most, int64_t *bytes)
{
    Dnn own = dnn_new(g->lib, 0);
    void *plan = make(&own, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_part(&own, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    set_part(&own, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    finish(&own, plan);
    get(&own, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, bytes);
    if (is_well(&own) && *bytes <= most)
        return plan;
    snprintf(g->said, sizeof g->said, "%.*s", 199, is_well(&own) ? "its engines want too much scratch" : own.said);
    dnn_free(&own);
    return NULL;
}

void *dnn_plan(Dnn *g, void *device, int64_t most, int64_t *bytes)
{
    void *config[MOST_ENGINES], *plan = NULL;
    int64_t n = propose(g, device, config);
    if (is_well(g))
        snprintf(g->said, sizeof g->said, "%s", n ? "its engines do not sum in the same order each time" : "it has no engine for this");
    for (int64_t i = 0; i < n && !plan; i++)
        if (is_deterministic(g, config[i]))
            plan = compile(g, config[i], device, most, bytes);
    return plan;
}

int dnn_execute(const Cudnn *lib, struct cudnnContext *handle, void *plan, int64_t n, const int64_t *number, void *const *at, void *scratch)
{
    Dnn own = dnn_new(lib, 0);
    void *operands = make(&own, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&own, operands, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, number);
    set(&own, operands, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
    set(&own, operands, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch);
    finish(&own, operands);
    if (is_well(&own))
        went(&own, lib->cudnnBackendExecute(handle, plan, operands));
    dnn_free(&own);
    return own.status;
}
