#ifndef TESTS_UNIT_TIMING_H
#define TESTS_UNIT_TIMING_H
/* Machines and programs whose times are round numbers: a byte takes a nanosecond, and so
 * does a FLOP; kernels start at once. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "codegen/simulate.h"

typedef struct Timing {
    Arena   *a;
    Cluster  cl;
    Plan     plan;
    Profile  profile;
    Program **rank;
} Timing;

typedef struct Joined { int64_t count; double link, latency; } Joined;      /* a level, with a full efficiency */

/* Levels inner to outer, each of `count` of the one before. */
static inline void timing_levels(Timing *t, const Joined *joined, uint32_t n)
{
    uint32_t devices = 1;
    t->cl.level = NEWN(t->a, Level, n);
    t->cl.nlevel = n;
    for (uint32_t i = 0; i < n; i++) {
        Group *g = NEW(t->a, Group);
        *g = (Group){joined[i].count, i ? -1 : 0, (int32_t)i - 1};
        t->cl.level[i] = (Level){.name = arena_printf(t->a, "l%u", i), .group = g, .ngroup = 1, .link = joined[i].link, .latency = joined[i].latency, .efficiency = 1};
        devices *= (uint32_t)joined[i].count;
    }
    t->cl.ndevices = devices;
    t->cl.kind = NEWN(t->a, uint32_t, devices);
    t->plan.devices = NEWN(t->a, uint32_t, devices);
    for (uint32_t i = 0; i < devices; i++)
        t->plan.devices[i] = i;
}

#define LEVELS(...) (Joined[]){__VA_ARGS__}, sizeof((Joined[]){__VA_ARGS__}) / sizeof(Joined)

static inline Timing timing_new(Backend backend, const Joined *joined, uint32_t n)
{
    Timing t = {.a = arena_new("timing")};
    t.cl.device = NEW(t.a, Device);
    t.cl.ndevice = 1;
    *t.cl.device = (Device){.name = "unit", .backend = backend, .memory = 1 << 30, .bandwidth = 1e9, .threads = backend == BACKEND_CPU};
    t.cl.device->peak[DT_f32] = 1e9;
    timing_levels(&t, joined, n);
    for (int x = 0; x < MESH_AXES; x++)
        t.plan.mesh[x] = 1;
    t.plan.ndevices = 1;
    t.plan.microbatches = 1;
    t.profile = (Profile){.name = "all", .overlap = {true, true, true, true, true}, .slow_compute = 1, .slow_link = 1, .fuses_sums = true, .packs = true, .slow_matmul = 1, .slow_attention = 1, .slow_memory = 1, .pad = 1};
    return t;
}

static inline void timing_free(Timing *t)
{
    arena_free(t->a);
}

static inline void timing_mesh(Timing *t, int64_t pp, int64_t dp, int64_t tp)
{
    t->plan.mesh[AXIS_pp] = pp;
    t->plan.mesh[AXIS_dp] = dp;
    t->plan.mesh[AXIS_tp] = tp;
    t->plan.ndevices = (uint32_t)(pp * dp * tp);
    t->rank = NEWN(t->a, Program *, t->plan.ndevices);
}

/* The program of the first rank of a stage, empty. */
static inline Program *timing_program(Timing *t, uint32_t stage)
{
    uint32_t rank = stage * (t->plan.ndevices / (uint32_t)t->plan.mesh[AXIS_pp]);
    Program *p = t->rank[rank] = program_new(t->a);
    p->rank = rank;
    p->nranks = t->plan.ndevices;
    p->precision.compute = DT_f32;
    p->microbatches = t->plan.microbatches;
    return p;
}

static inline TensorId timing_tensor(Program *p, int64_t bytes)
{
    BufferId b = program_add_buffer(p, (Buffer){.name = "b", .cls = CLASS_working, .bytes = bytes, .slots = 1});
    return program_add_tensor(p, (Tensor){.path = "t", .buffer = b, .dtype = DT_u8, .rank = 1, .axis = {{.local = bytes, .global = bytes}}});
}

/* An instruction bound by memory that takes `ns`. */
static inline uint32_t timing_run(Program *p, int64_t ns)
{
    return program_add_instr(p, (Instr){.op = OP_scale, .path = "run", .bytes = ns});
}

static inline uint32_t timing_comm(Program *p, OpKind op, Stream stream, uint32_t group, int64_t bytes)
{
    Instr in = {.op = op, .stream = stream, .path = "comm", .group = group};
    if (op != OP_recv)
        in.arg[in.narg++] = timing_tensor(p, op == OP_all_gather ? bytes / p->group[group].n : bytes);
    if (op != OP_send)
        in.out[in.nout++] = timing_tensor(p, op == OP_reduce_scatter ? bytes / p->group[group].n : bytes);
    return program_add_instr(p, in);
}

/* `n` ranks from `first` on, `step` apart. */
static inline uint32_t timing_group(Program *p, uint32_t n, int32_t first, int32_t step)
{
    RankGroup g = {NEWN(p->arena, uint32_t, n), n};
    for (uint32_t i = 0; i < n; i++)
        g.rank[i] = (uint32_t)(first + (int32_t)i * step);
    PUSH(p->arena, p->group, p->ngroup, g);
    return p->ngroup - 1;
}

static inline void timing_proc(Program *p, ProcKind kind, uint32_t first)
{
    PUSH(p->arena, p->proc, p->nproc, ((Proc){.kind = kind, .first = first, .end = p->ninstr}));
}

static inline void timing_call(Program *p, uint32_t proc, uint32_t micro, uint32_t slot)
{
    PUSH(p->arena, p->call, p->ncall, ((Call){proc, micro, slot}));
}

static inline void timing_wait(Program *p, uint32_t instr, uint32_t on, bool same_slot)
{
    PUSH(p->arena, p->wait, p->nwait, ((Wait){instr, on, same_slot}));
}

static inline Simulation timing_simulate(Timing *t)
{
    return simulate(t->a, &t->cl, &t->plan, &t->profile, t->rank);
}

#endif
