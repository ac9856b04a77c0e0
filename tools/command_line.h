/* The rows of a command line, collected from the tables of its command (options.h). */
#ifndef WEFT_TOOLS_COMMAND_LINE_H
#define WEFT_TOOLS_COMMAND_LINE_H

#include "tool.h"

/* A row, with the struct of its table. */
typedef struct entry {
    const tool_option *option;
    void *into;
    int group;
    double initial; /* the default, if it is a number or a choice */
} entry;

/* A command, or a table that it includes. */
typedef struct part {
    const tool_command *command;
    void *into;
} part;

enum { MAX_ENTRIES = 192, MAX_PARTS = 8 };
typedef struct command_line {
    tool_parser parser;
    const tool_command *command;
    entry at[MAX_ENTRIES]; /* options and headings by group */
    size_t n;
    entry argument; /* the row TOOL_ARGUMENT; its option is NULL if there is none */
    part parts[MAX_PARTS];
    size_t n_parts;
} command_line;

static inline bool is_heading(const tool_option *o)
{
    return o->kind == TOOL_HEADING || o->kind == TOOL_INCLUDE;
}

/* Print the texts of --help and --usage on standard output; both sort the rows. */
void tool_print_help(command_line *line);
void tool_print_usage(command_line *line);
/* Prints the description of TOOL_HELP_JSON; returns the exit status. */
int tool_print_description(const command_line *line);

#endif
