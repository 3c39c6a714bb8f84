/* Mutated command lines of pplan and prun: a word a line.  What the line says about
 * the model, the cluster and the run is read as the programs read it, up to what a
 * run would begin with. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/load.h"
#include "cli/run_options.h"
#include "tests/fuzz/mutate.h"

enum { MAX_WORDS = 40 };
#define MODEL "tests/golden/codegen/mlp.pmodel"

static const char *const words[] = {
#define OPTION(id, short_, long_, argument, times, commands, help) "--" long_, "--" long_ "=",
#define COMMAND(name, program, positionals, help) #name,
#include "cli/options.def"
    "-c", "-D", "-I", "-h", "--", "-", "--steps=9223372036854775807", "9223372036854775808", "-1", "0", "1", "batch=8", "batch=0", "batch=",
    "batch=1e3", "batch=2*3", "batch=1/0", "batch=9223372036854775807", "hidden=99999", "hidden=(((", "pixel=none", "=", "a=b", "lr=0.1",
    "lr=nan", "lr=1e999", "lr=", "steps=1e15", "steps=0.5", "beta1=1", "decay=cosine", "decay=x", "momentum=0.5", "weights@0=f",
    "grads@1=f", "grads@0=f", "fc1@1=f", "@=", "x@-1=f", "x@99999999999999999999=f", "samples@1=f", "weights@1", "\n", "laptop1",
    "laptop4", "models/clusters/laptop1.pcluster:x", MODEL, NULL,
};
static const char *const files[] = {NULL};

static const char *const lines[] = {
    "run\n" MODEL "\n-c\nlaptop1\n-D\nbatch=8\n--data\nrandom\n--set\nlr=0.01\n--steps\n10\n--dump\nweights@0=w\n--dump=grads@1=g",
    MODEL "\n-claptop1\n-Dhidden=4\n-Dclass=5\n--data=image=a\n--eval\nrandom\n--eval-every=3\n--save\nd\n--save-every\n2\n--keep\n1\n--seed\n7",
    MODEL "\n-c\nlaptop1\n--set\ndecay=cosine\n--set\nwarmup=3\n--set\nmin_lr=1e-5\n--set\nclip=1\n--set\nbeta2=0.95\n--dump\nfc1@2=x",
    "plan\n" MODEL "\n-c\nlaptop1\n--with\nmicrobatches = 4; bucket = 1 MB\n--model\nmlp\n-D\nbatch=2 * 8",
    "dump\n" MODEL "\n-c\nlaptop1\n--program\n-I\nmodels\n-D\nclass=10\n--json",
    "check\n" MODEL "\n--ops\n-D\npixel=if 1 > 0 then 3 else 4\n-c\nlaptop4\n--",
};

static void start(FuzzSeeds *seeds)
{
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        fuzz_seed(seeds, lines[i], strlen(lines[i]));
    int nothing = open("/dev/null", O_RDONLY);       /* what the model '-' is read from */
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0)
        _exit(3);
    close(nothing);
}

/* The optimizer's settings and the dumps, as a run reads them first. */
static void read_run(Loaded *l, const Args *args)
{
    RunOptions o;
    if (run_options_read(l->input, args, &o) != OK)
        return;
    Optimizer optimizer = l->graph->optimizer;
    if (settings_apply(&optimizer, o.set, o.nset, o.steps > 0) == OK)
        fuzz_accept();
}

static const char *read_line(int argc, char **argv, ProgramName program)
{
    Arena *a = arena_new("arguments");
    Args args;
    Loaded l;
    Plan *plan;
    Programs programs;
    const char *wrong = NULL;
    if (args_read(a, program, argc, argv, &args) == OK && !args.help && !args.version && args.npositional) {
        if (load_model(&l, &args) == OK) {
            if (l.graph->nop < 100 && load_plan(&l, false, &plan, &programs) == OK &&
                program_check(programs.rank[programs.fullest], stderr) != 0)
                wrong = "the planner made a broken program";
            if (program == PRUN)
                read_run(&l, &args);
        }
        load_free(&l);
    }
    arena_free(a);
    return wrong;
}

static const char *one_case(const char *text, size_t bytes)
{
    char line[MUTANT_BYTES + 1], *argv[MAX_WORDS + 1] = {"fuzz"};
    int argc = 1;
    memcpy(line, text, bytes + 1);
    for (char *next = line, *word; argc < MAX_WORDS && (word = strsep(&next, "\n"));)
        argv[argc++] = word;
    const char *wrong = read_line(argc, argv, PRUN);
    return wrong ? wrong : read_line(argc, argv, PPLAN);
}

int main(int argc, char **argv)
{
    const Fuzz fuzz = {.run = one_case, .word = words, .files = files, .start = start};
    return fuzz_main(argc, argv, &fuzz);
}
