/* Pages: what is installed beside the programs and names their commands and options, made at
 * build time from the one table, options.def.
 *
 *   pages man PROGRAM VERSION <TEMPLATE    the manual: @COMMANDS@, @OPTIONS@ and @VERSION@ filled in
 *   pages manual NAME VERSION <PAGE.md     a page of docs/ as NAME(5)
 *   pages bash|zsh|fish PROGRAM            completion for a shell
 *
 * A row that is not available in this version (its help starts with '!') is left out. */
#include <stdio.h>
#include <string.h>

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

/* What the value of an option is, as its argument is called in the table. */
typedef enum ValueKind { VALUE_OTHER, VALUE_FILE, VALUE_FOLDER, VALUE_CLUSTER, VALUE_PROFILE, VALUE_DEVICE, VALUE_HOW } ValueKind;

static ValueKind value_kind(const char *argument)
{
    static const struct { const char *argument; ValueKind kind; } rows[] = {
        {"FILE", VALUE_FILE}, {"SPEC", VALUE_FILE}, {"DIR", VALUE_FOLDER}, {"CLUSTER", VALUE_CLUSTER}, {"PROFILE", VALUE_PROFILE},
        {"DEVICE", VALUE_DEVICE}, {"HOW", VALUE_HOW},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].argument, argument) == 0)
            return rows[i].kind;
    return VALUE_OTHER;
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

/* ---- bash ---- */

/* Bundled files lie beside the program, wherever that was installed. */
static const char bundled[] = "\"$(dirname \"$(readlink -f \"$(command -v \"$1\")\")\")/../share/pplan/models\"";

static const char *bash_values(ValueKind k)
{
    switch (k) {
    case VALUE_FILE:    return "compgen -f -- \"$word\"";
    case VALUE_FOLDER:  return "compgen -d -- \"$word\"";
    case VALUE_CLUSTER: return "compgen -W \"$(_pplan_bundled \"$1\" clusters .pcluster)\" -- \"$word\"; compgen -f -- \"$word\"";
    case VALUE_PROFILE: return "compgen -W \"$(_pplan_bundled \"$1\" profiles .pprofile)\" -- \"$word\"; compgen -f -- \"$word\"";
    case VALUE_DEVICE:  return "compgen -W 'auto cpu' -- \"$word\"";
    case VALUE_HOW:     return "compgen -W 'processes threads' -- \"$word\"";
    case VALUE_OTHER:   break;
    }
    return ":";
}

static void bash_words(ProgramName p, unsigned takers)
{
    for (OptionId i = 0; i < OPTIONS; i++)
        if (option_of(i, commands_of(p) & takers))
            printf(" --%s", options[i].name);
    fputs(" --help --version", stdout);
}

static void bash_option_values(ProgramName p)
{
    for (OptionId i = 0; i < OPTIONS; i++) {
        const Option *o = &options[i];
        if (!o->argument || !option_of(i, commands_of(p)))
            continue;
        printf("    --%s", o->name);
        if (o->letter)
            printf(" | -%c", o->letter);
        printf(") %s; return ;;\n", bash_values(value_kind(o->argument)));
    }
}

static void bash(ProgramName p)
{
    const char *name = program_name(p);
    printf("# Completion of %s for bash, made from its table of options.\n", name);
    printf("_pplan_bundled() { local f; for f in %s/\"$2\"/*\"$3\"; do f=${f##*/}; echo \"${f%%\"$3\"}\"; done; }\n\n", bundled);
    printf("_%s_words() {\n    local word=$2 before=$3 command=$4\n    case $before in\n", name);
    bash_option_values(p);
    fputs("    esac\n    case $word in\n    -*)\n        case $command in\n", stdout);
    for (CommandId c = 0; c < COMMANDS; c++)
        if ((commands_of(p) >> c & 1) && commands[c].named) {
            printf("        %s) compgen -W '", commands[c].name);
            bash_words(p, 1u << c);
            fputs("' -- \"$word\" ;;\n", stdout);
        }
    fputs("        *) compgen -W '", stdout);
    bash_words(p, p == PPLAN ? CMD_plan : CMD_run);
    fputs("' -- \"$word\" ;;\n        esac\n        ;;\n    *)\n        [ -n \"$command\" ] || compgen -W '", stdout);
    for (CommandId c = 0; c < COMMANDS; c++)
        if ((commands_of(p) >> c & 1) && commands[c].named)
            printf(" %s", commands[c].name);
    fputs("' -- \"$word\"\n        compgen -f -- \"$word\"\n        ;;\n    esac\n}\n\n", stdout);
    printf("_%s() {\n    local first=${COMP_WORDS[1]}\n    [ \"$COMP_CWORD\" -gt 1 ] && [[ $first != -* ]] || first=\n"
           "    mapfile -t COMPREPLY < <(_%s_words \"$1\" \"$2\" \"$3\" \"$first\")\n}\ncomplete -o filenames -F _%s %s\n", name, name, name, name);
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

static void fish(ProgramName p)
{
    const char *name = program_name(p);
    printf("# Completion of %s for fish, made from its table of options.\n", name);
    for (CommandId c = 0; c < COMMANDS; c++)
        if ((commands_of(p) >> c & 1) && commands[c].named) {
            printf("complete -c %s -n __fish_use_subcommand -a %s -d '", name, commands[c].name);
            put_quoted(commands[c].help, "\\");
            fputs("'\n", stdout);
        }
    for (OptionId i = 0; i < OPTIONS; i++) {
        if (!option_of(i, commands_of(p)))
            continue;
        ValueKind k = options[i].argument ? value_kind(options[i].argument) : VALUE_OTHER;
        printf("complete -c %s -l %s", name, options[i].name);
        if (options[i].letter)
            printf(" -s %c", options[i].letter);
        fputs(!options[i].argument ? "" : k == VALUE_OTHER ? " -x" : k == VALUE_DEVICE ? " -x -a 'auto cpu'" : k == VALUE_HOW ? " -x -a 'processes threads'" : " -r", stdout);
        fputs(" -d '", stdout);
        put_quoted(options[i].help, "\\");
        fputs("'\n", stdout);
    }
}

static void zsh(ProgramName p)
{
    printf("#compdef %s\n# Completion of %s for zsh, made from its table of options.\n_arguments -s", program_name(p), program_name(p));
    for (OptionId i = 0; i < OPTIONS; i++) {
        const Option *o = &options[i];
        if (!option_of(i, commands_of(p)))
            continue;
        for (int form = o->letter ? 0 : 1; form < 2; form++) {
            fputs(" \\\n  '*", stdout);
            if (form == 0)
                printf("-%c%s[", o->letter, o->argument ? "+" : "");
            else
                printf("--%s%s[", o->name, o->argument ? "=" : "");
            put_quoted(o->help, "[]:");
            putchar(']');
            if (o->argument) {
                ValueKind k = value_kind(o->argument);
                fputs(":", stdout);
                put_quoted(o->argument, ":");
                fputs(k == VALUE_OTHER ? ": " : k == VALUE_DEVICE ? ":(auto cpu)" : k == VALUE_HOW ? ":(processes threads)" : k == VALUE_FOLDER ? ":_files -/" : ":_files", stdout);
            }
            putchar('\'');
        }
    }
    fputs(" \\\n  '1::command or file:{_files; compadd", stdout);
    for (CommandId c = 0; c < COMMANDS; c++)
        if ((commands_of(p) >> c & 1) && commands[c].named)
            printf(" %s", commands[c].name);
    fputs("}' '*:file:_files'\n", stdout);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "", *program = argc > 2 ? argv[2] : "";
    ProgramName p = strcmp(program, "prun") == 0 ? PRUN : PPLAN;
    if (strcmp(what, "man") == 0 && argc > 3)
        man(p, argv[3]);
    else if (strcmp(what, "manual") == 0 && argc > 3)
        manual_print(program, argv[3]);
    else if (strcmp(what, "bash") == 0)
        bash(p);
    else if (strcmp(what, "zsh") == 0)
        zsh(p);
    else if (strcmp(what, "fish") == 0)
        fish(p);
    else
        return 2;
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 3;
}
