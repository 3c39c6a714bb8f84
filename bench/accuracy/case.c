/* case: rows lowered and predicted, by the functions of `pplan estimate`. */
#include "bench/accuracy/case.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "bench/accuracy/layout.h"

/* ---- messages ---- */

/* What is printed on standard error goes to a file meanwhile. */
typedef struct Hearing { FILE *file; int before; } Hearing;

static Hearing hear(void)
{
    Hearing h = {tmpfile(), -1};
    fflush(stderr);
    if (h.file) {
        h.before = dup(2);
        dup2(fileno(h.file), 2);
    }
    return h;
}

/* The first line that was printed, without its place. */
static const char *heard(Arena *a, Hearing *h)
{
    if (!h->file)
        return "?";
    fflush(stderr);
    dup2(h->before, 2);
    close(h->before);
    rewind(h->file);
    size_t n;
    const char *text = read_stream(a, h->file, &n), *error = text ? strstr(text, "error: ") : NULL;
    fclose(h->file);
    if (!error)
        return "no message";
    error += strlen("error: ");
    return arena_strndup(a, error, strcspn(error, "\n"));
}

/* ---- lowering ---- */

/* Memory is judged by the profile's rules, not by the map of the program. */
static void lift_memory(Case *c)
{
    Cluster *cl = c->loaded.cluster;
    c->memory = cl->device[0].memory;
    for (uint32_t i = 0; i < cl->ndevice; i++)
        cl->device[i].memory = INT64_MAX / 4;
}

static Status lower(Case *c, const Args *args)
{
    TRY(load_model(&c->loaded, args));
    lift_memory(c);
    return load_plan(&c->loaded, USE_ESTIMATE, &c->plan, &c->programs);
}

Status case_new(Arena *a, const Row *r, const char *models, Case *out, const char **why)
{
    Args args = layout_args(a, r, models);
    *out = (Case){.row = r};
    Hearing h = hear();
    Status s = lower(out, &args);
    const char *said = heard(a, &h);
    if (s != OK) {
        *why = said;
        case_free(out);
    }
    return s;
}

void case_free(Case *c)
{
    if (c->loaded.ir)
        load_free(&c->loaded);
    *c = (Case){0};
}

/* ---- predictions ---- */

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What an allocator has handed out: where the device is full it takes back what was freed late. */
static int64_t allocated(const Case *c, const Program *p)
{
    int64_t all = profile_allocated(p, c->loaded.profile), room = most(c->memory - p->reserve, profile_bytes(p, c->loaded.profile));
    return all < room ? all : room;
}

static void predict_memory(const Case *c, uint32_t stages, Prediction *out)
{
    const Runtime *by = c->row->runtime;
    uint32_t ranks = c->plan->ndevices / stages, from = by->of_rank == RANK_last ? stages - 1 : 0, end = by->of_rank == RANK_first ? 1 : stages;
    for (uint32_t s = 0; s < stages; s++) {
        const Program *p = c->programs.rank[s * ranks];
        int64_t device = profile_bytes(p, c->loaded.profile) + p->reserve;
        out->bytes = most(out->bytes, device);
        if (s >= from && s < end)
            out->measured = most(out->measured, by->of_allocator ? allocated(c, p) : device);
    }
}

Prediction case_predict(const Case *c, Simulation *sim, Arena *scratch)
{
    Prediction out = {0};
    *sim = simulate(scratch, c->loaded.cluster, c->plan, c->loaded.profile, c->programs.rank);
    out.seconds = (double)sim->ns * 1e-9;
    predict_memory(c, (uint32_t)c->plan->mesh[AXIS_pp], &out);
    out.fits = out.bytes <= c->memory;
    return out;
}

int64_t case_measured_bytes(const Case *c)
{
    Prediction out = {0};
    predict_memory(c, (uint32_t)c->plan->mesh[AXIS_pp], &out);
    return out.measured;
}

double case_seconds(const Case *c, Arena *scratch)
{
    Simulation sim = simulate(scratch, c->loaded.cluster, c->plan, c->loaded.profile, c->programs.rank);
    return (double)sim.ns * 1e-9;
}
