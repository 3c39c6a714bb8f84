/* The graphs of attention and of its gradient, op by op as cuDNN's engines know them, and which calls they are for. */
#include <string.h>

#include "kernels/cuda/sdpa_graph.h"
#include "kernels/heads.h"

/* ---- which calls ---- */

/* Arguments and results of both ops, from q on. */
typedef struct Places { int q, k, v, mask, bias, doc, lse, arg[6], narg, nout; } Places;
static const Places places[2] = {
    {.q = 0, .k = 1, .v = 2, .mask = 3, .bias = 4, .doc = 5, .arg = {0, 1, 2}, .narg = 3, .nout = 1},
    {.q = 1, .k = 2, .v = 3, .mask = 6, .bias = 7, .doc = 8, .arg = {0, 1, 2, 3, 4}, .narg = 5, .nout = 3},
};

static bool all_bf16(const KCall *c, const Places *p)
{
    bool all = true;
    for (int i = 0; i < p->narg; i++)
        all = all && c->argt[p->arg[i]]->dtype == DT_bf16;
    for (int k = 0; k < p->nout; k++)
        all = all && c->outt[k] && c->outt[k]->dtype == DT_bf16;
    return all;
}

/* Whether all operands have the leading axes of q, in its order: then each is one row-major array of [b, rows, heads, e]. */
static bool same_leading(const KCall *c, const Places *p)
{
    int rank = c->argt[p->q]->rank;
    bool same = true;
    for (int i = 0; i < p->narg; i++)
        same = same && c->argt[p->arg[i]]->rank == rank && memcmp(c->in->arg_factor[p->arg[i]], c->in->arg_factor[p->q], (size_t)rank - 3) == 0;
    for (int k = 0; k < p->nout; k++)
        same = same && c->outt[k]->rank == rank && memcmp(c->in->out_factor[k], c->in->arg_factor[p->q], (size_t)rank - 3) == 0;
    const Tensor *lse = p->nout == 1 ? c->outt[1] : c->argt[5];
    const uint8_t *factor = p->nout == 1 ? c->in->out_factor[1] : c->in->arg_factor[5];
    return same && (!lse || memcmp(factor, c->in->arg_factor[p->q], (size_t)rank - 3) == 0);
}

/* Whether each key head is read by as many query heads, one behind the other. */
static bool even_heads(const Heads *n)
{
    bool even = n->g > 0 && n->h % n->g == 0;
    for (int64_t h = 0; even && h < n->h; h++)
        even = heads_key(n, h) == h / (n->h / n->g);
    return even;
}

const char *sdpa_shape(const KCall *c, Sdpa *shape)
{
    bool gradient = c->in->op == OP_attention_grad;
    const Places *p = &places[gradient];
    if (!all_bf16(c, p))
        return "operands that are not all bf16";
    Heads n = heads_of(c, p->q, p->doc);
    bool sees_all = !n.causal || place_global(&n.key, n.t - 1, 0) <= place_global(&n.query, 0, 0);
    *shape = (Sdpa){.b = set_extent(c, heads_leading(c, p->q)), .h = n.h, .g = n.g, .s = n.s, .t = n.t, .e = n.e, .causal = !sees_all, .gradient = gradient};
    const struct { bool is; const char *what; } cannot[] = {
        {n.dropout > 0, "dropout"},
        {c->argt[p->mask], "a mask"},
        {c->argt[p->bias], "a bias"},
        {c->argt[p->doc], "documents"},
        {n.window > 0, "a window"},
        {!sees_all && n.query.origin != n.key.origin, "queries that begin behind the first key"},
        {n.e % 8 || n.e > 128, "heads that are not 8, 16, .. or 128 wide"},
        {!even_heads(&n), "key heads with unequal shares of query heads"},
        {!same_leading(c, p), "operands with leading axes in different orders"},
        {n.s < 2 || n.t < 2 || shape->b < 1, "a single query or key"},
    };
    for (size_t i = 0; i < sizeof cannot / sizeof *cannot; i++)
        if (cannot[i].is)
            return cannot[i].what;
    return NULL;
}

/* ---- graphs ---- */

/* Tensors of a call, as they lie in memory: [.., rows, heads, e], or turned for the right side of a product. */
static DnnTensor rows_of(Dnn *g, int64_t number, int64_t b, int64_t heads, int64_t rows, int64_t e)
{
    return dnn_tensor(g, number, CUDNN_DATA_BFLOAT16, (int64_t[]){b, heads, rows, e}, (int64_t[]){rows * heads * e, e, heads * e, 1});
}

static DnnTensor columns_of(Dnn *g, int64_t number, int64_t b, int64_t heads, int64_t rows, int64_t e)
{
    return dnn_tensor(g, number, CUDNN_DATA_BFLOAT16, (int64_t[]){b, heads, e, rows}, (int64_t[]){rows * heads * e, e, 1, heads * e});
}

/* A number for each query and head. */
static DnnTensor per_query(Dnn *g, int64_t number, const Sdpa *a)
{
    return dnn_tensor(g, number, CUDNN_DATA_FLOAT, (int64_t[]){a->b, a->h, a->s, 1}, (int64_t[]){a->h * a->s, a->s, 1, 1});
}

static DnnTensor sums_of(Dnn *g, const Sdpa *a)
{
    return dnn_inner(g, CUDNN_DATA_FLOAT, (int64_t[]){a->b, a->h, a->s, 1});
}

/* A number for each query, head and key. */
static DnnTensor scores_of(Dnn *g, const Sdpa *a, int type)
{
    return dnn_inner(g, type, (int64_t[]){a->b, a->h, a->s, a->t});
}

/* mode(x, b), for each query, head and key. */
static DnnTensor score(Dnn *g, const Sdpa *a, int mode, DnnTensor x, DnnTensor b)
{
    DnnTensor y = scores_of(g, a, CUDNN_DATA_FLOAT);
    dnn_pointwise(g, mode, x, b, y);
    return y;
}

static const DnnTensor NONE = {0};

/* scale q k^T */
static DnnTensor scaled_scores(Dnn *g, const Sdpa *a, DnnTensor q, DnnTensor k, DnnTensor scale)
{
    DnnTensor product = scores_of(g, a, CUDNN_DATA_FLOAT);
    dnn_matmul(g, q, k, product);
    return score(g, a, CUDNN_POINTWISE_MUL, product, scale);
}

/* The least number of f32 where a query does not see a key, so that no difference of two of them is undefined. */
static DnnTensor masked(Dnn *g, const Sdpa *a, DnnTensor x)
{
    if (!a->causal)
        return x;
    DnnTensor query = scores_of(g, a, CUDNN_DATA_INT32), key = scores_of(g, a, CUDNN_DATA_INT32);
    DnnTensor seen = scores_of(g, a, CUDNN_DATA_BOOLEAN), y = scores_of(g, a, CUDNN_DATA_FLOAT);
    dnn_index(g, 2, x, query);
    dnn_index(g, 3, x, key);
    dnn_pointwise(g, CUDNN_POINTWISE_CMP_GE, query, key, seen);
    dnn_select(g, x, dnn_number(g, SDPA_HIDDEN), seen, y);
    return y;
}

/* y = softmax(scores) v and lse = max + log(sum of exp(scores - max)) */
static void attention(Dnn *g, const Sdpa *a)
{
    DnnTensor q = rows_of(g, SDPA_Q, a->b, a->h, a->s, a->e), k = columns_of(g, SDPA_K, a->b, a->g, a->t, a->e);
    DnnTensor v = rows_of(g, SDPA_V, a->b, a->g, a->t, a->e), y = rows_of(g, SDPA_Y, a->b, a->h, a->s, a->e);
    DnnTensor x = masked(g, a, scaled_scores(g, a, q, k, dnn_number(g, SDPA_SCALE)));
    DnnTensor top = sums_of(g, a), sum = sums_of(g, a), log = sums_of(g, a), p = scores_of(g, a, CUDNN_DATA_BFLOAT16);
    dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, top);
    DnnTensor e = score(g, a, CUDNN_POINTWISE_EXP, score(g, a, CUDNN_POINTWISE_SUB, x, top), NONE);
    dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    dnn_pointwise(g, CUDNN_POINTWISE_LOG, sum, NONE, log);
    dnn_pointwise(g, CUDNN_POINTWISE_ADD, top, log, per_query(g, SDPA_LSE, a));
    dnn_pointwise(g, CUDNN_POINTWISE_DIV, e, sum, p);
    dnn_matmul(g, p, v, y);
}

/* y[key, head] = x^T of rows, in bf16, times z: a product for each query head, summed over those that read a key head. */
static void key_product(Dnn *g, const Sdpa *a, DnnTensor x, DnnTensor z, int64_t number)
{
    DnnTensor turned = dnn_turned(g, CUDNN_DATA_BFLOAT16, &x), y = rows_of(g, number, a->b, a->g, a->t, a->e);
    DnnTensor each = a->h == a->g ? y : dnn_inner(g, CUDNN_DATA_BFLOAT16, (int64_t[]){a->b, a->h, a->t, a->e});
    dnn_reshape(g, x, turned);
    dnn_matmul(g, turned, z, each);
    if (a->h != a->g)
        dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, y);
}

/* P = exp(scores - lse), dots = dy . y of a query, dS = P (dy v^T - dots) scale: dq = dS k, dk = dS^T q, dv = P^T dy.
 *
 * Engines also know a form in which dq is summed up in memory, by atomics, in another order each time.  Of this one they keep dS in
 * scratch, 2 bytes for each query, head and key. */
static void gradient(Dnn *g, const Sdpa *a)
{
    DnnTensor q = rows_of(g, SDPA_Q, a->b, a->h, a->s, a->e), k = columns_of(g, SDPA_K, a->b, a->g, a->t, a->e);
    DnnTensor v = columns_of(g, SDPA_V, a->b, a->g, a->t, a->e), y = rows_of(g, SDPA_Y, a->b, a->h, a->s, a->e);
    DnnTensor dy = rows_of(g, SDPA_DY, a->b, a->h, a->s, a->e), dq = rows_of(g, SDPA_DQ, a->b, a->h, a->s, a->e);
    DnnTensor scale = dnn_number(g, SDPA_SCALE), one = dnn_number(g, SDPA_ONE), dots = per_query(g, SDPA_DOTS, a), sum = sums_of(g, a);
    DnnTensor product = dnn_inner(g, CUDNN_DATA_FLOAT, q.dim), rows = dnn_turned(g, CUDNN_DATA_BFLOAT16, &k), dp = scores_of(g, a, CUDNN_DATA_FLOAT);
    dnn_pointwise(g, CUDNN_POINTWISE_MUL, dy, y, product);
    dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    dnn_pointwise(g, CUDNN_POINTWISE_MUL, sum, one, dots);
    DnnTensor x = masked(g, a, score(g, a, CUDNN_POINTWISE_SUB, scaled_scores(g, a, q, k, scale), per_query(g, SDPA_LSE, a)));
    DnnTensor p = score(g, a, CUDNN_POINTWISE_EXP, x, NONE);
    key_product(g, a, p, dy, SDPA_DV);
    dnn_matmul(g, dy, v, dp);
    DnnTensor ds = score(g, a, CUDNN_POINTWISE_MUL, score(g, a, CUDNN_POINTWISE_SUB, dp, dots), p);
    DnnTensor scaled = score(g, a, CUDNN_POINTWISE_MUL, ds, scale);
    key_product(g, a, scaled, q, SDPA_DK);
    dnn_reshape(g, k, rows);
    dnn_matmul(g, scaled, rows, dq);
}

/* ---- plans ---- */

static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

bool sdpa_compile(const Cudnn *lib, const Sdpa *a, void *device, int64_t most, SdpaPlan *plan)
{
    int64_t per_query_bytes = a->b * a->h * a->s * (int64_t)sizeof(float);
    *plan = (SdpaPlan){.graph = dnn_new(lib, SDPA_NUMBERS), .causal = a->causal};
    if (a->gradient)
        gradient(&plan->graph, a);
    else
        attention(&plan->graph, a);
    plan->plan = dnn_plan(&plan->graph, device, most, &plan->scratch);
    if (!plan->plan)
        dnn_free(&plan->graph);
    plan->lse = aligned(plan->scratch);
    plan->dots = plan->lse + aligned(per_query_bytes);
    plan->bytes = plan->dots + (a->gradient ? per_query_bytes : 0);
    return plan->plan;
}
