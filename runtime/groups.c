/* Groups between ranks: see groups.h. */
#include "runtime/groups.h"

#include <assert.h>
#include <string.h>

#include "ir/ops.h"

/* ---- names ---- */

static const uint64_t prime = 0x100000001b3;         /* FNV-1a's, by ranks */

GroupName group_name(const RankGroup *g, uint32_t use)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (uint32_t i = 0; i < g->n; i++)
        hash = (hash ^ (g->rank[i] - g->rank[0])) * prime;
    hash = use ? (hash ^ use) * prime : hash;
    return (GroupName){(int64_t)(hash | 1), g->rank[0]};
}

bool group_same(GroupName a, GroupName b)
{
    return a.kind == b.kind && a.first == b.first;
}

static bool before(GroupName a, GroupName b)
{
    return a.kind != b.kind ? a.kind < b.kind : a.first < b.first;
}

/* The place of a name in a sorted list, or where it would be. */
static uint32_t place_in(const GroupName *list, uint32_t n, GroupName name)
{
    uint32_t i = 0;
    while (i < n && before(list[i], name))
        i++;
    return i;
}

/* Into a sorted list that has room, unless it is there. */
static void add(GroupName *list, uint32_t *n, GroupName name)
{
    uint32_t i = place_in(list, *n, name);
    if (i < *n && group_same(list[i], name))
        return;
    memmove(&list[i + 1], &list[i], sizeof *list * (*n - i));
    list[i] = name;
    ++*n;
}

void group_add(GroupNames *list, uint32_t *n, GroupName name)
{
    assert(*n < MOST_GROUPS && "meshes have few axes, and few sets of stages share weights");
    add(list->of, n, name);
}

bool group_meets(const Instr *in)
{
    return op_info[in->op].flags & OPF_COMM && in->op != OP_send && in->op != OP_recv;
}

void group_names(const Program *p, GroupNames *out)
{
    uint32_t n = 0;
    *out = (GroupNames){0};
    for (uint32_t i = 0; i < p->ninstr; i++) {
        const RankGroup *g = group_meets(&p->instr[i]) ? &p->group[p->instr[i].group] : NULL;
        if (g && g->n != p->nranks)
            group_add(out, &n, group_name(g, 0));
    }
}

/* ---- ids ---- */

static bool has(const GroupNames *rank, GroupName name)
{
    for (int i = 0; i < MOST_GROUPS && rank->of[i].kind; i++)
        if (group_same(rank->of[i], name))
            return true;
    return false;
}

/* Whether a rank of group i is also in one of its kind that is before it and has this turn. */
static bool is_taken(const GroupIds *g, const GroupNames *rank, uint32_t nranks, uint32_t i, uint32_t turn)
{
    for (uint32_t r = 0; r < nranks; r++) {
        if (!has(&rank[r], g->name[i]))
            continue;
        for (int k = 0; k < MOST_GROUPS && rank[r].of[k].kind; k++) {
            uint32_t other = place_in(g->name, i, rank[r].of[k]);
            if (other < i && rank[r].of[k].kind == g->name[i].kind && g->turn[other] == turn)
                return true;
        }
    }
    return false;
}

/* That of an earlier group with the kind and turn, or the next. */
static uint32_t id_of(GroupIds *g, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (g->name[k].kind == g->name[i].kind && g->turn[k] == g->turn[i])
            return g->id[k];
    return g->nid++;
}

GroupIds group_ids(Arena *a, const GroupNames *rank, uint32_t nranks)
{
    GroupIds g = {.name = NEWN(a, GroupName, (size_t)nranks * MOST_GROUPS)};
    for (uint32_t r = 0; r < nranks; r++)
        for (int k = 0; k < MOST_GROUPS && rank[r].of[k].kind; k++)
            add(g.name, &g.n, rank[r].of[k]);
    g.turn = NEWN(a, uint32_t, g.n + 1);
    g.id = NEWN(a, uint32_t, g.n + 1);
    for (uint32_t i = 0; i < g.n; i++) {
        while (is_taken(&g, rank, nranks, i, g.turn[i]))
            g.turn[i]++;
        g.id[i] = id_of(&g, i);
    }
    return g;
}

uint32_t group_place(const GroupIds *g, GroupName name)
{
    uint32_t i = place_in(g->name, g->n, name);
    assert(i < g->n && group_same(g->name[i], name) && "all ranks have said in which groups they meet");
    return i;
}

uint32_t group_id(const GroupIds *g, const RankGroup *group)
{
    return g->id[group_place(g, group_name(group, 0))];
}
