/* What the search looked at, and the plans that it found. */
#include "cli/show.h"

#include "base/text.h"
#include "planner/changes.h"

static const char *mesh_text(Arena *a, const Plan *p)
{
    Text t = text_new(a);
    for (int x = 0; x < MESH_AXES; x++)
        if (p->mesh[x] > 1)
            text_add(&t, "%s%s = %lld", t.n ? ", " : "", mesh_axis_name((MeshAxis)x), (long long)p->mesh[x]);
    return t.n ? t.s : "one device";
}

static bool shards(const Plan *p)
{
    for (uint32_t i = 0; i < p->nrule; i++)
        if (p->rule[i].kind == RULE_SHARD)
            return true;
    return false;
}

/* Rounds that are recomputed; rules without rounds: every one. */
static const char *recomputed(Arena *a, const Plan *p)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->nrule; i++) {
        const Rule *r = &p->rule[i];
        if (r->kind != RULE_RECOMPUTE || r->policy == RECOMPUTE_NONE)
            continue;
        if (r->path.nstep != 2 || r->path.step[1].name)
            return "by rules";
        n += r->path.step[1].last - r->path.step[1].first + 1;
    }
    return n ? arena_printf(a, "%lld rounds", (long long)n) : "none";
}

static void show_found(Report *r, const Graph *g, const Search *s)
{
    static const Column columns[] = {{"rank", "plan", SHOW_COUNT}, {"ns", "step", SHOW_NS}, {"slower", "slower", SHOW_RATIO}, {"mesh", "mesh", SHOW_TEXT},
                                     {"microbatches", "micro-batches", SHOW_COUNT}, {"schedule", "schedule", SHOW_TEXT},
                                     {"sharded", "optimizer", SHOW_TEXT}, {"recomputed", "recomputed", SHOW_TEXT}, {"spare", "spare bytes", SHOW_BYTES},
                                     {"differs", "differs from the first in", SHOW_TEXT}};
    Table *t = report_table(r, "plans", columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; i < s->nbest; i++) {
        const Found *f = &s->best[i];
        Cell row[] = {CELL_NUMBER(i + 1), CELL_NUMBER(f->ns), CELL_NUMBER((double)f->ns / (double)s->best[0].ns), CELL_TEXT(mesh_text(r->arena, f->plan)),
                      CELL_NUMBER(f->plan->microbatches), CELL_TEXT(f->plan->mesh[AXIS_pp] > 1 ? f->plan->schedule : "-"),
                      CELL_TEXT(shards(f->plan) ? "sharded" : "whole"), CELL_TEXT(recomputed(r->arena, f->plan)), CELL_NUMBER(f->spare),
                      CELL_TEXT(i ? plans_differ(r->arena, g, s->best[0].plan, f->plan) : "")};
        table_row(r, t, row);
    }
}

static const char *layouts_text(Arena *a, const Search *s)
{
    return s->layouts < 1e6 ? text_count(a, (int64_t)s->layouts) : arena_printf(a, "%.1e", s->layouts);
}

const char *searched_text(Arena *a, const Search *s)
{
    const char *result = s->nbest == 0 ? "none of those looked at fits" : !s->proven ? "this is the fastest that was found" : s->no_context ? "none with cp = 1 is faster" : "none is faster";
    return arena_printf(a, "%s layouts with these rules: %s", layouts_text(a, s), result);
}

void show_search(Report *r, const Graph *g, const Search *s)
{
    Arena *a = r->arena;
    if (s->judged == 0)
        return;
    Table *t = report_lines(r, "search");
    const char *excluded = s->excluded ? arena_printf(a, ", %llu of them without room for the model", (unsigned long long)s->excluded) : "";
    double best = (double)s->best[0].ns, gap = s->proven ? 0 : (best - s->bound) / best;
    table_line(r, t, "searched", arena_printf(a, "%s layouts in %llu configurations%s; %llu estimated, %llu lowered and simulated, of which %llu did not fit",
               layouts_text(a, s), (unsigned long long)s->configs, excluded, (unsigned long long)s->estimated, (unsigned long long)s->judged,
               (unsigned long long)s->unfit));
    table_line(r, t, "gap", s->proven ? s->no_context ? "0: no layout with cp = 1 is faster" : "0: no layout is faster" : arena_printf(a, "%.1f %%: no layout%s is faster than %s; looked at were %s", 100 * gap,
               s->no_context ? " with cp = 1" : "", text_ns(a, (int64_t)s->bound), s->cut));
    if (s->soft > 0) {
        table_line(r, t, "preferences", arena_printf(a, "%u of %u kept; %s", s->kept, s->soft, s->without ? arena_printf(a, "without them a step takes %s",
                   text_ns(a, s->without)) : "without them nothing was found that fits"));
        table_fact(r, t, "preferences", CELL_NUMBER(s->soft));
        table_fact(r, t, "kept", CELL_NUMBER(s->kept));
    }
    table_fact(r, t, "layouts", CELL_NUMBER(s->layouts));
    table_fact(r, t, "configurations", CELL_NUMBER(s->configs));
    table_fact(r, t, "excluded", CELL_NUMBER(s->excluded));
    table_fact(r, t, "estimated", CELL_NUMBER(s->estimated));
    table_fact(r, t, "judged", CELL_NUMBER(s->judged));
    table_fact(r, t, "unfit", CELL_NUMBER(s->unfit));
    table_fact(r, t, "bound_ns", CELL_NUMBER(s->bound));
    table_fact(r, t, "gap", CELL_NUMBER(gap));
    if (s->nbest > 1)
        show_found(r, g, s);
}
