/* cudnn.cpp -- the part of cuDNN that executes graphs, by its backend API: tensors of four axes, products, pointwise ops,
 * reductions and reshapes.
 *
 * Each op is computed by itself, in f32, and rounded to the type of its result; tensors within a graph are never in device
 * memory.  What is refused: graphs whose parts do not fit together, log-sum-exps that are not packed, operands and scratch
 * that are not aligned, lie elsewhere than in device memory, or overlap.  Of the two engines that are proposed the first says that
 * it sums in another order each time, and must not be taken.  CUDAEMU_CUDNN is the version that it says it is; 0: there is none. */
#include "internal.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "kernels/cuda/cudnn.h"
#include "numbers.h"

using namespace cudaemu;

struct cudnnContext {
    int device;
    cudaStream_t stream;
};

namespace {

/* ---- descriptors ---- */

struct Values {
    int type;
    int64_t n;
    std::vector<char> bytes;
};

struct Descriptor {
    int type;
    bool finished = false;
    std::map<int, Values> attribute;
};

size_t size_of(int type)
{
    switch (type) {
    case CUDNN_TYPE_DATA_TYPE: case CUDNN_TYPE_HEUR_MODE: case CUDNN_TYPE_NUMERICAL_NOTE: case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE: return 4;
    case CUDNN_TYPE_BOOLEAN: case CUDNN_TYPE_CHAR: return 1;
    default: return 8;
    }
}

bool has(const Descriptor *d, int name) { return d->attribute.count(name); }

template <class T> std::vector<T> all_of(const Descriptor *d, int name)
{
    std::vector<T> v;
    auto found = d->attribute.find(name);
    if (found != d->attribute.end()) {
        v.resize((size_t)found->second.n);
        memcpy(v.data(), found->second.bytes.data(), std::min(v.size() * sizeof(T), found->second.bytes.size()));
    }
    return v;
}

template <class T> T value_of(const Descriptor *d, int name, T otherwise)
{
    std::vector<T> v = all_of<T>(d, name);
    return v.empty() ? otherwise : v[0];
}

const Descriptor *part_of(const Descriptor *d, int name) { return value_of<const Descriptor *>(d, name, nullptr); }

/* ---- tensors ---- */

struct Tensor {
    const Descriptor *is;
    int64_t number, dim[4], stride[4];
    int type;
    bool inner, by_value;
    int64_t count() const { return dim[0] * dim[1] * dim[2] * dim[3]; }
    /* Bytes from the first element to behind the last. */
    size_t span() const
    {
        int64_t last = 0;
        for (int i = 0; i < 4; i++)
            last += (dim[i] - 1) * stride[i];
        return (size_t)(last + 1) * (type == CUDNN_DATA_BFLOAT16 ? 2 : 4);
    }
};

Tensor tensor_of(const Descriptor *d)
{
    Tensor t = {d, value_of<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, -1), {0, 0, 0, 0}, {0, 0, 0, 0}, value_of<int>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1),
                value_of<char>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0, value_of<char>(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0};
    std::vector<int64_t> dim = all_of<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS), stride = all_of<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES);
    for (size_t i = 0; i < 4 && i < dim.size() && i < stride.size(); i++) {
        t.dim[i] = dim[i];
        t.stride[i] = stride[i];
    }
    return t;
}

bool is_tensor(const Tensor &t)
{
    bool real = t.type == CUDNN_DATA_FLOAT || t.type == CUDNN_DATA_BFLOAT16;
    return t.number >= 0 && t.count() > 0 && (t.inner || real) && !(t.inner && t.by_value) && !(t.by_value && t.count() != 1);
}

/* ---- ops ---- */

/* An op with its tensors, those it lacks without a descriptor. */
struct Op {
    int kind, mode;
    int64_t axis;
    Tensor x, b, chosen, y;
};

Op op_of(const Descriptor *d)
{
    static const struct { int kind, how, mode, x, b, chosen, y; } form[] = {
        {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
         CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
        {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
         CUDNN_ATTR_OPERATION_MATMUL_BDESC, -1, CUDNN_ATTR_OPERATION_MATMUL_CDESC},
        {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, -1, -1,
         CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
        {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, -1, -1, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, -1, -1, CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
    };
    Op op = {-1, -1, -1, {}, {}, {}, {}};
    for (const auto &f : form) {
        if (f.kind != d->type)
            continue;
        const Descriptor *how = part_of(d, f.how);
        Tensor *const to[] = {&op.x, &op.b, &op.chosen, &op.y};
        const int from[] = {f.x, f.b, f.chosen, f.y};
        for (int i = 0; i < 4; i++)
            if (const Descriptor *t = part_of(d, from[i]))
                *to[i] = tensor_of(t);
        op.kind = f.how >= 0 && !(how && how->finished) ? -1 : f.kind;
        op.mode = how ? value_of<int>(how, f.mode, -1) : -1;
        op.axis = how ? value_of<int64_t>(how, CUDNN_ATTR_POINTWISE_AXIS, -1) : -1;
    }
    return op;
}

/* Whether t has the axes of y, or one element along some. */
bool spreads(const Tensor &t, const Tensor &y)
{
    bool fits = true;
    for (int i = 0; i < 4; i++)
        fits = fits && (t.dim[i] == y.dim[i] || t.dim[i] == 1);
    return fits;
}

bool same_axes(const Tensor &a, const Tensor &b) { return memcmp(a.dim, b.dim, sizeof a.dim) == 0; }

/* Whether the tensors of an op fit together; heads of one side may serve as many of the other. */
bool is_op(const Op &o)
{
    if (!o.x.is || !o.y.is || !is_tensor(o.x) || !is_tensor(o.y) || (o.b.is && !is_tensor(o.b)))
        return false;
    switch (o.kind) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        if (o.mode == CUDNN_POINTWISE_GEN_INDEX)
            return o.axis >= 0 && o.axis < 4 && same_axes(o.x, o.y);
        if (o.mode == CUDNN_POINTWISE_BINARY_SELECT)
            return o.b.is && o.chosen.is && o.chosen.type == CUDNN_DATA_BOOLEAN && same_axes(o.x, o.y) && spreads(o.b, o.y) && same_axes(o.chosen, o.y);
        return same_axes(o.x, o.y) && (!o.b.is || spreads(o.b, o.y));
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return o.b.is && o.x.dim[3] == o.b.dim[2] && o.y.dim[2] == o.x.dim[2] && o.y.dim[3] == o.b.dim[3] && o.x.dim[0] == o.b.dim[0] && o.y.dim[0] == o.x.dim[0] &&
               o.y.dim[1] == o.x.dim[1] && o.x.dim[1] % o.b.dim[1] == 0;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return o.x.dim[0] == o.y.dim[0] && o.x.dim[2] == o.y.dim[2] && o.x.dim[1] % o.y.dim[1] == 0 && (o.y.dim[3] == 1 || o.y.dim[3] == o.x.dim[3]);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return o.x.count() == o.y.count() && o.y.inner;
    default: return false;
    }
}

/* ---- graphs ---- */

struct Plan {
    std::vector<Op> ops;
    std::map<int64_t, Tensor> outer;                 /* by number: what is given with a call */
    std::map<int64_t, bool> written;
};
enum : size_t { SCRATCH = 4096 };                    /* what a plan wants: it is filled with NaN */

/* The ops of a graph; empty when a tensor within it is read before it is made, or one number means two tensors. */
Plan plan_of(const Descriptor *graph)
{
    Plan p;
    std::map<int64_t, const Descriptor *> known;
    for (const Descriptor *d : all_of<const Descriptor *>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        Op op = op_of(d);
        for (const Tensor *t : {&op.x, &op.b, &op.chosen, &op.y}) {
            if (!t->is)
                continue;
            bool makes = t == &op.y, is_new = !known.count(t->number);
            if ((!is_new && known[t->number] != t->is) || (t->inner && makes != is_new))
                return Plan();
            known[t->number] = t->is;
            if (!t->inner) {
                p.outer[t->number] = *t;
                p.written[t->number] |= makes;
            }
        }
        p.ops.push_back(op);
    }
    return p;
}

/* Engines before 9.26 make wrong numbers of other orders. */
bool is_packed(const Plan &p)
{
    for (const auto &o : p.outer) {
        const Tensor &t = o.second;
        if (t.type == CUDNN_DATA_FLOAT && !t.by_value && t.dim[3] == 1 && (t.stride[2] != 1 || t.stride[1] != t.dim[2] || t.stride[0] != t.dim[1] * t.dim[2]))
            return false;
    }
    return true;
}

bool is_complete(const Descriptor *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return is_tensor(tensor_of(d));
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: return has(d, CUDNN_ATTR_POINTWISE_MODE) && has(d, CUDNN_ATTR_POINTWISE_MATH_PREC);
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR: return value_of<int>(d, CUDNN_ATTR_MATMUL_COMP_TYPE, -1) == CUDNN_DATA_FLOAT;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR: return has(d, CUDNN_ATTR_REDUCTION_OPERATOR) && value_of<int>(d, CUDNN_ATTR_REDUCTION_COMP_TYPE, -1) == CUDNN_DATA_FLOAT;
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: return has(d, CUDNN_ATTR_DEVICEPROP_HANDLE);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return !plan_of(d).ops.empty();
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return part_of(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) && part_of(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP) && has(d, CUDNN_ATTR_ENGINEHEUR_MODE);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return all_of<int64_t>(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() == all_of<void *>(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size();
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return part_of(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) && part_of(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    default: return is_op(op_of(d));
    }
}

/* What a plan is for: configurations keep the graph of the heuristics that proposed them. */
const Descriptor *graph_of(const Descriptor *plan)
{
    return part_of(part_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
}

void put(Descriptor *d, int name, int type, int64_t n, const void *values)
{
    const char *bytes = static_cast<const char *>(values);
    d->attribute[name] = Values{type, n, std::vector<char>(bytes, bytes + (size_t)n * size_of(type))};
}

/* ---- execution ---- */

typedef std::vector<float> Numbers;

float rounded(int type, float x) { return type == CUDNN_DATA_BFLOAT16 ? from_bf16(to_bf16(x)) : x; }

/* Index in row-major order of an element of t that stands for place i of y. */
int64_t spread(const Tensor &t, const Tensor &y, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int x = 3; x >= 0; x--) {
        at += i % y.dim[x] * (t.dim[x] == 1 ? 0 : step);
        i /= y.dim[x];
        step *= t.dim[x];
    }
    return at;
}

/* Place in memory of the i-th element. */
int64_t place_of(const Tensor &t, int64_t i)
{
    int64_t at = 0;
    for (int x = 3; x >= 0; x--) {
        at += i % t.dim[x] * t.stride[x];
        i /= t.dim[x];
    }
    return at;
}

float pointwise(int mode, float x, float b, bool chosen)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return chosen ? x : b;
    default: fatal("a pointwise op of cuDNN that is not emulated: %d", mode);
    }
}

void run_pointwise(const Op &o, const Numbers &x, const Numbers &b, const Numbers &chosen, Numbers &y)
{
    int64_t after = 1;
    for (int i = 3; i > o.axis; i--)
        after *= o.y.dim[i];
    for (int64_t i = 0; i < o.y.count(); i++)
        y[(size_t)i] = o.mode == CUDNN_POINTWISE_GEN_INDEX ? (float)(i / after % o.y.dim[o.axis])
                     : pointwise(o.mode, x[(size_t)i], o.b.is ? b[(size_t)spread(o.b, o.y, i)] : 0, o.chosen.is && chosen[(size_t)i] != 0);
}

void run_matmul(const Op &o, const Numbers &a, const Numbers &b, Numbers &c)
{
    const int64_t m = o.x.dim[2], k = o.x.dim[3], n = o.b.dim[3], heads = o.x.dim[1], each = heads / o.b.dim[1];
    std::fill(c.begin(), c.end(), 0.0f);
    for (int64_t g = 0; g < o.x.dim[0] * heads; g++) {
        const float *from = &a[(size_t)(g * m * k)], *by = &b[(size_t)((g / heads * o.b.dim[1] + g % heads / each) * k * n)];
        for (int64_t i = 0; i < m; i++)
            for (int64_t l = 0; l < k; l++)
                for (int64_t j = 0; j < n; j++)
                    c[(size_t)((g * m + i) * n + j)] += from[i * k + l] * by[l * n + j];
    }
}

/* Over columns, or over the heads that share one of the result. */
void run_reduce(const Op &o, const Numbers &x, Numbers &y)
{
    const int64_t columns = o.x.dim[3], rows = o.x.dim[2], heads = o.x.dim[1], each = heads / o.y.dim[1];
    std::fill(y.begin(), y.end(), o.mode == CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0.0f);
    for (int64_t i = 0; i < o.x.count(); i++) {
        int64_t head = i / columns / rows % heads, batch = i / columns / rows / heads;
        int64_t row = (batch * o.y.dim[1] + head / each) * rows + i / columns % rows;
        float &to = y[(size_t)(o.y.dim[3] == 1 ? row : row * columns + i % columns)];
        to = o.mode == CUDNN_REDUCE_TENSOR_MAX ? std::max(to, x[(size_t)i]) : to + x[(size_t)i];
    }
}

/* y takes the elements of x by their places. */
void run_reshape(const Op &o, const Numbers &x, Numbers &y)
{
    std::map<int64_t, float> at;
    for (int64_t i = 0; i < o.x.count(); i++)
        at[place_of(o.x, i)] = x[(size_t)i];
    for (int64_t i = 0; i < o.y.count(); i++)
        y[(size_t)i] = at[place_of(o.y, i)];
}

struct Call {
    Plan plan;
    std::map<int64_t, char *> at;                    /* by number */
    std::map<int64_t, float> given;
    char *scratch;
};

Numbers read(const Call &c, const Tensor &t)
{
    Numbers v((size_t)t.count());
    if (t.by_value) {
        v[0] = c.given.at(t.number);
        return v;
    }
    const char *from = c.at.at(t.number);
    for (int64_t i = 0; i < t.count(); i++) {
        const char *at = from + place_of(t, i) * (t.type == CUDNN_DATA_BFLOAT16 ? 2 : 4);
        v[(size_t)i] = t.type == CUDNN_DATA_BFLOAT16 ? from_bf16(*reinterpret_cast<const uint16_t *>(at)) : *reinterpret_cast<const float *>(at);
    }
    return v;
}

void write(const Call &c, const Tensor &t, const Numbers &v)
{
    char *to = c.at.at(t.number);
    for (int64_t i = 0; i < t.count(); i++) {
        char *at = to + place_of(t, i) * (t.type == CUDNN_DATA_BFLOAT16 ? 2 : 4);
        if (t.type == CUDNN_DATA_BFLOAT16)
            *reinterpret_cast<uint16_t *>(at) = to_bf16(v[(size_t)i]);
        else
            *reinterpret_cast<float *>(at) = v[(size_t)i];
    }
}

void execute(const Call &c)
{
    note_write(c.scratch, SCRATCH);
    for (const auto &o : c.plan.outer)
        if (c.plan.written.at(o.first))
            note_write(c.at.at(o.first), o.second.span());
        else if (!o.second.by_value)
            note_read(c.at.at(o.first), o.second.span());
    Hidden hidden;
    std::map<int64_t, Numbers> known;
    memset(c.scratch, 0xff, SCRATCH);
    for (const Op &o : c.plan.ops) {
        for (const Tensor *t : {&o.x, &o.b, &o.chosen})
            if (t->is && !known.count(t->number))
                known[t->number] = read(c, *t);
        Numbers y((size_t)o.y.count());
        const Numbers &x = known[o.x.number], &b = o.b.is ? known[o.b.number] : x;
        if (o.kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            run_pointwise(o, x, b, o.chosen.is ? known[o.chosen.number] : x, y);
        else if (o.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            run_matmul(o, x, b, y);
        else if (o.kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            run_reduce(o, x, y);
        else
            run_reshape(o, x, y);
        for (float &f : y)
            f = rounded(o.y.type, f);
        if (!o.y.inner)
            write(c, o.y, y);
        known[o.y.number] = std::move(y);
    }
}

/* Whether every operand is given, and lies where it must. */
bool check_call(Call &c, const Descriptor *pack)
{
    std::vector<int64_t> number = all_of<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    std::vector<char *> at = all_of<char *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    c.scratch = value_of<char *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
    for (size_t i = 0; i < number.size(); i++)
        c.at[number[i]] = at[i];
    if (c.at.size() != c.plan.outer.size() || reinterpret_cast<uintptr_t>(c.scratch) % 256 || !memory_check(c.scratch, SCRATCH, MEM_DEVICE, "the scratch of cuDNN"))
        return false;
    for (const auto &o : c.plan.outer) {
        char *p = c.at.count(o.first) ? c.at[o.first] : nullptr;
        if (p && o.second.by_value) {
            memcpy(&c.given[o.first], p, sizeof(float));
            continue;
        }
        if (!p || reinterpret_cast<uintptr_t>(p) % 16 || !memory_check(p, o.second.span(), MEM_DEVICE, "an operand of cuDNN"))
            return false;
        for (const auto &w : c.plan.outer)
            if (c.plan.written[w.first] && w.first != o.first && p < c.at[w.first] + w.second.span() && c.at[w.first] < p + o.second.span())
                report("two operands of cuDNN overlap, and one of them is written");
        if (p < c.scratch + SCRATCH && c.scratch < p + o.second.span())
            report("an operand of cuDNN lies in its scratch");
    }
    return true;
}

Descriptor *descriptor(void *d) { return static_cast<Descriptor *>(d); }

thread_local const char *last_error = "";

int refuse(int status, const char *why)
{
    last_error = why;
    return status;
}

/* ---- what is asked of descriptors ---- */

/* Two configurations, of engines 0 and 1. */
int give_engines(const Descriptor *heuristics, int64_t room, int64_t *n, Descriptor **to)
{
    const Descriptor *graph = part_of(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    *n = is_packed(plan_of(graph)) ? 2 : 0;
    for (int64_t i = 0; i < *n && i < room; i++) {
        put(to[i], CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
        put(to[i], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_INT64, 1, &i);
        to[i]->finished = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

int give(const Descriptor *d, int name, int64_t room, int64_t *n, void *values)
{
    static const int note = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    static const int64_t scratch = SCRATCH;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return give_engines(d, room, n, static_cast<Descriptor **>(values));
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        *n = 1;
        put(*static_cast<Descriptor **>(values), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_INT64, 1, d->attribute.at(name).bytes.data());
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *n = value_of<int64_t>(d, CUDNN_ATTR_ENGINECFG_ENGINE, -1) == 0;
        if (*n && room > 0)
            memcpy(values, &note, sizeof note);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *n = 1;
        memcpy(values, &scratch, sizeof scratch);
        return CUDNN_STATUS_SUCCESS;
    default: return refuse(CUDNN_STATUS_BAD_PARAM, "an attribute that the emulator does not tell");
    }
}

} /* namespace */

/* ---- the API ---- */

static size_t cudnnGetVersion() { return settings().cudnn; }

static int cudnnCreate(cudnnContext **handle)
{
    Hidden hidden;
    if (int code = fault("cudnnCreate"))
        return code;
    *handle = new cudnnContext{current_device(), nullptr};
    return CUDNN_STATUS_SUCCESS;
}

static int cudnnSetStream(cudnnContext *handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

static void cudnnGetLastErrorString(char *text, size_t room) { snprintf(text, room, "%s", last_error); }

static int cudnnBackendCreateDescriptor(int type, void **d)
{
    Hidden hidden;
    *d = new Descriptor{type, false, {}};
    return CUDNN_STATUS_SUCCESS;
}

static int cudnnBackendDestroyDescriptor(void *d)
{
    Hidden hidden;
    delete descriptor(d);
    return CUDNN_STATUS_SUCCESS;
}

static int cudnnBackendSetAttribute(void *d, int name, int type, int64_t n, const void *values)
{
    Hidden hidden;
    if (descriptor(d)->finished)
        return refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is finished");
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < n; i++)
            if (!static_cast<Descriptor *const *>(values)[i]->finished)
                return refuse(CUDNN_STATUS_BAD_PARAM, "a part of the descriptor is not finished");
    put(descriptor(d), name, type, n, values);
    return CUDNN_STATUS_SUCCESS;
}

static int cudnnBackendGetAttribute(void *d, int name, int, int64_t room, int64_t *n, void *values)
{
    Hidden hidden;
    return give(descriptor(d), name, room, n, values);
}

static int cudnnBackendFinalize(void *d)
{
    Hidden hidden;
    if (int code = fault("cudnnBackendFinalize"))
        return refuse(code, "a fault that was asked for");
    if (!is_complete(descriptor(d)))
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the parts of the descriptor do not fit together");
    descriptor(d)->finished = true;
    return CUDNN_STATUS_SUCCESS;
}

static int cudnnBackendExecute(cudnnContext *handle, void *plan, void *operands)
{
    Hidden hidden;
    if (int code = fault("cudnnBackendExecute"))
        return refuse(code, "a fault that was asked for");
    if (handle->device != current_device())
        report("a handle of cuDNN for device %d is used on device %d", handle->device, current_device());
    cudaStream_t s = resolve(handle->stream, "a graph of cuDNN");
    Call c = {plan_of(graph_of(descriptor(plan))), {}, {}, nullptr};
    if (value_of<int64_t>(part_of(descriptor(plan), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE, 0) == 0)
        report("an engine of cuDNN that sums in another order each time is used");
    if (!s || !check_call(c, descriptor(operands)))
        return refuse(CUDNN_STATUS_BAD_PARAM, "operands that are missing, too many, or not aligned");
    enqueue(s, Operation{[c]() { execute(c); }, "a graph of cuDNN", "gemm", {}, false});
    return CUDNN_STATUS_SUCCESS;
}

/* What kernels/cuda/cudnn.c has instead of dlsym(). */
extern "C" void *cudaemu_cudnn(const char *function);
extern "C" void *cudaemu_cudnn(const char *function)
{
#define FUNCTION(result, name, arguments)    \
    if (settings().cudnn && !strcmp(function, #name)) \
        return reinterpret_cast<void *>(&name);
    CUDNN_FUNCTIONS(FUNCTION)
#undef FUNCTION
    return nullptr;
}
