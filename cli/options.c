/* Command lines: getopt is not used because commands, help texts and near names
 * all come from one table. */
#include "cli/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct CommandRow { const char *name; ProgramName program; const char *positionals, *help; } CommandRow;
typedef enum Times { ONCE, MANY, NAMES } Times;
typedef struct OptionRow { char short_; const char *long_, *argument; Times times; unsigned commands; const char *help; } OptionRow;

static const CommandRow command_rows[COMMANDS] = {
#define COMMAND(name, program, positionals, help) {#name, program, positionals, help},
#include "cli/options.def"
};
static const OptionRow option_rows[OPTIONS] = {
#define OPTION(id, short_, long_, argument, times, commands, help) {short_, long_, argument, times, commands, help},
#include "cli/options.def"
};

static const char *program_name(ProgramName p)
{
    return p == PPLAN ? "pplan" : "prun";
}

/* What a message calls a command: prun has one without a name. */
static const char *command_word(CommandId c)
{
    return c == COMMAND_run ? "prun" : command_rows[c].name;
}

static Status usage(ProgramName p, const char *fmt, const char *a, const char *b)
{
    fprintf(stderr, "%s: ", program_name(p));
    fprintf(stderr, fmt, a, b);
    fprintf(stderr, "\ntry '%s --help'\n", program_name(p));
    return ERR_USAGE;
}

static CommandId command_find(ProgramName p, const char *word)
{
    for (CommandId c = 0; c < COMMANDS; c++)
        if (command_rows[c].program == p && c != COMMAND_run && strcmp(command_rows[c].name, word) == 0)
            return c;
    return COMMANDS;
}

/* The option that a word is short for, else the nearest one; NULL: none. */
static const char *option_near(const char *word)
{
    const char *pool[OPTIONS], *starts = NULL;
    size_t n = 0;
    for (OptionId i = 0; i < OPTIONS; i++) {
        if (option_rows[i].help[0] == '!')
            continue;
        if (strncmp(option_rows[i].long_, word, strlen(word)) == 0)
            starts = starts ? "" : option_rows[i].long_;
        pool[n++] = option_rows[i].long_;
    }
    return starts && *starts && word[0] ? starts : nearest_name(word, pool, n);
}

static Status unknown_option(ProgramName p, const char *word)
{
    const char *near = strncmp(word, "--", 2) == 0 ? option_near(word + 2) : NULL;
    if (near)
        return usage(p, "unknown option '%s'; did you mean '--%s'?", word, near);
    return usage(p, "unknown option '%s'%s", word, "");
}

/* The option a word names, and its value when written in the same word. */
static OptionId option_find(const char *word, const char **value)
{
    *value = NULL;
    if (word[1] != '-') {
        for (OptionId i = 0; i < OPTIONS; i++)
            if (option_rows[i].short_ && word[1] == option_rows[i].short_) {
                *value = word[2] ? word + 2 : NULL;
                return i;
            }
        return OPTIONS;
    }
    size_t n = strcspn(word + 2, "=");
    *value = word[2 + n] ? word + 3 + n : NULL;
    for (OptionId i = 0; i < OPTIONS; i++)
        if (strlen(option_rows[i].long_) == n && strncmp(option_rows[i].long_, word + 2, n) == 0)
            return i;
    return OPTIONS;
}

static Status not_yet(ProgramName p, const char *dashes, const char *what, const char *help)
{
    fprintf(stderr, "%s: '%s%s' is not available in this version: %s\n", program_name(p), dashes, what, help + 1);
    return ERR_USAGE;
}

static bool same_name(const char *x, const char *y)
{
    size_t n = strcspn(x, "=");
    return n == strcspn(y, "=") && strncmp(x, y, n) == 0;
}

/* Of two values one would be ignored. */
static Status check_times(ProgramName p, const Args *before, OptionValue v)
{
    const OptionRow *row = &option_rows[v.id];
    for (uint32_t i = 0; i < before->noption && row->times != MANY; i++) {
        const OptionValue *other = &before->option[i];
        if (other->id != v.id || (row->times == NAMES && !same_name(other->value, v.value)))
            continue;
        fprintf(stderr, "%s: option '--%s' is given twice%s: '%s' and '%s'\ntry '%s --help'\n", program_name(p), row->long_,
                row->times == NAMES ? " for one name" : "", other->value, v.value, program_name(p));
        return ERR_USAGE;
    }
    return OK;
}

/* Read the option at argv[*i]; a value in the next word is consumed. */
static Status read_option(Arena *a, ProgramName p, int argc, char **argv, int *i, Args *out)
{
    const char *word = argv[*i], *value;
    OptionId id = option_find(word, &value);
    if (id == OPTIONS)
        return unknown_option(p, word);
    const OptionRow *row = &option_rows[id];
    if (row->argument && !value) {
        if (*i + 1 >= argc)
            return usage(p, "option '%s' needs a value: %s", word, row->argument);
        value = argv[++*i];
    } else if (!row->argument && value) {
        return usage(p, "option '--%s' takes no value, but '%s' was given", row->long_, value);
    }
    OptionValue v = {id, value ? value : "", word[1] != '-'};
    if (row->argument)
        TRY(check_times(p, out, v));
    PUSH(a, out->option, out->noption, v);
    return OK;
}

/* Every option must belong to the command, wherever it stood in the line. */
static Status check_options(ProgramName p, const Args *out)
{
    if (command_rows[out->command].help[0] == '!')
        return not_yet(p, "", command_rows[out->command].name, command_rows[out->command].help);
    for (uint32_t i = 0; i < out->noption; i++) {
        const OptionRow *row = &option_rows[out->option[i].id];
        bool brief = out->option[i].brief;
        char letter[] = {'-', row->short_, 0};
        if (!(row->commands >> out->command & 1))
            return usage(p, brief ? "'%s' has no option '%s'" : "'%s' has no option '--%s'", command_word(out->command), brief ? letter : row->long_);
        if (row->help[0] == '!')
            return not_yet(p, "--", row->long_, row->help);
    }
    return OK;
}

/* Words that a command takes beside its options: "MODEL [PATH]" are two. */
static uint32_t most_words(CommandId c)
{
    uint32_t n = 0;
    for (const char *s = command_rows[c].positionals; *s; s++)
        n += *s != ' ' && (s[1] == ' ' || !s[1]);
    return n;
}

/* Two words where one file is expected: the first may be a command, misspelt. */
static Status too_many(ProgramName p, const Args *out, uint32_t most)
{
    const char *pool[COMMANDS], *first = out->positional[0];
    size_t n = 0;
    for (CommandId c = 0; c < COMMANDS; c++)
        if (command_rows[c].program == p && p == PPLAN)
            pool[n++] = command_rows[c].name;
    const char *near = out->command_given ? NULL : nearest_name(first, pool, n);
    if (near)
        return usage(p, "unknown command '%s'; did you mean '%s'?", first, near);
    if (most == 0)
        return usage(p, "'%s' takes no file, but '%s' was given", command_word(out->command), first);
    if (most > 1)
        return usage(p, "'%s' takes a file and a path; '%s' is one too many", command_word(out->command), out->positional[most]);
    return usage(p, "'%s' takes one file; '%s' is one too many", command_word(out->command), out->positional[1]);
}

Status args_read(Arena *a, ProgramName p, int argc, char **argv, Args *out)
{
    *out = (Args){.argv = argv, .command = COMMANDS};
    bool options_end = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!options_end && strcmp(word, "--") == 0) {
            options_end = true;
        } else if (!options_end && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            out->help = true;
            return OK;
        } else if (!options_end && strcmp(word, "--version") == 0) {
            out->version = true;
            return OK;
        } else if (!options_end && word[0] == '-' && word[1]) {
            TRY(read_option(a, p, argc, argv, &i, out));
        } else if (out->command == COMMANDS && out->npositional == 0 && command_find(p, word) != COMMANDS) {
            out->command = command_find(p, word);
            out->command_given = true;
        } else {
            PUSH(a, out->positional, out->npositional, word);
        }
    }
    if (out->command == COMMANDS)
        out->command = p == PPLAN ? COMMAND_plan : COMMAND_run;
    TRY(check_options(p, out));
    uint32_t most = most_words(out->command);
    if (most > 0 && out->npositional == 0)
        return usage(p, "'%s' needs a file: %s", command_word(out->command), command_rows[out->command].positionals);
    if (out->npositional > most)
        return too_many(p, out, most);
    return OK;
}

const char *args_value(const Args *args, OptionId id)
{
    const char *found = NULL;
    for (uint32_t i = 0; i < args->noption; i++)
        if (args->option[i].id == id)
            found = args->option[i].value;
    return found;
}

Status args_integer(const Args *args, OptionId id, int64_t least, int64_t most, int64_t fallback, int64_t *out)
{
    const char *text = args_value(args, id);
    *out = fallback;
    if (!text)
        return OK;
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < least || v > most) {
        fprintf(stderr, "error: --%s '%s': expected a whole number from %lld to %lld\n", option_rows[id].long_, text,
                (long long)least, (long long)most);
        return ERR_USAGE;
    }
    *out = v;
    return OK;
}

Status args_refuse(const Args *args, OptionId what, const char *why)
{
    if (!args_value(args, what))
        return OK;
    fprintf(stderr, "error: --%s has no effect %s\n", option_rows[what].long_, why);
    return ERR_USAGE;
}

/* ---- help ---- */

static void help_commands(ProgramName p, FILE *f)
{
    for (CommandId c = 0; c < COMMANDS; c++)
        if (command_rows[c].program == p && command_rows[c].help[0] != '!')
            fprintf(f, "  %s %-*s %-12s %s\n", program_name(p), p == PRUN ? 9 : 8, c == COMMAND_run ? "" : command_rows[c].name,
                    command_rows[c].positionals, command_rows[c].help);
}

void args_help(ProgramName p, FILE *f)
{
    unsigned mine = 0;
    for (CommandId c = 0; c < COMMANDS; c++)
        if (command_rows[c].program == p)
            mine |= 1u << c;
    fprintf(f, "%s\n\n", p == PPLAN ? "pplan: plan how to spread a model over devices" : "prun: execute a plan");
    help_commands(p, f);
    fprintf(f, "\n");
    for (OptionId i = 0; i < OPTIONS; i++) {
        const OptionRow *row = &option_rows[i];
        if (!(row->commands & mine) || row->help[0] == '!')
            continue;
        char left[64];
        int n = row->short_ ? snprintf(left, sizeof left, "-%c %s", row->short_, row->argument ? row->argument : "")
                            : snprintf(left, sizeof left, "--%s %s", row->long_, row->argument ? row->argument : "");
        fprintf(f, "  %-24.*s %s\n", n, left, row->help);
    }
    fprintf(f, "  %-24s %s\n", "--version", "the version and the libraries in use");
    fprintf(f, "\nMODEL is a .pmodel, .pplan or .plan file; '-' is standard input.\n"
               "Exit status: 0 done, 1 the input is wrong or nothing fits, 2 usage, 3 the machine failed.\n");
}
