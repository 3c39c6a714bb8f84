/* elaborate_model(): from the items of the files to a Graph. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"

/* ---- which model ---- */

static const Node *last_item(const Node *file, NodeKind kind)
{
    for (uint32_t i = file->nkid; i-- > 0;)
        if (file->kid[i]->kind == kind)
            return file->kid[i];
    return NULL;
}

/* A plan says which model it is for. */
static const Node *planned_model(const Node *file)
{
    const Node *on = last_item(file, N_PLANON), *plan = last_item(file, N_PLAN);
    const Node *name = on ? on->kid[0] : plan ? plan->kid[0] : NULL;
    return name && !node_absent(name) ? name : NULL;
}

/* The names of the models of all files that were read; `planned`: a plan names one of them. */
static const Node *no_model(Elab *e, Span at, const char *name, bool planned)
{
    Text list = text_new(e->arena);
    for (uint32_t u = 0, n = 0; u < e->units->nunit; u++)
        for (uint32_t i = 0; i < e->units->unit[u].root->nkid; i++)
            if (e->units->unit[u].root->kid[i]->kind == N_MODEL)
                text_add(&list, "%s'%s'", n++ ? ", " : "", e->units->unit[u].root->kid[i]->kid[0]->text);
    if (!name) {
        fail(e, at, "no model in '%s'", e->units->unit[e->units->nunit - 1].source->path);
        return NULL;
    }
    Diag *d = fail(e, at, "no model named '%s'%s", name, item_near(e, N_MODEL, name));
    if (list.n)
        diag_help(e->ds, d, "the models read are %s%s", list.s, planned ? "; a plan has no name of its own, but that of its model" : "");
    else if (planned)
        diag_help(e->ds, d, "'include \"FILE.pmodel\"' before the plan reads one");
    return NULL;
}

/* The last of a file is taken where nobody says which. */
static void note_others(Elab *e, const Node *file, const Node *model)
{
    Text list = text_new(e->arena);
    for (uint32_t i = 0, n = 0; i < file->nkid; i++)
        if (file->kid[i]->kind == N_MODEL && file->kid[i] != model)
            text_add(&list, "%s'%s'", n++ ? ", " : "", file->kid[i]->kid[0]->text);
    if (list.n)
        diag_tell(e->ds, model->kid[0]->at, "model '%s', the last of this file, is taken; '--model' takes another: %s", model->kid[0]->text, list.s);
}

static const Node *find_model(Elab *e, const char *name)
{
    const Node *file = e->units->unit[e->units->nunit - 1].root, *planned = name ? NULL : planned_model(file), *model = NULL;
    if (name || planned) {
        model = item_find(e->units, N_MODEL, name ? name : planned->text);
        return model ? model : no_model(e, name ? NOWHERE : planned->at, name ? name : planned->text, !name);
    }
    for (uint32_t u = e->units->nunit; u-- > 0 && !model;)
        model = last_item(file = e->units->unit[u].root, N_MODEL);
    if (model)
        note_others(e, file, model);
    return model ? model : no_model(e, NOWHERE, NULL, false);
}

/* ---- items ---- */

/* `first` and `second`: units that have an item of this name.  What bundled files have cannot be renamed. */
static void help_twice(Elab *e, Diag *d, uint32_t first, uint32_t second)
{
    const char *a = e->units->unit[first].source->path, *b = e->units->unit[second].source->path;
    if (first == second)
        diag_help(e->ds, d, "give one of them another name");
    else if (second == e->units->nunit - 1)
        diag_help(e->ds, d, "'%s' is included: give the one in '%s' another name", a, b);
    else
        diag_help(e->ds, d, "include only one of '%s' and '%s', and copy what is needed of the other under another name", a, b);
}

static void check_twice(Elab *e, const Node *item, uint32_t unit)
{
    for (uint32_t u = 0; u < e->units->nunit; u++)
        for (uint32_t i = 0; i < e->units->unit[u].root->nkid; i++) {
            const Node *other = e->units->unit[u].root->kid[i];
            if (other == item)
                return;
            if (other->kind == item->kind && strcmp(other->kid[0]->text, item->kid[0]->text) == 0) {
                Diag *d = fail(e, item->kid[0]->at, "two %ss named '%s'", item->kind == N_MODEL ? "model" : "block", item->kid[0]->text);
                diag_note(e->ds, d, other->kid[0]->at, "the first is here");
                help_twice(e, d, u, unit);
                return;
            }
        }
}

static void check_item(Elab *e, const Node *item, uint32_t unit)
{
    if (item->kind == N_OPDECL)
        check_opdecl(e, item);
    if (item->kind == N_MODEL || item->kind == N_BLOCK)
        check_twice(e, item, unit);
    if (item->kind != N_BLOCK)
        return;
    OpKind k = op_find(item->kid[0]->text);
    if ((k != OP_KINDS && op_info[k].use != OP_INTERNAL) || strcmp(item->kid[0]->text, "sqrt") == 0)
        fail(e, item->kid[0]->at, "a block cannot be called '%s': that is an op", item->kid[0]->text);
}

static void check_items(Elab *e)
{
    for (uint32_t u = 0; u < e->units->nunit; u++)
        for (uint32_t i = 0; i < e->units->unit[u].root->nkid; i++)
            check_item(e, e->units->unit[u].root->kid[i], u);
}

/* ---- paths ---- */

typedef struct Entry { const char *path; uint32_t op; } Entry;

static int by_path(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    int c = strcmp(x->path, y->path);
    return c ? c : (x->op > y->op) - (x->op < y->op);
}

static void set_path(Graph *g, Op *op, const char *path)
{
    size_t old = strlen(op->path);
    for (int o = 0; o < op->nout; o++) {             /* "path" or "path:suffix" */
        Value *v = value_of(g, op->out[o]);
        v->path = arena_printf(g->arena, "%s%s", path, v->path + old);
    }
    op->path = op->key = path;
}

/* Ops of one scope that share a name get an index, in source order. */
static void number_paths(Elab *e)
{
    Graph *g = e->g;
    Entry *entry = NEWN(e->arena, Entry, g->nop + 1);
    for (uint32_t i = 0; i < g->nop; i++)
        entry[i] = (Entry){g->op[i].path, i};
    qsort(entry, g->nop, sizeof *entry, by_path);
    for (uint32_t i = 0, n; i < g->nop; i += n) {
        for (n = 1; i + n < g->nop && strcmp(entry[i].path, entry[i + n].path) == 0;)
            n++;
        for (uint32_t k = 0; k < n && n > 1; k++)
            set_path(g, &g->op[entry[i + k].op], arena_printf(g->arena, "%s[%u]", entry[i].path, k));
    }
}

/* ---- the model ---- */

/* A loss that nothing can lower: whose weights are missing, frozen, or elsewhere. */
static void check_trains(Elab *e)
{
    const Graph *g = e->g;
    const Weight *frozen = NULL;
    bool all = true;
    if (!has_value(g->loss) || graph_trains(g))
        return;
    for (uint32_t i = g->nweight; i-- > 0;) {
        all &= g->weight[i].frozen;
        frozen = g->weight[i].frozen ? &g->weight[i] : frozen;
    }
    Diag *d = fail(e, e->minimize->at, "model '%s' minimizes a loss that no trained weight has a part in: %s", g->name,
                   g->nweight == 0 ? "it has no weights" : all ? "all its weights are frozen"
                   : frozen ? "no gradient reaches those that are not frozen" : "no gradient reaches its weights");
    if (frozen)
        diag_note(e->ds, d, value_of(g, frozen->value)->at, "'%s' is frozen here", value_of(g, frozen->value)->path);
    diag_help(e->ds, d, "to run the model forward, name what it gives by 'output' instead of 'minimize'");
}

/* The values that what is minimized or output is made of, as a list of marks. */
static const bool *values_with_a_part(const Elab *e)
{
    const Graph *g = e->g;
    bool *part = NEWN(e->arena, bool, g->nvalue + 1);
    if (has_value(g->loss))
        part[g->loss.i] = true;
    for (uint32_t i = 0; i < g->noutput; i++)
        part[g->output[i].value.i] = true;
    for (uint32_t o = g->nop; o-- > 0;) {            /* what an op reads was made before it */
        bool wanted = false;
        for (int k = 0; k < g->op[o].nout; k++)
            wanted |= part[g->op[o].out[k].i];
        for (int k = 0; k < g->op[o].narg && wanted; k++)
            if (has_value(g->op[o].arg[k]))
                part[g->op[o].arg[k].i] = true;
    }
    return part;
}

/* Inputs and weights without a part in the result, and inputs that no data file can give. */
static void check_uses(Elab *e)
{
    const Graph *g = e->g;
    const bool *part = values_with_a_part(e);
    for (uint32_t i = 0; i < g->nvalue; i++) {
        const Value *v = &g->value[i];
        if (part[i] || (v->role != ROLE_INPUT && v->role != ROLE_WEIGHT))
            continue;
        if (v->role == ROLE_INPUT)
            diag_warn(e->ds, v->at, "nothing that is minimized or output reads input '%s': a run needs data for it all the same", v->path);
        else if (i == 0 || g->value[i - 1].role != ROLE_WEIGHT || g->value[i - 1].at.start != v->at.start || part[i - 1])
            diag_warn(e->ds, v->at, "nothing that is minimized or output reads weight '%s': it is counted, and has no effect", v->path);
    }
}

/* Data come in samples, along the axis called batch. */
static void check_batch(Elab *e, const Node *model)
{
    const Graph *g = e->g;
    uint32_t inputs = 0;
    for (uint32_t i = 0; i < g->nvalue; i++) {
        const Value *v = &g->value[i];
        inputs += v->role == ROLE_INPUT;
        if (v->role == ROLE_INPUT && !same_dim(g->batch, NO_DIM) && (v->rank == 0 || !same_dim(v->axis[0], g->batch)))
            diag_warn(e->ds, v->at, "input '%s' has no axis 'batch': prun cannot read it from data, which are samples", v->path);
    }
    if (inputs == 0 || !same_dim(g->batch, NO_DIM))
        return;
    Diag *d = diag_warn(e->ds, model->kid[0]->at, "model '%s' has no dim 'batch': its samples can neither be read from data nor split over devices", g->name);
    diag_help(e->ds, d, "call the axis of samples 'batch', as in 'dim batch = 8', and let every input begin with it");
}

static void check_purpose(Elab *e, const Node *model)
{
    const Graph *g = e->g;
    if (e->ds->errors)
        return;
    if (!has_value(g->loss) && g->noutput == 0) {
        Diag *d = fail(e, model->kid[0]->at, "model '%s' neither minimizes nor outputs anything", g->name);
        diag_help(e->ds, d, "end it with 'minimize' and a loss, or with 'output' and the values wanted");
    }
    if (!has_value(g->loss) && g->optimizer.kind != OPTIMIZER_NONE)
        diag_warn(e->ds, e->optimizer_at, "the optimizer has no effect: model '%s' minimizes nothing", g->name);
    check_trains(e);
    if (e->ds->errors)
        return;
    check_uses(e);
    check_batch(e, model);
}

static void run_model(Elab *e, const Node *model, Arena *graph)
{
    e->g = graph_new(graph);
    e->g->name = arena_strdup(graph, model->kid[0]->text);
    e->g->doc = node_absent(model->kid[1]) ? NULL : arena_strdup(graph, model->kid[1]->text);
    run_statements(e, scope_new(e, SCOPE_MODEL, ""), model->kid[2]);
    check_purpose(e, model);
    number_paths(e);
}

Status elaborate_model(Diags *ds, const Units *units, const char *name, Define *define, uint32_t ndefine, Arena *graph, Graph **out)
{
    Elab e = {.ds = ds, .arena = ds->arena, .units = units, .define = define, .ndefine = ndefine};
    *out = NULL;
    check_items(&e);
    const Node *model = find_model(&e, name);
    if (model)
        run_model(&e, model, graph);
    fail_settle(&e);
    Status status = diags_status(ds);
    *out = status == OK ? e.g : NULL;
    return status;
}
