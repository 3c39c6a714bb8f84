/* Mutated profiles of runtimes.  One that is accepted must keep its invariants and read
 * back, and the step of a small plan must be simulated under it, whatever it says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/load.h"
#include "codegen/simulate.h"
#include "tests/fuzz/forms.h"
#include "tests/fuzz/mutate.h"

static const char *const words[] = {
    "profile p \"a runtime\" {\n}\n", "keeps { linear = 2.0, attention = 0.5 }", "keeps.gelu = 1", "overlap.collective = false", "overlap.gradient", "overlap.send",
    "overlap.recv", "slowdown.compute = 1.2", "slowdown.link", "slowdown.matmul", "slowdown.attention", "slowdown.memory", "step = 3 ms", "issue = 8 us",
    "message = 1 us", "stall = 2 s", "stall.above = 512", "fuses.sums", "packs", "holds.gradients", "pad = 1.1", "reserve = 2 GB", "true", "false", "none",
    "0", "1", "1.0", "-1", "0.5", "100", "101", "1e300", "1e-300", "0 s", "1e300 s", "1 ns", "9223372036854775807", "8 EB", "1e30 GB", "-1 B", "{", "}", "[", "]",
    "=", ",", ".", "\n", "\"s\"", "# c\n", NULL,
};
static const char *const files[] = {"models/profiles/*.pprofile", NULL};

static struct {
    Arena   *a;
    Loaded   l;
    Plan    *plan;                    /* stages, messages, sums and splits on four ranks */
    Programs programs;
} world;

static void start(FuzzSeeds *seeds)
{
    char *argv[] = {"pplan", "tests/reference/tiny_gpt2.pmodel", "-c", "laptop4", "--with", "mesh pp = 2, dp = 2; microbatches = 2"};
    Args args;
    (void)seeds;
    world.a = arena_new("world");
    if (args_read(world.a, PPLAN, sizeof argv / sizeof *argv, argv, &args) == OK && load_model(&world.l, &args) == OK &&
        load_plan(&world.l, USE_PLAN, &world.plan, &world.programs) == OK)
        return;
    printf("not ok fuzz_profile cannot begin: its plan is refused\n");
    exit(1);
}

static void end(void)
{
    load_free(&world.l);
    arena_free(world.a);
}

static const char *check_form(Arena *a, Diags *ds, const Profile *p)
{
    const char *text = profile_form(a, p);
    Units units;
    Profile *back = NULL;
    if (parse_text(ds, "printed", text, strlen(text), (IncludePath){0}, &units) != OK || diags_status(ds) != OK ||
        elaborate_profile(ds, &units, NULL, a, &back) != OK)
        return "a printed profile does not read back";
    return strcmp(text, profile_form(a, back)) == 0 ? NULL : "a profile reads back to another one";
}

static const char *check_profile(Arena *a, Diags *ds, const Units *units)
{
    Profile *p = NULL;
    if (elaborate_profile(ds, units, NULL, a, &p) != OK)
        return diags_status(ds) == OK ? "a profile was refused without a word" : NULL;
    fuzz_accept();
    if (profile_check(p, stderr) != 0)
        return "elaboration made a broken profile";
    const char *wrong = check_form(a, ds, p);
    if (wrong)
        return wrong;
    Simulation sim = simulate(a, world.l.cluster, world.plan, p, world.programs.rank);
    return sim.ns > 0 ? NULL : "a step that takes no time";
}

static const char *run(const char *text, size_t bytes)
{
    return read_mutant(text, bytes, (IncludePath){0}, check_profile);
}

int main(int argc, char **argv)
{
    const Fuzz fuzz = {.run = run, .word = words, .files = files, .start = start, .end = end};
    return fuzz_main(argc, argv, &fuzz);
}
