/* inline_model(): a model and the blocks it calls as one text without includes. */
#include <string.h>

#include "base/text.h"
#include "frontend/elab.h"

typedef struct Needed { const Units *units; Arena *arena; const Node **item; uint32_t n; } Needed;

static void need(Needed *, const Node *item);

static void need_calls(Needed *w, const Node *n)
{
    const Node *block = n->kind == N_CALL ? item_find(w->units, N_BLOCK, n->kid[1]->text) : NULL;
    if (block)
        need(w, block);
    for (uint32_t i = 0; i < n->nkid; i++)
        need_calls(w, n->kid[i]);
}

static bool is_needed(const Needed *w, const Node *item)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->item[i] == item)
            return true;
    return false;
}

static void need(Needed *w, const Node *item)
{
    if (is_needed(w, item))
        return;
    PUSH(w->arena, w->item, w->n, item);
    need_calls(w, item);
}

const char *inline_model(Arena *a, Diags *ds, const Units *units, const char *model)
{
    const Node *item = item_find(units, N_MODEL, model);
    Needed w = {.units = units, .arena = ds->arena};
    Text t = text_new(ds->arena);
    if (!item)
        return NULL;
    need(&w, item);
    for (uint32_t u = 0; u < units->nunit; u++)
        for (uint32_t i = 0; i < units->unit[u].root->nkid; i++) {
            const Node *one = units->unit[u].root->kid[i];
            if (is_needed(&w, one))
                text_add(&t, "%s%s\n", t.n ? "\n" : "", sources_text(ds->sources, one->at));
        }
    Source *s = sources_add(ds->sources, arena_printf(ds->arena, "<model %s>", model), t.s, t.n);
    return s ? format_source(a, ds, s) : NULL;
}
