/* layout: rows into options. */
#include "bench/accuracy/layout.h"

#include <string.h>

#include "base/text.h"

static void add(Arena *a, Args *args, OptionId id, const char *value)
{
    OptionValue o = {.id = id, .value = value};
    PUSH(a, args->option, args->noption, o);
}

static void define(Arena *a, Args *args, const char *name, int64_t value)
{
    add(a, args, OPT_define, arena_printf(a, "%s=%lld", name, (long long)value));
}

static bool is_llama(const Row *r)
{
    return strstr(r->model, "lama") || strstr(r->flags, "swiglu");
}

/* Tied: the source counts one table, or says so.  With stages a tied table is counted twice. */
static bool is_tied(const Row *r)
{
    if (*r->flags)
        return !strstr(r->flags, "untie-embeddings");
    if (!is_llama(r))
        return strstr(r->model, "emotron") == NULL;
    return r->hidden < 4096 && strstr(r->model, "nanotron");
}

static bool is_rotary(const Row *r)
{
    return strstr(r->flags, "rope") || strstr(r->model, "emotron");
}

static void add_defines(Arena *a, Args *args, const Row *r)
{
    bool llama = is_llama(r), half = strcmp(r->precision, "fp16") == 0;
    define(a, args, "batch", r->batch);
    define(a, args, "seq", r->seq);
    define(a, args, "vocab", r->vocab);
    define(a, args, "hidden", r->hidden);
    define(a, args, "heads", r->heads);
    define(a, args, "ffn", r->ffn);
    define(a, args, "layers", r->layers);
    if (r->kv_heads != r->heads)
        define(a, args, "kv_heads", r->kv_heads);
    if (is_tied(r) == llama)
        add(a, args, OPT_define, llama ? "tied=true" : "tied=false");
    if (!llama && (strcmp(r->attention, "plain") == 0 || strstr(r->flags, "transformer-impl=local")))
        add(a, args, OPT_define, "flash=false");
    if (!llama && is_rotary(r))
        add(a, args, OPT_define, "rotary=true");
    if (!llama && (strstr(r->flags, "disable-bias-linear") || strstr(r->model, "emotron")))
        add(a, args, OPT_define, "bias=false");
    if (r->runtime->sums == SUMS_half || (r->runtime->sums == SUMS_as_f16 && half))
        add(a, args, OPT_define, half ? "sums=f16" : "sums=bf16");
    if (half)
        add(a, args, OPT_define, "dtype=f16");
}

/* ---- stages ---- */

static void cut_before(Text *t, int64_t layer)
{
    text_add(t, "; stage before layer[%lld]", (long long)layer);
}

/* nanotron goes through the layers and the head, whose costs are products of matrices, and begins the next stage
 * after the layer with which the sum passes the stage's part of all (build_model in src/nanotron/models/base.py
 * and get_block_compute_costs of its Llama).  A sum that just reaches it passes too: the rows' vocabulary of the
 * model of 1B, the only one where that happens, is rounded up, and its memory is that of a layer less.  Head and loss are
 * on the last stage, whatever the sum: runs with 16 stages take no more than three layers do, on one node as on many, so none of
 * them has two and the head, nor sends logits. */
static void cut_by_cost(Text *t, const Row *r)
{
    double layer = 4.0 * (double)r->hidden * (double)r->hidden + 3.0 * (double)r->ffn * (double)r->hidden;
    double all = layer * (double)r->layers + (double)r->vocab * (double)r->hidden;
    int64_t stage = 0;
    for (int64_t i = 1; i <= r->layers; i++) {
        if (layer * (double)i * (double)r->pp < all * (double)(stage + 1))
            continue;
        stage++;
        if (i < r->layers)
            cut_before(t, i);
        else
            text_add(t, "; stage before norm");
    }
    if (stage + 1 < r->pp)
        text_add(t, "; stage before %s", is_tied(r) ? "logits" : "head");
}

/* Where layers do not divide, the two ends count as a layer each: the embedding and the head. */
static void cut_even(Text *t, const Row *r)
{
    int64_t each = r->layers % r->pp == 0 ? r->layers / r->pp : (r->layers + 2 + r->pp - 1) / r->pp;
    int64_t first = r->layers % r->pp == 0 ? each : each - 1;
    for (int64_t stage = 1; stage < r->pp; stage++) {
        int64_t at = first + (stage - 1) * each, left = r->layers - (r->pp - stage);
        cut_before(t, at < left ? at : left);
    }
}

/* ---- rules ---- */

static void add_splits(Text *t, const Row *r)
{
    int64_t quantum = r->runtime->quantum * r->tp;
    if (r->tp > 1)
        text_add(t, "; split heads, ffn, vocab by tp");
    if (r->tp > 1 && r->sequence_parallel)
        text_add(t, "; split seq by tp");
    if (r->gpus > 1 && r->vocab % quantum != 0)
        text_add(t, "; pad vocab to %lld", (long long)quantum);
}

static bool is_sharded(const Row *r)
{
    return r->dp > 1 && strchr(r->zero, '1');
}

static int64_t bucket_of(const Row *r)
{
    const Runtime *by = r->runtime;
    int64_t least = is_sharded(r) ? by->bucket_sharded_mb : by->bucket_mb, grown = r->dp * by->bucket_each_mb;
    return grown > least ? grown : least;
}

static const char *rules_of(Arena *a, const Row *r)
{
    Text t = text_new(a);
    text_add(&t, "mesh pp = %lld, dp = %lld, tp = %lld", (long long)r->pp, (long long)r->dp, (long long)r->tp);
    if (r->gpus % r->runtime->per_node != 0) {
        text_add(&t, "; devices = [");
        for (int64_t i = 0; i < r->gpus; i++)
            text_add(&t, "%s%lld", i ? ", " : "", (long long)i);
        text_add(&t, "]");
    }
    add_splits(&t, r);
    if (r->pp > 1 && r->runtime->by_cost)
        cut_by_cost(&t, r);
    else if (r->pp > 1)
        cut_even(&t, r);
    if (strncmp(r->recompute, "full", 4) == 0)
        text_add(&t, "; recompute layer full");
    if (strcmp(r->recompute, "selective") == 0)
        text_add(&t, "; recompute layer.attn.inner full");
    if (is_sharded(r))
        text_add(&t, "; shard optimizer by dp");
    if (r->gpus > 1)
        text_add(&t, "; bucket = %lld MB", (long long)bucket_of(r));
    text_add(&t, "; microbatches = %lld", (long long)(r->batch / r->dp / r->micro));
    return t.s;
}

Args layout_args(Arena *a, const Row *r, const char *models)
{
    Args args = {.command = COMMAND_estimate, .command_given = true};
    const char *model = arena_printf(a, "%s/%s.pmodel", models, is_llama(r) ? "llama" : "gpt");
    int64_t per_node = r->runtime->per_node;
    PUSH(a, args.positional, args.npositional, model);
    add(a, &args, OPT_cluster, r->runtime->cluster);
    if (r->gpus > per_node)
        define(a, &args, "nodes", (r->gpus + per_node - 1) / per_node);
    add_defines(a, &args, r);
    add(a, &args, OPT_profile, r->runtime->profile);
    add(a, &args, OPT_with, rules_of(a, r));
    return args;
}

const char *layout_command(Arena *a, const Args *args)
{
    static const char *const name[OPTIONS] = {[OPT_cluster] = "-c", [OPT_define] = "-D", [OPT_profile] = "--profile", [OPT_with] = "--with"};
    Text t = text_new(a);
    text_add(&t, "pplan estimate %s", args->positional[0]);
    for (uint32_t i = 0; i < args->noption; i++) {
        const char *quote = args->option[i].id == OPT_with ? "'" : "";
        text_add(&t, " %s %s%s%s", name[args->option[i].id], quote, args->option[i].value, quote);
    }
    return t.s;
}
