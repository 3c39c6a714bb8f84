/* elaborate_model(): from the items of the files to a Graph. */
#include <stdlib.h>
#include <string.h>

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

static const Node *no_model(Elab *e, Span at, const char *name)
{
    if (name)
        fail(e, at, "no model named '%s'%s", name, item_near(e, N_MODEL, name));
    else
        fail(e, at, "no model in '%s'", e->units->unit[e->units->nunit - 1].source->path);
    return NULL;
}

static const Node *find_model(Elab *e, const char *name)
{
    const Node *file = e->units->unit[e->units->nunit - 1].root, *planned = name ? NULL : planned_model(file), *model = NULL;
    if (name || planned) {
        model = item_find(e->units, N_MODEL, name ? name : planned->text);
        return model ? model : no_model(e, name ? NOWHERE : planned->at, name ? name : planned->text);
    }
    for (uint32_t u = e->units->nunit; u-- > 0 && !model;)
        model = last_item(e->units->unit[u].root, N_MODEL);
    return model ? model : no_model(e, NOWHERE, NULL);
}

/* ---- items ---- */

static void check_twice(Elab *e, const Node *item)
{
    for (uint32_t u = 0; u < e->units->nunit; u++)
        for (uint32_t i = 0; i < e->units->unit[u].root->nkid; i++) {
            const Node *other = e->units->unit[u].root->kid[i];
            if (other == item)
                return;
            if (other->kind == item->kind && strcmp(other->kid[0]->text, item->kid[0]->text) == 0) {
                Diag *d = fail(e, item->kid[0]->at, "two %ss named '%s'", item->kind == N_MODEL ? "model" : "block", item->kid[0]->text);
                diag_note(e->ds, d, other->kid[0]->at, "the first is here");
                return;
            }
        }
}

static void check_item(Elab *e, const Node *item)
{
    if (item->kind == N_OPDECL)
        check_opdecl(e, item);
    if (item->kind == N_MODEL || item->kind == N_BLOCK)
        check_twice(e, item);
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
            check_item(e, e->units->unit[u].root->kid[i]);
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
    Diag *d = fail(e, e->minimize_at, "model '%s' minimizes a loss that no trained weight has a part in: %s", g->name,
                   g->nweight == 0 ? "it has no weights" : all ? "all its weights are frozen"
                   : frozen ? "no gradient reaches those that are not frozen" : "no gradient reaches its weights");
    if (frozen)
        diag_note(e->ds, d, value_of(g, frozen->value)->at, "'%s' is frozen here", value_of(g, frozen->value)->path);
    diag_help(e->ds, d, "to run the model forward, name what it gives by 'output' instead of 'minimize'");
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
