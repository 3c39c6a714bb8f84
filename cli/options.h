#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H
/* Command lines: read against options.def, with help and near names. */
#include <stdbool.h>

#include "base/diag.h"

typedef enum Program_ { PPLAN, PRUN } ProgramName;

typedef enum CommandId {
#define COMMAND(name, program, positionals, help) COMMAND_##name,
#include "cli/options.def"
    COMMANDS
} CommandId;

/* Sets of commands, for the option rows. */
enum {
#define COMMAND(name, program, positionals, help) CMD_##name = 1 << COMMAND_##name,
#include "cli/options.def"
};

/* Commands that plan and predict times. */
#define CMD_TIMES (CMD_plan | CMD_estimate | CMD_explain | CMD_dump)

typedef enum OptionId {
#define OPTION(id, short_, long_, argument, times, commands, help) OPT_##id,
#include "cli/options.def"
    OPTIONS
} OptionId;

typedef struct OptionValue { OptionId id; const char *value; bool brief; } OptionValue;   /* brief: given as -x */

/* A command line, read.  Strings are argv's own. */
typedef struct Args {
    char *const *argv;                /* as given */
    CommandId    command;
    const char **positional; uint32_t npositional;
    OptionValue *option;     uint32_t noption;       /* in the order given */
    bool         command_given, help, version;
    bool         errors_only;         /* of diagnostics: warnings were printed by who started this process */
} Args;

/* ERR_USAGE, the reason printed, when the line is wrong. */
Status args_read(Arena *, ProgramName, int argc, char **argv, Args *out);
/* The value of an option, or NULL; "" for a switch that was given. */
const char *args_value(const Args *, OptionId);
/* ERR_USAGE, the reason printed, when `what` was given. */
Status args_refuse(const Args *, OptionId what, const char *why);
/* A whole number from least to most, or `fallback` when absent. */
Status args_integer(const Args *, OptionId, int64_t least, int64_t most, int64_t fallback, int64_t *out);
void args_help(ProgramName, FILE *);

#endif
