/* Plan: names of mesh axes, paths, printing and checking. */
#include "ir/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "ir/check.h"
#include "ir/quantity.h"

static const char *const mesh_names[MESH_AXES] = {"pp", "dp", "cp", "ep", "tp"};

const char *mesh_axis_name(MeshAxis a)
{
    return mesh_names[a];
}

MeshAxis mesh_axis_find(const char *name)
{
    int a = 0;
    while (a < MESH_AXES && strcmp(mesh_names[a], name) != 0)
        a++;
    return (MeshAxis)a;
}

/* ---- paths ---- */

/* A name of a path ends at '.', '[' or ':'. */
static size_t name_length(const char *p)
{
    return strcspn(p, ".[:");
}

/* "[12]" at p: its number, and p after it; -1 when there is none. */
static int64_t take_index(const char **p)
{
    if (**p != '[')
        return -1;
    char *end;
    int64_t i = strtoll(*p + 1, &end, 10);
    *p = *end == ']' ? end + 1 : end;
    return i;
}

static void skip_separator(const char **p)
{
    if (**p == '.' || **p == ':')
        (*p)++;
}

/* What follows the pattern in a path; NULL: it does not match. */
static const char *match(const Path *pattern, const char *path)
{
    const char *p = path;
    for (uint32_t i = 0; i < pattern->nstep; i++) {
        const PathStep *step = &pattern->step[i];
        if (!step->name) {
            int64_t round = take_index(&p);
            if (round < step->first || round > step->last)
                return NULL;
        } else {
            take_index(&p);           /* no rounds given: every round */
            skip_separator(&p);
            size_t n = name_length(p);
            if (n != strlen(step->name) || strncmp(p, step->name, n) != 0)
                return NULL;
            p += n;
        }
    }
    return p;
}

bool rule_cuts(const Rule *r)
{
    return r->kind == RULE_STAGE_BEFORE || r->kind == RULE_STAGE_AFTER || r->kind == RULE_STAGE_EVERY;
}

bool path_matches(const Path *pattern, const char *path)
{
    return match(pattern, path) != NULL;
}

int64_t path_round(const Path *pattern, const char *path)
{
    Path repeat = *pattern;
    if (repeat.nstep > 0 && !repeat.step[repeat.nstep - 1].name)
        repeat.nstep--;
    const char *rest = match(pattern, path) ? match(&repeat, path) : NULL;
    return rest ? take_index(&rest) : -1;
}

const char *rounds_text(Arena *a, const char *repeat, int64_t rounds)
{
    if (rounds == 1)
        return arena_printf(a, "'%s' has one round, %s[0]", repeat, repeat);
    return arena_printf(a, "'%s' has %lld rounds, %s[0] to %s[%lld]", repeat, (long long)rounds, repeat, repeat, (long long)rounds - 1);
}

/* ---- printing ---- */

/* A text of the language, with one blank line after it. */
static void put_part(FILE *f, const char *text)
{
    if (!text)
        return;
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    fprintf(f, "%.*s\n\n", (int)n, text);
}

static int widest_override(const Graph *g)
{
    int w = 0;
    for (uint32_t i = 0; i < g->noverride; i++) {
        int n = (int)strlen(g->override[i].name);
        w = n > w ? n : w;
    }
    return w;
}

static void put_mesh(FILE *f, const Plan *p)
{
    fputs("  mesh", f);
    for (int a = 0; a < MESH_AXES; a++) {
        long long outer = p->outer[a], size = p->mesh[a];
        fprintf(f, "%s %s = ", a ? "," : "", mesh_names[a]);
        if (outer)
            fprintf(f, "%lld * %lld", outer, size / outer);
        else
            fprintf(f, "%lld", size);
    }
    if (p->ndevices == 1)
        fputs("  # one device", f);
    fputc('\n', f);
}

/* Nested by the mesh axes that are larger than 1, pp outermost. */
static void put_devices(FILE *f, const Plan *p)
{
    fputs("  devices      = ", f);
    for (uint32_t i = 0; i < p->ndevices; i++) {
        int64_t inside = 1;
        int opened = 0;
        for (int a = MESH_AXES; a-- > 0; inside *= p->mesh[a])
            opened += p->mesh[a] > 1 && i % (inside * p->mesh[a]) == 0;
        if (i > 0)
            for (int k = 0; k < opened; k++)
                fputc(']', f);
        fputs(i > 0 ? ", " : "", f);
        for (int k = 0; k < opened || (k == 0 && p->ndevices == 1); k++)
            fputc('[', f);
        fprintf(f, "%u", p->devices[i]);
    }
    for (int a = 0; a < MESH_AXES; a++)
        fputs(p->mesh[a] > 1 ? "]" : "", f);
    fputs(p->ndevices == 1 ? "]\n" : "\n", f);
}

static void put_path(FILE *f, const Path *p)
{
    for (uint32_t i = 0; i < p->nstep; i++) {
        const PathStep *s = &p->step[i];
        if (s->name)
            fprintf(f, "%s%s", i ? "." : "", s->name);
        else if (s->first == s->last)
            fprintf(f, "[%lld]", (long long)s->first);
        else
            fprintf(f, "[%lld..%lld]", (long long)s->first, (long long)s->last);
    }
}

static void put_names(FILE *f, const Rule *r)
{
    for (uint32_t i = 0; i < r->nnames; i++)
        fprintf(f, "%s %s", i ? "," : "", r->names[i]);
}

static void put_in(FILE *f, const Path *p)
{
    if (p->nstep) {
        fputs(" in ", f);
        put_path(f, p);
    }
}

static void put_by(FILE *f, const MeshRef *by)
{
    static const char *const part[] = {[PART_WHOLE] = "", [PART_OUTER] = ".outer", [PART_INNER] = ".inner"};
    fputs(by->n > 1 ? " by (" : " by ", f);
    for (int i = 0; i < by->n; i++)
        fprintf(f, "%s%s%s", i ? ", " : "", mesh_names[by->axis[i]], part[by->part[i]]);
    fputs(by->n > 1 ? ")" : "", f);
}

/* "4", "2 * 4", "[1, 2]"; a number of bytes where the setting has one. */
static void put_choice(FILE *f, const Rule *r)
{
    const Choice *c = &r->choice;
    if (r->outer) {
        fprintf(f, "%lld * %lld", (long long)r->outer, (long long)r->inner);
        return;
    }
    bool list = c->nvalue != 1 || (r->kind == RULE_SETTING && strcmp(r->name, "devices") == 0);
    fputs(list ? "[" : "", f);
    for (uint32_t i = 0; i < c->nvalue; i++) {
        fputs(i ? ", " : "", f);
        if (r->kind == RULE_SETTING && strcmp(r->name, "bucket") == 0)
            quantity_put(f, (double)c->value[i], QUANTITY_BYTES);
        else
            fprintf(f, "%lld", (long long)c->value[i]);
    }
    fputs(list ? "]" : "", f);
}

static void put_setting(FILE *f, const Rule *r)
{
    fprintf(f, "%s = ", r->name);
    if (r->text)
        fprintf(f, "\"%s\"", r->text);
    else
        put_choice(f, r);
}

static void put_rule(FILE *f, const Rule *r)
{
    static const char *const state[] = {[STATE_OPTIMIZER] = "optimizer", [STATE_GRADIENTS] = "gradients", [STATE_WEIGHTS] = "weights"};
    static const char *const policy[] = {[RECOMPUTE_NONE] = "", [RECOMPUTE_CHEAP] = " cheap", [RECOMPUTE_ATTENTION] = " attention",
                                         [RECOMPUTE_FULL] = " full"};
    switch (r->kind) {
    case RULE_PAD:
        fprintf(f, "pad %s to %lld", r->name, (long long)r->number);
        break;
    case RULE_SPLIT:
        fputs("split", f);
        put_names(f, r);
        put_in(f, &r->path);
        put_by(f, &r->by);
        break;
    case RULE_KEEP:
        fputs("keep", f);
        put_names(f, r);
        fputs(" whole", f);
        put_in(f, &r->path);
        break;
    case RULE_SHARD:
        fprintf(f, "shard %s", state[r->state]);
        put_by(f, &r->by);
        break;
    case RULE_STAGE_BEFORE: case RULE_STAGE_AFTER:
        fputs(r->kind == RULE_STAGE_BEFORE ? "stage before " : "stage after ", f);
        put_path(f, &r->path);
        break;
    case RULE_STAGE_EVERY:
        fprintf(f, "stage every %lld in ", (long long)r->number);
        put_path(f, &r->path);
        break;
    case RULE_RECOMPUTE:
        fputs("recompute ", f);
        put_path(f, &r->path);
        fputs(policy[r->policy], f);
        break;
    case RULE_SAVE:
        fputs("save ", f);
        put_path(f, &r->path);
        break;
    case RULE_MESH:
        fprintf(f, "mesh %s = ", mesh_names[r->axis]);
        put_choice(f, r);
        break;
    case RULE_SETTING:
        put_setting(f, r);
        break;
    default:
        assert(false && "a rule that plans neither carry nor decide on");
    }
}

const char *rule_text(Arena *a, const Rule *r)
{
    TextStream s;
    text_stream_open(&s);
    put_rule(s.f, r);
    return text_stream_take(&s, a, NULL);
}

/* By kind, those of one kind in their order. */
static void put_carried(FILE *f, const Plan *p)
{
    static const RuleKind order[] = {RULE_PAD, RULE_SPLIT, RULE_KEEP, RULE_SHARD, RULE_STAGE_BEFORE, RULE_STAGE_AFTER, RULE_STAGE_EVERY,
                                     RULE_RECOMPUTE, RULE_SAVE};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (uint32_t i = 0; i < p->nrule; i++) {
            if (p->rule[i].kind != order[k])
                continue;
            fputs("  ", f);
            put_rule(f, &p->rule[i]);
            fputc('\n', f);
        }
}

/* Only the plan's own block has comments: the texts before it are the user's, and
 * a comment there would be taken for one of theirs when the plan is read again. */
static void put_rules(FILE *f, const Plan *p, const Graph *g)
{
    int w = widest_override(g);
    fprintf(f, "plan %s on %s {\n", p->model, p->cluster);
    for (uint32_t i = 0; i < g->noverride; i++)
        fprintf(f, "  set %-*s = %s\n", w, g->override[i].name, g->override[i].text);
    put_mesh(f, p);
    put_devices(f, p);
    fprintf(f, "  microbatches = %lld", (long long)p->microbatches);
    if (p->why_microbatches)
        fprintf(f, "  # %s", p->why_microbatches);
    fprintf(f, "\n  schedule     = \"%s\"\n  bucket       = ", p->schedule);
    quantity_put(f, (double)p->bucket, QUANTITY_BYTES);
    fputs(p->server ? "\n  sync         = \"server\"\n" : "\n", f);
    put_carried(f, p);
    fputs("}\n", f);
}

void plan_print(FILE *f, const Plan *p, const Graph *g)
{
    put_part(f, p->model_text);
    put_part(f, p->cluster_text);
    put_rules(f, p, g);
}

/* ---- checking ---- */

static void check_devices(Checker *k, const Plan *p, const Cluster *c)
{
    int64_t size = 1;
    for (int a = 0; a < MESH_AXES; a++) {
        if (p->mesh[a] < 1)
            broken(k, "mesh axis %s has size %lld", mesh_names[a], (long long)p->mesh[a]);
        if (p->outer[a] < 0 || (p->outer[a] > 0 && p->mesh[a] % p->outer[a] != 0))
            broken(k, "mesh axis %s of size %lld has an outer part of %lld", mesh_names[a], (long long)p->mesh[a], (long long)p->outer[a]);
        size *= p->mesh[a];
    }
    if (size != (int64_t)p->ndevices)
        broken(k, "the mesh has %lld places for %u devices", (long long)size, p->ndevices);
    for (uint32_t i = 0; i < p->ndevices; i++) {
        if (p->devices[i] >= c->ndevices)
            broken(k, "device %u of a cluster of %u", p->devices[i], c->ndevices);
        for (uint32_t j = 0; j < i; j++)
            if (p->devices[i] == p->devices[j])
                broken(k, "device %u is used twice", p->devices[i]);
    }
}

int plan_check(const Plan *p, const Graph *g, const Cluster *c, FILE *err)
{
    Checker k = {err, "plan", 0};
    if (strcmp(p->model, g->name) != 0 || strcmp(p->cluster, c->name) != 0)
        broken(&k, "a plan for '%s' on '%s', but these are '%s' and '%s'", p->model, p->cluster, g->name, c->name);
    check_devices(&k, p, c);
    int64_t batch = graph_samples(g), parts = p->mesh[AXIS_dp] * p->mesh[AXIS_ep];
    if (p->microbatches < 1 || parts < 1 || batch % (p->microbatches * parts) != 0)
        broken(&k, "%lld micro-batches of a batch of %lld in %lld parts", (long long)p->microbatches, (long long)batch, (long long)parts);
    if (strcmp(p->schedule, "1f1b") != 0 && strcmp(p->schedule, "gpipe") != 0)
        broken(&k, "no schedule '%s'", p->schedule);
    if (p->bucket < 1)
        broken(&k, "a bucket of %lld bytes", (long long)p->bucket);
    return k.broken;
}
