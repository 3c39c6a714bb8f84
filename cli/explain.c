/* Explain: the command. */
#include "cli/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/notes.h"
#include "cli/show.h"

enum { NEXT_SHOWN = 3 };

/* ---- the plan ---- */

/* What comes next in a search for several plans, and the layouts one decision away.  That search is not the one
 * that the plan is of: it judges more. */
static uint32_t all_others(Loaded *l, const Weigher *w, const Plan *plan, const Search *found, const Change *near, uint32_t nnear, Change **out)
{
    uint32_t n = 0;
    Plan *best;
    Programs programs;
    Search several;
    PlanRequest q = load_request(l, USE_PLAN);
    SearchLimits limits = search_limits;
    limits.top = 1 + NEXT_SHOWN;
    *out = NULL;
    if (found->judged > 0 && planner_search(l->ir, diags_new(l->sources), &q, limits, &best, &programs, &several) == OK)
        n = runners_up(w, plan, &several, out);
    for (uint32_t i = 0; i < nnear; i++)
        PUSH(l->ir, *out, n, near[i]);
    return n;
}

static void explain_plan(Loaded *l, const Weigher *w, const Plan *plan, const Programs *programs, const Search *found, Report *r)
{
    Simulation sim = simulate(l->ir, l->cluster, plan, l->profile, programs->rank);
    Weighed chosen = weigh_plan(w, plan, programs, &sim);
    Rung rung[DECISIONS];
    uint32_t n = ladder(w, plan, rung);
    Scaling s = scaling(w, plan);
    Change *near, *other;
    uint32_t nnear = neighbours(w, plan, &near), nother = all_others(l, w, plan, found, near, nnear, &other);
    show_plan(r, l->graph, l->cluster, plan, programs, l->profile, &sim);
    show_fewer(r, w, plan, &sim);
    show_verdicts(r, &chosen.figures, &s);
    show_ladder(r, rung, n);
    if (s.n > 1)
        show_scaling(r, &s);
    show_techniques(r, &chosen, near, nnear);
    show_next(r, &chosen, other, nother, NEXT_SHOWN, found->judged > 0);
    show_times(r, &sim, UINT32_MAX);
    show_busiest(r, l->graph, plan, programs, &sim);
    show_peak(r, &chosen.figures);
}

/* ---- why not ---- */

static void answer(Report *r, Table *t, const char *name, const char *key, const char *text)
{
    table_line(r, t, name, text);
    table_fact(r, t, key, CELL_TEXT(text));
}

/* What a diagnostic looks like, line by line. */
static void show_said(Report *r, Table *t, Diags *said)
{
    TextStream stream;
    text_stream_open(&stream);
    diags_flush(said, stream.f);
    const char *kept = text_stream_take(&stream, r->arena, NULL);
    table_fact(r, t, "diagnostic", CELL_TEXT(kept));
    for (const char *s = kept; *s; s += strcspn(s, "\n") + 1)
        table_line(r, t, "", arena_strndup(r->arena, s, strcspn(s, "\n")));
}

static void show_fixes(Report *r, Table *t, const Weigher *w, const Plan *plan, const Figures *f)
{
    Change fix, nearest;
    if (remedies(w, plan, f->map + f->reserve, 1, &fix, &nearest) > 0)
        answer(r, t, "smallest fix", "fix", arena_printf(r->arena, "%s: %s", fix.text, fit_text(r->arena, &fix.weighed.figures)));
    else if (nearest.weighed.legal)
        answer(r, t, "nearest", "nearest", arena_printf(r->arena, "nothing that was tried fits; '%s' comes nearest, with it a device with %s bytes would do",
               nearest.text, text_count(r->arena, change_needs(&nearest))));
    answer(r, t, "or", "memory", arena_printf(r->arena, "a device with at least %s bytes of memory", text_count(r->arena, f->map + f->reserve)));
}

static void show_too_big(Report *r, Table *t, const Weigher *w, const Plan *plan, const Figures *f)
{
    Arena *a = r->arena;
    answer(r, t, "verdict", "verdict", "too big");
    answer(r, t, "too much", "too_much", arena_printf(a, "%s on rank %u: %s needed, %s usable", text_bytes(a, figures_excess(f)), f->rank, text_bytes(a, f->map),
           text_bytes(a, f->memory - f->reserve)));
    answer(r, t, "peak", "peak_at", arena_printf(a, "%s live at instruction %u, %s of '%s'", text_bytes(a, f->peak.bytes), f->peak.instr, f->peak.op, f->peak.path));
    show_fixes(r, t, w, plan, f);
}

/* pinned: what is asked about stands in place of the user's own rules. */
static void show_slower(Report *r, Table *t, const Weighed *chosen, const Weighed *asked, bool pinned)
{
    int64_t more = asked->figures.ns - chosen->figures.ns;
    if (strcmp(chosen->layout, asked->layout) == 0) {
        answer(r, t, "verdict", "verdict", "it is the chosen plan");
        return;
    }
    bool faster = more < 0 && !hardly_faster(chosen, asked);
    answer(r, t, "verdict", "verdict", more > 0 ? "slower" : faster ? "faster" : "as fast");
    answer(r, t, "because", "reason", reason_of(r->arena, chosen, asked));
    if (faster)
        answer(r, t, "chosen", "chosen", pinned ? "the rules pin the plan that is explained; without them this one may be taken"
               : "the search for the plan did not come to it; with these rules it is taken");
}

/* Whether rules of the user's own gave way to those that are asked about. */
static bool gave_way(const Rules *own, const Rules *given, const PlanRequest *asked)
{
    return asked->use == USE_PLAN ? asked->rules->nrule < own->nrule + given->nrule : own->nrule > 0;
}

static void show_asked(Loaded *l, const Weigher *w, const Weigher *of, const Weighed *chosen, const Rules *given, const Plan *other, const Programs *others,
                       Report *r, Table *t)
{
    Simulation sim = simulate(l->ir, l->cluster, other, l->profile, others->rank);
    Weighed asked = weigh_plan(of, other, others, &sim);
    bool same = strcmp(chosen->layout, asked.layout) == 0, fits = weighed_fits(&asked);
    if (fits)
        show_slower(r, t, chosen, &asked, gave_way(w->request->rules, given, of->request));
    else
        show_too_big(r, t, of, other, &asked.figures);
    table_line(r, t, "layout", pins_brief(r->arena, pins_of(r->arena, l->graph, other)));
    table_fact(r, t, "layout", CELL_TEXT(asked.layout));
    if (same)
        return;
    if (!fits)
        show_peak(r, &asked.figures);
    show_difference(r, &chosen->figures, &asked.figures);
}

/* The plan is so already; of a rule that makes nothing of that, why. */
static void show_kept(const Weigher *w, const Plan *plan, const Weighed *chosen, const Rules *given, Report *r, Table *t)
{
    const char *idle = NULL;
    for (uint32_t i = 0; i < given->nrule && !idle; i++)
        idle = rules_idle(r->arena, w->request, plan, &given->rule[i]);
    answer(r, t, "verdict", "verdict", idle ? "it has no effect" : "it is in the chosen plan");
    if (idle)
        answer(r, t, "because", "reason", idle);
    table_line(r, t, "layout", pins_brief(r->arena, pins_of(r->arena, w->request->graph, plan)));
    table_fact(r, t, "layout", CELL_TEXT(chosen->layout));
}

static void why_not(Loaded *l, const Weigher *w, const Plan *plan, const Programs *programs, const Rules *given, const char *text, Report *r)
{
    Simulation sim = simulate(l->ir, l->cluster, plan, l->profile, programs->rank);
    Weighed chosen = weigh_plan(w, plan, programs, &sim);
    PlanRequest q = *w->request;
    Weigher of = {w->arena, w->sources, &q};
    Diags *said = diags_new(l->sources);
    Plan *other;
    Programs others;
    Search found;
    Table *t = report_lines(r, "why_not");
    answer(r, t, "why not", "asked", text);
    if (keeps(w, plan, &chosen, given)) {
        show_kept(w, plan, &chosen, given, r, t);
        return;
    }
    q.rules = asked_about(w, plan, given, &q.use);
    planner_search(l->ir, said, &q, search_limits, &other, &others, &found);
    if (found.judged > 0)
        answer(r, t, "searched", "searched", searched_text(r->arena, &found));
    if (other) {
        show_asked(l, w, &of, &chosen, given, other, &others, r, t);
        return;
    }
    answer(r, t, "verdict", "verdict", "illegal");
    show_said(r, t, said);
}

/* ---- the command ---- */

Status explain(Loaded *l, const Args *args)
{
    Plan *plan;
    Programs programs;
    Rules *given = NULL;
    const char *path = args->npositional > 1 ? args->positional[1] : NULL;
    if (path)
        TRY(args_refuse(args, OPT_why_not, "with a path: it asks about the whole plan"));
    Search found;
    TRY(load_search(l, USE_PLAN, 1, &plan, &programs, &found));
    if (args_value(args, OPT_why_not))
        TRY(load_text(l, "why-not", args_value(args, OPT_why_not), &given));
    note_assumptions(l, plan, &programs);
    PlanRequest request = load_request(l, USE_ESTIMATE);
    Weigher w = {l->ir, l->sources, &request};
    Report *r = report_new(l->ir);
    if (path)
        TRY(explain_path(l, plan, &programs, path, r));
    else if (given)
        why_not(l, &w, plan, &programs, given, args_value(args, OPT_why_not), r);
    else
        explain_plan(l, &w, plan, &programs, &found, r);
    report_leave_out_empty(r);
    report_print(r, stdout, args_value(args, OPT_json) != NULL);
    return OK;
}
