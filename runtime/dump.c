/* Dumps: tensors of the run in files, for tests and for looking. */
#include <string.h>

#include "base/diag.h"
#include "base/files.h"
#include "base/text.h"
#include "runtime/ranks.h"
#include "runtime/states.h"

/* ---- what a program makes ---- */

static bool trains(const Program *p)
{
    return has_tensor(p->loss) || has_tensor(p->norm);
}

/* Whether a procedure belongs to the steps of this run. */
static bool in_steps(const Program *p, const Proc *proc)
{
    return !trains(p) || proc->kind != PROC_evaluate;
}

/* Whether result `out` of an instruction makes its tensor, instead of adding to what
 * is there and so making another value in the same memory. */
static bool makes(const Instr *in, uint32_t out)
{
    return has_tensor(in->out[out]) && !(in->acc == ACC_YES && (in->acc_out >> out & 1));
}

static bool is_in(const Program *p, TensorId x, TensorId t)
{
    return p->tensor[x.i].buffer.i == p->tensor[t.i].buffer.i && p->tensor[x.i].at == p->tensor[t.i].at &&
           strcmp(p->tensor[x.i].path, p->tensor[t.i].path) == 0;
}

/* What communication makes is a view of the value that it completes, which came first. */
static TensorId value_of_view(const Program *p, TensorId t)
{
    TensorId x = {0};
    while (!is_in(p, x, t))
        x.i++;
    return x;
}

/* Whether a tensor holds a value, as it was made or, "PATH@AXES", converted. */
static bool is_value(const Tensor *t, const char *path)
{
    size_t n = strlen(path);
    return strncmp(t->path, path, n) == 0 && (t->path[n] == 0 || (t->path[n] == '@' && !strchr(t->path + n, ':')));
}

/* What a rank knows of a path, from nothing to all. */
typedef enum Found { FOUND_NOTHING, FOUND_INSIDE, FOUND_SUMMANDS, FOUND } Found;

/* The tensor that a step's instructions make under a path.  A value made as summands is
 * that which they are summed up to. */
static Found find_made(const Program *p, const char *path, TensorId *out)
{
    Found found = FOUND_NOTHING;
    for (uint32_t i = 0; i < p->nproc; i++)
        for (uint32_t k = p->proc[i].first; in_steps(p, &p->proc[i]) && k < p->proc[i].end; k++)
            for (uint32_t o = 0; o < p->instr[k].nout; o++) {
                if (!makes(&p->instr[k], o) || !is_value(&p->tensor[p->instr[k].out[o].i], path))
                    continue;
                *out = value_of_view(p, p->instr[k].out[o]);
                if (!p->tensor[out->i].partial)
                    return FOUND;
                found = FOUND_SUMMANDS;
            }
    return found;
}

/* ---- items ---- */

static void add_item(Arena *a, DumpSpec *d, Stored item)
{
    PUSH(a, d->list.tensor, d->list.n, item);
}

/* Which tensors are copied when they are made, instead of x. */
typedef bool (*Stands)(const Program *, TensorId x, TensorId t);

static bool has_bytes_of(const Program *p, TensorId x, TensorId t)
{
    const Tensor *a = &p->tensor[x.i], *b = &p->tensor[t.i];
    return a->buffer.i == b->buffer.i && a->at == b->at && tensor_bytes(a) == tensor_bytes(b);
}

/* Copy the value whenever it is made, whatever view of it is. */
static void watch(Arena *a, Rank *r, DumpSpec *d, TensorId id, Stands stands)
{
    const Program *p = r->program;
    int64_t bytes = tensor_bytes(&p->tensor[id.i]);
    Stored s = stored_whole(r, id, d->kind, NULL, bytes);
    s.part.data = arena_alloc(a, (size_t)(bytes * s.part.micros));
    s.part.copied = true;
    for (uint32_t t = 0; t < p->ntensor; t++)
        if (stands(p, (TensorId){t}, id))
            PUSH(a, r->watch, r->nwatch, ((Watch){(TensorId){t}, s.batch >= 0, s.part.data}));
    add_item(a, d, s);
}

/* ---- paths ---- */

/* Kinds that are lists of tensors. */
static bool is_list(const char *kind)
{
    return strcmp(kind, "weights") == 0 || strcmp(kind, "moments") == 0 || strcmp(kind, "grads") == 0;
}

static const char *nearest_path(Arena *a, const Program *p, const char *path)
{
    const char **pool = NULL;
    uint32_t n = 0;
    TensorId t;
    for (uint32_t i = 0; i < p->ntensor; i++)
        if (find_made(p, p->tensor[i].path, &t) == FOUND)
            PUSH(a, pool, n, p->tensor[i].path);
    for (uint32_t i = 0; i < p->nstate; i++)
        PUSH(a, pool, n, p->state[i].path);
    for (uint32_t i = 0; i < p->noutput; i++)
        PUSH(a, pool, n, p->output[i].name);
    return nearest_name(path, pool, n);
}

static bool is_placed(const Program *p, const char *path)
{
    for (uint32_t i = 0; i < p->ntensor; i++)
        if (strcmp(p->tensor[i].path, path) == 0)
            return true;
    return false;
}

/* The path of what made an output, which may be another word than the model's text has for it; NULL: there is no output of that name. */
static const char *output_path(const Program *p, const char *name)
{
    for (uint32_t i = 0; i < p->noutput; i++)
        if (strcmp(p->output[i].name, name) == 0)
            return p->output[i].path;
    return NULL;
}

static bool is_output(const Program *p, const char *kind)
{
    uint32_t i = 0;
    while (i < p->noutput && strcmp(p->output[i].name, kind) != 0 && strcmp(p->output[i].path, kind) != 0)
        i++;
    return i < p->noutput;
}

static void say_outputs(const Program *p)
{
    fputs(p->noutput == 1 ? "the model's output is" : "the model's outputs are", stderr);
    for (uint32_t i = 0; i < p->noutput; i++) {
        const NamedTensor *o = &p->output[i];
        fprintf(stderr, "%s '%s'", i ? "," : "", o->name);
        if (strcmp(o->name, o->path) != 0)
            fprintf(stderr, " (of path '%s')", o->path);
    }
}

/* Why no rank has what is asked for. */
static void say_missing(Arena *a, const Program *p, const DumpSpec *d, Found found)
{
    static const char list[] = "'pplan dump PLAN --program' lists what is stored";
    const char *near = found == FOUND_NOTHING ? nearest_path(a, p, d->kind) : NULL;
    if (is_list(d->kind)) {
        fprintf(stderr, "error: --dump '%s': the program has none\n", d->kind);
    } else if (trains(p) && is_output(p, d->kind)) {
        fprintf(stderr, "error: --dump '%s': the steps of a training do not store this output by itself; plan the model without 'minimize', and run that with this "
                "--dump: '--resume DIR' gives it the weights\n", d->kind);
    } else if (found == FOUND_SUMMANDS) {
        fprintf(stderr, "error: --dump '%s': ranks hold summands of this value, and no instruction of the program adds them up by themselves; %s\n",
                d->kind, list);
    } else if (found == FOUND_INSIDE) {
        fprintf(stderr, "error: --dump '%s': no instruction of the program stores this value by itself: it is fused into another, added into "
                "another's memory, or another view of one; %s\n", d->kind, list);
    } else {
        fprintf(stderr, "error: --dump '%s': expected weights, grads, moments, samples, an output's name or the path of a value that the program stores; ", d->kind);
        if (near)
            fprintf(stderr, "did you mean '%s'?%s", near, p->noutput ? " " : "");
        if (p->noutput)
            say_outputs(p);
        fprintf(stderr, "%s\n", near || p->noutput ? "" : list);
    }
}

static const State *find_state(const Program *p, const char *path)
{
    for (uint32_t i = 0; i < p->nstate; i++)
        if (strcmp(p->state[i].path, path) == 0)
            return &p->state[i];
    return NULL;
}

/* An input has a slot per micro-batch. */
static bool add_input(Arena *a, const Rank *r, DumpSpec *d, const char *path)
{
    const Program *p = r->program;
    for (uint32_t i = 0; i < p->ninput; i++) {
        TensorId id = p->input[i].tensor;
        if (strcmp(p->input[i].name, path) != 0 || !has_tensor(id))
            continue;
        add_item(a, d, stored_whole(r, id, d->kind, rank_at(r, id, 0, 0), p->buffer[p->tensor[id.i].buffer.i].bytes));
        return true;
    }
    return false;
}

/* What a forward run gives out is there, whole, when a micro-batch went through, also where it is but a view of what an instruction makes. */
static bool find_output(const Program *p, const char *path, TensorId *out)
{
    uint32_t i = 0;
    while (i < p->noutput && (trains(p) || !has_tensor(p->output[i].tensor) || strcmp(p->output[i].path, path) != 0))
        i++;
    if (i < p->noutput)
        *out = p->output[i].tensor;
    return i < p->noutput;
}

static Found add_path(Arena *a, Rank *r, DumpSpec *d, const char *path)
{
    static const char grad[] = "grad:";
    TensorId t;
    if (strncmp(path, grad, strlen(grad)) == 0)
        d->list = states_list(a, r, STATES_GRADIENTS, path + strlen(grad));
    for (uint32_t i = 0; i < d->list.n; i++)
        d->list.tensor[i].shape.name = d->kind;
    if (d->list.n > 0 || add_input(a, r, d, path))
        return FOUND;
    Found found = find_made(r->program, path, &t);
    if (found != FOUND && find_output(r->program, path, &t)) {
        watch(a, r, d, t, has_bytes_of);
        return FOUND;
    }
    if (found == FOUND)
        watch(a, r, d, t, is_in);
    return found == FOUND_NOTHING && is_placed(r->program, path) ? FOUND_INSIDE : found;
}

/* ---- preparing ---- */

/* What this rank has of a word or a path; *after: as it is after a step, not during it. */
static Found find_items(Arena *a, Rank *r, DumpSpec *d, const char *kind, bool *after)
{
    *after = true;
    if (strcmp(kind, "weights") == 0)
        d->list = states_list(a, r, STATES_WEIGHTS, NULL);
    else if (strcmp(kind, "moments") == 0)
        d->list = states_list(a, r, STATES_MOMENTS, NULL);
    else if (find_state(r->program, kind))
        d->list = states_list(a, r, STATES_WEIGHTS, kind);
    else
        *after = false;
    if (strcmp(kind, "samples") == 0)
        *after = true;
    if (*after)
        return FOUND;
    if (strcmp(kind, "grads") != 0)
        return add_path(a, r, d, kind);
    d->list = states_list(a, r, STATES_GRADIENTS, NULL);
    return FOUND;
}

/* What all ranks know of it, and whether it is as after a step. */
typedef struct Shared { Found found; bool after; } Shared;

/* The ranks put together what they have. */
static Status share_items(Arena *a, Rank *r, DumpSpec *d, const char *kind, Shared *s)
{
    bool after;
    d->list = (StoredList){0};
    int64_t found[] = {find_items(a, r, d, kind, &after), 0};
    found[1] = after && d->list.n > 0;
    TRY(rank_agree(r, found, 2, REDUCE_MAX));
    *s = (Shared){(Found)found[0], found[1]};
    StoredList mine = d->list;
    return stored_share(r, a, &mine, &d->list);
}

/* A value is asked for by its path, else by its name among the outputs.  That the two are of different values is said. */
static Status share_named(Arena *a, Rank *r, DumpSpec *d, int64_t *least)
{
    Shared s;
    bool samples = strcmp(d->kind, "samples") == 0;
    const char *output = output_path(r->program, d->kind);
    TRY(share_items(a, r, d, d->kind, &s));
    if (d->list.n > 0 && output && strcmp(output, d->kind) != 0 && rank_reports(r))
        fprintf(stderr, "note: --dump '%s': written is the value of that path; the model's output '%s' is '%s'\n", d->kind, d->kind, output);
    if (d->list.n == 0 && output)
        TRY(share_items(a, r, d, output, &s));
    *least += !s.after && !samples;
    if (d->list.n > 0 || samples)
        return OK;
    if (rank_reports(r))
        say_missing(a, r->program, d, s.found);
    return ERR_USAGE;
}

static Status prepare_one(Arena *a, Rank *r, DumpSpec *d, int64_t first, int64_t last)
{
    int64_t least = first;
    TRY(share_named(a, r, d, &least));
    if (d->step >= least && d->step <= last)
        return OK;
    if (rank_reports(r))
        fprintf(stderr, "error: --dump '%s@%lld': this run goes from step %lld to step %lld, so it can be written at steps %lld..%lld\n", d->kind,
                (long long)d->step, (long long)first + 1, (long long)last, (long long)least, (long long)last);
    return ERR_USAGE;
}

Status dump_prepare(Arena *a, Rank *r, DumpSpec *d, uint32_t n, int64_t first, int64_t last)
{
    for (uint32_t i = 0; i < n; i++) {
        bool file = strcmp(d[i].path, "-") != 0;
        TRY(rank_outcome(r, file && rank_reports(r) ? folder_writable(a, d[i].path) : OK));
        TRY(prepare_one(a, r, &d[i], first, last));
    }
    return OK;
}

/* ---- writing ---- */

/* A batch that the data could not fill has fewer rows. */
static StoredList with_rows(Arena *a, const StoredList *all, int64_t rows)
{
    StoredList list = {NEWN(a, Stored, all->n + 1), all->n};
    for (uint32_t i = 0; i < list.n; i++) {
        Stored *s = &list.tensor[i];
        *s = all->tensor[i];
        if (s->batch < 0 || rows >= s->shape.extent[s->batch])
            continue;
        s->shape.bytes = s->shape.bytes / s->shape.extent[s->batch] * rows;
        s->shape.extent[s->batch] = rows;
    }
    return list;
}

static Status write_samples(Arena *a, const Data *data, const DumpSpec *d, bool shuffled, int64_t first, int64_t rows)
{
    int64_t *number = NEWN(a, int64_t, rows);
    for (int64_t i = 0; i < rows; i++)
        number[i] = data_sample_number(data, first + i, shuffled);
    STensor t = {.name = "samples", .dtype = DT_i64, .rank = 1, .extent = {rows}, .data = number, .bytes = 8 * rows};
    return sfile_write(a, d->path, &t, 1);
}

static Status write_one(Arena *a, const Rank *r, const Data *data, const DumpSpec *d, int64_t first, int64_t rows)
{
    if (strcmp(d->kind, "samples") == 0)
        return rank_outcome(r, rank_reports(r) ? write_samples(a, data, d, trains(r->program), first, rows) : OK);
    StoredList list = with_rows(a, &d->list, rows);
    SFileSum sum;
    return stored_write(a, r, d->path, &list, &sum);
}

Status dump_write(Arena *a, const Rank *r, const Data *data, const DumpSpec *d, uint32_t n, int64_t step, int64_t first, int64_t rows)
{
    for (uint32_t i = 0; i < n; i++)
        if (d[i].step == step)
            TRY(write_one(a, r, data, &d[i], first, rows));
    return OK;
}
