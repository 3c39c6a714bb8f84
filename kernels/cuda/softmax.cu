/* Softmax over the last axis, and cross entropy with everything that goes with it: formulas in kernels/ref/softmax.c.
 * A block takes a row; the losses of the rows of a block are a part of their sum. */
#include "kernels/cuda/device.cuh"

/* Numbers in a row. */
struct Row {
    Num     x;
    int64_t at;
};
static __device__ __forceinline__ float row_get(const Row &r, int64_t i) { return num_get(r.x, r.at + i); }
static __device__ __forceinline__ Wide row_wide(const Row &r, int64_t i, int left) { return wide_get(r.x, r.at + i, left); }

/* exp(x - top), 0 for -inf even where nothing is larger. */
static __device__ __forceinline__ float exp_below(float x, float top) { return expf(x - (top == -INFINITY ? 0 : top)); }

/* What the loss of a row needs to know of its logits: see kernels/classes.h. */
struct Stats { float top, sum, target, total; };

/* The largest of n numbers, and the sum of exponentials of what they lie below it; by a block, in one pass: what a thread
 * has summed shrinks when it meets a larger number. */
static __device__ Stats row_stats(const Row &r, int64_t n, bool want_total)
{
    Stats s = {-INFINITY, 0, 0, 0};
    for ROW_STRIDE(i, n) {
        int left = wide_left(n, i);
        Wide x = row_wide(r, i, left);
        float top = s.top;
        EACH_OF_WIDE(top = k < left ? fmaxf(top, x.of[k]) : top)
        s.sum *= exp_below(s.top, top);
        EACH_OF_WIDE(s.sum += k < left ? exp_below(x.of[k], top) : 0)
        s.total += wide_sum(x);
        s.top = top;
    }
    float top = block_max(s.top);
    s.sum = block_sum(s.sum * exp_below(s.top, top));
    s.top = top;
    s.total = want_total ? block_sum(s.total) : 0;
    return s;
}

static __device__ __forceinline__ float stats_lse(const Stats &s) { return s.top + logf(s.sum); }

static __global__ void __launch_bounds__(BLOCK) softmax_rows(Num x, Num y, int64_t d)
{
    Row r = {x, (int64_t)blockIdx.x * d};
    float lse = stats_lse(row_stats(r, d, false));
    for ROW_STRIDE(i, d) {
        int left = wide_left(d, i);
        Wide w = row_wide(r, i, left);
        EACH_OF_WIDE(w.of[k] = expf(w.of[k] - lse))
        wide_put(y, r.at + i, left, w);
    }
}

CUDA_KERNEL(softmax)
{
    int64_t d = row_length(c->call.argt[0]), rows = row_count(c->call.argt[0]);
    if (rows)
        PRUN_LAUNCH(softmax_rows, (unsigned)rows, row_block(d), 0, c->stream, ARG(0), OUT(0), d);
    return cudaGetLastError();
}

/* dx = y (dy - sum(dy y)) */
static __global__ void __launch_bounds__(BLOCK) softmax_grad_rows(Num dy, Num y, Num dx, int64_t d)
{
    int64_t at = (int64_t)blockIdx.x * d;
    float sum = 0;
    for ROW_STRIDE(i, d) {
        Wide g = wide_get(dy, at + i, wide_left(d, i)), p = wide_get(y, at + i, wide_left(d, i));
        EACH_OF_WIDE(sum += g.of[k] * p.of[k])
    }
    sum = block_sum(sum);
    for ROW_STRIDE(i, d) {
        int left = wide_left(d, i);
        Wide g = wide_get(dy, at + i, left), p = wide_get(y, at + i, left);
        EACH_OF_WIDE(g.of[k] = p.of[k] * (g.of[k] - sum))
        wide_put(dx, at + i, left, g);
    }
}

CUDA_KERNEL(softmax_grad)
{
    int64_t d = row_length(c->call.argt[0]), rows = row_count(c->call.argt[0]);
    if (rows)
        PRUN_LAUNCH(softmax_grad_rows, (unsigned)rows, row_block(d), 0, c->stream, ARG(0), ARG(1), OUT(0), d);
    return cudaGetLastError();
}

/* ---- cross entropy ---- */

struct Labels {
    Num     at;
    int64_t ignore;
    bool    ignores;
};

static Labels labels_of(const CudaCall *c, int arg)
{
    bool ignores = attr_given(&c->call, "ignore");
    return Labels{ARG(arg), ignores ? attr_int(&c->call, "ignore") : 0, ignores};
}

static __device__ __forceinline__ bool label_counts(const Labels &l, int64_t label)
{
    return label != LABEL_PAD && !(l.ignores && label == l.ignore);
}

/* The class axis of logits, of which a rank may hold a part, and which may be padded behind `valid` columns; and the
 * operands of a cross entropy: those that an op lacks are absent. */
struct Classes {
    Loop<4> rows;                     /* operands: logits, labels, lse or statistics, gradient */
    int64_t columns, valid, first, all;
    Labels  labels;
    Num     logits, lse, stats, dx, count, dy;       /* lse is written by the loss and read by the gradient */
    float   smooth, seed;
};

static Classes classes_of(const CudaCall *c, int logits, const int (&seen)[4])
{
    const Tensor *t = c->call.argt[logits];
    const AxisPlace *a = &t->axis[t->rank - 1];
    Classes k;
    memset(&k, 0, sizeof k);
    FactorSet rows = arg_factors(&c->call, logits) & ~(1u << c->call.in->arg_factor[logits][t->rank - 1]);
    k.rows = loop_over<4>(&c->call, rows, seen, false);
    k.columns = a->local;
    k.valid = place_valid(a);
    k.first = place_global(a, 0, 0);
    k.all = a->global;
    k.labels = labels_of(c, logits + 1);
    k.logits = ARG(logits);
    k.smooth = op_attr_index(c->call.in->op, "smooth") >= 0 ? (float)attr_real(&c->call, "smooth") : 0;
    k.seed = 1;
    return k;
}

/* Column of a label that counts, or -1: another rank's. */
static __device__ __forceinline__ int64_t class_column(const Classes &k, int64_t label)
{
    int64_t column = label - k.first;
    return column >= 0 && column < k.valid ? column : -1;
}

/* (1 - smooth) (lse - target) + smooth (lse - mean) */
static __device__ __forceinline__ float stats_loss(const Stats &s, float smooth, int64_t classes)
{
    float lse = stats_lse(s), loss = (1 - smooth) * (lse - s.target);
    return smooth == 0 ? loss : loss + smooth * (lse - s.total / (float)classes);
}

/* The gradient of a row's loss times `by`; 0: it does not count and has none.  May overwrite the logits. */
static __device__ void row_grad(const Classes &c, const Row &x, float lse, int64_t column, float by, int64_t out)
{
    float rest = c.smooth / (float)c.all;
    for ROW_STRIDE(i, c.columns) {
        int left = wide_left(c.columns, i);
        Wide g = row_wide(x, i, left);
        EACH_OF_WIDE(float target = (i + k == column ? 1 - c.smooth : 0) + rest;
                     g.of[k] = by == 0 || i + k >= c.valid ? 0 : by * (expf(g.of[k] - lse) - target))
        wide_put(c.dx, out + i, left, g);
    }
}

/* The seed and the gradient of the loss over the number of labels. */
static __device__ __forceinline__ float grad_factor(const Classes &k)
{
    double n = num_get_any(k.count, 0), by = n > 0 ? (double)k.seed / n : 0;
    return (float)(k.dy.at ? by * num_get_any(k.dy, 0) : by);
}

/* Statistics, loss and gradient of rows: what is absent is not written. */
static __global__ void __launch_bounds__(BLOCK) loss_rows(Classes k, double *part)
{
    double loss = 0;
    float by = k.dx.at ? grad_factor(k) : 0;
    for (int64_t r = blockIdx.x; r < k.rows.n; r += gridDim.x) {
        At<4> at = loop_at(k.rows, r);
        Row x = {k.logits, at.of[0]};
        int64_t label = num_int(k.labels.at, at.of[1]);
        bool counts = label_counts(k.labels, label);
        int64_t column = counts ? class_column(k, label) : -1;
        float target = column >= 0 ? row_get(x, column) : 0;
        Stats s = row_stats(x, k.valid, k.smooth != 0 || k.stats.at);
        s.target = target;
        loss += counts ? (double)stats_loss(s, k.smooth, k.all) : 0;
        if (threadIdx.x == 0 && k.lse.at)
            num_put(k.lse, at.of[2], stats_lse(s));
        if (threadIdx.x < 4 && k.stats.at)
            num_put_any(k.stats, at.of[2] + threadIdx.x,
                        (double)(threadIdx.x == 0 ? s.top : threadIdx.x == 1 ? s.sum : threadIdx.x == 2 ? s.target : s.total));
        if (k.dx.at)
            row_grad(k, x, stats_lse(s), column, counts ? by : 0, at.of[3]);
    }
    if (threadIdx.x == 0 && part)
        part[blockIdx.x] = loss;
}

static cudaError_t launch_loss(const CudaCall *c, const Classes &k, bool loss)
{
    unsigned parts = blocks_for(k.rows.n, CUDA_PARTS);
    if (parts)
        PRUN_LAUNCH(loss_rows, parts, row_block(k.columns), 0, c->stream, k, loss ? static_cast<double *>(c->call.work) : NULL);
    if (loss)
        launch_finish(c, parts, k.count);
    return cudaGetLastError();
}

CUDA_KERNEL(cross_entropy)
{
    Classes k = classes_of(c, 0, {0, 1, RESULT(1), RESULT(1)});
    k.count = ARG(2);
    k.lse = OUT(1);
    return launch_loss(c, k, true);
}

CUDA_KERNEL(cross_entropy_both)
{
    Classes k = classes_of(c, 0, {0, 1, 0, RESULT(1)});
    k.count = ARG(2);
    k.dy = ARG(3);
    k.dx = OUT(1);
    k.seed = (float)attr_real(&c->call, "seed");
    return launch_loss(c, k, true);
}

CUDA_KERNEL(cross_entropy_stats)
{
    Classes k = classes_of(c, 0, {0, 1, RESULT(0), 0});
    k.stats = OUT(0);
    return launch_loss(c, k, false);
}

static __global__ void __launch_bounds__(BLOCK) loss_grad_rows(Classes k)
{
    At<4> at = loop_at(k.rows, blockIdx.x);
    int64_t label = num_int(k.labels.at, at.of[1]);
    bool counts = label_counts(k.labels, label);
    row_grad(k, Row{k.logits, at.of[0]}, num_get(k.lse, at.of[2]), counts ? class_column(k, label) : -1, counts ? grad_factor(k) : 0, at.of[3]);
}

CUDA_KERNEL(cross_entropy_grad)
{
    Classes k = classes_of(c, 1, {1, 2, 3, RESULT(0)});
    k.lse = ARG(3);
    k.count = ARG(4);
    k.dy = ARG(0);
    k.dx = OUT(0);
    if (k.rows.n)
        PRUN_LAUNCH(loss_grad_rows, (unsigned)k.rows.n, row_block(k.columns), 0, c->stream, k);
    return cudaGetLastError();
}

/* ---- statistics of several ranks' classes, and labels counted ---- */

struct Merge {
    Loop<3> rows;                     /* operands: statistics, labels, lse */
    Loop<1> parts;
    Num     stats, lse;
    Labels  labels;
    int64_t classes;
    float   smooth;
};

/* The parts of a row, joined in their order. */
static __device__ Stats merge_stats(const Merge &m, int64_t row)
{
    Stats all = {-INFINITY, 0, 0, 0};
    for (int64_t p = 0; p < m.parts.n; p++)
        all.top = fmaxf(all.top, num_get(m.stats, row + loop_at<1, true>(m.parts, p).of[0]));
    for (int64_t p = 0; p < m.parts.n; p++) {
        int64_t at = row + loop_at<1, true>(m.parts, p).of[0];
        all.sum += num_get(m.stats, at + 1) * exp_below(num_get(m.stats, at), all.top);
        all.target += num_get(m.stats, at + 2);
        all.total += num_get(m.stats, at + 3);
    }
    return all;
}

static __global__ void __launch_bounds__(BLOCK) merge_rows(Merge m, double *part)
{
    double loss = 0;
    for GRID_STRIDE(r, m.rows.n) {
        At<3> at = loop_at(m.rows, r);
        Stats s = merge_stats(m, at.of[0]);
        if (m.lse.at)
            num_put_any(m.lse, at.of[2], (double)stats_lse(s));
        if (label_counts(m.labels, num_int(m.labels.at, at.of[1])))
            loss += (double)stats_loss(s, m.smooth, m.classes);
    }
    loss = block_sum(loss);
    if (threadIdx.x == 0)
        part[blockIdx.x] = loss;
}

CUDA_KERNEL(cross_entropy_merge)
{
    const KCall *k = &c->call;
    FactorSet rows = arg_factors(k, 1), number = 1u << k->in->arg_factor[0][k->argt[0]->rank - 1];
    Merge m = {loop_over<3>(k, rows, {0, 1, RESULT(1)}, false), loop_over<1>(k, arg_factors(k, 0) & ~rows & ~number, {0}, false),
               ARG(0), OUT(1), labels_of(c, 1), attr_int(k, "classes"), (float)attr_real(k, "smooth")};
    unsigned parts = blocks_for((m.rows.n + 63) / 64, CUDA_PARTS);
    if (parts)
        PRUN_LAUNCH(merge_rows, parts, 64, 0, c->stream, m, static_cast<double *>(k->work));
    launch_finish(c, parts, ARG(2));
    return cudaGetLastError();
}

static __global__ void __launch_bounds__(BLOCK) count_parts(Labels l, int64_t n, double *part)
{
    double count = 0;
    for GRID_STRIDE(i, n)
        count += label_counts(l, num_int(l.at, i));
    count = block_sum(count);
    if (threadIdx.x == 0)
        part[blockIdx.x] = count;
}

CUDA_KERNEL(count_labels)
{
    int64_t n = tensor_elements(c->call.argt[0]);
    unsigned parts = blocks_for((n + BLOCK - 1) / BLOCK, CUDA_PARTS);
    if (parts)
        PRUN_LAUNCH(count_parts, parts, BLOCK, 0, c->stream, labels_of(c, 0), n, static_cast<double *>(c->call.work));
    launch_finish(c, parts, Num{NULL, DT_f64});
    return cudaGetLastError();
}
