/* Dumps: tensors of the run in files, for tests and for looking. */
#include <string.h>

#include "base/diag.h"
#include "base/files.h"
#include "base/text.h"
#include "runtime/states.h"

/* ---- what a program makes ---- */

static bool trains(const Program *p)
{
    return has_tensor(p->loss);
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

/* The tensor that a step's instructions make under a path; NO_TENSOR: none does. */
static TensorId find_made(const Program *p, const char *path)
{
    for (uint32_t i = 0; i < p->nproc; i++)
        for (uint32_t k = p->proc[i].first; in_steps(p, &p->proc[i]) && k < p->proc[i].end; k++)
            for (uint32_t o = 0; o < p->instr[k].nout; o++) {
                TensorId t = p->instr[k].out[o];
                if (makes(&p->instr[k], o) && strcmp(p->tensor[t.i].path, path) == 0)
                    return t;
            }
    return NO_TENSOR;
}

static bool is_made(const Program *p, TensorId t)
{
    for (uint32_t i = 0; i < p->ninstr; i++)
        for (uint32_t o = 0; o < p->instr[i].nout; o++)
            if (p->instr[i].out[o].i == t.i)
                return true;
    return false;
}

static bool lives_on(const Program *p, TensorId t)
{
    return p->buffer[p->tensor[t.i].buffer.i].first < 0;
}

/* ---- items ---- */

static int64_t global_bytes(const Tensor *t)
{
    int64_t n = dtype_bytes(t->dtype);
    for (uint32_t i = 0; i < t->rank; i++)
        n *= t->axis[i].global;
    return n;
}

static void add_item(Arena *a, DumpSpec *d, DumpItem item)
{
    PUSH(a, d->item, d->nitem, item);
}

/* Copy the tensor whenever it is made.  Micro-batches are laid end to end, so one
 * that is cut must be cut along its first axis. */
static Status watch(Arena *a, Rank *r, DumpSpec *d, const char *name, TensorId id, bool sum)
{
    const Tensor *t = &r->program->tensor[id.i];
    for (uint32_t i = 1; i < t->rank; i++)
        if (t->axis[i].per_micro && r->program->microbatches > 1) {
            fprintf(stderr, "error: --dump '%s': its batch axis is not the first, so micro-batches do not follow each other; "
                    "plan with 'microbatches = 1'\n", d->kind);
            return ERR_REJECT;
        }
    Watch w = {.tensor = id, .sum = sum, .to = arena_alloc(a, (size_t)global_bytes(t))};
    PUSH(a, r->watch, r->nwatch, w);
    add_item(a, d, (DumpItem){name, id, w.to});
    return OK;
}

static Status add_gradient(Arena *a, Rank *r, DumpSpec *d, const char *name, const State *s)
{
    if (!has_tensor(s->gradient))
        return OK;
    if (is_made(r->program, s->gradient))
        return watch(a, r, d, name, s->gradient, true);
    if (!lives_on(r->program, s->gradient)) {
        fprintf(stderr, "error: --dump '%s': the program does not keep the gradient of '%s'\n", d->kind, s->path);
        return ERR_REJECT;
    }
    add_item(a, d, (DumpItem){name, s->gradient, NULL});
    return OK;
}

static Status add_gradients(Arena *a, Rank *r, DumpSpec *d)
{
    for (uint32_t i = 0; i < r->program->nstate; i++)
        TRY(add_gradient(a, r, d, r->program->state[i].path, &r->program->state[i]));
    return OK;
}

static void add_states(Arena *a, const Rank *r, DumpSpec *d, StateKind kind, const char *only)
{
    uint32_t n;
    NamedTensor *list = states_list(a, r, kind, &n);
    for (uint32_t i = 0; i < n; i++)
        if (!only || strcmp(list[i].name, only) == 0)
            add_item(a, d, (DumpItem){list[i].name, list[i].tensor, NULL});
}

/* ---- paths ---- */

static const char *nearest_path(Arena *a, const Program *p, const char *path)
{
    const char **pool = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->ntensor; i++)
        if (has_tensor(find_made(p, p->tensor[i].path)))
            PUSH(a, pool, n, p->tensor[i].path);
    for (uint32_t i = 0; i < p->nstate; i++)
        PUSH(a, pool, n, p->state[i].path);
    return nearest_name(path, pool, n);
}

static bool is_placed(const Program *p, const char *path)
{
    for (uint32_t i = 0; i < p->ntensor; i++)
        if (strcmp(p->tensor[i].path, path) == 0)
            return true;
    return false;
}

static Status unknown_path(Arena *a, const Program *p, const DumpSpec *d)
{
    static const char list[] = "'pplan dump PLAN --program' lists what is stored";
    if (is_placed(p, d->kind)) {
        fprintf(stderr, "error: --dump '%s': no instruction of the program stores this value by itself: it is fused into another, added into "
                "another's memory, or another view of one; %s\n", d->kind, list);
        return ERR_USAGE;
    }
    const char *near = nearest_path(a, p, d->kind);
    fprintf(stderr, "error: --dump '%s': expected weights, grads, moments, samples or the path of a value that the program stores; ", d->kind);
    if (near)
        fprintf(stderr, "did you mean '%s'?\n", near);
    else if (p->noutput)
        fprintf(stderr, "the first of its outputs is '%s'\n", p->tensor[p->output[0].i].path);
    else
        fprintf(stderr, "%s\n", list);
    return ERR_USAGE;
}

static const State *find_state(const Program *p, const char *path)
{
    for (uint32_t i = 0; i < p->nstate; i++)
        if (strcmp(p->state[i].path, path) == 0)
            return &p->state[i];
    return NULL;
}

static Status add_path(Arena *a, Rank *r, DumpSpec *d)
{
    const Program *p = r->program;
    static const char grad[] = "grad:";
    const State *s = strncmp(d->kind, grad, strlen(grad)) == 0 ? find_state(p, d->kind + strlen(grad)) : NULL;
    if (s && has_tensor(s->gradient))
        return add_gradient(a, r, d, d->kind, s);
    for (uint32_t i = 0; i < p->ninput; i++)
        if (strcmp(p->input[i].name, d->kind) == 0) {
            add_item(a, d, (DumpItem){d->kind, p->input[i].tensor, arena_alloc(a, (size_t)global_bytes(&p->tensor[p->input[i].tensor.i]))});
            return OK;
        }
    TensorId t = find_made(p, d->kind);
    return has_tensor(t) ? watch(a, r, d, d->kind, t, false) : unknown_path(a, p, d);
}

/* ---- preparing ---- */

typedef enum DumpWhen { WHEN_AFTER, WHEN_DURING } DumpWhen;

static Status find_items(Arena *a, Rank *r, DumpSpec *d, DumpWhen *when)
{
    const char *kind = d->kind;
    *when = WHEN_AFTER;
    if (strcmp(kind, "weights") == 0)
        add_states(a, r, d, STATES_WEIGHTS, NULL);
    else if (strcmp(kind, "moments") == 0)
        add_states(a, r, d, STATES_MOMENTS, NULL);
    else if (find_state(r->program, kind))
        add_states(a, r, d, STATES_WEIGHTS, kind);
    else
        *when = WHEN_DURING;
    if (*when == WHEN_AFTER || strcmp(kind, "samples") == 0)
        return OK;
    return strcmp(kind, "grads") == 0 ? add_gradients(a, r, d) : add_path(a, r, d);
}

static Status prepare_one(Arena *a, Rank *r, DumpSpec *d, int64_t first, int64_t last)
{
    DumpWhen when;
    d->item = NULL;
    d->nitem = 0;
    TRY(find_items(a, r, d, &when));
    if (d->nitem == 0 && strcmp(d->kind, "samples") != 0) {
        fprintf(stderr, "error: --dump '%s': the program has none\n", d->kind);
        return ERR_USAGE;
    }
    int64_t least = first + (when == WHEN_DURING);
    if (d->step >= least && d->step <= last)
        return OK;
    fprintf(stderr, "error: --dump '%s@%lld': this run goes from step %lld to step %lld, so it can be written at steps %lld..%lld\n", d->kind,
            (long long)d->step, (long long)first + 1, (long long)last, (long long)least, (long long)last);
    return ERR_USAGE;
}

Status dump_prepare(Arena *a, Rank *r, DumpSpec *d, uint32_t n, int64_t first, int64_t last)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(d[i].path, "-") != 0)
            TRY(folder_writable(a, d[i].path));
        TRY(prepare_one(a, r, &d[i], first, last));
    }
    return OK;
}

/* ---- writing ---- */

/* An input has a slot per micro-batch. */
static void gather_input(const Rank *r, const DumpItem *item)
{
    int64_t bytes = tensor_bytes(&r->program->tensor[item->tensor.i]), all = global_bytes(&r->program->tensor[item->tensor.i]);
    for (int64_t i = 0; i * bytes < all; i++)
        memcpy(item->copy + i * bytes, rank_at(r, item->tensor, 0, (uint32_t)i), (size_t)bytes);
}

/* A batch that the data could not fill has fewer rows. */
static STensor as_file_has_it(const Rank *r, const DumpItem *item, int64_t rows)
{
    const Tensor *t = &r->program->tensor[item->tensor.i];
    if (t->role == ROLE_INPUT)
        gather_input(r, item);
    STensor out = states_tensor(r, item->tensor, item->name, item->copy ? item->copy : rank_at(r, item->tensor, 0, 0));
    if (t->rank > 0 && t->axis[0].per_micro > 0 && rows < out.extent[0]) {
        out.bytes = out.bytes / out.extent[0] * rows;
        out.extent[0] = rows;
    }
    return out;
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
        return write_samples(a, data, d, trains(r->program), first, rows);
    STensor *list = NEWN(a, STensor, d->nitem);
    for (uint32_t i = 0; i < d->nitem; i++)
        list[i] = as_file_has_it(r, &d->item[i], rows);
    return sfile_write(a, d->path, list, d->nitem);
}

Status dump_write(Arena *a, const Rank *r, const Data *data, const DumpSpec *d, uint32_t n, int64_t step, int64_t first, int64_t rows)
{
    for (uint32_t i = 0; i < n; i++)
        if (d[i].step == step)
            TRY(write_one(a, r, data, &d[i], first, rows));
    return OK;
}
