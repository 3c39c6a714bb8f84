/* Pages: what is installed beside the programs and names their commands and options, made at
 * build time from the one table, options.def.
 *
 *   pages man PROGRAM VERSION <TEMPLATE    the manual: @COMMANDS@, @OPTIONS@ and @VERSION@ filled in
 *   pages manual NAME VERSION <PAGE.md     a page of docs/ as NAME(5)
 *   pages bash|zsh|fish PROGRAM MODELS     completion for a shell, with the names of what is bundled in a folder
 *
 * A row that is not available in this version (its help starts with '!') is left out. */
#include <stdio.h>
#include <string.h>

#include "cli/bundled.h"
#include "cli/options.h"
#include "cli/pages/manual.h"

typedef struct Command { const char *name; ProgramName program; const char *words, *help; bool named; } Command;
typedef struct Option { char letter; const char *name, *argument; unsigned commands; const char *help; } Option;

static const Command commands[COMMANDS] = {
#define COMMAND(name, program, positionals, help) {#name, program, positionals, help, COMMAND_##name != COMMAND_run},
#include "cli/options.def"
};
static const Option options[OPTIONS] = {
#define OPTION(id, short_, long_, argument, times, commands, help) {short_, long_, argument, commands, help},
#include "cli/options.def"
};

static const char *program_name(ProgramName p)
{
    return p == PPLAN ? "pplan" : "prun";
}

static bool shown(const char *help)
{
    return help[0] != '!';
}

/* The commands of a program, as a set of CMD_ bits. */
static unsigned commands_of(ProgramName p)
{
    unsigned mine = 0;
    for (CommandId c = 0; c < COMMANDS; c++)
        if (commands[c].program == p && shown(commands[c].help))
            mine |= 1u << c;
    return mine;
}

static bool option_of(OptionId i, unsigned mine)
{
    return (options[i].commands & mine) && shown(options[i].help);
}

/* ---- values ---- */

/* What the value of an option may be, or an argument, by what it is called in the table. */
typedef struct Values {
    const char *argument;
    const char *files;                /* as zsh completes them; NULL: no file */
    const char *words;
    const BundledKind *bundled;       /* their names are words too */
} Values;

static const Values values[] = {
    {"FILE", "_files", NULL, NULL},
    {"SPEC", "_files", NULL, NULL},
    {"DIR", "_files -/", NULL, NULL},
    {"CLUSTER", "_files", NULL, &bundled_clusters},
    {"PROFILE", "_files", NULL, &bundled_profiles},
    {"MODEL", "_files", NULL, &bundled_models},
    {"DEVICE", NULL, "auto cpu", NULL},
    {"HOW", NULL, "processes threads", NULL},
};

/* NULL: anything. */
static const Values *values_of(const char *argument)
{
    size_t n = strcspn(argument, " ");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strncmp(values[i].argument, argument, n) == 0 && !values[i].argument[n])
            return &values[i];
    return NULL;
}

/* The words of one kind, each after a blank. */
static const char *words_of(Arena *a, const char *models, const Values *v)
{
    const char **name, *words = v && v->words ? arena_printf(a, " %s", v->words) : "";
    uint32_t n = v && v->bundled ? bundled_names(a, models, v->bundled, &name) : 0;
    for (uint32_t i = 0; i < n; i++)
        words = arena_printf(a, "%s %s", words, name[i]);
    return words;
}

/* A command of the program whose first argument is a model. */
static bool takes_model(CommandId c)
{
    const Values *v = values_of(commands[c].words);
    return v && v->bundled == &bundled_models;
}

/* ---- the manual ---- */

/* '-' is a minus, and a line must not begin with what roff takes for a request. */
static void put_roff(const char *s)
{
    if (*s == '.' || *s == '\'')
        fputs("\\&", stdout);
    for (; *s; s++) {
        if (*s == '-' || *s == '\\')
            putchar('\\');
        putchar(*s == '\\' ? 'e' : *s);
    }
}

static void man_commands(ProgramName p)
{
    for (CommandId c = 0; c < COMMANDS; c++) {
        if (!(commands_of(p) >> c & 1))
            continue;
        printf(".TP\n.B %s%s%s", program_name(p), commands[c].named ? " " : "", commands[c].named ? commands[c].name : "");
        if (*commands[c].words)
            printf(" \\fI%s\\fR", commands[c].words);
        putchar('\n');
        put_roff(commands[c].help);
        fputs(".\n", stdout);
    }
}

/* The commands that take an option, where not all of the program do. */
static void man_takers(ProgramName p, unsigned takers)
{
    unsigned mine = commands_of(p);
    bool some = false;
    if ((takers & mine) == mine)
        return;
    fputs(" Of", stdout);
    for (CommandId c = 0; c < COMMANDS; c++)
        if (takers & mine & 1u << c) {
            printf("%s \\fB%s\\fR", some ? "," : "", commands[c].named ? commands[c].name : program_name(p));
            some = true;
        }
    putchar('.');
}

static void man_options(ProgramName p)
{
    for (OptionId i = 0; i < OPTIONS; i++) {
        const Option *o = &options[i];
        if (!option_of(i, commands_of(p)))
            continue;
        fputs(".TP\n.B ", stdout);
        if (o->letter)
            printf("\\-%c\\fR, \\fB", o->letter);
        put_roff("--");
        put_roff(o->name);
        if (o->argument) {
            fputs(" \\fI", stdout);
            put_roff(o->argument);
            fputs("\\fR", stdout);
        }
        putchar('\n');
        put_roff(o->help);
        putchar('.');
        man_takers(p, o->commands);
        putchar('\n');
    }
}

static void man(ProgramName p, const char *version)
{
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {
        char *at = strstr(line, "@VERSION@");
        if (strcmp(line, "@COMMANDS@\n") == 0)
            man_commands(p);
        else if (strcmp(line, "@OPTIONS@\n") == 0)
            man_options(p);
        else if (at)
            printf("%.*s%s%s", (int)(at - line), line, version, at + strlen("@VERSION@"));
        else
            fputs(line, stdout);
    }
}

/* A shell's completion of one program. */
typedef struct Completion { ProgramName p; const char *name; Arena *arena; const char *models; } Completion;

static bool completes(const Completion *x, CommandId c)
{
    return (commands_of(x->p) >> c & 1) && commands[c].named;
}

/* The names of the bundled models, where a command of the program takes one. */
static const char *model_words(const Completion *x)
{
    for (CommandId c = 0; c < COMMANDS; c++)
        if (completes(x, c) && takes_model(c))
            return words_of(x->arena, x->models, values_of(commands[c].words));
    return "";
}

static void put_commands(const Completion *x)
{
    for (CommandId c = 0; c < COMMANDS; c++)
        if (completes(x, c))
            printf(" %s", commands[c].name);
}

/* ---- bash ---- */

static void bash_options(const Completion *x, unsigned takers)
{
    for (OptionId i = 0; i < OPTIONS; i++)
        if (option_of(i, commands_of(x->p) & takers))
            printf(" --%s", options[i].name);
    fputs(" --help --version", stdout);
}

static void bash_option_values(const Completion *x)
{
    for (OptionId i = 0; i < OPTIONS; i++) {
        const Option *o = &options[i];
        if (!o->argument || !option_of(i, commands_of(x->p)))
            continue;
        const Values *v = values_of(o->argument);
        const char *words = words_of(x->arena, x->models, v);
        printf("    --%s", o->name);
        if (o->letter)
            printf(" | -%c", o->letter);
        fputs(")", stdout);
        if (*words)
            printf(" compgen -W '%s' -- \"$word\";", words + 1);
        if (v && v->files)
            printf(" compgen -%c -- \"$word\";", strchr(v->files, '/') ? 'd' : 'f');
        fputs(" return ;;\n", stdout);
    }
}

/* The models are those of the commands that take one, or of the word that may be a command. */
static void bash_arguments(const Completion *x)
{
    const char *models = model_words(x);
    fputs("        [ -n \"$command\" ] || compgen -W '", stdout);
    put_commands(x);
    fputs("' -- \"$word\"\n", stdout);
    if (*models) {
        fputs("        case $command in\n        ''", stdout);
        for (CommandId c = 0; c < COMMANDS; c++)
            if (completes(x, c) && takes_model(c))
                printf(" | %s", commands[c].name);
        printf(") compgen -W '%s' -- \"$word\" ;;\n        esac\n", models + 1);
    }
    fputs("        compgen -f -- \"$word\"\n", stdout);
}

static void bash(const Completion *x)
{
    const char *name = x->name;
    printf("# Completion of %s for bash, made from its table of options.\n", name);
    printf("_%s_words() {\n    local word=$1 before=$2 command=$3\n    case $before in\n", name);
    bash_option_values(x);
    fputs("    esac\n    case $word in\n    -*)\n        case $command in\n", stdout);
    for (CommandId c = 0; c < COMMANDS; c++)
        if (completes(x, c)) {
            printf("        %s) compgen -W '", commands[c].name);
            bash_options(x, 1u << c);
            fputs("' -- \"$word\" ;;\n", stdout);
        }
    fputs("        *) compgen -W '", stdout);
    bash_options(x, x->p == PPLAN ? CMD_plan : CMD_run);
    fputs("' -- \"$word\" ;;\n        esac\n        ;;\n    *)\n", stdout);
    bash_arguments(x);
    printf("        ;;\n    esac\n}\n\n_%s() {\n    local first=${COMP_WORDS[1]}\n    [ \"$COMP_CWORD\" -gt 1 ] && [[ $first != -* ]] || first=\n"
           "    mapfile -t COMPREPLY < <(_%s_words \"$2\" \"$3\" \"$first\")\n}\ncomplete -o filenames -F _%s %s\n", name, name, name, name);
}

/* ---- fish and zsh ---- */

/* In single quotes. */
static void put_quoted(const char *s, const char *also)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", stdout);
        else if (strchr(also, *s))
            printf("\\%c", *s);
        else
            putchar(*s);
    }
}

static void fish_option(const Completion *x, const Option *o)
{
    const Values *v = o->argument ? values_of(o->argument) : NULL;
    const char *words = words_of(x->arena, x->models, v);
    printf("complete -c %s -l %s", x->name, o->name);
    if (o->letter)
        printf(" -s %c", o->letter);
    if (o->argument)
        fputs(v && v->files ? " -r" : " -x", stdout);
    if (*words)
        printf(" -a '%s'", words + 1);
    fputs(" -d '", stdout);
    put_quoted(o->help, "\\");
    fputs("'\n", stdout);
}

static void fish(const Completion *x)
{
    printf("# Completion of %s for fish, made from its table of options.\n", x->name);
    for (CommandId c = 0; c < COMMANDS; c++)
        if (completes(x, c)) {
            printf("complete -c %s -n __fish_use_subcommand -a %s -d '", x->name, commands[c].name);
            put_quoted(commands[c].help, "\\");
            fputs("'\n", stdout);
        }
    const char *models = model_words(x);
    if (*models)
        printf("complete -c %s -a '%s' -d 'a bundled model'\n", x->name, models + 1);
    for (OptionId i = 0; i < OPTIONS; i++)
        if (option_of(i, commands_of(x->p)))
            fish_option(x, &options[i]);
}

static void zsh_value(const Completion *x, const char *argument)
{
    const Values *v = values_of(argument);
    const char *words = words_of(x->arena, x->models, v);
    putchar(':');
    put_quoted(argument, ":");
    if (*words && v->files)
        printf(":{%s; compadd%s}", v->files, words);
    else if (*words)
        printf(":(%s)", words + 1);
    else
        printf(":%s", v && v->files ? v->files : " ");
}

static void zsh_option(const Completion *x, const Option *o)
{
    for (int form = o->letter ? 0 : 1; form < 2; form++) {
        fputs(" \\\n  '*", stdout);
        if (form == 0)
            printf("-%c%s[", o->letter, o->argument ? "+" : "");
        else
            printf("--%s%s[", o->name, o->argument ? "=" : "");
        put_quoted(o->help, "[]:");
        putchar(']');
        if (o->argument)
            zsh_value(x, o->argument);
        putchar('\'');
    }
}

static void zsh(const Completion *x)
{
    const char *models = model_words(x);
    printf("#compdef %s\n# Completion of %s for zsh, made from its table of options.\n_arguments -s", x->name, x->name);
    for (OptionId i = 0; i < OPTIONS; i++)
        if (option_of(i, commands_of(x->p)))
            zsh_option(x, &options[i]);
    fputs(" \\\n  '1::command or file:{_files; compadd", stdout);
    put_commands(x);
    printf("%s}'", models);
    if (*models)
        printf(" '*:file:{_files; compadd%s}'\n", models);
    else
        fputs(" '*:file:_files'\n", stdout);
}

static int complete(Completion x, const char *shell)
{
    x.name = program_name(x.p);
    x.arena = arena_new("words");
    if (strcmp(shell, "bash") == 0)
        bash(&x);
    else if (strcmp(shell, "zsh") == 0)
        zsh(&x);
    else if (strcmp(shell, "fish") == 0)
        fish(&x);
    else
        return 2;
    arena_free(x.arena);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 3 ? argv[1] : "", *program = argc > 3 ? argv[2] : "";
    ProgramName p = strcmp(program, "prun") == 0 ? PRUN : PPLAN;
    int status = 0;
    if (strcmp(what, "man") == 0)
        man(p, argv[3]);
    else if (strcmp(what, "manual") == 0)
        manual_print(program, argv[3]);
    else
        status = argc > 3 ? complete((Completion){.p = p, .models = argv[3]}, what) : 2;
    return status ? status : fflush(stdout) == 0 && !ferror(stdout) ? 0 : 3;
}
