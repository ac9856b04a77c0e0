/* The command line of a command, from its table of options (options.h): argp, with -h for --help, a
 * description of the options as JSON (--help-json), from which manual pages and completions are
 * made (tools/man), and suggestions for mistyped options. */
#include "tool.h"

#include "base/guess.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

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

enum { MAX_ENTRIES = 192, MAX_PARTS = 8, FIRST_KEY = 256, WIDE = 48 };
typedef struct parser {
    entry at[MAX_ENTRIES]; /* options and headings by group, as in --help */
    size_t n;
    entry argument; /* the row TOOL_ARGUMENT; its option is NULL if there is none */
    part parts[MAX_PARTS];
    size_t n_parts;
} parser;

static bool is_heading(const tool_option *o)
{
    return o->kind == TOOL_HEADING || o->kind == TOOL_INCLUDE;
}

static void add(parser *p, entry e)
{
    size_t at = p->n;
    if (at == MAX_ENTRIES) return;
    e.initial = tool_get_number(e.option, e.into);
    for (; at > 0 && p->at[at - 1].group > e.group; at--) p->at[at] = p->at[at - 1];
    p->at[at] = e;
    p->n++;
}

/* Adds the rows of a table and of those that it includes, which are checked first. */
static void collect(parser *p, const tool_command *command, void *into, int group)
{
    for (const tool_option *o = command->options; o && o->kind != TOOL_END; o++) {
        const entry e = {o, into, group + o->group, 0};
        if (o->kind == TOOL_ARGUMENT)
            p->argument = e;
        else if (o->kind != TOOL_INCLUDE || o->doc)
            add(p, e);
        if (o->kind == TOOL_INCLUDE) collect(p, o->include, (char *)into + o->offset, e.group);
    }
    if (p->n_parts < MAX_PARTS) p->parts[p->n_parts++] = (part){command, into};
}

/* ---- Texts ---- */

/* Whether the choices are too long for the argument in --help: argp of glibc writes beyond its
 * buffer if an option and its argument are wider than a line. They follow the documentation then.
 */
static bool is_wide(const tool_option *o)
{
    return o->argument && strlen(o->argument) > WIDE;
}

static void print_default(const entry *e, FILE *f)
{
    const tool_option *o = e->option;
    char number[TEXT_NUMBER_BYTES];
    int length;
    const bool shown = e->initial != 0 || o->shows_zero;
    if (o->kind == TOOL_CHOICE) {
        const char *choice = tool_choice_at(o->argument, (int)e->initial, &length);
        fprintf(f, " (default %.*s)", length, choice);
    } else if (o->kind == TOOL_FLAG && shown) {
        fprintf(f, " (default %s)", e->initial != 0 ? "true" : "false");
    } else if ((o->kind == TOOL_WHOLE || o->kind == TOOL_REAL) && shown && e->initial >= o->min &&
               e->initial <= o->max) {
        fprintf(f, " (default %s)", weft__text_from_double(e->initial, number));
    }
}

/* "DOC: ONE, OTHER (default ONE)"; the caller frees it. NULL if out of memory. */
static char *describe(const entry *e)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    fputs(e->option->doc, f);
    if (is_wide(e->option)) {
        fputs(": ", f);
        for (const char *c = e->option->argument; *c; c++)
            fputs(*c == '|' ? ", " : (char[]){*c, 0}, f);
    }
    print_default(e, f);
    if (fclose(f) == 0) return text;
    free(text);
    return NULL;
}

/* ---- As JSON ---- */

static void add_text(cJSON *json, const char *key, const char *text)
{
    if (text && text[0]) cJSON_AddStringToObject(json, key, text);
}

static cJSON *entry_json(const entry *e)
{
    cJSON *json = cJSON_CreateObject();
    const tool_option *o = e->option;
    const char letter[] = {o->letter, 0};
    if (is_heading(o)) {
        cJSON_AddStringToObject(json, "heading", o->doc);
        return json;
    }
    add_text(json, "short", letter);
    add_text(json, "long", o->name);
    add_text(json, "argument", o->argument);
    if (o->optional) cJSON_AddTrueToObject(json, "optional");
    char *doc = describe(e);
    add_text(json, "doc", doc);
    free(doc);
    return json;
}

/* Prints {"name", "usage": [text], "doc", "notes", "options": [...]}; the notes follow the options.
 * An option is {"short", "long", "argument", "optional", "doc"} or {"heading"}. Members that would
 * be empty are left out. */
static int print_description(const tool_command *command, const char *name, const parser *p)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", name);
    cJSON *usage = cJSON_AddArrayToObject(json, "usage");
    for (const char *line = command->usage ? command->usage : ""; line;) {
        char text[256];
        const size_t length = strcspn(line, "\n");
        snprintf(text, sizeof text, "%.*s", (int)length, line);
        cJSON_AddItemToArray(usage, cJSON_CreateString(text));
        line = line[length] ? line + length + 1 : NULL;
    }
    add_text(json, "doc", command->doc);
    add_text(json, "notes", command->notes);
    cJSON *options = cJSON_AddArrayToObject(json, "options");
    for (size_t i = 0; i < p->n; i++) cJSON_AddItemToArray(options, entry_json(&p->at[i]));
    return tool_print_json(json);
}

/* ---- Mistyped options ---- */

/* Options that argp adds. */
static const char *const own_options[] = {"help", "usage", "version"};
#define N_OWN (sizeof own_options / sizeof *own_options)

/* Compares names as getopt does: a prefix is enough. */
static bool begins(const char *name, const char *text, size_t length)
{
    return name && !strncmp(name, text, length);
}

/* Whether an option is known; *found is the one, NULL if argp adds it. */
static bool knows(const parser *p, const char *text, size_t length, const tool_option **found)
{
    bool known = false;
    *found = NULL;
    for (size_t i = 0; i < N_OWN; i++) known |= begins(own_options[i], text, length);
    for (size_t i = 0; i < p->n; i++) {
        const tool_option *o = p->at[i].option;
        if (!begins(o->name, text, length)) continue;
        known = true;
        *found = o;
        if (!o->name[length]) break; /* the whole name */
    }
    return known;
}

/* Whether the argument of an option is the next word, unless it is in the same word. */
static bool takes_next(const tool_option *o)
{
    return o && o->argument && !o->optional;
}

/* The option of "-xyz" whose argument is the next word, or NULL. */
static const tool_option *last_short(const parser *p, const char *word)
{
    for (const char *at = word + 1; *at; at++)
        for (size_t i = 0; i < p->n; i++) {
            const tool_option *o = p->at[i].option;
            if (o->letter == *at && o->argument) return !at[1] && takes_next(o) ? o : NULL;
        }
    return NULL;
}

static void end_with_help(const char *command)
{
    tool_print_line(stderr, "Try `%s --help' for more information.", command);
    exit(EXIT_USAGE);
}

/* Ends the program if the argument of an option must be a name, but is empty. `value` may be
 * NULL. */
static void check_value(const char *command, const tool_option *o, const char *value)
{
    static const char *const files[] = {"FILE", "FOLDER", "DIR", "OUT", "NAME"};
    if (!o || !o->argument || !value || value[0] || o->may_be_empty) return;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!strstr(o->argument, files[i])) continue;
        const char name[] = {o->letter, 0};
        tool_print_line(stderr, "%s: %s%s expects %s, not an empty text", command,
                        o->name ? "--" : "-", o->name ? o->name : name, o->argument);
        end_with_help(command);
    }
}

/* Ends the program with a suggestion for a mistyped option; argp refuses the others. */
static void suggest(const parser *p, const char *command, const char *text, size_t length)
{
    guess g = weft__guess_of(text, length);
    for (size_t k = 0; k < p->n; k++)
        if (p->at[k].option->name) weft__guess_try(&g, p->at[k].option->name);
    if (!g.name) return;
    tool_print_line(stderr, "%s: unrecognized option '--%.*s'; did you mean '--%s'?", command,
                    (int)length, text, g.name);
    end_with_help(command);
}

/* Ends the program if an option is not known and another one is near, or if the name of a file is
 * empty. */
static void check_options(const parser *p, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const tool_option *o = NULL;
        if (strncmp(argv[i], "--", 2) != 0) {
            if (argv[i][0] == '-') o = last_short(p, argv[i]);
            if (o) check_value(argv[0], o, argv[++i]);
            continue;
        }
        const char *text = argv[i] + 2;
        const size_t length = strcspn(text, "=");
        if (!knows(p, text, length, &o)) {
            suggest(p, argv[0], text, length);
            continue;
        }
        const bool next = takes_next(o) && !text[length];
        check_value(argv[0], o, next ? argv[i + 1] : text[length] ? text + length + 1 : NULL);
        i += next;
    }
}

/* ---- Parsing ---- */

/* The text of a row that has one. */
static const char **text_of(const entry *e)
{
    return tool_field(e->option, e->into);
}

/* Ends the program if a row is required and has no text. */
static void check_given(const entry *e, struct argp_state *state)
{
    const tool_option *o = e->option;
    if (!o || !o->required || *text_of(e)) return;
    if (o->letter)
        argp_error(state, "-%c %s is missing", o->letter, o->argument);
    else
        argp_error(state, "%s is missing", o->argument);
}

static error_t take_argument(parser *p, char *text, struct argp_state *state)
{
    for (size_t i = p->n_parts; i-- > 0;) {
        if (!p->parts[i].command->argument) continue;
        p->parts[i].command->argument(p->parts[i].into, text, state);
        return 0;
    }
    if (!p->argument.option) return ARGP_ERR_UNKNOWN;
    const char **to = text_of(&p->argument);
    if (*to) argp_error(state, "only one %s can be given", p->argument.option->argument);
    *to = text;
    return 0;
}

/* After the last argument: what is missing, then the rules between options. */
static void check(parser *p, struct argp_state *state)
{
    check_given(&p->argument, state);
    for (size_t i = 0; i < p->n_parts; i++)
        if (p->parts[i].command->check) p->parts[i].command->check(p->parts[i].into, state);
    for (size_t i = 0; i < p->n; i++) check_given(&p->at[i], state);
}

static const entry *entry_of(const parser *p, int key)
{
    if (key >= FIRST_KEY && (size_t)key < FIRST_KEY + p->n) return &p->at[key - FIRST_KEY];
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].option->letter && p->at[i].option->letter == key) return &p->at[i];
    return NULL;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    parser *p = state->input;
    const entry *e = entry_of(p, key);
    if (e) {
        tool_take_option(e->option, e->into, text, state);
    } else if (key == ARGP_KEY_ARG) {
        return take_argument(p, text, state);
    } else if (key == ARGP_KEY_END) {
        check(p, state);
    } else if (key == 'h') {
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* Text of --help, which argp frees if it is another one. */
static char *help(int key, const char *text, void *input)
{
    const entry *e = input ? entry_of(input, key) : NULL;
    char *whole = e && text ? describe(e) : NULL;
    return whole ? whole : (char *)(uintptr_t)text;
}

static struct argp_option row_of(const entry *e, int key)
{
    const tool_option *o = e->option;
    if (is_heading(o)) return (struct argp_option){.doc = o->doc, .group = e->group};
    return (struct argp_option){o->name,
                                o->letter ? o->letter : key,
                                is_wide(o) ? "KIND" : o->argument,
                                o->optional ? OPTION_ARG_OPTIONAL : 0,
                                o->doc,
                                e->group};
}

void tool_parse(const tool_command *command, int argc, char **argv, void *into)
{
    parser p = {.n = 0};
    struct argp_option options[MAX_ENTRIES + 2] = {{0}};
    char *doc = NULL;
    collect(&p, command, into, 0);
    for (size_t i = 0; i < p.n; i++) options[i] = row_of(&p.at[i], FIRST_KEY + (int)i);
    options[p.n] = (struct argp_option){NULL, 'h', NULL, 0, "The same as --help", -1};
    if (argc == 2 && !strcmp(argv[1], TOOL_HELP_JSON))
        exit(print_description(command, argv[0], &p));
    check_options(&p, argc, argv);
    const char *notes = command->notes ? command->notes : "";
    if (asprintf(&doc, "%s%s%s", command->doc, notes[0] ? "\v" : "", notes) < 0)
        exit(tool_fail_text("command line", "out of memory"));
    const struct argp argp = {options, parse, command->usage, doc, NULL, help, NULL};
    error_t why = argp_parse(&argp, argc, argv, 0, NULL, &p);
    free(doc);
    if (why) exit(tool_fail_text("command line", "cannot be read: %s", strerror(why)));
}
