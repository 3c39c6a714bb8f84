/* Show: plans, and the programs of their ranks. */
#include <string.h>

#include "base/text.h"
#include "cli/show.h"

/* ---- facts of a plan ---- */

/* "dp = 2, tp = 2" */
static const char *mesh_text(Arena *a, const Plan *p)
{
    Text t = text_new(a);
    for (int x = 0; x < MESH_AXES; x++) {
        if (p->mesh[x] == 1)
            continue;
        text_add(&t, "%s%s = ", t.n ? ", " : "", mesh_axis_name((MeshAxis)x));
        if (p->outer[x])
            text_add(&t, "%lld * %lld", (long long)p->outer[x], (long long)(p->mesh[x] / p->outer[x]));
        else
            text_add(&t, "%lld", (long long)p->mesh[x]);
    }
    return t.s;
}

/* "0..3, 6": the numbers below n that are in the set. */
static const char *numbers_text(Arena *a, const bool *in, uint32_t n)
{
    Text t = text_new(a);
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && in[end] == in[i]; end++)
            ;
        if (!in[i])
            continue;
        text_add(&t, end - i > 1 ? "%s%u..%u" : "%s%u", t.n ? ", " : "", i, end - 1);
    }
    return t.s;
}

static void show_mesh(const Report *r, Table *t, const Cluster *cl, const Plan *plan)
{
    bool *idle = NEWN(r->arena, bool, cl->ndevices);
    for (uint32_t i = 0; i < cl->ndevices; i++)
        idle[i] = true;
    for (uint32_t i = 0; i < plan->ndevices; i++)
        idle[plan->devices[i]] = false;
    if (plan->ndevices > 1)
        table_line(r, t, "mesh", arena_printf(r->arena, "%s on %u of %u devices", mesh_text(r->arena, plan), plan->ndevices, cl->ndevices));
    if (plan->ndevices < cl->ndevices)
        table_line(r, t, "idle", arena_printf(r->arena, "device%s %s of %s", cl->ndevices - plan->ndevices > 1 ? "s" : "",
                   numbers_text(r->arena, idle, cl->ndevices), cl->name));
    for (int x = 0; x < MESH_AXES; x++)
        table_fact(r, t, mesh_axis_name((MeshAxis)x), CELL_NUMBER(plan->mesh[x]));
    table_fact(r, t, "devices", CELL_NUMBER(plan->ndevices));
    table_fact(r, t, "idle", CELL_NUMBER(cl->ndevices - plan->ndevices));
}

static void plan_facts(const Report *r, Table *t, const Graph *g, const Cluster *cl, const Plan *plan, const Program *p)
{
    table_fact(r, t, "model", CELL_TEXT(g->name));
    table_fact(r, t, "parameters", CELL_NUMBER(graph_parameters(g)));
    table_fact(r, t, "cluster", CELL_TEXT(cl->name));
    table_fact(r, t, "device", CELL_TEXT(cl->device[cl->kind[plan->devices[p->rank]]].name));
    table_fact(r, t, "microbatches", CELL_NUMBER(plan->microbatches));
    table_fact(r, t, "microbatches_why", CELL_TEXT(plan->why_microbatches));
    table_fact(r, t, "map_bytes", CELL_NUMBER(program_map_bytes(p)));
    table_fact(r, t, "memory_bytes", CELL_NUMBER(p->memory));
    table_fact(r, t, "reserve_bytes", CELL_NUMBER(p->reserve));
    table_fact(r, t, "fullest_rank", CELL_NUMBER(p->rank));
}

/* "2 of 4 samples, 2 on each of dp = 2" */
static const char *micro_text(Arena *a, const Plan *plan, const Program *p)
{
    int64_t samples = p->batch / plan->microbatches, dp = plan->mesh[AXIS_dp];
    const char *each = dp > 1 ? arena_printf(a, ", %lld on each of dp = %lld", (long long)(samples / dp), (long long)dp) : "";
    return arena_printf(a, "%lld of %lld sample%s%s: %s", (long long)plan->microbatches, (long long)samples, samples == 1 ? "" : "s", each,
                        plan->why_microbatches);
}

/* Where a runtime needs other memory than the map, so much on the fullest rank. */
static void show_profile_memory(const Report *r, Table *t, const Program *p, const Profile *profile)
{
    int64_t bytes = profile_bytes(p, profile), left = p->memory - p->reserve - bytes;
    table_fact(r, t, "profile_bytes", CELL_NUMBER(bytes));
    if (bytes != program_map_bytes(p))
        table_line(r, t, arena_printf(r->arena, "under %s", profile->name), arena_printf(r->arena, "%s, %s %s", text_bytes(r->arena, bytes),
                   text_bytes(r->arena, left < 0 ? -left : left), left < 0 ? "too much" : "left"));
}

void show_plan(Report *r, const Graph *g, const Cluster *cl, const Plan *plan, const Programs *programs, const Profile *profile, const Simulation *sim)
{
    const Program *p = programs->rank[programs->fullest];
    Table *t = report_lines(r, "plan");
    Arena *a = r->arena;
    const Device *d = &cl->device[cl->kind[plan->devices[p->rank]]];
    table_line(r, t, "model", arena_printf(a, "%s, %s parameters", g->name, text_count(a, graph_parameters(g))));
    table_line(r, t, "device", arena_printf(a, "%s of %s%s%s", d->name, cl->name, d->doc ? ", " : "", d->doc ? d->doc : ""));
    if (has_value(g->loss) && g->optimizer.kind == OPTIMIZER_NONE)
        table_line(r, t, "optimizer", "none: a step computes the loss and gradients, and trains nothing; 'optimizer adamw { lr = 1e-3 }' would");
    plan_facts(r, t, g, cl, plan, p);
    show_mesh(r, t, cl, plan);
    table_line(r, t, "micro-batches", micro_text(a, plan, p));
    show_flops(r, t, g);
    table_line(r, t, "memory", arena_printf(a, "%s of %s less %s reserved%s", text_bytes(a, program_map_bytes(p)), text_bytes(a, p->memory),
               text_bytes(a, p->reserve), p->nranks > 1 ? arena_printf(a, ", on rank %u, the fullest", p->rank) : ""));
    show_profile_memory(r, t, p, profile);
    show_step(r, t, g, profile, sim);
}

/* "825 us a step, 27.8 us (3.3 %) less" */
static const char *less_text(Arena *a, const Faster *f, const Simulation *sim)
{
    int64_t less = sim->ns - f->ns;
    return arena_printf(a, "%s a step, %s (%.1f %%) less", text_ns(a, f->ns), text_ns(a, less), 100 * (double)less / (double)sim->ns);
}

void show_fewer(const Report *r, const Weigher *w, const Plan *plan, const Simulation *sim)
{
    Table *t = r->table[0];
    Arena *a = r->arena;
    Faster f;
    if (!faster_on_fewer(w, plan, sim, &f))
        return;
    uint32_t all = w->request->cluster->ndevices;
    bool *in = NEWN(a, bool, all);
    for (uint32_t i = 0; i < f.n; i++)
        in[f.devices[i]] = true;
    table_line(r, t, "fewer devices", arena_printf(a, "faster: %s %s alone %s %s%s", f.n > 1 ? "devices" : "device", numbers_text(a, in, all),
               f.n > 1 ? "take" : "takes", less_text(a, &f, sim), f.gave_way ? ", without the rules for the mesh" : ""));
    table_fact(r, t, "fewer_devices", CELL_NUMBER(f.n));
    table_fact(r, t, "fewer_step_ns", CELL_NUMBER(f.ns));
    table_fact(r, t, "fewer_layout", CELL_TEXT(f.layout));
}

void show_open(const Report *r, const Weigher *w, const Plan *plan, const Simulation *sim)
{
    Table *t = r->table[0];
    Faster f;
    if (!faster_with_more(w, plan, sim, &f))
        return;
    table_line(r, t, "left open", arena_printf(r->arena, "'pplan plan' would choose '%s': %s", f.change, less_text(r->arena, &f, sim)));
    table_fact(r, t, "open_change", CELL_TEXT(f.change));
    table_fact(r, t, "open_step_ns", CELL_NUMBER(f.ns));
    table_fact(r, t, "open_layout", CELL_TEXT(f.layout));
}

/* ---- memory ---- */

void show_memory(Report *r, const Program *p)
{
    static const Column columns[] = {{"class", "memory", SHOW_TEXT}, {"buffers", "buffers", SHOW_COUNT}, {"bytes", "bytes", SHOW_OFFSET},
                                     {"size", "", SHOW_TEXT}};
    Table *t = report_table(r, "memory", columns, 4);
    int64_t total = 0;
    for (int c = 0; c < CLASSES; c++) {
        int64_t bytes = 0, n = 0;
        for (uint32_t i = 0; i < p->nbuffer; i++)
            if ((int)p->buffer[i].cls == c) {
                bytes += p->buffer[i].bytes * p->buffer[i].slots;
                n++;
            }
        total += bytes;
        Cell row[] = {CELL_TEXT(buffer_class_text((BufferClass)c)), CELL_NUMBER(n), CELL_NUMBER(bytes), CELL_TEXT(text_bytes(r->arena, bytes))};
        if (n)
            table_row(r, t, row);
    }
    Cell saved[] = {CELL_TEXT("shared by lifetime"), CELL_NUMBER(0), CELL_NUMBER(program_map_bytes(p) - total),
                    CELL_TEXT(text_bytes(r->arena, program_map_bytes(p) - total))};
    table_row(r, t, saved);
    Cell map[] = {CELL_TEXT("map"), CELL_NUMBER(p->nbuffer), CELL_NUMBER(program_map_bytes(p)),
                  CELL_TEXT(text_bytes(r->arena, program_map_bytes(p)))};
    table_row(r, t, map);
}

void show_ledger(Report *r, const Program *p)
{
    static const Column columns[] = {{"buffer", "buffer", SHOW_TEXT}, {"class", "class", SHOW_TEXT},
                                     {"bytes", "bytes", SHOW_OFFSET}, {"slots", "slots", SHOW_OFFSET},
                                     {"first", "first", SHOW_OFFSET}, {"last", "last", SHOW_OFFSET},
                                     {"offset", "offset", SHOW_OFFSET}, {"part", "of part", SHOW_TEXT}};
    bool parts = p->map_bytes[PART_SHARED] > 0;
    Table *t = report_table(r, "ledger", columns, parts ? 8 : 7);
    for (uint32_t i = 0; i < p->nbuffer; i++) {
        const Buffer *b = &p->buffer[i];
        bool always = b->first < 0;
        Cell row[] = {CELL_TEXT(b->name), CELL_TEXT(buffer_class_text(b->cls)), CELL_NUMBER(b->bytes), CELL_NUMBER(b->slots),
                      always ? CELL_TEXT("always") : CELL_NUMBER(b->first),
                      always ? CELL_TEXT("always") : CELL_NUMBER(b->last), CELL_NUMBER(b->offset),
                      CELL_TEXT(b->part == PART_SHARED ? "shared" : "private")};
        table_row(r, t, row);
    }
}

void show_predictions(FILE *f, Arena *a, const Graph *g, const Program *p, const Profile *profile, const Simulation *sim)
{
    fprintf(f, "\n# time under profile %s: %s a step; %.1f %% of the peak (mfu), %.1f %% (mfu-causal), %.1f %% (hfu)\n", profile->name,
            text_ns(a, sim->ns), sim->mfu * 100, sim->mfu_causal * 100, sim->hfu * 100);
    fprintf(f, p->nranks > 1 ? "\n# memory of rank %u, the fullest, bytes\n" : "\n# memory, bytes\n", p->rank);
    int64_t by_class[CLASSES] = {0};
    for (uint32_t i = 0; i < p->nbuffer; i++)
        by_class[p->buffer[i].cls] += p->buffer[i].bytes * p->buffer[i].slots;
    for (int c = 0; c < CLASSES; c++)
        if (by_class[c])
            fprintf(f, "#   %-20s %15s\n", buffer_class_text((BufferClass)c), text_count(a, by_class[c]));
    fprintf(f, "#   %-20s %15s  after sharing by lifetime\n", "map", text_count(a, program_map_bytes(p)));
    fprintf(f, "#\n# parameters  %s\n# FLOPs a step  %s (mfu), %s (mfu-causal)\n", text_count(a, graph_parameters(g)),
            text_si(a, p->model_flops, "FLOP"), text_si(a, p->model_flops_causal, "FLOP"));
}

/* The first rank that was lowered for this one: of its stage, on its kind of device. */
static uint32_t stands_for(const Cluster *cl, const Plan *plan, const Programs *programs, uint32_t rank)
{
    uint32_t stage = plan->ndevices / (uint32_t)plan->mesh[AXIS_pp], r = rank / stage * stage;
    while (!programs->rank[r] || cl->kind[plan->devices[r]] != cl->kind[plan->devices[rank]])
        r++;
    return r;
}

static int64_t class_bytes(const Program *p, BufferClass c)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        bytes += p->buffer[i].cls == c ? p->buffer[i].bytes * p->buffer[i].slots : 0;
    return bytes;
}

void show_ranks(Report *r, const Cluster *cl, const Plan *plan, const Programs *programs)
{
    static const Column columns[] = {{"ranks", "ranks", SHOW_TEXT}, {"device", "device", SHOW_TEXT}, {"weights", "weights", SHOW_BYTES},
        {"master", "master", SHOW_BYTES}, {"gradients", "gradients", SHOW_BYTES}, {"moments", "moments", SHOW_BYTES}, {"inputs", "inputs", SHOW_BYTES},
        {"saved", "saved", SHOW_BYTES}, {"working", "working", SHOW_BYTES}, {"workspace", "workspace", SHOW_BYTES},
        {"scalars", "scalars", SHOW_BYTES}, {"map", "map", SHOW_BYTES}, {"left", "left", SHOW_BYTES}};
    enum { BEFORE = 2, AFTER = 2 };
    Table *t = report_table(r, "ranks", columns, BEFORE + CLASSES + AFTER);
    for (uint32_t i = 0; i < programs->n; i++) {
        const Program *p = programs->rank[i];
        if (!p)
            continue;
        bool *alike = NEWN(r->arena, bool, programs->n);
        for (uint32_t k = 0; k < programs->n; k++)
            alike[k] = stands_for(cl, plan, programs, k) == i;
        Cell row[BEFORE + CLASSES + AFTER] = {CELL_TEXT(numbers_text(r->arena, alike, programs->n)), CELL_TEXT(cl->device[cl->kind[plan->devices[i]]].name)};
        for (int c = 0; c < CLASSES; c++)
            row[BEFORE + c] = CELL_NUMBER(class_bytes(p, (BufferClass)c));
        row[BEFORE + CLASSES] = CELL_NUMBER(program_map_bytes(p));
        row[BEFORE + CLASSES + 1] = CELL_NUMBER(-program_excess(p));
        table_row(r, t, row);
    }
}
