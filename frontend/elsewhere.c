/* What is written here instead of words that other systems have. */
#include "frontend/elsewhere.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define ABSENT " not available in this version: "
#define STATES "'shard optimizer by dp' (ZeRO 1) shares out the optimizer's moments; ZeRO 2 and 3 are not available in this version"
#define CUTS "'microbatches = 4' cuts the batch of a step into as many parts"
#define CACHE "a cache of keys and values is" ABSENT "every batch runs whole sequences"
#define ORDER "the zigzag order of a split is" ABSENT "its parts are contiguous"
#define LOSS "the loss in chunks is" ABSENT "'split vocab by tp' and more micro-batches make logits smaller"
#define OFFLOAD "offloading is" ABSENT "every state stays on the device"
#define CHUNKS "a stage in several chunks is not available in this version"
#define RECOMPUTE "'recompute PATH' drops what backward can compute again"
#define MESH(axis, also) "the size of a mesh axis is given by 'mesh " axis " = 2'" also
#define SPLITS "; 'split heads, ffn by tp' says what it splits"

static const struct { const char *word, *help; } settings[] = {
    {"pp", MESH("pp", "")},           {"dp", MESH("dp", "")},        {"cp", MESH("cp", "; 'split seq by cp' says what it splits")},
    {"ep", "splitting by 'ep' is" ABSENT "'split expert by tp' splits experts"}, {"tp", MESH("tp", SPLITS)},
    {"tensor_parallel", MESH("tp", SPLITS)}, {"data_parallel", MESH("dp", "")}, {"pipeline_parallel", MESH("pp", "")},
    {"expert_parallel", "splitting by 'ep' is" ABSENT "'split expert by tp' splits experts"},
    {"zero", STATES},                 {"zero_stage", STATES},        {"fsdp", STATES},
    {"gradient_accumulation", CUTS},  {"gradient_accumulation_steps", CUTS}, {"micro_batch_size", CUTS},
    {"loss_chunks", LOSS},            {"chunked_loss", LOSS},        {"order", ORDER}, {"zigzag", ORDER},
    {"cache", CACHE},                 {"kv_cache", CACHE},           {"offload", OFFLOAD}, {"cpu_offload", OFFLOAD},
    {"interleave", CHUNKS},           {"virtual_stages", CHUNKS},    {"checkpoint", RECOMPUTE}, {"activation_checkpointing", RECOMPUTE},
};

static const struct { const char *word, *name; } values[] = {
    {"float64", "f64"}, {"fp64", "f64"}, {"double", "f64"}, {"float32", "f32"}, {"fp32", "f32"}, {"float", "f32"}, {"float16", "f16"},
    {"fp16", "f16"},    {"half", "f16"}, {"bfloat16", "bf16"}, {"int64", "i64"}, {"int32", "i32"}, {"int16", "i16"}, {"int8", "i8"}, {"uint8", "u8"},
    {"True", "true"}, {"False", "false"}, {"None", "none"}, {"null", "none"}, {"yes", "true"}, {"no", "false"},
};

#define ORDER_OF_AXES "axes go by name: none needs another order, and 'y[a, b] = x' writes one down"
#define BLOCK(file, has) "'include \"std/" file ".pmodel\"' before the model has " has
#define LAYER "a layer is made of the blocks of 'include \"std/encoder.pmodel\"': 'x = x + attn: encoder_attn(ln1: layernorm(x), heads)', then 'mlp: encoder_mlp'"
#define UNARY "the gates are 'relu', 'gelu', 'silu' and 'tanh'"
#define SQUARES "of d = x - y, 'mean(d * d, over = [batch, ..])' is the mean square"
#define POOL "'mean(x, over = [row, col])' averages over axes; no op takes windows but conv2d, which may stride"
#define NORMS "the norms are 'layernorm' and 'rmsnorm'"
#define ONE_AXIS "'merge(x, [a, b], c)' makes one axis of several; a linear layer may have several, as in 'linear(x, [heads, head_dim])'"
static const struct { const char *word, *help; } ops[] = {
    {"transpose", ORDER_OF_AXES}, {"permute", ORDER_OF_AXES}, {"reshape", ONE_AXIS},    {"view", ONE_AXIS},         {"flatten", ONE_AXIS},
    {"dense", "it is called 'linear' here"}, {"fc", "it is called 'linear' here"}, {"embedding", "it is called 'embed' here"},
    {"attn", BLOCK("gpt", "'attn'; so does \"std/decoder.pmodel\", and \"std/encoder.pmodel\" has 'encoder_attn'")}, {"mlp", BLOCK("gpt", "'mlp'; \"std/encoder.pmodel\" has 'encoder_mlp'")},
    {"swiglu", BLOCK("decoder", "'swiglu'")}, {"moe", BLOCK("decoder", "'moe'")}, {"encoder", LAYER}, {"transformer", LAYER}, {"relu6", UNARY},
    {"sigmoid", UNARY "; 'silu(x)' is x times its sigmoid"}, {"softplus", UNARY}, {"leaky_relu", UNARY}, {"elu", UNARY},
    {"mse", SQUARES}, {"mse_loss", SQUARES}, {"avgpool", POOL}, {"maxpool", POOL}, {"avg_pool2d", POOL}, {"max_pool2d", POOL},
    {"batchnorm", NORMS}, {"batch_norm", NORMS}, {"groupnorm", NORMS},
    {"self_attention", "'attention(q, k, v)' takes what linear layers make of x"}, {"mha", "'attention(q, k, v)' takes what linear layers make of x"},
};

/* By the first word of a statement and how the text goes on where it was wrong; NULL: with any. */
#define LASTS "a value that lasts from one batch to the next, such as a cache of keys and values, is" ABSENT "every batch runs whole sequences"
#define ROUNDS "rounds are written 'repeat 4 as h { .. }'"
#define RATE(as) "a rate is written '" as "'"
static const struct { const char *word, *found, *help; } statements[] = {
    {"state", NULL, LASTS},  {"cache", NULL, LASTS},  {"buffer", NULL, LASTS}, {"for", NULL, ROUNDS},  {"while", NULL, ROUNDS}, {"repeat", "{", ROUNDS},
    {"weight", "=", "what a weight begins with is written '~ normal(0.02)'"},  {"import", NULL, "another file is read by 'include \"FILE\"'"},
    {"checkpoint", NULL, RECOMPUTE}, {NULL, "TFLOPS", RATE("60 TFLOP/s")}, {NULL, "GFLOPS", RATE("60 GFLOP/s")}, {NULL, "GBps", RATE("6 GB/s")}, {NULL, "Gbps", RATE("6 Gb/s")},
    {NULL, "Gbit", RATE("200 Gb/s")}, {NULL, "Mbit", RATE("200 Mb/s")}, {NULL, "GByte", RATE("6 GB/s")}, {NULL, "PFLOPS", RATE("2 PFLOP/s")},
    {NULL, "+=", "'x = x + y' gives x a new value"}, {NULL, "-=", "'x = x - y' gives x a new value"},
    {NULL, "//", "a comment begins with '#'"}, {NULL, "/*", "a comment begins with '#'"},
};

const char *elsewhere_setting(const char *word)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(settings[i].word, word) == 0)
            return settings[i].help;
    return NULL;
}

const char *elsewhere_value(const char *word)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strcmp(values[i].word, word) == 0)
            return values[i].name;
    return NULL;
}

const char *elsewhere_backend(const char *word)
{
    return strcmp(word, "gpu") == 0 || strcmp(word, "nvidia") == 0 ? "cuda" : NULL;
}

const char *elsewhere_op(const char *word)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i].word, word) == 0)
            return ops[i].help;
    return NULL;
}

const char *elsewhere_statement(const char *word, const char *found)
{
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if ((!statements[i].word || strcmp(statements[i].word, word) == 0) && (!statements[i].found || strncmp(statements[i].found, found, strlen(statements[i].found)) == 0))
            return statements[i].help;
    return NULL;
}
