/* Options of commands, as tables. A row says how an option is called, which field of the command's
 * arguments gets its value, the bounds, and what it is for; the initial value of the field is the
 * default. The parser, its messages, --help and --help-json, and from the latter manual pages and
 * completions, all follow from the rows. */
#ifndef WEFT_TOOLS_OPTIONS_H
#define WEFT_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include <weft/types.h>

typedef struct tool_option tool_option;
typedef struct tool_command tool_command;

/* The command line that is read, for messages about it. */
typedef struct tool_parser {
    const char *command; /* "weft check" */
} tool_parser;

/* Takes the argument of an option into the struct of its table. `text` (NULL if an optional
 * argument is not given) may be changed and lives as long as the program. Ends the program on a
 * usage error. */
typedef void tool_take(const tool_option *option, void *into, char *text,
                       const tool_parser *parser);

typedef enum tool_kind {
    TOOL_END,      /* after the last row */
    TOOL_FLAG,     /* bool: true if the option is given */
    TOOL_WHOLE,    /* any integer */
    TOOL_REAL,     /* double */
    TOOL_TEXT,     /* const char * */
    TOOL_CHOICE,   /* an enum, or an int: the index among `argument`, "one|other" */
    TOOL_BYTES,    /* size_t: digits, which K, M, G or T may follow */
    TOOL_TAKE,     /* by the function `take` */
    TOOL_STRING,   /* of recipes, by `take`: char *, owned */
    TOOL_FILE,     /* the same for the name of a file */
    TOOL_FILES,    /* recipe_files */
    TOOL_LENGTHS,  /* recipe_list */
    TOOL_ARGUMENT, /* const char *: the one argument without a dash; required if `required` */
    TOOL_HEADING,  /* of the options of its group */
    TOOL_INCLUDE /* the table `include`, whose struct begins at `offset`; `doc` may be a heading */
} tool_kind;

struct tool_option {
    const char *name;     /* "batch" is --batch; NULL: only a letter */
    const char *argument; /* as --help calls it; NULL: none */
    tool_kind kind;
    size_t offset, size; /* of the field */
    const char *doc;     /* the default is appended, unless it is 0 or beyond the bounds */
    double min, max;     /* of a number */
    int group;           /* --help separates groups by empty lines */
    char letter;         /* 'o' is -o */
    tool_take *take;     /* NULL: none; called after a field of a plain kind is set */
    const tool_command *include;
    size_t also;       /* 1 + the offset of a bool that becomes true; 0: none */
    bool required;     /* of an argument or an option with a letter: there must be one */
    bool optional;     /* the argument may be left out */
    bool may_be_empty; /* the name of a file may be "" */
    bool shows_zero;   /* a default of 0 or false is also printed */
};

/* The kind of option for a field of a struct. */
#define TOOL_KIND(field)                                                                           \
    _Generic((field),                                                                              \
        bool: TOOL_FLAG,                                                                           \
        int: TOOL_WHOLE,                                                                           \
        long: TOOL_WHOLE,                                                                          \
        long long: TOOL_WHOLE,                                                                     \
        unsigned long: TOOL_WHOLE,                                                                 \
        unsigned long long: TOOL_WHOLE,                                                            \
        double: TOOL_REAL,                                                                         \
        const char *: TOOL_TEXT,                                                                   \
        unsigned: TOOL_CHOICE)
#define TOOL_PLACE(type, field) .offset = offsetof(type, field), .size = sizeof((type *)0)->field
/* Parts of a row: a field whose kind follows from its type, a number of bytes, a field that a
 * function fills, a function that fills several, and another field to set. The documentation may
 * follow all but the last. */
#define TOOL_FIELD(type, field) .kind = TOOL_KIND(((type *)0)->field), TOOL_PLACE(type, field)
#define TOOL_SIZE(type, field)  .kind = TOOL_BYTES, TOOL_PLACE(type, field)
#define TOOL_INTO(type, field, function)                                                           \
    .kind = TOOL_TAKE, .take = (function), TOOL_PLACE(type, field)
#define TOOL_BY(function)      .kind = TOOL_TAKE, .take = (function), .size = 0
#define TOOL_ALSO(type, field) .also = 1 + offsetof(type, field)
/* Parts of other rows: the argument of the command, and the table of another struct. */
#define TOOL_ONE(type, field, text)                                                                \
    .argument = (text), .kind = TOOL_ARGUMENT, TOOL_PLACE(type, field)
#define TOOL_INCLUDED(type, field, table)                                                          \
    .kind = TOOL_INCLUDE, TOOL_PLACE(type, field), .include = &(table)

struct tool_command {
    const tool_option *options; /* NULL: none */
    const char *usage;          /* lines of arguments, "MODEL [OPTION=VALUE...]\nFILE.onnx" */
    const char *doc, *notes;    /* before and after the options */
    /* Takes an argument without a dash; NULL: that of an included table does, or the row
     * TOOL_ARGUMENT. */
    void (*argument)(void *into, char *text, const tool_parser *parser);
    /* Checks the arguments together; NULL: nothing to check. */
    void (*check)(void *into, const tool_parser *parser);
};

/* Reads the command line into the struct of the command, which has the defaults. Ends the program
 * after --help or a usage error. */
#define TOOL_HELP_JSON "--help-json" /* alone: prints the description as JSON, and ends */
void tool_parse(const tool_command *command, int argc, char **argv, void *into);
/* Prints "COMMAND: MESSAGE" and where to find help on stderr, and ends the program with EXIT_USAGE.
 */
void tool_usage_error(const tool_parser *parser, const char *format, ...) __attribute__((noreturn))
WEFT_PRINTF(2, 3);

/* Sets the field of a row to a number within its bounds, or to a choice; false if it is not one. */
bool tool_set_number(const tool_option *option, void *into, double x);
bool tool_set_choice(const tool_option *option, void *into, const char *text);
/* The number in the field of a row, or the index of a choice; 0 for other kinds. */
double tool_get_number(const tool_option *option, const void *into);
/* The field of a row. */
void *tool_field(const tool_option *option, void *into);
const void *tool_value(const tool_option *option, const void *into);
/* Takes the argument of an option of any kind. */
void tool_take_option(const tool_option *option, void *into, char *text, const tool_parser *parser);

/* The index of a text in "one|other|..."; -1 if it is not one of them. */
int tool_choice(const char *choices, const char *text);
/* Choice `index` of "one|other|...", and its length. */
const char *tool_choice_at(const char *choices, int index, int *length);
/* A number of bytes: digits, which K, M, G or T may follow (10^3, 10^6, 10^9, 10^12); false if the
 * text is not a number or is less than 1. */
bool tool_read_bytes(const char *text, size_t *bytes);
/* A number of [min, max] from an argument of the command line; ends the program with a usage error
 * if the text is invalid. */
double tool_real(const char *text, const char *what, double min, double max,
                 const tool_parser *parser);

#endif
