/* test_cudnn.cpp -- graphs of cuDNN against sums written out, and what is refused of them.  The graph is y = a b scale, and the sums of
 * its rows. */
#include "harness.h"

#include <cmath>
#include <cstring>
#include <vector>

extern "C" {
#include "kernels/cuda/cudnn.h"
}

enum { A = 1, B, Y, SUMS, SCALE, NUMBERS };
static const int64_t HEADS = 2, M = 3, K = 5, N = 4;

static const Cudnn *library()
{
    const char *why;
    const Cudnn *lib = cudnn_library(&why);
    CHECK(lib);
    return lib;
}

/* A descriptor of the device, and its handle. */
static void *device_of(const Cudnn *lib, cudnnContext **handle)
{
    void *d;
    OK(lib->cudnnCreate(handle));
    OK(lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d));
    OK(lib->cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, handle));
    OK(lib->cudnnBackendFinalize(d));
    return d;
}

/* How a graph is wrong. */
enum Wrong { NOTHING, EXTENTS, TWICE, UNPACKED };

static Dnn graph_of(const Cudnn *lib, Wrong wrong)
{
    Dnn g = dnn_new(lib, NUMBERS);
    const int64_t a[] = {1, HEADS, M, wrong == EXTENTS ? K + 1 : K}, as[] = {HEADS * M * K, M * K, K, 1};
    const int64_t b[] = {1, 1, K, N}, bs[] = {K * N, K * N, N, 1};
    const int64_t y[] = {1, HEADS, M, N}, ys[] = {HEADS * M * N, M * N, N, 1};
    const int64_t sums[] = {1, HEADS, M, 1}, packed[] = {HEADS * M, M, 1, 1}, turned[] = {HEADS * M, 1, HEADS, 1};
    DnnTensor product = dnn_inner(&g, CUDNN_DATA_FLOAT, y);
    DnnTensor at = dnn_tensor(&g, A, CUDNN_DATA_FLOAT, a, as), yt = dnn_tensor(&g, wrong == TWICE ? A : Y, CUDNN_DATA_FLOAT, y, ys);
    dnn_matmul(&g, at, dnn_tensor(&g, B, CUDNN_DATA_FLOAT, b, bs), product);
    dnn_pointwise(&g, CUDNN_POINTWISE_MUL, product, dnn_number(&g, SCALE), yt);
    dnn_reduce(&g, CUDNN_REDUCE_TENSOR_ADD, yt, dnn_tensor(&g, SUMS, CUDNN_DATA_FLOAT, sums, wrong == UNPACKED ? turned : packed));
    return g;
}

/* A plan, and operands of a call that a case may spoil. */
struct Call {
    const Cudnn *lib;
    cudnnContext *handle;
    Dnn graph;
    void *plan;
    int64_t bytes, number[5] = {A, B, Y, SUMS, SCALE}, n = 5;
    std::vector<float> a, b;
    float scale = 0.5f;
    float *y, *sums;
    void *at[5], *scratch;
    cudaStream_t stream = new_stream();

    explicit Call(const Cudnn *with) : lib(with), handle(nullptr), graph(graph_of(with, NOTHING)), bytes(0)
    {
        plan = dnn_plan(&graph, device_of(lib, &handle), 1 << 20, &bytes);
        CHECK(plan);
        for (int64_t i = 0; i < HEADS * M * K; i++)
            a.push_back((float)(i % 7) - 3);
        for (int64_t i = 0; i < K * N; i++)
            b.push_back((float)(i % 5) - 1);
        y = device_floats((size_t)(HEADS * M * N));
        sums = device_floats((size_t)(HEADS * M));
        void *const all[] = {device_floats(a.size(), a.data()), device_floats(b.size(), b.data()), y, sums, &scale};
        memcpy(at, all, sizeof at);
        OK(cudaMalloc(&scratch, (size_t)bytes + 4096));
        OK(lib->cudnnSetStream(handle, stream));
    }
    int run() { return dnn_execute(lib, handle, plan, n, number, at, scratch); }
};

static void computes()
{
    Call c(library());
    OK(c.run());
    const float *y = read_floats(c.y, (size_t)(HEADS * M * N), c.stream), *sums = read_floats(c.sums, (size_t)(HEADS * M), c.stream);
    for (int64_t r = 0; r < HEADS * M; r++) {
        float sum = 0;
        for (int64_t j = 0; j < N; j++) {
            float want = 0;
            for (int64_t k = 0; k < K; k++)
                want += c.a[(size_t)(r * K + k)] * c.b[(size_t)(k * N + j)];
            CHECK(y[r * N + j] == want * c.scale);
            sum += want * c.scale;
        }
        CHECK(sums[r] == sum);
    }
}

static void is_absent()
{
    const char *why;
    CHECK(!cudnn_library(&why) && !strcmp(why, "the emulator has none"));
}

static void is_old()
{
    const char *why;
    CHECK(!cudnn_library(&why) && !strcmp(why, "libcudnn.so.9 is of cuDNN 9.15, and 9.16 is needed"));
}

static void refused(Wrong wrong, const char *said)
{
    const Cudnn *lib = library();
    cudnnContext *handle;
    int64_t bytes;
    Dnn g = graph_of(lib, wrong);
    CHECK(!dnn_plan(&g, device_of(lib, &handle), 1 << 20, &bytes));
    CHECK(!strcmp(g.said, said));
    dnn_free(&g);
}

static void wrong_extents() { refused(EXTENTS, "the parts of the descriptor do not fit together"); }
static void number_twice() { refused(TWICE, "the parts of the descriptor do not fit together"); }
static void unpacked_sums() { refused(UNPACKED, "it has no engine for this"); }

static void too_much_scratch()
{
    const Cudnn *lib = library();
    cudnnContext *handle;
    int64_t bytes;
    Dnn g = graph_of(lib, NOTHING);
    CHECK(!dnn_plan(&g, device_of(lib, &handle), 1, &bytes) && !strcmp(g.said, "its engines want too much scratch"));
    dnn_free(&g);
}

static void missing_operand()
{
    Call c(library());
    c.n = 4;
    CHECK(c.run() == CUDNN_STATUS_BAD_PARAM);
}

static void misaligned_operand()
{
    Call c(library());
    c.at[0] = static_cast<float *>(c.at[0]) + 1;
    CHECK(c.run() == CUDNN_STATUS_BAD_PARAM);
}

static void operand_of_the_host()
{
    Call c(library());
    c.at[1] = c.b.data();
    c.run();
}

static void overlap()
{
    Call c(library());
    c.at[3] = c.at[2];
    c.run();
}

static void in_scratch()
{
    Call c(library());
    c.at[2] = c.scratch;
    c.run();
}

/* As a program does that does not look at what engines say of themselves. */
static const Cudnn *real;
static int without_notes(void *d, int name, int type, int64_t room, int64_t *n, void *values)
{
    if (name != CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
        return real->cudnnBackendGetAttribute(d, name, type, room, n, values);
    *n = 0;
    return CUDNN_STATUS_SUCCESS;
}

static void other_order()
{
    real = library();
    static Cudnn blind = *real;
    blind.cudnnBackendGetAttribute = without_notes;
    Call c(&blind);
    c.run();
}

static const char there[] = "CUDAEMU_CUDNN=91900";
static const Case cases[] = {
    {"a graph of cuDNN", computes, nullptr, there},
    {"cuDNN is not there unless it is asked for", is_absent, nullptr, nullptr},
    {"a cuDNN that is too old", is_old, nullptr, "CUDAEMU_CUDNN=91500"},
    {"a product of matrices that do not fit", wrong_extents, nullptr, there},
    {"a number for two tensors", number_twice, nullptr, there},
    {"sums of rows that are not packed", unpacked_sums, nullptr, there},
    {"an engine that wants too much scratch", too_much_scratch, nullptr, there},
    {"an operand that is not given", missing_operand, nullptr, there},
    {"an operand that is not aligned", misaligned_operand, nullptr, there},
    {"an operand in memory of the host", operand_of_the_host, "an operand of cuDNN", there},
    {"operands that overlap", overlap, "two operands of cuDNN overlap", there},
    {"an operand in the scratch", in_scratch, "lies in its scratch", there},
    {"an engine that sums in another order each time", other_order, "sums in another order each time is used", there},
};

int main(int argc, char **argv)
{
    return RUN_CASES(argc, argv, cases);
}
