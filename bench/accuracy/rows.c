/* rows: the reader, and what is refused by name. */
#include "bench/accuracy/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* ---- runtimes ---- */

static Status read_runtimes(Rows *rows, const char *path)
{
    static const char *const columns[] = {"source", "gpu", "profile", "cluster", "per_node", "stages", "quantum", "bucket_mb", "bucket_each_mb", "bucket_sharded_mb", "sums", "memory"};
    Csv csv;
    TRY(csv_read(rows->arena, path, &csv));
    TRY(csv_needs(&csv, columns, sizeof columns / sizeof *columns));
    for (uint32_t i = 0; i < csv.nrow; i++) {
        const CsvRow *r = &csv.row[i];
        Runtime t = {.source = csv_cell(&csv, r, "source"), .gpu = csv_cell(&csv, r, "gpu"), .profile = csv_cell(&csv, r, "profile"),
                     .cluster = csv_cell(&csv, r, "cluster"), .by_cost = strcmp(csv_cell(&csv, r, "stages"), "by cost") == 0};
        t.per_node = strtoll(csv_cell(&csv, r, "per_node"), NULL, 10);
        t.quantum = strtoll(csv_cell(&csv, r, "quantum"), NULL, 10);
        t.bucket_mb = strtoll(csv_cell(&csv, r, "bucket_mb"), NULL, 10);
        t.bucket_each_mb = strtoll(csv_cell(&csv, r, "bucket_each_mb"), NULL, 10);
        t.bucket_sharded_mb = strtoll(csv_cell(&csv, r, "bucket_sharded_mb"), NULL, 10);
        const char *sums = csv_cell(&csv, r, "sums");
        t.sums = strcmp(sums, "half") == 0 ? SUMS_half : strcmp(sums, "half of fp16") == 0 ? SUMS_as_f16 : SUMS_f32;
        const char *memory = csv_cell(&csv, r, "memory");
        t.of_allocator = strncmp(memory, "allocated", strlen("allocated")) == 0;
        t.of_rank = strstr(memory, "first") ? RANK_first : strstr(memory, "last") ? RANK_last : RANK_fullest;
        PUSH(rows->arena, rows->runtime, rows->nruntime, t);
    }
    return OK;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static const Runtime *runtime_of(const Rows *rows, const Row *r)
{
    for (uint32_t i = 0; i < rows->nruntime; i++)
        if (begins(r->source, rows->runtime[i].source) && begins(r->gpu, rows->runtime[i].gpu))
            return &rows->runtime[i];
    return NULL;
}

/* ---- cells ---- */

typedef struct Cells { Arena *arena; const Csv *csv; const CsvRow *row; Row *out; } Cells;

static const char *text_of(const Cells *c, const char *column)
{
    return csv_cell(c->csv, c->row, column);
}

static void refuse(Row *r, const char *why)
{
    if (!r->refused)
        r->refused = why;
}

/* A number that must be above 0, or `fallback` where the cell is empty; 0: it must be there. */
static double number_of(Cells *c, const char *column, double fallback)
{
    const char *cell = text_of(c, column);
    char *end;
    double x = strtod(cell, &end);
    if (!*cell && fallback > 0)
        return fallback;
    if (!*cell)
        refuse(c->out, arena_printf(c->arena, "no %s", column));
    else if (*end || !(x > 0))
        refuse(c->out, arena_printf(c->arena, "malformed: %s is '%s'", column, cell));
    return x;
}

static int64_t whole_of(Cells *c, const char *column, int64_t fallback)
{
    double x = number_of(c, column, (double)fallback);
    if (x > 0 && (x > 1e12 || x != (double)(int64_t)x))
        refuse(c->out, arena_printf(c->arena, "malformed: %s is '%s'", column, text_of(c, column)));
    return x > 0 && x < 1e12 ? (int64_t)x : 0;
}

/* A measured figure; 0 where the cell is empty. */
static double measured(Cells *c, const char *column)
{
    return *text_of(c, column) ? number_of(c, column, 0) : 0;
}

static void read_layout(Cells *c)
{
    Row *r = c->out;
    r->layers = whole_of(c, "layers", 0);
    r->hidden = whole_of(c, "hidden", 0);
    r->ffn = whole_of(c, "ffn_hidden", 4 * r->hidden);
    r->heads = whole_of(c, "heads", 0);
    r->kv_heads = whole_of(c, "kv_heads", r->heads > 0 ? r->heads : 1);
    r->vocab = whole_of(c, "vocab", 0);
    r->seq = whole_of(c, "seq_len", 0);
    r->experts = *text_of(c, "moe_experts") ? whole_of(c, "moe_experts", 1) : 1;
    r->dp = whole_of(c, "dp", 0);
    r->tp = whole_of(c, "tp", 0);
    r->pp = whole_of(c, "pp", 0);
    r->vpp = whole_of(c, "vpp", 1);
    r->cp = whole_of(c, "cp", 1);
    r->ep = whole_of(c, "ep", 1);
    r->gpus = whole_of(c, "gpus", r->dp * r->tp * r->pp * r->cp);
    r->micro = whole_of(c, "micro_batch", 0);
    r->batch = whole_of(c, "global_batch", 0);
    r->sequence_parallel = strcmp(text_of(c, "sp"), "yes") == 0;
}

static void read_row(Cells *c)
{
    Row *r = c->out;
    r->line = c->row->line;
    r->id = text_of(c, "id");
    r->source = text_of(c, "source");
    r->model = text_of(c, "model_name");
    r->gpu = text_of(c, "gpu");
    r->precision = text_of(c, "precision");
    r->zero = text_of(c, "zero_stage");
    r->recompute = text_of(c, "recompute");
    r->attention = text_of(c, "attention");
    r->flags = text_of(c, "flags");
    if (c->row->ncell != c->csv->head.ncell) {
        refuse(r, arena_printf(c->arena, "malformed: %u cells, not %u", c->row->ncell, c->csv->head.ncell));
        return;
    }
    read_layout(c);
    r->seconds = measured(c, "step_time_s");
    r->peak_gib = measured(c, "peak_mem_gib");
    r->allocated_gib = measured(c, "mem_allocated_gib");
    r->params_b = measured(c, "params_b");
}

/* ---- what cannot be predicted ---- */

static bool has(const char *text, const char *word)
{
    return strstr(text, word) != NULL;
}

/* What later work brings, each by its name. */
static const char *unsupported(Arena *a, const Row *r)
{
    if (r->experts > 1 || r->ep > 1)
        return "experts (MoE)";
    if (has(r->precision, "fp8") || has(r->precision, "fp4"))
        return arena_printf(a, "precision %s", r->precision);
    if (has(r->zero, "offload"))
        return "offload to the host";
    if (has(r->zero, "3"))
        return "sharded weights (ZeRO-3, FSDP)";
    if (has(r->zero, "2"))
        return "sharded gradients (ZeRO-2)";
    if (r->vpp > 1)
        return "chunks (interleaved stages)";
    if (r->cp > 1)
        return "context parallel";
    if (strcmp(r->recompute, "none") != 0 && !begins(r->recompute, "full") && strcmp(r->recompute, "selective") != 0)
        return arena_printf(a, "recompute '%s'", r->recompute);
    return NULL;
}

/* What does not come out even. */
static const char *uneven(const Row *r)
{
    if (r->dp * r->tp * r->pp * r->cp != r->gpus)
        return "the mesh is not the GPUs";
    if (r->batch % (r->dp * r->micro) != 0)
        return "the batch does not divide";
    if (r->hidden % r->heads != 0 || r->heads % r->tp != 0 || r->ffn % r->tp != 0)
        return "heads or ffn do not divide by tp";
    if (r->kv_heads % r->tp != 0)
        return "kv heads below tp";
    if (r->layers < r->pp)
        return "fewer layers than stages";
    return NULL;
}

static void judge(Rows *rows, Row *r)
{
    if (r->refused)
        return;
    r->runtime = runtime_of(rows, r);
    r->refused = unsupported(rows->arena, r);
    if (!r->refused && !r->runtime)
        r->refused = arena_printf(rows->arena, "no profile for %.24s on %s", r->source, r->gpu);
    if (!r->refused)
        r->refused = uneven(r);
    if (!r->refused && r->seconds == 0 && r->peak_gib == 0)
        r->refused = "nothing measured";
}

/* ---- quality ---- */

static const char *beside(Arena *a, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return slash ? arena_printf(a, "%.*s/%s", (int)(slash - path), path, name) : name;
}

/* The class of each row; a row without one counts as 'A' where the file knows none of them. */
static Status read_quality(Rows *rows)
{
    static const char *const columns[] = {"id", "quality"};
    const char *path = beside(rows->arena, rows->path, "quality.csv");
    Csv csv;
    if (access(path, F_OK) != 0)
        return OK;
    TRY(csv_read(rows->arena, path, &csv));
    TRY(csv_needs(&csv, columns, 2));
    uint32_t next = 0;
    for (uint32_t i = 0; i < rows->nrow; i++)
        for (uint32_t k = 0; k < csv.nrow; k++) {
            const CsvRow *q = &csv.row[(next + k) % csv.nrow];
            if (strcmp(csv_cell(&csv, q, "id"), rows->row[i].id) != 0)
                continue;
            rows->row[i].quality = *csv_cell(&csv, q, "quality");
            rows->has_quality = true;
            next = (next + k) % csv.nrow + 1;
            break;
        }
    return OK;
}

bool row_is_used(const Row *r)
{
    return r->quality == 'A' || !r->quality;
}

Status rows_read(Arena *a, const char *path, const char *runtimes, Rows *out)
{
    static const char *const columns[] = {"id", "source", "model_name", "layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab", "seq_len", "gpu",
                                          "precision", "dp", "tp", "pp", "micro_batch", "global_batch", "zero_stage", "recompute", "attention", "step_time_s"};
    Csv csv;
    *out = (Rows){.arena = a, .path = path};
    TRY(csv_read(a, path, &csv));
    TRY(csv_needs(&csv, columns, sizeof columns / sizeof *columns));
    TRY(read_runtimes(out, runtimes));
    out->row = NEWN(a, Row, csv.nrow + 1);
    for (out->nrow = 0; out->nrow < csv.nrow; out->nrow++) {
        Cells c = {a, &csv, &csv.row[out->nrow], &out->row[out->nrow]};
        read_row(&c);
        judge(out, c.out);
    }
    TRY(read_quality(out));
    for (uint32_t i = 0; i < out->nrow && !out->has_quality; i++)
        out->row[i].quality = 'A';
    return OK;
}
