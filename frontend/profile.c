/* profile: the elaboration of `profile` items. */
#include <string.h>

#include "frontend/elab.h"

typedef struct Maker {
    Elab    *e;
    Scope   *scope;
    Profile *p;
} Maker;

static bool is_keep(const Node *pair)
{
    const Node *key = pair->kid[0];
    return key->nkid == 2 && strcmp(key->kid[0]->text, "keeps") == 0;
}

/* `keeps.OP = part`, in the order of ops.def. */
static void read_keep(Maker *m, const Node *pair)
{
    Profile *p = m->p;
    Keep k = {.op = op_find(pair->kid[0]->kid[1]->text)};
    if (k.op == OP_KINDS) {
        fail(m->e, pair->kid[0]->at, "there is no op '%s' whose result could be kept", pair->kid[0]->kid[1]->text);
        return;
    }
    if (profile_keep(p, k.op)) {
        fail(m->e, pair->at, "'%s' is set twice", key_text(m->e, pair->kid[0]));
        return;
    }
    Key key = {.name = key_text(m->e, pair->kid[0]), .type = KEY_REAL, .out = &k.part, .lo = 0, .hi = 1000};
    settings_pair(m->e, m->scope, pair, "profile", &key, 1);
    PUSH(p->arena, p->keep, p->nkeep, k);
    uint32_t i = p->nkeep - 1;
    for (; i > 0 && p->keep[i - 1].op > k.op; i--)
        p->keep[i] = p->keep[i - 1];
    p->keep[i] = k;
}

enum { OTHER_KEYS = 19 };

static void read_profile(Maker *m, const Node *settings)
{
    Profile *p = m->p;
    double reserve = 0;
    int overlap[OVERLAPS] = {[OVERLAP_scatter] = -1}, packs = true, fuses_sums = true, holds = false, converts = false;
    Key key[OTHER_KEYS + OVERLAPS] = {
        {.name = "slowdown.compute", .type = KEY_REAL, .out = &p->slow_compute, .lo = 1, .hi = 100},
        {.name = "slowdown.link", .type = KEY_REAL, .out = &p->slow_link, .lo = 1, .hi = 100},
        {.name = "slowdown.matmul", .type = KEY_REAL, .out = &p->slow_matmul, .lo = 1, .hi = 100},
        {.name = "slowdown.attention", .type = KEY_REAL, .out = &p->slow_attention, .lo = 1, .hi = 100},
        {.name = "slowdown.memory", .type = KEY_REAL, .out = &p->slow_memory, .lo = 1, .hi = 100},
        {.name = "step", .type = KEY_QUANTITY, .out = &p->step, .unit = UNIT_SECONDS},
        {.name = "issue", .type = KEY_QUANTITY, .out = &p->issue, .unit = UNIT_SECONDS},
        {.name = "issue.rank", .type = KEY_QUANTITY, .out = &p->issue_rank, .unit = UNIT_SECONDS},
        {.name = "message", .type = KEY_QUANTITY, .out = &p->message, .unit = UNIT_SECONDS},
        {.name = "fuses.sums", .type = KEY_BOOL, .out = &fuses_sums},
        {.name = "holds.gradients", .type = KEY_BOOL, .out = &holds},
        {.name = "converts.gradients", .type = KEY_BOOL, .out = &converts},
        {.name = "packs", .type = KEY_BOOL, .out = &packs},
        {.name = "stall", .type = KEY_QUANTITY, .out = &p->stall, .unit = UNIT_SECONDS},
        {.name = "stall.above", .type = KEY_WHOLE, .out = &p->stall_above, .lo = 0, .hi = 1 << 20},
        {.name = "late.gathers", .type = KEY_REAL, .out = &p->late_gathers, .lo = 0, .hi = 100},
        {.name = "late.within", .type = KEY_WHOLE, .out = &p->late_within, .lo = 0, .hi = 1 << 20},
        {.name = "pad", .type = KEY_REAL, .out = &p->pad, .lo = 1, .hi = 100},
        {.name = "reserve", .type = KEY_QUANTITY, .out = &reserve, .unit = UNIT_BYTES},
    };
    for (int k = 0; k < OVERLAPS; k++)
        key[OTHER_KEYS + k] = (Key){.name = arena_printf(m->e->arena, "overlap.%s", overlap_name((OverlapKind)k)), .type = KEY_BOOL, .out = &overlap[k]};
    const char *what = arena_printf(m->e->arena, "profile '%s'", p->name);
    for (uint32_t i = 0; i < settings->nkid && !m->e->stopped; i++) {
        if (is_keep(settings->kid[i]))
            read_keep(m, settings->kid[i]);
        else
            settings_pair(m->e, m->scope, settings->kid[i], what, key, OTHER_KEYS + OVERLAPS);
    }
    for (int k = 0; k < OVERLAPS; k++)
        p->overlap[k] = overlap[k] < 0 ? overlap[OVERLAP_gradient] : overlap[k];
    p->packs = packs;
    p->holds_gradients = holds;
    p->converts_gradients = converts;
    p->fuses_sums = fuses_sums;
    p->reserve = (int64_t)reserve;
}

Status elaborate_profile(Diags *ds, const Units *units, const char *name, Arena *a, Profile **out)
{
    Elab e = {.ds = ds, .arena = ds->arena, .units = units};
    const Node *item = item_chosen(units, N_PROFILE, name);
    *out = NULL;
    if (!item) {
        const char *path = units->unit[units->nunit - 1].source->path;
        if (name)
            fail(&e, NOWHERE, "no profile '%s' in '%s'%s", name, path, item_near(&e, N_PROFILE, name));
        else
            fail(&e, NOWHERE, "there is no profile in '%s'", path);
        fail_settle(&e);
        return ERR_REJECT;
    }
    Maker m = {.e = &e, .p = NEW(a, Profile)};
    m.scope = scope_new(&e, SCOPE_CLUSTER, "");
    *m.p = (Profile){.arena = a, .name = item->kid[0]->text, .doc = node_absent(item->kid[1]) ? NULL : item->kid[1]->text,
                     .slow_compute = 1, .slow_link = 1, .slow_matmul = 1, .slow_attention = 1, .slow_memory = 1, .pad = 1, .at = item->kid[0]->at};
    read_profile(&m, item->kid[2]);
    fail_settle(&e);
    TRY(diags_status(ds));
    *out = m.p;
    return OK;
}
